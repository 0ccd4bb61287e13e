//! The replies a client waits for, oldest first, and how each is to be treated when it comes.
//!
//! Replies are matched by their headers only. A reply with moreToCome leaves its request owed: exhaust
//! cursors and streamed hellos answer one request with many frames, each naming the frame before it.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::wire::compressed::Compressor;
use crate::wire::op_msg::MORE_TO_COME;
use crate::wire::{HEADER_LENGTH, Header, OpCode};

/// What becomes of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Treatment {
    /// It streams through.
    Forward,
    /// A hello's: its addresses are rewritten, and the client gets it compressed so.
    Hello(Option<Compressor>),
    /// The request went upstream in another form than it came in: the client gets its reply compressed so.
    Convert(Option<Compressor>),
}

#[derive(Debug, Serialize, Deserialize)]
struct Owed {
    /// The `responseTo` of the next frame that answers it.
    request_id: i32,
    treatment: Treatment,
}

/// Requests that have gone upstream and are not fully answered.
#[derive(Debug, Default, Serialize, Deserialize)]
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
        self.0.iter().all(|owed| matches!(owed.treatment, Treatment::Hello(_)))
    }

    pub(super) fn push(&mut self, request_id: i32, treatment: Treatment) {
        self.0.push_back(Owed { request_id, treatment });
    }

    /// Matches a reply; with `another_follows` its request stays owed.
    ///
    /// # Errors
    /// [`ReplyOutOfOrder`]: the connection is out of step.
    pub(super) fn answer(&mut self, header: &Header, another_follows: bool) -> Result<Treatment, ReplyOutOfOrder> {
        let Some(owed) = self.0.front_mut() else {
            return Err(ReplyOutOfOrder::Unasked(header.response_to));
        };
        let (request_id, response_to) = (owed.request_id, header.response_to);
        let treatment = owed.treatment;
        // Whether a forwarded reply is the right one is between the two it concerns.
        if matches!(treatment, Treatment::Hello(_)) && request_id != response_to {
            return Err(ReplyOutOfOrder::NotTheHello { request_id, response_to });
        }
        if another_follows {
            owed.request_id = header.request_id;
        } else {
            self.0.pop_front();
        }
        Ok(treatment)
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

    const HELLO: Treatment = Treatment::Hello(None);

    fn answer(owed: &mut OwedReplies, id: i32, to: i32, another_follows: bool) -> Result<Treatment, ReplyOutOfOrder> {
        let header = Header { length: 100, request_id: id, response_to: to, op_code: OpCode::Msg };
        owed.answer(&header, another_follows)
    }

    #[test]
    fn replies_come_in_the_order_of_their_requests() {
        let mut owed = OwedReplies::default();
        owed.push(1, Treatment::Forward);
        owed.push(2, HELLO);
        assert_eq!(answer(&mut owed, 50, 1, false), Ok(Treatment::Forward));
        assert!(owed.only_hellos());
        assert_eq!(answer(&mut owed, 51, 2, false), Ok(HELLO));
        assert_eq!(answer(&mut owed, 52, 3, false), Err(ReplyOutOfOrder::Unasked(3)));
    }

    #[test]
    fn a_streamed_hello_stays_owed_and_each_frame_answers_the_one_before() {
        let mut owed = OwedReplies::default();
        owed.push(7, HELLO);
        assert_eq!(answer(&mut owed, 50, 7, true), Ok(HELLO));
        assert_eq!(answer(&mut owed, 51, 50, true), Ok(HELLO));
        let wrong = ReplyOutOfOrder::NotTheHello { request_id: 51, response_to: 7 };
        assert_eq!(answer(&mut owed, 52, 7, false), Err(wrong));
        assert_eq!(answer(&mut owed, 52, 51, false), Ok(HELLO));
        assert!(owed.is_empty());
    }
}
