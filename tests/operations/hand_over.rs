//! docward's end while clients are at work: another process takes over the port and no operation fails, also behind a
//! load balancer; docward waits for running operations.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bson::{Document, doc};
use support::balancer::balance;
use support::certificates::Authority;
use support::driver::scaled;
use support::frame::{EXHAUST_ALLOWED, Message};
use support::mongod::Mongod;
use support::process::{ChildGuard, SOON, TIMEOUT, docward_executable, free_port, poll};
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

/// Threads that work until they are stopped. Each adds one to `done` for every operation and stops at its first
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

    /// Calls `work` repeatedly in a separate thread.
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

    /// Waits for this many further operations, or for a failure.
    fn assert_progress(&self, operations: u64) {
        let from = self.done.load(Ordering::Relaxed);
        let assert_progress = || {
            let enough = self.done.load(Ordering::Relaxed) >= from + operations;
            (enough || self.workers.iter().any(JoinHandle::is_finished)).then_some(())
        };
        poll(TIMEOUT, assert_progress).expect("the load makes no progress");
    }

    /// Stops the threads; panics if an operation failed.
    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let results: Vec<_> = self.workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        assert!(results.iter().all(Result::is_ok), "{results:#?}");
        self.done.load(Ordering::Relaxed)
    }
}

/// Opens a new connection for every operation, in addition to [`drivers`].
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

/// A driver whose timeouts are long enough for a slow machine.
fn driver(address: &str, options: &str) -> (Runtime, mongodb::Client) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let uri = format!("mongodb://{address}/?replicaSet=rs0&connectTimeoutMS=120000{options}");
    let client = runtime.block_on(mongodb::Client::with_uri_str(uri)).unwrap();
    (runtime, client)
}

/// Drivers with pools and without retries, with idle connections and transactions. `options` are appended to the
/// connection string.
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

/// Operations in flight have long timeouts, because the machine may be slow.
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
    load.assert_progress(100);
    for _ in 0..scaled(3) {
        let next = start();
        assert!(docward.wait().success());
        docward.wait_for_log("another process has taken over");
        next.wait_for_log("took over from the previous process");
        assert!(!docward.log().iter().any(|line| line.contains("still")), "{:#?}", docward.log());
        docward = next;
        load.assert_progress(100);
    }
    let done = load.end();
    println!("{done} operations");
}

#[test]
fn with_tls_no_operation_fails() {
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
    load.assert_progress(50);
    for _ in 0..scaled(2) {
        let next = start();
        assert!(docward.wait().success());
        docward = next;
        load.assert_progress(50);
    }
    load.end();
}

/// The socket file exists before the process listens on it. A connection that only checks has no effect.
fn wait_until_listening(path: &Path) {
    drop(poll(TIMEOUT, || UnixStream::connect(path).ok()).unwrap());
}

/// The next process gets the listeners only. The previous one ends its running operations first. Transactions and
/// cursors belong to sessions of the server, so they continue through the next process.
#[test]
fn the_previous_process_finishes_its_work_while_the_next_one_accepts() {
    let mongod = Mongod::shared();
    let database = mongod.fresh_database();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("docward.sock");
    let start = || before(mongod).argument("--hand-over").argument(path.to_str().unwrap()).start();
    let mut before = start();
    let (transaction, fields) = begin(&before, &database, 73);
    let documents: Vec<Document> = (0..9).map(|id| doc! { "_id": id }).collect();
    let mut reader = Client::connect(&before.address());
    reader.command(&database, doc! { "insert": "many", "documents": documents });
    let first = reader.command(&database, doc! { "find": "many", "batchSize": 3 });
    let cursor = first.get_document("cursor").unwrap().get_i64("id").unwrap();
    let mut waiting = Client::connect(&before.address());
    let slow = doc! { "find": "many", "filter": { "$where": "sleep(400) || true" }, "$db": &database };
    waiting.send(&Message::new(slow));
    wait_until_listening(&path);

    let after = start();
    before.wait_for_log("another process has taken over");
    let mut fresh = Client::connect(&after.address());
    assert_eq!(fresh.command("x", doc! { "ping": 1 }).get_f64("ok").unwrap(), 1.0);
    assert_eq!(Message::parse(&waiting.receive()).body().get_f64("ok").unwrap(), 1.0);
    assert!(before.wait().success());
    drop(transaction);
    let mut commit = doc! { "commitTransaction": 1 };
    commit.extend(fields);
    let committed = fresh.command("admin", commit);
    assert_eq!(committed.get_f64("ok").unwrap(), 1.0, "{committed}");
    let rest = fresh.command(&database, doc! { "getMore": cursor, "collection": "many" });
    assert_eq!(rest.get_document("cursor").unwrap().get_array("nextBatch").unwrap().len(), 6, "{rest}");
}

