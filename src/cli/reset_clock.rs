//! `docward reset-clock`: forgets the stamps of a `timestamps` rule, after a source's clock was set back.
//!
//! A stamp from the future would keep every later write out; a missing one is older than everything, so the
//! next write wins. The work is done by `service::stamps`.

use std::process::ExitCode;

use super::connection::OneRule;
use super::fail;
use crate::patterns::Pattern;
use crate::service::stamps;

/// 0 when the stamps of every collection of the rule are gone; else 1.
pub(super) fn run(arguments: OneRule) -> ExitCode {
    arguments.run(async |job| {
        let rule = job.rule();
        let Pattern::Timestamps(timestamps) = &rule.pattern else { return job.refuse("only `timestamps` has stamps") };
        let report = |namespace: &str, documents: u64| {
            let done =
                if job.dry_run { "have stamps (dry run: nothing was changed)" } else { "have no stamps any more" };
            println!("{}: {namespace}: {documents} documents {done}", rule.name.value);
        };
        match stamps::reset(&job.service, &job.rules, rule, timestamps.store(), job.dry_run, report).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(text) => fail(&text, 1),
        }
    })
}
