//! Stores entries, each once and in the order of the changes.

use std::borrow::Cow;
use std::collections::HashMap;

use bson::{Bson, DateTime, RawDocumentBuf, Timestamp, doc};
use mongodb::Client;

use super::prepare::expire;
use crate::document::{ArrayWriter, Document, Kind, OwnedValue, Value, Writer, document};
use crate::patterns::history::{History, Keep};
use crate::service::id::IdKey;
use crate::service::listing::first_batch;
use crate::service::own_reads;
use crate::service::worker::{Stop, raw};

/// The server's limit of a stored document.
pub(super) const LARGEST_DOCUMENT: i32 = 16 << 20;
/// Bytes of entries in one insert; the server accepts 16 MiB, and one entry may be that large.
const INSERT_BYTES: usize = 8 << 20;
/// Attempts after a duplicate key. Another worker can only cause one for each change, for a moment.
const MAX_ATTEMPTS: u32 = 20;
const DUPLICATE_KEY: i32 = 11000;
/// BadValue, Overflow (too many levels), DollarPrefixedFieldName, DottedFieldName, BSONObjectTooLarge, KeyTooLong, and
/// an insert of a document that is too large.
const UNSTORABLE: [i32; 7] = [2, 15, 52, 57, 10334, 17280, 17419];
pub(super) const NO_ROOM: &str = "the document has no room in an entry: together they are larger than 16 MiB";

/// The entries of one rule.
pub(super) struct HistoryEntries<'m> {
    pub(super) rule: &'m str,
    pub(super) client: &'m Client,
    pub(super) history: &'m History,
}

/// An entry without its revision.
pub(super) struct NewEntry {
    /// The document's `_id`.
    pub(super) of: OwnedValue,
    pub(super) position: Vec<u8>,
    pub(super) time: Timestamp,
    /// Milliseconds since 1970 UTC.
    pub(super) at: i64,
    pub(super) operation: String,
    pub(super) before: PreviousState,
}

/// The document before a change.
pub(super) enum PreviousState {
    State(OwnedValue),
    /// There was none.
    Absent,
    /// Why it is not known.
    Unknown(Cow<'static, str>),
}

/// A time whose changes are not known.
pub(super) struct Gap<'g> {
    /// The cluster time of its end.
    pub(super) end: Timestamp,
    /// The same by the clock.
    pub(super) until: DateTime,
    pub(super) operation: &'g str,
    /// The cluster time of its beginning, if it is known.
    pub(super) since: Option<Timestamp>,
    pub(super) reason: &'g str,
}

/// What was stored.
#[derive(Debug, Default)]
pub(super) struct StoredEntries {
    pub(super) entries: usize,
    /// Entries whose state is not known.
    pub(super) unknown: u64,
    /// Why a state is not known.
    pub(super) reason: Cow<'static, str>,
}

/// An entry as BSON.
struct Encoded {
    bytes: Vec<u8>,
    /// The index of its change.
    change: usize,
    previous: Last,
    /// Why its previous state is not known.
    unknown: Option<Cow<'static, str>>,
}

/// The last entry of a document.
#[derive(Clone, Default)]
struct Last {
    /// Zero: there is none.
    revision: i64,
    position: Vec<u8>,
    /// Milliseconds since 1970 UTC, if there is one.
    at: Option<i64>,
}

/// Why the server rejected an entry.
enum Rejected {
    Duplicate,
    /// The server cannot store the document.
    Unstorable(String),
}

