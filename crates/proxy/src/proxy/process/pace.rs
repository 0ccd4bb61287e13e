//! How fast a queue advances, and so how long a further request would wait in it.

use std::time::Duration;

/// The pace of a queue since it was last empty. It reads no clock: times are durations since some beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::proxy) struct QueuePace {
    since: Duration,
    /// Requests that have left the queue since then.
    served: u32,
}

/// With fewer served requests, the pace is not known.
const KNOWN: u32 = 8;
/// After this many, the older half is forgotten.
const REMEMBERED: u32 = 512;

impl QueuePace {
    /// The queue was empty, and a request waits now.
    pub(in crate::proxy) fn begin(&mut self, now: Duration) {
        *self = Self { since: now, served: 0 };
    }

    /// A request that waited is served.
    pub(in crate::proxy) fn served(&mut self, now: Duration) {
        self.served += 1;
        if self.served >= REMEMBERED {
            self.since += now.saturating_sub(self.since) / 2;
            self.served /= 2;
        }
    }

    /// Returns in what time as many requests as wait now will be served; `None`: the pace is not known.
    pub(in crate::proxy) fn time_for(&self, waiting: usize, now: Duration) -> Option<Duration> {
        let turns = waiting as f64 / f64::from(self.served);
        let time = now.saturating_sub(self.since).as_secs_f64() * turns;
        (self.served >= KNOWN).then(|| Duration::try_from_secs_f64(time).unwrap_or(Duration::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_wait_follows_from_the_length_and_the_pace() {
        let mut pace = QueuePace::default();
        assert_eq!(pace.time_for(3, MS), None);
        pace.begin(1000 * MS);
        (1..KNOWN).for_each(|turn| pace.served((1000 + 2 * turn) * MS));
        assert_eq!(pace.time_for(100, 1016 * MS), None, "too few");
        pace.served(1016 * MS);
        assert_eq!(pace.time_for(100, 1016 * MS), Some(200 * MS));
        assert_eq!(pace.time_for(100, 1032 * MS), Some(400 * MS), "nothing was served for as long again");
        pace.begin(9000 * MS);
        assert_eq!(pace.time_for(100, 9000 * MS), None, "it was empty");
    }

    #[test]
    fn a_new_pace_replaces_the_former_one() {
        let mut pace = QueuePace::default();
        let mut now = Duration::ZERO;
        let mut serve = |times: u32, each: Duration| {
            for _ in 0..times {
                now += each;
                pace.served(now);
            }
            pace.time_for(1, now).unwrap()
        };
        assert_eq!(serve(2 * REMEMBERED, MS), MS);
        assert!(serve(2 * REMEMBERED, 10 * MS) > 9 * MS);
        assert!(serve(2 * REMEMBERED, MS) < 2 * MS);
    }
}