#[test]
fn a_passed_socket_outlives_its_processes_and_no_operation_fails() {
    let mongod = Mongod::shared();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let start = || before(mongod).passing(&socket).start();
    let mut docward = start();
    let load = load(&docward.address(), &mongod.fresh_database());
    load.assert_progress(100);
    for _ in 0..scaled(2) {
        // Overlapping: the next process starts before this one stops.
        let next = start();
        load.assert_progress(50);
        assert!(docward.terminate().success());
        docward = next;
        load.assert_progress(100);
    }
    load.end();
    // One after the other: clients wait in the backlog meanwhile.
    assert!(docward.terminate().success());
    let mut waiting = Client::connect(&socket.local_addr().unwrap().to_string());
    let _docward = start();
    assert_eq!(waiting.command("x", doc! { "ping": 1 }).get_f64("ok").unwrap(), 1.0);
}

/// Several processes at one advertised address, as behind a load balancer: the kernel distributes the connections.
#[test]
fn clients_continue_when_one_of_two_processes_is_killed() {
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
    load.assert_progress(100);
    killed.kill();
    load.assert_progress(200);
    load.end();
}

#[test]
fn a_process_that_dies_during_the_hand_over_changes_nothing() {
    let mongod = Mongod::shared();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("docward.sock");
    let start = Docward::before(&mongod.uri()).argument("--hand-over").argument(path.to_str().unwrap());
    let mut docward = start.start();
    wait_until_listening(&path);
    docward.wait_for_log("did not take over");
    assert!(docward.exited().is_none());
    assert_eq!(Client::connect(&docward.address()).command("x", doc! { "ping": 1 }).get_f64("ok").unwrap(), 1.0);
}

/// A process that listens at the path and stays silent does not prevent docward from starting or ending.
#[test]
fn a_silent_process_at_the_path_delays_no_start_or_end() {
    let mongod = Mongod::shared();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("docward.sock");
    let silent = UnixListener::bind(&path).unwrap();
    let start = || {
        let mut command = Command::new(docward_executable());
        command.args(["serve", "--listen", "127.0.0.1:0", "--upstream", &mongod.uri(), "--hand-over"]).arg(&path);
        ChildGuard::spawn(command.stderr(Stdio::null()).stdout(Stdio::null()), folder.path())
    };
    let mut waiting = start();
    // docward sends its request.
    let _asked = silent.accept().unwrap();
    let began = Instant::now();
    waiting.signal("TERM");
    assert!(waiting.wait().success());
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    let began = Instant::now();
    let docward = Docward::before(&mongod.uri()).argument("--hand-over").argument(path.to_str().unwrap()).start();
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    docward.wait_for_log("does not answer within 5 s");
    wait_until_listening(&path);
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

/// A monitor that awaits a change.
fn monitor(address: &str) -> Client {
    let mut monitor = Client::connect(address);
    let hello = monitor.command("admin", doc! { "hello": 1 });
    assert!(hello.get_bool("isWritablePrimary").unwrap(), "{hello}");
    let version = hello.get_document("topologyVersion").unwrap().clone();
    let body = doc! { "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 60_000, "$db": "admin" };
    monitor.send(&Message::new(body).flags(EXHAUST_ALLOWED));
    monitor
}

fn assert_draining(monitor: &mut Client, advertised: &str) {
    let reply = Message::parse(&monitor.receive());
    let is = |key| reply.body().get_bool(key).unwrap();
    assert!(
        !is("isWritablePrimary") && !is("secondary"),
        "the reply must make drivers choose another server: {:?}",
        reply.body()
    );
    assert_eq!(reply.body().get_str("me").unwrap(), advertised);
}

#[test]
fn monitors_learn_of_a_drain_at_once() {
    let mongod = Mongod::shared();
    let database = mongod.fresh_database();
    let mut docward = before(mongod).start();
    let (_open, _) = begin(&docward, &database, 71);
    let mut monitor = monitor(&docward.address());

    docward.signal("TERM");
    assert_draining(&mut monitor, &docward.address());
    assert!(monitor.closes_within(SOON), "the end of the stream must make drivers reconnect");
    assert!(docward.wait().success());
    assert!(!docward.log().iter().any(|line| line.contains("still")), "{:#?}", docward.log());
}

/// Behind a load balancer, a driver's monitor may be connected to another process than the one that drains.
#[test]
fn monitors_at_other_processes_learn_of_a_drain_too() {
    let mongod = Mongod::shared();
    let start = |name: &str, service: &str| {
        let member = format!("{}=127.0.0.1:{},{name}", mongod.address(), free_port());
        let docward = Docward::before(&mongod.uri()).without_listen().argument("--member").argument(member);
        if service.is_empty() { docward.start() } else { docward.argument("--service").argument(service).start() }
    };
    let (shared, uri) = ("balancer.example.com:27017", mongod.uri());
    let (mut draining, other, elsewhere) =
        (start(shared, &uri), start(shared, &uri), start("b.example.com:27017", &uri));
    let mut monitors = [&draining, &other].map(|docward| monitor(&docward.address()));
    let mut unaffected = monitor(&elsewhere.address());
    let mut client = Client::connect(&other.address());
    let mut ping = move || assert_eq!(client.command("x", doc! { "ping": 1 }).get_f64("ok").unwrap(), 1.0);
    ping();
    draining.signal("TERM");
    for monitor in &mut monitors {
        assert_draining(monitor, shared);
    }
    assert!(monitors.iter_mut().all(|monitor| monitor.closes_within(SOON)), "drivers must connect again");
    assert!(draining.wait().success());
    ping();
    // What a driver then does.
    drop(monitor(&other.address()));
    other.wait_for_log("another docward with this address drains");
    assert!(!unaffected.closes_within(Duration::from_millis(100)));
    // A process that starts again ignores the drains before.
    let mut again = start(shared, &uri);
    let mut monitor = monitor(&again.address());
    assert!(!monitor.closes_within(Duration::from_secs(2)));
    drop(monitor);
    assert!(again.terminate().success());
    // Without the database the others do not learn of it.
    let unreachable = format!("mongodb://127.0.0.1:{}/?replicaSet=rs0", free_port());
    for (service, expected) in [("", None), (unreachable.as_str(), Some("other docwards do not know of this drain"))] {
        let mut alone = start(shared, service);
        assert!(alone.terminate().success());
        expected.map(|expected| alone.wait_for_log(expected));
    }
}

/// A request that drivers repeat is not executed: the connection closes in its place. Others are executed.
#[test]
fn a_busy_connection_closes_at_a_request_that_drivers_repeat() {
    let mongod = Mongod::shared();
    let database = mongod.fresh_database();
    let mut docward = before(mongod).start();
    let mut client = Client::connect(&docward.address());
    docward.signal("TERM");
    let id = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![75; 16] };
    let retryable = doc! {
        "insert": "things", "documents": [{}], "lsid": { "id": id }, "txnNumber": 1_i64, "$db": &database,
    };
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        let reply = client.command(
            &database,
            doc! { "update": "things", "updates": [{ "q": {}, "u": { "$set": { "a": 1 } }, "multi": true }] },
        );
        assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{reply}");
    }
    // A balancer then uses another process.
    let refused = std::net::TcpStream::connect(docward.address()).map_err(|error| error.kind());
    assert_eq!(refused.err(), Some(std::io::ErrorKind::ConnectionRefused));
    client.send(&Message::new(retryable));
    assert!(client.closes_within(SOON));
    assert!(docward.wait().success());
    assert_eq!(mongod.command(&database, doc! { "count": "things" }).get_i32("n").unwrap(), 0);
}

