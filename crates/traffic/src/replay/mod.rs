//! Replays recorded traffic, without the I/O: which commands are sent, when and in which order, and what is counted.
//!
//! [`ReplayPlanner`] makes an [`Action`] of each recorded command: with sessions of its own, and with references to the
//! cursors that earlier actions open. [`ReplayTally`] counts what the target answers, [`Comparison`] how two targets differ,
//! [`report`] shows both. `crate::player` sends the actions.

mod action;
mod comparison;
mod latencies;
mod pace;
mod planner;
pub mod report;
mod tally;
#[cfg(test)]
mod tests;
mod timeline;

pub use action::{Action, SessionId};
pub use comparison::{
    Comparison, Difference, RuleFields, StoredDifference, TargetReply, document_hash, value_hash, without_fields,
};
pub use latencies::Latencies;
pub use pace::Speed;
pub use planner::{NotSent, RecordedReply, ReplayPlanner};
pub use report::Recorded;
pub use tally::{CommandTally, ReplayTally};
pub use timeline::Timeline;
