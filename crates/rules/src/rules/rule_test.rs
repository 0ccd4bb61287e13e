//! Reads the `tests` of rules and of test files.
//!
//! It checks their form and the syntax of their commands. `docward test` runs them.

use super::clients::{TestUser, check_one};
use super::rule::{Expectation, RuleTest};
use crate::config::keys::{
    Constraint, Keys, Keywords, Mapping, NamedSchema, Setting, TEXT, Text, TextSchema, ValueList, ValueSchema,
};
use crate::config::{Code, Diagnostic, Located, MapReader, NamespaceGlob, Node, ReadContext, SourceFiles, Span};
use crate::shell::{self, ShellError};

/// What `db` means if no namespace determines it: the shell's own default.
pub(super) const DATABASE: &str = "test";

/// The values of `expect`.
#[derive(Debug, Clone, Copy)]
enum ExpectedVerdict {
    Rejected,
    Unchanged,
    Checked,
}

/// One element of `tests`.
pub const TEST: NamedSchema =
    NamedSchema { name: "test", meaning: "A command and its expected result.", schema: || ValueSchema::Mapping(&KEYS) };
const GIVEN: Setting<Text> = Setting::required("given", TEXT, "The command in mongosh syntax.")
    .examples(&["db.orders.replaceOne({_id: 1}, {status: \"paid\"})"]);
const EXPECT: Setting<Keywords<ExpectedVerdict>> = Setting::optional(
    "expect",
    Keywords(&[
        ("rejected", ExpectedVerdict::Rejected, "The statement is rejected."),
        ("unchanged", ExpectedVerdict::Unchanged, "The statement is forwarded unchanged."),
        (
            "checked",
            ExpectedVerdict::Checked,
            "The statement is executed in a transaction, and the documents are compared.",
        ),
    ]),
    "The expected result.",
);
const BECOMES: Setting<Text> = Setting::optional("becomes", TEXT, "The command as it is sent, in mongosh syntax.");
const AS: Setting<Mapping> = Setting::optional("as", Mapping(&AS_KEYS), "The client that sends it.");
const APP: Setting<Text> = Setting::optional("app", TEXT, "The appName of the connection string.");
const USER: Setting<TestUser> = Setting::optional("user", TestUser, "The authenticated user: \"authDb.user\".");
const AS_KEYS: Keys = Keys::new("", &[&APP, &USER]);
const AT: Setting<Text> = Setting::optional(
    "at",
    Text(TextSchema {
        format: Some("date-time"),
        ..TextSchema::matching(
            r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})$",
        )
    }),
    "docward's clock, RFC 3339.",
)
.examples(&["2026-01-31T12:00:00Z"]);
const KEYS: Keys = Keys::new("", &[&GIVEN, &EXPECT, &BECOMES, &AS, &AT])
    .constrained(&[Constraint::ExactlyOneOf(&["expect", "becomes"])]);

/// What `db` means in the tests of a rule for these namespaces: the first database without `*`.
pub(super) fn database(namespaces: &[Located<NamespaceGlob>]) -> Option<&str> {
    let mut databases = namespaces.iter().map(|namespace| namespace.value.database());
    databases.find(|database| database.is_literal()).map(|database| database.as_str())
}

/// The valid entries of `tests`; reports the mistakes in others.
pub(super) fn read_all(
    settings: &mut MapReader<'_, '_, '_>,
    tests: &Setting<ValueList>,
    database: Option<&str>,
    sources: &SourceFiles,
) -> Vec<RuleTest> {
    let listed = settings.list(tests).unwrap_or_default();
    let context = settings.context();
    let reader = TestReader { database: database.unwrap_or(DATABASE), sources };
    listed.iter().filter_map(|test| reader.read_test(test, context)).collect()
}

struct TestReader<'s> {
    database: &'s str,
    sources: &'s SourceFiles,
}

