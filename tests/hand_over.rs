//! docward's end while clients are at work: another process takes over the port and no operation fails; without one,
//! transactions and running operations get their time.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod support;

use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bson::{Document, doc};
use support::certificates::Authority;
use support::driver::scaled;
use support::frame::{EXHAUST_ALLOWED, Message};
use support::mongod::Mongod;
use support::process::{Protected, SOON, TIMEOUT, free_port, poll};
use support::proxy::{Builder, Docward};
use support::raw::Client;
use tokio::runtime::Runtime;

const RULES: &str = r#"
version: 1
rules:
  - name: numbered
    namespace: "*.numbered"
    sequence: { field: no, counter: no }
"#;

/// Threads that work until they are stopped; each adds one to `done` for every operation and stops at its first
/// failure.
struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    workers: Vec<JoinHandle<Result<(), String>>>,
}

impl Load {
    fn start() -> Load {
        Load { stop: Arc::default(), done: Arc::default(), workers: Vec::new() }
    }

    /// Calls `work` again and again in a thread of its own.
    fn add(&mut self, mut work: impl FnMut() -> Result<(), String> + Send + 'static) {
        let (stop, done) = (self.stop.clone(), self.done.clone());
        self.workers.push(std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                work()?;
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        }));
    }

    /// Waits for so many further operations, or for a failure.
    fn goes_on(&self, operations: u64) {
        let from = self.done.load(Ordering::Relaxed);
        let goes_on = || {
            let enough = self.done.load(Ordering::Relaxed) >= from + operations;
            (enough || self.workers.iter().any(JoinHandle::is_finished)).then_some(())
        };
        poll(TIMEOUT, goes_on).expect("the load stands still");
    }

    /// Stops it and panics when any operation failed.
    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let results: Vec<_> = self.workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        assert!(results.iter().all(Result::is_ok), "{results:#?}");
        self.done.load(Ordering::Relaxed)
    }
}

/// A new connection for every operation, beside what [`drivers`] do.
fn load(address: &str, database: &str) -> Load {
    let mut load = drivers(address, database, "");
    for _ in 0..2 {
        let (address, database) = (address.to_owned(), database.to_owned());
        load.add(move || {
            let mut client = Client::try_connect(&address).map_err(|error| format!("connect: {error}"))?;
            let insert = doc! { "insert": "fresh", "documents": [{}] };
            let reply = client.try_command(&database, insert, TIMEOUT).ok_or("no reply")?;
            (reply.get_f64("ok").unwrap() == 1.0).then_some(()).ok_or_else(|| reply.to_string())
        });
    }
    load
}

/// A driver that does not take a slow machine for a server that is gone.
fn driver(address: &str, options: &str) -> (Runtime, mongodb::Client) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let uri = format!("mongodb://{address}/?replicaSet=rs0&connectTimeoutMS=120000{options}");
    let client = runtime.block_on(mongodb::Client::with_uri_str(uri)).unwrap();
    (runtime, client)
}

