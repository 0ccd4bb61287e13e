//! Concurrent writers: over two docward processes, one of them killed half-way, with an application that increments
//! the counter itself, inside transactions, and without the rule.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bson::{Document, doc};
use mongodb::options::ReturnDocument;
use mongodb::{Collection, Database};
use tokio::task::JoinSet;

use super::{RULES, insert, numbers, start, unique, unique_index, views};
use support::driver::{Views, connect, scaled};
use support::mongod::{Kind, Mongod};
use support::proxy::Docward;

const WRITERS: u32 = 16;

/// Sixteen writers over `clients`, half on each; `progress` counts acknowledged documents. A writer that gets no
/// reply from the process that may be `killed` repeats under new `_id`s on the other. Returns the `_id`s of all
/// acknowledged documents.
async fn write(
    clients: [Database; 2],
    collection: &'static str,
    rounds: u32,
    progress: &'static AtomicU32,
    killed: Option<usize>,
) -> BTreeSet<String> {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let clients = clients.clone();
        writers.spawn(async move {
            let (mut acknowledged, mut side) = (Vec::new(), (writer % 2) as usize);
            for round in 0..rounds {
                let ids = match insert(&clients[side], collection, writer, round).await {
                    Ok(ids) => ids,
                    Err(_) if killed == Some(side) => {
                        side = 1 - side;
                        insert(&clients[side], collection, writer, round + 3 * rounds).await.unwrap()
                    }
                    Err(error) => panic!("{error}"),
                };
                progress.fetch_add(1, Ordering::Relaxed);
                acknowledged.extend(ids);
            }
            acknowledged
        });
    }
    writers.join_all().await.into_iter().flatten().collect()
}

