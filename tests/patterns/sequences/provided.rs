//! Numbers that clients set themselves: kept, and then never assigned again; rejected; or replaced.

use bson::{Bson, Document, doc};
use mongodb::Collection;
use tokio::task::JoinSet;

use super::{numbers, start, unique, views};
use support::driver::{Views, code, scaled, write_errors};
use support::mongod::Mongod;

#[tokio::test]
async fn a_number_that_is_kept_is_not_issued_again() {
    let views = views().await;
    let single: Collection<Document> = views.collection("single");
    single.insert_many([doc! {}, doc! { "no": 1 }, doc! {}]).await.unwrap();
    let decimal: bson::Decimal128 = "6.00".parse().unwrap();
    let provided: [Bson; 6] = [4.into(), 5_i64.into(), decimal.into(), 7.0.into(), bson::bson!([8, 9]), 9.5.into()];
    for (id, no) in provided.into_iter().enumerate() {
        single.insert_one(doc! { "_id": id as i32, "no": no }).await.unwrap();
    }
    single.insert_one(doc! { "_id": "by filter", "no": "ten" }).await.unwrap();
    single.update_one(doc! { "no": 10 }, doc! { "$set": { "a": 1 } }).upsert(true).await.unwrap();
    let by_filter = || doc! { "_id": "by filter" };
    single.update_one(by_filter(), doc! { "$set": { "no": 11 } }).await.unwrap();
    single.replace_one(by_filter(), doc! { "no": 13 }).await.unwrap();
    single.insert_one(doc! { "_id": "next" }).await.unwrap();
    let next = single.find_one(doc! { "_id": "next" }).await.unwrap().unwrap();
    assert_eq!(next.get_i32("no").unwrap(), 14);
    let first: Vec<Document> =
        views.stored("single").await.into_iter().filter(|d| d.get_object_id("_id").is_ok()).collect();
    let first: Vec<Document> = first.into_iter().filter(|d| !d.contains_key("a")).collect();
    assert_eq!(numbers(&first), [2, 1, 3]);
    assert_eq!(views.stored("counters").await, [doc! { "_id": "single", "seq": 14 }]);
}

#[tokio::test]
async fn client_numbers_inside_a_reserved_block_are_skipped() {
    let views = views().await;
    let blocks: Collection<Document> = views.collection("blocks");
    blocks.insert_one(doc! {}).await.unwrap();
    blocks.insert_many([doc! { "no": 2 }, doc! { "no": 4 }, doc! {}, doc! { "no": 60 }, doc! {}]).await.unwrap();
    blocks.insert_many((0..80).map(|_| doc! {})).await.unwrap();
    let numbers = unique(&views.stored("blocks").await);
    assert_eq!(numbers.len(), 86);
    assert_eq!(numbers[..7], [1, 2, 3, 4, 5, 6, 7]);
}

/// The counter starts at the rule's value, whether the first number comes from docward or a client.
#[tokio::test]
async fn a_clients_first_number_does_not_change_the_start() {
    let views = views().await;
    let of = async |collection: &str, no: i32| {
        let through: Collection<Document> = views.collection(collection);
        let document = if collection == "behind" {
            doc! { "meta": { "no": no } }
        } else {
            doc! { "no": no }
        };
        through.insert_one(document).await.unwrap();
        through.insert_one(doc! { "_id": "next" }).await.unwrap();
        let next = through.find_one(doc! { "_id": "next" }).await.unwrap().unwrap();
        next.get_i32("no").or_else(|_| next.get_document("meta").unwrap().get_i32("no")).unwrap()
    };
    assert_eq!(of("later", 5).await, 1000);
    views.store("behind", [doc! { "_id": "old", "meta": { "no": 70 } }]).await;
    assert_eq!(of("behind", 5).await, 71);
}

/// After the largest whole number, documents without a number are rejected, and the counter stays a whole number.
#[tokio::test]
async fn after_the_largest_number_none_is_assigned() {
    let views = views().await;
    let insert = async |collection: &str, document: Document| {
        let reply = views.run(doc! { "insert": collection, "documents": [document] }).await.unwrap();
        write_errors(&reply)
    };
    for _ in 0..2 {
        views.store("behind", [doc! { "_id": 1, "meta": { "no": i64::MAX } }]).await;
        assert_eq!(insert("behind", doc! {}).await, [(0, 121)], "it is stored");
        views.direct.collection::<Document>("behind").delete_many(doc! {}).await.unwrap();
    }
    views.store("behind", [doc! { "_id": 1, "meta": { "no": i64::MAX - 1 } }]).await;
    assert_eq!(insert("behind", doc! {}).await, [], "one is left");
    assert_eq!(insert("behind", doc! {}).await, [(0, 121)], "none is left");
    assert_eq!(insert("single", doc! { "no": i64::MAX }).await, []);
    assert_eq!(insert("single", doc! {}).await, [(0, 121)], "it was provided");
    let counters: Vec<Bson> = views.stored("counters").await.iter().map(|of| of.get("seq").unwrap().clone()).collect();
    assert_eq!(counters, [Bson::Int64(i64::MAX), Bson::Int64(i64::MAX)]);
}

