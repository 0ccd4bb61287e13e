//! `limits: memory`: large messages that wait for it, and messages that do not count.

use std::thread;
use std::time::Duration;

use bson::{Document, doc};
use support::frame::Message;
use support::http::get;
use support::mongod::{Kind, Mongod};
use support::process::{Resident, SOON, TIMEOUT, alone, poll};
use support::proxy::{Builder, Docward, ORDERS_PROTECTED};
use support::raw::Client;

const MEGABYTE: usize = 1 << 20;

fn before(mongod: &Mongod, memory: &str) -> Builder {
    Docward::before(&mongod.uri()).rules(ORDERS_PROTECTED).admin().argument("--memory").argument(memory)
}

/// The frame of an insert into a protected collection.
fn insert(database: &str, id: i32, length: usize) -> Vec<u8> {
    let document = doc! { "_id": id, "text": "t".repeat(length) };
    let body = doc! { "insert": "orders", "$db": database };
    Message::new(body).sequence("documents", vec![document]).to_frame(1, 0).to_bytes()
}

fn metric(docward: &Docward, name: &str) -> f64 {
    let page = get(&docward.admin_address(), "/metrics").body;
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    value.unwrap_or_else(|| panic!("no metric {name}"))
}

fn used(docward: &Docward) -> f64 {
    metric(docward, "docward_large_messages_memory_bytes{of=\"use\"}")
}

/// A large message that does not arrive any further while others wait for its memory is closed, and the others go on.
#[test]
fn a_large_message_without_progress_is_closed_while_others_wait() {
    let docward = before(Mongod::shared(), "64MiB").start();
    let database = Mongod::shared().fresh_database();
    let mut stalled = Client::connect(&docward.address());
    stalled.send_bytes(&insert(&database, 1, 15_000_000)[..1_000_000]);
    poll(TIMEOUT, || (used(&docward) > 0.0).then_some(())).unwrap();
    // No request waits for its memory, so it may take its time.
    assert!(!stalled.closes_within(Duration::from_secs(6)));
    let (address, frame) = (docward.address(), insert(&database, 2, 15_000_000));
    // From a thread of its own: sending blocks until docward reads it.
    let other = thread::spawn(move || {
        let mut other = Client::connect(&address);
        other.send_bytes(&frame);
        Message::parse(&other.receive()).body().get_i32("n").ok()
    });
    let line = docward.wait_for_log("large messages wait for memory");
    assert!(line.contains("limit=67108864") && line.contains("waiting=1"), "{line}");
    assert!(stalled.closes_within(SOON), "the stalled message keeps its memory");
    assert_eq!(other.join().unwrap(), Some(1));
    docward.wait_for_log("the client's message arrived too slowly while others waited for memory");
    let closed = || metric(&docward, "docward_connections_ended_total{reason=\"client_stalled\"}");
    assert!(poll(TIMEOUT, || (closed() == 1.0).then_some(())).is_some());
}

/// Threads of docward.
fn threads(docward: &Docward) -> usize {
    std::fs::read_dir(format!("/proc/{}/task", docward.pid())).unwrap().count()
}

/// Large writes that the server does not answer yet occupy a thread each. Enough are left for other clients' messages
/// and for new connections.
#[tokio::test(flavor = "multi_thread")]
async fn large_writes_that_wait_for_the_server_do_not_keep_others_waiting() {
    /// More than 512, tokio's own limit, for each of two cores.
    const WRITES: usize = 1200;
    const LENGTH: usize = 140 * 1024;
    let _alone = alone().await;
    tokio::task::spawn_blocking(|| {
        let mongod = Mongod::start(Kind::Standalone);
        let block = doc! {
            "configureFailPoint": "failCommand", "mode": "alwaysOn",
            "data": {
                "failCommands": ["update"], "blockConnection": true, "blockTimeMS": 60_000, "appName": "blocked",
            },
        };
        assert_eq!(mongod.command("admin", block).get_f64("ok").unwrap(), 1.0);
        let docward = before(&mongod, "1GiB").start();
        let at_rest = (threads(&docward), Resident::of(docward.pid()).now);
        let text = "t".repeat(LENGTH);
        // The match count of a replacement with its version shows docward whether there was a conflict.
        let update = |id: i32| {
            let replace = doc! { "q": { "_id": id, "version": 1 }, "u": { "version": 2, "text": &text } };
            doc! { "update": "orders", "updates": [replace] }
        };
        let mut blocked: Vec<Client> = Vec::new();
        for _ in 0..WRITES {
            let mut client = Client::connect(&docward.address());
            let driver = doc! { "name": "raw", "version": "1" };
            let metadata = doc! { "application": { "name": "blocked" }, "driver": driver, "os": { "type": "x" } };
            client.command("admin", doc! { "hello": 1, "client": metadata });
            let mut update = update(blocked.len() as i32);
            update.insert("$db", "d");
            client.send(&Message::new(update));
            blocked.push(client);
        }
        let counted = (WRITES * 2 * LENGTH) as f64;
        poll(TIMEOUT, || (used(&docward) >= counted).then_some(())).expect("every write has its share");
        let mut other = Client::connect(&docward.address());
        let reply = other.try_command("d", update(-1), Duration::from_secs(20)).expect("a reply");
        assert_eq!(reply.get_i32("n").ok(), Some(0), "{reply}");
        let more = (threads(&docward) - at_rest.0, (Resident::of(docward.pid()).now - at_rest.1) / MEGABYTE);
        eprintln!("{} threads and {} MiB for {WRITES} writes of {LENGTH} bytes", more.0, more.1);
        assert!(!blocked[0].closes_within(Duration::from_millis(1)), "the writes still wait");
    })
    .await
    .unwrap();
}

/// Parts of small messages do not count, so their number is limited only by that of the connections.
#[tokio::test(flavor = "multi_thread")]
async fn parts_of_small_messages_take_their_length() {
    const CLIENTS: usize = 2000;
    const LENGTH: usize = 60 * 1024;
    let _alone = alone().await;
    tokio::task::spawn_blocking(|| {
        let docward = before(Mongod::shared(), "64MiB").without_test_pool().start();
        let message = insert("parts", 1, LENGTH + 1000);
        let hello: Document = doc! { "hello": 1 };
        drop(Client::connect(&docward.address()).command("admin", hello));
        let at_rest = Resident::of(docward.pid()).now;
        let clients: Vec<Client> = (0..CLIENTS)
            .map(|_| {
                let mut client = Client::connect(&docward.address());
                client.send_bytes(&message[..LENGTH]);
                client
            })
            .collect();
        let begun = poll(TIMEOUT, || (metric(&docward, "docward_connections_open") >= CLIENTS as f64).then_some(()));
        assert!(begun.is_some());
        thread::sleep(Duration::from_secs(3));
        let grown = Resident::of(docward.pid()).most - at_rest;
        let each = grown / clients.len();
        eprintln!("{} MiB for {CLIENTS} parts of {LENGTH} bytes, {each} bytes each", grown / MEGABYTE);
        // SECURITY.md and sizing.md state this bound.
        assert!(each <= 80 * 1024, "{each} bytes each");
    })
    .await
    .unwrap();
}