/// Each transaction and each driver uses both processes, so neither sees all of it.
#[test]
fn behind_a_load_balancer_a_drain_is_short_and_no_operation_fails() {
    let mongod = Mongod::shared();
    let balanced = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = balanced.local_addr().unwrap().to_string();
    let ports = [free_port(), free_port()];
    let start = |port: u16| {
        let member = format!("{}=127.0.0.1:{port},{address}", mongod.address());
        let before = Docward::before(&mongod.uri()).without_listen().argument("--member").argument(member);
        before.argument("--service").argument(mongod.uri()).start()
    };
    let mut docwards = ports.map(start);
    balance(balanced, ports.map(|port| SocketAddr::from(([127, 0, 0, 1], port))).into());
    for _ in 0..scaled(1) {
        for (at, port) in ports.into_iter().enumerate() {
            // New drivers have connections to both processes.
            let load = retrying_drivers(&address, &mongod.fresh_database());
            load.assert_progress(100);
            let began = Instant::now();
            assert!(docwards[at].terminate().success());
            let took = began.elapsed();
            load.assert_progress(100);
            load.end();
            assert!(took < Duration::from_secs(8), "the drain took {took:?}");
            let log = docwards[at].log();
            assert!(!log.iter().any(|line| line.contains("still")), "{log:#?}");
            docwards[at] = start(port);
        }
    }
}

/// Drivers with retryable operations, cursors and transactions, each on several connections.
fn retrying_drivers(address: &str, database: &str) -> Load {
    let mut load = Load::start();
    for _ in 0..3 {
        let (runtime, client) = driver(address, "");
        let (runtime, database) = (Arc::new(runtime), client.database(database));
        let documents = (0..20).map(|_| doc! {});
        runtime.block_on(async { database.collection("many").insert_many(documents).await }).unwrap();
        for worker in 0..4 {
            let (runtime, client, database) = (runtime.clone(), client.clone(), database.clone());
            let work = async move || match worker {
                0 => database.collection("inserted").insert_one(doc! {}).await.map(drop),
                1 => {
                    let mut cursor = database.collection::<Document>("many").find(doc! {}).batch_size(5).await?;
                    while cursor.advance().await? {}
                    Ok(())
                }
                _ => {
                    let collection = database.collection("in_transactions");
                    let transaction = async |session: &mut mongodb::ClientSession| {
                        for _ in 0..2 {
                            collection.insert_one(doc! {}).session(&mut *session).await?;
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        }
                        Ok(())
                    };
                    client.start_session().await?.start_transaction().and_run2(transaction).await
                }
            };
            load.add(move || {
                let done: mongodb::error::Result<()> = runtime.block_on(work());
                done.map_err(|error| format!("worker {worker}: {error}"))
            });
        }
    }
    load
}