#[tokio::test]
async fn numbers_can_be_rejected() {
    let views = views().await;
    let strict: Collection<Document> = views.collection("strict");
    let reply =
        views.run(doc! { "insert": "strict", "documents": [{ "_id": 1 }, { "_id": 2, "no": 9 }] }).await.unwrap();
    assert_eq!(write_errors(&reply), [(1, 121)]);
    // No document is inserted with it; documents that have it can be found by it.
    for upsert in [doc! { "$set": { "no": 9 } }, doc! { "$setOnInsert": { "no": 9 } }, doc! { "no": 9 }] {
        let statement = doc! { "q": { "_id": 3 }, "u": &upsert, "upsert": true };
        let reply = views.run(doc! { "update": "strict", "updates": [statement] }).await.unwrap();
        assert_eq!(write_errors(&reply), [(0, 121)], "{upsert}");
    }
    let by_number = strict.update_one(doc! { "no": 9 }, doc! { "$set": { "x": 1 } }).upsert(true).await;
    assert_eq!(code(&by_number.unwrap_err()), 121);
    strict.update_one(doc! { "no": 1 }, doc! { "$set": { "x": 1 } }).upsert(true).await.unwrap();
    strict.replace_one(doc! { "_id": 1 }, doc! { "no": 1, "x": 2 }).await.unwrap();
    strict.replace_one(doc! { "_id": 1 }, doc! { "no": 1, "x": 3 }).upsert(true).await.unwrap();
    assert_eq!(code(&strict.replace_one(doc! { "_id": 1 }, doc! { "no": 2 }).await.unwrap_err()), 121);
    let missing = strict.replace_one(doc! { "_id": 9 }, doc! { "no": 2 }).await.unwrap();
    assert_eq!(missing.matched_count, 0, "there is nothing whose number would change");
    strict.update_one(doc! { "_id": 4 }, doc! { "$set": { "x": 4 } }).upsert(true).await.unwrap();
    let stored = views.stored("strict").await;
    // Each upsert that is checked uses a number, and the rejected one did not raise the counter to 9.
    assert_eq!(stored, [doc! { "_id": 1, "no": 1, "x": 3 }, doc! { "_id": 4, "x": 4, "no": 3 }]);
}

#[tokio::test]
async fn numbers_can_be_replaced() {
    let views = views().await;
    let own: Collection<Document> = views.collection("own");
    own.insert_many([doc! { "_id": 1, "no": 70 }, doc! { "_id": 2, "no": "x" }, doc! { "_id": 3 }]).await.unwrap();
    own.replace_one(doc! { "_id": 1 }, doc! { "no": 9, "x": 1 }).await.unwrap();
    own.replace_one(doc! { "_id": 4 }, doc! { "no": 9, "x": 1 }).upsert(true).await.unwrap();
    own.update_one(doc! { "_id": 5 }, doc! { "$set": { "no": 9, "x": 1 } }).upsert(true).await.unwrap();
    own.update_one(doc! { "_id": 5 }, doc! { "$set": { "no": 5 }, "$inc": { "x": 1 } }).upsert(true).await.unwrap();
    own.update_one(doc! { "_id": 6, "no": 70 }, doc! { "$setOnInsert": { "no": 9 } }).upsert(true).await.unwrap();
    let stored = views.stored("own").await;
    let numbers = numbers(&stored);
    assert_eq!((numbers.len(), &numbers[..5]), (6, &[1, 2, 3, 4, 5][..]));
    assert_eq!(unique(&stored).len(), 6, "{stored:?}");
    assert_eq!(stored[4].get_i32("x").unwrap(), 2);
    own.insert_many((0..10).map(|_| doc! {})).await.unwrap();
    unique(&views.stored("own").await);
}

