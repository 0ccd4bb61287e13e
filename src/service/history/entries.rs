//! Stores entries, each once and in the order of the changes.

use std::collections::HashMap;

use bson::{Bson, DateTime, RawDocumentBuf, Timestamp, doc};
use mongodb::Client;

use crate::document::{Document, Kind, OwnedValue, Value, Writer, document};
use crate::patterns::history::{History, Keep};
use crate::service::id::Id;
use crate::service::worker::Stop;

/// The server's limit of a stored document.
const LARGEST_DOCUMENT: usize = 16 << 20;
/// Bytes of entries in one insert; the server accepts 16 MiB, and one entry may be that large.
const INSERT_BYTES: usize = 8 << 20;
/// Attempts after a duplicate key. Another worker can only cause one for each change, for a moment.
const MAX_ATTEMPTS: u32 = 20;
const DUPLICATE_KEY: i32 = 11000;
const NO_ROOM: &str = "the document has no room in an entry: together they are larger than 16 MiB";

/// The entries of one rule.
pub(super) struct Entries<'m> {
    pub(super) client: &'m Client,
    pub(super) history: &'m History,
}

/// An entry without its revision.
pub(super) struct NewEntry {
    /// The document's `_id`.
    pub(super) of: OwnedValue,
    pub(super) position: Vec<u8>,
    /// Milliseconds since 1970 UTC.
    pub(super) at: i64,
    pub(super) operation: String,
    pub(super) before: Before,
}

