//! The steps of docs/replica-sets.md, "Adding and removing a member", with drivers under load: no operation fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bson::{Document, doc};
use mongodb::options::{ReadPreference, SelectionCriteria};
use support::process::{SOON, TIMEOUT, free_port, poll};
use support::proxy::Docward;
use support::raw::Client;
use support::replica_set::ReplicaSet;

/// Inserts, reads at any member, updates many documents and commits transactions, until `ended`.
async fn work(client: mongodb::Client, number: i32, ended: Arc<AtomicBool>, done: Arc<AtomicU32>) {
    let database = client.database("shop");
    let orders = database.collection::<Document>("orders");
    let nearest = SelectionCriteria::ReadPreference(ReadPreference::Nearest { options: None });
    let mut count = 0;
    while !ended.load(Ordering::Relaxed) {
        count += 1;
        let id = format!("{number}-{count}");
        orders.insert_one(doc! { "_id": &id, "by": number }).await.unwrap();
        orders.find_one(doc! { "_id": &id }).selection_criteria(nearest.clone()).await.unwrap();
        // Drivers do not repeat it.
        orders.update_many(doc! { "by": number }, doc! { "$inc": { "n": 1 } }).await.unwrap();
        let mut session = client.start_session().await.unwrap();
        session.start_transaction().await.unwrap();
        let update = orders.update_one(doc! { "_id": &id }, doc! { "$set": { "paid": true } });
        update.session(&mut session).await.unwrap();
        session.commit_transaction().await.unwrap();
        done.fetch_add(1, Ordering::Relaxed);
        orders.delete_one(doc! { "_id": &id }).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_is_added_and_another_removed_without_a_failed_operation() {
    let mut set = tokio::task::block_in_place(|| ReplicaSet::start(3));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("docward.yaml");
    let mut listeners: Vec<(String, u16)> =
        set.members().iter().map(|member| (member.address(), free_port())).collect();
    let write = |listeners: &[(String, u16)]| {
        let line = |(member, port): &(String, u16)| format!("  '{member}': {{ listen: '127.0.0.1:{port}' }}\n");
        std::fs::write(&file, format!("members:\n{}", listeners.iter().map(line).collect::<String>())).unwrap();
    };
    write(&listeners);
    let docward = Docward::before(&set.uri()).without_listen().listeners(3).argument("--config");
    let docward = docward.argument(file.to_str().unwrap()).start();
    let hosts: Vec<String> = listeners.iter().map(|(_, port)| format!("127.0.0.1:{port}")).collect();
    let uri = format!("mongodb://{}/?replicaSet=rs0", hosts.join(","));
    let (ended, done) = (Arc::new(AtomicBool::new(false)), Arc::<AtomicU32>::default());
    let mut workers = Vec::new();
    for number in 0..4 {
        let client = mongodb::Client::with_uri_str(&uri).await.unwrap();
        workers.push(tokio::spawn(work(client, number, ended.clone(), done.clone())));
    }
    let progress = async || {
        let before = done.load(Ordering::Relaxed);
        for _ in 0..1200 {
            if done.load(Ordering::Relaxed) > before + 20 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the load has stopped: {:#?}", docward.log());
    };
    progress().await;

    // Adding: the listener's address first, then rs.add().
    let next = tokio::task::block_in_place(|| set.start_next());
    listeners.push((set.member(next).address(), free_port()));
    write(&listeners);
    docward.wait_for_log("members loaded");
    progress().await;
    tokio::task::block_in_place(|| set.add_started(next));
    docward.wait_for_log(&format!("member {} joined", listeners[3].0));
    progress().await;
    let sees = |port: u16, count: usize| {
        let hello =
            Client::try_connect(&format!("127.0.0.1:{port}")).ok()?.try_command("admin", doc! { "hello": 1 }, SOON);
        (hello?.get_array("hosts").ok()?.len() == count).then_some(())
    };
    tokio::task::block_in_place(|| poll(TIMEOUT, || sees(listeners[3].1, 4))).expect("the new member has no clients");

    // Removing: rs.remove() of a secondary, then its listener's address.
    let gone = tokio::task::block_in_place(|| {
        let gone = set.secondaries().into_iter().find(|index| *index != next).unwrap();
        set.remove(gone);
        gone
    });
    docward.wait_for_log(&format!("member {} left the replica set; closing its listener", listeners[gone].0));
    progress().await;
    listeners.remove(gone);
    write(&listeners);
    let loaded = || (docward.log().iter().filter(|line| line.contains("members loaded")).count() == 2).then_some(());
    tokio::task::block_in_place(|| poll(TIMEOUT, loaded)).expect("the members are not loaded");
    progress().await;

    ended.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.await.expect("an operation failed");
    }
}
