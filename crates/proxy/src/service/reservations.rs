//! Measures how numbers are reserved: the round trips to the server, the reserved numbers, and failures.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::histogram::{Histogram, HistogramSnapshot};

/// Measurements of all counters of `sequence` rules together.
#[derive(Debug, Default)]
pub(super) struct ReservationMeter {
    latency: Histogram,
    numbers: AtomicU64,
    failed: AtomicU64,
}

/// Reservations since the start of the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReservationCounts {
    /// The duration of each round trip, including failed ones.
    pub latency: HistogramSnapshot,
    /// Numbers reserved.
    pub numbers: u64,
    /// Round trips that failed.
    pub failed: u64,
}

impl ReservationMeter {
    /// Records a round trip for `numbers` that began at `asked`.
    pub(super) fn record(&self, asked: Instant, numbers: i64, granted: bool) {
        self.latency.add_duration(asked.elapsed());
        if granted {
            self.numbers.fetch_add(u64::try_from(numbers).unwrap_or(0), Ordering::Relaxed);
        } else {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn snapshot(&self) -> ReservationCounts {
        ReservationCounts {
            latency: self.latency.snapshot(),
            numbers: self.numbers.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }
}
