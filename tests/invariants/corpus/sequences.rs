//! Numbers that `sequence` assigns.

use super::*;

const SEQUENCE_BESIDE: &str = "sequence: { field: a.m, counter: other, collection: counters, on_upsert: true }";
const SEQUENCE_INSIDE_TOO: &str = "sequence: { field: a.n, counter: other, collection: counters, on_upsert: true }";
const PROVIDED_REPLACED: &str = "sequence: { field: no, counter: COLLECTION, collection: counters, provided: replace }";

pub(super) fn entries() -> Vec<Entry> {
    [assigned(), provided(), provided_in_other_forms(), unknown_on_insert(), partly_stated()]
        .into_iter()
        .flatten()
        .collect()
}

fn assigned() -> Vec<Entry> {
    vec![
        Entry {
            name: "sequence: an upsert that writes the number by two operators fails as it does in mongod",
            rules: &["sequence: { field: no, counter: COLLECTION, collection: counters, provided: replace }"],
            stored: vec![],
            steps: vec![upsert(doc! {}, doc! { "$push": { "no": {} }, "$set": { "no": 2 } })],
            must: "fails with error 40",
            holds: |seen| seen.code() == 40 && seen.nothing_stored(),
        },
        Entry {
            name: "sequence: an upsert that renames a missing field to the number",
            rules: &[
                "sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true, provided: replace }",
            ],
            stored: vec![],
            steps: vec![upsert(doc! {}, doc! { "$rename": { "a": "no" } })],
            must: "inserts a document with a number of the sequence",
            holds: |seen| seen.code() == 0 && seen.stored.len() == 1 && seen.numbered("no"),
        },
        Entry {
            name: "sequence: an upsert whose filter gives the number that its update removes",
            rules: &[SEQUENCE_INSIDE],
            stored: vec![doc! { "_id": 1, "a": { "n": 53 } }],
            steps: vec![upsert(doc! { "_id": 3, "a.n": 53 }, doc! { "$set": { "a": {} } })],
            must: "does not store the filter's number a second time",
            holds: |seen| seen.numbered("a.n"),
        },
        Entry {
            name: "sequence: an upsert whose filter may give the number twice, and whose update removes it",
            rules: &[SEQUENCE_INSIDE],
            stored: vec![doc! { "_id": 1, "a": { "n": 53 } }],
            steps: vec![upsert(
                doc! { "_id": 3, "a.n": 53, "$nor": [{ "$nor": [{ "a.n": 53 }] }] },
                doc! { "$set": { "a": {} } },
            )],
            must: "does not store the filter's number a second time",
            holds: |seen| seen.numbered("a.n"),
        },
        Entry {
            name: "sequence: a replacing upsert keeps what is beside the number",
            rules: &[SEQUENCE_INSIDE],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1 }, doc! { "a": { "x": 1, "y": 2 }, "z": 3 })],
            must: "x, y and z are stored, with a number",
            holds: |seen| {
                at(&seen.one(), "a.y") == Some(&Bson::Int32(2)) && seen.numbered("a.n") && seen.stored.len() == 1
            },
        },
        Entry {
            name: "sequence: an upsert by a pipeline of docward's, and a value on the way to the number",
            rules: &[SEQUENCE_INSIDE, "timestamps: { source: at, per: document, without_source: pass }"],
            stored: vec![doc! { "_id": 1, "a": true }],
            steps: vec![upsert(doc! { "_id": 1 }, doc! { "$set": { "at": date(PAST) } })],
            must: "the value stays",
            holds: |seen| seen.code() == 0 && is(seen, "a", true),
        },
        Entry {
            name: "sequence: an upsert that sets the object around the number",
            rules: &[SEQUENCE_INSIDE],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 2 }, doc! { "$set": { "a": { "x": 1 } } })],
            must: "nothing is inserted without a number",
            holds: |seen| seen.numbered("a.n"),
        },
        Entry {
            name: "sequence: upserts that set the object around two numbers",
            rules: &[SEQUENCE_INSIDE, SEQUENCE_BESIDE],
            stored: vec![doc! { "_id": 1, "a": { "n": 70, "m": 80 } }],
            steps: [1, 2].map(|id| upsert(doc! { "_id": id }, doc! { "$set": { "a": { "x": 1 } } })).to_vec(),
            must: "the stored numbers stay, and the inserted document has both",
            holds: |seen| {
                let new = seen.stored.last().unwrap();
                is(seen, "a", doc! { "n": 70, "m": 80 })
                    && ["a.n", "a.m"].iter().all(|field| at(new, field).is_some())
                    && seen.stored.len() == 2
            },
        },
        Entry {
            name: "sequence: the same replacing upsert again, with newer times",
            rules: &["timestamps: { source: at, per: document }", SEQUENCE_UPSERT],
            stored: vec![],
            steps: vec![
                upsert(doc! { "_id": 1 }, doc! { "x": 1, "at": date(PAST) }),
                upsert(doc! { "_id": 1 }, doc! { "x": 2, "at": date(PAST + 1) }),
            ],
            must: "the number is the first",
            holds: |seen| seen.one().get("no").and_then(as_number) == Some(1.0),
        },
        Entry {
            name: "sequence: a replacing upsert under a version",
            rules: &["replacement: { policy: check_version, version: version }", SEQUENCE_UPSERT],
            stored: vec![doc! { "_id": 1, "no": 5, "version": 1 }],
            steps: vec![upsert(doc! { "_id": 1 }, doc! { "x": 1, "version": 1 })],
            must: "the number is still 5",
            holds: |seen| seen.one().get("no").and_then(as_number) == Some(5.0),
        },
        Entry {
            name: "sequence: a replacement without the number",
            rules: &[SEQUENCE],
            stored: vec![doc! { "_id": 1, "no": 4 }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "x": 2 })],
            must: "the number is still 4",
            holds: |seen| seen.one().get("no") == Some(&Bson::Int32(4)),
        },
        Entry {
            name: "sequence: a replacement with null for the number",
            rules: &[SEQUENCE],
            stored: vec![doc! { "_id": 1, "no": 4 }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "x": 2, "no": Bson::Null })],
            must: "the number is still 4",
            holds: |seen| is(seen, "no", 4) && is(seen, "x", 2),
        },
        Entry {
            name: "sequence: a replacing upsert with null for the number",
            rules: &[SEQUENCE_UPSERT],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1 }, doc! { "x": 2, "no": Bson::Null })],
            must: "it is inserted with a number",
            holds: |seen| seen.numbered("no"),
        },
        Entry {
            name: "sequence: a merged replacement with null for the number",
            rules: &[MERGE, SEQUENCE],
            stored: vec![doc! { "_id": 1, "no": 4, "y": 1 }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "x": 2, "no": Bson::Null })],
            must: "the number is still 4, and y is kept",
            holds: |seen| is(seen, "no", 4) && is(seen, "x", 2) && is(seen, "y", 1),
        },
        Entry {
            name: "sequence: a merged replacement of the document around the number",
            rules: &[MERGE, SEQUENCE_INSIDE],
            stored: vec![doc! { "_id": 1, "a": { "n": 4, "x": 1 } }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "a": { "y": 2 } })],
            must: "the number is still 4",
            holds: |seen| at(&seen.one(), "a.n") == Some(&Bson::Int32(4)) && at(&seen.one(), "a.y").is_some(),
        },
        Entry {
            name: "sequence: an upsert that sets the document around the number, with a version that is counted",
            rules: &["replacement: { version: version }", SEQUENCE_INSIDE],
            stored: vec![doc! { "_id": 1, "a": { "n": 4, "x": 1 }, "version": 7 }],
            steps: vec![
                upsert(doc! { "_id": 1 }, doc! { "$set": { "a": { "y": 2 } } }),
                upsert(doc! { "_id": 2 }, doc! { "$set": { "a": { "y": 2 } } }),
            ],
            must: "the stored document stays, and the inserted one gets a number and a version",
            holds: |seen| {
                let [stored, inserted] = seen.stored.as_slice() else { return false };
                *stored == doc! { "_id": 1, "a": { "n": 4, "x": 1 }, "version": 7 }
                    && *inserted == doc! { "_id": 2, "a": { "y": 2, "n": 2 }, "version": 1 }
            },
        },
        Entry {
            name: "sequence: a merged upsert of the document around the number, with a version that is counted",
            rules: &["replacement: { policy: merge, version: version }", SEQUENCE_INSIDE],
            stored: vec![],
            steps: vec![transaction(upsert(doc! { "$or": [{ "_id": 1 }] }, doc! { "a": {}, "version": 1_i64 }))],
            must: "is stored with a number and a version",
            holds: |seen| seen.all_committed() && seen.numbered("a.n") && is(seen, "version", 1),
        },
        Entry {
            name: "sequence: an upsert that sets the document around one of two numbers",
            rules: &[SEQUENCE_UPSERT, SEQUENCE_INSIDE_TOO],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1 }, doc! { "$set": { "a": { "y": 2 } } })],
            must: "is stored with both",
            holds: |seen| seen.code() == 0 && seen.numbered("no") && seen.numbered("a.n"),
        },
        Entry {
            name: "sequence: a number that only the filter of a replacing upsert brings",
            rules: &[SEQUENCE],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1, "no": 1 }, doc! { "x": 2 }), insert(vec![doc! { "_id": 2 }])],
            must: "is not stored",
            holds: |seen| seen.stored == [doc! { "_id": 1, "x": 2 }, doc! { "_id": 2, "no": 2 }],
        },
        Entry {
            name: "sequence: a number that a replacement brings to a document without one",
            rules: &[SEQUENCE],
            stored: vec![doc! { "_id": 1 }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "no": 1 }), insert(vec![doc! { "_id": 2 }])],
            must: "is not assigned again",
            holds: |seen| seen.stored.len() == 2 && seen.numbered("no"),
        },
        Entry {
            name: "sequence: an empty timestamp in a replacement",
            rules: &[SEQUENCE],
            stored: vec![doc! { "_id": 1, "no": 4 }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "x": 2, "note": EMPTY })],
            must: "becomes the time",
            holds: |seen| has_time(seen) && is(seen, "no", 4),
        },
        Entry {
            name: "sequence: a replacing upsert whose filter has a field twice",
            rules: &[SEQUENCE],
            stored: vec![],
            steps: vec![upsert(doc! { "note": { "$all": [1, 2] } }, doc! { "note": 1 })],
            must: "it is inserted, as by mongod",
            holds: |seen| seen.code() == 0 && is(seen, "note", 1),
        },
        Entry {
            name: "sequence: a replacing upsert whose _id is of another numeric type",
            rules: &[SEQUENCE_UPSERT],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1.0 }, doc! { "_id": 1, "x": 1 })],
            must: "it is inserted with a number, as by mongod",
            holds: |seen| seen.code() == 0 && is(seen, "_id", 1) && seen.numbered("no"),
        },
        Entry {
            name: "sequence: a number that a client brings",
            rules: &[SEQUENCE],
            stored: vec![],
            steps: vec![
                insert(vec![doc! { "_id": 1, "no": 2 }]),
                insert(vec![doc! { "_id": 2 }]),
                insert(vec![doc! { "_id": 3 }]),
            ],
            must: "is not assigned again",
            holds: |seen| seen.stored.len() == 3 && seen.numbered("no"),
        },
        Entry {
            name: "sequence: two fields by one counter",
            rules: &[
                "sequence: { field: no, counter: COLLECTION, collection: counters, start: after_max }",
                "sequence: { field: a.n, counter: COLLECTION, collection: counters, start: after_max }",
            ],
            stored: vec![doc! { "_id": 1, "no": 2, "a": { "n": 4 } }, doc! { "_id": 2, "no": 3, "a": { "n": 5 } }],
            steps: vec![insert(vec![doc! { "_id": 3 }]), insert(vec![doc! { "_id": 4 }])],
            must: "the counter begins behind both",
            holds: |seen| {
                let numbers = |document: &Document| ["no", "a.n"].map(|path| at(document, path).and_then(as_number));
                let mut given: Vec<_> = seen.stored.iter().flat_map(numbers).collect();
                given.sort_by(|one, other| one.partial_cmp(other).unwrap());
                given == [2, 3, 4, 5, 6, 7, 8, 9].map(|number| Some(f64::from(number)))
            },
        },
        Entry {
            name: "sequence: a replacing upsert whose filter pins the number out of bounds",
            rules: &[SEQUENCE_UPSERT, "bounds: { field: no, max: 2.5 }"],
            stored: vec![],
            steps: vec![upsert(doc! { "no": {} }, doc! {}), upsert(doc! { "no": 3 }, doc! { "x": 1 })],
            must: "inserts the next number, nothing out of bounds",
            holds: |seen| {
                seen.code() == 0 && seen.stored.iter().map(|one| one.get_i32("no").ok()).eq([Some(1), Some(2)])
            },
        },
        Entry {
            name: "sequence: the number that a replacing upsert gets is out of bounds",
            rules: &[
                "sequence: { field: no, counter: COLLECTION, collection: counters, start: after_max, on_upsert: true }",
                "bounds: { field: no, min: 1, max: 2.5 }",
            ],
            stored: vec![doc! { "_id": 2, "no": 133 }],
            steps: vec![upsert(doc! { "_id": 4 }, doc! {})],
            must: "nothing is inserted with it",
            holds: |seen| seen.stored.len() == 1 && seen.code() == 121,
        },
        Entry {
            name: "sequence: an array among the numbers",
            rules: &["sequence: { field: no, counter: COLLECTION, collection: counters, start: after_max }"],
            stored: vec![doc! { "_id": 1, "no": [9] }, doc! { "_id": 2, "no": 3 }],
            steps: vec![insert(vec![doc! { "_id": 3 }])],
            must: "does not block all inserts",
            holds: |seen| seen.stored.len() == 3,
        },
        Entry {
            name: "sequence: a Decimal128 among the numbers",
            rules: &["sequence: { field: no, counter: COLLECTION, collection: counters, start: after_max }"],
            stored: vec![doc! { "_id": 1, "no": decimal("7") }],
            steps: vec![insert(vec![doc! { "_id": 3 }])],
            must: "does not block all inserts",
            holds: |seen| seen.stored.len() == 2 && seen.numbered("no"),
        },
        Entry {
            name: "sequence: optimistic in a transaction, beside 8.5",
            rules: &["sequence: { field: no, strategy: optimistic }"],
            stored: vec![doc! { "_id": 1, "no": 8.5 }],
            steps: vec![transaction(insert(vec![doc! { "_id": 2 }]))],
            must: "the number is above 8.5",
            holds: |seen| seen.stored.len() == 2 && seen.stored[1].get("no").and_then(as_number) > Some(8.5),
        },
        Entry {
            name: "sequence: optimistic, and a later document of the batch brings its number",
            rules: &["sequence: { field: no, strategy: optimistic }"],
            stored: vec![],
            steps: vec![
                plain(doc! { "createIndexes": "c", "indexes": [{ "key": { "no": 1 }, "name": "no", "unique": true }] }),
                insert(vec![doc! { "_id": 1 }, doc! { "_id": 2, "no": 1 }, doc! { "_id": 3 }]),
            ],
            must: "the others get the next numbers",
            holds: |seen| seen.code() == 0 && seen.stored.len() == 3 && seen.numbered("no"),
        },
    ]
}

