//! `docward reset-clock`: forgets the stamps of a `timestamps` rule, after a source's clock was set back.
//!
//! A stamp from the future would keep every later write out; a missing one is older than everything, so the
//! next write wins. The work is done by `service::stamps`.

use std::process::ExitCode;

use clap::Args;

use super::connection::{Connection, rule};
use super::{EXIT_USAGE, fail};
use crate::patterns::Pattern;
use crate::service::stamps;

/// As typed.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Name of a `timestamps` rule, whatever its mode.
    #[arg(long = "rule", value_name = "NAME")]
    rule: String,
    /// Count the documents with stamps, and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connection: Connection,
}

/// 0 when the stamps of every collection of the rule are gone; else 1.
pub(super) fn run(arguments: Arguments) -> ExitCode {
    let Arguments { rule: name, dry_run, connection } = arguments;
    connection.run(async |rules, service| {
        let rule = match rule(&rules, &name) {
            Ok(rule) => rule,
            Err(text) => return fail(&text, EXIT_USAGE),
        };
        let Pattern::Timestamps(timestamps) = &rule.pattern else {
            let pattern = rule.pattern.name();
            return fail(
                &format!("--rule {name}: it is of the pattern `{pattern}`; only `timestamps` has stamps"),
                EXIT_USAGE,
            );
        };
        let report = |namespace: &str, documents: u64| {
            let done = if dry_run { "have stamps (dry run: nothing was changed)" } else { "have no stamps any more" };
            println!("{name}: {namespace}: {documents} documents {done}");
        };
        match stamps::reset(&service, &rules, rule, timestamps.store(), dry_run, report).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(text) => fail(&text, 1),
        }
    })
}
