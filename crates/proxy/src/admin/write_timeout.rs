//! A write timeout: ends connections whose client does not read. Bytes that the kernel buffers count as written.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// The longest wait of a write.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A socket with a write timeout.
#[derive(Debug)]
pub(super) struct WithWriteTimeout {
    stream: TcpStream,
    /// Runs while a write waits.
    timer: Option<Pin<Box<Sleep>>>,
}

impl WithWriteTimeout {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, timer: None }
    }

    fn poll_in_time<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(written) = write(Pin::new(&mut self.stream), cx) {
            self.timer = None;
            return Poll::Ready(written);
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(TIMEOUT)));
        ready!(timer.poll_unpin(cx));
        Poll::Ready(Err(io::Error::new(ErrorKind::TimedOut, "the client did not read for 10 s")))
    }
}

impl AsyncRead for WithWriteTimeout {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for WithWriteTimeout {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_in_time(cx, |stream, cx| stream.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_in_time(cx, |stream, cx| stream.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
