//! The shape of a command, without its values: `replaceOne({_id}, {status, total})`. Commands that differ only in
//! values have the same shape, so shapes can be counted. They do not reveal data.

use super::statement::has_operators;
use super::{CommandClass, Statement, WriteForm, classify};
use crate::document::{Document, Kind, Value};
use crate::text::shorten;

/// The most characters in a shape; longer ones are truncated.
const MAX_LENGTH: usize = 200;
/// The most levels of nested documents in a shape.
const MAX_DEPTH: usize = 4;
/// The most entries of an array in a shape.
const MAX_ENTRIES: usize = 4;

/// The shape of a command; of a batch, the shape of its first statement.
#[must_use]
pub fn shape(command: Document<'_>) -> String {
    let mut out = String::new();
    write_shape(command, &mut out);
    shorten(&mut out, MAX_LENGTH);
    out
}

/// The shape of a statement, as [`shape`] returns it for a command with only this statement.
#[must_use]
pub fn statement_shape(statement: &Statement<'_>) -> String {
    let mut out = String::new();
    write_statement(statement.form(), statement.source(), &mut out);
    shorten(&mut out, MAX_LENGTH);
    out
}

/// The names of shapes with arguments, each with the most arguments; those of the others are commands.
pub const CALLS: [(&str, usize); 12] = [
    ("insertOne", 1),
    ("updateOne", 3),
    ("updateMany", 3),
    ("replaceOne", 3),
    ("deleteOne", 1),
    ("deleteMany", 1),
    ("findAndModify", 3),
    ("findOneAndDelete", 1),
    ("find", 1),
    ("count", 1),
    ("distinct", 1),
    ("aggregate", 1),
];

/// Whether [`shape`] can return this text for a valid command, if the names of the fields are ordinary ones.
#[must_use]
pub fn is_shape(text: &str) -> bool {
    let is_name =
        |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let most = |name: &str| CALLS.iter().find(|(call, _)| *call == name).map(|(_, most)| *most);
    if text.len() > MAX_LENGTH + '…'.len_utf8() || text.contains('*') {
        return false;
    }
    let Some((name, rest)) = text.split_once('(') else { return is_name(text) && most(text).is_none() };
    let Some(most) = most(name) else { return false };
    text.ends_with('…') || rest.strip_suffix(')').and_then(arguments).is_some_and(|list| may_be_sent(&list, most))
}

/// The arguments in this text, if it is a list of values.
fn arguments(text: &str) -> Option<Vec<&str>> {
    let (mut found, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let after = after_value(rest)?;
        found.push(rest.strip_suffix(after)?);
        rest = if after.is_empty() { after } else { after.strip_prefix(", ").filter(|next| !next.is_empty())? };
    }
    Some(found)
}

/// Whether a valid command can have these arguments: the last of three is the option, and an update operator has fields.
fn may_be_sent(arguments: &[&str], most: usize) -> bool {
    let has_fields = |change: &str| {
        let operator =
            change.strip_prefix("{$").and_then(|rest| rest.trim_start_matches(char::is_alphabetic).chars().next());
        operator.is_none_or(|next| next == ':')
    };
    arguments.len() <= most
        && arguments.get(1).is_none_or(|change| has_fields(change))
        && arguments.get(2).is_none_or(|option| *option == "{upsert}")
}

/// The text after a list of elements, each of which `after` reads.
fn after_list<'t>(text: &'t str, after: fn(&'t str) -> Option<&'t str>) -> Option<&'t str> {
    let mut rest = after(text)?;
    while let Some(next) = rest.strip_prefix(", ") {
        rest = after(next)?;
    }
    Some(rest)
}

/// The text after a value. The length of a shape bounds the recursion.
fn after_value(text: &str) -> Option<&str> {
    let nested = |open, close, after| {
        let inner: &str = text.strip_prefix(open)?;
        inner.strip_prefix(close).or_else(|| after_list(inner, after)?.strip_prefix(close))
    };
    let whole = || text.strip_prefix(['?', '…']);
    whole().or_else(|| nested('{', '}', after_member)).or_else(|| nested('[', ']', after_value))
}

/// The text after a field, with its value if that is a document or an array.
fn after_member(text: &str) -> Option<&str> {
    let (name, rest) = text.split_at(text.find([',', '{', '}', '[', ']', ':'])?);
    if name.is_empty() || name.trim() != name {
        return None;
    }
    match rest.strip_prefix(": ") {
        Some(value) if value.starts_with(['{', '[', '…']) => after_value(value),
        Some(_) => None,
        None => Some(rest),
    }
}

