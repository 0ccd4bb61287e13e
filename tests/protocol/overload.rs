//! Overload errors of docward's own: who is sent away, who is held, and `docs/reference/overload-errors.md`, which is made
//! here (`UPDATE_EXPECT=1`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use bson::{Document, doc};
use support::frame::{MORE_TO_COME, Message};
use support::http;
use support::mongod::{Kind, Mongod};
use support::process::{TIMEOUT, poll, repository};
use support::proxy::{Builder, Docward};
use support::raw::Client;

const LABELS: [&str; 3] = ["SystemOverloadedError", "RetryableError", "NoWritesPerformed"];
/// How long the server takes for a find of [`SLOW`]: long compared with what else a request takes on a slow machine.
const DELAY: Duration = Duration::from_millis(100);
/// The wait in a queue of this length is longer than a quarter of `MAX_WAIT`, and shorter than that.
const LENGTH: usize = 40;
const MAX_WAIT: &str = "12s";
const SLOW: &str = "slow";

/// docward with one connection for ordinary requests, and one for transactions.
fn narrow(mongod: &Mongod, max_wait: &str) -> Builder {
    let rules = "version: 1\nrules:\n\
                 - { name: stock, namespace: shop.protected, bounds: { field: n, min: 0 } }\n\
                 - { name: few, namespace: shop.throttled, throttle: { concurrent: 1, per: app, wait: 200ms } }\n";
    let docward = Docward::before(&mongod.uri()).rules(rules).admin().without_test_pool();
    docward.argument("--pool-size").argument("2").argument("--pool-max-wait").argument(max_wait)
}

/// The server takes this long for finds of a collection.
fn delay(mongod: &Mongod, collection: &str, time: Duration) {
    let milliseconds = i64::try_from(time.as_millis()).unwrap();
    let namespace = format!("shop.{collection}");
    let data = doc! {
        "failCommands": ["find"], "namespace": namespace, "blockConnection": true, "blockTimeMS": milliseconds,
    };
    mongod.command("admin", doc! { "configureFailPoint": "failCommand", "mode": "alwaysOn", "data": data });
}

/// A client that announces that it sends a command again after an overload error, or does not.
fn connect(docward: &Docward, announces: bool) -> Client {
    let mut client = Client::connect(&docward.address());
    let mut hello = doc! { "hello": 1, "client": { "application": { "name": "shop" } } };
    if announces {
        hello.insert("backpressure", "2");
    }
    client.command("admin", hello);
    client
}

fn session(number: u8) -> Document {
    doc! { "id": bson::Uuid::from_bytes([number; 16]) }
}

fn find(collection: &str, number: u8) -> Document {
    doc! { "find": collection, "lsid": session(number) }
}

/// The code and `baseBackoffMS` of an overload error; `None`: the command was executed.
fn overload(reply: &Document) -> Option<(i32, Option<i32>)> {
    let code = reply.get_i32("code").ok()?;
    let labels = reply.get_array("errorLabels").unwrap_or_else(|_| panic!("{reply}"));
    assert_eq!(labels, &LABELS.map(bson::Bson::from), "{reply}");
    Some((code, reply.get_i32("baseBackoffMS").ok()))
}

/// Clients of an older driver that always keep a queue of this length, until they are dropped.
struct Queue {
    stopping: Arc<AtomicBool>,
    clients: Vec<JoinHandle<usize>>,
}

impl Queue {
    fn start(docward: &Docward, length: usize) -> Self {
        let stopping = Arc::new(AtomicBool::new(false));
        let client = |_| {
            let (stopping, mut client) = (stopping.clone(), connect(docward, false));
            spawn(move || {
                let replies = std::iter::repeat_with(|| client.command("shop", find(SLOW, 1)));
                let replies = replies.take_while(|_| !stopping.load(Ordering::Relaxed));
                replies.filter(|reply| overload(reply).is_some()).count()
            })
        };
        let clients = (0..=length).map(client).collect();
        let queue = Self { stopping, clients };
        sleep(20 * DELAY);
        queue
    }

    /// Returns how many of their commands got an overload error.
    fn stop(self) -> usize {
        self.stopping.store(true, Ordering::Relaxed);
        self.clients.into_iter().map(|client| client.join().unwrap()).sum()
    }
}

