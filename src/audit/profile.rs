//! Documents of `system.profile` as JSON lines, relaxed or canonical Extended JSON, as mongoexport writes them.
//!
//! Updates and deletes are there statement by statement, inserts without their documents (mongod 6.0), and of a
//! command of more than 50 KB only its beginning, as text under `$truncated`.

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::log::milliseconds;
use super::recorded::{
    Asked, Client, RecordedCommand, TRUNCATED, Unreadable, Wanted, asked, comment, connection, head, hidden, joined,
    statement,
};
use crate::command::{Class, Form, Namespace, classify};
use crate::document::{CowDocument, Document};
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
pub fn read(line: &[u8], wanted: &Wanted<'_>, out: &mut Vec<RecordedCommand>) -> Result<(), Unreadable> {
    let entry: Entry<'_> = serde_json::from_slice(line).map_err(|error| Unreadable(error.to_string()))?;
    let Some((namespace, command)) = Namespace::parse(&entry.ns).zip(entry.command) else { return Ok(()) };
    let json = command.get();
    let form = form_of(&entry.op);
    let Some((class, collection)) = target(form, json, namespace) else { return Ok(()) };
    let namespace = Namespace { collection, ..namespace };
    if !wanted(namespace, class, json.as_bytes()) {
        return Ok(());
    }
    let inserted = entry.ninserted.as_ref().and_then(number).and_then(|count| u64::try_from(count).ok());
    let asked = if truncated_name(json).is_some() {
        hidden(namespace, class, inserted, TRUNCATED)
    } else {
        let shown = shell::document(json).map_err(|error| Unreadable(error.to_string()))?;
        match form {
            None => asked(shown.as_document(), namespace, class, inserted),
            Some(form) => match command_of(form, namespace, shown.as_document()) {
                Some(command) => Asked::Command(command),
                None => return Ok(()),
            },
        }
    };
    let users = entry.users.map(|users| users.into_iter().map(|user| (user.db, user.user)).collect());
    let client = Client { app: entry.app, users, connection: connection(entry.client.unwrap_or_default().as_bytes()) };
    out.push(RecordedCommand {
        client,
        milliseconds: entry.ts.as_ref().and_then(date),
        asked,
        partial: form.is_some(),
    });
    Ok(())
}

/// Of entries that show a statement rather than a command.
fn form_of(operation: &str) -> Option<Form> {
    match operation {
        "update" => Some(Form::Update),
        "remove" => Some(Form::Delete),
        _ => None,
    }
}

/// What an entry is about; its `ns` may be a database's `$cmd`, then the command names the collection.
fn target<'e>(form: Option<Form>, json: &'e str, namespace: Namespace<'e>) -> Option<(Class, &'e str)> {
    match (form, truncated_name(json)) {
        (Some(Form::Delete), _) => Some((Class::Delete, namespace.collection)),
        (Some(_), _) => Some((Class::Update, namespace.collection)),
        (None, Some(name)) => Some((classify(name.as_bytes()), namespace.collection)),
        (None, None) => head(json).map(|(class, target)| (class, target.unwrap_or(namespace.collection))),
    }
}

/// The command of the one statement that an entry shows; the comment is all that is known of it besides.
fn command_of(form: Form, namespace: Namespace<'_>, shown: Document<'_>) -> Option<CowDocument<'static>> {
    let comment = comment(shown);
    joined(form, namespace, comment.as_ref().map(CowDocument::as_document), &[statement(form, shown)])
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
