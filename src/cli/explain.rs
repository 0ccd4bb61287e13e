//! `docward explain`: shows what rules do to one command, without a server.
//!
//! `shell` parses the command, `engine::dry_run` evaluates it, and this file prints the result.

use std::fmt::Write as _;
use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

use clap::Args;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::json;

use super::config_file::ConfigFile;
use super::difference::difference;
use super::output::{print, print_line};
use super::{EXIT_USAGE, Format, fail, load_rules, logging, words};
use crate::config::Report;
use crate::document::{CowDocument, Value};
use crate::engine::{AssumedDocuments, DryRun, DryRunOutcome, Now, OutcomeKind, RuleOutcome, dry_run_with, statements};
use crate::rules::RuleSet;
use crate::shell::{self, ShellContext, extended_json};

/// The command line.
#[derive(Debug, Args)]
pub struct Arguments {
    /// YAML file with the same keys as the flags of serve; its rules are used if --rules is absent.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Rule file, or folder of rule files; can be repeated.
    #[arg(long, value_name = "PATH")]
    rules: Vec<PathBuf>,
    /// The database that `db` means in the command.
    #[arg(long, value_name = "NAME", default_value = "test")]
    db: String,
    /// Application that sends the command (appName).
    #[arg(long, value_name = "NAME")]
    as_app: Option<String>,
    /// User that sends the command.
    #[arg(long, value_name = "AUTHDB.USER", value_parser = user)]
    as_user: Option<String>,
    /// Time of the command, for example 2026-01-31T12:00:00Z [default: now].
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Option<i64>,
    /// Text, or JSON for editors and scripts.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The command, in mongosh syntax or as Extended JSON; read from stdin if absent.
    #[arg(value_name = "COMMAND")]
    text: Option<String>,
}

/// Exits with 0 if the command could be parsed, whatever its verdict; else with 1.
pub(super) fn run(arguments: Arguments) -> ExitCode {
    let rules = match rules(&arguments) {
        Ok(rules) => rules,
        Err(code) => return code,
    };
    let text = match arguments.text.clone().map_or_else(read_stdin, Ok) {
        Ok(text) => text,
        Err(error) => return fail(&format!("cannot read the command from stdin: {error}"), 1),
    };
    let input = ExplainInput {
        text: &text,
        database: &arguments.db,
        app: arguments.as_app.as_deref(),
        user: arguments.as_user.as_deref(),
        at: arguments.at.unwrap_or_else(milliseconds_now),
    };
    match (input.explain(&rules), arguments.format) {
        (Ok(explained), Format::Text) => {
            let coloured = std::io::stdout().is_terminal();
            let texts = explained.commands.iter().map(|one| one.to_text(&explained, coloured));
            print(texts.collect::<Vec<_>>().join("\n")).into()
        }
        (Ok(explained), Format::Json) => {
            print_line(&serde_json::to_string_pretty(&explained).unwrap_or_default()).into()
        }
        (Err(report), format) => {
            match format {
                Format::Text => logging::show(&report),
                Format::Json => _ = print_line(&report.to_json().to_string()),
            }
            ExitCode::FAILURE
        }
    }
}

/// A command, with its sender and time.
pub(super) struct ExplainInput<'q> {
    /// In mongosh syntax or as Extended JSON.
    pub(super) text: &'q str,
    /// The database that `db` means in it.
    pub(super) database: &'q str,
    pub(super) app: Option<&'q str>,
    /// "authDb.name"
    pub(super) user: Option<&'q str>,
    /// Milliseconds since 1970 UTC.
    pub(super) at: i64,
}

