//! The comparisons, one function per section of `bench/RESULTS.md`. A section whose contender is not installed prints
//! that and returns no report.

mod axes;
mod canned;
mod goodput;
mod idle;
mod pool;
mod server;
mod shell;
mod storm;

use anyhow::Result;

use super::report::Report;

type Section = fn() -> Result<Option<Report>>;

pub(crate) const SECTIONS: [(&str, Section); 14] = [
    ("unmatched", canned::unmatched),
    ("latency", canned::latency),
    ("rewritten", canned::rewritten),
    ("rules", axes::rules),
    ("connections", axes::connections),
    ("sizes", axes::sizes),
    ("idle", idle::idle),
    ("sequence", server::sequence),
    ("mixed", server::mixed),
    ("pool", pool::pool),
    ("storm", storm::storm),
    ("goodput", goodput::goodput),
    ("shell", shell::shells),
    ("replay", shell::replay),
];
