//! The server's side of a connection.

use std::io::{self, ErrorKind};
use std::task::{Context, Poll};

use crate::proxy::connection::end::End;
use crate::proxy::connection::framing::ReplyToCollect;
use crate::proxy::connection::write_buffer::{WriteBuffer, poll_read};
use crate::proxy::transport::socket::ServerSocket;
use crate::wire::splitter::Splitter;

/// The server's side of a connection: its socket and the frames that arrive on it.
#[derive(Debug)]
pub(in crate::proxy) struct ServerHalf<U> {
    /// `None`: the client shares connections of a pool and has none now, or its own is not yet dialled.
    pub(in crate::proxy) stream: Option<U>,
    pub(in crate::proxy) replies: Splitter<ReplyToCollect>,
    /// Bytes for the server that its socket has not taken yet.
    pub(in crate::proxy) out: WriteBuffer,
    /// Why they cannot be sent.
    failure: Option<io::Error>,
}

impl<U: ServerSocket> ServerHalf<U> {
    /// Sends bytes to the server, or buffers them. [`Self::poll_flush`] returns the error: messages that came with these must
    /// not be lost by it.
    pub(in crate::proxy) fn send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) {
        if bytes.is_empty() || self.failure.is_some() {
            return;
        }
        self.failure = match &mut self.stream {
            Some(stream) => self.out.send(cx, stream, bytes).err(),
            None => Some(ErrorKind::NotConnected.into()),
        };
    }

    /// Sends what is buffered.
    pub(in crate::proxy) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        if let Some(error) = self.failure.take() {
            return Poll::Ready(Err(End::UpstreamError(error)));
        }
        match &mut self.stream {
            Some(stream) => self.out.poll_flush(cx, stream).map_err(End::UpstreamError),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Reads once; an empty slice marks the end of the stream. Without a connection nothing arrives.
    pub(in crate::proxy) fn poll_read<'b>(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &'b mut [u8],
    ) -> Poll<io::Result<&'b [u8]>> {
        match &mut self.stream {
            Some(stream) => poll_read(cx, stream, buffer),
            None => Poll::Pending,
        }
    }

    /// Whether nothing is in flight to or from the server, apart from pending replies.
    pub(in crate::proxy) fn is_between_messages(&self) -> bool {
        self.replies.between_frames() && self.out.is_empty() && self.failure.is_none()
    }
}

impl<U> Default for ServerHalf<U> {
    /// Without a connection.
    fn default() -> Self {
        Self { stream: None, replies: Splitter::default(), out: WriteBuffer::default(), failure: None }
    }
}
