//! Single writes under each setting: the stored document, and the application's reply.

use bson::{Bson, DateTime, Document, Timestamp, doc};
use mongodb::Collection;
use mongodb::error::Error;

use super::{time, views};
use support::driver::{Views, code, message, write_errors};

/// One update of document 1.
async fn update(views: &Views, collection: &str, update: Document) -> Result<Document, Error> {
    views.collection(collection).update_one(doc! { "_id": 1 }, update).upsert(true).await?;
    Ok(views.stored(collection).await.remove(0))
}

/// The message of an update that docward rejects.
async fn rejection(views: &Views, collection: &str, rejected: Document) -> String {
    let before = views.stored(collection).await;
    let error = update(views, collection, rejected.clone()).await.expect_err(&rejected.to_string());
    assert_eq!(code(&error), 121, "{rejected}: {error}");
    assert_eq!(views.stored(collection).await, before, "{rejected}");
    message(&error)
}

#[tokio::test]
async fn fields_and_timestamps_change_together() {
    let views = views().await;
    let stored = update(&views, "fields", doc! { "$set": { "a": 1, "b": 1, "at": time(5) } }).await.unwrap();
    let timestamps = doc! { "a": time(5), "b": time(5), "at": time(5) };
    assert_eq!(stored, doc! { "_id": 1, "a": 1, "b": 1, "at": time(5), "last_modified": timestamps });
    // Late for a and b, new for c.
    let stored =
        update(&views, "fields", doc! { "$set": { "a": 2, "c": 2, "at": time(4) }, "$unset": { "b": 1 } }).await;
    let timestamps = doc! { "a": time(5), "b": time(5), "at": time(5), "c": time(4) };
    assert_eq!(stored.unwrap(), doc! { "_id": 1, "a": 1, "b": 1, "at": time(5), "c": 2, "last_modified": timestamps });
    // A stale write is not an error.
    let stale = doc! { "$set": { "a": 3, "at": time(1) } };
    let result = views.collection("fields").update_one(doc! { "_id": 1 }, stale).upsert(true).await.unwrap();
    assert_eq!((result.matched_count, result.modified_count, result.upserted_id), (1, 0, None));
    let many = doc! { "$set": { "a": 7, "at": time(9) } };
    assert_eq!(views.collection("fields").update_many(doc! {}, many).await.unwrap().modified_count, 1);
    assert_eq!(views.stored("fields").await[0].get_i32("a").unwrap(), 7);
}

#[tokio::test]
async fn one_timestamp_protects_a_whole_document() {
    let views = views().await;
    let documents = views.collection("documents");
    let replace = async |document: Document| {
        documents.replace_one(doc! { "_id": 1 }, document).upsert(true).await.unwrap();
        views.stored("documents").await.remove(0)
    };
    let expected = doc! { "_id": 1, "a": "$b", "at": time(5), "newest": time(5) };
    assert_eq!(replace(doc! { "a": "$b", "at": time(5) }).await, expected);
    assert_eq!(replace(doc! { "a": 2, "at": time(4) }).await, expected);
    assert_eq!(update(&views, "documents", doc! { "$set": { "z.z": 2, "at": time(4) } }).await.unwrap(), expected);
    let newer = replace(doc! { "_id": 1, "b": 3, "at": time(6) }).await;
    assert_eq!(newer, doc! { "_id": 1, "b": 3, "at": time(6), "newest": time(6) });
    // With timestamps per field a replacement cannot be evaluated.
    let rejected = views.collection("fields").replace_one(doc! { "_id": 1 }, doc! { "at": time(1) }).await.unwrap_err();
    assert!(code(&rejected) == 121 && message(&rejected).contains("timestamps are stored per field"), "{rejected}");
}

#[tokio::test]
async fn inserts_are_timestamped() {
    let views = views().await;
    let document = doc! { "_id": 1, "a": { "x": 1 }, "at": time(1) };
    views.collection("fields").insert_many([document]).await.unwrap();
    let timestamps = doc! { "a": time(1), "at": time(1) };
    let expected = doc! { "_id": 1, "a": { "x": 1 }, "at": time(1), "last_modified": timestamps };
    assert_eq!(views.stored("fields").await, [expected]);

    let document = doc! { "_id": 1, "n": { "b": 1, "free": 2 }, "d": 5, "at": time(1) };
    views.collection("paths").insert_one(&document).await.unwrap();
    let mut expected = document;
    expected.insert("timestamps", doc! { "n": { "b": time(1) }, "at": time(1) });
    assert_eq!(views.stored("paths").await, [expected]);

    let rejected = views.collection("fields").insert_one(doc! { "_id": 2, "a": 1 }).await.unwrap_err();
    assert_eq!(code(&rejected), 121);
}

