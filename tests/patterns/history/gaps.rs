//! Changes that cannot be recorded, and collections that somebody drops: what is not known has a marker, and the worker
//! continues.

use std::time::{Duration, Instant};

use bson::{Document, doc};
use mongodb::Database;
use support::mongod::{Kind, Mongod};
use support::process::poll;
use support::proxy::Docward;

use super::{WITHIN, entries, expect_entries, markers, orders, rule, short, start};

/// Waits until there is a marker of this operation.
async fn expect_marker(database: &Database, operation: &str) -> Document {
    expect(database, |marker| marker.get_str("operation").unwrap() == operation).await
}

async fn expect(database: &Database, is_it: impl Fn(&Document) -> bool) -> Document {
    let deadline = Instant::now() + WITHIN;
    loop {
        let found = markers(database).await;
        if let Some(marker) = found.iter().rev().find(|marker| is_it(marker)) {
            return marker.clone();
        }
        assert!(Instant::now() < deadline, "{found:?} {:?}", entries(database).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn what_is_not_known_is_marked() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    let mut docward = start(mongod, direct.name(), "100");
    let set = async |n: i32| {
        let set = doc! {"$set": {"n": n}};
        orders(&direct).update_one(doc! {"_id": 1}, set).upsert(true).await.unwrap();
    };
    set(0).await;
    set(1).await;
    expect_entries(&direct, 2).await;
    // Somebody switches pre-images off; docward switches them on again before the next change.
    let off = doc! {"collMod": "orders", "changeStreamPreAndPostImages": {"enabled": false}};
    direct.run_command(off.clone()).await.unwrap();
    // The first time was at the start.
    let switched_on = format!("switched on pre-images of {}.orders", direct.name());
    let times = || docward.log().iter().filter(|line| line.contains(&switched_on)).count();
    poll(WITHIN, || (times() == 2).then_some(())).expect("pre-images are not switched on again");
    set(2).await;
    let found = expect_entries(&direct, 3).await;
    assert_eq!(found[2].get_document("document").unwrap(), &doc! {"_id": 1, "n": 1});
    docward.signal("STOP");
    direct.run_command(off).await.unwrap();
    set(21).await;
    docward.signal("CONT");
    docward.wait_for_log("previous states are unknown");
    poll(WITHIN, || (times() == 3).then_some(())).expect("pre-images are not switched on again");
    set(3).await;
    let found = expect_entries(&direct, 5).await;
    assert!(found[3].get_str("unknown").unwrap().contains("no pre-image") && !found[3].contains_key("document"));
    assert_eq!(found[4].get_document("document").unwrap(), &doc! {"_id": 1, "n": 21});

    // A drop leaves no states of the documents. The revisions continue.
    orders(&direct).drop().await.unwrap();
    let marker = expect_marker(&direct, "drop").await;
    assert!(marker.get_str("reason").unwrap().contains("a drop of"), "{marker}");
    docward.wait_for_log("the history has a gap");
    set(4).await;
    expect_entries(&direct, 6).await;
    poll(WITHIN, || (times() == 4).then_some(())).expect("pre-images are not switched on after a drop");
    set(5).await;
    set(6).await;
    let found = expect_entries(&direct, 8).await;
    assert_eq!(short(&found)[7], (8, "update", Some(&doc! {"_id": 1, "n": 5})));

    // The oplog no longer has the changes since the last position.
    assert!(docward.terminate().success());
    set(7).await;
    let leases = mongod.client().await.database("docward").collection::<Document>("leases");
    let ours = doc! {"_id": {"$regex": direct.name()}};
    let lease = leases.find_one(ours.clone()).await.unwrap().unwrap();
    let token = lease.get_document("tokens").unwrap().get_document("0").unwrap().get_str("_data").unwrap();
    let lost = format!("{}0000000100000001{}", &token[..2], &token[18..]);
    leases.update_one(ours, doc! {"$set": {"tokens.0._data": lost}}).await.unwrap();
    let docward = Docward::start(mongod, &rule(direct.name(), "enforce", "100"));
    docward.wait_for_log("the history has a gap");
    let deadline = Instant::now() + WITHIN;
    while markers(&direct).await.len() < 3 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let found = markers(&direct).await;
    let gap = found.last().unwrap();
    assert!(gap.contains_key("since") && gap.get_str("reason").unwrap().contains("no longer available"), "{found:?}");
    set(8).await;
    let found = expect_entries(&direct, 9).await;
    assert_eq!(short(&found)[8], (9, "update", Some(&doc! {"_id": 1, "n": 7})));
}

fn has_reason(part: &str) -> impl Fn(&Document) -> bool {
    move |marker| marker.get_str("reason").unwrap().contains(part)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_that_begins_under_load_has_its_marker() {
    const ROUNDS: usize = 5;
    let mongod = Mongod::shared();
    for _ in 0..ROUNDS {
        let direct = mongod.client().await.database(&mongod.fresh_database());
        let writers: Vec<_> = (0..6)
            .map(|id| {
                let orders = orders(&direct);
                tokio::spawn(async move {
                    loop {
                        let grow = doc! {"$inc": {"n": 1}};
                        orders.update_one(doc! {"_id": id}, grow).upsert(true).await.unwrap();
                    }
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(200)).await;
        let _docward = start(mongod, direct.name(), "100");
        let deadline = Instant::now() + WITHIN;
        while entries(&direct).await.is_empty() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let found = markers(&direct).await;
        writers.iter().for_each(tokio::task::JoinHandle::abort);
        assert_eq!(found.len(), 1, "{found:?}");
        let unknown: Vec<_> =
            entries(&direct).await.into_iter().filter(|entry| entry.contains_key("unknown")).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}

#[tokio::test]
async fn a_dropped_history_begins_again() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    let mut docward = start(mongod, direct.name(), "90d");
    let set = async |id: i32, n: i32| {
        let set = doc! {"$set": {"n": n}};
        orders(&direct).update_one(doc! {"_id": id}, set).upsert(true).await.unwrap();
    };
    let history = direct.collection::<Document>("orders_history");
    set(1, 0).await;
    set(1, 1).await;
    expect_entries(&direct, 2).await;
    history.drop().await.unwrap();
    set(1, 2).await;
    expect(&direct, has_reason("was dropped or emptied")).await;
    let found = expect_entries(&direct, 1).await;
    assert_eq!(short(&found), [(1, "update", Some(&doc! {"_id": 1, "n": 1}))]);
    docward.wait_for_log("was dropped or emptied");
    let indexed = async || {
        let indexes = direct.run_command(doc! {"listIndexes": "orders_history"}).await.unwrap();
        indexes.to_string().contains("docward_keep")
    };
    let deadline = Instant::now() + WITHIN;
    while !indexed().await {
        assert!(Instant::now() < deadline, "the index for the end of entries is missing");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    // The same while no worker runs.
    assert!(docward.terminate().success());
    history.drop().await.unwrap();
    let _docward = Docward::start(mongod, &rule(direct.name(), "enforce", "90d"));
    expect(&direct, has_reason("was dropped or emptied")).await;
    // The change before may be recorded again, if its position was not stored yet.
    set(1, 3).await;
    let last = doc! {"_id": 1, "n": 2};
    let deadline = Instant::now() + WITHIN;
    while entries(&direct).await.last().is_none_or(|entry| entry.get_document("document").ok() != Some(&last)) {
        assert!(Instant::now() < deadline, "{:?}", entries(&direct).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_rule_with_another_name_continues_the_history() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    let mut docward = start(mongod, direct.name(), "100");
    orders(&direct).insert_one(doc! {"_id": 1}).await.unwrap();
    expect_entries(&direct, 1).await;
    assert!(docward.terminate().success());
    orders(&direct).delete_one(doc! {"_id": 1}).await.unwrap();
    let renamed = rule(direct.name(), "enforce", "100").replace("order-history", "what-orders-were");
    let _docward = Docward::start(mongod, &renamed);
    let found = expect_entries(&direct, 2).await;
    assert_eq!(short(&found)[1], (2, "delete", Some(&doc! {"_id": 1})));
    assert_eq!(markers(&direct).await.len(), 1);
}

#[tokio::test]
async fn only_an_invalid_position_is_given_up() {
    let mongod = Mongod::start_with(Kind::ReplicaSet, &["--setParameter", "enableTestCommands=1"]);
    let direct = mongod.client().await.database("d");
    let mut docward = start(&mongod, "d", "100");
    orders(&direct).insert_one(doc! {"_id": 1}).await.unwrap();
    expect_entries(&direct, 1).await;
    assert!(docward.terminate().success());
    orders(&direct).update_one(doc! {"_id": 1}, doc! {"$set": {"n": 1}}).await.unwrap();
    // Interrupted: somebody kills the operation that opens the stream.
    let fail = doc! {
        "configureFailPoint": "failCommand", "mode": {"times": 2},
        "data": {"failCommands": ["aggregate"], "errorCode": 11601, "appName": docward::command::own::APP},
    };
    mongod.command("admin", fail);
    let mut docward = Docward::start(&mongod, &rule("d", "enforce", "100"));
    expect_entries(&direct, 2).await;
    assert_eq!(markers(&direct).await.len(), 1);
    assert!(docward.terminate().success());

    let leases = mongod.client().await.database("docward").collection::<Document>("leases");
    let token = doc! {"_data": format!("82{}00000001FF", "7FFFFFFF")};
    leases.update_one(doc! {}, doc! {"$set": {"tokens.0": token}}).await.unwrap();
    let docward = Docward::start(&mongod, &rule("d", "enforce", "100"));
    docward.wait_for_log("the history has a gap");
    expect(&direct, has_reason("no longer available")).await;
    orders(&direct).update_one(doc! {"_id": 1}, doc! {"$set": {"n": 2}}).await.unwrap();
    let found = expect_entries(&direct, 3).await;
    assert_eq!(short(&found)[2], (3, "update", Some(&doc! {"_id": 1, "n": 1})));
}
