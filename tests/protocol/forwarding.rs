//! Edge cases of the wire protocol, on protected and unprotected collections, against a real mongod.
//!
//! Messages without a matching rule must get mongod's own reply. Messages that a rule may match are evaluated in
//! every shape, or rejected (`indirect_writes` tests all indirect writes, `handshake` hellos and opcodes,
//! `bulk_write` replies that mongod cannot be made to send, `hostile` attacks).

use std::sync::OnceLock;
use std::time::Duration;

use bson::raw::RawDocumentBuf;
use bson::{Binary, Bson, Document, doc, spec::BinarySubtype};
use support::driver::ok;
use support::frame::{CHECKSUM_PRESENT, EXHAUST_ALLOWED, MORE_TO_COME, Message, Section};
use support::mongod::Mongod;
use support::process::{SOON, TIMEOUT};
use support::proxy::Docward;
use support::raw::Client;

const RULES: &str = r#"
version: 1
rules:
  - name: no-blind-replace
    namespace: "*.orders"
    replacement: { policy: reject }
  - name: together
    namespace: "*.orders"
    together: [together, here]
  - name: no-drop
    namespace: "*.kept"
    deny: { operations: [drop, find] }
  - name: bounded-time
    namespace: "*.kept"
    defaults: { maxTimeMS: 60000 }
  - name: timestamped
    namespace: "*.timestamped"
    timestamps: { source: $clock }
"#;

const REFUSED: i32 = 121;
const UNREADABLE: i32 = 9;

fn docward() -> &'static Docward {
    static DOCWARD: OnceLock<Docward> = OnceLock::new();
    DOCWARD.get_or_init(|| Docward::start(Mongod::shared(), RULES))
}

/// A fresh database, and connections through docward and directly.
struct Setting {
    database: String,
    through: Client,
    direct: Client,
}

impl Setting {
    fn new() -> Setting {
        Setting {
            database: Mongod::shared().fresh_database(),
            through: Client::connect(&docward().address()),
            direct: Client::connect(&Mongod::shared().address()),
        }
    }

    fn message(&self, mut body: Document) -> Message {
        body.insert("$db", &self.database);
        Message::new(body)
    }

    fn seed(&mut self, collection: &str, documents: Vec<Document>) {
        self.direct.seed(&self.database, collection, documents);
    }

    /// The stored documents, read without docward.
    fn stored(&mut self, collection: &str) -> Vec<Document> {
        self.direct.stored(&self.database, collection)
    }

    fn command(&mut self, command: Document) -> Document {
        self.through.command(&self.database, command)
    }
}

/// The error code of a command; 0 if it has none.
fn code(reply: &Document) -> Option<i32> {
    (!ok(reply)).then(|| reply.get_i32("code").unwrap_or(0))
}

/// The code of the only write error.
fn write_error(reply: &Document) -> Option<i32> {
    let errors = reply.get_array("writeErrors").ok()?;
    assert_eq!(errors.len(), 1, "{reply}");
    Some(errors[0].as_document().unwrap().get_i32("code").unwrap())
}

fn replacement() -> Document {
    doc! { "q": { "_id": 1 }, "u": { "a": 2 } }
}

#[test]
fn sections_are_read_in_any_order_and_arrays_as_well() {
    let mut setting = Setting::new();
    for (collection, refused) in [("orders", Some(REFUSED)), ("free", None)] {
        let insert = || setting.message(doc! { "insert": collection });
        let array = setting.message(doc! { "insert": collection, "documents": [{ "_id": 3 }] });
        let inserts = [
            insert().sequence("documents", vec![doc! { "_id": 1 }]),
            insert().sequence_first("documents", vec![doc! { "_id": 2 }]),
            array,
        ];
        let update = || setting.message(doc! { "update": collection });
        let array = setting.message(doc! { "update": collection, "updates": [replacement()] });
        let updates = [
            update().sequence("updates", vec![replacement()]),
            update().sequence_first("updates", vec![replacement()]),
            array,
        ];
        for message in inserts {
            assert_eq!(setting.through.exchange(&message).body().get_i32("n").unwrap(), 1, "{message:?}");
        }
        for message in updates {
            assert_eq!(write_error(setting.through.exchange(&message).body()), refused, "{message:?}");
        }
        let expected = if refused.is_some() {
            doc! { "_id": 1 }
        } else {
            doc! { "_id": 1, "a": 2 }
        };
        assert_eq!(setting.stored(collection)[0], expected);
    }
}

