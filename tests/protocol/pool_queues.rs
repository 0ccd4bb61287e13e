//! Who gets a connection of a full pool: transactions commit, logins of those who commit them too, cursors and ordinary
//! requests take turns, and operations whose clients have left still count.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use bson::{Document, doc};
use support::driver::ok;
use support::frame::Message;
use support::login::log_in;
use support::mongod::{Kind, Mongod};
use support::process::{TIMEOUT, poll};
use support::proxy::Docward;
use support::raw::Client;

use super::pool::{create, in_transaction, pooled};

const SOON: Duration = Duration::from_secs(10);

fn increment(collection: &str) -> Document {
    doc! {"update": collection, "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}]}
}

/// Number of updates that run on the server.
fn running(root: &mut Client) -> usize {
    let stages = [doc! {"$currentOp": {"allUsers": true}}, doc! {"$match": {"op": "update"}}];
    let reply = root.command("admin", doc! {"aggregate": 1, "cursor": {}, "pipeline": stages.to_vec()});
    reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len()
}

/// Sends updates of `shop.free`, which an open transaction blocks, until `count` run on the server and others wait.
fn block(clients: Vec<Client>, count: usize, root: &mut Client) -> Vec<JoinHandle<Document>> {
    let update = |mut client: Client| std::thread::spawn(move || client.command("shop", increment("free")));
    let blocked = clients.into_iter().map(update).collect();
    poll(TIMEOUT, || (running(root) >= count).then_some(())).expect("the updates do not wait");
    blocked
}

fn assert_ended(blocked: Vec<JoinHandle<Document>>) {
    for thread in blocked {
        let reply = thread.join().unwrap();
        assert!(ok(&reply) || reply.get_i32("code").unwrap() == 462, "{reply}");
    }
}

/// Drivers send a commit on any connection of theirs, also on one that has yet to log in.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_is_committed_by_a_client_that_logs_in_while_blocked_writes_fill_the_pool() {
    let mongod = Mongod::start_with_access_control(Kind::ReplicaSet);
    let mut root = Client::connect(&mongod.address());
    log_in(&mut root, "root", "secret");
    root.command("shop", doc! {"insert": "free", "documents": [{"_id": 1, "n": 0}]});
    create(&super::pool::connect("root", "secret", &mongod.address()).await, "shop").await;
    for size in [4, 2] {
        let docward = pooled(&mongod.uri(), &size.to_string()).argument("--pool-max-wait").argument("20s").start();
        let logged_in = || {
            let mut client = Client::connect(&docward.address());
            log_in(&mut client, "shop", "shop");
            client
        };
        let mut client = logged_in();
        let begun = client.command("shop", in_transaction(increment("free"), true, size));
        assert!(ok(&begun), "{begun}");
        drop(client);
        let blocked = block((0..8).map(|_| logged_in()).collect(), size as usize - 1, &mut root);
        let started = Instant::now();
        let commit = in_transaction(doc! {"commitTransaction": 1}, false, size);
        let committed = logged_in().command("admin", commit);
        assert!(ok(&committed), "{committed}");
        assert!(started.elapsed() < Duration::from_secs(15), "size {size}: {:?}", started.elapsed());
        assert_ended(blocked);
    }
}

/// `autocommit` comes after the filter and the documents, which can be long.
#[test]
fn a_long_statement_of_a_transaction_goes_before_the_writes_that_it_blocks() {
    let mongod = Mongod::start(Kind::ReplicaSet);
    mongod.command("shop", doc! {"insert": "free", "documents": [{"_id": 1, "n": 0}]});
    let mut root = Client::connect(&mongod.address());
    let docward = pooled(&mongod.uri(), "3").argument("--pool-max-wait").argument("20s").start();
    let text = "a".repeat(1000);
    for (number, length, compressed) in [(21, 10, false), (22, 300, false), (23, 10, true), (24, 300, true)] {
        let many: Vec<String> = (0..length).map(|number| format!("{number}{text}")).collect();
        let mut client = Client::connect(&docward.address());
        if compressed {
            client.command("admin", doc! {"hello": 1, "compression": ["zlib"]});
        }
        let begun = client.command("shop", in_transaction(increment("free"), true, number));
        assert!(ok(&begun), "{begun}");
        let blocked = block((0..6).map(|_| Client::connect(&docward.address())).collect(), 2, &mut root);
        let inline: Vec<Document> = many.iter().map(|text| doc! {"text": text}).collect();
        let started = Instant::now();
        for mut statement in [
            in_transaction(doc! {"find": "free", "filter": {"a": {"$in": &many}}}, false, number),
            in_transaction(doc! {"insert": "other", "documents": inline}, false, number),
            in_transaction(doc! {"commitTransaction": 1}, false, number),
        ] {
            statement.insert("$db", if statement.contains_key("commitTransaction") { "admin" } else { "shop" });
            let frame = Message::new(statement).to_frame(90, 0);
            let reply = if compressed {
                client.send_bytes(&frame.compressed(2).to_bytes());
                client.receive().decompressed().1
            } else {
                client.send_bytes(&frame.to_bytes());
                client.receive()
            };
            let reply = Message::parse(&reply).body().clone();
            assert!(ok(&reply), "{length} KiB, compressed: {compressed}: {reply}");
        }
        assert!(started.elapsed() < SOON, "{length} KiB, compressed: {compressed}: {:?}", started.elapsed());
        assert_ended(blocked);
    }
}

