//! The messages that one connection sends repeatedly, and how it handles the replies.
//!
//! A message that is sent again needs a new request id, a new transaction number, and new ids and times that the
//! client generates. Marker values that occur nowhere else locate these fields once; each send overwrites them in
//! place.

use std::sync::Arc;

use anyhow::Result;
use memchr::memmem;

use super::exchange::check;
use super::frames::TICK;

/// A field of a message that is overwritten on each send.
#[derive(Clone, Copy)]
pub(crate) enum Fresh {
    /// Eight bytes that count up: a source time, or the transaction number of a retryable write.
    Count { from: i64 },
    /// An ObjectId that the client generates: unique per connection and pass, constant within one pass.
    Id,
    /// A date that advances by this many milliseconds with each pass.
    Date { original: i64, span: i64 },
}

/// Bytes of an ObjectId before its counter.
const MAKER: usize = 9;

/// One message, with the fields that are overwritten.
#[derive(Clone)]
pub(crate) struct Message {
    bytes: Vec<u8>,
    fresh: Vec<(usize, Fresh)>,
}

/// The progress of a connection.
#[derive(Clone, Copy, Default)]
struct Progress {
    connection: u32,
    /// Number of times it started its messages from the first.
    pass: u32,
    /// Number of messages sent.
    sent: u32,
}

/// Receives the replies of a connection.
pub(crate) trait Replies: Send + Sync {
    /// `message` is the index of the message that is answered.
    ///
    /// # Errors
    /// The benchmark cannot continue with this reply.
    fn on_reply(&self, message: usize, reply: &[u8]) -> Result<()>;
}

/// Accepts only replies that report success.
struct Good;

/// The messages of one connection, which together are one or several operations.
#[derive(Clone)]
pub(crate) struct Cycle {
    messages: Vec<Message>,
    per_operation: usize,
    at: usize,
    progress: Progress,
    replies: Arc<dyn Replies>,
}

impl Message {
    /// Overwrites every [`TICK`] in the message.
    fn ticking(bytes: Vec<u8>) -> Self {
        Self::new(bytes, &[(&TICK.to_le_bytes(), Fresh::Count { from: TICK })])
    }

    /// `marks` are bytes that occur only where a field is to be overwritten.
    pub(crate) fn new(bytes: Vec<u8>, marks: &[(&[u8], Fresh)]) -> Self {
        let places = |(mark, fresh): &(&[u8], Fresh)| {
            let fresh = *fresh;
            memmem::find_iter(&bytes, mark).map(move |at| (at, fresh)).collect::<Vec<_>>()
        };
        let fresh = marks.iter().flat_map(places).collect();
        Self { bytes, fresh }
    }

    fn refresh(&mut self, progress: Progress) -> &[u8] {
        let Progress { connection, pass, sent } = progress;
        self.bytes[4..8].copy_from_slice(&sent.to_le_bytes());
        for (at, fresh) in &self.fresh {
            let (mut maker, number);
            let value: &[u8] = match fresh {
                Fresh::Count { from } => {
                    number = (from + i64::from(sent)).to_le_bytes();
                    &number
                }
                Fresh::Date { original, span } => {
                    number = (original + span * i64::from(pass)).to_le_bytes();
                    &number
                }
                Fresh::Id => {
                    maker = [0; MAKER];
                    maker[..4].copy_from_slice(&pass.to_be_bytes());
                    maker[4..8].copy_from_slice(&connection.to_be_bytes());
                    &maker
                }
            };
            self.bytes[*at..*at + value.len()].copy_from_slice(value);
        }
        &self.bytes
    }
}

impl Cycle {
    /// A cycle of one message that is one operation.
    pub(crate) fn of(message: Vec<u8>) -> Self {
        Self::in_turn(vec![message])
    }

    /// Each message is an operation.
    pub(crate) fn in_turn(messages: Vec<Vec<u8>>) -> Self {
        Self::conversation(messages.into_iter().map(Message::ticking).collect(), Arc::new(Good))
    }

    /// All messages together are one operation.
    pub(crate) fn together(messages: Vec<Vec<u8>>) -> Self {
        Self { per_operation: messages.len(), ..Self::in_turn(messages) }
    }

    /// Each message is an operation, and `replies` receives the replies. `messages` is not empty.
    pub(crate) fn conversation(messages: Vec<Message>, replies: Arc<dyn Replies>) -> Self {
        Self { messages, per_operation: 1, at: 0, progress: Progress::default(), replies }
    }

    /// Sets the index of this connection among all connections.
    pub(crate) fn set_connection(&mut self, connection: u32) {
        self.progress.connection = connection;
    }

    /// Starts again from the first message.
    pub(crate) fn begin(&mut self) {
        self.at = 0;
    }

    pub(crate) fn messages(&self) -> usize {
        self.messages.len()
    }

    pub(crate) fn per_operation(&self) -> usize {
        self.per_operation
    }

    /// Whether all messages have been sent equally often.
    pub(crate) fn is_whole(&self) -> bool {
        self.at == 0
    }

    /// Returns the index of the next message, and its bytes.
    pub(crate) fn advance(&mut self) -> (usize, &[u8]) {
        let at = self.at;
        self.at = (at + 1) % self.messages.len();
        self.progress.pass += u32::from(at == 0);
        self.progress.sent += 1;
        (at, self.messages[at].refresh(self.progress))
    }

    /// Handles the reply to the message at this index.
    ///
    /// # Errors
    /// The benchmark cannot continue with this reply.
    pub(crate) fn on_reply(&self, message: usize, reply: &[u8]) -> Result<()> {
        self.replies.on_reply(message, reply)
    }
}

impl Replies for Good {
    fn on_reply(&self, _: usize, reply: &[u8]) -> Result<()> {
        check(reply)
    }
}
