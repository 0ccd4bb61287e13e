//! Processes the changes of one collection that contains originals, copies or both.
//!
//! The server sends only changes to fields named by an entry, each with the `_id`s of the originals to check.

use std::collections::HashMap;
use std::time::Duration;

use bson::{Bson, Document as Query, doc};
use mongodb::options::{ChangeStreamOptions, FullDocumentType};

use super::repairer::Repairer;
use crate::document::{OwnedValue, Path, Value, parents};
use crate::patterns::Collection;
use crate::patterns::copies::{Copies, CopiesEntry, OnOriginalDelete, is_reference};
use crate::service::id::IdKey;
use crate::service::worker::stream::{ChangeEvent, ChangeHandler, CollectionStream, unreadable};
use crate::service::worker::{Stop, WorkerContext};

/// Number of changes that are processed together.
const BATCH: usize = 1000;

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

/// The origin of an `_id` in a change.
#[derive(Clone, Copy)]
enum IdSource<'w> {
    /// The changed document is an original.
    Original,
    /// The changed document is a copy of this entry.
    Copy(&'w CopiesEntry),
}

/// Changes that are not processed yet.
pub(super) struct ChangeBatch<'w> {
    repairer: &'w Repairer<'w>,
    /// The meaning of a change's `ids`, in order.
    sources: Vec<IdSource<'w>>,
    added: CollectedChanges<'w>,
}

#[derive(Default)]
struct CollectedChanges<'w> {
    changes: usize,
    /// Originals whose copies must all be checked.
    originals: HashMap<IdKey, OwnedValue>,
    /// Single copies to check, by the original's `_id`.
    copies: HashMap<IdKey, Vec<(&'w CopiesEntry, OwnedValue)>>,
    /// Deleted originals, which may exist again.
    deleted: HashMap<IdKey, OwnedValue>,
    ids: Vec<OwnedValue>,
    /// The cluster time of the last change.
    time: Option<OwnedValue>,
}

/// Opens the stream of a collection.
pub(super) async fn open<'w>(
    repairer: &'w Repairer<'w>,
    collection: &Collection,
    number: usize,
    context: WorkerContext<'_>,
) -> Result<(CollectionStream, ChangeBatch<'w>), Stop> {
    let entries = repairer.copies.entries.iter().filter(|entry| entry.into == *collection);
    let original = (*collection == repairer.copies.originals).then_some(IdSource::Original);
    let sources: Vec<_> = original.into_iter().chain(entries.map(IdSource::Copy)).collect();
    let has_copies = sources.iter().any(|source| matches!(source, IdSource::Copy(_)));
    let mut options = ChangeStreamOptions::default();
    options.full_document = has_copies.then_some(FullDocumentType::UpdateLookup);
    let pipeline = pipeline(repairer.copies, &sources);
    let stream =
        CollectionStream::open(context.client, number, context.lease.token(number), collection, pipeline, options)
            .await?;
    Ok((stream, ChangeBatch { repairer, sources, added: CollectedChanges::default() }))
}

impl ChangeHandler for ChangeBatch<'_> {
    const STORE_AGAIN: Duration = Duration::from_secs(10);

    fn add(&mut self, change: &ChangeEvent<'_>) -> Result<(), Stop> {
        self.added.add(change, &self.sources)
    }

    fn is_full(&self) -> bool {
        self.added.changes >= BATCH
    }

    async fn process(&mut self) -> Result<(), Stop> {
        let (repairer, added) = (self.repairer, std::mem::take(&mut self.added));
        let originals = repairer.originals(&added.ids, added.time.as_ref()).await?;
        let mut work = repairer.work();
        for (id, original) in &originals {
            let alone = added.copies.get(id);
            // The server may return an _id that is equal but has another type than the one requested.
            if added.originals.contains_key(id) || alone.is_none() {
                repairer.copies.entries.iter().for_each(|entry| work.add(entry, original, None));
            } else {
                alone.into_iter().flatten().for_each(|(entry, copy)| work.add(entry, original, Some(copy)));
            }
        }
        let written = work.write().await?;
        for (_, id) in added.deleted.iter().filter(|(id, _)| !originals.contains_key(*id)) {
            repairer.detach(id).await?;
        }
        tracing::debug!(rule = repairer.rule, changes = added.changes, copies = written.changed, "processed changes");
        Ok(())
    }
}

impl<'w> CollectedChanges<'w> {
    fn add(&mut self, change: &ChangeEvent<'_>, sources: &[IdSource<'w>]) -> Result<(), Stop> {
        self.time = change.event.get("clusterTime").map(OwnedValue::from);
        self.changes += 1;
        let copy = change.event.get("document").ok_or_else(unreadable)?;
        let ids = change.event.get("ids").and_then(Value::as_array).ok_or_else(unreadable)?;
        for (id, source) in ids.values().zip(sources) {
            match source {
                IdSource::Original if change.operation == "delete" => {
                    self.deleted.insert(IdKey::from(id), id.into());
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
            self.originals.insert(IdKey::from(id), id.into());
            self.ids.push(id.into());
        }
    }

    fn add_copy(&mut self, entry: &'w CopiesEntry, id: Value<'_>, copy: Value<'_>) {
        if !is_reference(id) {
            return;
        }
        let copies = self.copies.entry(IdKey::from(id)).or_default();
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
                let originals = copies.entries.iter().flat_map(|entry| &entry.fields);
                fields.extend(originals.map(|field| field.original.as_str()));
                ids.push("$documentKey._id".to_owned());
            }
            IdSource::Copy(entry) => {
                match &entry.holder {
                    // The holder, or a field around it, may be an array. The paths of changes inside it contain indexes.
                    Some(holder) => fields.push(holder.root()),
                    None => fields.extend(entry.paths().map(Path::as_str)),
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
    let paths = fields.iter().copied();
    let with_parents = |path| parents(path).chain([path]).map(Bson::from);
    let around: Vec<Bson> = paths.clone().flat_map(with_parents).collect();
    let inside = paths.map(|path| doc! {"$eq": [{"$indexOfBytes": ["$$this", {"$literal": format!("{path}.")}]}, 0]});
    let mut touches = vec![doc! {"$in": ["$$this", {"$literal": around}]}];
    touches.extend(inside);
    let touched = doc! {"$anyElementTrue": [{"$map": {"input": changed, "in": {"$or": touches}}}]};
    let unsets = copies.entries.iter().any(|entry| entry.on_delete == OnOriginalDelete::Unset);
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
