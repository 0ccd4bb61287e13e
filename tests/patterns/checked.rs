//! Checked statements in front of a real mongod: where a statement keeps the rule, the result is the direct one; where it
//! breaks it, nothing is stored.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use bson::{Bson, Document, doc};
use mongodb::Collection;
use support::driver::{Views, code, connect, message, ok};
use support::mongod::{Kind, Mongod};
use support::process::{TIMEOUT, poll};
use support::proxy::Docward;
use tokio::task::JoinSet;

const RULES: &str = r#"
version: 1
rules:
  - { name: both, namespace: "*.both", together: [a, b] }
  - { name: lenient, namespace: "*.lenient", unsupported: allow, together: [a, b] }
  - { name: jobs, namespace: "*.jobs", queue: { lease: 5m } }
  - { name: inbox, namespace: "*.inbox", bucket: { array: m, count: n, limit: 5 } }
  - { name: saves, namespace: "*.saves", replacement: { version: v } }
"#;

fn docward() -> &'static Docward {
    static DOCWARD: OnceLock<Docward> = OnceLock::new();
    DOCWARD.get_or_init(|| Docward::start(Mongod::shared(), RULES))
}

async fn views() -> Views {
    Views::of(Mongod::shared(), docward()).await
}

fn update(filter: Document, update: impl Into<Bson>) -> Document {
    doc! { "q": filter, "u": update.into() }
}

fn with(mut statement: Document, option: &str, value: impl Into<Bson>) -> Document {
    statement.insert(option, value);
    statement
}

fn updates(statements: Vec<Document>) -> Document {
    doc! { "update": "both", "updates": statements }
}

fn find_and_modify(options: Document) -> Document {
    let mut command = doc! { "findAndModify": "both" };
    command.extend(options);
    command
}

fn stored() -> Vec<Document> {
    (1..=3).map(|id| doc! { "_id": id, "a": id, "b": [id, id + 1], "c": { "d": 1 } }).collect()
}

/// Commands that are not plain for the rule and keep it.
fn harmless() -> Vec<Document> {
    let add = |field: &str| doc! { "$add": [format!("${field}"), 1] };
    let both = || vec![doc! { "$set": { "a": add("a"), "b": { "$size": "$b" } } }];
    let moved = || doc! { "$rename": { "a": "x", "b": "y" } };
    vec![
        updates(vec![update(doc! { "_id": 1 }, both())]),
        updates(vec![update(doc! { "a": { "$gt": 1 } }, moved())]),
        updates(vec![with(update(doc! {}, both()), "multi", true)]),
        updates(vec![with(update(doc! { "_id": { "$gt": 5 } }, both()), "multi", true)]),
        updates(vec![update(doc! { "_id": 9 }, moved())]),
        // It changes nothing.
        updates(vec![update(doc! { "_id": 1 }, vec![doc! { "$set": { "a": "$a", "b": "$b" } }])]),
        updates(vec![update(doc! { "_id": 1 }, vec![doc! { "$replaceWith": { "a": 7, "b": 8 } }])]),
        updates(vec![update(doc! { "_id": 1 }, vec![doc! { "$unset": ["a", "b"] }])]),
        updates(vec![with(update(doc! { "a": 9, "b": 8 }, doc! { "$set": { "e": 1 } }), "upsert", true)]),
        updates(vec![with(update(doc! { "_id": 1 }, doc! { "$setOnInsert": { "a": 1 } }), "upsert", true)]),
        updates(vec![with(
            update(doc! { "_id": 1 }, vec![doc! { "$set": { "a": "$$k", "b": "$$k" } }]),
            "c",
            doc! { "k": 5 },
        )]),
        updates(vec![
            update(doc! { "_id": 1 }, both()),
            update(doc! { "_id": 2 }, doc! { "$set": { "e": 1 } }),
            update(doc! { "_id": 3 }, moved()),
        ]),
        // Errors of the statement itself.
        updates(vec![update(doc! { "_id": 1 }, vec![doc! { "$set": { "a": { "$divide": [1, 0] }, "b": 1 } }])]),
        updates(vec![with(update(doc! { "_id": 1, "a": 9, "b": 9 }, moved()), "upsert", true)]),
        updates(vec![update(doc! { "a": { "$gtt": 1 } }, moved())]),
        updates(vec![with(update(doc! { "a": { "$gtt": 1 } }, moved()), "multi", true)]),
        updates(vec![with(
            update(doc! {}, vec![doc! { "$set": { "a": { "$add": ["$c", 1] }, "b": 1 } }]),
            "multi",
            true,
        )]),
        find_and_modify(doc! { "query": { "_id": 1 }, "update": moved() }),
        find_and_modify(doc! { "query": {}, "sort": { "_id": -1 }, "update": both(), "new": true }),
        find_and_modify(doc! { "query": { "_id": 1 }, "update": both(), "fields": { "_id": 0, "a": 1 } }),
        find_and_modify(doc! { "query": { "_id": 1 }, "update": both(), "fields": { "c": 1 }, "new": true }),
        find_and_modify(doc! { "query": { "b": 2 }, "update": moved(), "fields": { "b.$": 1 } }),
        find_and_modify(doc! { "query": { "_id": 9 }, "update": both(), "new": true }),
        find_and_modify(
            doc! { "query": { "a": 8, "b": 8 }, "update": { "$set": { "e": 1 } }, "upsert": true, "new": true },
        ),
        find_and_modify(doc! { "query": { "_id": 1 }, "update": both(), "fields": { "a": { "$divide": [1, 0] } } }),
    ]
}

