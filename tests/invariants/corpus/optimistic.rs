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
            name: "sequence: a replacing upsert whose filter has a number that another document has",
            rules: &[ON_UPSERT],
            stored: stored(),
            steps: numbered(upsert(doc! { "no": equal(), "x": 2 }, doc! { "y": 1 })),
            must: "the duplicate key is reported at once",
            holds: others_fail_at_once,
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
