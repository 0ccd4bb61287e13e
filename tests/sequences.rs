//! The pattern `sequence` before a real mongod: sixteen writers over two docward processes get no number
//! twice, whatever is killed; each setting does what it says; and what happens without the rule.
//! The guarded collections have no unique index unless the strategy wants one, so that duplicates would show.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod support;

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bson::{Bson, Document, doc};
use mongodb::options::{IndexOptions, ReturnDocument};
use mongodb::{Collection, Database, IndexModel};
use support::driver::{Views, code, connect, message, scaled, write_errors};
use support::mongod::Mongod;
use support::proxy::Docward;
use tokio::task::JoinSet;

const WRITERS: u32 = 16;

/// One rule for each setting; its name is its collection's.
const RULES: &str = r#"
version: 1
rules:
  - { name: single, namespace: "*.single", sequence: { field: no, counter: single } }
  - { name: blocks, namespace: "*.blocks", sequence: { field: no, counter: blocks, block: 50 } }
  - { name: later, namespace: "*.later", sequence: { field: no, counter: later, start: 1000, collection: numbers } }
  - { name: behind, namespace: "*.behind", sequence: { field: meta.no, counter: behind, start: after_max } }
  - { name: upserting, namespace: "*.upserting", sequence: { field: no, counter: upserting, on_upsert: true } }
  - { name: ids, namespace: "*.ids", sequence: { field: _id, counter: ids, replace_generated: true } }
  - { name: optimistic, namespace: "*.optimistic", sequence: { field: no, strategy: optimistic } }
"#;

fn start() -> Docward {
    Docward::before(&Mongod::shared().uri()).rules(RULES).environment("RUST_LOG", "warn").start()
}

/// One docward for the tests that do not kill theirs.
fn docward() -> &'static Docward {
    static DOCWARD: OnceLock<Docward> = OnceLock::new();
    DOCWARD.get_or_init(start)
}

async fn views() -> Views {
    Views::of(Mongod::shared(), docward()).await
}

fn numbers(documents: &[Document]) -> Vec<i64> {
    let number = |document: &Document| match document.get("no") {
        Some(Bson::Int32(number)) => i64::from(*number),
        Some(Bson::Int64(number)) => *number,
        other => panic!("{other:?} in {document}"),
    };
    documents.iter().map(number).collect()
}

/// The numbers, sorted; panics when one was issued twice.
fn unique(documents: &[Document]) -> Vec<i64> {
    let mut numbers = numbers(documents);
    numbers.sort_unstable();
    let repeated: Vec<_> = numbers.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(repeated.is_empty(), "issued twice: {repeated:?}");
    numbers
}

/// One insert in one of the ways an application has; the `_id`s when it was acknowledged.
async fn insert(database: &Database, collection: &str, writer: u32, round: u32) -> Option<Vec<String>> {
    let documents: Collection<Document> = database.collection(collection);
    let batch = |size: u32| (0..size).map(|n| format!("{writer}.{round}.{n}")).collect::<Vec<_>>();
    let of = |ids: &[String]| ids.iter().map(|id| doc! { "_id": id }).collect::<Vec<_>>();
    let ids = batch([1, 3, 5][(round % 3) as usize]);
    let outcome = match round % 3 {
        0 => documents.insert_one(doc! { "_id": &ids[0] }).await.map(drop),
        1 => documents.insert_many(of(&ids)).ordered(writer.is_multiple_of(2)).await.map(drop),
        _ => {
            let command = doc! { "insert": collection, "documents": of(&ids), "ordered": false };
            database.run_command(command).await.map(|reply| assert_eq!(write_errors(&reply), [], "{reply}"))
        }
    };
    outcome.ok().map(|()| ids)
}

