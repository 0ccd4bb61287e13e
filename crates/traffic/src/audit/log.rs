//! Reads mongod's structured log (4.4 and later): the "Slow query" lines, which contain commands.
//!
//! mongod 6.0 logs an update or delete in two parts: a WRITE line for each statement, then a COMMAND line with the
//! rest of the command but without statements. The reader joins them by connection (`ctx` and `remote`). Logs that are
//! merged by time can have the COMMAND line first. The documents of an insert are never logged. Large commands are
//! truncated, which `truncated` marks; `redactClientLogData` masks all values.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use memchr::memmem;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::recorded::{
    Client, CommandFilter, MASK, MASKED, RecordedCommand, RecordedContent, TRUNCATED, Unreadable, comment, content_of,
    head, is_masked, is_of_merge, joined, namespace_of, statement, unknown_statements,
};
use super::reply_summary::{ExtendedNumber, ReplySummary};
use crate::command::{CommandClass, Namespace, WriteForm};
use crate::document::{CowDocument, Document};
use crate::fnv::hash_of;
use crate::shell;

/// The most statements of one command held until its COMMAND line arrives; a longer batch is released in parts.
const MAX_HELD: usize = 1000;
/// The most commands of one connection that are held.
const MAX_PENDING: usize = 16;
/// The most bytes held in total.
const MAX_HELD_BYTES: usize = 32 << 20;
/// How long the lines of one command are waited for, in milliseconds of the log's time.
const MAX_WAIT: u64 = 2000;

#[derive(Deserialize)]
struct LogLine<'a> {
    #[serde(borrow)]
    t: Option<&'a RawValue>,
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
    #[serde(borrow, default)]
    remote: Cow<'a, str>,
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

#[derive(Deserialize, Default)]
struct Truncated {
    command: Option<IgnoredAny>,
}

/// The field that each logged command has, after those that the client's driver chose.
const DATABASE: &str = "$db";

/// Whether a line of a log has a command.
#[must_use]
pub fn is_command(line: &[u8]) -> bool {
    memmem::find(line, b"\"Slow query\"").is_some()
}

/// Whether a line looks like one of mongod's structured log.
#[must_use]
pub fn is_line(line: &[u8]) -> bool {
    memmem::find(line, b"\"ctx\"").is_some() && memmem::find(line, b"\"msg\"").is_some()
}

/// Reads lines of a log.
#[derive(Debug, Default)]
pub struct LogReader {
    /// By connection. Lines of the same millisecond can have any order.
    held: HashMap<u64, Vec<PendingStatements>>,
    held_bytes: usize,
    lines: i64,
    /// The time of the line at which what was held too long was last released.
    released: i64,
}

/// What the lines of a connection show of one command, until the command is complete.
#[derive(Debug)]
struct PendingStatements {
    client: Client,
    milliseconds: Option<i64>,
    /// The time of its last line.
    last: Option<i64>,
    line: i64,
    took: Option<u64>,
    reply: Option<ReplySummary>,
    namespace: (String, String),
    form: WriteForm,
    statements: Vec<LoggedStatement>,
    /// The comment of the command.
    comment: Option<CowDocument<'static>>,
    /// Statements that their lines do not contain, by reason.
    unknown: BTreeMap<&'static str, u64>,
    /// The COMMAND line, if it came before the statements.
    command: Option<CommandLine>,
    bytes: usize,
}

/// A WRITE line.
#[derive(Debug)]
struct LoggedStatement {
    milliseconds: Option<i64>,
    line: i64,
    took: Option<u64>,
    reply: Option<ReplySummary>,
    content: CowDocument<'static>,
}

