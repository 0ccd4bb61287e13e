//! Retryable writes and transactions whose batches docward splits: each statement keeps the id by which the server
//! recognises it, and a rejection leaves both sides in the same state as a write error of the server.
//!
//! The raw client sends each command twice, as drivers do. `test_drivers.py` tests the drivers' own retries.

use std::sync::OnceLock;

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use support::driver::{ok, write_errors};
use support::mongod::Mongod;
use support::proxy::Docward;
use support::raw::Client;

const RULES: &str = r#"
version: 1
rules:
  - name: carts-optimistic
    namespace: "*.carts"
    replacement: { policy: reject, version: version }
  - name: saves-optimistic
    namespace: "*.saves"
    replacement: { policy: check_version, version: version }
  - name: numbers
    namespace: "*.numbered"
    sequence: { field: no, counter: no }
  - name: jobs
    namespace: "*.jobs"
    queue: { lease: 5m }
  - name: raced
    namespace: "*.raced"
    sequence: { field: no, strategy: optimistic, on_upsert: true }
"#;

const REJECTED: i32 = 121;
const CONFLICT: i32 = 112;

fn docward() -> &'static Docward {
    static DOCWARD: OnceLock<Docward> = OnceLock::new();
    DOCWARD.get_or_init(|| Docward::start(Mongod::shared(), RULES))
}

/// A client's session, with transaction numbers as drivers assign them.
struct Session {
    database: String,
    through: Client,
    direct: Client,
    lsid: Document,
    txn_number: i64,
    /// Fields of every command, such as apiVersion.
    always: Document,
}

impl Session {
    fn new() -> Session {
        let mut bytes = vec![0; 12];
        let database = Mongod::shared().fresh_database();
        bytes.extend(database.as_bytes().iter().rev().chain(&[0; 4]).take(4));
        let id = Binary { subtype: BinarySubtype::Uuid, bytes };
        Session {
            database,
            through: Client::connect(&docward().address()),
            direct: Client::connect(&Mongod::shared().address()),
            lsid: doc! { "id": id },
            txn_number: 0,
            always: Document::new(),
        }
    }

    fn seed(&mut self, collection: &str, documents: Vec<Document>) {
        self.direct.seed(&self.database, collection, documents);
    }

    fn stored(&mut self, collection: &str) -> Vec<Document> {
        self.direct.stored(&self.database, collection)
    }

    fn with_session(&self, mut command: Document) -> Document {
        command.extend(doc! { "lsid": &self.lsid, "txnNumber": self.txn_number });
        command.extend(self.always.clone());
        command
    }

    /// Sends the next retryable write `times` times, as after network errors; returns the replies.
    fn retryable(&mut self, command: Document, times: usize) -> Vec<Document> {
        self.txn_number += 1;
        let command = self.with_session(command);
        (0..times).map(|_| self.through.command(&self.database, command.clone())).collect()
    }

    /// The first command of the next transaction.
    fn start(&mut self, mut command: Document) -> Document {
        self.txn_number += 1;
        command.insert("startTransaction", true);
        self.go_on(command)
    }

    fn go_on(&mut self, mut command: Document) -> Document {
        command.insert("autocommit", false);
        self.through.command(&self.database, self.with_session(command))
    }

    fn commit(&mut self) -> Document {
        let commit = doc! { "commitTransaction": 1, "autocommit": false };
        self.through.command("admin", self.with_session(commit))
    }

    /// Asserts that the next statement and the commit of an aborted transaction get the error that makes drivers repeat
    /// the transaction.
    fn assert_aborted(&mut self) {
        let next = self.go_on(doc! { "insert": "notes", "documents": [{}] });
        for reply in [next, self.commit()] {
            assert_eq!(reply.get_str("codeName").unwrap(), "NoSuchTransaction", "{reply}");
            assert_eq!(reply.get_array("errorLabels").unwrap(), &[Bson::from("TransientTransactionError")]);
        }
    }
}

fn counts(reply: &Document) -> (i32, i32) {
    assert!(ok(reply), "{reply}");
    (reply.get_i32("n").unwrap(), reply.get_i32("nModified").unwrap_or(0))
}

fn retried(reply: &Document) -> Vec<i32> {
    let ids = reply.get_array("retriedStmtIds").cloned().unwrap_or_default();
    ids.iter().map(|id| id.as_i32().unwrap()).collect()
}

fn increment(id: i32) -> Document {
    doc! { "q": { "_id": id }, "u": { "$inc": { "n": 1 } } }
}

