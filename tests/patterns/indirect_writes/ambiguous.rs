//! mongod receives exactly the message that docward evaluated: docward rejects a message with two possible readings,
//! and neither reading is stored.

use bson::raw::RawDocumentBuf;
use bson::{Document, doc};

use super::{Setting, errors};
use support::frame::{CHECKSUM_PRESENT, Frame, Message, Section};
use support::process::TIMEOUT;

/// The fields in this order, with repeated names.
fn raw(fields: &[(&str, bson::RawBson)]) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    for (name, value) in fields {
        document.append(bson::raw::CString::try_from(*name).unwrap(), value.clone());
    }
    document
}

fn value(document: Document) -> bson::RawBson {
    bson::RawBson::Document(RawDocumentBuf::try_from(&document).unwrap())
}

fn list(elements: Vec<RawDocumentBuf>) -> bson::RawBson {
    let mut array = bson::raw::RawArrayBuf::new();
    elements.into_iter().for_each(|element| array.push(element));
    bson::RawBson::Array(array)
}

fn text(text: &str) -> bson::RawBson {
    bson::RawBson::String(text.to_owned())
}

fn message(body: &RawDocumentBuf) -> Frame {
    Message::default().raw_body(body).to_frame(1, 0)
}

/// Every case, with two readings of which at most one would be rejected.
fn cases(database: &str) -> Vec<(&'static str, Frame)> {
    let db = || ("$db", text(database));
    let good = || value(doc! { "$set": { "a": 2 } });
    let bad = || value(doc! { "z": 1 });
    let filter = || ("q", value(doc! { "_id": 1 }));
    let update = |statement: RawDocumentBuf| {
        message(&raw(&[("update", text("bounded")), ("updates", list(vec![statement])), db()]))
    };
    let bounded = |document: RawDocumentBuf| {
        message(&raw(&[("insert", text("bounded")), ("documents", list(vec![document])), db()]))
    };
    let inner = |fields: &[(&str, bson::RawBson)]| bson::RawBson::Document(raw(fields));
    let aggregate = |stage: RawDocumentBuf| {
        message(&raw(&[
            ("aggregate", text("source")),
            ("pipeline", list(vec![stage])),
            ("cursor", value(doc! {})),
            db(),
        ]))
    };
    let set = || doc! { "q": { "_id": 1 }, "u": { "$set": { "a": 2 } } };
    let replace = || doc! { "q": { "_id": 1 }, "u": { "z": 1 } };
    let body = || Message::new(doc! { "update": "blind", "$db": database });
    let with_raw = |bytes: Vec<u8>| {
        let mut message = body().sequence("updates", vec![set()]);
        message.sections.push(Section::Raw(bytes));
        message.to_frame(1, 0)
    };
    let second_body = RawDocumentBuf::try_from(&doc! { "update": "free", "$db": database }).unwrap();
    let mut padded = value_bytes(&set());
    let end = padded.len() - 1;
    padded.splice(end..end, [9]);
    let mut wrong_sum = body().sequence("updates", vec![set()]).flags(CHECKSUM_PRESENT).to_frame(1, 0);
    *wrong_sum.body.last_mut().unwrap() ^= 1;
    let mut long_string = value_bytes(&doc! { "a": "xx" });
    long_string[7] += 1;
    let unlisted = |statements: Vec<u8>| {
        let content = [b"updates\0".as_slice(), &statements].concat();
        let length = i32::try_from(content.len() + 4).unwrap().to_le_bytes();
        let mut message = body();
        message.sections.push(Section::Raw([&[1], &length[..], &content].concat()));
        message.to_frame(1, 0)
    };
    vec![
        (
            "two commands",
            message(&raw(&[("update", text("blind")), ("updates", list(vec![])), ("update", text("free")), db()])),
        ),
        (
            "two $db",
            message(&raw(&[
                ("update", text("blind")),
                ("updates", list(vec![RawDocumentBuf::try_from(&replace()).unwrap()])),
                ("$db", text("elsewhere")),
                db(),
            ])),
        ),
        (
            "two lists in the body",
            message(&raw(&[
                ("update", text("blind")),
                ("updates", list(vec![])),
                ("updates", list(vec![RawDocumentBuf::try_from(&replace()).unwrap()])),
                db(),
            ])),
        ),
        (
            "ordered twice",
            message(&raw(&[
                ("update", text("blind")),
                ("updates", list(vec![])),
                ("ordered", true.into()),
                ("ordered", false.into()),
                db(),
            ])),
        ),
        ("two u", update(raw(&[filter(), ("u", good()), ("u", bad())]))),
        ("two u, the other way round", update(raw(&[filter(), ("u", bad()), ("u", good())]))),
        ("two q", update(raw(&[filter(), filter(), ("u", good())]))),
        ("two upsert", update(raw(&[filter(), ("u", good()), ("upsert", false.into()), ("upsert", true.into())]))),
        (
            "two fields in collation",
            update(raw(&[
                filter(),
                ("u", good()),
                ("collation", inner(&[("locale", text("de")), ("locale", text("fr"))])),
            ])),
        ),
        (
            "two $set",
            update(raw(&[
                filter(),
                ("u", inner(&[("$set", value(doc! { "a": 2 })), ("$set", value(doc! { "a": 3 }))])),
            ])),
        ),
        (
            "a path twice in $set",
            update(raw(&[filter(), ("u", inner(&[("$set", inner(&[("a", 2.into()), ("a", 3.into())]))]))])),
        ),
        (
            "a field twice in a filter",
            update(raw(&[("q", inner(&[("_id", 1.into()), ("_id", 2.into())])), ("u", good())])),
        ),
        (
            "a field twice deep in a filter",
            update(raw(&[
                ("q", inner(&[("$or", list(vec![raw(&[("a", 1.into()), ("a", 2.into())])]))])),
                ("u", good()),
            ])),
        ),
        (
            "a field twice in an inserted document",
            bounded(raw(&[("_id", 9.into()), ("n", 1.into()), ("n", (-1).into())])),
        ),
        (
            "a field twice deep in an inserted document",
            bounded(raw(&[("_id", 9.into()), ("x", inner(&[("n", 1.into()), ("n", (-1).into())]))])),
        ),
        (
            "remove twice",
            message(&raw(&[
                ("findAndModify", text("blind")),
                ("query", value(doc! {})),
                ("remove", false.into()),
                ("remove", true.into()),
                ("update", good()),
                db(),
            ])),
        ),
        ("into twice", aggregate(raw(&[("$merge", inner(&[("into", text("free")), ("into", text("blind"))]))]))),
        (
            "coll twice",
            aggregate(raw(&[(
                "$out",
                inner(&[("db", text(database)), ("coll", text("free")), ("coll", text("blind"))]),
            )])),
        ),
        (
            "out twice",
            message(&raw(&[
                ("mapReduce", text("source")),
                ("map", text("function() {}")),
                ("reduce", text("function() {}")),
                ("out", inner(&[("merge", text("free")), ("merge", text("blind"))])),
                db(),
            ])),
        ),
        (
            "ns twice",
            message(&raw(&[
                (
                    "applyOps",
                    list(vec![raw(&[
                        ("op", text("i")),
                        ("ns", text("x.y")),
                        ("ns", text(&format!("{database}.blind"))),
                        ("o", value(doc! { "_id": 9 })),
                    ])]),
                ),
                db(),
            ])),
        ),
        (
            "list in the body and as a section",
            Message::new(doc! { "update": "blind", "updates": [set()], "$db": database })
                .sequence("updates", vec![replace()])
                .to_frame(1, 0),
        ),
        (
            "two sections of one name",
            body().sequence("updates", vec![set()]).sequence("updates", vec![replace()]).to_frame(1, 0),
        ),
        (
            "an unknown section",
            body().sequence("updates", vec![set()]).sequence("updates.0", vec![replace()]).to_frame(1, 0),
        ),
        ("two bodies", body().sequence("updates", vec![set()]).raw_body(&second_body).to_frame(1, 0)),
        (
            "two bodies, the protected one last",
            Message::new(doc! { "update": "blind", "$db": database }).raw_body(&second_body).to_frame(1, 0),
        ),
        ("a byte behind the sections", with_raw(vec![0])),
        ("a section of another kind", with_raw(vec![2, 5, 0, 0, 0, 0])),
        ("a section without end", with_raw(vec![1, 200, 0, 0, 0, b'x', 0])),
        ("a wrong checksum", wrong_sum),
        ("a byte behind the fields of a statement", unlisted(padded)),
        ("bytes behind the last statement", unlisted([value_bytes(&set()), vec![5, 0]].concat())),
        ("a string longer than its field", unlisted(long_string)),
    ]
}

