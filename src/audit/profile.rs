//! Documents of `system.profile` as JSON lines, relaxed or canonical Extended JSON, as mongoexport writes them.
//!
//! Updates and deletes are there statement by statement, inserts without their documents (mongod 6.0), and of a
//! command of more than 50 KB only its beginning, as text under `$truncated`.

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::log::milliseconds;
use super::past::{
    Asked, Client, Hidden, OMITTED, Past, TRUNCATED, Unreadable, Wanted, comment, connection, head, joined, kept,
    statement,
};
use crate::command::{Class, Form, Namespace, classify};
use crate::document::{CowDocument, Value};
use crate::shell;

#[derive(Deserialize)]
struct Entry<'a> {
    op: String,
    ns: String,
    #[serde(borrow)]
    command: Option<&'a RawValue>,
    #[serde(rename = "appName")]
    app: Option<String>,
    client: Option<String>,
    #[serde(rename = "allUsers")]
    users: Option<Vec<User>>,
    ts: Option<serde_json::Value>,
    ninserted: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct User {
    user: String,
    db: String,
}

/// Whether a line is one of these documents.
#[must_use]
pub fn is_line(line: &[u8]) -> bool {
    let has = |name: &[u8]| memmem::find(line, name).is_some();
    has(b"\"op\"") && has(b"\"ns\"") && has(b"\"command\"")
}

/// Reads one document.
///
/// # Errors
/// [`Unreadable`] for what is no document of `system.profile`.
pub fn read(line: &[u8], wanted: &Wanted<'_>, out: &mut Vec<Past>) -> Result<(), Unreadable> {
    let entry: Entry<'_> = serde_json::from_slice(line).map_err(|error| Unreadable(error.to_string()))?;
    let Some((namespace, command)) = Namespace::parse(&entry.ns).zip(entry.command) else { return Ok(()) };
    let json = command.get();
    let form = match entry.op.as_str() {
        "update" => Some(Form::Update),
        "remove" => Some(Form::Delete),
        _ => None,
    };
    let (class, collection) = match form {
        Some(Form::Delete) => (Class::Delete, namespace.collection),
        Some(_) => (Class::Update, namespace.collection),
        None => match (truncated_name(json), head(json)) {
            (Some(name), _) => (classify(name.as_bytes()), namespace.collection),
            (None, Some((class, target))) => (class, target.unwrap_or(namespace.collection)),
            (None, None) => return Ok(()),
        },
    };
    let namespace = Namespace { database: namespace.database, collection };
    if !wanted(namespace, class, json.as_bytes()) {
        return Ok(());
    }
    let inserted = entry.ninserted.as_ref().and_then(number).and_then(|count| u64::try_from(count).ok());
    let hidden = |reason, count: Option<u64>| {
        let (database, collection) = (namespace.database.to_owned(), collection.to_owned());
        Asked::Hidden(Hidden {
            database,
            collection,
            class,
            statements: count.or(inserted).unwrap_or(1).max(1),
            reason,
        })
    };
    let asked = if truncated_name(json).is_some() {
        hidden(TRUNCATED, None)
    } else {
        let document = shell::document(json).map_err(|error| Unreadable(error.to_string()))?;
        let list = Form::of(class).and_then(Form::list);
        match (form, list) {
            (Some(form), _) => {
                let statement = statement(form, document.as_document());
                let comment = comment(document.as_document());
                let rest = comment.as_ref().map(CowDocument::as_document);
                let Some(command) = joined(form, namespace, rest, &[statement]) else { return Ok(()) };
                Asked::Command(command)
            }
            (None, Some(list)) if document.as_document().get(list).and_then(Value::as_array).is_none() => {
                hidden(OMITTED, document.as_document().get(list).and_then(Value::as_integer).map(i64::unsigned_abs))
            }
            _ => {
                let database = document.as_document().get("$db").and_then(|db| db.as_str());
                Asked::Command(kept(document.as_document(), database.unwrap_or(namespace.database)))
            }
        }
    };
    let users = entry.users.map(|users| users.into_iter().map(|user| (user.db, user.user)).collect());
    let client = Client { app: entry.app, users, connection: connection(entry.client.unwrap_or_default().as_bytes()) };
    out.push(Past { client, milliseconds: entry.ts.as_ref().and_then(date), asked, partial: form.is_some() });
    Ok(())
}

/// The first word of a command of which only a text is left: `{"$truncated": "{ find: \"orders\", …"}`.
fn truncated_name(json: &str) -> Option<&str> {
    let rest = json.trim_start().strip_prefix('{')?.trim_start().strip_prefix("\"$truncated\"")?;
    let text = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    let inside = text.trim_start_matches(['{', ' ']);
    Some(inside.split([':', ' ']).next().unwrap_or_default())
}

/// A number in any of Extended JSON's forms.
fn number(value: &serde_json::Value) -> Option<i64> {
    let wrapped = |key| value.get(key).and_then(serde_json::Value::as_str).and_then(|text| text.parse().ok());
    value.as_i64().or_else(|| wrapped("$numberInt")).or_else(|| wrapped("$numberLong"))
}

fn date(value: &serde_json::Value) -> Option<i64> {
    let date = value.get("$date")?;
    date.as_str().and_then(milliseconds).or_else(|| number(date))
}
