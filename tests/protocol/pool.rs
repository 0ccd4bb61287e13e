//! `pool:`: clients share server connections. No client gets another client's reply or user, requests keep their order,
//! transactions go on in a full pool, and the server sees no more connections than configured.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use bson::{Binary, Bson, Document, doc, spec::BinarySubtype};
use futures_util::{StreamExt, TryStreamExt};
use support::driver::code;
use support::frame::{MORE_TO_COME, Message};
use support::http;
use support::login::{Scram, log_in};
use support::mongod::{Kind, Mongod};
use support::process::{TIMEOUT, poll};
use support::proxy::{Builder, Docward};
use support::random::Random;
use support::raw::Client;

const RULES: &str = "version: 1\nrules:\n- {name: stock, namespace: shop.stock, bounds: {field: left, min: 0}}\n";
const SOON: Duration = Duration::from_secs(10);

pub(super) fn pooled(uri: &str, size: &str) -> Builder {
    Docward::before(uri).rules(RULES).argument("--pool-size").argument(size)
}

fn uri(user: &str, password: &str, address: &str) -> String {
    format!("mongodb://{user}:{password}@{address}/?authSource=admin&directConnection=true")
}

pub(super) async fn connect(user: &str, password: &str, address: &str) -> mongodb::Client {
    mongodb::Client::with_uri_str(uri(user, password, address)).await.unwrap()
}

pub(super) async fn create(root: &mongodb::Client, name: &str) {
    let roles = vec![doc! {"role": "readWrite", "db": name}];
    root.database("admin").run_command(doc! {"createUser": name, "pwd": name, "roles": roles}).await.unwrap();
}

