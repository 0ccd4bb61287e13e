//! Messages as drivers send them, and rule sets of any size: what both benchmarks feed on.
//!
//! Built with the `bson` crate and no code of docward's, so that a benchmark cannot measure its own
//! preparations. Next: `messages.rs` judges them, `compare/load.rs` sends them.

#![allow(dead_code, reason = "each benchmark compiles its own copy and uses its part")]

use bson::{Document, doc};

const OP_MSG: i32 = 2013;
/// Source time of the stamped writes; `compare/load.rs` counts it up in place, so that no write is stale.
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

/// The fields drivers put behind every command: a session, the cluster's time, the database.
fn driver_fields() -> Document {
    let id = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![7; 16] };
    doc! { "lsid": { "id": id }, "$db": "bench" }
}

fn command(mut body: Document) -> Document {
    body.extend(driver_fields());
    body
}

/// A find by `_id`.
pub(crate) fn find(collection: &str, id: i64) -> Vec<u8> {
    let body = doc! { "find": collection, "filter": { "_id": id }, "limit": 1, "singleBatch": true };
    message(&command(body), "", &[])
}

/// A find that the canned upstream answers with a document of about this many bytes.
pub(crate) fn find_much(length: usize) -> Vec<u8> {
    find(&format!("{MUCH}{length}"), 1)
}

const MUCH: &str = "bytes_";

/// How much the find that begins so asks for.
pub(crate) fn length_wanted(head: &[u8]) -> Option<usize> {
    let at = head.windows(MUCH.len()).position(|part| part == MUCH.as_bytes())?;
    let digits = head[at + MUCH.len()..].split(|byte| *byte == 0).next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// A delete by `_id`.
pub(crate) fn delete(collection: &str, id: i64) -> Vec<u8> {
    message(
        &command(doc! { "delete": collection, "ordered": true }),
        "deletes",
        &[doc! { "q": { "_id": id }, "limit": 1 }],
    )
}

/// An application's own way to the next number.
pub(crate) fn next_number(counter: &str) -> Vec<u8> {
    let body = doc! {
        "findAndModify": "counters", "query": { "_id": counter }, "update": { "$inc": { "seq": 1i64 } }, "new": true,
        "upsert": true,
    };
    message(&command(body), "", &[])
}

/// An insert of one document of about this many bytes; the server makes its `_id`.
pub(crate) fn insert(collection: &str, length: usize) -> Vec<u8> {
    let document = doc! { "name": "a device in the hall", "kind": 3, "note": "x".repeat(length) };
    message(&command(doc! { "insert": collection, "ordered": true }), "documents", &[document])
}

/// Update statements on consecutive `_id`s from `id` on.
pub(crate) fn update(collection: &str, id: i64, count: usize, change: &Document) -> Vec<u8> {
    let statement = |offset| doc! { "q": { "_id": id + offset as i64 }, "u": change.clone(), "multi": false };
    let statements: Vec<Document> = (0..count).map(statement).collect();
    message(&command(doc! { "update": collection, "ordered": true }), "updates", &statements)
}

/// A device's state: four fields and the source's own time.
pub(crate) fn state() -> Document {
    let at = bson::DateTime::from_millis(TICK);
    doc! { "$set": { "temperature": 21.5, "humidity": 40, "door": "shut", "battery": 87, "published_at": at } }
}

/// One taken from what there is.
pub(crate) fn taken() -> Document {
    doc! { "$inc": { "available": -1 } }
}

/// A whole document with the version it was read at.
pub(crate) fn versioned() -> Document {
    doc! { "status": "paid", "total": 1299, "customer": { "name": "Ada", "city": "London" }, "version": 3 }
}

/// Rules for collections that no message of the benchmarks names: names, and one glob in ten.
pub(crate) fn unrelated_rules(count: usize) -> String {
    let rule = |n: usize| {
        let star = if n % 10 == 9 { "_*" } else { "" };
        format!(
            "  - {{ name: unrelated-{n}, namespace: shop.orders_{n}{star}, replacement: {{ unguarded: reject }} }}\n"
        )
    };
    rules_file((0..count).map(rule).collect())
}

/// The rules the benchmarks' rewritten statements meet, each for the collection of its name.
pub(crate) fn guards() -> String {
    rules_file(
        [
            "stamped, timestamps: { source: published_at }",
            "newest, timestamps: { source: published_at, per: document }",
            "versioned, replacement: { unguarded: guard, guard: version }",
            "bounded, bounds: { field: available, min: 0 }",
            "refused, replacement: { unguarded: reject }",
            "numbered, sequence: { field: order_no, counter: order_no, block: 100 }",
        ]
        .map(|rule| {
            let (collection, pattern) = rule.split_once(", ").unwrap_or((rule, ""));
            format!("  - {{ name: {collection}, namespace: bench.{collection}, {pattern} }}\n")
        })
        .concat(),
    )
}

fn rules_file(rules: String) -> String {
    if rules.is_empty() { String::new() } else { format!("version: 1\nrules:\n{rules}") }
}