/// A COMMAND line whose statements may have lines of their own.
#[derive(Debug)]
struct CommandLine {
    content: RecordedContent,
    /// The command without statements, if it is known.
    rest: Option<CowDocument<'static>>,
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
        if !is_command(line) {
            return Ok(());
        }
        let line: LogLine<'_> = serde_json::from_slice(line).map_err(Unreadable::from)?;
        let attr = line.attr;
        let Some((namespace, command)) = namespace_of(&attr.ns).zip(attr.command) else { return Ok(()) };
        // Logs of several servers have connections with the same number.
        let connection = hash_of(&[line.ctx.as_bytes(), attr.remote.as_bytes()].concat());
        self.lines += 1;
        let read = LineContent {
            client: Client { app: attr.app, users: None, connection },
            milliseconds: line.t.and_then(time),
            line: self.lines,
            took: attr.took,
            reply: ReplySummary::of_counts([attr.matched, attr.upserted, attr.deleted, attr.modified, attr.code]),
            namespace,
            json: command.get(),
            truncated: line.truncated.command.is_some(),
        };
        self.release_old(read.milliseconds, out);
        let done = match &*attr.kind {
            "update" => self.hold(read, WriteForm::Update, wanted, out),
            "remove" => self.hold(read, WriteForm::Delete, wanted, out),
            "command" => self.command(read, attr.ninserted, wanted, out),
            _ => Ok(()),
        };
        if self.held_bytes > MAX_HELD_BYTES {
            self.finish(out);
        }
        done
    }

    /// Adds all statements still held to `out`.
    pub fn finish(&mut self, out: &mut Vec<RecordedCommand>) {
        let mut left: Vec<PendingStatements> = self.held.drain().flat_map(|(_, held)| held).collect();
        left.sort_unstable_by_key(|held| held.line);
        self.held_bytes = 0;
        left.into_iter().for_each(|held| held.release(None, out));
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
        let same = |held: &PendingStatements| {
            let is_in_time = match held.command {
                None => read.milliseconds.zip(held.last).is_none_or(|(now, last)| now.abs_diff(last) <= MAX_WAIT),
                Some(_) => read.milliseconds <= held.milliseconds,
            };
            is_in_time && held.belongs_to(class, Some(read.namespace))
        };
        let mut held = self.take(key, same);
        self.release_earlier(key, read.milliseconds, out);
        if wanted(read.namespace, class, read.json.as_bytes()) && !is_of_merge(read.json) {
            // mongod writes them last, whatever the client sent.
            let logged = match read.parse_command(if form == WriteForm::Delete { "limit" } else { "upsert" }) {
                Ok(logged) => logged,
                Err(error) => {
                    held.into_iter().for_each(|held| self.hold_again(key, held));
                    return Err(error);
                }
            };
            let held = held.get_or_insert_with(|| read.pending(read.namespace, form, None));
            match logged {
                Err(reason) => *held.unknown.entry(reason).or_default() += 1,
                Ok(logged) => {
                    held.statements.push(LoggedStatement {
                        milliseconds: read.milliseconds,
                        line: read.line,
                        took: read.took,
                        reply: read.reply.clone(),
                        content: statement(form, logged.as_document()),
                    });
                    held.comment = held.comment.take().or_else(|| comment(logged.as_document()));
                }
            }
            held.last = read.milliseconds;
            held.bytes += read.json.len();
        }
        match held {
            Some(full) if full.statements.len() >= MAX_HELD => full.release(None, out),
            held => held.into_iter().for_each(|held| self.hold_again(key, held)),
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
        let Some((class, target)) = head(read.json)? else {
            self.release_earlier(key, read.milliseconds, out);
            return Ok(());
        };
        let named = target.filter(|target| *target != MASK);
        let namespace = Namespace { collection: named.unwrap_or(read.namespace.collection), ..read.namespace };
        let is_named = target.is_none() || named.is_some();
        let follows =
            |held: &PendingStatements| held.command.is_none() && held.belongs_to(class, is_named.then_some(namespace));
        let held = self.take(key, follows);
        self.release_earlier(key, read.milliseconds, out);
        if let Some(held) = held {
            let command = read.parse_command(DATABASE);
            if !command.as_ref().is_ok_and(|command| has_statements(class, command.as_ref().ok())) {
                held.release(command.as_ref().ok().and_then(|command| command.as_ref().ok()), out);
                return command.map(|_| ());
            }
        }
        if !is_named && namespace.collection.starts_with('$') && CommandClass::REACHING.contains(&class) {
            return Err(Unreadable("the source masks the name of the collection".to_owned()));
        }
        if !wanted(namespace, class, read.json.as_bytes()) {
            return Ok(());
        }
        let (content, rest) = match read.parse_command(DATABASE)? {
            Err(reason) => (unknown_statements(namespace, class, inserted, reason), None),
            Ok(document) => (content_of(document.as_document(), namespace, class, inserted), Some(document)),
        };
        match WriteForm::for_class(class) {
            Some(form @ (WriteForm::Update | WriteForm::Delete)) => {
                let pending = read.pending(namespace, form, Some(CommandLine { content, rest }));
                self.hold_again(key, PendingStatements { bytes: read.json.len(), ..pending });
            }
            _ => {
                let LineContent { client, milliseconds, line, took, reply, .. } = read;
                out.push(RecordedCommand { client, milliseconds, line, took, content, partial: false, reply });
            }
        }
        Ok(())
    }

    /// Takes what a connection has of a command.
    fn take(&mut self, key: u64, is_wanted: impl FnMut(&PendingStatements) -> bool) -> Option<PendingStatements> {
        let held = self.held.get_mut(&key)?;
        // The nearest: in a log with the newest line first, older commands follow.
        let taken = held.remove(held.iter().rposition(is_wanted)?);
        self.held_bytes = self.held_bytes.saturating_sub(taken.bytes);
        Some(taken)
    }

    fn hold_again(&mut self, key: u64, pending: PendingStatements) {
        self.held_bytes += pending.bytes;
        self.held.entry(key).or_default().push(pending);
    }

    /// Releases what has had no line for long: its connection may have none for hours.
    fn release_old(&mut self, milliseconds: Option<i64>, out: &mut Vec<RecordedCommand>) {
        let Some(now) = milliseconds.filter(|now| now.abs_diff(self.released) > MAX_WAIT) else { return };
        self.released = now;
        let is_old = |held: &mut PendingStatements| held.last.is_none_or(|last| last.abs_diff(now) > MAX_WAIT);
        let bytes = &mut self.held_bytes;
        self.held.retain(|_, held| {
            for old in held.extract_if(.., is_old) {
                *bytes = bytes.saturating_sub(old.bytes);
                old.release(None, out);
            }
            !held.is_empty()
        });
    }

    /// Releases what a connection has from before the time of its next line.
    fn release_earlier(&mut self, key: u64, milliseconds: Option<i64>, out: &mut Vec<RecordedCommand>) {
        let is_full = self.held.get(&key).is_some_and(|held| held.len() >= MAX_PENDING);
        let is_due = |held: &PendingStatements| is_full || milliseconds.is_none() || held.milliseconds < milliseconds;
        while let Some(earlier) = self.take(key, is_due) {
            earlier.release(None, out);
        }
        if self.held.get(&key).is_some_and(Vec::is_empty) {
            self.held.remove(&key);
        }
    }
}

