//! `docward test`: runs the tests that rules carry, each against its rule alone, and those of `*.test.yaml`
//! files, against all rules they name.
//!
//! Commands are carried out by `engine::dry_run`, as `explain` does; a test that fails shows what came instead.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::difference::difference;
use super::{EXIT_USAGE, Format, load_rules, words};
use crate::document::CowDocument;
use crate::engine::{DryRun, Now, Outcome, dry_run};
use crate::patterns::RuleSet;
use crate::rules::{Expectation, Location, Report, RuleTest, Sources, TestFile, TestFiles, is_test_file};
use crate::shell::{self, ShellError, Surroundings, is_same};

/// When a test's command arrives unless it says so itself: 2026-01-01T00:00:00Z, in milliseconds.
const ARRIVAL: i64 = 1_767_225_600_000;

#[derive(Debug, Args)]
pub struct Arguments {
    /// Rule files, test files (*.test.yaml), or folders of them.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// For people, or a JSON list of results for editors and CI.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// One test that was run.
struct Completed {
    location: Location,
    /// The rule it belongs to; tests of files belong to none.
    rule: Option<String>,
    given: String,
    /// What came instead, if it failed.
    failure: Option<Failure>,
}

/// What a test expected and what it got.
struct Failure {
    message: String,
    /// Commands line by line: as expected, as they would be sent.
    commands: Option<(String, String)>,
}

/// 0 when every test passes, 1 when one does not.
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let ran = match run_all(&arguments.paths) {
        Ok(ran) => ran,
        Err(code) => return code,
    };
    let failed = ran.iter().filter(|one| one.failure.is_some()).count();
    match arguments.format {
        Format::Json => println!("{:#}", ran.iter().map(Completed::to_json).collect::<serde_json::Value>()),
        Format::Text => {
            let coloured = std::io::stdout().is_terminal();
            ran.iter().for_each(|one| print!("{}", one.to_text(coloured)));
            println!("{}", summary(ran.len(), failed));
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
    let tests = TestFiles::load(&test_paths).map_err(|report| print(&report))?;
    let mut ran = Vec::new();
    for rule in rules.rules() {
        let alone = rules.alone(rule);
        for test in &rule.tests {
            let name = Some(rule.name.value.clone());
            ran.push(run_test(test, &alone, name, rules.sources()).map_err(|report| print(&report))?);
        }
    }
    for file in &tests.files {
        let rules = load_rules(&rules_of(file, &tests.sources))?;
        for test in &file.tests {
            ran.push(run_test(test, &rules, None, &tests.sources).map_err(|report| print(&report))?);
        }
    }
    Ok(ran)
}

fn print(report: &Report) -> ExitCode {
    eprint!("{}", report.render(std::io::stderr().is_terminal()));
    ExitCode::from(EXIT_USAGE)
}

/// The rules a test file is about: those it names, or all of its folder.
fn rules_of(file: &TestFile, sources: &Sources) -> Vec<PathBuf> {
    let folder = Path::new(sources.name(file.file)).parent().unwrap_or(Path::new(""));
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    match file.rules.is_empty() {
        true => vec![folder.to_owned()],
        false => file.rules.iter().map(|path| folder.join(&path.value)).collect(),
    }
}

/// # Errors
/// A command that cannot be read; loading the rules has refused those already.
fn run_test(test: &RuleTest, rules: &RuleSet, rule: Option<String>, sources: &Sources) -> Result<Completed, Report> {
    let location = sources.location(test.span);
    let now = test.at.map_or(ARRIVAL, |at| at.timestamp_millis());
    let read = |text: &str| {
        let parsed = shell::parse(text, Surroundings { database: &test.database, now });
        parsed.map_err(|error: ShellError| words::report(&error, &location.to_string(), text))
    };
    let given = read(&test.given)?.commands;
    let expected = match &test.expect {
        Expectation::Becomes(text) => read(text)?.commands,
        Expectation::Unchanged | Expectation::Rejected => given.clone(),
    };
    let dry_run = |command: &CowDocument<'static>| {
        let mut session = words::session(test.app.as_deref(), test.user.as_deref());
        session.users.get_or_insert_default();
        dry_run(command.as_document(), rules, Now { milliseconds: now }, &mut session)
    };
    let dry_runs: Vec<DryRun> = given.iter().map(dry_run).collect();
    let test_run = TestRun { test, given: &given, expected: &expected, dry_runs: &dry_runs };
    Ok(Completed { location, rule, given: test.given.value.clone(), failure: test_run.failure() })
}

/// A test's commands and what became of them.
struct TestRun<'t> {
    test: &'t RuleTest,
    given: &'t [CowDocument<'static>],
    expected: &'t [CowDocument<'static>],
    dry_runs: &'t [DryRun],
}

impl TestRun<'_> {
    fn failure(&self) -> Option<Failure> {
        let says = |message: String| Some(Failure { message, commands: None });
        let rejected = self.dry_runs.iter().find_map(words::rejection);
        let undecided = self.dry_runs.iter().find(|one| matches!(one.outcome, Outcome::Undecided));
        let expectation = match self.test.expect {
            Expectation::Rejected => "to be rejected",
            Expectation::Unchanged => "to go on unchanged",
            Expectation::Becomes(_) => "to become another command",
        };
        match (&self.test.expect, rejected, undecided) {
            (Expectation::Rejected, Some(_), _) => None,
            (_, Some(message), _) => says(format!("expected {expectation}, but it is rejected: {message}")),
            (_, None, Some(undecided)) => {
                let needs: Vec<String> = undecided
                    .needs
                    .iter()
                    .map(|need| words::need(need, &undecided.outcome, &self.test.database))
                    .collect();
                says(format!("expected {expectation}, but that cannot be told without a server: {}", needs.join("; ")))
            }
            _ if self.test.expect != Expectation::Rejected && self.is_as_expected() => None,
            _ => Some(self.sent_otherwise(expectation)),
        }
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

    fn sent_otherwise(&self, expectation: &str) -> Failure {
        let unchanged = self.dry_runs.iter().all(|one| matches!(one.outcome, Outcome::Unchanged));
        let instead = if unchanged { "it goes on unchanged" } else { "it is sent as" };
        let lines = |commands: &[CowDocument<'static>]| words::shell_lines(commands, &self.test.database);
        let compared = !(unchanged && self.test.expect == Expectation::Rejected);
        Failure {
            message: format!("expected {expectation}, but {instead}"),
            commands: compared.then(|| (lines(self.expected), lines(&self.sent()))),
        }
    }
}

impl Completed {
    /// Nothing for a test that passed.
    fn to_text(&self, coloured: bool) -> String {
        let Some(failure) = &self.failure else { return String::new() };
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
            "message": self.failure.as_ref().map(|failure| &failure.message),
            "expected": self.commands().map(|(expected, _)| expected),
            "sent": self.commands().map(|(_, sent)| sent),
        })
    }
}
