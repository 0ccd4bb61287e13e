//! Cases that once broke a promise, each with its expected result. `FAILING` lists those that still break one.

mod compositions;
mod counting;
mod dropped_branches;
mod limits;
mod optimistic;
mod reported;
mod timestamps;
mod two_rules;
mod upserted;
mod upserts;

use std::time::{Duration, Instant};

use bson::{Bson, Document, doc};

use super::case::{End, Session, Step, insert, plain, update, upsert};
use super::lab::{PROTECTED, server};
use super::rules::can_load;
use super::show;
use super::values::{FUTURE, PAST, as_number, at, date, decimal};
use support::driver::ok;
use support::process::TIMEOUT;
use support::proxy::Docward;
use support::raw::Client;

/// The result of an entry.
pub(super) struct Seen {
    /// The reply to each command, and to the commit after one in a transaction.
    replies: Vec<Document>,
    stored: Vec<Document>,
    took: Duration,
}

struct Entry {
    name: &'static str,
    /// The settings of each rule; all rules apply to one collection.
    rules: &'static [&'static str],
    stored: Vec<Document>,
    steps: Vec<Step>,
    must: &'static str,
    holds: fn(&Seen) -> bool,
}

/// Conditions that no document meets, as the server itself can see.
const NEVER: [fn() -> Document; 5] = [
    || doc! { "zq": { "$all": [] } },
    || doc! { "$alwaysFalse": 1 },
    || doc! { "$or": [{ "$and": [{ "zq": { "$all": [] } }] }] },
    || doc! { "$and": [{ "x": 1 }, { "$alwaysFalse": 1 }] },
    || doc! { "$or": [{ "$alwaysFalse": 1 }] },
];

/// Entries that still fail.
const FAILING: &[&str] = &[];

impl Seen {
    fn last(&self) -> &Document {
        self.replies.last().unwrap()
    }

    /// The code of the last command's first error; 0 if there is none.
    fn code(&self) -> i32 {
        let error = |reply: &Document| reply.get_i32("code").ok();
        let of_statement =
            self.last().get_array("writeErrors").ok().and_then(|errors| error(errors.first()?.as_document()?));
        error(self.last()).or(of_statement).unwrap_or(0)
    }

    fn n(&self) -> i32 {
        self.last().get_i32("n").unwrap_or(-1)
    }

    fn nothing_stored(&self) -> bool {
        self.stored.is_empty()
    }

    fn one(&self) -> Document {
        self.stored.first().cloned().unwrap_or_default()
    }

    /// Every document has a distinct number in the field.
    fn numbered(&self, field: &str) -> bool {
        let mut numbers: Vec<String> =
            self.stored.iter().filter_map(|document| Some(as_number(at(document, field)?)?.to_string())).collect();
        numbers.sort();
        numbers.dedup();
        numbers.len() == self.stored.len()
    }

    fn all_committed(&self) -> bool {
        self.replies.iter().all(ok)
    }
}

/// Whether the first document has this value.
fn is(seen: &Seen, field: &str, value: impl Into<Bson>) -> bool {
    seen.one().get(field) == Some(&value.into())
}

fn transaction(step: Step) -> Step {
    Step { session: Session::Transaction(End::Commit), ..step }
}

fn resent(step: Step) -> Step {
    Step { session: Session::Resent, ..step }
}

fn find_and_modify(query: Document, update: Document) -> Step {
    plain(doc! { "findAndModify": "c", "query": query, "update": update })
}

fn many(filter: Document, change: impl Into<Bson>) -> Step {
    plain(doc! { "update": "c", "updates": [{ "q": filter, "u": change.into(), "multi": true }] })
}

fn delete_many(filter: Document) -> Step {
    plain(doc! { "delete": "c", "deletes": [{ "q": filter, "limit": 0 }] })
}

