//! Reads mongod's structured log (4.4 and later): the "Slow query" lines, which contain commands.
//!
//! mongod 6.0 logs an update or delete in two parts: a WRITE line for each statement, then a COMMAND line with the
//! rest of the command but without statements. The reader joins them by connection (`ctx`). The documents of an
//! insert are never logged. Large commands are truncated, which `truncated` marks.

use std::borrow::Cow;
use std::collections::HashMap;

use memchr::memmem;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::recorded::{
    Client, CommandFilter, RecordedCommand, RecordedContent, TRUNCATED, Unreadable, comment, content_of, head, joined,
    namespace_of, statement, unknown_statements,
};
use crate::command::{CommandClass, Namespace, WriteForm};
use crate::document::CowDocument;
use crate::fnv::hash_of;
use crate::shell;

/// The most statements of one command held until its COMMAND line arrives; a longer batch is released in parts.
const MAX_HELD: usize = 1000;
/// The most bytes held in total.
const MAX_HELD_BYTES: usize = 32 << 20;

#[derive(Deserialize)]
struct LogLine<'a> {
    #[serde(borrow)]
    t: Option<LogTime<'a>>,
    #[serde(borrow, default)]
    ctx: Cow<'a, str>,
    #[serde(borrow)]
    attr: Attributes<'a>,
    #[serde(default)]
    truncated: Truncated,
}

#[derive(Deserialize)]
struct LogTime<'a> {
    #[serde(borrow, rename = "$date")]
    date: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Attributes<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    ns: Cow<'a, str>,
    #[serde(rename = "appName")]
    app: Option<String>,
    #[serde(borrow)]
    command: Option<&'a RawValue>,
    ninserted: Option<u64>,
    #[serde(rename = "durationMillis")]
    took: Option<u64>,
}

#[derive(Deserialize, Default)]
struct Truncated {
    command: Option<IgnoredAny>,
}

/// Whether a line looks like one of mongod's structured log.
#[must_use]
pub fn is_line(line: &[u8]) -> bool {
    memmem::find(line, b"\"ctx\":").is_some() && memmem::find(line, b"\"msg\":").is_some()
}

/// Reads lines of a log.
#[derive(Debug, Default)]
pub struct LogReader {
    held: HashMap<u64, PendingStatements>,
    held_bytes: usize,
}

/// Statements whose COMMAND line has not arrived yet.
#[derive(Debug)]
struct PendingStatements {
    client: Client,
    milliseconds: Option<i64>,
    took: Option<u64>,
    namespace: (String, String),
    form: WriteForm,
    statements: Vec<CowDocument<'static>>,
    /// The comment of the command.
    comment: Option<CowDocument<'static>>,
    truncated: u64,
    bytes: usize,
}

impl LogReader {
    /// Reads one line and adds the commands that are now complete to `out`.
    ///
    /// # Errors
    /// [`Unreadable`] for a "Slow query" line that does not have mongod's format.
    pub fn parse_line(
        &mut self,
        line: &[u8],
        wanted: &CommandFilter<'_>,
        out: &mut Vec<RecordedCommand>,
    ) -> Result<(), Unreadable> {
        if memmem::find(line, b"\"Slow query\"").is_none() {
            return Ok(());
        }
        let line: LogLine<'_> = serde_json::from_slice(line).map_err(|error| Unreadable(error.to_string()))?;
        let Some((namespace, command)) = namespace_of(&line.attr.ns).zip(line.attr.command) else { return Ok(()) };
        let read = LineContent {
            client: Client { app: line.attr.app, users: None, connection: hash_of(line.ctx.as_bytes()) },
            milliseconds: line.t.and_then(|time| milliseconds(&time.date)),
            took: line.attr.took,
            namespace,
            json: command.get(),
            truncated: line.truncated.command.is_some(),
        };
        match &*line.attr.kind {
            "update" => self.hold(read, WriteForm::Update, wanted, out),
            "remove" => self.hold(read, WriteForm::Delete, wanted, out),
            "command" => self.command(read, line.attr.ninserted, wanted, out),
            _ => Ok(()),
        }
    }

    /// Adds all statements still held to `out`.
    pub fn finish(&mut self, out: &mut Vec<RecordedCommand>) {
        let mut left: Vec<(u64, PendingStatements)> = self.held.drain().collect();
        left.sort_unstable_by_key(|(connection, _)| *connection);
        self.held_bytes = 0;
        left.into_iter().for_each(|(_, held)| held.release(None, out));
    }

