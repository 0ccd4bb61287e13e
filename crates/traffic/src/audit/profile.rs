//! Reads documents of `system.profile` as JSON lines (relaxed or canonical Extended JSON), as mongoexport writes them.
//!
//! The profile has one document for each update or delete statement. Inserts do not have their documents (mongod 6.0).
//! A command of more than 50 KB has only its beginning, as text under `$truncated`.

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::log::{date, milliseconds};
use super::recorded::{
    Client, CommandFilter, MASKED, RecordedCommand, RecordedContent, TRUNCATED, UNTYPED, Unreadable, comment,
    content_of, head, is_masked, is_of_merge, joined, namespace_of, statement, unknown_statements,
};
use super::reply_summary::{ExtendedNumber, ReplySummary};
use crate::command::{CommandClass, Namespace, WriteForm, classify};
use crate::document::{CowDocument, Document};
use crate::fnv::hash_of;
use crate::shell;

#[derive(Deserialize)]
struct ProfileEntry<'a> {
    op: String,
    ns: String,
    #[serde(borrow)]
    command: Option<&'a RawValue>,
    #[serde(rename = "appName")]
    app: Option<String>,
    client: Option<String>,
    #[serde(rename = "allUsers")]
    users: Option<Vec<ProfileUser>>,
    ts: Option<serde_json::Value>,
    ninserted: Option<ExtendedNumber>,
    millis: Option<ExtendedNumber>,
    #[serde(rename = "nMatched")]
    matched: Option<ExtendedNumber>,
    #[serde(rename = "nUpserted")]
    upserted: Option<ExtendedNumber>,
    #[serde(rename = "ndeleted")]
    deleted: Option<ExtendedNumber>,
    #[serde(rename = "nModified")]
    modified: Option<ExtendedNumber>,
    #[serde(rename = "errCode")]
    code: Option<ExtendedNumber>,
}

#[derive(Deserialize)]
struct ProfileUser {
    user: String,
    db: String,
}

/// Whether a line looks like a document of `system.profile`.
#[must_use]
pub fn is_line(line: &[u8]) -> bool {
    let has = |name: &[u8]| memmem::find(line, name).is_some();
    has(b"\"op\"") && has(b"\"ns\"") && has(b"\"command\"")
}

/// Reads one document.
///
/// # Errors
/// [`Unreadable`] if it is not a document of `system.profile`.
pub fn parse_line(line: &[u8], wanted: &CommandFilter<'_>, out: &mut Vec<RecordedCommand>) -> Result<(), Unreadable> {
    let entry: ProfileEntry<'_> = serde_json::from_slice(line).map_err(Unreadable::from)?;
    let Some((namespace, command)) = namespace_of(&entry.ns).zip(entry.command) else { return Ok(()) };
    let json = command.get();
    let form = form_of(&entry.op);
    let Some((class, collection)) = target(form, json, namespace)? else { return Ok(()) };
    let namespace = Namespace { collection, ..namespace };
    if !wanted(namespace, class, json.as_bytes()) || (form.is_some() && is_of_merge(json)) {
        return Ok(());
    }
    let inserted = entry.ninserted.and_then(ExtendedNumber::unsigned);
    let date = entry.ts.as_ref().and_then(date);
    let content = if truncated_name(json).is_some() {
        unknown_statements(namespace, class, inserted, TRUNCATED)
    } else if entry.ts.is_some() && date.is_none() {
        // The server gives the time as a date.
        unknown_statements(namespace, class, inserted, UNTYPED)
    } else {
        let shown = shell::document(json).map_err(|error| Unreadable(error.to_string()))?;
        match form {
            _ if is_masked(shown.as_document()) => unknown_statements(namespace, class, inserted, MASKED),
            None => content_of(shown.as_document(), namespace, class, inserted),
            Some(form) => match command_of(form, namespace, shown.as_document()) {
                Some(command) => RecordedContent::Command(command),
                None => return Ok(()),
            },
        }
    };
    let users = entry.users.map(|users| users.into_iter().map(|user| (user.db, user.user)).collect());
    let client = Client { app: entry.app, users, connection: hash_of(entry.client.unwrap_or_default().as_bytes()) };
    out.push(RecordedCommand {
        client,
        milliseconds: date.or_else(|| milliseconds(entry.ts?.as_str()?)),
        line: 0,
        took: entry.millis.and_then(ExtendedNumber::unsigned),
        content,
        partial: form.is_some(),
        reply: ReplySummary::of_counts([entry.matched, entry.upserted, entry.deleted, entry.modified, entry.code]),
    });
    Ok(())
}

/// The form of an entry that has a statement instead of a command.
fn form_of(operation: &str) -> Option<WriteForm> {
    match operation {
        "update" => Some(WriteForm::Update),
        "remove" => Some(WriteForm::Delete),
        _ => None,
    }
}

/// The class and collection of an entry. If its `ns` is a database's `$cmd`, the command names the collection.
///
/// # Errors
/// As [`head`].
fn target<'e>(
    form: Option<WriteForm>,
    json: &'e str,
    namespace: Namespace<'e>,
) -> Result<Option<(CommandClass, &'e str)>, Unreadable> {
    Ok(match (form, truncated_name(json)) {
        (Some(WriteForm::Delete), _) => Some((CommandClass::Delete, namespace.collection)),
        (Some(_), _) => Some((CommandClass::Update, namespace.collection)),
        (None, Some(name)) => Some((classify(name.as_bytes()), namespace.collection)),
        (None, None) => head(json)?.map(|(class, target)| (class, target.unwrap_or(namespace.collection))),
    })
}

/// The command of the one statement in an entry. Of its other fields the entry has only the comment.
fn command_of(form: WriteForm, namespace: Namespace<'_>, shown: Document<'_>) -> Option<CowDocument<'static>> {
    let comment = comment(shown);
    joined(form, namespace, comment.as_ref().map(CowDocument::as_document), &[statement(form, shown).as_document()])
}

/// The name of a truncated command: `{"$truncated": "{ find: \"orders\", …"}`.
fn truncated_name(json: &str) -> Option<&str> {
    let rest = json.trim_start().strip_prefix('{')?.trim_start().strip_prefix("\"$truncated\"")?;
    let text = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    let inside = text.trim_start_matches(['{', ' ']);
    Some(inside.split([':', ' ']).next().unwrap_or_default())
}
