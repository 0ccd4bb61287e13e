//! What the connections of a process share: its counts and limits, its memory, the permits of its rules.

pub(super) mod close_spacing;
pub(super) mod connection_counts;
pub(super) mod connection_table;
pub(super) mod context;
pub(super) mod limits;
pub(super) mod memory;
pub(super) mod pace;
pub(super) mod permits;
pub(super) mod unauthenticated;