#[test]
fn ambiguous_messages_are_rejected_for_protected_and_forwarded_for_unprotected_collections() {
    let mut setting = Setting::new();
    let database = setting.database.clone();
    for collection in ["orders", "free"] {
        let insert = || setting.message(doc! { "insert": collection });
        let list = || vec![doc! { "_id": 1 }];
        let mut twice = RawDocumentBuf::new();
        twice.append(bson::cstr!("insert"), collection);
        twice.append(bson::cstr!("documents"), bson::rawbson!([{ "_id": 1 }]));
        twice.append(bson::cstr!("documents"), bson::rawbson!([{ "_id": 2 }]));
        twice.append(bson::cstr!("$db"), database.as_str());
        let mut two_databases = RawDocumentBuf::new();
        two_databases.append(bson::cstr!("insert"), collection);
        two_databases.append(bson::cstr!("documents"), bson::rawbson!([{ "_id": 1 }]));
        two_databases.append(bson::cstr!("$db"), database.as_str());
        two_databases.append(bson::cstr!("$db"), "elsewhere");
        let trailing = |bytes: &[u8]| {
            let mut message = insert().sequence("documents", list());
            message.sections.push(Section::Raw(bytes.to_vec()));
            message
        };
        let cases = [
            setting.message(doc! { "insert": collection, "documents": [{ "_id": 1 }] }).sequence("documents", list()),
            insert().sequence("documents", list()).sequence("documents", list()),
            Message::default().raw_body(&twice),
            Message::default().raw_body(&two_databases),
            insert().sequence("documents", list()).raw_body(&RawDocumentBuf::try_from(doc! { "ping": 1 }).unwrap()),
            trailing(&[0]),
            trailing(&[2, 5, 0, 0, 0, 0]),
            trailing(&[1, 200, 0, 0, 0, b'x', 0]),
            trailing(&[1, 2, 0, 0, 0, b'x', 0]),
        ];
        for message in &cases {
            let expected = answer(&mut setting.direct, &Mongod::shared().address(), message);
            assert_ne!(expected, ClientOutcome::Success, "{message:?}");
            let seen = answer(&mut setting.through, &docward().address(), message);
            let expected = if collection == "orders" { ClientOutcome::Error(UNREADABLE) } else { expected };
            assert_eq!(seen, expected, "{message:?}");
        }
        assert_eq!(setting.stored(collection), []);
    }
}

/// mongod stores such names, and its paths find elements by them. Rules that look at no content leave them alone.
#[test]
fn ambiguous_documents_are_rejected_for_rules_that_look_at_content() {
    /// A document with one array, whose elements have these names.
    fn with_array(names: &[&str]) -> RawDocumentBuf {
        let mut elements = RawDocumentBuf::new();
        names.iter().for_each(|name| elements.append(bson::raw::CString::try_from(*name).unwrap(), 1));
        let mut bytes = bson::rawdoc! { "items": elements }.into_bytes();
        // The type of the only field, after the length.
        bytes[4] = bson::spec::ElementType::Array as u8;
        RawDocumentBuf::from_bytes(bytes).unwrap()
    }
    let mut setting = Setting::new();
    let others: [&[&str]; 6] = [&["5", "6"], &["", "a"], &["00", "01"], &["0", "0"], &["1"], &["0", "2"]];
    for (collection, names) in ["orders", "kept", "free"].iter().flat_map(|name| others.map(|names| (*name, names))) {
        let items = with_array(names);
        let update = bson::rawdoc! { "q": { "_id": 1 }, "u": { "$set": items.clone() }, "upsert": true };
        let find_and_modify = bson::rawdoc! {
            "findAndModify": collection, "query": {}, "update": { "$set": items.clone() }, "$db": setting.database.as_str()
        };
        let raw_sequence = |name: &str, list: RawDocumentBuf| {
            let mut command = RawDocumentBuf::new();
            command.append(bson::raw::CString::try_from(name).unwrap(), collection);
            let list_name = if name == "insert" { "documents" } else { "updates" };
            command.append(bson::raw::CString::try_from(list_name).unwrap(), bson::rawbson!([list]));
            command.append(bson::cstr!("$db"), setting.database.as_str());
            Message::default().raw_body(&command)
        };
        let messages = [
            raw_sequence("insert", items.clone()),
            raw_sequence("update", update),
            Message::default().raw_body(&find_and_modify),
        ];
        let expected = (collection == "orders").then_some(REFUSED);
        for message in &messages {
            let reply = setting.through.exchange(message).body().clone();
            assert_eq!(code(&reply).or_else(|| write_error(&reply)), expected, "{names:?}");
        }
        assert_eq!(setting.stored(collection).is_empty(), collection == "orders", "{names:?}");
    }
}

