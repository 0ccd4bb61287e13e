//! Statements that a tester with the documentation only found: each broke a promise or differed from the server.

use super::*;

const VERSIONED: &str = "replacement: { policy: check_version, version: v }";
const WHOLE: &str = "timestamps: { source: s, type: long, per: document, store: lm }";
const FIELDS: &str = "timestamps: { source: s, type: long, fields: [a, b, m.x], store: lm }";

/// The server could not parse the update.
fn is_unparsed(seen: &Seen) -> bool {
    seen.code() == 9 && seen.stored == [doc! { "_id": 1, "a": 1 }]
}

pub(super) fn entries() -> Vec<Entry> {
    let mixed = || update(doc! { "_id": 1 }, doc! { "$set": { "a": 5, "s": 2_i64 }, "status": "done" });
    let stored = || vec![doc! { "_id": 1, "a": 1 }];
    let mut entries = Vec::new();
    for rules in [&[WHOLE], &[FIELDS], &[VERSIONED]] {
        entries.push(Entry {
            name: "an update that mixes operators and fields",
            rules,
            stored: stored(),
            steps: vec![mixed()],
            must: "fails as without a rule",
            holds: is_unparsed,
        });
    }
    entries.push(Entry {
        name: "an operator without a document",
        rules: &[FIELDS],
        stored: stored(),
        steps: vec![update(doc! { "_id": 1 }, doc! { "$set": { "a": 5, "s": 2_i64 }, "$inc": 5 })],
        must: "fails as without a rule",
        holds: is_unparsed,
    });
    entries.push(Entry {
        name: "versions: an error of the client's own operator",
        rules: &[VERSIONED],
        stored: vec![doc! { "_id": 1, "t": 5, "v": 1 }, doc! { "_id": 3, "v": "uuid" }],
        steps: vec![update(doc! {}, doc! { "$push": { "t": 1 } })],
        must: "reaches the client, and no other document is updated",
        holds: |seen| seen.code() == 2 && seen.stored.iter().all(|one| one.get_array("t").is_err()),
    });
    entries.push(Entry {
        name: "versions: an error of the client's own operator, in a findAndModify",
        rules: &[VERSIONED],
        stored: vec![doc! { "_id": 1, "t": 5, "v": 1 }, doc! { "_id": 3, "v": "uuid" }],
        steps: vec![find_and_modify(doc! {}, doc! { "$push": { "t": 1 } })],
        must: "reaches the client, and no other document is updated",
        holds: |seen| seen.code() == 2 && seen.stored.iter().all(|one| one.get_array("t").is_err()),
    });
    entries.push(Entry {
        name: "versions: an error of the client's own operator, and an index on the version",
        rules: &[VERSIONED],
        stored: vec![doc! { "_id": 1, "t": 5, "v": "b" }, doc! { "_id": 3, "v": "a" }],
        steps: vec![
            plain(doc! { "createIndexes": "c", "indexes": [{ "key": { "v": 1 }, "name": "v" }] }),
            update(doc! {}, doc! { "$push": { "t": 1 } }),
        ],
        must: "reaches the client, and no other document is updated",
        holds: |seen| seen.code() == 2 && seen.stored.iter().all(|one| one.get_array("t").is_err()),
    });
    entries.push(Entry {
        name: "versions: an upsert of many whose filter pins the version to null",
        rules: &[VERSIONED],
        stored: vec![doc! { "_id": 1, "v": 5 }],
        steps: vec![plain(doc! { "update": "c", "updates": [
            { "q": { "k": 1, "v": null }, "u": { "$set": { "a": 1 } }, "upsert": true, "multi": true },
        ] })],
        must: "inserts",
        holds: |seen| seen.code() == 0 && seen.stored.len() == 2,
    });
    for (name, rules, document) in [
        (
            "an upsert with a number of its own, beside replacement",
            &["sequence: { field: no, counter: a, provided: reject }", "replacement: { policy: reject }"][..],
            doc! { "no": 9, "a": 2 },
        ),
        (
            "an upsert with an _id that the sequence assigns, beside replacement",
            &[
                "sequence: { field: _id, counter: a, on_upsert: true, provided: reject }",
                "replacement: { policy: reject }",
            ],
            doc! { "a": 2 },
        ),
    ] {
        entries.push(Entry {
            name,
            rules,
            stored: Vec::new(),
            steps: vec![upsert(doc! { "_id": 2 }, document)],
            must: "is rejected, not lost",
            holds: |seen| seen.code() == 121 && seen.nothing_stored(),
        });
    }
    entries.push(Entry {
        name: "an unordered batch keeps its order",
        rules: &["limits: { document: 200B }"],
        stored: Vec::new(),
        steps: vec![plain(doc! { "update": "c", "ordered": false, "updates": [
            { "q": { "_id": 3 }, "u": { "$set": { "s": "xx" } }, "upsert": true },
            { "q": { "_id": 3 }, "u": { "s": "y", "a": 2 } },
            { "q": {}, "u": { "$set": { "ev": 2, "a": 1 } } },
        ] })],
        must: "has the result of the server",
        holds: |seen| seen.n() == 3 && seen.stored == [doc! { "_id": 3, "s": "y", "a": 1, "ev": 2 }],
    });
    entries.push(Entry {
        name: "an unordered batch keeps its order beside an upsert",
        rules: &["schema_version: { field: v, current: 3, minimum: 2 }"],
        stored: Vec::new(),
        steps: vec![plain(doc! { "update": "c", "ordered": false, "updates": [
            { "q": { "_id": 2, "v": { "$in": [2, 3] } }, "u": { "$set": { "v": 3, "a": 0 } }, "upsert": true, "multi": true },
            { "q": { "a": 0 }, "u": { "$set": { "n": 0, "v": 3 } }, "multi": true },
        ] })],
        must: "has the result of the server",
        holds: |seen| seen.n() == 2 && seen.stored == [doc! { "_id": 2, "v": 3, "a": 0, "n": 0 }],
    });
    for command in [
        doc! { "findAndModify": "c", "query": null, "update": { "$inc": { "n": -1 } }, "upsert": null },
        doc! { "update": "c", "updates": [{ "q": {}, "u": { "$inc": { "n": -1 } }, "upsert": null, "multi": null }] },
        doc! { "update": "c", "updates": [{ "q": {}, "u": { "$inc": { "n": -1 } } }], "ordered": null },
        doc! { "findAndModify": "c", "update": { "$inc": { "n": -1 } }, "sort": null, "collation": null },
    ] {
        entries.push(Entry {
            name: "optional fields of a statement that are null",
            rules: &["bounds: { field: n, min: 0 }"],
            stored: vec![doc! { "_id": 1, "n": 5 }],
            steps: vec![plain(command)],
            must: "has the result of the server",
            holds: |seen| seen.code() == 0 && seen.stored == [doc! { "_id": 1, "n": 4 }],
        });
    }
    entries.push(Entry {
        name: "a field that docward does not know is rejected, also if it is null",
        rules: &["bounds: { field: n, min: 0 }"],
        stored: vec![doc! { "_id": 1, "n": 5 }],
        steps: vec![plain(
            doc! { "update": "c", "updates": [{ "q": {}, "u": { "$inc": { "n": -1 } }, "unknown": null }] },
        )],
        must: "is rejected by docward",
        holds: |seen| seen.code() == 9 && seen.stored == [doc! { "_id": 1, "n": 5 }],
    });
    entries.extend(buckets());
    entries.extend(
        [trees(), sequences(), never_matching(), increments(), uncertain_pins(), array_filters(), explained()]
            .into_iter()
            .flatten(),
    );
    entries.extend(numbers());
    entries.extend(merges());
    entries.extend(rejected_commands());
    entries
}

