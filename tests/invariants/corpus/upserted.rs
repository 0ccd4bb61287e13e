//! Upserts of a stored and of new documents in one command: what is stored, and the upserted ids in the reply. Each
//! also in a transaction, and with `timestamps` beside the rule.

use super::*;

/// Upserts for one rule. The first finds the stored document.
struct Upserts {
    name: &'static str,
    rule: &'static [&'static str],
    with_timestamps: &'static [&'static str],
    stored: fn() -> Vec<Document>,
    /// Filters and updates; `timed` ones have a source time.
    statements: fn(timed: bool) -> Vec<(Document, Document)>,
    holds: fn(&Seen) -> bool,
}

pub(super) fn entries() -> Vec<Entry> {
    let mut entries = Vec::new();
    for upserts in [sequence(), replacement(), bounds(), queue(), tree(), bucket()] {
        for (rules, timed) in [(upserts.rule, false), (upserts.with_timestamps, true)] {
            let updates = (upserts.statements)(timed).into_iter();
            let updates: Vec<Document> = updates.map(|(q, u)| doc! { "q": q, "u": u, "upsert": true }).collect();
            let step = plain(doc! { "update": "c", "updates": updates });
            let unordered = plain({
                let mut command = step.command.clone();
                command.insert("ordered", false);
                command
            });
            for step in [step.clone(), unordered, transaction(step)] {
                entries.push(Entry {
                    name: upserts.name,
                    rules,
                    stored: (upserts.stored)(),
                    steps: vec![step],
                    must: "stores the documents, and reports the upserted ones at their indexes",
                    holds: upserts.holds,
                });
            }
        }
    }
    entries
}

/// The indexes and ids of the documents that were inserted.
fn upserted(seen: &Seen) -> Vec<(i32, Bson)> {
    let reply = seen.replies.iter().find(|reply| reply.contains_key("n"));
    let list = reply.and_then(|reply| reply.get_array("upserted").ok()).into_iter().flatten();
    let entries = list.filter_map(Bson::as_document);
    entries.map(|entry| (entry.get_i32("index").unwrap(), entry.get("_id").unwrap().clone())).collect()
}

/// Whether all statements were executed and those at 1 and 2 inserted these ids.
fn inserted(seen: &Seen, ids: [Bson; 2]) -> bool {
    let [first, second] = ids;
    seen.all_committed() && seen.code() == 0 && upserted(seen) == [(1, first), (2, second)] && seen.stored.len() == 3
}

/// The values of a field in the stored documents.
fn values(seen: &Seen, field: &str) -> Vec<Bson> {
    seen.stored.iter().map(|document| document.get(field).cloned().unwrap_or(Bson::Null)).collect()
}

/// The operators with a source time, if they are timed.
fn with_time(timed: bool, operator: &str, mut fields: Document) -> Document {
    if timed {
        fields.insert("at", date(PAST));
    }
    doc! { operator: fields }
}

fn sequence() -> Upserts {
    Upserts {
        name: "sequence: a batch of upserts, one of a stored document without a number",
        rule: &[SEQUENCE_UPSERT],
        with_timestamps: &[SEQUENCE_UPSERT, "timestamps: { source: at, fields: [x] }"],
        stored: || vec![doc! { "_id": 1 }],
        statements: |timed| {
            [1, 2, 3].map(|id| (doc! { "_id": id }, with_time(timed, "$set", doc! { "x": id }))).to_vec()
        },
        holds: |seen| {
            let numbers = values(seen, "no");
            inserted(seen, [2.into(), 3.into()])
                && values(seen, "x") == [1.into(), 2.into(), 3.into()]
                && numbers[0] == Bson::Null
                && numbers[1] != numbers[2]
                && numbers[1..].iter().all(|number| as_number(number).is_some())
        },
    }
}

fn replacement() -> Upserts {
    Upserts {
        name: "replacement: a batch of upserts, one of them a save with the stored version",
        rule: &[CHECK],
        with_timestamps: &[CHECK, "timestamps: { source: at, per: document }"],
        stored: || vec![doc! { "_id": 1, "version": 4 }],
        statements: |timed| {
            let document = |id: i32| {
                let mut document = doc! { "x": id };
                if id == 1 {
                    document.insert("version", 4);
                }
                if timed {
                    document.insert("at", date(PAST));
                }
                document
            };
            [1, 2, 3].map(|id| (doc! { "_id": id }, document(id))).to_vec()
        },
        holds: |seen| {
            inserted(seen, [2.into(), 3.into()])
                && values(seen, "x") == [1.into(), 2.into(), 3.into()]
                && values(seen, "version") == [5.into(), 1.into(), 1.into()]
        },
    }
}