/// Two processes, with writers that get numbers from docward, and writers that set numbers far ahead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn issued_and_client_numbers_do_not_collide() {
    let docwards = [start(), start()];
    let views = Views::of(Mongod::shared(), &docwards[0]).await;
    let other = docwards[1].client().await.database(views.direct.name());
    let mut writers = JoinSet::new();
    for writer in 0..6 {
        let database = if writer % 2 == 0 { &views.through } else { &other };
        let blocks: Collection<Document> = database.collection("blocks");
        writers.spawn(async move {
            for round in 0..scaled(20) as i32 {
                let ahead = 1_000_000 * (round + 1) + 1000 * writer;
                blocks
                    .insert_one(if writer < 2 {
                        doc! { "no": ahead }
                    } else {
                        doc! {}
                    })
                    .await
                    .unwrap();
            }
        });
    }
    writers.join_all().await;
    let numbers = unique(&views.stored("blocks").await);
    assert_eq!(numbers.len() as u32, 6 * scaled(20));
    // Once the reserved blocks are used up, assigned numbers are larger than all client numbers.
    let blocks: Collection<Document> = other.collection("blocks");
    blocks.insert_many((0..1000).map(|_| doc! {})).await.unwrap();
    assert!(unique(&views.stored("blocks").await).last() > numbers.last());
}

/// A stored number stays, whatever the statement; what a document without one gets must be known to the sequence.
#[tokio::test]
async fn a_stored_number_stays() {
    let views = views().await;
    for collection in ["single", "strict", "own"] {
        views.store(collection, [doc! { "_id": 1, "no": 7, "x": 1 }, doc! { "_id": 2, "no": 8, "x": 1 }]).await;
        let code_of = async |filter: Document, update: Bson, multi: bool| {
            let statement = doc! { "q": filter, "u": update, "multi": multi };
            let reply = views.run(doc! { "update": collection, "updates": [statement] }).await.unwrap();
            write_errors(&reply).first().map(|error| error.1)
        };
        let (one, all) = (|| doc! { "_id": 1 }, || doc! { "x": 1 });
        for (filter, update, multi) in [
            (one(), bson::bson!({ "$set": { "no": 9 } }), false),
            (one(), bson::bson!({ "$set": { "no": 7_i64 } }), false),
            (one(), bson::bson!({ "$unset": { "no": "" } }), false),
            (one(), bson::bson!({ "$inc": { "no": 1 } }), false),
            (one(), bson::bson!({ "$rename": { "x": "no" } }), false),
            (one(), bson::bson!({ "$rename": { "no": "y" } }), false),
            (one(), bson::bson!([{ "$set": { "no": { "$add": ["$no", 1] } } }]), false),
            (one(), bson::bson!([{ "$replaceWith": { "x": 1 } }]), false),
            (all(), bson::bson!({ "$max": { "no": 8 } }), true),
            (doc! { "no": { "$gt": 6 } }, bson::bson!([{ "$unset": "no" }]), true),
        ] {
            assert_eq!(code_of(filter, update.clone(), multi).await, Some(121), "{collection}: {update}");
        }
        let replaced = views.run(doc! {
            "update": collection, "updates": [{ "q": { "_id": 1 }, "u": { "no": "x", "x": 1 } }],
        });
        replaced.await.unwrap();
        assert_eq!(views.stored(collection).await[0], doc! { "_id": 1, "no": 7, "x": 1 }, "{collection}");
        for update in [
            bson::bson!({ "$set": { "no": 7, "x": 2 } }),
            bson::bson!({ "$max": { "no": 3 }, "$inc": { "x": 1 } }),
            bson::bson!([{ "$replaceWith": { "no": "$no", "x": { "$add": ["$x", 1] } } }]),
        ] {
            assert_eq!(code_of(one(), update.clone(), false).await, None, "{collection}: {update}");
        }
        let stored = views.stored(collection).await;
        assert_eq!(stored, [doc! { "_id": 1, "no": 7, "x": 4 }, doc! { "_id": 2, "no": 8, "x": 1 }], "{collection}");

        views.store(collection, [doc! { "_id": 3, "x": 5 }]).await;
        let known = if collection == "strict" { Some(121) } else { None };
        assert_eq!(code_of(doc! { "_id": 3 }, bson::bson!({ "$inc": { "no": 70 } }), false).await, Some(121));
        assert_eq!(code_of(doc! { "_id": 3 }, bson::bson!({ "$set": { "no": 70 } }), false).await, known);
        views.collection(collection).insert_one(doc! { "_id": 4 }).await.unwrap();
        let is_behind = views.stored(collection).await.last().unwrap().get_i32("no").unwrap() > 70;
        assert_eq!(is_behind, known.is_none(), "{collection}");
    }
}
