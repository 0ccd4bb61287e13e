//! A connection to a target: sends a message and reads its reply.

use std::io::{self, ErrorKind};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::command::own::message;
use crate::document::Writer;
use crate::proxy::SocketStream;
use crate::wire::{HEADER_LENGTH, Header};

/// The longest reply in bytes: mongod's own limit for messages.
const MAX_REPLY: usize = 48_000_000;

/// A connection on which one command at a time is in flight.
#[derive(Debug)]
pub struct PlayerConnection {
    stream: SocketStream,
    request_id: i32,
}

impl PlayerConnection {
    pub(super) fn new(stream: SocketStream) -> Self {
        Self { stream, request_id: 0 }
    }

    /// Returns the id of the next request.
    pub(super) fn next_id(&mut self) -> i32 {
        self.request_id = self.request_id.wrapping_add(1);
        self.request_id
    }

    /// Sends a message and returns the whole reply.
    ///
    /// # Errors
    /// I/O errors of the socket, or `InvalidData` for a reply that is invalid or too long. The connection is unusable
    /// then.
    pub(super) async fn exchange(&mut self, frame: &[u8]) -> io::Result<Vec<u8>> {
        self.stream.write_all(frame).await?;
        self.stream.flush().await?;
        let mut head = [0; HEADER_LENGTH];
        self.stream.read_exact(&mut head).await?;
        let header = Header::parse(&head).ok().flatten().ok_or(ErrorKind::InvalidData)?;
        let rest = header.length.checked_sub(HEADER_LENGTH).filter(|_| header.length <= MAX_REPLY);
        let rest = rest.ok_or(ErrorKind::InvalidData)?;
        let mut reply = Vec::with_capacity(header.length);
        reply.extend_from_slice(&head);
        (&mut self.stream).take(rest as u64).read_to_end(&mut reply).await?;
        if reply.len() < header.length {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(reply)
    }

    /// Sends a command with the fields that `write` writes, and returns the reply.
    ///
    /// # Errors
    /// As [`Self::exchange`].
    pub(super) async fn command(&mut self, database: &str, write: impl FnOnce(&mut Writer<'_>)) -> io::Result<Vec<u8>> {
        let frame = message(self.next_id(), database, write);
        self.exchange(&frame).await
    }
}
