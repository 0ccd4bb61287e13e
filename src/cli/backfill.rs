//! `docward backfill`: sets what rules need in documents that are stored already. The work is in
//! `service::data::backfill`; `check --data` shows what it would find.

use std::process::ExitCode;

use clap::Args;

use super::connection::{ConnectionOptions, find_rule};
use super::output::print_line;
use super::progress::Lines;
use super::{EXIT_USAGE, fail};
use crate::rules::{Mode, Rule, RuleSet};
use crate::service::MongoService;
use crate::service::data::{self, Filled};

#[derive(Debug, Args)]
pub struct Arguments {
    /// Name of the rule; its mode does not matter.
    #[arg(value_name = "RULE", required_unless_present = "all")]
    rule: Option<String>,
    /// Every rule that is not disabled, in the order of the files.
    #[arg(long, conflicts_with = "rule")]
    all: bool,
    /// Only count the documents; change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connection: ConnectionOptions,
}

/// Exits with 0 if everything was set that can be set; with 1 if the server rejected a write or cannot be used.
pub(super) fn run(arguments: Arguments) -> ExitCode {
    let Arguments { rule, all: _, dry_run, connection } = arguments;
    connection.run(async |rules, service| match rule {
        None => of_all_rules(&service, &rules, dry_run).await,
        Some(name) => match find_rule(&rules, &name) {
            Ok(rule) => of_one_rule(&service, &rules, rules.rule(rule), dry_run).await,
            Err(text) => fail(&text, EXIT_USAGE),
        },
    })
}

async fn of_one_rule(service: &MongoService, rules: &RuleSet, rule: &Rule, dry_run: bool) -> ExitCode {
    match backfill(service, rules, rule, dry_run, |_| ()).await {
        Err(text) => fail(&text, 1),
        Ok(0) => {
            let pattern = rule.pattern.name();
            let nothing = "needs nothing of stored documents that docward can set";
            print_line(&format!("nothing to set: a rule of the pattern `{pattern}` {nothing}")).into()
        }
        Ok(_) => after(dry_run),
    }
}

/// A rule that fails does not stop the others.
async fn of_all_rules(service: &MongoService, rules: &RuleSet, dry_run: bool) -> ExitCode {
    let (mut steps, mut failed) = (0, false);
    for rule in rules.rules().iter().filter(|rule| rule.mode != Mode::Disabled) {
        let name = &rule.name.value;
        let heading = |step| {
            if step == 0 {
                _ = print_line(&format!("{name}:"));
            }
        };
        match backfill(service, rules, rule, dry_run, heading).await {
            Ok(done) => steps += done,
            Err(text) => {
                failed = true;
                _ = fail(&format!("{name}: {text}"), 1);
            }
        }
    }
    match steps {
        _ if failed => ExitCode::FAILURE,
        0 => print_line("nothing to set: no rule needs anything of stored documents that docward can set").into(),
        _ => after(dry_run),
    }
}

fn after(dry_run: bool) -> ExitCode {
    if dry_run { print_line("dry run: nothing was changed").into() } else { ExitCode::SUCCESS }
}

/// Sets what a rule needs, and prints each step after calling `before` with its number; returns the number of steps.
///
/// # Errors
/// The server or network error, or that the server rejected a write.
async fn backfill(
    service: &MongoService,
    rules: &RuleSet,
    rule: &Rule,
    dry_run: bool,
    before: impl Fn(u32),
) -> Result<u32, String> {
    let (mut steps, mut rejected) = (0, 0);
    let mut shown = Lines::default();
    let report = |filled: &Filled| {
        before(steps);
        _ = print_line(&filled.to_string());
        steps += 1;
        rejected += filled.rejected;
    };
    data::backfill(service, rules, rule, dry_run, report, |progress: &_| shown.show(progress)).await?;
    if rejected > 0 { Err("the server rejected some writes".to_owned()) } else { Ok(steps) }
}
