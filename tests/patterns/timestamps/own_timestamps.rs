//! Timestamps that clients write themselves: they are the source times of their fields, under the same rule.

use bson::{Bson, DateTime, Document, Timestamp, doc};

use super::{time, views};
use support::driver::{Views, code, message};

async fn update(views: &Views, collection: &str, filter: Document, update: Document) -> Document {
    views.collection(collection).update_one(filter, update).await.unwrap();
    views.stored(collection).await.remove(0)
}

/// The error of an update of document 1 that docward rejects.
async fn rejection(views: &Views, collection: &str, update: Document) -> String {
    let before = views.stored(collection).await;
    let error = views.collection(collection).update_one(doc! { "_id": 1 }, update.clone()).await.unwrap_err();
    assert_eq!(code(&error), 121, "{update}: {error}");
    assert_eq!(views.stored(collection).await, before, "{update}");
    message(&error)
}

#[tokio::test]
async fn a_timestamp_is_the_source_time_of_its_field() {
    let views = views().await;
    views.collection("fields").insert_one(doc! { "_id": 1, "a": 1, "b": 1, "at": time(5) }).await.unwrap();
    let one = || doc! { "_id": 1 };
    // Without another time, and with another time for the other fields.
    let stored = update(&views, "fields", one(), doc! { "$set": { "a": 2, "last_modified.a": time(6) } }).await;
    let timestamps = doc! { "a": time(6), "b": time(5), "at": time(5) };
    assert_eq!(stored, doc! { "_id": 1, "a": 2, "b": 1, "at": time(5), "last_modified": &timestamps });
    let late = doc! { "$set": { "a": 3, "b": 3, "last_modified.a": time(5), "last_modified.b": time(4) } };
    assert_eq!(update(&views, "fields", one(), late).await, stored);
    let mixed = doc! { "$set": { "a": 4, "last_modified.a": time(5), "b": 4, "at": time(7) } };
    let stored = update(&views, "fields", one(), mixed).await;
    let timestamps = doc! { "a": time(6), "b": time(7), "at": time(7) };
    assert_eq!(stored, doc! { "_id": 1, "a": 2, "b": 4, "at": time(7), "last_modified": timestamps });
    let removed = doc! { "$unset": { "b": "" }, "$set": { "last_modified.b": time(8) } };
    let stored = update(&views, "fields", one(), removed).await;
    assert_eq!(stored.get_document("last_modified").unwrap().get("b"), Some(&time(8)));
    assert!(!stored.contains_key("b"), "{stored}");
    // Equal times win, as everywhere.
    let stored = update(&views, "fields", one(), doc! { "$set": { "b": 9, "last_modified.b": time(8) } }).await;
    assert_eq!(stored.get_i32("b").unwrap(), 9);
}

/// The application's own filter on older timestamps repeats docward's condition.
#[tokio::test]
async fn an_application_that_filters_by_the_timestamp_itself() {
    let views = views().await;
    views.store("fields", [doc! { "_id": 1, "a": 1 }]).await;
    views.store("plain", [doc! { "_id": 1, "a": 1 }]).await;
    let write = |value: i32, n: i64| {
        let older =
            vec![doc! { "last_modified.a": { "$lt": time(n) } }, doc! { "last_modified.a": { "$exists": false } }];
        (doc! { "_id": 1, "$or": older }, doc! { "$set": { "a": value, "last_modified.a": time(n) } })
    };
    for (value, n) in [(2, 5), (3, 4), (4, 5), (5, 6), (6, 1)] {
        let (filter, change) = write(value, n);
        let through = views.collection("fields").update_one(filter.clone(), change.clone()).await.unwrap();
        let direct = views.direct.collection::<Document>("plain").update_one(filter, change).await.unwrap();
        assert_eq!((through.matched_count, through.modified_count), (direct.matched_count, direct.modified_count));
        assert_eq!(views.stored("fields").await, views.stored("plain").await, "{value} at {n}");
    }
    assert_eq!(views.stored("fields").await[0].get_i32("a").unwrap(), 5);
}