/// An upsert whose filter gives only the version in the document that `$setOnInsert` sets.
fn given_version(name: &'static str, filter: Document) -> Entry {
    Entry {
        name,
        rules: &["replacement: { policy: check_version, version: m.v }"],
        stored: vec![],
        steps: vec![upsert(filter, doc! { "$set": { "b": 1 }, "$setOnInsert": { "m": { "y": 2 } } })],
        must: "inserts the other fields of that document and a version",
        holds: |seen| at(&seen.one(), "m.y") == Some(&2.into()) && at(&seen.one(), "m.v").is_some(),
    }
}

fn buckets() -> Vec<Entry> {
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
            holds: |seen| seen.code() == 121 && format!("{}", seen.last()).contains("is full"),
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
            must: "is rejected, because the count cannot be set beside it",
            holds: |seen| seen.code() == 121 && seen.nothing_stored(),
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
            name: "replacement: two operators of the client on the document around the version",
            rules: &["replacement: { policy: check_version, version: m.v }"],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1 }, doc! { "$set": { "m.z": 1 }, "$setOnInsert": { "m": { "v": 2 } } })],
            must: "fails with the server's error",
            holds: |seen| seen.code() == 40 && seen.nothing_stored(),
        },
        Entry {
            name: "replacement: a $setOnInsert that replaces what its filter gives around the version",
            rules: &["replacement: { policy: check_version, version: m.v }"],
            stored: vec![],
            steps: vec![upsert(
                doc! { "_id": 1, "m.x": 5 },
                doc! { "$set": { "b": 1 }, "$setOnInsert": { "m": { "y": 2 } } },
            )],
            must: "is rejected, because the version cannot be incremented beside it",
            holds: |seen| seen.code() == 121 && seen.nothing_stored(),
        },
        Entry {
            name: "replacement: a $setOnInsert around the version, beside what its filter gives",
            rules: &["replacement: { policy: check_version, version: m.d.v }"],
            stored: vec![],
            steps: vec![upsert(
                doc! { "_id": 1, "m": { "x": 1 } },
                doc! { "$set": { "b": 1 }, "$setOnInsert": { "m.d": { "y": 2 } } },
            )],
            must: "inserts both and a version",
            holds: |seen| {
                let inside = |path| at(&seen.one(), path).and_then(as_number);
                inside("m.x") == Some(1.0) && inside("m.d.y") == Some(2.0) && inside("m.d.v") == Some(1.0)
            },
        },
        given_version(
            "replacement: a $setOnInsert around a document of its filter with nothing but the version",
            doc! { "_id": 1, "m": { "v": 5 } },
        ),
        given_version(
            "replacement: a $setOnInsert around the version that its filter gives",
            doc! { "_id": 1, "m.v": 5 },
        ),
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

