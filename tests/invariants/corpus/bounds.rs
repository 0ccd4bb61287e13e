//! Fields with `bounds`.

use super::*;

const BOUNDS_INSIDE: &str = "bounds: { field: a.n, min: 0, max: 10 }";

pub(super) fn entries() -> Vec<Entry> {
    [in_and_out_of_range(), bounded_nan(), invalid_ids(), late_numbers(), kept_by_filter()]
        .into_iter()
        .flatten()
        .collect()
}

/// NaN has no room in either direction, and no increment changes it.
fn bounded_nan() -> Vec<Entry> {
    const MIN: &[&str] = &["bounds: { field: n, min: 0 }"];
    const MAX: &[&str] = &["bounds: { field: n, max: 10 }"];
    const BOTH: &[&str] = &["bounds: { field: n, min: 0, max: 10 }"];
    let unmatched = |seen: &Seen| seen.code() == 0 && seen.n() == 0;
    let of = |nan: Bson| {
        [
            ("bounds: an increment of NaN towards a minimum", MIN, Bson::Int32(-1)),
            ("bounds: an increment of NaN towards a maximum", MAX, Bson::Int32(1)),
            ("bounds: an increment of NaN towards a maximum, which zero does not reach", MAX, Bson::Int32(20)),
            ("bounds: an increment of NaN by a fraction towards a minimum", MIN, Bson::Double(-0.5)),
            ("bounds: an increment of NaN by a fraction towards a maximum", MAX, Bson::Double(0.5)),
            ("bounds: an increment of NaN by a decimal towards a maximum", MAX, decimal("0.5")),
            ("bounds: an increment of NaN in a range", BOTH, Bson::Int32(1)),
            ("bounds: a decrement of NaN in a range", BOTH, Bson::Int32(-1)),
        ]
        .map(|(name, rules, amount)| Entry {
            name,
            rules,
            stored: vec![doc! { "_id": 1, "n": nan.clone() }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$inc": { "n": amount } })],
            must: "matches nothing",
            holds: unmatched,
        })
    };
    let mut entries: Vec<Entry> = [f64::NAN.into(), decimal("NaN")].into_iter().flat_map(of).collect();
    entries.push(Entry {
        name: "bounds: an increment of NaN away from the only bound",
        rules: MIN,
        stored: vec![doc! { "_id": 1, "n": f64::NAN }],
        steps: vec![update(doc! { "_id": 1 }, doc! { "$inc": { "n": 1 } })],
        must: "matches it, as without a rule",
        holds: |seen| seen.code() == 0 && seen.n() == 1,
    });
    entries
}

/// Filters that keep the range, for amounts and bounds with a fraction.
fn kept_by_filter() -> Vec<Entry> {
    const WHOLE: &[&str] = &["bounds: { field: n, min: 0, policy: reject }"];
    const FRACTION: &[&str] = &["bounds: { field: n, min: 0.5, policy: reject }"];
    const MAX: &[&str] = &["bounds: { field: n, max: 10, policy: reject }"];
    let of = |rules, condition: Bson, amount: Bson| Entry {
        name: "bounds: the filter keeps the range",
        rules,
        stored: vec![doc! { "_id": 1, "n": 8 }],
        steps: vec![update(doc! { "_id": 1, "n": condition }, doc! { "$inc": { "n": amount } })],
        must: "the number changes",
        holds: |seen| seen.code() == 0 && seen.n() == 1 && !is(seen, "n", 8),
    };
    let at_least = |number: i32| Bson::from(doc! { "$gte": number });
    let mut entries = vec![
        of(WHOLE, at_least(5), (-0.5).into()),
        of(WHOLE, at_least(5), decimal("-5")),
        of(WHOLE, at_least(5), decimal("-4.50")),
        of(WHOLE, doc! { "$gt": 4 }.into(), decimal("-5")),
        of(FRACTION, at_least(5), (-1).into()),
        of(MAX, doc! { "$lte": 9 }.into(), 0.5.into()),
        of(WHOLE, doc! { "$in": [8] }.into(), (-1).into()),
        of(WHOLE, doc! { "$in": [8, 9] }.into(), (-1).into()),
    ];
    entries.push(Entry {
        steps: vec![update(doc! { "_id": 1, "$or": [{ "n": 8 }] }, doc! { "$inc": { "n": -1 } })],
        ..of(WHOLE, Bson::Null, Bson::Null)
    });
    let not_kept = |condition: Document, amount: Bson| Entry {
        name: "bounds: the filter does not keep the range",
        must: "is rejected",
        holds: |seen| seen.code() == 121 && is(seen, "n", 8),
        ..of(WHOLE, condition.into(), amount)
    };
    entries.push(not_kept(doc! { "$gte": 5 }, (-5.5).into()));
    entries.push(not_kept(doc! { "$gt": 4 }, decimal("-5.5")));
    entries.push(not_kept(doc! { "$in": [8, Bson::Null] }, (-1).into()));
    // The client's filter keeps the range for a whole number only.
    entries.push(Entry {
        name: "bounds: a filter that keeps the range of whole numbers, and a number with a fraction",
        stored: vec![doc! { "_id": 1, "n": 4.25 }],
        must: "stays in range",
        holds: |seen| seen.code() == 0 && seen.n() == 0 && is(seen, "n", 4.25),
        ..of(WHOLE, doc! { "$gt": 4 }.into(), decimal("-5"))
    });
    entries
}

/// Numbers that docward assigns after the other rules have checked the statement.
fn late_numbers() -> Vec<Entry> {
    const LIMITED: &[&str] = &["sequence: { field: no, strategy: optimistic }", "limits: { document: 40B }"];
    const TOGETHER: &[&str] = &["sequence: { field: no, strategy: optimistic }", "together: [no, at]"];
    const TOGETHER_COUNTED: &[&str] = &[SEQUENCE, "together: [no, at]"];
    let entry = |name, rules, document: Document| Entry {
        name,
        rules,
        stored: vec![],
        steps: vec![insert(vec![document])],
        must: "is rejected",
        holds: |seen| seen.code() == 121 && seen.nothing_stored(),
    };
    vec![
        entry("an optimistic number, and a document at its limit", LIMITED, doc! { "_id": 1, "note": "x".repeat(15) }),
        entry("an optimistic number without another field", TOGETHER, doc! { "_id": 1 }),
        entry("a number without another field", TOGETHER_COUNTED, doc! { "_id": 1 }),
    ]
}

/// A pipeline that sets an `_id` that the server never stores.
fn invalid_ids() -> Vec<Entry> {
    let pipeline = || Bson::Array(vec![doc! { "$set": { "_id": { "$literal": [] } } }.into()]);
    let of = |rules| Entry {
        name: "a pipeline sets an _id that is an array",
        rules,
        stored: vec![],
        steps: vec![plain(doc! { "findAndModify": "c", "query": { "_id": 5 }, "update": pipeline(), "upsert": true })],
        must: "has the server's error of a pipeline",
        holds: |seen| seen.code() == 54,
    };
    vec![of(&["bucket: { array: messages, count: count, limit: 3 }"]), of(&[TREE])]
}

fn in_and_out_of_range() -> Vec<Entry> {
    let pinned = |name, filter: Document| Entry {
        name,
        rules: &[BOUNDS],
        stored: vec![],
        steps: vec![upsert(filter, doc! { "$set": { "x": 1 } })],
        must: "nothing is stored out of range",
        holds: Seen::nothing_stored,
    };
    vec![
        pinned("bounds: an upsert pins it by equality", doc! { "n": 60 }),
        pinned("bounds: an upsert pins it by $in", doc! { "n": { "$in": [60] } }),
        pinned("bounds: an upsert pins it by $all", doc! { "n": { "$all": [60] } }),
        pinned("bounds: an upsert pins it in a branch of $or", doc! { "$or": [{ "n": 60 }] }),
        pinned("bounds: an upsert pins it in $and", doc! { "$and": [{ "n": { "$eq": 60 } }] }),
        pinned("bounds: an upsert pins a field in it", doc! { "n.x": 1 }),
        Entry {
            name: "bounds: an upsert pins the object around it",
            rules: &[BOUNDS_INSIDE],
            stored: vec![],
            steps: vec![upsert(doc! { "a": { "n": 60 } }, doc! { "$set": { "x": 1 } })],
            must: "nothing is stored out of range",
            holds: Seen::nothing_stored,
        },
        Entry {
            name: "bounds: an array around it is set",
            rules: &[BOUNDS_INSIDE],
            stored: vec![doc! { "_id": 1 }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$set": { "a": [{ "n": 60 }] } })],
            must: "nothing is stored out of range",
            holds: |seen| !seen.one().contains_key("a"),
        },
        Entry {
            name: "bounds: the count of an inserted bucket",
            rules: &["bounds: { field: count, max: 10 }", "bucket: { array: messages, count: count, limit: 100 }"],
            stored: vec![],
            steps: vec![insert(vec![doc! { "_id": 1, "messages": vec![1; 60] }])],
            must: "nothing is stored out of range",
            holds: Seen::nothing_stored,
        },
        Entry {
            name: "bounds: $inc on a document without the field, under a max",
            rules: &["bounds: { field: n, max: 10 }"],
            stored: vec![doc! { "_id": 1 }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$inc": { "n": 3 } })],
            must: "n is 3",
            holds: |seen| seen.one().get("n") == Some(&Bson::Int32(3)),
        },
        Entry {
            name: "bounds: $inc by a fraction with upsert",
            rules: &[BOUNDS],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1 }, doc! { "$inc": { "n": 1.5 } })],
            must: "it is inserted",
            holds: |seen| seen.one().get("n") == Some(&Bson::Double(1.5)),
        },
        Entry {
            name: "bounds: $inc by a decimal with upsert",
            rules: &[BOUNDS],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1 }, doc! { "$inc": { "n": decimal("2") } })],
            must: "it is inserted",
            holds: |seen| seen.stored.len() == 1,
        },
        Entry {
            name: "bounds: decimals of all forms",
            rules: &["bounds: { field: n, min: 0, max: 10000 }"],
            stored: vec![],
            steps: vec![insert(
                ["0E-8", "1E+3", "-0", "1.0", "1E-6176"].into_iter().map(|n| doc! { "n": decimal(n) }).collect(),
            )],
            must: "those in range are inserted",
            holds: |seen| seen.stored.len() == 5,
        },
        Entry {
            name: "bounds: infinities",
            rules: &["bounds: { field: n, min: 0 }"],
            stored: vec![doc! { "_id": 1, "n": 1 }, doc! { "_id": 2, "n": 1 }],
            steps: vec![
                insert(vec![doc! { "_id": 3, "n": f64::INFINITY }]),
                update(doc! { "_id": 1 }, doc! { "$inc": { "n": f64::INFINITY } }),
                update(doc! { "_id": 1 }, doc! { "$inc": { "n": f64::NEG_INFINITY } }),
                update(doc! { "_id": 2 }, doc! { "$inc": { "n": decimal("Infinity") } }),
                update(doc! { "_id": 1 }, doc! { "$inc": { "n": f64::MAX } }),
                update(doc! { "_id": 1 }, doc! { "$inc": { "n": f64::MAX } }),
                update(doc! { "_id": 2 }, doc! { "$inc": { "n": decimal("9E+6144") } }),
                update(doc! { "_id": 2 }, doc! { "$inc": { "n": decimal("9E+6144") } }),
                update(doc! { "_id": 2 }, doc! { "$inc": { "n": decimal("-Infinity") } }),
            ],
            must: "neither they nor NaN are stored",
            holds: |seen| {
                seen.stored.iter().all(|document| document.get("n").and_then(as_number).is_some_and(f64::is_finite))
            },
        },
        Entry {
            name: "bounds: an upsert without room, in a transaction",
            rules: &[BOUNDS],
            stored: vec![doc! { "_id": 1, "n": 0 }],
            steps: vec![
                transaction(upsert(doc! { "_id": 1 }, doc! { "$inc": { "n": 11 } })),
                transaction(upsert(doc! { "_id": 1 }, doc! { "$inc": { "n": 10 } })),
                transaction(upsert(doc! { "_id": 1 }, doc! { "$inc": { "n": 1 } })),
            ],
            must: "counts as n: 0, and the transaction commits",
            holds: |seen| seen.replies.iter().skip(2).all(ok) && seen.one().get("n") == Some(&Bson::Int32(10)),
        },
        Entry {
            name: "bounds: the client's own {$gt: 0}, where unchecked statements are rejected",
            rules: &["bounds: { field: n, min: 0, policy: reject }"],
            stored: vec![doc! { "_id": 1, "n": 2 }],
            steps: vec![update(doc! { "_id": 1, "n": { "$gt": 0 } }, doc! { "$inc": { "n": -1 } })],
            must: "counts as the check",
            holds: |seen| seen.one().get("n") == Some(&Bson::Int32(1)),
        },
    ]
}
