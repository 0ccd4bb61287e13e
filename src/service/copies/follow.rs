//! Follows the changes of one collection that contains originals, copies or both: a filtered change stream, and the
//! resume token up to which changes have been processed.
//!
//! The server sends only changes to fields named by an entry, each with the `_id`s of the originals to check. Tokens
//! are stored after the copies are written, so a change may be processed twice but is never lost.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bson::{Bson, Document as Query, RawDocumentBuf, Timestamp, doc};
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::ResumeToken;
use mongodb::error::ErrorKind;
use mongodb::options::{FullDocumentType, ReadPreference, SelectionCriteria};
use tokio::time::Instant;

use super::Stop;
use super::id::Id;
use super::lease::WorkerLease;
use super::repairer::Repairer;
use crate::document::{Document, OwnedValue, Value};
use crate::patterns::copies::{Collection, Copies, Entry, OnDelete, is_reference};
use crate::service::mongo::is_passing;

/// Number of changes after which the token of a busy stream is stored.
const BATCH: usize = 1000;
/// How often the token of a stream without relevant changes is stored: it must not become older than the oplog.
const STORE_AGAIN: Duration = Duration::from_secs(10);

/// Unauthorized and AuthenticationFailed, which do not depend on the token.
const DENIED: [i32; 2] = [13, 18];

/// The collections to watch: that of the originals, and each with copies.
pub(super) fn watched(copies: &Copies) -> Vec<Collection> {
    let mut collections = vec![copies.originals.clone()];
    for entry in &copies.entries {
        if !collections.contains(&entry.into) {
            collections.push(entry.into.clone());
        }
    }
    collections
}

/// An open change stream of one collection.
pub(super) struct Stream<'w> {
    repairer: &'w Repairer<'w>,
    /// Its index in [`watched`].
    number: usize,
    /// The meaning of a change's `ids`, in order.
    sources: Vec<IdSource<'w>>,
    changes: ChangeStream<RawDocumentBuf>,
}

/// The origin of an `_id` in a change.
#[derive(Clone, Copy)]
enum IdSource<'w> {
    /// The changed document is an original.
    Original,
    /// The changed document is a copy of this entry.
    Copy(&'w Entry),
}

/// Changes that are not processed yet.
#[derive(Default)]
struct ChangeBatch<'w> {
    changes: usize,
    /// Originals whose copies must all be checked.
    originals: HashMap<Id, OwnedValue>,
    /// Single copies to check, by the original's `_id`.
    copies: HashMap<Id, Vec<(&'w Entry, OwnedValue)>>,
    /// Deleted originals, which may exist again.
    deleted: HashMap<Id, OwnedValue>,
    ids: Vec<OwnedValue>,
    /// The cluster time of the last change.
    time: Option<OwnedValue>,
    token: Option<Bson>,
}

impl<'w> Stream<'w> {
    /// Opens the stream after `token`, a resume token or a time, or at the current time.
    pub(super) async fn open(
        repairer: &'w Repairer<'w>,
        collection: &Collection,
        number: usize,
        token: Option<Bson>,
    ) -> Result<Self, Stop> {
        let entries = repairer.copies.entries.iter().filter(|entry| entry.into == *collection);
        let original = (*collection == repairer.copies.originals).then_some(IdSource::Original);
        let sources: Vec<_> = original.into_iter().chain(entries.map(IdSource::Copy)).collect();
        let has_copies = sources.iter().any(|source| matches!(source, IdSource::Copy(_)));
        let resumes = token.is_some();
        let (time, token) = match token {
            Some(Bson::Timestamp(time)) => (Some(time), None),
            token => (None, token),
        };
        let token: Option<ResumeToken> = token
            .map(bson::deserialize_from_bson)
            .transpose()
            .map_err(|error| Stop::HistoryLost(format!("the stored token cannot be read: {error}")))?;
        let documents = repairer.client.database(&collection.database).collection::<RawDocumentBuf>(&collection.name);
        let mut watch = documents
            .watch()
            .pipeline(pipeline(repairer.copies, &sources))
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .resume_after(token);
        if let Some(time) = time {
            watch = watch.start_at_operation_time(time);
        }
        if has_copies {
            watch = watch.full_document(FullDocumentType::UpdateLookup);
        }
        let changes = watch.await.map_err(|error| match &*error.kind {
            // Other errors of the token show when a stream is opened without it.
            ErrorKind::Command(command) if resumes && !is_passing(&error) && !DENIED.contains(&command.code) => {
                Stop::HistoryLost(error.kind.to_string())
            }
            _ => error.into(),
        })?;
        Ok(Self { repairer, number, sources, changes: changes.with_type() })
    }

