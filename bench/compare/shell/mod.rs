//! Mongo shell traffic: the workloads of `bench/shell/`, run by mongosh (`mongosh.rs`), recorded (`record.rs`), and
//! replayed over many connections (`capture.rs`, `replay.rs`). Every run ends with the workload's own check, which
//! counts broken invariants.

pub(crate) mod capture;
pub(crate) mod deployment;
pub(crate) mod mongosh;
pub(crate) mod record;
pub(crate) mod replay;

use std::path::PathBuf;

use support::process::repository;

/// Each has a script, rules and captures of the same name.
pub(crate) const WORKLOADS: [&str; 5] = ["shop", "library", "devices", "jobs", "inbox"];

/// The capture file of a workload: the commands that fill its collections, or those that its shells send afterwards.
pub(crate) fn capture_file(workload: &str, of: Recorded) -> PathBuf {
    let kind = match of {
        Recorded::Setup => ".setup",
        Recorded::Traffic => "",
    };
    repository(&format!("bench/shell/captures/{workload}{kind}.bson"))
}

/// The content of a capture.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Recorded {
    Setup,
    Traffic,
}