fn entries() -> Vec<Entry> {
    [
        sequences(),
        replacements(),
        versions(),
        compositions::entries(),
        counting::entries(),
        dropped_branches::entries(),
        queues(),
        trees(),
        bounds(),
        bounded_nan(),
        invalid_ids(),
        late_numbers(),
        together(),
        buckets(),
        limits::entries(),
        optimistic::entries(),
        reported::entries(),
        two_rules::entries(),
        upserted::entries(),
        upserts::entries(),
        timestamps::entries(),
        others(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

const SEQUENCE: &str = "sequence: { field: no, counter: COLLECTION, collection: counters }";
const SEQUENCE_UPSERT: &str = "sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }";
const SEQUENCE_INSIDE: &str = "sequence: { field: a.n, counter: COLLECTION, collection: counters, on_upsert: true }";
const SEQUENCE_BESIDE: &str = "sequence: { field: a.m, counter: other, collection: counters, on_upsert: true }";
const SEQUENCE_INSIDE_TOO: &str = "sequence: { field: a.n, counter: other, collection: counters, on_upsert: true }";

fn sequences() -> Vec<Entry> {
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
                is(seen, "a", doc! { "x": 1, "n": 70, "m": 80 })
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
            must: "the stored number stays, the inserted document gets one, and both versions are counted",
            holds: |seen| {
                let [stored, inserted] = seen.stored.as_slice() else { return false };
                let number = |document: &Document| at(document, "a.n").and_then(as_number).map(|n| n.to_string());
                seen.code() == 0
                    && number(stored).as_deref() == Some("4")
                    && number(inserted).is_some_and(|number| number != "4")
                    && stored.get("version") == Some(&Bson::Int32(8))
                    && inserted.get("version") == Some(&Bson::Int32(1))
                    && [stored, inserted].iter().all(|one| at(one, "a.x").is_none() && at(one, "a.y").is_some())
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
            must: "is not assigned again",
            holds: |seen| seen.stored.len() == 2 && seen.numbered("no"),
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
            must: "inserts nothing out of bounds",
            holds: |seen| seen.nothing_stored() && seen.code() == 121,
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

/// mongod replaces an empty timestamp when a document is inserted or replaced.
const EMPTY: Bson = Bson::Timestamp(bson::Timestamp { time: 0, increment: 0 });

fn has_time(seen: &Seen) -> bool {
    matches!(seen.one().get("note"), Some(Bson::Timestamp(stored)) if stored.time > 0)
}

const REJECT: &str = "replacement: { policy: reject }";
const MERGE: &str = "replacement: { policy: merge }";
const CHECK: &str = "replacement: { policy: check_version, version: version }";
const IGNORE: &str = "replacement: { policy: check_version, version: version, on_conflict: ignore }";

fn replacements() -> Vec<Entry> {
    vec![
        Entry {
            name: "replacement: the same upsert twice, picked by another field than _id",
            rules: &[CHECK],
            stored: vec![],
            steps: vec![
                upsert(doc! { "sku": "x" }, doc! { "sku": "x", "qty": 1 }),
                upsert(doc! { "sku": "x" }, doc! { "sku": "x", "qty": 1 }),
            ],
            must: "there is one document",
            holds: |seen| seen.stored.len() == 1,
        },
        Entry {
            name: "replacement: a document that was never there",
            rules: &[CHECK],
            stored: vec![],
            steps: vec![update(doc! { "_id": "nope" }, doc! { "x": 1 })],
            must: "n is 0, without an error",
            holds: |seen| seen.code() == 0 && seen.n() == 0,
        },
        Entry {
            name: "replacement: findAndModify of a document that was never there",
            rules: &[CHECK],
            stored: vec![],
            steps: vec![find_and_modify(doc! { "_id": "nope" }, doc! { "x": 1 })],
            must: "null, without an error",
            holds: |seen| seen.code() == 0 && seen.last().get("value") == Some(&Bson::Null),
        },
        Entry {
            name: "replacement: a first save by upsert where unchecked ones are rejected",
            rules: &[REJECT],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 7 }, doc! { "_id": 7, "x": 1 })],
            must: "it is inserted",
            holds: |seen| seen.stored.len() == 1,
        },
        Entry {
            name: "replacement: the upsert of a document that is there, where unchecked ones are rejected",
            rules: &[REJECT],
            stored: vec![doc! { "_id": 7, "keep": 1 }],
            steps: vec![upsert(doc! { "_id": 7 }, doc! { "_id": 7, "x": 1 })],
            must: "it erases nothing",
            holds: |seen| seen.one().contains_key("keep"),
        },
        Entry {
            name: "replacement: merged with another _id than the stored",
            rules: &[MERGE],
            stored: vec![doc! { "_id": 1, "x": 1 }],
            steps: vec![update(doc! { "x": 1 }, doc! { "_id": 2, "x": 2 })],
            must: "the server's error 66",
            holds: |seen| seen.code() == 66,
        },
        Entry {
            name: "replacement: a conflict that is ignored, in a transaction",
            rules: &[IGNORE],
            stored: vec![doc! { "_id": 1, "version": 3 }],
            steps: vec![transaction(update(doc! { "_id": 1 }, doc! { "version": 1 }))],
            must: "the transaction commits",
            holds: Seen::all_committed,
        },
        Entry {
            name: "replacement: an upsert whose conflict is ignored, in a transaction",
            rules: &[IGNORE],
            stored: vec![doc! { "_id": 1, "version": 3 }],
            steps: vec![transaction(upsert(doc! { "_id": 1 }, doc! { "x": 1 }))],
            must: "the transaction commits, and the document is as it was",
            holds: |seen| seen.all_committed() && seen.one().get("version") == Some(&Bson::Int32(3)),
        },
    ]
}

fn versions() -> Vec<Entry> {
    vec![
        Entry {
            name: "versions: a $set between another's read and save",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "x": 0, "version": 1 }],
            steps: vec![
                update(doc! { "_id": 1 }, doc! { "$set": { "y": 1 } }),
                update(doc! { "_id": 1 }, doc! { "x": 2, "version": 1 }),
            ],
            must: "is not erased by that save",
            holds: |seen| seen.one().contains_key("y"),
        },
        Entry {
            name: "versions: an operator sets the version back",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "version": 3 }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$set": { "version": 1 } })],
            must: "the version is at least 3",
            holds: |seen| seen.one().get("version").and_then(as_number) >= Some(3.0),
        },
        Entry {
            name: "versions: the client's own filter pins one that is not stored",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "version": 3 }],
            steps: vec![update(doc! { "_id": 1, "version": 2 }, doc! { "x": 1, "version": 3 })],
            must: "n is 0, without an error",
            holds: |seen| seen.code() == 0 && seen.n() == 0,
        },
        Entry {
            name: "versions: the client counts up itself",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "version": 3 }],
            steps: vec![update(doc! { "_id": 1, "version": 3 }, doc! { "x": 1, "version": 4 })],
            must: "the stored version is 4",
            holds: |seen| seen.one().get("version") == Some(&Bson::Int32(4)),
        },
        Entry {
            name: "versions: two writers set all columns by $set, the version too",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "x": 0, "y": 0, "version": 1 }],
            steps: vec![
                update(doc! { "_id": 1 }, doc! { "$set": { "x": 1, "y": 0, "version": 1 } }),
                update(doc! { "_id": 1 }, doc! { "$set": { "x": 0, "y": 1, "version": 1 } }),
            ],
            must: "the second is a conflict",
            holds: |seen| seen.one().get("x") == Some(&Bson::Int32(1)),
        },
        Entry {
            name: "versions: a UUID that changes with each save",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "version": "u1" }],
            steps: vec![update(doc! { "_id": 1, "version": "u1" }, doc! { "x": 1, "version": "u2" })],
            must: "it is stored as it was sent",
            holds: |seen| seen.one().get("version") == Some(&"u2".into()),
        },
        Entry {
            name: "versions: an update by operators where the stored version is a UUID",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "version": "u1" }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$set": { "x": 1 } })],
            must: "it is done, and the version is left alone",
            holds: |seen| is(seen, "x", 1) && is(seen, "version", "u1"),
        },
        Entry {
            name: "versions: an update by operators where there is no room for the version",
            rules: &["replacement: { policy: check_version, version: a.version }"],
            stored: vec![doc! { "_id": 1, "a": [] }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$set": { "x": 1 } })],
            must: "it is done",
            holds: |seen| is(seen, "x", 1),
        },
        Entry {
            name: "versions: an operator makes of the version what cannot be counted",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "version": 3 }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "$set": { "version": 0.5 } })],
            must: "the version is still a whole number",
            holds: |seen| seen.one().get("version").and_then(as_number) >= Some(3.0),
        },
        Entry {
            name: "replacement: a merging upsert whose _id is of another numeric type",
            rules: &[MERGE],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1 }, doc! { "_id": 1_i64, "x": 1 })],
            must: "it is inserted, as by mongod",
            holds: |seen| seen.code() == 0 && is(seen, "_id", 1_i64),
        },
        Entry {
            name: "replacement: merged over a document whose _id is of another numeric type",
            rules: &[MERGE],
            stored: vec![doc! { "_id": 1, "keep": 1 }, doc! { "_id": 2, "keep": 1 }],
            steps: vec![
                upsert(doc! { "_id": 1 }, doc! { "_id": 1.0, "x": 1 }),
                update(doc! { "_id": 2 }, doc! { "_id": 2_i64, "x": 1 }),
            ],
            must: "its fields are set",
            holds: |seen| {
                let merged = |document: &Document| document.contains_key("x") && document.contains_key("keep");
                seen.code() == 0 && seen.stored.len() == 2 && seen.stored.iter().all(merged)
            },
        },
        Entry {
            name: "replacement: a merging upsert whose filter has a field twice",
            rules: &[MERGE],
            stored: vec![],
            steps: vec![upsert(doc! { "note": { "$all": [1, 2] } }, doc! { "note": 1 })],
            must: "it is inserted, as by mongod",
            holds: |seen| seen.code() == 0 && is(seen, "note", 1),
        },
        Entry {
            name: "replacement: an empty timestamp that is merged",
            rules: &[MERGE],
            stored: vec![doc! { "_id": 1, "keep": 1 }],
            steps: vec![update(doc! { "_id": 1 }, doc! { "x": 1, "note": EMPTY })],
            must: "becomes the time",
            holds: |seen| has_time(seen) && is(seen, "keep", 1) && is(seen, "x", 1),
        },
        Entry {
            name: "replacement: an upsert of what was read, where the document is gone",
            rules: &[CHECK],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1 }, doc! { "x": 1, "version": 3 })],
            must: "n is 0, nothing is inserted",
            holds: |seen| seen.code() == 0 && seen.n() == 0 && seen.nothing_stored(),
        },
        Entry {
            name: "versions: an upsert sets the document around the version on insert",
            rules: &["replacement: { policy: check_version, version: a.n }"],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1 }, doc! { "$set": { "x": 1 }, "$setOnInsert": { "a": { "m": 1 } } })],
            must: "it is inserted, with the version beside what is in the document",
            holds: |seen| {
                at(&seen.one(), "a.m") == Some(&Bson::Int32(1)) && at(&seen.one(), "a.n") == Some(&Bson::Int32(1))
            },
        },
        Entry {
            name: "versions: an upsert sets something else than a document around the version on insert",
            rules: &["replacement: { policy: check_version, version: a.n }"],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1 }, doc! { "$set": { "x": 1 }, "$setOnInsert": { "a": 5 } })],
            must: "it is rejected, and not inserted without it",
            holds: |seen| seen.code() == 121 && seen.nothing_stored(),
        },
        Entry {
            name: "sequence: a replacing upsert whose filter has two values of _id",
            rules: &[SEQUENCE_UPSERT],
            stored: vec![],
            steps: vec![upsert(doc! { "$and": [{ "_id": 5 }, { "_id": 1 }] }, doc! { "x": 1 })],
            must: "the server's error 54",
            holds: |seen| seen.code() == 54 && seen.nothing_stored(),
        },
        Entry {
            name: "versions: a pipeline of constants, as an ORM saves",
            rules: &[CHECK],
            stored: vec![doc! { "_id": 1, "x": 0, "version": 1 }],
            steps: vec![update(doc! { "_id": 1 }, vec![Bson::from(doc! { "$set": { "x": { "$literal": 5 } } })])],
            must: "it is done",
            holds: |seen| seen.code() == 0 && seen.one().get("x") == Some(&Bson::Int32(5)),
        },
    ]
}

