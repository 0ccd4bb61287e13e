//! Statements of a rule in each of the last minutes, for a small plot.

use std::collections::{BTreeMap, VecDeque};

use crate::audit::{OutcomeCounts, ReportedOutcome};

/// Minutes that are kept.
pub const MINUTES: u64 = 60;

/// Statements by outcome in the minutes that had any, the oldest first.
#[derive(Debug, Clone, Default)]
pub struct MinuteCounts(VecDeque<(u64, MinuteOutcomes)>);

/// Statements by outcome in one minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MinuteOutcomes {
    pub all: OutcomeCounts,
    /// Those among them that the rule would have had, because it was in shadow mode. Its mode can change at any time.
    pub shadow: OutcomeCounts,
}

impl MinuteCounts {
    /// Counts statements in a minute since 1970 UTC. If the clock is set back, they count in the latest minute
    /// reached.
    pub(in crate::proxy) fn add(&mut self, minute: u64, outcome: ReportedOutcome, statements: u64, is_shadow: bool) {
        if self.0.back().is_none_or(|(newest, _)| *newest < minute) {
            self.0.push_back((minute, MinuteOutcomes::default()));
        }
        while self.0.front().is_some_and(|(oldest, _)| *oldest + MINUTES <= minute) {
            self.0.pop_front();
        }
        if let Some((_, counts)) = self.0.back_mut() {
            counts.all.add(outcome, statements);
            if is_shadow {
                counts.shadow.add(outcome, statements);
            }
        }
    }

    /// Adds the counts of another history.
    pub(in crate::proxy) fn merge(&mut self, other: &Self) {
        let mut both = BTreeMap::new();
        for (minute, counts) in self.0.iter().chain(&other.0) {
            let sum: &mut MinuteOutcomes = both.entry(*minute).or_default();
            sum.all.merge(counts.all);
            sum.shadow.merge(counts.shadow);
        }
        let newest = both.last_key_value().map_or(0, |(minute, _)| *minute);
        self.0 = both.into_iter().filter(|(minute, _)| minute + MINUTES > newest).collect();
    }

    /// The minutes that are at most [`MINUTES`] old at minute `now`.
    pub fn since(&self, now: u64) -> impl Iterator<Item = (u64, MinuteOutcomes)> + '_ {
        self.0.iter().copied().filter(move |(minute, _)| minute + MINUTES > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_hour_is_kept_even_if_the_clock_is_set_back() {
        let mut history = MinuteCounts::default();
        for (minute, statements) in [(100, 1), (100, 2), (102, 3), (101, 4), (159, 5)] {
            history.add(minute, ReportedOutcome::Reject, statements, false);
        }
        let rejected = |now| history.since(now).map(|(minute, counts)| (minute, counts.all.reject)).collect::<Vec<_>>();
        assert_eq!(rejected(159), [(100, 3), (102, 7), (159, 5)]);
        assert_eq!(rejected(160), [(102, 7), (159, 5)]);
        history.add(1000, ReportedOutcome::Rewrite, 1, true);
        assert_eq!(history.0.len(), 1);
        assert_eq!(history.since(5000).count(), 0);
    }

    #[test]
    fn histories_merge_by_minute() {
        let of = |minutes: &[(u64, u64)]| {
            let mut history = MinuteCounts::default();
            for (minute, statements) in minutes {
                history.add(*minute, ReportedOutcome::Reject, *statements, statements % 2 == 0);
            }
            history
        };
        let mut history = of(&[(100, 1), (102, 2), (103, 3)]);
        history.merge(&of(&[(101, 10), (102, 20), (103, 30), (160, 40)]));
        let rejected = |(minute, counts): (u64, MinuteOutcomes)| (minute, counts.all.reject, counts.shadow.reject);
        let rejected: Vec<_> = history.since(0).map(rejected).collect();
        assert_eq!(rejected, [(101, 10, 10), (102, 22, 22), (103, 33, 30), (160, 40, 40)]);
    }
}