/// Drivers with pools, which may not repeat anything, with idle connections in between, and transactions. `options` are
/// more of the connection string.
fn drivers(address: &str, database: &str, options: &str) -> Load {
    let mut load = Load::start();
    for name in ["plain", "numbered", "slow"] {
        let (runtime, client) = driver(address, &format!("&retryWrites=false&retryReads=false{options}"));
        let collection = client.database(database).collection::<Document>(name);
        load.add(move || {
            if name == "slow" {
                std::thread::sleep(Duration::from_millis(350));
            }
            let work = async {
                collection.insert_one(doc! { "a": 2 }).await?;
                collection.update_many(doc! { "a": 1 }, doc! { "$inc": { "b": 1 } }).await?;
                collection.delete_many(doc! { "a": 1 }).await?;
                collection.count_documents(doc! { "a": 1 }).await
            };
            runtime.block_on(work).map(drop).map_err(|error| format!("{name}: {error}"))
        });
    }
    let (runtime, client) = driver(address, options);
    let collection = client.database(database).collection::<Document>("in_transactions");
    runtime.block_on(async { collection.insert_one(doc! {}).await }).unwrap();
    load.add(move || {
        let transaction = async {
            let mut session = client.start_session().await?;
            session.start_transaction().await?;
            for _ in 0..3 {
                collection.insert_one(doc! {}).session(&mut session).await?;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            session.commit_transaction().await
        };
        runtime.block_on(transaction).map_err(|error| format!("transaction: {error}"))
    });
    load
}

/// What is under way is not cut off because the machine is slow.
fn before(mongod: &Mongod) -> Builder {
    Docward::before(&mongod.uri()).rules(RULES).argument("--drain-timeout").argument("2m")
}

#[test]
fn a_new_process_takes_over_and_no_operation_fails() {
    let mongod = Mongod::shared();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("docward.sock");
    let listen = format!("127.0.0.1:{}", free_port());
    let start = || {
        let hand_over = path.to_str().unwrap().to_owned();
        before(mongod).listen(&listen).argument("--hand-over").argument(hand_over).start()
    };
    let mut docward = start();
    let load = load(&listen, &mongod.fresh_database());
    load.goes_on(100);
    for _ in 0..scaled(3) {
        let next = start();
        assert!(docward.wait().success());
        docward.wait_for_log("another process has taken over");
        next.wait_for_log("took over from the process before");
        assert!(!docward.log().iter().any(|line| line.contains("still")), "{:#?}", docward.log());
        docward = next;
        load.goes_on(100);
    }
    let done = load.end();
    println!("{done} operations");
}

/// A TLS session cannot leave its process: it drains, and drivers come to the next one when nothing is under way.
#[test]
fn in_tls_too_no_operation_fails() {
    let mongod = Mongod::shared();
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let certificate = authority.sign("docward", &["localhost"]);
    let path = folder.path().join("docward.sock");
    let port = free_port();
    let start = || {
        before(mongod)
            .listen(&format!("127.0.0.1:{port}"))
            .argument("--advertise")
            .argument("localhost")
            .argument("--tls-certificate")
            .argument(&certificate)
            .argument("--hand-over")
            .argument(path.to_str().unwrap())
            .start()
    };
    let mut docward = start();
    let options = format!("&tls=true&tlsCAFile={}", authority.file());
    let load = drivers(&format!("localhost:{port}"), &mongod.fresh_database(), &options);
    load.goes_on(50);
    for _ in 0..scaled(2) {
        let next = start();
        assert!(docward.wait().success());
        docward = next;
        load.goes_on(50);
    }
    load.end();
}

/// The socket's file is there before anybody listens. Who looks and leaves has changed nothing.
fn wait_until_offered(path: &Path) {
    drop(poll(TIMEOUT, || UnixStream::connect(path).ok()).unwrap());
}

/// What stands, waits or is under way goes on in the next process, on the same connections.
#[test]
fn connections_stay_whatever_goes_on_in_them() {
    let mongod = Mongod::shared();
    let database = mongod.fresh_database();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("docward.sock");
    let start = || Docward::before(&mongod.uri()).argument("--hand-over").argument(path.to_str().unwrap()).start();
    let mut before = start();
    let mut monitor = Client::connect(&before.address());
    let hello = monitor.command("admin", doc! { "hello": 1 });
    let (me, version) = (hello.get_str("me").unwrap(), hello.get_document("topologyVersion").unwrap());
    let body = doc! { "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 1_000, "$db": "admin" };
    monitor.send(&Message::new(body).flags(EXHAUST_ALLOWED));
    let (mut transaction, fields) = begin(&before, &database, 73);
    let documents: Vec<Document> = (0..9).map(|id| doc! { "_id": id }).collect();
    let mut reader = Client::connect(&before.address());
    reader.command(&database, doc! { "insert": "many", "documents": documents });
    let first = reader.command(&database, doc! { "find": "many", "batchSize": 3 });
    let cursor = first.get_document("cursor").unwrap().get_i64("id").unwrap();
    let mut waiting = Client::connect(&before.address());
    let slow = doc! { "find": "many", "filter": { "$where": "sleep(400) || true" }, "$db": &database };
    waiting.send(&Message::new(slow));
    wait_until_offered(&path);

    let after = start();
    assert!(before.wait().success());
    after.wait_for_log("took over from the process before, with 4 connections");

    assert_eq!(Message::parse(&waiting.receive()).body().get_f64("ok").unwrap(), 1.0);
    let rest = reader.command(&database, doc! { "getMore": cursor, "collection": "many" });
    assert_eq!(rest.get_document("cursor").unwrap().get_array("nextBatch").unwrap().len(), 6, "{rest}");
    let mut commit = doc! { "commitTransaction": 1 };
    commit.extend(fields);
    assert_eq!(transaction.command("admin", commit).get_f64("ok").unwrap(), 1.0);
    for _ in 0..2 {
        let news = Message::parse(&monitor.receive());
        assert_eq!(news.body().get_str("me").unwrap(), me, "addresses are rewritten as before");
    }
}

#[test]
fn a_passed_socket_outlives_its_processes_and_no_operation_fails() {
    let mongod = Mongod::shared();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let start = || before(mongod).passing(&socket).start();
    let mut docward = start();
    let load = load(&docward.address(), &mongod.fresh_database());
    load.goes_on(100);
    for _ in 0..scaled(2) {
        // Side by side: the next one is there before this one goes.
        let next = start();
        load.goes_on(50);
        assert!(docward.terminate().success());
        docward = next;
        load.goes_on(100);
    }
    load.end();
    // One after the other: clients wait in the queue meanwhile.
    assert!(docward.terminate().success());
    let mut waiting = Client::connect(&socket.local_addr().unwrap().to_string());
    let _docward = start();
    assert_eq!(waiting.command("x", doc! { "ping": 1 }).get_f64("ok").unwrap(), 1.0);
}

/// Backend one advertised address, as behind a balancer: the kernel gives each connection to either process.
#[test]
fn of_two_side_by_side_one_is_killed_and_clients_go_on() {
    let mongod = Mongod::shared();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let start = || before(mongod).passing(&socket).start();
    let (mut killed, staying) = (start(), start());
    let mut load = Load::start();
    for _ in 0..4 {
        let (runtime, client) = driver(&staying.address(), "");
        let numbered = client.database(&mongod.fresh_database()).collection::<Document>("numbered");
        load.add(move || {
            let insert = async { numbered.insert_one(doc! {}).await.map(|_| ()) };
            runtime.block_on(insert).map_err(|error| error.to_string())
        });
    }
    load.goes_on(100);
    killed.kill();
    load.goes_on(200);
    load.end();
}

#[test]
fn who_takes_over_and_dies_before_it_is_ready_changes_nothing() {
    let mongod = Mongod::shared();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("docward.sock");
    let start = Docward::before(&mongod.uri()).argument("--hand-over").argument(path.to_str().unwrap());
    let mut docward = start.start();
    wait_until_offered(&path);
    docward.wait_for_log("did not take over");
    assert!(docward.exited().is_none());
    assert_eq!(Client::connect(&docward.address()).command("x", doc! { "ping": 1 }).get_f64("ok").unwrap(), 1.0);
}

/// Whoever listens at the path and says nothing keeps nobody from listening, or from ending.
#[test]
fn a_silent_process_at_the_path_holds_up_nobody() {
    let mongod = Mongod::shared();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("docward.sock");
    let silent = UnixListener::bind(&path).unwrap();
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_docward"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--upstream", &mongod.uri(), "--hand-over"]).arg(&path);
        Protected::spawn(command.stderr(Stdio::null()).stdout(Stdio::null()), folder.path())
    };
    let mut waiting = start();
    // It asks.
    let _asked = silent.accept().unwrap();
    let began = Instant::now();
    waiting.signal("TERM");
    assert!(waiting.wait().success());
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    let began = Instant::now();
    let docward = Docward::before(&mongod.uri()).argument("--hand-over").argument(path.to_str().unwrap()).start();
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    docward.wait_for_log("does not answer within 5 s");
    wait_until_offered(&path);
}

