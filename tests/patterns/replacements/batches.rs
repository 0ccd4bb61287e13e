//! Batches in which the rule rejects some statements, some lose a race, and the server rejects some: each error has
//! its own statement's index, and the counts are those of the others.

use bson::{Document, doc};

use super::{Views, views};
use support::driver::write_errors;

fn set(id: i32, value: i32) -> Document {
    doc! { "q": { "_id": id }, "u": { "$set": { "a": value } } }
}

fn replace(id: i32, document: Document) -> Document {
    doc! { "q": { "_id": id }, "u": document }
}

fn upsert(mut statement: Document) -> Document {
    statement.insert("upsert", true);
    statement
}

async fn update(views: &Views, collection: &str, ordered: bool, updates: Vec<Document>) -> Document {
    views.run(doc! { "update": collection, "updates": updates, "ordered": ordered }).await.unwrap()
}

/// `n`, `nModified`, the indexes of `upserted`, and the errors.
fn outcome(reply: &Document) -> (i32, i32, Vec<i32>, Vec<(i32, i32)>) {
    let upserted = reply.get_array("upserted").cloned().unwrap_or_default();
    let upserted = upserted.iter().map(|entry| entry.as_document().unwrap().get_i32("index").unwrap()).collect();
    (reply.get_i32("n").unwrap(), reply.get_i32("nModified").unwrap(), upserted, write_errors(reply))
}

async fn prepared(collection: &str) -> Views {
    let views = views().await;
    views.store(collection, [doc! { "_id": 1, "a": 0 }, doc! { "_id": 2, "a": 0 }, doc! { "_id": 3, "a": 0 }]).await;
    views
}

#[tokio::test]
async fn an_ordered_batch_stops_at_the_rejection() {
    let views = prepared("strict").await;
    let batch = vec![set(1, 1), upsert(set(9, 1)), set(2, 0), replace(3, doc! { "b": 1 }), set(3, 1)];
    let reply = update(&views, "strict", true, batch).await;
    assert_eq!(outcome(&reply), (3, 1, vec![1], vec![(3, 121)]), "{reply}");
    let stored =
        [doc! { "_id": 1, "a": 1 }, doc! { "_id": 2, "a": 0 }, doc! { "_id": 3, "a": 0 }, doc! { "_id": 9, "a": 1 }];
    assert_eq!(views.stored("strict").await, stored);
}

#[tokio::test]
async fn an_unordered_batch_continues_after_a_rejection() {
    let views = prepared("strict").await;
    let bad = doc! { "q": { "_id": 2 }, "u": { "$inc": { "b.c": "x" } } };
    let batch = vec![
        replace(1, doc! { "b": 1 }),
        set(1, 1),
        bad,
        upsert(set(9, 1)),
        upsert(replace(3, doc! { "b": 1 })),
        upsert(replace(8, doc! { "b": 1 })),
        set(2, 2),
        upsert(set(7, 1)),
    ];
    let reply = update(&views, "strict", false, batch).await;
    let errors = write_errors(&reply);
    assert_eq!(errors.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0, 2, 4], "{reply}");
    assert_eq!((errors[0].1, errors[2].1), (121, 121), "{reply}");
    assert_ne!(errors[1].1, 121, "{reply}");
    assert_eq!((reply.get_i32("n").unwrap(), reply.get_i32("nModified").unwrap()), (5, 2), "{reply}");
    assert_eq!(outcome(&reply).2, [3, 5, 7], "{reply}");
    let ids: Vec<i32> = views.stored("strict").await.iter().map(|d| d.get_i32("_id").unwrap()).collect();
    assert_eq!(ids, [1, 2, 3, 7, 8, 9]);
}

#[tokio::test]
async fn an_ordered_batch_stops_at_the_conflict() {
    let views = prepared("checking").await;
    let batch = vec![
        set(1, 1),
        replace(1, doc! { "b": 1, "version": 1 }),
        upsert(replace(9, doc! { "b": 1 })),
        replace(1, doc! { "b": 2, "version": 2 }),
        replace(2, doc! { "b": 1, "version": 6 }),
        set(3, 1),
    ];
    let reply = update(&views, "checking", true, batch).await;
    assert_eq!(outcome(&reply), (4, 3, vec![2], vec![(4, 112)]), "{reply}");
    let stored = [
        doc! { "_id": 1, "b": 2, "version": 3 },
        doc! { "_id": 2, "a": 0 },
        doc! { "_id": 3, "a": 0 },
        doc! { "_id": 9, "b": 1, "version": 1 },
    ];
    assert_eq!(views.stored("checking").await, stored);
}

