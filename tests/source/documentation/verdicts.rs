//! Writes docward's verdict on each kind of statement into the pages of the patterns.
//!
//! This test makes the table between `<!-- statements …` and `<!-- end of statements -->`: it runs the statements of
//! `forms` through the last rule shown above, as `docward explain` does. `UPDATE_EXPECT=1` rewrites it. The opening
//! comment may give fields of the rule with a value for each (`field: available = 3`), further statements of the
//! pattern's applications (`also: updateOne(…)`), and a field whose value changes each time (`varies: no`).
//!
//! `stored` then compares the table with a real mongod. Statements that are forwarded unchanged are not repeated on every
//! page: docs/coverage.md lists all of them.

use std::path::{Path, PathBuf};

use docward::config::SourceFile;
use docward::document::CowDocument;
use docward::engine::{AssumedLookup, ClientState, DryRun, DryRunOutcome, Now, OutcomeKind, dry_run};
use docward::rules::RuleSet;
use docward::shell::{self, ShellContext, render_unbroken};

use super::forms::{self, Form};
use super::rules::{Shown, recognise, rule_collection};
use super::{blocks, expect, pages};

const OPENING: &str = "<!-- statements\n";
const END_OF_OPENING: &str = "-->\n";
const CLOSING: &str = "<!-- end of statements -->\n";

/// Statements that a page lists although they are forwarded.
const FEW: usize = 3;
/// What a page has instead of more.
const OTHERS: &str = "all others of [these statements](../coverage.md#the-statements-of-the-tables)";
const OPENING_OF_ALL: &str = "<!-- all statements -->\n";

/// The time of the statements: 2026-01-01T00:00:00Z, as in `docward test`.
pub(super) const ARRIVAL: i64 = 1_767_225_600_000;

/// A table's position and the content of its comment.
pub(super) struct Section {
    /// "docs/patterns/bounds.md:20"
    pub(super) place: String,
    pub(super) rule_file: String,
    pub(super) database: String,
    pub(super) collection: String,
    /// Fields of the rule, with a value for each.
    pub(super) fields: Vec<(String, String)>,
    /// A field whose stored value differs from the shown one.
    pub(super) varies: Option<String>,
    forms: Vec<Form>,
}

/// One statement and its result.
pub(super) struct Evaluated {
    form: Form,
    pub(super) text: String,
    pub(super) commands: Vec<CowDocument<'static>>,
    pub(super) dry_runs: Vec<DryRun>,
}

/// The table's verdict on a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Rewrites,
    /// The stored documents decide, in a transaction.
    Decides,
    /// Executed in a transaction, then compared.
    Checks,
    Rejects,
    /// Rejected if the statement's filter matches a document, else forwarded unchanged.
    RejectsStored,
    Forwards,
}

impl Section {
    fn read(page: &Path, at: usize, text: &str, comment: &str) -> Section {
        let place = format!("{}:{}", page.display(), at + 1);
        let rules = blocks(text, "yaml");
        let (_, rule) = rules.iter().rev().find(|(line, _)| *line < at).expect(&place);
        let Shown::RuleFile(rule_file) = recognise(rule) else { panic!("{place}: no rule above: {rule:?}") };
        let (database, collection) = rule_collection(&rule_file);
        let (mut fields, mut also, mut varies) = (Vec::new(), Vec::new(), None);
        for line in comment.lines() {
            match line.split_once(": ").expect(&place) {
                ("field", field) => {
                    let (name, value) = field.split_once(" = ").expect(&place);
                    fields.push((name.to_owned(), value.to_owned()));
                }
                ("varies", field) => varies = Some(field.to_owned()),
                ("also", statement) => also.push(statement.to_owned()),
                (other, _) => panic!("{place}: none of `field`, `also`, `varies`: {other}"),
            }
        }
        let forms = forms::all(&fields, &also, &collection);
        Section { place, rule_file, database, collection, fields, varies, forms }
    }

    pub(super) fn rules(&self) -> RuleSet {
        let source = SourceFile { name: self.place.clone(), text: self.rule_file.clone() };
        RuleSet::from_sources(vec![source]).unwrap_or_else(|report| panic!("{}", report.render(false)))
    }

    pub(super) fn evaluated(&self) -> Vec<Evaluated> {
        let rules = self.rules();
        self.forms.iter().map(|form| self.evaluate(form, &rules)).collect()
    }

