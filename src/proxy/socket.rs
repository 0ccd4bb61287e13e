//! The sockets docward relays between, plain or in TLS, and the options each of them has.

use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// Idle time after which a dead peer is asked for, and between questions: what MongoDB's drivers use (120 s),
/// below the idle timeouts of common load balancers.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(120);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// One side of a relay. Told apart per call, which a plain socket does not feel beside the system call.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    /// Boxed: plain connections should not be as large as those with a TLS session.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// A socket of another process.
    ///
    /// # Errors
    /// The system's, when tokio cannot use it.
    pub(super) fn from_std(stream: std::net::TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        TcpStream::from_std(stream).map(Self::Plain)
    }

    /// The socket alone, for another process.
    ///
    /// # Errors
    /// `Unsupported`: a TLS session cannot be taken out of its process.
    pub(super) fn into_std(self) -> io::Result<std::net::TcpStream> {
        match self {
            Self::Plain(stream) => stream.into_std(),
            Self::Tls(_) => Err(ErrorKind::Unsupported.into()),
        }
    }

    /// Our end, as the other side sees it.
    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Plain(stream) => stream.local_addr(),
            Self::Tls(stream) => stream.get_ref().0.local_addr(),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => match ready!(Pin::new(stream).poll_read(cx, buffer)) {
                // Many drivers close without TLS's final_flush. Messages carry their length, so nothing can be cut
                // off unnoticed.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
                other => Poll::Ready(other),
            },
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// Sends without waiting for more (messages are whole when they are written) and notices dead peers.
///
/// # Errors
/// The socket's; it is of no use then.
pub(super) fn tune(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}