/// The numbers of the stored documents are different.
fn has_own_numbers(seen: &Seen) -> bool {
    let mut numbers: Vec<_> = seen.stored.iter().filter_map(|one| one.get_i32("no").ok()).collect();
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.len() == count
}

fn provided() -> Vec<Entry> {
    let new = |id: i32| insert(vec![doc! { "_id": id }]);
    vec![
        Entry {
            name: "sequence: a replacement with a number of its own, where there is none",
            rules: &[PROVIDED_REPLACED],
            stored: vec![doc! { "_id": 1 }],
            steps: vec![new(2), update(doc! { "_id": 1 }, doc! { "no": 900 }), new(3), new(4)],
            must: "its number is neither stored nor counted",
            holds: |seen| {
                seen.stored[0] == doc! { "_id": 1 }
                    && has_own_numbers(seen)
                    && seen.stored[3].get_i32("no").unwrap() < 9
            },
        },
        Entry {
            name: "sequence: an upsert by replacement without a number, where upserts get none",
            rules: &[PROVIDED_REPLACED],
            stored: vec![doc! { "_id": 1 }],
            steps: vec![upsert(doc! { "_id": 1 }, doc! { "a": 2 }), upsert(doc! { "_id": 2 }, doc! { "a": 2 })],
            must: "gets none",
            holds: |seen| seen.stored == [doc! { "_id": 1, "a": 2 }, doc! { "_id": 2, "a": 2 }],
        },
        Entry {
            name: "sequence: a replacing upsert whose filter has null as the number",
            rules: &[SEQUENCE_UPSERT],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1, "no": null }, doc! { "b": 1 })],
            must: "gets a number",
            holds: |seen| seen.one() == doc! { "_id": 1, "b": 1, "no": 1 },
        },
        Entry {
            name: "sequence: a replacing upsert whose filter has two numbers",
            rules: &[SEQUENCE_UPSERT],
            stored: vec![],
            steps: vec![
                upsert(doc! { "_id": 1, "$and": [{ "no": 60 }, { "no": 61 }] }, doc! { "b": 1 }),
                upsert(doc! { "_id": 2, "no": { "$all": [60, 60] } }, doc! { "b": 1 }),
            ],
            must: "gets a number",
            holds: |seen| seen.stored.len() == 2 && seen.stored.iter().all(|one| one.contains_key("no")),
        },
        Entry {
            name: "sequence: an upsert whose filter may or may not have a number",
            rules: &[SEQUENCE_UPSERT],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1, "$or": [{ "no": 60 }, { "no": 60 }] }, doc! { "$set": { "b": 1 } })],
            must: "inserts no document without a number",
            holds: |seen| seen.stored.iter().all(|one| one.contains_key("no")),
        },
        Entry {
            name: "sequence: an upsert by an ObjectId that the client names",
            rules: &["sequence: { field: _id, counter: COLLECTION, collection: counters, replace_generated: true }"],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": bson::oid::ObjectId::new() }, doc! { "$set": { "a": 2 } })],
            must: "inserts it",
            holds: |seen| seen.code() == 0 && is(seen, "a", 2) && seen.one().get_object_id("_id").is_ok(),
        },
        Entry {
            name: "sequence: an upsert by replacement with a number that is replaced",
            rules: &[PROVIDED_REPLACED],
            stored: vec![],
            steps: vec![new(2), upsert(doc! { "_id": 1 }, doc! { "no": 1 })],
            must: "gets the next number",
            holds: |seen| seen.stored.first() == Some(&doc! { "_id": 1, "no": 2 }),
        },
    ]
}

