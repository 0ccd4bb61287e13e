//! `docward repair`: checks all copies of one rule and repairs the stale ones.
//!
//! For copies that were written while no docward ran. `--dry-run` only counts stale copies. The work is in
//! `service::copies::repair`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::connection::OneRule;
use super::fail;
use crate::patterns::AnyPattern;
use crate::service::copies::repair;

/// How often the progress is printed.
const PROGRESS: Duration = Duration::from_secs(2);

/// Exits with 0 if all copies were checked and, without `--dry-run`, every stale one was repaired; else with 1.
pub(super) fn run(arguments: OneRule) -> ExitCode {
    arguments.run(async |job| {
        let rule = job.rule();
        let AnyPattern::Copies(copies) = &rule.pattern else {
            return job.wrong_pattern("repair works only on `copies` rules");
        };
        let name = &rule.name.value;
        let mut printed = Instant::now();
        let progress = |counts: &repair::Counts| {
            if printed.elapsed() > PROGRESS {
                eprintln!("{name}: {counts} so far");
                printed = Instant::now();
            }
        };
        match repair::run(&job.service, name, copies, job.dry_run, progress).await {
            Ok(counts) => {
                let note = if job.dry_run { " (dry run: nothing was changed)" } else { "" };
                println!("{name}: {counts}{note}");
                if counts.refused == 0 { ExitCode::SUCCESS } else { fail("some stale copies could not be repaired", 1) }
            }
            Err(text) => fail(&text, 1),
        }
    })
}
