//! Writes docward's verdict on each kind of statement into the reference pages of the patterns.
//!
//! This test makes the tables between `<!-- statements …` and `<!-- end of statements -->` of `docs/reference/PATTERN.md`:
//! it runs the statements of `forms` through the last rule shown above, as `docward explain` does. `UPDATE_EXPECT=1`
//! rewrites them. The opening comment may give fields of the rule with a value for each (`field: available = 3`), further
//! statements of the pattern's applications (`also: updateOne(…)`), and a field whose value changes each time
//! (`varies: no`).
//!
//! A row has the statements of one class with one verdict, and shows some of them; `stored` compares all with a real
//! mongod. `docs/reference/statements.md` lists all statements.

use std::path::{Path, PathBuf};

use docward::config::SourceFile;
use docward::document::CowDocument;
use docward::engine::{AssumedLookup, ClientState, DryRun, DryRunOutcome, Now, OutcomeKind, dry_run};
use docward::patterns::AnyPattern;
use docward::rules::RuleSet;
use docward::shell::{self, ShellContext, render_unbroken};

use super::forms::{self, Form};
use super::rules::{Shown, recognise, rule_collection};
use super::{blocks, expect, root};

const OPENING: &str = "<!-- statements\n";
const END_OF_OPENING: &str = "-->\n";
const CLOSING: &str = "<!-- end of statements -->\n";

/// Statements that a row shows.
const SHOWN: usize = 3;
const OPENING_OF_ALL: &str = "<!-- all statements -->\n";

/// The time of the statements: 2026-01-01T00:00:00Z, as in `docward test`.
pub(super) const ARRIVAL: i64 = 1_767_225_600_000;

/// A table's position and the content of its comment.
pub(super) struct Section {
    /// "docs/reference/bounds.md:20"
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

/// The table's verdict on a statement: of several commands, the greatest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    Forwards,
    Rewrites,
    /// The stored documents decide, in a transaction.
    Decides,
    /// Executed in a transaction, then compared.
    Checks,
    /// Rejected if the statement's filter matches a document, else forwarded unchanged.
    RejectsStored,
    Rejects,
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

    pub(super) fn evaluated(&self) -> Vec<Evaluated> {
        let source = SourceFile { name: self.place.clone(), text: self.rule_file.clone() };
        let rules = RuleSet::from_sources(vec![source]).unwrap_or_else(|report| panic!("{}", report.render(false)));
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
        for evaluated in evaluated {
            let (form, verdict, result) = (&evaluated.form, evaluated.verdict(), self.result(evaluated));
            let class = if verdict == Verdict::Forwards && !form.is_own() { OTHERS } else { form.class() };
            let is_same = |row: &&mut Row| {
                (row.verdict, row.class) == (verdict, class) && (!form.is_own() || row.result == result)
            };
            match rows.iter_mut().find(is_same) {
                Some(row) => row.statements.push(form.statement.clone()),
                None => rows.push(Row { class, verdict, result, statements: vec![form.statement.clone()] }),
            }
        }
        rows.sort_by_key(|row| (row.verdict == Verdict::Forwards, row.verdict));
        let rows: String = rows.iter().map(Row::to_text).collect();
        format!("{}:\n\n{HEAD}{rows}", evaluated[0].form.topic)
    }

    /// What is sent, or the reason.
    fn result(&self, evaluated: &Evaluated) -> String {
        match evaluated.verdict() {
            Verdict::Forwards => "unchanged".to_owned(),
            Verdict::Decides => "what the stored documents allow".to_owned(),
            Verdict::Checks => evaluated.reason(OutcomeKind::Check),
            Verdict::Rejects | Verdict::RejectsStored => evaluated.reason(OutcomeKind::Reject),
            Verdict::Rewrites => {
                let sent = evaluated.sent();
                let shown = sent.iter().map(|sent| render_unbroken(sent.as_document(), &self.database));
                shown.map(|sent| code(&self.short(&sent))).collect::<Vec<_>>().join("<br>")
            }
        }
    }
}

const HEAD: &str = "| class | statements | docward | sent as, or reason (of the first) |\n|---|---|---|---|\n";
/// The class of the statements that are forwarded unchanged.
const OTHERS: &str = "all others";

/// Statements of one class with the same verdict.
struct Row {
    class: &'static str,
    verdict: Verdict,
    /// Of the first statement.
    result: String,
    statements: Vec<String>,
}

impl Row {
    fn to_text(&self) -> String {
        let does = match self.verdict {
            Verdict::Rewrites => "rewrites",
            Verdict::Decides => "decides in a transaction",
            Verdict::Checks => "checks",
            Verdict::Rejects => "rejects",
            Verdict::RejectsStored => "rejects, if the filter matches a document",
            Verdict::Forwards => "forwards",
        };
        let statements = match self.statements.len() {
            count if self.class == OTHERS => format!("{count} of [these](statements.md)"),
            count => {
                let mut shown: Vec<String> = self.statements.iter().take(SHOWN).map(|text| code(text)).collect();
                shown.extend((count > SHOWN).then(|| format!("and {} more", count - SHOWN)));
                shown.join("<br>")
            }
        };
        format!("| {} | {statements} | {does} | {} |\n", self.class, self.result)
    }
}

fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
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
        self.dry_runs.iter().map(of).max().unwrap_or(Verdict::Forwards)
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

    /// The reason of the first outcome of this kind, or else the error.
    fn reason(&self, kind: OutcomeKind) -> String {
        let outcomes = self.dry_runs.iter().flat_map(|dry_run| &dry_run.outcomes);
        let reasons = outcomes.filter(|outcome| outcome.kind == kind).map(|outcome| outcome.reason.to_string());
        let errors = self.dry_runs.iter().filter_map(|dry_run| match &dry_run.outcome {
            DryRunOutcome::Rejected { message, .. } => Some(message.clone()),
            _ => None,
        });
        reasons.chain(errors).next().unwrap_or_default().replace('|', "\\|")
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
    reference_pages().flat_map(of_page).collect()
}

fn reference_pages() -> impl Iterator<Item = PathBuf> {
    AnyPattern::NAMES.iter().map(|name| root().join(format!("docs/reference/{name}.md")))
}

#[test]
fn one_page_lists_all_statements_of_the_tables() {
    let forms = forms::all(&[("field".to_owned(), "3".to_owned())], &[], "c");
    let list = |forms: &[Form]| {
        let statements: String = forms.iter().map(|form| format!("{}\n", form.statement)).collect();
        format!("{}:\n\n```js\n{statements}```\n", forms[0].topic)
    };
    let lists = forms.chunk_by(|one, next| one.topic == next.topic).map(list).collect::<Vec<_>>().join("\n");
    expect([root().join("docs/reference/statements.md")], |_, text| {
        let (before, rest) = text.split_once(OPENING_OF_ALL).expect(OPENING_OF_ALL);
        let (_, after) = rest.split_once(CLOSING).expect(CLOSING);
        format!("{before}{OPENING_OF_ALL}\n{lists}\n{CLOSING}{after}")
    });
}

#[test]
fn pages_show_the_verdict_on_each_kind_of_statement() {
    expect(reference_pages(), |page, text| {
        let (sections, real) = regenerate(page, text);
        assert!(!sections.is_empty(), "{} does not show the verdict on each kind of statement", page.display());
        real
    });
}
