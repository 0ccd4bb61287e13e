//! Single inserts and batches under each setting: the stored numbers, and the effect of a broken counter.

use bson::{Bson, Document, doc};
use mongodb::Collection;

use super::{numbers, unique, views};
use support::driver::{code, message, write_errors};
use support::process::TIMEOUT;

#[tokio::test]
async fn a_batch_is_numbered_in_document_order() {
    let views = views().await;
    let documents: Vec<Document> = (0..120).map(|id| doc! { "_id": id }).collect();
    for (collection, rest) in [("single", 121), ("blocks", 121)] {
        views.collection(collection).insert_many(&documents).await.unwrap();
        views.collection(collection).insert_one(doc! { "_id": 120 }).await.unwrap();
        assert_eq!(numbers(&views.stored(collection).await), (1..=rest).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn documents_that_carry_the_field_keep_it() {
    let views = views().await;
    let documents = [
        doc! { "_id": 1, "no": 77 },
        doc! { "_id": 2 },
        doc! { "_id": 3, "no": null },
        doc! { "_id": 4, "no": "seven" },
        doc! { "_id": 5 },
    ];
    views.collection("single").insert_many(&documents).await.unwrap();
    let stored = views.stored("single").await;
    let number = |place: usize| stored[place].get("no").unwrap().clone();
    assert_eq!([number(0), number(2), number(3)], [77.into(), Bson::Null, "seven".into()]);
    assert_eq!([number(1), number(4)], [1.into(), 2.into()]);
    let seq = views.stored("counters").await;
    assert_eq!(seq, [doc! { "_id": "single", "seq": 77 }]);
}

#[tokio::test]
async fn a_sequence_starts_at_the_number_of_the_rule() {
    let views = views().await;
    views.collection("later").insert_many([doc! { "_id": 1 }, doc! { "_id": 2 }]).await.unwrap();
    assert_eq!(numbers(&views.stored("later").await), [1000, 1001]);
    assert_eq!(views.stored("numbers").await, [doc! { "_id": "later", "seq": 1001 }]);

    let decimal = |text: &str| text.parse::<bson::Decimal128>().unwrap();
    let nested = [
        doc! { "_id": 1, "meta": { "no": decimal("41.5") } },
        doc! { "_id": 2, "meta": { "no": "99" } },
        doc! { "_id": 3, "meta": { "no": 7.5 } },
        doc! { "_id": -1, "meta": { "no": [99] } },
        doc! { "_id": -2, "meta": [{ "no": 99 }] },
        doc! { "_id": -3, "meta": { "no": decimal("Infinity") } },
    ];
    views.store("behind", nested).await;
    views.collection("behind").insert_one(doc! { "_id": 4, "meta": { "a": 1 } }).await.unwrap();
    views.direct.collection::<Document>("behind").delete_many(doc! { "_id": { "$lt": 0 } }).await.unwrap();
    views.collection("behind").insert_one(doc! { "_id": 5 }).await.unwrap();
    let stored = views.stored("behind").await;
    assert_eq!(stored[3], doc! { "_id": 4, "meta": { "a": 1, "no": 42 } });
    assert_eq!(stored[4], doc! { "_id": 5, "meta": { "no": 43 } });
    let rejected = views.collection("behind").insert_one(doc! { "_id": 6, "meta": 1 }).await.unwrap_err();
    assert_eq!(code(&rejected), 121);

    // An empty collection starts with 1, and an existing counter continues.
    let views = self::views().await;
    views.collection("behind").insert_one(doc! { "_id": 1 }).await.unwrap();
    assert_eq!(views.stored("behind").await, [doc! { "_id": 1, "meta": { "no": 1 } }]);
    views.direct.collection("counters").insert_one(doc! { "_id": "later", "seq": 5_i64 << 32 }).await.unwrap();
    views.store("numbers", [doc! { "_id": "later", "seq": 5_i64 << 32 }]).await;
    views.collection("later").insert_one(doc! { "_id": 1 }).await.unwrap();
    assert_eq!(numbers(&views.stored("later").await), [(5_i64 << 32) + 1]);
}

/// Whichever rule comes first, the counter starts after the numbers of all rules that share it, in all their
/// collections.
#[tokio::test]
async fn a_shared_counter_starts_after_the_numbers_of_all_rules() {
    for first in ["left", "right"] {
        let views = self::views().await;
        views.store("left", [doc! { "_id": 1, "no": 70 }]).await;
        views.store("right", [doc! { "_id": 1, "meta": { "no": 90 } }]).await;
        views.collection(first).insert_one(doc! { "_id": 2 }).await.unwrap();
        let other = if first == "left" { "right" } else { "left" };
        views.collection(other).insert_one(doc! { "_id": 2 }).await.unwrap();
        let left = numbers(&views.stored("left").await[1..]);
        let right = views.stored("right").await[1].get_document("meta").unwrap().get_i32("no").unwrap();
        assert_eq!([left[0], i64::from(right)], if first == "left" { [91, 92] } else { [92, 91] });
    }
    // There are no numbers yet: one of the rules sets the start.
    let views = self::views().await;
    views.collection("left").insert_one(doc! { "_id": 1 }).await.unwrap();
    assert_eq!(numbers(&views.stored("left").await), [50]);
}

#[tokio::test]
async fn a_counter_of_many_collections_starts_after_the_numbers_of_all() {
    let views = self::views().await;
    views.store("part-1", [doc! { "_id": 1, "no": 3 }]).await;
    views.store("part-2", [doc! { "_id": 1, "no": 8 }]).await;
    for (collection, number) in [("part-1", 9), ("part-2", 10), ("part-3", 11)] {
        views.collection(collection).insert_one(doc! { "_id": 2 }).await.unwrap();
        assert_eq!(numbers(&views.stored(collection).await).last(), Some(&number), "{collection}");
    }
}

#[tokio::test]
async fn upserts_are_numbered_if_the_rule_requires_it() {
    let views = views().await;
    let upserting: Collection<Document> = views.collection("upserting");
    let set = |value: i32| doc! { "$set": { "a": value } };
    upserting.update_one(doc! { "_id": 1 }, set(1)).upsert(true).await.unwrap();
    upserting.update_one(doc! { "_id": 1 }, set(2)).upsert(true).await.unwrap();
    upserting.find_one_and_update(doc! { "_id": 2 }, doc! { "$setOnInsert": { "b": 1 } }).upsert(true).await.unwrap();
    upserting.update_one(doc! { "_id": 3, "no": 99 }, set(3)).upsert(true).await.unwrap();
    upserting.replace_one(doc! { "_id": 4 }, doc! { "a": "$b" }).upsert(true).await.unwrap();
    let stored = views.stored("upserting").await;
    assert_eq!(stored[0], doc! { "_id": 1, "a": 2, "no": 1 });
    assert_eq!((stored[1].get_i32("b").unwrap(), stored[2].get_i32("no").unwrap()), (1, 99));
    unique(&stored);
    // A replacement of an existing document keeps its number.
    let before = stored[3].get_i32("no").unwrap();
    upserting.replace_one(doc! { "_id": 4 }, doc! { "a": 5 }).upsert(true).await.unwrap();
    assert_eq!(views.stored("upserting").await[3], doc! { "_id": 4, "a": 5, "no": before });
    // On other collections an upsert is not changed.
    views.collection("single").update_one(doc! { "_id": 1 }, set(1)).upsert(true).await.unwrap();
    assert_eq!(views.stored("single").await, [doc! { "_id": 1, "a": 1 }]);
}

#[tokio::test]
async fn numbers_replace_generated_ids() {
    let views = views().await;
    views
        .through
        .collection("ids")
        .insert_many([doc! { "a": 1 }, doc! { "_id": "own" }, doc! { "a": 2 }])
        .await
        .unwrap();
    let ids: Vec<Bson> = views.stored("ids").await.iter().map(|d| d.get("_id").unwrap().clone()).collect();
    assert_eq!(ids, [1.into(), 2.into(), "own".into()]);
}

/// A counter with an invalid value: the error is immediate, and the counter works again once it is corrected.
#[tokio::test]
async fn a_broken_counter_gives_a_clear_error() {
    let views = views().await;
    for broken in [Bson::from("seven"), Bson::from(1.5), Bson::from(doc! {}), Bson::from(i64::MAX)] {
        let counters: Collection<Document> = views.direct.collection("counters");
        counters.replace_one(doc! { "_id": "single" }, doc! { "seq": &broken }).upsert(true).await.unwrap();
        let single = views.collection("single");
        let inserted = single.insert_one(doc! { "_id": 1 });
        let outcome = tokio::time::timeout(TIMEOUT, inserted).await;
        let error = outcome.unwrap_or_else(|_| panic!("it hangs with seq: {broken}")).unwrap_err();
        assert_eq!(code(&error), 121, "{broken}");
        for part in ["docward rule 'single'", "\"single\"", "counters"] {
            assert!(message(&error).contains(part), "{part} is not in: {}", message(&error));
        }
        let batch = doc! { "insert": "single", "ordered": false, "documents": [{}, { "_id": 2, "no": 9 }] };
        assert_eq!(write_errors(&views.run(batch).await.unwrap()), [(0, 121)]);
        assert_eq!(views.stored("single").await, [doc! { "_id": 2, "no": 9 }]);
        views.direct.collection::<Document>("single").delete_many(doc! {}).await.unwrap();
    }
    views.direct.collection::<Document>("counters").delete_many(doc! {}).await.unwrap();
    views.collection("single").insert_one(doc! { "_id": 1 }).await.unwrap();
    assert_eq!(numbers(&views.stored("single").await), [1]);
}