/// The reply without fields about the server and without texts, or the error's code.
async fn result_of(views: &Views, through: bool, command: Document) -> Bson {
    let database = if through { &views.through } else { &views.direct };
    match database.run_command(command).await {
        Ok(mut reply) => {
            for key in ["$clusterTime", "operationTime", "electionId", "opTime"] {
                reply.remove(key);
            }
            // Each side makes its own.
            if let Ok(upserted) = reply.get_array_mut("upserted") {
                upserted.iter_mut().for_each(|one| drop(one.as_document_mut().unwrap().remove("_id")));
            }
            if let Ok(value) = reply.get_document_mut("value")
                && value.get_object_id("_id").is_ok()
            {
                value.remove("_id");
            }
            if let Ok(last) = reply.get_document_mut("lastErrorObject") {
                last.remove("upserted");
            }
            Bson::Document(reply)
        }
        Err(error) => Bson::Int32(code(&error)),
    }
}

fn without_made_ids(documents: Vec<Document>) -> Vec<Document> {
    let without = |mut document: Document| {
        if document.get_object_id("_id").is_ok() {
            document.remove("_id");
        }
        document
    };
    documents.into_iter().map(without).collect()
}

#[tokio::test]
async fn a_checked_statement_that_keeps_the_rule_has_the_direct_result() {
    let views = views().await;
    for command in harmless() {
        let mut results = Vec::new();
        for through in [false, true] {
            views.direct.collection::<Document>("both").drop().await.unwrap();
            views.store("both", stored()).await;
            let result = result_of(&views, through, command.clone()).await;
            results.push((result, without_made_ids(views.stored("both").await)));
        }
        assert_eq!(results[1], results[0], "{command}");
    }
}

#[tokio::test]
async fn a_checked_statement_that_breaks_the_rule_changes_nothing() {
    let views = views().await;
    let both: Collection<Document> = views.collection("both");
    views.store("both", stored()).await;
    let add = || vec![doc! { "$set": { "a": { "$add": ["$a", 1] } } }];
    let error = both.update_one(doc! { "_id": 2 }, add()).await.unwrap_err();
    assert_eq!(code(&error), 121);
    let text = message(&error);
    assert!(text.contains("it would change 'a' without 'b': 'a' from 2 to 3, in the document with _id 2"), "{text}");
    for error in [
        both.update_many(doc! {}, add()).await.unwrap_err(),
        both.update_one(doc! { "_id": 1 }, doc! { "$rename": { "a": "x" } }).await.unwrap_err(),
        both.update_one(doc! { "a": 9 }, doc! { "$set": { "e": 1 } }).upsert(true).await.unwrap_err(),
        both.find_one_and_update(doc! { "_id": 1 }, add()).projection(doc! { "a": 1 }).await.unwrap_err(),
        both.find_one_and_update(doc! { "_id": 1 }, vec![doc! { "$replaceWith": { "a": 1 } }]).await.unwrap_err(),
    ] {
        assert_eq!(code(&error), 121, "{error}");
    }
    assert_eq!(views.stored("both").await, stored());
}