/// An update that is rejected.
fn rejected_statement(id: i32) -> Document {
    doc! { "q": { "_id": id }, "u": { "n": 100 } }
}

/// Checks the version itself: if it matches nothing, the server's n: 0 is the reply.
fn with_own_check(id: i32, version: i32) -> Document {
    doc! { "q": { "_id": id, "version": version }, "u": { "n": 200 } }
}

/// docward adds the version check: a document with another version is a conflict.
fn with_added_check(id: i32, version: i32) -> Document {
    doc! { "q": { "_id": id }, "u": { "n": 200, "version": version } }
}

fn carts(count: i32) -> Vec<Document> {
    (1..=count).map(|id| doc! { "_id": id, "n": 0, "version": 1 }).collect()
}

#[test]
fn a_batch_with_a_rejected_statement_is_applied_once() {
    let mut session = Session::new();
    session.seed("carts", carts(3));
    let updates = vec![increment(1), rejected_statement(2), increment(3)];
    let ordered = session.retryable(doc! { "update": "carts", "updates": &updates }, 2);
    for reply in &ordered {
        assert_eq!((counts(reply), write_errors(reply)), ((1, 1), vec![(1, REJECTED)]));
    }
    assert_eq!((retried(&ordered[0]), retried(&ordered[1])), (vec![], vec![0]));
    let unordered = session.retryable(doc! { "update": "carts", "updates": &updates, "ordered": false }, 2);
    for reply in &unordered {
        assert_eq!((counts(reply), write_errors(reply)), ((2, 2), vec![(1, REJECTED)]));
    }
    assert_eq!(retried(&unordered[1]), [0, 2]);
    let n: Vec<i32> = session.stored("carts").iter().map(|cart| cart.get_i32("n").unwrap()).collect();
    assert_eq!(n, [2, 0, 1]);
}

#[test]
fn a_batch_with_checked_statements_is_applied_once() {
    for ordered in [true, false] {
        let mut session = Session::new();
        session.seed("carts", carts(4));
        let updates = vec![increment(1), with_own_check(2, 1), increment(3), with_own_check(4, 1), increment(1)];
        let replies = session.retryable(doc! { "update": "carts", "updates": updates, "ordered": ordered }, 2);
        for reply in &replies {
            assert_eq!((counts(reply), write_errors(reply)), ((5, 5), vec![]));
        }
        let mut again = retried(&replies[1]);
        again.sort_unstable();
        assert_eq!((retried(&replies[0]), again), (vec![], vec![0, 1, 2, 3, 4]));
        let expected = [
            doc! { "_id": 1, "n": 2, "version": 3 },
            doc! { "_id": 2, "n": 200, "version": 2 },
            doc! { "_id": 3, "n": 1, "version": 2 },
            doc! { "_id": 4, "n": 200, "version": 2 },
        ];
        assert_eq!(session.stored("carts"), expected);
    }
}

#[test]
fn a_lost_race_is_reported_again_and_stops_an_ordered_batch_again() {
    for (ordered, n, stored) in [(true, 1, [1, 0, 0]), (false, 2, [1, 0, 1])] {
        let mut session = Session::new();
        session.seed("saves", carts(3));
        let updates = vec![increment(1), with_added_check(2, 7), increment(3)];
        for reply in session.retryable(doc! { "update": "saves", "updates": updates, "ordered": ordered }, 2) {
            assert_eq!((counts(&reply), write_errors(&reply)), ((n, n), vec![(1, CONFLICT)]), "{reply}");
        }
        let found: Vec<i32> = session.stored("saves").iter().map(|cart| cart.get_i32("n").unwrap()).collect();
        assert_eq!(found, stored);
    }
}

#[test]
fn numbers_the_client_gives_are_kept() {
    let mut session = Session::new();
    session.seed("carts", carts(3));
    let upsert = doc! { "q": { "_id": 4 }, "u": { "$inc": { "n": 1 } }, "upsert": true };
    let updates = vec![increment(1), rejected_statement(2), with_own_check(3, 1), upsert];
    let batch = doc! { "update": "carts", "updates": &updates, "ordered": false };
    let mut with_ids = batch.clone();
    with_ids.insert("stmtIds", vec![10, 20, 30, 40]);
    let replies = session.retryable(with_ids, 2);
    for reply in &replies {
        assert_eq!((counts(reply), write_errors(reply)), ((3, 2), vec![(1, REJECTED)]));
    }
    let mut again = retried(&replies[1]);
    again.sort_unstable();
    assert_eq!((retried(&replies[0]), again), (vec![], vec![10, 30, 40]));
    let mut with_first = batch;
    with_first.extend(doc! { "stmtId": 20 });
    with_first.insert("updates", vec![increment(1), rejected_statement(2), increment(4)]);
    let replies = session.retryable(with_first, 2);
    assert_eq!(retried(&replies[1]), [20, 22]);
    let n: Vec<i32> = session.stored("carts").iter().map(|cart| cart.get_i32("n").unwrap()).collect();
    assert_eq!(n, [2, 0, 200, 2]);
}

