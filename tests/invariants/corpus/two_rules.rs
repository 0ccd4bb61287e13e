//! Rules on one collection of which one changes, or keeps, what the other compares; and fields around and beside those of
//! a rule.

use bson::Regex;

use super::*;

const TIMES: &str = "timestamps: { source: sent, type: long, store: ts }";
const CHECKED: &str = "replacement: { policy: check_version, version: v }";
const SCHEMA: &str = "schema_version: { field: sv, current: 3, minimum: 2 }";
const QUEUE: &str = "queue: { lease: 5m }";
const NESTED: &str = "together: [s.p.a, s.q.b]";
const BESIDE: &str = "together: [s.p, s.q]";

fn rejected(seen: &Seen) -> bool {
    seen.code() == 121
}

fn job(locked: bool, attempt: i32) -> Document {
    doc! { "_id": 1, "locked": locked, "try": attempt, "tlocked": PAST, "sent": 7_i64, "ts": { "locked": 7_i64 } }
}

/// Late writes of fields by which another rule decides.
fn late_writes() -> Vec<Entry> {
    let claim =
        |by: i32| find_and_modify(doc! { "_id": 1 }, doc! { "$set": { "locked": true, "by": by, "sent": 5_i64 } });
    vec![
        Entry {
            name: "timestamps + replacement: a late write counts the version up",
            rules: &[CHECKED, TIMES],
            stored: vec![doc! { "_id": 1, "note": "n", "v": 2, "sent": 9_i64, "ts": { "v": 9_i64, "sent": 9_i64 } }],
            steps: vec![
                update(doc! { "_id": 1 }, doc! { "$set": { "note": "x", "v": 2, "sent": 8_i64 } }),
                update(doc! { "_id": 1 }, doc! { "$set": { "note": "y", "v": 2, "sent": 8_i64 } }),
            ],
            must: "the second is a conflict",
            holds: |seen| seen.code() == 112 && is(seen, "v", 3) && is(seen, "note", "x"),
        },
        Entry {
            name: "timestamps + schema_version: a late write sets the version of its format",
            rules: &[SCHEMA, TIMES],
            stored: vec![doc! { "_id": 1, "name": "Ada", "sv": 2, "sent": 9_i64, "ts": { "sv": 9_i64 } }],
            steps: vec![
                update(doc! { "_id": 1 }, doc! { "$set": { "sv": 3, "first": "Ada", "sent": 8_i64 } }),
                update(doc! { "_id": 1 }, doc! { "$set": { "name": "Grace", "sent": 10_i64 } }),
            ],
            must: "old code cannot write it any more",
            holds: |seen| rejected(seen) && is(seen, "sv", 3),
        },
        Entry {
            name: "timestamps + schema_version: a late write of a document around the version",
            rules: &["schema_version: { field: m.sv, current: 3, minimum: 2 }", TIMES],
            stored: vec![doc! { "_id": 1, "name": "Ada", "m": { "sv": 2 }, "ts": { "m": 9_i64 } }],
            steps: vec![update(
                doc! { "_id": 1 },
                doc! { "$set": { "m": { "sv": 3 }, "first": "Ada", "sent": 8_i64 } },
            )],
            must: "is rejected",
            holds: rejected,
        },
        Entry {
            name: "timestamps + queue: a late claim locks the job",
            rules: &[QUEUE, TIMES],
            stored: vec![job(false, 0)],
            steps: vec![claim(1), claim(2)],
            must: "only one claim wins",
            holds: |seen| is(seen, "locked", true) && is(seen, "try", 1) && is(seen, "by", 1),
        },
        Entry {
            name: "timestamps per: document + queue: a late claim locks the job",
            rules: &[QUEUE, "timestamps: { source: sent, type: long, store: ts, per: document }"],
            stored: vec![doc! { "_id": 1, "locked": false, "try": 0, "tlocked": PAST, "sent": 7_i64, "ts": 7_i64 }],
            steps: vec![claim(1), claim(2)],
            must: "only one claim wins",
            holds: |seen| is(seen, "locked", true) && is(seen, "try", 1),
        },
        Entry {
            name: "timestamps per: document + queue: a claim by replacement could be late",
            rules: &[QUEUE, "timestamps: { source: sent, type: long, store: ts, per: document }"],
            stored: vec![doc! { "_id": 1, "locked": true, "try": 2, "tlocked": PAST, "sent": 7_i64, "ts": 7_i64 }],
            steps: vec![find_and_modify(doc! { "_id": 1, "try": 2 }, doc! { "locked": true, "try": 3, "sent": 5_i64 })],
            must: "is rejected",
            holds: rejected,
        },
    ]
}

