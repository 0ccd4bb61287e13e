//! Compares docward with a bare relay, HAProxy and a direct connection: throughput, CPU, latency and memory, in one
//! run.
//!
//! `make bench-compare` runs all sections; `make bench-compare SECTIONS="unmatched idle"` runs only those. `--write`
//! writes the results to `bench/RESULTS.md` and `bench/plots/`. The contenders alternate in every round, so that
//! other load on the machine affects all of them equally: read the ratios, not the absolute figures.
//!
//! `contenders.rs` starts the contenders, `load.rs` and `open_loop.rs` send messages, `canned.rs` answers,
//! `rounds.rs` measures, and `sections/` has one comparison per file. `shell/` runs and replays mongosh workloads.

mod canned;
mod contenders;
mod cycle;
mod exchange;
#[path = "../frames.rs"]
mod frames;
mod load;
mod open_loop;
mod relay;
mod report;
mod roles;
mod rounds;
mod sections;
mod shell;
mod usage;

use std::path::Path;

use anyhow::{Result, bail};
use sections::SECTIONS;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).filter(|word| !word.starts_with("--")).collect();
    if let Some(played) = roles::play(&words) {
        return played;
    }
    if words == ["record-shells"] {
        return shell::record::record_all();
    }
    let has = |flag| arguments.iter().any(|argument| argument == flag);
    if !has("--bench") {
        println!("compare: a benchmark; run it by `make bench-compare`");
        return Ok(());
    }
    if let Some(unknown) = words.iter().find(|word| !SECTIONS.iter().any(|(name, _)| name == *word)) {
        bail!("there is no section '{unknown}'; choose among {}", SECTIONS.map(|(name, _)| name).join(", "));
    }
    // Idle connections: as many as this process may open.
    rlimit::increase_nofile_limit(rlimit::INFINITY)?;
    for (name, section) in SECTIONS.iter().filter(|(name, _)| words.is_empty() || words.contains(name)) {
        eprintln!("{name}");
        let Some(report) = section()? else { continue };
        report.print();
        if has("--write") {
            report.write(&Path::new(env!("CARGO_MANIFEST_DIR")).join("bench"))?;
        }
    }
    Ok(())
}
