//! The replies a client waits for, oldest first, and how each is treated when it arrives.
//!
//! Replies are matched by their headers only. A reply with moreToCome leaves its request pending: exhaust cursors and
//! streamed hellos answer one request with many frames, each naming the frame before it.

use std::collections::VecDeque;

use smallvec::SmallVec;

use crate::command::CommandName;
use crate::proxy::connection::pooling::OpenedCursor;
use crate::proxy::process::permits::Permit;
use crate::proxy::telemetry::meter::Meter;
use crate::proxy::telemetry::moment::Moment;
use crate::proxy::telemetry::slowest::StatementSender;
use crate::proxy::telemetry::spans::OpenSpan;
use crate::wire::compressed::Compressor;
use crate::wire::op_msg::{MORE_TO_COME, flags_of_head};
use crate::wire::{Header, OpCode};

/// How a reply is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proxy) enum ReplyAction {
    /// It streams through.
    Forward,
    /// Reply to a hello: its addresses are rewritten, and it is compressed for the client as given.
    Hello(Option<Compressor>),
    /// Reply to a login step: docward checks whether the login succeeded.
    Login,
    /// Reply that may contain the id of a cursor that waits for data: it is compressed for the client as given.
    Cursor(Option<Compressor>, OpenedCursor),
    /// If it is an error, the request may be sent again, or the client gets another one, compressed as given: at a router, and
    /// to a request that rules apply to.
    Examine(Option<Compressor>),
    /// Reply to docward's own message: it does not go to the client.
    Discard,
    /// The request was forwarded with a different compression: the reply is compressed for the client as given.
    Convert(Option<Compressor>),
}

#[derive(Debug)]
struct PendingReply {
    /// The `responseTo` of the next reply frame.
    request_id: i32,
    treatment: ReplyAction,
    timing: Timing,
    span: Option<Box<OpenSpan>>,
    /// Returned when the last reply begins, or the connection ends.
    permits: Box<[Permit]>,
    progress: TimingProgress,
}

/// Requests that were sent upstream and are not fully answered.
#[derive(Debug, Default)]
pub(in crate::proxy) struct PendingReplies {
    queue: VecDeque<PendingReply>,
    /// Every reply must name its request, because other clients use the server connection, too. Otherwise only replies
    /// to hellos must, and the client checks the others itself.
    is_strict: bool,
    /// The command of the next request to become pending.
    pub(in crate::proxy) command: CommandName,
    /// Its span, if it is sampled.
    pub(in crate::proxy) span: Option<Box<OpenSpan>>,
    /// Requests whose replies have begun and are not yet measured.
    completed: SmallVec<[CompletedRequest; 1]>,
}

/// A request whose reply has begun.
type CompletedRequest = (Timing, Option<Box<OpenSpan>>);

/// When a request was sent, and the time it took until then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Timing {
    command: CommandName,
    sent: Moment,
    /// docward's own nanoseconds.
    own: u64,
    /// Nanoseconds waited for servers before.
    waited: u64,
}

/// How far the measurement of a request has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum TimingProgress {
    Unsent,
    Sent,
    /// Its reply has begun and continues in further frames, or another process sent it.
    #[default]
    Accounted,
}

/// The server sent a reply that matches no pending request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in crate::proxy) enum ReplyOutOfOrder {
    #[error("the upstream sent a reply (responseTo {0}) without a pending request")]
    Unexpected(i32),
    #[error("the upstream answered request {response_to}, but the next reply is due to request {request_id}")]
    NotTheRequest { request_id: i32, response_to: i32 },
}

impl PendingReplies {
    /// `is_strict`: every reply must name its request.
    pub(in crate::proxy) fn new(is_strict: bool) -> Self {
        Self { is_strict, ..Self::default() }
    }

    pub(in crate::proxy) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(in crate::proxy) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether only docward's own messages are pending.
    pub(in crate::proxy) fn only_own(&self) -> bool {
        self.queue.iter().all(|pending| pending.treatment == ReplyAction::Discard)
    }

    /// Whether only hellos are pending: a streamed one stays pending as long as the connection lives.
    pub(in crate::proxy) fn only_hellos(&self) -> bool {
        self.queue.iter().all(|pending| matches!(pending.treatment, ReplyAction::Hello(_)))
    }

    /// The command whose reply comes next; `None` if no reply but those of hellos is pending.
    pub(in crate::proxy) fn oldest_command(&self) -> Option<CommandName> {
        let first = self.queue.front()?;
        (!matches!(first.treatment, ReplyAction::Hello(_))).then_some(first.timing.command)
    }

    /// If a hello is pending first: the `responseTo` of its next reply, and the compression for the client.
    pub(in crate::proxy) fn awaited_hello(&self) -> Option<(i32, Option<Compressor>)> {
        match self.queue.front()? {
            PendingReply { request_id, treatment: ReplyAction::Hello(compressor), .. } => {
                Some((*request_id, *compressor))
            }
            _ => None,
        }
    }