    fn evaluate(&self, form: &Form, rules: &RuleSet) -> Evaluated {
        let text = format!("db.{}.{}", self.collection, form.statement);
        let surroundings = ShellContext { database: &self.database, now: ARRIVAL };
        let parsed = shell::parse(&text, surroundings);
        let commands = parsed.unwrap_or_else(|error| panic!("{}: {text}: {}", self.place, error.message)).commands;
        let dry_run = |command: &CowDocument<'static>| {
            let mut session = ClientState { users: Some(Vec::new()), ..ClientState::default() };
            dry_run(command.as_document(), rules, Now { milliseconds: ARRIVAL }, &mut session)
        };
        let dry_runs = commands.iter().map(dry_run).collect();
        Evaluated { form: form.clone(), text, commands, dry_runs }
    }

    /// Removes the common prefix of the statements.
    fn short(&self, text: &str) -> String {
        text.replace(&format!("db.{}.", self.collection), "")
    }

    /// A table for each topic, under its heading.
    fn tables(&self) -> String {
        let evaluated = self.evaluated();
        let tables = evaluated.chunk_by(|one, next| one.form.topic == next.form.topic);
        tables.map(|evaluated| self.table(evaluated)).collect::<Vec<_>>().join("\n")
    }

    fn table(&self, evaluated: &[Evaluated]) -> String {
        let mut rows: Vec<Row> = Vec::new();
        for row in evaluated.iter().map(|evaluated| self.row(evaluated)) {
            match rows.iter_mut().find(|known| known.takes(&row)) {
                Some(known) => known.statements.extend(row.statements),
                None => rows.push(row),
            }
        }
        rows.sort_by_key(|row| row.verdict as usize);
        let rows: String = rows.iter().map(Row::to_text).collect();
        format!("{}:\n\n| statement | docward | sent as, or error |\n|---|---|---|\n{rows}", evaluated[0].form.topic)
    }

    fn row(&self, evaluated: &Evaluated) -> Row {
        let verdict = evaluated.verdict();
        let code = |text: &str| format!("`{}`", text.replace('|', "\\|"));
        let result = match verdict {
            Verdict::Forwards => "unchanged".to_owned(),
            Verdict::Decides => "what the stored documents allow".to_owned(),
            Verdict::Checks => evaluated.reason_of(OutcomeKind::Check).unwrap_or_default(),
            Verdict::Rejects | Verdict::RejectsStored => evaluated.reason(),
            Verdict::Rewrites => {
                let sent = evaluated.sent();
                let shown = sent.iter().map(|sent| render_unbroken(sent.as_document(), &self.database));
                shown.map(|sent| code(&self.short(&sent))).collect::<Vec<_>>().join("<br>")
            }
        };
        Row { verdict, result, statements: vec![evaluated.form.clone()] }
    }
}

/// Statements with the same verdict and result.
struct Row {
    verdict: Verdict,
    /// The class of the first statement.
    result: String,
    statements: Vec<Form>,
}

impl Row {
    /// Whether another row is the same; within one class, the varying part may differ.
    fn takes(&self, other: &Row) -> bool {
        let (first, form) = (&self.statements[0], &other.statements[0]);
        let of_class = form.class.is_some() && first.class == form.class;
        let is_same = match self.verdict {
            Verdict::Rewrites => of_class || self.result == other.result,
            _ if of_class => self.result.replace(&first.varies, "") == other.result.replace(&form.varies, ""),
            _ => self.result == other.result,
        };
        self.verdict == other.verdict && is_same
    }

    fn to_text(&self) -> String {
        let does = match self.verdict {
            Verdict::Rewrites => "rewrites",
            Verdict::Decides => "decides in a transaction",
            Verdict::Checks => "checks",
            Verdict::Rejects => "rejects",
            Verdict::RejectsStored => "rejects, if the filter matches a document",
            Verdict::Forwards => "forwards",
        };
        let statements = match self.verdict {
            Verdict::Forwards if self.statements.len() > FEW && !self.statements[0].is_own() => OTHERS.to_owned(),
            _ => statements_text(&self.statements),
        };
        format!("| {statements} | {does} | {} |\n", self.result)
    }
}

/// Only the first statement of a class is written in full.
fn statements_text(statements: &[Form]) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut class = None;
    for form in statements {
        match (lines.last_mut(), form.class) {
            (Some(line), Some(_)) if form.class == class => line.push_str(&format!(", `{}`", form.varies)),
            _ => lines.push(format!("`{}`", form.statement)),
        }
        class = form.class;
    }
    let with_others = |line: &String| line.replacen("`, `", "`, also `", 1);
    lines.iter().map(with_others).collect::<Vec<_>>().join("<br>")
}

impl Evaluated {
    pub(super) fn verdict(&self) -> Verdict {
        let of = |dry_run: &DryRun| match &dry_run.outcome {
            DryRunOutcome::Unchanged => Verdict::Forwards,
            DryRunOutcome::Rewritten(sent)
                if sent.iter().any(|one| one.as_document().get("startTransaction").is_some()) =>
            {
                Verdict::Decides
            }
            DryRunOutcome::Rewritten(_) => Verdict::Rewrites,
            DryRunOutcome::Undecided => Verdict::Decides,
            DryRunOutcome::Checked(_) => Verdict::Checks,
            DryRunOutcome::Rejected { .. } if self.questions().next().is_some() => Verdict::RejectsStored,
            DryRunOutcome::Rejected { .. } => Verdict::Rejects,
        };
        let severity = |verdict: &Verdict| match verdict {
            Verdict::Forwards => 0,
            Verdict::Rewrites => 1,
            Verdict::Decides => 2,
            Verdict::Checks => 3,
            Verdict::RejectsStored => 4,
            Verdict::Rejects => 5,
        };
        self.dry_runs.iter().map(of).max_by_key(severity).unwrap_or(Verdict::Forwards)
    }

