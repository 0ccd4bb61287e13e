//! Members are elected, added and removed while drivers are at work.

use super::*;
use mongodb::options::{ReadPreference, SelectionCriteria};
use support::frame::{EXHAUST_ALLOWED, Message};
use support::http;

/// Every read preference reaches the same member as without docward, and drivers follow elections.
#[tokio::test(flavor = "multi_thread")]
async fn drivers_select_servers_and_follow_elections() {
    let set = ReplicaSet::start(3);
    let docward = Docward::before(&set.uri()).listeners(3).start();
    let client = mongodb::Client::with_uri_str(through(&docward, "appName=selects")).await.unwrap();
    let things = client.database("x").collection::<Document>("things");
    things.insert_one(doc! { "_id": 0 }).await.unwrap();
    let mut count = 1;
    for _ in 0..2 {
        let primary = tokio::task::block_in_place(|| set.await_primary());
        for (preference, is_primary) in [
            (ReadPreference::Primary, Some(true)),
            (ReadPreference::PrimaryPreferred { options: None }, Some(true)),
            (ReadPreference::Secondary { options: None }, Some(false)),
            (ReadPreference::SecondaryPreferred { options: None }, Some(false)),
            (ReadPreference::Nearest { options: None }, None),
        ] {
            let criteria = SelectionCriteria::ReadPreference(preference.clone());
            let reply = client
                .database("admin")
                .run_command(doc! { "serverStatus": 1, "repl": 1 })
                .selection_criteria(criteria)
                .await
                .unwrap();
            let port: u16 = reply.get_str("host").unwrap().rsplit_once(':').unwrap().1.parse().unwrap();
            let at_primary = set.member(primary).address().ends_with(&format!(":{port}"));
            assert!(is_primary.is_none_or(|expected| expected == at_primary), "{preference:?}: {port}");
        }
        tokio::task::block_in_place(|| set.step_down());
        things.insert_one(doc! { "_id": count }).await.unwrap();
        count += 1;
    }
    let seen = client.database("x").collection::<Document>("things").count_documents(doc! {}).await.unwrap();
    assert_eq!(seen, u64::try_from(count).unwrap());
    tokio::task::block_in_place(|| assert_stayed_with(&set, &docward, "selects"));
}