#[tokio::test]
async fn many_documents_are_checked_in_pieces_and_those_before_the_broken_one_stay() {
    let views = views().await;
    let both: Collection<Document> = views.collection("both");
    let mut documents: Vec<Document> = (0..2500).map(|id| doc! { "_id": id, "a": id, "b": id }).collect();
    documents[2100].insert("b", "x");
    views.store("both", documents).await;
    // A document whose `b` is a text loses it.
    let b = doc! { "$cond": [{ "$isNumber": "$b" }, { "$add": ["$b", 1] }, "$$REMOVE"] };
    let change = vec![doc! { "$set": { "a": { "$add": ["$a", 1] }, "b": b } }];
    let error = both.update_many(doc! {}, change).await.unwrap_err();
    let text = message(&error);
    assert!(text.contains("in the document with _id 2100; 2000 other documents were changed before it"), "{text}");
    let stored = views.stored("both").await;
    let changed = stored.iter().filter(|one| one.get_i32("a").unwrap() != one.get_i32("_id").unwrap());
    assert_eq!(changed.count(), 2000);
}

/// Each `_id` is long, so that few documents suffice.
#[tokio::test]
async fn the_list_of_documents_of_one_statement_is_bounded() {
    let views = views().await;
    let long = "x".repeat(60_000);
    let documents = (0..1200).map(|number| doc! { "_id": format!("{number}{long}"), "a": 1, "b": 1 });
    views.store("both", documents).await;
    let both: Collection<Document> = views.collection("both");
    let error = both.update_many(doc! {}, vec![doc! { "$set": { "a": "$b", "b": "$a" } }]).await.unwrap_err();
    assert!(message(&error).contains("longer than 64 MiB"), "{}", &message(&error)[..300]);
}

#[tokio::test]
async fn in_a_transaction_a_broken_rule_aborts_it() {
    let views = views().await;
    let both: Collection<Document> = views.collection("both");
    views.store("both", stored()).await;
    let mut session = views.through.client().start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let moved = doc! { "$rename": { "a": "x", "b": "y" } };
    let result = both.update_one(doc! { "_id": 1 }, moved.clone()).session(&mut session).await.unwrap();
    assert_eq!((result.matched_count, result.modified_count), (1, 1));
    let again = vec![doc! { "$set": { "a": "$x", "b": "$y" } }];
    let before = both.find_one_and_update(doc! { "_id": 1 }, again).session(&mut session).await.unwrap().unwrap();
    assert_eq!(before.get_i32("x").unwrap(), 1);
    session.commit_transaction().await.unwrap();
    assert_eq!(views.stored("both").await[0].get_i32("a").unwrap(), 1);
    session.start_transaction().await.unwrap();
    both.update_one(doc! { "_id": 2 }, moved).session(&mut session).await.unwrap();
    let broken = both.update_many(doc! {}, doc! { "$rename": { "a": "z" } }).session(&mut session).await;
    assert_eq!(code(&broken.unwrap_err()), 121);
    assert_eq!(code(&session.commit_transaction().await.unwrap_err()), 251);
    assert!(views.stored("both").await[1].contains_key("a"));
}

#[tokio::test]
async fn checked_and_plain_writers_on_one_document_lose_nothing() {
    const WRITERS: i32 = 4;
    const ROUNDS: i32 = 15;
    let views = views().await;
    views.store("both", [doc! { "_id": 1, "a": 0, "b": 0 }]).await;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let both: Collection<Document> = views.collection("both");
        writers.spawn(async move {
            let add = |field: &str| doc! { "$add": [format!("${field}"), 1] };
            for _ in 0..ROUNDS {
                let result = match writer % 2 {
                    0 => {
                        both.update_one(doc! { "_id": 1 }, vec![doc! { "$set": { "a": add("a"), "b": add("b") } }])
                            .await
                    }
                    _ => both.update_one(doc! { "_id": 1 }, doc! { "$inc": { "a": 1, "b": 1 } }).await,
                };
                assert_eq!(result.unwrap().modified_count, 1);
            }
        });
    }
    while let Some(ended) = writers.join_next().await {
        ended.unwrap();
    }
    let all = WRITERS * ROUNDS;
    assert_eq!(views.stored("both").await, [doc! { "_id": 1, "a": all, "b": all }]);
}