    /// Handles a WRITE line.
    fn hold(
        &mut self,
        read: LineContent<'_>,
        form: WriteForm,
        wanted: &CommandFilter<'_>,
        out: &mut Vec<RecordedCommand>,
    ) -> Result<(), Unreadable> {
        let class = class_of(form);
        let key = read.client.connection;
        let same =
            |held: &PendingStatements| held.belongs_to(class, read.namespace) && held.statements.len() < MAX_HELD;
        if !self.held.get(&key).is_some_and(same) {
            self.release(key, None, out);
        }
        if !wanted(read.namespace, class, read.json.as_bytes()) {
            return Ok(());
        }
        let logged = read.parse_command()?;
        let held = self.held.entry(key).or_insert_with(|| PendingStatements {
            namespace: (read.namespace.database.to_owned(), read.namespace.collection.to_owned()),
            client: read.client,
            milliseconds: read.milliseconds,
            took: read.took,
            form,
            statements: Vec::new(),
            comment: None,
            truncated: 0,
            bytes: 0,
        });
        match logged {
            None => held.truncated += 1,
            Some(logged) => {
                held.statements.push(statement(form, logged.as_document()));
                held.comment = held.comment.take().or_else(|| comment(logged.as_document()));
            }
        }
        held.bytes += read.json.len();
        self.held_bytes += read.json.len();
        if self.held_bytes > MAX_HELD_BYTES {
            self.finish(out);
        }
        Ok(())
    }

    /// Handles a COMMAND line.
    fn command(
        &mut self,
        read: LineContent<'_>,
        inserted: Option<u64>,
        wanted: &CommandFilter<'_>,
        out: &mut Vec<RecordedCommand>,
    ) -> Result<(), Unreadable> {
        let key = read.client.connection;
        let Some((class, target)) = head(read.json) else {
            self.release(key, None, out);
            return Ok(());
        };
        let namespace = Namespace { collection: target.unwrap_or(read.namespace.collection), ..read.namespace };
        if self.held.get(&key).is_some_and(|held| held.belongs_to(class, namespace)) {
            if !read.has_statements(class) {
                let command = read.parse_command();
                self.release(key, command.as_ref().ok().and_then(Option::as_ref), out);
                return command.map(|_| ());
            }
            self.forget(key);
        }
        self.release(key, None, out);
        if !wanted(namespace, class, read.json.as_bytes()) {
            return Ok(());
        }
        let content = match read.parse_command()? {
            None => unknown_statements(namespace, class, inserted, TRUNCATED),
            Some(document) => content_of(document.as_document(), namespace, class, inserted),
        };
        let LineContent { client, milliseconds, took, .. } = read;
        out.push(RecordedCommand { client, milliseconds, took, content, partial: false, reply: None });
        Ok(())
    }

    fn forget(&mut self, key: u64) -> Option<PendingStatements> {
        let held = self.held.remove(&key)?;
        self.held_bytes = self.held_bytes.saturating_sub(held.bytes);
        Some(held)
    }

    fn release(&mut self, key: u64, command: Option<&CowDocument<'static>>, out: &mut Vec<RecordedCommand>) {
        if let Some(held) = self.forget(key) {
            held.release(command, out);
        }
    }
}

/// The content of a line.
struct LineContent<'l> {
    client: Client,
    milliseconds: Option<i64>,
    took: Option<u64>,
    namespace: Namespace<'l>,
    json: &'l str,
    truncated: bool,
}

impl LineContent<'_> {
    /// The command; `None` if it is truncated.
    fn parse_command(&self) -> Result<Option<CowDocument<'static>>, Unreadable> {
        if self.truncated {
            return Ok(None);
        }
        shell::document(self.json).map(Some).map_err(|error| Unreadable(error.to_string()))
    }

    /// Some drivers send statements in the body: mongod logs a single one again, and several only as their number.
    fn has_statements(&self, class: CommandClass) -> bool {
        let list = WriteForm::for_class(class).and_then(WriteForm::list);
        !self.truncated && list.is_some_and(|list| self.json.contains(&format!("\"{list}\":[")))
    }
}

impl PendingStatements {
    /// Whether these statements can belong to a command of this class and namespace.
    fn belongs_to(&self, class: CommandClass, namespace: Namespace<'_>) -> bool {
        let (database, collection) = &self.namespace;
        Some(self.form) == WriteForm::for_class(class)
            && (database.as_str(), collection.as_str()) == (namespace.database, namespace.collection)
    }

    fn release(self, command: Option<&CowDocument<'static>>, out: &mut Vec<RecordedCommand>) {
        let Self { client, milliseconds, took, form, .. } = self;
        let (database, collection) = self.namespace;
        let namespace = Namespace { database: &database, collection: &collection };
        if self.truncated > 0 {
            let content = unknown_statements(namespace, class_of(form), Some(self.truncated), TRUNCATED);
            out.push(RecordedCommand {
                client: client.clone(),
                milliseconds,
                took,
                content,
                partial: false,
                reply: None,
            });
        }
        if self.statements.is_empty() {
            return;
        }
        let partial = command.is_none();
        let rest = command.or(self.comment.as_ref()).map(CowDocument::as_document);
        let command = joined(form, namespace, rest, &self.statements);
        out.extend(command.map(|command| RecordedCommand {
            client,
            milliseconds,
            took,
            content: RecordedContent::Command(command),
            partial,
            reply: None,
        }));
    }
}

/// The class of a logged statement.
fn class_of(form: WriteForm) -> CommandClass {
    if form == WriteForm::Delete { CommandClass::Delete } else { CommandClass::Update }
}

/// Parses RFC 3339 into milliseconds since 1970 UTC.
pub(super) fn milliseconds(text: &str) -> Option<i64> {
    bson::DateTime::parse_rfc3339_str(text).ok().map(bson::DateTime::timestamp_millis)
}
