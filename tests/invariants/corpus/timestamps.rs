//! Cases of `timestamps`: source times that clients bring, and what a pipeline must not lose of the operators.

use super::*;

const TIMESTAMPS: &str = "timestamps: { source: at, fields: [a, b] }";

fn timestamp(document: &Document, field: &str) -> Option<Bson> {
    at(document, &format!("last_modified.{field}")).cloned()
}

/// Whether `a.n` and `a.m` have the time of the statement, and `b` keeps its newer one.
fn beside_an_odd_value(document: &Document) -> bool {
    timestamp(document, "a.n") == Some(date(PAST))
        && timestamp(document, "a.m") == Some(date(PAST))
        && timestamp(document, "b") == Some(date(PAST + 5))
        && timestamp(document, "at") == Some(date(PAST))
}

const INSIDE: &str = "timestamps: { source: at, fields: [a.n, a.m, b] }";

/// An update with a `$setOnInsert` that has no effect.
fn beside_idle(on_insert: Document) -> Step {
    update(doc! { "_id": 1 }, doc! { "$set": { "a": 1, "at": date(PAST) }, "$setOnInsert": on_insert })
}

pub(super) fn entries() -> Vec<Entry> {
    vec![
        Entry {
            name: "timestamps per: document: a replacement with array filters",
            rules: &["timestamps: { source: at, per: document }"],
            stored: vec![doc! { "_id": 1 }],
            steps: vec![plain(doc! { "update": "c", "updates": [
                { "q": { "_id": 1 }, "u": { "x": 1, "at": date(PAST) }, "arrayFilters": [{ "i": 1 }] }
            ] })],
            must: "is stored: mongod ignores them",
            holds: |seen| seen.code() == 0 && is(seen, "x", 1),
        },
        Entry {
            name: "timestamps: an operator that removes the _id",
            rules: &["timestamps: { source: at, per: document }"],
            stored: vec![doc! { "_id": 1 }],
            steps: vec![find_and_modify(
                doc! { "_id": 1 },
                doc! { "$set": { "at": date(PAST) }, "$unset": { "_id": "" } },
            )],
            must: "fails with error 66, as by mongod",
            holds: |seen| seen.code() == 66 && seen.one() == doc! { "_id": 1 },
        },
        Entry {
            name: "timestamps: an operator that sets the _id to an equal number of another type",
            rules: &[TIMESTAMPS],
            stored: vec![doc! { "_id": 1 }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$set": { "_id": 1.0, "a": 1, "at": date(PAST) } })],
            must: "fails with error 66, as by mongod",
            holds: |seen| seen.code() == 66 && seen.one() == doc! { "_id": 1 },
        },
        Entry {
            name: "timestamps: an operator that sets a part of the _id to an equal number of another type",
            rules: &["timestamps: { source: at, per: document }"],
            stored: vec![doc! { "_id": { "n": 1 } }],
            steps: vec![update(doc! {}, doc! { "$set": { "_id.n": 1.0, "at": date(PAST) } })],
            must: "fails with error 66, as by mongod",
            holds: |seen| seen.code() == 66 && seen.one() == doc! { "_id": { "n": 1 } },
        },
        Entry {
            name: "timestamps: an operator that increments the _id by 0.0",
            rules: &[TIMESTAMPS],
            stored: vec![doc! { "_id": 1 }],
            steps: vec![update(doc! {}, doc! { "$set": { "a": 1, "at": date(PAST) }, "$inc": { "_id": 0.0 } })],
            must: "fails with error 66, as by mongod",
            holds: |seen| seen.code() == 66 && seen.one() == doc! { "_id": 1 },
        },
        Entry {
            name: "timestamps: an upsert pins a timestamp",
            rules: &[TIMESTAMPS],
            stored: vec![],
            steps: vec![upsert(
                doc! { "_id": 1, "last_modified.b": date(FUTURE) },
                doc! { "$set": { "a": 1, "at": date(PAST) } },
            )],
            must: "the timestamp is not stored",
            holds: |seen| timestamp(&seen.one(), "b").is_none(),
        },
        Entry {
            name: "timestamps: an upsert pins a protected value",
            rules: &[TIMESTAMPS],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1, "b": 2 }, doc! { "$set": { "a": 1, "at": date(PAST) } })],
            must: "it is stored with its timestamp, or not at all",
            holds: |seen| seen.nothing_stored() || timestamp(&seen.one(), "b") == Some(date(PAST)),
        },
        Entry {
            name: "timestamps: per document, the upsert's filter pins the timestamp",
            rules: &["timestamps: { source: at, per: document }"],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1, "last_modified": date(FUTURE) }, doc! { "x": 1, "at": date(PAST) })],
            must: "the content is stored",
            holds: |seen| seen.nothing_stored() && seen.code() != 0 || seen.one().contains_key("x"),
        },
        Entry {
            name: "timestamps: without_source: pass, and an upsert brings its time by $setOnInsert",
            rules: &["timestamps: { source: at, fields: [a, b], without_source: pass }"],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1 }, doc! { "$setOnInsert": { "b": 3, "at": date(PAST) } })],
            must: "the timestamp is stored, or it is rejected",
            holds: |seen| seen.nothing_stored() || timestamp(&seen.one(), "b") == Some(date(PAST)),
        },
        Entry {
            name: "timestamps: per document, a replacing upsert whose filter has a field twice",
            rules: &["timestamps: { source: at, per: document }"],
            stored: vec![],
            steps: vec![upsert(doc! { "note": { "$all": [1, 2] } }, doc! { "note": 1, "at": date(PAST) })],
            must: "it is inserted, as by mongod",
            holds: |seen| seen.code() == 0 && is(seen, "note", 1),
        },
        Entry {
            name: "timestamps: per document, a replacing upsert whose _id is of another numeric type",
            rules: &["timestamps: { source: at, per: document }"],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1 }, doc! { "_id": 1.0, "at": date(PAST) })],
            must: "it is inserted, as by mongod",
            holds: |seen| seen.code() == 0 && is(seen, "_id", 1.0),
        },
        Entry {
            name: "timestamps: operators beside a store that is a number",
            rules: &["timestamps: { source: at, fields: [a.n, b] }"],
            stored: vec![doc! { "_id": 1, "last_modified": 1 }],
            steps: vec![upsert(
                doc! { "_id": 1 },
                doc! {
                    "$set": { "a.n": 1, "at": date(PAST) }, "$setOnInsert": { "x": 1 }, "$push": { "l": 1 },
                },
            )],
            must: "it is done, with timestamps",
            holds: |seen| {
                at(&seen.one(), "a.n") == Some(&Bson::Int32(1)) && timestamp(&seen.one(), "a.n") == Some(date(PAST))
            },
        },
        Entry {
            name: "timestamps: an array where the document around a timestamp would be",
            rules: &["timestamps: { source: at, fields: [a.n, a.m, b], without_source: pass }"],
            stored: vec![doc! { "_id": 1, "last_modified": { "a": [], "b": date(PAST + 5) } }],
            steps: vec![find_and_modify(
                doc! { "_id": 1 },
                doc! { "$set": { "at": date(PAST), "a.n": 1, "a.m": 2, "b": 3 } },
            )],
            must: "both changed fields have their timestamp, and the field that is late keeps its own",
            holds: |seen| beside_an_odd_value(&seen.one()) && !seen.one().contains_key("b"),
        },
        Entry {
            name: "timestamps: operators, and an array where the document around a timestamp would be",
            rules: &["timestamps: { source: at, fields: [a.n, a.m, b] }"],
            stored: vec![doc! { "_id": 1, "last_modified": { "a": [1], "b": date(PAST + 5) } }],
            steps: vec![update(
                doc! { "_id": 1 },
                doc! { "$set": { "at": date(PAST), "a.n": 1, "a.m": 2 }, "$push": { "l": 1 } },
            )],
            must: "it is done, with timestamps",
            holds: |seen| beside_an_odd_value(&seen.one()) && seen.code() == 0,
        },
        Entry {
            name: "timestamps: per document, an empty timestamp in a replacement",
            rules: &["timestamps: { source: at, per: document }"],
            stored: vec![doc! { "_id": 1 }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "note": EMPTY, "at": date(PAST) })],
            must: "becomes the time",
            holds: has_time,
        },
        Entry {
            name: "timestamps: without_source: pass, and an insert brings a timestamp",
            rules: &["timestamps: { source: at, fields: [a, b], without_source: pass }"],
            stored: vec![],
            steps: vec![insert(vec![doc! { "_id": 1, "a": 1, "last_modified": { "a": date(FUTURE) } }])],
            must: "the timestamp is the time of its field",
            holds: |seen| timestamp(&seen.one(), "a") == Some(date(FUTURE)),
        },
        Entry {
            name: "timestamps: $setOnInsert without upsert",
            rules: &[TIMESTAMPS],
            stored: vec![doc! { "_id": 1 }],
            steps: vec![update(
                doc! { "_id": 1 },
                doc! { "$set": { "a": 1, "at": date(PAST) }, "$setOnInsert": { "b": 1 } },
            )],
            must: "passes",
            holds: |seen| seen.code() == 0 && seen.one().get("a") == Some(&Bson::Int32(1)),
        },
        Entry {
            name: "timestamps: operators on other fields, with upsert",
            rules: &[TIMESTAMPS],
            stored: vec![doc! { "_id": 1 }],
            steps: vec![upsert(
                doc! { "_id": 1 },
                doc! { "$set": { "a": 1, "at": date(PAST) }, "$setOnInsert": { "created": 1 }, "$push": { "log": 1 }, "$inc": { "k": 1 } },
            )],
            must: "pass beside the protected ones",
            holds: |seen| {
                seen.one().get("k") == Some(&Bson::Int32(1)) && timestamp(&seen.one(), "a") == Some(date(PAST))
            },
        },
        Entry {
            name: "timestamps: an application that writes the timestamps itself",
            rules: &["timestamps: { source: at, fields: [a, b], without_source: reject }"],
            stored: vec![doc! { "_id": 1, "a": 0, "last_modified": { "a": date(PAST) } }],
            steps: vec![
                update(doc! { "_id": 1 }, doc! { "$set": { "a": 4, "last_modified.a": date(PAST + 2000) } }),
                update(doc! { "_id": 1 }, doc! { "$set": { "a": 3, "last_modified.a": date(PAST + 1000) } }),
            ],
            must: "the newer wins, in either order",
            holds: |seen| {
                seen.one().get("a") == Some(&Bson::Int32(4)) && timestamp(&seen.one(), "a") == Some(date(PAST + 2000))
            },
        },
        Entry {
            name: "timestamps: $currentDate with an option that the server does not know",
            rules: &[TIMESTAMPS],
            stored: vec![doc! { "_id": 1 }],
            steps: vec![update(
                doc! { "_id": 1 },
                doc! { "$set": { "a": 1, "at": date(PAST) }, "$currentDate": { "d": { "$type": "date", "x": 1 } } },
            )],
            must: "fails with error 2, as by mongod",
            holds: |seen| seen.code() == 2 && seen.one() == doc! { "_id": 1 },
        },
        Entry {
            name: "timestamps: an operator that the server does not know, without fields",
            rules: &[TIMESTAMPS],
            stored: vec![doc! { "_id": 1 }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$set": { "a": 1, "at": date(PAST) }, "$other": {} })],
            must: "fails with error 9, as by mongod",
            holds: |seen| seen.code() == 9 && seen.one() == doc! { "_id": 1 },
        },
        Entry {
            name: "timestamps: a $setOnInsert without an upsert and an empty name",
            rules: &[TIMESTAMPS],
            stored: vec![doc! { "_id": 1, "x": [1] }],
            steps: vec![beside_idle(doc! { "x..y": 1 })],
            must: "fails with error 56, as by mongod",
            holds: |seen| seen.code() == 56 && seen.one() == doc! { "_id": 1, "x": [1] },
        },
        Entry {
            name: "timestamps: a $setOnInsert without an upsert and a position at the start",
            rules: &[TIMESTAMPS],
            stored: vec![doc! { "_id": 1, "x": [1] }],
            steps: vec![beside_idle(doc! { "$.x": 1 })],
            must: "fails with error 2, as by mongod",
            holds: |seen| seen.code() == 2 && seen.one() == doc! { "_id": 1, "x": [1] },
        },
        Entry {
            name: "timestamps: a $setOnInsert without an upsert and a filter that is missing",
            rules: &[TIMESTAMPS],
            stored: vec![doc! { "_id": 1, "x": [1] }],
            steps: vec![beside_idle(doc! { "x.$[i]": 1 })],
            must: "fails with error 2, as by mongod",
            holds: |seen| seen.code() == 2 && seen.one() == doc! { "_id": 1, "x": [1] },
        },
        Entry {
            name: "timestamps: a $setOnInsert without an upsert that names a path twice",
            rules: &[TIMESTAMPS],
            stored: vec![doc! { "_id": 1, "x": [1] }],
            steps: vec![beside_idle(doc! { "x": 1, "x.y": 1 })],
            must: "fails with error 40, as by mongod",
            holds: |seen| seen.code() == 40 && seen.one() == doc! { "_id": 1, "x": [1] },
        },
        Entry {
            name: "timestamps: a late field of a missing document, alone",
            rules: &[INSIDE],
            stored: vec![doc! { "_id": 1, "last_modified": { "a": { "n": date(PAST + 5) } } }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$set": { "at": date(PAST), "a.n": 1 } })],
            must: "is omitted, and the document around it is created",
            holds: |seen| seen.code() == 0 && is(seen, "a", doc! {}),
        },
        Entry {
            name: "timestamps: a late field of a missing document, beside a push",
            rules: &[INSIDE],
            stored: vec![doc! { "_id": 1, "last_modified": { "a": { "n": date(PAST + 5) } } }],
            steps: vec![update(
                doc! { "_id": 1 },
                doc! { "$set": { "at": date(PAST), "a.n": 1 }, "$push": { "l": 1 } },
            )],
            must: "is omitted, and the document around it is created",
            holds: |seen| seen.code() == 0 && is(seen, "a", doc! {}) && is(seen, "l", vec![1]),
        },
        Entry {
            name: "timestamps: a late field of a missing document, after a push",
            rules: &[INSIDE],
            stored: vec![doc! { "_id": 1, "last_modified": { "a": { "n": date(PAST + 5) } } }],
            steps: vec![update(
                doc! { "_id": 1 },
                doc! { "$push": { "l": 1 }, "$set": { "a.n": 1, "at": date(PAST) } },
            )],
            must: "is omitted, and the document around it is created",
            holds: |seen| seen.code() == 0 && is(seen, "a", doc! {}) && is(seen, "l", vec![1]),
        },
        Entry {
            name: "timestamps: a late field of a missing document, beside a push into it",
            rules: &[INSIDE],
            stored: vec![doc! { "_id": 1, "last_modified": { "a": { "n": date(PAST + 5) } } }],
            steps: vec![update(
                doc! { "_id": 1 },
                doc! { "$push": { "a.l": 1 }, "$set": { "a.n": 1, "at": date(PAST) }, "$unset": { "a.m": "" } },
            )],
            must: "is omitted, and the document around it is created",
            holds: |seen| seen.code() == 0 && is(seen, "a", doc! { "l": [1] }),
        },
        Entry {
            name: "timestamps: a late field of a missing document, beside operators that create nothing",
            rules: &[INSIDE],
            stored: vec![doc! { "_id": 1, "last_modified": { "a": { "n": date(PAST + 5) } } }],
            steps: vec![update(
                doc! { "_id": 1 },
                doc! { "$pull": { "a.l": 1 }, "$set": { "a.n": 1, "at": date(PAST) }, "$unset": { "a.m": "" } },
            )],
            must: "is omitted, and the document around it is created",
            holds: |seen| seen.code() == 0 && is(seen, "a", doc! {}),
        },
        Entry {
            name: "timestamps: a late $unset in a missing document, beside a push",
            rules: &[INSIDE],
            stored: vec![doc! { "_id": 1, "last_modified": { "a": { "n": date(PAST + 5) } } }],
            steps: vec![update(
                doc! { "_id": 1 },
                doc! { "$set": { "at": date(PAST) }, "$unset": { "a.n": "" }, "$push": { "l": 1 } },
            )],
            must: "creates no document around it, as in mongod",
            holds: |seen| seen.code() == 0 && !seen.one().contains_key("a") && is(seen, "l", vec![1]),
        },
    ]
}