fn write_shape(command: Document<'_>, out: &mut String) {
    let Some(name) = command.first().map(|first| first.key) else { return };
    let class = classify(name);
    let statement = WriteForm::for_class(class).and_then(|form| Some((form, form.statements(command).next()?)));
    match (class, statement) {
        (_, Some((form, statement))) => write_statement(form, statement, out),
        (CommandClass::Find, _) => call("find", &[command.get("filter")], "", out),
        (CommandClass::Count, _) => call("count", &[command.get("query")], "", out),
        (CommandClass::Distinct, _) => call("distinct", &[command.get("query")], "", out),
        (CommandClass::Aggregate, _) => call("aggregate", &[command.get("pipeline")], "", out),
        _ => out.push_str(&String::from_utf8_lossy(name)),
    }
}

fn write_statement(form: WriteForm, source: Document<'_>, out: &mut String) {
    let flag = |name| source.get(name).and_then(Value::as_flag) == Some(true);
    match form {
        WriteForm::Insert => call("insertOne", &[Some(Value::document(source))], "", out),
        WriteForm::Update => update(source, source.get("u"), source.get("q"), out),
        WriteForm::Delete => delete(source.get("q"), source.get("limit").and_then(Value::as_integer) == Some(0), out),
        WriteForm::FindAndModify => {
            let name = if flag("remove") { "findOneAndDelete" } else { "findAndModify" };
            call(name, &[source.get("query"), source.get("update")], upsert(source), out);
        }
        WriteForm::BulkWrite => match (source.get("document"), source.get("updateMods")) {
            (Some(document), _) => call("insertOne", &[Some(document)], "", out),
            (None, Some(change)) => update(source, Some(change), source.get("filter"), out),
            (None, None) => delete(source.get("filter"), flag("multi"), out),
        },
    }
}

fn delete(filter: Option<Value<'_>>, many: bool, out: &mut String) {
    call(if many { "deleteMany" } else { "deleteOne" }, &[filter], "", out);
}

fn update(statement: Document<'_>, change: Option<Value<'_>>, filter: Option<Value<'_>>, out: &mut String) {
    let many = statement.get("multi").and_then(Value::as_flag) == Some(true);
    let replaces = change.and_then(Value::as_document).is_some_and(|update| !has_operators(update));
    let name = match (many, replaces) {
        (true, _) => "updateMany",
        (false, true) => "replaceOne",
        (false, false) => "updateOne",
    };
    call(name, &[filter, change], upsert(statement), out);
}

fn upsert(of: Document<'_>) -> &'static str {
    if of.get("upsert").and_then(Value::as_flag) == Some(true) { ", {upsert}" } else { "" }
}

fn call(name: &str, arguments: &[Option<Value<'_>>], suffix: &str, out: &mut String) {
    out.push_str(name);
    out.push('(');
    for (index, argument) in arguments.iter().flatten().enumerate() {
        out.push_str(if index > 0 { ", " } else { "" });
        write_value(*argument, 0, out);
    }
    out.push_str(suffix);
    out.push(')');
}

/// Writes names only. [`MAX_DEPTH`] bounds the recursion, [`MAX_LENGTH`] the output.
fn write_value(value: Value<'_>, depth: usize, out: &mut String) {
    let nested = value.as_document_or_array().filter(|_| depth < MAX_DEPTH && out.len() <= MAX_LENGTH);
    let Some(nested) = nested else {
        out.push_str(if matches!(value.kind, Kind::Document | Kind::Array) { "…" } else { "?" });
        return;
    };
    let (open, close) = if value.kind == Kind::Array { ('[', ']') } else { ('{', '}') };
    out.push(open);
    for (index, element) in nested.elements().enumerate() {
        out.push_str(if index > 0 { ", " } else { "" });
        if out.len() > MAX_LENGTH || (open == '[' && index == MAX_ENTRIES) {
            out.push('…');
            break;
        }
        let deeper = matches!(element.value.kind, Kind::Document | Kind::Array);
        if open == '{' {
            out.push_str(&String::from_utf8_lossy(element.key));
            out.push_str(if deeper { ": " } else { "" });
        }
        if deeper || open == '[' {
            write_value(element.value, depth + 1, out);
        }
    }
    out.push(close);
}
