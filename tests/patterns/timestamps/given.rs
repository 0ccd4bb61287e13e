//! Fields that an upsert inserts from its filter: protected fields are timestamped, and timestamps cannot be forged.

use bson::{Document, doc};

use super::{time, views};
use support::driver::{Views, code, message};

async fn upsert(views: &Views, collection: &str, filter: Document, change: Document) -> Document {
    views.collection(collection).update_one(filter, change).upsert(true).await.unwrap();
    let mut stored = views.stored(collection).await;
    assert_eq!(stored.len(), 1, "{stored:?}");
    stored.remove(0)
}

fn timestamps_of(document: &Document) -> Document {
    document.get_document("last_modified").unwrap().clone()
}

#[tokio::test]
async fn fields_of_the_filter_are_timestamped_when_they_are_inserted() {
    let views = views().await;
    let change = || doc! { "$set": { "b": 1, "at": time(5) } };
    let equalities = [
        doc! { "_id": 1, "a": 3 },
        doc! { "_id": 1, "$and": [{ "a": { "$in": [3] } }] },
        doc! { "a": 3 },
        doc! { "a": { "$eq": 3 }, "c": { "$gt": 1 } },
        doc! { "$or": [{ "a": { "$all": [3] } }] },
    ];
    for filter in equalities {
        views.direct.collection::<Document>("fields").delete_many(doc! {}).await.unwrap();
        let stored = upsert(&views, "fields", filter.clone(), change()).await;
        assert_eq!(stored.get_i32("a").unwrap(), 3, "{filter}");
        let timestamps = timestamps_of(&stored);
        assert!(["a", "b", "at"].iter().all(|field| timestamps.get(field) == Some(&time(5))), "{filter}: {stored}");
        assert_eq!(timestamps.len(), 3, "{filter}: {stored}");
        // So an older write of it is late.
        let one = doc! { "_id": stored.get("_id").unwrap() };
        let late = doc! { "$set": { "a": 9, "at": time(4) } };
        assert_eq!(upsert(&views, "fields", one, late).await.get_i32("a").unwrap(), 3, "{filter}");
        // Fields by which an existing document was found were not written now.
        views.direct.collection::<Document>("fields").delete_many(doc! {}).await.unwrap();
        views.store("fields", [doc! { "_id": 1, "a": 3, "c": 2 }]).await;
        let stored = upsert(&views, "fields", filter.clone(), change()).await;
        assert_eq!(timestamps_of(&stored), doc! { "b": time(5), "at": time(5) }, "{filter}");
    }
}

#[tokio::test]
async fn nested_fields_of_the_filter_are_timestamped() {
    let views = views().await;
    for filter in [doc! { "n": { "b": 3 } }, doc! { "n.b": 3 }, doc! { "_id": 1, "n.b": 3 }] {
        views.direct.collection::<Document>("paths").delete_many(doc! {}).await.unwrap();
        let stored = upsert(&views, "paths", filter.clone(), doc! { "$set": { "a": 1, "at": time(5) } }).await;
        assert_eq!(stored.get_document("n").unwrap(), &doc! { "b": 3 }, "{filter}");
        let timestamps = stored.get_document("timestamps").unwrap();
        assert_eq!(timestamps.get_document("n").unwrap(), &doc! { "b": time(5) }, "{filter}: {stored}");
    }
}

/// The update writes no protected field, but the upsert may insert one.
#[tokio::test]
async fn an_upsert_may_insert_protected_fields_by_its_filter_alone() {
    let views = views().await;
    let push = || doc! { "$push": { "log": 1 }, "$setOnInsert": { "created": 1 } };
    let error = views.collection("paths").update_one(doc! { "a": 3 }, push()).upsert(true).await.unwrap_err();
    assert!(code(&error) == 121 && message(&error).contains("could insert the protected field 'a'"), "{error}");
    let stored = upsert(&views, "clocked", doc! { "a": 3, "n": { "b": 1 } }, push()).await;
    let timestamps = timestamps_of(&stored);
    assert!(
        timestamps.get_datetime("a").is_ok() && timestamps.get_document("n").unwrap().get_datetime("b").is_ok(),
        "{stored}"
    );
    assert_eq!(stored.get_i32("created").unwrap(), 1);
    let again = upsert(&views, "clocked", doc! { "a": 3, "n": { "b": 1 } }, push()).await;
    assert_eq!(timestamps_of(&again), timestamps);
    // Without an upsert the rule does not apply to the statement.
    views.collection("paths").update_one(doc! { "a": 3 }, push()).await.unwrap();
}

#[tokio::test]
async fn timestamps_cannot_be_forged_by_a_filter() {
    let views = views().await;
    let future = || time(10_000);
    let set = || doc! { "$set": { "a": 1, "at": time(5) } };
    let equalities = [
        ("fields", doc! { "_id": 1, "last_modified": { "a": future() } }),
        ("fields", doc! { "_id": 1, "last_modified.a": future() }),
        ("fields", doc! { "last_modified.b": { "$in": [future()] } }),
        ("paths", doc! { "$and": [{ "timestamps.n.b": future() }] }),
        ("documents", doc! { "_id": 1, "newest": future() }),
    ];
    for (collection, filter) in equalities {
        views.direct.collection::<Document>(collection).delete_many(doc! {}).await.unwrap();
        // A comparison with a timestamp is harmless if nothing can be inserted.
        views.collection(collection).update_one(filter.clone(), set()).await.unwrap();
        let stored = upsert(&views, collection, filter.clone(), set()).await;
        let store = ["last_modified", "timestamps", "newest"].into_iter().find_map(|store| stored.get(store)).unwrap();
        let expected = match collection {
            "documents" => time(5),
            _ => doc! { "a": time(5), "at": time(5) }.into(),
        };
        assert_eq!(*store, expected, "{filter}: {stored}");
    }
    let filter = doc! { "_id": 2, "newest": future() };
    views.collection("documents").replace_one(filter, doc! { "a": 1, "at": time(5) }).upsert(true).await.unwrap();
    assert_eq!(views.stored("documents").await[1], doc! { "_id": 2, "a": 1, "at": time(5), "newest": time(5) });
    // So is a comparison that gives no value.
    let older = vec![doc! { "last_modified.a": { "$lt": time(5) } }, doc! { "last_modified.a": { "$exists": false } }];
    views.direct.collection::<Document>("fields").delete_many(doc! {}).await.unwrap();
    let stored = upsert(&views, "fields", doc! { "_id": 1, "$or": older }, set()).await;
    assert_eq!(stored, doc! { "_id": 1, "a": 1, "at": time(5), "last_modified": { "a": time(5), "at": time(5) } });
}

/// A client that timestamps its writes itself has no other time for the fields of its filter.
#[tokio::test]
async fn client_timestamps_apply_to_the_filters_fields_too() {
    let views = views().await;
    let change = doc! { "$set": { "b": 1, "last_modified.b": time(5), "c": 1, "last_modified.c": time(4) } };
    let stored = upsert(&views, "fields", doc! { "a": 3 }, change).await;
    assert_eq!(timestamps_of(&stored), doc! { "a": time(5), "b": time(5), "c": time(4) });
}
