//! Reads recorded traffic from mongod's log, `system.profile` and captures, and evaluates it with rules.
//!
//! [`objects`] finds the entries of texts; [`log`], [`profile`] and [`capture`] read one entry at a time into a [`RecordedCommand`]. [`Audit`] evaluates it
//! with `engine::dry_run` and counts the outcomes in a [`AuditTally`]. [`Habits`] counts what a rule could prevent, and
//! [`CandidateRules`] proposes rules that do not break the recorded applications. This layer has no I/O, clock or threads: `crate::cli` reads the files and shows progress. Next layer: `crate::replay`.
//!
//! `known_documents` and `matching` import each other: a filter is evaluated on what is known of a document, and selects the
//! documents that are known.

pub mod capture;
mod evaluation;
mod expression;
mod reply_summary;

mod habits;
mod known_documents;
pub mod log;
mod matching;
pub mod objects;
pub mod profile;
mod proposal;
mod recorded;
mod repeats;
pub mod report;
mod tally;
mod target;
#[cfg(test)]
mod tests;
mod time_order;
mod write;

pub use crate::command::shape::shape;
pub use evaluation::Audit;
pub use habits::Habits;
pub use proposal::{CandidateEvaluation, CandidateRules, EvaluatedCandidates, Proposal};
pub use recorded::{
    Client, CommandFilter, RecordedCommand, RecordedContent, TrafficConsumer, UnknownStatements, Unreadable,
    is_between_servers,
};
pub use repeats::RepeatedStatements;
pub use reply_summary::ReplySummary;
pub use tally::{AuditTally, CountedOutcome, Example, ExampleText, OutcomeCounts, ReportedOutcome, RuleTally};
pub use time_order::TimeOrder;

/// Bytes of a list of statements from which the shape of a message is made.
const SHAPED_LENGTH: usize = 16 * 1024;

/// The shape of the command in a message.
#[must_use]
pub fn shape_of_frame(frame: &[u8]) -> String {
    crate::engine::command_start(frame, SHAPED_LENGTH)
        .map_or_else(|| "?".to_owned(), |command| shape(command.as_document()))
}