fn together() -> Vec<Entry> {
    let entry = |rules, stored, change| Entry {
        name: "together: an operator around one field, or on a number beside it",
        rules,
        stored: vec![stored],
        steps: vec![update(doc! { "_id": 1 }, change)],
        must: "is rejected",
        holds: rejected,
    };
    let both = || doc! { "_id": 1, "s": { "p": { "a": 1 }, "q": { "b": 1 } } };
    let listed = || doc! { "_id": 1, "s": [{ "p": 1, "q": 1 }] };
    let beside = || doc! { "_id": 1, "s": { "p": 1, "q": 1 } };
    vec![
        entry(&[NESTED], both(), doc! { "$set": { "s.q.b": 9 }, "$currentDate": { "s.p": true } }),
        entry(&[NESTED], both(), doc! { "$set": { "s.q.b": 9, "s.p.0": 1 } }),
        entry(&[NESTED], doc! { "_id": 1 }, doc! { "$set": { "s.q.b": 9 }, "$inc": { "s.p": 1 } }),
        entry(&[NESTED], doc! { "_id": 1 }, doc! { "$set": { "s.q.b": 9 }, "$push": { "s.p": 1 } }),
        entry(&[BESIDE], beside(), doc! { "$set": { "s.p": 5, "s.0": 3 } }),
        entry(&[BESIDE], beside(), doc! { "$set": { "s.p": 5 }, "$unset": { "s.0": "" } }),
        entry(&[BESIDE], beside(), doc! { "$unset": { "s.p": 1, "s.0": 1 } }),
        entry(&[BESIDE], listed(), doc! { "$unset": { "s.x": 1 }, "$set": { "s.0.p": 5 } }),
        entry(&[BESIDE], doc! { "_id": 1 }, doc! { "$set": { "s.p": 1, "s.0.p": 1, "s.0.q": 1 } }),
        entry(&[BESIDE], doc! { "_id": 1 }, doc! { "$inc": { "s.0": 3 }, "$push": { "s.p.10": -1 } }),
    ]
}

/// A rule that reports an error beside one that ignores: only the rule whose condition did not match reports it.
fn blamed() -> Vec<Entry> {
    const REPORTS: &str = "bounds: { field: b, min: 0, on_no_room: error }";
    let of = |rules, stored: Bson, amount: Bson, session: fn(Step) -> Step| Entry {
        name: "bounds with on_no_room: error: there is room, and another rule does not match",
        rules,
        stored: vec![doc! { "_id": 1, "a": 0, "b": stored, "sv": 3 }],
        steps: vec![session(update(doc! { "_id": 1 }, doc! { "$inc": { "a": -1, "b": amount } }))],
        must: "n is 0",
        holds: |seen| seen.replies.iter().all(ok) && seen.code() == 0 && is(seen, "a", 0),
    };
    const BOUNDS_BESIDE: &[&str] = &["bounds: { field: a, min: 0 }", REPORTS];
    const SCHEMA_BESIDE: &[&str] =
        &["schema_version: { field: sv, current: 3, minimum: 2, on_newer: ignore }", REPORTS];
    let alone = |step| step;
    vec![
        of(BOUNDS_BESIDE, 10.5.into(), (-1).into(), alone),
        of(BOUNDS_BESIDE, decimal("10.50"), (-1).into(), alone),
        of(BOUNDS_BESIDE, decimal("10.50"), (-10.5).into(), alone),
        of(BOUNDS_BESIDE, 10.into(), (-0.5).into(), alone),
        of(BOUNDS_BESIDE, 10.into(), decimal("-10.0"), alone),
        of(BOUNDS_BESIDE, 10.5.into(), (-1).into(), transaction),
        of(SCHEMA_BESIDE, 10.5.into(), (-1).into(), alone),
        Entry {
            name: "bounds with on_no_room: error: there is no room for a decimal",
            must: "the reply has the error",
            holds: rejected,
            ..of(BOUNDS_BESIDE, decimal("10.50"), decimal("-10.51"), alone)
        },
        Entry {
            name: "bounds with on_no_room: error: there is no room for a fraction",
            must: "the reply has the error",
            holds: rejected,
            ..of(BOUNDS_BESIDE, 10.into(), (-10.5).into(), alone)
        },
    ]
}