fn begin(docward: &Docward, database: &str, number: u8) -> (Client, Document) {
    let mut client = Client::connect(&docward.address());
    client.command(database, doc! { "insert": "things", "documents": [{}] });
    let id = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![number; 16] };
    let fields = doc! { "lsid": { "id": id }, "txnNumber": 1_i64, "autocommit": false };
    let mut insert = doc! { "insert": "things", "documents": [{}], "startTransaction": true };
    insert.extend(fields.clone());
    let reply = client.command(database, insert);
    assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{reply}");
    (client, fields)
}

#[test]
fn an_open_transaction_keeps_everybody_connected_until_it_ends() {
    let mongod = Mongod::shared();
    let database = mongod.fresh_database();
    let mut docward = Docward::before(&mongod.uri()).argument("--drain-timeout").argument("10m").start();
    let (mut client, fields) = begin(&docward, &database, 71);
    let mut monitor = Client::connect(&docward.address());
    let hello = monitor.command("admin", doc! { "hello": 1 });
    let version = hello.get_document("topologyVersion").unwrap().clone();
    let body = doc! { "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 60_000, "$db": "admin" };
    monitor.send(&Message::new(body).flags(EXHAUST_ALLOWED));

    docward.signal("TERM");
    docward.wait_for_log("draining");
    assert!(!monitor.closes_within(Duration::from_secs(2)), "drivers stay while the transaction is open");
    let mut commit = doc! { "commitTransaction": 1 };
    commit.extend(fields);
    // By another connection, as pools do.
    assert_eq!(client.command("admin", commit).get_f64("ok").unwrap(), 1.0);
    let word = Message::parse(&monitor.receive());
    let is = |key| word.body().get_bool(key).unwrap();
    assert!(!is("isWritablePrimary") && !is("secondary"), "then they are told to choose another: {:?}", word.body());
    assert_eq!(word.body().get_str("me").unwrap(), docward.address());
    assert!(monitor.closes_within(SOON), "and to come back, by the end of the stream");
    assert!(docward.wait().success());
    assert!(!docward.log().iter().any(|line| line.contains("still")), "{:#?}", docward.log());
}

#[test]
fn a_transaction_that_does_not_end_is_waited_for_so_long_and_no_longer() {
    let mongod = Mongod::shared();
    let mut docward = Docward::before(&mongod.uri()).argument("--drain-timeout").argument("1500ms").start();
    let _open = begin(&docward, &mongod.fresh_database(), 72);
    let started = Instant::now();
    assert!(docward.terminate().success());
    let took = started.elapsed();
    assert!((Duration::from_millis(1400)..SOON).contains(&took), "{took:?}");
    docward.wait_for_log("transactions were still open after 1.5s");
}