    /// The position at which the stream began, if known before its first change.
    pub(super) fn beginning(&self) -> Result<Option<Bson>, Stop> {
        self.changes.resume_token().as_ref().map(to_bson).transpose()
    }

    /// Processes changes as they arrive.
    pub(super) async fn follow(mut self, lease: &WorkerLease) -> Result<Infallible, Stop> {
        let mut batch = ChangeBatch::default();
        let mut idle_since = None;
        loop {
            let found = {
                let mut next = pin!(self.changes.next_if_any());
                // Processes together what the server sent together, while the next batch is requested.
                match futures_util::poll!(&mut next) {
                    Poll::Ready(found) => found,
                    Poll::Pending => {
                        process(self.repairer, self.number, &mut batch, lease).await?;
                        next.await
                    }
                }
            }?;
            match found {
                Some(change) => {
                    if let Err(stop) = batch.add(&change, self.number, &self.sources) {
                        // Earlier changes are not sent again.
                        process(self.repairer, self.number, &mut batch, lease).await?;
                        return Err(stop);
                    }
                }
                None if !self.changes.is_alive() => {
                    return Err(Stop::HistoryLost("the change stream has ended".to_owned()));
                }
                None if batch.changes == 0 && idle_since.is_none_or(|since: Instant| since.elapsed() > STORE_AGAIN) => {
                    if let Some(token) = self.changes.resume_token() {
                        lease.store_token(self.number, to_bson(&token)?).await?;
                    }
                    idle_since = Some(Instant::now());
                }
                None => {}
            }
            if batch.changes >= BATCH {
                process(self.repairer, self.number, &mut batch, lease).await?;
            }
        }
    }
}

fn to_bson(token: &ResumeToken) -> Result<Bson, Stop> {
    bson::serialize_to_bson(token).map_err(|error| Stop::Failed(format!("a resume token cannot be stored: {error}")))
}

async fn process(
    repairer: &Repairer<'_>,
    number: usize,
    batch: &mut ChangeBatch<'_>,
    lease: &WorkerLease,
) -> Result<(), Stop> {
    let batch = std::mem::take(batch);
    let originals = repairer.originals(&batch.ids, batch.time.as_ref()).await?;
    let mut work = repairer.work();
    for (id, original) in &originals {
        let alone = batch.copies.get(id);
        // The server may return an _id that is equal but has another type than the one requested.
        if batch.originals.contains_key(id) || alone.is_none() {
            repairer.copies.entries.iter().for_each(|entry| work.add(entry, original, None));
        } else {
            alone.into_iter().flatten().for_each(|(entry, copy)| work.add(entry, original, Some(copy)));
        }
    }
    let written = work.write().await?;
    for (_, id) in batch.deleted.iter().filter(|(id, _)| !originals.contains_key(*id)) {
        repairer.detach(id).await?;
    }
    if batch.changes > 0 {
        tracing::debug!(rule = repairer.rule, changes = batch.changes, copies = written.changed, "processed changes");
    }
    match batch.token {
        Some(token) => lease.store_token(number, token).await,
        None => Ok(()),
    }
}