const QUEUE: &str = "queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }";
const QUEUE_LIMITED: &str =
    "queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m, max_attempts: 3 }";

fn free_job() -> Document {
    doc! { "_id": 1, "locked": false, "tlocked": date(PAST), "try": 0 }
}

fn held_job(id: i32) -> Document {
    doc! { "_id": id, "locked": true, "tlocked": date(FUTURE), "try": 1 }
}

fn claim(locked: impl Into<Bson>, worker: &str) -> Step {
    find_and_modify(doc! { "_id": 1 }, doc! { "$set": { "locked": locked.into(), "by": worker } })
}

/// Values that a claim cannot count, so that it would not be the only one with its number.
fn uncountable() -> [(&'static str, Bson); 17] {
    [
        ("queue: a claim of a job whose attempts are NaN", f64::NAN.into()),
        ("queue: a claim of a job whose attempts are a decimal NaN", decimal("NaN")),
        ("queue: a claim of a job whose attempts are Infinity", f64::INFINITY.into()),
        ("queue: a claim of a job whose attempts are -Infinity", f64::NEG_INFINITY.into()),
        ("queue: a claim of a job whose attempts are a decimal Infinity", decimal("Infinity")),
        ("queue: a claim of a job whose attempts are a decimal -Infinity", decimal("-Infinity")),
        ("queue: a claim of a job whose attempts are a decimal too large to count", decimal("1E+40")),
        ("queue: a claim of a job whose attempts are a decimal too small to count", decimal("-1E+40")),
        ("queue: a claim of a job whose attempts are a double too large to count", 1e300.into()),
        ("queue: a claim of a job whose attempts are the largest long", i64::MAX.into()),
        ("queue: a claim of a job whose attempts are null", Bson::Null),
        ("queue: a claim of a job whose attempts are a text", "1".into()),
        ("queue: a claim of a job whose attempts are an array", vec![1].into()),
        ("queue: a claim of a job whose attempts are a document", doc! { "n": 1 }.into()),
        ("queue: a claim of a job whose attempts are a boolean", true.into()),
        ("queue: a claim of a job whose attempts are a date", date(PAST)),
        ("queue: a claim of a job whose attempts are the largest key", Bson::MaxKey),
    ]
}

/// A time of the server's clock that is far ahead.
const LASTING: Bson = Bson::Timestamp(bson::Timestamp { time: (FUTURE / 1000) as u32, increment: 1 });

fn queues() -> Vec<Entry> {
    let jobs =
        [QUEUE, QUEUE_LIMITED].into_iter().flat_map(|rule| uncountable().map(|(name, value)| (rule, name, value)));
    let uncounted = jobs.map(|(rule, name, value)| Entry {
        name,
        rules: if rule == QUEUE { &[QUEUE] } else { &[QUEUE_LIMITED] },
        stored: vec![doc! { "_id": 0, "locked": false, "tlocked": date(PAST), "try": value }, free_job()],
        steps: vec![find_and_modify(doc! {}, doc! { "$set": { "locked": true, "by": "w1" } })],
        must: "gets the next job",
        holds: |seen| seen.code() == 0 && !seen.one().contains_key("by") && seen.stored[1].contains_key("by"),
    });
    uncounted.chain(untimed()).chain(locks()).collect()
}

/// Jobs whose lock has a time that is none: docward must not leave them locked for ever.
fn untimed() -> impl Iterator<Item = Entry> {
    let times = [
        ("queue: a lock since NaN", f64::NAN.into()),
        ("queue: a lock since Infinity", f64::INFINITY.into()),
        ("queue: a lock since -Infinity", f64::NEG_INFINITY.into()),
        ("queue: a lock since a double beyond all times", 1e300.into()),
        ("queue: a lock since a decimal NaN", decimal("NaN")),
        ("queue: a lock since a decimal Infinity", decimal("Infinity")),
        ("queue: a lock since a decimal -Infinity", decimal("-Infinity")),
        ("queue: a lock since a decimal beyond all times", decimal("1E+40")),
        ("queue: a lock since a text", "x".into()),
        ("queue: a lock since an empty text", "".into()),
        ("queue: a lock since an array of times", vec![date(FUTURE)].into()),
        ("queue: a lock since an empty array", Bson::Array(Vec::new())),
        ("queue: a lock since a document", doc! { "at": date(FUTURE) }.into()),
        ("queue: a lock since the smallest key", Bson::MinKey),
        ("queue: a lock since the largest key", Bson::MaxKey),
        ("queue: a lock since null", Bson::Null),
        ("queue: a lock since a timestamp that is over", Bson::Timestamp(bson::Timestamp { time: 1, increment: 1 })),
        ("queue: a lock since a text with a time that is over", "2001-01-01T00:00:00Z".into()),
    ];
    times.into_iter().map(|(name, time): (_, Bson)| Entry {
        name,
        rules: &[QUEUE],
        stored: vec![doc! { "_id": 1, "locked": 1, "tlocked": time, "try": 1, "by": "w1" }],
        steps: vec![claim(true, "w2")],
        must: "the job is claimed",
        holds: |seen| is(seen, "by", "w2") && seen.one().get_datetime("tlocked").is_ok(),
    })
}

/// Claimed jobs whose `_id`s differ in letter case only.
fn named_jobs() -> Vec<Document> {
    ["a", "A"].map(|id| doc! { "_id": id, "locked": true, "tlocked": date(FUTURE), "try": 1 }).to_vec()
}

/// An update or delete of the job `a` that ignores letter case.
fn folded(mut statement: Document) -> Step {
    let (command, list) = if statement.contains_key("u") { ("update", "updates") } else { ("delete", "deletes") };
    statement.insert("q", doc! { "_id": "a", "try": 1 });
    statement.insert("collation", doc! { "locale": "en", "strength": 1 });
    plain(doc! { command: "c", list: [statement] })
}

fn locks() -> Vec<Entry> {
    let job = |worker: &str| doc! { "locked": true, "tlocked": date(PAST), "try": 0, "by": worker };
    vec![
        Entry {
            name: "queue: claims by locked: 1",
            rules: &[QUEUE],
            stored: vec![free_job()],
            steps: vec![claim(1, "w1"), claim(1, "w2")],
            must: "the second does not get the job",
            holds: |seen| !is(seen, "by", "w2"),
        },
        Entry {
            name: "queue: an upsert that is no claim",
            rules: &[QUEUE],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1, "locked": false }, doc! { "$set": { "note": 1 } })],
            must: "inserts a job with the fields of the lease, or is rejected",
            holds: |seen| {
                let complete = is(seen, "locked", false) && is(seen, "try", 0) && seen.one().contains_key("tlocked");
                complete || seen.nothing_stored() && seen.code() == 121
            },
        },
        Entry {
            name: "queue: claims by replacement with the attempt",
            rules: &[QUEUE],
            stored: vec![free_job()],
            steps: vec![update(doc! { "_id": 1, "try": 0 }, job("w1")), update(doc! { "_id": 1, "try": 0 }, job("w2"))],
            must: "not both get the job",
            holds: |seen| seen.replies.iter().filter(|reply| matches!(reply.get_i32("n"), Ok(1))).count() < 2,
        },
        Entry {
            name: "queue: jobs without attempts, under a limit of them",
            rules: &[QUEUE_LIMITED],
            stored: vec![doc! { "_id": 1, "kind": "mail" }],
            steps: vec![claim(true, "w1")],
            must: "can be claimed",
            holds: |seen| is(seen, "by", "w1"),
        },
        Entry {
            name: "queue: a claimed job is updated by an attempt that several have",
            rules: &[QUEUE],
            stored: vec![held_job(1), held_job(2)],
            steps: vec![many(doc! { "try": 1 }, doc! { "$set": { "done": true } })],
            must: "not every worker's job is changed",
            holds: |seen| seen.stored.iter().filter(|job| job.contains_key("done")).count() < 2,
        },
        Entry {
            name: "queue: claimed jobs are deleted by an attempt that several have",
            rules: &[QUEUE],
            stored: vec![held_job(1), held_job(2)],
            steps: vec![delete_many(doc! { "try": 1 })],
            must: "not every worker's job is deleted",
            holds: |seen| !seen.stored.is_empty(),
        },
        Entry {
            name: "queue: claimed jobs are updated by an _id that is equal to others in a collation",
            rules: &[QUEUE],
            stored: named_jobs(),
            steps: vec![folded(doc! { "u": { "$set": { "done": true } }, "multi": true })],
            must: "not every worker's job is changed",
            holds: |seen| seen.stored.iter().filter(|job| job.contains_key("done")).count() < 2,
        },
        Entry {
            name: "queue: claimed jobs are deleted by an _id that is equal to others in a collation",
            rules: &[QUEUE],
            stored: named_jobs(),
            steps: vec![folded(doc! { "limit": 0 })],
            must: "not every worker's job is deleted",
            holds: |seen| !seen.stored.is_empty(),
        },
        Entry {
            name: "queue: an epoch number as the time of a lease that lasts",
            rules: &[QUEUE],
            stored: vec![doc! { "_id": 1, "locked": true, "tlocked": FUTURE, "try": 1, "by": "w1" }],
            steps: vec![claim(true, "w2")],
            must: "the job is not claimed",
            holds: |seen| is(seen, "by", "w1"),
        },
        Entry {
            name: "queue: a timestamp as the time of a lease that lasts",
            rules: &[QUEUE],
            stored: vec![doc! { "_id": 1, "locked": true, "tlocked": LASTING, "try": 1, "by": "w1" }],
            steps: vec![claim(true, "w2")],
            must: "the job is not claimed",
            holds: |seen| is(seen, "by", "w1"),
        },
        Entry {
            name: "queue: an epoch number as the time of a lease that is over",
            rules: &[QUEUE],
            stored: vec![doc! { "_id": 1, "locked": true, "tlocked": PAST, "try": 1, "by": "w1" }],
            steps: vec![claim(true, "w2")],
            must: "the job is claimed",
            holds: |seen| is(seen, "by", "w2"),
        },
        Entry {
            name: "queue: an expired job whose attempts are bounded",
            rules: &[QUEUE, "bounds: { field: try, min: 0, max: 5 }"],
            stored: vec![doc! { "_id": 1, "locked": true, "tlocked": date(PAST), "try": 1 }],
            steps: vec![claim(true, "w2")],
            must: "can be claimed again",
            holds: |seen| is(seen, "by", "w2"),
        },
        Entry {
            name: "queue: a job saved by merge with its attempt",
            rules: &[MERGE, QUEUE],
            stored: vec![held_job(1)],
            steps: vec![update(
                doc! { "_id": 1, "try": 1 },
                doc! { "locked": false, "tlocked": date(FUTURE), "try": 1, "done": true },
            )],
            must: "it is done",
            holds: |seen| is(seen, "done", true),
        },
    ]
}

