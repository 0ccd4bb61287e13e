//! Cases that once broke a promise, each with its expected result. `FAILING` lists those that still break one.

mod bounds;
mod buckets;
mod compositions;
mod copies;
mod counting;
mod dropped_branches;
mod limits;
mod optimistic;
mod others;
mod pinned_arrays;
mod positions;
mod queues;
mod replacements;
mod schema_versions;
mod sequences;
mod timestamps;
mod together;
mod trees;
mod two_rules;
mod unusual;
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
        bounds::entries(),
        buckets::entries(),
        compositions::entries(),
        copies::entries(),
        counting::entries(),
        dropped_branches::entries(),
        limits::entries(),
        optimistic::entries(),
        others::entries(),
        pinned_arrays::entries(),
        positions::entries(),
        queues::entries(),
        replacements::entries(),
        schema_versions::entries(),
        sequences::entries(),
        timestamps::entries(),
        together::entries(),
        trees::entries(),
        two_rules::entries(),
        unusual::entries(),
        upserted::entries(),
        upserts::entries(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

const SEQUENCE: &str = "sequence: { field: no, counter: COLLECTION, collection: counters }";
const SEQUENCE_UPSERT: &str = "sequence: { field: no, counter: COLLECTION, collection: counters, on_upsert: true }";
const SEQUENCE_INSIDE: &str = "sequence: { field: a.n, counter: COLLECTION, collection: counters, on_upsert: true }";

/// mongod replaces an empty timestamp when a document is inserted or replaced.
const EMPTY: Bson = Bson::Timestamp(bson::Timestamp { time: 0, increment: 0 });

fn has_time(seen: &Seen) -> bool {
    matches!(seen.one().get("note"), Some(Bson::Timestamp(stored)) if stored.time > 0)
}

const REJECT: &str = "replacement: { policy: reject }";
const MERGE: &str = "replacement: { policy: merge }";
const CHECK: &str = "replacement: { policy: check_version, version: version }";
const VERSIONED: &str = "replacement: { policy: check_version, version: v }";

const QUEUE: &str = "queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m }";

fn held_job(id: i32) -> Document {
    doc! { "_id": id, "locked": true, "tlocked": date(FUTURE), "try": 1 }
}

fn claim(locked: impl Into<Bson>, worker: &str) -> Step {
    find_and_modify(doc! { "_id": 1 }, doc! { "$set": { "locked": locked.into(), "by": worker } })
}

const TREE: &str = "tree: { path: path, parent: parent }";

fn nodes() -> Vec<Document> {
    vec![
        doc! { "_id": "a", "path": Bson::Null },
        doc! { "_id": "b", "parent": "a", "path": ",a," },
        doc! { "_id": "c", "parent": "b", "path": ",a,b," },
    ]
}

const BOUNDS: &str = "bounds: { field: n, min: 0, max: 10 }";

const TOGETHER: &str = "together: [a, b]";

const BUCKET: &str = "bucket: { array: messages, count: count, limit: 3 }";
const COPIES: &str = "copies: [{ into: protected.COLLECTION, key: f.id, fields: { n: f.n } }]";
const BUCKET_INSIDE: &str = "bucket: { array: messages, count: meta.n, limit: 3, opened: meta.at }";

fn counts_are_true(seen: &Seen) -> bool {
    seen.stored.iter().all(|bucket| {
        let length = bucket.get_array("messages").map_or(0, Vec::len);
        bucket.get("count").map_or(Some(0.0), as_number) == Some(length as f64)
    })
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
