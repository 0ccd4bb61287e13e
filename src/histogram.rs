//! Durations counted by size, by many threads at once and without locks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds in nanoseconds: a loopback's few microseconds to a failover's seconds, three for each power of ten.
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
/// One more than bounds: for whatever is longer.
const BUCKETS: usize = BOUNDS.len() + 1;

/// Counts since it was made.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    /// In nanoseconds.
    sum: AtomicU64,
}

/// What a histogram said at one time; a bucket and the sum may be of moments apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// Not cumulative; see [`BOUNDS`].
    pub buckets: [u64; BUCKETS],
    /// In nanoseconds.
    pub sum: u64,
}

impl Histogram {
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
    pub fn read(&self) -> Reading {
        let mut reading = Reading { sum: self.sum.load(Ordering::Relaxed), ..Reading::default() };
        reading.buckets.iter_mut().zip(&self.buckets).for_each(|(read, count)| *read = count.load(Ordering::Relaxed));
        reading
    }
}

impl Reading {
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Adds what was counted elsewhere.
    pub fn merge(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(own, other)| *own += other);
        self.sum += other.sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_where_it_fits() {
        let histogram = Histogram::default();
        for nanoseconds in [0, 5_000, 5_001, 10_000_000_000, 10_000_000_001] {
            histogram.add(nanoseconds);
        }
        histogram.add_duration(Duration::from_micros(7));
        let mut reading = histogram.read();
        let filled: Vec<_> = reading.buckets.iter().enumerate().filter(|(_, count)| **count > 0).collect();
        assert_eq!(filled, [(0, &2), (1, &2), (19, &1), (20, &1)]);
        assert_eq!((reading.count(), reading.sum), (6, 20_000_017_002));
        reading.merge(&histogram.read());
        assert_eq!(reading.count(), 12);
        assert!(BOUNDS.is_sorted());
    }
}