const TREE: &str = "tree: { path: path, parent: parent }";

fn nodes() -> Vec<Document> {
    vec![
        doc! { "_id": "a", "path": Bson::Null },
        doc! { "_id": "b", "parent": "a", "path": ",a," },
        doc! { "_id": "c", "parent": "b", "path": ",a,b," },
    ]
}

fn soon_a_duplicate(seen: &Seen) -> bool {
    seen.code() == 11000 && seen.took < Duration::from_secs(2)
}

fn trees() -> Vec<Entry> {
    vec![
        Entry {
            name: "tree: a retry of an upsert that inserted a document, with a limit",
            rules: &[TREE, "limits: { items: { messages: 5 } }"],
            stored: vec![],
            steps: vec![resent(upsert(doc! { "_id": 1 }, doc! { "$push": { "messages": 1 } }))],
            must: "does not report that a document matched",
            holds: |seen| seen.code() == 217 && is(seen, "messages", vec![1]),
        },
        Entry {
            name: "tree: a replacement with another _id",
            rules: &["tree: { path: path, parent: parent, on_delete: cascade }"],
            stored: vec![doc! { "_id": 1, "path": null }],
            steps: vec![find_and_modify(doc! {}, doc! { "_id": 6, "note": 1 })],
            must: "is the server's error",
            holds: |seen| seen.code() == 66 && seen.one().get("_id") == Some(&Bson::Int32(1)),
        },
        Entry {
            name: "tree: an upsert that collides with a stored node",
            rules: &[TREE],
            stored: nodes(),
            steps: vec![upsert(doc! { "_id": "b", "x": 5 }, doc! { "$set": { "y": 1 } })],
            must: "the server's 11000, at once",
            holds: soon_a_duplicate,
        },
        Entry {
            name: "tree: the same beside a version",
            rules: &[TREE, CHECK],
            stored: nodes(),
            steps: vec![upsert(doc! { "_id": "b", "x": 5 }, doc! { "$set": { "y": 1 } })],
            must: "the server's 11000, at once",
            holds: soon_a_duplicate,
        },
        Entry {
            name: "tree: the same beside bounds",
            rules: &[TREE, "bounds: { field: n, min: 0 }"],
            stored: nodes(),
            steps: vec![upsert(doc! { "_id": "b", "x": 5 }, doc! { "$set": { "y": 1 } })],
            must: "the server's 11000, at once",
            holds: soon_a_duplicate,
        },
        Entry {
            name: "tree: an upsert with its parent in a branch of $or",
            rules: &[TREE],
            stored: nodes(),
            steps: vec![upsert(doc! { "_id": "d", "$or": [{ "parent": "b" }] }, doc! { "$set": { "y": 1 } })],
            must: "the node gets the parent's path, or is not inserted",
            holds: |seen| seen.stored.get(3).is_none_or(|node| matches!(node.get_str("path"), Ok(",a,b,"))),
        },
        Entry {
            name: "tree: an upsert with its parent in $in",
            rules: &[TREE],
            stored: nodes(),
            steps: vec![upsert(doc! { "_id": "d", "parent": { "$in": ["b"] } }, doc! { "$set": { "y": 1 } })],
            must: "the node gets the parent's path, or is not inserted",
            holds: |seen| seen.stored.get(3).is_none_or(|node| matches!(node.get_str("path"), Ok(",a,b,"))),
        },
        Entry {
            name: "tree: a replacing upsert whose filter has a parent that the document has not",
            rules: &[TREE],
            stored: nodes(),
            steps: vec![upsert(doc! { "_id": "d", "parent": "x" }, doc! { "y": 1 })],
            must: "inserts a root, as the server does",
            holds: |seen| seen.stored.len() == 4,
        },
        Entry {
            name: "tree: an upsert pins a field in the parent",
            rules: &[TREE],
            stored: nodes(),
            steps: vec![upsert(doc! { "_id": "d", "parent.x": 1 }, doc! { "$set": { "y": 1 } })],
            must: "inserts no node whose parent is none",
            holds: |seen| seen.stored.len() == 3,
        },
        Entry {
            name: "tree: a late move that would close a circle",
            rules: &[TREE, "timestamps: { source: at, fields: [parent] }"],
            stored: vec![
                doc! { "_id": "a", "path": Bson::Null, "last_modified": { "parent": date(PAST + 1000) } },
                doc! { "_id": "b", "parent": "a", "path": ",a," },
            ],
            steps: vec![update(doc! { "_id": "a" }, doc! { "$set": { "parent": "b", "at": date(PAST) } })],
            must: "is ignored, not rejected",
            holds: |seen| seen.code() == 0 && !seen.one().contains_key("parent"),
        },
    ]
}

