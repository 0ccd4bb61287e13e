//! `docward repair`: goes through all copies of one rule and mends those that are stale.
//!
//! For copies that were written while no docward ran, or to see with `--dry-run` what a rule would find. The
//! work is done by `service::copies::repair`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::connection::OneRule;
use super::fail;
use crate::patterns::Pattern;
use crate::service::copies::repair;

/// How often the progress is printed.
const PROGRESS: Duration = Duration::from_secs(2);

/// 0 when all copies could be looked at and, without `--dry-run`, every stale one was mended; else 1.
pub(super) fn run(arguments: OneRule) -> ExitCode {
    arguments.run(async |job| {
        let rule = job.rule();
        let Pattern::Copies(copies) = &rule.pattern else { return job.refuse("only `copies` can be repaired") };
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
                if counts.refused == 0 { ExitCode::SUCCESS } else { fail("not every stale copy could be mended", 1) }
            }
            Err(text) => fail(&text, 1),
        }
    })
}
