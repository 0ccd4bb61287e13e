//! A restore inserts numbered documents while it still has to create the collection of the counters: docward creates a
//! counter when it assigns the first number.

use bson::{Document, doc};
use mongodb::Collection;
use mongodb::options::WriteConcern;

use super::{docward, start, views};
use support::driver::Views;
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

/// The commands of mongorestore 100.10 with a dump of 2,000 documents: a collection that exists is an error for it.
#[tokio::test]
async fn a_restore_creates_the_counter_itself() {
    let views = views().await;
    let create = |name: &str| {
        let index = doc! { "key": { "_id": 1 }, "ns": format!("{}.{name}", views.direct.name()), "name": "_id_" };
        views.run(doc! { "create": name, "idIndex": index })
    };
    let restore = async |name: &str, documents: Vec<Document>| {
        let collection: Collection<Document> = views.collection(name);
        let insert = collection.insert_many(documents).ordered(false).write_concern(WriteConcern::majority());
        insert.await.unwrap();
    };
    let orders = |numbers: std::ops::Range<i32>| numbers.map(|no| doc! { "_id": no, "no": no }).collect();
    create("single").await.unwrap();
    restore("single", orders(1..1001)).await;
    create("counters").await.unwrap();
    restore("single", orders(1001..2001)).await;
    assert_eq!(provided(&views).await, [2000]);
    restore("counters", vec![doc! { "_id": "single", "seq": 2010 }]).await;
    restore("single", orders(2001..2003)).await;
    let stored = views.stored("single").await;
    assert_eq!(stored.len(), 2002);
    assert!(stored.iter().all(|one| one.get("no") == one.get("_id")), "no number is another one");
    assert_eq!(next(&views.collection("single")).await, 2011, "no number before the dump is assigned again");
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
