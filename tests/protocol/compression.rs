//! OP_COMPRESSED in front of a real mongod: negotiation, evaluation of compressed messages like plain ones, replies
//! in the request's form, and different compressors on the two sides.
//!
//! The format itself is tested in `wire::compressed`; pymongo's side is `tests/python/test_compression.py`.

use bson::{Bson, Document, doc};
use futures_util::TryStreamExt;
use mongodb::options::ClientOptions;
use support::driver;
use support::frame::{EXHAUST_ALLOWED, Frame, MORE_TO_COME, Message, OP_COMPRESSED, OP_MSG};
use support::mongod::{Kind, Mongod};
use support::process::SOON;
use support::proxy::Docward;
use support::raw::Client;

const RULES: &str = r#"
version: 1
rules:
  - name: no-blind-replace
    namespace: "*.orders"
    replacement: { policy: reject }
  - name: numbered
    namespace: "*.invoices"
    sequence: { field: no, counter: no, block: 10 }
  - name: timestamped
    namespace: "*.devices"
    timestamps: { source: at, hide: true }
"#;
const COMPRESSORS: [(u8, &str); 3] = [(1, "snappy"), (2, "zlib"), (3, "zstd")];

/// A raw connection that has agreed on one compressor and uses only that.
struct Compressed {
    client: Client,
    compressor: u8,
    next_id: i32,
}

impl Compressed {
    fn connect(docward: &Docward, compressor: u8, name: &str) -> Compressed {
        let mut client = Client::connect(&docward.address());
        let hello = client.command("admin", doc! { "hello": 1, "compression": ["lz4", name] });
        assert_eq!(hello.get_array("compression").unwrap(), &[Bson::from(name)], "{hello}");
        Compressed { client, compressor, next_id: 100 }
    }

    fn send(&mut self, message: &Message) -> i32 {
        self.next_id += 1;
        self.client.send_bytes(&message.to_frame(self.next_id, 0).compressed(self.compressor).to_bytes());
        self.next_id
    }

    fn receive(&mut self) -> Frame {
        let (compressor, frame) = self.client.receive().decompressed();
        assert_eq!(compressor, self.compressor);
        frame
    }

    fn command(&mut self, database: &str, mut command: Document) -> Document {
        command.insert("$db", database);
        let id = self.send(&Message::new(command));
        let frame = self.receive();
        assert_eq!(frame.response_to, id);
        Message::parse(&frame).body().clone()
    }
}

#[test]
fn compressed_messages_are_evaluated_and_answered_compressed() {
    let docward = Docward::start(Mongod::shared(), RULES);
    for (compressor, name) in COMPRESSORS {
        let database = Mongod::shared().fresh_database();
        let mut client = Compressed::connect(&docward, compressor, name);
        let inserted =
            client.command(&database, doc! { "insert": "orders", "documents": [{ "_id": 1 }, { "_id": 2 }] });
        assert_eq!(inserted.get_i32("n").unwrap(), 2);
        // A rejected statement among others, forwarded in parts.
        let updates = vec![
            doc! { "q": { "_id": 1 }, "u": { "$set": { "a": 1 } } },
            doc! { "q": { "_id": 1 }, "u": { "b": 1 } },
            doc! { "q": { "_id": 2 }, "u": { "$set": { "a": 1 } } },
        ];
        let update = doc! { "update": "orders", "ordered": false, "$db": &database };
        client.send(&Message::new(update).sequence("updates", updates));
        let reply = Message::parse(&client.receive()).body().clone();
        assert_eq!((reply.get_i32("n").unwrap(), driver::write_errors(&reply)), (2, vec![(1, 121)]));
        // A rewritten statement: docward added a number.
        client.command(&database, doc! { "insert": "invoices", "documents": [{}] });
        let found = client.command(&database, doc! { "find": "invoices" });
        let batch = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap().clone();
        assert_eq!(batch[0].as_document().unwrap().get_i32("no").unwrap(), 1);
        // Unacknowledged, both evaluated and unevaluated.
        for collection in ["orders", "free"] {
            let insert = doc! { "insert": collection, "writeConcern": { "w": 0 }, "$db": &database };
            client.send(&Message::new(insert).sequence("documents", vec![doc! { "_id": 9 }]).flags(MORE_TO_COME));
            let count = client.command(&database, doc! { "count": collection, "query": { "_id": 9 } });
            assert_eq!(count.get_i32("n").unwrap(), 1);
        }
        // An error from the server.
        assert_eq!(client.command(&database, doc! { "nonsense": "free" }).get_i32("code").unwrap(), 59);
    }
}