fn partly_stated() -> Vec<Entry> {
    const ON_UPSERT: &str = "sequence: { field: no, counter: c, collection: counters, on_upsert: true }";
    [doc! { "no.x": {} }, doc! { "no.x": null }, doc! { "$or": [{ "no.x": 1 }, { "no.x": 1 }] }]
        .into_iter()
        .map(|filter| Entry {
            name: "sequence: a replacing upsert whose filter states a part of the number",
            rules: &[ON_UPSERT],
            stored: vec![],
            steps: vec![upsert(filter, doc! { "x": 1 })],
            must: "does not insert that part as the number",
            holds: |seen| seen.code() == 0 && seen.one().get_i32("no").is_ok(),
        })
        .collect()
}

/// The values at a path of a document, in elements of arrays too.
fn values_at(value: &Bson, path: &str) -> Vec<Bson> {
    match (value, path.split_once('.').unwrap_or((path, ""))) {
        (Bson::Array(elements), _) => elements.iter().flat_map(|element| values_at(element, path)).collect(),
        (value, ("", _)) => vec![value.clone()],
        (Bson::Document(document), (name, below)) => {
            document.get(name).map(|value| values_at(value, below)).unwrap_or_default()
        }
        _ => vec![],
    }
}

/// No number is there twice, in `no` or in `a.n`.
fn are_distinct(seen: &Seen) -> bool {
    ["no", "a.n"].iter().all(|field| {
        let of_document = |document: &Document| values_at(&document.clone().into(), field);
        let mut numbers: Vec<String> =
            seen.stored.iter().flat_map(of_document).filter_map(|n| Some(as_number(&n)?.to_string())).collect();
        let count = numbers.len();
        numbers.sort();
        numbers.dedup();
        numbers.len() == count
    })
}

