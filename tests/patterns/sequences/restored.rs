//! A restore inserts numbered documents while it still has to create the collection of the counters: docward creates a
//! counter when it assigns the first number.

use bson::{Document, doc};
use mongodb::Collection;

use super::{docward, start, views};
use support::driver::{Views, write_errors};
use support::mongod::Mongod;

/// The numbers that clients provided for counters of this database before the counters existed.
async fn provided(views: &Views) -> Vec<i32> {
    let stored: Vec<Document> =
        support::driver::all(&Mongod::shared().client().await.database("docward"), "counters").await;
    let own = stored.into_iter().filter(|one| one.get_str("_id").unwrap().starts_with(views.direct.name()));
    own.map(|one| one.get_i32("seq").unwrap()).collect()
}

async fn next(orders: &Collection<Document>) -> i32 {
    orders.insert_one(doc! { "_id": "next" }).await.unwrap();
    orders.find_one(doc! { "_id": "next" }).await.unwrap().unwrap().get_i32("no").unwrap()
}

#[tokio::test]
async fn a_restore_creates_the_counter_itself() {
    let views = views().await;
    let single: Collection<Document> = views.collection("single");
    let restored = |numbers: std::ops::Range<i32>| numbers.map(|no| doc! { "_id": no, "no": no });
    single.insert_many(restored(1..10)).await.unwrap();
    // As mongorestore does: a collection that exists, or a counter that exists, is an error.
    views.run(doc! { "create": "counters" }).await.unwrap();
    single.insert_many(restored(10..19)).await.unwrap();
    let counter = doc! { "_id": "single", "seq": 30 };
    let reply = views.run(doc! { "insert": "counters", "documents": [counter] }).await.unwrap();
    assert_eq!(write_errors(&reply), []);
    single.insert_many(restored(19..20)).await.unwrap();
    assert_eq!(provided(&views).await, [18]);
    assert_eq!(next(&single).await, 31, "no number before the dump is assigned again");
    assert!(provided(&views).await.is_empty());
}

/// The numbers are stored: also by a process that ends before it assigns one.
#[tokio::test]
async fn numbers_before_the_counter_exists_are_not_assigned_again() {
    let mut first = start();
    let views = Views::of(Mongod::shared(), &first).await;
    let single: Collection<Document> = views.collection("single");
    single.insert_many([doc! { "_id": 1, "no": 7 }, doc! { "_id": 2, "no": 3 }]).await.unwrap();
    single.delete_many(doc! {}).await.unwrap();
    assert_eq!((views.stored("counters").await, provided(&views).await), (vec![], vec![7]));
    first.kill();
    let other = docward().client().await.database(views.direct.name()).collection("single");
    assert_eq!(next(&other).await, 8);
    assert_eq!(views.stored("counters").await, [doc! { "_id": "single", "seq": 8 }]);
}
