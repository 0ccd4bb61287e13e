//! What is counted of a router's requests, for metrics.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Counters since the start of the process.
#[derive(Debug, Default)]
pub(in crate::proxy) struct RouterCounters {
    /// Signed, because a decrement may be seen first.
    waiting: AtomicI64,
    waited: AtomicU64,
    sent_again: AtomicU64,
}

/// The numbers of a router.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RouterStatus {
    /// Requests that wait for a member, for instance during an election.
    pub waiting: u64,
    /// Since the start of the process: requests that have waited for a member.
    pub waited: u64,
    /// Requests that were sent again, each time.
    pub sent_again: u64,
}

impl RouterCounters {
    /// Counts a request as waiting until the result is dropped.
    pub(in crate::proxy) fn wait(&self) -> impl Drop + '_ {
        self.waited.fetch_add(1, Ordering::Relaxed);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        WaitGuard(self)
    }

    pub(in crate::proxy) fn sent_again(&self) {
        self.sent_again.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::proxy) fn status(&self) -> RouterStatus {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        RouterStatus {
            waiting: u64::try_from(self.waiting.load(Ordering::Relaxed)).unwrap_or(0),
            waited: read(&self.waited),
            sent_again: read(&self.sent_again),
        }
    }
}

struct WaitGuard<'c>(&'c RouterCounters);

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
