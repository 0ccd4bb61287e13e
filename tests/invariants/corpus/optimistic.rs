//! Numbers of the optimistic strategy: duplicates that are not docward's, and other rules for the document with the
//! number.

use super::*;

const OPTIMISTIC: &str = "sequence: { field: no, strategy: optimistic }";
const ON_UPSERT: &str = "sequence: { field: no, strategy: optimistic, on_upsert: true }";

fn others_fail_at_once(seen: &Seen) -> bool {
    seen.code() == 11000 && seen.took < Duration::from_secs(1) && seen.stored.len() == 1
}

/// A document that has exactly 100 bytes with an `_id` and without its number.
fn of_100_bytes(id: i32) -> Document {
    let document = doc! { "_id": id, "x": "" };
    let length = document.to_vec().unwrap().len();
    doc! { "_id": id, "x": "x".repeat(100 - length) }
}

/// A command on a collection in which the number is unique.
fn numbered(step: Step) -> Vec<Step> {
    let index = doc! {
        "key": { "no": 1 }, "name": "no", "unique": true, "partialFilterExpression": { "no": { "$exists": true } },
    };
    vec![plain(doc! { "createIndexes": "c", "indexes": [index] }), step]
}

pub(super) fn entries() -> Vec<Entry> {
    let stored = || vec![doc! { "_id": 1, "no": 20, "x": 1 }];
    let equal = || doc! { "$in": [20, decimal("20")] };
    let long = |count: i32| (1..=count).map(of_100_bytes).collect::<Vec<_>>();
    vec![
        Entry {
            name: "sequence: a replacing upsert whose filter may have a number that another document has",
            rules: &[ON_UPSERT],
            stored: stored(),
            steps: numbered(upsert(doc! { "no": equal(), "x": 2 }, doc! { "y": 1 })),
            must: "inserts no document without a number",
            holds: |seen| seen.code() == 121 && seen.stored.len() == 1,
        },
        Entry {
            name: "sequence: an upsert whose filter has a number that another document has",
            rules: &[ON_UPSERT],
            stored: stored(),
            steps: numbered(upsert(doc! { "no": equal(), "x": 2 }, doc! { "$set": { "y": 1 } })),
            must: "the duplicate key is reported at once",
            holds: others_fail_at_once,
        },
        Entry {
            name: "limits: an optimistic number makes an inserted document too long",
            rules: &[OPTIMISTIC, "limits: { document: 105B }"],
            stored: vec![],
            steps: vec![insert(long(1))],
            must: "is rejected",
            holds: |seen| seen.code() == 121 && seen.nothing_stored(),
        },
        Entry {
            name: "limits: an optimistic number makes one document of an ordered batch too long",
            rules: &[OPTIMISTIC, "limits: { document: 105B }"],
            stored: vec![],
            steps: vec![insert([vec![doc! { "_id": 7 }], long(2), vec![doc! { "_id": 8 }]].concat())],
            must: "the documents before it are inserted",
            holds: |seen| seen.code() == 121 && seen.stored == [doc! { "_id": 7, "no": 1 }],
        },
        Entry {
            name: "limits: an upsert by a replacement that keeps an optimistic number",
            rules: &[ON_UPSERT, "limits: { document: 1600B }"],
            stored: vec![],
            steps: vec![upsert(doc! {}, doc! {})],
            must: "is inserted with a number",
            holds: |seen| seen.code() == 0 && seen.numbered("no") && seen.stored.len() == 1,
        },
        Entry {
            name: "limits: an upsert by a replacement that keeps an optimistic number of a stored document",
            rules: &[ON_UPSERT, "limits: { document: 1600B }"],
            stored: vec![doc! { "_id": 1, "no": 7 }],
            steps: vec![upsert(doc! { "_id": 1 }, doc! { "a": 1 })],
            must: "replaces it",
            holds: |seen| seen.code() == 0 && seen.stored == [doc! { "_id": 1, "a": 1, "no": 7 }],
        },
        Entry {
            name: "limits: an upsert with a number that timestamps makes a pipeline of",
            rules: &[
                "timestamps: { source: at, fields: [a.n, b], without_source: clock }",
                SEQUENCE_UPSERT,
                "limits: { document: 1600B }",
            ],
            stored: vec![],
            steps: vec![upsert(doc! {}, doc! { "$set": { "at": date(PAST) } })],
            must: "is inserted with a number",
            holds: |seen| seen.code() == 0 && seen.numbered("no") && seen.stored.len() == 1,
        },
        Entry {
            name: "schema_version: an upsert with an optimistic number",
            rules: &[
                "sequence: { field: a.n, strategy: optimistic, on_upsert: true }",
                "schema_version: { field: b, current: 2, minimum: 1 }",
            ],
            stored: vec![],
            steps: vec![upsert(doc! {}, doc! { "$set": { "b": 1 } })],
            must: "is inserted with a number",
            holds: |seen| seen.code() == 0 && at(&seen.one(), "a.n") == Some(&Bson::Int32(1)),
        },
        Entry {
            name: "bounds: an optimistic number beyond the range",
            rules: &[OPTIMISTIC, "bounds: { field: no, max: 21 }"],
            stored: stored(),
            steps: vec![plain(doc! {
                "insert": "c", "documents": [{ "_id": 2 }, { "_id": 3 }, { "_id": 4 }], "ordered": false,
            })],
            must: "only the first document is inserted",
            holds: |seen| seen.code() == 121 && seen.n() == 1 && seen.stored.len() == 2,
        },
    ]
}
