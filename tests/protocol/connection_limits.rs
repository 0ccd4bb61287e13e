//! Limits: a refused client gets the reason, silent connections are closed, slow readers use bounded memory, and
//! docward survives running out of file descriptors.

use std::time::{Duration, Instant};

use bson::{Document, doc};
use support::driver::refusal;
use support::frame::{Frame, Message, OP_QUERY, OP_REPLY};
use support::http::get;
use support::mongod::{Kind, Mongod};
use support::process::{Resident, SOON, TIMEOUT, poll};
use support::proxy::{Builder, Docward, ORDERS_PROTECTED};
use support::raw::Client;

fn before() -> Builder {
    Docward::before(&Mongod::shared().uri())
}

fn hello() -> Message {
    Message::new(doc! { "hello": 1, "$db": "admin" })
}

/// A client that docward has admitted.
fn admitted_client(docward: &Docward) -> Client {
    let mut client = Client::connect(&docward.address());
    assert_eq!(client.exchange(&hello()).body().get_f64("ok").unwrap(), 1.0);
    client
}

/// The reply to the first message.
fn first_reply(docward: &Docward) -> Document {
    let mut client = Client::connect(&docward.address());
    let reply = client.exchange(&hello()).body().clone();
    if reply.get_f64("ok").unwrap() == 0.0 {
        assert!(client.closes_within(SOON));
    }
    reply
}

/// Health checks of load balancers connect and send nothing.
#[test]
fn a_client_that_completes_no_message_costs_the_server_no_connection() {
    let mongod = Mongod::start(Kind::Standalone);
    let docward = Docward::before(&mongod.uri()).rules(ORDERS_PROTECTED).start();
    let first = admitted_client(&docward);
    let created = || {
        let status = mongod.command("admin", doc! { "serverStatus": 1 });
        status.get_document("connections").unwrap().get_i32("totalCreated").unwrap()
    };
    let before = created();
    let bytes = hello().to_frame(1, 0).to_bytes();
    let mut clients: Vec<Client> = (0..60).map(|_| Client::connect(&docward.address())).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        client.send_bytes(&bytes[..[0, 10, bytes.len() - 1][index % 3]]);
    }
    // A later client is served after them.
    let last = admitted_client(&docward);
    // The command itself, the last client, and docward's monitor need some.
    let opened = created() - before;
    assert!(opened < 10, "{opened} server connections");
    drop((first, clients, last));
}

