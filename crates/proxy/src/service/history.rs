//! Keeps the previous states of changed documents. For each rule, one worker among all docward processes follows the
//! changes of the collection and stores an entry for each.
//!
//! An entry is `{_id: {of, revision}, since, at, operation, document, change}`. `revision` counts the changes of a
//! document, and `change` is the change's position in the stream. `document` was its state from `since` until `at`. A change whose position is not after that of the document's
//! last entry is already stored. Entries of a document are stored in the order of its changes. So it does not matter
//! whether a worker is killed after it stored entries and before it stored its progress, or whether two workers store
//! the same entries for a moment: the second one meets a duplicate key and reads what is stored.
//!
//! A time whose changes are not known has a marker `{_id: {gap}, since, until, operation, reason}`. Each history begins
//! with one, so that an emptied collection is no history. Markers do not expire.
//!
//! `entries` stores entries, `prepare` prepares the collections, [`read`] reads old states.
//!
//! `entries` and `prepare` import each other: a stored marker makes older entries expire, and expiry stores a marker.

mod entries;
pub(super) mod prepare;
pub mod read;

use std::convert::Infallible;
use std::time::Duration;

use bson::{DateTime, Timestamp, doc};
use futures_util::future::BoxFuture;
use mongodb::options::{ChangeStreamOptions, FullDocumentBeforeChangeType};
use tokio::time::Instant;

use super::worker::stream::{ChangeEvent, ChangeHandler, CollectionStream, time_of, unreadable};
use super::worker::{Stop, Task, TaskWords, WorkerContext};
use crate::document::{Kind, OwnedValue, Value};
use crate::patterns::history::History;
use entries::{Gap, HistoryEntries, LARGEST_DOCUMENT, NO_ROOM, NewEntry, PreviousState, end_of_second};

/// Changes that are stored together, at most.
const BATCH: usize = 500;
/// Bytes of them; one change may be larger.
const BATCH_BYTES: usize = 8 << 20;
/// How often the worker tries to switch pre-images on again.
const PREPARE_AGAIN: Duration = Duration::from_secs(5);

/// Keeps the history of one rule.
pub(super) struct KeepHistory {
    pub(super) rule: String,
    pub(super) history: History,
}

/// The lease's label; the rule's name and `keep` may change without a new beginning.
fn label(history: &History) -> String {
    format!("history {} -> {}", history.of, history.into)
}

impl Task for KeepHistory {
    fn words(&self) -> TaskWords {
        TaskWords {
            pattern: "history",
            when_running: "keeps the history",
            when_stopped: "the history is not kept",
            after_loss: "the history has a gap, which is marked in its collection",
        }
    }

    fn rule(&self) -> &str {
        &self.rule
    }

    fn label(&self) -> String {
        label(&self.history)
    }

    /// With another `keep`, only this part of the work begins again.
    fn settings(&self) -> String {
        format!("{:?}", self.history.keep)
    }

    fn reads_previous_states(&self) -> bool {
        true
    }

    fn work<'w>(&'w self, context: WorkerContext<'w>) -> BoxFuture<'w, Result<Infallible, Stop>> {
        Box::pin(self.record(context))
    }
}

impl KeepHistory {
    async fn record(&self, context: WorkerContext<'_>) -> Result<Infallible, Stop> {
        let Self { rule, history } = self;
        let stored = context.lease.token(0);
        let lost = context.lease.lost_token(0).and_then(time_of);
        // An application may drop a collection for good, so docward creates it only at the very beginning.
        let creates = stored.is_none() && lost.is_none();
        let exists = prepare::switch_on(context.client, rule, history, creates).await?;
        let entries = HistoryEntries { rule, client: context.client, history };
        prepare::expire(&entries).await?;
        let position = match stored {
            Some(position) => {
                let time = time_of(&position).ok_or_else(|| Stop::Failed("the stored position has no time".to_owned()));
                entries.require_beginning(time?).await?;
                position
            }
            None => begin(context, &entries, lost).await?.into(),
        };
        let stream =
            CollectionStream::open(context.client, 0, Some(position), &history.of, pipeline(), options()).await?;
        let recorder =
            HistoryRecorder { rule, context, entries, added: Vec::new(), bytes: 0, exists, prepared: Instant::now() };
        stream.follow(context, recorder).await
    }
}

