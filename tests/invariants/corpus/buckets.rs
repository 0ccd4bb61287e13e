//! Documents that `bucket` opens and fills.

use super::*;

pub(super) fn entries() -> Vec<Entry> {
    [filled(), opened(), selected()].into_iter().flatten().collect()
}

fn filled() -> Vec<Entry> {
    vec![
        Entry {
            name: "bucket: an empty push as an upsert, to a bucket without a count",
            rules: &[BUCKET],
            stored: vec![doc! { "_id": 1, "sku": "x", "messages": [1, 2] }],
            steps: vec![upsert(
                doc! { "sku": "x" },
                doc! { "$push": { "messages": { "$each": [] } }, "$set": { "a": 1 } },
            )],
            must: "changes that bucket",
            holds: |seen| seen.stored.len() == 1 && is(seen, "a", 1),
        },
        Entry {
            name: "bucket: an empty push as an upsert that selects a bucket by its _id, and one that opens a bucket",
            rules: &[BUCKET],
            stored: vec![doc! { "_id": 1, "messages": [1, 2, 3], "count": 3 }],
            steps: [1, 2]
                .map(|id| {
                    upsert(doc! { "_id": id }, doc! { "$push": { "messages": { "$each": [] } }, "$set": { "a": 1 } })
                })
                .to_vec(),
            must: "are done, and both counts are right",
            holds: |seen| seen.code() == 0 && seen.stored.len() == 2 && counts_are_true(seen),
        },
        Entry {
            name: "bucket: an insert with a duplicate key of a unique index",
            rules: &[BUCKET],
            stored: vec![doc! { "_id": 1, "note": 5 }],
            steps: vec![
                plain(doc! {
                    "createIndexes": "c",
                    "indexes": [{ "key": { "note": 1 }, "name": "note", "unique": true }],
                }),
                insert(vec![doc! { "_id": 2, "note": 5 }]),
            ],
            must: "has the server's error: it opens no bucket",
            holds: |seen| seen.code() == 11000 && seen.stored.len() == 1,
        },
        Entry {
            name: "bucket: a push whose filter pins a version that is not stored any more",
            rules: &[CHECK, BUCKET],
            stored: vec![doc! { "_id": 1, "sku": "x", "version": 4, "messages": [1], "count": 1 }],
            steps: vec![update(doc! { "sku": "x", "version": 3 }, doc! { "$push": { "messages": 2 } })],
            must: "n is 0, and no bucket is opened",
            holds: |seen| seen.code() == 0 && seen.n() == 0 && seen.stored.len() == 1,
        },
        Entry {
            name: "bucket: a push whose filter pins the stored version",
            rules: &[CHECK, BUCKET],
            stored: vec![doc! { "_id": 1, "sku": "x", "version": 4, "messages": [1], "count": 1 }],
            steps: vec![update(doc! { "sku": "x", "version": 4 }, doc! { "$push": { "messages": 2 } })],
            must: "it is pushed and counted",
            holds: |seen| seen.n() == 1 && is(seen, "count", 2) && is(seen, "version", 5),
        },
        Entry {
            name: "bucket: an upsert that gives the true count as a decimal",
            rules: &[BUCKET],
            stored: vec![],
            steps: vec![upsert(doc! { "sku": "x" }, doc! { "$setOnInsert": { "count": decimal("0E-8") } })],
            must: "it is inserted",
            holds: |seen| seen.code() == 0 && seen.stored.len() == 1,
        },
        Entry {
            name: "bucket: an upsert that pins a field below the count",
            rules: &[BUCKET],
            stored: vec![],
            steps: vec![upsert(doc! { "$or": [{ "count.x": 1 }] }, doc! { "$push": { "messages": 1 } })],
            must: "it opens a bucket whose count is true",
            holds: |seen| seen.code() == 0 && seen.stored.len() == 1 && counts_are_true(seen),
        },
        Entry {
            name: "bucket: an upsert that is no push",
            rules: &[BUCKET],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1 }, doc! { "$set": { "note": 1 } })],
            must: "inserts a document whose count is true",
            holds: |seen| seen.stored.len() == 1 && counts_are_true(seen),
        },
        Entry {
            name: "bucket: an upsert that renames a field to the time of its opening",
            rules: &["bucket: { array: messages, count: count, limit: 3, opened: opened }"],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1 }, doc! { "$rename": { "sku": "opened" }, "$set": { "note": 1 } })],
            must: "inserts a document whose count is true",
            holds: |seen| seen.code() == 0 && seen.stored.len() == 1 && counts_are_true(seen),
        },
        Entry {
            name: "bucket: a push whose filter pins the count",
            rules: &[BUCKET],
            stored: vec![],
            steps: vec![update(doc! { "owner": "x", "count": 2 }, doc! { "$push": { "messages": 1 } })],
            must: "the count is the array's length",
            holds: counts_are_true,
        },
        Entry {
            name: "bucket: a push whose filter pins the array",
            rules: &[BUCKET],
            stored: vec![],
            steps: vec![update(doc! { "owner": "x", "messages": [1, 2] }, doc! { "$push": { "messages": 1 } })],
            must: "the count is the array's length",
            holds: counts_are_true,
        },
        Entry {
            name: "bucket: a push whose filter pins the count in a branch of $or",
            rules: &[BUCKET],
            stored: vec![],
            steps: vec![update(doc! { "owner": "x", "$or": [{ "count": 2 }] }, doc! { "$push": { "messages": 1 } })],
            must: "the count is the array's length",
            holds: counts_are_true,
        },
        Entry {
            name: "bucket: a push without upsert whose filter cannot be inserted",
            rules: &[BUCKET],
            stored: vec![],
            steps: vec![update(doc! { "owner": { "$all": ["x", "y"] } }, doc! { "$push": { "messages": 1 } })],
            must: "no error of an upsert that the client did not request",
            holds: |seen| ![2, 54, 224].contains(&seen.code()),
        },
        Entry {
            name: "bucket: a push without upsert by a dotted path and what is around it",
            rules: &[BUCKET],
            stored: vec![],
            steps: vec![update(doc! { "o": 1, "o.n": 1 }, doc! { "$push": { "messages": 1 } })],
            must: "no error of an upsert that the client did not request",
            holds: |seen| ![2, 54, 224].contains(&seen.code()),
        },
        Entry {
            name: "bucket: a push without upsert by an owner and texts that a collation makes one",
            rules: &[BUCKET],
            stored: vec![],
            steps: vec![plain(doc! { "update": "c", "updates": [{
                "q": { "$and": [{ "owner": "x" }, { "owner": { "$in": ["x", "X"] } }] },
                "u": { "$push": { "messages": 1 } },
                "collation": { "locale": "en", "strength": 2 },
            }] })],
            must: "no error of an upsert that the client did not request",
            holds: |seen| seen.code() == 0 && seen.n() == 0 && seen.nothing_stored(),
        },
        Entry {
            name: "bucket: a push without upsert by an owner, and by the same in the only branch of $or that can match",
            rules: &[BUCKET],
            stored: vec![],
            steps: vec![update(
                doc! { "owner": "x", "$or": [{ "zq": { "$all": [] } }, { "owner": "x" }] },
                doc! { "$push": { "messages": 1 } },
            )],
            must: "no error of an upsert that the client did not request",
            holds: |seen| seen.code() == 0 && seen.n() == 0 && seen.nothing_stored(),
        },
        Entry {
            name: "bucket: a push by an owner and one of several",
            rules: &[BUCKET],
            stored: vec![],
            steps: vec![update(
                doc! { "$and": [{ "owner": "x" }, { "owner": { "$in": ["x", "X"] } }] },
                doc! { "$push": { "messages": 1 } },
            )],
            must: "matches nothing, as in mongod",
            holds: |seen| seen.code() == 0 && seen.n() == 0 && seen.nothing_stored(),
        },
    ]
}

