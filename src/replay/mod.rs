//! Replays recorded traffic, without the I/O: which commands are sent, when and in which order, and what is counted.
//!
//! [`Planner`] makes an [`Action`] of each recorded command: with sessions of its own, and with references to the
//! cursors that earlier actions open. [`Tally`] counts what the target answers, [`Comparison`] how two targets differ,
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

pub use action::Action;
pub use comparison::{Comparison, Difference, Outcome, StoredDifference, value_hash};
pub use latencies::Latencies;
pub use pace::Speed;
pub use planner::{LeftOut, Planned, Planner, RecordedReply, SessionId};
pub use report::Recorded;
pub use tally::{CommandTally, Tally};
pub use timeline::Timeline;
