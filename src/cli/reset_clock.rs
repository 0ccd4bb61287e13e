//! `docward reset-clock`: forgets the timestamps of a `timestamps` rule, after a source's clock was set back.
//!
//! A timestamp from the future would keep every later write out; a missing one is older than everything, so the
//! next write wins. The work is done by `service::timestamps`.

use std::process::ExitCode;

use super::connection::OneRule;
use super::fail;
use crate::patterns::Pattern;
use crate::service::timestamps;

/// 0 when the timestamps of every collection of the rule are gone; else 1.
pub(super) fn run(arguments: OneRule) -> ExitCode {
    arguments.run(async |job| {
        let rule = job.rule();
        let Pattern::Timestamps(timestamps) = &rule.pattern else {
            return job.refuse("only `timestamps` has timestamps");
        };
        let report = |namespace: &str, documents: u64| {
            let done = if job.dry_run {
                "have timestamps (dry run: nothing was changed)"
            } else {
                "have no timestamps any more"
            };
            println!("{}: {namespace}: {documents} documents {done}", rule.name.value);
        };
        match timestamps::reset(&job.service, &job.rules, rule, timestamps.store(), job.dry_run, report).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(text) => fail(&text, 1),
        }
    })
}