#[tokio::test]
async fn a_write_without_source_time() {
    let views = views().await;
    let undated = || doc! { "$set": { "a": 1 } };
    let text = rejection(&views, "fields", undated()).await;
    assert!(text.contains("without the source time in field 'at'"), "{text}");

    let before = DateTime::now();
    let stored = update(&views, "clock", undated()).await.unwrap();
    let timestamp = *stored.get_document("last_modified").unwrap().get_datetime("a").unwrap();
    assert!((before..=DateTime::now()).contains(&timestamp), "{timestamp}");
    // docward's clock is ahead of this source's time.
    let stored = update(&views, "clock", doc! { "$set": { "a": 2, "at": time(1) } }).await.unwrap();
    assert_eq!(stored.get_i32("a").unwrap(), 1);

    update(&views, "pass", doc! { "$set": { "a": 0, "at": time(1) } }).await.unwrap();
    let stored = update(&views, "pass", undated()).await.unwrap();
    let timestamps = doc! { "a": time(1), "at": time(1) };
    assert_eq!(stored, doc! { "_id": 1, "a": 1, "at": time(1), "last_modified": timestamps });
}

#[tokio::test]
async fn the_source_time_may_be_the_arrival() {
    let views = views().await;
    for value in 0..3 {
        let before = DateTime::now();
        let stored = update(&views, "arrival", doc! { "$set": { "a": value } }).await.unwrap();
        assert_eq!(stored.get_i32("a").unwrap(), value);
        let timestamp = *stored.get_document("last_modified").unwrap().get_datetime("a").unwrap();
        assert!((before..=DateTime::now()).contains(&timestamp), "{timestamp}");
    }
}

#[tokio::test]
async fn the_source_time_may_be_in_the_comment() {
    let views = views().await;
    let collection: Collection<Document> = views.collection("comment");
    for (value, at) in [(1, Bson::Int32(5)), (2, Bson::Int64(4)), (3, Bson::Double(6.0))] {
        let set = doc! { "$set": { "a": value } };
        let comment = doc! { "event": { "at": at } };
        collection.update_one(doc! { "_id": 1 }, set).upsert(true).comment(comment).await.unwrap();
    }
    let expected = doc! { "_id": 1, "a": 3, "last_modified": { "a": 6_i64 } };
    assert_eq!(views.stored("comment").await, [expected]);
    let text = rejection(&views, "comment", doc! { "$set": { "a": 1 } }).await;
    assert!(text.contains("field 'event.at' of the comment"), "{text}");
}

#[tokio::test]
async fn a_source_time_of_another_type_is_rejected() {
    let views = views().await;
    let moment = Bson::DateTime(DateTime::from_millis(5));
    let (second, zero) = (Timestamp { time: 5, increment: 1 }, Timestamp { time: 0, increment: 0 });
    let wrong: [(&str, Vec<Bson>); 3] = [
        ("fields", vec![5.into(), "2026-01-01".into(), second.into(), Bson::Null]),
        ("long", vec![moment.clone(), 1.5.into(), "5".into(), Bson::Null]),
        ("timestamp", vec![moment.clone(), 5.into(), zero.into()]),
    ];
    for (collection, times) in wrong {
        for at in times {
            let text = rejection(&views, collection, doc! { "$set": { "a": 1, "at": at.clone() } }).await;
            assert!(text.contains("source time") && text.contains("has type"), "{collection} {at}: {text}");
        }
    }
    for (collection, at, timestamp) in [
        ("fields", moment.clone(), moment),
        ("long", 5.into(), 5_i64.into()),
        ("timestamp", second.into(), second.into()),
    ] {
        let stored = update(&views, collection, doc! { "$set": { "a": 1, "at": at } }).await.unwrap();
        assert_eq!(stored.get_document("last_modified").unwrap().get("a"), Some(&timestamp));
    }
}

