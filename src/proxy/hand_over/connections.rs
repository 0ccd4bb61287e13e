//! Connections passed to the next process: both sockets, and the relay's state between two messages.
//!
//! Clients and servers do not notice: the sockets stay open, and unread bytes wait in them. [`QuiescentState`] holds
//! the relay's state.

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

/// A quiescent connection.
#[derive(Debug)]
pub(in crate::proxy) struct PassedConnection {
    pub(in crate::proxy) client: TcpStream,
    pub(in crate::proxy) upstream: TcpStream,
    pub(in crate::proxy) snapshot: ConnectionSnapshot,
}

/// The state the next process needs to resume a connection.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::proxy) struct ConnectionSnapshot {
    /// The purpose of its listener; listening sockets are passed by the same names.
    pub(in crate::proxy) purpose: String,
    /// The server the client is connected to.
    pub(in crate::proxy) server: Address,
    pub(in crate::proxy) quiescent: QuiescentState,
}

/// Queue of connections for the next process; closed until there is one.
#[derive(Debug, Default)]
pub(in crate::proxy) struct HandOverSender(OnceLock<mpsc::UnboundedSender<PassedConnection>>);

impl HandOverSender {
    /// Opens the queue; called once.
    pub(in crate::proxy) fn open(&self) -> mpsc::UnboundedReceiver<PassedConnection> {
        let (sender, receiver) = mpsc::unbounded_channel();
        // An error cannot occur: a second call would only return a closed queue.
        let _ = self.0.set(sender);
        receiver
    }

    /// Queues a connection for the next process. If the queue is not open, the connection closes.
    pub(in crate::proxy) fn send(&self, connection: PassedConnection) {
        if let Some(sender) = self.0.get() {
            let _ = sender.send(connection);
        }
    }
}

impl PassedConnection {
    /// # Errors
    /// I/O errors of the socket.
    pub(super) async fn send(&self, stream: &mut UnixStream) -> io::Result<()> {
        let snapshot = serde_json::to_vec(&self.snapshot).map_err(io::Error::other)?;
        messages::send(stream, &snapshot, &[self.client.as_fd(), self.upstream.as_fd()]).await
    }

    /// The next connection; `None` when no more come.
    ///
    /// # Errors
    /// I/O errors of the socket, or `InvalidData` for an invalid message.
    pub(super) async fn receive(stream: &mut UnixStream) -> io::Result<Option<Self>> {
        let Some((snapshot, sockets)) = messages::receive(stream).await? else { return Ok(None) };
        let snapshot =
            serde_json::from_slice(&snapshot).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        let [client, upstream] = <[OwnedFd; 2]>::try_from(sockets)
            .map_err(|sockets| io::Error::new(ErrorKind::InvalidData, format!("{} sockets, not 2", sockets.len())))?;
        Ok(Some(Self { client: client.into(), upstream: upstream.into(), snapshot }))
    }
}
