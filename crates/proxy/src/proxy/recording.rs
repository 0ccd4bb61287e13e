//! Captures: a copy of each command that can reach documents, as its client sent it, and a summary of its reply, for a
//! consumer outside the proxy. [`crate::audit::capture`] defines the format. The connections make the records
//! (`connection::capturing`); this module decides what is recorded, and bounds what waits for the consumer.
//!
//! Logins, user management and other commands that rules never see are not recorded, so a capture never contains
//! credentials. For commands docward does not know, only the name and the target are recorded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use arc_swap::ArcSwapOption;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::audit::capture::{MAX_RECORD_LENGTH, is_recorded};
use crate::config::Glob;

/// Bytes of records that wait for the consumer. If it is too slow, commands are omitted rather than clients delayed.
const MAX_WAITING: usize = 64 << 20;
/// Overhead of a waiting record besides its bytes.
const OVERHEAD: usize = 64;

/// A record that waits for the consumer.
#[derive(Debug)]
pub struct QueuedRecord {
    pub bytes: Vec<u8>,
    /// Not a reply.
    pub is_command: bool,
}

/// Where the connections put records.
#[derive(Debug)]
pub struct Sink {
    queue: UnboundedSender<Option<QueuedRecord>>,
    counts: Arc<RecordCounts>,
    /// The applications whose commands are recorded; empty: all.
    apps: Vec<Glob>,
}

/// The consumer's end of a capture.
#[derive(Debug)]
pub struct Records {
    /// Each record, and `None` when the capture has ended. The consumer calls [`RecordCounts::write_one`] or
    /// [`RecordCounts::drop_one`] for each.
    pub queue: UnboundedReceiver<Option<QueuedRecord>>,
    pub counts: Arc<RecordCounts>,
}

/// The counters of a capture.
#[derive(Debug, Default)]
pub struct RecordCounts {
    waiting: AtomicUsize,
    commands: AtomicU64,
    bytes: AtomicU64,
    omitted: AtomicU64,
}

impl RecordCounts {
    /// Called after a record has been written.
    pub fn write_one(&self, record: &QueuedRecord) {
        self.release(record.bytes.len());
        self.commands.fetch_add(u64::from(record.is_command), Ordering::Relaxed);
        self.bytes.fetch_add(record.bytes.len() as u64, Ordering::Relaxed);
    }

    /// Called for a record that is not written.
    pub fn drop_one(&self, record: &QueuedRecord) {
        self.release(record.bytes.len());
        self.omit(record.is_command);
    }

    /// Number of recorded commands.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }

    /// Bytes of the records.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Number of commands that were omitted: too many records waited, or the consumer could not write.
    #[must_use]
    pub fn omitted(&self) -> u64 {
        self.omitted.load(Ordering::Relaxed)
    }

    fn omit(&self, is_command: bool) {
        self.omitted.fetch_add(u64::from(is_command), Ordering::Relaxed);
    }

    /// Reserves room for a record of about this length. A single record may be larger than the limit.
    fn reserve(&self, length: usize) -> bool {
        let before = self.waiting.fetch_add(length + OVERHEAD, Ordering::Relaxed);
        let fits = before == 0 || before + length + OVERHEAD <= MAX_WAITING;
        if !fits {
            self.release(length);
        }
        fits
    }

    fn release(&self, length: usize) {
        self.waiting.fetch_sub(length + OVERHEAD, Ordering::Relaxed);
    }
}

impl Sink {
    /// A sink for the commands of these applications (all, if there are none), and its consumer's end.
    #[must_use]
    pub fn new(apps: Vec<Glob>) -> (Self, Records) {
        let (sender, queue) = unbounded_channel();
        let counts = Arc::<RecordCounts>::default();
        (Self { queue: sender, counts: counts.clone(), apps }, Records { queue, counts })
    }

    /// Whether a command of this name and application is recorded.
    pub(in crate::proxy) fn selects(&self, name: &[u8], app: Option<&str>) -> bool {
        let is_of = |app: &str| self.apps.iter().any(|glob| glob.matches(app.as_bytes()));
        is_recorded(name) && (self.apps.is_empty() || app.is_some_and(is_of))
    }