/// As PHP's driver sends an embedded object: with `__pclass` twice.
#[test]
fn a_field_that_occurs_twice_is_stored_as_it_was_sent() {
    let mut setting = Setting::new();
    let class = || bson::RawBson::from("Person");
    let mut author = RawDocumentBuf::new();
    author.append(bson::cstr!("__pclass"), class());
    author.append(bson::cstr!("__pclass"), class());
    author.append(bson::cstr!("name"), "n");
    let document = bson::rawdoc! { "_id": 1, "author": author.clone() };
    let insert = |setting: &Setting, collection: &str| {
        let mut message = setting.message(doc! { "insert": collection });
        let named = [&b"documents\0"[..], document.as_bytes()].concat();
        let length = (named.len() as i32 + 4).to_le_bytes();
        message.sections.push(Section::Raw([&[1], &length[..], &named].concat()));
        message
    };
    let message = insert(&setting, "kept");
    let reply = setting.through.exchange(&message).body().clone();
    assert_eq!((reply.get_i32("n").unwrap(), write_error(&reply)), (1, None), "{reply}");
    let find = setting.message(doc! { "find": "kept" });
    setting.direct.send(&find);
    let stored = setting.direct.receive_within(TIMEOUT).unwrap().unwrap().to_bytes();
    assert!(stored.windows(document.as_bytes().len()).any(|bytes| bytes == document.as_bytes()));
    let message = insert(&setting, "orders");
    let reply = setting.through.exchange(&message).body().clone();
    assert_eq!(write_error(&reply), Some(REFUSED));
    assert!(reply.to_string().contains("it is ambiguous: field '__pclass' occurs twice"), "{reply}");
}

#[derive(Debug, PartialEq)]
enum ClientOutcome {
    Success,
    Error(i32),
    Closed,
}

/// Sends a message and returns its result; reconnects if the connection was closed.
fn answer(client: &mut Client, address: &str, message: &Message) -> ClientOutcome {
    client.send(message);
    match client.receive_within(TIMEOUT).unwrap() {
        Some(frame) => code(Message::parse(&frame).body()).map_or(ClientOutcome::Success, ClientOutcome::Error),
        None => {
            *client = Client::connect(address);
            ClientOutcome::Closed
        }
    }
}

#[test]
fn checksums_are_verified_in_parsed_messages_and_forwarded_in_others() {
    let mut setting = Setting::new();
    for collection in ["orders", "free", "timestamped"] {
        let message = setting.message(doc! { "insert": collection });
        let message = message.sequence("documents", vec![doc! { "_id": 1, "a": 1 }]).flags(CHECKSUM_PRESENT);
        assert_eq!(setting.through.exchange(&message).body().get_i32("n").unwrap(), 1);
        assert_eq!(setting.stored(collection).len(), 1);
        let mut frame = message.to_frame(77, 0);
        *frame.body.last_mut().unwrap() ^= 1;
        setting.direct.send_bytes(&frame.to_bytes());
        let expected = setting.direct.receive_within(TIMEOUT).unwrap();
        setting.direct = Client::connect(&Mongod::shared().address());
        setting.through.send_bytes(&frame.to_bytes());
        let reply = setting.through.receive_within(TIMEOUT).unwrap();
        if collection == "free" {
            assert_eq!(reply.map(|frame| Message::parse(&frame)), expected.map(|frame| Message::parse(&frame)));
            setting.through = Client::connect(&docward().address());
        } else {
            let reply = Message::parse(&reply.unwrap());
            assert_eq!(code(reply.body()), Some(UNREADABLE));
            assert!(reply.body().get_str("errmsg").unwrap().contains("checksum"), "{reply:?}");
        }
    }
}

#[test]
fn unknown_required_flags_are_rejected_and_optional_ones_ignored() {
    let mut setting = Setting::new();
    for collection in ["orders", "free"] {
        let message =
            |flags| setting.message(doc! { "insert": collection }).sequence("documents", vec![doc! {}]).flags(flags);
        let required = [message(1 << 2), message(1 << 15)];
        let optional = [message(1 << 17), message(1 << 31)];
        for message in required {
            let expected = answer(&mut setting.direct, &Mongod::shared().address(), &message);
            let seen = answer(&mut setting.through, &docward().address(), &message);
            assert_eq!(seen, if collection == "orders" { ClientOutcome::Error(UNREADABLE) } else { expected });
        }
        assert_eq!(setting.stored(collection).len(), 0);
        for message in optional {
            assert_eq!(setting.through.exchange(&message).body().get_i32("n").unwrap(), 1);
        }
    }
}

