//! Messages with file descriptors over a Unix stream: a length (u32, little endian) and that many bytes. Descriptors
//! come with the first byte (`SCM_RIGHTS`).

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;

/// Descriptors in one message (the kernel's `SCM_MAX_FD`). A replica set has at most 50 members.
const MAX_DESCRIPTORS: usize = 253;
/// Bytes of one message: a list of host names of at most 255 bytes each.
const MAX_LENGTH: usize = 128 * 1024;

/// Received bytes with their descriptors.
pub(super) type HandOverMessage = (Vec<u8>, Vec<OwnedFd>);

/// # Errors
/// I/O errors of the socket, or `Other` for more descriptors than one message may have.
pub(super) async fn send(stream: &mut UnixStream, content: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let length = u32::try_from(content.len()).map_err(io::Error::other)?;
    let message = [&length.to_le_bytes()[..], content].concat();
    let sent = stream.async_io(Interest::WRITABLE, || send_part(stream.as_fd(), &message, descriptors)).await?;
    stream.write_all(message.get(sent..).unwrap_or_default()).await
}

/// The next message; `None` at the end of the stream.
///
/// # Errors
/// I/O errors of the socket, `UnexpectedEof` within a message, `InvalidData` for a message that is too long.
pub(super) async fn receive(stream: &mut UnixStream) -> io::Result<Option<HandOverMessage>> {
    let mut length = [0; 4];
    let mut descriptors = Vec::new();
    let here =
        stream.async_io(Interest::READABLE, || receive_part(stream.as_fd(), &mut length, &mut descriptors)).await?;
    if here == 0 {
        return Ok(None);
    }
    stream.read_exact(length.get_mut(here..).unwrap_or_default()).await?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_LENGTH {
        return Err(io::Error::new(ErrorKind::InvalidData, format!("a message of {length} bytes is too long")));
    }
    let mut content = vec![0; length];
    stream.read_exact(&mut content).await?;
    Ok(Some((content, descriptors)))
}

fn send_part(stream: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other(format!("more than {MAX_DESCRIPTORS} sockets cannot be passed")));
    }
    Ok(sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

fn receive_part(stream: BorrowedFd<'_>, bytes: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(stream, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            descriptors.extend(passed);
        }
    }
    Ok(received.bytes)
}