/// The content of a line.
struct LineContent<'l> {
    client: Client,
    milliseconds: Option<i64>,
    line: i64,
    took: Option<u64>,
    reply: Option<ReplySummary>,
    namespace: Namespace<'l>,
    json: &'l str,
    truncated: bool,
}

impl LineContent<'_> {
    /// The command; the inner error is the reason why the line does not contain it. A whole one has the field `last`: what
    /// formats a log may drop the mark of a truncated one.
    fn parse_command(&self, last: &str) -> Result<Result<CowDocument<'static>, &'static str>, Unreadable> {
        if self.truncated {
            return Ok(Err(TRUNCATED));
        }
        let command = shell::document(self.json).map_err(|error| Unreadable(error.to_string()))?;
        Ok(match command.as_document() {
            document if is_masked(document) => Err(MASKED),
            document if document.get(last).is_none() => Err(TRUNCATED),
            _ => Ok(command),
        })
    }

    fn pending(&self, namespace: Namespace<'_>, form: WriteForm, command: Option<CommandLine>) -> PendingStatements {
        PendingStatements {
            namespace: (namespace.database.to_owned(), namespace.collection.to_owned()),
            client: self.client.clone(),
            milliseconds: self.milliseconds,
            last: self.milliseconds,
            line: self.line,
            took: self.took,
            reply: self.reply.clone(),
            form,
            statements: Vec::new(),
            comment: None,
            unknown: BTreeMap::new(),
            command,
            bytes: 0,
        }
    }
}

/// Some drivers send statements in the body: mongod logs a single one again, and several only as their number.
fn has_statements(class: CommandClass, command: Option<&CowDocument<'static>>) -> bool {
    let list = WriteForm::for_class(class).and_then(WriteForm::list);
    let statements = list.zip(command).and_then(|(list, command)| command.as_document().get(list));
    statements.is_some_and(|statements| statements.as_array().is_some())
}

