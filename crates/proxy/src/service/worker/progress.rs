//! The state of the workers of this process, for metrics and the console.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::service::ServerTime;

/// How long a worker must work until its last error counts as over. A part of its work may succeed in each attempt, and
/// another one fail.
const RECOVERED: Duration = Duration::from_secs(5);

/// The state of one rule's worker in this process.
#[derive(Debug)]
pub struct WorkerProgress {
    rule: String,
    pattern: &'static str,
    changes: AtomicU64,
    /// `None`: its task reads no previous states.
    unknown: Option<AtomicU64>,
    state: Mutex<LockedProgress>,
}

#[derive(Debug, Default)]
struct LockedProgress {
    is_worker: bool,
    /// When the attempt began.
    began: Option<Instant>,
    /// The server's clock, of which the times of changes are.
    clock: Option<ServerTime>,
    /// Empty if nothing is wrong. It stays until an attempt works for some time.
    error: String,
    /// For each change stream the time up to which its changes are processed, in milliseconds since 1970 UTC.
    processed: Vec<u64>,
}

/// The workers of this process.
#[derive(Debug, Default)]
pub struct WorkersShown(Mutex<Vec<Weak<WorkerProgress>>>);

/// A worker as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerStatus {
    pub rule: String,
    pub pattern: &'static str,
    pub state: WorkerState,
    /// Changes processed by this process.
    pub changes: u64,
    /// Changes whose previous state is not known; `None`: its work does not need them.
    pub unknown: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerState {
    /// It works; the time since the last processed change, or since it last found no more changes.
    Works { lag: Duration },
    /// Another process may work.
    Waits,
    /// An error, as text.
    Fails(String),
}

impl WorkersShown {
    /// Adds a worker; it is shown as long as it exists.
    pub(super) fn add(&self, rule: &str, pattern: &'static str, reads_previous_states: bool) -> Arc<WorkerProgress> {
        let progress = Arc::new(WorkerProgress {
            rule: rule.to_owned(),
            pattern,
            changes: AtomicU64::new(0),
            unknown: reads_previous_states.then(AtomicU64::default),
            state: Mutex::default(),
        });
        let mut workers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        workers.retain(|worker| worker.strong_count() > 0);
        workers.push(Arc::downgrade(&progress));
        progress
    }

    /// Returns all workers, sorted by rule.
    pub(in crate::service) fn status(&self) -> Vec<WorkerStatus> {
        let workers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found: Vec<_> = workers.iter().filter_map(Weak::upgrade).map(|worker| worker.status()).collect();
        found.sort_by(|one, other| one.rule.cmp(&other.rule));
        found
    }
}

impl WorkerProgress {
    fn state(&self) -> std::sync::MutexGuard<'_, LockedProgress> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The worker begins; `clock` is the server's. Returns whether the previous attempt ended without an error.
    pub(super) fn started(&self, clock: ServerTime) -> bool {
        let mut state = self.state();
        let error = std::mem::take(&mut state.error);
        let had_no_error = error.is_empty();
        let (began, clock) = (Some(Instant::now()), Some(clock));
        *state = LockedProgress { is_worker: true, began, clock, error, processed: Vec::new() };
        had_no_error
    }

    /// The worker does not work for now; `error` is empty if nothing is wrong.
    pub(super) fn stopped(&self, error: &str) {
        *self.state() = LockedProgress { error: error.to_owned(), ..LockedProgress::default() };
    }

    /// All changes of the stream are processed.
    pub(super) fn caught_up(&self, stream: usize) {
        let clock = self.state().clock;
        self.processed(stream, clock.map_or(0, |clock| clock.now()));
    }

    /// All changes of the stream up to this time of the server are processed.
    pub(super) fn processed(&self, stream: usize, until: u64) {
        let mut state = self.state();
        let has_recovered = state.began.is_some_and(|began| began.elapsed() >= RECOVERED);
        if has_recovered && !std::mem::take(&mut state.error).is_empty() {
            tracing::info!(rule = self.rule, "worker continues after an error");
        }
        if state.processed.len() <= stream {
            // A stream that has not reported yet began now.
            state.processed.resize(stream + 1, until);
        }
        state.processed[stream] = until;
    }

    pub(super) fn add_changes(&self, changes: usize) {
        self.changes.fetch_add(changes as u64, Ordering::Relaxed);
    }

    pub(in crate::service) fn add_unknown(&self, changes: u64) {
        if let Some(unknown) = &self.unknown {
            unknown.fetch_add(changes, Ordering::Relaxed);
        }
    }

    fn status(&self) -> WorkerStatus {
        let state = self.state();
        let last = || state.processed.iter().min().copied();
        let shown = match &*state {
            LockedProgress { is_worker: true, error, .. } if error.is_empty() => {
                let lag = state.clock.zip(last()).map(|(clock, last)| clock.since(last)).unwrap_or_default();
                WorkerState::Works { lag }
            }
            LockedProgress { error, .. } if error.is_empty() => WorkerState::Waits,
            LockedProgress { error, .. } => WorkerState::Fails(error.clone()),
        };
        WorkerStatus {
            rule: self.rule.clone(),
            pattern: self.pattern,
            state: shown,
            changes: self.changes.load(Ordering::Relaxed),
            unknown: self.unknown.as_ref().map(|unknown| unknown.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::DateTime;

    use super::*;

    #[test]
    fn an_error_is_shown_until_the_worker_works_for_some_time() {
        let shown = WorkersShown::default();
        let worker = shown.add("rule", "copies", false);
        let state = || shown.status().remove(0).state;
        worker.stopped("no primary");
        // This machine's clock is decades ahead.
        let clock = ServerTime::reported(DateTime::from_millis(60_000));
        assert!(!worker.started(clock));
        // The streams are read, and then the check of all copies fails again.
        worker.caught_up(0);
        assert_eq!(state(), WorkerState::Fails("no primary".to_owned()));
        worker.stopped("no primary");
        worker.started(clock);
        worker.state().began = Instant::now().checked_sub(RECOVERED);
        worker.caught_up(0);
        let lag = || match state() {
            WorkerState::Works { lag } => lag.as_secs(),
            other => panic!("{other:?}"),
        };
        assert_eq!(lag(), 0);
        worker.processed(0, 50_000);
        assert!((10..20).contains(&lag()), "{}", lag());
    }
}
