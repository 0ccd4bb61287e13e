//! Every indirect write to a protected collection against a real mongod, checked by the stored documents. `table` is
//! the list of indirect writes, each of which is first shown to work when sent directly; `ambiguous` has messages
//! that two parsers could read differently; `catalogue` compares docward's list of commands with the server's;
//! `buckets` tests time-series collections, `coverage` the coverage report. `random` makes sequences of all of these,
//! which must keep every invariant of `invariants`, and must be answered as without docward where no rule matches
//! (`differential`).

mod ambiguous;
mod buckets;
mod catalogue;
mod coverage;
mod differential;
mod invariants;
mod random;
mod table;

use std::sync::OnceLock;

use bson::{Document, doc};
use support::frame::{Frame, Message};
use support::mongod::{Kind, Mongod};
use support::process::TIMEOUT;
use support::proxy::Docward;
use support::raw::Client;

/// One rule for each collection, with the collection's name.
const RULES: &str = r#"
version: 1
rules:
  - { name: blind, namespace: "*.blind", replacement: {} }
  - { name: bounded, namespace: "*.bounded", bounds: { field: n, min: 0, max: 10 } }
  - { name: small, namespace: "*.small", limits: { items: { list: 2 }, document: 200B } }
  - { name: versioned, namespace: "*.versioned", schema_version: { field: v, current: 3, minimum: 2 } }
  - { name: pairs, namespace: "*.pairs", together: [a, b] }
  - { name: invoices, namespace: "*.invoices", frozen: a }
  - { name: timestamped, namespace: "*.timestamped", timestamps: { source: at } }
  - { name: jobs, namespace: "*.jobs", queue: { fields: { locked: locked, locked_at: since, attempts: try }, lease: 5m } }
  - { name: buckets, namespace: "*.buckets", bucket: { array: list, count: n, limit: 5 } }
  - { name: nodes, namespace: "*.nodes", tree: { path: path, parent: parent } }
  - { name: readonly, namespace: "*.readonly", deny: { operations: [insert, update, delete] } }
  - { name: series, namespace: "*.series", deny: { operations: [delete] } }
  - { name: hidden, namespace: "*.hidden", timestamps: { source: at, hide: true } }
  - { name: limited, namespace: "*.limited", throttle: { concurrent: 5, per: app } }
  - { name: unread, namespace: "*.unread", deny: { operations: [find, count, distinct, aggregate] } }
  - { name: allowing, namespace: "*.allowing", unsupported: allow, replacement: {} }
  - { name: kept, namespace: recorded.orders, history: { into: kept, keep: 10 } }
"#;

/// A mongod of these tests' own: applyOps waits for the global lock, and so for every transaction of other tests.
fn mongod() -> &'static Mongod {
    static MONGOD: OnceLock<Mongod> = OnceLock::new();
    MONGOD.get_or_init(|| {
        let mongod = Mongod::start(Kind::ReplicaSet);
        // A transaction of one test waits for applyOps of another one; after 5 ms it would end with LockTimeout.
        mongod.command("admin", doc! { "setParameter": 1, "maxTransactionLockRequestTimeoutMillis": 20_000 });
        mongod
    })
}

fn docward() -> &'static Docward {
    static DOCWARD: OnceLock<Docward> = OnceLock::new();
    DOCWARD.get_or_init(|| Docward::before(&mongod().uri()).rules(RULES).environment("RUST_LOG", "error").start())
}

/// A fresh database, and connections to it through docward and directly.
struct Setting {
    database: String,
    direct: Client,
    through: Client,
}

impl Setting {
    fn new() -> Setting {
        Setting {
            database: mongod().fresh_database(),
            direct: Client::connect(&mongod().address()),
            through: Client::connect(&docward().address()),
        }
    }

    /// Replaces the collection with these documents, without docward.
    fn seed(&mut self, collection: &str, documents: Vec<Document>) {
        self.direct.command(&self.database, doc! { "drop": collection });
        self.direct.seed(&self.database, collection, documents);
    }

    /// The stored documents, read without docward.
    fn stored(&mut self, collection: &str) -> Vec<Document> {
        self.direct.stored(&self.database, collection)
    }

    /// The entry of a collection in `listCollections`.
    fn info(&mut self, collection: &str) -> Document {
        let reply =
            self.direct.command(&self.database, doc! { "listCollections": 1, "filter": { "name": collection } });
        let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        batch[0].as_document().unwrap().clone()
    }
}

/// A connection that is reopened when the peer closes it.
struct Link {
    address: String,
    client: Client,
}

impl Link {
    fn new(address: String) -> Link {
        Link { client: Client::connect(&address), address }
    }

    /// Sends frames one after the other, and returns the replies to each; `None` if the connection closed.
    fn deliver(&mut self, frames: &[Vec<u8>]) -> Vec<Option<Vec<Frame>>> {
        frames.iter().map(|frame| self.deliver_one(frame)).collect()
    }

    /// A ping after the frame marks the end of its replies, including when it has none.
    fn deliver_one(&mut self, frame: &[u8]) -> Option<Vec<Frame>> {
        const PING: i32 = 0x7069_6e67;
        let ping = Message::new(doc! { "ping": 1, "$db": "admin" }).to_frame(PING, 0).to_bytes();
        let mut replies = Vec::new();
        let mut sent = self.client.try_send_bytes(frame).and_then(|()| self.client.try_send_bytes(&ping)).is_ok();
        while sent {
            match self.client.receive_within(TIMEOUT).unwrap() {
                Some(reply) if reply.response_to == PING => return Some(replies),
                Some(reply) => replies.push(reply),
                None => sent = false,
            }
        }
        self.client = Client::connect(&self.address);
        None
    }
}

/// Every error in a reply, of the command or of a statement: its code and text.
fn errors(reply: &Document) -> Vec<(i32, String)> {
    let error = |document: &Document| {
        let text = document.get_str("errmsg").ok()?.to_owned();
        Some((document.get_i32("code").unwrap_or(0), text))
    };
    let list = |document: &Document, key: &str| -> Vec<(i32, String)> {
        let entries = document.get_array(key).into_iter().flatten().filter_map(bson::Bson::as_document);
        entries.filter_map(error).collect()
    };
    let mut found: Vec<_> = error(reply).into_iter().collect();
    found.extend(list(reply, "writeErrors"));
    if let Ok(cursor) = reply.get_document("cursor") {
        found.extend(list(cursor, "firstBatch"));
    }
    found
}
