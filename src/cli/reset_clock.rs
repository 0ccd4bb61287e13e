//! `docward reset-clock`: removes the timestamps of a `timestamps` rule, after a source's clock was set back.
//!
//! A timestamp from the future makes every later write lose. A missing timestamp counts as the oldest, so the
//! next write wins. The work is in `service::timestamps`.

use std::process::ExitCode;

use super::connection::OneRuleArguments;
use super::fail;
use super::output::print_line;
use crate::patterns::AnyPattern;
use crate::service::timestamps;

/// Exits with 0 if the timestamps of all collections of the rule were removed; else with 1.
pub(super) fn run(arguments: OneRuleArguments) -> ExitCode {
    arguments.run(async |input| {
        let rule = input.rule();
        let AnyPattern::Timestamps(timestamps) = &rule.pattern else {
            return input.wrong_pattern("reset-clock works only on `timestamps` rules");
        };
        let report = |namespace: &str, documents: u64| {
            let done = if input.dry_run {
                "have timestamps (dry run: nothing was changed)"
            } else {
                "no longer have timestamps"
            };
            _ = print_line(&format!("{}: {namespace}: {documents} documents {done}", rule.name.value));
        };
        match timestamps::reset(&input.service, &input.rules, rule, timestamps.store(), input.dry_run, report).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(text) => fail(&text, 1),
        }
    })
}