#[test]
fn exhaust_cursors_stream_compressed() {
    let docward = Docward::start(Mongod::shared(), RULES);
    for (compressor, name) in COMPRESSORS {
        for collection in ["free", "devices"] {
            let database = Mongod::shared().fresh_database();
            let mut client = Compressed::connect(&docward, compressor, name);
            let documents: Vec<Document> = (0..10).map(|id| doc! { "_id": id, "at": bson::DateTime::now() }).collect();
            client.command(&database, doc! { "insert": collection, "documents": documents });
            let found = client.command(&database, doc! { "find": collection, "batchSize": 2 });
            let cursor = found.get_document("cursor").unwrap().get_i64("id").unwrap();
            let more = doc! { "getMore": cursor, "collection": collection, "batchSize": 2, "$db": &database };
            let mut previous_id = client.send(&Message::new(more).flags(EXHAUST_ALLOWED));
            let mut seen = 2;
            loop {
                let frame = client.receive();
                assert_eq!(frame.response_to, previous_id);
                previous_id = frame.request_id;
                let message = Message::parse(&frame);
                seen += message.body().get_document("cursor").unwrap().get_array("nextBatch").unwrap().len();
                if message.flags & MORE_TO_COME == 0 {
                    break;
                }
            }
            assert_eq!(seen, 10);
            // Without a pending reply docward carries out an evaluated message.
            client.command(&database, doc! { "insert": "orders", "documents": [{}] });
        }
    }
}

#[test]
fn messages_that_cannot_be_decompressed_get_an_error_and_close_the_connection() {
    let docward = Docward::start(Mongod::shared(), RULES);
    let insert = |collection: &str| {
        let insert = doc! { "insert": collection, "documents": [{ "text": "x".repeat(1000) }], "$db": "hostile" };
        Message::new(insert).to_frame(7, 0)
    };
    for (compressor, name) in COMPRESSORS {
        let other = compressor % 3 + 1;
        let right = |collection: &str| insert(collection).compressed(compressor);
        let changed = |change: &dyn Fn(&mut Vec<u8>)| {
            ["orders", "free"].map(|collection| {
                let mut frame = right(collection);
                change(&mut frame.body);
                frame
            })
        };
        let claim = |size: i32| changed(&|body| body[4..8].copy_from_slice(&size.to_le_bytes()));
        let frames = [
            // CVE-2025-14847: a message shorter than its declared length.
            claim(1_000_000),
            claim(47_999_984),
            claim(100),
            claim(-1),
            claim(i32::MAX),
            changed(&|body| body[8] = 0),
            changed(&|body| body[8] = 4),
            changed(&|body| body.truncate(20)),
            changed(&|body| body.truncate(5)),
            changed(&|body| body.push(0)),
            changed(&|body| body[..4].copy_from_slice(&OP_COMPRESSED.to_le_bytes())),
            [insert("orders").compressed(other), insert("free").compressed(other)],
        ];
        for (index, frame) in frames.into_iter().flatten().enumerate() {
            let mut client = Compressed::connect(&docward, compressor, name).client;
            client.send_bytes(&frame.to_bytes());
            let error = client.receive();
            assert_eq!(error.response_to, 7);
            let error = Message::parse(&error);
            assert_eq!(error.body().get_i32("code").unwrap(), 9, "{name} {index}: {error:?}");
            assert!(
                error.body().get_str("errmsg").unwrap().to_lowercase().contains("compress"),
                "{name} {index}: {error:?}"
            );
            assert!(client.closes_within(SOON), "{name} {index}");
        }
    }
    let mut client = Client::connect(&docward.address());
    client.send_bytes(&Frame { op_code: OP_MSG, ..insert("orders") }.compressed(1).to_bytes());
    let error = Message::parse(&client.receive());
    assert!(error.body().get_str("errmsg").unwrap().contains("not agreed"), "{error:?}");
    // An OP_QUERY gets an OP_REPLY.
    let mut client = Client::connect(&docward.address());
    client.send_bytes(&Frame::query(8, "admin.$cmd", &doc! { "isMaster": 1 }).compressed(1).to_bytes());
    assert_eq!(client.receive().reply_document().get_i32("code").unwrap(), 9);
    let stored = Mongod::shared().command("hostile", doc! { "count": "orders" });
    assert_eq!(stored.get_i32("n").unwrap(), 0);
}

/// The number of bytes that mongod has decompressed, per compressor.
fn decompressed(mongod: &Mongod) -> Vec<(String, i64)> {
    let status = mongod.command("admin", doc! { "serverStatus": 1 });
    let Ok(compression) = status.get_document("network").unwrap().get_document("compression") else {
        return Vec::new();
    };
    let bytes = |all: &Document| all.get_document("decompressor").unwrap().get_i64("bytesIn").unwrap();
    compression.iter().map(|(name, all)| (name.clone(), bytes(all.as_document().unwrap()))).collect()
}

