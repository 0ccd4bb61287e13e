//! Operators on other fields together with protected ones, with a list of `fields`: one statement, even if parts of
//! it are late.

use bson::{Bson, DateTime, Document, doc};

use super::{time, views};
use support::driver::{Views, scaled, write_errors};

async fn update(views: &Views, statement: Document) -> Document {
    let reply = views.run(doc! { "update": "paths", "updates": [statement.clone()] }).await.unwrap();
    assert_eq!(write_errors(&reply), [], "{statement}: {reply}");
    reply
}

#[tokio::test]
async fn operators_on_other_fields_apply_even_if_protected_fields_are_late() {
    let views = views().await;
    let before =
        doc! { "_id": 1, "a": 1, "n": { "b": 1 }, "at": time(5), "log": [3, 1], "list": [{ "k": 1 }, { "k": 2 }] };
    let others = [
        (doc! { "$push": { "log": 2 } }, "log", Bson::from(vec![3, 1, 2])),
        (doc! { "$push": { "log": { "$each": [2], "$sort": 1, "$slice": -2 } } }, "log", vec![2, 3].into()),
        (doc! { "$addToSet": { "log": { "$each": [1, 2] } } }, "log", vec![3, 1, 2].into()),
        (doc! { "$pull": { "log": { "$gt": 1 } } }, "log", vec![1].into()),
        (doc! { "$pullAll": { "log": [3] } }, "log", vec![1].into()),
        (doc! { "$pop": { "log": 1 } }, "log", vec![3].into()),
        (doc! { "$inc": { "count": 2 } }, "count", 2.into()),
        (doc! { "$mul": { "count": 2 } }, "count", 0.into()),
        (doc! { "$min": { "count": 2 } }, "count", 2.into()),
        (doc! { "$max": { "count": 2 } }, "count", 2.into()),
        (doc! { "$bit": { "bits": { "or": 5 } } }, "bits", 5.into()),
        (doc! { "$rename": { "log": "old" } }, "old", vec![3, 1].into()),
        (doc! { "$set": { "log.0": 7 } }, "log", vec![7, 1].into()),
        (doc! { "$set": { "list.$[x].k": 7 } }, "list", vec![doc! { "k": 1 }, doc! { "k": 7 }].into()),
    ];
    for (other, field, expected) in others {
        for (n, is_late) in [(4, true), (6, false)] {
            views.direct.collection::<Document>("paths").delete_many(doc! {}).await.unwrap();
            views.collection("paths").insert_one(before.clone()).await.unwrap();
            let mut change = other.clone();
            let mut set = change.get_document("$set").cloned().unwrap_or_default();
            set.extend(doc! { "a": 2, "at": time(n) });
            change.insert("$set", set);
            change.insert("$unset", doc! { "n.b": "" });
            let filters = if field == "list" { vec![doc! { "x.k": 2 }] } else { vec![] };
            let reply = update(&views, doc! { "q": { "_id": 1 }, "u": change, "arrayFilters": filters }).await;
            assert_eq!([reply.get_i32("n").unwrap(), reply.get_i32("nModified").unwrap()], [1, 1], "{other}");
            let stored = views.stored("paths").await.remove(0);
            assert_eq!(stored.get(field), Some(&expected), "{other}");
            assert_eq!(stored.get_i32("a").unwrap(), if is_late { 1 } else { 2 }, "{other}");
            assert_eq!(stored.get_document("n").unwrap().contains_key("b"), is_late, "{other}");
            let timestamp = time(if is_late { 5 } else { 6 });
            let timestamps = doc! { "n": { "b": &timestamp }, "a": &timestamp, "at": &timestamp };
            let found = stored.get_document("timestamps").unwrap();
            assert!(["n", "a", "at"].iter().all(|key| found.get(key) == timestamps.get(key)), "{other}: {found}");
        }
    }
}

/// The statement that Mongoose sends with `timestamps: true`.
#[tokio::test]
async fn an_upsert_sets_on_insert() {
    let views = views().await;
    let save = |value: i32, n: i64| {
        let set = doc! { "a": value, "at": time(n), "updatedAt": DateTime::from_millis(n) };
        let created = doc! { "createdAt": DateTime::from_millis(n), "__v": 0 };
        doc! { "q": { "_id": 1 }, "u": { "$set": set, "$setOnInsert": created }, "upsert": true }
    };
    let reply = update(&views, save(1, 5)).await;
    assert!(reply.contains_key("upserted"), "{reply}");
    let reply = update(&views, save(2, 4)).await;
    assert!(!reply.contains_key("upserted"), "{reply}");
    let stored = views.stored("paths").await.remove(0);
    assert_eq!(stored.get_i32("a").unwrap(), 1);
    assert_eq!(stored.get("createdAt"), Some(&Bson::DateTime(DateTime::from_millis(5))));
    assert_eq!(stored.get("updatedAt"), Some(&Bson::DateTime(DateTime::from_millis(4))));
    // A document with only an _id exists too.
    views.direct.collection::<Document>("paths").delete_many(doc! {}).await.unwrap();
    views.store("paths", [doc! { "_id": 1 }]).await;
    update(&views, save(3, 1)).await;
    let stored = views.stored("paths").await.remove(0);
    assert!(stored.get_i32("a").unwrap() == 3 && !stored.contains_key("createdAt"), "{stored}");
    // Without an upsert it does nothing, not even to protected fields and timestamps.
    let on_insert = doc! { "$setOnInsert": { "a": 9, "timestamps.a": 1, "n": 1 } };
    for collection in ["paths", "fields"] {
        views.collection(collection).update_one(doc! { "_id": 1 }, on_insert.clone()).await.unwrap();
    }
    assert_eq!(views.stored("paths").await, [stored]);
}

