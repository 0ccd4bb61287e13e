//! The pattern `history` in front of a real replica set: every previous state is kept once and in order, also if
//! workers die, and is lost without the rule; `docward history` shows old states.

mod gaps;
mod into;
mod reading;
mod takeover;
mod unusual;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bson::{Bson, DateTime, Document, doc};
use mongodb::{ClientSession, Collection, Database};
use support::driver::{all, code, message};
use support::mongod::{Kind, Mongod};
use support::process::{TIMEOUT, poll};
use support::proxy::Docward;

/// Time for a killed worker's lease to expire, its successor to start, and a machine under load.
const WITHIN: Duration = TIMEOUT;
/// The log line of the elected worker.
const WORKS: &str = "worker started: keeps the history";

fn rule(database: &str, mode: &str, keep: &str) -> String {
    format!(
        "version: 1
rules:
  - name: order-history
    namespace: {database}.orders
    mode: {mode}
    history: {{ into: orders_history, keep: {keep} }}
"
    )
}

fn works(docward: &Docward) -> bool {
    docward.log().iter().any(|line| line.contains(WORKS))
}

/// Starts docward and waits until it records changes.
fn start(mongod: &Mongod, database: &str, keep: &str) -> Docward {
    let docward = Docward::start(mongod, &rule(database, "enforce", keep));
    docward.wait_for_log(WORKS);
    wait_for_beginning(mongod, database);
    docward
}

fn wait_for_beginning(mongod: &Mongod, database: &str) {
    let deadline = Instant::now() + WITHIN;
    // As docs/patterns/history.md names it.
    let id = format!("history {database}.orders -> {database}.orders_history");
    let count = || {
        let lease = doc! {"count": "leases", "query": {"_id": &id, "tokens.0": {"$exists": true}}};
        mongod.command("docward", lease).get_i32("n").unwrap()
    };
    while count() == 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(count() > 0, "{id}");
}

fn orders(database: &Database) -> Collection<Document> {
    database.collection("orders")
}

/// The entries, without markers.
async fn entries(database: &Database) -> Vec<Document> {
    let mut found = all(database, "orders_history").await;
    found.retain(|entry| entry.get_document("_id").unwrap().contains_key("of"));
    found
}

async fn markers(database: &Database) -> Vec<Document> {
    let mut found = all(database, "orders_history").await;
    found.retain(|entry| entry.get_document("_id").unwrap().contains_key("gap"));
    found
}

