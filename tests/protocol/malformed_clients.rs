//! Hostile clients: docward answers with a clear error or closes the connection, logs it, bounds its memory, and
//! continues to serve all other clients.
//!
//! `protocol` tests unusual but well-formed messages, `upstream_failures` the failures of the server.

use std::time::Duration;

use bson::{Document, doc};
use support::frame::{Message, OP_MSG, Section, header};
use support::mongod::Mongod;
use support::process::{Resident, SOON, alone};
use support::proxy::{Docward, ORDERS_PROTECTED};
use support::random::Random;
use support::raw::Client;

const MEGABYTE: usize = 1 << 20;

/// A docward under attack; call `assert_serves` at the end of the test.
struct Victim(Docward);

impl Victim {
    fn new() -> Victim {
        Victim(Docward::start(Mongod::shared(), ORDERS_PROTECTED))
    }

    fn connect(&self) -> Client {
        Client::connect(&self.0.address())
    }

    /// Asserts that docward runs, has not panicked, and serves a well-behaved driver.
    async fn assert_serves(&mut self) {
        let client = self.0.client().await;
        let database = client.database(&Mongod::shared().fresh_database());
        let orders = database.collection::<Document>("orders");
        orders.insert_one(doc! { "_id": 1 }).await.unwrap();
        orders.update_one(doc! { "_id": 1 }, doc! { "$set": { "a": 1 } }).await.unwrap();
        orders.replace_one(doc! { "_id": 1 }, doc! { "a": 2 }).await.unwrap_err();
        assert!(self.0.exited().is_none());
        assert!(!self.0.log().iter().any(|line| line.contains("panicked")));
    }