#[tokio::test]
async fn find_and_modify_and_batches_and_transactions() {
    let views = views().await;
    views.collection("paths").insert_one(doc! { "_id": 1, "a": 1, "at": time(5), "log": [] }).await.unwrap();
    let write = |value: i32, n: i64| doc! { "$set": { "a": value, "at": time(n) }, "$push": { "log": { "$each": [value], "$sort": 1 } } };
    let found = views.collection("paths").find_one_and_update(doc! { "_id": 1 }, write(2, 6)).await.unwrap().unwrap();
    assert_eq!(found.get_i32("a").unwrap(), 1);
    let updates: Vec<_> = [(3, 4), (4, 7), (5, 5)].map(|(v, n)| doc! { "q": { "_id": 1 }, "u": write(v, n) }).into();
    let reply = views.run(doc! { "update": "paths", "updates": updates }).await.unwrap();
    assert_eq!(reply.get_i32("n").unwrap(), 3);
    let mut session = views.through.client().start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let paths = views.collection("paths");
    paths.update_one(doc! { "_id": 1 }, write(6, 3)).session(&mut session).await.unwrap();
    paths.update_one(doc! { "_id": 1 }, write(7, 8)).session(&mut session).await.unwrap();
    session.commit_transaction().await.unwrap();
    let stored = views.stored("paths").await.remove(0);
    let log: Vec<i32> = stored.get_array("log").unwrap().iter().map(|item| item.as_i32().unwrap()).collect();
    assert_eq!((stored.get_i32("a").unwrap(), log), (7, vec![2, 3, 4, 5, 6, 7]));
    // Each of the many documents may be late or not.
    let many = doc! { "q": {}, "u": write(8, 9), "multi": true };
    let reply = views.run(doc! { "update": "paths", "updates": [many] }).await.unwrap();
    assert_eq!(write_errors(&reply), []);
    assert_eq!(views.stored("paths").await[0].get_i32("a").unwrap(), 8);
    let folded = paths
        .update_one(doc! { "_id": 1 }, write(9, 10))
        .collation(mongodb::options::Collation::builder().locale("en").build());
    folded.await.unwrap();
    assert_eq!(views.stored("paths").await[0].get_i32("a").unwrap(), 9);
}

/// Each of many documents may be late or not, in the plain form and in the checked one.
#[tokio::test]
async fn many_documents_of_which_some_are_late() {
    let views = views().await;
    for beside in [doc! {}, doc! { "$push": { "log": 1 } }] {
        views.direct.collection::<Document>("paths").delete_many(doc! {}).await.unwrap();
        for n in 1..=6 {
            views.collection("paths").insert_one(doc! { "_id": n, "a": n, "at": time(i64::from(n)) }).await.unwrap();
        }
        let mut change = doc! { "$set": { "a": 9, "at": time(3) } };
        change.extend(beside.clone());
        let reply =
            views.run(doc! { "update": "paths", "updates": [{ "q": {}, "u": change, "multi": true }] }).await.unwrap();
        let values: Vec<i32> = views.stored("paths").await.iter().map(|stored| stored.get_i32("a").unwrap()).collect();
        assert_eq!(values, [9, 9, 9, 4, 5, 6], "{beside}");
        let changed = if beside.is_empty() { 3 } else { 6 };
        let counts = ["n", "nModified"].map(|count| reply.get_i32(count).unwrap());
        assert_eq!(counts, [6, changed], "{beside}: {reply}");
    }
}

