//! The server's limits, from both sides: the largest messages and batches pass, messages without a matching rule are
//! streamed without buffering, and a message that a rule would make too large is rejected or split.
//!
//! `hostile` tests sizes that no server accepts.

use bson::spec::BinarySubtype;
use bson::{Binary, DateTime, Document, doc};
use support::driver::write_errors;
use support::frame::{Frame, Message, OP_COMPRESSED};
use support::mongod::Mongod;
use support::process::{Resident, alone};
use support::proxy::Docward;
use support::random::Random;
use support::raw::Client;

const RULES: &str = r#"
version: 1
rules:
  - name: no-blind-replace
    namespace: "*.orders"
    replacement: { policy: reject }
  - name: timestamped
    namespace: "*.devices"
    timestamps: { source: at, hide: true }
  - name: versioned
    namespace: "*.carts"
    replacement: { policy: check_version, version: version }
"#;

const MAX_MESSAGE: usize = 48_000_000;
const MAX_DOCUMENT: usize = 16 * 1024 * 1024;
const MEGABYTE: usize = 1 << 20;

/// Bytes that do not compress.
fn noise(length: usize, seed: u64) -> Binary {
    let mut random = Random(seed);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend(random.next_number().to_le_bytes());
    }
    bytes.truncate(length);
    Binary { subtype: BinarySubtype::Generic, bytes }
}

fn zeros(length: usize, _: u64) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: vec![0; length] }
}

type Fill = fn(usize, u64) -> Binary;

/// A document of exactly `size` bytes.
fn document(id: i32, size: usize, fill: Fill) -> Document {
    let mut document = doc! { "_id": id, "at": DateTime::now(), "filling": zeros(0, 1) };
    let missing = size - document.to_vec().unwrap().len();
    document.insert("filling", fill(missing, 1 + id as u64));
    document
}

/// An insert whose message has exactly `size` bytes.
fn insert(database: &str, collection: &str, size: usize, fill: Fill) -> Message {
    let message =
        |documents| Message::new(doc! { "insert": collection, "$db": database }).sequence("documents", documents);
    let frame = message(Vec::new()).to_frame(0, 0).to_bytes().len();
    let each = (size - frame) / 4;
    let last = size - frame - 3 * each;
    message([each, each, each, last].into_iter().zip(0..).map(|(size, id)| document(id, size, fill)).collect())
}