fn unique_sku() -> Step {
    let key = doc! { "key": { "sku": 1 }, "name": "sku", "unique": true, "sparse": true };
    plain(doc! { "createIndexes": "c", "indexes": [key] })
}

fn opened() -> Vec<Entry> {
    let full = || doc! { "_id": 1, "messages": [0, 1, 2], "count": 3 };
    vec![
        Entry {
            name: "bucket: pushes beside a bucket whose count is an array with a number",
            rules: &[BUCKET],
            stored: vec![doc! { "_id": 2, "count": [-1], "sku": "x" }],
            steps: vec![
                update(doc! { "sku": "x" }, doc! { "$push": { "messages": 1 } }),
                update(doc! { "sku": "x", "count": { "$lt": 3 } }, doc! { "$push": { "messages": 2 } }),
            ],
            must: "open another bucket",
            holds: |seen| {
                seen.replies.iter().all(|reply| ok(reply) && !reply.contains_key("writeErrors"))
                    && is(seen, "count", vec![-1])
                    && seen.stored.len() == 2
                    && seen.stored[1].get("messages") == Some(&vec![1, 2].into())
            },
        },
        Entry {
            name: "bucket: a push that can open no bucket, beside one whose count is an array with a number",
            rules: &[BUCKET],
            stored: vec![doc! { "_id": 2, "count": [-1], "sku": "x" }],
            steps: vec![update(doc! { "sku": { "$in": ["x", "y"] } }, doc! { "$push": { "messages": 1 } })],
            must: "is rejected",
            holds: |seen| seen.code() == 121 && is(seen, "count", vec![-1]) && seen.stored.len() == 1,
        },
        Entry {
            name: "bucket: a push beside a bucket whose count is inside an array",
            rules: &["bucket: { array: messages, count: a.n, limit: 3 }"],
            stored: vec![doc! { "_id": 2, "a": [{ "n": 0 }], "sku": "x" }],
            steps: vec![update(doc! { "sku": "x" }, doc! { "$push": { "messages": 1 } })],
            must: "opens another bucket",
            holds: |seen| {
                seen.code() == 0 && seen.stored.len() == 2 && at(&seen.stored[1], "a.n") == Some(&Bson::Int32(1))
            },
        },
        Entry {
            name: "bucket: an upsert by an element, and the bucket is full",
            rules: &[BUCKET],
            stored: vec![full()],
            steps: vec![upsert(doc! { "messages": 0 }, doc! { "$push": { "messages": { "$each": [1, 2] } } })],
            must: "is rejected with the reason",
            holds: |seen| seen.code() == 121 && format!("{}", seen.last()).contains("the limit is 3"),
        },
        Entry {
            name: "bucket: an upsert by an element, and no bucket has it",
            rules: &[BUCKET],
            stored: vec![full()],
            steps: vec![upsert(doc! { "messages": 9 }, doc! { "$push": { "messages": 1 } })],
            must: "has the server's error",
            holds: |seen| seen.code() == 2 && seen.stored.len() == 1,
        },
        Entry {
            name: "bucket: an upsert by an element, and the bucket has room",
            rules: &[BUCKET],
            stored: vec![doc! { "_id": 1, "messages": [0], "count": 1 }],
            steps: vec![upsert(doc! { "messages": 0 }, doc! { "$push": { "messages": 1 } })],
            must: "pushes",
            holds: |seen| seen.code() == 0 && is(seen, "messages", vec![0, 1]) && is(seen, "count", 2),
        },
        Entry {
            name: "bucket: an upsert that sets an element of the count on insert",
            rules: &[BUCKET],
            stored: vec![doc! { "_id": 1, "count": 0, "ref": [{ "name": "A" }] }],
            steps: vec![upsert(
                doc! { "$and": [{ "ref.name": { "$lt": "X" } }] },
                doc! { "$set": { "x": 1 }, "$setOnInsert": { "count.$": [] } },
            )],
            must: "changes the stored document",
            holds: |seen| seen.code() == 0 && is(seen, "x", 1),
        },
        Entry {
            name: "bucket: a push with an array filter below an array that the filter states",
            rules: &[BUCKET],
            stored: vec![],
            steps: vec![plain(doc! { "update": "c", "updates": [{
                "q": { "sku": [] },
                "u": { "$push": { "messages": 1 }, "$inc": { "sku.x.$[e]": 1 } },
                "arrayFilters": [{ "e": 1 }],
            }] })],
            must: "matches nothing",
            holds: |seen| seen.code() == 0 && seen.stored.is_empty(),
        },
        Entry {
            name: "bucket: a push for which a unique index has no room, beside tree in a transaction",
            rules: &[BUCKET, TREE],
            stored: vec![doc! { "_id": 1, "sku": "x", "path": null }],
            steps: vec![
                unique_sku(),
                transaction(find_and_modify(doc! { "sku": "x" }, doc! { "$push": { "messages": 1 } })),
            ],
            must: "is rejected with the name of the index",
            holds: |seen| seen.replies.iter().any(|reply| reply.get_i32("code").is_ok_and(|code| code == 121)),
        },
        Entry {
            name: "bucket: a push whose $setOnInsert sets a document around the count",
            rules: &[BUCKET_INSIDE],
            stored: vec![],
            steps: vec![upsert(
                doc! { "sku": "x" },
                doc! { "$push": { "messages": 1 }, "$setOnInsert": { "meta": { "by": "ann" } } },
            )],
            must: "keeps the other fields of that document, beside the count and the time",
            holds: |seen| {
                let inside = |name| at(&seen.one(), name).is_some();
                at(&seen.one(), "meta.by") == Some(&"ann".into()) && inside("meta.n") && inside("meta.at")
            },
        },
        Entry {
            name: "bucket: a push whose $setOnInsert sets a document around the count, beside schema_version",
            rules: &[BUCKET_INSIDE, "schema_version: { field: meta.v, current: 3, minimum: 2 }"],
            stored: vec![],
            steps: vec![upsert(
                doc! { "sku": "x" },
                doc! { "$push": { "messages": 1 }, "$setOnInsert": { "meta": { "v": 3 } } },
            )],
            must: "passes, because the bucket has a version",
            holds: |seen| seen.code() == 0 && at(&seen.one(), "meta.v") == Some(&3.into()),
        },
        Entry {
            name: "bucket: a push whose $setOnInsert sets something else around the count",
            rules: &[BUCKET_INSIDE],
            stored: vec![],
            steps: vec![upsert(
                doc! { "sku": "x" },
                doc! { "$push": { "messages": 1 }, "$setOnInsert": { "meta": 5 } },
            )],
            must: "is rejected",
            holds: |seen| seen.code() == 121 && seen.nothing_stored(),
        },
        Entry {
            name: "bucket: an upsert whose $setOnInsert sets a document around array and count",
            rules: &["bucket: { array: d.ms, count: d.n, limit: 3 }"],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1 }, doc! { "$setOnInsert": { "d": { "ms": [7] } } })],
            must: "inserts a bucket with its count",
            holds: |seen| seen.code() == 0 && at(&seen.one(), "d.n").and_then(as_number) == Some(1.0),
        },
        Entry {
            name: "bucket: an upsert whose $setOnInsert replaces an array of its filter",
            rules: &["bucket: { array: d.ms, count: d.n, limit: 3 }"],
            stored: vec![],
            steps: vec![upsert(
                doc! { "sku": "x", "d.ms": [1, 2, 3, 4, 5] },
                doc! { "$setOnInsert": { "d": { "by": 1 } } },
            )],
            must: "inserts the document that the client sets, with its count",
            holds: |seen| at(&seen.one(), "d.ms").is_none() && at(&seen.one(), "d.n").and_then(as_number) == Some(0.0),
        },
        Entry {
            name: "bucket: a push whose $setOnInsert replaces what its filter gives",
            rules: &[BUCKET_INSIDE],
            stored: vec![],
            steps: vec![upsert(
                doc! { "sku": "x", "meta.t": 5 },
                doc! { "$push": { "messages": 1 }, "$setOnInsert": { "meta": { "by": "ann" } } },
            )],
            must: "opens a bucket whose count is true",
            holds: |seen| seen.code() == 0 && at(&seen.one(), "meta.n") == Some(&Bson::Int32(1)),
        },
        Entry {
            name: "bucket: a push whose $setOnInsert sets null around the time",
            rules: &["bucket: { array: messages, count: n, limit: 3, opened: meta.at }"],
            stored: vec![],
            steps: vec![update(
                doc! { "sku": "x" },
                doc! { "$push": { "messages": 1 }, "$setOnInsert": { "meta": Bson::Null } },
            )],
            must: "opens a bucket without a time",
            holds: |seen| seen.code() == 0 && is(seen, "meta", Bson::Null) && is(seen, "n", 1),
        },
        Entry {
            name: "bucket: a push whose $setOnInsert sets a part of a document twice",
            rules: &[BUCKET_INSIDE],
            stored: vec![],
            steps: vec![upsert(
                doc! { "sku": "x" },
                doc! { "$push": { "messages": 1 }, "$setOnInsert": { "meta": { "by": 1 }, "meta.z": 2 } },
            )],
            must: "fails, as in mongod",
            holds: |seen| seen.code() != 0 && seen.nothing_stored(),
        },
        Entry {
            name: "bucket: two operators of the client on the document around the count",
            rules: &[BUCKET_INSIDE],
            stored: vec![],
            steps: vec![upsert(
                doc! { "sku": "x" },
                doc! { "$push": { "messages": 1 }, "$set": { "meta.z": 1 }, "$setOnInsert": { "meta": { "by": 1 } } },
            )],
            must: "fails, as in mongod",
            holds: |seen| seen.code() != 0 && seen.nothing_stored(),
        },
        Entry {
            name: "bucket: a push opens a bucket whose filter states a reference",
            rules: &[BUCKET, COPIES],
            stored: vec![],
            steps: vec![update(doc! { "f.id": 3 }, doc! { "$push": { "messages": 1 } })],
            must: "is rejected, because the new bucket would lack the copied field",
            holds: |seen| seen.code() == 121 && seen.stored.is_empty(),
        },
        Entry {
            name: "bucket: an upsert without a push makes a duplicate key",
            rules: &[BUCKET],
            stored: vec![doc! { "_id": 1, "sku": "x" }, doc! { "_id": 2 }],
            steps: vec![unique_sku(), upsert(doc! { "_id": 2 }, doc! { "$set": { "sku": "x" } })],
            must: "fails with the server's error",
            holds: |seen| seen.code() == 11000,
        },
        Entry {
            name: "bucket: a push beside a value that makes a duplicate key",
            rules: &[BUCKET],
            stored: vec![doc! { "_id": 1, "sku": "x" }, doc! { "_id": 2, "messages": [], "count": 0 }],
            steps: vec![
                unique_sku(),
                upsert(doc! { "count": { "$gte": 0 } }, doc! { "$set": { "sku": "x" }, "$push": { "messages": 1 } }),
            ],
            must: "fails with the server's error",
            holds: |seen| seen.code() == 11000,
        },
        Entry {
            name: "bucket: a push beside a field below an array that the filter states",
            rules: &[BUCKET],
            stored: vec![],
            steps: vec![update(
                doc! { "sku": [{ "x": 1 }] },
                doc! { "$push": { "messages": 1 }, "$inc": { "sku.x": 1 } },
            )],
            must: "matches nothing",
            holds: |seen| seen.code() == 0 && seen.stored.is_empty(),
        },
    ]
}

