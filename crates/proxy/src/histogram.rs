//! A lock-free histogram of durations that many threads can update.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets in nanoseconds, three for each power of ten: from a few microseconds on a loopback to
/// the seconds of a failover.
pub const BOUNDS: [u64; 20] = [
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
];
/// One bucket for each bound, and one for longer durations.
const BUCKETS: usize = BOUNDS.len() + 1;

/// Counts since its creation.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    /// Sum of the durations in nanoseconds.
    sum: AtomicU64,
}

/// A snapshot of a histogram. It is not atomic: the buckets and the sum may be from slightly different times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// Counts by bucket, not cumulative; see [`BOUNDS`].
    pub buckets: [u64; BUCKETS],
    /// Sum of the durations in nanoseconds.
    pub sum: u64,
}

impl Histogram {
    /// Counts a duration.
    pub fn add(&self, nanoseconds: u64) {
        let bucket = BOUNDS.partition_point(|bound| *bound < nanoseconds);
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    pub fn add_duration(&self, duration: Duration) {
        self.add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    #[must_use]
    pub fn snapshot(&self) -> HistogramSnapshot {
        let mut reading = HistogramSnapshot { sum: self.sum.load(Ordering::Relaxed), ..HistogramSnapshot::default() };
        reading.buckets.iter_mut().zip(&self.buckets).for_each(|(read, count)| *read = count.load(Ordering::Relaxed));
        reading
    }
}

impl HistogramSnapshot {
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Adds the counts of another snapshot.
    pub fn merge(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(own, other)| *own += other);
        self.sum += other.sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_in_its_bucket() {
        let histogram = Histogram::default();
        for nanoseconds in [0, 5_000, 5_001, 10_000_000_000, 10_000_000_001] {
            histogram.add(nanoseconds);
        }
        histogram.add_duration(Duration::from_micros(7));
        let mut reading = histogram.snapshot();
        let filled: Vec<_> = reading.buckets.iter().enumerate().filter(|(_, count)| **count > 0).collect();
        assert_eq!(filled, [(0, &2), (1, &2), (19, &1), (20, &1)]);
        assert_eq!((reading.count(), reading.sum), (6, 20_000_017_002));
        reading.merge(&histogram.snapshot());
        assert_eq!(reading.count(), 12);
        assert!(BOUNDS.is_sorted());
    }
}
