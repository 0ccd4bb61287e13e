//! Runs the workloads with several concurrent mongosh processes.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::WORKLOADS;
use support::process::{mongosh, repository};

/// The broken invariants by workload, each with its count; all zero if the invariants held.
pub(crate) type Broken = BTreeMap<String, BTreeMap<String, i64>>;

/// The amount of work.
#[derive(Clone, Copy)]
pub(crate) struct Amount {
    /// Concurrent shells.
    pub(crate) shells: usize,
    /// Repetitions per shell.
    pub(crate) rounds: usize,
}

/// Which side assigns the order numbers of the shop, the only line in which the applications differ.
#[derive(Clone, Copy)]
pub(crate) enum Numbers {
    Application,
    Docward,
}

/// The work of the shells on one workload.
pub(crate) struct Work {
    pub(crate) operations: u64,
    /// Operations per second, from the start of the last shell until the end of the work.
    pub(crate) rate: f64,
}

/// A line that a working shell prints.
#[derive(Deserialize)]
struct Done {
    workload: String,
    operations: u64,
    begun: i64,
    ended: i64,
}

#[derive(Deserialize)]
struct Checked {
    workload: String,
    broken: BTreeMap<String, i64>,
}

/// Creates all workloads' collections in their initial state.
pub(crate) fn set_up(uri: &str) -> Result<()> {
    finish::<serde::de::IgnoredAny>(start(uri, &[("PHASE", "setup")])?).map(|_| ())
}

/// Runs the shells on one workload after the other.
pub(crate) fn work(uri: &str, amount: Amount, numbers: Numbers) -> Result<BTreeMap<String, Work>> {
    let numbers = match numbers {
        Numbers::Application => "application",
        Numbers::Docward => "docward",
    };
    let (shells, rounds) = (amount.shells.to_string(), amount.rounds.to_string());
    let shell = |worker: usize| {
        let worker = worker.to_string();
        let settings = [
            ("PHASE", "traffic"),
            ("NUMBERS", numbers),
            ("WORKERS", &shells),
            ("ROUNDS", &rounds),
            ("WORKER", &worker),
        ];
        start(uri, &settings)
    };
    let shells = (0..amount.shells).map(shell).collect::<Result<Vec<_>>>()?;
    // Waits for all of them, so that no shell keeps running after another one fails.
    let done: Vec<Result<Vec<Done>>> = shells.into_iter().map(finish).collect();
    let done: Vec<Done> = done.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
    Ok(WORKLOADS.iter().map(|workload| ((*workload).to_owned(), summary(workload, &done))).collect())
}

/// Counts the broken invariants.
pub(crate) fn check(uri: &str) -> Result<Broken> {
    let checked: Vec<Checked> = finish(start(uri, &[("PHASE", "check")])?)?;
    Ok(checked.into_iter().map(|Checked { workload, broken }| (workload, broken)).collect())
}

fn summary(workload: &str, done: &[Done]) -> Work {
    let own = || done.iter().filter(|each| each.workload == workload);
    let operations = own().map(|each| each.operations).sum();
    let begun = own().map(|each| each.begun).min().unwrap_or_default();
    let ended = own().map(|each| each.ended).max().unwrap_or_default();
    Work { operations, rate: operations as f64 / ((ended - begun).max(1) as f64 / 1e3) }
}

fn start(uri: &str, settings: &[(&str, &str)]) -> Result<Child> {
    Command::new(mongosh())
        .args(["--quiet", "--norc", uri, "--file"])
        .arg(repository("bench/shell/run.js"))
        .envs(settings.iter().copied())
        .env("WORKLOADS", WORKLOADS.join(","))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("mongosh")
}

/// Returns the lines that it prints.
fn finish<T: DeserializeOwned>(shell: Child) -> Result<Vec<T>> {
    let output = shell.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "mongosh failed:\n{text}{}", String::from_utf8_lossy(&output.stderr));
    text.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}
