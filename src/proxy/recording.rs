//! Recording instead of evaluation: an [`Interceptor`] that forwards everything as `serve` does without rules, and
//! passes a copy of each command that can reach documents, and a summary of its reply, to a [`Sink`].
//! [`crate::audit::capture`] defines the file format; the CLI writes the file.
//!
//! The reply is collected before the client gets it, because the id of a cursor is at its end.
//!
//! Logins, user management and other commands that rules never see stream through, so a record never contains
//! credentials. For commands docward does not know, only the name and the target are recorded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use crate::audit::ReplySummary;
use crate::audit::capture::{CapturedClient as From, is_recorded, outline, record, reply_record};
use crate::command::CommandClass;
use crate::engine::{
    self, ClientState, Input, ListenerKind, Now, Plan, QueryAdmission, RuleOutcome, Step, Triage, class_of_head,
    command_of_frame, name_of_head, read_users, users_question,
};
use crate::proxy::interceptor::{Interceptor, Steps};
use crate::rules::RuleSet;
use crate::wire::Header;
use crate::wire::op_msg::{EXHAUST_ALLOWED, Message};

/// Bytes of records that wait to be written. If the disk is too slow, records are dropped rather than clients delayed.
const MAX_WAITING: usize = 64 << 20;
/// Overhead of a waiting record besides its bytes.
const OVERHEAD: usize = 64;

/// A record that waits to be written.
#[derive(Debug)]
pub struct QueuedRecord {
    pub bytes: Vec<u8>,
    /// Not a reply.
    pub is_command: bool,
}

/// Queue of records.
#[derive(Debug, Clone)]
pub struct Sink {
    queue: Sender<Option<QueuedRecord>>,
    counts: Arc<RecordCounts>,
}

/// Counters shared with the writer of the records.
#[derive(Debug, Default)]
pub struct RecordCounts {
    waiting: AtomicUsize,
    /// Not recorded: too many records waited, or the file could not be written.
    dropped: AtomicU64,
}

impl RecordCounts {
    /// Called after a record has been written or dropped.
    pub fn taken(&self, record: &QueuedRecord) {
        self.waiting.fetch_sub(record.bytes.len() + OVERHEAD, Ordering::Relaxed);
    }

    /// Called for a record that is not written. Only commands count.
    pub fn drop_one(&self, record: &QueuedRecord) {
        self.dropped.fetch_add(u64::from(record.is_command), Ordering::Relaxed);
    }

    /// Number of commands that were not recorded.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl Sink {
    /// The consumer of `queue` calls [`RecordCounts::taken`] for each record; `None` marks the end.
    #[must_use]
    pub fn new(queue: Sender<Option<QueuedRecord>>, counts: Arc<RecordCounts>) -> Self {
        Self { queue, counts }
    }

    /// Queues a record without waiting. Returns false if it is dropped.
    fn offer(&self, record: QueuedRecord) -> bool {
        let size = record.bytes.len() + OVERHEAD;
        let before = self.counts.waiting.fetch_add(size, Ordering::Relaxed);
        // A single record may be larger than the limit.
        let fits = before == 0 || before + size <= MAX_WAITING;
        let not_queued =
            if fits { self.queue.send(Some(record)).err().and_then(|error| error.0) } else { Some(record) };
        if let Some(record) = &not_queued {
            self.counts.waiting.fetch_sub(size, Ordering::Relaxed);
            self.counts.drop_one(record);
        }
        not_queued.is_none()
    }

    /// Marks the end of the records.
    pub fn close(&self) {
        // An error means that the consumer has already stopped.
        let _ = self.queue.send(None);
    }
}

/// Records the commands it forwards.
#[derive(Debug)]
pub struct Recorder {
    /// Empty, so that commands that are not recorded are handled as in `serve` without rules.
    rules: RuleSet,
    sink: Sink,
}

impl Recorder {
    #[must_use]
    pub fn new(sink: Sink) -> Self {
        Self { rules: RuleSet::default(), sink }
    }
}

impl Interceptor for Recorder {
    type Plan<'p> = Recording<'p>;

    fn triage(&self, head: &[u8], listener_kind: &ListenerKind) -> Triage {
        match self.rules.triage(head, listener_kind) {
            Triage::Forward { .. } if name_of_head(head).is_some_and(is_recorded) => Triage::Evaluate,
            other => other,
        }
    }

    fn admit(&self, frame: &[u8], listener_kind: &ListenerKind) -> QueryAdmission {
        self.rules.admit(frame, listener_kind)
    }

    fn max_staleness(&self) -> Option<Duration> {
        None
    }

