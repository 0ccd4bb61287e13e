//! Reads the entries of a document, for `docward history`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bson::{RawDocumentBuf, Timestamp, doc};
use mongodb::error::Error;
use mongodb::{Client, Cursor};
use tokio::time::{Instant, sleep, timeout};

use super::entries::{MAX, MIN, markers, write_id};
use super::label;
use crate::document::{Document, Kind, OwnedValue, Value, document};
use crate::patterns::history::{History, Keep};
use crate::service::MongoService;
use crate::service::client::ServiceClient;
use crate::service::listing::first_batch;
use crate::service::own_reads;
use crate::service::worker::raw;
use crate::service::worker::stream::{time_of, time_of_token};
use crate::shell::to_iso;

/// How long a read of an old state waits for the worker, which may not have recorded the last changes yet.
const WAIT: Duration = Duration::from_secs(15);
/// The same for the list, which only lacks the fields of the last change without it. The worker stores its position each
/// second.
const LIST_WAIT: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(200);
/// The longest wait for a reply. The driver has no such limit of its own for a server that stops replying.
const REPLY_LIMIT: Duration = Duration::from_secs(15);

/// One change of a document, or a time whose changes are not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// `None` for a time whose changes are not known.
    pub revision: Option<i64>,
    /// Milliseconds since 1970 UTC; the end of such a time.
    pub at: i64,
    /// "insert", "update", "replace" or "delete"; for such a time "drop", "gap" and others.
    pub operation: String,
    /// The top-level fields that the change added, changed or removed; `None` if a state is not known.
    pub changed: Option<Vec<String>>,
    /// Why the state before the change, or the changes of such a time, are not known.
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
    server: Arc<ServiceClient>,
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
struct StoredEntry(RawDocumentBuf);

impl StoredEntry {
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

    /// The beginning of the time in which the document had this state, if an earlier change is known.
    fn since(&self) -> Option<i64> {
        self.document().get("since").and_then(Value::as_date)
    }

    /// Describes the change, which left the document in the state `after`.
    fn revision_with(&self, after: Option<&StateAt>) -> Revision {
        let (before, operation) = (self.before(), self.text("operation").unwrap_or_default());
        let fields = before.fields().zip(after.and_then(StateAt::fields));
        Revision {
            revision: Some(self.revision()),
            at: self.at(),
            operation: operation.to_owned(),
            changed: fields.map(|(before, after)| changed(before, after)),
            unknown: self.text("unknown").map(str::to_owned),
        }
    }

    fn time(&self) -> Option<Timestamp> {
        self.document().get("change").and_then(Value::as_binary).and_then(time_of_token)
    }
}

/// A marker as it is stored.
struct Marker {
    end: Timestamp,
    /// Milliseconds since 1970 UTC.
    until: i64,
    operation: String,
    reason: String,
}

impl Marker {
    fn from_document(stored: &bson::Document) -> Option<Self> {
        let text = |field| stored.get_str(field).unwrap_or_default().to_owned();
        Some(Self {
            end: stored.get_document("_id").ok()?.get_timestamp("gap").ok()?,
            until: stored.get_datetime("until").ok()?.timestamp_millis(),
            operation: text("operation"),
            reason: text("reason"),
        })
    }

    fn describe(&self) -> String {
        let end = to_iso(self.until).unwrap_or_default();
        format!("changes before {end} are not recorded: {}", self.reason)
    }

    fn revision(&self) -> Revision {
        Revision {
            revision: None,
            at: self.until,
            operation: self.operation.clone(),
            changed: None,
            unknown: Some(self.reason.clone()),
        }
    }
}

impl<'r> Reader<'r> {
    /// # Errors
    /// docward's own connection cannot be used, as text.
    pub fn new(service: &MongoService, history: &'r History, of: OwnedValue) -> Result<Self, String> {
        let server = service.server();
        let client = server.client().map_err(|error| error.to_string())?;
        Ok(Self { client, server, history, of })
    }

    /// Reports each kept revision, the oldest first, and the times after the first one whose changes are not known.
    /// Returns why the fields of the last change are not known.
    ///
    /// # Errors
    /// The server or network error as text.
    pub async fn revisions(&self, mut report: impl FnMut(Revision)) -> Result<Option<String>, String> {
        let (current, read_at) = self.current().await?;
        let recorded = self.wait_until_recorded(read_at, LIST_WAIT).await?;
        // A marker of an earlier gap cannot appear any more.
        let markers = self.markers().await?;
        let mut markers = markers.iter().peekable();
        let mut found = self.find(&doc! {}).await?;
        let mut last: Option<StoredEntry> = None;
        while let Some(entry) = self.next(&mut found).await? {
            let mut after = Some(entry.before());
            while let Some(marker) = markers.next_if(|marker| Some(marker.end) <= entry.time()) {
                if let Some(last) = last.take() {
                    report(last.revision_with(None));
                    after = None;
                }
                if after.is_none() {
                    report(marker.revision());
                }
            }
            if let Some(last) = last {
                report(last.revision_with(after.as_ref()));
            }
            last = Some(entry);
        }
        let Some(last) = last else { return Ok(None) };
        // A change after the read has another state before it.
        let is_current = recorded.is_ok() && last.time() <= read_at && markers.peek().is_none();
        let current = current.map_or(StateAt::Absent, StateAt::Document);
        report(last.revision_with(Some(&current).filter(|_| is_current)));
        markers.for_each(|marker| report(marker.revision()));
        Ok(recorded.err())
    }

