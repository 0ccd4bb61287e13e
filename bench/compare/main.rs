//! docward beside a bare relay, HAProxy and a direct connection: throughput, CPU, latency and memory, in one run.
//!
//! `make bench-compare`; with names of sections, only those: `make bench-compare SECTIONS="unmatched idle"`. With
//! `--write` the findings go to `bench/RESULTS.md` and `bench/plots/`. Who is compared takes turns in every round, so that
//! what else the machine does falls on all alike: read the ratios, not the figures. `contenders.rs` starts what is
//! compared, `load.rs` and `open_loop.rs` drive it, `canned.rs` answers, `rounds.rs` measures, `sections/` have the story.
//! `shell/` runs and replays what people write for mongosh.

mod canned;
mod contenders;
mod cycle;
mod exchange;
#[path = "../frames.rs"]
mod frames;
mod load;
mod open_loop;
mod plot;
mod relay;
mod report;
mod roles;
mod rounds;
mod sections;
mod shell;
#[path = "../../tests/support/mod.rs"]
mod support;
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
    // Idle connections: as many as the system allows this process.
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
