//! `docward test`: runs the tests in rules, each against its own rule only, and the tests in `*.test.yaml`
//! files, against all rules that the file names.
//!
//! `engine::dry_run` evaluates the commands, as for `explain`. A failed test shows the actual result.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::difference::difference;
use super::notices::skipped_rules;
use super::output::print_line;
use super::{EXIT_USAGE, Format, load_rules, logging, words};
use crate::config::{Code, Diagnostic, Location, Report, SourceFiles};
use crate::document::CowDocument;
use crate::engine::{DryRun, DryRunOutcome, Now, OutcomeKind, dry_run};
use crate::rules::RuleSet;
use crate::rules::{Expectation, RuleTest, TestFile, TestFiles, is_test_file};
use crate::shell::{self, ShellContext, ShellError, is_same};

/// The time of a test without `at`: 2026-01-01T00:00:00Z, in milliseconds.
const ARRIVAL: i64 = 1_767_225_600_000;

#[derive(Debug, Args)]
pub struct Arguments {
    /// Rule files, test files (*.test.yaml), or folders with them.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Text, or a JSON list of results for editors and CI.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// One completed test.
struct Completed {
    location: Location,
    /// The rule that contains the test; `None` for a test file.
    rule: Option<String>,
    given: String,
    /// Why it failed, if it did.
    failure: Option<TestFailure>,
    /// The collection to which no rule of a passed test applies.
    elsewhere: Option<String>,
}

/// The difference between the expected and the actual result.
struct TestFailure {
    message: String,
    /// The commands as lines of text: expected, and actually sent.
    commands: Option<(String, String)>,
}

/// Exits with 0 if every test passes, else with 1.
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    for notice in skipped_rules(&arguments.paths) {
        logging::print_progress(&format!("warning: {notice}"));
    }
    let ran = match run_all(&arguments.paths) {
        Ok(ran) => ran,
        Err(code) => return code,
    };
    let failed = ran.iter().filter(|one| one.failure.is_some()).count();
    match arguments.format {
        Format::Json => print_line(&format!("{:#}", ran.iter().map(Completed::to_json).collect::<serde_json::Value>())),
        Format::Text => {
            let coloured = std::io::stdout().is_terminal();
            let texts: String = ran.iter().map(|one| one.to_text(coloured)).collect();
            print_line(&(texts + &summary(ran.len(), failed)))
        }
    }
    .unless(failed > 0)
}

fn summary(count: usize, failed: usize) -> String {
    let tests = if count == 1 { "test" } else { "tests" };
    match failed {
        0 => format!("{count} {tests} passed"),
        _ => format!("{count} {tests}: {} passed, {failed} failed", count - failed),
    }
}

fn run_all(paths: &[PathBuf]) -> Result<Vec<Completed>, ExitCode> {
    let alone = |path: &&PathBuf| is_test_file(path) && !path.is_dir();
    let rule_paths: Vec<PathBuf> = paths.iter().filter(|path| !alone(path)).cloned().collect();
    let test_paths: Vec<PathBuf> = paths.iter().filter(|path| alone(path) || path.is_dir()).cloned().collect();
    let rules = load_rules(&rule_paths)?;
    let tests = TestFiles::load(&test_paths).map_err(|report| show(&report))?;
    let mut ran = Vec::new();
    for rule in rules.rules() {
        let alone = rules.alone(rule);
        for test in &rule.tests {
            let name = Some(rule.name.value.to_string());
            ran.push(run_test(test, &alone, name, rules.sources()).map_err(|report| show(&report))?);
        }
    }
    for file in &tests.files {
        let rules = load_rules(&rules_of(file, &tests.sources).map_err(|report| show(&report))?)?;
        for test in &file.tests {
            ran.push(run_test(test, &rules, None, &tests.sources).map_err(|report| show(&report))?);
        }
    }
    Ok(ran)
}

fn show(report: &Report) -> ExitCode {
    logging::show(report);
    ExitCode::from(EXIT_USAGE)
}

/// The rules that a test file tests: those it names, or all in its folder.
///
/// # Errors
/// It names a file that does not exist.
fn rules_of(file: &TestFile, sources: &SourceFiles) -> Result<Vec<PathBuf>, Report> {
    let folder = Path::new(sources.name(file.file)).parent().unwrap_or(Path::new(""));
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    if file.rules.is_empty() {
        return Ok(vec![folder.to_owned()]);
    }
    let paths: Vec<PathBuf> = file.rules.iter().map(|path| folder.join(&path.value)).collect();
    let missing = file.rules.iter().zip(&paths).filter(|(_, path)| !path.exists()).map(|(named, path)| {
        Diagnostic::error(Code::Unreadable, named.span, format!("there is no file or folder {}", path.display()))
    });
    let missing: Vec<Diagnostic> = missing.collect();
    if missing.is_empty() { Ok(paths) } else { Err(Report::new(missing, sources.clone())) }
}

