//! Messages as drivers send them, and rule sets of any size, for all benchmarks.
//!
//! Built with the `bson` crate and none of docward's code, so that a benchmark does not measure its own preparation.
//! `messages.rs` evaluates them, `compare/load.rs` sends them.

#![allow(dead_code, reason = "each benchmark compiles its own copy and uses its part")]

use bson::{Document, doc};

const OP_MSG: i32 = 2013;
/// Source time of the timestamped writes; `compare/cycle.rs` increments it in place, so that no write is stale.
pub(crate) const TICK: i64 = 0x0000_0190_5EED_5EED;

/// An OP_MSG: its body, and one document sequence unless `list` is empty.
pub(crate) fn message(body: &Document, list: &str, documents: &[Document]) -> Vec<u8> {
    let mut out = header(0);
    out.push(0);
    out.extend(bytes(body));
    if !list.is_empty() {
        let documents: Vec<u8> = documents.iter().flat_map(bytes).collect();
        out.push(1);
        out.extend(((4 + list.len() + 1 + documents.len()) as u32).to_le_bytes());
        out.extend(list.as_bytes());
        out.push(0);
        out.extend(documents);
    }
    finished(out)
}

/// A reply of one body to request `response_to`.
pub(crate) fn reply(response_to: i32, body: &Document) -> Vec<u8> {
    let mut out = header(response_to);
    out.push(0);
    out.extend(bytes(body));
    finished(out)
}

fn header(response_to: i32) -> Vec<u8> {
    let mut out = vec![0; 4];
    [1, response_to, OP_MSG, 0].iter().for_each(|field| out.extend(field.to_le_bytes()));
    out
}

fn finished(mut message: Vec<u8>) -> Vec<u8> {
    let length = (message.len() as u32).to_le_bytes();
    message[..4].copy_from_slice(&length);
    message
}

fn bytes(document: &Document) -> Vec<u8> {
    document.to_vec().expect("the benchmarks' own documents are valid")
}

/// The session in which a write is sent.
#[derive(Clone, Copy)]
pub(crate) enum Session {
    /// In one session for all connections; the server does not detect a repeated write in it.
    Shared,
    /// In the session with this id, which no other connection uses, as a retryable write: the default of drivers on a
    /// replica set. The sender increments [`TICK`] in place, so that each message is a new write.
    Own(u128),
}

/// A command with the fields that drivers append: session and database.
fn command(body: Document) -> Document {
    command_in(Session::Shared, body)
}

fn command_in(session: Session, mut body: Document) -> Document {
    let (id, number) = match session {
        Session::Shared => ([7; 16], None),
        Session::Own(id) => (id.to_be_bytes(), Some(TICK)),
    };
    let id = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: id.to_vec() };
    body.insert("lsid", doc! { "id": id });
    body.extend(number.map(|number| ("txnNumber".to_owned(), number.into())));
    body.insert("$db", "bench");
    body
}

/// `name` is `insert`, `update` or `delete`.
fn write(session: Session, name: &str, collection: &str, statements: &[Document]) -> Vec<u8> {
    let list = if name == "insert" { "documents".to_owned() } else { format!("{name}s") };
    message(&command_in(session, doc! { name: collection, "ordered": true }), &list, statements)
}

/// A find by `_id`.
pub(crate) fn find(collection: &str, id: i64) -> Vec<u8> {
    let body = doc! { "find": collection, "filter": { "_id": id }, "limit": 1, "singleBatch": true };
    message(&command(body), "", &[])
}

/// A find that the canned upstream answers with a document of about this size.
pub(crate) fn find_much(length: usize) -> Vec<u8> {
    find(&format!("{MUCH}{length}"), 1)
}

const MUCH: &str = "bytes_";

