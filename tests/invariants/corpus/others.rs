//! `deny`, batches and commands.

use super::*;

pub(super) fn entries() -> Vec<Entry> {
    const DENY: &str = "deny: { operations: [update], when: { uses: [$where, $function] } }";
    const UNLIMITED: &str = "deny: { operations: [find], when: { without: limit } }";
    let function = || doc! { "$function": { "body": "function() { return 1 }", "args": [], "lang": "js" } };
    vec![
        Entry {
            name: "deny: $function in let",
            rules: &[DENY],
            stored: vec![doc! { "_id": 1 }],
            steps: vec![plain(doc! {
                "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "x": 1 } } }], "let": { "f": function() }
            })],
            must: "is rejected",
            holds: |seen| seen.code() == 121,
        },
        Entry {
            name: "deny: $function in findAndModify's fields",
            rules: &[DENY],
            stored: vec![doc! { "_id": 1 }],
            steps: vec![plain(doc! {
                "findAndModify": "c", "query": { "_id": 1 }, "update": { "$set": { "x": 1 } }, "fields": { "f": function() }
            })],
            must: "is rejected",
            holds: |seen| seen.code() == 121,
        },
        Entry {
            name: "deny: maxTimeMS of 0 is none",
            rules: &["deny: { operations: [find], when: { without: maxTimeMS } }"],
            stored: vec![],
            steps: vec![plain(doc! { "find": "c", "maxTimeMS": 0 })],
            must: "is rejected",
            holds: |seen| seen.code() == 121,
        },
        Entry {
            name: "deny: a limit of 0 is none",
            rules: &[UNLIMITED],
            stored: vec![],
            steps: vec![plain(doc! { "find": "c", "limit": 0 })],
            must: "is rejected",
            holds: |seen| seen.code() == 121,
        },
        Entry {
            name: "deny: a limit that the server rounds to 0 is none",
            rules: &[UNLIMITED],
            stored: vec![],
            steps: [Bson::from(0.4), (-0.4).into(), f64::NAN.into(), 1e-300.into(), decimal("0.4")]
                .map(|limit| plain(doc! { "find": "c", "limit": limit }))
                .to_vec(),
            must: "is rejected",
            holds: |seen| seen.replies.iter().all(|reply| reply.get_i32("code").ok() == Some(121)),
        },
        Entry {
            name: "deny: a limit above 0 is one",
            rules: &[UNLIMITED],
            stored: vec![],
            steps: vec![plain(doc! { "find": "c", "limit": 1.5 })],
            must: "passes",
            holds: |seen| seen.code() == 0,
        },
        Entry {
            name: "deny: a limit of null is none",
            rules: &[UNLIMITED],
            stored: vec![],
            steps: vec![plain(doc! { "find": "c", "limit": Bson::Null })],
            must: "is rejected",
            holds: |seen| seen.code() == 121,
        },
        Entry {
            name: "deny: a hint of null is none",
            rules: &["deny: { operations: [find], when: { without: hint } }"],
            stored: vec![],
            steps: vec![plain(doc! { "find": "c", "hint": Bson::Null })],
            must: "is rejected",
            holds: |seen| seen.code() == 121,
        },
        Entry {
            name: "batches: an unordered one whose second statement inserts",
            rules: &["bounds: { field: no, min: 0, max: 10 }"],
            stored: vec![],
            steps: vec![plain(doc! { "update": "c", "ordered": false, "updates": [
                { "q": {}, "u": { "x": 1 } },
                { "q": {}, "u": { "$inc": { "no": 1 } }, "upsert": true },
            ] })],
            must: "the first finds nothing",
            holds: |seen| seen.n() == 1 && is(seen, "no", 1),
        },
        Entry {
            name: "batches: a filter that the server cannot read, where docward looks first",
            rules: &[REJECT],
            stored: vec![doc! { "_id": 1 }],
            steps: vec![update(
                doc! { "note": { "$ne": bson::Regex { pattern: "^x".try_into().unwrap(), options: "".try_into().unwrap() } } },
                doc! { "x": 1 },
            )],
            must: "the error is the statement's",
            holds: |seen| ok(seen.last()) && seen.code() == 2,
        },
        Entry {
            name: "commands: setIndexCommitQuorum",
            rules: &[REJECT],
            stored: vec![doc! { "_id": 1 }],
            steps: vec![plain(doc! { "setIndexCommitQuorum": "c", "indexNames": ["x"], "commitQuorum": 1 })],
            must: "passes, as index commands do",
            holds: |seen| seen.code() != 121,
        },
    ]
}