    /// Returns the document as it was at `at`, in milliseconds since 1970 UTC.
    ///
    /// # Errors
    /// The server or network error as text.
    pub async fn at(&self, at: i64) -> Result<StateAt, String> {
        let hello = self.result(self.client.database("admin").run_command(doc! {"hello": 1})).await?;
        let now = *hello.get_datetime("localTime").map_err(|error| error.to_string())?;
        if at > now.timestamp_millis() {
            let now = to_iso(now.timestamp_millis()).unwrap_or_default();
            return Ok(StateAt::Unknown(format!("it is in the future; the server's time is {now}")));
        }
        if let Keep::For(kept) = self.history.keep
            && now.saturating_duration_since(bson::DateTime::from_millis(at)) >= kept
        {
            return Ok(StateAt::Unknown(format!("states are kept for {kept:?} only")));
        }
        if let Some(entry) = self.first_after(at).await? {
            return self.before(&entry, at).await;
        }
        let (current, read_at) = self.current().await?;
        // The document may have changed after `at`, and the worker not have recorded it yet.
        let recorded = self.wait_until_recorded(read_at, WAIT).await?;
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
    async fn before(&self, entry: &StoredEntry, at: i64) -> Result<StateAt, String> {
        if let Some(why) = self.unknown_since(at, entry.time()).await? {
            return Ok(StateAt::Unknown(why));
        }
        if entry.since().is_some_and(|since| since > at) {
            return Ok(StateAt::Unknown(format!("revisions before {} are no longer kept", entry.revision())));
        }
        Ok(entry.before())
    }

    /// Returns why changes between `at` and the cluster time `until` may not be recorded.
    async fn unknown_since(&self, at: i64, until: Option<Timestamp>) -> Result<Option<String>, String> {
        let mut markers = self.markers().await?;
        if markers.is_empty() {
            return Ok(Some(format!(
                "{} has no beginning of a history: docward serve has not recorded anything yet, or somebody has emptied it",
                self.history.into
            )));
        }
        markers.retain(|marker| until.is_none_or(|until| marker.end <= until) && marker.until > at);
        Ok(markers.first().map(Marker::describe))
    }

    /// All markers, sorted by time.
    async fn markers(&self) -> Result<Vec<Marker>, String> {
        let command = doc! {
            "find": &self.history.into.name, "filter": markers(), "sort": {"_id": 1},
            "readConcern": {"level": own_reads::MAJORITY}, "maxTimeMS": 0,
        };
        let database = self.client.database(&self.history.into.database);
        let mut found = self.result(database.run_cursor_command(command)).await?;
        let mut markers = Vec::new();
        while self.result(found.advance()).await? {
            let marker = found.deserialize_current().map_err(|error| self.describe(error))?;
            markers.extend(Marker::from_document(&marker));
        }
        Ok(markers)
    }

    /// Returns the result of a call to the server, or the text of its error.
    async fn result<T>(&self, call: impl IntoFuture<Output = Result<T, Error>>) -> Result<T, String> {
        let replied = timeout(REPLY_LIMIT, call).await;
        let no_reply = |_| format!("the server did not reply within {} s", REPLY_LIMIT.as_secs());
        replied.map_err(no_reply)?.map_err(|error| self.describe(error))
    }

    /// The text of an error.
    fn describe(&self, error: Error) -> String {
        self.server.describe(&error)
    }

    /// Returns the document as it is, and the cluster time of the read.
    async fn current(&self) -> Result<(Option<RawDocumentBuf>, Option<Timestamp>), String> {
        let command = document(|w| {
            w.string("find", &self.history.of.name);
            w.nested("filter", |w| w.nested("_id", |w| w.value("$eq", self.of.as_value())));
            w.int32("limit", 1);
            w.boolean("singleBatch", true);
            own_reads::write(w, own_reads::MAJORITY);
        });
        let command = raw(command).map_err(|stop| stop.describe(&self.server))?;
        let database = self.client.database(&self.history.of.database);
        let reply = self.result(database.run_raw_command(command)).await?;
        let found = first_batch(&reply).next();
        let found = found.map(RawDocumentBuf::try_from).transpose().map_err(|error| error.to_string())?;
        Ok((found, reply.get_timestamp("operationTime").ok()))
    }

    /// Waits until the worker has recorded all changes up to this time. The inner error: it has not.
    async fn wait_until_recorded(
        &self,
        time: Option<Timestamp>,
        longest: Duration,
    ) -> Result<Result<(), String>, String> {
        let leases = self.client.database("docward").collection::<bson::Document>("leases");
        let begun = Instant::now();
        loop {
            let lease = self.result(leases.find_one(doc! {"_id": label(self.history)})).await?;
            let token = lease.as_ref().and_then(|lease| lease.get_document("tokens").ok()?.get("0"));
            let recorded = token.and_then(time_of);
            if recorded.zip(time).is_some_and(|(recorded, time)| recorded >= time) {
                return Ok(Ok(()));
            }
            if begun.elapsed() > longest {
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

    async fn first_after(&self, at: i64) -> Result<Option<StoredEntry>, String> {
        let after = doc! {"at": {"$gt": bson::DateTime::from_millis(at)}};
        self.next(&mut self.find(&after).await?).await
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
            own_reads::write(w, own_reads::MAJORITY);
        });
        let database = self.client.database(&self.history.into.database);
        let command = raw(command).map_err(|stop| stop.describe(&self.server))?;
        self.result(database.run_raw_cursor_command(command)).await
    }

    async fn next(&self, found: &mut Cursor<bson::Document>) -> Result<Option<StoredEntry>, String> {
        let more = self.result(found.advance()).await?;
        Ok(more.then(|| StoredEntry(found.current().to_owned())))
    }
}
