//! What one connection sends, again and again, and what it makes of the replies.
//!
//! A message that is sent twice is not the same message: its request id, a write's number in its session, the ids and
//! times a client makes are new. The places of these are found once, by values that occur nowhere else, and written
//! over in place each time.

use std::sync::Arc;

use anyhow::Result;
use memchr::memmem;

use super::exchange::check;
use super::frames::TICK;

/// A place in a message that is written anew each time it is sent.
#[derive(Clone, Copy)]
pub(crate) enum Fresh {
    /// Eight bytes that count up: a source's time, or a retryable write's number in its session.
    Count { from: i64 },
    /// An ObjectId that the client made: unlike that of any other connection and pass, the same within one.
    Id,
    /// A date, moved on by so many milliseconds with each pass.
    Date { original: i64, span: i64 },
}

/// Bytes of an ObjectId in front of its maker's counter.
const MAKER: usize = 9;

/// One message, with the places that are written over.
#[derive(Clone)]
pub(crate) struct Message {
    bytes: Vec<u8>,
    fresh: Vec<(usize, Fresh)>,
}

/// How far a connection has come.
#[derive(Clone, Copy, Default)]
struct Progress {
    connection: u32,
    /// Times it has begun its messages.
    pass: u32,
    /// Messages it has sent.
    sent: u32,
}

/// Takes a connection's replies.
pub(crate) trait Replies: Send + Sync {
    /// `message` is the place of the message that is answered.
    ///
    /// # Errors
    /// The reply is none that the benchmark can go on with.
    fn heard(&self, message: usize, reply: &[u8]) -> Result<()>;
}

/// Replies that all say that all went well.
struct Good;

/// One connection's messages, which together are one operation or several.
#[derive(Clone)]
pub(crate) struct Cycle {
    messages: Vec<Message>,
    per_operation: usize,
    at: usize,
    progress: Progress,
    replies: Arc<dyn Replies>,
}

impl Message {
    /// With a place for every [`TICK`] in it.
    fn ticking(bytes: Vec<u8>) -> Self {
        Self::new(bytes, &[(&TICK.to_le_bytes(), Fresh::Count { from: TICK })])
    }

    /// `marks` are bytes that occur where something is to be fresh, and nowhere else.
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
    /// One message that is one operation.
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

    /// Each message is an operation, and these are told the replies. `messages` are not empty.
    pub(crate) fn conversation(messages: Vec<Message>, replies: Arc<dyn Replies>) -> Self {
        Self { messages, per_operation: 1, at: 0, progress: Progress::default(), replies }
    }

    /// The number of its connection among all.
    pub(crate) fn set_connection(&mut self, connection: u32) {
        self.progress.connection = connection;
    }

    /// From the first message again.
    pub(crate) fn begin(&mut self) {
        self.at = 0;
    }

    pub(crate) fn messages(&self) -> usize {
        self.messages.len()
    }

    pub(crate) fn per_operation(&self) -> usize {
        self.per_operation
    }

    /// Whether all messages have been sent as often as one another.
    pub(crate) fn is_whole(&self) -> bool {
        self.at == 0
    }

    /// The place of the next message, and its bytes.
    pub(crate) fn advance(&mut self) -> (usize, &[u8]) {
        let at = self.at;
        self.at = (at + 1) % self.messages.len();
        self.progress.pass += u32::from(at == 0);
        self.progress.sent += 1;
        (at, self.messages[at].refresh(self.progress))
    }

    /// The reply to the message at this place.
    ///
    /// # Errors
    /// It is none that the benchmark can go on with.
    pub(crate) fn heard(&self, message: usize, reply: &[u8]) -> Result<()> {
        self.replies.heard(message, reply)
    }
}

impl Replies for Good {
    fn heard(&self, _: usize, reply: &[u8]) -> Result<()> {
        check(reply)
    }
}