impl ExplainInput<'_> {
    /// # Errors
    /// The diagnostics, if the command cannot be parsed.
    pub(super) fn explain<'r>(&'r self, rules: &'r RuleSet) -> Result<Explanation<'r>, Report> {
        let context = ShellContext { database: self.database, now: self.at };
        let parsed = shell::parse(self.text, context).map_err(|mut error| {
            if is_recorded(self.text) {
                error.message = "this is a line of a log or profile, not a command".to_owned();
                error.help = Some("read it with `docward audit`, or write its command alone".to_owned());
            }
            words::report(&error, "command", self.text)
        })?;
        let explained = |command| {
            let dry_run = self.dry_run(&command, rules);
            let depends = dry_run.depends_on_replies || words::depends_on_match(&dry_run);
            let unmatched = depends.then(|| self.dry_run_with(AssumedDocuments::Nothing, &command, rules));
            let in_shadow =
                |outcome: &RuleOutcome| matches!(outcome.kind, OutcomeKind::ShadowReject | OutcomeKind::ShadowRewrite);
            let enforced = dry_run.outcomes.iter().any(in_shadow).then(|| rules.with_shadow_enforced().ok()).flatten();
            let enforced = enforced.map(|rules| self.dry_run(&command, &rules));
            Explained { dry_run, unmatched, enforced, command }
        };
        Ok(Explanation { input: self, rules, commands: parsed.commands.into_iter().map(explained).collect() })
    }

    fn dry_run(&self, command: &CowDocument<'static>, rules: &RuleSet) -> DryRun {
        self.dry_run_with(AssumedDocuments::Matching, command, rules)
    }

    fn dry_run_with(&self, stored: AssumedDocuments, command: &CowDocument<'static>, rules: &RuleSet) -> DryRun {
        let mut client_state = words::client_state(self.app, self.user);
        dry_run_with(stored, command.as_document(), rules, Now { milliseconds: self.at }, &mut client_state)
    }
}

/// Whether the text is an entry of mongod's log, or a document of its profile.
fn is_recorded(text: &str) -> bool {
    shell::document(text).is_ok_and(|document| {
        let has = |key| document.as_document().get(key).is_some();
        has("attr") && has("c") || has("op") && has("ns")
    })
}

fn rules(arguments: &Arguments) -> Result<Arc<RuleSet>, ExitCode> {
    let file = arguments.config.as_deref().map(ConfigFile::read_file).transpose();
    let file = file.map_err(|error| fail(&format!("{error:#}"), EXIT_USAGE))?.unwrap_or_default();
    let paths = if arguments.rules.is_empty() { file.rules } else { arguments.rules.clone() };
    if paths.is_empty() {
        return Err(fail("there are no rules: set --rules, or `rules` in --config", EXIT_USAGE));
    }
    load_rules(&paths)
}

fn read_stdin() -> std::io::Result<String> {
    let mut text = Vec::new();
    std::io::stdin().take(shell::MAX_TEXT_BYTES as u64 + 1).read_to_end(&mut text)?;
    String::from_utf8(text).map_err(|_| std::io::Error::other("it is not UTF-8; convert it first"))
}

pub(super) fn milliseconds_now() -> i64 {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX)
}

pub(super) fn time(text: &str) -> Result<i64, String> {
    let parsed = bson::DateTime::parse_rfc3339_str(text).map(bson::DateTime::timestamp_millis);
    parsed.map_err(|_| "write it like 2026-01-31T12:00:00Z".to_owned())
}

pub(super) fn user(text: &str) -> Result<String, String> {
    let whole = text.split_once('.').is_some_and(|(database, user)| !database.is_empty() && !user.is_empty());
    if whole { Ok(text.to_owned()) } else { Err("write AUTHDB.USER, for example admin.root".to_owned()) }
}

/// The evaluated commands of one input. Serialized, it is the output of `--format json`.
pub(super) struct Explanation<'r> {
    input: &'r ExplainInput<'r>,
    rules: &'r RuleSet,
    commands: Vec<Explained>,
}

/// One command with its dry run.
struct Explained {
    command: CowDocument<'static>,
    dry_run: DryRun,
    /// The dry run if no document matches, if that can matter.
    unmatched: Option<DryRun>,
    /// The dry run with rules in shadow mode enforced, if one of them matches.
    enforced: Option<DryRun>,
}

impl Explanation<'_> {
    /// The dry run of each statement of a batch; none if there is only one statement. Each is evaluated when it is
    /// taken, so that the reader can stop.
    fn statements(&self, one: &Explained) -> impl Iterator<Item = DryRun> {
        statements(one.command.as_document()).map(|command| self.input.dry_run(&command, self.rules))
    }
}

