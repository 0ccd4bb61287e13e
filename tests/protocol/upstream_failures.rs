//! Upstreams that die, hang or send malformed replies, and docward's own end: clients quickly get errors that drivers
//! retry, and the same driver works again as soon as the server does.
//!
//! `hostile` tests failures of docward's clients.

use std::time::{Duration, Instant};

use bson::{Bson, Document, doc};
use support::frame::{Frame, Message, OP_MSG, header};
use support::mongod::{Kind, Mongod};
use support::process::{SOON, TIMEOUT, free_port};
use support::proxy::{Docward, ORDERS_PROTECTED};
use support::raw::Client;
use support::scripted::{Peer, reply_to};

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_upstream_reply_ends_only_its_connection() {
    let good = |request: &Frame| reply_to(request, doc! { "ok": 1.0 });
    let nonsense: [fn(&Frame) -> Vec<u8>; 7] = [
        |_| header(3, OP_MSG),
        |_| header(i32::MAX, OP_MSG),
        |_| vec![0xff; 300],
        |request| Frame { op_code: 9999, ..Message::new(doc! {}).to_frame(0, request.request_id) }.to_bytes(),
        |request| Message::new(doc! { "ok": 1.0 }).to_frame(0, request.request_id + 1).to_bytes(),
        |request| [reply_to(request, doc! { "ok": 1.0 }), reply_to(request, doc! { "ok": 1.0 })].concat(),
        |request| Message::default().to_frame(0, request.request_id).to_bytes(),
    ];
    for (index, reply) in nonsense.into_iter().enumerate() {
        let peer = Peer::start(move |request| {
            let ping = Message::parse(&request).body().contains_key("ping");
            vec![if ping { good(&request) } else { reply(&request) }]
        });
        let saves = ORDERS_PROTECTED.replace("policy: reject", "policy: check_version");
        let mut docward = Docward::before(&peer.uri()).rules(&saves).start();
        // Two statements that are sent separately: docward itself reads the reply.
        let checked = doc! { "q": {}, "u": { "a": 1, "version": 1 } };
        let evaluated = doc! { "update": "orders", "updates": [&checked, &checked], "$db": "x" };
        let mut client = Client::connect(&docward.address());
        client.send(&Message::new(evaluated));
        assert!(client.closes_within(SOON), "nonsense {index}");
        docward.wait_for_log("connection closed");
        let reply = Client::connect(&docward.address()).command("admin", doc! { "ping": 1 });
        assert_eq!(reply.get_f64("ok").unwrap(), 1.0);
        assert!(docward.exited().is_none() && !docward.log().iter().any(|line| line.contains("panicked")));
    }
}

