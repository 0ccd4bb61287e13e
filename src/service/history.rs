//! Keeps the previous states of changed documents. For each rule, one worker among all docward processes follows the
//! changes of the collection and stores an entry for each.
//!
//! An entry is `{_id: {of, revision}, at, operation, document, change}`. `revision` counts the changes of a document,
//! and `change` is the change's position in the stream. A change whose position is not after that of the document's
//! last entry is already stored. Entries of a document are stored in the order of its changes. So it does not matter
//! whether a worker is killed after it stored entries and before it stored its progress, or whether two workers store
//! the same entries for a moment: the second one meets a duplicate key and reads what is stored.
//!
//! A time whose changes are not known has a marker `{_id: {gap}, at, operation, since, reason}`.
//!
//! `entries` stores entries, `prepare` prepares the collections, [`read`] reads old states.

mod entries;
pub(super) mod prepare;
pub mod read;

use std::convert::Infallible;
use std::time::Duration;

use bson::{DateTime, Timestamp, doc};
use futures_util::future::BoxFuture;
use mongodb::options::{ChangeStreamOptions, FullDocumentBeforeChangeType};
use tokio::time::Instant;

use super::worker::stream::{Change, Changes, Stream, time_of, unreadable};
use super::worker::{Stop, Task, Turn, Words};
use crate::document::{Kind, OwnedValue, Value};
use crate::patterns::history::History;
use entries::{Before, Entries, NewEntry};

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

/// The lease's label; `keep` may change without a new beginning.
fn label(rule: &str, history: &History) -> String {
    format!("history {rule}: {} -> {}", history.of, history.into)
}

impl Task for KeepHistory {
    fn words(&self) -> Words {
        Words {
            pattern: "history",
            does: "keeps the history",
            undone: "the history is not kept",
            after_loss: "the history has a gap, which is marked in its collection",
        }
    }

    fn rule(&self) -> &str {
        &self.rule
    }

    fn label(&self) -> String {
        label(&self.rule, &self.history)
    }

    /// With another `keep`, only this part of the work begins again.
    fn settings(&self) -> String {
        format!("{:?}", self.history.keep)
    }

    fn work<'w>(&'w self, turn: Turn<'w>) -> BoxFuture<'w, Result<Infallible, Stop>> {
        Box::pin(self.record(turn))
    }
}

impl KeepHistory {
    async fn record(&self, turn: Turn<'_>) -> Result<Infallible, Stop> {
        let Self { rule, history } = self;
        let stored = turn.lease.token(0);
        let lost = turn.lease.lost_token(0).and_then(time_of);
        prepare::require_support(turn.deployment)?;
        // An application may drop a collection for good, so docward creates it only at the very beginning.
        let creates = stored.is_none() && lost.is_none();
        let exists = prepare::switch_on(turn.client, history, creates).await?;
        prepare::expire(turn.client, history).await?;
        let mut options = ChangeStreamOptions::default();
        options.full_document_before_change = Some(FullDocumentBeforeChangeType::WhenAvailable);
        // Without the new state, which can be as large as the previous one.
        let pipeline = vec![doc! {"$project": {
            "operationType": 1, "ns": 1, "clusterTime": 1, "wallTime": 1, "document": "$documentKey._id",
            "before": "$fullDocumentBeforeChange",
        }}];
        let stream = Stream::open(turn, 0, &history.of, pipeline, options).await?;
        let entries = Entries { client: turn.client, history };
        if let Some(token) = stream.beginning()? {
            if stored.is_none() {
                let at = time_of(&token).ok_or_else(|| Stop::Failed("a resume token has no time".to_owned()))?;
                let reason = match lost {
                    Some(_) => "the changes of this time were no longer available",
                    None => "the history begins",
                };
                entries.mark(at, end_of_second(at), "gap", lost, reason).await?;
            }
            // A successor must not begin later.
            turn.lease.store_token(0, token).await?;
        }
        let recorder = Recorder { rule, turn, entries, added: Vec::new(), bytes: 0, exists, prepared: Instant::now() };
        stream.follow(turn, recorder).await
    }
}

/// Cluster times have whole seconds. Nothing is known for certain before the end of that second.
fn end_of_second(time: Timestamp) -> DateTime {
    DateTime::from_millis(i64::from(time.time) * 1000 + 999)
}

/// Stores the previous states of changes.
struct Recorder<'w> {
    rule: &'w str,
    turn: Turn<'w>,
    entries: Entries<'w>,
    added: Vec<NewEntry>,
    bytes: usize,
    /// Whether the collection existed at `prepared`.
    exists: bool,
    /// When it was last seen that pre-images are on.
    prepared: Instant,
}

impl Changes for Recorder<'_> {
    /// Reads of old states wait for this.
    const STORE_AGAIN: Duration = Duration::from_secs(1);

    fn add(&mut self, change: &Change<'_>) -> Result<(), Stop> {
        let of = change.event.get("document").ok_or_else(unreadable)?;
        let before = match (change.event.get("before").filter(|value| value.kind == Kind::Document), change.operation) {
            (Some(document), _) => Before::State(OwnedValue::from(document)),
            (None, "insert") => Before::Absent,
            (None, _) => Before::Unknown("the server had no pre-image of this change"),
        };
        self.bytes += change.event.as_bytes().len();
        self.added.push(NewEntry {
            of: of.into(),
            position: change.position.clone(),
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
            self.turn.progress.add_unknown(stored.unknown);
            tracing::warn!(
                rule = self.rule,
                changes = stored.unknown,
                "previous states are unknown, and marked in {}: {}",
                self.entries.history.into,
                stored.reason
            );
        }
        // They may have been switched off meanwhile, and a collection that was created meanwhile has none.
        if !self.exists || self.prepared.elapsed() > PREPARE_AGAIN {
            self.exists = prepare::switch_on(self.turn.client, self.entries.history, false).await?;
            self.prepared = Instant::now();
        }
        Ok(())
    }

    async fn end(&mut self, ended: &Change<'_>) -> Result<(), Stop> {
        let at = DateTime::from_millis(wall_time(ended));
        let reason =
            format!("a {} of {}: its documents have no previous states", ended.operation, self.entries.history.of);
        self.entries.mark(ended.time, at, ended.operation, None, &reason).await
    }
}

/// Milliseconds since 1970 UTC.
fn wall_time(change: &Change<'_>) -> i64 {
    let wall_time = change.event.get("wallTime").and_then(Value::as_date);
    wall_time.unwrap_or_else(|| i64::from(change.time.time) * 1000)
}