/// Marks the beginning of the history, or the end of the gap since the cluster time `lost`, and returns it. Changes
/// after it have pre-images.
async fn begin(
    context: WorkerContext<'_>,
    entries: &HistoryEntries<'_>,
    lost: Option<Timestamp>,
) -> Result<Timestamp, Stop> {
    let (time, _) = prepare::server_time(context.client).await?;
    let reason = match lost {
        Some(_) => "the changes of this time were no longer available",
        None => "the history begins",
    };
    entries.mark(&Gap { end: time, until: end_of_second(time), operation: "gap", since: lost, reason }).await?;
    // A successor must not begin later.
    context.lease.store_token(0, time.into()).await?;
    Ok(time)
}

/// The events of a change stream without the new state, which can be as large as the previous one. An event must not be
/// larger than a document, and has the `_id` three times: once with two digits for each byte.
fn pipeline() -> Vec<bson::Document> {
    let bytes = doc! {"$add": [
        {"$bsonSize": "$fullDocumentBeforeChange"},
        {"$multiply": [3, {"$bsonSize": "$documentKey"}]},
    ]};
    let fits = doc! {"$lte": [bytes, LARGEST_DOCUMENT]};
    vec![doc! {"$project": {
        "operationType": 1, "ns": 1, "clusterTime": 1, "wallTime": 1, "document": "$documentKey._id",
        "before": {"$cond": [fits, "$fullDocumentBeforeChange", "too large"]},
    }}]
}

fn options() -> ChangeStreamOptions {
    let mut options = ChangeStreamOptions::default();
    options.full_document_before_change = Some(FullDocumentBeforeChangeType::WhenAvailable);
    // Somebody may switch pre-images off, or create the collection without them.
    options.show_expanded_events = Some(true);
    options
}

/// Stores the previous states of changes.
struct HistoryRecorder<'w> {
    rule: &'w str,
    context: WorkerContext<'w>,
    entries: HistoryEntries<'w>,
    added: Vec<NewEntry>,
    bytes: usize,
    /// Whether the collection existed at `prepared`.
    exists: bool,
    /// When it was last seen that pre-images are on.
    prepared: Instant,
}

impl ChangeHandler for HistoryRecorder<'_> {
    /// Reads of old states wait for this.
    const STORE_AGAIN: Duration = Duration::from_secs(1);

    fn add(&mut self, change: &ChangeEvent<'_>) -> Result<(), Stop> {
        let of = change.event.get("document").ok_or_else(unreadable)?;
        let before = match (change.event.get("before"), change.operation) {
            (Some(document), _) if document.kind == Kind::Document => PreviousState::State(OwnedValue::from(document)),
            (Some(large), _) if large.kind == Kind::String => PreviousState::Unknown(NO_ROOM.into()),
            (_, "insert") => PreviousState::Absent,
            _ => PreviousState::Unknown("the server had no pre-image of this change".into()),
        };
        self.bytes += change.event.as_bytes().len();
        self.added.push(NewEntry {
            of: of.into(),
            position: change.position.clone(),
            time: change.time,
            at: wall_time(change),
            operation: change.operation.to_owned(),
            before,
        });
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.added.len() >= BATCH || self.bytes >= BATCH_BYTES
    }

    async fn process(&mut self) -> Result<(), Stop> {
        self.bytes = 0;
        let stored = self.entries.store(std::mem::take(&mut self.added)).await?;
        tracing::debug!(rule = self.rule, stored = stored.entries, unknown = stored.unknown, "stored previous states");
        if stored.unknown > 0 {
            self.context.progress.add_unknown(stored.unknown);
            tracing::warn!(
                rule = self.rule,
                changes = stored.unknown,
                "previous states are unknown, and marked in {}: {}",
                self.entries.history.into,
                stored.reason
            );
        }
        // A server may not report that they were switched off, or that the collection was created without them.
        if !self.exists || self.prepared.elapsed() > PREPARE_AGAIN {
            self.altered().await?;
        }
        Ok(())
    }

    async fn altered(&mut self) -> Result<(), Stop> {
        self.exists = prepare::switch_on(self.context.client, self.rule, self.entries.history, false).await?;
        self.prepared = Instant::now();
        Ok(())
    }

    async fn end(&mut self, ended: &ChangeEvent<'_>) -> Result<(), Stop> {
        let until = DateTime::from_millis(wall_time(ended));
        let reason =
            &format!("a {} of {}: its documents have no previous states", ended.operation, self.entries.history.of);
        self.entries.mark(&Gap { end: ended.time, until, operation: ended.operation, since: None, reason }).await
    }
}

/// Milliseconds since 1970 UTC.
fn wall_time(change: &ChangeEvent<'_>) -> i64 {
    let wall_time = change.event.get("wallTime").and_then(Value::as_date);
    wall_time.unwrap_or_else(|| i64::from(change.time.time) * 1000)
}
