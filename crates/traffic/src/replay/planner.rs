//! Makes actions of recorded commands.
//!
//! - A recorded session becomes a session of the replay. It keeps its transaction numbers, so its actions keep their order,
//!   also on different connections.
//! - A getMore continues the cursor that the target opened for the recorded one. If the recording contains no replies, it
//!   is the last cursor of the same session (or connection) and collection.
//! - Cluster times, and read concerns at one, belong to the recorded deployment and are removed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use smallvec::SmallVec;

use super::{Action, SessionId};
use crate::audit::ReplySummary;
use crate::audit::capture::is_recorded;
use crate::command::{CommandClass, CommandName, classify, is_internal, own};
use crate::document::{CowDocument, Document, Element, Value, Writer};

/// The most collections whose documents are compared after a replay.
const MAX_WRITTEN: usize = 1000;

/// Why a recorded command is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotSent {
    Incomplete,
    Unknown,
    Server,
    Own,
    Cursor,
    Session,
    Time,
}

impl NotSent {
    /// Returns the reason, as a clause.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Incomplete => "the recording does not contain the whole command with its values",
            Self::Unknown => "docward does not know the command, and records only its name",
            Self::Server => "it is about servers, users or connections, or a database of the server itself",
            Self::Own => "docward sent it for its own work",
            Self::Cursor => "it names a cursor that was opened before the recording, or that is closed",
            Self::Session => "the recording does not contain its session",
            Self::Time => "the recording does not contain its time",
        }
    }
}

/// The recorded reply to an action.
#[derive(Debug, Clone, Copy)]
pub struct RecordedReply {
    pub name: CommandName,
    pub microseconds: u64,
}

/// The last action of a recorded connection.
#[derive(Debug, Clone)]
struct LastAction {
    number: u64,
    name: CommandName,
    opens: Option<CursorOpener>,
}

