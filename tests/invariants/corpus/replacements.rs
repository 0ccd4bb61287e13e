//! Replacements, and the versions that some rules compare.

use super::*;

const IGNORE: &str = "replacement: { policy: check_version, version: version, on_conflict: ignore }";

pub(super) fn entries() -> Vec<Entry> {
    [whole_documents(), versions(), around_the_version(), merged()].into_iter().flatten().collect()
}

fn whole_documents() -> Vec<Entry> {
    vec![
        Entry {
            name: "replacement: the same upsert twice, picked by another field than _id",
            rules: &[CHECK],
            stored: vec![],
            steps: vec![
                upsert(doc! { "sku": "x" }, doc! { "sku": "x", "qty": 1 }),
                upsert(doc! { "sku": "x" }, doc! { "sku": "x", "qty": 1 }),
            ],
            must: "there is one document",
            holds: |seen| seen.stored.len() == 1,
        },
        Entry {
            name: "replacement: a document that was never there",
            rules: &[CHECK],
            stored: vec![],
            steps: vec![update(doc! { "_id": "nope" }, doc! { "x": 1 })],
            must: "n is 0, without an error",
            holds: |seen| seen.code() == 0 && seen.n() == 0,
        },
        Entry {
            name: "replacement: findAndModify of a document that was never there",
            rules: &[CHECK],
            stored: vec![],
            steps: vec![find_and_modify(doc! { "_id": "nope" }, doc! { "x": 1 })],
            must: "null, without an error",
            holds: |seen| seen.code() == 0 && seen.last().get("value") == Some(&Bson::Null),
        },
        Entry {
            name: "replacement: a first save by upsert where unchecked ones are rejected",
            rules: &[REJECT],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 7 }, doc! { "_id": 7, "x": 1 })],
            must: "it is inserted",
            holds: |seen| seen.stored.len() == 1,
        },
        Entry {
            name: "replacement: the upsert of a document that is there, where unchecked ones are rejected",
            rules: &[REJECT],
            stored: vec![doc! { "_id": 7, "keep": 1 }],
            steps: vec![upsert(doc! { "_id": 7 }, doc! { "_id": 7, "x": 1 })],
            must: "it erases nothing",
            holds: |seen| seen.one().contains_key("keep"),
        },
        Entry {
            name: "replacement: a pipeline that excludes a field inside a document",
            rules: &[REJECT],
            stored: vec![doc! { "_id": 1, "a": { "b": 1, "c": 1 } }],
            steps: vec![update(doc! { "_id": 1 }, vec![Bson::from(doc! { "$project": { "a": { "b": 0 } } })])],
            must: "removes only that field",
            holds: |seen| seen.one() == doc! { "_id": 1, "a": { "c": 1 } },
        },
        Entry {
            name: "replacement: merged with another _id than the stored",
            rules: &[MERGE],
            stored: vec![doc! { "_id": 1, "x": 1 }],
            steps: vec![update(doc! { "x": 1 }, doc! { "_id": 2, "x": 2 })],
            must: "the server's error 66",
            holds: |seen| seen.code() == 66,
        },
        Entry {
            name: "replacement: a conflict that is ignored, in a transaction",
            rules: &[IGNORE],
            stored: vec![doc! { "_id": 1, "version": 3 }],
            steps: vec![transaction(update(doc! { "_id": 1 }, doc! { "version": 1 }))],
            must: "the transaction commits",
            holds: Seen::all_committed,
        },
        Entry {
            name: "replacement: an upsert whose conflict is ignored, in a transaction",
            rules: &[IGNORE],
            stored: vec![doc! { "_id": 1, "version": 3 }],
            steps: vec![transaction(upsert(doc! { "_id": 1 }, doc! { "x": 1 }))],
            must: "the transaction commits, and the document is as it was",
            holds: |seen| seen.all_committed() && seen.one().get("version") == Some(&Bson::Int32(3)),
        },
    ]
}

