//! Passes the listening sockets to a new process over a Unix socket, so that no client is refused in between.
//!
//! The new process connects to the path, gets the listening sockets, accepts on them and confirms that. Only then does
//! the old process stop accepting, and drain. If the new process ends before it confirms, the old one continues
//! unchanged. Both trust only processes of their own user and of root. Connections are not passed: that worked only without
//! TLS, tied two versions to one format, and lost no fewer operations.
//!
//! Format ([`messages`]): the old process sends a JSON list of purposes with the listening sockets in the same order.
//! The new process confirms with one byte, [`CONFIRMED`].

mod messages;

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use crate::proxy::transport::listening_sockets::{ListeningSockets, PassedSockets};

/// The confirmation. Versions that also passed connections sent the number of their format; none was 0.
const CONFIRMED: u8 = 0;
/// How long the new process waits for the sockets, which are sent immediately.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the old process waits while the new one starts.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The previous process, which waits for the confirmation.
#[derive(Debug)]
pub(in crate::proxy) struct Predecessor(UnixStream);

/// Requests the sockets offered at `path`. `None`: no process offers any, it belongs to an untrusted user, or it does
/// not answer.
///
/// # Errors
/// I/O errors of the socket, or an invalid reply.
pub(in crate::proxy) async fn ask(path: &Path) -> io::Result<Option<(PassedSockets, Predecessor)>> {
    let mut stream = match UnixStream::connect(path).await {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => return Ok(None),
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(log_no_reply(path)),
        Err(error) => return Err(error),
    };
    if let Some(user) = untrusted_user(&stream)? {
        let path = path.display();
        tracing::warn!(
            "--hand-over {path}: a process of another user ({user}) offers sockets there; starting without them"
        );
        return Ok(None);
    }
    let Ok(reply) = timeout(REPLY_TIMEOUT, messages::receive(&mut stream)).await else {
        return Ok(log_no_reply(path));
    };
    let (list, sockets) = reply?.ok_or(ErrorKind::UnexpectedEof)?;
    let purposes: Vec<String> = serde_json::from_slice(&list).map_err(io::Error::other)?;
    if purposes.len() != sockets.len() {
        return Err(io::Error::new(ErrorKind::InvalidData, "the number of passed sockets differs from the list"));
    }
    let mut passed = PassedSockets::default();
    for (purpose, socket) in purposes.into_iter().zip(sockets) {
        passed.add(Some(purpose), socket.into())?;
    }
    Ok(Some((passed, Predecessor(stream))))
}

/// Logs that the process did not answer. A process that hangs must not keep this one from starting.
fn log_no_reply<T>(path: &Path) -> Option<T> {
    let path = path.display();
    tracing::warn!(
        "--hand-over {path}: the process there does not answer within {} s; starting without it",
        REPLY_TIMEOUT.as_secs()
    );
    None
}

/// The user of the peer process, unless it is this process's user or root: no other user is trusted to receive or
/// provide sockets.
fn untrusted_user(stream: &UnixStream) -> io::Result<Option<u32>> {
    let user = |stream: &UnixStream| stream.peer_cred().map(|credentials| credentials.uid());
    // The peer of a socket pair is this process.
    let own = user(&UnixStream::pair()?.0)?;
    Ok(Some(user(stream)?).filter(|peer| !is_trusted(*peer, own)))
}

fn is_trusted(peer: u32, own: u32) -> bool {
    const ROOT: u32 = 0;
    peer == own || peer == ROOT
}

impl Predecessor {
    /// Confirms the hand-over: this process accepts.
    pub(in crate::proxy) async fn confirm(mut self) {
        match self.0.write_u8(CONFIRMED).await {
            Ok(()) => tracing::info!("took over from the previous process"),
            Err(error) => tracing::warn!("the previous process ended during the hand-over: {error}"),
        }
    }
}

/// Offers the sockets of `listening` at `path` until a new process accepts on them.
///
/// # Errors
/// The path cannot be bound.
pub(in crate::proxy) async fn offer(path: &Path, listening: &ListeningSockets) -> io::Result<()> {
    // Removes the socket of an earlier process. `ask` has already contacted that process; it has ended or does not
    // answer.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    loop {
        let (mut stream, _) = socket.accept().await?;
        if let Some(user) = untrusted_user(&stream)? {
            tracing::warn!("hand-over: a process of another user ({user}) asked for the sockets and got none");
            continue;
        }
        match timeout(TIMEOUT, serve(&mut stream, listening)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => tracing::warn!("hand-over: the new process did not take over: {error}"),
            Err(_) => tracing::warn!("hand-over: the new process did not take over within {} s", TIMEOUT.as_secs()),
        }
    }
}

/// Sends the sockets and waits for the confirmation.
async fn serve(stream: &mut UnixStream, listening: &ListeningSockets) -> io::Result<()> {
    let sockets = listening.all();
    let purposes: Vec<&str> = sockets.iter().map(|(purpose, _)| purpose.as_str()).collect();
    let list = serde_json::to_vec(&purposes).map_err(io::Error::other)?;
    let descriptors: Vec<BorrowedFd<'_>> = sockets.iter().map(|(_, socket)| socket.as_fd()).collect();
    messages::send(stream, &list, &descriptors).await?;
    stream.read_u8().await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_processes_of_the_same_user_and_root_are_trusted() {
        assert!(is_trusted(1000, 1000) && is_trusted(0, 1000));
        assert!(!is_trusted(1001, 1000) && !is_trusted(1000, 0));
        let (stream, _other) = UnixStream::pair().unwrap();
        assert_eq!(untrusted_user(&stream).unwrap(), None);
    }
}
