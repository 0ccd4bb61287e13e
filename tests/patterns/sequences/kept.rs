//! Replacements and upserts: the stored number stays, an inserted document gets one, and nothing else changes.

use bson::{Document, doc};
use mongodb::Collection;

use super::{numbers, unique, views};
use support::driver::{Views, code};

/// Runs one update statement; panics if it fails.
async fn update(views: &Views, collection: &str, filter: Document, change: Document, upsert: bool) -> Document {
    let statement = doc! { "q": filter, "u": change, "upsert": upsert };
    let reply = views.run(doc! { "update": collection, "updates": [statement] }).await.unwrap();
    assert!(reply.get("writeErrors").is_none(), "{reply}");
    reply
}

#[tokio::test]
async fn a_replacement_keeps_the_stored_number() {
    let views = views().await;
    for collection in ["plain", "upserting", "strict", "own"] {
        views.store(collection, [doc! { "_id": 1, "no": 4, "x": 1 }, doc! { "_id": 2, "x": 1 }]).await;
        let through: Collection<Document> = views.collection(collection);
        let result = through.replace_one(doc! { "_id": 1 }, doc! { "x": "$no" }).await.unwrap();
        assert_eq!((result.matched_count, result.modified_count), (1, 1));
        through.replace_one(doc! { "_id": 2 }, doc! { "x": 2 }).await.unwrap();
        assert_eq!(views.stored(collection).await, [doc! { "_id": 1, "x": "$no", "no": 4 }, doc! { "_id": 2, "x": 2 }]);
        let before = through.find_one_and_replace(doc! { "_id": 1 }, doc! { "_id": 1, "y": 1 }).await.unwrap().unwrap();
        assert_eq!(before, doc! { "_id": 1, "x": "$no", "no": 4 });
        through.replace_one(doc! { "_id": 1, "no": 4 }, doc! { "y": 2, "no": 4 }).await.unwrap();
        // An upsert whose filter has the number keeps it too.
        through.replace_one(doc! { "no": 4 }, doc! { "y": 2 }).upsert(true).await.unwrap();
        through.find_one_and_replace(doc! { "_id": 1, "no": 4 }, doc! { "y": 2 }).upsert(true).await.unwrap().unwrap();
        assert_eq!(views.stored(collection).await[0], doc! { "_id": 1, "y": 2, "no": 4 });
        through.replace_one(doc! { "_id": 7 }, doc! { "y": 3 }).await.unwrap();
        through.replace_one(doc! { "_id": 1 }, doc! { "y": 2 }).await.unwrap();
        assert_eq!(views.stored(collection).await[0], doc! { "_id": 1, "y": 2, "no": 4 });
        let wrong = through.replace_one(doc! { "_id": 1 }, doc! { "_id": 9, "y": 2 }).await.unwrap_err();
        assert_eq!(code(&wrong), 66);
    }
    let fields = |stored: &Document| stored.keys().cloned().collect::<Vec<_>>();
    assert_eq!(fields(&views.stored("plain").await[1]), ["_id", "x"]);
}

#[tokio::test]
async fn a_replacement_keeps_a_nested_number_but_not_its_siblings() {
    let views = views().await;
    let nested: Collection<Document> = views.collection("nested");
    update(&views, "nested", doc! { "_id": 1 }, doc! { "a": { "x": 1, "y": 2 }, "z": 3 }, true).await;
    assert_eq!(views.stored("nested").await, [doc! { "_id": 1, "a": { "x": 1, "y": 2, "n": 1 }, "z": 3 }]);
    update(&views, "nested", doc! { "_id": 1 }, doc! { "a": { "x": 5 } }, true).await;
    update(&views, "nested", doc! { "_id": 1 }, doc! { "b": 1 }, false).await;
    assert_eq!(views.stored("nested").await, [doc! { "_id": 1, "b": 1, "a": { "n": 1 } }]);

    // Without a stored number the enclosing document is not created.
    views.store("nested", [doc! { "_id": 2, "a": [{ "n": 7 }] }, doc! { "_id": 3, "a": 5 }, doc! { "_id": 4 }]).await;
    for id in [2, 3, 4] {
        update(&views, "nested", doc! { "_id": id }, doc! { "b": id }, false).await;
    }
    assert_eq!(views.stored("nested").await[1..], [2, 3, 4].map(|id| doc! { "_id": id, "b": id }));
    let error = nested.replace_one(doc! { "_id": 1 }, doc! { "a": 5 }).await.unwrap_err();
    assert_eq!(code(&error), 121);
}