impl HistoryEntries<'_> {
    /// Stores entries that are not stored yet, with write concern `majority`, and removes those that `keep` excludes.
    pub(super) async fn store(&self, changes: Vec<NewEntry>) -> Result<StoredEntries, Stop> {
        let mut stored = StoredEntries::default();
        let mut rest = changes.as_slice();
        let mut attempts = 0;
        let mut known = HashMap::new();
        let mut is_first = false;
        loop {
            let mut last = self.last(rest).await?;
            let mut entries = Vec::new();
            for (at, change) in rest.iter().enumerate() {
                let last = last.entry(IdKey::from(change.of.as_value())).or_default();
                if change.position > last.position {
                    entries.push(change.entry(at, last.clone()));
                    let position = change.position.clone();
                    *last = Last { revision: last.revision.saturating_add(1), position, at: Some(change.at) };
                }
            }
            let duplicate = self.insert_storable(rest, &mut entries).await?;
            for entry in &entries[..duplicate] {
                stored.add(entry);
                is_first |= entry.previous.revision == 0;
            }
            known.extend(last);
            let Some(Encoded { change: duplicate, .. }) = entries.get(duplicate) else { break };
            // Another worker stored this change, or an earlier one of the document, meanwhile.
            attempts = if *duplicate == 0 { attempts + 1 } else { 0 };
            if attempts == MAX_ATTEMPTS {
                let into = &self.history.into;
                return Err(Stop::Failed(format!(
                    "{into} rejects an entry as a duplicate although it has none; remove unique indexes and collations \
                     of {into}"
                )));
            }
            rest = &rest[*duplicate..];
        }
        if let Keep::Revisions(kept) = self.history.keep {
            self.remove(&changes, &known, kept).await?;
        }
        // A collection that was dropped has the last entry of no document.
        if let Some(change) = changes.first().filter(|_| is_first) {
            self.require_beginning(change.time).await?;
        }
        Ok(stored)
    }

    /// Marks that the states before this time are not known, if there is no marker: somebody has dropped the collection.
    pub(super) async fn require_beginning(&self, time: Timestamp) -> Result<(), Stop> {
        let find = doc! {
            "find": &self.history.into.name, "filter": markers(), "limit": 1, "projection": {"_id": 1},
            "readConcern": {"level": own_reads::MAJORITY}, "maxTimeMS": 0,
        };
        let found = self.client.database(&self.history.into.database).run_command(find).await?;
        if first_batch(&found).next().is_some() {
            return Ok(());
        }
        let into = &self.history.into;
        tracing::warn!(
            rule = self.rule,
            "{into} was dropped or emptied: the earlier states of the documents are lost; docward stores a marker of \
             this gap"
        );
        let reason = &format!("{into} was dropped or emptied");
        self.mark(&Gap { end: time, until: end_of_second(time), operation: "gap", since: None, reason }).await?;
        Box::pin(expire(self)).await
    }

    /// Inserts entries in order up to the first duplicate, and returns how many. Without the state, if the server cannot
    /// store it; a change that it cannot store at all is marked.
    async fn insert_storable(&self, changes: &[NewEntry], entries: &mut [Encoded]) -> Result<usize, Stop> {
        let mut done = 0;
        loop {
            let (inserted, rejected) = self.insert(&entries[done..]).await?;
            done += inserted;
            let why = match rejected {
                Some(Rejected::Unstorable(why)) => why,
                Some(Rejected::Duplicate) | None => return Ok(done),
            };
            let entry = &mut entries[done];
            let change = &changes[entry.change];
            let why = format!("the server cannot store the state in an entry: {why}");
            if entry.unknown.is_none() {
                let why: Cow<'static, str> = Cow::Owned(why);
                entry.bytes = change.encode(&entry.previous, &PreviousState::Unknown(why.clone()));
                entry.unknown = Some(why);
                continue;
            }
            let until = DateTime::from_millis(change.at);
            let gap = Gap { end: change.time, until, operation: &change.operation, since: None, reason: &why };
            self.mark(&gap).await?;
            done += 1;
        }
    }

    /// The last entries of the changed documents.
    async fn last(&self, changes: &[NewEntry]) -> Result<HashMap<IdKey, Last>, Stop> {
        let mut ids: HashMap<IdKey, &OwnedValue> = HashMap::new();
        changes.iter().for_each(|change| _ = ids.insert(IdKey::from(change.of.as_value()), &change.of));
        let of_document = doc! {"$match": {"$expr": {"$and": [
            {"$gte": ["$_id", {"of": "$$of", "revision": Bson::MinKey}]},
            {"$lte": ["$_id", {"of": "$$of", "revision": Bson::MaxKey}]},
        ]}}};
        let lookup = doc! {
            "from": &self.history.into.name,
            "let": {"of": "$of"},
            "pipeline": [
                of_document,
                {"$sort": {"_id": -1}},
                {"$limit": 1},
                {"$project": {"_id": 0, "revision": "$_id.revision", "change": 1, "at": 1}},
            ],
            "as": "last",
        };
        // `$facet` returns one document for none, so the aggregation needs `find` on this collection alone. `$documents`
        // needs it on the whole database.
        let none = raw_document(&doc! {"$match": {"_id": {"$in": []}}})?;
        let one = raw_document(&doc! {"$facet": {"none": [{"$limit": 1}]}})?;
        let each = raw_document(&doc! {"$unwind": "$of"})?;
        let lookup = raw_document(&doc! {"$lookup": lookup})?;
        let stage = |a: &mut ArrayWriter<'_>, stage: &RawDocumentBuf| {
            a.value(Value { kind: Kind::Document, bytes: stage.as_bytes() });
        };
        let command = document(|w| {
            w.string("aggregate", &self.history.into.name);
            w.array("pipeline", |a| {
                stage(a, &none);
                stage(a, &one);
                a.nested(|w| {
                    w.nested("$project", |w| {
                        w.nested("of", |w| {
                            w.array("$literal", |a| ids.values().for_each(|id| a.value(id.as_value())));
                        });
                    });
                });
                stage(a, &each);
                stage(a, &lookup);
            });
            w.nested("cursor", |_| {});
            // An entry that is rolled back later would hide its change for ever.
            own_reads::write(w, own_reads::MAJORITY);
        });
        let mut found = HashMap::new();
        let database = self.client.database(&self.history.into.database);
        let mut cursor = database.run_raw_cursor_command(raw(command)?).await?;
        while cursor.advance().await? {
            let Ok(document) = Document::parse(cursor.current().as_bytes()) else { continue };
            let Some(id) = document.get("of").map(IdKey::from) else { continue };
            let last = document.get("last").and_then(Value::as_array).and_then(|last| last.values().next());
            if let Some(last) = last.and_then(Value::as_document) {
                let revision = last.get("revision").and_then(Value::as_integer);
                let position = last.get("change").and_then(Value::as_binary);
                let (Some(revision), Some(position)) = (revision, position) else {
                    return Err(Stop::Failed(format!(
                        "{} has a document that docward did not write; `into` must be a collection of its own",
                        self.history.into
                    )));
                };
                let at = last.get("at").and_then(Value::as_date);
                found.insert(id, Last { revision, position: position.to_vec(), at });
            }
        }
        Ok(found)
    }

    /// Inserts entries in order up to the first that the server rejects. Returns how many, and why.
    async fn insert(&self, entries: &[Encoded]) -> Result<(usize, Option<Rejected>), Stop> {
        let mut inserted = 0;
        while inserted < entries.len() {
            let mut bytes = 0;
            let fits = |entry: &&Encoded| {
                bytes += entry.bytes.len();
                bytes <= INSERT_BYTES
            };
            let count = entries[inserted..].iter().take_while(fits).count().max(1);
            let now = &entries[inserted..inserted + count];
            let command = document(|w| {
                w.string("insert", &self.history.into.name);
                w.array("documents", |a| {
                    now.iter().for_each(|entry| a.value(Value { kind: Kind::Document, bytes: &entry.bytes }));
                });
                // An entry without the one before it would hide that change for ever.
                w.boolean("ordered", true);
                w.nested("writeConcern", |w| w.string("w", "majority"));
            });
            let reply = self.run(command).await?;
            let errors = reply.get_array("writeErrors").ok();
            let Some(error) = errors.and_then(|errors| errors.first()?.as_document()) else {
                inserted += count;
                continue;
            };
            let rejected = match error.get_i32("code").unwrap_or(0) {
                DUPLICATE_KEY => Rejected::Duplicate,
                code if UNSTORABLE.contains(&code) => {
                    Rejected::Unstorable(error.get_str("errmsg").unwrap_or_default().to_owned())
                }
                _ => return Err(self.failed(error)),
            };
            // A server whose index is too high must not skip an entry.
            inserted += usize::try_from(error.get_i32("index").unwrap_or(0)).unwrap_or(0).min(count - 1);
            return Ok((inserted, Some(rejected)));
        }
        Ok((inserted, None))
    }

    /// Removes all but the newest `kept` entries of the changed documents.
    async fn remove(&self, changes: &[NewEntry], last: &HashMap<IdKey, Last>, kept: i64) -> Result<(), Stop> {
        let mut excess: HashMap<IdKey, (&OwnedValue, i64)> = HashMap::new();
        for change in changes {
            let id = IdKey::from(change.of.as_value());
            if let Some(last) = last.get(&id).filter(|last| last.revision > kept) {
                excess.insert(id, (&change.of, last.revision - kept));
            }
        }
        if excess.is_empty() {
            return Ok(());
        }
        let command = document(|w| {
            w.string("delete", &self.history.into.name);
            w.array("deletes", |a| {
                for (of, newest) in excess.values() {
                    a.nested(|w| {
                        w.nested("q", |w| {
                            w.nested("_id", |w| {
                                w.nested("$gte", |w| write_id(w, of.as_value(), MIN));
                                w.nested("$lte", |w| {
                                    write_id(w, of.as_value(), OwnedValue::integer(*newest).as_value())
                                });
                            });
                        });
                        w.int32("limit", 0);
                    });
                }
            });
            w.nested("writeConcern", |w| w.string("w", "majority"));
        });
        let reply = self.run(command).await?;
        let errors = reply.get_array("writeErrors").ok();
        errors.and_then(|errors| errors.first()?.as_document()).map_or(Ok(()), |error| Err(self.failed(error)))
    }

    /// Stores a marker.
    pub(super) async fn mark(&self, gap: &Gap<'_>) -> Result<(), Stop> {
        let Gap { end, until, operation, since, reason } = *gap;
        let mut marker = doc! {"_id": {"gap": end}, "until": until, "operation": operation, "reason": reason};
        if let Some(since) = since {
            marker.insert("since", DateTime::from_millis(i64::from(since.time) * 1000));
        }
        let command = doc! {
            "insert": &self.history.into.name, "documents": [marker], "writeConcern": {"w": "majority"},
        };
        let reply = self.run(raw_document(&command)?.into_bytes()).await?;
        let errors = reply.get_array("writeErrors").ok();
        match errors.and_then(|errors| errors.first()?.as_document()) {
            // The worker that was killed then has marked it.
            Some(error) if !error.get_i32("code").is_ok_and(|code| code == DUPLICATE_KEY) => Err(self.failed(error)),
            _ => Ok(()),
        }
    }

    async fn run(&self, command: Vec<u8>) -> Result<bson::Document, Stop> {
        let reply = self.client.database(&self.history.into.database).run_raw_command(raw(command)?).await?;
        match reply.get_document("writeConcernError") {
            Ok(error) => Err(self.failed(error)),
            Err(_) => Ok(reply),
        }
    }

    fn failed(&self, error: &bson::Document) -> Stop {
        let text = error.get_str("errmsg").unwrap_or_default();
        Stop::Failed(format!("{} cannot be written: {text}", self.history.into))
    }
}