/// The usual operations of an application, whose results must not depend on compression.
async fn use_everything(uri: &str, database: &str) {
    let mut options = ClientOptions::parse(uri).await.unwrap();
    options.max_pool_size = Some(1);
    let client = mongodb::Client::with_options(options).unwrap();
    let database = client.database(database);
    let (orders, free) = (database.collection::<Document>("orders"), database.collection::<Document>("free"));
    for collection in [&orders, &free] {
        // Its compressed form exceeds the bytes that docward reads before streaming.
        let noise: Vec<u8> = (0..400_000u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
        let binary = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: noise };
        collection.insert_many((0..20).map(|id| doc! { "_id": id, "binary": &binary })).await.unwrap();
        let found = collection.find(doc! {}).batch_size(7).await.unwrap().try_collect::<Vec<_>>().await.unwrap();
        assert_eq!((found.len(), found[19].get_binary_generic("binary").unwrap()), (20, &binary.bytes));
        collection.update_one(doc! { "_id": 1 }, doc! { "$set": { "a": 1 } }).await.unwrap();
        let found = collection.find_one_and_delete(doc! { "_id": 1 }).await.unwrap();
        assert_eq!(found.unwrap().get_i32("a").unwrap(), 1);
        collection.delete_many(doc! { "_id": { "$gt": 10 } }).await.unwrap();
        assert_eq!(collection.count_documents(doc! {}).await.unwrap(), 10);
    }
    let error = orders.replace_one(doc! { "_id": 2 }, doc! { "a": 2 }).await.unwrap_err();
    assert!(driver::message(&error).contains("no-blind-replace"), "{error}");
    let statements = [doc! { "$set": { "b": 1 } }, doc! { "b": 1 }, doc! { "$set": { "b": 1 } }];
    let updates: Vec<Document> = (2..5).zip(statements).map(|(id, u)| doc! { "q": { "_id": id }, "u": u }).collect();
    let update = doc! { "update": "orders", "updates": updates, "ordered": false };
    let reply = database.run_command(update).await.unwrap();
    assert_eq!((reply.get_i32("n").unwrap(), driver::write_errors(&reply)), (2, vec![(1, 121)]));
    let mut session = client.start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    for collection in [&orders, &free] {
        collection.insert_one(doc! { "_id": 100 }).session(&mut session).await.unwrap();
    }
    session.commit_transaction().await.unwrap();
    assert_eq!(orders.count_documents(doc! { "_id": 100 }).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn both_sides_may_use_the_same_or_different_compressors() {
    let plain = Mongod::start_with(Kind::ReplicaSet, &["--networkMessageCompressors", "disabled"]);
    let only_zlib = Mongod::start_with(Kind::ReplicaSet, &["--networkMessageCompressors", "zlib"]);
    // Its counters must not count what other tests send to the shared one.
    let all = &Mongod::start(Kind::ReplicaSet);
    // The client's list, docward's own list, the server's list, and the compressor that the server receives.
    for (client, own, server, expected) in [
        ("snappy", "", all, "snappy"),
        ("zlib", "", all, "zlib"),
        ("zstd", "", all, "zstd"),
        ("zstd,zlib", "", &only_zlib, "zlib"),
        ("snappy", "", &only_zlib, ""),
        ("snappy,zlib,zstd", "", &plain, ""),
        ("", "zstd", all, "zstd"),
        ("snappy", "zstd,zlib", all, "zstd"),
        ("zlib", "zstd,zlib", all, "zlib"),
        ("zstd", "zlib&zlibCompressionLevel=1", &only_zlib, "zlib"),
        ("zstd", "zstd,snappy", &plain, ""),
    ] {
        let option = |list: &str| if list.is_empty() { String::new() } else { format!("compressors={list}") };
        let upstream = format!("{}&{}", server.uri(), option(own));
        let docward = Docward::before(upstream.trim_end_matches('&')).rules(RULES).start();
        let before = decompressed(server);
        let uri = format!("mongodb://{}/?{}", docward.address(), option(client));
        let case = format!("client {client:?}, upstream {own:?}, expected {expected:?}");
        println!("{case}");
        use_everything(&uri, &server.fresh_database()).await;
        let after = decompressed(server);
        for ((name, before), (_, after)) in before.iter().zip(&after) {
            assert_eq!(after > before, name == expected, "{case}: {name} {before} {after}");
        }
    }
}