/// The size that such a find asks for.
pub(crate) fn length_wanted(head: &[u8]) -> Option<usize> {
    let at = head.windows(MUCH.len()).position(|part| part == MUCH.as_bytes())?;
    let digits = head[at + MUCH.len()..].split(|byte| *byte == 0).next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// A delete by `_id`.
pub(crate) fn delete(collection: &str, id: i64) -> Vec<u8> {
    write(Session::Shared, "delete", collection, &[doc! { "q": { "_id": id }, "limit": 1 }])
}

/// The statement with which an application increments a counter itself.
pub(crate) fn next_number(session: Session, counter: &str) -> Vec<u8> {
    let body = doc! {
        "findAndModify": "counters", "query": { "_id": counter }, "update": { "$inc": { "seq": 1i64 } }, "new": true,
        "upsert": true,
    };
    message(&command_in(session, body), "", &[])
}

/// An insert of one document of about this size; the server generates its `_id`.
pub(crate) fn insert(collection: &str, length: usize) -> Vec<u8> {
    insert_in(Session::Shared, collection, length)
}

/// The same in a session.
pub(crate) fn insert_in(session: Session, collection: &str, length: usize) -> Vec<u8> {
    let document = doc! { "name": "a device in the hall", "kind": 3, "note": "x".repeat(length) };
    write(session, "insert", collection, &[document])
}

/// An insert of this document.
pub(crate) fn insert_document(collection: &str, document: Document) -> Vec<u8> {
    write(Session::Shared, "insert", collection, &[document])
}

/// One update statement.
pub(crate) fn update_where(collection: &str, filter: Document, change: Document) -> Vec<u8> {
    let statement = doc! { "q": filter, "u": change, "multi": false };
    write(Session::Shared, "update", collection, &[statement])
}

/// A worker's claim of a job.
pub(crate) fn claim(collection: &str) -> Vec<u8> {
    let body = doc! {
        "findAndModify": collection, "query": { "kind": "mail" }, "update": { "$set": { "locked": true, "by": "w1" } },
        "new": true,
    };
    message(&command(body), "", &[])
}

/// A delete of everything.
pub(crate) fn delete_all(collection: &str) -> Vec<u8> {
    write(Session::Shared, "delete", collection, &[doc! { "q": {}, "limit": 0 }])
}

/// A drop of the collection.
pub(crate) fn drop_collection(collection: &str) -> Vec<u8> {
    message(&command(doc! { "drop": collection }), "", &[])
}

/// Update statements on consecutive `_id`s, starting with `id`.
pub(crate) fn update(collection: &str, id: i64, count: usize, change: &Document) -> Vec<u8> {
    let statement = |offset| doc! { "q": { "_id": id + offset as i64 }, "u": change.clone(), "multi": false };
    let statements: Vec<Document> = (0..count).map(statement).collect();
    write(Session::Shared, "update", collection, &statements)
}

/// A device's state: four fields and the source time.
pub(crate) fn state() -> Document {
    let at = bson::DateTime::from_millis(TICK);
    doc! { "$set": { "temperature": 21.5, "humidity": 40, "lock": "shut", "battery": 87, "published_at": at } }
}

/// Takes one item from the stock.
pub(crate) fn taken() -> Document {
    doc! { "$inc": { "available": -1 } }
}

/// A whole document with the version that the application read.
pub(crate) fn versioned() -> Document {
    doc! { "status": "paid", "total": 1299, "customer": { "name": "Ada", "city": "London" }, "version": 3 }
}

/// Rules for collections that the messages do not name: nine exact names for each glob.
pub(crate) fn unrelated_rules(count: usize) -> String {
    let rule = |n: usize| {
        let star = if n % 10 == 9 { "_*" } else { "" };
        format!("  - {{ name: unrelated-{n}, namespace: shop.orders_{n}{star}, replacement: {{ policy: reject }} }}\n")
    };
    rules_file((0..count).map(rule).collect())
}

/// The rules for the benchmarks' rewritten statements, each for the collection of the same name.
pub(crate) fn rewriting_rules() -> String {
    rules_each_of([
        "timestamped, timestamps: { source: published_at }",
        "newest, timestamps: { source: published_at, per: document }",
        "versioned, replacement: { policy: check_version, version: version }",
        "bounded, bounds: { field: available, min: 0 }",
        "refused, replacement: { policy: reject }",
        "numbered, sequence: { field: order_no, counter: order_no, block: 100 }",
    ])
}

/// One rule for each other pattern that evaluates statements.
pub(crate) fn other_rules() -> String {
    rules_each_of([
        "merged, replacement: { policy: merge }",
        "paired, together: [available, lent]",
        "jobs, queue: { fields: { locked: locked, locked_at: since, attempts: attempts }, lease: 5m }",
        "inbox, bucket: { array: messages, count: count, limit: 100, opened: time }",
        "limited, defaults: { maxTimeMS: 60000 }",
        "kept, deny: { operations: [delete], when: { filter: empty } }",
        "people, copies: [{ into: bench.people, key: friend.id, fields: { name: friend.name } }]",
        "nodes, tree: { path: path, parent: parent }",
        "small, limits: { items: { events: 1000 } }",
        "migrated, schema_version: { field: schema, current: 3, minimum: 2 }",
    ])
}

/// One rule for each pattern on whole documents or collections.
pub(crate) fn whole_rules() -> String {
    rules_each_of([
        "short, limits: { document: 1MiB }",
        "audited, history: { into: audited_history, keep: 90d }",
        "standing, deny: { operations: [drop] }",
    ])
}

/// A rule that limits clients: with it, docward searches the rules of each evaluated message for limits.
pub(crate) fn limiting_rules() -> String {
    rules_each_of(["shared, throttle: { concurrent: 50, per: app }"])
}

fn rules_each_of<const COUNT: usize>(rules: [&str; COUNT]) -> String {
    let rule = |rule: &str| {
        let (collection, pattern) = rule.split_once(", ").unwrap_or((rule, ""));
        format!("  - {{ name: {collection}, namespace: bench.{collection}, {pattern} }}\n")
    };
    rules_file(rules.map(rule).concat())
}

fn rules_file(rules: String) -> String {
    if rules.is_empty() { String::new() } else { format!("version: 1\nrules:\n{rules}") }
}
