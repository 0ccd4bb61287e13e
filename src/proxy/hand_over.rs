//! Passing the listening sockets, and then the connections, to a new process over a Unix socket, so that no client
//! notices.
//!
//! The new process asks at the path, gets the listening sockets, accepts on them, says so, and only then the old one
//! stops accepting and passes its connections, each between two messages. If the new process dies before, nothing
//! has happened. Both sides trust processes of their own user and of root only.
//! On the wire ([`messages`]): a JSON list of purposes with the listening sockets in its order; then one byte from
//! the new process when it accepts, the [`FORMAT`] that it reads connections in; then the connections, and the
//! end of the stream when the old one accepts nobody and passes nothing any more.

mod connections;
mod messages;

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

pub(super) use self::connections::{ConnectionSnapshot, HandOverSender, PassedConnection};
use super::sockets::{Listening, Passed};

/// Of [`ConnectionSnapshot`]s: another number whenever one process's could not be understood by the other. A process of another
/// format gets the listening sockets only.
const FORMAT: u8 = 2;
/// How long the new process waits for the sockets, which are sent at once.
const ANSWER: Duration = Duration::from_secs(5);
/// How long the old process waits for the new one, which starts meanwhile.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Connections that wait to be gone on with.
const WAITING: usize = 16;

/// The process before this one, which waits to be told that it may go.
#[derive(Debug)]
pub(super) struct Predecessor(UnixStream);

/// The process after this one, which accepts already. When this is dropped, it knows that we do not any more.
#[derive(Debug)]
pub(super) struct Successor {
    stream: UnixStream,
    format: u8,
}

/// Asks the process that offers its sockets at `path`; `None` when there is none, or none that can be trusted or answers.
///
/// # Errors
/// The socket's, or an answer that is none.
pub(super) async fn ask(path: &Path) -> io::Result<Option<(Passed, Predecessor)>> {
    let mut stream = match UnixStream::connect(path).await {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => return Ok(None),
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(silent(path)),
        Err(error) => return Err(error),
    };
    if let Some(user) = stranger(&stream)? {
        let path = path.display();
        tracing::warn!(
            "--hand-over {path}: a process of another user ({user}) offers sockets there; starting without them"
        );
        return Ok(None);
    }
    let Ok(answer) = timeout(ANSWER, messages::receive(&mut stream)).await else { return Ok(silent(path)) };
    let (list, sockets) = answer?.ok_or(ErrorKind::UnexpectedEof)?;
    let purposes: Vec<String> = serde_json::from_slice(&list).map_err(io::Error::other)?;
    if purposes.len() != sockets.len() {
        return Err(io::Error::new(ErrorKind::InvalidData, "it passed another number of sockets than it said"));
    }
    let mut passed = Passed::default();
    for (purpose, socket) in purposes.into_iter().zip(sockets) {
        passed.add(Some(purpose), socket.into())?;
    }
    Ok(Some((passed, Predecessor(stream))))
}

/// A process that accepts no connection or sends nothing must not keep this one from listening.
fn silent<T>(path: &Path) -> Option<T> {
    let path = path.display();
    tracing::warn!(
        "--hand-over {path}: the process there does not answer within {} s; starting without it",
        ANSWER.as_secs()
    );
    None
}

/// The user of the process on the other side, unless it is our own or root: nobody else can be trusted with sockets, or
/// to give some.
fn stranger(stream: &UnixStream) -> io::Result<Option<u32>> {
    let user = |stream: &UnixStream| stream.peer_cred().map(|credentials| credentials.uid());
    // Of a pair, the other side is this process.
    let own = user(&UnixStream::pair()?.0)?;
    Ok(Some(user(stream)?).filter(|peer| !is_trusted(*peer, own)))
}

fn is_trusted(peer: u32, own: u32) -> bool {
    const ROOT: u32 = 0;
    peer == own || peer == ROOT
}

impl Predecessor {
    /// Lets it go; gives the connections it passes, until it accepts nobody any more.
    pub(super) fn release(self) -> mpsc::Receiver<PassedConnection> {
        let (sender, connections) = mpsc::channel(WAITING);
        tokio::spawn(async move {
            match self.receive(sender).await {
                Ok(count) => tracing::info!("took over from the process before, with {count} connections"),
                Err(error) => tracing::warn!("the process before ended without a word: {error}"),
            }
        });
        connections
    }

    /// Gives how many came.
    async fn receive(mut self, connections: mpsc::Sender<PassedConnection>) -> io::Result<usize> {
        self.0.write_all(&[FORMAT]).await?;
        let mut count = 0;
        while let Some(connection) = PassedConnection::receive(&mut self.0).await? {
            if connections.send(connection).await.is_err() {
                break;
            }
            count += 1;
        }
        Ok(count)
    }
}

impl Successor {
    /// Whether it goes on with connections that stand.
    pub(super) fn takes_connections(&self) -> bool {
        self.format == FORMAT
    }

    /// # Errors
    /// The socket's: it has gone.
    pub(super) async fn pass(&mut self, connection: &PassedConnection) -> io::Result<()> {
        connection.send(&mut self.stream).await
    }
}

/// Offers what `listening` has at `path` until a new process accepts in our place.
///
/// # Errors
/// The path cannot be listened on.
pub(super) async fn offer(path: &Path, listening: &Listening) -> io::Result<Successor> {
    // What a process before us left there: it has been asked, and nobody answered or it has gone.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    loop {
        let (mut stream, _) = socket.accept().await?;
        if let Some(user) = stranger(&stream)? {
            tracing::warn!("hand-over: a process of another user ({user}) asked for the sockets and got none");
            continue;
        }
        match timeout(TIMEOUT, serve(&mut stream, listening)).await {
            Ok(Ok(format)) => return Ok(Successor { stream, format }),
            Ok(Err(error)) => tracing::warn!("hand-over: the new process did not take over: {error}"),
            Err(_) => tracing::warn!("hand-over: the new process did not take over within {} s", TIMEOUT.as_secs()),
        }
    }
}

/// Sends the sockets and waits for the word that they are accepted on.
async fn serve(stream: &mut UnixStream, listening: &Listening) -> io::Result<u8> {
    let sockets = listening.all();
    let purposes: Vec<&str> = sockets.iter().map(|(purpose, _)| purpose.as_str()).collect();
    let list = serde_json::to_vec(&purposes).map_err(io::Error::other)?;
    let descriptors: Vec<BorrowedFd<'_>> = sockets.iter().map(|(_, socket)| socket.as_fd()).collect();
    messages::send(stream, &list, &descriptors).await?;
    stream.read_u8().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sockets_are_between_processes_of_one_user_and_root() {
        assert!(is_trusted(1000, 1000) && is_trusted(0, 1000));
        assert!(!is_trusted(1001, 1000) && !is_trusted(1000, 0));
        let (stream, _other) = UnixStream::pair().unwrap();
        assert_eq!(stranger(&stream).unwrap(), None);
    }
}