fn bounds() -> Upserts {
    Upserts {
        name: "bounds: a batch of upserts that increment",
        rule: &[BOUNDS],
        with_timestamps: &[BOUNDS, "timestamps: { source: at, fields: [x] }"],
        stored: || vec![doc! { "_id": 1, "n": 9 }],
        statements: |timed| {
            let update = |id: i32| {
                let mut update = with_time(timed, "$set", doc! { "x": id });
                update.insert("$inc", doc! { "n": 1 });
                update
            };
            [1, 2, 3].map(|id| (doc! { "_id": id }, update(id))).to_vec()
        },
        holds: |seen| {
            inserted(seen, [2.into(), 3.into()])
                && values(seen, "x") == [1.into(), 2.into(), 3.into()]
                && values(seen, "n") == [10.into(), 1.into(), 1.into()]
        },
    }
}

fn queue() -> Upserts {
    Upserts {
        name: "queue: a batch of upserts that insert jobs",
        rule: &[QUEUE],
        with_timestamps: &[QUEUE, "timestamps: { source: at, fields: [x] }"],
        stored: || vec![held_job(1)],
        statements: |timed| {
            [1, 2, 3].map(|id| (doc! { "_id": id }, with_time(timed, "$setOnInsert", doc! { "x": id }))).to_vec()
        },
        holds: |seen| {
            inserted(seen, [2.into(), 3.into()])
                && values(seen, "x") == [Bson::Null, 2.into(), 3.into()]
                && values(seen, "locked") == [true.into(), false.into(), false.into()]
                && values(seen, "try") == [1.into(), 0.into(), 0.into()]
                && values(seen, "tlocked").iter().all(|time| time.as_datetime().is_some())
        },
    }
}

fn tree() -> Upserts {
    Upserts {
        name: "tree: a batch of upserts, each below the node before it",
        rule: &[TREE],
        with_timestamps: &[TREE, "timestamps: { source: at, fields: [x] }"],
        stored: || vec![doc! { "_id": "a", "path": Bson::Null }],
        statements: |timed| {
            let set = |fields: Document| with_time(timed, "$set", fields);
            vec![
                (doc! { "_id": "a" }, set(doc! { "x": 1 })),
                (doc! { "_id": "b" }, set(doc! { "x": 2, "parent": "a" })),
                (doc! { "_id": "c", "parent": "b" }, set(doc! { "x": 3 })),
            ]
        },
        holds: |seen| {
            inserted(seen, ["b".into(), "c".into()])
                && values(seen, "x") == [1.into(), 2.into(), 3.into()]
                && values(seen, "path") == [Bson::Null, ",a,".into(), ",a,b,".into()]
        },
    }
}

fn bucket() -> Upserts {
    Upserts {
        name: "bucket: a batch of upserts that push, two of them to one new bucket",
        rule: &[BUCKET],
        with_timestamps: &[BUCKET, "timestamps: { source: at, fields: [x] }"],
        stored: || vec![doc! { "_id": 1, "sku": "x", "messages": [1], "count": 1 }],
        statements: |timed| {
            let push = |sku: &str, message: i32| {
                let mut update = doc! { "$push": { "messages": message } };
                if timed {
                    update.extend(with_time(timed, "$set", doc! { "x": message }));
                }
                (doc! { "sku": sku }, update)
            };
            vec![push("x", 2), push("y", 3), push("y", 4), push("z", 5)]
        },
        holds: |seen| {
            let messages = |sku: &str| {
                let bucket = seen.stored.iter().find(|bucket| bucket.get_str("sku").is_ok_and(|own| own == sku));
                bucket.and_then(|bucket| bucket.get_array("messages").ok().cloned()).unwrap_or_default()
            };
            let reported: Vec<i32> = upserted(seen).into_iter().map(|(index, _)| index).collect();
            let ids: Vec<Bson> = upserted(seen).into_iter().map(|(_, id)| id).collect();
            seen.all_committed()
                && seen.code() == 0
                && reported == [1, 3]
                && seen.stored.iter().skip(1).all(|bucket| ids.contains(bucket.get("_id").unwrap()))
                && counts_are_true(seen)
                && messages("x") == [1.into(), 2.into()]
                && messages("y") == [3.into(), 4.into()]
                && messages("z") == [5.into()]
        },
    }
}
