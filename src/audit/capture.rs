//! The file that `docward record` writes: BSON documents one after the other, as `bsondump` reads them.
//!
//! The first says what the file is: `{docward: "capture", version: 1}`. Each other is one command a client sent:
//! `t` (date), `conn` (int64, the same for one connection), `client` ("address:port"), `app` (appName, if it has
//! one), `users` ([{user, db}], if known), `command` (its body with the document sequences as arrays in it).
//! Documents say their own length, so a file that was cut is readable to the last whole one.

use super::recorded::{Asked, Client, RecordedCommand, kept};
use crate::document::{CowDocument, Document, Kind, Value, Writer, document};

/// A document longer than this is no record: a message of 48 MB and what stands around its command.
pub const MAX_RECORD_LENGTH: usize = (48 << 20) + (64 << 10);

/// What a command is recorded with.
#[derive(Debug, Clone, Copy)]
pub struct Sender<'s> {
    /// The same for everything that came by one connection.
    pub connection: i64,
    /// "127.0.0.1:50000"
    pub client: &'s str,
    pub app: Option<&'s str>,
    pub users: Option<&'s [(String, String)]>,
    /// Milliseconds since 1970 UTC.
    pub milliseconds: i64,
}

/// The bytes every capture begins with.
#[must_use]
pub fn header() -> Vec<u8> {
    document(|w| {
        w.string("docward", "capture");
        w.int32("version", 1);
    })
}

/// One record.
#[must_use]
pub fn record(sender: &Sender<'_>, command: Document<'_>) -> Vec<u8> {
    document(|w: &mut Writer<'_>| {
        w.slot("t").date(sender.milliseconds);
        w.slot("conn").int64(sender.connection);
        w.string("client", sender.client);
        if let Some(app) = sender.app {
            w.string("app", app);
        }
        if let Some(users) = sender.users {
            w.array("users", |a| {
                for (database, user) in users {
                    a.nested(|w| {
                        w.string("user", user);
                        w.string("db", database);
                    });
                }
            });
        }
        w.value("command", Value::document(command));
    })
}

/// What a record says; `None` for one that has no command with a database.
#[must_use]
pub fn past(record: Document<'_>) -> Option<RecordedCommand> {
    let command = record.get("command")?.as_document()?;
    let database = command.get("$db")?.as_str()?;
    let text = |key| record.get(key).and_then(Value::as_str).map(str::to_owned);
    let users = record.get("users").and_then(Value::as_array).map(|users| users.values().filter_map(user).collect());
    let number = record.get("conn").and_then(Value::as_raw_i64).unwrap_or_default();
    let milliseconds = record.get("t").filter(|time| time.kind == Kind::DateTime).and_then(Value::as_raw_i64);
    let client = Client { app: text("app"), users, connection: number.cast_unsigned() };
    Some(RecordedCommand { client, milliseconds, asked: Asked::Command(kept(command, database)), partial: false })
}

/// A command of which only the name, its target and the database are kept.
#[must_use]
pub fn outline(command: Document<'_>) -> CowDocument<'static> {
    CowDocument::build(|w| {
        command.first().filter(|first| first.value.as_name_bytes().is_some()).into_iter().for_each(|e| w.element(e));
        command.elements().filter(|element| element.key == b"$db").for_each(|element| w.element(element));
    })
}

fn user(entry: Value<'_>) -> Option<(String, String)> {
    let entry = entry.as_document()?;
    Some((entry.get("db")?.as_str()?.to_owned(), entry.get("user")?.as_str()?.to_owned()))
}
