//! `docward repair`: checks all copies of one rule and repairs the stale ones.
//!
//! For copies that were written while no docward ran. `--dry-run` lists and counts stale copies. The work is in
//! `service::copies::repair`.

use std::process::ExitCode;

use super::connection::OneRuleArguments;
use super::fail;
use super::output::print_line;
use super::progress::Lines;
use crate::patterns::AnyPattern;
use crate::service::copies::repair::{self, RepairEvent};
use crate::shell::value_text;

/// Exits with 0 if all copies were checked and, without `--dry-run`, every stale one was repaired; else with 1.
pub(super) fn run(arguments: OneRuleArguments) -> ExitCode {
    arguments.run(async |input| {
        let rule = input.rule();
        let AnyPattern::Copies(copies) = &rule.pattern else {
            return input.wrong_pattern("repair works only on `copies` rules");
        };
        let name = &rule.name.value;
        let mut shown = Lines::default();
        let report = |event: RepairEvent<'_>| match event {
            RepairEvent::Stale { namespace, id } => {
                let id = value_text(id);
                _ = print_line(&format!("{namespace}: stale in _id {id}"));
            }
            RepairEvent::Progress { counts, .. } => shown.show(format_args!("{name}: {counts} so far")),
        };
        match repair::run(&input.service, name, copies, input.dry_run, report).await {
            Ok(counts) => {
                let note = if input.dry_run { " (dry run: nothing was changed)" } else { "" };
                let printed = print_line(&format!("{name}: {counts}{note}"));
                if counts.rejected == 0 { printed.into() } else { fail("some stale copies could not be repaired", 1) }
            }
            Err(text) => fail(&text, 1),
        }
    })
}
