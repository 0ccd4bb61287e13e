//! Recording instead of evaluation: an [`Interceptor`] that forwards everything as `serve` does without rules, and
//! passes a copy of each command that can reach documents to a [`Sink`]. [`crate::audit::capture`] defines the file
//! format; the CLI writes the file.
//!
//! Logins, user management and other commands that rules never see stream through, so a record never contains
//! credentials. For commands docward does not know, only the name and the target are recorded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use crate::audit::capture::{Sender as From, outline, record};
use crate::command::CommandClass;
use crate::engine::{
    self, Admission, ClientState, Input, ListenerKind, Now, Plan, RuleOutcome, Step, Triage, class_of_head,
    command_of_frame, read_users, users_question,
};
use crate::proxy::interceptor::{Interceptor, Steps};
use crate::rules::RuleSet;
use crate::wire::Header;

/// Bytes of records that wait to be written. If the disk is too slow, records are dropped rather than clients delayed.
const MAX_WAITING: usize = 64 << 20;
/// Overhead of a waiting record besides its bytes.
const OVERHEAD: usize = 64;

/// Queue of records.
#[derive(Debug, Clone)]
pub struct Sink {
    queue: Sender<Option<Vec<u8>>>,
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
    pub fn taken(&self, record: &[u8]) {
        self.waiting.fetch_sub(record.len() + OVERHEAD, Ordering::Relaxed);
    }

    pub fn drop_one(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
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
    pub fn new(queue: Sender<Option<Vec<u8>>>, counts: Arc<RecordCounts>) -> Self {
        Self { queue, counts }
    }

    /// Queues a record without waiting.
    fn offer(&self, record: Vec<u8>) {
        let size = record.len() + OVERHEAD;
        let before = self.counts.waiting.fetch_add(size, Ordering::Relaxed);
        // A single record may be larger than the limit.
        let fits = before == 0 || before + size <= MAX_WAITING;
        if !fits || self.queue.send(Some(record)).is_err() {
            self.counts.waiting.fetch_sub(size, Ordering::Relaxed);
            self.counts.drop_one();
        }
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
            Triage::Forward { .. }
                if class_of_head(head).is_some_and(|class| CommandClass::REACHING.contains(&class)) =>
            {
                Triage::Evaluate
            }
            other => other,
        }
    }

    fn admit(&self, frame: &[u8], listener_kind: &ListenerKind) -> Admission {
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
        Recording { recorder: self, frame, now, expects_reply, plan: Plan::new(frame, &self.rules, now) }
    }
}

/// One message that is recorded.
pub struct Recording<'p> {
    recorder: &'p Recorder,
    frame: &'p [u8],
    now: Now,
    /// Set for messages that are forwarded as they are; `plan` carries out the others.
    expects_reply: Option<bool>,
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
        match input {
            Input::Start if client_state.users.is_none() => {
                let request_id = Header::of_frame(self.frame).map_or(0, |header| header.request_id);
                return Step::Exchange(users_question(request_id));
            }
            Input::Reply(reply) => client_state.users = read_users(&reply),
            _ => {}
        }
        self.record(client_state);
        Step::ForwardOriginal { expects_reply }
    }

    fn take_outcomes(&mut self) -> Vec<RuleOutcome> {
        self.plan.take_outcomes()
    }

    fn must_finish(&self) -> bool {
        false
    }
}

impl Recording<'_> {
    fn record(&self, client_state: &ClientState) {
        let sink = &self.recorder.sink;
        let Some(command) = command_of_frame(self.frame) else { return sink.counts.drop_one() };
        let command = match class_of_head(self.frame) {
            Some(CommandClass::Unknown) | None => outline(command.as_document()),
            _ => command,
        };
        let [a, b, c, d, e, f, g, h, ..] = client_state.own.id;
        let sender = From {
            // Random for each connection.
            connection: i64::from_le_bytes([a, b, c, d, e, f, g, h]),
            client: &client_state.client,
            app: client_state.app_name(),
            users: client_state.users.as_deref(),
            milliseconds: self.now.milliseconds,
        };
        sink.offer(record(&sender, command.as_document()));
    }
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
        let record = || vec![0; (1 << 20) - OVERHEAD];
        (0..70).for_each(|_| sink.offer(record()));
        assert_eq!(counts.dropped(), 6);
        counts.taken(&records.recv().unwrap().unwrap());
        sink.offer(record());
        assert_eq!(counts.dropped(), 6, "the queue has room again");
        drop(records);
        sink.offer(Vec::new());
        assert_eq!(counts.dropped(), 7, "the consumer is gone");
        sink.close();
    }
}