fn versions() -> Vec<Entry> {
    vec![
        Entry {
            name: "versions: a $set between another's read and save",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "x": 0, "version": 1 }],
            steps: vec![
                update(doc! { "_id": 1 }, doc! { "$set": { "y": 1 } }),
                update(doc! { "_id": 1 }, doc! { "x": 2, "version": 1 }),
            ],
            must: "is not erased by that save",
            holds: |seen| seen.one().contains_key("y"),
        },
        Entry {
            name: "versions: an operator sets the version back",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "version": 3 }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$set": { "version": 1 } })],
            must: "the version is at least 3",
            holds: |seen| seen.one().get("version").and_then(as_number) >= Some(3.0),
        },
        Entry {
            name: "versions: the client's own filter pins one that is not stored",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "version": 3 }],
            steps: vec![update(doc! { "_id": 1, "version": 2 }, doc! { "x": 1, "version": 3 })],
            must: "n is 0, without an error",
            holds: |seen| seen.code() == 0 && seen.n() == 0,
        },
        Entry {
            name: "versions: the client counts up itself",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "version": 3 }],
            steps: vec![update(doc! { "_id": 1, "version": 3 }, doc! { "x": 1, "version": 4 })],
            must: "the stored version is 4",
            holds: |seen| seen.one().get("version") == Some(&Bson::Int32(4)),
        },
        Entry {
            name: "versions: two writers set all columns by $set, the version too",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "x": 0, "y": 0, "version": 1 }],
            steps: vec![
                update(doc! { "_id": 1 }, doc! { "$set": { "x": 1, "y": 0, "version": 1 } }),
                update(doc! { "_id": 1 }, doc! { "$set": { "x": 0, "y": 1, "version": 1 } }),
            ],
            must: "the second is a conflict",
            holds: |seen| seen.one().get("x") == Some(&Bson::Int32(1)),
        },
        Entry {
            name: "versions: a UUID that changes with each save",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "version": "u1" }],
            steps: vec![update(doc! { "_id": 1, "version": "u1" }, doc! { "x": 1, "version": "u2" })],
            must: "it is stored as it was sent",
            holds: |seen| seen.one().get("version") == Some(&"u2".into()),
        },
        Entry {
            name: "versions: an update by operators where the stored version is a UUID",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "version": "u1" }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$set": { "x": 1 } })],
            must: "it is done, and the version is left alone",
            holds: |seen| is(seen, "x", 1) && is(seen, "version", "u1"),
        },
        Entry {
            name: "versions: an update by operators where there is no room for the version",
            rules: &["replacement: { policy: check_version, version: a.version }"],
            stored: vec![doc! { "_id": 1, "a": [] }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$set": { "x": 1 } })],
            must: "it is done",
            holds: |seen| is(seen, "x", 1),
        },
        Entry {
            name: "versions: an operator makes of the version what cannot be counted",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "version": 3 }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$set": { "version": 0.5 } })],
            must: "the version is still a whole number",
            holds: |seen| seen.one().get("version").and_then(as_number) >= Some(3.0),
        },
        Entry {
            name: "versions: the client increments by a whole decimal, and by a fraction",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "version": 3 }],
            steps: vec![
                update(doc! { "_id": 1 }, doc! { "$inc": { "version": decimal("1") } }),
                update(doc! { "_id": 1 }, doc! { "$inc": { "version": 0.5 } }),
            ],
            must: "the first is done, and the second is rejected for the fraction",
            holds: |seen| {
                is(seen, "version", decimal("4"))
                    && seen.code() == 121
                    && seen.last().to_string().contains("whole number")
            },
        },
        Entry {
            name: "versions: null is written back that was read and is checked",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "version": null }],
            steps: vec![update(doc! { "_id": 1, "version": null }, doc! { "$set": { "x": 2, "version": null } })],
            must: "it is done, and the document has version 1",
            holds: |seen| seen.code() == 0 && is(seen, "x", 2) && is(seen, "version", 1),
        },
        Entry {
            name: "versions: a save with an undefined version",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "version": null }, doc! { "_id": 2, "version": 3 }],
            steps: vec![
                update(doc! { "_id": 1 }, doc! { "x": 2, "version": Bson::Undefined }),
                update(doc! { "_id": 2 }, doc! { "x": 2, "version": Bson::Undefined }),
            ],
            must: "is one without a version",
            holds: |seen| ok(&seen.replies[0]) && is(seen, "version", 1) && seen.code() == 112,
        },
        Entry {
            name: "versions: a fraction is written back by $set",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "version": 3.5 }],
            steps: vec![
                update(doc! { "_id": 1 }, doc! { "$set": { "x": 2, "version": 3.5 } }),
                update(doc! { "_id": 1 }, doc! { "$set": { "x": 3, "version": 4.5 } }),
            ],
            must: "it is compared, as by a replacement",
            holds: |seen| ok(&seen.replies[0]) && is(seen, "x", 2) && seen.code() == 112,
        },
        Entry {
            name: "replacement: a merging upsert whose _id is of another numeric type",
            rules: &[MERGE],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1 }, doc! { "_id": 1_i64, "x": 1 })],
            must: "it is inserted, as by mongod",
            holds: |seen| seen.code() == 0 && is(seen, "_id", 1_i64),
        },
        Entry {
            name: "replacement: merged over a document whose _id is of another numeric type",
            rules: &[MERGE],
            stored: vec![doc! { "_id": 1, "keep": 1 }, doc! { "_id": 2, "keep": 1 }],
            steps: vec![
                upsert(doc! { "_id": 1 }, doc! { "_id": 1.0, "x": 1 }),
                update(doc! { "_id": 2 }, doc! { "_id": 2_i64, "x": 1 }),
            ],
            must: "its fields are set",
            holds: |seen| {
                let merged = |document: &Document| document.contains_key("x") && document.contains_key("keep");
                seen.code() == 0 && seen.stored.len() == 2 && seen.stored.iter().all(merged)
            },
        },
        Entry {
            name: "replacement: merged over a document whose _id is a document with equal numbers",
            rules: &[MERGE],
            stored: vec![doc! { "_id": { "a": 1 }, "keep": 1 }],
            steps: vec![
                update(doc! { "_id": { "a": 1 } }, doc! { "_id": { "a": 1.0 }, "x": 1 }),
                upsert(doc! { "_id": { "a": 2 } }, doc! { "_id": { "a": 2_i64 }, "x": 1, "keep": 1 }),
            ],
            must: "its fields are set, and the upsert inserts",
            holds: |seen| {
                let has_fields = |document: &Document| document.contains_key("x") && document.contains_key("keep");
                seen.code() == 0 && seen.stored.len() == 2 && seen.stored.iter().all(has_fields)
            },
        },
        Entry {
            name: "replacement: merged with an _id that the collation takes for the stored one",
            rules: &[MERGE],
            stored: vec![doc! { "_id": "a", "x": 0 }, doc! { "_id": { "t": "a", "n": 1 }, "x": 0 }],
            steps: [Bson::from("A"), doc! { "t": "A", "n": 1 }.into()]
                .map(|id| {
                    let folded = doc! { "locale": "en", "strength": 2 };
                    let (q, u) = (doc! { "_id": &id }, doc! { "_id": &id, "x": 1 });
                    plain(doc! { "update": "c", "updates": [{ "q": q, "u": u, "collation": folded }] })
                })
                .to_vec(),
            must: "the server's error 66",
            holds: |seen| {
                let failed = |reply: &Document| reply.to_string().contains("\"code\": 66");
                seen.replies.iter().all(failed)
                    && seen.stored.iter().all(|document| document.get("x") == Some(&Bson::Int32(0)))
            },
        },
        Entry {
            name: "replacement: a merging upsert whose _id is a text",
            rules: &[MERGE],
            stored: vec![],
            steps: vec![
                upsert(doc! { "_id": "a" }, doc! { "_id": "a", "x": 1 }),
                upsert(doc! { "_id": "a" }, doc! { "_id": "a", "y": 1 }),
            ],
            must: "inserts, and then sets the fields",
            holds: |seen| seen.code() == 0 && seen.stored == [doc! { "_id": "a", "x": 1, "y": 1 }],
        },
        Entry {
            name: "replacement: a merging upsert whose filter has a field twice",
            rules: &[MERGE],
            stored: vec![],
            steps: vec![upsert(doc! { "note": { "$all": [1, 2] } }, doc! { "note": 1 })],
            must: "it is inserted, as by mongod",
            holds: |seen| seen.code() == 0 && is(seen, "note", 1),
        },
        Entry {
            name: "replacement: an empty timestamp that is merged",
            rules: &[MERGE],
            stored: vec![doc! { "_id": 1, "keep": 1 }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "x": 1, "note": EMPTY })],
            must: "becomes the time",
            holds: |seen| has_time(seen) && is(seen, "keep", 1) && is(seen, "x", 1),
        },
        Entry {
            name: "replacement: merged with a field whose name is the path of the version",
            rules: &["replacement: { policy: merge, version: a.n }"],
            stored: vec![doc! { "_id": 1, "a": { "n": 3 } }],
            steps: vec![
                update(doc! { "_id": 1 }, doc! { "x": 2, "a.n": 7 }),
                upsert(doc! { "_id": 2 }, doc! { "x": 2, "a.n": 7 }),
            ],
            must: "the stored document keeps its fields, and the inserted one has that field and a version",
            holds: |seen| {
                let rejected = seen.replies[0].to_string().contains("\"code\": 121");
                let inserted = doc! { "_id": 2, "x": 2, "a.n": 7, "a": { "n": 1 } };
                rejected && seen.stored == [doc! { "_id": 1, "a": { "n": 3 } }, inserted]
            },
        },
        Entry {
            name: "replacement: explain of one, of a document that is not there and of one that is",
            rules: &[REJECT],
            stored: vec![doc! { "_id": 1, "x": 1 }],
            steps: [1, 2]
                .map(|id| {
                    let statement = doc! { "q": { "_id": id }, "u": { "x": 2 }, "upsert": true };
                    plain(doc! { "explain": { "update": "c", "updates": [statement] }, "verbosity": "queryPlanner" })
                })
                .to_vec(),
            must: "the plan: only the stored documents decide whether the statement is rejected",
            holds: |seen| seen.replies.iter().all(|reply| reply.contains_key("queryPlanner")),
        },
        Entry {
            name: "replacement: an upsert of what was read, where the document is gone",
            rules: &[CHECK],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1 }, doc! { "x": 1, "version": 3 })],
            must: "n is 0, nothing is inserted",
            holds: |seen| seen.code() == 0 && seen.n() == 0 && seen.nothing_stored(),
        },
        Entry {
            name: "versions: an upsert sets the document around the version on insert",
            rules: &["replacement: { policy: check_version, version: a.n }"],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1 }, doc! { "$set": { "x": 1 }, "$setOnInsert": { "a": { "m": 1 } } })],
            must: "it is inserted, with the version beside what is in the document",
            holds: |seen| {
                at(&seen.one(), "a.m") == Some(&Bson::Int32(1)) && at(&seen.one(), "a.n") == Some(&Bson::Int32(1))
            },
        },
        Entry {
            name: "versions: an upsert sets something else than a document around the version on insert",
            rules: &["replacement: { policy: check_version, version: a.n }"],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1 }, doc! { "$set": { "x": 1 }, "$setOnInsert": { "a": 5 } })],
            must: "it is inserted as in mongod",
            holds: |seen| seen.code() == 0 && seen.stored == [doc! { "_id": 1, "a": 5, "x": 1 }],
        },
        Entry {
            name: "sequence: a replacing upsert whose filter has two values of _id",
            rules: &[SEQUENCE_UPSERT],
            stored: vec![],
            steps: vec![upsert(doc! { "$and": [{ "_id": 5 }, { "_id": 1 }] }, doc! { "x": 1 })],
            must: "the server's error 54",
            holds: |seen| seen.code() == 54 && seen.nothing_stored(),
        },
        Entry {
            name: "versions: a pipeline of constants, as an ORM saves",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "x": 0, "version": 1 }],
            steps: vec![update(doc! { "_id": 1 }, vec![Bson::from(doc! { "$set": { "x": { "$literal": 5 } } })])],
            must: "it is done",
            holds: |seen| seen.code() == 0 && seen.one().get("x") == Some(&Bson::Int32(5)),
        },
    ]
}

/// Replacements that are merged, with the version inside a document.
fn merged() -> Vec<Entry> {
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
            name: "replacement: a merged document around the version, with the position of an array element",
            rules: &[INSIDE],
            stored: vec![doc! { "_id": 4, "m": [1, 2], "k": 1 }],
            steps: vec![update(doc! { "_id": 4 }, doc! { "m": { "0": 5, "v": 3 } })],
            must: "writes no element of a stored array",
            holds: |seen| seen.code() == 121 && seen.stored == [doc! { "_id": 4, "m": [1, 2], "k": 1 }],
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

/// Operators on the document around the version, and versions that are no integers.
fn around_the_version() -> Vec<Entry> {
    vec![
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
            must: "is inserted with a version",
            holds: |seen| seen.code() == 0 && seen.stored == [doc! { "_id": 1, "m": { "y": 2, "v": 1 }, "b": 1 }],
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
    ]
}
