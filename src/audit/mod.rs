//! Past traffic: read from mongod's log, from `system.profile` and from captures, and held against rules.
//!
//! [`log`], [`profile`] and [`capture`] read one entry at a time into a [`Past`]; [`Audit`] rehearses it by
//! `engine::rehearse` and counts in a [`Tally`]; [`Habits`] counts what rules could be about. No I/O, no clock,
//! no threads: files and progress are the command line's. Next floor: `crate::service`.

pub mod capture;
mod field;
mod habits;
mod judge;
pub mod log;
mod past;
pub mod profile;
mod proposal;
pub mod report;
mod shape;
mod tally;
#[cfg(test)]
mod tests;

pub use habits::Habits;
pub use judge::Audit;
pub use past::{Asked, Client, Hidden, Past, Unreadable, Wanted};
pub use proposal::propose;
pub use shape::{one_line, shape, shape_of_frame};
pub use tally::{Counts, Effect, Example, Noted, RuleTally, Tally};