    /// Memory in bytes: now, and the maximum.
    fn memory(&self) -> (usize, usize) {
        let Resident { now, most } = Resident::of(self.0.pid());
        (now, most)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_lengths_close_the_connection_and_are_logged() {
    let _alone = alone().await;
    let mut victim = Victim::new();
    for length in [0, 1, 15, -1, 48_000_001, i32::MAX, i32::MIN] {
        let mut client = victim.connect();
        client.send_bytes(&header(length, OP_MSG));
        assert!(client.closes_within(SOON), "length {length}");
        victim.0.wait_for_log(&format!(" {length} "));
    }
    victim.assert_serves().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn senders_of_single_bytes_are_served() {
    let _alone = alone().await;
    let mut victim = Victim::new();
    let database = Mongod::shared().fresh_database();
    let update = doc! { "q": {}, "u": { "a": 1 } };
    for message in [
        Message::new(doc! { "hello": 1, "$db": "admin" }),
        Message::new(doc! { "insert": "free", "documents": [{ "a": 1 }], "$db": &database }),
        Message::new(doc! { "insert": "orders", "documents": [{ "a": 1 }], "$db": &database }),
        Message::new(doc! { "update": "orders", "$db": &database }).sequence_first("updates", vec![update]),
    ] {
        let mut client = victim.connect();
        for byte in message.to_frame(1, 0).to_bytes() {
            client.send_bytes(&[byte]);
        }
        let reply = Message::parse(&client.receive());
        assert_eq!(reply.body().get_f64("ok").unwrap(), 1.0, "{reply:?}");
    }
    victim.assert_serves().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_incomplete_messages_and_silence_affect_no_other_client() {
    let _alone = alone().await;
    let mut victim = Victim::new();
    let silent: Vec<Client> = (0..20).map(|_| victim.connect()).collect();
    let mut waiting = victim.connect();
    waiting.send_bytes(&header(1000, OP_MSG));
    let mut random = Random(7);
    for _ in 0..200 {
        let mut client = victim.connect();
        let garbage: Vec<u8> = (0..random.below(200)).map(|_| random.next_number() as u8).collect();
        let framed = [header(16 + garbage.len() as i32, OP_MSG), garbage].concat();
        // docward may close the connection before all bytes are written.
        let _ = client.try_send_bytes(if random.below(2) == 0 { &framed } else { &framed[16..] });
        if random.below(2) == 0 {
            client.finish_sending();
        }
    }
    let whole = Message::new(doc! { "update": "orders", "updates": [{ "q": {}, "u": {} }], "$db": "x" }).to_frame(1, 0);
    let whole = whole.to_bytes();
    for end in 0..whole.len() {
        let mut client = victim.connect();
        client.send_bytes(&whole[..end]);
        client.finish_sending();
        assert!(client.closes_within(SOON), "cut at {end}");
    }
    assert!(!waiting.closes_within(Duration::from_millis(50)));
    drop(silent);
    victim.assert_serves().await;
}

/// The result of a message: `Err` if the connection was closed.
fn outcome(address: &str, message: &Message) -> Result<(bool, Option<i32>), ()> {
    let mut client = Client::connect(address);
    // The peer may close the connection during the write.
    let _ = client.try_send_bytes(&message.to_frame(1, 0).to_bytes());
    let frame = client.receive_within(SOON).unwrap_or(None).ok_or(())?;
    let body = Message::parse(&frame).body().clone();
    let write_error = body.get_array("writeErrors").ok().and_then(|errors| errors[0].as_document().cloned());
    let code = write_error.as_ref().unwrap_or(&body).get_i32("code").ok();
    Ok((body.get_f64("ok").unwrap() == 1.0, code))
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_that_are_not_bson_get_the_same_result_as_without_docward() {
    let _alone = alone().await;
    let mut victim = Victim::new();
    let database = Mongod::shared().fresh_database();
    let valid = doc! { "_id": 1, "a": "text", "b": { "c": true } }.to_vec().unwrap();
    let broken = |change: fn(&mut Vec<u8>)| {
        let mut document = valid.clone();
        change(&mut document);
        document
    };
    let documents = [
        ("unknown type", broken(|d| d[4] = 0x77)),
        ("string too long", broken(|d| d[16] = 200)),
        ("negative string length", broken(|d| d[16..20].copy_from_slice(&(-1i32).to_le_bytes()))),
        (
            "nested document too long",
            broken(|d| {
                let at = d.len() - 10;
                d[at] = 250;
            }),
        ),
        ("no end", broken(|d| *d.last_mut().unwrap() = 1)),
        (
            "boolean of 7",
            broken(|d| {
                let at = d.len() - 3;
                d[at] = 7;
            }),
        ),
        ("length beyond the message", broken(|d| d[0] = 255)),
        ("length of nothing", broken(|d| d[..4].copy_from_slice(&[0; 4]))),
        ("nested 20,000 deep", nested(20_000)),
    ];
    for (name, document) in documents {
        let size = (4 + 10 + document.len()) as i32;
        let sequence = [&[1][..], &size.to_le_bytes(), b"documents\0", &document].concat();
        for collection in ["orders", "free"] {
            let mut message = Message::new(doc! { "insert": collection, "$db": &database });
            message.sections.push(Section::Raw(sequence.clone()));
            // No rule of the test can be broken by an insert, so the server decides.
            let seen = outcome(&victim.0.address(), &message);
            assert_eq!(seen, outcome(&Mongod::shared().address(), &message), "{name}");
        }
    }
    let count = Mongod::shared().command(&database, doc! { "count": "orders" });
    assert_eq!(count.get_i32("n").unwrap(), 0);
    victim.assert_serves().await;
}

/// `{a: {a: {a: ...}}}`
fn nested(depth: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for level in 0..depth {
        let length = 5 + 8 * (depth - level - 1);
        bytes.extend(i32::try_from(length).unwrap().to_le_bytes());
        if level + 1 < depth {
            bytes.extend(b"\x03a\0");
        }
    }
    bytes.extend(vec![0; depth]);
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_depends_on_received_bytes_not_on_claimed_lengths() {
    let _alone = alone().await;
    let mut victim = Victim::new();
    victim.assert_serves().await;
    let (before, _) = victim.memory();
    // The messages need evaluation, so docward must buffer them; each claims the maximum message length.
    let mut claim =
        Message::new(doc! { "insert": "orders", "$db": "x" }).sequence("documents", vec![]).to_frame(1, 0).to_bytes();
    claim[..4].copy_from_slice(&48_000_000i32.to_le_bytes());
    let claims: Vec<Client> = (0..100)
        .map(|_| {
            let mut client = victim.connect();
            client.send_bytes(&claim);
            client
        })
        .collect();
    victim.assert_serves().await;
    let (after, _) = victim.memory();
    assert!(after < before + 16 * MEGABYTE, "{before} bytes before 100 claims, {after} after");
    drop(claims);
    victim.assert_serves().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_unprotected_message_streams_through() {
    let _alone = alone().await;
    let mut victim = Victim::new();
    victim.assert_serves().await;
    let (before, _) = victim.memory();
    let database = Mongod::shared().fresh_database();
    let text = "x".repeat(MEGABYTE);
    let documents = (0..40).map(|id| doc! { "_id": id, "text": &text }).collect();
    let message = Message::new(doc! { "insert": "free", "$db": &database }).sequence("documents", documents);
    let reply = victim.connect().exchange(&message);
    assert_eq!(reply.body().get_i32("n").unwrap(), 40);
    let (_, peak) = victim.memory();
    assert!(peak < before + 12 * MEGABYTE, "{before} bytes before, {peak} at most");

    // Replies stream too, to a client that reads them and to one that never does.
    let find = Message::new(doc! { "find": "free", "batchSize": 15, "$db": &database });
    let mut deaf = victim.connect();
    let mut pipelined = Vec::new();
    (0..50).for_each(|id| pipelined.extend(find.to_frame(id, 0).to_bytes()));
    deaf.send_bytes(&pipelined);
    let mut client = victim.connect();
    for _ in 0..5 {
        assert_eq!(client.exchange(&find).body().get_f64("ok").unwrap(), 1.0);
    }
    let (_, peak) = victim.memory();
    assert!(peak < before + 12 * MEGABYTE, "{before} bytes before, {peak} at most");
    drop(deaf);
    victim.assert_serves().await;
}