    pub(in crate::proxy) fn push(&mut self, request_id: i32, treatment: ReplyAction) {
        let timing = Timing { command: self.command, ..Timing::default() };
        let span = self.span.take();
        if self.queue.capacity() == 0 {
            // Drivers have one request in flight at a time, so most connections never need more.
            self.queue.reserve_exact(1);
        }
        let progress = TimingProgress::Unsent;
        self.queue.push_back(PendingReply { request_id, treatment, timing, span, permits: Box::default(), progress });
    }

    /// Whether one request of the client's is pending, and it is the last.
    pub(in crate::proxy) fn only_last(&self) -> bool {
        let first = self.queue.iter().position(|pending| pending.treatment != ReplyAction::Discard);
        first.is_some_and(|at| at + 1 == self.queue.len())
    }

    /// Forgets all requests: their server was lost.
    pub(in crate::proxy) fn forget(&mut self) {
        self.queue.clear();
    }

    /// Keeps these permits until the last reply to the last request; returns them at once if none is pending.
    pub(in crate::proxy) fn keep(&mut self, permits: Vec<Permit>) {
        if let Some(last) = self.queue.back_mut() {
            last.permits = permits.into();
        }
    }

    /// Adds a request of docward's own, which is not measured.
    pub(in crate::proxy) fn push_own(&mut self, request_id: i32) {
        let (treatment, progress) = (ReplyAction::Discard, TimingProgress::Accounted);
        let (timing, span, permits) = Default::default();
        self.queue.push_back(PendingReply { request_id, treatment, timing, span, permits, progress });
    }

    /// Matches a reply; with `another_follows` its request stays pending.
    ///
    /// # Errors
    /// [`ReplyOutOfOrder`]: the connection is out of sync.
    pub(in crate::proxy) fn match_reply(
        &mut self,
        header: &Header,
        another_follows: bool,
    ) -> Result<ReplyAction, ReplyOutOfOrder> {
        let Some(pending) = self.queue.front_mut() else {
            return Err(ReplyOutOfOrder::Unexpected(header.response_to));
        };
        let (request_id, response_to) = (pending.request_id, header.response_to);
        let treatment = pending.treatment;
        if request_id != response_to && (self.is_strict || matches!(treatment, ReplyAction::Hello(_))) {
            return Err(ReplyOutOfOrder::NotTheRequest { request_id, response_to });
        }
        if pending.progress == TimingProgress::Sent {
            pending.progress = TimingProgress::Accounted;
            self.completed.push((pending.timing, pending.span.take()));
        }
        if another_follows {
            pending.request_id = header.request_id;
        } else {
            self.queue.pop_front();
            if self.queue.is_empty() && self.queue.capacity() > 1 {
                self.queue.shrink_to(1);
            }
        }
        Ok(treatment)
    }

    /// Records that the requests read at `came` have been sent.
    pub(in crate::proxy) fn record_forwarded(&mut self, meter: &Meter, came: Moment) {
        if let Some(now) = meter.measuring_now() {
            self.mark_sent(now, now.since(came), 0);
        }
    }

    /// Records that the replies that began in what was read at `came` have been sent.
    pub(in crate::proxy) fn record_completed(
        &mut self,
        meter: &Meter,
        came: Moment,
        sender: Option<StatementSender<'_>>,
    ) {
        if self.completed.is_empty() {
            return;
        }
        let now = meter.now();
        // Of several requests in flight only the latest is remembered.
        let is_latest = self.completed.len() == 1 && self.queue.is_empty();
        for (timing, span) in std::mem::take(&mut self.completed) {
            let (own, upstream) = (timing.own + now.since(came), timing.waited + came.since(timing.sent));
            meter.record(timing.command, own, Some(upstream), span);
            if is_latest && let Some(sender) = sender {
                meter.note_slow(now, timing.command, (own, upstream), sender);
            }
        }
    }

    /// Records a message that was evaluated from `began` on, of which docward waited `waited` nanoseconds for a
    /// server. If its reply is still pending, its measurement continues.
    pub(in crate::proxy) fn record_evaluated(
        &mut self,
        meter: &Meter,
        began: Moment,
        waited: u64,
        sender: Option<StatementSender<'_>>,
    ) {
        let Some(now) = meter.measuring_now() else { return };
        let own = now.since(began).saturating_sub(waited);
        if !self.mark_sent(now, own, waited) {
            meter.record(self.command, own, (waited > 0).then_some(waited), self.span.take());
            if let Some(sender) = sender {
                meter.note_slow(now, self.command, (own, waited), sender);
            }
        }
    }

    /// Marks unsent requests as sent, after `own` nanoseconds of docward's time and `waited` nanoseconds for servers.
    /// Returns false if there were none.
    fn mark_sent(&mut self, now: Moment, own: u64, waited: u64) -> bool {
        let unsent = self.queue.iter_mut().rev().take_while(|pending| pending.progress == TimingProgress::Unsent);
        let sent = |pending: &mut PendingReply| {
            pending.progress = TimingProgress::Sent;
            pending.timing = Timing { sent: now, own, waited, ..pending.timing };
        };
        unsent.map(sent).count() > 0
    }
}