#[tokio::test(flavor = "multi_thread")]
async fn added_members_get_a_listener_and_removed_ones_lose_it() {
    let mut set = tokio::task::block_in_place(|| ReplicaSet::start(3));
    let docward = Docward::before(&set.uri()).listeners(3).start();
    let client = mongodb::Client::with_uri_str(through(&docward, "appName=follows")).await.unwrap();
    let things = client.database("x").collection::<Document>("things");
    things.insert_one(doc! { "_id": 0 }).await.unwrap();

    // A streamed hello reports the new member to the driver.
    let mut monitor = Client::connect(&docward.address());
    let hello = monitor.command("admin", doc! { "hello": 1 });
    let version = hello.get_document("topologyVersion").unwrap().clone();
    let body = doc! { "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 500, "$db": "admin" };
    monitor.send(&Message::new(body).flags(EXHAUST_ALLOWED));

    let added = tokio::task::block_in_place(|| set.add());
    let hosts = tokio::task::block_in_place(|| await_hosts(&docward, 4));
    assert_eq!(hosts[..3], *docward.addresses());
    let at_new = Client::connect(&hosts[3]).command("admin", doc! { "hello": 1 });
    assert_eq!(names(&at_new)["me"], [hosts[3].clone()]);
    assert_hides(&at_new, &set);
    let named = poll(SOON, || {
        let hello = Message::parse(&monitor.receive()).body().clone();
        assert_hides(&hello, &set);
        (names(&hello)["hosts"] == hosts).then_some(())
    });
    assert!(named.is_some(), "the stream does not name the new member");

    let removed = set.secondaries().into_iter().find(|index| *index != added).unwrap();
    let position = set
        .hello(added)
        .unwrap()
        .get_array("hosts")
        .unwrap()
        .iter()
        .position(|host| host.as_str() == Some(&set.member(removed).address()));
    let gone = hosts[position.unwrap()].clone();
    tokio::task::block_in_place(|| set.remove(removed));
    let left = poll(SOON, || Client::try_connect(&gone).is_err().then_some(()));
    assert!(left.is_some(), "the removed member's listener stays open");
    let staying = hosts.iter().find(|host| **host != gone).unwrap();
    let hello = Client::connect(staying).command("admin", doc! { "hello": 1 });
    assert!(!names(&hello)["hosts"].contains(&gone));

    things.insert_one(doc! { "_id": 1 }).await.unwrap();
    tokio::task::block_in_place(|| set.step_down());
    things.insert_one(doc! { "_id": 2 }).await.unwrap();
    tokio::task::block_in_place(|| assert_stayed_with(&set, &docward, "follows"));
}

#[test]
fn the_pools_of_a_removed_member_are_closed() {
    let mut set = ReplicaSet::start(2);
    let docward = Docward::before(&set.uri()).listeners(2).argument("--pool-size").argument("4").admin().start();
    // A member that the connection string names stays known.
    let removed = set.add();
    let hosts = await_hosts(&docward, 3);
    let pools = || {
        let page = http::get(&docward.admin_address(), "/metrics").body;
        let lines = page.lines().filter(|line| line.starts_with("docward_pool_opened_total{"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let clients: Vec<_> = hosts.iter().map(|host| Client::connect(host)).collect();
    for mut client in clients {
        let find = doc! { "find": "things", "$readPreference": { "mode": "nearest" } };
        assert_eq!(client.command("x", find).get_f64("ok").unwrap(), 1.0);
    }
    assert_eq!(pools().len(), 3);
    let address = set.member(removed).address();
    set.remove(removed);
    let gone = poll(TIMEOUT, || {
        let pools = pools();
        (pools.len() == 2 && !pools.iter().any(|line| line.contains(&address))).then_some(())
    });
    assert!(gone.is_some(), "{:?}", pools());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_primary_is_replaced_and_its_old_view_is_ignored() {
    let mut set = tokio::task::block_in_place(|| ReplicaSet::start(3));
    let docward = Docward::before(&set.uri()).listeners(3).start();
    let options = "appName=waits&heartbeatFrequencyMS=1000";
    let client = mongodb::Client::with_uri_str(through(&docward, options)).await.unwrap();
    let things = client.database("x").collection::<Document>("things");
    things.insert_one(doc! { "_id": 0 }).await.unwrap();
    let stopped = set.await_primary();
    set.stop(stopped);
    let primary = tokio::task::block_in_place(|| set.await_primary());
    assert_ne!(primary, stopped);
    let added = tokio::task::block_in_place(|| set.add());
    tokio::task::block_in_place(|| await_listener_of(&docward, &set, added));
    set.go_on(stopped);
    let inserted = async {
        while things.insert_one(doc! { "_id": 1 }).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, inserted).await.unwrap();
    assert_eq!(docward.log().iter().filter(|line| line.contains("left the replica set")).count(), 0);
    tokio::task::block_in_place(|| assert_stayed_with(&set, &docward, "waits"));
}

fn await_listener_of(docward: &Docward, set: &ReplicaSet, index: usize) {
    docward.wait_for_log(&format!("member {} joined", set.member(index).address()));
}

/// Asserts that every connection to a member from a driver with this name comes from the docward process. A member
/// may still list a connection that has closed; a direct connection of the driver would stay.
fn assert_stayed_with(set: &ReplicaSet, docward: &Docward, app_name: &str) {
    let last = std::cell::RefCell::default();
    let stayed = poll(TIMEOUT, || {
        let seen = connections_of(set, app_name);
        let ours = support::process::local_ports(docward.pid());
        let all = !seen.is_empty() && seen.iter().all(|(_, port)| ours.contains(port));
        last.replace(seen);
        all.then_some(())
    });
    assert!(stayed.is_some(), "not all of these are docward's: {:?}", last.borrow());
}

/// The members with connections of an application, and those connections' ports.
fn connections_of(set: &ReplicaSet, app_name: &str) -> Vec<(usize, u16)> {
    let mut seen = Vec::new();
    for index in 0..set.members().len() {
        let everything = doc! { "$currentOp": { "allUsers": true, "idleConnections": true } };
        let pipeline = vec![everything, doc! { "$match": { "appName": app_name } }];
        let command = doc! { "aggregate": 1, "pipeline": pipeline, "cursor": { "batchSize": 1000 } };
        let reply = set.member(index).command("admin", command);
        let Ok(cursor) = reply.get_document("cursor") else { continue };
        for connection in cursor.get_array("firstBatch").unwrap() {
            let Ok(client) = connection.as_document().unwrap().get_str("client") else { continue };
            seen.push((index, client.rsplit_once(':').unwrap().1.parse().unwrap()));
        }
    }
    seen
}
