//! Counts over time, in at most 600 intervals of equal length.

const INTERVALS: usize = 600;
/// The length of an interval at first, in milliseconds.
const SHORTEST: u64 = 100;

/// Counts by interval since a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline {
    width: u64,
    counts: Vec<u64>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { width: SHORTEST, counts: Vec::new() }
    }
}

impl Timeline {
    /// Counts an event this long after the start.
    pub fn add(&mut self, milliseconds: u64) {
        while milliseconds / self.width >= INTERVALS as u64 {
            self.counts = self.counts.chunks(2).map(|pair| pair.iter().sum()).collect();
            self.width *= 2;
        }
        let interval = (milliseconds / self.width) as usize;
        if self.counts.len() <= interval {
            self.counts.resize(interval + 1, 0);
        }
        self.counts.get_mut(interval).into_iter().for_each(|count| *count += 1);
    }

    /// Returns the middle of each interval in seconds, and its rate per second. Neighbouring intervals are combined to
    /// at most `most`.
    #[must_use]
    pub fn rates(&self, most: usize) -> Vec<(f64, f64)> {
        let combined = self.counts.len().div_ceil(most.max(1)).max(1);
        let seconds = self.width as f64 * combined as f64 / 1e3;
        let sums = self.counts.chunks(combined).map(|counts| counts.iter().sum::<u64>() as f64);
        sums.enumerate().map(|(at, sum)| ((at as f64 + 0.5) * seconds, sum / seconds)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_become_longer_and_lose_no_event() {
        let mut timeline = Timeline::default();
        (0..10_000).for_each(|n| timeline.add(n * 50));
        assert!(timeline.counts.len() <= INTERVALS);
        assert_eq!(timeline.counts.iter().sum::<u64>(), 10_000);
        let rates = timeline.rates(10);
        assert!(rates.len() <= 10);
        assert!(rates.iter().rev().skip(1).all(|(_, rate)| (rate - 20.0).abs() < 0.1), "{rates:?}");
    }
}
