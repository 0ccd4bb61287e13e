//! Reads the entries of a document, for `docward history`.

use std::collections::BTreeSet;
use std::time::Duration;

use bson::{Bson, RawDocumentBuf, Timestamp, doc};
use mongodb::{Client, Cursor};
use tokio::time::{Instant, sleep};

use super::entries::{MAX, MIN, raw, write_id};
use super::label;
use crate::document::{Document, Kind, OwnedValue, Value, document};
use crate::patterns::history::{History, Keep};
use crate::service::MongoService;
use crate::service::worker::Stop;
use crate::service::worker::stream::{time_of, time_of_token};
use crate::shell::to_iso;

/// How long a read of an old state waits for the worker, which may not have recorded the last changes yet.
const WAIT: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(200);

/// One change of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    pub revision: i64,
    /// Milliseconds since 1970 UTC.
    pub at: i64,
    /// "insert", "update", "replace" or "delete".
    pub operation: String,
    /// The top-level fields that the change added, changed or removed; `None` if a state is not known.
    pub changed: Option<Vec<String>>,
    /// Why the state before the change is not known.
    pub unknown: Option<String>,
}

/// A document at a time.
#[derive(Debug, Clone, PartialEq)]
pub enum StateAt {
    Document(RawDocumentBuf),
    /// There was no such document.
    Absent,
    /// Why it is not known.
    Unknown(String),
}

/// The history of one document.
pub struct Reader<'r> {
    client: Client,
    rule: &'r str,
    history: &'r History,
    of: OwnedValue,
}

impl StateAt {
    /// The top-level fields; `None` if they are not known.
    fn fields(&self) -> Option<Document<'_>> {
        match self {
            Self::Document(document) => Document::parse(document.as_bytes()).ok(),
            Self::Absent => Some(Document::EMPTY),
            Self::Unknown(_) => None,
        }
    }
}

/// The fields that differ, except `_id`.
fn changed(before: Document<'_>, after: Document<'_>) -> Vec<String> {
    let names: BTreeSet<&[u8]> = before.elements().chain(after.elements()).map(|element| element.key).collect();
    let differs = |name: &&[u8]| **name != *b"_id" && before.get(name) != after.get(name);
    names.into_iter().filter(differs).map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

/// An entry as it is stored.
struct Entry(RawDocumentBuf);

impl Entry {
    fn document(&self) -> Document<'_> {
        Document::parse(self.0.as_bytes()).unwrap_or(Document::EMPTY)
    }

    fn revision(&self) -> i64 {
        let id = self.document().get("_id").and_then(Value::as_document);
        id.and_then(|id| id.get("revision")).and_then(Value::as_integer).unwrap_or(0)
    }

    fn at(&self) -> i64 {
        self.document().get("at").and_then(Value::as_date).unwrap_or(0)
    }

    fn text(&self, field: &str) -> Option<&str> {
        self.document().get(field).and_then(Value::as_str)
    }

    /// The document before the change.
    fn before(&self) -> StateAt {
        let state = self.document().get("document").filter(|state| state.kind == Kind::Document);
        match (state, self.text("unknown")) {
            (Some(state), _) => RawDocumentBuf::from_bytes(state.bytes.to_vec())
                .map_or_else(|error| StateAt::Unknown(error.to_string()), StateAt::Document),
            (None, Some(why)) => StateAt::Unknown(why.to_owned()),
            (None, None) => StateAt::Absent,
        }
    }

    /// Describes the change, which left the document in the state `after`.
    fn revision_with(&self, after: &StateAt) -> Revision {
        let (before, operation) = (self.before(), self.text("operation").unwrap_or_default());
        Revision {
            revision: self.revision(),
            at: self.at(),
            operation: operation.to_owned(),
            changed: before.fields().zip(after.fields()).map(|(before, after)| changed(before, after)),
            unknown: self.text("unknown").map(str::to_owned),
        }
    }

    fn time(&self) -> Option<Timestamp> {
        self.document().get("change").and_then(Value::as_binary).and_then(time_of_token)
    }
}