impl<'w> ChangeBatch<'w> {
    /// Adds a change.
    ///
    /// # Errors
    /// [`Stop::Ended`] for a change that ends the stream: a drop or rename of the collection.
    fn add(&mut self, change: &RawDocumentBuf, stream: usize, sources: &[IdSource<'w>]) -> Result<(), Stop> {
        let malformed = || Stop::Failed("a change cannot be read".to_owned());
        let document = Document::parse(change.as_bytes()).map_err(|_| malformed())?;
        let kind = document.get("operationType").and_then(Value::as_str).ok_or_else(malformed)?;
        if !["insert", "update", "replace", "delete"].contains(&kind) {
            let time = change.get_timestamp("clusterTime").map_err(|_| malformed())?;
            let next = Timestamp { time: time.time, increment: time.increment.saturating_add(1) };
            return Err(Stop::Ended { stream, next, why: format!("a {kind} of a collection") });
        }
        let token = change.get("_id").ok().flatten().ok_or_else(malformed)?;
        self.token = Some(Bson::try_from(token).map_err(|_| malformed())?);
        self.time = document.get("clusterTime").map(OwnedValue::from);
        self.changes += 1;
        let copy = document.get("document").ok_or_else(malformed)?;
        let ids = document.get("ids").and_then(Value::as_array).ok_or_else(malformed)?;
        for (id, source) in ids.values().zip(sources) {
            match source {
                IdSource::Original if kind == "delete" => {
                    self.deleted.insert(Id::from(id), id.into());
                    self.ids.push(id.into());
                }
                IdSource::Original => self.add_original(id),
                // Inside an array, the path leads to an array of values.
                IdSource::Copy(entry) if entry.holder.is_some() => match id.as_array() {
                    Some(ids) => ids.values().for_each(|id| self.add_copy(entry, id, copy)),
                    None => self.add_copy(entry, id, copy),
                },
                IdSource::Copy(entry) => self.add_copy(entry, id, copy),
            }
        }
        Ok(())
    }

    fn add_original(&mut self, id: Value<'_>) {
        if is_reference(id) {
            self.originals.insert(Id::from(id), id.into());
            self.ids.push(id.into());
        }
    }

    fn add_copy(&mut self, entry: &'w Entry, id: Value<'_>, copy: Value<'_>) {
        if !is_reference(id) {
            return;
        }
        let copies = self.copies.entry(Id::from(id)).or_default();
        let copy = OwnedValue::from(copy);
        // One document may refer to an original several times.
        if !copies.iter().any(|(other, known)| std::ptr::eq(*other, entry) && *known == copy) {
            copies.push((entry, copy));
            self.ids.push(id.into());
        }
    }
}

/// Selects changes that touch a named field, each with its `document`'s `_id` and the `ids` of originals.
fn pipeline(copies: &Copies, sources: &[IdSource<'_>]) -> Vec<Query> {
    let mut fields = Vec::new();
    let mut ids = Vec::new();
    for source in sources {
        match source {
            IdSource::Original => {
                fields.extend(copies.entries.iter().flat_map(|entry| &entry.fields).map(|field| &field.original));
                ids.push("$documentKey._id".to_owned());
            }
            IdSource::Copy(entry) => {
                match &entry.holder {
                    // Inside an array, the paths of changes contain indexes.
                    Some(holder) => fields.push(holder),
                    None => fields.extend(entry.fields.iter().map(|field| &field.copied).chain([&entry.key])),
                }
                ids.push(format!("$fullDocument.{}", entry.key));
            }
        }
    }
    // The paths an update changed: a named field, one of its parents, or a path inside it.
    let list = |path: &str| doc! {"$ifNull": [path, []]};
    let changed = doc! {"$concatArrays": [
        {"$map": {"input": {"$objectToArray": {"$ifNull": ["$updateDescription.updatedFields", {}]}}, "in": "$$this.k"}},
        list("$updateDescription.removedFields"),
        {"$map": {"input": list("$updateDescription.truncatedArrays"), "in": "$$this.field"}},
    ]};
    let paths = fields.iter().map(|field| field.as_str());
    let around: Vec<Bson> = paths.clone().flat_map(with_parents).map(Bson::from).collect();
    let inside = paths.map(|path| doc! {"$eq": [{"$indexOfBytes": ["$$this", {"$literal": format!("{path}.")}]}, 0]});
    let mut touches = vec![doc! {"$in": ["$$this", {"$literal": around}]}];
    touches.extend(inside);
    let touched = doc! {"$anyElementTrue": [{"$map": {"input": changed, "in": {"$or": touches}}}]};
    let unsets = copies.entries.iter().any(|entry| entry.on_delete == OnDelete::Unset);
    let deletes = unsets && sources.iter().any(|source| matches!(source, IdSource::Original));
    let filtered = if deletes { vec!["update"] } else { vec!["update", "delete"] };
    vec![
        doc! {"$match": {"$or": [{"operationType": {"$nin": filtered}}, {"$and": [
            {"operationType": "update"}, {"$expr": touched},
        ]}]}},
        doc! {"$project": {
            "operationType": 1, "ns": 1, "clusterTime": 1, "document": "$documentKey._id", "ids": ids,
        }},
    ]
}

/// For `a.b.c`: the path itself, `a` and `a.b`.
fn with_parents(path: &str) -> impl Iterator<Item = String> {
    let ends = path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
    ends.filter_map(|end| path.get(..end).map(str::to_owned)).collect::<Vec<_>>().into_iter()
}
