//! Runs the workloads as people would: several mongosh processes at once, each a shell at work.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::WORKLOADS;
use crate::support::process::repository;

/// What must not be, each with how often it is, by workload; all zero where the invariant held.
pub(crate) type Broken = BTreeMap<String, BTreeMap<String, i64>>;

/// How much is done.
#[derive(Clone, Copy)]
pub(crate) struct Amount {
    /// Shells at work at the same time.
    pub(crate) shells: usize,
    /// How often each repeats what it does.
    pub(crate) rounds: usize,
}

/// Who numbers the shop's orders: the one line in which an application differs.
#[derive(Clone, Copy)]
pub(crate) enum Numbers {
    Application,
    Docward,
}

/// What the shells at one workload did.
pub(crate) struct Work {
    pub(crate) operations: u64,
    /// Operations a second, from when all had come until the last was done.
    pub(crate) rate: f64,
}

/// A line that a shell at work prints.
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

/// Makes all workloads' collections as they are at the beginning.
pub(crate) fn set_up(uri: &str) -> Result<()> {
    finish::<serde::de::IgnoredAny>(start(uri, &[("PHASE", "setup")])?).map(|_| ())
}

/// Has shells work, each at one workload after the other.
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
    // All are waited for, so that none outlives a failure of another.
    let done: Vec<Result<Vec<Done>>> = shells.into_iter().map(finish).collect();
    let done: Vec<Done> = done.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
    Ok(WORKLOADS.iter().map(|workload| ((*workload).to_owned(), summary(workload, &done))).collect())
}

/// Counts what must not be.
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
    Command::new(executable()?)
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

/// The lines it prints.
fn finish<T: DeserializeOwned>(shell: Child) -> Result<Vec<T>> {
    let output = shell.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "mongosh failed:\n{text}{}", String::from_utf8_lossy(&output.stderr));
    text.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}

/// What `scripts/mongosh.sh` finds or fetches.
fn executable() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("MONGOSH") {
        return Ok(path.into());
    }
    let output = Command::new(repository("scripts/mongosh.sh")).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "scripts/mongosh.sh found no mongosh, see above");
    Ok(String::from_utf8(output.stdout)?.trim_end().into())
}
