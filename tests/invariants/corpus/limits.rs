//! Statements whose growth docward once counted too low, and patterns that read the values of `$addToSet`.

use super::*;

const THREE: &str = "limits: { items: { messages: 3 } }";
const SHORT: &str = "limits: { document: 200B }";
const LONG: &str = "limits: { document: 1600B }";
const TIMED: &str = "timestamps: { source: at, fields: [b] }";

fn full() -> Vec<Document> {
    vec![doc! { "_id": 1, "messages": [1, 2, 3] }]
}

fn rejected(seen: &Seen) -> bool {
    seen.code() == 121
}

/// A name that takes more bytes than any position.
fn long_name() -> String {
    "x".repeat(150)
}

pub(super) fn entries() -> Vec<Entry> {
    let push_zeros =
        || update(doc! { "_id": 1, "messages.00": { "$exists": false } }, doc! { "$push": { "messages": 9 } });
    let beside = |value: i32| doc! { "a": value, "$each": [] };
    let named = |name: &str, operator: &str, value: Bson| {
        let (outer, inner) = ("k".repeat(30), "j".repeat(30));
        Entry {
            name: "limits: a path with a name that begins with $",
            rules: &["limits: { document: 400B }"],
            stored: vec![doc! { "_id": 1, "pad": "x".repeat(300), "z": 1 }],
            steps: vec![update(doc! { "_id": 1 }, doc! { operator: { format!("{outer}.{inner}.{name}"): value } })],
            must: "counts the documents around it",
            holds: |seen| seen.code() == 121 && seen.one().len() == 3,
        }
    };
    vec![
        Entry {
            name: "limits: a push to a full array inside an array, as an upsert",
            rules: &["limits: { items: { m.arr: 3 } }"],
            stored: vec![doc! { "_id": 1, "m": [{ "arr": [1, 2, 3] }] }],
            steps: vec![upsert(doc! { "_id": 1 }, doc! { "$push": { "m.arr": 1 } })],
            must: "is an error, as directly",
            holds: |seen| seen.code() == 121 && seen.stored.len() == 1,
        },
        Entry {
            name: "limits: an upsert adds an equal number of another type to the full array of its filter",
            rules: &[THREE],
            stored: vec![],
            steps: vec![upsert(doc! { "messages": { "$eq": [1, 2, 8] } }, doc! { "$addToSet": { "messages": 8.0 } })],
            must: "inserts the array of the filter, as directly",
            holds: |seen| seen.one().get_array("messages").is_ok_and(|items| items.len() == 3),
        },
        named("$id", "$set", "c".into()),
        named("$id", "$inc", 1.into()),
        named("$id", "$currentDate", true.into()),
        named("$name", "$set", "c".into()),
        named("$[x", "$set", "c".into()),
        Entry {
            name: "limits: a path with a name that begins with $, within the limit",
            must: "is stored",
            holds: |seen| seen.code() == 0 && at(&seen.one(), "k.$id") == Some(&Bson::Int32(1)),
            steps: vec![update(doc! { "_id": 1 }, doc! { "$set": { "k.$id": 1 } })],
            ..named("$id", "$set", 1.into())
        },
        Entry {
            name: "limits: a position with leading zeros in the filter is no condition",
            rules: &[THREE],
            stored: full(),
            steps: vec![push_zeros()],
            must: "is rejected",
            holds: rejected,
        },
        Entry {
            name: "limits: $addToSet with $each after another field adds the document",
            rules: &[THREE],
            stored: full(),
            steps: vec![update(doc! { "_id": 1 }, doc! { "$addToSet": { "messages": beside(1) } })],
            must: "is rejected",
            holds: rejected,
        },
        Entry {
            name: "limits: an upsert by $addToSet of a value that its filter's array has",
            rules: &["limits: { items: { messages: 1 } }"],
            stored: vec![],
            steps: vec![upsert(doc! { "messages": [1] }, doc! { "$addToSet": { "messages": 1 } })],
            must: "inserts the array of the filter",
            holds: |seen| seen.code() == 0 && is(seen, "messages", vec![1]),
        },
        Entry {
            name: "limits: an upsert by $addToSet of another value than its filter's array has",
            rules: &["limits: { items: { messages: 1 } }"],
            stored: vec![],
            steps: vec![upsert(doc! { "messages": [1] }, doc! { "$addToSet": { "messages": { "$each": [1, 2] } } })],
            must: "is rejected",
            holds: rejected,
        },
        Entry {
            name: "limits: an upsert by $addToSet of one value twice",
            rules: &["limits: { items: { messages: 2 } }"],
            stored: vec![],
            steps: vec![upsert(doc! { "messages": [1] }, doc! { "$addToSet": { "messages": { "$each": [2, 2] } } })],
            must: "inserts it once",
            holds: |seen| is(seen, "messages", vec![1, 2]),
        },
        Entry {
            name: "limits: the bytes of an $addToSet with $each after another field",
            rules: &[SHORT],
            stored: vec![doc! { "_id": 1 }],
            steps: vec![update(
                doc! { "_id": 1 },
                doc! { "$addToSet": { "messages": { "a": long_name(), "$each": [] } } },
            )],
            must: "is rejected",
            holds: rejected,
        },
        Entry {
            name: "limits: arrays that $[] creates in elements",
            rules: &[SHORT],
            stored: vec![doc! { "_id": 1, "messages": [{}, {}] }],
            steps: vec![update(
                doc! { "_id": 1 },
                doc! { "$push": { format!("messages.$[].{}", long_name()): { "$each": [] } } },
            )],
            must: "is rejected",
            holds: rejected,
        },
        Entry {
            name: "limits: an array that a push creates behind a position",
            rules: &[SHORT],
            stored: vec![doc! { "_id": 1, "messages": [{}] }],
            steps: vec![update(
                doc! { "_id": 1 },
                doc! { "$addToSet": { format!("messages.0.{}", long_name()): { "$each": [] } } },
            )],
            must: "is rejected",
            holds: rejected,
        },
        Entry {
            name: "limits: nulls before a position in an array in an array",
            rules: &[SHORT],
            stored: vec![doc! { "_id": 1, "messages": [[]] }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$set": { "messages.$[].80": 1 } })],
            must: "is rejected",
            holds: rejected,
        },
        Entry {
            name: "limits: an upsert applies $[] to each element of the filter's array",
            rules: &[SHORT],
            stored: vec![],
            steps: vec![upsert(
                doc! { "_id": 1, "messages": [{}, {}, {}, {}] },
                doc! { "$set": { "messages.$[].x": "x".repeat(60) } },
            )],
            must: "is rejected",
            holds: |seen| rejected(seen) && seen.nothing_stored(),
        },
        Entry {
            name: "limits: the same by $setOnInsert",
            rules: &[SHORT],
            stored: vec![],
            steps: vec![upsert(
                doc! { "_id": 1, "messages": [{}, {}, {}, {}] },
                doc! { "$setOnInsert": { "messages.$[].x": "x".repeat(60) } },
            )],
            must: "is rejected",
            holds: |seen| rejected(seen) && seen.nothing_stored(),
        },
        Entry {
            name: "limits: an upsert writes a position beyond the filter's array by $setOnInsert",
            rules: &[THREE],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1, "messages": [1] }, doc! { "$setOnInsert": { "messages.9": 1 } })],
            must: "is rejected",
            holds: |seen| rejected(seen) && seen.nothing_stored(),
        },
        Entry {
            name: "limits: $ has the position of an element of another array",
            rules: &[THREE],
            stored: vec![doc! { "_id": 1, "messages": [], "other": [1, 2, 3, 4, 5] }],
            steps: vec![update(doc! { "_id": 1, "other": 5 }, doc! { "$set": { "messages.$": 1 } })],
            must: "is rejected",
            holds: rejected,
        },
        Entry {
            name: "limits: the bytes before the position of an element of another array",
            rules: &[SHORT],
            stored: vec![doc! { "_id": 1, "messages": [], "b": (0..15).collect::<Vec<i32>>() }],
            steps: vec![update(doc! { "_id": 1, "b": 14 }, doc! { "$set": { "messages.$": 1 } })],
            must: "is rejected",
            holds: rejected,
        },
        Entry {
            name: "limits: $exists selects the first element of another array",
            rules: &["limits: { document: 60B }"],
            stored: vec![doc! { "_id": 1, "messages": [7, 8, 9] }],
            steps: vec![update(
                doc! { "_id": 1, "messages": { "$exists": true } },
                doc! { "$set": { "last_modified.$": 1 } },
            )],
            must: "is rejected",
            holds: rejected,
        },
        Entry {
            name: "limits: $exists below another array gives $ a position beyond the array",
            rules: &[THREE],
            stored: vec![doc! { "_id": 1, "messages": [1], "other": [{}, {}, {}, { "x": 1 }] }],
            steps: vec![update(
                doc! { "_id": 1, "other.x": { "$exists": true } },
                doc! { "$set": { "messages.$": 1 } },
            )],
            must: "is rejected",
            holds: rejected,
        },
        Entry {
            name: "limits: an array in an element of the array gives $ a position beyond the array",
            rules: &[THREE],
            stored: vec![doc! { "_id": 1, "messages": [{ "x": [0, 0, 0, 0, 5] }] }],
            steps: vec![update(doc! { "_id": 1, "messages.0.x": 5 }, doc! { "$set": { "messages.$": 1 } })],
            must: "is rejected",
            holds: rejected,
        },
        Entry {
            name: "limits: the required fields of $jsonSchema select the first element of another array",
            rules: &["limits: { document: 60B }"],
            stored: vec![doc! { "_id": 1, "messages": [7, 8, 9] }],
            steps: vec![update(
                doc! { "_id": 1, "$jsonSchema": { "required": ["messages"] } },
                doc! { "$set": { "last_modified.$": 1 } },
            )],
            must: "is rejected",
            holds: rejected,
        },
        Entry {
            name: "limits: an array in a document gives $ a position that becomes a field of the document",
            rules: &["limits: { document: 76B }"],
            stored: vec![doc! { "_id": 1, "b": { "x": (0..5).collect::<Vec<i32>>() } }],
            steps: vec![update(doc! { "_id": 1, "b.x": 4 }, doc! { "$set": { "b.$.c": 1 } })],
            must: "is rejected",
            holds: rejected,
        },
        Entry {
            name: "limits: a condition on a field that is not an array selects no element",
            rules: &[THREE],
            stored: vec![doc! { "_id": 1, "messages": [1, 2, 3], "status": "open" }],
            steps: vec![update(doc! { "status": "open", "messages": 3 }, doc! { "$set": { "messages.$": 7 } })],
            must: "is executed",
            holds: |seen| seen.code() == 0 && is(seen, "messages", vec![1, 2, 7]),
        },
        Entry {
            name: "limits: the same with a limit of the document",
            rules: &[SHORT],
            stored: vec![doc! { "_id": 1, "messages": [1, 2], "a": { "b": 5 } }],
            steps: vec![update(doc! { "a.b": 5, "messages": 2 }, doc! { "$set": { "messages.$": 7 } })],
            must: "is executed",
            holds: |seen| seen.code() == 0 && is(seen, "messages", vec![1, 7]),
        },
        Entry {
            name: "limits: an operator that adds no bytes may have the position of another array",
            rules: &[SHORT],
            stored: vec![doc! { "_id": 1, "messages": [{ "x": 1 }], "other": [5] }],
            steps: vec![update(doc! { "other": 5 }, doc! { "$unset": { "messages.$.x": 1 } })],
            must: "is executed",
            holds: |seen| seen.code() == 0 && is(seen, "messages", vec![doc! {}]),
        },
        Entry {
            name: "limits: $ selects an element of the array that the filter is about",
            rules: &[THREE],
            stored: full(),
            steps: vec![update(
                doc! { "_id": 1, "messages": 3, "other": { "$exists": false } },
                doc! { "$set": { "messages.$": 7 } },
            )],
            must: "is forwarded",
            holds: |seen| seen.code() == 0 && is(seen, "messages", vec![1, 2, 7]),
        },
        Entry {
            name: "together: $addToSet with $each after another field adds an element with one of the fields",
            rules: &["together: [a.n, a.m]"],
            stored: vec![doc! { "_id": 1, "a": [] }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$addToSet": { "a": { "n": 1, "$each": [] } } })],
            must: "is rejected",
            holds: rejected,
        },
        Entry {
            name: "together: an upsert creates a number around one field, and sets the other field",
            rules: &["together: [a.n, b]"],
            stored: Vec::new(),
            steps: vec![upsert(doc! {}, doc! { "$bit": { "a": { "and": 5 } }, "$min": { "b": 1 } })],
            must: "is rejected",
            holds: rejected,
        },
        Entry {
            name: "limits: the bytes of timestamps beside an operator that no pipeline can express",
            rules: &[SHORT, TIMED],
            stored: vec![doc! { "_id": 1, "messages": [1], "note": "x".repeat(134) }],
            steps: vec![update(
                doc! { "_id": 1 },
                doc! { "$pop": { "messages": 1 }, "$set": { "b": 1, "at": time(9) } },
            )],
            must: "is rejected",
            holds: |seen| seen.code() == 121 && seen.stored.iter().all(|document| !document.contains_key("b")),
        },
        Entry {
            name: "limits: the bytes of timestamps of an upsert by such an operator",
            rules: &[SHORT, TIMED],
            stored: Vec::new(),
            steps: vec![upsert(
                doc! { "_id": 1, "note": "x".repeat(114), "b": 1 },
                doc! { "$pop": { "messages": 1 }, "$set": { "at": time(9) } },
            )],
            must: "is rejected",
            holds: |seen| seen.code() == 121 && seen.nothing_stored(),
        },
        Entry {
            name: "limits: a stale write keeps a long value, and the statement adds another one",
            rules: &[LONG, TIMED],
            stored: vec![long_and_new()],
            steps: vec![update(
                doc! { "_id": 1 },
                doc! { "$set": { "b": "", "at": time(1), "note": "y".repeat(700) } },
            )],
            must: "is rejected",
            holds: |seen| seen.code() == 121 && seen.stored.iter().all(|document| !document.contains_key("note")),
        },
        Entry {
            name: "limits: the same beside an operator that no pipeline can express",
            rules: &[LONG, TIMED],
            stored: vec![long_and_new()],
            steps: vec![update(
                doc! { "_id": 1 },
                doc! { "$pop": { "messages": 1 }, "$set": { "b": "", "at": time(1), "note": "y".repeat(700) } },
            )],
            must: "is rejected",
            holds: |seen| seen.code() == 121 && seen.stored.iter().all(|document| !document.contains_key("note")),
        },
        Entry {
            name: "limits: $addToSet of a value that a full array has",
            rules: &[THREE],
            stored: vec![doc! { "_id": 1, "messages": [1, 2, 3, 4, 5] }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$addToSet": { "messages": 1 }, "$set": { "b": 1 } })],
            must: "passes: it adds nothing",
            holds: |seen| seen.code() == 0 && is(seen, "b", 1),
        },
        Entry {
            name: "limits: $addToSet of nothing to a full array",
            rules: &[THREE],
            stored: vec![doc! { "_id": 1, "messages": [1, 2, 3, 4, 5] }],
            steps: vec![update(
                doc! { "_id": 1 },
                doc! { "$addToSet": { "messages": { "$each": [] } }, "$set": { "b": 1 } },
            )],
            must: "passes",
            holds: |seen| seen.code() == 0 && is(seen, "b", 1),
        },
        Entry {
            name: "limits: $addToSet of a known and a new value to a full array",
            rules: &[THREE],
            stored: vec![doc! { "_id": 1, "messages": [1, 2, 3] }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$addToSet": { "messages": { "$each": [1, 9] } } })],
            must: "is rejected, with the number of new values",
            holds: |seen| {
                seen.code() == 121 && format!("{}", seen.last()).contains("3 elements and the statement adds 1")
            },
        },
    ]
}

fn time(second: i64) -> bson::DateTime {
    bson::DateTime::from_millis(1_000_000_000_000 + second * 1000)
}

fn long_and_new() -> Document {
    doc! { "_id": 1, "messages": [1], "b": "x".repeat(1000), "at": time(9), "last_modified": { "b": time(9) } }
}
