//! Compares the entries of a `history` rule with the server's own change stream: each change has one entry, in order,
//! with the document before it.

use std::collections::BTreeMap;

use bson::{Bson, Document, doc};

use super::lab::{PROTECTED, server};
use super::values::as_number;
use support::driver::ok;
use support::process::{TIMEOUT, poll};
use support::raw::Client;

/// The `_id` of the last document that is inserted and deleted.
const END: &str = "end of the history";

/// The operations and the documents before them, by the document's `_id`.
type Changes = BTreeMap<String, Vec<(String, Option<Document>)>>;

/// A change stream of one collection.
pub(super) struct Follower {
    client: Client,
    collection: String,
    cursor: i64,
}

/// The collection of the entries.
pub(super) fn into(collection: &str) -> String {
    format!("{collection}_history")
}

/// Equal numbers of all types are the same `_id` for the server.
fn key(id: &Bson) -> String {
    as_number(id).map_or_else(|| id.to_string(), |number| (number + 0.0).to_string())
}

impl Follower {
    /// Waits until docward keeps the history, and follows the changes from then on.
    pub(super) fn start(collection: &str) -> Follower {
        let mut client = Client::connect(&server().address());
        let mut begun = || client.command(PROTECTED, doc! { "count": into(collection) }).get_i32("n").unwrap() > 0;
        assert!(poll(TIMEOUT, || begun().then_some(())).is_some(), "the history of {collection} does not begin");
        let stream = doc! { "$changeStream": { "fullDocumentBeforeChange": "whenAvailable" } };
        let open = doc! { "aggregate": collection, "pipeline": [stream], "cursor": {} };
        let reply = client.command(PROTECTED, open);
        let cursor = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
        Follower { client, collection: collection.to_owned(), cursor }
    }

    /// Waits until docward has recorded all changes, and returns what is wrong with the entries.
    pub(super) fn wrong(mut self) -> Option<String> {
        let end = doc! { "_id": END };
        for command in [
            doc! { "insert": &self.collection, "documents": [end.clone()] },
            doc! { "delete": &self.collection, "deletes": [{ "q": end, "limit": 1 }] },
        ] {
            let reply = self.client.command(PROTECTED, command);
            assert!(ok(&reply), "{reply}");
        }
        let changes = self.changes()?;
        let last = doc! { "count": into(&self.collection), "query": { "_id": { "of": END, "revision": 2 } } };
        let mut is_done = || self.client.command(PROTECTED, last.clone()).get_i32("n").unwrap() > 0;
        if poll(TIMEOUT, || is_done().then_some(())).is_none() {
            return Some("the worker does not catch up".to_owned());
        }
        let entries = match self.entries() {
            Ok(entries) => entries,
            Err(wrong) => return Some(wrong),
        };
        // NaN is unequal to itself.
        let bytes = |changes: &[(String, Option<Document>)]| {
            let state = |(operation, state): &(String, Option<Document>)| {
                (operation.clone(), state.as_ref().map(|state| state.to_vec().unwrap()))
            };
            changes.iter().map(state).collect::<Vec<_>>()
        };
        let none = Vec::new();
        changes.keys().chain(entries.keys()).find_map(|id| {
            let (expected, found) = (changes.get(id).unwrap_or(&none), entries.get(id).unwrap_or(&none));
            let differs = bytes(expected) != bytes(found);
            differs.then(|| format!("the entries differ from the changes: of {id}: {found:?}, expected {expected:?}"))
        })
    }

    /// `None` if the collection was dropped or renamed, which begins another history.
    fn changes(&mut self) -> Option<Changes> {
        let mut changes = Changes::new();
        loop {
            let more = doc! { "getMore": self.cursor, "collection": &self.collection, "maxTimeMS": 1000 };
            let reply = self.client.command(PROTECTED, more);
            for event in reply.get_document("cursor").unwrap().get_array("nextBatch").unwrap() {
                let event = event.as_document().unwrap();
                let operation = event.get_str("operationType").unwrap();
                let before = event.get_document("fullDocumentBeforeChange").ok().cloned();
                let id = event.get_document("documentKey").ok()?.get("_id").unwrap();
                assert!(operation == "insert" || before.is_some(), "pre-images are off: {event}");
                changes.entry(key(id)).or_default().push((operation.to_owned(), before));
                if operation == "delete" && id.as_str() == Some(END) {
                    return Some(changes);
                }
            }
        }
    }

    fn entries(&mut self) -> Result<Changes, String> {
        let all = doc! { "find": into(&self.collection), "sort": { "_id": 1 }, "batchSize": 100_000 };
        let reply = self.client.command(PROTECTED, all);
        let mut entries = Changes::new();
        for entry in reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap() {
            let entry = entry.as_document().unwrap();
            let Some(id) = entry.get_document("_id").unwrap().get("of") else { continue };
            let of_document = entries.entry(key(id)).or_default();
            let state = entry.get_document("document").ok().cloned();
            of_document.push((entry.get_str("operation").unwrap().to_owned(), state));
            let revision = entry.get_document("_id").unwrap().get("revision").and_then(as_number);
            if revision != Some(of_document.len() as f64) {
                return Err(format!("a revision is missing or double: {entry}"));
            }
        }
        Ok(entries)
    }
}