fn numbers() -> Vec<Entry> {
    const ON_UPSERT: &str = "sequence: { field: no, counter: c, collection: counters, on_upsert: true }";
    [doc! { "no.x": {} }, doc! { "no.x": null }, doc! { "$or": [{ "no.x": 1 }, { "no.x": 1 }] }]
        .into_iter()
        .map(|filter| Entry {
            name: "sequence: a replacing upsert whose filter states a part of the number",
            rules: &[ON_UPSERT],
            stored: vec![],
            steps: vec![upsert(filter, doc! { "x": 1 })],
            must: "does not insert that part as the number",
            holds: |seen| seen.code() == 121 && seen.nothing_stored(),
        })
        .collect()
}

/// Replacements that are merged, with the version inside a document.
fn merges() -> Vec<Entry> {
    const INSIDE: &str = "replacement: { policy: merge, version: m.v }";
    let stored = || vec![doc! { "_id": 4, "m": { "v": 5, "y": 1 }, "stock": 1 }];
    vec![
        Entry {
            name: "replacement: a merged document around the version",
            rules: &[INSIDE],
            stored: stored(),
            steps: vec![update(doc! { "_id": 4 }, doc! { "m": { "v": 5, "x": 1 }, "note": "C" })],
            must: "sets the fields beside the version, which is incremented",
            holds: |seen| seen.one() == doc! { "_id": 4, "m": { "v": 6, "y": 1, "x": 1 }, "stock": 1, "note": "C" },
        },
        Entry {
            name: "replacement: a merged document without the version",
            rules: &["replacement: { policy: merge, version: m.v, count_updates: false }"],
            stored: stored(),
            steps: vec![
                update(doc! { "_id": 4 }, doc! { "m": {} }),
                update(doc! { "_id": 4 }, doc! { "m": { "v": 1 } }),
            ],
            must: "leaves the version",
            holds: |seen| seen.code() == 0 && seen.stored == [doc! { "_id": 4, "m": { "v": 5, "y": 1 }, "stock": 1 }],
        },
        Entry {
            name: "replacement: a merged value on the way to the version",
            rules: &[INSIDE],
            stored: stored(),
            steps: vec![update(doc! { "_id": 4 }, doc! { "m": 5 })],
            must: "is rejected",
            holds: |seen| seen.code() == 121 && seen.stored == [doc! { "_id": 4, "m": { "v": 5, "y": 1 }, "stock": 1 }],
        },
        Entry {
            name: "replacement: a merged upsert with the version inside a document",
            rules: &[INSIDE],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 4 }, doc! { "m": { "v": 5, "x": 1 } })],
            must: "inserts version 1",
            holds: |seen| seen.stored == [doc! { "_id": 4, "m": { "x": 1, "v": 1 } }],
        },
        Entry {
            name: "replacement: array filters beside a merged replacement",
            rules: &[INSIDE],
            stored: stored(),
            steps: vec![plain(doc! { "update": "c", "updates": [{
                "q": { "_id": 4 }, "u": { "note": 1 }, "arrayFilters": [{ "e": 1 }],
            }] })],
            must: "are ignored, as by the server",
            holds: |seen| seen.code() == 0 && is(seen, "note", 1),
        },
    ]
}

