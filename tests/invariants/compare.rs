//! Compares what a command did through docward with what it did directly, apart from what the patterns add.

use bson::{Bson, Document};

use super::case::Step;
use super::lab::{Answer, Outcome};
use super::rules::{Change, Rule};
use super::show;
use super::values::as_number;

pub(super) fn difference(
    rules: &[Rule],
    step: &Step,
    outcome: &Outcome,
    reply: &Document,
    direct: &Document,
) -> Option<String> {
    let commits = (code_of(&outcome.through), code_of(&outcome.direct));
    if commits.0 != commits.1 {
        return Some(format!("the commit: through docward {:?}, directly {:?}", commits.0, commits.1));
    }
    // A checked statement counts the documents whose bytes have changed.
    let may_be_checked = rules.iter().any(|rule| matches!(rule.name(), "together" | "frozen"));
    let modifies = may_be_checked || rules.iter().any(|rule| rule.modifies());
    let is_modified = modifies && reply.contains_key("nModified");
    if let Some(wrong) = is_modified.then(|| wrong_modified(rules, step, outcome, reply, direct)).flatten() {
        return Some(wrong);
    }
    for name in ["n", "nModified"].into_iter().filter(|name| !(is_modified && *name == "nModified")) {
        if reply.get(name) != direct.get(name) {
            let shown = |reply: &Document| reply.get(name).map_or("nothing".to_owned(), show::value);
            return Some(format!("{name} is {} instead of {}", shown(reply), shown(direct)));
        }
    }
    let shown =
        |reply: &Document, name: &str| reply.get(name).map(|held| normal(rules, held, true)).unwrap_or_default();
    for name in ["upserted", "value", "lastErrorObject"] {
        if shown(reply, name) != shown(direct, name) {
            return Some(format!(
                "the reply's {name} {{is {} instead of {}}}",
                shown(reply, name),
                shown(direct, name)
            ));
        }
    }
    // As operators, the constants of a pipeline create fields in another order.
    let is_sorted = sorts(rules) || step.statements().iter().any(|statement| statement.is_pipeline());
    let listed = |documents: &[Document]| listed(rules, documents, is_sorted);
    (listed(&outcome.stored) != listed(&outcome.directly_stored)).then(|| {
        let name = if step.is_find_and_modify() { "findAndModify" } else { step.name() };
        format!(
            "what {name} stored {{is{}\n  instead of{}}}",
            listed(&outcome.stored),
            listed(&outcome.directly_stored)
        )
    })
}

/// What is wrong with the count of modified documents beside patterns that modify documents themselves: a statement
/// counts those that it has changed, but not the other nodes of a tree.
fn wrong_modified(
    rules: &[Rule],
    step: &Step,
    outcome: &Outcome,
    reply: &Document,
    direct: &Document,
) -> Option<String> {
    let number = |reply: &Document, name| reply.get(name).and_then(as_number).unwrap_or(0.0);
    let (through, directly) = (number(reply, "nModified"), number(direct, "nModified"));
    let statements = step.statements();
    let change = Change { before: &outcome.before, after: &outcome.stored, statements: &statements, reply: None };
    let changed = change.changed().filter(|(before, _)| before.is_some()).count() as f64;
    let is_single = statements.len() == 1;
    let has_tree = rules.iter().any(|rule| rule.name() == "tree");
    // The server counts every matched document of a replacement, an increment of NaN, and no document of a statement that
    // fails.
    let is_replacement = statements.iter().any(|statement| statement.replacement().is_some());
    // What only docward has settled is not counted among many.
    let settles = rules.iter().any(super::check::settles);
    if reply.contains_key("writeErrors") || (is_replacement || settles || changed < directly) && through == directly {
        return None;
    }
    // The server counts an increment of NaN.
    let has_nan = |document: &&Document| {
        rules.iter().any(|rule| matches!(rule, Rule::Replacement(rule) if rule.has_nan(document)))
    };
    let most =
        if is_single { changed + outcome.before.iter().filter(has_nan).count() as f64 } else { number(reply, "n") };
    // A tree keeps a path that a statement removes, so this may change nothing.
    let least = match (is_single && !has_tree, is_replacement || has_tree) {
        (true, _) => changed,
        (false, true) => 0.0,
        (false, false) => directly.min(most),
    };
    (through < least || through > most)
        .then(|| format!("nModified is {through}, and {changed} documents are changed, directly {directly}"))
}

fn code_of(answer: &Answer) -> Option<i32> {
    let commit = answer.commit.as_ref()?;
    Some(commit.get_i32("code").unwrap_or(0))
}

fn listed(rules: &[Rule], documents: &[Document], is_sorted: bool) -> String {
    let mut lines: Vec<String> =
        documents.iter().map(|document| normal(rules, &Bson::Document(document.clone()), is_sorted)).collect();
    lines.sort();
    lines.iter().map(|line| format!("\n    {line}")).collect()
}

pub(super) fn differs(rules: &[Rule], one: &[Document], other: &[Document]) -> bool {
    let is_sorted = sorts(rules);
    listed(rules, one, is_sorted) != listed(rules, other, is_sorted)
}

fn sorts(rules: &[Rule]) -> bool {
    rules.is_empty() || rules.iter().any(|rule| REORDERING.contains(&rule.name()))
}

/// Patterns that send a statement in another form, so that new fields may have another order, and decimals fewer
/// trailing zeros.
const REORDERING: [&str; 5] = ["timestamps", "replacement", "sequence", "tree", "copies"];

/// A value as text, without fields that the patterns write and times from a clock; `is_sorted`: also without field order
/// and trailing zeros of decimals.
fn normal(rules: &[Rule], value: &Bson, is_sorted: bool) -> String {
    let mut value = value.clone();
    if let Bson::Document(document) = &mut value {
        for rule in rules {
            rule.strip(document);
        }
    }
    settle(&mut value, is_sorted);
    show::value(&value)
}

fn settle(value: &mut Bson, is_sorted: bool) {
    const CLOCK: std::ops::Range<i64> = 1_600_000_000_000..3_900_000_000_000;
    match value {
        Bson::DateTime(date) if CLOCK.contains(&date.timestamp_millis()) => *value = "NOW".into(),
        Bson::Timestamp(time) if CLOCK.contains(&(i64::from(time.time) * 1000)) => *value = "NOW".into(),
        // A sum in a pipeline has fewer trailing zeros than `$inc`.
        Bson::Decimal128(decimal) if is_sorted => {
            let text = decimal.to_string();
            let shown = if text.contains('.') && !text.contains('E') {
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            } else {
                text
            };
            *value = format!("decimal {shown}").into();
        }
        Bson::ObjectId(_) => *value = "GENERATED".into(),
        Bson::Array(items) => items.iter_mut().for_each(|item| settle(item, is_sorted)),
        Bson::Document(document) => {
            document.iter_mut().for_each(|(_, value)| settle(value, is_sorted));
            let mut fields: Vec<(String, Bson)> = std::mem::take(document).into_iter().collect();
            if is_sorted {
                fields.sort_by(|(one, _), (other, _)| one.cmp(other));
            }
            document.extend(fields);
        }
        _ => {}
    }
}
