//! Upserts whose filter gives an array around a rule's fields, and operators that change elements of it.

use super::*;

const HOBBIES: &str = "copies: [{ into: protected.COLLECTION, key: hobbies.id, fields: { n: hobbies.n } }]";
const NESTED: &str = "together: [a.x, a.y]";
const NUMBERED: &str = "sequence: { field: a.n, counter: COLLECTION, collection: counters }";

fn rejected(name: &'static str, rules: &'static [&'static str], filter: Document, change: Document) -> Entry {
    Entry {
        name,
        rules,
        stored: vec![],
        steps: vec![upsert(filter, change)],
        must: "is rejected, and nothing is inserted",
        holds: |seen| seen.code() == 121 && seen.nothing_stored(),
    }
}

fn copies() -> Vec<Entry> {
    let on_insert = |filter: Document, path: &str| {
        rejected(
            "copies: $setOnInsert of a key in an element of the filter",
            &[HOBBIES],
            filter,
            doc! {
                "$setOnInsert": { path: 7 }
            },
        )
    };
    vec![
        on_insert(doc! { "_id": 1, "hobbies": [{ "z": 1 }] }, "hobbies.0.id"),
        on_insert(doc! { "_id": 1, "hobbies": [{ "id": 1, "n": "A" }] }, "hobbies.0.id"),
        on_insert(doc! { "_id": 1, "hobbies": [{ "z": 1 }] }, "hobbies.$[].id"),
        Entry {
            name: "copies: $setOnInsert of a key with its copy in an element of the filter",
            must: "is inserted",
            holds: |seen| seen.code() == 0 && seen.stored.len() == 1,
            ..rejected(
                "",
                &[HOBBIES],
                doc! { "_id": 1, "hobbies": [{ "z": 1 }] },
                doc! { "$setOnInsert": { "hobbies.0.id": 7, "hobbies.0.n": "A" } },
            )
        },
    ]
}

fn together() -> Vec<Entry> {
    let one = |filter: Document, change: Document| {
        rejected("together: one of the fields in an element of the filter", &[NESTED], filter, change)
    };
    let array = || doc! { "_id": 1, "a": [{ "z": 1 }] };
    vec![
        one(array(), doc! { "$setOnInsert": { "a.0.x": 1 } }),
        one(array(), doc! { "$setOnInsert": { "a.$[].x": 1 } }),
        one(doc! { "_id": 1, "a": [] }, doc! { "$setOnInsert": { "a.1.x": 1 } }),
        one(doc! { "_id": 1, "a": { "$all": [[{ "z": 1 }]] } }, doc! { "$setOnInsert": { "a.0.x": 1 } }),
        one(doc! { "_id": 1, "a": [{ "x": 1 }] }, doc! { "$set": { "a.0.z": 1 } }),
        one(doc! { "_id": 1, "a": [{ "x": 1 }] }, doc! { "$push": { "a": { "x": 1, "y": 1 } } }),
        Entry {
            name: "together: both of the fields in an element of the filter",
            must: "are inserted",
            holds: |seen| seen.code() == 0 && seen.stored.len() == 1,
            ..one(array(), doc! { "$setOnInsert": { "a.0.x": 1, "a.0.y": 1 } })
        },
    ]
}

fn sequence() -> Vec<Entry> {
    let unknown = |filter: Document, change: Document| {
        rejected(
            "sequence: a number in an array of the filter, which the sequence does not know",
            &[NUMBERED],
            filter,
            change,
        )
    };
    const REJECTS: &str = "sequence: { field: a.n, counter: COLLECTION, collection: counters, provided: reject }";
    let given = |filter: Document, change: Document| {
        rejected("sequence: a number in an array, which clients may not provide", &[REJECTS], filter, change)
    };
    vec![
        unknown(doc! { "_id": 1, "a": [{ "n": 2 }] }, doc! { "$set": { "x": 1 } }),
        unknown(doc! { "_id": 1, "a": { "$in": [[{ "m": 1 }, { "n": 2 }]] } }, doc! { "$set": { "a.0.m": 2 } }),
        given(doc! { "_id": 1, "a": [{ "n": 9 }] }, doc! { "$set": { "x": 1 } }),
        given(doc! { "_id": 1 }, doc! { "$setOnInsert": { "a": [{ "n": 9 }] } }),
    ]
}

pub(super) fn entries() -> Vec<Entry> {
    [copies(), together(), sequence()].into_iter().flatten().collect()
}
