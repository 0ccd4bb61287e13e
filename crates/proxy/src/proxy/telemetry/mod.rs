//! What is counted, measured and logged: bytes and times, spans, the outcomes of rules, decisions.

pub(super) mod decisions;
pub(super) mod history;
pub(super) mod meter;
pub(super) mod moment;
pub(super) mod outcome_counters;
pub(super) mod sharded;
pub(super) mod slowest;
pub(super) mod spans;
pub(super) mod written_rule;
