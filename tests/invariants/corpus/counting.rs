//! Versions that cannot be incremented: docward only compares them, whatever else an update does.

use super::*;

const INSIDE: &str = "replacement: { policy: check_version, version: a.n }";

fn noted(seen: &Seen) -> bool {
    seen.code() == 0 && seen.stored.iter().all(|document| document.get("note") == Some(&Bson::Int32(1)))
}

fn note() -> Document {
    doc! { "$set": { "note": 1 } }
}

/// Shows an update that is applied to one document twice.
fn twice() -> Document {
    doc! { "$inc": { "b": 1 }, "$push": { "l": 1 } }
}

fn updated_once(seen: &Seen) -> bool {
    let once = |document: &Document| {
        document.get("b") == Some(&Bson::Int32(1)) && document.get("l") == Some(&Bson::Array(vec![Bson::Int32(1)]))
    };
    seen.stored.iter().all(once)
}

/// An update by `_id` with an array filter that all elements match.
fn with_array_filters(change: Document) -> Step {
    let filters = vec![doc! { "e": { "$exists": true } }];
    plain(doc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": change, "arrayFilters": filters }] })
}

fn versions(seen: &Seen, path: &str) -> Vec<Option<Bson>> {
    seen.stored.iter().map(|document| at(document, path).cloned()).collect()
}

/// Every kind of stored version.
fn of_all_kinds() -> Vec<Document> {
    vec![
        doc! { "_id": 1, "version": 3 },
        doc! { "_id": 2, "version": "x" },
        doc! { "_id": 3 },
        doc! { "_id": 4, "version": null },
        doc! { "_id": 5, "version": [1] },
        doc! { "_id": 6, "version": i64::MAX },
        doc! { "_id": 7, "version": decimal("9223372036854775807") },
    ]
}

fn are_counted(seen: &Seen) -> bool {
    let counted = [
        4.into(),
        "x".into(),
        1.into(),
        1.into(),
        vec![Bson::Int32(1)].into(),
        i64::MAX.into(),
        decimal("9223372036854775808"),
    ];
    let counted = counted.map(Some);
    noted(seen) && versions(seen, "version") == counted
}

pub(super) fn entries() -> Vec<Entry> {
    vec![
        Entry {
            name: "replacement: a filter with null below the version also matches a number",
            rules: &["replacement: { policy: reject, version: version, count_updates: true }"],
            stored: vec![doc! { "_id": 2, "at": 1, "version": 0 }],
            steps: vec![update(doc! { "version.x": null }, doc! { "$unset": { "at": "" } })],
            must: "the version is counted up",
            holds: |seen| seen.n() == 1 && is(seen, "version", 1),
        },
        Entry {
            name: "replacement: an update of many documents, some with versions that are no numbers",
            rules: &[CHECK],
            stored: of_all_kinds(),
            steps: vec![many(doc! {}, note())],
            must: "all are updated, and numbers counted up",
            holds: |seen| are_counted(seen) && seen.n() == 7,
        },
        Entry {
            name: "replacement: updates in one transaction, of versions that are no numbers",
            rules: &[CHECK],
            stored: of_all_kinds(),
            steps: vec![transaction(plain(doc! {
                "update": "c",
                "updates": (1..=7).map(|id| doc! { "q": { "_id": id }, "u": note() }).collect::<Vec<_>>(),
            }))],
            must: "all are updated, and numbers counted up",
            holds: |seen| are_counted(seen) && seen.replies[0].get_i32("n").ok() == Some(7),
        },
        Entry {
            name: "replacement: findAndModify in a transaction, of a version that is no number",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "version": "x" }],
            steps: vec![transaction(find_and_modify(doc! {}, note()))],
            must: "it is updated",
            holds: |seen| noted(seen) && seen.replies[0].get_document("value").is_ok() && is(seen, "version", "x"),
        },
        Entry {
            name: "replacement: an update of one document whose version is an array with a number",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "version": [1] }],
            steps: vec![update(doc! {}, note())],
            must: "it is updated",
            holds: |seen| noted(seen) && seen.n() == 1,
        },
        Entry {
            name: "replacement: updates of one document whose version is the largest long",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "version": i64::MAX }],
            steps: vec![
                update(doc! { "_id": 1 }, note()),
                find_and_modify(doc! { "_id": 1 }, note()),
                transaction(update(doc! { "_id": 1 }, note())),
                update(doc! { "_id": 1 }, doc! { "$set": { "note": 1 }, "$inc": { "b": 1 } }),
            ],
            must: "each updates it",
            holds: |seen| {
                seen.replies.iter().all(|reply| ok(reply) && !reply.contains_key("writeErrors"))
                    && is(seen, "version", i64::MAX)
                    && is(seen, "b", 1)
            },
        },
        Entry {
            name: "replacement: a positional update of a document in which there is no way to the version",
            rules: &[INSIDE],
            stored: [1, 2, 3].map(|id| doc! { "_id": id, "tags": ["a", "b"], "a": ["q"] }).to_vec(),
            steps: vec![
                update(doc! { "_id": 1, "tags": "b" }, doc! { "$set": { "tags.$": "z" } }),
                many(doc! { "tags": "b", "_id": { "$gt": 1, "$lt": 3 } }, doc! { "$set": { "tags.$": "z" } }),
                transaction(update(doc! { "_id": 3, "tags": "b" }, doc! { "$set": { "tags.$": "z" } })),
            ],
            must: "writes the element that its filter selects",
            holds: |seen| versions(seen, "tags").iter().all(|tags| *tags == Some(Bson::from(vec!["a", "z"]))),
        },
        Entry {
            name: "replacement: many documents, one with the version before the largest long",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "version": i64::MAX - 1, "b": 0 }, doc! { "_id": 2, "version": 1, "b": 0 }],
            steps: vec![many(doc! {}, twice())],
            must: "each is updated once",
            holds: |seen| seen.n() == 2 && updated_once(seen),
        },
        Entry {
            name: "replacement: many documents in a transaction, one with the version before the largest long",
            rules: &[INSIDE],
            stored: vec![
                doc! { "_id": 1, "a": { "n": i64::MAX - 1 }, "b": 0 },
                doc! { "_id": 2, "a": { "n": 1 }, "b": 0 },
                doc! { "_id": 3, "a": { "n": null }, "b": 0 },
            ],
            steps: vec![transaction(many(doc! {}, twice()))],
            must: "each is updated once",
            holds: |seen| seen.replies[0].get_i32("n").ok() == Some(3) && updated_once(seen),
        },
        Entry {
            name: "replacement: an error of the update itself, beside a version that could be incremented",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "version": 1, "b": i64::MAX }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$inc": { "b": 1 } })],
            must: "is the server's error",
            holds: |seen| seen.code() == 2 && is(seen, "version", 1),
        },
        Entry {
            name: "replacement: many documents in which there is no way to the version",
            rules: &[INSIDE],
            stored: vec![
                doc! { "_id": 1, "a": 5 },
                doc! { "_id": 2, "a": [{ "n": 1 }] },
                doc! { "_id": 3, "a": { "n": 1 } },
                doc! { "_id": 4, "a": null },
            ],
            steps: vec![many(doc! {}, note())],
            must: "all are updated, and the version that is there counted up",
            holds: |seen| noted(seen) && seen.n() == 4 && versions(seen, "a.n")[2] == Some(Bson::Int32(2)),
        },
        Entry {
            name: "replacement: an upsert of many that finds nothing, in a transaction too",
            rules: &[CHECK],
            stored: vec![],
            steps: [1, 2]
                .map(|id| {
                    let statement = doc! { "q": { "_id": id }, "u": note(), "multi": id == 1, "upsert": true };
                    let step = plain(doc! { "update": "c", "updates": [statement] });
                    if id == 1 { step } else { transaction(step) }
                })
                .to_vec(),
            must: "each inserts a document with version 1",
            holds: |seen| noted(seen) && versions(seen, "version") == [Some(Bson::Int32(1)), Some(Bson::Int32(1))],
        },
        Entry {
            name: "replacement: an upsert with $expr in a transaction, whose change is not possible",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "x": "a" }],
            steps: vec![transaction(plain(doc! {
                "findAndModify": "c", "query": { "$expr": {} }, "update": { "$mul": { "x": 2 } }, "upsert": true,
            }))],
            must: "gets the server's error, as without docward",
            holds: |seen| seen.replies[0].get_i32("code").ok() == Some(224),
        },
        Entry {
            name: "replacement: an upsert whose filter states that there is no version, in a transaction",
            rules: &["replacement: { policy: merge, version: version }"],
            stored: vec![],
            steps: vec![
                transaction(upsert(doc! { "_id": 1, "version": null }, note())),
                transaction(upsert(doc! { "$and": [{ "_id": 2, "$or": [{ "version": { "$eq": null } }] }] }, note())),
                transaction(upsert(doc! { "_id": 3, "$or": [{ "version": null }, { "version": null }] }, note())),
            ],
            must: "each inserts a document with version 1",
            holds: |seen| {
                seen.all_committed() && noted(seen) && versions(seen, "version") == vec![Some(Bson::Int32(1)); 3]
            },
        },
        Entry {
            name: "replacement: an upsert whose filter states a value on the way to the version, in a transaction",
            rules: &[INSIDE],
            stored: vec![],
            steps: vec![
                transaction(upsert(doc! { "_id": 1, "a": 5 }, note())),
                transaction(upsert(doc! { "_id": 2, "a": null }, note())),
                transaction(upsert(doc! { "_id": 3, "a.n": null }, note())),
            ],
            must: "each inserts its document, and there is a version in the last",
            holds: |seen| {
                seen.all_committed() && noted(seen) && versions(seen, "a.n") == [None, None, Some(Bson::Int32(1))]
            },
        },
        Entry {
            name: "replacement: an upsert beside timestamps whose filter states a value on the way to the version, in a transaction",
            rules: &[INSIDE, "timestamps: { source: at, fields: [c.d, c.e], without_source: pass }"],
            stored: vec![],
            steps: vec![transaction(upsert(
                doc! { "_id": 1, "a": 5 },
                doc! { "$set": { "note": 1, "c.d": 1, "at": date(PAST) }, "$mul": { "b": 2 }, "$push": { "x": 1 } },
            ))],
            must: "inserts its document",
            holds: |seen| seen.all_committed() && noted(seen) && versions(seen, "a.n") == [None],
        },
        Entry {
            name: "replacement: an upsert of a node whose filter states that there is no version, in a transaction",
            rules: &["replacement: { policy: merge, version: version }", "tree: { path: path, parent: parent }"],
            stored: vec![],
            steps: vec![transaction(upsert(doc! { "_id": 1, "version": null }, note()))],
            must: "a root with version 1 is inserted",
            holds: |seen| seen.all_committed() && noted(seen) && versions(seen, "version") == [Some(Bson::Int32(1))],
        },
        Entry {
            name: "replacement: a merged upsert by a part of the version",
            rules: &["replacement: { policy: merge, version: version }"],
            stored: vec![],
            steps: vec![transaction(upsert(doc! { "version.x": {} }, doc! { "_id": 2, "version": 0 }))],
            must: "is inserted as in mongod",
            holds: |seen| seen.code() == 0 && seen.stored == [doc! { "_id": 2, "version": 0 }],
        },
        Entry {
            name: "replacement: an upsert whose document would have something inside the version",
            rules: &["replacement: { policy: reject, version: version }"],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 2 }, doc! { "$setOnInsert": { "version.x": 1 }, "$push": { "b": 1 } })],
            must: "is inserted as in mongod",
            holds: |seen| seen.code() == 0 && seen.stored == [doc! { "_id": 2, "b": [1], "version": { "x": 1 } }],
        },
        Entry {
            name: "replacement: upserts in transactions that pin versions which cannot be incremented",
            rules: &[CHECK],
            stored: vec![],
            steps: [doc! { "version": [] }, doc! { "version": i64::MAX }, doc! { "$or": [{ "version.x": 1 }] }]
                .map(|pins| transaction(upsert(pins, note())))
                .to_vec(),
            must: "each inserts a document",
            holds: |seen| seen.all_committed() && noted(seen) && seen.stored.len() == 3,
        },
        Entry {
            name: "replacement: a document without a version, and an array where its version would be",
            rules: &[INSIDE],
            stored: vec![doc! { "_id": 1, "a": [] }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "note": 1 })],
            must: "is replaced, and has a version",
            holds: |seen| noted(seen) && seen.n() == 1 && versions(seen, "a.n") == [Some(Bson::Int32(1))],
        },
        Entry {
            name: "replacement: array filters inside a version that is an array",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "version": [1, 2] }],
            steps: vec![with_array_filters(doc! { "$set": { "note": 1 }, "$setOnInsert": { "version.$[e]": 1 } })],
            must: "the update passes, and the filters are used",
            holds: |seen| noted(seen) && seen.n() == 1,
        },
        Entry {
            name: "replacement: array filters in an array around the version",
            rules: &[INSIDE],
            stored: vec![doc! { "_id": 1, "a": [{ "n": 1 }] }],
            steps: vec![with_array_filters(doc! { "$set": { "note": 1, "a.$[e].m": 5 } })],
            must: "the update passes, and has no conflict with the version",
            holds: |seen| noted(seen) && is(seen, "a", vec![Bson::Document(doc! { "n": 1, "m": 5 })]),
        },
        Entry {
            name: "replacement: an upsert and then an update of its version by two equal values",
            rules: &[CHECK],
            stored: vec![],
            steps: vec![plain(doc! { "update": "c", "updates": [
                { "q": { "_id": 1 }, "u": note(), "upsert": true },
                { "q": { "version": { "$in": [1, 1] } }, "u": note() },
            ] })],
            must: "the update finds the version that the upsert inserted",
            holds: |seen| noted(seen) && seen.n() == 2 && is(seen, "version", 2),
        },
        Entry {
            name: "replacement: a pipeline of docward's and a version in an array's documents",
            rules: &[INSIDE, "timestamps: { source: at, fields: [c.d, c.e], without_source: pass }"],
            stored: vec![doc! { "_id": 1, "a": [{}] }],
            steps: vec![update(doc! {}, doc! { "$set": { "at": date(PAST) } })],
            must: "the array stays as it is",
            holds: |seen| seen.code() == 0 && is(seen, "a", vec![Bson::Document(doc! {})]),
        },
        Entry {
            name: "replacement: a pipeline that removes _id",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1 }],
            steps: vec![update(doc! {}, vec![Bson::Document(doc! { "$unset": "_id" })])],
            must: "it does nothing, as directly",
            holds: |seen| seen.code() == 0 && seen.stored.len() == 1,
        },
        Entry {
            name: "tree: a filter that the server cannot read",
            rules: &[TREE],
            stored: vec![],
            steps: vec![delete_many(doc! {
                "note": { "$lte": bson::Regex { pattern: "^x".try_into().unwrap(), options: "".try_into().unwrap() } },
            })],
            must: "is the statement's error, not the command's",
            holds: |seen| ok(seen.last()) && seen.code() == 2,
        },
        Entry {
            name: "timestamps: an upsert that unsets timestamps, and by its filter inserts a protected field",
            rules: &["timestamps: { source: at, without_source: clock }"],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 2, "b": 1 }, doc! { "$unset": { "last_modified": "" } })],
            must: "is rejected, and not the server's error of docward's own operators",
            holds: |seen| seen.code() == 121 && seen.nothing_stored(),
        },
        Entry {
            name: "tree: a part of the path beside a parent",
            rules: &[TREE],
            stored: vec![doc! { "_id": 1 }],
            steps: vec![upsert(doc! { "_id": 4 }, doc! { "$set": { "parent": 1 }, "$unset": { "path.0": "" } })],
            must: "is rejected by what it does",
            holds: |seen| {
                seen.code() == 121 && format!("{}", seen.last()).contains("$unset on 'path.0' cannot be combined")
            },
        },
        Entry {
            name: "tree: a $pull of a path that is not there, beside a parent",
            rules: &[TREE],
            stored: vec![doc! { "_id": 1 }, doc! { "_id": 2 }],
            steps: [2, 4]
                .map(|id| upsert(doc! { "_id": id }, doc! { "$set": { "parent": 1 }, "$pull": { "path": 1 } }))
                .to_vec(),
            must: "the nodes get their paths",
            holds: |seen| {
                let paths = versions(seen, "path");
                seen.code() == 0 && paths == [None, Some(",1,".into()), Some(",1,".into())]
            },
        },
        Entry {
            name: "tree: an $unset of a path that is not there, beside a parent",
            rules: &[TREE],
            stored: vec![doc! { "_id": 1 }, doc! { "_id": 2 }],
            steps: vec![update(doc! { "_id": 2 }, doc! { "$set": { "parent": 1 }, "$unset": { "path": "" } })],
            must: "the node gets its path",
            holds: |seen| seen.code() == 0 && versions(seen, "path") == [None, Some(",1,".into())],
        },
        Entry {
            name: "tree: a rename to the path beside a parent",
            rules: &[TREE],
            stored: vec![doc! { "_id": 1 }],
            steps: vec![upsert(
                doc! { "_id": 4 },
                doc! { "$setOnInsert": { "parent": 1 }, "$rename": { "c": "path" } },
            )],
            must: "is rejected by what it does",
            holds: |seen| {
                seen.code() == 121 && format!("{}", seen.last()).contains("$rename on 'path' cannot be combined")
            },
        },
        Entry {
            name: "bucket: an upsert by arrays that differ",
            rules: &[BUCKET],
            stored: vec![],
            steps: vec![upsert(doc! { "messages": { "$in": [[4, 8], [0, 1]] } }, doc! { "$set": { "x": 1 } })],
            must: "inserts an empty bucket",
            holds: |seen| seen.code() == 0 && is(seen, "count", 0),
        },
        Entry {
            name: "replacement: a collation takes another text for the version",
            rules: &["replacement: { policy: check_version, version: v }"],
            stored: vec![doc! { "_id": 1, "v": "A", "x": 1 }],
            steps: vec![plain(doc! { "update": "c", "updates": [
                { "q": { "_id": 1 }, "u": { "v": "a", "x": 2 }, "collation": { "locale": "en", "strength": 2 } },
            ] })],
            must: "is a conflict",
            holds: |seen| seen.code() == 112 && seen.stored == [doc! { "_id": 1, "v": "A", "x": 1 }],
        },
        Entry {
            name: "together: $min, $max and $set of an element around only one of the fields",
            rules: &["together: [m.u, m.w]"],
            stored: vec![doc! { "_id": 1, "m": [{ "u": 1, "w": 1 }] }],
            steps: vec![
                update(doc! { "_id": 1 }, doc! { "$min": { "m.$[]": { "u": 1 } } }),
                update(doc! { "_id": 1 }, doc! { "$max": { "m.0": { "u": 9 } } }),
                update(doc! { "_id": 1, "m.u": 1 }, doc! { "$max": { "m.$": { "w": 9 } } }),
                update(doc! { "_id": 1 }, doc! { "$max": { "m.0": { "u": 2, "w": 2 } } }),
            ],
            must: "only that of both is executed",
            holds: |seen| is(seen, "m", vec![Bson::from(doc! { "u": 2, "w": 2 })]) && seen.code() == 0,
        },
        Entry {
            name: "replacement beside queue: a claim of a job whose version cannot be incremented, beside one that cannot be claimed",
            rules: &[CHECK, QUEUE],
            stored: vec![doc! { "_id": 1, "try": [] }, doc! { "_id": 2, "try": 0, "locked": false, "version": {} }],
            steps: vec![update(doc! {}, doc! { "$set": { "locked": true } })],
            must: "claims it",
            holds: |seen| seen.code() == 0 && seen.n() == 1 && seen.stored[1].get_bool("locked").unwrap_or(false),
        },
        Entry {
            name: "queue: upserts of new jobs whose lock is an array",
            rules: &[QUEUE],
            stored: vec![],
            steps: vec![
                upsert(doc! { "_id": 1 }, doc! { "$setOnInsert": { "locked": ["x"] } }),
                upsert(doc! { "locked": [false] }, doc! { "$setOnInsert": { "z": 1 } }),
                upsert(doc! { "locked": { "$in": [["x"]] } }, doc! { "$setOnInsert": { "z": 1 } }),
                upsert(doc! { "$or": [{ "locked": { "$all": [[1]] } }] }, doc! { "$setOnInsert": { "z": 1 } }),
            ],
            must: "are rejected, like an insert",
            holds: |seen| seen.code() == 121 && seen.nothing_stored(),
        },
        Entry {
            name: "replacement: a version that a double cannot count",
            rules: &["replacement: { policy: check_version, version: v }"],
            stored: vec![doc! { "_id": 1, "v": 9_007_199_254_740_992.0, "x": 1 }],
            steps: vec![
                update(doc! { "_id": 1 }, doc! { "v": 9_007_199_254_740_992.0, "x": 2 }),
                update(doc! { "_id": 1 }, doc! { "v": 9_007_199_254_740_992.0, "x": 3 }),
            ],
            must: "the second save is a conflict",
            holds: |seen| seen.code() == 112 && is(seen, "x", 2),
        },
        Entry {
            name: "replacement: a version with the name of an operator",
            rules: &["replacement: { policy: check_version, version: v }"],
            stored: vec![doc! { "_id": 1, "v": 3, "x": 1 }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "v": { "$gt": 0 }, "x": 2 })],
            must: "is a conflict",
            holds: |seen| seen.code() == 112 && is(seen, "x", 1),
        },
        Entry {
            name: "replacement: a version that is a regular expression",
            rules: &["replacement: { policy: check_version, version: v }"],
            stored: vec![doc! { "_id": 1, "v": "abc", "x": 1 }],
            steps: vec![update(
                doc! { "_id": 1 },
                doc! { "v": bson::Regex { pattern: "^a".try_into().unwrap(), options: "".try_into().unwrap() }, "x": 2 },
            )],
            must: "is a conflict",
            holds: |seen| seen.code() == 112 && is(seen, "x", 1),
        },
        Entry {
            name: "sequence: a number with the name of an operator",
            rules: &["sequence: { field: no, strategy: optimistic, provided: reject }"],
            stored: vec![doc! { "_id": 1, "no": 1 }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "no": { "$gt": 0 }, "x": 1 })],
            must: "keeps the number",
            holds: |seen| is(seen, "no", 1),
        },
        Entry {
            name: "bounds: a fraction below the minimum for a missing field",
            rules: &["bounds: { field: n, min: 2, max: 10 }"],
            stored: vec![doc! { "_id": 1 }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$inc": { "n": 0.5 } })],
            must: "has no effect",
            holds: |seen| seen.n() == 0 && seen.stored == [doc! { "_id": 1 }],
        },
        Entry {
            name: "bounds: a double added to a decimal",
            rules: &["bounds: { field: n, min: 0, max: 10 }"],
            stored: vec![doc! { "_id": 1, "n": decimal("9.70000000000000001") }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$inc": { "n": 0.3 } })],
            must: "has no effect",
            holds: |seen| seen.n() == 0,
        },
        Entry {
            name: "bounds: a decimal added to a double",
            rules: &["bounds: { field: n, min: 0 }"],
            stored: vec![doc! { "_id": 1, "n": 0.1 }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$inc": { "n": decimal("-0.100000000000000005") } })],
            must: "has no effect",
            holds: |seen| seen.n() == 0,
        },
        Entry {
            name: "bounds: a double taken from an equal decimal",
            rules: &["bounds: { field: n, min: 0 }"],
            stored: vec![doc! { "_id": 1, "n": decimal("0.1") }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$inc": { "n": -0.1 } })],
            must: "has the result of the server",
            holds: |seen| seen.n() == 1,
        },
        Entry {
            name: "sequence: an upsert that creates a date around the number",
            rules: &["sequence: { field: a.no, strategy: optimistic, on_upsert: true }"],
            stored: Vec::new(),
            steps: vec![upsert(doc! { "_id": 6 }, doc! { "$currentDate": { "a": true } })],
            must: "is rejected",
            holds: |seen| seen.code() == 121 && seen.nothing_stored(),
        },
        Entry {
            name: "timestamps: times in $setOnInsert without an upsert",
            rules: &["timestamps: { source: at, fields: [b], type: long, without_source: clock }"],
            stored: vec![doc! { "_id": 1 }],
            steps: vec![update(
                doc! { "_id": 1 },
                doc! { "$set": { "b": 7 }, "$setOnInsert": { "last_modified": { "b": 2_i64 } }, "$push": { "w": 1 } },
            )],
            must: "is executed",
            holds: |seen| seen.code() == 0 && is(seen, "b", 7),
        },
        Entry {
            name: "replacement: an upsert by null below the version also matches a number",
            rules: &["replacement: { policy: check_version, version: version }"],
            stored: vec![doc! { "_id": 1, "version": 1 }],
            steps: vec![upsert(doc! { "version.x": null }, doc! { "$inc": { "sku": 1 } })],
            must: "counts the version",
            holds: |seen| seen.code() == 0 && is(seen, "version", 2),
        },
    ]
}
