//! What a rule said in each of the last minutes, for a small plot of when it began and whether it goes on.

use std::collections::VecDeque;

use crate::audit::{Counts, Effect};

/// Minutes that are kept.
pub const MINUTES: u64 = 60;

/// Statements by effect, in the minutes that had any; the oldest first.
#[derive(Debug, Clone, Default)]
pub struct History(VecDeque<(u64, Counts)>);

impl History {
    /// Counts statements in a minute, as numbered since 1970 UTC. A clock that was set back counts on in the minute
    /// it had reached.
    pub(super) fn add(&mut self, minute: u64, effect: Effect, statements: u64) {
        if self.0.back().is_none_or(|(newest, _)| *newest < minute) {
            self.0.push_back((minute, Counts::default()));
        }
        while self.0.front().is_some_and(|(oldest, _)| *oldest + MINUTES <= minute) {
            self.0.pop_front();
        }
        if let Some((_, counts)) = self.0.back_mut() {
            counts.add(effect, statements);
        }
    }

    /// The minutes that are not too old at `now`, a minute too.
    pub fn since(&self, now: u64) -> impl Iterator<Item = (u64, Counts)> + '_ {
        self.0.iter().copied().filter(move |(minute, _)| minute + MINUTES > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_kept_and_a_clock_may_be_set_back() {
        let mut history = History::default();
        for (minute, statements) in [(100, 1), (100, 2), (102, 3), (101, 4), (159, 5)] {
            history.add(minute, Effect::Rejected, statements);
        }
        let rejected = |now| history.since(now).map(|(minute, counts)| (minute, counts.rejected)).collect::<Vec<_>>();
        assert_eq!(rejected(159), [(100, 3), (102, 7), (159, 5)]);
        assert_eq!(rejected(160), [(102, 7), (159, 5)]);
        history.add(1000, Effect::Rewritten, 1);
        assert_eq!(history.0.len(), 1);
        assert_eq!(history.since(5000).count(), 0);
    }
}
