//! The replies a client waits for, oldest first, and how each is to be treated when it comes.
//!
//! Replies are matched by their headers only. A reply with moreToCome leaves its request owed: exhaust
//! cursors and streamed hellos answer one request with many frames, each naming the frame before it.

use std::collections::VecDeque;

use crate::wire::op_msg::MORE_TO_COME;
use crate::wire::{HEADER_LENGTH, Header, OpCode};

/// Bytes of a reply that tell how to treat it: the header and OP_MSG's flags.
const REPLY_HEAD_LENGTH: usize = HEADER_LENGTH + 4;

/// What becomes of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Treatment {
    /// It streams through.
    Forward,
    /// A hello's: its addresses are rewritten.
    Hello,
}

#[derive(Debug)]
struct Owed {
    /// The `responseTo` of the next frame that answers it.
    request_id: i32,
    treatment: Treatment,
}

/// Requests that have gone upstream and are not fully answered.
#[derive(Debug, Default)]
pub(super) struct OwedReplies(VecDeque<Owed>);

/// The server sent what nobody can put in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ReplyOutOfOrder {
    #[error("the upstream sent a reply (responseTo {0}) that nobody asked for")]
    Unasked(i32),
    #[error("the upstream answered request {response_to} when the hello {request_id} was to be answered")]
    NotTheHello { request_id: i32, response_to: i32 },
}

impl OwedReplies {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether all that is owed is hellos: a streamed one stays owed as long as the connection lives.
    pub(super) fn only_hellos(&self) -> bool {
        self.0.iter().all(|owed| owed.treatment == Treatment::Hello)
    }

    pub(super) fn push(&mut self, request_id: i32, treatment: Treatment) {
        self.0.push_back(Owed { request_id, treatment });
    }

    /// Matches a reply by its first bytes; `None` while they are too few.
    ///
    /// # Errors
    /// [`ReplyOutOfOrder`]: the connection is out of step.
    pub(super) fn answer(&mut self, header: &Header, head: &[u8]) -> Result<Option<Treatment>, ReplyOutOfOrder> {
        if head.len() < REPLY_HEAD_LENGTH.min(header.length) {
            return Ok(None);
        }
        let Some(owed) = self.0.front_mut() else {
            return Err(ReplyOutOfOrder::Unasked(header.response_to));
        };
        let (request_id, response_to) = (owed.request_id, header.response_to);
        let treatment = owed.treatment;
        // Whether a forwarded reply is the right one is between the two it concerns.
        if treatment == Treatment::Hello && request_id != response_to {
            return Err(ReplyOutOfOrder::NotTheHello { request_id, response_to });
        }
        if more_to_come(header, head) {
            owed.request_id = header.request_id;
        } else {
            self.0.pop_front();
        }
        Ok(Some(treatment))
    }
}

/// Whether OP_MSG's flag says that another reply follows, or (on a request) that none is wanted.
pub(super) fn more_to_come(header: &Header, head: &[u8]) -> bool {
    let flags = head.get(HEADER_LENGTH..).and_then(<[u8]>::first_chunk).map_or(0, |b| u32::from_le_bytes(*b));
    header.op_code == OpCode::Msg && flags & MORE_TO_COME != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(request_id: i32, response_to: i32, flags: u32) -> (Header, Vec<u8>) {
        let mut bytes = Vec::new();
        Header::write(&mut bytes, request_id, response_to, OpCode::Msg);
        bytes.extend_from_slice(&flags.to_le_bytes());
        (Header { length: 100, request_id, response_to, op_code: OpCode::Msg }, bytes)
    }

    fn answer(owed: &mut OwedReplies, reply: (Header, Vec<u8>)) -> Result<Option<Treatment>, ReplyOutOfOrder> {
        owed.answer(&reply.0, &reply.1)
    }

    #[test]
    fn replies_come_in_the_order_of_their_requests() {
        let mut owed = OwedReplies::default();
        owed.push(1, Treatment::Forward);
        owed.push(2, Treatment::Hello);
        assert_eq!(answer(&mut owed, reply(50, 1, 0)), Ok(Some(Treatment::Forward)));
        assert!(owed.only_hellos());
        assert_eq!(answer(&mut owed, reply(51, 2, 0)), Ok(Some(Treatment::Hello)));
        assert_eq!(answer(&mut owed, reply(52, 3, 0)), Err(ReplyOutOfOrder::Unasked(3)));
    }

    #[test]
    fn a_streamed_hello_stays_owed_and_each_frame_answers_the_one_before() {
        let mut owed = OwedReplies::default();
        owed.push(7, Treatment::Hello);
        assert_eq!(answer(&mut owed, reply(50, 7, MORE_TO_COME)), Ok(Some(Treatment::Hello)));
        assert_eq!(answer(&mut owed, reply(51, 50, MORE_TO_COME)), Ok(Some(Treatment::Hello)));
        let wrong = ReplyOutOfOrder::NotTheHello { request_id: 51, response_to: 7 };
        assert_eq!(answer(&mut owed, reply(52, 7, 0)), Err(wrong));
        assert_eq!(answer(&mut owed, reply(52, 51, 0)), Ok(Some(Treatment::Hello)));
        assert!(owed.is_empty());
    }

    #[test]
    fn a_head_too_short_to_show_the_flags_is_waited_for() {
        let mut owed = OwedReplies::default();
        owed.push(1, Treatment::Forward);
        let (header, bytes) = reply(50, 1, 0);
        assert_eq!(owed.answer(&header, &bytes[..19]), Ok(None));
        assert_eq!(owed.len(), 1);
    }
}