fn value_bytes(document: &Document) -> Vec<u8> {
    document.to_vec().unwrap()
}

#[test]
fn ambiguous_messages_are_rejected() {
    let mut setting = Setting::new();
    let seeds = || vec![doc! { "_id": 1, "a": 1 }];
    for collection in ["blind", "bounded", "free", "source"] {
        setting.seed(collection, seeds());
    }
    for (name, frame) in cases(&setting.database.clone()) {
        setting.through.send_bytes(&frame.to_bytes());
        let reply = setting.through.receive_within(TIMEOUT).unwrap();
        let reply = reply.unwrap_or_else(|| panic!("{name}: the connection was closed"));
        let reply = Message::parse(&reply).body().clone();
        let errors = errors(&reply);
        assert_eq!(errors.len(), 1, "{name}: {reply}");
        assert!(matches!(errors[0].0, 9 | 121) && errors[0].1.contains("docward"), "{name}: {reply}");
        for collection in ["blind", "bounded", "free"] {
            assert_eq!(setting.stored(collection), seeds(), "{name} changed {collection}");
        }
    }
    // The connection still works.
    let insert = doc! { "insert": "blind", "documents": [{ "_id": 2 }] };
    assert_eq!(setting.through.command(&setting.database, insert).get_i32("n").unwrap(), 1);
}