impl Explained {
    fn to_text(&self, explanation: &Explanation<'_>, coloured: bool) -> String {
        let (rules, database) = (explanation.rules, explanation.input.database);
        let statements: Vec<DryRun> = explanation.statements(self).collect();
        let mut out = format!("{}\n", summary(&self.dry_run));
        if let (None, Some(message)) = (self.rejecting(), words::rejection(&self.dry_run)) {
            writeln!(out, "  {message}").unwrap_or_default();
        }
        for outcome in &self.dry_run.outcomes {
            out.push_str(&outcome_text(outcome, rules));
        }
        out.push_str(if statements.is_empty() { "" } else { "\n" });
        let is_ordered = self.command.as_document().get("ordered").and_then(Value::as_flag) != Some(false);
        let mut ends = false;
        for (index, statement) in statements.iter().enumerate() {
            let names =
                statement.outcomes.iter().map(|one| format!("rule '{}' {}", one.rule_name, words::effect(one.kind)));
            let names: Vec<String> = names.collect();
            let text = match words::verdict(&statement.outcome) {
                _ if ends => "not executed, because the batch is ordered".to_owned(),
                verdict if names.is_empty() => verdict.to_owned(),
                verdict => format!("{verdict} ({})", names.join("; ")),
            };
            writeln!(out, "statement {} of {}: {text}", index + 1, statements.len()).unwrap_or_default();
            ends |= is_ordered && matches!(statement.outcome, DryRunOutcome::Rejected { .. });
        }
        for note in self.notes(rules, explanation.input) {
            writeln!(out, "\nnote: {note}").unwrap_or_default();
        }
        if self.dry_run.keeps(&self.command) {
            writeln!(out, "\n{}", words::shell(self.sent(), database)).unwrap_or_default();
        }
        if let Some(difference) = self.difference(&self.dry_run, database, coloured) {
            write!(out, "\n{difference}").unwrap_or_default();
        }
        if let Some(enforced) = &self.enforced {
            writeln!(out, "\nif these rules were enforced: {}", summary(enforced)).unwrap_or_default();
            if let Some(difference) = self.difference(enforced, database, coloured) {
                write!(out, "\n{difference}").unwrap_or_default();
            }
        }
        out
    }

    /// What the dry run has assumed, and what docward does otherwise.
    fn notes<'n>(&'n self, rules: &RuleSet, input: &ExplainInput<'n>) -> impl Iterator<Item = String> + use<'n> {
        let database = input.database;
        let needs = self.dry_run.needs.iter().map(move |need| words::need(need, &self.dry_run.outcome, database));
        let unmatched = self.unmatched.iter().filter_map(move |run| words::unmatched(&self.dry_run, run, database));
        let elsewhere =
            words::elsewhere(self.command.as_document(), rules).filter(|_| self.dry_run.outcomes.is_empty());
        let elsewhere = elsewhere.map(|namespace| format!("no rule applies to {namespace}"));
        let unknown = words::unknown_command(&self.command, &self.dry_run);
        let aborted = words::aborted_transaction(&self.command, &self.dry_run).map(str::to_owned);
        let reads = words::only_reads(self.command.as_document(), rules);
        let others = words::only_others(self.command.as_document(), rules, (input.app, input.user));
        let overrides = words::overrides(self.command.as_document(), rules);
        needs.chain(unmatched).chain(aborted).chain(reads).chain(others).chain(overrides).chain(unknown.or(elsewhere))
    }

    /// The diff from the command to the one that a dry run sends; `None` if they are the same, nothing is sent, or it is
    /// undecided.
    fn difference(&self, dry_run: &DryRun, database: &str, coloured: bool) -> Option<String> {
        let sent = dry_run.sent(&self.command);
        if sent.is_empty() || dry_run.keeps(&self.command) || matches!(dry_run.outcome, DryRunOutcome::Undecided) {
            return None;
        }
        let before = words::shell_lines(std::slice::from_ref(&self.command), database);
        Some(difference(&before, &words::shell_lines(sent, database), coloured))
    }

    /// `{verdict, shell, difference, message}` if the rules in shadow mode were enforced.
    fn enforced_json(&self, database: &str) -> Option<serde_json::Value> {
        let enforced = self.enforced.as_ref()?;
        let sent = enforced.sent(&self.command);
        Some(json!({
            "verdict": words::verdict(&enforced.outcome),
            "shell": (!sent.is_empty()).then(|| words::shell(sent, database)),
            "difference": self.difference(enforced, database, false),
            "message": words::rejection(enforced),
        }))
    }

    /// The rule that rejects the command, if any.
    fn rejecting(&self) -> Option<&RuleOutcome> {
        self.dry_run.outcomes.iter().find(|outcome| outcome.kind == OutcomeKind::Reject)
    }