#[tokio::test]
async fn one_timestamp_for_the_document() {
    let views = views().await;
    let one = || doc! { "_id": 1 };
    let documents = views.collection("documents");
    documents.insert_one(doc! { "_id": 1, "a": 1, "newest": time(5) }).await.unwrap();
    assert_eq!(views.stored("documents").await, [doc! { "_id": 1, "a": 1, "newest": time(5) }]);
    let newer = update(&views, "documents", one(), doc! { "$set": { "a": 2, "newest": time(6) } }).await;
    assert_eq!(newer, doc! { "_id": 1, "a": 2, "newest": time(6) });
    assert_eq!(update(&views, "documents", one(), doc! { "$set": { "a": 3, "newest": time(5) } }).await, newer);
    let replace = async |document: Document| {
        documents.replace_one(one(), document).await.unwrap();
        views.stored("documents").await.remove(0)
    };
    assert_eq!(replace(doc! { "a": 4, "newest": time(4) }).await, newer);
    // A document that was read contains its old timestamp; the source time in it is newer.
    let saved = replace(doc! { "a": 5, "newest": time(6), "at": time(9) }).await;
    assert_eq!(saved, doc! { "_id": 1, "a": 5, "at": time(9), "newest": time(9) });
    assert_eq!(replace(doc! { "a": 6, "newest": time(10) }).await, doc! { "_id": 1, "a": 6, "newest": time(10) });
    for rejected in [doc! { "$set": { "newest": time(99) } }, doc! { "$set": { "a": 1, "newest.x": time(99) } }] {
        assert!(rejection(&views, "documents", rejected).await.contains("newest"));
    }
}

#[tokio::test]
async fn inserted_documents_may_contain_timestamps() {
    let views = views().await;
    let insert = async |collection: &str, document: Document| {
        views.direct.collection::<Document>(collection).delete_many(doc! {}).await.unwrap();
        let inserted = views.collection(collection).insert_one(document).await;
        (inserted, views.stored(collection).await.pop())
    };
    let brought = doc! { "_id": 1, "a": 1, "b": 1, "at": time(5), "last_modified": { "a": time(3), "gone": time(2) } };
    let (_, stored) = insert("fields", brought).await;
    let timestamps = doc! { "a": time(3), "b": time(5), "at": time(5), "gone": time(2) };
    assert_eq!(stored.unwrap(), doc! { "_id": 1, "a": 1, "b": 1, "at": time(5), "last_modified": timestamps },);
    // First all its fields have a time, then one of them lacks it.
    let whole = doc! { "_id": 1, "a": 1, "last_modified": { "a": time(3) } };
    for collection in ["fields", "pass"] {
        assert_eq!(insert(collection, whole.clone()).await.1, Some(whole.clone()));
    }
    let part = doc! { "_id": 1, "a": 1, "b": 1, "last_modified": { "a": time(3) } };
    assert!(
        insert("fields", part.clone()).await.0.is_err_and(|error| message(&error).contains("without the source time"))
    );
    assert_eq!(insert("pass", part.clone()).await.1, Some(part));
    let listed =
        doc! { "_id": 1, "n": { "b": 1 }, "free": 1, "timestamps": { "n": { "b": time(3) }, "free": time(9) } };
    let expected = doc! { "_id": 1, "n": { "b": 1 }, "free": 1, "timestamps": { "n": { "b": time(3) } } };
    assert_eq!(insert("paths", listed).await.1, Some(expected));
    for wrong in [Bson::from(5), doc! { "a": 5 }.into(), doc! { "a": "yesterday" }.into()] {
        for collection in ["fields", "pass"] {
            let document = doc! { "_id": 1, "a": 1, "at": time(1), "last_modified": wrong.clone() };
            let error = insert(collection, document).await.0.unwrap_err();
            assert!(code(&error) == 121 && message(&error).contains("last_modified"), "{wrong}: {error}");
        }
    }
}

/// `without_source: pass`: a field without a time is written unchanged, and a field with one is protected.
#[tokio::test]
async fn with_pass_only_timestamped_fields_are_protected() {
    let views = views().await;
    let one = || doc! { "_id": 1 };
    views.collection("pass").insert_one(doc! { "_id": 1, "a": 1, "b": 1, "at": time(5) }).await.unwrap();
    let write = doc! { "$set": { "a": 2, "last_modified.a": time(4), "b": 2 } };
    let stored = update(&views, "pass", one(), write).await;
    let timestamps = doc! { "a": time(5), "b": time(5), "at": time(5) };
    assert_eq!(stored, doc! { "_id": 1, "a": 1, "b": 2, "at": time(5), "last_modified": timestamps });
}

