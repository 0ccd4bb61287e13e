//! `docward backfill`: sets what a rule needs in documents that are stored already. The work is in
//! `service::data::backfill`; `check --upstream --data` shows what it would find.

use std::process::ExitCode;

use clap::Args;

use super::connection::ConnectionOptions;
use super::fail;
use super::output::print_line;
use super::progress::Lines;
use crate::service::data::{Filled, backfill};

#[derive(Debug, Args)]
pub struct Arguments {
    /// Name of the rule; its mode does not matter.
    #[arg(value_name = "RULE")]
    rule: String,
    /// Only count the documents; change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connection: ConnectionOptions,
}

/// Exits with 0 if everything was set that can be set; with 1 if the server rejected a write or cannot be used.
pub(super) fn run(arguments: Arguments) -> ExitCode {
    let Arguments { rule, dry_run, connection } = arguments;
    connection.run_for(&rule, dry_run, async |input| {
        let (mut steps, mut rejected) = (0, 0);
        let mut shown = Lines::default();
        let report = |filled: &Filled| {
            _ = print_line(&filled.to_string());
            steps += 1;
            rejected += filled.rejected;
        };
        let progress = |progress: &_| shown.show(progress);
        let done = backfill(&input.service, &input.rules, input.rule(), input.dry_run, report, progress).await;
        match done {
            Err(text) => return fail(&text, 1),
            Ok(()) if rejected > 0 => return fail("the server rejected some writes", 1),
            Ok(()) => {}
        }
        match (steps, input.dry_run) {
            (0, _) => {
                let pattern = input.rule().pattern.name();
                let nothing = "needs nothing of stored documents that docward can set";
                print_line(&format!("nothing to set: a rule of the pattern `{pattern}` {nothing}")).into()
            }
            (_, true) => print_line("dry run: nothing was changed").into(),
            (_, false) => ExitCode::SUCCESS,
        }
    })
}
