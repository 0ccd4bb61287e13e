//! The patterns `bounds`, `together` and `bucket` under concurrent writers, before a real mongod; the same runs
//! without the rules show what each prevents.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod support;

use std::collections::BTreeSet;

use bson::{Document, doc};
use mongodb::Database;
use support::driver::{Views, code, scaled};
use support::mongod::Mongod;
use support::proxy::Docward;
use tokio::task::JoinSet;

const WRITERS: u32 = 12;

const RULES: &str = r#"
version: 1
rules:
  - { name: stock, namespace: "*.books", bounds: { field: available, min: 0 } }
  - { name: record, namespace: "*.books", together: [available, checkout] }
  - { name: inbox, namespace: "*.inbox", bucket: { array: messages, count: count, limit: 100, opened: time } }
"#;

const NO_RULES: &str = "version: 1\nrules:\n  - { name: none, namespace: x.y, mode: disabled, together: [a, b] }\n";

async fn views(rules: &str) -> (Docward, Views) {
    let docward = Docward::before(&Mongod::shared().uri()).rules(rules).environment("RUST_LOG", "warn").start();
    let views = Views::of(Mongod::shared(), &docward).await;
    (docward, views)
}

/// `readers` check-outs of one book by concurrent writers, a third each by updateOne, findOneAndUpdate and a
/// batch of two; how many succeeded.
async fn check_out(database: &Database, readers: u32) -> u64 {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let database = database.clone();
        writers.spawn(async move {
            let books = database.collection::<Document>("books");
            let mut lent = 0;
            for reader in (writer..readers).step_by(WRITERS as usize) {
                let take = doc! { "$inc": { "available": -1 }, "$push": { "checkout": { "by": reader } } };
                let filter = doc! { "_id": 1 };
                lent += match reader % 3 {
                    0 => books.update_one(filter, take).await.unwrap().modified_count,
                    1 => u64::from(books.find_one_and_update(filter, take).await.unwrap().is_some()),
                    _ => {
                        let updates = vec![doc! { "q": filter, "u": take }];
                        let command = doc! { "update": "books", "updates": updates, "ordered": false };
                        database.run_command(command).await.unwrap().get_i32("n").unwrap() as u64
                    }
                };
            }
            lent
        });
    }
    writers.join_all().await.into_iter().sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_as_many_copies_are_lent_as_there_are() {
    for (rules, guarded, copies) in [(RULES, true, scaled(1000)), (NO_RULES, false, scaled(50))] {
        let (_docward, views) = views(rules).await;
        let direct = views.direct.collection::<Document>("books");
        direct.insert_one(doc! { "_id": 1, "available": copies, "checkout": [] }).await.unwrap();
        let lent = check_out(&views.through, 5 * copies).await;
        let book = direct.find_one(doc! {}).await.unwrap().unwrap();
        let records = book.get_array("checkout").unwrap().len() as u64;
        let available = book.get_i32("available").unwrap();
        if guarded {
            assert_eq!((lent, records, available), (u64::from(copies), u64::from(copies), 0));
        } else {
            assert_eq!(available, -4 * copies as i32, "without the rule the book is oversold");
        }
    }
}

#[tokio::test]
async fn a_copy_is_not_taken_without_its_record() {
    let (_docward, views) = views(RULES).await;
    let books = views.through.collection::<Document>("books");
    books.insert_one(doc! { "_id": 1, "available": 1, "checkout": [] }).await.unwrap();
    let alone = books.update_one(doc! { "_id": 1 }, doc! { "$inc": { "available": -1 } }).await;
    assert_eq!(code(&alone.unwrap_err()), 121);
    // An upsert that finds the document out of room counts as nothing found.
    let back = doc! { "$inc": { "available": -2 }, "$push": { "checkout": 1 } };
    assert_eq!(books.update_one(doc! { "_id": 1 }, back).await.unwrap().matched_count, 0);
}

/// `messages` to five owners by concurrent writers, one to three at a time; how many were acknowledged.
async fn send(database: &Database, messages: u32) -> BTreeSet<i32> {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let database = database.clone();
        writers.spawn(async move {
            let inbox = database.collection::<Document>("inbox");
            let own: Vec<u32> = (writer..messages).step_by(WRITERS as usize).collect();
            let mut acknowledged = Vec::new();
            for (round, chunk) in own.chunks(3).enumerate() {
                let each: Vec<i32> = chunk.iter().map(|message| *message as i32).collect();
                let filter = doc! { "owner": (round % 5) as i32 };
                let push = doc! { "$push": { "messages": { "$each": &each } } };
                if round % 2 == 0 {
                    inbox.update_one(filter, push).await.unwrap();
                } else {
                    inbox.find_one_and_update(filter, push).await.unwrap();
                }
                acknowledged.extend(each);
            }
            acknowledged
        });
    }
    writers.join_all().await.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_is_in_exactly_one_bucket() {
    let messages = scaled(20_000);
    let (_docward, guarded) = views(RULES).await;
    let sent = send(&guarded.through, messages).await;
    assert_eq!(sent.len(), messages as usize);
    let mut stored = Vec::new();
    for bucket in guarded.stored("inbox").await {
        let array = bucket.get_array("messages").unwrap();
        let count = bucket.get("count").and_then(|count| count.as_i32().or(count.as_i64().map(|n| n as i32)));
        assert_eq!(count, Some(array.len() as i32), "count and array differ in {}", bucket.get("_id").unwrap());
        assert!(array.len() <= 100, "a bucket of {}", array.len());
        assert!(bucket.get_datetime("time").is_ok(), "no opening time");
        stored.extend(array.iter().map(|message| message.as_i32().unwrap()));
    }
    assert_eq!(stored.len(), sent.len(), "messages were lost or stored twice");
    assert_eq!(stored.into_iter().collect::<BTreeSet<_>>(), sent);

    let (_docward, bare) = views(NO_RULES).await;
    bare.direct.collection::<Document>("inbox").insert_one(doc! { "owner": 0, "messages": [] }).await.unwrap();
    send(&bare.through, messages / 10).await;
    let lengths: Vec<usize> =
        bare.stored("inbox").await.iter().map(|inbox| inbox.get_array("messages").unwrap().len()).collect();
    let (largest, kept) = (lengths.iter().max(), lengths.iter().sum::<usize>());
    assert!(largest > Some(&100) || messages < 5000, "without the rule the array grows without end: {largest:?}");
    assert!(kept < (messages / 10) as usize, "without the rule messages to owners without inbox are lost");
}