/// A save that makes a node a root, with the path that it was read with.
fn roots() -> Vec<Entry> {
    let stored = || vec![doc! { "_id": "A", "path": null }, doc! { "_id": "B", "parent": "A", "path": ",A,", "t": 1 }];
    vec![
        Entry {
            name: "tree: a parent of null beside a path",
            rules: &["tree: {}"],
            stored: stored(),
            steps: vec![update(doc! { "_id": "B" }, doc! { "_id": "B", "parent": null, "path": ",A,", "t": 2 })],
            must: "is rejected",
            holds: rejected,
        },
        Entry {
            name: "tree: an inserted node with a parent of null and a path",
            rules: &["tree: {}"],
            stored: stored(),
            steps: vec![insert(vec![doc! { "_id": "D", "parent": null, "path": ",A," }])],
            must: "is rejected",
            holds: rejected,
        },
        Entry {
            name: "tree: an inserted root with a parent of null",
            rules: &["tree: {}"],
            stored: stored(),
            steps: vec![insert(vec![doc! { "_id": "D", "parent": null }])],
            must: "is inserted",
            holds: |seen| seen.code() == 0 && seen.stored.len() == 3,
        },
        Entry {
            name: "tree: a path without a parent still gives the parent",
            rules: &["tree: {}"],
            stored: stored(),
            steps: vec![insert(vec![doc! { "_id": "D", "path": ",A," }])],
            must: "gets the parent",
            holds: |seen| seen.stored.iter().any(|one| one == &doc! { "_id": "D", "path": ",A,", "parent": "A" }),
        },
    ]
}

/// Upserts by `merge` of a document that has a version and nothing else.
fn only_versions() -> Vec<Entry> {
    let entry = |rules, document, holds| Entry {
        name: "replacement: merge inserts a document with only a version",
        rules,
        stored: vec![],
        steps: vec![upsert(doc! { "_id": 9 }, document)],
        must: "has a version",
        holds,
    };
    const NESTED: &[&str] = &["replacement: { policy: merge, version: m.v }"];
    const PLAIN: &[&str] = &["replacement: { policy: merge, version: v }"];
    let is_first = |seen: &Seen| seen.one() == doc! { "_id": 9, "m": { "v": 1 } };
    vec![
        entry(NESTED, doc! { "m": { "v": 1 } }, is_first),
        entry(NESTED, doc! { "m": {} }, is_first),
        entry(PLAIN, doc! { "v": 1 }, |seen| seen.one() == doc! { "_id": 9, "v": 1 }),
        entry(PLAIN, doc! {}, |seen| seen.one() == doc! { "_id": 9, "v": 1 }),
    ]
}

/// Saves of an old format whose version is the stored one.
fn equal_versions() -> Vec<Entry> {
    const FORMAT: &str = "schema_version: { field: sv, current: 3, minimum: 1 }";
    let entry = |name, stored: Bson, sent: Bson| Entry {
        name,
        rules: &[CHECKED, FORMAT],
        stored: vec![doc! { "_id": 1, "v": stored, "sv": 3 }],
        steps: vec![update(doc! { "_id": 1 }, doc! { "v": sent, "sv": 2, "x": 1 })],
        must: "is rejected by schema_version, and is no version conflict",
        holds: rejected,
    };
    let regex = || Regex { pattern: "^x".try_into().unwrap(), options: "".try_into().unwrap() };
    vec![
        entry(
            "replacement + schema_version: the version is a document",
            doc! { "u": 1 }.into(),
            doc! { "u": 1.0 }.into(),
        ),
        entry("replacement + schema_version: the version is a regular expression", regex().into(), regex().into()),
        entry(
            "replacement + schema_version: the version is an element of the stored array",
            vec![3, 4].into(),
            4.into(),
        ),
        Entry {
            name: "replacement + schema_version: a version is set over a text",
            rules: &["replacement: { version: v }", FORMAT],
            stored: vec![doc! { "_id": 1, "v": "a", "sv": 3 }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$set": { "v": 3, "sv": 2 } })],
            must: "is rejected by schema_version, and is no version conflict",
            holds: rejected,
        },
    ]
}

/// Updates of many documents, of which some have a version that cannot be incremented, in a transaction of docward's.
fn counted_by_kind() -> Vec<Entry> {
    let entry = |name, by: fn(Step) -> Step| Entry {
        name,
        rules: &[CHECKED, "tree: {}"],
        stored: vec![doc! { "_id": "a", "v": 1 }, doc! { "_id": "b", "v": "x" }],
        steps: vec![by(plain(doc! {
            "update": "c", "updates": [{ "q": {}, "u": { "$set": { "z": 2 } }, "multi": true, "upsert": true }]
        }))],
        must: "changes all, and counts the numbers up",
        holds: |seen| {
            let versions: Vec<Bson> = seen.stored.iter().filter_map(|one| one.get("v").cloned()).collect();
            let are_changed = seen.stored.iter().all(|one| one.get("z") == Some(&Bson::from(2)));
            seen.code() == 0 && are_changed && versions == [Bson::from(2), "x".into()]
        },
    };
    vec![
        entry("replacement + tree: an upsert of many documents, one with a version that is a text", |step| step),
        entry("replacement + tree: an upsert of many documents in a transaction", transaction),
    ]
}

pub(super) fn entries() -> Vec<Entry> {
    [counted_by_kind(), late_writes(), together(), roots(), only_versions(), equal_versions(), blamed()]
        .into_iter()
        .flatten()
        .collect()
}
