//! Tests the fixtures against mongod without docward, because the other integration tests depend on them.

use std::time::Duration;

use bson::{Document, doc};
use support::frame::{CHECKSUM_PRESENT, Frame, MORE_TO_COME, Message};
use support::mongod::{Kind, Mongod};
use support::process::poll;
use support::scripted::{HANG_UP, Peer, reply_to};
use support::{process, raw};

#[tokio::test]
async fn the_driver_reaches_the_shared_replica_set() {
    let mongod = Mongod::shared();
    let client = mongod.client().await;
    let orders = client.database(&mongod.fresh_database()).collection::<Document>("orders");
    let mut session = client.start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    orders.insert_one(doc! { "_id": 1 }).session(&mut session).await.unwrap();
    session.commit_transaction().await.unwrap();
    assert_eq!(orders.count_documents(doc! {}).await.unwrap(), 1);
}

#[test]
fn the_raw_client_sends_sections_in_any_order() {
    let mongod = Mongod::shared();
    let database = mongod.fresh_database();
    let mut client = raw::Client::connect(&mongod.address());
    let insert = || Message::new(doc! { "insert": "orders", "$db": &database });
    for (message, n) in [
        (insert().sequence("documents", vec![doc! { "_id": 1 }]), 1),
        (insert().sequence_first("documents", vec![doc! { "_id": 2 }, doc! { "_id": 3 }]), 2),
        (insert().sequence("documents", vec![doc! { "_id": 4 }]).flags(CHECKSUM_PRESENT), 1),
    ] {
        let reply = client.exchange(&message);
        assert_eq!(reply.body().get_i32("n").unwrap(), n, "{reply:?}");
    }
    let unacknowledged = doc! { "insert": "orders", "$db": &database, "writeConcern": { "w": 0 } };
    client.send(&Message::new(unacknowledged).sequence("documents", vec![doc! { "_id": 5 }]).flags(MORE_TO_COME));
    assert!(!client.closes_within(Duration::from_millis(200)));
    let found = client.command(&database, doc! { "count": "orders" });
    assert_eq!(found.get_i32("n").unwrap(), 5);
}

#[test]
fn the_raw_client_handshakes_by_op_query() {
    let mut client = raw::Client::connect(&Mongod::shared().address());
    client.send_bytes(&Frame::query(7, "admin.$cmd", &doc! { "isMaster": 1 }).to_bytes());
    let reply = client.receive();
    assert_eq!(reply.response_to, 7);
    assert!(reply.reply_document().get_bool("ismaster").unwrap());
}

#[test]
fn a_standalone_stops_restarts_and_is_killed() {
    let mut mongod = Mongod::start(Kind::Standalone);
    mongod.command("shop", doc! { "insert": "orders", "documents": [{ "_id": 1 }] });
    mongod.stop();
    assert!(raw::Client::try_connect(&mongod.address()).is_err());
    mongod.restart();
    let found = mongod.command("shop", doc! { "count": "orders" });
    assert_eq!(found.get_i32("n").unwrap(), 1);
    mongod.kill();
    assert!(raw::Client::try_connect(&mongod.address()).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_accepts_the_scripted_peer() {
    let peer = Peer::start(|request| match Message::parse(&request).body().contains_key("ping") {
        true => vec![reply_to(&request, doc! { "ok": 1.0, "scripted": true })],
        false => vec![HANG_UP],
    });
    let client = mongodb::Client::with_uri_str(peer.uri()).await.unwrap();
    let reply = client.database("admin").run_command(doc! { "ping": 1 }).await.unwrap();
    assert!(reply.get_bool("scripted").unwrap());
    assert!(client.database("admin").run_command(doc! { "buildInfo": 1 }).await.is_err());
    let names: Vec<String> = peer.requests().iter().map(first_key).collect();
    assert_eq!(names.first().map(String::as_str), Some("ping"));
}

/// A killed process cannot clean up, so its watchdog must.
#[test]
fn a_child_and_its_folder_do_not_outlive_the_test_process() {
    let folder = tempfile::tempdir().unwrap();
    let doomed = folder.path().join("doomed");
    std::fs::create_dir(&doomed).unwrap();
    // The watchdog's stdin ends at once, as if this process had died.
    let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let status = std::process::Command::new(process::repository("scripts/watchdog.sh"))
        .arg(child.id().to_string())
        .arg(&doomed)
        .stdin(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    assert!(poll(process::TIMEOUT, || child.try_wait().unwrap()).is_some());
    assert!(!doomed.exists());
}

fn first_key(frame: &Frame) -> String {
    Message::parse(frame).body().keys().next().unwrap().clone()
}