    fn plan<'p>(&'p self, frame: &'p [u8], now: Now) -> Recording<'p> {
        let expects_reply = match engine::triage(frame, &self.rules) {
            Triage::Forward { expects_reply } => Some(expects_reply),
            _ => None,
        };
        Recording { recorder: self, frame, now, expects_reply, sent: None, plan: Plan::new(frame, &self.rules, now) }
    }
}

/// One message that is recorded.
pub struct Recording<'p> {
    recorder: &'p Recorder,
    frame: &'p [u8],
    now: Now,
    /// Set for messages that are forwarded as they are; `plan` carries out the others.
    expects_reply: Option<bool>,
    /// When it was sent, if docward collects the reply.
    sent: Option<Instant>,
    plan: Plan<'p>,
}

impl Steps for Recording<'_> {
    fn next(&mut self, input: Input, client_state: &mut ClientState) -> Step {
        let Some(expects_reply) = self.expects_reply else {
            let step = self.plan.next(input, client_state);
            if let Step::ForwardOriginal { .. } = step {
                self.record(client_state);
            }
            return step;
        };
        match (input, self.sent) {
            (Input::Reply(reply), Some(sent)) => {
                self.record_reply(&reply, sent.elapsed(), client_state);
                return Step::Reply(reply);
            }
            (Input::Start, _) if client_state.users.is_none() => {
                let request_id = Header::of_frame(self.frame).map_or(0, |header| header.request_id);
                return Step::Exchange(users_question(request_id));
            }
            (Input::Reply(reply), None) => client_state.users = read_users(&reply),
            _ => {}
        }
        let is_recorded = self.record(client_state);
        // An exhaust cursor answers one request with many replies.
        let one_reply = Message::parse(self.frame).is_ok_and(|message| message.flags & EXHAUST_ALLOWED == 0);
        if is_recorded && expects_reply && one_reply {
            self.sent = Some(Instant::now());
            return Step::Exchange(self.frame.to_vec());
        }
        Step::ForwardOriginal { expects_reply }
    }

    fn take_rest(&mut self) -> Vec<RuleOutcome> {
        self.plan.take_rest()
    }

    fn take_outcomes(&mut self) -> Vec<RuleOutcome> {
        self.plan.take_outcomes()
    }

    fn must_finish(&self) -> bool {
        false
    }
}

impl Recording<'_> {
    /// Returns false if the command could not be recorded.
    fn record(&self, client_state: &ClientState) -> bool {
        let sink = &self.recorder.sink;
        let Some(command) = command_of_frame(self.frame) else {
            sink.counts.dropped.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        let command = match class_of_head(self.frame) {
            Some(CommandClass::Unknown) | None => outline(command.as_document()),
            _ => command,
        };
        let sender = From {
            connection: connection_of(client_state),
            client: &client_state.client,
            app: client_state.app_name(),
            users: client_state.users.as_deref(),
            milliseconds: self.now.milliseconds,
        };
        sink.offer(QueuedRecord { bytes: record(&sender, command.as_document()), is_command: true })
    }

    fn record_reply(&self, reply: &[u8], took: Duration, client_state: &ClientState) {
        let sink = &self.recorder.sink;
        let Some(reply) = ReplySummary::of_reply(reply) else { return };
        let arrived = self.now.milliseconds.saturating_add(i64::try_from(took.as_millis()).unwrap_or(i64::MAX));
        let microseconds = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bytes = reply_record(connection_of(client_state), arrived, microseconds, &reply);
        sink.offer(QueuedRecord { bytes, is_command: false });
    }
}

/// A random number for each connection.
fn connection_of(client_state: &ClientState) -> i64 {
    let [a, b, c, d, e, f, g, h, ..] = client_state.own.id;
    i64::from_le_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn the_queue_is_bounded_and_dropped_records_are_counted() {
        let (queue, records) = channel();
        let counts = Arc::new(RecordCounts::default());
        let sink = Sink::new(queue, counts.clone());
        let record = || QueuedRecord { bytes: vec![0; (1 << 20) - OVERHEAD], is_command: true };
        let accepted = (0..70).filter(|_| sink.offer(record())).count();
        assert_eq!(accepted, 64);
        assert_eq!(counts.dropped(), 6);
        counts.taken(&records.recv().unwrap().unwrap());
        sink.offer(record());
        assert_eq!(counts.dropped(), 6, "the queue has room again");
        drop(records);
        assert!(!sink.offer(record()));
        assert_eq!(counts.dropped(), 7, "the consumer is gone");
        sink.close();
    }
}
