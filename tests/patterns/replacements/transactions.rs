//! A rejection inside a transaction leaves driver, docward and server in the same state as a write error of the
//! server: earlier writes are rolled back, later statements fail as the driver expects, and the session can start a
//! new transaction.

use std::collections::BTreeSet;

use bson::{Document, doc};
use mongodb::error::Error;
use mongodb::{ClientSession, Database};

use super::views;
use support::driver::{Views, code, write_errors};

/// What the application sees from the failing statement on.
#[derive(Debug, PartialEq, Eq)]
struct Ending {
    failure_labels: BTreeSet<String>,
    next_statement: (i32, BTreeSet<String>),
    commit: (i32, BTreeSet<String>),
}

fn labels(error: &Error) -> BTreeSet<String> {
    error.labels().iter().cloned().collect()
}

/// Begins a transaction, with a successful write if requested, fails with `failing`, and continues twice: once with
/// another statement, once with the commit.
async fn ending(database: &Database, after_a_write: bool, failing: &Document) -> (i32, Ending) {
    let notes = database.collection::<Document>("notes");
    let mut session = database.client().start_session().await.unwrap();
    let (failed, failure_labels) = begin_and_fail(database, &mut session, after_a_write, failing).await;
    let next = notes.insert_one(doc! { "_id": "behind" }).session(&mut session).await.unwrap_err();
    session.abort_transaction().await.unwrap();

    let (failed_again, _) = begin_and_fail(database, &mut session, after_a_write, failing).await;
    assert_eq!(failed, failed_again, "{failing}");
    let commit = session.commit_transaction().await.unwrap_err();

    // The session can be used for the next transaction.
    session.start_transaction().await.unwrap();
    notes.insert_one(doc! { "_id": "next" }).session(&mut session).await.unwrap();
    session.commit_transaction().await.unwrap();
    notes.delete_one(doc! { "_id": "next" }).await.unwrap();

    let seen = |error: &Error| (code(error), labels(error));
    (failed, Ending { failure_labels, next_statement: seen(&next), commit: seen(&commit) })
}

async fn begin_and_fail(
    database: &Database,
    session: &mut ClientSession,
    after_a_write: bool,
    failing: &Document,
) -> (i32, BTreeSet<String>) {
    session.start_transaction().await.unwrap();
    if after_a_write {
        let notes = database.collection::<Document>("notes");
        notes.insert_one(doc! { "_id": "before" }).session(&mut *session).await.unwrap();
    }
    match database.run_command(failing.clone()).session(&mut *session).await {
        Ok(reply) => (write_errors(&reply)[0].1, BTreeSet::new()),
        Err(error) => (code(&error), labels(&error)),
    }
}

async fn prepared() -> Views {
    let views = views().await;
    for collection in ["strict", "checking", "ignoring", "plain"] {
        views.store(collection, [doc! { "_id": 1, "version": 5 }]).await;
    }
    views.store("notes", [doc! { "_id": "there" }]).await;
    views
}

fn replace(collection: &str, upsert: bool, document: Document) -> Document {
    doc! { "update": collection, "updates": [{ "q": { "_id": 1 }, "u": document, "upsert": upsert }] }
}

#[tokio::test]
async fn a_rejection_ends_a_transaction_as_a_server_error_does() {
    let views = prepared().await;
    let duplicate = doc! { "insert": "plain", "documents": [{ "_id": 1 }] };
    let find_and_modify =
        |collection: &str| doc! { "findAndModify": collection, "query": { "_id": 1 }, "update": { "version": 3 } };
    let twice = doc! { "update": "checking", "updates": [
        { "q": { "_id": 1 }, "u": { "$set": { "a": 1 } } },
        { "q": { "_id": 1 }, "u": { "version": 5 } },
    ] };
    for after_a_write in [true, false] {
        let (failed, expected) = ending(&views.direct, after_a_write, &duplicate).await;
        assert_eq!((failed, expected.commit.0), (11000, 251));
        for (failing, expected_code) in [
            (replace("strict", false, doc! { "a": 1 }), 121),
            (replace("checking", false, doc! { "version": 3 }), 112),
            (replace("checking", true, doc! { "a": 1 }), 112),
            (find_and_modify("strict"), 121),
            (find_and_modify("checking"), 112),
            (twice.clone(), 112),
        ] {
            let (failed, ending) = ending(&views.through, after_a_write, &failing).await;
            assert_eq!(failed, expected_code, "{failing}");
            let statement_error = failing.contains_key("update");
            if statement_error {
                assert_eq!(ending, expected, "{failing}");
            } else {
                assert_eq!((&ending.next_statement, &ending.commit), (&expected.next_statement, &expected.commit));
            }
        }
    }
    assert_eq!(views.stored("notes").await, [doc! { "_id": "there" }], "a write of an aborted transaction is there");
    assert_eq!(views.stored("checking").await, [doc! { "_id": 1, "version": 5 }]);
}

#[tokio::test]
async fn checked_replacements_commit_with_their_transaction() {
    let views = prepared().await;
    let mut session = views.through.client().start_session().await.unwrap();
    let checking = views.collection("checking");
    session.start_transaction().await.unwrap();
    for version in 5..8 {
        let document = doc! { "version": version };
        checking.replace_one(doc! { "_id": 1 }, document).session(&mut session).await.unwrap();
    }
    let found = checking.find_one_and_replace(doc! { "_id": 1 }, doc! { "version": 8 }).session(&mut session).await;
    assert_eq!(found.unwrap(), Some(doc! { "_id": 1, "version": 8 }));
    checking.replace_one(doc! { "_id": 2 }, doc! {}).upsert(true).session(&mut session).await.unwrap();
    assert_eq!(views.stored("checking").await, [doc! { "_id": 1, "version": 5 }], "seen before the commit");
    session.commit_transaction().await.unwrap();
    assert_eq!(views.stored("checking").await, [doc! { "_id": 1, "version": 9 }, doc! { "_id": 2, "version": 1 }]);
}

/// An ignored conflict does not abort the transaction.
#[tokio::test]
async fn an_ignored_conflict_leaves_the_transaction_open() {
    let views = prepared().await;
    let mut session = views.through.client().start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let ignoring = views.collection("ignoring");
    let stale = ignoring.replace_one(doc! { "_id": 1 }, doc! { "version": 3 }).session(&mut session).await.unwrap();
    assert_eq!(stale.matched_count, 0);
    let fresh = ignoring.replace_one(doc! { "_id": 1 }, doc! { "version": 5 }).session(&mut session).await.unwrap();
    assert_eq!(fresh.matched_count, 1);
    session.commit_transaction().await.unwrap();
    assert_eq!(views.stored("ignoring").await, [doc! { "_id": 1, "version": 6 }]);
}
