//! RecordedCommand traffic: read from mongod's log, from `system.profile` and from captures, and held against rules.
//!
//! [`log`], [`profile`] and [`capture`] read one entry at a time into a [`RecordedCommand`]; [`Audit`] rehearses it by
//! `engine::dry_run` and counts in a [`Tally`]; [`Habits`] counts what rules could be about. No I/O, no clock,
//! no threads: files and progress are the command line's. Next floor: `crate::service`.

pub mod capture;
mod evaluation;
mod field;
mod habits;
pub mod log;
pub mod profile;
mod proposal;
mod recorded;
pub mod report;
mod shape;
mod tally;
#[cfg(test)]
mod tests;

pub use evaluation::Audit;
pub use habits::Habits;
pub use proposal::propose;
pub use recorded::{Asked, Client, Hidden, RecordedCommand, Unreadable, Wanted};
pub use shape::{one_line, shape, shape_of_frame};
pub use tally::{Counts, Effect, Example, Noted, RuleTally, Tally};
