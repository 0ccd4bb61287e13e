//! Counts with valgrind how many instructions each step of `hot_paths.rs` executes. The count does not depend on the
//! machine's load, so a test run can detect a slowdown.
//!
//! `make instructions` compares with `expected.txt`; `make instructions STORE=1` writes it. The counts belong to one
//! compiler version: a new version may need new counts.

#[path = "../frames.rs"]
mod frames;
#[path = "../hot_paths.rs"]
mod hot_paths;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use hot_paths::HotPath;

/// The same allocator as docward's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How much a count may exceed the stored one, as a share of it, because C libraries differ.
const TOLERANCE: f64 = 0.03;
/// The same in instructions: hash tables of names differ in layout from process to process, and some need more steps.
const SLACK: f64 = 200.0;
/// Repetitions of the shorter of two runs.
const STATEMENTS: usize = 200;
/// The minimum number of instructions by which the longer run exceeds the shorter one. The preparation, such as
/// loading 10,000 rules into hash tables, differs by some 100,000 instructions from process to process.
const MORE: f64 = 10_000_000.0;
/// The minimum that any step is expected to execute.
const LEAST: f64 = 400.0;

fn main() -> Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["repeat", name, count] => repeat(name, count.parse()?).map(|()| ExitCode::SUCCESS),
        ["store"] => store(&count_all()?).map(|()| ExitCode::SUCCESS),
        [] => compare(&count_all()?),
        _ => anyhow::bail!("usage: instructions [store]"),
    }
}

/// The work that is counted.
fn repeat(name: &str, count: usize) -> Result<()> {
    let path = hot_paths::ALL.iter().find(|path| path.name == name).context("no such name")?;
    let mut work = path.prepare();
    (0..count).for_each(|_| work());
    Ok(())
}

fn count_all() -> Result<Vec<(&'static str, f64)>> {
    hot_paths::ALL.iter().map(|path| Ok((path.name, count(path)?))).collect()
}

/// Instructions of one repetition: the difference between a longer and a shorter run, which excludes the preparation.
fn count(path: &HotPath) -> Result<f64> {
    let few = STATEMENTS.div_ceil(path.statements);
    let (none, some) = (executed(path.name, 0)?, executed(path.name, few)?);
    let roughly = ((some - none) / few as f64).max(LEAST);
    let more = few.max((MORE / roughly) as usize);
    Ok((executed(path.name, few + more)? - some) / more as f64)
}

fn executed(name: &str, repetitions: usize) -> Result<f64> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]);
    let output = command.arg(std::env::current_exe()?).args(["repeat", name, &repetitions.to_string()]).output();
    let output = output.context("valgrind cannot be started (on Debian: apt-get install valgrind)")?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{text}");
    let line = text.lines().find_map(|line| line.split_once("I   refs:").or_else(|| line.split_once("I refs:")));
    let (_, number) = line.with_context(|| format!("no count in valgrind's words:\n{text}"))?;
    Ok(number.trim().replace(',', "").parse()?)
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("expected.txt")
}

fn store(counts: &[(&str, f64)]) -> Result<()> {
    let lines = counts.iter().map(|(name, count)| format!("{count:.0}\t{name}\n"));
    Ok(std::fs::write(file(), lines.collect::<String>())?)
}

/// Fails if a count exceeds the stored one, or if none is stored.
fn compare(counts: &[(&str, f64)]) -> Result<ExitCode> {
    let stored = std::fs::read_to_string(file())?;
    let lines = stored.lines().map(|line| {
        let (count, name) = line.split_once('\t').context("expected.txt: a line without a tab")?;
        Ok((name, count.parse()?))
    });
    let stored: HashMap<&str, f64> = lines.collect::<Result<_>>()?;
    let mut slower = false;
    for (name, count) in counts {
        let stored = stored.get(name);
        let worse = stored.is_none_or(|stored| *count > stored * (1.0 + TOLERANCE) + SLACK);
        slower |= worse;
        let change = stored.map(|stored| format!("{:+.1} %", (count / stored - 1.0) * 100.0));
        let change = change.unwrap_or_else(|| "not stored".to_owned());
        println!("{count:>10.0} {change:>10} {}{name}", if worse { "SLOWER " } else { "" });
    }
    if slower {
        eprintln!("more than bench/instructions/expected.txt has; if that is intended: make instructions STORE=1");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
