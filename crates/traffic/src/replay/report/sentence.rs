//! The result of a replay in one sentence, for readers who read nothing else.

use super::{ReplayReport, TargetReport, duration};
use crate::plot::number;
use crate::replay::{Latencies, Speed};

/// Rules that are named.
const NAMED: usize = 3;
/// The share of late commands from which the target was too slow.
const TOO_LATE: f64 = 0.01;
/// It can wait for data, so its latency shows nothing.
const WAITING: &str = "getMore";

impl ReplayReport {
    /// Returns the result of the last target in one sentence: rejected statements, by which rules, and how the 99th
    /// percentile of the latency changed, from the first target's or the recorded one.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Some(last) = self.played.last() else { return String::new() };
        let speed = match self.speed {
            Speed::Times(times) => format!("At {} × the recorded traffic", number(times)),
            Speed::Max => "As fast as possible".to_owned(),
        };
        let before = match self.played.as_slice() {
            [first, _] => first.p99(),
            _ => p99(self.recorded.latencies.iter().map(|(name, latencies)| (*name, latencies))),
        };
        let latency = match (before, last.p99()) {
            (Some(before), Some(after)) => format!("; p99 from {} to {}", duration(before), duration(after)),
            (None, Some(after)) => format!("; p99 {}", duration(after)),
            (_, None) => String::new(),
        };
        let late = last.tally.late as f64 / last.tally.count().max(1) as f64;
        let too_slow = match late {
            TOO_LATE.. => format!("; the target was too slow: {:.0} % of the commands were sent late", late * 100.0),
            _ => String::new(),
        };
        let ended =
            self.stopped.as_ref().map_or_else(String::new, |reason| format!(" The replay ended early: {reason}."));
        format!("{speed}, {}{latency}{too_slow}.{ended}", rejected(last))
    }
}

impl TargetReport {
    fn p99(&self) -> Option<u64> {
        p99(self.tally.commands.iter().map(|(name, command)| (*name, &command.played)))
    }
}

/// The 99th percentile of all commands but `getMore`, in microseconds.
fn p99<'l>(latencies: impl Iterator<Item = (&'static str, &'l Latencies)>) -> Option<u64> {
    let all = Latencies::merged(latencies.filter(|(name, _)| *name != WAITING).map(|(_, latencies)| latencies));
    (all.count() > 0).then(|| all.percentile(0.99))
}

/// "412 of 1,204,332 statements would have been rejected, all by orders-versions"
fn rejected(target: &TargetReport) -> String {
    let statements = number(target.tally.statements as f64);
    let mut by: Vec<(&String, &u64)> = target.tally.rejections.iter().collect();
    by.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let sum = |by: &[(&String, &u64)]| number(by.iter().map(|(_, count)| **count).sum::<u64>() as f64);
    let (named, others) = by.split_at(by.len().min(NAMED));
    let rules = match (by.as_slice(), others) {
        ([], _) => return format!("none of {statements} statements would have been rejected"),
        ([(rule, _)], _) => format!("all by {rule}"),
        (_, others) => {
            let mut parts: Vec<String> =
                named.iter().map(|(rule, count)| format!("{} by {rule}", number(**count as f64))).collect();
            parts.extend((!others.is_empty()).then(|| format!("{} by {} other rules", sum(others), others.len())));
            parts.join(", ")
        }
    };
    format!("{} of {statements} statements would have been rejected, {rules}", sum(&by))
}