#[test]
fn a_request_whose_driver_sends_it_again_is_sent_away_once_and_others_are_held() {
    let mongod = Mongod::start(Kind::Standalone);
    delay(&mongod, SLOW, DELAY);
    let docward = narrow(&mongod, MAX_WAIT).start();
    let queue = Queue::start(&docward, LENGTH);
    let mut retrying = connect(&docward, true);
    let asked = Instant::now();
    let (code, backoff) = overload(&retrying.command("shop", find("free", 7))).expect("it was held");
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    assert!(code == 462 && (3000..=10_000).contains(&backoff.unwrap()), "{backoff:?}");
    let status = http::get(&docward.admin_address(), "/api/status").body;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let waiting = &status["waiting"][0];
    assert!(waiting["app"] == "shop" && waiting["waiting"].as_u64().unwrap() > 30, "{status}");
    let asked = Instant::now();
    assert_eq!(overload(&retrying.command("shop", find("free", 7))), None, "it came again");
    assert!(asked.elapsed() > Duration::from_secs(2), "{:?}", asked.elapsed());
    assert_eq!(overload(&connect(&docward, false).command("shop", find("free", 8))), None, "an older driver");
    assert_eq!(overload(&retrying.command("shop", doc! { "find": "free" })), None, "without a session");
    assert_eq!(queue.stop(), 0);
    let metrics = http::get(&docward.admin_address(), "/metrics").body;
    let sent_away =
        metrics.lines().find(|line| line.starts_with("docward_pool_rejected") && line.contains("sent_away"));
    assert!(sent_away.is_some_and(|line| line.ends_with(" 1")), "{metrics}");
}

/// A request for each row of the page, prepared before the pool is full.
struct Requests {
    mongod: Mongod,
    client: Client,
    cursor: i64,
    stream: i64,
}

const REQUESTS: [&str; 13] = [
    "find, or another read",
    "getMore",
    "write with a number (`retryWrites`)",
    "write without a number",
    "write of a protected collection",
    "write without a reply (`w: 0`)",
    "createIndexes, or another command",
    "first statement of a transaction",
    "later statement of a transaction",
    "commitTransaction, abortTransaction",
    "killCursors",
    "getMore of a change stream",
    "command that a `throttle` rule limits",
];

fn numbered(mut write: Document) -> Document {
    write.insert("txnNumber", 1_i64);
    write
}

impl Requests {
    fn new(mongod: Mongod, docward: &Docward, announces: bool) -> Self {
        let mut client = connect(docward, announces);
        for collection in ["c", "protected", "throttled"] {
            let documents: Vec<Document> = (1..9).map(|id| doc! { "_id": id, "n": 0 }).collect();
            let reply = client.command("shop", doc! { "insert": collection, "documents": documents });
            assert_eq!(overload(&reply), None);
        }
        let mut cursor_of =
            |command: Document| client.command("shop", command).get_document("cursor").unwrap().get_i64("id").unwrap();
        let cursor = cursor_of(doc! { "find": "c", "batchSize": 2, "lsid": session(2) });
        let pipeline = vec![doc! { "$changeStream": {} }];
        let stream = cursor_of(doc! { "aggregate": "c", "pipeline": pipeline, "cursor": {}, "lsid": session(3) });
        for number in [4, 5] {
            let mut begins = Self::in_transaction(doc! { "insert": "c", "documents": [{}] }, number);
            begins.insert("startTransaction", true);
            assert_eq!(overload(&client.command("shop", begins)), None);
        }
        Self { mongod, client, cursor, stream }
    }

    fn in_transaction(mut command: Document, number: u8) -> Document {
        command.extend(doc! { "lsid": session(number), "txnNumber": 1_i64, "autocommit": false });
        command
    }

    /// The number of documents that the writes of the page have stored.
    fn written(&self) -> i32 {
        let counts = ["c", "protected"].map(|collection| {
            let command = doc! { "count": collection, "query": { "written": true } };
            self.mongod.command("shop", command).get_i32("n").unwrap()
        });
        counts.iter().sum()
    }