const BOUNDS: &str = "bounds: { field: n, min: 0, max: 10 }";
const BOUNDS_INSIDE: &str = "bounds: { field: a.n, min: 0, max: 10 }";

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

fn bounds() -> Vec<Entry> {
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

const TOGETHER: &str = "together: [a, b]";
const TOGETHER_INSIDE: &str = "together: [a.n, b]";

fn together() -> Vec<Entry> {
    let pinned = |name, filter: Document| Entry {
        name,
        rules: &[TOGETHER],
        stored: vec![],
        steps: vec![upsert(filter, doc! { "$set": { "x": 1 } })],
        must: "no document has one of them only",
        holds: Seen::nothing_stored,
    };
    vec![
        Entry {
            name: "together: an upsert by equal branches",
            rules: &["together: [sku, b, note]"],
            stored: vec![],
            steps: vec![upsert(doc! { "$or": [{ "note": 1 }, { "note": 1 }] }, doc! { "$set": { "x": 1 } })],
            must: "is rejected, because servers differ in what they insert",
            holds: |seen| seen.code() == 121 && format!("{}", seen.last()).contains("depending on the server"),
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
            must: "is rejected with a reason, not by the server (40)",
            holds: |seen| seen.code() == 121 && seen.stored.is_empty(),
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

const BUCKET: &str = "bucket: { array: messages, count: count, limit: 3 }";

fn counts_are_true(seen: &Seen) -> bool {
    seen.stored.iter().all(|bucket| {
        let length = bucket.get_array("messages").map_or(0, Vec::len);
        bucket.get("count").map_or(Some(0.0), as_number) == Some(length as f64)
    })
}

fn buckets() -> Vec<Entry> {
    vec![
        Entry {
            name: "bucket: an insert with a duplicate key of a unique index",
            rules: &[BUCKET],
            stored: vec![doc! { "_id": 1, "note": 5 }],
            steps: vec![
                plain(doc! {
                    "createIndexes": "c",
                    "indexes": [{ "key": { "note": 1 }, "name": "note", "unique": true }],
                }),
                insert(vec![doc! { "_id": 2, "note": 5 }]),
            ],
            must: "has the server's error: it opens no bucket",
            holds: |seen| seen.code() == 11000 && seen.stored.len() == 1,
        },
        Entry {
            name: "bucket: a push whose filter pins a version that is not stored any more",
            rules: &[CHECK, BUCKET],
            stored: vec![doc! { "_id": 1, "sku": "x", "version": 4, "messages": [1], "count": 1 }],
            steps: vec![update(doc! { "sku": "x", "version": 3 }, doc! { "$push": { "messages": 2 } })],
            must: "n is 0, and no bucket is opened",
            holds: |seen| seen.code() == 0 && seen.n() == 0 && seen.stored.len() == 1,
        },
        Entry {
            name: "bucket: a push whose filter pins the stored version",
            rules: &[CHECK, BUCKET],
            stored: vec![doc! { "_id": 1, "sku": "x", "version": 4, "messages": [1], "count": 1 }],
            steps: vec![update(doc! { "sku": "x", "version": 4 }, doc! { "$push": { "messages": 2 } })],
            must: "it is pushed and counted",
            holds: |seen| seen.n() == 1 && is(seen, "count", 2) && is(seen, "version", 5),
        },
        Entry {
            name: "bucket: an upsert that gives the true count as a decimal",
            rules: &[BUCKET],
            stored: vec![],
            steps: vec![upsert(doc! { "sku": "x" }, doc! { "$setOnInsert": { "count": decimal("0E-8") } })],
            must: "it is inserted",
            holds: |seen| seen.code() == 0 && seen.stored.len() == 1,
        },
        Entry {
            name: "bucket: an upsert that pins a field below the count",
            rules: &[BUCKET],
            stored: vec![],
            steps: vec![upsert(doc! { "$or": [{ "count.x": 1 }] }, doc! { "$push": { "messages": 1 } })],
            must: "it is rejected by docward, not by the server (14)",
            holds: |seen| seen.code() != 0 && seen.code() != 14 && seen.stored.is_empty(),
        },
        Entry {
            name: "bucket: an upsert that is no push",
            rules: &[BUCKET],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1 }, doc! { "$set": { "note": 1 } })],
            must: "inserts a document whose count is true",
            holds: |seen| seen.stored.len() == 1 && counts_are_true(seen),
        },
        Entry {
            name: "bucket: an upsert that renames a field to the time of its opening",
            rules: &["bucket: { array: messages, count: count, limit: 3, opened: opened }"],
            stored: vec![],
            steps: vec![upsert(doc! { "_id": 1 }, doc! { "$rename": { "sku": "opened" }, "$set": { "note": 1 } })],
            must: "inserts a document whose count is true",
            holds: |seen| seen.code() == 0 && seen.stored.len() == 1 && counts_are_true(seen),
        },
        Entry {
            name: "bucket: a push whose filter pins the count",
            rules: &[BUCKET],
            stored: vec![],
            steps: vec![update(doc! { "owner": "x", "count": 2 }, doc! { "$push": { "messages": 1 } })],
            must: "the count is the array's length",
            holds: counts_are_true,
        },
        Entry {
            name: "bucket: a push whose filter pins the array",
            rules: &[BUCKET],
            stored: vec![],
            steps: vec![update(doc! { "owner": "x", "messages": [1, 2] }, doc! { "$push": { "messages": 1 } })],
            must: "the count is the array's length",
            holds: counts_are_true,
        },
        Entry {
            name: "bucket: a push whose filter pins the count in a branch of $or",
            rules: &[BUCKET],
            stored: vec![],
            steps: vec![update(doc! { "owner": "x", "$or": [{ "count": 2 }] }, doc! { "$push": { "messages": 1 } })],
            must: "the count is the array's length",
            holds: counts_are_true,
        },
        Entry {
            name: "bucket: a push without upsert whose filter cannot be inserted",
            rules: &[BUCKET],
            stored: vec![],
            steps: vec![update(doc! { "owner": { "$all": ["x", "y"] } }, doc! { "$push": { "messages": 1 } })],
            must: "no error of an upsert that the client did not request",
            holds: |seen| ![2, 54, 224].contains(&seen.code()),
        },
        Entry {
            name: "bucket: a push without upsert by a dotted path and what is around it",
            rules: &[BUCKET],
            stored: vec![],
            steps: vec![update(doc! { "o": 1, "o.n": 1 }, doc! { "$push": { "messages": 1 } })],
            must: "no error of an upsert that the client did not request",
            holds: |seen| ![2, 54, 224].contains(&seen.code()),
        },
        Entry {
            name: "bucket: a push without upsert by an owner and texts that a collation makes one",
            rules: &[BUCKET],
            stored: vec![],
            steps: vec![plain(doc! { "update": "c", "updates": [{
                "q": { "$and": [{ "owner": "x" }, { "owner": { "$in": ["x", "X"] } }] },
                "u": { "$push": { "messages": 1 } },
                "collation": { "locale": "en", "strength": 2 },
            }] })],
            must: "no error of an upsert that the client did not request",
            holds: |seen| seen.code() == 0 && seen.n() == 0 && seen.nothing_stored(),
        },
        Entry {
            name: "bucket: a push without upsert by an owner, and by the same in the only branch of $or that can match",
            rules: &[BUCKET],
            stored: vec![],
            steps: vec![update(
                doc! { "owner": "x", "$or": [{ "zq": { "$all": [] } }, { "owner": "x" }] },
                doc! { "$push": { "messages": 1 } },
            )],
            must: "no error of an upsert that the client did not request",
            holds: |seen| seen.code() == 0 && seen.n() == 0 && seen.nothing_stored(),
        },
        Entry {
            name: "bucket: a push by an owner and one of several",
            rules: &[BUCKET],
            stored: vec![],
            steps: vec![update(
                doc! { "$and": [{ "owner": "x" }, { "owner": { "$in": ["x", "X"] } }] },
                doc! { "$push": { "messages": 1 } },
            )],
            must: "opens a bucket",
            holds: |seen| is(seen, "owner", "x") && is(seen, "count", 1),
        },
    ]
}

fn others() -> Vec<Entry> {
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

/// Attempts of a transaction.
const ATTEMPTS: usize = 3;

fn is_transient(reply: &Document) -> bool {
    let labels = reply.get_array("errorLabels").into_iter().flatten();
    labels.filter_map(Bson::as_str).any(|label| label == "TransientTransactionError")
}

/// Sends a step in a session of its own; the replies to it, and to the commit.
fn send(through: &mut Client, collection: &str, step: &Step) -> Vec<Document> {
    let mut command = step.to(collection);
    let mut replies = Vec::new();
    let session = doc! { "lsid": super::lab::fresh_session(), "txnNumber": 1_i64 };
    if step.session != Session::None {
        command.extend(session.clone());
    }
    if step.session.in_transaction() {
        command.extend(doc! { "autocommit": false, "startTransaction": true });
    }
    if step.session == Session::Resent {
        replies.push(through.command(PROTECTED, command.clone()));
    }
    let mut reply = through.try_command(PROTECTED, command, TIMEOUT).unwrap_or_default();
    for name in ["$clusterTime", "operationTime", "electionId", "opTime"] {
        reply.remove(name);
    }
    replies.push(reply);
    if step.session.in_transaction() {
        let mut end = doc! { "commitTransaction": 1, "autocommit": false };
        end.extend(session);
        replies.push(through.command("admin", end));
    }
    replies
}

/// Runs an entry on its collection; docward has loaded its rules.
fn run(entry: &Entry, collection: &str, docward: &Docward) -> Seen {
    let mut direct = Client::connect(&server().address());
    let mut through = Client::connect(&docward.address());
    // A transaction cannot use a collection that a majority does not have yet.
    let majority = doc! { "w": "majority" };
    direct.command(PROTECTED, doc! { "create": collection, "writeConcern": &majority });
    if !entry.stored.is_empty() {
        let insert = doc! { "insert": collection, "documents": entry.stored.clone(), "writeConcern": majority };
        let reply = direct.command(PROTECTED, insert);
        assert!(ok(&reply), "{reply}");
    }
    let (mut replies, mut took) = (Vec::new(), Duration::ZERO);
    for step in &entry.steps {
        let began = Instant::now();
        let mut received = send(&mut through, collection, step);
        // As drivers do: the server may abort a transaction for a reason of its own. An error of docward comes again.
        for _ in 1..ATTEMPTS {
            if received.iter().any(is_transient) {
                received = send(&mut through, collection, step);
            }
        }
        replies.extend(received);
        took = took.max(began.elapsed());
    }
    let reply = direct.command(PROTECTED, doc! { "find": collection, "sort": { "_id": 1 } });
    let stored = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let stored = stored.iter().map(|document| document.as_document().unwrap().clone()).collect();
    Seen { replies, stored, took }
}

/// A rule file with a collection for each entry. Omits rule sets that docward refuses to load together.
fn rule_file(entries: &[Entry]) -> String {
    let mut yaml = "version: 1\nrules:\n".to_owned();
    for (index, entry) in entries.iter().enumerate() {
        for (number, settings) in entry.rules.iter().enumerate() {
            let settings = settings.replace("COLLECTION", &format!("k{index}"));
            yaml += &format!("  - {{ name: k{index}-{number}, namespace: protected.k{index}, {settings} }}\n");
        }
    }
    yaml
}

/// Checks that docward loads the rules of an entry; otherwise it would test nothing.
fn assert_loads(entry: &Entry) {
    let settings: Vec<String> = entry.rules.iter().map(|settings| settings.replace("COLLECTION", "k")).collect();
    assert!(can_load(&settings), "{}: docward does not load {settings:?}", entry.name);
}

/// The names of the entries that fail, with their results.
pub(super) fn failures() -> Vec<(&'static str, String)> {
    let entries: Vec<Entry> = entries();
    entries.iter().for_each(assert_loads);
    let docward = Docward::before(&server().uri()).rules(&rule_file(&entries)).environment("RUST_LOG", "error").start();
    let tried = entries.iter().enumerate().map(|(index, entry)| {
        let seen = run(entry, &format!("k{index}"), &docward);
        (entry, seen)
    });
    let failed = tried.filter(|(entry, seen)| !(entry.holds)(seen));
    failed.map(|(entry, seen)| (entry.name, described(entry, &seen))).collect()
}

fn described(entry: &Entry, seen: &Seen) -> String {
    let steps: String = entry.steps.iter().map(|step| format!("\n    {}", show::document(&step.to("c")))).collect();
    let replies = show::documents(&seen.replies);
    format!(
        "{}\n  must hold: {}\n  rules:\n    {}\n  stored before:{}\n  commands:{steps}\n  replies:{replies}\n  stored after:{}\n",
        entry.name,
        entry.must,
        entry.rules.join("\n    "),
        show::documents(&entry.stored),
        show::documents(&seen.stored)
    )
}

/// Whether the entry is listed as failing.
pub(super) fn is_known(name: &str) -> bool {
    FAILING.contains(&name)
}

pub(super) fn known() -> &'static [&'static str] {
    FAILING
}
