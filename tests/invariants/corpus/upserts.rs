//! Upserts that write the number of a `sequence` themselves: a stored document keeps its number, an inserted one gets one.

use super::*;

const REPLACE: &str = "sequence: { field: no, counter: COLLECTION, collection: counters, provided: replace }";
const REPLACE_UPSERT: &str =
    "sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true, provided: replace }";
const OPTIMISTIC: &str = "sequence: { field: no, strategy: optimistic, on_upsert: true, provided: replace }";
const REJECT: &str = "sequence: { field: no, counter: COLLECTION, collection: counters, provided: reject }";
const MERGE: &str = "replacement: { policy: merge }";

fn rules(rule: &str) -> &'static [&'static str] {
    match rule {
        REPLACE => &[REPLACE],
        REPLACE_UPSERT => &[REPLACE_UPSERT],
        OPTIMISTIC => &[OPTIMISTIC],
        _ => &[SEQUENCE_UPSERT],
    }
}

pub(super) fn entries() -> Vec<Entry> {
    let mut entries = stored_documents();
    entries.extend(inserted_documents());
    entries.extend(merged_replacements());
    entries.push(Entry {
        name: "sequence: a replacement with a field whose name begins with $",
        rules: &[SEQUENCE],
        stored: vec![doc! { "_id": 1, "no": 1 }],
        steps: vec![update(doc! { "_id": 1 }, doc! { "a": 1, "$x": 1 })],
        must: "is rejected, not stored",
        holds: |seen| seen.code() == 121 && seen.stored == [doc! { "_id": 1, "no": 1 }],
    });
    entries
}

fn stored_documents() -> Vec<Entry> {
    let mut entries = Vec::new();
    for rule in [REPLACE_UPSERT, OPTIMISTIC, SEQUENCE_UPSERT] {
        for change in [
            doc! { "$unset": { "no": "" } },
            doc! { "$set": { "no": 7 } },
            doc! { "$min": { "no": 7 } },
            doc! { "$rename": { "a": "no" } },
        ] {
            entries.push(Entry {
                name: "sequence: an upsert that changes the number of a stored document",
                rules: rules(rule),
                stored: vec![doc! { "_id": 1, "no": 100, "a": 8 }],
                steps: vec![upsert(doc! { "_id": 1 }, change)],
                must: "is rejected",
                holds: |seen| seen.code() == 121 && seen.stored == [doc! { "_id": 1, "no": 100, "a": 8 }],
            });
        }
    }
    entries.push(Entry {
        name: "sequence: an upsert by a pipeline that sets the number of a stored document",
        rules: &[REPLACE],
        stored: vec![doc! { "_id": 1 }],
        steps: vec![plain(doc! { "update": "c", "updates": [
            { "q": { "_id": 1 }, "u": [{ "$set": { "no": 7 } }], "upsert": true },
        ] })],
        must: "sets it",
        holds: |seen| seen.n() == 1 && seen.stored == [doc! { "_id": 1, "no": 7 }],
    });
    entries.push(Entry {
        name: "sequence: an upsert that sets the number of another document",
        rules: &[OPTIMISTIC],
        stored: vec![doc! { "_id": 1, "no": 100 }, doc! { "_id": 2, "no": 7 }],
        steps: vec![
            plain(doc! { "createIndexes": "c", "indexes": [{ "key": { "no": 1 }, "name": "no", "unique": true }] }),
            upsert(doc! { "_id": 1 }, doc! { "$set": { "no": 7 } }),
        ],
        must: "fails with the server's duplicate key",
        holds: |seen| seen.code() == 11000 && is(seen, "no", 100),
    });
    entries.push(Entry {
        name: "sequence: a number that an upsert sets in a stored document",
        rules: &[REPLACE],
        stored: vec![doc! { "_id": 1, "no": 1 }],
        steps: vec![upsert(doc! { "_id": 1 }, doc! { "$set": { "no": 2 } }), insert(vec![doc! { "_id": 2 }, doc! {}])],
        must: "is not assigned again",
        holds: |seen| seen.stored.len() == 3 && seen.numbered("no"),
    });
    entries
}

