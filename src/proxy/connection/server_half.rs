//! The server's side of a connection.

use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::proxy::connection::end::End;
use crate::proxy::connection::framing::Reply;
use crate::proxy::connection::write_buffer::WriteBuffer;
use crate::wire::splitter::Splitter;

/// The server's side of a connection: its socket and the frames that arrive on it.
#[derive(Debug)]
pub(in crate::proxy) struct ServerHalf<U> {
    pub(in crate::proxy) stream: U,
    pub(in crate::proxy) replies: Splitter<Reply>,
    /// Bytes for the server that its socket has not taken yet.
    pub(in crate::proxy) out: WriteBuffer,
}

impl<U: AsyncRead + AsyncWrite + Unpin> ServerHalf<U> {
    pub(in crate::proxy) fn new(stream: U) -> Self {
        Self { stream, replies: Splitter::default(), out: WriteBuffer::default() }
    }

    /// Sends bytes to the server, or buffers them.
    pub(in crate::proxy) fn send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Result<(), End> {
        self.out.send(cx, &mut self.stream, bytes).map_err(End::UpstreamError)
    }

    /// Sends what is buffered.
    pub(in crate::proxy) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        self.out.poll_flush(cx, &mut self.stream).map_err(End::UpstreamError)
    }
}