#[tokio::test]
async fn an_upsert_of_an_enclosing_document_gets_a_number() {
    let views = views().await;
    let change = |a: Document| doc! { "$set": { "a": a, "l": ["$a"] } };
    let enclosing = || doc! { "x": 1, "b": { "$y": "$z" } };
    update(&views, "nested", doc! { "_id": 2 }, change(enclosing()), true).await;
    let stored = [doc! { "_id": 2, "a": { "x": 1, "b": { "$y": "$z" }, "n": 1 }, "l": ["$a"] }];
    assert_eq!(views.stored("nested").await, stored);
    let rejected = async |id: i32, change: Document| {
        let rejected = views.collection("nested").update_one(doc! { "_id": id }, change.clone()).upsert(true).await;
        assert_eq!(code(&rejected.unwrap_err()), 121, "{change}");
    };
    rejected(2, change(enclosing())).await;
    assert_eq!(views.stored("nested").await, stored, "the number would be removed");
    update(&views, "nested", doc! { "_id": 2 }, change(doc! { "n": 1, "x": 2 }), true).await;
    for (id, change) in [
        (3, doc! { "$inc": { "c": 1 } }),
        (4, doc! { "$set": { "a.x": 1 }, "$push": { "l": 1 } }),
        (5, doc! { "$set": { "a": { "x": 1 } }, "$push": { "l": 1 } }),
        (6, doc! { "$set": { "a": { "x": 1 }, "b.c": 1 } }),
        (7, doc! { "$rename": { "x": "a.n" } }),
        (8, doc! { "$unset": { "a": 1 } }),
    ] {
        update(&views, "nested", doc! { "_id": id }, change, true).await;
    }
    let stored = views.stored("nested").await;
    let number = |stored: &Document| i64::from(stored.get_document("a").unwrap().get_i32("n").unwrap());
    assert!(stored.windows(2).all(|pair| number(&pair[0]) < number(&pair[1])), "{stored:?}");
    rejected(9, doc! { "$set": { "a": 5 } }).await;
    rejected(9, doc! { "$set": { "a": [] } }).await;
}

#[tokio::test]
async fn an_upsert_is_evaluated_by_what_it_inserts() {
    let views = views().await;
    let set = doc! { "$set": { "x": 1 } };
    for (filter, no) in [
        (doc! { "_id": 1, "no": { "$in": [101] } }, Some(101)),
        (doc! { "_id": 2, "no": { "$all": [102] } }, Some(102)),
        (doc! { "_id": 3, "$or": [{ "no": 103 }] }, Some(103)),
        (doc! { "_id": 4, "$and": [{ "no": { "$eq": 104 } }] }, Some(104)),
        (doc! { "_id": 5, "no": { "$gt": 5000 } }, None),
        (doc! { "_id": 6, "$or": [{ "no": 105 }, { "x": 1 }] }, None),
    ] {
        let reply = update(&views, "upserting", filter.clone(), set.clone(), true).await;
        assert_eq!(reply.get_array("upserted").unwrap().len(), 1);
        let stored = views.stored("upserting").await;
        let stored = stored.last().unwrap().get_i32("no").unwrap();
        assert!(no.is_none_or(|no| no == stored), "{filter}: {stored}");
    }
    update(&views, "nested", doc! { "_id": 1, "a": { "n": 50 } }, set.clone(), true).await;
    update(&views, "nested", doc! { "_id": 2 }, set, true).await;
    let nested = views.stored("nested").await;
    assert_eq!(nested[0].get_document("a").unwrap(), &doc! { "n": 50 });
    assert_eq!(nested[1].get_document("a").unwrap(), &doc! { "n": 51 });
    // The filter's fields are not part of a replacement, nor is its number.
    let [mut last, mut next] = [0, 0];
    for (filter, y) in [(doc! { "x": "given", "no": 500 }, 1), (doc! { "x": "given" }, 2)] {
        update(&views, "upserting", filter, doc! { "y": y }, true).await;
        let stored = views.stored("upserting").await;
        let new = stored.iter().find(|stored| stored.get("y") == Some(&y.into())).unwrap();
        assert!(!new.contains_key("x"), "{new}");
        (last, next) = (next, new.get_i32("no").unwrap());
        assert!(last < next, "{new}");
        unique(&stored);
    }
    assert!(last > 105, "{last}");
}

#[tokio::test]
async fn a_number_stays_when_other_rules_rewrite_the_replacement() {
    let views = views().await;
    for time in [10_i64, 30, 20] {
        update(&views, "timestamped", doc! { "_id": 1 }, doc! { "x": time, "t": time }, true).await;
    }
    update(&views, "timestamped", doc! { "_id": 2 }, doc! { "$set": { "x": 1, "t": 10_i64 } }, true).await;
    let stored = views.stored("timestamped").await;
    assert_eq!((stored[0].get_i64("x").unwrap(), stored[0].get_i32("no").unwrap()), (30, 1), "{stored:?}");
    unique(&stored);

    update(&views, "versioned", doc! { "_id": 1 }, doc! { "x": 1 }, true).await;
    assert_eq!(numbers(&views.stored("versioned").await), [1]);
    let read = views.stored("versioned").await[0].get("version").unwrap().clone();
    update(&views, "versioned", doc! { "_id": 1 }, doc! { "x": 2, "version": read }, true).await;
    let stored = views.stored("versioned").await;
    assert_eq!((stored[0].get_i32("x").unwrap(), stored[0].get_i32("no").unwrap()), (2, 1), "{stored:?}");
}
