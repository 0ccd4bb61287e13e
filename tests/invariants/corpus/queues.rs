//! Claims, saves and locks of `queue` jobs.

use super::*;

const QUEUE_LIMITED: &str =
    "queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m, max_attempts: 3 }";

fn free_job() -> Document {
    doc! { "_id": 1, "locked": false, "tlocked": date(PAST), "try": 0 }
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

pub(super) fn entries() -> Vec<Entry> {
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
    uncounted.chain(untimed()).chain(invalid_claims()).chain(locks()).collect()
}

/// Claims whose filter the server rejects.
fn invalid_claims() -> impl Iterator<Item = Entry> {
    let set = || doc! { "$set": { "locked": true } };
    [
        ("queue: a claim with a number in $and", doc! { "$and": [5] }),
        ("queue: a claim with a text as $and", doc! { "$and": "x" }),
        ("queue: a claim with an empty $and", doc! { "kind": "mail", "$and": [] }),
    ]
    .into_iter()
    .map(move |(name, filter)| Entry {
        name,
        rules: &[QUEUE],
        stored: vec![free_job()],
        steps: vec![find_and_modify(filter, set())],
        must: "fails as it does without a rule",
        holds: |seen| seen.code() == 2 && is(seen, "locked", false),
    })
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
