//! Measures the leases of numbers: their round trips to the server, the numbers they brought, and failures.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::histogram::{Histogram, Reading};

/// Measurements of all counters of `sequence` rules together.
#[derive(Debug, Default)]
pub(super) struct LeaseMeter {
    latency: Histogram,
    numbers: AtomicU64,
    failed: AtomicU64,
}

/// Leases since the start of the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leases {
    /// The duration of each round trip, including failed ones.
    pub latency: Reading,
    /// Numbers granted.
    pub numbers: u64,
    /// Round trips that failed.
    pub failed: u64,
}

impl LeaseMeter {
    /// Records a round trip for `numbers` that began at `asked`.
    pub(super) fn note(&self, asked: Instant, numbers: i64, granted: bool) {
        self.latency.add_duration(asked.elapsed());
        if granted {
            self.numbers.fetch_add(u64::try_from(numbers).unwrap_or(0), Ordering::Relaxed);
        } else {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn snapshot(&self) -> Leases {
        Leases {
            latency: self.latency.snapshot(),
            numbers: self.numbers.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }
}
