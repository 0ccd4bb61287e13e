//! Conditions of rules that once gave the client's `$` the position of an element in another array.

use super::*;

fn tagged(id: i32, version: impl Into<Bson>) -> Document {
    doc! { "_id": id, "tags": ["a", "b"], "version": version.into() }
}

/// An update that selects the second tag.
fn change(id: i32, set: Document) -> Step {
    let mut fields = doc! { "tags.$": "z" };
    fields.extend(set);
    update(doc! { "_id": id, "tags": "b" }, doc! { "$set": fields })
}

fn save(update: Document) -> Step {
    let query = doc! { "_id": 1, "tags": "b" };
    plain(doc! { "findAndModify": "c", "query": query, "update": update, "fields": { "tags.$": 1 } })
}

/// Whether no document has another tag in the place of the first one.
fn first_tags_are_kept(seen: &Seen) -> bool {
    let first = |document: &Document| document.get_array("tags").ok()?.first().cloned();
    seen.stored.iter().all(|document| first(document) == Some("a".into()))
}

pub(super) fn entries() -> Vec<Entry> {
    vec![
        Entry {
            name: "positions: a checked update by operators of a version that is an array",
            rules: &[CHECK],
            stored: vec![tagged(1, vec![2, 1]), tagged(2, Bson::Array(vec![Bson::Null, 1.into()]))],
            steps: vec![change(1, doc! { "version": 2 }), change(2, doc! { "version": Bson::Null })],
            must: "is a conflict: an element of an array is no version",
            holds: |seen| first_tags_are_kept(seen) && seen.code() == 112,
        },
        Entry {
            name: "positions: a save with a positional projection of a version that is an array",
            rules: &[CHECK],
            stored: vec![tagged(1, vec![2, 1])],
            steps: vec![
                save(doc! { "$set": { "x": 1, "version": 2 } }),
                save(doc! { "tags": ["a", "b"], "x": 1, "version": 2 }),
            ],
            must: "is a conflict, and returns no document",
            holds: |seen| {
                let failed = |reply: &Document| !ok(reply) && !reply.contains_key("value");
                seen.replies.iter().all(failed) && !seen.one().contains_key("x")
            },
        },
        Entry {
            name: "positions: a replacement with a positional projection and the number of a sequence",
            rules: &["sequence: { field: no, counter: COLLECTION, collection: counters, provided: reject }"],
            stored: vec![doc! { "_id": 1, "tags": ["a", "b"], "no": [2, 1] }],
            steps: vec![save(doc! { "tags": ["a", "b"], "x": 1, "no": 2 })],
            must: "returns no other element than the one that its filter selects",
            holds: |seen| {
                !seen.last().get_document("value").is_ok_and(|read| at(read, "tags") == Some(&vec!["a"].into()))
            },
        },
        Entry {
            name: "positions: a save of a whole array as the version",
            rules: &[CHECK],
            stored: vec![tagged(1, vec![2, 1])],
            steps: vec![change(1, doc! { "version": [2, 1], "x": 1 })],
            must: "is rejected or done, and writes the element that its filter selects",
            holds: first_tags_are_kept,
        },
    ]
}
