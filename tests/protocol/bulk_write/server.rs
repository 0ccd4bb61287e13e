//! The scripted 8.0 server of the bulkWrite tests: its hello, and its replies to bulkWrite and getMore, which follow
//! MongoDB's documentation and source. It has no rules.

use bson::{Bson, DateTime, Document, doc};

use support::frame::{MORE_TO_COME, Message};
use support::scripted::{Peer, reply_to};

/// Filters that check a version match only a document with this one.
pub(super) const STORED_VERSION: i32 = 1;

/// An 8.0 server with one fixed answer to each op. An insert inserts. An update matches, unless its filter asks for
/// another version than the stored one, or for `taken`, which is a duplicate key. A find returns the stored document.
pub(super) fn server(batch_size: usize) -> Peer {
    let mut rest: Vec<Document> = Vec::new();
    Peer::with_hello(hello(), move |request| {
        let message = Message::parse(&request);
        if message.flags & MORE_TO_COME != 0 {
            return vec![];
        }
        let reply = match message.body().keys().next().unwrap().as_str() {
            "bulkWrite" if let Some(error) = failure(&message) => error,
            "bulkWrite" => {
                let (counts, mut results) = run(&message);
                rest = results.split_off(results.len().min(batch_size));
                let mut reply = doc! { "cursor": cursor(&rest, "firstBatch", results) };
                reply.extend(counts);
                reply.extend(doc! { "ok": 1.0, "operationTime": bson::Timestamp { time: 5, increment: 1 } });
                reply
            }
            "getMore" => {
                let mut results = std::mem::take(&mut rest);
                rest = results.split_off(results.len().min(batch_size));
                doc! { "cursor": cursor(&rest, "nextBatch", results), "ok": 1.0 }
            }
            "find" => {
                let stored = doc! { "_id": 1, "version": STORED_VERSION };
                doc! { "cursor": { "id": 0i64, "ns": "shop.any", "firstBatch": [stored] }, "ok": 1.0 }
            }
            _ => doc! { "ok": 1.0 },
        };
        vec![reply_to(&request, reply)]
    })
}

fn hello() -> Document {
    doc! {
        "helloOk": true, "isWritablePrimary": true, "ismaster": true, "maxBsonObjectSize": 16 * 1024 * 1024,
        "maxMessageSizeBytes": 48_000_000, "maxWriteBatchSize": 100_000, "localTime": DateTime::now(),
        "logicalSessionTimeoutMinutes": 30, "connectionId": 1, "minWireVersion": 0, "maxWireVersion": 25,
        "readOnly": false, "ok": 1.0,
    }
}

/// The error that an op asks for with its filter: the whole command fails.
pub(super) fn failure(message: &Message) -> Option<Document> {
    let ops = message.documents("ops");
    let mut error = ops.iter().find_map(|op| op.get_document("filter").ok()?.get_document("fails").ok()).cloned()?;
    error.extend(doc! { "ok": 0.0, "errmsg": "made up" });
    Some(error)
}

fn cursor(rest: &[Document], batch: &str, results: Vec<Document>) -> Document {
    let mut cursor = doc! { "id": if rest.is_empty() { 0i64 } else { 77 } };
    cursor.insert(batch, results);
    cursor.insert("ns", "admin.$cmd.bulkWrite");
    cursor
}

fn run(message: &Message) -> (Document, Vec<Document>) {
    let body = message.body();
    let ordered = body.get_bool("ordered").unwrap_or(true);
    let only_errors = body.get_bool("errorsOnly").unwrap_or(false);
    let mut counts =
        doc! { "nErrors": 0, "nInserted": 0, "nMatched": 0, "nModified": 0, "nUpserted": 0, "nDeleted": 0 };
    let mut results = Vec::new();
    let mut add = |name: &str| {
        let count = counts.get_i32(name).unwrap() + 1;
        counts.insert(name, count);
    };
    for (index, op) in message.documents("ops").iter().enumerate() {
        let idx = index as i32;
        let filter = op.get_document("filter").cloned().unwrap_or_default();
        let mut result = doc! { "ok": 1.0, "idx": idx, "n": 1 };
        if filter.contains_key("taken") || op.get_document("document").is_ok_and(|d| d.contains_key("taken")) {
            add("nErrors");
            result = doc! {
                "ok": 0.0, "idx": idx, "code": 11000, "errmsg": "E11000 duplicate key", "keyPattern": { "taken": 1 },
                "keyValue": { "taken": true }, "n": 0,
            };
        } else if op.contains_key("insert") {
            add("nInserted");
        } else if op.contains_key("delete") {
            add("nDeleted");
        } else if filter.get("version").is_some_and(|version| version != &Bson::from(STORED_VERSION)) {
            result = doc! { "ok": 1.0, "idx": idx, "n": 0, "nModified": 0 };
        } else if op.get_bool("upsert").unwrap_or(false) {
            add("nUpserted");
            result = doc! { "ok": 1.0, "idx": idx, "n": 1, "nModified": 0, "upserted": { "_id": 100 + idx } };
        } else {
            add("nMatched");
            add("nModified");
            result.insert("nModified", 1);
        }
        let failed = result.get_f64("ok").unwrap() == 0.0;
        if failed || !only_errors {
            results.push(result);
        }
        if failed && ordered {
            break;
        }
    }
    (counts, results)
}