#[tokio::test]
async fn timestamps_can_be_unset_but_not_forged() {
    let views = views().await;
    let write = |value: i32, n: i64| doc! { "$set": { "a": value, "at": time(n) } };
    update(&views, "fields", write(1, 1_000)).await.unwrap();
    assert_eq!(update(&views, "fields", write(2, 5)).await.unwrap().get_i32("a").unwrap(), 1);
    // The source's clock was a second fast, and has been corrected.
    update(&views, "fields", doc! { "$unset": { "last_modified": "" } }).await.unwrap();
    let stored = update(&views, "fields", write(3, 5)).await.unwrap();
    assert_eq!(stored.get_i32("a").unwrap(), 3);
    update(&views, "fields", doc! { "$unset": { "last_modified.a": "" } }).await.unwrap();
    assert_eq!(update(&views, "fields", write(4, 1)).await.unwrap().get_i32("a").unwrap(), 4);

    for forged in [
        doc! { "$set": { "last_modified": { "a": time(99) } } },
        doc! { "$set": { "last_modified.a": time(99), "at": time(99) } },
        doc! { "$max": { "last_modified.a": time(99) } },
        doc! { "$rename": { "b": "last_modified" } },
        doc! { "$rename": { "last_modified": "b" } },
        doc! { "$currentDate": { "last_modified.a": true } },
        doc! { "$currentDate": { "last_modified.a": { "$type": "timestamp" } }, "$set": { "a": 1 } },
        doc! { "$unset": { "last_modified": "" }, "$set": { "a": 1, "at": time(2_000) } },
    ] {
        let text = rejection(&views, "fields", forged.clone()).await;
        assert!(text.contains("last_modified"), "{forged}: {text}");
    }
}

#[tokio::test]
async fn protected_fields_are_written_by_value() {
    let views = views().await;
    views.store("paths", [doc! { "_id": 1, "a": [0], "n": { "b": 0 }, "at": time(0) }]).await;
    let before = views.stored("paths").await;
    for statement in [
        doc! { "q": { "_id": 1 }, "u": [{ "$set": { "a": { "$concatArrays": ["$a", [1]] } } }] },
        doc! { "q": { "_id": 1 }, "u": { "$push": { "a": 1 }, "$set": { "at": time(1) } } },
        doc! { "q": { "_id": 1 }, "u": { "$addToSet": { "a": 1 }, "$set": { "at": time(1) } } },
        doc! { "q": { "_id": 1 }, "u": { "$max": { "n.b": 1 }, "$set": { "at": time(1) } } },
        doc! { "q": { "_id": 1 }, "u": { "$inc": { "n.b": 1 }, "$set": { "at": time(1) } } },
        doc! { "q": { "_id": 1 }, "u": [{ "$replaceWith": { "_id": "$_id", "a": 1, "at": time(1) } }] },
    ] {
        let reply = views.run(doc! { "update": "paths", "updates": [statement.clone()] }).await.unwrap();
        assert_eq!(write_errors(&reply), [(0, 121)], "{statement}: {reply}");
        assert_eq!(views.stored("paths").await, before, "{statement}");
    }
    // A pipeline may replace the document if it keeps them.
    let keeps = doc! { "$replaceWith": { "$mergeObjects": ["$$ROOT", { "free": { "$size": "$a" } }] } };
    let reply = views.run(doc! { "update": "paths", "updates": [{ "q": { "_id": 1 }, "u": [keeps] }] }).await.unwrap();
    assert_eq!(write_errors(&reply), [], "{reply}");
    assert_eq!(views.stored("paths").await[0].get_i32("free").unwrap(), 1);
}

#[tokio::test]
async fn paths_across_protected_fields_are_rejected() {
    let views = views().await;
    let at = || ("at".to_owned(), time(1));
    for (collection, path) in [("fields", "a.b"), ("paths", "n"), ("paths", "n.b.c"), ("paths", "d.x"), ("paths", "d")]
    {
        let set: Document = [(path.to_owned(), Bson::from(1)), at()].into_iter().collect();
        let text = rejection(&views, collection, doc! { "$set": set }).await;
        assert!(text.contains("overlaps the protected field"), "{path}: {text}");
    }
    // A statement without protected fields is forwarded unchanged.
    let stored = update(&views, "paths", doc! { "$set": { "list.0": 1 }, "$push": { "n.free": 1 } }).await.unwrap();
    assert_eq!(stored, doc! { "_id": 1, "list": { "0": 1 }, "n": { "free": [1] } });
}
