//! Statements of unusual forms: mixed or malformed updates, filters that never match, options of the wrong type.

use super::*;

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
    for rules in [&[WHOLE], &[VERSIONED]] {
        entries.push(Entry {
            name: "constants beside an update that is no pipeline",
            rules,
            stored: stored(),
            steps: [doc! { "a": 2, "s": 2_i64 }, doc! { "$set": { "a": 2, "s": 2_i64 } }]
                .map(|u| plain(doc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": u, "c": { "e": 1 } }] }))
                .to_vec(),
            must: "the server's error, and nothing is written",
            holds: |seen| seen.replies.iter().all(|reply| reply.to_string().contains("51198")) && is(seen, "a", 1),
        });
        entries.push(Entry {
            name: "an empty list of array filters beside a pipeline of a findAndModify",
            rules,
            stored: stored(),
            steps: vec![plain(doc! {
                "findAndModify": "c", "query": { "_id": 1 }, "update": [{ "$set": { "a": 2, "s": 2_i64 } }], "arrayFilters": [],
            })],
            must: "the server's error, and nothing is written",
            holds: |seen| seen.code() == 9 && is(seen, "a", 1),
        });
    }
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
    for rules in [&[WHOLE], &[FIELDS], &[CHECK]] {
        for invalid in [doc! { "$unset": ["a", "a"] }, doc! { "$unset": [] }] {
            entries.push(Entry {
                name: "a constant pipeline with a stage that the server rejects",
                rules,
                stored: stored(),
                steps: vec![update(doc! { "_id": 1 }, vec![doc! { "$set": { "s": 2_i64 } }, invalid])],
                must: "fails",
                holds: |seen| seen.code() != 0 && seen.stored == [doc! { "_id": 1, "a": 1 }],
            });
        }
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
    entries.extend(
        [
            never_matching(),
            increments(),
            uncertain_pins(),
            array_filters(),
            explained(),
            failing_filters(),
            large_times(),
        ]
        .into_iter()
        .flatten(),
    );
    entries.extend(rejected_commands());
    entries
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

/// Filters whose expressions the server rejects, or fails for a document, in docward's own find.
fn failing_filters() -> Vec<Entry> {
    let unknown = || doc! { "_id": 1, "$expr": { "$eq": ["$x", "$$w"] } };
    let failing = || doc! { "_id": 1, "$expr": { "$eq": [1, { "$toInt": "x" }] } };
    let entry = |rules, filter| Entry {
        name: "a single statement with an expression that fails",
        rules,
        stored: vec![doc! { "_id": 1, "n": 1 }],
        steps: vec![update(filter, doc! { "y": 1 })],
        must: "is an error of the statement, and not of the command, as directly",
        holds: |seen| {
            let errors = seen.last().get_array("writeErrors").map_or(0, Vec::len);
            errors == 1 && matches!(seen.code(), 17276 | 241)
        },
    };
    const TREE: &[&str] = &["tree: {}"];
    const REJECT: &[&str] = &["replacement: { policy: reject }"];
    [TREE, REJECT].into_iter().flat_map(|rules| [entry(rules, unknown()), entry(rules, failing())]).collect()
}

/// Source times that JavaScript sends.
fn large_times() -> Vec<Entry> {
    let entry = |time: f64| Entry {
        name: "timestamps: type long, and a double beyond 2^53",
        rules: &[FIELDS],
        stored: vec![doc! { "_id": 1 }],
        steps: vec![update(doc! { "_id": 1 }, doc! { "$set": { "a": 1, "s": time } })],
        must: "is stored, with the time as a long",
        holds: |seen| matches!(at(&seen.one(), "lm.a"), Some(Bson::Int64(time)) if *time > 1 << 53) && seen.code() == 0,
    };
    vec![entry(9_007_199_254_740_994.0), entry(1.7e18)]
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