/// Eight concurrent writers: the newest time wins, and no pushed or incremented value is lost.
#[tokio::test]
async fn concurrent_writers_lose_nothing() {
    let views = views().await;
    let mut writers = tokio::task::JoinSet::new();
    let each = i64::from(scaled(12));
    for writer in 0..8 {
        let paths = views.collection("paths");
        writers.spawn(async move {
            for round in 0..each {
                let n = (round * 8 + writer) * 7919 % (8 * each);
                let change = doc! {
                    "$set": { "a": n, "at": time(n) }, "$push": { "log": { "$each": [n], "$sort": 1 } },
                    "$inc": { "count": 1 }, "$setOnInsert": { "created": n },
                };
                paths.update_one(doc! { "_id": 1 }, change).upsert(true).await.unwrap();
            }
        });
    }
    writers.join_all().await;
    let stored = views.stored("paths").await.remove(0);
    let log: Vec<i64> = stored.get_array("log").unwrap().iter().map(|item| item.as_i64().unwrap()).collect();
    let newest = *log.iter().max().unwrap();
    assert_eq!(log.len() as i64, 8 * each);
    assert_eq!((stored.get_i64("a").unwrap(), stored.get("at")), (newest, Some(&time(newest))));
    assert_eq!(i64::from(stored.get_i32("count").unwrap()), 8 * each);
    assert!(log.contains(&stored.get_i64("created").unwrap()));
}

/// Beside positions in arrays, which no pipeline can express.
#[tokio::test]
async fn one_timestamp_protects_the_elements_of_arrays() {
    let views = views().await;
    let set = |path: &str, value: i32, n: i64| doc! { "$set": { path: value, "at": time(n) } };
    for (path, filters) in [("l.0", vec![]), ("l.$[]", vec![]), ("l.$[x]", vec![doc! { "x": 1 }]), ("l.5", vec![])] {
        views.direct.collection::<Document>("documents").delete_many(doc! {}).await.unwrap();
        views.collection("documents").insert_one(doc! { "_id": 1, "l": [1, 2], "at": time(5) }).await.unwrap();
        let before = views.stored("documents").await;
        let write = |n: i64| doc! { "q": { "_id": 1 }, "u": set(path, 9, n), "arrayFilters": filters.clone() };
        let reply = views.run(doc! { "update": "documents", "updates": [write(4)] }).await.unwrap();
        assert_eq!(views.stored("documents").await, before, "{path}: {reply}");
        assert_eq!([reply.get_i32("n").unwrap(), reply.get_i32("nModified").unwrap()], [1, 0], "{path}");
        views.run(doc! { "update": "documents", "updates": [write(6)] }).await.unwrap();
        let stored = views.stored("documents").await.remove(0);
        assert!(stored.get("newest") == Some(&time(6)) && stored.get("l") != before[0].get("l"), "{path}: {stored}");
    }
}

/// Whatever a client's pipeline makes of the document.
#[tokio::test]
async fn a_pipeline_keeps_the_timestamps() {
    let views = views().await;
    let keeps = doc! { "a": 1, "at": 1 };
    let others = [
        doc! { "$project": &keeps },
        doc! { "$replaceWith": { "a": "$a", "at": "$at", "free": 3 } },
        doc! { "$replaceWith": { "$unsetField": { "field": "timestamps", "input": "$$ROOT" } } },
        doc! { "$replaceWith": { "$mergeObjects": ["$$ROOT", { "timestamps": { "a": { "$literal": time(1) } } }] } },
        doc! { "$replaceWith": { "$mergeObjects": ["$$ROOT", { "timestamps": [1] }] } },
    ];
    for stage in others {
        views.direct.collection::<Document>("paths").delete_many(doc! {}).await.unwrap();
        views.collection("paths").insert_one(doc! { "_id": 1, "a": 5, "at": time(5) }).await.unwrap();
        let before = views.stored("paths").await.remove(0);
        update(&views, doc! { "q": { "_id": 1 }, "u": [&stage] }).await;
        let stored = views.stored("paths").await.remove(0);
        assert_eq!(stored.get("timestamps"), before.get("timestamps"), "{stage}: {stored}");
    }
}

#[tokio::test]
async fn other_fields_get_a_timestamp_of_the_server() {
    let views = views().await;
    let kind = || doc! { "$type": "timestamp" };
    let change = doc! { "$set": { "a": 1, "at": time(5) }, "$currentDate": { "free": kind() } };
    update(&views, doc! { "q": { "_id": 1 }, "u": change, "upsert": true }).await;
    assert!(matches!(views.stored("paths").await[0].get("free"), Some(Bson::Timestamp(_))));
}

/// In either order, also if the first one inserts.
#[tokio::test]
async fn a_removed_field_of_an_inserted_document_has_a_time() {
    let views = views().await;
    let removes = doc! { "$unset": { "a": "" }, "$set": { "at": time(8) }, "$push": { "log": 1 } };
    let late = doc! { "$set": { "a": 1, "at": time(3) } };
    for order in [[&removes, &late], [&late, &removes]] {
        views.direct.collection::<Document>("paths").delete_many(doc! {}).await.unwrap();
        for change in order {
            update(&views, doc! { "q": { "_id": 1 }, "u": change.clone(), "upsert": true }).await;
        }
        let stored = views.stored("paths").await.remove(0);
        assert!(!stored.contains_key("a") && stored.get("at") == Some(&time(8)), "{stored}");
        assert_eq!(stored.get_document("timestamps").unwrap().get("a"), Some(&time(8)), "{stored}");
    }
}
