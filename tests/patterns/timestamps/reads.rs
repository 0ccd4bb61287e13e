//! `hide: true`: reads return documents without their timestamps, unless the query names them.

use bson::{Document, doc};
use mongodb::options::ReturnDocument;

use super::{time, views};
use support::driver::{Views, all};

async fn prepared() -> (Views, Document, Document) {
    let views = views().await;
    views.collection("hiding").insert_one(doc! { "_id": 1, "a": 1, "at": time(1) }).await.unwrap();
    let timestamps = doc! { "a": time(1), "at": time(1) };
    (views, doc! { "_id": 1, "a": 1, "at": time(1) }, timestamps)
}

/// The only document of a find or aggregate command's first batch.
async fn first(views: &Views, command: Document) -> Document {
    let described = command.to_string();
    let reply = views.run(command).await.unwrap();
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    assert_eq!(batch.len(), 1, "{described}");
    batch[0].as_document().unwrap().clone()
}

#[tokio::test]
async fn a_find_returns_no_timestamps() {
    let (views, plain, timestamps) = prepared().await;
    assert_eq!(all(&views.through, "hiding").await, std::slice::from_ref(&plain));
    assert_eq!(views.stored("hiding").await[0].get_document("last_modified").unwrap(), &timestamps);
    let find = async |projection: Document| first(&views, doc! { "find": "hiding", "projection": projection }).await;
    assert_eq!(find(doc! {}).await, plain);
    assert_eq!(find(doc! { "a": 0 }).await, doc! { "_id": 1, "at": time(1) });
    assert_eq!(find(doc! { "_id": 0 }).await, doc! { "a": 1, "at": time(1) });
    assert_eq!(find(doc! { "a": 1 }).await, doc! { "_id": 1, "a": 1 });
    assert_eq!(find(doc! { "last_modified": 1 }).await, doc! { "_id": 1, "last_modified": &timestamps });
    assert_eq!(find(doc! { "_id": 0, "last_modified.a": 1 }).await, doc! { "last_modified": { "a": time(1) } });
    assert_eq!(find(doc! { "_id": 0, "t": "$last_modified.a" }).await, doc! { "t": time(1) });
}

#[tokio::test]
async fn an_aggregation_returns_no_timestamps() {
    let (views, plain, timestamps) = prepared().await;
    let aggregate = async |pipeline: &[Document]| {
        first(&views, doc! { "aggregate": "hiding", "pipeline": pipeline, "cursor": {} }).await
    };
    assert_eq!(aggregate(&[]).await, plain);
    assert_eq!(aggregate(&[doc! { "$match": { "a": 1 } }, doc! { "$sort": { "a": 1 } }]).await, plain);
    let grouped = aggregate(&[doc! { "$group": { "_id": "$a", "all": { "$push": "$$ROOT" } } }]).await;
    assert_eq!(grouped, doc! { "_id": 1, "all": [plain] });
    let named = aggregate(&[doc! { "$project": { "_id": 0, "timestamps": "$last_modified" } }]).await;
    assert_eq!(named, doc! { "timestamps": timestamps });
}

#[tokio::test]
async fn find_and_modify_returns_no_timestamps() {
    let (views, plain, _) = prepared().await;
    let hiding = views.collection("hiding");
    let set = |value: i32, n: i64| doc! { "$set": { "a": value, "at": time(n) } };
    assert_eq!(hiding.find_one_and_update(doc! { "_id": 1 }, set(2, 2)).await.unwrap(), Some(plain));
    let after = hiding.find_one_and_update(doc! { "_id": 1 }, set(3, 3)).return_document(ReturnDocument::After).await;
    assert_eq!(after.unwrap(), Some(doc! { "_id": 1, "a": 3, "at": time(3) }));
    let stale = hiding.find_one_and_update(doc! { "_id": 1 }, set(9, 1)).return_document(ReturnDocument::After).await;
    assert_eq!(stale.unwrap(), Some(doc! { "_id": 1, "a": 3, "at": time(3) }));
    let named =
        hiding.find_one_and_update(doc! { "_id": 1 }, set(4, 4)).projection(doc! { "last_modified.a": 1 }).await;
    assert_eq!(named.unwrap(), Some(doc! { "_id": 1, "last_modified": { "a": time(3) } }));
    // A checked one.
    let beside = doc! { "$set": { "a": 4, "at": time(4) }, "$setOnInsert": { "q": 1 } };
    for document in [ReturnDocument::Before, ReturnDocument::After] {
        let found = hiding.find_one_and_update(doc! { "_id": 1 }, beside.clone()).return_document(document).await;
        assert_eq!(found.unwrap(), Some(doc! { "_id": 1, "a": 4, "at": time(4) }));
    }
    let deleted = hiding.find_one_and_delete(doc! { "_id": 1 }).await.unwrap();
    assert_eq!(deleted, Some(doc! { "_id": 1, "a": 4, "at": time(4) }));
}

/// A copy of a collection keeps the timestamps; otherwise late writes to it would win.
#[tokio::test]
async fn an_aggregation_into_a_collection_writes_the_timestamps() {
    let (views, mut timestamped, timestamps) = prepared().await;
    timestamped.insert("last_modified", timestamps);
    let stages = [doc! { "$out": "copy" }, doc! { "$merge": { "into": "merged" } }];
    for (stage, copy) in stages.into_iter().zip(["copy", "merged"]) {
        views.run(doc! { "aggregate": "hiding", "pipeline": [stage], "cursor": {} }).await.unwrap();
        assert_eq!(views.stored(copy).await, std::slice::from_ref(&timestamped), "{copy}");
    }
}