/// Commands that the server rejects as a whole, of which docward has executed a part.
fn rejected_commands() -> Vec<Entry> {
    let change = |id: i32| doc! { "q": { "_id": id }, "u": { "$set": { "o": 1 } } };
    let batch = |option: Document| {
        let mut last = change(2);
        last.extend(option);
        plain(doc! { "update": "c", "updates": [change(1), last] })
    };
    let stored = || vec![doc! { "_id": 1, "v": 1 }, doc! { "_id": 2, "v": 1 }];
    vec![
        Entry {
            // The server of the tests does not know this option.
            name: "a later part of a command that the server rejects, in a transaction",
            rules: &["schema_version: { field: v, current: 3, minimum: 1 }"],
            stored: stored(),
            steps: vec![transaction(batch(doc! { "sort": { "_id": 1 } }))],
            must: "aborts the transaction, which cannot be committed",
            holds: |seen| {
                let codes: Vec<i32> = seen.replies.iter().map(|reply| reply.get_i32("code").unwrap_or(0)).collect();
                codes == [40415, 251] && seen.stored == [doc! { "_id": 1, "v": 1 }, doc! { "_id": 2, "v": 1 }]
            },
        },
        Entry {
            name: "tree: a move whose statement the server rejects, in a transaction",
            rules: &[TREE],
            stored: vec![
                doc! { "_id": "a", "path": null },
                doc! { "_id": "b", "path": null },
                doc! { "_id": "c", "parent": "b", "path": ",b," },
            ],
            steps: vec![transaction(plain(doc! { "update": "c", "updates": [{
                "q": { "_id": "b" }, "u": { "$set": { "parent": "a" } }, "sort": { "_id": 1 },
            }] }))],
            must: "aborts the transaction, with the paths that docward has written",
            holds: |seen| {
                let codes: Vec<i32> = seen.replies.iter().map(|reply| reply.get_i32("code").unwrap_or(0)).collect();
                codes == [40415, 251] && seen.stored.last() == Some(&doc! { "_id": "c", "parent": "b", "path": ",b," })
            },
        },
        Entry {
            name: "an option of the wrong type in a later statement",
            rules: &["schema_version: { field: v, current: 3, minimum: 1 }"],
            stored: stored(),
            steps: vec![
                batch(doc! { "hint": 5 }),
                batch(doc! { "upsert": 1 }),
                batch(doc! { "multi": 1 }),
                batch(doc! { "collation": 5 }),
                batch(doc! { "arrayFilters": [5] }),
                batch(doc! { "c": 5 }),
            ],
            must: "the command fails, and nothing is executed",
            holds: |seen| {
                seen.replies.iter().all(|reply| !ok(reply))
                    && seen.stored == [doc! { "_id": 1, "v": 1 }, doc! { "_id": 2, "v": 1 }]
            },
        },
    ]
}

const PROVIDED_REPLACED: &str = "sequence: { field: no, counter: COLLECTION, collection: counters, provided: replace }";

