//! `strategy: optimistic`: the largest number plus one, repeated after a lost race. The inserted documents' numbers
//! have no gap, whatever other statements fail.

use bson::{Bson, Document, doc};
use mongodb::Collection;
use mongodb::error::TRANSIENT_TRANSACTION_ERROR;
use tokio::task::JoinSet;

use super::{insert, numbers, unique, unique_index, views};
use support::driver::{Views, code, scaled, write_errors};

async fn optimistic() -> Views {
    let views = views().await;
    views.direct.collection::<Document>("optimistic").create_index(unique_index()).await.unwrap();
    views
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn optimistic_numbers_have_no_gaps() {
    let views = optimistic().await;
    let mut writers = JoinSet::new();
    for writer in 0..8 {
        let database = views.through.clone();
        writers.spawn(async move {
            for round in 0..scaled(6) {
                insert(&database, "optimistic", writer, round).await.unwrap();
            }
        });
    }
    writers.join_all().await;
    let numbers = unique(&views.stored("optimistic").await);
    assert_eq!(numbers, (1..=numbers.len() as i64).collect::<Vec<_>>());
}

/// Other documents fail meanwhile, in ordered and unordered batches; the inserted documents have no gap.
#[tokio::test]
async fn optimistic_batches_with_failing_documents() {
    let views = optimistic().await;
    let batch = |ids: &[i32], ordered: bool| {
        let documents: Vec<Document> = ids.iter().map(|id| doc! { "_id": id }).collect();
        doc! { "insert": "optimistic", "documents": documents, "ordered": ordered }
    };
    let reply = views.run(batch(&[1, 2, 1, 3], true)).await.unwrap();
    assert_eq!((reply.get_i32("n").unwrap(), write_errors(&reply)), (2, vec![(2, 11000)]), "{reply}");
    let reply = views.run(batch(&[1, 3, 2, 4, 3, 5], false)).await.unwrap();
    let errors = vec![(0, 11000), (2, 11000), (4, 11000)];
    assert_eq!((reply.get_i32("n").unwrap(), write_errors(&reply)), (3, errors), "{reply}");
    assert_eq!(numbers(&views.stored("optimistic").await), [1, 2, 3, 4, 5]);
    // A document whose own number is taken gets its own error.
    let mut command = batch(&[6, 7, 8], false);
    let documents = command.get_array_mut("documents").unwrap();
    documents[1].as_document_mut().unwrap().insert("no", 3);
    let reply = views.run(command).await.unwrap();
    assert_eq!((reply.get_i32("n").unwrap(), write_errors(&reply)), (2, vec![(1, 11000)]), "{reply}");
    assert_eq!(numbers(&views.stored("optimistic").await), [1, 2, 3, 4, 5, 6, 7]);
}

#[tokio::test]
async fn optimistic_numbers_inside_a_transaction() {
    let views = optimistic().await;
    views.collection("optimistic").insert_one(doc! { "_id": 1 }).await.unwrap();
    let optimistic: Collection<Document> = views.collection("optimistic");
    let mut session = views.through.client().start_session().await.unwrap();
    for ends_well in [false, true] {
        session.start_transaction().await.unwrap();
        optimistic.insert_one(doc! { "_id": 2 }).session(&mut session).await.unwrap();
        optimistic.insert_many([doc! { "_id": 3 }, doc! { "_id": 4 }]).session(&mut session).await.unwrap();
        match ends_well {
            true => session.commit_transaction().await.unwrap(),
            false => session.abort_transaction().await.unwrap(),
        }
    }
    assert_eq!(numbers(&views.stored("optimistic").await), [1, 2, 3, 4]);
    // A failing document aborts the transaction, as it does without docward.
    session.start_transaction().await.unwrap();
    let error = optimistic.insert_many([doc! { "_id": 5 }, doc! { "_id": 1 }]).session(&mut session).await.unwrap_err();
    assert_eq!(code(&error), 11000);
    assert_eq!(code(&session.commit_transaction().await.unwrap_err()), 251);
    assert_eq!(views.stored("optimistic").await.len(), 4);
}

/// Concurrent batches, each with a document that fails for another reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn optimistic_batches_race_and_fail_at_once() {
    let views = optimistic().await;
    views.collection("optimistic").insert_one(doc! { "_id": "there" }).await.unwrap();
    let mut writers = JoinSet::new();
    for writer in 0..8 {
        let database = views.through.clone();
        writers.spawn(async move {
            for round in 0..scaled(4) {
                let ordered = (writer + round) % 2 == 0;
                let id = |n: u32| format!("{writer}.{round}.{n}");
                let documents = vec![doc! { "_id": id(0) }, doc! { "_id": "there" }, doc! { "_id": id(1) }];
                let command = doc! { "insert": "optimistic", "documents": documents, "ordered": ordered };
                let reply = database.run_command(command).await.unwrap();
                let n = if ordered { 1 } else { 2 };
                assert_eq!((reply.get_i32("n").unwrap(), write_errors(&reply)), (n, vec![(1, 11000)]), "{reply}");
            }
        });
    }
    writers.join_all().await;
    let numbers = unique(&views.stored("optimistic").await);
    assert_eq!(numbers, (1..=numbers.len() as i64).collect::<Vec<_>>());
    assert_eq!(numbers.len() as u32, 1 + 8 * scaled(4) + 4 * scaled(4));
}

