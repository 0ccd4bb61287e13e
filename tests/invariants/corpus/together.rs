//! Fields that change only `together`.

use super::*;

const TOGETHER_INSIDE: &str = "together: [a.n, b]";

fn nested() -> Document {
    let element = || doc! { "b": [{ "c": 0 }], "d": 0 };
    doc! { "_id": 1, "a": [element(), element()] }
}

pub(super) fn entries() -> Vec<Entry> {
    let pinned = |name, filter: Document| Entry {
        name,
        rules: &[TOGETHER],
        stored: vec![],
        steps: vec![upsert(filter, doc! { "$set": { "x": 1 } })],
        must: "no document has one of them only",
        holds: Seen::nothing_stored,
    };
    const NESTED: &[&str] = &["together: [a.b.c, a.d]"];
    let in_arrays = |change: Document| Entry {
        name: "together: both are written in an element, one in an array inside it",
        rules: NESTED,
        stored: vec![nested()],
        steps: vec![update(doc! { "_id": 1 }, change)],
        must: "they are stored",
        holds: |seen| seen.code() == 0 && at(&seen.one(), "a") != at(&nested(), "a"),
    };
    let in_some_arrays = |change: Document| Entry {
        name: "together: one is written in another element than the other, or in an array inside it",
        must: "is rejected",
        holds: |seen| seen.code() == 121 && seen.one() == nested(),
        ..in_arrays(change)
    };
    let around = |name, change: Document| Entry {
        name,
        rules: &["together: [a.n.x, a.m.x]"],
        stored: vec![],
        steps: vec![upsert(doc! { "a.n.x": 1 }, change)],
        must: "no document has one of them only",
        holds: Seen::nothing_stored,
    };
    vec![
        around(
            "together: an upsert with $max of a document around the fields, which the filter's is above",
            doc! { "$max": { "a": {} } },
        ),
        in_arrays(doc! { "$set": { "a.0.b.0.c": 1, "a.0.d": 2 } }),
        in_arrays(doc! { "$set": { "a.$[].b.$[].c": 1, "a.$[].d": 2 } }),
        in_arrays(doc! { "$set": { "a.0.b.0.c": 1, "a.0.d": 2, "a.1.b.0.c": 1, "a.1.d": 2 } }),
        in_some_arrays(doc! { "$set": { "a.0.b.0.c": 1, "a.1.d": 2 } }),
        in_some_arrays(doc! { "$set": { "a.0.b.0.c": 1, "a.0.d": 2, "a.1.b.0.c": 1 } }),
        in_some_arrays(doc! { "$set": { "a.0.d": 2 }, "$unset": { "a.0.b.0.c": 1 } }),
        Entry {
            name: "together: a number beside a name is the name of a field, and names no other field",
            rules: &["together: [a.n.x, a.m.x]"],
            stored: vec![doc! { "_id": 1, "a": { "n": { "x": 1 } } }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$set": { "a.m.x": [], "a.0.n.x": [] } })],
            must: "is rejected",
            holds: |seen| seen.code() == 121 && !seen.one().get_document("a").unwrap().contains_key("m"),
        },
        Entry {
            name: "together: a path with a name that begins with $",
            rules: &["together: [a.b, c]"],
            stored: vec![doc! { "_id": 1, "a": { "b": 1 }, "c": 1 }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$set": { "a.$id": 5 } })],
            must: "is neither field",
            holds: |seen| seen.code() == 0 && at(&seen.one(), "a.$id") == Some(&Bson::Int32(5)),
        },
        Entry {
            name: "together: an upsert by equal branches",
            rules: &["together: [sku, b, note]"],
            stored: vec![],
            steps: vec![upsert(doc! { "$or": [{ "note": 1 }, { "note": 1 }] }, doc! { "$set": { "x": 1 } })],
            must: "inserts what the server makes of it: this one takes no field from the filter",
            holds: |seen| seen.code() == 0 && is(seen, "x", 1),
        },
        Entry {
            name: "together: an upsert with $min of a document around the fields, which the filter's is above",
            rules: &["together: [a.n.x, a.m.x]"],
            stored: vec![],
            steps: vec![upsert(doc! { "a.n.x": 1 }, doc! { "$min": { "a": { "o": 1 } } })],
            must: "inserts neither field",
            holds: |seen| seen.code() == 0 && at(&seen.one(), "a") == Some(&Bson::Document(doc! { "o": 1 })),
        },
        Entry {
            name: "together: an upsert pins one inside a document by equal numbers of different types",
            rules: &["together: [a.n, a.m]"],
            stored: vec![],
            steps: vec![upsert(doc! { "a.m": { "$in": [2.0, decimal("2")] } }, doc! { "$set": {} })],
            must: "is rejected",
            holds: |seen| seen.code() == 121 && seen.nothing_stored(),
        },
        Entry {
            name: "together: an upsert with both, one of them by equal numbers of different types",
            rules: &["together: [a.n, a.m]"],
            stored: vec![],
            steps: vec![upsert(
                doc! { "a.m": { "$in": [2.0, decimal("2")] } },
                doc! { "$setOnInsert": { "a.m.x": 1, "a.n": 1 }, "$set": { "b": 1 } },
            )],
            must: "fails as without docward",
            holds: |seen| seen.code() == 28 && seen.nothing_stored(),
        },
        Entry {
            name: "together: an upsert that may pin a field in one, and sets the other",
            rules: &["together: [a.n, a.m]"],
            stored: vec![],
            steps: vec![upsert(
                doc! { "$or": [{ "a.m.x": 1 }, { "a.m.x": 1 }] },
                doc! { "$setOnInsert": { "a.n": 1 } },
            )],
            must: "is rejected: this server does not insert the other one",
            holds: |seen| seen.code() == 121 && seen.nothing_stored(),
        },
        pinned("together: an upsert pins one by equality", doc! { "a": 1 }),
        pinned("together: an upsert pins one by $in", doc! { "a": { "$in": [1] } }),
        pinned("together: an upsert pins one by $all", doc! { "a": { "$all": [1] } }),
        pinned("together: an upsert pins one in a branch of $or", doc! { "$or": [{ "a": 1 }] }),
        pinned("together: an upsert pins a field in one", doc! { "a.x": 1 }),
        Entry {
            name: "bounds: an upsert whose filter has $expr",
            rules: &[BOUNDS],
            stored: vec![doc! { "_id": 1, "n": 1 }],
            steps: vec![upsert(doc! { "$expr": { "$eq": ["$_id", 1] } }, doc! { "$inc": { "n": 1 } })],
            must: "gets the server's error, as without docward",
            holds: |seen| seen.code() == 224 && is(seen, "n", 1),
        },
        Entry {
            name: "sequence: a number out of range, in an upsert that timestamps makes a pipeline of",
            rules: &[
                "timestamps: { source: at, fields: [b], without_source: pass }",
                "sequence: { field: no, counter: COLLECTION, collection: counters, start: 11, on_upsert: true }",
                "bounds: { field: no, min: 1, max: 10 }",
            ],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 2 }, doc! { "$set": { "at": date(PAST) } })],
            must: "is rejected by bounds",
            holds: |seen| seen.code() == 121 && seen.stored.is_empty(),
        },
        Entry {
            name: "sequence: an upsert that renames a missing field to the number of its filter",
            rules: &["sequence: { field: no, counter: COLLECTION, collection: counters, provided: replace }"],
            stored: vec![],
            steps: vec![upsert(doc! { "no": 1 }, doc! { "$rename": { "locked": "no" } })],
            must: "gets the next number, and does not fail in the server (40)",
            holds: |seen| seen.code() == 0 && is(seen, "no", 2),
        },
        Entry {
            name: "sequence: an upsert whose filter pins an array that a positional operator changes",
            rules: &["sequence: { field: c.d, counter: COLLECTION, collection: counters, on_upsert: true }"],
            stored: vec![],
            steps: vec![upsert(doc! { "a": [1, 2] }, doc! { "$set": { "a.$[]": 3 } })],
            must: "it gets a number",
            holds: |seen| at(&seen.one(), "c.d") == Some(&Bson::Int32(1)),
        },
        Entry {
            name: "tree: an upsert with a path and an operator below the parent",
            rules: &["tree: { path: path, parent: parent }"],
            stored: vec![doc! { "_id": 1 }],
            steps: vec![upsert(doc! { "_id": 6 }, doc! { "$pullAll": { "parent.x": [] }, "$set": { "path": ",1," } })],
            must: "is rejected with a reason, not by the server (40)",
            holds: |seen| seen.code() == 121 && seen.stored.len() == 1,
        },
        Entry {
            name: "together: an upsert pins one and equal branches pin it, too",
            rules: &["together: [c.d, c.e]"],
            stored: vec![],
            steps: vec![upsert(
                doc! { "$and": [{ "$or": [{ "r.n": "x" }, { "r.n": "x" }] }, { "r.n": {} }] },
                doc! { "$inc": { "a.m": 5 }, "$setOnInsert": { "c.e": -1 } },
            )],
            must: "no document has one of them only",
            holds: Seen::nothing_stored,
        },
        Entry {
            name: "together: an upsert by values that are not equal, one of them NaN",
            rules: &[TOGETHER],
            stored: vec![],
            steps: vec![upsert(doc! { "a": { "$in": [1, f64::NAN] } }, doc! { "$set": { "x": 1 } })],
            must: "inserts neither field",
            holds: |seen| seen.code() == 0 && is(seen, "x", 1),
        },
        Entry {
            name: "together: an upsert that pushes an element without the field",
            rules: &["together: [a.n, b]"],
            stored: vec![],
            steps: vec![upsert(doc! {}, doc! { "$rename": { "b": "other" }, "$push": { "a": {} } })],
            must: "inserts neither field",
            holds: |seen| seen.code() == 0 && seen.stored.len() == 1,
        },
        Entry {
            name: "together: a number that is put into one of the fields",
            rules: &["together: [no, b]", SEQUENCE],
            stored: vec![],
            steps: vec![insert(vec![doc! { "_id": 1 }])],
            must: "is rejected, or both are there",
            holds: |seen| seen.nothing_stored() && seen.code() == 121,
        },
        Entry {
            name: "together: an upsert sets one and unsets the other",
            rules: &[TOGETHER],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1 }, doc! { "$set": { "a": 1 }, "$unset": { "b": "" } })],
            must: "no document has one of them only",
            holds: Seen::nothing_stored,
        },
        Entry {
            name: "together: one is set and the other removed",
            rules: &["together: [a, b]"],
            stored: vec![doc! { "_id": 1, "a": 1, "b": 1 }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$set": { "a": 5 }, "$unset": { "b": 1 } })],
            must: "the document has both or none",
            holds: |seen| seen.one().contains_key("a") == seen.one().contains_key("b"),
        },
        Entry {
            name: "together: one is set and the other renamed",
            rules: &["together: [a, b]"],
            stored: vec![doc! { "_id": 1, "a": 1, "b": 1 }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$set": { "a": 5 }, "$rename": { "b": "z" } })],
            must: "the document has both or none",
            holds: |seen| seen.one().contains_key("a") == seen.one().contains_key("b"),
        },
        Entry {
            name: "together: an array of documents",
            rules: &[TOGETHER_INSIDE],
            stored: vec![],
            steps: vec![insert(vec![doc! { "_id": 1, "a": [{ "n": 1 }] }])],
            must: "no document has one of them only",
            holds: Seen::nothing_stored,
        },
        Entry {
            name: "together: the document around one is set",
            rules: &["together: [a.n, a.m]"],
            stored: vec![doc! { "_id": 1, "a": { "n": 1, "m": 1 } }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$set": { "a": { "n": 2 } } })],
            must: "both stay",
            holds: |seen| at(&seen.one(), "a.m").is_some(),
        },
    ]
}