    /// What becomes of a request.
    fn outcome(&mut self, name: &str) -> String {
        // Each request has a session of its own: the second one of a session would be held.
        let insert = |collection: &str, number| {
            doc! { "insert": collection, "documents": [{ "written": true, "n": 0 }], "lsid": session(number) }
        };
        let (database, command) = match name {
            "find, or another read" => ("shop", find("c", 6)),
            "getMore" => {
                ("shop", doc! { "getMore": self.cursor, "collection": "c", "batchSize": 1, "lsid": session(2) })
            }
            "write with a number (`retryWrites`)" => ("shop", numbered(insert("c", 8))),
            "write without a number" => ("shop", insert("c", 14)),
            "write of a protected collection" => ("shop", numbered(insert("protected", 9))),
            "write without a reply (`w: 0`)" => {
                let before = self.written();
                let mut command = insert("c", 13);
                command.extend(doc! { "writeConcern": { "w": 0 }, "$db": "shop" });
                self.client.send(&Message::new(command).flags(MORE_TO_COME));
                // Its reply comes after the write has ended.
                self.client.command("admin", doc! { "hello": 1 });
                let executed = poll(Duration::from_secs(3), || (self.written() > before).then_some(()));
                return executed.map_or("dropped", |()| "held").to_owned();
            }
            "createIndexes, or another command" => {
                let indexes = vec![doc! { "key": { "n": 1 }, "name": "n" }];
                // Not of a collection that the open transactions use.
                ("shop", doc! { "createIndexes": "other", "indexes": indexes, "lsid": session(10) })
            }
            "first statement of a transaction" => {
                let mut begins = Self::in_transaction(insert("c", 7), 7);
                begins.insert("startTransaction", true);
                ("shop", begins)
            }
            "later statement of a transaction" => ("shop", Self::in_transaction(insert("c", 4), 4)),
            "commitTransaction, abortTransaction" => {
                ("admin", Self::in_transaction(doc! { "commitTransaction": 1 }, 4))
            }
            "killCursors" => ("shop", doc! { "killCursors": "c", "cursors": [1_i64], "lsid": session(12) }),
            "getMore of a change stream" => {
                ("shop", doc! { "getMore": self.stream, "collection": "c", "maxTimeMS": 1, "lsid": session(3) })
            }
            "command that a `throttle` rule limits" => ("shop", find("throttled", 11)),
            other => unreachable!("{other}"),
        };
        let (asked, before) = (Instant::now(), self.written());
        match overload(&self.client.command(database, command)) {
            None if asked.elapsed() < Duration::from_secs(1) => "goes first".to_owned(),
            None => "held".to_owned(),
            Some((code, backoff)) => {
                assert_eq!(self.written(), before, "{name} was executed");
                format!("{code}{}", if backoff.is_some() { ", `baseBackoffMS`" } else { "" })
            }
        }
    }
}

const INTRODUCTION: &str = "\
# Overload errors

What docward does with a request that finds no connection of its [pool](../pool.md#when-all-connections-are-in-use). Made by a test with a
real server. Each error has the labels `SystemOverloadedError`, `RetryableError` and `NoWritesPerformed`, and nothing of its request was
executed. \"held\": it waits, and is executed. \"goes first\": it uses the reserve.

| request | the queue is long; the client announces `backpressure` | it does not | no connection became free within `max_wait` |
|---|---|---|---|
";

/// A full pool in which nothing ends.
fn blocked() -> Vec<String> {
    let mongod = Mongod::start(Kind::ReplicaSet);
    let docward = narrow(&mongod, "400ms").start();
    let mut requests = Requests::new(mongod, &docward, true);
    delay(&requests.mongod, SLOW, TIMEOUT);
    let block = |mut command: Document| {
        let mut client = connect(&docward, false);
        command.insert("$db", "shop");
        client.send(&Message::new(command));
        client
    };
    let blocked = [block(find(SLOW, 1)), block(Requests::in_transaction(doc! { "find": SLOW }, 5))];
    sleep(Duration::from_millis(300));
    let outcomes = REQUESTS.map(|name| requests.outcome(name)).to_vec();
    drop(blocked);
    outcomes
}

/// A pool with a long queue that advances.
fn long(announces: bool) -> Vec<String> {
    let mongod = Mongod::start(Kind::ReplicaSet);
    delay(&mongod, SLOW, DELAY);
    let docward = narrow(&mongod, MAX_WAIT).start();
    let mut requests = Requests::new(mongod, &docward, announces);
    let queue = Queue::start(&docward, LENGTH);
    let outcomes = REQUESTS.map(|name| requests.outcome(name)).to_vec();
    queue.stop();
    outcomes
}

#[test]
fn the_page_has_what_becomes_of_requests_under_overload() {
    let columns = [spawn(|| long(true)), spawn(|| long(false)), spawn(blocked)].map(|column| column.join().unwrap());
    let row = |(at, request): (usize, &&str)| {
        let cells = columns.each_ref().map(|column| column[at].as_str()).join(" | ");
        format!("| {request} | {cells} |\n")
    };
    let real = INTRODUCTION.to_owned() + &REQUESTS.iter().enumerate().map(row).collect::<String>();
    let page = repository("docs/reference/overload-errors.md");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&page, &real).unwrap();
    }
    assert_eq!(real, std::fs::read_to_string(page).unwrap(), "UPDATE_EXPECT=1 rewrites it");
}
