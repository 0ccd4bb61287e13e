//! Reads a rule's own tests.
//!
//! Only their shape is checked here: whether commands are commands, and what becomes of them, the
//! engine finds out when `docward test` runs them.

use super::code::Code;
use super::context::{Located, ReadContext};
use super::diagnostic::Diagnostic;
use super::node::Node;
use super::reader::MapReader;
use super::rule::{Expectation, RuleTest};

/// The entries of `tests` that are whole; mistakes are reported.
pub(super) fn read_all(rule: &mut MapReader<'_, '_, '_>) -> Vec<RuleTest> {
    let Some(node) = rule.node("tests") else {
        return Vec::new();
    };
    let context = rule.context();
    let listed = context.list(node, "`tests`").unwrap_or_default();
    let tests = listed.iter().filter_map(|test| read(test, context));
    tests.collect()
}

fn read(node: &Node, context: &mut ReadContext<'_>) -> Option<RuleTest> {
    let mut test = context.map(node)?;
    let given = test.required_text("given");
    let expect = read_expectation(&mut test);
    let (app, user) = read_client(&mut test);
    let at = test.text("at");
    let at = at.and_then(|at| read_time(&at, test.context()));
    test.finish();
    Some(RuleTest { given: given?, expect: expect?, app, user, at, span: node.span })
}

fn read_expectation(test: &mut MapReader<'_, '_, '_>) -> Option<Expectation> {
    let expect = test.choice("expect", &[("rejected", true), ("unchanged", false)]);
    let expect = expect.map(|rejected| match rejected.value {
        true => Expectation::Rejected,
        false => Expectation::Unchanged,
    });
    let becomes = test.text("becomes").map(Expectation::Becomes);
    let place = test.place();
    let help = "say `expect: rejected`, `expect: unchanged` or `becomes: COMMAND`";
    match (test.entry("expect"), test.entry("becomes")) {
        (Some((first, _)), Some((second, _))) => {
            let message = "a test expects one thing, either `expect` or `becomes`";
            let mistake = Diagnostic::error(Code::InvalidTest, second.span, message);
            let mistake = mistake.label(first.span, "and here");
            test.context().push(mistake.help(help));
            None
        }
        (None, None) => {
            let message = "this test expects nothing";
            let mistake = Diagnostic::error(Code::InvalidTest, place, message);
            test.context().push(mistake.help(help));
            None
        }
        _ => expect.or(becomes),
    }
}

fn read_client(test: &mut MapReader<'_, '_, '_>) -> (Option<String>, Option<String>) {
    let Some(mut client) = test.map("as") else {
        return (None, None);
    };
    let app = client.text("app").map(|app| app.value);
    let user = client.text("user");
    if let Some(user) = user.as_ref().filter(|user| !user.contains('.')) {
        let message = format!("`{}` does not say which database the user is of", user.value);
        let mistake = Diagnostic::error(Code::InvalidTest, user.span, message);
        client.context().push(mistake.help("write \"authDb.user\": \"admin.root\""));
    }
    client.finish();
    (app, user.map(|user| user.value))
}

fn read_time(text: &Located<String>, context: &mut ReadContext<'_>) -> Option<bson::DateTime> {
    let time = bson::DateTime::parse_rfc3339_str(&text.value).ok();
    if time.is_none() {
        let message = format!("`{}` is not a time", text.value);
        let mistake = Diagnostic::error(Code::InvalidTest, text.span, message);
        context.push(mistake.help("write it as \"2026-01-31T12:00:00Z\""));
    }
    time
}