    /// Queues a record of about `length` bytes without waiting; makes it only if it fits. Returns false if it is left
    /// out.
    pub fn offer(&self, is_command: bool, length: usize, make: impl FnOnce() -> Option<Vec<u8>>) -> bool {
        let record = self.counts.reserve(length).then(|| {
            let made = make().filter(|bytes| bytes.len() <= MAX_RECORD_LENGTH);
            self.counts.release(length);
            made
        });
        let record = record.flatten().map(|bytes| QueuedRecord { bytes, is_command });
        let is_queued = record.is_some_and(|record| {
            self.counts.waiting.fetch_add(record.bytes.len() + OVERHEAD, Ordering::Relaxed);
            let unsent = self.queue.send(Some(record)).err().and_then(|error| error.0);
            unsent.inspect(|record| self.counts.release(record.bytes.len())).is_none()
        });
        if !is_queued {
            self.counts.omit(is_command);
        }
        is_queued
    }
}

/// The capture of a process, if one runs.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Captures {
    /// Read for every message. While no capture runs, nothing else is.
    is_running: AtomicBool,
    sink: ArcSwapOption<Sink>,
}

impl Captures {
    /// Starts a capture; returns false if another one runs.
    pub(in crate::proxy) fn start(&self, sink: Sink) -> bool {
        let previous = self.sink.compare_and_swap(&None::<Arc<Sink>>, Some(Arc::new(sink)));
        self.is_running.store(true, Ordering::Relaxed);
        previous.is_none()
    }

    /// Ends the capture. Its consumer gets the records that wait, and then the end.
    pub(in crate::proxy) fn end(&self) {
        self.is_running.store(false, Ordering::Relaxed);
        if let Some(sink) = self.sink.swap(None) {
            // An error means that the consumer has already stopped.
            let _ = sink.queue.send(None);
        }
    }

    /// The sink of the capture that runs.
    pub(in crate::proxy) fn sink(&self) -> Option<Arc<Sink>> {
        if self.is_running.load(Ordering::Relaxed) { self.sink.load_full() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(sink: &Sink) -> bool {
        let length = (1 << 20) - OVERHEAD;
        sink.offer(true, length, || Some(vec![0; length]))
    }

    #[test]
    fn the_queue_is_bounded_and_commands_that_are_omitted_are_counted() {
        let (sink, Records { mut queue, counts }) = Sink::new(Vec::new());
        assert_eq!((0..70).filter(|_| offer(&sink)).count(), 64);
        assert_eq!(counts.omitted(), 6);
        assert!(!sink.offer(true, 1 << 20, || unreachable!("a record without room is not made")));
        counts.write_one(&queue.try_recv().unwrap().unwrap());
        assert_eq!((counts.commands(), counts.bytes(), counts.omitted()), (1, (1 << 20) - OVERHEAD as u64, 7));
        assert!(offer(&sink), "the queue has room again");
        counts.drop_one(&queue.try_recv().unwrap().unwrap());
        assert!(offer(&sink));
        assert_eq!(counts.omitted(), 8);
        drop(queue);
        assert!(!offer(&sink), "the consumer is gone");
    }

    #[test]
    fn one_capture_runs_at_a_time_and_its_end_follows_its_records() {
        let captures = Captures::default();
        assert!(captures.sink().is_none());
        let (first, Records { mut queue, .. }) = Sink::new(Vec::new());
        assert!(captures.start(first) && !captures.start(Sink::new(Vec::new()).0));
        assert!(offer(&captures.sink().unwrap()));
        captures.end();
        assert!(captures.sink().is_none());
        assert!(queue.try_recv().unwrap().is_some() && queue.try_recv().unwrap().is_none());
        assert!(captures.start(Sink::new(Vec::new()).0));
    }

    #[test]
    fn only_commands_of_the_wanted_applications_are_recorded_and_no_logins() {
        let (all, _) = Sink::new(Vec::new());
        let (promo, _) = Sink::new(vec![Glob::new("promo-*")]);
        assert!(all.selects(b"insert", None) && promo.selects(b"insert", Some("promo-web")));
        assert!(!promo.selects(b"insert", None) && !promo.selects(b"insert", Some("billing")));
        for name in ["saslStart", "saslContinue", "authenticate", "logout", "createUser", "updateUser"] {
            assert!(!all.selects(name.as_bytes(), None), "{name}");
        }
    }
}
