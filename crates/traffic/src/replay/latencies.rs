//! A histogram of latencies with a precision of 6 %, for percentiles.

/// Buckets for each power of two.
const STEPS: u64 = 16;
/// Bits of [`STEPS`].
const STEP_BITS: u32 = 4;

/// Latencies in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Latencies {
    buckets: Vec<u64>,
    count: u64,
    longest: u64,
    sum: u64,
}

impl Latencies {
    /// Counts a latency.
    pub fn add(&mut self, microseconds: u64) {
        let bucket = bucket(microseconds);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets.get_mut(bucket).into_iter().for_each(|count| *count += 1);
        self.count += 1;
        self.longest = self.longest.max(microseconds);
        self.sum = self.sum.saturating_add(microseconds);
    }

    /// Returns all of them together.
    pub fn merged<'l>(all: impl Iterator<Item = &'l Self>) -> Self {
        all.fold(Self::default(), |mut merged, one| {
            merged.merge(one);
            merged
        })
    }

    pub fn merge(&mut self, other: &Self) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(own, other)| *own += other);
        self.count += other.count;
        self.longest = self.longest.max(other.longest);
        self.sum = self.sum.saturating_add(other.sum);
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the longest latency in microseconds.
    #[must_use]
    pub fn longest(&self) -> u64 {
        self.longest
    }

    /// Returns the mean in microseconds; 0 without latencies.
    #[must_use]
    pub fn mean(&self) -> u64 {
        self.sum.checked_div(self.count).unwrap_or_default()
    }

    /// Returns the latency in microseconds that this share of the commands does not exceed; 0 without latencies.
    #[must_use]
    pub fn percentile(&self, share: f64) -> u64 {
        let wanted = (self.count as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.buckets.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.map_or(0, |bucket| bounds(bucket).1.min(self.longest))
    }

    /// Returns the buckets that are not empty: the lower and upper bound in microseconds, and the count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        self.buckets.iter().enumerate().filter(|(_, count)| **count > 0).map(|(bucket, count)| {
            let (from, to) = bounds(bucket);
            (from, to, *count)
        })
    }
}

fn bucket(microseconds: u64) -> usize {
    if microseconds < STEPS {
        return microseconds as usize;
    }
    let power = microseconds.ilog2() - STEP_BITS;
    (u64::from(power) * STEPS + (microseconds >> power)) as usize
}

/// The smallest latency of a bucket, and the first one above it.
fn bounds(bucket: usize) -> (u64, u64) {
    let bucket = bucket as u64;
    if bucket < 2 * STEPS {
        return (bucket, bucket + 1);
    }
    let power = bucket / STEPS - 1;
    let from = (bucket % STEPS + STEPS) << power;
    (from, from + (1 << power))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_is_within_the_bounds_of_its_bucket() {
        for microseconds in (0..5000).chain([1 << 20, (1 << 40) + 12345]) {
            let (from, to) = bounds(bucket(microseconds));
            assert!((from..to).contains(&microseconds), "{microseconds} is not in {from}..{to}");
            assert!(to - from <= 1 + from / 16);
        }
    }

    #[test]
    fn percentiles_are_precise_to_six_per_cent() {
        let mut latencies = Latencies::default();
        (1..=1000).for_each(|n| latencies.add(n * 100));
        for (share, expected) in [(0.5, 50_000.0), (0.99, 99_000.0), (1.0, 100_000.0)] {
            let found = latencies.percentile(share) as f64;
            assert!((found / expected - 1.0).abs() < 0.065, "{share}: {found}");
        }
        let mut twice = latencies.clone();
        twice.merge(&latencies);
        assert_eq!((twice.count(), twice.percentile(0.5), twice.mean()), (2000, latencies.percentile(0.5), 50_050));
        assert_eq!(Latencies::default().percentile(0.5), 0);
    }
}