/// Numbers that clients write in other forms than `{$set: {no: 3}}`, and inserts that must not get them.
fn provided_in_other_forms() -> Vec<Entry> {
    const NESTED: &str = "sequence: { field: a.n, counter: COLLECTION, collection: counters }";
    let top = || vec![doc! { "_id": 1, "no": 0 }];
    let nested = || vec![doc! { "_id": 1, "a": { "n": 0 } }];
    let one = || doc! { "_id": 1 };
    let cases: [(&'static str, &'static [&'static str], Vec<Document>, Step); 12] = [
        ("sequence: a constant pipeline", &[SEQUENCE], top(), update(one(), vec![doc! { "$set": { "no": 3 } }])),
        (
            "sequence: a constant pipeline in a findAndModify",
            &[SEQUENCE],
            top(),
            plain(doc! { "findAndModify": "c", "query": one(), "update": [{ "$set": { "no": 3 } }] }),
        ),
        (
            "sequence: a constant pipeline that inserts",
            &[SEQUENCE],
            vec![],
            upsert(one(), vec![doc! { "$set": { "no": 3 } }]),
        ),
        (
            "sequence: a constant pipeline that inserts, with on_upsert",
            &[SEQUENCE_UPSERT],
            vec![],
            upsert(one(), vec![doc! { "$set": { "no": 3 } }]),
        ),
        (
            "sequence: an element of an array",
            &[SEQUENCE],
            vec![doc! { "_id": 1, "no": [0] }],
            update(one(), doc! { "$set": { "no.0": 3 } }),
        ),
        ("sequence: an array around it", &[NESTED], nested(), update(one(), doc! { "$set": { "a": [{ "n": 3 }] } })),
        (
            "$max of a document around it",
            &[NESTED],
            nested(),
            update(one(), doc! { "$max": { "a": { "n": 3, "z": 1 } } }),
        ),
        (
            "sequence: a push",
            &[SEQUENCE],
            vec![doc! { "_id": 1, "no": [0] }],
            update(one(), doc! { "$push": { "no": { "$each": [2, 3], "$position": 0 } } }),
        ),
        (
            "an upsert by push",
            &[SEQUENCE],
            vec![],
            upsert(one(), doc! { "$push": { "no": { "$each": [3], "$position": 0 } } }),
        ),
        (
            "an upsert by $addToSet",
            &[SEQUENCE],
            vec![],
            upsert(one(), doc! { "$addToSet": { "no": { "$each": [3] } } }),
        ),
        (
            "sequence: an upsert of an element of the filter's array",
            &[SEQUENCE],
            vec![],
            upsert(doc! { "_id": 1, "no": [0] }, doc! { "$set": { "no.0": 3 } }),
        ),
        (
            "sequence: an upsert by $inc",
            &[SEQUENCE],
            vec![],
            upsert(doc! { "_id": 1, "no": 1 }, doc! { "$inc": { "no": 2 } }),
        ),
    ];
    cases
        .into_iter()
        .map(|(name, rules, stored, step)| Entry {
            name,
            rules,
            stored,
            steps: vec![step, insert((10..15).map(|id| doc! { "_id": id }).collect())],
            must: "the number is not assigned again",
            holds: |seen| seen.stored.len() >= 5 && are_distinct(seen),
        })
        .collect()
}

/// Upserts whose number only the server knows.
fn unknown_on_insert() -> Vec<Entry> {
    const PROVIDED_REJECTED: &str =
        "sequence: { field: no, counter: COLLECTION, collection: counters, provided: reject }";
    let one = || doc! { "_id": 1 };
    let computed = || vec![doc! { "$set": { "no": { "$add": [5, 1] } } }];
    let rejected = |name, rules, step| Entry {
        name,
        rules,
        stored: vec![],
        steps: vec![step],
        must: "is rejected",
        holds: |seen| seen.code() == 121 && seen.nothing_stored(),
    };
    let replace =
        |q: Document| plain(doc! { "update": "c", "updates": [{ "q": q, "u": { "no": 9, "x": 2 }, "upsert": true }] });
    vec![
        rejected("sequence: an upsert by $bit", &[SEQUENCE], upsert(one(), doc! { "$bit": { "no": { "or": 3 } } })),
        rejected(
            "sequence: an upsert by $inc of a decimal",
            &[SEQUENCE],
            upsert(doc! { "_id": 1, "no": decimal("1") }, doc! { "$inc": { "no": 2 } }),
        ),
        rejected("sequence: an upsert by a pipeline that computes", &[PROVIDED_REJECTED], upsert(one(), computed())),
        rejected(
            "sequence: an upsert by $replaceWith",
            &[PROVIDED_REJECTED],
            upsert(one(), vec![doc! { "$replaceWith": { "no": 9 } }]),
        ),
        Entry {
            name: "sequence: upserts that find none, whose number is replaced",
            rules: &[PROVIDED_REPLACED],
            stored: vec![],
            steps: vec![upsert(one(), computed()), replace(doc! { "no": 7 })],
            must: "insert the next numbers",
            holds: |seen| {
                seen.code() == 0 && seen.stored.iter().map(|one| one.get_i32("no").ok()).eq([Some(1), Some(2)])
            },
        },
        Entry {
            name: "sequence: a replacing upsert that finds a document by its number",
            rules: &[PROVIDED_REPLACED],
            stored: vec![doc! { "_id": 1, "no": 7 }],
            steps: vec![replace(doc! { "no": 7 })],
            must: "keeps that number",
            holds: |seen| seen.code() == 0 && seen.stored == [doc! { "_id": 1, "x": 2, "no": 7 }],
        },
        Entry {
            name: "sequence: an upsert that writes elements of the array around the number",
            rules: &[SEQUENCE_INSIDE],
            stored: vec![doc! { "_id": 1, "a": [{ "x": 1 }] }],
            steps: vec![upsert(one(), doc! { "$set": { "a.$[].x": 2 } })],
            must: "changes a stored one",
            holds: |seen| seen.code() == 0 && seen.stored == [doc! { "_id": 1, "a": [{ "x": 2 }] }],
        },
        Entry {
            name: "a checked pipeline that gives the _id another numeric type",
            rules: &[SEQUENCE],
            stored: vec![doc! { "_id": 1, "no": 7 }],
            steps: vec![plain(doc! {
                "findAndModify": "c",
                "query": one(),
                "update": [{ "$set": { "_id": { "$literal": 1_i64 }, "no": "$no" } }],
                "fields": { "no": 1 },
            })],
            must: "is executed at once",
            holds: |seen| seen.code() == 0 && seen.took < Duration::from_secs(1) && is(seen, "no", 7),
        },
        Entry {
            name: "sequence: a pipeline that computes and finds a document",
            rules: &[PROVIDED_REJECTED],
            stored: vec![doc! { "_id": 1, "no": 7 }],
            steps: vec![update(one(), computed())],
            must: "does not change its number",
            holds: |seen| seen.code() == 121 && is(seen, "no", 7),
        },
    ]
}