fn inserted_documents() -> Vec<Entry> {
    let mut entries = Vec::new();
    for rule in [REPLACE_UPSERT, OPTIMISTIC] {
        for change in [
            doc! { "$set": { "no": 900, "x": 1 } },
            doc! { "$setOnInsert": { "no": 900 }, "$unset": { "x": "" } },
            doc! { "$unset": { "no": "" }, "$inc": { "x": 1 } },
            doc! { "$rename": { "a": "no", "b": "c" } },
        ] {
            for step in [
                upsert(doc! { "_id": 1 }, change.clone()),
                plain(doc! { "findAndModify": "c", "query": { "_id": 1 }, "update": change, "upsert": true }),
            ] {
                entries.push(Entry {
                    name: "sequence: an upsert that writes the number and inserts",
                    rules: rules(rule),
                    stored: Vec::new(),
                    steps: vec![step],
                    must: "stores one document with a number of the sequence, or is rejected if that is optimistic",
                    holds: |seen| match seen.code() {
                        0 => seen.stored.len() == 1 && seen.numbered("no") && !is(seen, "no", 900),
                        code => code == 121 && seen.nothing_stored(),
                    },
                });
            }
        }
    }
    for filter in [doc! { "no": 5 }, doc! { "no.x": 5 }] {
        entries.push(Entry {
            name: "sequence: an upsert that moves the number of its filter elsewhere",
            rules: &[REPLACE_UPSERT],
            stored: Vec::new(),
            steps: vec![upsert(filter, doc! { "$rename": { "no": "b" } })],
            must: "gets the next number, and does not lose the value",
            holds: |seen| seen.code() == 0 && seen.one().contains_key("b") && seen.one().get_i32("no").is_ok(),
        });
    }
    entries.push(Entry {
        name: "sequence: an upsert that writes the number, resent after it has inserted",
        rules: &[REPLACE_UPSERT],
        stored: Vec::new(),
        steps: vec![Step {
            session: Session::Resent,
            ..upsert(doc! { "_id": 1 }, doc! { "$set": { "no": 900 }, "$inc": { "x": 1 } })
        }],
        must: "inserts once",
        holds: |seen| seen.stored.len() == 1 && is(seen, "x", 1) && !is(seen, "no", 900),
    });
    entries
}

/// A replacement that a `replacement` rule turned into `$set`.
fn merged_replacements() -> Vec<Entry> {
    let kept: fn(&Seen) -> bool =
        |seen| seen.code() == 0 && seen.stored == [doc! { "_id": 1, "no": 3, "old": 1, "x": 2 }];
    let rejected: fn(&Seen) -> bool =
        |seen| seen.code() == 121 && seen.stored == [doc! { "_id": 1, "no": 3, "old": 1 }];
    let mut entries = Vec::new();
    for (rules, document, holds) in [
        (&[REPLACE, MERGE][..], doc! { "no": 9, "x": 2 }, kept),
        (&[REPLACE, MERGE], doc! { "no": Bson::Null, "x": 2 }, kept),
        (&[REJECT, MERGE], doc! { "no": 9, "x": 2 }, rejected),
        (&[REJECT, MERGE], doc! { "no": 3, "x": 2 }, kept),
        (&[REJECT, MERGE], doc! { "no": Bson::Null, "x": 2 }, kept),
    ] {
        for step in [update(doc! { "_id": 1 }, document.clone()), upsert(doc! { "_id": 1 }, document)] {
            entries.push(Entry {
                name: "sequence: a merged replacement with a number of its own",
                rules,
                stored: vec![doc! { "_id": 1, "no": 3, "old": 1 }],
                steps: vec![step],
                must: "is treated as a replacement",
                holds,
            });
        }
    }
    entries
}