/// `$` in the array, with a position that another array may give.
fn selected() -> Vec<Entry> {
    let bucket = || doc! { "_id": 1, "owner": "joe", "tags": ["a", "b", "c"], "messages": [{ "t": 1 }], "count": 1 };
    let set = || doc! { "$set": { "messages.$.read": true } };
    let entry = |name, stored, step, must, holds| Entry {
        name,
        rules: &[BUCKET],
        stored: vec![stored],
        steps: vec![step],
        must,
        holds,
    };
    let is_counted = |seen: &Seen| seen.code() == 0 && seen.n() == 1 && counts_are_true(seen);
    let is_read = |seen: &Seen| {
        seen.code() == 0 && seen.one().get_array("messages").ok() == Some(&vec![doc! { "t": 1, "read": true }.into()])
    };
    vec![
        entry(
            "bucket: $ with the position of another array",
            bucket(),
            update(doc! { "owner": "joe", "tags": "c" }, set()),
            "is done as in mongod, and counted",
            is_counted,
        ),
        entry(
            "bucket: $ with conditions on two arrays",
            bucket(),
            update(doc! { "messages.t": 1, "tags": "c" }, set()),
            "is done as in mongod, and counted",
            is_counted,
        ),
        entry(
            "bucket: $ with the position of another array, where the array is missing",
            doc! { "_id": 1, "tags": ["a", "b"], "count": 0 },
            update(doc! { "tags": "b" }, set()),
            "is rejected",
            |seen| seen.code() == 121 && !seen.one().contains_key("messages"),
        ),
        entry(
            "bucket: $ of an array in a subdocument of the filter",
            bucket(),
            update(doc! { "$jsonSchema": { "required": ["tags"] } }, set()),
            "is done as in mongod, and counted",
            is_counted,
        ),
        entry(
            "bucket: $ beside the owner",
            bucket(),
            update(doc! { "owner": "joe", "messages.t": 1 }, set()),
            "passes",
            is_read,
        ),
        entry("bucket: $ beside _id", bucket(), update(doc! { "_id": 1, "messages.t": 1 }, set()), "passes", is_read),
        entry(
            "bucket: a push that picks its bucket by _id in a branch",
            doc! { "_id": 1, "owner": "joe", "messages": [1, 2, 3], "count": 3 },
            update(doc! { "owner": "joe", "$or": [{ "_id": 1 }, { "_id": 2 }] }, doc! { "$push": { "messages": 4 } }),
            "is rejected",
            |seen| seen.code() == 121 && seen.stored.len() == 1,
        ),
        Entry {
            name: "bucket: an upsert whose other branch never matches, and one is inside the count",
            rules: &[BUCKET],
            stored: vec![],
            steps: vec![upsert(
                doc! { "$or": [{ "zq": { "$all": [] } }, { "count.x": 1 }] },
                doc! { "$push": { "messages": 1 } },
            )],
            must: "it opens a bucket whose count is true",
            holds: |seen| seen.code() == 0 && seen.stored.len() == 1 && counts_are_true(seen),
        },
        Entry {
            name: "bucket + bounds: $ beside the owner, and no room in the other rule",
            rules: &[BUCKET, BOUNDS],
            stored: vec![doc! { "_id": 1, "owner": "joe", "messages": [{ "t": 1 }], "count": 1, "n": 0 }],
            steps: vec![update(
                doc! { "owner": "joe", "messages.t": 1 },
                doc! { "$set": { "messages.$.read": true }, "$inc": { "n": -1 } },
            )],
            must: "matches nothing",
            holds: |seen| seen.code() == 0 && seen.n() == 0,
        },
    ]
}
