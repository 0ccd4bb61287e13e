//! Counts of a replay.

use std::collections::BTreeMap;

use super::{Action, Latencies, Timeline};
use crate::audit::ReplySummary;
use crate::engine::statement_count;

/// What a target answered.
#[derive(Debug, Clone, Default)]
pub struct ReplayTally {
    pub commands: BTreeMap<&'static str, CommandTally>,
    /// Failed commands and statements by code.
    pub errors: BTreeMap<i32, u64>,
    /// The statements of the answered commands; a command that is not a batch counts as one.
    pub statements: u64,
    /// Statements that rules of docward rejected, by rule.
    pub rejections: BTreeMap<String, u64>,
    /// Commands without a reply: the connection was lost or could not be opened.
    pub without_reply: u64,
    /// Commands whose cursor the target did not open, or had closed.
    pub without_cursor: u64,
    /// Answered commands over the time of the replay.
    pub timeline: Timeline,
    /// The longest time in microseconds that a command was sent later than it was due.
    pub latest: u64,
    /// Commands that were sent more than 100 ms later than they were due.
    pub late: u64,
}

/// Counts of one command.
#[derive(Debug, Clone, Default)]
pub struct CommandTally {
    pub played: Latencies,
    /// Commands that failed, or of which a statement failed.
    pub failed: u64,
}

/// A command that is sent this much later than it was due counts as late, in microseconds.
const LATE: u64 = 100_000;

impl ReplayTally {
    /// Counts a reply. `elapsed`: milliseconds since the start of the replay. `behind`: microseconds that the command was
    /// sent later than it was due.
    pub fn answered(&mut self, action: &Action, microseconds: u64, elapsed: u64, behind: u64, reply: &ReplySummary) {
        let command = self.commands.entry(action.name.as_str()).or_default();
        self.statements += statement_count(action.command());
        command.played.add(microseconds);
        command.failed += u64::from(!reply.is_ok());
        self.timeline.add(elapsed);
        self.latest = self.latest.max(behind);
        self.late += u64::from(behind > LATE);
        for code in reply.code.iter().chain(&reply.write_errors) {
            *self.errors.entry(*code).or_default() += 1;
        }
        for (rule, statements) in &reply.rules {
            *self.rejections.entry(rule.clone()).or_default() += statements;
        }
    }

    /// Returns the number of answered commands.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.commands.values().map(|command| command.played.count()).sum()
    }

    /// Returns the number of commands that failed, or of which a statement failed.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.commands.values().map(|command| command.failed).sum()
    }

    /// Returns the latencies of all commands.
    #[must_use]
    pub fn latencies(&self) -> Latencies {
        Latencies::merged(self.commands.values().map(|command| &command.played))
    }
}