#[test]
fn a_retry_without_docward_is_recognised() {
    for updates in [vec![increment(1), increment(2)], vec![increment(1), with_own_check(2, 1), increment(2)]] {
        let mut session = Session::new();
        session.seed("carts", carts(2));
        let batch = doc! { "update": "carts", "updates": &updates };
        let through = session.retryable(batch.clone(), 1);
        let stored = session.stored("carts");
        let retry = session.with_session(batch);
        let direct = session.direct.command(&session.database, retry);
        assert_eq!(counts(&direct), counts(&through[0]));
        assert_eq!(retried(&direct), (0..updates.len() as i32).collect::<Vec<_>>());
        assert_eq!(session.stored("carts"), stored);
    }
}

#[test]
fn an_insert_with_numbers_is_applied_once() {
    let mut session = Session::new();
    let documents = vec![doc! { "_id": 1 }, doc! { "_id": 2, "no": 50 }, doc! { "_id": 3 }];
    let replies = session.retryable(doc! { "insert": "numbered", "documents": documents }, 2);
    assert_eq!((counts(&replies[0]), counts(&replies[1])), ((3, 0), (3, 0)));
    assert_eq!(retried(&replies[1]), [0, 1, 2]);
    let expected = [doc! { "_id": 1, "no": 1 }, doc! { "_id": 2, "no": 50 }, doc! { "_id": 3, "no": 2 }];
    assert_eq!(session.stored("numbered"), expected);
}

#[test]
fn a_find_and_modify_is_applied_once() {
    let mut session = Session::new();
    session.seed("carts", carts(1));
    let replace =
        doc! { "findAndModify": "carts", "query": { "_id": 1, "version": 1 }, "update": { "n": 5 }, "new": true };
    let replies = session.retryable(replace.clone(), 2);
    for reply in &replies {
        assert_eq!(reply.get_document("value").unwrap(), &doc! { "_id": 1, "n": 5, "version": 2 }, "{reply}");
    }
    assert_eq!(replies[1].get_i32("retriedStmtId").unwrap(), 0);
    for reply in session.retryable(replace, 2) {
        assert!(ok(&reply) && reply.get("value") == Some(&Bson::Null), "{reply}");
    }
    session.seed("saves", carts(1));
    let save = doc! { "findAndModify": "saves", "query": { "_id": 1 }, "update": { "n": 5, "version": 7 } };
    for reply in session.retryable(save, 2) {
        assert_eq!((ok(&reply), reply.get_i32("code").unwrap()), (false, CONFLICT));
        assert!(!reply.contains_key("errorLabels"), "{reply}");
    }
}

/// The driver sends the first save of a job again after its reply was lost.
#[test]
fn a_retried_first_save_of_a_job_saves_once() {
    let save = doc! { "q": { "_id": 1 }, "u": { "_id": 1, "work": "mail" }, "upsert": true };
    for more in [vec![], vec![doc! { "q": { "_id": 2, "locked": false }, "u": { "$set": { "x": 1 } } }]] {
        let mut session = Session::new();
        let updates: Vec<Document> = std::iter::once(save.clone()).chain(more).collect();
        for reply in session.retryable(doc! { "update": "jobs", "updates": updates }, 3) {
            assert_eq!((counts(&reply), write_errors(&reply)), ((1, 0), vec![]), "{reply}");
        }
        assert_eq!(session.stored("jobs").len(), 1);
        let again = session.retryable(doc! { "update": "jobs", "updates": [&save] }, 1);
        assert_eq!(write_errors(&again[0]), [(0, REJECTED)], "a save of its own");
    }
    let mut session = Session::new();
    let save = doc! { "findAndModify": "jobs", "query": { "_id": 1 }, "update": { "work": "mail" }, "upsert": true };
    for reply in session.retryable(save, 3) {
        assert_eq!(reply.get_document("lastErrorObject").unwrap().get_i32("upserted").unwrap(), 1, "{reply}");
    }
}