/// The numbers of the stored documents are different.
fn has_own_numbers(seen: &Seen) -> bool {
    let mut numbers: Vec<_> = seen.stored.iter().filter_map(|one| one.get_i32("no").ok()).collect();
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.len() == count
}

fn sequences() -> Vec<Entry> {
    let new = |id: i32| insert(vec![doc! { "_id": id }]);
    vec![
        Entry {
            name: "sequence: a replacement with a number of its own, where there is none",
            rules: &[PROVIDED_REPLACED],
            stored: vec![doc! { "_id": 1 }],
            steps: vec![new(2), update(doc! { "_id": 1 }, doc! { "no": 900 }), new(3), new(4)],
            must: "its number is neither stored nor counted",
            holds: |seen| {
                seen.stored[0] == doc! { "_id": 1 }
                    && has_own_numbers(seen)
                    && seen.stored[3].get_i32("no").unwrap() < 9
            },
        },
        Entry {
            name: "sequence: an upsert by replacement without a number, where upserts get none",
            rules: &[PROVIDED_REPLACED],
            stored: vec![doc! { "_id": 1 }],
            steps: vec![upsert(doc! { "_id": 1 }, doc! { "a": 2 }), upsert(doc! { "_id": 2 }, doc! { "a": 2 })],
            must: "gets none",
            holds: |seen| seen.stored == [doc! { "_id": 1, "a": 2 }, doc! { "_id": 2, "a": 2 }],
        },
        Entry {
            name: "sequence: a replacing upsert whose filter has null as the number",
            rules: &[SEQUENCE_UPSERT],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1, "no": null }, doc! { "b": 1 })],
            must: "gets a number",
            holds: |seen| seen.one() == doc! { "_id": 1, "b": 1, "no": 1 },
        },
        Entry {
            name: "sequence: a replacing upsert whose filter has two numbers",
            rules: &[SEQUENCE_UPSERT],
            stored: vec![],
            steps: vec![
                upsert(doc! { "_id": 1, "$and": [{ "no": 60 }, { "no": 61 }] }, doc! { "b": 1 }),
                upsert(doc! { "_id": 2, "no": { "$all": [60, 60] } }, doc! { "b": 1 }),
            ],
            must: "gets a number",
            holds: |seen| seen.stored.len() == 2 && seen.stored.iter().all(|one| one.contains_key("no")),
        },
        Entry {
            name: "sequence: an upsert whose filter may or may not have a number",
            rules: &[SEQUENCE_UPSERT],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1, "$or": [{ "no": 60 }, { "no": 60 }] }, doc! { "$set": { "b": 1 } })],
            must: "inserts no document without a number",
            holds: |seen| seen.stored.iter().all(|one| one.contains_key("no")),
        },
        Entry {
            name: "versions: a pipeline beside the largest long",
            rules: &[VERSIONED],
            stored: vec![
                doc! { "_id": 1, "b": "s", "v": i64::MAX },
                doc! { "_id": 2, "v": decimal("9223372036854775807") },
            ],
            steps: vec![
                many(doc! {}, vec![doc! { "$set": { "a": { "$toUpper": "$b" } } }]),
                many(doc! { "_id": 2 }, doc! { "$set": { "a": 1 } }),
            ],
            must: "leaves it, and counts an equal decimal",
            holds: |seen| {
                seen.stored[0].get("v") == Some(&i64::MAX.into())
                    && seen.stored[1].get("v") == Some(&decimal("9223372036854775809"))
            },
        },
        Entry {
            name: "sequence: an upsert by an ObjectId that the client names",
            rules: &["sequence: { field: _id, counter: COLLECTION, collection: counters, replace_generated: true }"],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": bson::oid::ObjectId::new() }, doc! { "$set": { "a": 2 } })],
            must: "inserts it",
            holds: |seen| seen.code() == 0 && is(seen, "a", 2) && seen.one().get_object_id("_id").is_ok(),
        },
        Entry {
            name: "sequence: an upsert by replacement with a number that is replaced",
            rules: &[PROVIDED_REPLACED],
            stored: vec![],
            steps: vec![new(2), upsert(doc! { "_id": 1 }, doc! { "no": 1 })],
            must: "gets the next number",
            holds: |seen| seen.stored.first() == Some(&doc! { "_id": 1, "no": 2 }),
        },
    ]
}

