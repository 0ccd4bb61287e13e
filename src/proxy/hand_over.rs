//! Passing the listening sockets to a new process over a Unix socket, so that no client meets a closed port.
//!
//! The new process asks at the path, gets the sockets, accepts on them, says so, and only then the old one stops
//! accepting and drains. If it dies before, nothing has happened. Only processes of the same user are served.
//! On the wire: the length of a JSON list of purposes (u32, little endian), the list, with the sockets in its
//! order as `SCM_RIGHTS`; then one byte from the new process when it accepts, and the end of the stream from the
//! old one when it does not any more.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use super::sockets::{Listening, Passed};

/// Sockets that one message carries (the kernel's `SCM_MAX_FD`); a set has at most 50 members.
const MAX_SOCKETS: usize = 253;
/// Bytes of the list of purposes; host names have at most 255.
const MAX_LIST: usize = 128 * 1024;
/// How long one side waits for the other: a new process loads its rules meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);

/// The process before this one, which waits to be told that it may go.
#[derive(Debug)]
pub(super) struct Predecessor(UnixStream);

/// Asks whoever offers its sockets at `path`; `None` when nobody does.
///
/// # Errors
/// The socket's, or an answer that is none.
pub(super) async fn ask(path: &Path) -> io::Result<Option<(Passed, Predecessor)>> {
    let mut stream = match UnixStream::connect(path).await {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => return Ok(None),
        Err(error) => return Err(error),
    };
    let (list, sockets) = timeout(PATIENCE, receive(&mut stream)).await??;
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

impl Predecessor {
    /// Lets it go, and waits until it does not accept any more.
    ///
    /// # Errors
    /// The socket's.
    pub(super) async fn release(mut self) -> io::Result<()> {
        self.0.write_all(&[1]).await?;
        match timeout(PATIENCE, self.0.read(&mut [0])).await? {
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Offers what `listening` has at `path` until a new process accepts in our place. Its stream is given back; when
/// it is dropped, that process knows that we do not accept any more.
///
/// # Errors
/// The path cannot be listened on.
pub(super) async fn offer(path: &Path, listening: &Listening) -> io::Result<UnixStream> {
    // What a process before us left there: it has been asked, and nobody answered or it has gone.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    let owner = std::fs::metadata(path)?.uid();
    loop {
        let (mut stream, _) = socket.accept().await?;
        if stream.peer_cred()?.uid() != owner {
            tracing::warn!("hand-over: a process of another user asked for the sockets and got none");
            continue;
        }
        match timeout(PATIENCE, serve(&mut stream, listening)).await {
            Ok(Ok(())) => return Ok(stream),
            Ok(Err(error)) => tracing::warn!("hand-over: the new process did not take over: {error}"),
            Err(_) => tracing::warn!("hand-over: the new process did not take over within {} s", PATIENCE.as_secs()),
        }
    }
}

/// Sends the sockets and waits for the word that they are accepted on.
async fn serve(stream: &mut UnixStream, listening: &Listening) -> io::Result<()> {
    let sockets = listening.all();
    let purposes: Vec<&str> = sockets.iter().map(|(purpose, _)| purpose.as_str()).collect();
    let list = serde_json::to_vec(&purposes).map_err(io::Error::other)?;
    let length = u32::try_from(list.len()).map_err(io::Error::other)?;
    let message = [&length.to_le_bytes()[..], &list].concat();
    let descriptors: Vec<BorrowedFd<'_>> = sockets.iter().map(|(_, socket)| socket.as_fd()).collect();
    let sent = stream.async_io(Interest::WRITABLE, || send(stream.as_fd(), &message, &descriptors)).await?;
    stream.write_all(message.get(sent..).unwrap_or_default()).await?;
    stream.read_u8().await?;
    Ok(())
}

fn send(stream: BorrowedFd<'_>, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other(format!("more than {MAX_SOCKETS} listeners cannot be passed")));
    }
    Ok(sendmsg(stream, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL)?)
}

async fn receive(stream: &mut UnixStream) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut length = [0; 4];
    let mut sockets = Vec::new();
    // The sockets come with the first bytes.
    let here = stream.async_io(Interest::READABLE, || receive_part(stream.as_fd(), &mut length, &mut sockets)).await?;
    stream.read_exact(length.get_mut(here..).unwrap_or_default()).await?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_LIST {
        return Err(io::Error::new(ErrorKind::InvalidData, "its list of sockets is too long"));
    }
    let mut list = vec![0; length];
    stream.read_exact(&mut list).await?;
    Ok((list, sockets))
}

fn receive_part(stream: BorrowedFd<'_>, bytes: &mut [u8], sockets: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(stream, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            sockets.extend(passed);
        }
    }
    if received.bytes == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(received.bytes)
}