/// Waits until there are this many entries.
async fn expect_entries(database: &Database, count: usize) -> Vec<Document> {
    let deadline = Instant::now() + WITHIN;
    loop {
        let found = entries(database).await;
        if found.len() >= count || Instant::now() > deadline {
            assert_eq!(found.len(), count, "{found:?}");
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The revision, the operation and the state of each entry, in short.
fn short(entries: &[Document]) -> Vec<(i64, &str, Option<&Document>)> {
    let number = |value: &Bson| value.as_i64().or_else(|| value.as_i32().map(i64::from)).unwrap();
    let revision = |entry: &Document| number(entry.get_document("_id").unwrap().get("revision").unwrap());
    let entry = |entry| (revision(entry), entry.get_str("operation").unwrap(), entry.get_document("document").ok());
    entries.iter().map(entry).collect()
}

#[tokio::test]
async fn every_kind_of_change_leaves_the_previous_state() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    orders(&direct).insert_one(doc! {"_id": "old", "n": 0}).await.unwrap();
    let docward = start(mongod, direct.name(), "100");
    let through = docward.client().await.database(direct.name());
    let id = doc! {"_id": 1};
    let begun = DateTime::now();
    orders(&through).insert_one(doc! {"_id": 1, "n": 0}).await.unwrap();
    orders(&direct).update_one(id.clone(), doc! {"$inc": {"n": 1}}).await.unwrap();
    orders(&through).replace_one(id.clone(), doc! {"n": 2, "tags": ["a"]}).await.unwrap();
    orders(&direct).update_one(id.clone(), vec![doc! {"$set": {"n": 3}}]).await.unwrap();
    orders(&through).find_one_and_delete(id.clone()).await.unwrap();
    orders(&direct).insert_one(doc! {"_id": 1_i64, "n": 5}).await.unwrap();
    orders(&through).delete_many(doc! {}).await.unwrap();
    let found = expect_entries(&direct, 8).await;
    let state = |n: i32| doc! {"_id": 1, "n": n};
    let tagged = |n: i32| doc! {"_id": 1, "n": n, "tags": ["a"]};
    assert_eq!(
        short(&found),
        [
            (1, "insert", None),
            (2, "update", Some(&state(0))),
            (3, "replace", Some(&state(1))),
            (4, "update", Some(&tagged(2))),
            (5, "delete", Some(&tagged(3))),
            (6, "insert", None),
            (7, "delete", Some(&doc! {"_id": 1_i64, "n": 5})),
            (1, "delete", Some(&doc! {"_id": "old", "n": 0})),
        ]
    );
    for entry in &found {
        let at = *entry.get_datetime("at").unwrap();
        assert!(at >= begun && at <= DateTime::now() && !entry.contains_key("unknown"), "{entry}");
    }
    let begins: Vec<_> =
        markers(&direct).await.iter().map(|marker| marker.get_str("reason").unwrap().to_owned()).collect();
    assert_eq!(begins, ["the history begins"]);
}

const WRITERS: i32 = 8;
const DOCUMENTS: i32 = 25;
/// Changes of each document; 10,000 altogether.
const CHANGES: i32 = 50;

/// Changes one document once: its `n` grows by one with every change, except that a delete removes it.
async fn change(orders: &Collection<Document>, session: &mut ClientSession, id: i32, number: i32) {
    let of = doc! {"_id": id};
    match (number, number % 7) {
        (0, _) => _ = orders.insert_one(doc! {"_id": id, "n": 0}).await.unwrap(),
        // The change before was a delete.
        (_, 5) => _ = orders.insert_one(doc! {"_id": id, "n": number}).await.unwrap(),
        (_, 4) => assert_eq!(orders.delete_one(of).await.unwrap().deleted_count, 1),
        (_, 3) => {
            let replaced = orders.replace_one(of, doc! {"n": number, "text": "x".repeat(200)}).await.unwrap();
            assert_eq!(replaced.modified_count, 1);
        }
        // Two changes in one transaction.
        (_, 1) => {
            session.start_transaction().await.unwrap();
            for n in [number, number + 1] {
                orders.update_one(of.clone(), doc! {"$set": {"n": n}}).session(&mut *session).await.unwrap();
            }
            session.commit_transaction().await.unwrap();
        }
        (_, 2) => {}
        _ => assert_eq!(orders.update_one(of, doc! {"$set": {"n": number}}).await.unwrap().modified_count, 1),
    }
}

/// Kills or stops the worker again and again, and starts another process each time, until `done`. Returns how often.
async fn disturb(mongod: &Mongod, database: &str, done: &AtomicBool) -> (usize, Vec<Docward>) {
    let rules = rule(database, "enforce", "1000000");
    let mut running: Vec<Docward> = (0..3).map(|_| Docward::start(mongod, &rules)).collect();
    let mut stopped: Vec<Docward> = Vec::new();
    let mut disturbed = 0;
    while !done.load(Ordering::Relaxed) {
        let Some(worker) = running.iter().position(works) else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        tokio::time::sleep(Duration::from_millis(300)).await;
        let mut worker = running.swap_remove(worker);
        disturbed += 1;
        if disturbed % 3 == 0 {
            // It goes on later, in the middle of its work, when another one has the lease.
            worker.signal("STOP");
            stopped.push(worker);
        } else {
            worker.kill();
        }
        running.push(Docward::start(mongod, &rules));
        if stopped.len() > 1 {
            let woken = stopped.remove(0);
            woken.signal("CONT");
            running.push(woken);
            // Its log shows that it worked before; only new lines count.
            let woken = running.pop().unwrap();
            tokio::time::sleep(Duration::from_millis(500)).await;
            drop(woken);
        }
    }
    for docward in stopped {
        docward.signal("CONT");
        running.push(docward);
    }
    (disturbed, running)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_previous_state_is_kept_once_and_in_order_while_workers_die() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    let name = direct.name().to_owned();
    let first = start(mongod, &name, "1000000");
    drop(first);
    // It forwards writes and never works on the history.
    let front = Docward::start(mongod, &rule(&name, "shadow", "1000000"));
    let done = Arc::new(AtomicBool::new(false));
    let disturbing = tokio::spawn({
        let (name, done) = (name.clone(), done.clone());
        async move { disturb(mongod, &name, &done).await }
    });
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let uri = if writer % 2 == 0 { front.uri() } else { mongod.uri() };
            let name = name.clone();
            tokio::spawn(async move {
                let client = mongodb::Client::with_uri_str(uri).await.unwrap();
                let orders = orders(&client.database(&name));
                let mut session = client.start_session().await.unwrap();
                let mut random = u64::from(writer.unsigned_abs()) + 1;
                for number in 0..CHANGES {
                    for document in 0..DOCUMENTS {
                        change(&orders, &mut session, writer * 1000 + document, number).await;
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        tokio::time::sleep(Duration::from_millis(random >> 59)).await;
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    done.store(true, Ordering::Relaxed);
    let (disturbed, _running) = disturbing.await.unwrap();
    let count = usize::try_from(WRITERS * DOCUMENTS * CHANGES).unwrap();
    check_complete(&expect_entries(&direct, count).await, &all(&direct, "orders").await);
    // Nothing is stored twice later.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(entries(&direct).await.len(), count);
    assert_eq!(markers(&direct).await.len(), 1, "no gap");
    println!("{disturbed} workers died or were stopped");
    assert!(disturbed >= 3, "{disturbed}");
}

/// Every change of [`change`] has one entry, in order, with the state that the change before it left.
fn check_complete(entries: &[Document], current: &[Document]) {
    let mut by_document: BTreeMap<i32, Vec<Document>> = BTreeMap::new();
    for entry in entries {
        let of = entry.get_document("_id").unwrap().get_i32("of").unwrap();
        by_document.entry(of).or_default().push(entry.clone());
    }
    assert_eq!(by_document.len(), usize::try_from(WRITERS * DOCUMENTS).unwrap());
    for (of, entries) in &by_document {
        for (number, (revision, operation, state)) in short(entries).into_iter().enumerate() {
            let number = i32::try_from(number).unwrap();
            assert_eq!(revision, i64::from(number) + 1, "{of}: {entries:?}");
            let expected = match (number, number % 7) {
                (0, _) | (_, 5) => "insert",
                (_, 4) => "delete",
                (_, 3) => "replace",
                _ => "update",
            };
            assert_eq!(operation, expected, "{of}: revision {revision}");
            let n = state.map(|state| state.get_i32("n").unwrap());
            assert_eq!(n, (expected != "insert").then(|| number - 1), "{of}: revision {revision}");
        }
        let last = current.iter().find(|document| document.get_i32("_id").unwrap() == *of).unwrap();
        assert_eq!(last.get_i32("n").unwrap(), CHANGES - 1);
    }
}

#[tokio::test]
async fn without_the_rule_previous_states_are_lost() {
    let mongod = Mongod::shared();
    for mode in ["disabled", "shadow"] {
        let direct = mongod.client().await.database(&mongod.fresh_database());
        let docward = Docward::start(mongod, &rule(direct.name(), mode, "5"));
        let through = docward.client().await.database(direct.name());
        orders(&through).insert_one(doc! {"_id": 1, "total": 12}).await.unwrap();
        orders(&through).update_one(doc! {"_id": 1}, doc! {"$set": {"total": 10}}).await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(all(&direct, "orders_history").await, [], "{mode}");
    }
}

#[tokio::test]
async fn only_docward_writes_states() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    let docward = start(mongod, direct.name(), "5");
    let through = docward.client().await.database(direct.name());
    orders(&through).insert_one(doc! {"_id": 1, "n": 0}).await.unwrap();
    expect_entries(&direct, 1).await;
    let before = all(&direct, "orders_history").await;
    let states = through.collection::<Document>("orders_history");
    let forged = doc! {"_id": {"of": 1, "revision": 2}};
    for error in [
        states.insert_one(&forged).await.unwrap_err(),
        states.delete_many(doc! {}).await.unwrap_err(),
        states.update_many(doc! {}, doc! {"$set": {"document": {}}}).await.unwrap_err(),
        states.update_many(doc! {}, vec![doc! {"$set": {"document": {}}}]).await.unwrap_err(),
        states.find_one_and_replace(doc! {}, doc! {}).await.unwrap_err(),
    ] {
        assert_eq!(code(&error), 121);
        assert!(message(&error).contains("holds previous states of documents"), "{error}");
    }
    for stage in [doc! {"$merge": "orders_history"}, doc! {"$out": "orders_history"}] {
        let error = orders(&through).aggregate([doc! {"$match": {}}, stage]).await.unwrap_err();
        assert_eq!(code(&error), 121);
    }
    assert_eq!(all(&direct, "orders_history").await, before);
    assert_eq!(states.find_one(doc! {"_id.of": 1}).await.unwrap().as_ref(), before.first());
}

/// The number of entries and the last revisions, after they have settled.
async fn kept(database: &Database, last: i64) -> Vec<i64> {
    let deadline = Instant::now() + WITHIN;
    loop {
        let found = entries(database).await;
        let revisions: Vec<i64> = short(&found).into_iter().map(|(revision, ..)| revision).collect();
        if revisions.last() == Some(&last) || Instant::now() > deadline {
            // Old entries are removed after new ones are stored.
            tokio::time::sleep(Duration::from_millis(500)).await;
            let found = entries(database).await;
            return short(&found).into_iter().map(|(revision, ..)| revision).collect();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The keys and the seconds of the index that removes old entries.
async fn expiry(database: &Database) -> Option<(Document, Bson)> {
    let indexes = database.run_command(doc! {"listIndexes": "orders_history"}).await.unwrap();
    let indexes = indexes.get_document("cursor").unwrap().get_array("firstBatch").unwrap().clone();
    let mut found = indexes.iter().filter_map(Bson::as_document);
    let index = found.find(|index| index.get_str("name").unwrap() == "docward_keep")?;
    Some((index.get_document("key").unwrap().clone(), index.get("expireAfterSeconds").unwrap().clone()))
}

#[tokio::test]
async fn old_states_are_removed() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    let docward = start(mongod, direct.name(), "3");
    let change = async |times: i32| {
        for _ in 0..times {
            let grow = doc! {"$inc": {"n": 1}};
            orders(&direct).update_one(doc! {"_id": 1}, grow).upsert(true).await.unwrap();
        }
    };
    change(10).await;
    assert_eq!(kept(&direct, 10).await, [8, 9, 10]);
    // Another number applies without a restart, and the revisions continue.
    docward.rewrite_rules(&rule(direct.name(), "enforce", "5"));
    docward.signal("HUP");
    let deadline = Instant::now() + WITHIN;
    while docward.log().iter().filter(|line| line.contains(WORKS)).count() < 2 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    change(10).await;
    assert_eq!(kept(&direct, 20).await, [16, 17, 18, 19, 20]);
    // A duration: the server removes entries by an index.
    for (keep, seconds) in [("90d", Some(90 * 86_400)), ("1h", Some(3600)), ("4", None)] {
        docward.rewrite_rules(&rule(direct.name(), "enforce", keep));
        docward.signal("HUP");
        let expected = seconds.map(|seconds| (doc! {"at": 1}, Bson::Int32(seconds)));
        let deadline = Instant::now() + WITHIN;
        while expiry(&direct).await != expected && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(expiry(&direct).await, expected, "{keep}");
    }
    change(1).await;
    assert_eq!(kept(&direct, 21).await, [18, 19, 20, 21]);
}

#[tokio::test]
async fn the_largest_documents_are_recorded_or_marked() {
    const LARGEST: usize = 16 << 20;
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    let docward = start(mongod, direct.name(), "100");
    // The rest of the document has 25 bytes.
    let large = |n: i32, bytes: usize| doc! {"_id": 1, "n": n, "t": "x".repeat(bytes - 30)};
    orders(&direct).insert_one(large(0, LARGEST - 1000)).await.unwrap();
    orders(&direct).replace_one(doc! {"_id": 1}, large(1, LARGEST)).await.unwrap();
    orders(&direct).replace_one(doc! {"_id": 1}, large(2, LARGEST)).await.unwrap();
    orders(&direct).update_one(doc! {"_id": 1}, doc! {"$set": {"t": ""}}).await.unwrap();
    orders(&direct).delete_one(doc! {"_id": 1}).await.unwrap();
    let found = expect_entries(&direct, 5).await;
    let n = |entry: &Document| entry.get_document("document").ok().map(|state| state.get_i32("n").unwrap());
    assert_eq!(found.iter().map(n).collect::<Vec<_>>(), [None, Some(0), None, None, Some(2)]);
    for entry in &found[2..4] {
        assert!(entry.get_str("unknown").unwrap().contains("no room"), "{}", entry.get_str("unknown").unwrap());
    }
    docward.wait_for_log("the document has no room in an entry");
}

#[tokio::test]
async fn a_standalone_is_a_clear_error() {
    let mongod = Mongod::start(Kind::Standalone);
    let docward = Docward::start(&mongod, &rule("d", "enforce", "5"));
    let line = docward.wait_for_log("and the upstream is a standalone server");
    assert!(line.contains("the history is not kept"), "{line}");
}

#[tokio::test]
async fn errors_are_short_and_logged_once() {
    let mut mongod = Mongod::start(Kind::ReplicaSet);
    let direct = mongod.client().await.database("d");
    let docward = start(&mongod, "d", "5");
    // The server rejects every entry.
    let validator = doc! {"collMod": "orders_history", "validator": {"never": true}};
    direct.run_command(validator).await.unwrap();
    orders(&direct).insert_one(doc! {"_id": 1}).await.unwrap();
    docward.wait_for_log("orders_history cannot be written");
    tokio::time::sleep(Duration::from_secs(4)).await;
    let count = |text: &str| docward.log().iter().filter(|line| line.contains(text)).count();
    assert_eq!((count("cannot be written"), count(WORKS)), (1, 1), "{:?}", docward.log());
    direct.run_command(doc! {"collMod": "orders_history", "validator": {}}).await.unwrap();
    docward.wait_for_log("worker continues after an error");
    expect_entries(&direct, 1).await;
    mongod.kill();
    let line = docward.wait_for_log("connection refused");
    assert!(line.contains("the history is not kept for now: 127.0.0.1") && line.len() < 250, "{line}");
}

#[tokio::test]
async fn a_drain_does_not_wait_longer_for_workers_than_for_clients() {
    let mongod = Mongod::start(Kind::ReplicaSet);
    let rules = rule("d", "enforce", "5");
    let mut docward =
        Docward::before(&mongod.uri()).rules(&rules).argument("--drain-timeout").argument("500ms").start();
    docward.wait_for_log(WORKS);
    mongod.signal("STOP");
    let asked = Instant::now();
    docward.terminate();
    let took = asked.elapsed();
    mongod.signal("CONT");
    assert!(took < Duration::from_millis(1500), "{took:?}");
}