/// The server takes no equality from a filter of which it sees that nothing matches it.
fn never_matching() -> Vec<Entry> {
    type Case = (&'static [&'static str], Document, Document, &'static str, fn(&Seen) -> bool);
    const TOGETHER: &str = "together: [t1, t2]";
    let cases: Vec<Case> = vec![
        (&["replacement: { policy: merge }"], doc! {}, doc! { "_id": 1, "x": 1 }, "inserts the client's _id", |seen| {
            seen.one() == doc! { "_id": 1, "x": 1 }
        }),
        (
            &["schema_version: { field: sv, current: 3, minimum: 2 }"],
            doc! { "sv": 3 },
            doc! { "$set": { "b": 1 } },
            "inserts nothing without a version",
            |seen| seen.code() == 121 && seen.stored.is_empty(),
        ),
        (
            &["bounds: { field: n, min: 0, max: 10 }"],
            doc! { "n": 3 },
            doc! { "$inc": { "n": -2 } },
            "inserts nothing out of range",
            |seen| seen.code() == 121 && seen.stored.is_empty(),
        ),
        (&[TOGETHER], doc! { "t1": 3 }, doc! { "$setOnInsert": { "t2": 1 } }, "inserts not only one", |seen| {
            seen.code() == 121 && seen.stored.is_empty()
        }),
        (&[SEQUENCE_UPSERT], doc! { "no": 3 }, doc! { "$set": { "b": 1 } }, "inserts a number or nothing", |seen| {
            seen.stored.iter().all(|one| one.contains_key("no"))
        }),
        (&[QUEUE], doc! { "locked": false, "try": 0 }, doc! { "$setOnInsert": { "b": 1 } }, "inserts a job", |seen| {
            seen.stored.iter().all(|one| one.contains_key("locked") && one.contains_key("try"))
        }),
        (&[FIELDS], doc! { "a": 3 }, doc! { "$set": { "s": 4_i64 } }, "sets no time of a missing field", |seen| {
            seen.stored.iter().all(|one| one.contains_key("a") || at(one, "lm.a").is_none())
        }),
        (&[COPIES], doc! { "f.n": 3 }, doc! { "$setOnInsert": { "f.id": 1 } }, "inserts no key alone", |seen| {
            seen.stored.iter().all(|one| at(one, "f.id").is_none() || at(one, "f.n").is_some())
        }),
        (&[BUCKET], doc! { "messages": [1, 2] }, doc! { "$set": { "b": 1 } }, "inserts no wrong count", |seen| {
            seen.stored
                .iter()
                .all(|one| one.get_array("messages").map_or(0, Vec::len) as i32 == one.get_i32("count").unwrap_or(0))
        }),
    ];
    let entry = |(rules, pins, change, must, holds): &Case, never: fn() -> Document| {
        let mut filter = doc! { "_id": 1 };
        filter.extend(pins.clone());
        filter.extend(never());
        Entry {
            name: "an upsert whose filter never matches",
            rules,
            stored: vec![],
            steps: vec![upsert(filter, change.clone())],
            must,
            holds: *holds,
        }
    };
    let push = |never: fn() -> Document| {
        let mut filter = doc! { "o": 1 };
        filter.extend(never());
        Entry {
            name: "bucket: a push whose filter never matches",
            rules: &[BUCKET],
            stored: vec![],
            steps: vec![update(filter, doc! { "$push": { "messages": 1 } })],
            must: "opens no bucket without an owner",
            holds: |seen| seen.stored.is_empty(),
        }
    };
    let replaced = |never: fn() -> Document| {
        let mut filter = doc! { "_id": 1, "b": { "$all": [1, 2] } };
        filter.extend(never());
        Entry {
            name: "timestamps: a replacing upsert with another _id than a filter that never matches",
            rules: &["timestamps: { source: at, per: document, without_source: clock }"],
            stored: vec![],
            steps: vec![upsert(filter, doc! { "_id": 2 })],
            must: "inserts the client's _id",
            holds: |seen| seen.stored.len() == 1 && seen.stored[0].get("_id") == Some(&2.into()),
        }
    };
    let upserts = cases.iter().flat_map(|case| NEVER.map(|never| entry(case, never)));
    let upserts = upserts.chain(NEVER.map(replaced));
    upserts.chain(NEVER.map(push)).collect()
}