/// # Errors
/// A command that cannot be parsed. Loading the rules has already reported those.
fn run_test(
    test: &RuleTest,
    rules: &RuleSet,
    rule: Option<String>,
    sources: &SourceFiles,
) -> Result<Completed, Report> {
    let location = sources.location(test.span);
    let now = test.at.map_or(ARRIVAL, |at| at.timestamp_millis());
    let read = |text: &str| {
        let parsed = shell::parse(text, ShellContext { database: &test.database, now });
        parsed.map_err(|error: ShellError| words::report(&error, &location.to_string(), text))
    };
    let given = read(&test.given)?.commands;
    let expected = match &test.expect {
        Expectation::Becomes(text) => read(text)?.commands,
        Expectation::Unchanged | Expectation::Checked | Expectation::Rejected => given.clone(),
    };
    let dry_run = |command: &CowDocument<'static>| {
        let mut client_state = words::client_state(test.app.as_deref(), test.user.as_deref());
        client_state.users.get_or_insert_default();
        dry_run(command.as_document(), rules, Now { milliseconds: now }, &mut client_state)
    };
    let dry_runs: Vec<DryRun> = given.iter().map(dry_run).collect();
    let test_run = TestRun { test, given: &given, expected: &expected, dry_runs: &dry_runs };
    let failure = test_run.failure();
    let elsewhere = given.iter().find_map(|command| words::elsewhere(command.as_document(), rules));
    let elsewhere = elsewhere.filter(|_| failure.is_none() && dry_runs.iter().all(|one| one.outcomes.is_empty()));
    Ok(Completed { location, rule, given: test.given.value.clone(), failure, elsewhere })
}

/// A test's commands and their dry runs.
struct TestRun<'t> {
    test: &'t RuleTest,
    given: &'t [CowDocument<'static>],
    expected: &'t [CowDocument<'static>],
    dry_runs: &'t [DryRun],
}

impl TestRun<'_> {
    fn failure(&self) -> Option<TestFailure> {
        let failed = |message: String| Some(TestFailure { message, commands: None });
        let rejected = self.dry_runs.iter().find_map(words::rejection);
        let undecided = self.dry_runs.iter().find(|one| matches!(one.outcome, DryRunOutcome::Undecided));
        let expectation = match self.test.expect {
            Expectation::Rejected => "a rejection",
            Expectation::Unchanged => "no change",
            Expectation::Checked => "a check in a transaction",
            Expectation::Becomes(_) => "another command",
        };
        match (&self.test.expect, rejected, undecided) {
            (Expectation::Rejected, Some(_), _) => None,
            (_, Some(message), _) => failed(format!("expected {expectation}, but it is rejected: {message}")),
            (_, None, Some(undecided)) => {
                let needs: Vec<String> = undecided
                    .needs
                    .iter()
                    .map(|need| words::need(need, &undecided.outcome, &self.test.database))
                    .collect();
                failed(format!("expected {expectation}, but the result depends on the server: {}", needs.join("; ")))
            }
            (Expectation::Checked, ..) if self.checked().is_some() => None,
            _ if let Some(reason) = self.checked() => failed(format!(
                "expected {expectation}, but it is checked: executed in a transaction, then compared, because {reason}"
            )),
            (Expectation::Unchanged | Expectation::Becomes(_), ..) if self.is_as_expected() => None,
            _ => Some(self.different_result(expectation)),
        }
    }

    /// Why a statement is checked, if one is.
    fn checked(&self) -> Option<&str> {
        let outcomes = self.dry_runs.iter().flat_map(|one| &one.outcomes);
        outcomes.filter(|one| one.kind == OutcomeKind::Check).map(|one| &*one.reason).next()
    }

    fn sent(&self) -> Vec<CowDocument<'static>> {
        let each = self.given.iter().zip(self.dry_runs);
        each.flat_map(|(given, dry_run)| dry_run.sent(given).iter().cloned()).collect()
    }

    fn is_as_expected(&self) -> bool {
        let sent = self.sent();
        let pairs = sent.iter().zip(self.expected);
        sent.len() == self.expected.len()
            && pairs.into_iter().all(|(one, other)| is_same(one.as_document(), other.as_document()))
    }

    fn different_result(&self, expectation: &str) -> TestFailure {
        let unchanged = self.dry_runs.iter().all(|one| matches!(one.outcome, DryRunOutcome::Unchanged));
        let instead = if unchanged { "it is sent unchanged" } else { "it is sent as" };
        let lines = |commands: &[CowDocument<'static>]| words::shell_lines(commands, &self.test.database);
        let compared = !(unchanged && matches!(self.test.expect, Expectation::Rejected | Expectation::Checked));
        TestFailure {
            message: format!("expected {expectation}, but {instead}"),
            commands: compared.then(|| (lines(self.expected), lines(&self.sent()))),
        }
    }
}

impl Completed {
    /// Why no rule evaluated the statement of a test that passed.
    fn note(&self) -> Option<String> {
        let elsewhere = self.elsewhere.as_ref()?;
        let who = if self.rule.is_some() { "the rule does not apply" } else { "no rule applies" };
        Some(format!("{who} to {elsewhere}: check the name, if the test should show more than that"))
    }

    /// The failure as text, or the note; empty for other tests that passed.
    fn to_text(&self, coloured: bool) -> String {
        let Some(failure) = &self.failure else {
            let note = self.note().map(|note| format!("note: {}: {note}\n", self.location));
            return note.unwrap_or_default();
        };
        let rule = self.rule.as_ref().map(|rule| format!(" (rule '{rule}')")).unwrap_or_default();
        let mut out = format!("FAILED {}{rule}\n  given {}\n  {}\n", self.location, self.given.trim(), failure.message);
        if let Some((expected, sent)) = &failure.commands {
            difference(expected, sent, coloured).lines().for_each(|line| out.push_str(&format!("    {line}\n")));
        }
        out.push('\n');
        out
    }

    fn commands(&self) -> Option<&(String, String)> {
        self.failure.as_ref()?.commands.as_ref()
    }

    fn to_json(&self) -> serde_json::Value {
        json!({
            "file": &*self.location.file,
            "line": self.location.line,
            "column": self.location.column,
            "rule": self.rule,
            "given": self.given,
            "passed": self.failure.is_none(),
            "message": self.failure.as_ref().map(|failure| failure.message.clone()).or_else(|| self.note()),
            "expected": self.commands().map(|(expected, _)| expected),
            "sent": self.commands().map(|(_, sent)| sent),
        })
    }
}