#[test]
fn an_unknown_command_is_rejected_on_a_protected_collection_only() {
    let mut setting = Setting::new();
    for name in ["Insert", "UPDATE", "insert ", "convertToCapped", "noSuchCommand"] {
        let mut command = |collection: Bson| {
            let mut command = Document::new();
            command.insert(name, collection);
            (setting.command(command.clone()), setting.direct.command(&setting.database, command))
        };
        let (seen, _) = command("orders".into());
        assert_eq!(code(&seen), Some(REFUSED), "{name}: {seen}");
        let info = seen.get_document("errInfo").unwrap().get_document("docward").unwrap();
        assert_eq!(info.get_str("rule").unwrap(), "no-blind-replace");
        let (seen, _) = command(Bson::Symbol("orders".into()));
        assert_eq!(code(&seen), Some(REFUSED), "{name}: {seen}");
        for passes in [Bson::from("free"), Bson::from(1)] {
            let (seen, direct) = command(passes);
            assert_eq!((code(&seen), seen.get("errmsg")), (code(&direct), direct.get("errmsg")), "{name}");
        }
    }
}

#[test]
fn command_aliases_and_odd_names_are_evaluated_like_the_real_names() {
    let mut setting = Setting::new();
    setting.seed("orders", vec![doc! { "_id": 1 }]);
    for name in ["findAndModify", "findandmodify"] {
        let mut command = Document::new();
        command.insert(name, "orders");
        command.extend(doc! { "query": { "_id": 1 }, "update": { "a": 2 } });
        assert_eq!(code(&setting.command(command)), Some(REFUSED));
    }
    let symbol = Bson::Symbol("orders".into());
    let by_symbol = [
        doc! { "update": &symbol, "updates": [replacement()] },
        doc! { "findAndModify": &symbol, "query": {}, "update": { "a": 2 } },
        doc! { "aggregate": "free", "pipeline": [{ "$out": &symbol }], "cursor": {} },
        doc! { "update": "orders\0", "updates": [replacement()] },
        doc! { "update": Binary { subtype: BinarySubtype::Uuid, bytes: vec![1; 16] }, "updates": [replacement()] },
    ];
    for command in by_symbol {
        let reply = setting.command(command.clone());
        assert!(code(&reply).or_else(|| write_error(&reply)).is_some(), "{command}: {reply}");
    }
    for field in ["upsertSupplied", "Q", "$where", ""] {
        let mut statement = doc! { "q": { "_id": 1 }, "u": { "$set": { "a": 3 } } };
        statement.insert(field, true);
        let reply = setting.command(doc! { "update": "orders", "updates": [statement] });
        assert_eq!(code(&reply), Some(UNREADABLE), "{reply}");
        assert!(reply.get_str("errmsg").unwrap().contains(&format!("'{field}'")), "{reply}");
    }
    assert_eq!(setting.stored("orders"), [doc! { "_id": 1 }]);
}

#[test]
fn a_rejected_unacknowledged_write_gets_no_reply() {
    let mut setting = Setting::new();
    let unacknowledged = |setting: &Setting, name: &str, list: &str, statements: Vec<Document>| {
        let mut body = Document::new();
        body.insert(name, "orders");
        body.insert("ordered", false);
        body.insert("writeConcern", doc! { "w": 0 });
        setting.message(body).sequence(list, statements).flags(MORE_TO_COME)
    };
    setting.through.send(&unacknowledged(&setting, "insert", "documents", vec![doc! { "_id": 1 }, doc! { "_id": 2 }]));
    let set = doc! { "q": { "_id": 2 }, "u": { "$set": { "a": 3 } } };
    setting.through.send(&unacknowledged(&setting, "update", "updates", vec![replacement(), set]));
    setting.through.send(&unacknowledged(&setting, "update", "updates", vec![replacement()]));
    // The next reply answers the next request: the writes before it got none.
    let reply = setting.command(doc! { "count": "orders" });
    assert_eq!(reply.get_i32("n").unwrap(), 2);
    assert_eq!(setting.stored("orders"), [doc! { "_id": 1 }, doc! { "_id": 2, "a": 3 }]);
    // A malformed unacknowledged message ends the connection, the only way to report it.
    let unreadable = unacknowledged(&setting, "update", "updates", vec![doc! { "nonsense": 1 }]);
    setting.through.send(&unreadable);
    assert!(setting.through.closes_within(SOON));
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let mut setting = Setting::new();
    setting.seed("orders", vec![doc! { "_id": 1 }]);
    let evaluated = setting.message(doc! { "update": "orders", "updates": [replacement()] });
    let passed = setting.message(doc! { "update": "orders", "updates": [{ "q": {}, "u": { "$set": { "a": 1 } } }] });
    let silent = setting.message(doc! { "insert": "orders", "documents": [{ "_id": 2 }] }).flags(MORE_TO_COME);
    let slow = setting.message(doc! { "find": "orders", "filter": { "$where": "sleep(100) || true" } });
    let free = setting.message(doc! { "insert": "free", "documents": [{}] });
    let hello = setting.message(doc! { "hello": 1 });
    let refused = setting.message(doc! { "Insert": "orders" });
    let messages = [&slow, &evaluated, &free, &silent, &evaluated, &hello, &passed, &refused, &slow, &free, &evaluated];
    let mut bytes = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        bytes.extend(message.to_frame(100 + index as i32, 0).to_bytes());
    }
    // Sent whole, and in two parts that split a frame.
    for cut in [bytes.len(), 30, bytes.len() / 2] {
        setting.through.send_bytes(&bytes[..cut]);
        std::thread::sleep(Duration::from_millis(30));
        setting.through.send_bytes(&bytes[cut..]);
        for (index, message) in messages.iter().enumerate().filter(|(_, message)| message.flags == 0) {
            let reply = setting.through.receive();
            assert_eq!(reply.response_to, 100 + index as i32);
            let reply = Message::parse(&reply).body().clone();
            match message.body().keys().next().unwrap().as_str() {
                "update" if message.body() == evaluated.body() => assert_eq!(write_error(&reply), Some(REFUSED)),
                "Insert" => assert_eq!(code(&reply), Some(REFUSED)),
                "hello" => assert_eq!(reply.get_str("me").unwrap(), docward().address()),
                _ => assert!(ok(&reply), "{reply}"),
            }
        }
    }
}