/// Where a cursor may be continued: a session or connection, a database and a collection.
type CursorOpener = (Owner, Box<str>, Box<str>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Owner {
    Session(SessionId),
    Connection(u64),
}

/// Takes the entries of a recording in order.
#[derive(Debug)]
pub struct ReplayPlanner {
    /// Different for each replay, so that sessions of two replays differ.
    salt: SessionId,
    /// The last action of each stream, from an earlier pass.
    ends: HashMap<u64, u64>,
    number: u64,
    last: HashMap<u64, Option<LastAction>>,
    /// The last action of each stream so far.
    streams: HashMap<u64, u64>,
    /// The connection and number of the last action of each session.
    sessions: HashMap<SessionId, (u64, u64)>,
    /// Recorded cursors, and the actions that open them.
    cursors: HashMap<i64, u64>,
    /// Actions that may have opened a cursor, where no reply was recorded.
    unclaimed: HashMap<CursorOpener, u64>,
    not_sent: BTreeMap<NotSent, u64>,
    written: BTreeSet<(String, String)>,
}

impl ReplayPlanner {
    /// `salt` should be random. `ends`: [`Self::ends`] of an earlier pass; empty if they are not known.
    #[must_use]
    pub fn new(salt: [u8; 16], ends: HashMap<u64, u64>) -> Self {
        Self {
            salt,
            ends,
            number: 0,
            last: HashMap::new(),
            streams: HashMap::new(),
            sessions: HashMap::new(),
            cursors: HashMap::new(),
            unclaimed: HashMap::new(),
            not_sent: BTreeMap::new(),
            written: BTreeSet::new(),
        }
    }

    /// Returns the last action of each stream so far.
    #[must_use]
    pub fn ends(&self) -> HashMap<u64, u64> {
        self.streams.clone()
    }

    /// Returns the number of streams so far.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Returns the number of commands that are not sent, by reason.
    #[must_use]
    pub fn not_sent(&self) -> &BTreeMap<NotSent, u64> {
        &self.not_sent
    }

    /// Returns the collections that the actions so far may have changed.
    #[must_use]
    pub fn written(&self) -> &BTreeSet<(String, String)> {
        &self.written
    }

    /// Returns the ids of the sessions of all actions so far.
    pub fn sessions(&self) -> impl Iterator<Item = [u8; 16]> {
        self.sessions.keys().map(|recorded| self.fresh(*recorded))
    }

    /// Plans a recorded command. `milliseconds`: since 1970 UTC.
    ///
    /// # Errors
    /// It is not sent.
    pub fn command(
        &mut self,
        stream: u64,
        milliseconds: i64,
        app: Option<&str>,
        command: Document<'_>,
    ) -> Result<Box<Action>, NotSent> {
        let planned = self.plan(stream, milliseconds, app, command);
        planned.map(Box::new).inspect_err(|reason| self.skip(stream, *reason))
    }

    /// Notes a recorded command whose statements the recording does not contain.
    pub fn unknown_statements(&mut self, stream: u64) {
        self.skip(stream, NotSent::Incomplete);
    }

    /// Notes a recorded command whose time the recording does not contain.
    pub fn without_time(&mut self) {
        *self.not_sent.entry(NotSent::Time).or_default() += 1;
    }

    /// Notes the recorded reply to the last command of a connection.
    pub fn reply(&mut self, stream: u64, microseconds: u64, reply: &ReplySummary) -> Option<RecordedReply> {
        let last = self.last.get_mut(&stream)?.as_mut()?;
        if let Some(opener) = last.opens.take() {
            // The reply shows whether there is a cursor.
            self.unclaimed.remove(&opener);
        }
        if reply.cursor != 0 {
            let number = last.number;
            self.cursors.entry(reply.cursor).or_insert(number);
        }
        Some(RecordedReply { name: last.name, microseconds })
    }

    fn skip(&mut self, stream: u64, reason: NotSent) {
        self.last.insert(stream, None);
        *self.not_sent.entry(reason).or_default() += 1;
    }

    fn plan(
        &mut self,
        stream: u64,
        milliseconds: i64,
        app: Option<&str>,
        command: Document<'_>,
    ) -> Result<Action, NotSent> {
        let first = command.first().ok_or(NotSent::Incomplete)?;
        let database = command.get("$db").and_then(Value::as_str).ok_or(NotSent::Incomplete)?;
        let class = classify(first.key);
        if class == CommandClass::Unknown {
            return Err(if is_internal(first.key) { NotSent::Server } else { NotSent::Unknown });
        }
        let in_transaction = command.get("autocommit").and_then(Value::as_bool) == Some(false);
        // The rest of a transaction needs the command that begins it.
        if database == own::DATABASE || !in_transaction && own::is_own(app, command.as_bytes()) {
            return Err(NotSent::Own);
        }
        if !is_played(first.key, class, database) {
            return Err(NotSent::Server);
        }
        let session = session_of(command);
        let ends_transaction = matches!(first.key, b"commitTransaction" | b"abortTransaction");
        if ends_transaction && session.is_none() {
            return Err(NotSent::Session);
        }
        let owner = session.map_or(Owner::Connection(stream), Owner::Session);
        let cursors = self.cursors_of(first, command, owner, database)?;
        let number = self.number;
        self.number += 1;
        let previous = session.and_then(|session| self.sessions.insert(session, (stream, number)));
        let begins_stream = self.streams.insert(stream, number).is_none();
        let opener = cursor_opener(first, class, owner, database);
        opener.iter().for_each(|opener| _ = self.unclaimed.insert(opener.clone(), number));
        let name = CommandName::from_bytes(first.key);
        self.last.insert(stream, Some(LastAction { number, name, opens: opener }));
        self.note_written(first, class, database, command);
        let collection = first.value.as_name().or_else(|| command.get("collection").and_then(Value::as_name));
        Ok(Action {
            number,
            stream,
            milliseconds,
            name,
            app: app.map(Into::into),
            namespace: collection.map_or_else(|| database.into(), |name| format!("{database}.{name}").into()),
            after: previous.filter(|(other, _)| *other != stream).map(|(_, number)| number),
            begins_stream,
            ends_stream: self.ends.get(&stream) == Some(&number),
            cursors,
            transaction: session.filter(|_| in_transaction).map(|session| self.fresh(session)),
            in_transaction: in_transaction && !ends_transaction,
            command: self.playable(command),
        })
    }

    /// The actions that open the cursors which a command names.
    fn cursors_of(
        &mut self,
        first: Element<'_>,
        command: Document<'_>,
        owner: Owner,
        database: &str,
    ) -> Result<SmallVec<[u64; 1]>, NotSent> {
        let collection = || command.get("collection").and_then(Value::as_str).unwrap_or_default();
        let found: SmallVec<[u64; 1]> = match first.key {
            b"getMore" => {
                let recorded = first.value.as_integer().ok_or(NotSent::Incomplete)?;
                let known = self.cursors.get(&recorded).copied();
                let known = known.or_else(|| {
                    let claimed = self.unclaimed.remove(&(owner, database.into(), collection().into()))?;
                    self.cursors.insert(recorded, claimed);
                    Some(claimed)
                });
                known.into_iter().collect()
            }
            b"killCursors" => {
                let named = command.get("cursors").and_then(Value::as_array).unwrap_or(Document::EMPTY).values();
                named.filter_map(|cursor| self.cursors.remove(&cursor.as_integer()?)).collect()
            }
            _ => return Ok(SmallVec::new()),
        };
        if found.is_empty() { Err(NotSent::Cursor) } else { Ok(found) }
    }

    /// The command as it is sent.
    fn playable(&self, command: Document<'_>) -> CowDocument<'static> {
        CowDocument::build(|w| {
            for element in command.elements() {
                match element.key {
                    b"lsid" => {
                        if let Some(session) = session_of(command) {
                            let id = crate::document::OwnedValue::uuid(self.fresh(session));
                            w.nested("lsid", |w| w.value("id", id.as_value()));
                        }
                    }
                    b"readConcern" => read_concern(w, element.value),
                    b"$db" | b"$readPreference" => w.element(element),
                    b"recoveryToken" => {}
                    key if key.starts_with(b"$") => {}
                    _ => w.element(element),
                }
            }
        })
    }

    fn fresh(&self, recorded: SessionId) -> SessionId {
        let mut fresh = self.salt;
        fresh.iter_mut().zip(recorded).for_each(|(byte, recorded)| *byte ^= recorded);
        fresh
    }

    fn note_written(&mut self, first: Element<'_>, class: CommandClass, database: &str, command: Document<'_>) {
        let mut note = |database: &str, collection: &str| {
            if self.written.len() < MAX_WRITTEN {
                self.written.insert((database.to_owned(), collection.to_owned()));
            }
        };
        match class {
            CommandClass::Insert | CommandClass::Update | CommandClass::Delete | CommandClass::FindAndModify => {
                first.value.as_name().into_iter().for_each(|collection| note(database, collection));
            }
            CommandClass::BulkWrite => {
                let names = command.get("nsInfo").and_then(Value::as_array).unwrap_or(Document::EMPTY).values();
                let names = names.filter_map(|entry| entry.as_document()?.get("ns")?.as_str()?.split_once('.'));
                names.for_each(|(database, collection)| note(database, collection));
            }
            _ => {}
        }
    }
}

/// Whether a replay sends a command. Commands on the databases of the server are monitoring or administration.
fn is_played(name: &[u8], class: CommandClass, database: &str) -> bool {
    let on_admin =
        [&b"commitTransaction"[..], b"abortTransaction", b"renameCollection", b"bulkWrite", b"getMore", b"killCursors"];
    is_recorded(name)
        && class != CommandClass::ApplyOps
        && (!matches!(database, "admin" | "config" | "local") || on_admin.contains(&name))
}

fn session_of(command: Document<'_>) -> Option<SessionId> {
    command.get("lsid")?.as_document()?.get("id")?.as_uuid()
}

/// Where the cursor of a command is continued, if it can open one.
fn cursor_opener(first: Element<'_>, class: CommandClass, owner: Owner, database: &str) -> Option<CursorOpener> {
    let collection = match (first.key, class) {
        (b"listCollections", _) => "$cmd.listCollections".to_owned(),
        (b"listIndexes", _) => first.value.as_name()?.to_owned(),
        (_, CommandClass::Find) => first.value.as_name()?.to_owned(),
        (_, CommandClass::Aggregate) => first.value.as_name().unwrap_or("$cmd.aggregate").to_owned(),
        (_, CommandClass::BulkWrite) => "$cmd.bulkWrite".to_owned(),
        _ => return None,
    };
    Some((owner, database.into(), collection.into()))
}

/// Writes a read concern without the times of the recorded deployment.
fn read_concern(w: &mut Writer<'_>, recorded: Value<'_>) {
    let Some(recorded) = recorded.as_document() else { return };
    let times: [&[u8]; 2] = [b"afterClusterTime", b"atClusterTime"];
    let kept: Vec<Element<'_>> = recorded.elements().filter(|element| !times.contains(&element.key)).collect();
    if !kept.is_empty() {
        w.nested("readConcern", |w| kept.into_iter().for_each(|element| w.element(element)));
    }
}
