//! Outgoing bytes: written immediately while the socket takes them, buffered otherwise.
//!
//! Each thread has one read buffer, lent during a poll, so that an idle connection holds none. This module does not
//! know frames; see [`crate::wire::splitter`].

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes per read: as much as a loopback or 10 Gbit/s socket has ready at once, and small enough for the cache.
pub(in crate::proxy) const READ_LENGTH: usize = 64 * 1024;

/// Bytes that one connection reads or writes before other connections of its thread have their turn: some hundred
/// microseconds of copying.
pub(in crate::proxy) const TURN_LENGTH: usize = 1 << 20;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_LENGTH].into_boxed_slice());
}

/// Lends this thread's read buffer. `borrow` must not call this function again.
pub(in crate::proxy) fn with_read_buffer<T>(borrow: impl FnOnce(&mut [u8]) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| borrow(scratch))
}

/// Reads once; an empty slice marks the end of the stream.
pub(in crate::proxy) fn poll_read<'b, R>(
    cx: &mut Context<'_>,
    reader: &mut R,
    buffer: &'b mut [u8],
) -> Poll<io::Result<&'b [u8]>>
where
    R: AsyncRead + Unpin,
{
    let mut read = ReadBuf::new(buffer);
    ready!(Pin::new(reader).poll_read(cx, &mut read))?;
    let length = read.filled().len();
    Poll::Ready(Ok(buffer.get(..length).unwrap_or_default()))
}

/// Bytes that one socket has not taken yet.
#[derive(Debug, Default)]
pub(in crate::proxy) struct WriteBuffer {
    /// Holds no allocation when everything is sent.
    bytes: Vec<u8>,
    /// `0 ..= bytes.len()`.
    sent: usize,
    /// Bytes were written since the last flush; only layers such as TLS hold data back.
    unflushed: bool,
}

impl WriteBuffer {
    pub(in crate::proxy) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && !self.unflushed
    }

    /// Number of bytes that have not been written.
    pub(in crate::proxy) fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Queues a message; [`poll_flush`](Self::poll_flush) sends it.
    pub(in crate::proxy) fn push(&mut self, message: Vec<u8>) {
        if self.bytes.is_empty() {
            self.bytes = message;
        } else {
            self.bytes.extend_from_slice(&message);
        }
    }

    /// Writes as much as the socket takes, and buffers the rest.
    ///
    /// # Errors
    /// I/O errors of the socket.
    pub(in crate::proxy) fn send<W>(&mut self, cx: &mut Context<'_>, writer: &mut W, mut bytes: &[u8]) -> io::Result<()>
    where
        W: AsyncWrite + Unpin,
    {
        while self.bytes.is_empty() && !bytes.is_empty() {
            match Pin::new(&mut *writer).poll_write(cx, bytes) {
                Poll::Ready(written) => {
                    bytes = bytes.get(nonzero(written?)?..).unwrap_or_default();
                    self.unflushed = true;
                }
                Poll::Pending => break,
            }
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Sends what is queued, [`TURN_LENGTH`] at a time.
    ///
    /// # Errors
    /// I/O errors of the socket.
    pub(in crate::proxy) fn poll_flush<W>(&mut self, cx: &mut Context<'_>, writer: &mut W) -> Poll<io::Result<()>>
    where
        W: AsyncWrite + Unpin,
    {
        let mut left = TURN_LENGTH;
        while let Some(rest) = self.bytes.get(self.sent..).filter(|rest| !rest.is_empty()) {
            if left == 0 {
                return yield_now(cx);
            }
            let piece = rest.get(..left).unwrap_or(rest);
            let written = nonzero(ready!(Pin::new(&mut *writer).poll_write(cx, piece))?)?;
            left -= written;
            self.sent += written;
            self.unflushed = true;
        }
        self.bytes = Vec::new();
        self.sent = 0;
        if self.unflushed {
            ready!(Pin::new(writer).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

/// Lets other tasks run before the task is polled again.
pub(in crate::proxy) fn yield_now<T>(cx: &Context<'_>) -> Poll<T> {
    cx.waker().wake_by_ref();
    Poll::Pending
}

fn nonzero(written: usize) -> io::Result<usize> {
    if written == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(written) }
}