#[tokio::test]
async fn an_unordered_batch_continues_after_a_conflict() {
    let views = prepared("checking").await;
    let batch = vec![
        replace(1, doc! { "b": 1, "version": 3 }),
        set(1, 1),
        upsert(replace(9, doc! { "b": 1, "version": 3 })),
        upsert(replace(2, doc! { "b": 1 })),
        upsert(replace(8, doc! { "b": 1 })),
        upsert(replace(8, doc! { "b": 2 })),
    ];
    let reply = update(&views, "checking", false, batch).await;
    // The application read the third statement's document before it was deleted: this is not a conflict, and nothing
    // is inserted.
    assert_eq!(outcome(&reply), (3, 2, vec![4], vec![(0, 112), (5, 112)]), "{reply}");
    let stored = [
        doc! { "_id": 1, "a": 1, "version": 1 },
        doc! { "_id": 2, "b": 1, "version": 1 },
        doc! { "_id": 3, "a": 0 },
        doc! { "_id": 8, "b": 1, "version": 1 },
    ];
    assert_eq!(views.stored("checking").await, stored);
}

#[tokio::test]
async fn an_ignored_conflict_does_not_stop_a_batch() {
    let views = prepared("ignoring").await;
    let batch = vec![
        replace(1, doc! { "b": 1, "version": 3 }),
        upsert(replace(9, doc! { "b": 1, "version": 3 })),
        replace(2, doc! { "b": 1 }),
        upsert(replace(2, doc! { "b": 2 })),
        set(3, 1),
    ];
    let reply = update(&views, "ignoring", true, batch).await;
    assert_eq!(outcome(&reply), (2, 2, vec![], vec![]), "{reply}");
}

/// The server's error comes before a statement that the rule would reject: the batch has stopped already.
#[tokio::test]
async fn an_ordered_batch_reports_the_first_of_two_errors() {
    let views = prepared("strict").await;
    let bad = doc! { "q": { "_id": 1 }, "u": { "$set": { "_id": 5 } } };
    let reply = update(&views, "strict", true, vec![set(1, 1), bad, replace(2, doc! { "b": 1 }), set(3, 1)]).await;
    assert_eq!(outcome(&reply), (1, 1, vec![], vec![(1, 66)]), "{reply}");
}

/// A batch of a thousand statements gets the same counts as on mongod.
#[tokio::test]
async fn a_large_batch_keeps_its_indexes() {
    let views = views().await;
    let documents: Vec<Document> = (0..1000).map(|id| doc! { "_id": id }).collect();
    views.store("strict", documents).await;
    let statement = |id: i32| if id % 7 == 0 { replace(id, doc! { "b": 1 }) } else { set(id, 1) };
    let reply = update(&views, "strict", false, (0..1000).map(statement).collect()).await;
    let rejected: Vec<(i32, i32)> = (0..1000).step_by(7).map(|index| (index, 121)).collect();
    assert_eq!(outcome(&reply), (857, 857, vec![], rejected));
}

/// The first statement is sent twice: `$inc` fails on the stored version. The second needs no `$inc`.
#[tokio::test]
async fn a_batch_keeps_its_order_when_a_version_cannot_be_incremented() {
    for ordered in [true, false] {
        let views = views().await;
        views.store("checking", [doc! { "_id": 1, "a": 0, "version": "text" }]).await;
        let computed = doc! { "q": { "_id": 1 }, "u": [{ "$set": { "a": { "$add": ["$a", 4] } } }] };
        let reply = update(&views, "checking", ordered, vec![set(1, 1), computed]).await;
        assert_eq!(outcome(&reply), (2, 2, vec![], vec![]), "{reply}");
        assert_eq!(views.stored("checking").await, [doc! { "_id": 1, "a": 5, "version": "text" }]);
    }
}