/// Concurrent transactions: the server asks the losers to repeat the whole transaction, and they do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn optimistic_transactions_race() {
    let views = optimistic().await;
    let mut writers = JoinSet::new();
    for writer in 0..6 {
        let database = views.through.clone();
        writers.spawn(async move {
            let optimistic: Collection<Document> = database.collection("optimistic");
            let mut session = database.client().start_session().await.unwrap();
            for round in 0..scaled(3) {
                let documents: Vec<_> = (0..3).map(|n| doc! { "_id": format!("{writer}.{round}.{n}") }).collect();
                loop {
                    session.start_transaction().await.unwrap();
                    let inserted = optimistic.insert_many(&documents).session(&mut session).await.map(drop);
                    let outcome = match inserted {
                        Ok(()) => session.commit_transaction().await,
                        Err(error) => session.abort_transaction().await.and(Err(error)),
                    };
                    match outcome {
                        Ok(()) => break,
                        Err(error) => assert!(error.contains_label(TRANSIENT_TRANSACTION_ERROR), "{error}"),
                    }
                }
            }
        });
    }
    writers.join_all().await;
    let numbers = unique(&views.stored("optimistic").await);
    assert_eq!(numbers, (1..=i64::from(6 * 3 * scaled(3))).collect::<Vec<_>>());
}

/// Values stored by other applications: none of them stops the sequence, and new numbers are larger than all stored
/// ones.
#[tokio::test]
async fn odd_values_do_not_stop_a_sequence() {
    let decimal = |text: &str| Bson::from(text.parse::<bson::Decimal128>().unwrap());
    for (odd, next) in [
        (Bson::from(8.5), 9),
        (decimal("8.5"), 9),
        (decimal("9.00"), 10),
        (decimal("NaN"), 3),
        (decimal("1E+40"), 3),
        (Bson::from(f64::INFINITY), 3),
        (Bson::from(1e300), 3),
        (Bson::from("seven"), 3),
        (bson::bson!([1000]), 3),
        // Elements of arrays are in the unique index too.
        (bson::bson!([3, "x"]), 4),
        (doc! { "a": 1000 }.into(), 3),
        (Bson::from(9e15), 9_000_000_000_000_001_i64),
    ] {
        for in_transaction in [false, true] {
            let views = optimistic().await;
            views.store("optimistic", [doc! { "_id": 1, "no": 2 }, doc! { "_id": 2, "no": &odd }]).await;
            let optimistic: Collection<Document> = views.collection("optimistic");
            let mut session = views.through.client().start_session().await.unwrap();
            if in_transaction {
                session.start_transaction().await.unwrap();
                let inserted = optimistic.insert_one(doc! { "_id": 3 }).session(&mut session).await;
                if inserted.is_err() && odd.as_array().is_some() {
                    continue; // The server has aborted it because of the array's element.
                }
                inserted.unwrap();
                session.commit_transaction().await.unwrap();
            } else {
                optimistic.insert_one(doc! { "_id": 3 }).await.unwrap();
            }
            assert_eq!(numbers(&views.stored("optimistic").await[2..]), [next], "{odd} {in_transaction}");
        }
    }
}