    /// The finds that must return a document for the statement to be rejected.
    pub(super) fn questions(&self) -> impl Iterator<Item = &CowDocument<'static>> {
        let needs = self.dry_runs.iter().flat_map(|dry_run| &dry_run.needs);
        needs.filter_map(|need| match need {
            AssumedLookup::Match(question) => Some(question),
            _ => None,
        })
    }

    /// The commands that are sent instead; none after a rejected one.
    pub(super) fn sent(&self) -> Vec<&CowDocument<'static>> {
        let rejected = |dry_run: &DryRun| matches!(dry_run.outcome, DryRunOutcome::Rejected { .. });
        let last = self.dry_runs.iter().position(rejected).unwrap_or(self.dry_runs.len());
        let each = self.commands.iter().zip(&self.dry_runs).take(last + 1);
        each.flat_map(|(command, dry_run)| dry_run.sent(command)).collect()
    }

    /// The reason of an outcome of this kind.
    fn reason_of(&self, kind: OutcomeKind) -> Option<String> {
        let outcomes = self.dry_runs.iter().flat_map(|dry_run| &dry_run.outcomes);
        outcomes.filter(|outcome| outcome.kind == kind).map(|outcome| outcome.reason.replace('|', "\\|")).next()
    }

    /// The reason of a rejection, as in the error.
    fn reason(&self) -> String {
        let rejected = self.dry_runs.iter().find(|dry_run| matches!(dry_run.outcome, DryRunOutcome::Rejected { .. }));
        let rejected = rejected.unwrap();
        let rejecting = rejected.outcomes.iter().find(|outcome| outcome.kind == OutcomeKind::Reject);
        let text = match (rejecting, &rejected.outcome) {
            (Some(outcome), _) => outcome.reason.to_string(),
            (None, DryRunOutcome::Rejected { message, .. }) => message.clone(),
            (None, _) => String::new(),
        };
        text.replace('|', "\\|")
    }
}

/// The tables of a page, and the page's text with all of them regenerated.
fn regenerate(page: &Path, text: &str) -> (Vec<Section>, String) {
    let (mut sections, mut real, mut rest) = (Vec::new(), String::new(), text);
    while let Some((before, comment)) = rest.split_once(OPENING) {
        let (comment, table) = comment.split_once(END_OF_OPENING).expect("the comment ends");
        let (_, after) = table.split_once(CLOSING).unwrap_or_else(|| panic!("{}: no {CLOSING}", page.display()));
        let at = text.len() - rest.len() + before.len();
        let section = Section::read(page, text[..at].lines().count(), text, comment);
        real.push_str(&format!("{before}{OPENING}{comment}{END_OF_OPENING}\n{}\n{CLOSING}", section.tables()));
        sections.push(section);
        rest = after;
    }
    (sections, real + rest)
}

/// The tables of all patterns' pages.
pub(super) fn sections() -> Vec<Section> {
    let of_page = |page: PathBuf| regenerate(&page, &std::fs::read_to_string(&page).unwrap()).0;
    pattern_pages().flat_map(of_page).collect()
}

fn pattern_pages() -> impl Iterator<Item = PathBuf> {
    pages().into_iter().filter(|page| page.parent().is_some_and(|folder| folder.ends_with("docs/patterns")))
}

/// All statements of the tables, for a field that a rule names.
fn all_statements() -> String {
    let forms = forms::all(&[("field".to_owned(), "3".to_owned())], &[], "c");
    let topics = forms.chunk_by(|one, next| one.topic == next.topic);
    topics.map(|forms| format!("{}:\n\n{}\n", forms[0].topic, statements_text(forms))).collect::<Vec<_>>().join("\n")
}

#[test]
fn one_page_lists_all_statements_of_the_tables() {
    let page = pages().into_iter().find(|page| page.ends_with("docs/coverage.md")).unwrap();
    expect(std::iter::once(page), |_, text| {
        let (before, rest) = text.split_once(OPENING_OF_ALL).expect(OPENING_OF_ALL);
        let (_, after) = rest.split_once(CLOSING).expect(CLOSING);
        format!("{before}{OPENING_OF_ALL}\n{}\n{CLOSING}{after}", all_statements())
    });
}

#[test]
fn pages_show_the_verdict_on_each_kind_of_statement() {
    let mut shown: Vec<PathBuf> = Vec::new();
    expect(pattern_pages(), |page, text| {
        let (sections, real) = regenerate(page, text);
        shown.extend((!sections.is_empty()).then(|| page.to_owned()));
        real
    });
    for pattern in docward::patterns::AnyPattern::NAMES {
        let has_table = shown.iter().any(|page| page.file_stem().is_some_and(|stem| stem == *pattern));
        assert!(has_table, "the page of `{pattern}` does not show the verdict on each kind of statement");
    }
}