impl TestReader<'_> {
    fn read_test(&self, node: &Node, context: &mut ReadContext<'_>) -> Option<RuleTest> {
        let mut test = context.map(node)?.declared(&KEYS);
        let given = test.get(&GIVEN);
        let expect = read_expectation(&mut test);
        let (app, user) = read_client(&mut test);
        let at = test.get(&AT);
        let at = at.and_then(|at| read_time(&at, test.context()));
        test.finish();
        let becomes = match &expect {
            Some(Expectation::Becomes(becomes)) => Some(becomes),
            _ => None,
        };
        for command in given.iter().chain(becomes) {
            if let Err(error) = shell::parse(&command.value, self.database) {
                context.push(self.mistake(command, &error));
            }
        }
        let database = self.database.to_owned();
        Some(RuleTest { given: given?, database, expect: expect?, app, user, at, span: node.span })
    }

    /// The diagnostic for a command with a syntax error, at the error's location in the file.
    fn mistake(&self, command: &Located<String>, error: &ShellError) -> Diagnostic {
        error.diagnostic(self.span_in(command, error.span.start, error.span.end))
    }

    /// Where these bytes of a text are in its file: in the line with the same content. If YAML escapes make the lines
    /// differ, the span of the whole text.
    fn span_in(&self, text: &Located<String>, start: usize, end: usize) -> Span {
        let line_start = text.value.get(..start).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
        let line = text.value.get(line_start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
        let written = self.sources.slice(text.span);
        let Some(found) = written.find(line).filter(|_| !line.is_empty()) else { return text.span };
        let at = |offset: usize| {
            let offset = found + (offset - line_start).min(line.len());
            text.span.start + u32::try_from(offset).unwrap_or(u32::MAX)
        };
        Span::new(text.span.file, at(start), at(end.max(start)))
    }
}

fn read_expectation(test: &mut MapReader<'_, '_, '_>) -> Option<Expectation> {
    let expect = test.get(&EXPECT);
    let expect = expect.map(|verdict| match verdict.value {
        ExpectedVerdict::Rejected => Expectation::Rejected,
        ExpectedVerdict::Unchanged => Expectation::Unchanged,
        ExpectedVerdict::Checked => Expectation::Checked,
    });
    let becomes = test.get(&BECOMES).map(Expectation::Becomes);
    let span = test.span();
    let help = "write one of `expect: rejected`, `expect: unchanged`, `expect: checked` or `becomes: COMMAND`";
    match (test.entry(EXPECT.name), test.entry(BECOMES.name)) {
        (Some((first, _)), Some((second, _))) => {
            let message = "a test has either `expect` or `becomes`, not both";
            let mistake = Diagnostic::error(Code::InvalidTest, second.span, message);
            let mistake = mistake.label(first.span, "`expect` is here");
            test.context().push(mistake.help(help));
            None
        }
        (None, None) => {
            let message = "this test has no expected result";
            let mistake = Diagnostic::error(Code::InvalidTest, span, message);
            test.context().push(mistake.help(help));
            None
        }
        _ => expect.or(becomes),
    }
}

fn read_client(test: &mut MapReader<'_, '_, '_>) -> (Option<String>, Option<String>) {
    let Some(mut client) = test.nested(&AS) else {
        return (None, None);
    };
    let app = client.get(&APP);
    app.iter().for_each(|app| check_one(client.context(), app));
    let user = client.get(&USER);
    client.finish();
    (app.map(|app| app.value), user)
}

fn read_time(text: &Located<String>, context: &mut ReadContext<'_>) -> Option<bson::DateTime> {
    let time = bson::DateTime::parse_rfc3339_str(&text.value).ok();
    if time.is_none() {
        let message = format!("`{}` is not a valid time", text.value);
        let mistake = Diagnostic::error(Code::InvalidTest, text.span, message);
        context.push(mistake.help("write it like \"2026-01-31T12:00:00Z\""));
    }
    time
}