pub(super) const MIN: Value<'static> = Value { kind: Kind::MinKey, bytes: &[] };
pub(super) const MAX: Value<'static> = Value { kind: Kind::MaxKey, bytes: &[] };

/// The filter of all markers. The server compares the types of values before their names, so MinKey and MaxKey would
/// include entries.
pub(super) fn markers() -> bson::Document {
    let gap = |at| doc! {"gap": Timestamp { time: at, increment: at }};
    doc! {"_id": {"$gte": gap(0), "$lte": gap(u32::MAX)}}
}

/// Writes the fields of an entry's `_id`.
pub(super) fn write_id(w: &mut Writer<'_>, of: Value<'_>, revision: Value<'_>) {
    w.value("of", of);
    w.value("revision", revision);
}

impl NewEntry {
    /// Returns the entry after `previous`. `change`: its index.
    fn entry(&self, change: usize, previous: Last) -> Encoded {
        let bytes = self.encode(&previous, &self.before);
        match &self.before {
            PreviousState::Unknown(why) => Encoded { bytes, change, previous, unknown: Some(why.clone()) },
            _ if i32::try_from(bytes.len()).is_ok_and(|bytes| bytes <= LARGEST_DOCUMENT) => {
                Encoded { bytes, change, previous, unknown: None }
            }
            _ => {
                let bytes = self.encode(&previous, &PreviousState::Unknown(NO_ROOM.into()));
                Encoded { bytes, change, previous, unknown: Some(NO_ROOM.into()) }
            }
        }
    }