/// Whether OP_MSG's moreToCome flag is set: another reply follows, or (on a request) no reply is expected.
pub(in crate::proxy) fn more_to_come(header: &Header, head: &[u8]) -> bool {
    header.op_code == OpCode::Msg && flags_of_head(head).is_some_and(|flags| flags & MORE_TO_COME != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: ReplyAction = ReplyAction::Hello(None);

    fn answer(
        pending: &mut PendingReplies,
        id: i32,
        to: i32,
        another_follows: bool,
    ) -> Result<ReplyAction, ReplyOutOfOrder> {
        let header = Header { length: 100, request_id: id, response_to: to, op_code: OpCode::Msg };
        pending.match_reply(&header, another_follows)
    }

    #[test]
    fn replies_come_in_the_order_of_their_requests() {
        let mut pending = PendingReplies::default();
        pending.push(1, ReplyAction::Forward);
        pending.push(2, HELLO);
        assert_eq!(pending.awaited_hello(), None);
        assert_eq!(answer(&mut pending, 50, 1, false), Ok(ReplyAction::Forward));
        assert!(pending.only_hellos());
        assert_eq!(pending.awaited_hello(), Some((2, None)));
        assert_eq!(answer(&mut pending, 51, 2, false), Ok(HELLO));
        assert_eq!(answer(&mut pending, 52, 3, false), Err(ReplyOutOfOrder::Unexpected(3)));
    }

    #[test]
    fn on_a_shared_connection_every_reply_names_its_request() {
        for is_strict in [false, true] {
            for treatment in
                [ReplyAction::Forward, ReplyAction::Cursor(None, OpenedCursor::Waiting), ReplyAction::Convert(None)]
            {
                let mut pending = PendingReplies::new(is_strict);
                pending.push(1, treatment);
                let wrong = ReplyOutOfOrder::NotTheRequest { request_id: 1, response_to: 2 };
                assert_eq!(answer(&mut pending, 50, 2, false), if is_strict { Err(wrong) } else { Ok(treatment) });
            }
            let mut pending = PendingReplies::new(is_strict);
            pending.push_own(i32::MIN);
            assert_eq!(answer(&mut pending, 50, 7, false).is_err(), is_strict);
        }
    }

    #[test]
    fn requests_of_docwards_own_can_be_before_the_clients_last_one() {
        let mut pending = PendingReplies::new(true);
        assert!(pending.only_own() && !pending.only_last());
        pending.push_own(i32::MIN);
        assert!(pending.only_own() && !pending.only_last());
        pending.push(1, ReplyAction::Examine(None));
        assert!(!pending.only_own() && pending.only_last());
        pending.push(2, ReplyAction::Examine(None));
        assert!(!pending.only_last());
        pending.forget();
        assert!(pending.is_empty());
    }

    #[test]
    fn each_request_is_measured_once() {
        let mut pending = PendingReplies { command: CommandName::from_bytes(b"find"), ..PendingReplies::default() };
        pending.push(1, ReplyAction::Forward);
        pending.push(2, ReplyAction::Forward);
        assert!(pending.mark_sent(Moment::NEVER, 7, 9) && !pending.mark_sent(Moment::NEVER, 8, 0));
        pending.push(3, ReplyAction::Forward);
        answer(&mut pending, 50, 1, true).unwrap();
        answer(&mut pending, 51, 50, false).unwrap();
        answer(&mut pending, 52, 2, false).unwrap();
        // Not marked as sent, because nothing is measured.
        answer(&mut pending, 53, 3, false).unwrap();
        let expected = Timing { command: CommandName::from_bytes(b"find"), own: 7, waited: 9, ..Timing::default() };
        let answered: Vec<Timing> =
            std::mem::take(&mut pending.completed).into_iter().map(|(timing, _)| timing).collect();
        assert_eq!(answered, [expected; 2]);
        assert!(pending.completed.is_empty());
    }

    #[test]
    fn an_empty_queue_keeps_room_for_one_request() {
        let mut pending = PendingReplies::default();
        for count in [1, 1, 9, 1] {
            (0..count).for_each(|id| pending.push(id, ReplyAction::Forward));
            (0..count).for_each(|id| _ = answer(&mut pending, 50, id, false).unwrap());
            assert_eq!(pending.queue.capacity(), 1);
        }
    }

    #[test]
    fn a_streamed_hello_stays_pending_and_each_frame_answers_the_previous_one() {
        let mut pending = PendingReplies::default();
        pending.push(7, HELLO);
        assert_eq!(answer(&mut pending, 50, 7, true), Ok(HELLO));
        assert_eq!(answer(&mut pending, 51, 50, true), Ok(HELLO));
        assert_eq!(pending.awaited_hello(), Some((51, None)));
        let wrong = ReplyOutOfOrder::NotTheRequest { request_id: 51, response_to: 7 };
        assert_eq!(answer(&mut pending, 52, 7, false), Err(wrong));
        assert_eq!(answer(&mut pending, 52, 51, false), Ok(HELLO));
        assert!(pending.is_empty());
    }
}