#[test]
fn a_rejection_ends_the_transaction_as_a_write_error_does() {
    let statements = [
        (doc! { "update": "carts", "updates": [rejected_statement(1)] }, REJECTED),
        (doc! { "update": "carts", "updates": [increment(2), rejected_statement(1)] }, REJECTED),
        (doc! { "update": "saves", "updates": [with_added_check(1, 7)] }, CONFLICT),
        (doc! { "update": "saves", "updates": [increment(1), with_added_check(1, 1)] }, CONFLICT),
        (doc! { "update": "saves", "updates": [{ "q": { "_id": 1 }, "u": { "n": 5 }, "upsert": true }] }, CONFLICT),
        (doc! { "findAndModify": "carts", "query": { "_id": 1 }, "update": { "n": 5 } }, REJECTED),
        (doc! { "findAndModify": "saves", "query": { "_id": 1 }, "update": { "n": 5, "version": 7 } }, CONFLICT),
    ];
    let stable_api = doc! { "apiVersion": "1" };
    for always in [Document::new(), stable_api] {
        for (statement, expected) in &statements {
            for first in [true, false] {
                let mut session = Session::new();
                session.always = always.clone();
                session.seed("carts", carts(2));
                session.seed("saves", carts(2));
                let reply = if first {
                    session.start(statement.clone())
                } else {
                    assert!(ok(&session.start(doc! { "update": "carts", "updates": [increment(1)] })));
                    session.go_on(statement.clone())
                };
                let code = reply.get_i32("code").unwrap_or_else(|_| write_errors(&reply)[0].1);
                assert_eq!(code, *expected, "{statement}: {reply}");
                assert!(!reply.contains_key("errorLabels"), "{reply}");
                session.assert_aborted();
                // The session continues with its next transaction, on documents without locks.
                assert!(
                    ok(&session.start(doc! { "update": "carts", "updates": [increment(1), with_own_check(2, 1)] }))
                );
                let committed = session.commit();
                assert!(ok(&committed), "{committed}");
                let n: Vec<i32> = session.stored("carts").iter().map(|cart| cart.get_i32("n").unwrap()).collect();
                assert_eq!(n, [1, 200]);
                assert_eq!(session.stored("saves"), carts(2));
            }
        }
    }
}

#[test]
fn a_split_batch_may_start_a_transaction_with_a_read_concern() {
    let mut session = Session::new();
    session.seed("carts", carts(3));
    let updates = vec![with_own_check(1, 1), increment(2), with_own_check(3, 1)];
    let first = doc! { "update": "carts", "updates": updates, "readConcern": { "level": "snapshot" } };
    let reply = session.start(first);
    assert_eq!((counts(&reply), write_errors(&reply)), ((3, 3), vec![]), "{reply}");
    assert_eq!(session.stored("carts"), carts(3));
    assert!(ok(&session.commit()));
    let n: Vec<i32> = session.stored("carts").iter().map(|cart| cart.get_i32("n").unwrap()).collect();
    assert_eq!(n, [200, 1, 200]);
}

#[test]
fn colliding_optimistic_numbers_are_retried() {
    const WRITERS: i32 = 4;
    const EACH: i32 = 12;
    let mut session = Session::new();
    let database = session.database.clone();
    let index = doc! { "key": { "no": 1 }, "name": "no", "unique": true };
    assert!(ok(&session.direct.command(&database, doc! { "createIndexes": "raced", "indexes": [index] })));
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let database = &database;
            scope.spawn(move || {
                let mut client = Client::connect(&docward().address());
                for id in (0..EACH).map(|n| writer * 100 + n) {
                    let modification = [
                        Bson::from(doc! { "$set": { "a": 1 } }),
                        Bson::from(doc! { "a": 1 }),
                        Bson::from(doc! { "$set": { "a": 1 }, "$setOnInsert": { "b": 1 } }),
                    ][id as usize % 3]
                        .clone();
                    let update = doc! { "q": { "_id": id }, "u": modification, "upsert": true };
                    let reply = client.command(database, doc! { "update": "raced", "updates": [update] });
                    assert_eq!((counts(&reply), write_errors(&reply)), ((1, 0), vec![]), "{reply}");
                }
            });
        }
    });
    let mut numbers: Vec<i32> = session.stored("raced").iter().map(|found| found.get_i32("no").unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=WRITERS * EACH).collect::<Vec<_>>());
    session.seed("raced", vec![doc! { "_id": -1, "no": i64::MAX }]);
    let inserts = doc! { "insert": "raced", "documents": [{ "_id": -2 }] };
    let reply = session.through.command(&database, inserts);
    assert_eq!((counts(&reply), write_errors(&reply)), ((0, 0), vec![(0, REJECTED)]));
}
