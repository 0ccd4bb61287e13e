//! Upserts by an `$or` of which the server drops the branches that match nothing, and takes the equalities of the other.

use super::*;

type Case = (&'static str, Document, Document, fn(&Seen) -> bool);

fn is_overfull(one: &Document) -> bool {
    one.get_array("messages").map_or(0, Vec::len) > 3
}

fn cases() -> Vec<Case> {
    const BOUNDS: &str = "bounds: { field: n, min: 0, max: 10 }";
    const TOGETHER: &str = "together: [t1, t2]";
    const TIMES: &str = "timestamps: { source: s, type: long, fields: [a, b], store: lm }";
    let in_range: fn(&Seen) -> bool =
        |seen| seen.stored.iter().all(|one| one.get("n").and_then(as_number).is_none_or(|n| n <= 10.0));
    let are_counted: fn(&Seen) -> bool = |seen| counts_are_true(seen) && !seen.stored.iter().any(is_overfull);
    let set = || doc! { "$set": { "z": 1 } };
    vec![
        (BOUNDS, doc! { "n": 11 }, set(), in_range),
        (BOUNDS, doc! { "n": 10 }, doc! { "$inc": { "n": 5 } }, in_range),
        (BUCKET, doc! { "count": 2 }, doc! { "$push": { "messages": 1 } }, are_counted),
        (BUCKET, doc! { "messages": [1] }, doc! { "$push": { "messages": 1 } }, are_counted),
        (BUCKET, doc! { "messages": [1, 2, 3, 4] }, set(), are_counted),
        (
            "limits: { items: { messages: 3 } }",
            doc! { "messages": [1, 2, 3] },
            doc! { "$push": { "messages": 5 } },
            |seen| !seen.stored.iter().any(is_overfull),
        ),
        (TOGETHER, doc! { "t1": 1 }, set(), |seen| {
            seen.stored.iter().all(|one| one.contains_key("t1") == one.contains_key("t2"))
        }),
        (
            "copies: [{ into: protected.COLLECTION, key: f.id, fields: { n: f.n } }]",
            doc! { "f.id": 7 },
            set(),
            |seen| seen.stored.iter().all(|one| at(one, "f.id").is_none() || at(one, "f.n").is_some()),
        ),
        (TIMES, doc! { "a": 1 }, doc! { "$set": { "s": 5_i64 } }, |seen| {
            seen.stored.iter().all(|one| one.contains_key("a") == at(one, "lm.a").is_some())
        }),
        (TIMES, doc! { "lm": { "a": 99_i64 } }, set(), |seen| seen.stored.iter().all(|one| !one.contains_key("lm"))),
        (SEQUENCE_UPSERT, doc! { "no": 1 }, set(), |seen| {
            seen.stored.iter().all(|one| one.contains_key("no")) && seen.numbered("no")
        }),
        (QUEUE, doc! { "locked": true }, doc! { "$setOnInsert": { "z": 1 } }, |seen| {
            seen.stored.iter().all(|one| one.contains_key("try"))
        }),
    ]
}

pub(super) fn entries() -> Vec<Entry> {
    let of_case = |(rule, pin, change, holds): Case| {
        let rules: &'static [&'static str] = vec![rule].leak();
        NEVER.iter().enumerate().map(move |(index, never)| {
            let branches = if index % 2 == 0 { [pin.clone(), never()] } else { [never(), pin.clone()] };
            Entry {
                name: "an upsert by an $or with a branch that matches nothing",
                rules,
                stored: vec![],
                steps: vec![
                    upsert(doc! { "$or": branches.to_vec() }, change.clone()),
                    plain(doc! { "insert": "c", "documents": [{ "_id": 9, "t1": 1, "t2": 1, "messages": [] }] }),
                ],
                must: "what is inserted keeps the rule",
                holds,
            }
        })
    };
    cases().into_iter().flat_map(of_case).collect()
}