/// isMaster, as drivers send it before they know the server.
fn legacy_hello() -> Frame {
    let body = bson::RawDocumentBuf::try_from(&doc! { "isMaster": 1, "helloOk": true }).unwrap();
    let fixed = [&[4, 0, 0, 0][..], b"admin.$cmd\0", &[0; 4], &[0xff; 4]].concat();
    Frame { request_id: 1, response_to: 0, op_code: OP_QUERY, body: [&fixed, body.as_bytes()].concat() }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_over_the_limit_get_the_reason() {
    for (flag, words) in
        [("--connections", "limits: connections"), ("--connections-per-address", "the limit for one address")]
    {
        let docward = before().argument(flag).argument("3").start();
        let mut held: Vec<Client> = (0..3).map(|_| admitted_client(&docward)).collect();
        let refused = first_reply(&docward);
        assert_eq!(refused.get_i32("code").unwrap(), 365);
        assert!(refused.get_str("errmsg").unwrap().contains(words), "{refused}");
        let mut client = Client::connect(&docward.address());
        client.send_bytes(&legacy_hello().to_bytes());
        let reply = client.receive();
        assert_eq!((reply.op_code, reply.response_to), (OP_REPLY, 1));
        assert!(String::from_utf8_lossy(&reply.body).contains(words));
        let error = refusal(&docward.uri(), words).await;
        assert!(error.contains(words), "{error}");
        assert!(docward.wait_for_log("connection refused").contains(words));
        held.pop();
        poll(TIMEOUT, || (first_reply(&docward).get_f64("ok").unwrap() == 1.0).then_some(())).unwrap();
        // The other connections are not affected.
        held.iter_mut().for_each(|client| assert!(client.exchange(&hello()).body().contains_key("maxWireVersion")));
    }
}

#[test]
fn a_connection_without_a_complete_first_message_is_closed() {
    let docward = before().argument("--handshake-timeout").argument("1s").start();
    let whole = hello().to_frame(1, 0).to_bytes();
    for sent in [0, 1, 16, whole.len() - 1] {
        let started = Instant::now();
        let mut client = Client::connect(&docward.address());
        client.send_bytes(&whole[..sent]);
        assert!(client.closes_within(SOON), "{sent}");
        assert!(started.elapsed() >= Duration::from_secs(1));
    }
    docward.wait_for_log("sent no message within 1s");
    let mut client = admitted_client(&docward);
    assert!(!client.closes_within(Duration::from_secs(2)), "after its first message it may be idle");
}

#[test]
fn an_idle_connection_is_closed() {
    let docward = before().argument("--idle-timeout").argument("3s").start();
    let database = Mongod::shared().fresh_database();
    Mongod::shared().command(&database, doc! { "insert": "c", "documents": [{}] });
    let hello = Mongod::shared().command("admin", doc! { "hello": 1 });
    // The connection sends its request at once, because it would otherwise reach the idle timeout.
    let slow = doc! { "find": "c", "filter": { "$where": "sleep(10000) || true" }, "$db": &database };
    let mut busy = Client::connect(&docward.address());
    busy.send(&Message::new(slow));
    // The streamed hello of drivers' monitors: the server answers on a change, or after this time.
    let version = hello.get_document("topologyVersion").unwrap();
    let await_change = doc! { "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 10_000, "$db": "admin" };
    let mut waiting = Client::connect(&docward.address());
    waiting.send(&Message::new(await_change));
    let started = Instant::now();
    let mut idle = admitted_client(&docward);
    assert!(idle.closes_within(SOON));
    assert!(started.elapsed() >= Duration::from_millis(2250), "{:?}", started.elapsed());
    for client in [&mut busy, &mut waiting] {
        assert_eq!(Message::parse(&client.receive()).body().get_f64("ok").unwrap(), 1.0);
        assert!(client.closes_within(SOON), "now it is idle");
    }
}

/// Private memory of docward in KiB.
fn resident(docward: &Docward) -> u64 {
    Resident::of(docward.pid()).now as u64 / 1024
}

#[test]
fn clients_that_do_not_read_large_replies_use_little_memory() {
    const CLIENTS: usize = 8;
    const QUESTIONS: usize = 20;
    let docward = before().start();
    let database = Mongod::shared().fresh_database();
    let document = doc! { "_id": 1, "text": "x".repeat(8_000_000) };
    Mongod::shared().command(&database, doc! { "insert": "c", "documents": [document] });
    // One round first, so that each thread has allocated what it keeps.
    let question = Message::new(doc! { "find": "c", "$db": &database });
    admitted_client(&docward).exchange(&question);
    let at_rest = resident(&docward);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| admitted_client(&docward)).collect();
    for client in &mut clients {
        (0..QUESTIONS).for_each(|_| _ = client.send(&question));
    }
    // The clients request 1.3 GB. The sockets' buffers fill, and then the transfer stops.
    std::thread::sleep(Duration::from_secs(3));
    let grown = resident(&docward).saturating_sub(at_rest);
    assert!(grown < 30 * 1024, "{grown} KiB for {CLIENTS} clients that do not read");
    for client in &mut clients {
        for _ in 0..QUESTIONS {
            assert!(client.receive().body.len() > 8_000_000);
        }
    }
}

/// A message that waits for memory keeps the ones behind it waiting. If its client is gone, they take its place.
#[test]
fn a_client_that_is_gone_does_not_wait_for_memory() {
    let docward = before().rules(ORDERS_PROTECTED).admin().argument("--memory").argument("64MiB").start();
    let database = Mongod::shared().fresh_database();
    let insert = |id: i32, kilobytes: usize| {
        let body = doc! { "insert": "orders", "$db": &database };
        let document = doc! { "_id": id, "text": "t".repeat(kilobytes << 10) };
        Message::new(body).sequence("documents", vec![document]).to_frame(1, 0).to_bytes()
    };
    let waited = |count: usize| {
        let line = format!("docward_large_messages_waited_total {count}\n");
        poll(TIMEOUT, || get(&docward.admin_address(), "/metrics").body.contains(&line).then_some(())).unwrap();
    };
    // Twice their size each, in the half that is not for evaluations: the first two do not fit together, the first and the
    // third do.
    let (first, second, third) = (insert(1, 12 << 10), insert(2, 12 << 10), insert(3, 512));
    let mut holder = admitted_client(&docward);
    let (begun, mut rest) = first.split_at(1 << 20);
    holder.send_bytes(begun);
    poll(TIMEOUT, || (docward_memory(&docward) > 0.0).then_some(())).unwrap();
    let mut gone = admitted_client(&docward);
    gone.send_bytes(&second[..100_000]);
    waited(1);
    let mut client = admitted_client(&docward);
    client.send_bytes(&third[..100_000]);
    waited(2);
    drop(gone);
    client.send_bytes(&third[100_000..]);
    // The first message is slow, but makes progress.
    let reply = poll(Duration::from_secs(20), || {
        let (some, left) = rest.split_at(128 * 1024);
        holder.send_bytes(some);
        rest = left;
        client.receive_within(Duration::from_secs(1)).ok().flatten()
    });
    assert_eq!(Message::parse(&reply.expect("a reply")).body().get_i32("n").ok(), Some(1));
    holder.send_bytes(rest);
    assert_eq!(Message::parse(&holder.receive()).body().get_i32("n").ok(), Some(1));
}

/// Bytes of docward's memory budget that are in use.
fn docward_memory(docward: &Docward) -> f64 {
    let page = get(&docward.admin_address(), "/metrics").body;
    let line = page.lines().find_map(|line| line.strip_prefix("docward_large_messages_memory_bytes{of=\"use\"} "));
    line.unwrap().parse().unwrap()
}

#[test]
fn running_out_of_file_descriptors_is_survived() {
    let started = Instant::now();
    let docward = before().file_limit(60).argument("--handshake-timeout").argument("60s").start();
    let mut first = admitted_client(&docward);
    let crowd: Vec<Client> = (0..80).map(|_| Client::connect(&docward.address())).collect();
    docward.wait_for_log("Too many open files");
    first.exchange(&hello());
    std::thread::sleep(Duration::from_secs(2));
    // Some warnings at the start, and at most two per second.
    let (lines, seconds) = (docward.log().len() as u64, started.elapsed().as_secs());
    assert!(lines < 11 + 2 * seconds, "{lines} lines of log in {seconds} seconds");
    drop(crowd);
    let again = poll(TIMEOUT, || {
        let mut client = Client::connect(&docward.address());
        client.try_send_bytes(&hello().to_frame(1, 0).to_bytes()).ok()?;
        client.receive_within(SOON).ok()??;
        Some(())
    });
    assert!(again.is_some());
    first.exchange(&hello());
}
