//! A docward with a collection for each set of rules, and connections through docward and directly: documents are
//! stored and read without docward, and the same command goes through docward to `protected` and directly to `plain`.

use std::time::{Duration, Instant};

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};

use super::case::{End, Session, Step};
use super::change_stream::into;
use super::race;
use super::reply;
use super::rules::{Rule, Set, rule_file};
use support::driver::ok;
use support::mongod::{Kind, Mongod};
use support::process::{TIMEOUT, docward};
use support::proxy::Docward;
use support::raw::Client;

pub(super) const PROTECTED: &str = "protected";
pub(super) const PLAIN: &str = "plain";

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
    databases: [&'static str; 2],
    pub(super) sets: Vec<(String, Set)>,
}

/// Two connections, one for each side.
pub(super) struct BothSides {
    direct: Side,
    through: Side,
    store: Client,
    /// The documents before the transaction that is open through docward.
    begun: Vec<Document>,
}

/// A connection in a session, to one database.
pub(super) struct Side {
    address: String,
    client: Client,
    session: Bson,
    transactions: i64,
    pub(super) in_transaction: bool,
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

/// The result of one command on both sides, from the same documents. A command in a transaction has those before and
/// after it that this transaction reads.
#[derive(Clone)]
pub(super) struct Outcome {
    pub(super) before: Vec<Document>,
    pub(super) direct: Answer,
    pub(super) directly_stored: Vec<Document>,
    pub(super) through: Answer,
    pub(super) stored: Vec<Document>,
    /// What other clients read on docward's side afterwards.
    pub(super) visible: Vec<Document>,
    /// What they read before the transaction, if that has not been committed.
    pub(super) uncommitted: Option<Vec<Document>>,
    pub(super) again: Option<Again>,
    /// Whether another client has inserted the step's document meanwhile.
    pub(super) is_raced: bool,
    /// The writes that the server has executed for docward, if one statement fails directly on a duplicate key.
    pub(super) writes: Option<i64>,
}

/// The result of a retryable write that is sent a second time.
#[derive(Clone)]
pub(super) struct Again {
    pub(super) direct: Option<Document>,
    pub(super) directly_stored: Vec<Document>,
    pub(super) through: Option<Document>,
    pub(super) stored: Vec<Document>,
}

impl Lab {
    pub(super) fn start(sets: Vec<Set>) -> Lab {
        Lab::start_in([PROTECTED, PLAIN], sets)
    }