impl<'r> Reader<'r> {
    /// # Errors
    /// docward's own connection cannot be used, as text.
    pub fn new(service: &MongoService, rule: &'r str, history: &'r History, of: OwnedValue) -> Result<Self, String> {
        let client = service.server().client().map_err(|error| error.to_string())?;
        Ok(Self { client, rule, history, of })
    }

    /// Reports each kept revision, the oldest first.
    ///
    /// # Errors
    /// The server or network error as text.
    pub async fn revisions(&self, mut report: impl FnMut(Revision)) -> Result<(), String> {
        let mut found = self.find(&doc! {}).await?;
        let mut last: Option<Entry> = None;
        while let Some(entry) = next(&mut found).await? {
            if let Some(previous) = &last {
                report(previous.revision_with(&entry.before()));
            }
            last = Some(entry);
        }
        if let Some(last) = last {
            let current = self.current().await?.0;
            report(last.revision_with(&current.map_or(StateAt::Absent, StateAt::Document)));
        }
        Ok(())
    }

    /// Returns the document as it was at `at`, in milliseconds since 1970 UTC.
    ///
    /// # Errors
    /// The server or network error as text.
    pub async fn at(&self, at: i64) -> Result<StateAt, String> {
        if let Some(entry) = self.first_after(at).await? {
            return self.before(&entry, at).await;
        }
        let (current, read_at) = self.current().await?;
        // The document may have changed after `at`, and the worker not have recorded it yet.
        let recorded = self.wait_until_recorded(read_at).await?;
        if let Some(entry) = self.first_after(at).await? {
            return self.before(&entry, at).await;
        }
        if let Err(why) = recorded {
            return Ok(StateAt::Unknown(why));
        }
        if let Some(why) = self.unknown_since(at, None).await? {
            return Ok(StateAt::Unknown(why));
        }
        Ok(current.map_or(StateAt::Absent, StateAt::Document))
    }

    /// Returns the state before `entry`, the first entry after `at`, if it was the state at `at`.
    async fn before(&self, entry: &Entry, at: i64) -> Result<StateAt, String> {
        if let Some(why) = self.unknown_since(at, entry.time()).await? {
            return Ok(StateAt::Unknown(why));
        }
        let revision = entry.revision();
        if revision > 1 && matches!(self.history.keep, Keep::Revisions(_)) {
            let mut previous = self.find(&doc! {"_id.revision": revision - 1}).await?;
            if next(&mut previous).await?.is_none_or(|previous| previous.at() > at) {
                return Ok(StateAt::Unknown(format!("revisions before {revision} are no longer kept")));
            }
        }
        Ok(entry.before())
    }

    /// Returns why changes between `at` and the cluster time `until` may not be recorded.
    async fn unknown_since(&self, at: i64, until: Option<Timestamp>) -> Result<Option<String>, String> {
        if let Keep::For(kept) = self.history.keep {
            let hello = self.client.database("admin").run_command(doc! {"hello": 1}).await;
            let hello = hello.map_err(|error| error.kind.to_string())?;
            let now = hello.get_datetime("localTime").map_err(|error| error.to_string())?;
            if now.saturating_duration_since(bson::DateTime::from_millis(at)) >= kept {
                return Ok(Some(format!("states are kept for {kept:?} only")));
            }
        }
        let until = until.map_or(Bson::MaxKey, Bson::Timestamp);
        let markers = doc! {
            "_id": {"$gte": {"gap": Timestamp { time: 0, increment: 0 }}, "$lte": {"gap": until}},
            "at": {"$gt": bson::DateTime::from_millis(at)},
        };
        let command = doc! {"find": &self.history.into.name, "filter": markers, "sort": {"_id": 1}, "limit": 1};
        let database = self.client.database(&self.history.into.database);
        let mut found = database.run_cursor_command(command).await.map_err(|error| error.kind.to_string())?;
        Ok(next(&mut found).await?.map(|marker| {
            let end = to_iso(marker.at()).unwrap_or_default();
            format!("changes before {end} are not recorded: {}", marker.text("reason").unwrap_or_default())
        }))
    }