/// Sixteen writers over `clients`, half on each. Who gets no answer goes to the other docward and repeats
/// under new `_id`s; `progress` counts what is acknowledged. The `_id`s of all that was acknowledged.
async fn write(
    clients: [Database; 2],
    collection: &'static str,
    rounds: u32,
    progress: &'static AtomicU32,
) -> BTreeSet<String> {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let clients = clients.clone();
        writers.spawn(async move {
            let (mut acknowledged, mut side) = (Vec::new(), (writer % 2) as usize);
            for round in 0..rounds {
                let ids = match insert(&clients[side], collection, writer, round).await {
                    Some(ids) => ids,
                    None => {
                        side = 1 - side;
                        let again = insert(&clients[side], collection, writer, round + 3 * rounds).await;
                        again.expect("the other docward answers")
                    }
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

async fn two_clients(first: &Docward, second: &Docward, name: &str) -> [Database; 2] {
    // Who is killed is not waited for.
    let options = "serverSelectionTimeoutMS=1000&connectTimeoutMS=1000";
    let first = connect(&first.address(), options).await.database(name);
    [first, connect(&second.address(), options).await.database(name)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_issue_every_number_once() {
    static PROGRESS: AtomicU32 = AtomicU32::new(0);
    let (first, second) = (start(), start());
    let views = Views::of(Mongod::shared(), &first).await;
    for collection in ["single", "blocks"] {
        let clients = two_clients(&first, &second, views.direct.name()).await;
        let acknowledged = write(clients, collection, scaled(12), &PROGRESS).await;
        let stored = views.stored(collection).await;
        assert_eq!(ids(&stored), acknowledged);
        let numbers = unique(&stored);
        if collection == "single" {
            assert_eq!(numbers, (1..=stored.len() as i64).collect::<Vec<_>>(), "a gap with block: 1 and no kill");
        }
    }
}

async fn one_process_is_killed(collection: &'static str, progress: &'static AtomicU32) {
    let (mut first, second) = (start(), start());
    let views = Views::of(Mongod::shared(), &second).await;
    let clients = two_clients(&first, &second, views.direct.name()).await;
    let rounds = scaled(18);
    let writing = tokio::spawn(write(clients, collection, rounds, progress));
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

/// What the application did before docward came, and still does beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_may_count_on_beside_docward() {
    let views = views().await;
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

/// What the rule is for: the largest number and one. One run may be lucky; twenty are not.
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
    panic!("no number was issued twice in twenty runs");
}

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
    assert_eq!(seq, [doc! { "_id": "single", "seq": 2 }]);
}

#[tokio::test]
async fn a_sequence_starts_where_the_rule_says() {
    let views = views().await;
    views.collection("later").insert_many([doc! { "_id": 1 }, doc! { "_id": 2 }]).await.unwrap();
    assert_eq!(numbers(&views.stored("later").await), [1000, 1001]);
    assert_eq!(views.stored("numbers").await, [doc! { "_id": "later", "seq": 1001 }]);

    let nested = [
        doc! { "_id": 1, "meta": { "no": 41 } },
        doc! { "_id": 2, "meta": { "no": "99" } },
        doc! { "_id": 3, "meta": { "no": 7.5 } },
    ];
    views.store("behind", nested).await;
    views.collection("behind").insert_one(doc! { "_id": 4, "meta": { "a": 1 } }).await.unwrap();
    views.collection("behind").insert_one(doc! { "_id": 5 }).await.unwrap();
    let stored = views.stored("behind").await;
    assert_eq!(stored[3], doc! { "_id": 4, "meta": { "a": 1, "no": 42 } });
    assert_eq!(stored[4], doc! { "_id": 5, "meta": { "no": 43 } });
    let refused = views.collection("behind").insert_one(doc! { "_id": 6, "meta": 1 }).await.unwrap_err();
    assert_eq!(code(&refused), 121);

    // An empty collection begins with 1, and a counter that is there goes on.
    let views = self::views().await;
    views.collection("behind").insert_one(doc! { "_id": 1 }).await.unwrap();
    assert_eq!(views.stored("behind").await, [doc! { "_id": 1, "meta": { "no": 1 } }]);
    views.direct.collection("counters").insert_one(doc! { "_id": "later", "seq": 5_i64 << 32 }).await.unwrap();
    views.store("numbers", [doc! { "_id": "later", "seq": 5_i64 << 32 }]).await;
    views.collection("later").insert_one(doc! { "_id": 1 }).await.unwrap();
    assert_eq!(numbers(&views.stored("later").await), [(5_i64 << 32) + 1]);
}

#[tokio::test]
async fn upserts_are_numbered_where_the_rule_says() {
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
    // A replacement of what is there keeps its number.
    let before = stored[3].get_i32("no").unwrap();
    upserting.replace_one(doc! { "_id": 4 }, doc! { "a": 5 }).upsert(true).await.unwrap();
    assert_eq!(views.stored("upserting").await[3], doc! { "_id": 4, "a": 5, "no": before });
    // Elsewhere an upsert is left alone.
    views.collection("single").update_one(doc! { "_id": 1 }, set(1)).upsert(true).await.unwrap();
    assert_eq!(views.stored("single").await, [doc! { "_id": 1, "a": 1 }]);
}

#[tokio::test]
async fn generated_ids_give_way_to_numbers() {
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

/// A counter that somebody has broken: told at once, and good again once it is mended.
#[tokio::test]
async fn a_broken_counter_gives_a_clear_error() {
    let views = views().await;
    for broken in [Bson::from("seven"), Bson::from(1.5), Bson::from(doc! {}), Bson::from(i64::MAX)] {
        let counters: Collection<Document> = views.direct.collection("counters");
        counters.replace_one(doc! { "_id": "single" }, doc! { "seq": &broken }).upsert(true).await.unwrap();
        let single = views.collection("single");
        let inserted = single.insert_one(doc! { "_id": 1 });
        let outcome = tokio::time::timeout(Duration::from_secs(5), inserted).await;
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

async fn optimistic() -> Views {
    let views = views().await;
    let unique = IndexOptions::builder().unique(true).build();
    let index = IndexModel::builder().keys(doc! { "no": 1 }).options(unique).build();
    views.direct.collection::<Document>("optimistic").create_index(index).await.unwrap();
    views
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn optimistic_numbers_have_no_gaps() {
    let views = optimistic().await;
    let mut writers = JoinSet::new();
    for writer in 0..8 {
        let database = views.through.clone();
        writers.spawn(async move {
            for round in 0..scaled(6) {
                insert(&database, "optimistic", writer, round).await.unwrap();
            }
        });
    }
    writers.join_all().await;
    let numbers = unique(&views.stored("optimistic").await);
    assert_eq!(numbers, (1..=numbers.len() as i64).collect::<Vec<_>>());
}

/// Other documents fail meanwhile, with ordered and unordered batches; what is inserted has no gap.
#[tokio::test]
async fn optimistic_batches_with_failing_documents() {
    let views = optimistic().await;
    let batch = |ids: &[i32], ordered: bool| {
        let documents: Vec<Document> = ids.iter().map(|id| doc! { "_id": id }).collect();
        doc! { "insert": "optimistic", "documents": documents, "ordered": ordered }
    };
    let reply = views.run(batch(&[1, 2, 1, 3], true)).await.unwrap();
    assert_eq!((reply.get_i32("n").unwrap(), write_errors(&reply)), (2, vec![(2, 11000)]), "{reply}");
    let reply = views.run(batch(&[1, 3, 2, 4, 3, 5], false)).await.unwrap();
    let errors = vec![(0, 11000), (2, 11000), (4, 11000)];
    assert_eq!((reply.get_i32("n").unwrap(), write_errors(&reply)), (3, errors), "{reply}");
    assert_eq!(numbers(&views.stored("optimistic").await), [1, 2, 3, 4, 5]);
    // A number of the document's own that is taken is the document's own error.
    let mut command = batch(&[6, 7, 8], false);
    let documents = command.get_array_mut("documents").unwrap();
    documents[1].as_document_mut().unwrap().insert("no", 3);
    let reply = views.run(command).await.unwrap();
    assert_eq!((reply.get_i32("n").unwrap(), write_errors(&reply)), (2, vec![(1, 11000)]), "{reply}");
    assert_eq!(numbers(&views.stored("optimistic").await), [1, 2, 3, 4, 5, 6, 7]);
}

#[tokio::test]
async fn optimistic_numbers_inside_a_transaction() {
    let views = optimistic().await;
    views.collection("optimistic").insert_one(doc! { "_id": 1 }).await.unwrap();
    let optimistic: Collection<Document> = views.collection("optimistic");
    let mut session = views.through.client().start_session().await.unwrap();
    for ends_well in [false, true] {
        session.start_transaction().await.unwrap();
        optimistic.insert_one(doc! { "_id": 2 }).session(&mut session).await.unwrap();
        optimistic.insert_many([doc! { "_id": 3 }, doc! { "_id": 4 }]).session(&mut session).await.unwrap();
        match ends_well {
            true => session.commit_transaction().await.unwrap(),
            false => session.abort_transaction().await.unwrap(),
        }
    }
    assert_eq!(numbers(&views.stored("optimistic").await), [1, 2, 3, 4]);
    // A failing document ends the transaction, as it does without docward.
    session.start_transaction().await.unwrap();
    let error = optimistic.insert_many([doc! { "_id": 5 }, doc! { "_id": 1 }]).session(&mut session).await.unwrap_err();
    assert_eq!(code(&error), 11000);
    assert_eq!(code(&session.commit_transaction().await.unwrap_err()), 251);
    assert_eq!(views.stored("optimistic").await.len(), 4);
}

/// Counter numbers inside transactions: a number of an aborted one is a gap, never issued again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_take_numbers_of_their_own() {
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