#[test]
fn a_client_that_closes_its_sending_side_gets_its_replies() {
    let mut setting = Setting::new();
    // After the client's end of stream docward waits five seconds for replies, and creating a collection takes some
    // time.
    setting.seed("free", vec![doc! {}]);
    let insert = setting.message(doc! { "insert": "free", "documents": [{}] });
    let find = setting.message(doc! { "find": "free" });
    setting.through.send(&insert);
    setting.through.send(&find);
    setting.through.finish_sending();
    for _ in 0..2 {
        assert!(ok(Message::parse(&setting.through.receive()).body()));
    }
    assert!(setting.through.closes_within(SOON));
}

#[test]
fn an_exhaust_cursor_streams_and_the_connection_works_after_it() {
    let mut setting = Setting::new();
    for collection in ["orders", "free"] {
        setting.seed(collection, (0..100).map(|id| doc! { "_id": id }).collect());
        let find = setting.command(doc! { "find": collection, "batchSize": 10 });
        let cursor = find.get_document("cursor").unwrap().get_i64("id").unwrap();
        let more = doc! { "getMore": cursor, "collection": collection, "batchSize": 10 };
        let mut previous_id = setting.through.send(&setting.message(more).flags(EXHAUST_ALLOWED));
        let mut frames = 0;
        loop {
            let frame = setting.through.receive();
            assert_eq!(frame.response_to, previous_id);
            previous_id = frame.request_id;
            frames += 1;
            let message = Message::parse(&frame);
            assert!(ok(message.body()));
            if message.flags & MORE_TO_COME == 0 {
                break;
            }
        }
        assert!(frames >= 9, "{frames} frames");
        let reply = setting.command(doc! { "update": collection, "updates": [replacement()] });
        assert_eq!(write_error(&reply), (collection == "orders").then_some(REFUSED));
    }
}

#[test]
fn a_batch_of_only_rejected_statements_gets_a_reply_that_drivers_accept() {
    const STATEMENTS: i32 = 40_000; // their error texts would fill more than one document
    let mut setting = Setting::new();
    let update = setting.message(doc! { "update": "orders", "ordered": false });
    let updates = (0..STATEMENTS).map(|id| doc! { "q": { "_id": id }, "u": { "$set": { "here": 1 } } }).collect();
    let frame = {
        setting.through.send(&update.sequence("updates", updates));
        setting.through.receive()
    };
    let length = frame.body.len();
    assert!(length < 16 << 20, "{length} bytes");
    let reply = Message::parse(&frame).body().clone();
    let errors = reply.get_array("writeErrors").unwrap();
    assert_eq!(errors.len() as i32, STATEMENTS);
    for (index, error) in errors.iter().map(|error| error.as_document().unwrap()).enumerate() {
        assert_eq!((error.get_i32("index").unwrap(), error.get_i32("code").unwrap()), (index as i32, REFUSED));
    }
    assert!(errors[0].as_document().unwrap().get_str("errmsg").unwrap().contains("docward rule 'together' rejects"));
}