/// The connections of docward's pools, as the server sees them.
async fn server_connections(root: &mongodb::Client) -> usize {
    let stages = [
        doc! {"$currentOp": {"allUsers": true, "idleConnections": true}},
        doc! {"$match": {"clientMetadata.application.name": "docward"}},
    ];
    let found: Vec<Document> = root.database("admin").aggregate(stages).await.unwrap().try_collect().await.unwrap();
    found.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_clients_use_few_connections_and_get_their_own_replies() {
    let mongod = Mongod::start(Kind::Standalone);
    let docward = pooled(&mongod.uri(), "3").start();
    let address = docward.address();
    let root = mongod.client().await;
    let many: Vec<Document> = (0..100).map(|id| doc! {"_id": id}).collect();
    root.database("shop").collection("free").insert_many(many).await.unwrap();
    root.database("shop").collection("stock").insert_one(doc! {"_id": 0, "left": 50}).await.unwrap();
    let threads: Vec<_> = (0..20)
        .map(|number: i32| {
            let address = address.clone();
            std::thread::spawn(move || {
                let mut client = Client::connect(&address);
                let mut taken = 0;
                for turn in 0..40 {
                    let id = (number * 7 + turn * 13) % 100;
                    let reply = client.command("shop", doc! {"find": "free", "filter": {"_id": id}});
                    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
                    assert_eq!(batch.as_slice(), [Bson::from(doc! {"_id": id})], "a reply to another client");
                    let one = doc! {"q": {"_id": 0, "left": {"$gt": 0}}, "u": {"$inc": {"left": -1}}};
                    let reply = client.command("shop", doc! {"update": "stock", "updates": [one]});
                    taken += reply.get_i32("n").unwrap();
                }
                taken
            })
        })
        .collect();
    let taken: i32 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!(taken, 50);
    assert!((1..=3).contains(&server_connections(&root).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn monitors_and_idle_clients_cost_the_server_nothing() {
    let mongod = Mongod::start(Kind::ReplicaSet);
    let docward = pooled(&mongod.uri(), "4").start();
    let root = mongod.client().await;
    let open = || mongod.command("admin", doc! {"serverStatus": 1});
    let current = |status: &Document| status.get_document("connections").unwrap().get_i32("current").unwrap();
    let before = current(&open());
    let mut clients = Vec::new();
    for _ in 0..10 {
        let client = docward.client().await;
        client.database("shop").run_command(doc! {"ping": 1}).await.unwrap();
        clients.push(client);
    }
    assert!(server_connections(&root).await <= 4);
    let after = current(&open());
    // Without a pool there are three for each client.
    assert!(after - before <= 8, "{before} connections before, {after} after");
}

#[test]
fn a_read_sees_the_unacknowledged_write_before_it() {
    let mongod = Mongod::start(Kind::Standalone);
    let docward = pooled(&mongod.uri(), "4").start();
    let busy: Vec<_> = (0..3)
        .map(|_| {
            let address = docward.address();
            std::thread::spawn(move || {
                let mut client = Client::connect(&address);
                (0..300).for_each(|_| drop(client.command("shop", doc! {"count": "free"})));
            })
        })
        .collect();
    let mut client = Client::connect(&docward.address());
    for id in 0..300 {
        let insert = doc! {"insert": "free", "documents": [{"_id": id}], "writeConcern": {"w": 0}, "$db": "shop"};
        client.send(&Message::new(insert).flags(MORE_TO_COME));
        let reply = client.command("shop", doc! {"find": "free", "filter": {"_id": id}});
        let found = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        assert_eq!(found.len(), 1, "the read overtook write {id}");
    }
    busy.into_iter().for_each(|thread| thread.join().unwrap());
}

/// The command as a statement of a transaction of its own session.
pub(super) fn in_transaction(mut command: Document, begins: bool, session: u8) -> Document {
    let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![session; 16] };
    command.extend(doc! {"lsid": {"id": id}, "txnNumber": 1i64, "autocommit": false});
    if begins {
        command.insert("startTransaction", true);
    }
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_commits_although_blocked_writes_fill_the_pool() {
    let mongod = Mongod::start(Kind::ReplicaSet);
    mongod.command("shop", doc! {"insert": "free", "documents": [{"_id": 1, "n": 0}]});
    let docward = pooled(&mongod.uri(), "4").start();
    let address = docward.address();
    let update = doc! {"update": "free", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}]};
    let mut client = Client::connect(&address);
    let begun = client.command("shop", in_transaction(update.clone(), true, 9));
    assert_eq!(begun.get_f64("ok").unwrap(), 1.0, "{begun}");
    // They wait for the transaction, on every connection that is not reserved and in the queue.
    let blocked: Vec<_> = (0..12)
        .map(|_| {
            let (address, update) = (address.clone(), update.clone());
            std::thread::spawn(move || Client::connect(&address).command("shop", update))
        })
        .collect();
    let waiting = || {
        let stages = doc! {"aggregate": 1, "cursor": {}, "pipeline": [
            {"$currentOp": {}}, {"$match": {"op": "update", "ns": "shop.free"}},
        ]};
        let reply = mongod.command("admin", stages);
        (reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len() >= 3).then_some(())
    };
    poll(TIMEOUT, waiting).expect("the updates do not wait");
    let started = Instant::now();
    let committed = client.command("admin", in_transaction(doc! {"commitTransaction": 1}, false, 9));
    assert_eq!(committed.get_f64("ok").unwrap(), 1.0, "{committed}");
    assert!(started.elapsed() < SOON);
    for thread in blocked {
        let reply = thread.join().unwrap();
        assert!(reply.get_f64("ok").unwrap() == 1.0 || reply.get_i32("code").unwrap() == 462, "{reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn change_streams_leave_connections_to_others() {
    let mongod = Mongod::start(Kind::ReplicaSet);
    mongod.command("shop", doc! {"insert": "free", "documents": [{"_id": 1}]});
    let docward = pooled(&mongod.uri(), "4").argument("--pool-max-wait").argument("60s").start();
    let client = docward.client().await;
    let mut streams = Vec::new();
    for _ in 0..8 {
        let mut stream = client.database("shop").collection::<Document>("free").watch().await.unwrap();
        streams.push(tokio::spawn(async move { stream.next().await.unwrap().unwrap().full_document.unwrap() }));
    }
    let mut plain = Client::connect(&docward.address());
    let started = Instant::now();
    for _ in 0..20 {
        assert_eq!(plain.command("shop", doc! {"count": "free"}).get_i32("n").unwrap(), 1);
    }
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    plain.command("shop", doc! {"insert": "free", "documents": [{"_id": 2}]});
    for stream in streams {
        let seen = tokio::time::timeout(TIMEOUT, stream).await.unwrap().unwrap();
        assert_eq!(seen.get_i32("_id").unwrap(), 2);
    }
}

/// The cursor is known although its reply is compressed in one way for docward and in another for the client.
#[test]
fn change_streams_of_other_compressors_leave_connections_to_others() {
    let mongod = Mongod::start(Kind::ReplicaSet);
    mongod.command("shop", doc! {"insert": "free", "documents": [{"_id": 1}]});
    let upstream = format!("{}&compressors=snappy", mongod.uri());
    let docward = pooled(&upstream, "4").argument("--pool-max-wait").argument("60s").start();
    let compressed = |message: &Message, id| message.to_frame(id, 0).compressed(2).to_bytes();
    let mut streams = Vec::new();
    let started = Instant::now();
    for _ in 0..8 {
        let mut client = Client::connect(&docward.address());
        client.command("admin", doc! {"hello": 1, "compression": ["zlib"]});
        let pipeline = vec![doc! {"$changeStream": {}}];
        let watch = doc! {"aggregate": "free", "pipeline": pipeline, "cursor": {}, "$db": "shop"};
        client.send_bytes(&compressed(&Message::new(watch), 7));
        let (_, reply) = client.receive().decompressed();
        let reply = Message::parse(&reply).body().clone();
        let cursor = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
        let more = doc! {"getMore": cursor, "collection": "free", "$db": "shop"};
        client.send_bytes(&compressed(&Message::new(more), 8));
        streams.push(client);
    }
    let mut plain = Client::connect(&docward.address());
    assert_eq!(plain.command("shop", doc! {"count": "free"}).get_i32("n").unwrap(), 1);
    // The server waits a second for data. None of these waited for that.
    assert!(started.elapsed() < Duration::from_millis(900), "{:?}", started.elapsed());
}

#[test]
fn a_request_that_waits_too_long_is_rejected_as_overload() {
    let mongod = Mongod::start(Kind::Standalone);
    mongod.command("shop", doc! {"insert": "free", "documents": [{"_id": 1}]});
    let docward = pooled(&mongod.uri(), "2").argument("--pool-max-wait").argument("200ms").start();
    let mut slow = Client::connect(&docward.address());
    let sleep = doc! {"find": "free", "filter": {"$where": "sleep(3000) || true"}, "$db": "shop"};
    slow.send(&Message::new(sleep));
    let slow_runs = || {
        let running = doc! {"aggregate": 1, "cursor": {}, "pipeline": [
            {"$currentOp": {}}, {"$match": {"ns": "shop.free", "op": "query"}},
        ]};
        let reply = mongod.command("admin", running);
        (!reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().is_empty()).then_some(())
    };
    poll(TIMEOUT, slow_runs).unwrap();
    let mut other = Client::connect(&docward.address());
    for collection in ["free", "stock"] {
        let update = doc! {"update": collection, "updates": [{"q": {"_id": 1}, "u": {"$set": {"a": 1}}}]};
        let reply = other.command("shop", update);
        assert_eq!((reply.get_f64("ok").unwrap(), reply.get_i32("code").unwrap()), (0.0, 462), "{reply}");
        let labels = reply.get_array("errorLabels").unwrap();
        let expected = ["SystemOverloadedError", "RetryableError", "NoWritesPerformed"].map(Bson::from);
        assert_eq!(labels.as_slice(), expected);
    }
    assert_eq!(Message::parse(&slow.receive()).body().get_f64("ok").unwrap(), 1.0);
    assert_eq!(other.command("shop", doc! {"count": "free"}).get_i32("n").unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_user_writes_as_itself_only() {
    let mongod = Mongod::start_with_access_control(Kind::Standalone);
    let root = connect("root", "secret", &mongod.address()).await;
    for user in ["ann", "bob"] {
        create(&root, user).await;
    }
    let docward = pooled(&format!("mongodb://{}/", mongod.address()), "3").start();
    let address = docward.address();
    let mut tasks = Vec::new();
    for number in 0..12 {
        let (user, other) = if number % 2 == 0 { ("ann", "bob") } else { ("bob", "ann") };
        let client = connect(user, user, &address).await;
        tasks.push(tokio::spawn(async move {
            for _ in 0..20 {
                let mark = doc! {"by": user};
                client.database(user).collection("marks").insert_one(mark.clone()).await.unwrap();
                let wrong = client.database(other).collection("marks").insert_one(mark).await;
                assert_eq!(code(&wrong.unwrap_err()), 13);
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    for user in ["ann", "bob"] {
        let by = root.database(user).collection::<Document>("marks").distinct("by", doc! {}).await.unwrap();
        assert_eq!(by, [Bson::from(user)]);
    }
    assert!(server_connections(&root).await <= 3 * 3, "more than three for ann, bob and those not logged in");
    let wrong = connect("ann", "bob", &address).await.database("ann").run_command(doc! {"ping": 1}).await;
    assert!(wrong.is_err(), "a wrong password was accepted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_has_only_begun_gives_nothing() {
    let mongod = Mongod::start_with_access_control(Kind::Standalone);
    let root = connect("root", "secret", &mongod.address()).await;
    let docward = pooled(&format!("mongodb://{}/", mongod.address()), "2").start();
    let ready = connect("root", "secret", &docward.address()).await;
    ready.database("shop").collection("free").insert_one(doc! {"_id": 1}).await.unwrap();
    // The pool has connections on which root is logged in, and the claim is relayed on one of them.
    for _ in 0..3 {
        let mut claimant = Client::connect(&docward.address());
        let payload = Binary { subtype: BinarySubtype::Generic, bytes: b"n,,n=root,r=abcdefghijkl".to_vec() };
        let start = doc! {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": payload};
        let begun = claimant.command("admin", start);
        assert_eq!(begun.get_f64("ok").unwrap(), 1.0, "{begun}");
        for command in [doc! {"find": "free"}, doc! {"insert": "free", "documents": [{"_id": 2}]}, doc! {"hello": 1}] {
            let is_hello = command.contains_key("hello");
            let reply = claimant.command("shop", command);
            assert_eq!(reply.get_i32("code").ok(), (!is_hello).then_some(13), "{reply}");
        }
        let wrong = Binary { subtype: BinarySubtype::Generic, bytes: b"c=biws,r=x,p=AAAA".to_vec() };
        let conversation = begun.get_i32("conversationId").unwrap();
        let next = doc! {"saslContinue": 1, "conversationId": conversation, "payload": wrong};
        assert_eq!(claimant.command("admin", next).get_f64("ok").unwrap(), 0.0);
        assert_eq!(claimant.command("shop", doc! {"find": "free"}).get_i32("code").unwrap(), 13);
    }
    ready.database("shop").collection("free").insert_one(doc! {"_id": 3}).await.unwrap();
    let stored = root.database("shop").collection::<Document>("free").count_documents(doc! {}).await.unwrap();
    assert_eq!(stored, 2);
}

/// A server on which `ann` may read and write in her database, and a pool of two before it.
async fn with_ann() -> (Mongod, Docward) {
    let mongod = Mongod::start_with_access_control(Kind::Standalone);
    let root = connect("root", "secret", &mongod.address()).await;
    create(&root, "ann").await;
    root.database("ann").collection("marks").insert_one(doc! {"_id": 1}).await.unwrap();
    let docward = pooled(&format!("mongodb://{}/", mongod.address()), "2").start();
    (mongod, docward)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_or_logout_that_is_not_first_in_its_message_reaches_no_shared_connection() {
    let (_mongod, docward) = with_ann().await;
    let mut ann = Client::connect(&docward.address());
    log_in(&mut ann, "ann", "ann");
    assert_eq!(ann.command("ann", doc! {"count": "marks"}).get_i32("n").unwrap(), 1);
    for shared in [false, true] {
        let mut client = Client::connect(&docward.address());
        if shared {
            log_in(&mut client, "ann", "ann");
        }
        for body in [
            doc! {"logout": 1, "$db": "admin"},
            doc! {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": "n,,n=ann,r=x", "$db": "admin"},
            doc! {"saslContinue": 1, "conversationId": 1, "payload": "x", "$db": "admin"},
        ] {
            let message = Message::new(body).sequence_first("comment", vec![doc! {"a": 1}]);
            let reply = client.exchange(&message);
            assert_eq!(reply.body().get_i32("code").unwrap(), 9, "{:?}", reply.body());
        }
    }
    assert_eq!(ann.command("ann", doc! {"count": "marks"}).get_i32("n").unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_follows_a_logout_in_one_packet_runs_without_the_user() {
    let (_mongod, docward) = with_ann().await;
    for unacknowledged in [false, true] {
        let mut ann = Client::connect(&docward.address());
        log_in(&mut ann, "ann", "ann");
        let insert = doc! {"insert": "marks", "documents": [{"by": "ann"}], "$db": "ann"};
        let first = if unacknowledged {
            Message::new(insert.clone()).flags(MORE_TO_COME)
        } else {
            Message::new(doc! {"count": "marks", "$db": "ann"})
        };
        let logout = Message::new(doc! {"logout": 1, "$db": "admin"});
        let frames = [&first, &logout, &Message::new(insert)];
        let mut bytes = Vec::new();
        for (id, message) in frames.into_iter().enumerate() {
            bytes.extend(message.to_frame(100 + i32::try_from(id).unwrap(), 0).to_bytes());
        }
        ann.send_bytes(&bytes);
        if !unacknowledged {
            assert_eq!(Message::parse(&ann.receive()).body().get_f64("ok").unwrap(), 1.0);
        }
        assert_eq!(Message::parse(&ann.receive()).body().get_f64("ok").unwrap(), 1.0, "the logout");
        assert_eq!(Message::parse(&ann.receive()).body().get_i32("code").unwrap(), 13, "the write after it");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn logins_that_stall_do_not_keep_their_user_out() {
    let (_mongod, docward) = with_ann().await;
    let scram = Scram::new("ann", "ann");
    let mut late = Client::connect(&docward.address());
    let begun = late.command("admin", scram.start(true));
    let stalled: Vec<Client> = (0..5)
        .map(|_| {
            let mut client = Client::connect(&docward.address());
            let mut start = scram.start(true);
            start.insert("$db", "admin");
            client.send(&Message::new(start));
            client
        })
        .collect();
    let ann = connect("ann", "ann", &docward.address()).await;
    let marks = ann.database("ann").collection::<Document>("marks");
    assert_eq!(marks.count_documents(doc! {}).await.unwrap(), 1);
    drop(stalled);
    // Most drivers lose fewer operations by this than if the connection closed (bench/RESULTS.md).
    let given_up = late.command("admin", scram.proof(&begun));
    assert_eq!(given_up.get_i32("code").unwrap(), 462, "its login was given up: {given_up}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_later_message_of_no_login_gets_the_servers_error() {
    let (mongod, docward) = with_ann().await;
    let replies = [mongod.address(), docward.address()].map(|address| {
        let payload = Binary { subtype: BinarySubtype::Generic, bytes: b"c=biws,r=x,p=AAAA".to_vec() };
        let next = doc! {"saslContinue": 1, "conversationId": 1, "payload": payload};
        let reply = Client::connect(&address).command("admin", next);
        (reply.get_i32("code").unwrap(), reply.get_str("codeName").unwrap().to_owned())
    });
    assert_eq!(replies[0], replies[1]);
}

/// The logins of clients that were relayed.
fn logins(docward: &Docward) -> f64 {
    let scrape = http::get(&docward.admin_address(), "/metrics").body;
    let line = scrape
        .lines()
        .find(|line| line.starts_with("docward_pool_logins_total{") && line.contains("result=\"relayed\""))
        .unwrap_or_else(|| panic!("no logins in:\n{scrape}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_connections_are_replaced_with_the_users_key_or_by_the_next_login() {
    for (policy, clients_stay) in [("keep", true), ("forget", false)] {
        let mongod = Mongod::start_with_access_control(Kind::Standalone);
        let root = connect("root", "secret", &mongod.address()).await;
        create(&root, "ann").await;
        let upstream = format!("mongodb://{}/", mongod.address());
        let docward = pooled(&upstream, "2")
            .argument("--pool-credentials")
            .argument(policy)
            .argument("--pool-max-lifetime")
            .argument("1s")
            .admin()
            .start();
        let ann = connect("ann", "ann", &docward.address()).await;
        let marks = ann.database("ann").collection::<Document>("marks");
        marks.insert_one(doc! {"_id": 0}).await.unwrap();
        let before = logins(&docward);
        for id in 1..4 {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            let written = marks.insert_one(doc! {"_id": id}).await;
            // A driver sees a closed connection, logs in again on a new one, and retries what it can.
            if written.is_err() && !clients_stay {
                marks.insert_one(doc! {"_id": id}).await.unwrap();
            } else {
                written.unwrap();
            }
        }
        assert_eq!(logins(&docward) == before, clients_stay, "{policy}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_a_user_that_was_created_again_must_log_in() {
    let mongod = Mongod::start_with_access_control(Kind::Standalone);
    let root = connect("root", "secret", &mongod.address()).await;
    create(&root, "ann").await;
    let docward = pooled(&format!("mongodb://{}/", mongod.address()), "2").start();
    let old = connect("ann", "ann", &docward.address()).await;
    let marks = |client: &mongodb::Client| client.database("ann").collection::<Document>("marks");
    marks(&old).insert_one(doc! {"_id": 1}).await.unwrap();
    let admin = root.database("admin");
    admin.run_command(doc! {"dropUser": "ann"}).await.unwrap();
    assert!(marks(&old).insert_one(doc! {"_id": 2}).await.is_err(), "a dropped user wrote");
    let roles = vec![doc! {"role": "readWrite", "db": "ann"}];
    admin.run_command(doc! {"createUser": "ann", "pwd": "other", "roles": roles}).await.unwrap();
    let new = connect("ann", "other", &docward.address()).await;
    marks(&new).insert_one(doc! {"_id": 3}).await.unwrap();
    for id in 4..8 {
        assert!(marks(&old).insert_one(doc! {"_id": id}).await.is_err(), "the old user wrote as the new one");
    }
    marks(&new).insert_one(doc! {"_id": 8}).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_survive_a_restart_of_the_server() {
    let mut mongod = Mongod::start_with_access_control(Kind::Standalone);
    let docward = pooled(&format!("mongodb://{}/", mongod.address()), "2").start();
    let client = connect("root", "secret", &docward.address()).await;
    let free = client.database("shop").collection::<Document>("free");
    free.insert_one(doc! {"_id": 1}).await.unwrap();
    mongod.stop();
    mongod.restart();
    let found = async {
        loop {
            match free.count_documents(doc! {}).await {
                Ok(found) => return found,
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    };
    assert_eq!(tokio::time::timeout(TIMEOUT, found).await.unwrap(), 1);
}

#[test]
#[cfg(target_os = "linux")]
fn core_dumps_contain_no_memory_if_docward_keeps_keys() {
    let mongod = Mongod::start(Kind::Standalone);
    let filter = |builder: Builder| {
        let docward = builder.start();
        let filter = std::fs::read_to_string(format!("/proc/{}/coredump_filter", docward.pid())).unwrap();
        u32::from_str_radix(filter.trim(), 16).unwrap()
    };
    assert_eq!(filter(pooled(&mongod.uri(), "2")), 0);
    assert_ne!(filter(pooled(&mongod.uri(), "2").argument("--pool-credentials").argument("forget")), 0);
    assert_ne!(filter(Docward::before(&mongod.uri()).rules(RULES)), 0);
}

#[test]
fn a_client_that_leaves_in_the_middle_ends_its_operation() {
    let mongod = Mongod::start(Kind::Standalone);
    mongod.command("shop", doc! {"insert": "free", "documents": [{"_id": 1}]});
    let docward = pooled(&mongod.uri(), "2").start();
    let running = || {
        let stages = doc! {"aggregate": 1, "cursor": {}, "pipeline": [
            {"$currentOp": {}}, {"$match": {"ns": "shop.free", "op": "query"}},
        ]};
        let reply = mongod.command("admin", stages);
        reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len()
    };
    for _ in 0..3 {
        let mut client = Client::connect(&docward.address());
        let slow = doc! {"find": "free", "filter": {"$where": "sleep(3000) || true"}, "$db": "shop"};
        client.send(&Message::new(slow));
        poll(TIMEOUT, || (running() == 1).then_some(())).unwrap();
        drop(client);
        poll(TIMEOUT, || (running() == 0).then_some(())).unwrap();
        // The next client gets its own reply, not the one of the client that has left.
        let mut next = Client::connect(&docward.address());
        assert_eq!(next.command("shop", doc! {"count": "free"}).get_i32("n").unwrap(), 1);
    }
}

#[test]
fn errors_of_a_secondary_are_those_that_drivers_get_directly() {
    let mongod = Mongod::start(Kind::ReplicaSet);
    let docward = pooled(&mongod.uri(), "2").start();
    mongod.command("admin", doc! {"replSetStepDown": 60, "force": true});
    let errors = [mongod.address(), docward.address()].map(|address| {
        let mut client = Client::connect(&address);
        client.command("admin", doc! {"hello": 1, "helloOk": true});
        [doc! {"insert": "free", "documents": [{"_id": 1}]}, doc! {"find": "free"}].map(|command| {
            let reply = client.command("shop", command);
            (reply.get_i32("code").unwrap(), reply.get_str("errmsg").unwrap().to_owned())
        })
    });
    assert_eq!(errors[0], errors[1]);
}

#[test]
fn an_unknown_command_keeps_its_connection() {
    let mongod = Mongod::start(Kind::Standalone);
    let docward = pooled(&mongod.uri(), "2").start();
    let mut clients: Vec<Client> = (0..4).map(|_| Client::connect(&docward.address())).collect();
    for client in &mut clients {
        let reply = client.command("shop", doc! {"noSuchCommand": 1});
        assert_eq!(reply.get_i32("code").unwrap(), 59, "{reply}");
    }
    for client in &mut clients {
        assert_eq!(client.command("shop", doc! {"ping": 1}).get_f64("ok").unwrap(), 1.0);
        assert!(client.command("shop", doc! {"hello": 1}).contains_key("maxWireVersion"));
    }
}

pub(super) const USERS: [&str; 3] = ["ann", "bob", "eve"];

/// One client among many: logs in, writes and reads as its user, and leaves in the middle of something.
fn live(address: &str, number: u64, until: Instant) -> Vec<(String, String)> {
    let mut random = Random(number + 1);
    let mut acknowledged = Vec::new();
    for life in 0.. {
        if Instant::now() > until {
            break;
        }
        let user = USERS[random.below(USERS.len())];
        let Ok(mut client) = Client::try_connect(address) else { continue };
        if random.below(8) == 0 {
            // It leaves in the middle of a login.
            let payload = Binary { subtype: BinarySubtype::Generic, bytes: format!("n,,n={user},r=gone").into_bytes() };
            let start = doc! {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": payload, "$db": "admin"};
            client.send(&Message::new(start));
            continue;
        }
        // On a slow machine a login may be given up for others that wait; then the client begins again.
        if catch_unwind(AssertUnwindSafe(|| log_in(&mut client, user, user))).is_err() {
            continue;
        }
        for turn in 0..random.below(12) {
            let id = format!("{number}-{life}-{turn}");
            let insert = doc! {"insert": "marks", "documents": [{"_id": &id, "by": user}]};
            if random.below(10) == 0 {
                let mut insert = insert;
                insert.insert("$db", user);
                client.send(&Message::new(insert));
                break;
            }
            let reply = client.try_command(user, insert, TIMEOUT);
            let Some(reply) = reply else { break };
            if reply.get_f64("ok").unwrap() == 1.0 {
                assert_eq!(reply.get_i32("n").unwrap(), 1, "{reply}");
                acknowledged.push((user.to_owned(), id.clone()));
                let find = doc! {"find": "marks", "filter": {"_id": &id}};
                let Some(found) = client.try_command(user, find, TIMEOUT) else { break };
                if let Ok(cursor) = found.get_document("cursor") {
                    let expected = [Bson::from(doc! {"_id": &id, "by": user})];
                    assert_eq!(cursor.get_array("firstBatch").unwrap().as_slice(), expected);
                }
            } else {
                assert_eq!(reply.get_i32("code").unwrap(), 462, "{reply}");
            }
            let other = USERS[(USERS.iter().position(|known| *known == user).unwrap() + 1) % USERS.len()];
            let wrong = doc! {"insert": "marks", "documents": [{"by": user}]};
            let Some(reply) = client.try_command(other, wrong, TIMEOUT) else { break };
            assert!([13, 462].contains(&reply.get_i32("code").unwrap_or(0)), "{user} wrote as {other}: {reply}");
        }
    }
    acknowledged
}

/// Runs a client of each number in a thread of its own, and returns what each wrote.
pub(super) async fn live_all(address: &str, numbers: Range<u64>, until: Instant) -> Vec<Vec<(String, String)>> {
    let threads: Vec<_> = numbers
        .map(|number| {
            let address = address.to_owned();
            std::thread::spawn(move || live(&address, number, until))
        })
        .collect();
    let lives = tokio::task::spawn_blocking(|| threads.into_iter().map(|thread| thread.join().unwrap()).collect());
    lives.await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_and_connections_that_vanish_mix_up_no_users_and_lose_no_writes() {
    let mongod = Mongod::start_with_access_control(Kind::Standalone);
    let root = connect("root", "secret", &mongod.address()).await;
    for user in USERS {
        create(&root, user).await;
    }
    // Connections live so short that most requests come just after one was replaced.
    let docward = pooled(&format!("mongodb://{}/", mongod.address()), "3")
        .argument("--pool-max-lifetime")
        .argument("300ms")
        .argument("--pool-max-wait")
        .argument("60s")
        .start();
    let until = Instant::now() + Duration::from_secs(8);
    let acknowledged = live_all(&docward.address(), 0..12, until).await;
    assert_markers(&root, acknowledged).await;
}

/// Every user has written as itself only, and every acknowledged write is stored.
pub(super) async fn assert_markers(root: &mongodb::Client, acknowledged: Vec<Vec<(String, String)>>) {
    let mut stored = std::collections::BTreeMap::new();
    for user in USERS {
        let marks = root.database(user).collection::<Document>("marks");
        let all: Vec<Document> = marks.find(doc! {}).await.unwrap().try_collect().await.unwrap();
        for mark in all {
            assert_eq!(mark.get_str("by").unwrap(), user, "{mark}");
            stored.insert(mark.get_str("_id").unwrap().to_owned(), user.to_owned());
        }
    }
    let acknowledged: Vec<_> = acknowledged.into_iter().flatten().collect();
    assert!(acknowledged.len() > 20, "only {} writes", acknowledged.len());
    for (user, id) in acknowledged {
        assert_eq!(stored.get(&id), Some(&user), "an acknowledged write is lost");
    }
}