    fn sent(&self) -> &[CowDocument<'static>] {
        self.dry_run.sent(&self.command)
    }
}

fn summary(dry_run: &DryRun) -> String {
    let sentence = match &dry_run.outcome {
        DryRunOutcome::Unchanged => "sent unchanged",
        DryRunOutcome::Rewritten(_) => "sent with changes",
        DryRunOutcome::Checked(_) => "executed in a transaction, then compared",
        DryRunOutcome::Undecided => "executed in a transaction that depends on the stored documents",
        DryRunOutcome::Rejected { sent, .. } if sent.is_empty() => "nothing is sent",
        DryRunOutcome::Rejected { .. } => "only a part is sent",
    };
    format!("{}: {sentence}", words::verdict(&dry_run.outcome))
}

/// The outcome of a rule with its reason, hint and location.
fn outcome_text(outcome: &RuleOutcome, rules: &RuleSet) -> String {
    let RuleOutcome { rule_name, pattern, kind, hint, .. } = outcome;
    let mut out = format!("\nrule '{rule_name}' ({pattern}) {}\n", words::effect(*kind));
    let rule = rules.rule(outcome.rule);
    let mut line = |label: &str, text: &str| {
        if !text.is_empty() {
            writeln!(out, "  {label}: {}", text.trim_end()).unwrap_or_default();
        }
    };
    line("reason", &outcome.reason);
    line("why", rule.why.as_deref().unwrap_or_default());
    line("what to do", hint);
    line("at", &rule.location.to_string());
    out
}

impl Serialize for Explanation<'_> {
    /// `{verdict, rules, shell, difference, command, message, enforced, statements, notes}`. The writer may fail to end a long
    /// result.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { input: ExplainInput { database, .. }, rules, commands } = self;
        let rank = |one: &&Explained| {
            ["forward", "rewrite", "check", "reject"]
                .iter()
                .position(|word| *word == words::verdict(&one.dry_run.outcome))
        };
        let verdict = commands.iter().max_by_key(rank).map(|one| words::verdict(&one.dry_run.outcome));
        let mut result = serializer.serialize_map(None)?;
        result.serialize_entry("verdict", &verdict)?;
        let outcomes = || commands.iter().flat_map(|one| &one.dry_run.outcomes);
        result.serialize_entry("rules", &SerializedList(|| outcomes().map(words::rule_json)))?;
        let sent: Vec<CowDocument<'static>> = commands.iter().flat_map(|one| one.sent().iter().cloned()).collect();
        result.serialize_entry("shell", &(!sent.is_empty()).then(|| words::shell(&sent, database)))?;
        let differences: Vec<String> =
            commands.iter().filter_map(|one| one.difference(&one.dry_run, database, false)).collect();
        result.serialize_entry("difference", &(!differences.is_empty()).then(|| differences.join("\n")))?;
        match sent.as_slice() {
            [_, _, ..] => {
                let command = || sent.iter().map(|command| extended_json(command.as_document()));
                result.serialize_entry("command", &SerializedList(command))?;
            }
            sent => {
                result.serialize_entry("command", &sent.first().map(|one| extended_json(one.as_document())))?;
            }
        }
        result.serialize_entry("message", &commands.iter().find_map(|one| words::rejection(&one.dry_run)))?;
        let enforced = || commands.iter().filter_map(|one| one.enforced_json(database));
        result.serialize_entry("enforced", &SerializedList(enforced))?;
        let statements = || commands.iter().flat_map(|one| self.statements(one));
        result.serialize_entry("statements", &SerializedList(|| statements().map(|one| statement_json(&one))))?;
        let notes = || commands.iter().flat_map(|one| one.notes(rules, self.input));
        result.serialize_entry("notes", &SerializedList(notes))?;
        result.end()
    }
}

/// A list whose elements are made when they are serialized.
struct SerializedList<F>(F);

impl<T: Serialize, I: Iterator<Item = T>, F: Fn() -> I> Serialize for SerializedList<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

fn statement_json(statement: &DryRun) -> serde_json::Value {
    let rules: Vec<serde_json::Value> = statement.outcomes.iter().map(words::rule_json).collect();
    json!({"verdict": words::verdict(&statement.outcome), "rules": rules})
}