impl PendingStatements {
    /// Whether these statements can belong to a command of this class and namespace. `None`: its name is masked.
    fn belongs_to(&self, class: CommandClass, namespace: Option<Namespace<'_>>) -> bool {
        let (database, collection) = &self.namespace;
        let is_same = |namespace: Namespace<'_>| {
            (database.as_str(), collection.as_str()) == (namespace.database, namespace.collection)
        };
        Some(self.form) == WriteForm::for_class(class) && namespace.is_none_or(is_same)
    }

    /// `command`: the COMMAND line that came after the statements.
    fn release(self, command: Option<&CowDocument<'static>>, out: &mut Vec<RecordedCommand>) {
        let Self { client, milliseconds, line, took, form, statements, unknown, .. } = self;
        let (database, collection) = self.namespace;
        let namespace = Namespace { database: &database, collection: &collection };
        let reply = self.reply.filter(|_| statements.len() <= 1);
        let place = (milliseconds, line, took);
        let mut push = |(milliseconds, line, took), content, partial, reply| {
            out.push(RecordedCommand { client: client.clone(), milliseconds, line, took, content, partial, reply });
        };
        let rest = match self.command {
            // What has the statements already, or has none of its own.
            Some(CommandLine { content, .. })
                if matches!(content, RecordedContent::Command(_)) || (statements.is_empty() && unknown.is_empty()) =>
            {
                return push(place, content, false, reply);
            }
            Some(CommandLine { rest, .. }) => rest,
            None => command.cloned(),
        };
        for (reason, count) in unknown {
            push(place, unknown_statements(namespace, class_of(form), Some(count), reason), false, None);
        }
        let Some(rest) = rest else {
            // It is not known which of them were sent together.
            let comment = self.comment.as_ref().map(CowDocument::as_document);
            for LoggedStatement { milliseconds, line, took, reply, content } in statements {
                let command = joined(form, namespace, comment, &[content.as_document()]);
                let content = command.map(RecordedContent::Command);
                content.into_iter().for_each(|one| push((milliseconds, line, took), one, true, reply.clone()));
            }
            return;
        };
        let statements: Vec<Document<'_>> = statements.iter().map(|one| one.content.as_document()).collect();
        let command = joined(form, namespace, Some(rest.as_document()), &statements).filter(|_| !statements.is_empty());
        command.into_iter().for_each(|command| push(place, RecordedContent::Command(command), false, reply.clone()));
    }
}

/// The class of a logged statement.
fn class_of(form: WriteForm) -> CommandClass {
    if form == WriteForm::Delete { CommandClass::Delete } else { CommandClass::Update }
}

/// The time of a line in milliseconds since 1970 UTC. Collectors of logs write it in other forms than mongod.
fn time(json: &RawValue) -> Option<i64> {
    if let Ok(LogTime { date }) = serde_json::from_str(json.get()) {
        return milliseconds(&date);
    }
    let value: serde_json::Value = serde_json::from_str(json.get()).ok()?;
    value.as_str().map_or_else(|| date(&value), milliseconds)
}

/// A date in Extended JSON as milliseconds since 1970 UTC.
pub(super) fn date(value: &serde_json::Value) -> Option<i64> {
    let date = value.get("$date")?;
    date.as_str().and_then(milliseconds).or_else(|| ExtendedNumber::deserialize(date).ok()?.0)
}

/// Parses RFC 3339 into milliseconds since 1970 UTC.
pub(super) fn milliseconds(text: &str) -> Option<i64> {
    bson::DateTime::parse_rfc3339_str(text).ok().map(bson::DateTime::timestamp_millis)
}

/// The servers that a line of a log names, as `host:port`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LogServers {
    /// The server that writes the log; in lines about its start and about the rotation of the log.
    pub own: Option<String>,
    /// The members of its replica set, in lines about a new configuration.
    pub members: Vec<String>,
}

/// The servers that a line about the start of mongod or the configuration of its replica set names.
#[must_use]
pub fn servers(line: &[u8]) -> LogServers {
    const IDS: [&[u8]; 3] = [b"MongoDB starting", b"Process Details", b"New replica set config in use"];
    if !IDS.iter().any(|id| memmem::find(line, id).is_some()) {
        return LogServers::default();
    }
    let line: serde_json::Value = serde_json::from_slice(line).unwrap_or_default();
    let text =
        |value: &serde_json::Value, name: &str| value.get(name).and_then(|host| host.as_str().map(str::to_owned));
    let Some(attr) = line.get("attr") else { return LogServers::default() };
    // Process Details has the port as a text.
    let port = text(attr, "port").or_else(|| attr.get("port")?.as_u64().map(|port| port.to_string()));
    let own = text(attr, "host").zip(port).map(|(host, port)| format!("{host}:{port}"));
    let members = line.pointer("/attr/config/members").and_then(serde_json::Value::as_array);
    LogServers { own, members: members.into_iter().flatten().filter_map(|member| text(member, "host")).collect() }
}