#[tokio::test]
async fn the_servers_clock_may_set_a_timestamp() {
    let views = views().await;
    let before = DateTime::now();
    views.store("fields", [doc! { "_id": 1 }]).await;
    let write = doc! { "$set": { "a": 2 }, "$currentDate": { "last_modified.a": true } };
    let stored = update(&views, "fields", doc! { "_id": 1 }, write).await;
    let timestamp = *stored.get_document("last_modified").unwrap().get_datetime("a").unwrap();
    assert!((before..=DateTime::now()).contains(&timestamp), "{timestamp}");
}

#[tokio::test]
async fn timestamps_without_a_field_are_rejected() {
    let views = views().await;
    views.collection("fields").insert_one(doc! { "_id": 1, "a": 1, "at": time(5) }).await.unwrap();
    for (rejected, reason) in [
        (doc! { "$set": { "last_modified.a": time(6) } }, "without the protected field that it belongs to"),
        (doc! { "$set": { "b": 1, "last_modified.a": time(6), "at": time(6) } }, "without the protected field"),
        (doc! { "$set": { "a": 1, "last_modified.a": 5 } }, "has type int"),
        (doc! { "$set": { "a": 1, "last_modified": { "a": time(6) } } }, "would remove the timestamps of other fields"),
        (
            doc! { "$set": { "a": 1, "last_modified.a": time(6) }, "$currentDate": { "last_modified.a": true } },
            "sets the timestamp 'last_modified.a' twice",
        ),
        (doc! { "$set": { "a": 1, "last_modified.a": time(6), "b": 1 } }, "without the source time"),
    ] {
        let text = rejection(&views, "fields", rejected.clone()).await;
        assert!(text.contains(reason), "{rejected}: {text}");
    }
}

#[tokio::test]
async fn a_time_too_far_ahead_is_rejected() {
    let views = views().await;
    let now = DateTime::now().timestamp_millis();
    let minutes = |n: i64| now + n * 60_000;
    let date = |ms: i64| Bson::DateTime(DateTime::from_millis(ms));
    let timestamp = |ms: i64| Bson::Timestamp(Timestamp { time: (ms / 1000) as u32, increment: 1 });
    let kinds: [(&str, &dyn Fn(i64) -> Bson); 3] =
        [("ahead", &date), ("ahead_long", &|ms| Bson::Int64(ms)), ("ahead_timestamp", &timestamp)];
    for (collection, of) in kinds {
        let writes = |at: Bson| {
            [doc! { "$set": { "a": 1, "at": at.clone() } }, doc! { "$set": { "a": 1, "last_modified.a": at } }]
        };
        views.collection(collection).insert_one(doc! { "_id": 1, "a": 0, "at": of(minutes(-60)) }).await.unwrap();
        for rejected in writes(of(minutes(11))).into_iter().chain(writes(of(4_070_908_800_000))) {
            let text = rejection(&views, collection, rejected).await;
            assert!(text.contains("ahead of docward's clock, 20"), "{text}");
            assert!(text.contains("is 20"), "{text}");
        }
        for passing in writes(of(minutes(9))) {
            let stored = update(&views, collection, doc! { "_id": 1 }, passing).await;
            assert_eq!(stored.get_document("last_modified").unwrap().get("a"), Some(&of(minutes(9))));
        }
        for document in [
            doc! { "_id": 2, "a": 1, "at": of(minutes(11)) },
            doc! { "_id": 2, "a": 1, "last_modified": { "a": of(minutes(11)) } },
        ] {
            let error = views.collection(collection).insert_one(document).await.unwrap_err();
            assert!(code(&error) == 121 && message(&error).contains("ahead"), "{error}");
        }
    }
    // docward's own clock is never ahead of itself.
    views.collection("ahead_clock").insert_one(doc! { "_id": 1, "a": 1 }).await.unwrap();
}
