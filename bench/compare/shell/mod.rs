//! Mongo shell traffic: the workloads of `bench/shell/`, run by mongosh (`mongosh.rs`), recorded (`record.rs`), and
//! replayed over many connections (`capture.rs`, `replay.rs`). Every way of running ends with the workload's own
//! check, which counts what must not be.

pub(crate) mod capture;
pub(crate) mod deployment;
pub(crate) mod mongosh;
pub(crate) mod record;
pub(crate) mod replay;

use std::path::PathBuf;

use super::support::process::repository;

/// Each has a script, rules and captures of its name.
pub(crate) const WORKLOADS: [&str; 5] = ["shop", "library", "devices", "jobs", "inbox"];

/// Where a workload's recorded commands are: what fills its collections, or what its shells then sent.
pub(crate) fn capture_file(workload: &str, of: Recorded) -> PathBuf {
    let kind = match of {
        Recorded::Setup => ".setup",
        Recorded::Traffic => "",
    };
    repository(&format!("bench/shell/captures/{workload}{kind}.bson"))
}

/// What a capture holds.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Recorded {
    Setup,
    Traffic,
}