const BUCKET_INSIDE: &str = "bucket: { array: messages, count: meta.n, limit: 3, opened: meta.at }";

const COPIES: &str = "copies: [{ into: protected.COLLECTION, key: f.id, fields: { n: f.n } }]";

/// Increments through a pipeline of `timestamps`.
fn increments() -> Vec<Entry> {
    let increment = |stored: Bson, amount: Bson, rules, must, holds| Entry {
        name: "timestamps: an increment with numbers of two types",
        rules,
        stored: vec![doc! { "_id": 1, "n": stored }],
        steps: vec![update(doc! { "_id": 1 }, doc! { "$inc": { "n": amount }, "$set": { "s": 4_i64 } })],
        must,
        holds,
    };
    let bounded: &[&str] = &["bounds: { field: n, min: 0, max: 10 }", FIELDS];
    let alone: &[&str] = &[FIELDS];
    let as_directly = "stores what the server stores";
    vec![
        increment(decimal("6"), 0.1.into(), alone, as_directly, |seen| is(seen, "n", decimal("6.100000000000000"))),
        increment(0.1.into(), decimal("0.1"), alone, as_directly, |seen| is(seen, "n", decimal("0.200000000000000"))),
        increment(9_007_199_254_740_993_i64.into(), 0.1.into(), alone, as_directly, |seen| {
            is(seen, "n", 9_007_199_254_740_992.0)
        }),
        increment(0.1.into(), 9_007_199_254_740_993_i64.into(), alone, as_directly, |seen| {
            is(seen, "n", 9_007_199_254_740_992.0)
        }),
        increment(decimal("9.9"), 0.1.into(), bounded, "stays in range", |seen| {
            is(seen, "n", decimal("10.000000000000000"))
        }),
        increment(decimal("0.1"), (-0.1).into(), bounded, "stays in range", |seen| is(seen, "n", decimal("0E-15"))),
    ]
}

/// A time of a field that the server does not insert would discard an older write to it later.
fn uncertain_pins() -> Vec<Entry> {
    let upserted = |change: Document| Entry {
        name: "timestamps: an upsert by a double negation",
        rules: &[FIELDS],
        stored: vec![],
        steps: vec![upsert(doc! { "m.x": { "$not": { "$not": { "$eq": 1 } } } }, change)],
        must: "sets no time of a missing field",
        holds: |seen| seen.stored.iter().all(|one| at(one, "m.x").is_some() || at(one, "lm.m.x").is_none()),
    };
    vec![
        upserted(doc! { "$set": { "z": 1, "s": 4_i64 } }),
        upserted(doc! { "$set": { "a": 1, "s": 4_i64 } }),
        upserted(doc! { "$set": { "a": 1, "s": 4_i64 }, "$push": { "p": { "$each": [1], "$sort": 1 } } }),
    ]
}

/// Array filters of which only stale writes, or none of the client's, use one.
fn array_filters() -> Vec<Entry> {
    let late = |set: Document, filters: Vec<Document>| {
        plain(doc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "$set": set }, "arrayFilters": filters }] })
    };
    let stored = || vec![doc! { "_id": 1, "b": [1, 5], "c": [1, 5], "lm": 7_i64 }];
    vec![
        Entry {
            name: "timestamps: a stale write with array filters",
            rules: &[WHOLE],
            stored: stored(),
            steps: vec![late(doc! { "s": 6_i64, "b.$[t]": 11 }, vec![doc! { "t": { "$gte": 2 } }])],
            must: "changes nothing",
            holds: |seen| seen.code() == 0 && is(seen, "lm", 7_i64) && seen.last().get("n") == Some(&1.into()),
        },
        Entry {
            name: "timestamps: a write with array filters that is not stale",
            rules: &[WHOLE],
            stored: stored(),
            steps: vec![late(
                doc! { "s": 8_i64, "b.$[t]": 11, "c.$[u]": 12 },
                vec![doc! { "t": { "$gte": 2 } }, doc! { "$or": [{ "u": 1 }, { "u": 9 }] }],
            )],
            must: "is executed",
            holds: |seen| {
                is(seen, "b", vec![Bson::Int32(1), 11.into()]) && is(seen, "c", vec![Bson::Int32(12), 5.into()])
            },
        },
        Entry {
            name: "timestamps: an array filter that the client does not use",
            rules: &[WHOLE],
            stored: stored(),
            steps: vec![late(doc! { "s": 6_i64, "b.$[t]": 11 }, vec![doc! { "t": 5 }, doc! { "u": 5 }])],
            must: "fails as without a rule",
            holds: |seen| seen.code() == 9,
        },
    ]
}

