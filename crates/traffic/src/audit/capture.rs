//! A capture, as `docward record` and the admin address write it: a sequence of BSON documents, which `bsondump` can read.
//!
//! The first document identifies the file: `{docward: "capture", version: 1}`. Most further documents are one command
//! of a client: `t` (date), `conn` (int64, the same for one connection), `client` ("address:port"), `app` (appName,
//! if sent), `users` ([{user, db}], if known), `command` (its body, with the document sequences as arrays). The others
//! are the reply to the last command of a connection (`t`, `conn`, `reply`), the recorded servers (`servers`), and the end
//! of the capture with the number of commands that were omitted (`end`).
//! Readers skip documents that they do not know. Documents start with their length, so a truncated file is readable up
//! to the last whole one.

use std::collections::HashMap;

use super::ReplySummary;
use super::recorded::{Client, CommandFilter, RecordedCommand, RecordedContent, Unreadable, without_session_fields};
use crate::command::{CommandClass, Namespace, classify};
use crate::document::{CowDocument, Document, Kind, Value, Writer, document};

/// The longest record in bytes: a message of 48 MB and the fields around its command.
pub const MAX_RECORD_LENGTH: usize = (48 << 20) + (64 << 10);

/// The client data that is recorded with a command.
#[derive(Debug, Clone, Copy)]
pub struct CapturedClient<'s> {
    /// The same for all commands of one connection.
    pub connection: i64,
    /// "127.0.0.1:50000"
    pub client: &'s str,
    pub app: Option<&'s str>,
    pub users: Option<&'s [(String, String)]>,
    /// Milliseconds since 1970 UTC.
    pub milliseconds: i64,
}

/// The bytes at the start of every capture.
#[must_use]
pub fn header() -> Vec<u8> {
    document(|w| {
        w.string("docward", "capture");
        w.int32("version", 1);
    })
}

/// The bytes of one record.
#[must_use]
pub fn record(sender: &CapturedClient<'_>, command: Document<'_>) -> Vec<u8> {
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

/// The bytes of the record of a reply. `microseconds`: from sending the command to the end of the reply.
#[must_use]
pub fn reply_record(connection: i64, milliseconds: i64, microseconds: u64, reply: &ReplySummary) -> Vec<u8> {
    document(|w| {
        w.slot("t").date(milliseconds);
        w.slot("conn").int64(connection);
        w.nested("reply", |w| {
            w.integer("micros", i64::try_from(microseconds).unwrap_or(i64::MAX));
            reply.write(w);
        });
    })
}

/// The bytes of the record of the servers whose clients are recorded: names as `host:port`, and ids of processes.
#[must_use]
pub fn servers_record(servers: &[String]) -> Vec<u8> {
    document(|w| w.array("servers", |a| servers.iter().for_each(|server| a.string(server))))
}

/// The bytes of the longest [`CaptureEnd::record`].
pub const MAX_END_LENGTH: usize = 128;

/// The end of a capture that was not cut off: the last record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CaptureEnd {
    /// "time", "size", "operator", "signal"
    pub reason: String,
    /// Recorded commands.
    pub commands: u64,
    /// Commands that were omitted, because they came faster than they could be written.
    pub omitted: u64,
}

impl CaptureEnd {
    /// The bytes of its record.
    #[must_use]
    pub fn record(&self) -> Vec<u8> {
        let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        document(|w| {
            w.nested("end", |w| {
                w.string("reason", &self.reason);
                w.slot("commands").int64(count(self.commands));
                w.slot("omitted").int64(count(self.omitted));
            });
        })
    }

    /// Reads its record; `None` if it is another one.
    #[must_use]
    pub fn parse(record: &[u8]) -> Option<Self> {
        let end = Document::parse(record).ok()?.first().filter(|first| first.key == b"end")?.value.as_document()?;
        let count = |key| end.get(key).and_then(Value::as_raw_i64).and_then(|count| u64::try_from(count).ok());
        let reason = end.get("reason").and_then(Value::as_str)?.to_owned();
        Some(Self { reason, commands: count("commands")?, omitted: count("omitted")? })
    }
}

/// One record, for a replay.
#[derive(Debug)]
pub enum Record<'r> {
    Command {
        connection: i64,
        /// Milliseconds since 1970 UTC.
        milliseconds: i64,
        app: Option<&'r str>,
        /// With all its fields.
        command: Document<'r>,
    },
    /// The reply to the last command of the connection.
    Reply {
        connection: i64,
        microseconds: u64,
        reply: ReplySummary,
    },
    Servers(Vec<String>),
}