    /// Returns the document as it is, and the cluster time of the read.
    async fn current(&self) -> Result<(Option<RawDocumentBuf>, Option<Timestamp>), String> {
        let command = document(|w| {
            w.string("find", &self.history.of.name);
            w.nested("filter", |w| w.nested("_id", |w| w.value("$eq", self.of.as_value())));
            w.int32("limit", 1);
            w.boolean("singleBatch", true);
            w.nested("readConcern", |w| w.string("level", "majority"));
        });
        let command = raw(command).map_err(text)?;
        let database = self.client.database(&self.history.of.database);
        let reply = database.run_raw_command(command).await.map_err(|error| error.kind.to_string())?;
        let found = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
        let found = found.ok().and_then(|found| found.first()).and_then(Bson::as_document);
        let found = found.map(RawDocumentBuf::try_from).transpose().map_err(|error| error.to_string())?;
        Ok((found, reply.get_timestamp("operationTime").ok()))
    }

    /// Waits until the worker has recorded all changes up to this time. The inner error: it has not.
    async fn wait_until_recorded(&self, time: Option<Timestamp>) -> Result<Result<(), String>, String> {
        let leases = self.client.database("docward").collection::<bson::Document>("leases");
        let begun = Instant::now();
        loop {
            let lease = leases.find_one(doc! {"_id": label(self.rule, self.history)}).await;
            let lease = lease.map_err(|error| error.kind.to_string())?;
            let token = lease.as_ref().and_then(|lease| lease.get_document("tokens").ok()?.get("0"));
            let recorded = token.and_then(time_of);
            if recorded.zip(time).is_some_and(|(recorded, time)| recorded >= time) {
                return Ok(Ok(()));
            }
            if begun.elapsed() > WAIT {
                return Ok(Err(match recorded {
                    Some(recorded) => {
                        let until = to_iso(i64::from(recorded.time) * 1000).unwrap_or_default();
                        format!("changes are recorded only until {until}; check that docward serve runs with this rule")
                    }
                    None => "no change is recorded yet; check that docward serve runs with this rule".to_owned(),
                }));
            }
            sleep(PAUSE).await;
        }
    }

    async fn first_after(&self, at: i64) -> Result<Option<Entry>, String> {
        let after = doc! {"at": {"$gt": bson::DateTime::from_millis(at)}};
        next(&mut self.find(&after).await?).await
    }

    /// Finds the document's entries that match `more`, sorted by revision.
    async fn find(&self, more: &bson::Document) -> Result<Cursor<bson::Document>, String> {
        let more = RawDocumentBuf::try_from(more).map_err(|error| error.to_string())?;
        let more = Document::parse(more.as_bytes()).map_err(|error| error.to_string())?;
        let command = document(|w| {
            w.string("find", &self.history.into.name);
            w.nested("filter", |w| {
                w.nested("_id", |w| {
                    w.nested("$gte", |w| write_id(w, self.of.as_value(), MIN));
                    w.nested("$lte", |w| write_id(w, self.of.as_value(), MAX));
                });
                w.elements(more);
            });
            w.nested("sort", |w| w.int32("_id", 1));
        });
        let database = self.client.database(&self.history.into.database);
        let found = database.run_raw_cursor_command(raw(command).map_err(text)?).await;
        found.map_err(|error| error.kind.to_string())
    }
}

async fn next(found: &mut Cursor<bson::Document>) -> Result<Option<Entry>, String> {
    let more = found.advance().await.map_err(|error| error.kind.to_string())?;
    Ok(more.then(|| Entry(found.current().to_owned())))
}

fn text(stop: Stop) -> String {
    match stop {
        Stop::Failed(text) => text,
        other => format!("{other:?}"),
    }
}
