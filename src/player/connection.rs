//! A connection to a target: sends a message and reads its reply.

use std::io;

use crate::command::own::message;
use crate::document::Writer;
use crate::proxy::{SocketStream, exchange_up_to};

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
    /// As [`exchange_up_to`]. The connection is unusable then.
    pub(super) async fn exchange(&mut self, frame: &[u8]) -> io::Result<Vec<u8>> {
        exchange_up_to(MAX_REPLY, &mut self.stream, frame).await
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