impl<'r> Record<'r> {
    /// Reads one record; `None` if it is of another kind.
    #[must_use]
    pub fn parse(record: Document<'r>) -> Option<Self> {
        if let Some(servers) = record.get("servers").and_then(Value::as_array) {
            return Some(Self::Servers(servers.values().filter_map(Value::as_str).map(str::to_owned).collect()));
        }
        let connection = record.get("conn").and_then(Value::as_raw_i64)?;
        if let Some(reply) = record.get("reply").and_then(Value::as_document) {
            let microseconds =
                reply.get("micros").and_then(Value::as_integer).and_then(|time| u64::try_from(time).ok());
            let microseconds = microseconds.unwrap_or_default();
            return Some(Self::Reply { connection, microseconds, reply: ReplySummary::from_record(reply) });
        }
        let milliseconds = record.get("t").filter(|time| time.kind == Kind::DateTime).and_then(Value::as_raw_i64)?;
        let app = record.get("app").and_then(Value::as_str);
        let command = record.get("command").and_then(Value::as_document)?;
        Some(Self::Command { connection, milliseconds, app, command })
    }
}

/// Commands that change no documents, but without which an application's traffic cannot be replayed.
const WITHOUT_DOCUMENTS: [&[u8]; 7] = [
    b"abortTransaction",
    b"commitTransaction",
    b"getMore",
    b"killCursors",
    b"listCollections",
    b"listIndexes",
    b"planCacheClear",
];

/// Whether a command is recorded: it can reach documents or change definitions, or a replay needs it. It never
/// contains credentials.
#[must_use]
pub fn is_recorded(name: &[u8]) -> bool {
    let class = classify(name);
    class.defines() || CommandClass::REACHING.contains(&class) || WITHOUT_DOCUMENTS.contains(&name)
}

/// Reads one record; `None` if it has no command with a database.
#[must_use]
pub fn parse_record(record: Document<'_>) -> Option<RecordedCommand> {
    let command = record.get("command")?.as_document()?;
    let database = command.get("$db")?.as_str()?;
    let text = |key| record.get(key).and_then(Value::as_str).map(str::to_owned);
    let users = record.get("users").and_then(Value::as_array).map(|users| users.values().filter_map(user).collect());
    let number = record.get("conn").and_then(Value::as_raw_i64).unwrap_or_default();
    let milliseconds = record.get("t").filter(|time| time.kind == Kind::DateTime).and_then(Value::as_raw_i64);
    let client = Client { app: text("app"), users, connection: number.cast_unsigned() };
    let content = RecordedContent::Command(without_session_fields(command, database));
    Some(RecordedCommand { client, milliseconds, line: 0, took: None, content, partial: false, reply: None })
}

/// Reads the records of a capture and joins each command with its reply.
#[derive(Debug, Default)]
pub struct CaptureReader {
    /// By connection: the command whose reply has not been read yet, and its number.
    pending: HashMap<i64, (u64, RecordedCommand)>,
    number: u64,
}

impl CaptureReader {
    /// Reads one record and adds the commands that are now complete to `out`.
    ///
    /// # Errors
    /// [`Unreadable`] if it is not a document.
    pub fn parse_record(
        &mut self,
        record: &[u8],
        wanted: &CommandFilter<'_>,
        out: &mut Vec<RecordedCommand>,
    ) -> Result<(), Unreadable> {
        let record = Document::parse(record).map_err(|error| Unreadable(error.to_string()))?;
        let connection = record.get("conn").and_then(Value::as_raw_i64).unwrap_or_default();
        if let Some(reply) = record.get("reply").and_then(Value::as_document) {
            let pending = self.pending.remove(&connection);
            out.extend(
                pending
                    .map(|(_, command)| RecordedCommand { reply: Some(ReplySummary::from_record(reply)), ..command }),
            );
            return Ok(());
        }
        let command = record.get("command").and_then(Value::as_document);
        let Some(first) = command.and_then(Document::first) else { return Ok(()) };
        out.extend(self.pending.remove(&connection).map(|(_, command)| command));
        let database = command.and_then(|command| command.get("$db")).and_then(Value::as_str).unwrap_or_default();
        let namespace = Namespace { database, collection: first.value.as_str().unwrap_or_default() };
        if wanted(namespace, classify(first.key), command.map(Document::as_bytes).unwrap_or_default()) {
            self.number += 1;
            let number = self.number;
            self.pending.extend(parse_record(record).map(|command| (connection, (number, command))));
        }
        Ok(())
    }

    /// Adds the commands that have no reply to `out`.
    pub fn finish(&mut self, out: &mut Vec<RecordedCommand>) {
        let mut left: Vec<(u64, RecordedCommand)> = self.pending.drain().map(|(_, pending)| pending).collect();
        left.sort_unstable_by_key(|(number, _)| *number);
        out.extend(left.into_iter().map(|(_, command)| command));
    }
}

/// A copy of a command with only its name, target and database.
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