/// As FerretDB does for a command that it cannot carry out.
#[test]
fn a_server_that_closes_a_connection_instead_of_a_reply_is_logged() {
    let mongod = Mongod::shared();
    let database = mongod.fresh_database();
    let docward = Docward::start(mongod, ORDERS_PROTECTED);
    let data = doc! { "failCommands": ["find"], "closeConnection": true, "namespace": format!("{database}.free") };
    let fail = doc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data };
    assert!(support::driver::ok(&Client::connect(&mongod.address()).command("admin", fail)));
    let mut client = Client::connect(&docward.address());
    client.send(&Message::new(doc! { "find": "free", "$db": &database }));
    assert!(client.closes_within(SOON));
    let line = docward.wait_for_log("connection closed");
    assert!(line.contains("the upstream closed the connection before it replied to a command"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_is_down_closes_connections_at_their_first_message() {
    let upstream = format!("mongodb://127.0.0.1:{}/", free_port());
    let started = Instant::now();
    let mut docward = Docward::before(&upstream).rules(ORDERS_PROTECTED).start();
    assert!(started.elapsed() < Duration::from_secs(10), "the listener opens only after {:?}", started.elapsed());
    let mut client = Client::connect(&docward.address());
    client.send(&Message::new(doc! { "hello": 1, "$db": "admin" }));
    assert!(client.closes_within(SOON));
    docward.wait_for_log("cannot be reached");
    let uri = format!("{}?serverSelectionTimeoutMS=1000", docward.uri());
    let started = Instant::now();
    let driver = mongodb::Client::with_uri_str(uri).await.unwrap();
    let error = driver.database("x").collection::<Document>("orders").insert_one(doc! {}).await.unwrap_err();
    assert!(matches!(*error.kind, mongodb::error::ErrorKind::ServerSelection { .. }), "{error:?}");
    assert!(started.elapsed() < SOON);
    assert!(docward.terminate().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_mongod_closes_client_connections_and_clients_reconnect_after_its_restart() {
    let mut mongod = Mongod::start(Kind::ReplicaSet);
    let docward = Docward::start(&mongod, ORDERS_PROTECTED);
    let driver = docward.client().await;
    let orders = driver.database("x").collection::<Document>("orders");
    orders.insert_one(doc! { "_id": 1 }).await.unwrap();

    let slow = doc! { "find": "orders", "filter": { "$where": "sleep(60000) || true" }, "$db": "x" };
    let mut in_read = Client::connect(&docward.address());
    in_read.send(&Message::new(slow));
    let checked = doc! { "q": { "version": 1, "$where": "sleep(60000) || true" }, "u": { "a": 1 } };
    mongod.command("x", doc! { "insert": "orders", "documents": [{ "_id": 2, "version": 1 }] });
    let mut in_write = Client::connect(&docward.address());
    in_write.send(&Message::new(doc! { "update": "orders", "updates": [checked], "$db": "x" }));
    let mut in_transaction = Client::connect(&docward.address());
    let id = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![9; 16] };
    let started = in_transaction.command(
        "x",
        doc! {
            "insert": "orders", "documents": [{ "_id": 3 }], "lsid": { "id": id }, "txnNumber": 1i64,
            "startTransaction": true, "autocommit": false,
        },
    );
    assert_eq!(started.get("ok"), Some(&Bson::from(1.0)), "{started}");
    std::thread::sleep(Duration::from_millis(200));
    mongod.kill();
    for client in [&mut in_read, &mut in_write, &mut in_transaction] {
        assert!(client.closes_within(SOON));
    }

    mongod.restart();
    let restarted = Instant::now();
    orders.update_one(doc! { "_id": 1 }, doc! { "$set": { "a": 1 } }).await.unwrap();
    assert_eq!(orders.count_documents(doc! {}).await.unwrap(), 2);
    assert!(restarted.elapsed() < TIMEOUT);
    assert!(!docward.log().iter().any(|line| line.contains("panicked")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_mongod_answers_after_it_continues() {
    let mongod = Mongod::start(Kind::Standalone);
    let docward = Docward::start(&mongod, ORDERS_PROTECTED);
    let mut clients: Vec<Client> = (0..2).map(|_| Client::connect(&docward.address())).collect();
    for client in &mut clients {
        client.command("x", doc! { "ping": 1 });
    }
    mongod.signal("STOP");
    clients[0].send(&Message::new(doc! { "insert": "free", "documents": [{}], "$db": "x" }));
    let checked = doc! { "q": { "version": 1 }, "u": { "a": 1 } };
    clients[1].send(&Message::new(doc! { "update": "orders", "updates": [checked], "$db": "x" }));
    let still = clients.iter_mut().all(|client| !client.closes_within(Duration::from_millis(500)));
    mongod.signal("CONT");
    assert!(still);
    for client in &mut clients {
        assert_eq!(Message::parse(&client.receive()).body().get_f64("ok").unwrap(), 1.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sigterm_ends_docward_promptly_and_lets_busy_clients_finish() {
    let mut docward = Docward::before(&Mongod::shared().uri())
        .rules(ORDERS_PROTECTED)
        .argument("--drain-timeout")
        .argument("10m")
        .start();
    let driver = docward.client().await;
    driver.database("x").run_command(doc! { "ping": 1 }).await.unwrap();
    let mut idle = Client::connect(&docward.address());
    idle.command("x", doc! { "ping": 1 });
    let started = Instant::now();
    assert!(docward.terminate().success());
    // Well before drain_timeout: docward does not wait for idle connections.
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    assert!(idle.closes_within(SOON));

    let mut docward = Docward::start(Mongod::shared(), ORDERS_PROTECTED);
    let database = Mongod::shared().fresh_database();
    let mut busy = Client::connect(&docward.address());
    busy.command(&database, doc! { "insert": "free", "documents": [{}] });
    let slow = doc! { "find": "free", "filter": { "$where": "sleep(500) || true" }, "$db": &database };
    busy.send(&Message::new(slow));
    std::thread::sleep(Duration::from_millis(100));
    assert!(docward.terminate().success());
    assert_eq!(Message::parse(&busy.receive()).body().get_f64("ok").unwrap(), 1.0);
    assert!(busy.closes_within(SOON));
}
