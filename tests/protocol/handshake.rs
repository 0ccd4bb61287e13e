//! hello in all its forms, and the opcodes other than OP_MSG: drivers see only docward's address and negotiate only
//! what docward can read; every other request gets an error in its own opcode.
//!
//! Commands are tested in `protocol`, compressed messages in `compression`.

use std::sync::OnceLock;

use bson::{Bson, Document, doc};
use support::driver::ok;
use support::frame::{EXHAUST_ALLOWED, Frame, MORE_TO_COME, Message};
use support::mongod::Mongod;
use support::process::{SOON, TIMEOUT};
use support::proxy::{Docward, ORDERS_PROTECTED};
use support::raw::Client;

fn docward() -> &'static Docward {
    static DOCWARD: OnceLock<Docward> = OnceLock::new();
    DOCWARD.get_or_init(|| Docward::start(Mongod::shared(), ORDERS_PROTECTED))
}

#[test]
fn every_frame_of_a_streamed_hello_names_docward() {
    let hello = Client::connect(&docward().address()).command("admin", doc! { "hello": 1 });
    let version = hello.get_document("topologyVersion").unwrap().clone();
    for name in ["hello", "isMaster", "ismaster"] {
        let mut body = Document::new();
        body.insert(name, 1);
        body.extend(doc! { "topologyVersion": &version, "maxAwaitTimeMS": 50, "$db": "admin" });
        let mut client = Client::connect(&docward().address());
        let mut previous_id = client.send(&Message::new(body).flags(EXHAUST_ALLOWED));
        for _ in 0..4 {
            let frame = client.receive();
            assert_eq!(frame.response_to, previous_id);
            previous_id = frame.request_id;
            let message = Message::parse(&frame);
            assert_ne!(message.flags & MORE_TO_COME, 0);
            assert_names_docward_only(message.body());
        }
    }
}

fn assert_names_docward_only(hello: &Document) {
    let address = docward().address();
    assert_eq!(hello.get_array("hosts").unwrap(), &[Bson::from(&address)]);
    assert_eq!((hello.get_str("me").unwrap(), hello.get_str("primary").unwrap()), (address.as_str(), address.as_str()));
    assert!(!hello.to_string().contains(&Mongod::shared().address()), "{hello}");
}

#[test]
fn op_query_is_accepted_for_the_handshake_only() {
    let mut client = Client::connect(&docward().address());
    for command in [
        doc! { "isMaster": 1, "helloOk": true, "compression": ["lz4", "zstd", "snappy"] },
        doc! { "ismaster": 1 },
        doc! { "$query": { "isMaster": 1, "compression": ["zstd", "snappy"] }, "$readPreference": { "mode": "secondaryPreferred" } },
    ] {
        client.send_bytes(&Frame::query(7, "admin.$cmd", &command).to_bytes());
        let reply = client.receive();
        assert_eq!(reply.response_to, 7);
        let hello = reply.reply_document();
        assert!(ok(&hello), "{hello}");
        // The second hello does not negotiate: the server repeats the earlier result.
        assert_eq!(hello.get_array("compression").unwrap(), &[Bson::from("zstd"), "snappy".into()]);
        assert_names_docward_only(&hello);
    }
    for (namespace, query) in [
        ("admin.$cmd", doc! { "ping": 1 }),
        ("shop.$cmd", doc! { "insert": "orders", "documents": [{}] }),
        ("shop.$cmd", doc! { "$query": { "insert": "orders", "documents": [{}] } }),
        ("shop.orders", doc! {}),
        ("shop.orders", doc! { "isMaster": 1 }),
    ] {
        client.send_bytes(&Frame::query(8, namespace, &query).to_bytes());
        let reply = client.receive();
        assert_eq!(reply.response_to, 8);
        assert_eq!(reply.reply_document().get_i32("code").unwrap(), 352, "{query}");
    }
}

#[test]
fn legacy_and_unknown_opcodes_close_the_connection() {
    let namespace = [&[0; 4][..], b"test.orders\0", &doc! { "_id": 1 }.to_vec().unwrap()].concat();
    for op_code in [1, 1000, 2001, 2002, 2003, 2005, 2006, 2007, 2010, 2011, 0, -1] {
        let mut client = Client::connect(&docward().address());
        client.send_bytes(&Frame { request_id: 1, response_to: 0, op_code, body: namespace.clone() }.to_bytes());
        assert!(client.closes_within(SOON), "opcode {op_code}");
    }
    docward().wait_for_log("legacy opcode");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_discovers_the_set_stays_with_docward() {
    let uri = format!("mongodb://{}/?replicaSet=rs0", docward().address());
    let client = mongodb::Client::with_uri_str(&uri).await.unwrap();
    let database = Mongod::shared().fresh_database();
    let orders = client.database(&database).collection::<Document>("orders");
    orders.insert_one(doc! { "_id": 1 }).await.unwrap();
    let error = orders.replace_one(doc! { "_id": 1 }, doc! { "a": 2 }).await.unwrap_err();
    assert!(error.to_string().contains("no-blind-replace"), "{error}");
    assert_names_docward_only(&client.database("admin").run_command(doc! { "hello": 1 }).await.unwrap());
}

/// An application name and driver metadata have the same limits as at the server, and nothing is kept of what it refuses.
#[test]
fn long_application_names_are_treated_as_by_the_server() {
    let docward = Docward::start(Mongod::shared(), ORDERS_PROTECTED);
    Mongod::shared().command("names", doc! { "insert": "orders", "documents": [{ "_id": 1 }] });
    let hello = |name: &str, platform: &str| {
        doc! {
            "hello": 1,
            "client": {
                "application": { "name": name }, "driver": { "name": "raw", "version": "1" }, "os": { "type": "x" },
                "platform": platform,
            },
        }
    };
    for (number, (name, platform, accepted)) in
        [(128, 0, true), (129, 0, false), (200_000, 0, false), (1, 900, true), (1, 1024, false)].into_iter().enumerate()
    {
        let (name, platform) = (format!("{number}").repeat(name), "p".repeat(platform));
        let outcomes = [Mongod::shared().address(), docward.address()].map(|address| {
            let mut client = Client::connect(&address);
            let reply = client.command("admin", hello(&name, &platform));
            let outcome = ["ok", "code", "codeName", "errmsg"].map(|field| reply.get(field).cloned());
            (client, outcome)
        });
        let [(_, direct), (mut client, through)] = outcomes;
        assert_eq!(direct, through, "a name of {} bytes", name.len());
        assert_eq!(through[0] == Some(1.0.into()), accepted, "{through:?}");
        let replacement = doc! { "update": "orders", "updates": [{ "q": { "_id": 1 }, "u": { "a": number as i32 } }] };
        let reply = client.try_command("names", replacement, TIMEOUT);
        // The connection is usable after an error, as at the server.
        assert!(reply.is_some_and(|reply| reply.get_array("writeErrors").is_ok()), "a name of {} bytes", name.len());
        let line = docward.wait_for_log(&format!("connection={}", number + 1));
        assert!(line.len() < 2000 && line.contains(&format!("app=\"{name}\"")) == accepted, "{line}");
    }
}