    /// The same, with validators of the server that hold the sets, too.
    pub(super) fn start_held(sets: Vec<Set>) -> Lab {
        let lab = Lab::start_in([PROTECTED, PLAIN], sets);
        let held: Vec<(String, &[Rule])> = lab.sets.iter().map(|(name, set)| (name.clone(), &set.rules[..])).collect();
        let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        std::fs::write(file.path(), rule_file(PROTECTED, &held)).unwrap();
        let path = file.path().to_str().unwrap();
        let done = docward(&["validators", path, "--upstream", &server().uri(), "--apply", "--enforce"]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        lab
    }

    /// The same with collections in other databases, which a test may drop.
    pub(super) fn start_in(databases: [&'static str; 2], sets: Vec<Set>) -> Lab {
        static STARTED: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let round = STARTED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let named = sets.into_iter().enumerate().map(|(index, set)| (format!("c{round}x{index}"), set));
        let sets: Vec<(String, Set)> = named.collect();
        let borrowed: Vec<(String, &[Rule])> = sets.iter().map(|(name, set)| (name.clone(), &set.rules[..])).collect();
        // A collection that has just been created cannot be used in a transaction at once.
        let mut client = Client::connect(&server().address());
        client.command(databases[0], doc! { "create": "counters" });
        for (collection, set) in &sets {
            for database in databases {
                client.command(database, doc! { "create": collection });
                for field in set.unique_fields() {
                    let reply = client.command(database, unique_index(collection, field));
                    assert!(ok(&reply), "{reply}");
                }
            }
        }
        let docward = Docward::before(&server().uri()).rules(&rule_file(databases[0], &borrowed));
        Lab { docward: docward.environment("RUST_LOG", "error").start(), databases, sets }
    }

    pub(super) fn address(&self) -> String {
        self.docward.address()
    }

    pub(super) fn both_sides(&self) -> BothSides {
        BothSides {
            direct: Side::new(server().address(), PLAIN),
            through: Side::new(self.docward.address(), PROTECTED),
            store: Client::connect(&server().address()),
            begun: Vec::new(),
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
            for database in self.databases {
                client.command(database, doc! { "drop": collection });
            }
            client.command(self.databases[0], doc! { "drop": into(collection) });
        }
    }
}

impl Side {
    pub(super) fn new(address: String, database: &'static str) -> Side {
        let client = Client::connect(&address);
        Side { client, address, session: fresh_session(), transactions: 0, in_transaction: false, database }
    }

    /// Sends the command; a transaction stays open.
    pub(super) fn send(&mut self, collection: &str, step: &Step) -> Answer {
        let mut command = step.to(collection);
        if step.session != Session::None {
            let starts = step.session.in_transaction() && !self.in_transaction;
            self.transactions += i64::from(starts || step.session.is_retryable());
            self.in_transaction = step.session.in_transaction();
            command.extend(self.number());
            if starts {
                command.insert("startTransaction", true);
            }
        }
        let began = Instant::now();
        let reply = self.exchange(self.database, command);
        Answer { reply, commit: None, took: began.elapsed() }
    }

    /// Sends the command once more with the number of the last one, as a driver that has received no reply.
    pub(super) fn send_again(&mut self, collection: &str, step: &Step) -> Option<Document> {
        let mut command = step.to(collection);
        command.extend(self.number());
        self.exchange(self.database, command)
    }

    /// The fields that assign a command to the session and the transaction.
    fn number(&self) -> Document {
        let mut number = doc! { "lsid": self.session.clone(), "txnNumber": self.transactions };
        if self.in_transaction {
            number.insert("autocommit", false);
        }
        number
    }

    /// Sends a command that ends the transaction.
    fn end(&mut self, name: &str) -> Option<Document> {
        let mut end = doc! { name: 1 };
        end.extend(self.number());
        self.exchange("admin", end)
    }

    pub(super) fn abort(&mut self) {
        self.end("abortTransaction");
        self.in_transaction = false;
    }

    pub(super) fn commit(&mut self) -> Option<Document> {
        let commit = self.end("commitTransaction");
        if commit.as_ref().is_none_or(|reply| !ok(reply)) {
            self.end("abortTransaction");
        }
        self.in_transaction = false;
        commit
    }

    /// The documents that its transaction reads; `None` if the transaction was aborted.
    fn reads(&mut self, collection: &str) -> Option<Vec<Document>> {
        let mut find = doc! { "find": collection, "batchSize": 1000 };
        find.extend(self.number());
        self.exchange(self.database, find).filter(ok).map(|reply| documents(&reply))
    }

    fn exchange(&mut self, database: &str, command: Document) -> Option<Document> {
        let reply = self.client.try_command(database, command, TIMEOUT);
        if reply.is_none() {
            self.client = Client::connect(&self.address);
            self.session = fresh_session();
            self.in_transaction = false;
        }
        reply
    }
}

/// Creates an index that omits documents without the field.
pub(super) fn unique_index(collection: &str, field: &str) -> Document {
    let numbered = doc! { field: { "$exists": true } };
    let index = doc! { "key": { field: 1 }, "name": format!("unique {field}"), "unique": true, "partialFilterExpression": numbered };
    doc! { "createIndexes": collection, "indexes": [index] }
}

/// The documents of a reply to `find`.
pub(super) fn documents(reply: &Document) -> Vec<Document> {
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch.iter().map(|document| document.as_document().unwrap().clone()).collect()
}

impl BothSides {
    /// Replaces both sides' collections with these documents. While a transaction is open through docward, it replaces only the other
    /// side's.
    pub(super) fn store(&mut self, collection: &str, documents: &[Document]) {
        if !self.through.in_transaction {
            self.store_at(PROTECTED, collection, documents);
        }
        self.store_at(PLAIN, collection, documents);
    }

    /// Aborts the transaction of a case that ended early.
    pub(super) fn abort_open(&mut self) {
        if self.through.in_transaction {
            self.through.abort();
        }
    }

    /// Removes the counter of assigned numbers. A case with a transaction gets a counter above all its stored numbers
    /// instead: docward remembers the counter of the case before, so it would not store a number that the transaction
    /// provides, and an operator who removes a counter beside that transaction gets the number twice.
    pub(super) fn begin_counting(&mut self, collection: &str, has_transaction: bool) {
        const ABOVE_ALL: i32 = 100_000;
        let counter = doc! { "_id": collection };
        let command = match has_transaction {
            false => doc! { "delete": "counters", "deletes": [{ "q": counter, "limit": 1 }] },
            true => {
                let above = doc! { "q": counter, "u": { "$max": { "seq": ABOVE_ALL } }, "upsert": true };
                doc! { "update": "counters", "updates": [above] }
            }
        };
        self.store.command(PROTECTED, command);
    }

    fn store_at(&mut self, database: &str, collection: &str, documents: &[Document]) {
        let all = doc! { "q": {}, "limit": 0 };
        let reply = self.store.command(database, doc! { "delete": collection, "deletes": [all] });
        assert!(ok(&reply), "{reply}");
        if !documents.is_empty() {
            let insert = doc! { "insert": collection, "documents": documents, "bypassDocumentValidation": true };
            let reply = self.store.command(database, insert);
            assert!(!reply.contains_key("writeErrors") && ok(&reply), "{reply}");
        }
    }

    fn stored_at(&mut self, database: &str, collection: &str) -> Vec<Document> {
        documents(&self.store.command(database, doc! { "find": collection, "batchSize": 1000 }))
    }

    /// Sends the command on both sides. Both sides must store the same documents before; giving `before` of the
    /// result to the next call restores that. Each command of a transaction through docward is a transaction of its own
    /// on the other side.
    pub(super) fn run(&mut self, collection: &str, before: &[Document], step: &Step) -> Outcome {
        let (direct, directly_stored) = self.run_directly(collection, before, step);
        if !self.through.in_transaction {
            self.begun = before.to_vec();
        }
        let fails =
            direct.reply.as_ref().is_some_and(|reply| reply::errors(reply).iter().any(|(_, code)| *code == 11000));
        let is_counted = fails && step.statements().len() == 1 && step.race.is_none();
        let earlier = is_counted.then(|| self.writes(collection));
        let (is_raced, mut through) = match &step.race {
            Some(race) => {
                race::insert_during(&mut self.store, collection, race, || self.through.send(collection, step))
            }
            None => (false, self.through.send(collection, step)),
        };
        let writes = earlier.map(|earlier| self.writes(collection) - earlier);
        let mut stored = None;
        match step.session {
            Session::Transaction(End::Commit) => through.commit = self.through.commit(),
            Session::Transaction(end) => {
                stored = self.through.reads(collection);
                if end == End::Abort {
                    self.through.abort();
                }
            }
            Session::None | Session::Retryable | Session::Resent => {}
        }
        let visible = self.stored_at(PROTECTED, collection);
        let is_committed = !step.session.in_transaction() || through.commit.as_ref().is_some_and(ok);
        let stored = stored.unwrap_or_else(|| if is_committed { visible.clone() } else { before.to_vec() });
        let uncommitted = (!is_committed).then(|| self.begun.clone());
        let again = (step.session == Session::Resent).then(|| self.again(collection, step));
        let visible = again.as_ref().map_or(visible, |again| again.stored.clone());
        let before = before.to_vec();
        Outcome { before, direct, directly_stored, through, stored, visible, uncommitted, again, is_raced, writes }
    }

    /// The writes that the server has executed so far on docward's side.
    fn writes(&mut self, collection: &str) -> i64 {
        let latency = doc! { "$collStats": { "latencyStats": {} } };
        let reply =
            self.store.command(PROTECTED, doc! { "aggregate": collection, "pipeline": [latency], "cursor": {} });
        let statistics = documents(&reply).pop().and_then(|one| one.get_document("latencyStats").cloned().ok());
        statistics
            .and_then(|one| one.get_document("writes").ok()?.get_i64("ops").ok())
            .unwrap_or_else(|| panic!("{reply}"))
    }

    /// The outcome of a raced step if the other client's document was there before: the direct statement finds it too.
    pub(super) fn after_race(&mut self, collection: &str, step: &Step, outcome: &Outcome) -> Outcome {
        let before: Vec<Document> =
            outcome.before.iter().chain(step.race.iter().map(|race| &race.document)).cloned().collect();
        let (direct, directly_stored) = self.directly(collection, &before, step);
        Outcome { before, direct, directly_stored, ..outcome.clone() }
    }

    fn again(&mut self, collection: &str, step: &Step) -> Again {
        Again {
            direct: self.direct.send_again(collection, step),
            directly_stored: self.stored_at(PLAIN, collection),
            through: self.through.send_again(collection, step),
            stored: self.stored_at(PROTECTED, collection),
        }
    }

    /// The result of a command without docward; the documents on docward's side stay.
    pub(super) fn directly(&mut self, collection: &str, before: &[Document], step: &Step) -> (Answer, Vec<Document>) {
        self.store_at(PLAIN, collection, before);
        self.run_directly(collection, before, step)
    }

    fn run_directly(&mut self, collection: &str, before: &[Document], step: &Step) -> (Answer, Vec<Document>) {
        let mut answer = self.direct.send(collection, step);
        match step.session {
            Session::Transaction(End::Commit) => answer.commit = self.direct.commit(),
            Session::Transaction(_) => {
                let stored = self.direct.reads(collection).unwrap_or_else(|| before.to_vec());
                self.direct.abort();
                return (answer, stored);
            }
            Session::None | Session::Retryable | Session::Resent => {}
        }
        (answer, self.stored_at(PLAIN, collection))
    }
}

pub(super) fn fresh_session() -> Bson {
    let bytes = bson::oid::ObjectId::new().bytes().iter().chain(&[0; 4]).copied().collect();
    doc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes } }.into()
}