fn count(database: &str, collection: &str) -> i32 {
    Mongod::shared().command(database, doc! { "count": collection }).get_i32("n").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_message_passes_in_every_form() {
    let _alone = alone().await;
    let docward = Docward::start(Mongod::shared(), RULES);
    for collection in ["free", "orders", "devices"] {
        for compressor in [None, Some((1, "snappy")), Some((2, "zlib")), Some((3, "zstd"))] {
            let database = Mongod::shared().fresh_database();
            // Random bytes would not fit into an OP_COMPRESSED.
            let fill = if compressor.is_some() { zeros } else { noise };
            let message = insert(&database, collection, MAX_MESSAGE, fill);
            let mut client = Client::connect(&docward.address());
            let frame = message.to_frame(1, 0);
            assert_eq!(frame.to_bytes().len(), MAX_MESSAGE);
            let reply = match compressor {
                None => {
                    client.send_bytes(&frame.to_bytes());
                    client.receive()
                }
                Some((id, name)) => {
                    client.command("admin", doc! { "hello": 1, "compression": [name] });
                    client.send_bytes(&frame.compressed(id).to_bytes());
                    client.receive().decompressed().1
                }
            };
            let reply = Message::parse(&reply);
            assert_eq!(reply.body().get_i32("n").unwrap_or(-1), 4, "{collection} {compressor:?} {reply:?}");
            assert_eq!(count(&database, collection), 4);
            let found = client
                .command(&database, doc! { "find": collection, "filter": { "_id": 3 }, "projection": { "_id": 1 } });
            assert_eq!(found.get_f64("ok").unwrap(), 1.0);
            Mongod::shared().command(&database, doc! { "dropDatabase": 1 });
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_statements_pass() {
    const STATEMENTS: i32 = 100_000;
    let _alone = alone().await;
    let docward = Docward::start(Mongod::shared(), RULES);
    let mut client = Client::connect(&docward.address());
    for collection in ["free", "orders", "devices"] {
        let database = Mongod::shared().fresh_database();
        let documents = (0..STATEMENTS).map(|id| doc! { "_id": id, "at": DateTime::now() }).collect();
        let message = Message::new(doc! { "insert": collection, "$db": &database }).sequence("documents", documents);
        assert_eq!(client.exchange(&message).body().get_i32("n").unwrap(), STATEMENTS, "{collection}");
        // The rule of that collection rejects one of them.
        let change = |id: i32| {
            let change = if id == 50_000 {
                doc! { "b": 1 }
            } else {
                doc! { "$set": { "b": 1 } }
            };
            doc! { "q": { "_id": id }, "u": change }
        };
        let updates: Vec<Document> = (0..STATEMENTS).map(change).collect();
        let update = doc! { "update": if collection == "devices" { "free" } else { collection }, "ordered": false, "$db": &database };
        let reply = client.exchange(&Message::new(update).sequence("updates", updates.clone()));
        let expected = if collection == "orders" { vec![(50_000, 121)] } else { vec![] };
        assert_eq!(write_errors(reply.body()), expected, "{collection}");
        // One more statement is too many, for the server or for docward.
        let too_many = [updates, vec![change(1)]].concat();
        let update = doc! { "update": collection, "ordered": false, "$db": &database };
        let reply = client.exchange(&Message::new(update).sequence("updates", too_many));
        assert_eq!(reply.body().get_f64("ok").unwrap(), 0.0, "{collection}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_a_rule_makes_too_large_is_rejected_alone_with_the_rules_name() {
    let _alone = alone().await;
    let docward = Docward::start(Mongod::shared(), RULES);
    let mut client = Client::connect(&docward.address());
    let database = Mongod::shared().fresh_database();
    // A document of the maximum size, so that timestamps do not fit, between two that have room.
    let documents = vec![document(0, 1000, noise), document(1, MAX_DOCUMENT, noise), document(2, 1000, noise)];
    for (collection, ordered, stored, errors) in
        [("free", false, 3, vec![]), ("devices", false, 2, vec![(1, 121)]), ("devices", true, 1, vec![(1, 121)])]
    {
        Mongod::shared().command(&database, doc! { "drop": collection });
        let insert = doc! { "insert": collection, "ordered": ordered, "$db": &database };
        let reply = client.exchange(&Message::new(insert).sequence("documents", documents.clone()));
        assert_eq!((reply.body().get_i32("n").unwrap(), write_errors(reply.body())), (stored, errors), "{collection}");
        assert_eq!(count(&database, collection), stored);
        if collection == "devices" {
            let text = reply.body().to_string();
            assert!(text.contains("docward rule 'timestamped'") && text.contains("16777216 bytes"), "{text}");
        }
    }
    // A command with one statement.
    let find = doc! {
        "findAndModify": "devices", "query": { "_id": 0 },
        "update": { "$set": { "filling": noise(MAX_DOCUMENT + 16 * 1024 - 400, 5), "at": DateTime::now() } },
    };
    let reply = client.command(&database, find);
    assert_eq!(reply.get_i32("code").unwrap(), 121, "{}", reply.get_str("errmsg").unwrap());
    assert!(reply.get_str("errmsg").unwrap().contains("docward rule 'timestamped'"));
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_that_docward_does_not_enlarge_keep_the_servers_errors() {
    let _alone = alone().await;
    let docward = Docward::start(Mongod::shared(), RULES);
    let database = Mongod::shared().fresh_database();
    let too_large = vec![document(1, MAX_DOCUMENT + 1, noise)];
    let errors = [&Mongod::shared().address(), &docward.address()].map(|address| {
        ["orders", "devices"].map(|collection| {
            let insert = doc! { "insert": collection, "$db": &database };
            let reply =
                Client::connect(address).exchange(&Message::new(insert).sequence("documents", too_large.clone()));
            write_errors(reply.body())
        })
    });
    assert_eq!(errors[0], errors[1]);
}

/// The maximum memory of docward while this many clients each send and receive a large message concurrently.
fn peak_with(connections: usize, compressor: Option<(u8, &str)>) -> usize {
    let docward = Docward::start(Mongod::shared(), RULES);
    let database = Mongod::shared().fresh_database();
    let form = |frame: &Frame| compressor.map_or(frame.to_bytes(), |(id, _)| frame.compressed(id).to_bytes());
    let sent = form(&insert(&database, "free", 44_000_000, noise).to_frame(1, 0));
    let find = form(&Message::new(doc! { "find": "free", "batchSize": 4, "$db": &database }).to_frame(2, 0));
    std::thread::scope(|scope| {
        for _ in 0..connections {
            scope.spawn(|| {
                let mut client = Client::connect(&docward.address());
                let list = compressor.map_or(Vec::new(), |(_, name)| vec![name]);
                client.command("admin", doc! { "hello": 1, "compression": list });
                client.send_bytes(&sent);
                client.receive();
                client.send_bytes(&find);
                let reply = client.receive();
                assert_eq!(reply.op_code == OP_COMPRESSED, compressor.is_some());
                assert!(reply.body.len() > 10_000_000);
            });
        }
    });
    Mongod::shared().command(&database, doc! { "dropDatabase": 1 });
    Resident::of(docward.pid()).most
}

#[tokio::test(flavor = "multi_thread")]
async fn large_messages_without_a_rule_use_less_than_a_megabyte_per_connection() {
    // The threads' own memory is the same for few and for many connections.
    const FEW: usize = 4;
    const MANY: usize = 16;
    let _alone = alone().await;
    for compressor in [None, Some((1, "snappy")), Some((2, "zlib")), Some((3, "zstd"))] {
        let (few, many) = (peak_with(FEW, compressor), peak_with(MANY, compressor));
        let each = many.saturating_sub(few) / (MANY - FEW);
        println!("{compressor:?}: {} KiB with {FEW} connections, {} with {MANY}", few / 1024, many / 1024);
        assert!(each < MEGABYTE, "{compressor:?}: {each} bytes for each connection");
        assert!(many < 64 * MEGABYTE, "{compressor:?}: {many} bytes, and one message has 44,000,000");
    }
}