#[test]
fn readers_of_cursors_do_not_starve_other_requests() {
    let mongod = Mongod::start(Kind::Standalone);
    let many: Vec<Document> = (0..30_000).map(|id| doc! {"_id": id}).collect();
    mongod.command("shop", doc! {"insert": "free", "documents": many});
    let docward = pooled(&mongod.uri(), "3").argument("--pool-max-wait").argument("5s").start();
    let (ends, batches) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
    let readers: Vec<_> = (0..16)
        .map(|_| {
            let (address, ends, batches) = (docward.address(), ends.clone(), batches.clone());
            std::thread::spawn(move || {
                let mut client = Client::connect(&address);
                let mut cursor = 0;
                while !ends.load(Ordering::Relaxed) {
                    let next = if cursor == 0 {
                        doc! {"find": "free", "batchSize": 1}
                    } else {
                        doc! {"getMore": cursor, "collection": "free", "batchSize": 1}
                    };
                    let reply = client.command("shop", next);
                    // One that was rejected is sent again.
                    let Ok(part) = reply.get_document("cursor") else { continue };
                    cursor = part.get_i64("id").unwrap();
                    batches.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    poll(TIMEOUT, || (batches.load(Ordering::Relaxed) > 200).then_some(())).unwrap();
    let mut plain = Client::connect(&docward.address());
    for _ in 0..30 {
        let reply = plain.command("shop", doc! {"find": "free", "filter": {"_id": 7}});
        assert!(ok(&reply), "{reply}");
    }
    ends.store(true, Ordering::Relaxed);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
}

/// A write runs on the server after its client has left. It keeps its place in the pool meanwhile, at most as long as a
/// request waits.
#[test]
fn operations_whose_clients_have_left_count_for_as_long_as_a_request_waits() {
    let mongod = Mongod::start(Kind::ReplicaSet);
    for collection in ["free", "stock"] {
        mongod.command("shop", doc! {"insert": collection, "documents": [{"_id": 1, "left": 5}]});
    }
    let mut root = Client::connect(&mongod.address());
    let docward: Docward = pooled(&mongod.uri(), "2").argument("--pool-max-wait").argument("3s").start();
    for (number, collection) in [(31, "free"), (32, "stock")] {
        let begun = root.command("shop", in_transaction(increment(collection), true, number));
        assert!(ok(&begun), "{begun}");
        let mut client = Client::connect(&docward.address());
        // docward carries out the rule's statements one by one, and reads the replies itself.
        let one = doc! {"q": {"_id": 1, "left": {"$gte": 1}}, "u": {"$inc": {"left": -1}}};
        client.send(&Message::new(doc! {"update": collection, "updates": [&one, &one], "$db": "shop"}));
        let mut other = Client::connect(&mongod.address());
        poll(TIMEOUT, || (running(&mut other) == 1).then_some(())).unwrap();
        drop(client);
        let left = Instant::now();
        // docward notices first that the client has left.
        sleep(Duration::from_millis(300));
        let reply = Client::connect(&docward.address()).command("shop", increment("another"));
        assert!(ok(&reply), "{collection}, after {:?}: {reply}", left.elapsed());
        assert!(left.elapsed() > Duration::from_secs(2), "{collection}: after {:?}", left.elapsed());
        assert_eq!(running(&mut other), 1, "{collection}");
        assert!(ok(&root.command("admin", in_transaction(doc! {"abortTransaction": 1}, false, number))));
        poll(TIMEOUT, || (running(&mut other) == 0).then_some(())).unwrap();
    }
}