/// The operation waits for docward's transaction, and the read of the documents before, outside of that, for the operation.
#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_waits_for_the_global_lock_does_not_wait_until_the_transaction_expires() {
    const EXPIRES: Duration = Duration::from_secs(60);
    let mongod = Mongod::start(Kind::ReplicaSet);
    let docward = Docward::start(&mongod, RULES);
    let views = Views::of(&mongod, &docward).await;
    views.store("both", stored()).await;
    let slow = doc! {
        "configureFailPoint": "failCommand", "mode": "alwaysOn",
        "data": { "failCommands": ["find"], "blockConnection": true, "blockTimeMS": 600, "appName": "slow" },
    };
    mongod.command("admin", slow);
    let begun = Instant::now();
    let through = connect(&docward.address(), "appName=slow").await.database(views.direct.name());
    let both: Collection<Document> = through.collection("both");
    let swap = vec![doc! { "$set": { "a": "$b", "b": "$a" } }];
    let update = tokio::spawn(async move { both.update_many(doc! {}, swap).await });
    let is_held = doc! { "aggregate": 1, "cursor": {}, "pipeline": [
        { "$currentOp": { "idleSessions": true } }, { "$match": { "transaction.parameters.autocommit": false } },
    ] };
    poll(TIMEOUT, || {
        let reply = mongod.command("admin", is_held.clone());
        (!reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().is_empty()).then_some(())
    })
    .expect("the transaction is open");
    let insert = doc! { "op": "c", "ns": "other.$cmd", "o": { "create": "other" } };
    assert!(ok(&mongod.command("admin", doc! { "applyOps": [insert] })));
    assert_eq!(update.await.unwrap().unwrap().modified_count, 3);
    assert!(begun.elapsed() < EXPIRES / 2, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn without_transactions_it_is_rejected_or_forwarded_by_unsupported() {
    let views = views().await;
    for name in ["both", "lenient"] {
        views.direct.create_collection(name).capped(true).size(4096).await.unwrap();
        views.store(name, [doc! { "_id": 1, "a": 1, "b": 1 }]).await;
    }
    let swap = || vec![doc! { "$set": { "a": "$b", "b": "$a" } }];
    let error = views.collection("both").update_one(doc! { "_id": 1 }, swap()).await.unwrap_err();
    assert!(message(&error).contains("it must be checked in a transaction"), "{error}");
    views.collection("lenient").update_one(doc! { "_id": 1 }, swap()).await.unwrap();

    let alone = Mongod::start(Kind::Standalone);
    let docward = Docward::start(&alone, RULES);
    let views = Views::of(&alone, &docward).await;
    views.store("both", stored()).await;
    views.store("lenient", stored()).await;
    let error = views.collection("both").update_one(doc! { "_id": 1 }, swap()).await.unwrap_err();
    assert!(message(&error).contains("one member is enough"), "{error}");
    let error = views.collection("both").update_many(doc! {}, swap()).await.unwrap_err();
    assert!(message(&error).contains("one member is enough"), "{error}");
    assert_eq!(views.collection("lenient").update_many(doc! {}, swap()).await.unwrap().modified_count, 3);
}

/// A pipeline that makes another document, whose filter also matches the result.
fn appending() -> Vec<Document> {
    let document = doc! { "m": { "$concatArrays": [{ "$ifNull": ["$m", []] }, ["x"]] }, "locked": false };
    vec![doc! { "$replaceWith": { "$mergeObjects": ["$$ROOT", document] } }]
}

#[tokio::test]
async fn a_retried_statement_that_replaces_by_a_pipeline_is_executed_once() {
    let views = views().await;
    let before = doc! { "_id": 1, "a": 1, "b": 1, "v": 1, "m": ["a"], "n": 1, "locked": false, "try": 0 };
    for collection in ["both", "jobs", "inbox", "saves"] {
        views.store(collection, [before.clone()]).await;
        let mut client = support::raw::Client::connect(&docward().address());
        let session = doc! { "id": bson::Uuid::new() };
        let command = doc! {
            "update": collection, "updates": [update(doc! { "_id": 1 }, appending())],
            "lsid": session, "txnNumber": 1_i64,
        };
        for send in ["first", "second"] {
            let reply = client.command(views.through.name(), command.clone());
            assert_eq!((reply.get_i32("n").ok(), reply.get_f64("ok").ok()), (Some(1), Some(1.0)), "{send}: {reply}");
        }
        let [stored] = &views.stored(collection).await[..] else { panic!("{collection}") };
        assert_eq!(stored.get_array("m").unwrap().len(), 2, "{collection}: {stored}");
    }
}

#[tokio::test]
async fn the_document_after_a_checked_statement_is_the_settled_one() {
    for (collection, stored, filter, settled) in [
        ("inbox", doc! { "_id": 1, "m": [], "n": 0 }, doc! { "_id": 1 }, doc! { "n": 1 }),
        ("saves", doc! { "_id": 1, "v": 3 }, doc! { "_id": 1 }, doc! { "v": 4 }),
        ("jobs", doc! { "_id": 1, "locked": false, "try": 1 }, doc! { "_id": 1, "try": 1 }, doc! { "try": 2 }),
    ] {
        for fields in [doc! {}, doc! { "_id": 1, "n": 1, "v": 1, "try": 1 }] {
            let views = views().await;
            views.store(collection, [stored.clone()]).await;
            let locks = vec![doc! { "$replaceWith": { "$mergeObjects": ["$$ROOT", { "m": ["x"], "locked": true }] } }];
            let command =
                doc! { "findAndModify": collection, "query": &filter, "update": locks, "new": true, "fields": &fields };
            let reply = views.run(command).await.unwrap();
            let value = reply.get_document("value").unwrap();
            for (field, expected) in &settled {
                assert_eq!(value.get(field), Some(expected), "{collection} {fields}: {value}");
            }
        }
    }
}

#[tokio::test]
async fn a_checked_claim_counts_attempts_of_every_type() {
    let decimal = |text: &str| Bson::Decimal128(text.parse().unwrap());
    for (attempts, next) in [
        (Bson::Int32(1), Some(Bson::Int32(2))),
        (Bson::Double(2.5), Some(Bson::Double(3.5))),
        (decimal("2"), Some(Bson::Int32(3))),
        (decimal("2.5"), None),
    ] {
        let views = views().await;
        views.store("jobs", [doc! { "_id": 1, "locked": false, "try": attempts.clone() }]).await;
        let claim = with(update(doc! { "locked": false }, doc! { "$set": { "locked": true } }), "multi", true);
        let reply = views.run(doc! { "update": "jobs", "updates": [claim] }).await.unwrap();
        let stored = views.stored("jobs").await.swap_remove(0);
        assert_eq!(stored.get("try"), Some(next.as_ref().unwrap_or(&attempts)), "{stored}");
        assert_eq!(reply.contains_key("writeErrors"), next.is_none(), "{reply}");
    }
}

#[tokio::test]
async fn a_first_version_can_be_counted() {
    for odd in [doc! { "$push": { "v": 1 } }, doc! { "$max": { "v": "a" } }, doc! { "$currentDate": { "v": true } }] {
        let views = views().await;
        views.store("saves", [doc! { "_id": 1, "x": 0 }]).await;
        let command = doc! { "update": "saves", "updates": [update(doc! { "_id": 1 }, odd.clone())] };
        let reply = views.run(command).await.unwrap();
        assert!(reply.contains_key("writeErrors"), "{odd}: {reply}");
        assert_eq!(views.stored("saves").await, [doc! { "_id": 1, "x": 0 }]);
    }
}
