//! A docward with a collection for each set of rules, and connections through docward and directly: documents are
//! stored and read without docward, and the same command goes through docward to `protected` and directly to `plain`.

use std::time::{Duration, Instant};

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};

use super::case::{Session, Step};
use super::follow::into;
use super::rules::{Rule, rule_file};
use support::driver::ok;
use support::mongod::{Kind, Mongod};
use support::process::TIMEOUT;
use support::proxy::Docward;
use support::raw::Client;

pub(super) const PROTECTED: &str = "protected";
const PLAIN: &str = "plain";

/// The mongod of this process; it acknowledges writes before they are on disk, which makes it several times faster.
pub(super) fn server() -> &'static Mongod {
    static SERVER: std::sync::OnceLock<Mongod> = std::sync::OnceLock::new();
    SERVER.get_or_init(|| {
        let server = Mongod::start(Kind::ReplicaSet);
        let fast = doc! { "setDefaultRWConcern": 1, "defaultWriteConcern": { "w": 1, "j": false } };
        let reply = server.command("admin", fast);
        assert!(ok(&reply), "{reply}");
        server
    })
}

/// A docward with these rules; each set has its own collection.
pub(super) struct Lab {
    docward: Docward,
    pub(super) sets: Vec<(String, Vec<Rule>)>,
}

/// Two connections, one for each side.
pub(super) struct BothSides {
    direct: Side,
    through: Side,
    store: Client,
}

struct Side {
    address: String,
    client: Client,
    session: Bson,
    transactions: i64,
    database: &'static str,
}

/// The reply of one side; `None` if the connection closed instead.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) reply: Option<Document>,
    /// The reply to the commit.
    pub(super) commit: Option<Document>,
    pub(super) took: Duration,
}

/// The result of one command on both sides, from the same documents.
pub(super) struct Outcome {
    pub(super) before: Vec<Document>,
    pub(super) direct: Answer,
    pub(super) directly_stored: Vec<Document>,
    pub(super) through: Answer,
    pub(super) stored: Vec<Document>,
}

impl Lab {
    pub(super) fn start(sets: Vec<Vec<Rule>>) -> Lab {
        static STARTED: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let round = STARTED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let named = sets.into_iter().enumerate().map(|(index, rules)| (format!("c{round}x{index}"), rules));
        let sets: Vec<(String, Vec<Rule>)> = named.collect();
        let borrowed: Vec<(String, &[Rule])> = sets.iter().map(|(name, rules)| (name.clone(), &rules[..])).collect();
        // A collection that has just been created cannot be used in a transaction at once.
        let mut client = Client::connect(&server().address());
        client.command(PROTECTED, doc! { "create": "counters" });
        for (collection, _) in &sets {
            for database in [PROTECTED, PLAIN] {
                client.command(database, doc! { "create": collection });
            }
        }
        let docward = Docward::before(&server().uri()).rules(&rule_file(&borrowed));
        Lab { docward: docward.environment("RUST_LOG", "error").start(), sets }
    }

    pub(super) fn both_sides(&self) -> BothSides {
        BothSides {
            direct: Side::new(server().address(), PLAIN),
            through: Side::new(self.docward.address(), PROTECTED),
            store: Client::connect(&server().address()),
        }
    }
}

impl Drop for Lab {
    /// Drops the collections, because thousands of them would slow the server down.
    fn drop(&mut self) {
        // Its workers would create the collections of histories again.
        self.docward.kill();
        let mut client = Client::connect(&server().address());
        for (collection, _) in &self.sets {
            for database in [PROTECTED, PLAIN] {
                client.command(database, doc! { "drop": collection });
            }
            client.command(PROTECTED, doc! { "drop": into(collection) });
        }
    }
}

impl Side {
    fn new(address: String, database: &'static str) -> Side {
        Side { client: Client::connect(&address), address, session: fresh_session(), transactions: 0, database }
    }

    fn send(&mut self, collection: &str, step: &Step) -> Answer {
        let mut command = step.to(collection);
        let began = Instant::now();
        if step.session == Session::None {
            let reply = self.exchange(self.database, command);
            return Answer { reply, commit: None, took: began.elapsed() };
        }
        self.transactions += 1;
        let number = doc! { "lsid": self.session.clone(), "txnNumber": self.transactions };
        command.extend(number.clone());
        if step.session == Session::Retryable {
            let reply = self.exchange(self.database, command);
            return Answer { reply, commit: None, took: began.elapsed() };
        }
        command.extend(doc! { "autocommit": false, "startTransaction": true });
        let reply = self.exchange(self.database, command);
        let mut end = doc! { "commitTransaction": 1 };
        end.extend(number.clone());
        end.insert("autocommit", false);
        let commit = self.exchange("admin", end);
        if commit.as_ref().is_none_or(|reply| !ok(reply)) {
            let mut end = doc! { "abortTransaction": 1 };
            end.extend(number);
            end.insert("autocommit", false);
            self.exchange("admin", end);
        }
        Answer { reply, commit, took: began.elapsed() }
    }

    fn exchange(&mut self, database: &str, command: Document) -> Option<Document> {
        let reply = self.client.try_command(database, command, TIMEOUT);
        if reply.is_none() {
            self.client = Client::connect(&self.address);
            self.session = fresh_session();
        }
        reply
    }
}

impl BothSides {
    /// Replaces both sides' collections with these documents.
    pub(super) fn store(&mut self, collection: &str, documents: &[Document]) {
        for database in [PROTECTED, PLAIN] {
            self.store_at(database, collection, documents);
        }
    }

    /// Removes the counters of issued numbers.
    pub(super) fn begin_counting(&mut self, collection: &str) {
        let counter = doc! { "q": { "_id": collection }, "limit": 1 };
        self.store.command(PROTECTED, doc! { "delete": "counters", "deletes": [counter] });
    }

    fn store_at(&mut self, database: &str, collection: &str, documents: &[Document]) {
        let all = doc! { "q": {}, "limit": 0 };
        let reply = self.store.command(database, doc! { "delete": collection, "deletes": [all] });
        assert!(ok(&reply), "{reply}");
        if !documents.is_empty() {
            let reply = self.store.command(database, doc! { "insert": collection, "documents": documents });
            assert!(!reply.contains_key("writeErrors") && ok(&reply), "{reply}");
        }
    }

    fn stored_at(&mut self, database: &str, collection: &str) -> Vec<Document> {
        let reply = self.store.command(database, doc! { "find": collection, "batchSize": 1000 });
        let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        batch.iter().map(|document| document.as_document().unwrap().clone()).collect()
    }

    /// Sends the command on both sides. Both sides must store the same documents before; giving `before` of the
    /// result to the next call restores that.
    pub(super) fn run(&mut self, collection: &str, before: &[Document], step: &Step) -> Outcome {
        let direct = self.direct.send(collection, step);
        let through = self.through.send(collection, step);
        Outcome {
            before: before.to_vec(),
            direct,
            directly_stored: self.stored_at(PLAIN, collection),
            through,
            stored: self.stored_at(PROTECTED, collection),
        }
    }

    /// The result of a command without docward; the documents on docward's side stay.
    pub(super) fn directly(&mut self, collection: &str, before: &[Document], step: &Step) -> (Answer, Vec<Document>) {
        self.store_at(PLAIN, collection, before);
        let answer = self.direct.send(collection, step);
        (answer, self.stored_at(PLAIN, collection))
    }
}

pub(super) fn fresh_session() -> Bson {
    let bytes = bson::oid::ObjectId::new().bytes().iter().chain(&[0; 4]).copied().collect();
    doc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes } }.into()
}