fn ids(documents: &[Document]) -> BTreeSet<String> {
    documents.iter().map(|document| document.get_str("_id").unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_issue_every_number_once() {
    static PROGRESS: AtomicU32 = AtomicU32::new(0);
    let (first, second) = (start(), start());
    let views = Views::of(Mongod::shared(), &first).await;
    for collection in ["single", "blocks"] {
        let name = views.direct.name();
        let clients = [first.client().await.database(name), second.client().await.database(name)];
        let acknowledged = write(clients, collection, scaled(12), &PROGRESS, None).await;
        let stored = views.stored(collection).await;
        assert!(ids(&stored) == acknowledged, "acknowledged and stored documents differ");
        let numbers = unique(&stored);
        if collection == "single" {
            assert_eq!(numbers, (1..=stored.len() as i64).collect::<Vec<_>>(), "a gap with block: 1 and no kill");
        }
    }
}

async fn one_process_is_killed(collection: &'static str, progress: &'static AtomicU32) {
    let (mut first, second) = (start(), start());
    let views = Views::of(Mongod::shared(), &second).await;
    let name = views.direct.name();
    // Clients do not wait for the killed process.
    let doomed = connect(&first.address(), "serverSelectionTimeoutMS=1000&connectTimeoutMS=1000").await;
    let clients = [doomed.database(name), second.client().await.database(name)];
    let rounds = scaled(18);
    let writing = tokio::spawn(write(clients, collection, rounds, progress, Some(0)));
    while progress.load(Ordering::Relaxed) < WRITERS * rounds / 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    first.kill();
    let at_the_kill = progress.load(Ordering::Relaxed);
    let acknowledged = writing.await.unwrap();
    assert!(at_the_kill < WRITERS * rounds, "the writers were done before the kill");
    let stored = views.stored(collection).await;
    assert!(acknowledged.is_subset(&ids(&stored)), "an acknowledged insert is lost");
    let numbers = unique(&stored);
    let last = views.direct.collection::<Document>("counters").find_one(doc! { "_id": collection }).await.unwrap();
    assert!(numbers.last() <= Some(&i64::from(last.unwrap().get_i32("seq").unwrap())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_leaves_no_duplicate() {
    static PROGRESS: AtomicU32 = AtomicU32::new(0);
    one_process_is_killed("single", &PROGRESS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_leaves_no_duplicate_of_its_block() {
    static PROGRESS: AtomicU32 = AtomicU32::new(0);
    one_process_is_killed("blocks", &PROGRESS).await;
}

/// The application's own increments of the counter, which continue to work with docward.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_may_use_the_counter_itself() {
    // Uses its own docward, whose log is printed on failure.
    let docward = start();
    let views = Views::of(Mongod::shared(), &docward).await;
    let mut writers = JoinSet::new();
    for writer in 0..8 {
        let database = if writer % 4 == 0 { views.direct.clone() } else { views.through.clone() };
        writers.spawn(async move {
            let mut own = Vec::new();
            for round in 0..scaled(15) {
                if writer % 2 == 1 {
                    insert(&database, "single", writer, round).await.unwrap();
                    continue;
                }
                let counters: Collection<Document> = database.collection("counters");
                let counted = counters
                    .find_one_and_update(doc! { "_id": "single" }, doc! { "$inc": { "seq": 1 } })
                    .upsert(true)
                    .return_document(ReturnDocument::After)
                    .await;
                own.push(doc! { "no": counted.unwrap().unwrap().get_i32("seq").unwrap() });
            }
            own
        });
    }
    let mut issued: Vec<Document> = writers.join_all().await.into_iter().flatten().collect();
    issued.extend(views.stored("single").await);
    assert_eq!(unique(&issued), (1..=issued.len() as i64).collect::<Vec<_>>());
}

/// The server inserts a batch and closes docward's connection. The driver repeats it, docward numbers it again, and
/// the server recognises the inserted documents. That leaves a gap, but no duplicate.
#[tokio::test]
async fn a_repeated_batch_inserts_nothing_twice() {
    let mongod = Mongod::start(Kind::ReplicaSet);
    let docward = Docward::start(&mongod, RULES);
    let retried = || {
        let status = mongod.command("admin", doc! { "serverStatus": 1 });
        status.get_document("transactions").unwrap().get_i64("retriedStatementsCount").unwrap()
    };
    for (collection, earlier_writes) in [("single", 2), ("optimistic", 0)] {
        let views = Views::of(&mongod, &docward).await;
        views.direct.collection::<Document>(collection).create_index(unique_index()).await.unwrap();
        let before = retried();
        // The counter's own document is also written by retryable writes, which docward's driver repeats: it is created,
        // then incremented.
        let mode = doc! { "times": earlier_writes + 1 };
        let data = doc! { "closeConnection": true };
        mongod
            .command("admin", doc! { "configureFailPoint": "onPrimaryTransactionalWrite", "mode": mode, "data": data });
        let documents: Vec<Document> = (0..6).map(|id| doc! { "_id": id }).collect();
        views.collection(collection).insert_many(documents).await.unwrap();
        assert_eq!(retried() - before, 6 + earlier_writes, "{collection}: the batch was not repeated");
        assert_eq!(numbers(&views.stored(collection).await), [1, 2, 3, 4, 5, 6], "{collection}");
    }
}

/// Shows that the rule is needed: the largest number plus one. A single run may succeed by chance; twenty do not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_rule_numbers_are_issued_twice() {
    let bare = Docward::start(Mongod::shared(), "");
    for _ in 0..20 {
        let views = Views::of(Mongod::shared(), &bare).await;
        let mut writers = JoinSet::new();
        for _ in 0..8 {
            let orders: Collection<Document> = views.collection("single");
            writers.spawn(async move {
                for _ in 0..5 {
                    let last = orders.find_one(doc! {}).sort(doc! { "no": -1 }).await.unwrap();
                    let next = last.map_or(1, |last| last.get_i32("no").unwrap() + 1);
                    orders.insert_one(doc! { "no": next }).await.unwrap();
                }
            });
        }
        writers.join_all().await;
        let numbers = numbers(&views.stored("single").await);
        if numbers.iter().collect::<BTreeSet<_>>().len() < numbers.len() {
            return;
        }
    }
    panic!("no number was assigned twice in twenty runs");
}

/// Counter numbers inside transactions: the number of an aborted one becomes a gap and is never assigned again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_never_share_numbers() {
    let views = views().await;
    views.direct.create_collection("single").await.unwrap();
    let mut writers = JoinSet::new();
    for writer in 0..8 {
        let database = views.through.clone();
        writers.spawn(async move {
            let single: Collection<Document> = database.collection("single");
            let mut session = database.client().start_session().await.unwrap();
            for round in 0..4 {
                session.start_transaction().await.unwrap();
                let documents =
                    [doc! { "_id": format!("{writer}.{round}.a") }, doc! { "_id": format!("{writer}.{round}.b") }];
                single.insert_many(documents).session(&mut session).await.unwrap();
                match round % 2 {
                    0 => session.commit_transaction().await.unwrap(),
                    _ => session.abort_transaction().await.unwrap(),
                }
            }
        });
    }
    writers.join_all().await;
    let numbers = unique(&views.stored("single").await);
    assert_eq!(numbers.len(), 32);
    assert!(numbers.last() <= Some(&64), "{numbers:?}");
}