    fn encode(&self, previous: &Last, before: &PreviousState) -> Vec<u8> {
        let revision = OwnedValue::integer(previous.revision.saturating_add(1));
        document(|w| {
            w.nested("_id", |w| write_id(w, self.of.as_value(), revision.as_value()));
            if let Some(since) = previous.at {
                w.slot("since").date(since);
            }
            w.slot("at").date(self.at);
            w.string("operation", &self.operation);
            match before {
                PreviousState::State(document) => w.value("document", document.as_value()),
                PreviousState::Absent => {}
                PreviousState::Unknown(why) => w.string("unknown", &**why),
            }
            w.value("change", OwnedValue::binary(&self.position).as_value());
        })
    }
}

impl StoredEntries {
    fn add(&mut self, entry: &Encoded) {
        self.entries += 1;
        if let Some(why) = &entry.unknown {
            self.unknown += 1;
            self.reason = why.clone();
        }
    }
}

fn raw_document(document: &bson::Document) -> Result<RawDocumentBuf, Stop> {
    RawDocumentBuf::try_from(document).map_err(|error| Stop::Failed(format!("a command cannot be built: {error}")))
}

/// Cluster times have whole seconds. Nothing is known for certain before the end of that second.
pub(super) fn end_of_second(time: Timestamp) -> DateTime {
    DateTime::from_millis(i64::from(time.time) * 1000 + 999)
}
