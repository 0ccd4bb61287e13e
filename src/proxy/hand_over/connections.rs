//! Connections on their way to the next process: both sockets, and what the relay knew between two messages.
//!
//! Neither side notices: the sockets stay open, and bytes that nobody has read yet wait in them. What a relay knows
//! is [`QuiescentState`].

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::messages;
use crate::proxy::relay::QuiescentState;
use crate::proxy::upstream::Address;

/// A connection that stands between two messages.
#[derive(Debug)]
pub(in crate::proxy) struct PassedConnection {
    pub(in crate::proxy) client: TcpStream,
    pub(in crate::proxy) upstream: TcpStream,
    pub(in crate::proxy) memo: ConnectionSnapshot,
}

/// What the next process must know to go on.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::proxy) struct ConnectionSnapshot {
    /// What its listener is for; listening sockets are passed by the same names.
    pub(in crate::proxy) purpose: String,
    /// Whom it was paired with.
    pub(in crate::proxy) server: Address,
    pub(in crate::proxy) quiescent: QuiescentState,
}

/// Where connections leave for the next process, once there is one.
#[derive(Debug, Default)]
pub(in crate::proxy) struct HandOverSender(OnceLock<mpsc::UnboundedSender<PassedConnection>>);

impl HandOverSender {
    /// Opens it; called once.
    pub(in crate::proxy) fn open(&self) -> mpsc::UnboundedReceiver<PassedConnection> {
        let (sender, leaving) = mpsc::unbounded_channel();
        // A second call would get a queue at its end.
        let _ = self.0.set(sender);
        leaving
    }

    /// Has a connection leave. Where nobody waits for it, it closes.
    pub(in crate::proxy) fn send(&self, connection: PassedConnection) {
        if let Some(sender) = self.0.get() {
            let _ = sender.send(connection);
        }
    }
}

impl PassedConnection {
    /// # Errors
    /// The socket's.
    pub(super) async fn send(&self, stream: &mut UnixStream) -> io::Result<()> {
        let memo = serde_json::to_vec(&self.memo).map_err(io::Error::other)?;
        messages::send(stream, &memo, &[self.client.as_fd(), self.upstream.as_fd()]).await
    }

    /// The next one; `None` when no more come.
    ///
    /// # Errors
    /// The socket's, or `InvalidData` for what is no connection.
    pub(super) async fn receive(stream: &mut UnixStream) -> io::Result<Option<Self>> {
        let Some((memo, sockets)) = messages::receive(stream).await? else { return Ok(None) };
        let memo = serde_json::from_slice(&memo).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        let [client, upstream] = <[OwnedFd; 2]>::try_from(sockets)
            .map_err(|sockets| io::Error::new(ErrorKind::InvalidData, format!("{} sockets, not 2", sockets.len())))?;
        Ok(Some(Self { client: client.into(), upstream: upstream.into(), memo }))
    }
}
