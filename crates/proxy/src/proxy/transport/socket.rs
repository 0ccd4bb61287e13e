//! The sockets docward relays between, with or without TLS, and their options.

use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::FutureExt;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// Idle time before the first keepalive probe, and the time between probes. The idle time is that of MongoDB's drivers
/// (120 s), below the idle timeouts of common load balancers.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(120);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Bytes that a TLS connection may have received and not yet returned: four records.
const MAX_TLS_BUFFERED: usize = 64 * 1024;

/// The client's side of a relay.
pub(in crate::proxy) trait ClientSocket: AsyncRead + AsyncWrite + Unpin {
    /// Whether the client has closed its sending half so that `missing` more bytes cannot arrive. Reads nothing.
    /// `false` if that is unknown.
    fn has_closed_before(&self, missing: usize) -> bool;
}

/// A socket to a server.
pub(in crate::proxy) trait ServerSocket: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> ServerSocket for S {}

/// One side of a relay. The kind is matched per call, which costs little beside the system call.
#[derive(Debug)]
pub enum SocketStream {
    Plain(TcpStream),
    /// Boxed: plain connections should not take the space of TLS state.
    Tls(Box<TlsStream<TcpStream>>),
}

impl SocketStream {
    /// The local address of the socket.
    pub(in crate::proxy) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Plain(stream) => stream.local_addr(),
            Self::Tls(stream) => stream.get_ref().0.local_addr(),
        }
    }
}

impl ClientSocket for SocketStream {
    fn has_closed_before(&self, missing: usize) -> bool {
        let (socket, buffered) = match self {
            Self::Plain(stream) => (stream, 0),
            Self::Tls(stream) => (stream.get_ref().0, MAX_TLS_BUFFERED),
        };
        let ready = socket.ready(Interest::READABLE).now_or_never();
        let is_closed = ready.is_some_and(|ready| ready.is_ok_and(|ready| ready.is_read_closed()));
        // Encrypted bytes are more than their content.
        is_closed && rustix::io::ioctl_fionread(socket).is_ok_and(|unread| unread + (buffered as u64) < missing as u64)
    }
}

impl AsyncRead for SocketStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => match ready!(Pin::new(stream).poll_read(cx, buffer)) {
                // Many drivers close without a TLS close_notify. Messages carry their length, so a truncated one is
                // still detected.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
                other => Poll::Ready(other),
            },
        }
    }
}

impl AsyncWrite for SocketStream {
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

/// Disables Nagle's algorithm, since messages are written whole, and enables keepalive to detect dead peers.
///
/// # Errors
/// I/O errors of the socket, which is unusable then.
pub(in crate::proxy) fn tune(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}