/// The document before a change.
pub(super) enum Before {
    State(OwnedValue),
    /// There was none.
    Absent,
    /// Why it is not known.
    Unknown(&'static str),
}

/// What was stored.
#[derive(Debug, Default)]
pub(super) struct Stored {
    pub(super) entries: usize,
    /// Entries whose state is not known.
    pub(super) unknown: u64,
    /// Why a state is not known.
    pub(super) reason: &'static str,
}

/// An entry as BSON, and why its previous state is not known.
type Encoded = (Vec<u8>, Option<&'static str>);

/// The last entry of a document.
#[derive(Clone, Default)]
struct Last {
    /// Zero: there is none.
    revision: i64,
    position: Vec<u8>,
}

impl Entries<'_> {
    /// Stores entries that are not stored yet, with write concern `majority`, and removes those that `keep` excludes.
    pub(super) async fn store(&self, changes: Vec<NewEntry>) -> Result<Stored, Stop> {
        let mut stored = Stored::default();
        let mut rest = changes.as_slice();
        let mut attempts = 0;
        let mut known = HashMap::new();
        loop {
            let mut last = self.last(rest).await?;
            let mut entries = Vec::new();
            for (at, change) in rest.iter().enumerate() {
                let last = last.entry(Id::from(change.of.as_value())).or_default();
                if change.position > last.position {
                    *last = Last { revision: last.revision + 1, position: change.position.clone() };
                    entries.push((at, change.entry(last.revision)));
                }
            }
            let inserted = self.insert(&entries).await?;
            for (_, (_, why)) in entries.iter().take(inserted) {
                stored.entries += 1;
                if let Some(why) = why {
                    stored.unknown += 1;
                    stored.reason = why;
                }
            }
            known.extend(last);
            let Some((duplicate, _)) = entries.get(inserted) else { break };
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
        Ok(stored)
    }

    /// The last entries of the changed documents.
    async fn last(&self, changes: &[NewEntry]) -> Result<HashMap<Id, Last>, Stop> {
        let mut ids: HashMap<Id, &OwnedValue> = HashMap::new();
        changes.iter().for_each(|change| _ = ids.insert(Id::from(change.of.as_value()), &change.of));
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
                {"$project": {"_id": 0, "revision": "$_id.revision", "change": 1}},
            ],
            "as": "last",
        };
        let lookup = raw_document(&doc! {"$lookup": lookup})?;
        let command = document(|w| {
            w.int32("aggregate", 1);
            w.array("pipeline", |a| {
                a.nested(|w| {
                    w.nested("$documents", |w| {
                        w.array("$literal", |a| {
                            ids.values().for_each(|id| a.nested(|w| w.value("of", id.as_value())));
                        });
                    });
                });
                a.value(Value { kind: Kind::Document, bytes: lookup.as_bytes() });
            });
            w.nested("cursor", |_| {});
        });
        let mut found = HashMap::new();
        let database = self.client.database(&self.history.into.database);
        let mut cursor = database.run_raw_cursor_command(raw(command)?).await?;
        while cursor.advance().await? {
            let Ok(document) = Document::parse(cursor.current().as_bytes()) else { continue };
            let Some(id) = document.get("of").map(Id::from) else { continue };
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
                found.insert(id, Last { revision, position: position.to_vec() });
            }
        }
        Ok(found)
    }

    /// Inserts entries in order up to the first duplicate. Returns how many.
    async fn insert(&self, entries: &[(usize, Encoded)]) -> Result<usize, Stop> {
        let mut inserted = 0;
        while inserted < entries.len() {
            let mut bytes = 0;
            let fits = |(_, (entry, _)): &&(usize, Encoded)| {
                bytes += entry.len();
                bytes <= INSERT_BYTES
            };
            let count = entries[inserted..].iter().take_while(fits).count().max(1);
            let now = &entries[inserted..inserted + count];
            let command = document(|w| {
                w.string("insert", &self.history.into.name);
                w.array("documents", |a| {
                    now.iter().for_each(|(_, (bytes, _))| a.value(Value { kind: Kind::Document, bytes }));
                });
                // An entry without the one before it would hide that change for ever.
                w.boolean("ordered", true);
                w.nested("writeConcern", |w| w.string("w", "majority"));
            });
            let reply = self.run(command).await?;
            let errors = reply.get_array("writeErrors").ok();
            match errors.and_then(|errors| errors.first()?.as_document()) {
                None => inserted += count,
                Some(error) if error.get_i32("code").is_ok_and(|code| code == DUPLICATE_KEY) => {
                    return Ok(inserted + usize::try_from(error.get_i32("index").unwrap_or(0)).unwrap_or(0));
                }
                Some(error) => return Err(self.failed(error)),
            }
        }
        Ok(inserted)
    }

    /// Removes all but the newest `kept` entries of the changed documents.
    async fn remove(&self, changes: &[NewEntry], last: &HashMap<Id, Last>, kept: i64) -> Result<(), Stop> {
        let mut excess: HashMap<Id, (&OwnedValue, i64)> = HashMap::new();
        for change in changes {
            let id = Id::from(change.of.as_value());
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

    /// Marks that changes until `at` are not known, since the beginning or since the cluster time `since`.
    pub(super) async fn mark(
        &self,
        end: Timestamp,
        at: DateTime,
        operation: &str,
        since: Option<Timestamp>,
        reason: &str,
    ) -> Result<(), Stop> {
        let mut marker = doc! {"_id": {"gap": end}, "at": at, "operation": operation, "reason": reason};
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

/// Writes the fields of an entry's `_id`.
pub(super) fn write_id(w: &mut Writer<'_>, of: Value<'_>, revision: Value<'_>) {
    w.value("of", of);
    w.value("revision", revision);
}

impl NewEntry {
    /// Returns the entry, and why its state is not known.
    fn entry(&self, revision: i64) -> Encoded {
        let write = |before: &Before| {
            document(|w| {
                w.nested("_id", |w| write_id(w, self.of.as_value(), OwnedValue::integer(revision).as_value()));
                w.slot("at").date(self.at);
                w.string("operation", &self.operation);
                match before {
                    Before::State(document) => w.value("document", document.as_value()),
                    Before::Absent => {}
                    Before::Unknown(why) => w.string("unknown", why),
                }
                w.value("change", OwnedValue::binary(&self.position).as_value());
            })
        };
        let entry = write(&self.before);
        match self.before {
            Before::Unknown(why) => (entry, Some(why)),
            _ if entry.len() > LARGEST_DOCUMENT => (write(&Before::Unknown(NO_ROOM)), Some(NO_ROOM)),
            _ => (entry, None),
        }
    }
}

fn raw_document(document: &bson::Document) -> Result<RawDocumentBuf, Stop> {
    RawDocumentBuf::try_from(document).map_err(|error| Stop::Failed(format!("a command cannot be built: {error}")))
}

/// Wraps a command for the driver.
pub(super) fn raw(command: Vec<u8>) -> Result<RawDocumentBuf, Stop> {
    RawDocumentBuf::from_bytes(command).map_err(|error| Stop::Failed(format!("a command cannot be built: {error}")))
}