fn explained() -> Vec<Entry> {
    let explain = |update: Document| {
        let update = doc! { "q": { "_id": 1 }, "u": update, "upsert": true };
        plain(doc! { "explain": { "update": "c", "updates": [update] }, "verbosity": "queryPlanner" })
    };
    let sizes: &[&str] = &["limits: { document: 220B }"];
    let changes = [
        (sizes, doc! { "$set": { "ev": [1] } }),
        (&["bounds: { field: n, max: 9 }"][..], doc! { "$inc": { "n": 1.5 } }),
    ];
    let entry = |(rules, change): (&'static [&'static str], Document)| Entry {
        name: "explain: an upsert with a condition of docward",
        rules,
        stored: vec![doc! { "_id": 1 }],
        steps: vec![explain(change)],
        must: "shows the plan of what is sent first",
        holds: |seen| seen.code() == 0 && seen.last().contains_key("queryPlanner"),
    };
    changes.into_iter().map(entry).collect()
}

fn unique_sku() -> Step {
    let key = doc! { "key": { "sku": 1 }, "name": "sku", "unique": true, "sparse": true };
    plain(doc! { "createIndexes": "c", "indexes": [key] })
}

fn trees() -> Vec<Entry> {
    let removes = [
        doc! { "$unset": { "path": 1 } },
        doc! { "$rename": { "path": "way" } },
        doc! { "$set": { "parent": "b" }, "$unset": { "path": 1 } },
    ];
    let mut entries: Vec<Entry> = removes
        .into_iter()
        .map(|change| Entry {
            name: "tree: the path of a root is removed",
            rules: &[TREE],
            stored: vec![doc! { "_id": "a", "path": null }, doc! { "_id": "b", "path": null }],
            steps: vec![update(doc! { "_id": "a" }, change)],
            must: "is rejected",
            holds: |seen| seen.code() == 121 && seen.one() == doc! { "_id": "a", "path": null },
        })
        .collect();
    entries.push(Entry {
        name: "tree: an $unset of a root's path that is not there",
        rules: &[TREE],
        stored: vec![doc! { "_id": "a" }],
        steps: vec![update(doc! { "_id": "a" }, doc! { "$unset": { "path": 1 }, "$set": { "x": 1 } })],
        must: "removes nothing",
        holds: |seen| seen.code() == 0 && is(seen, "x", 1),
    });
    entries.push(Entry {
        name: "tree: a version that cannot be incremented, in a transaction",
        rules: &[CHECK, TREE],
        stored: vec![
            doc! { "_id": "a", "path": null, "version": i64::MAX },
            doc! { "_id": "b", "path": null, "version": "text" },
            doc! { "_id": "c", "path": null, "version": 1 },
        ],
        steps: vec![
            transaction(update(doc! { "_id": "a" }, doc! { "$set": { "parent": "c" } })),
            transaction(update(doc! { "_id": "b" }, doc! { "$set": { "parent": "c" } })),
            transaction(upsert(doc! { "_id": "d" }, doc! { "$set": { "parent": "c" } })),
        ],
        must: "the nodes move, and only a number is incremented",
        holds: |seen| {
            let paths: Vec<_> = seen.stored.iter().map(|node| node.get_str("path").unwrap_or_default()).collect();
            let versions: Vec<_> = seen.stored.iter().filter_map(|node| node.get("version").cloned()).collect();
            paths == [",c,", ",c,", "", ",c,"]
                && versions == [i64::MAX.into(), "text".into(), Bson::Int32(1), Bson::Int32(1)]
        },
    });
    entries
}
