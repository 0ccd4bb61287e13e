//! `docward validators`: lets the server hold what rules require of one document, also for clients that bypass docward. The work
//! is in `service::validators`.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgGroup, Args};

use super::connection::ConnectionOptions;
use super::difference::difference;
use super::fail;
use super::output::{PrintResult, print_line};
use crate::document::Document;
use crate::rules::RuleSet;
use crate::service::MongoService;
use crate::service::validators::{Goal, ValidatorPlan, plan};
use crate::shell::{extended_json, relaxed_json};
use crate::text::plural;

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("action").args(["apply", "remove", "print"])))]
pub struct Arguments {
    /// Rule files, or folders of rule files; as --rules.
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Change the validators. Without it and the next two, only show the changes.
    #[arg(long)]
    apply: bool,
    /// Remove docward's part from the validators, which are then as they were before.
    #[arg(long)]
    remove: bool,
    /// Print the collMod commands as JSON lines, each with its database in `$db`.
    #[arg(long)]
    print: bool,
    /// Reject documents that break a rule, instead of logging them.
    #[arg(long, conflicts_with = "remove")]
    enforce: bool,
    #[command(flatten)]
    connection: ConnectionOptions,
}

/// Exits with 0; with 1 if a collection cannot have what the rules require, or the server cannot be used.
pub(super) fn run(arguments: Arguments) -> ExitCode {
    let Arguments { paths, apply, remove, print, enforce, connection } = arguments;
    let goal = if remove { Goal::Removed } else { Goal::Held { enforce } };
    connection.with_rules(paths).run(async |rules, service| match plan(&service, &rules, goal).await {
        Err(text) => fail(&text, 1),
        Ok(plans) if print => print_commands(&plans),
        Ok(plans) => carry_out(&service, &rules, &plans, apply || remove).await,
    })
}

fn print_commands(plans: &[ValidatorPlan]) -> ExitCode {
    let mut printed = PrintResult::default();
    for command in plans.iter().filter_map(ValidatorPlan::command) {
        // With their types: what they set is not a difference the next time.
        printed = print_line(&json(&command, extended_json).to_string());
    }
    printed.unless(report_refused(plans))
}

/// Shows the plans, and makes their changes if `changes`.
async fn carry_out(service: &MongoService, rules: &RuleSet, plans: &[ValidatorPlan], changes: bool) -> ExitCode {
    let (mut planned, mut changed, mut failed) = (0, 0, report_refused(plans));
    for plan in plans {
        _ = show(plan, rules);
        if plan.change().is_none() {
            continue;
        }
        planned += 1;
        match if changes { plan.apply(service).await } else { continue } {
            Ok(()) => changed += 1,
            Err(text) => {
                failed = true;
                _ = fail(&text, 1);
            }
        }
    }
    let validators = plural(planned, "validator");
    let text = match changes {
        false => format!("dry run: --apply changes {validators}"),
        true if changed == planned => format!("changed {validators}"),
        true => format!("changed {changed} of {validators}"),
    };
    print_line(&text).unless(failed)
}

/// Reports the collections that cannot have what the rules require; returns whether there are some.
fn report_refused(plans: &[ValidatorPlan]) -> bool {
    let mut is_refused = false;
    for plan in plans {
        if let Err(why) = &plan.wanted {
            _ = fail(&format!("{}: {why}", plan.namespace()), 1);
            is_refused = true;
        }
    }
    is_refused
}

/// Prints the difference, the documents that fail, and what is omitted.
fn show(plan: &ValidatorPlan, rules: &RuleSet) -> PrintResult {
    let name = |rule| &*rules.rule(rule).name.value;
    let mut text = format!("{}:", plan.namespace());
    match plan.change() {
        None => text += " stays as it is",
        Some(wanted) => {
            let [before, after] =
                [&plan.found, wanted].map(|options| format!("{:#}", json(&options.fields(), relaxed_json)));
            text = text + "\n" + &difference(&before, &after, std::io::stdout().is_terminal());
        }
    }
    let mut lines = vec![text.trim_end().to_owned()];
    for (rule, count) in &plan.failing {
        lines.push(format!("  `{}` is not kept by {}", name(*rule), plural(*count, "stored document")));
    }
    for (rule, why) in &plan.omitted {
        lines.push(format!("  without `{}`: {why}", name(*rule)));
    }
    print_line(&lines.join("\n"))
}

fn json(document: &bson::Document, form: fn(Document<'_>) -> serde_json::Value) -> serde_json::Value {
    let bytes = document.to_vec().unwrap_or_default();
    Document::parse(&bytes).map(form).unwrap_or_default()
}
