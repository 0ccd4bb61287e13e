//! `docward repair`: goes through all copies of one rule and mends those that are stale.
//!
//! For copies that were written while no docward ran, or to see with `--dry-run` what a rule would find. The
//! work is done by `service::copies::repair`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;

use super::connection::{Connection, rule};
use super::{EXIT_USAGE, fail};
use crate::patterns::copies::Copies;
use crate::patterns::{Pattern, RuleSet};
use crate::service::copies::repair;

/// How often the progress is printed.
const PROGRESS: Duration = Duration::from_secs(2);

/// As typed.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Name of a `copies` rule, whatever its mode.
    #[arg(long = "rule", value_name = "NAME")]
    rule: String,
    /// Count stale copies, and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connection: Connection,
}

/// 0 when all copies could be looked at and, without `--dry-run`, every stale one was mended; else 1.
pub(super) fn run(arguments: Arguments) -> ExitCode {
    let Arguments { rule, dry_run, connection } = arguments;
    connection.run(async |rules, service| {
        let copies = match find(&rules, &rule) {
            Ok(copies) => copies,
            Err(text) => return fail(&text, EXIT_USAGE),
        };
        let mut printed = Instant::now();
        let progress = |counts: &repair::Counts| {
            if printed.elapsed() > PROGRESS {
                eprintln!("{rule}: {counts} so far");
                printed = Instant::now();
            }
        };
        match repair::run(&service, &rule, copies, dry_run, progress).await {
            Ok(counts) => {
                let note = if dry_run { " (dry run: nothing was changed)" } else { "" };
                println!("{rule}: {counts}{note}");
                if counts.refused == 0 { ExitCode::SUCCESS } else { fail("not every stale copy could be mended", 1) }
            }
            Err(text) => fail(&text, 1),
        }
    })
}

fn find<'r>(rules: &'r RuleSet, name: &str) -> Result<&'r Copies, String> {
    match &rule(rules, name)?.pattern {
        Pattern::Copies(copies) => Ok(copies),
        other => Err(format!("--rule {name}: it is of the pattern `{}`; only `copies` can be repaired", other.name())),
    }
}
