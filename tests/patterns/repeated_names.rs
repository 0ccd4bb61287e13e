//! Documents that have a field twice. mongod ends when an update by pipeline uses such a field, so docward's pipelines
//! must fail before. Such documents are stored past docward.

use std::process::Command;
use std::sync::OnceLock;

use bson::raw::RawDocumentBuf;
use bson::{Document, doc};
use support::frame::Message;
use support::mongod::{Kind, Mongod};
use support::process::docward_executable;
use support::proxy::Docward;
use support::raw::Client;

/// The server of these tests: not the shared one, because a fault ends it.
fn mongod() -> &'static Mongod {
    static STARTED: OnceLock<Mongod> = OnceLock::new();
    STARTED.get_or_init(|| Mongod::start(Kind::ReplicaSet))
}

/// A document with these fields, in which a name can be twice.
fn stored(fields: &[Document]) -> Vec<u8> {
    let bytes: Vec<u8> = fields.iter().flat_map(|field| field.to_vec().unwrap()).collect();
    let mut inner = Vec::new();
    let mut rest = bytes.as_slice();
    while let Some(length) = rest.first_chunk::<4>() {
        let (one, more) = rest.split_at(u32::from_le_bytes(*length) as usize);
        inner.extend_from_slice(&one[4..one.len() - 1]);
        rest = more;
    }
    let mut document = (inner.len() as u32 + 5).to_le_bytes().to_vec();
    document.extend(inner);
    document.push(0);
    document
}

/// Stores documents past docward, as they are.
fn store(mongod: &Mongod, database: &str, collection: &str, documents: &[Vec<u8>]) {
    let mut body = bson::rawdoc! { "delete": collection, "deletes": [{ "q": {}, "limit": 0 }], "$db": database };
    send(mongod, &body);
    let list = documents.iter().map(|bytes| RawDocumentBuf::from_bytes(bytes.clone()).unwrap());
    body = bson::rawdoc! { "insert": collection, "$db": database };
    body.append(bson::raw::cstr!("documents"), list.collect::<bson::RawArrayBuf>());
    let reply = send(mongod, &body);
    assert_eq!(reply.get_i32("n").unwrap() as usize, documents.len(), "{reply}");
}

/// Sends a body as it is.
fn send(mongod: &Mongod, body: &RawDocumentBuf) -> Document {
    let mut frame = support::frame::header((21 + body.as_bytes().len()) as i32, 2013);
    frame.extend_from_slice(&[0; 5]);
    frame.extend_from_slice(body.as_bytes());
    let mut client = Client::connect(&mongod.address());
    client.send_bytes(&frame);
    Message::parse(&client.receive()).body().clone()
}

fn raw_find(mongod: &Mongod, database: &str, collection: &str) -> Vec<u8> {
    let find = bson::rawdoc! { "find": collection, "filter": {}, "$db": database };
    let mut frame = support::frame::header((21 + find.as_bytes().len()) as i32, 2013);
    frame.extend_from_slice(&[0; 5]);
    frame.extend_from_slice(find.as_bytes());
    let mut client = Client::connect(&mongod.address());
    client.send_bytes(&frame);
    let reply = client.receive();
    // The batch, without times.
    let body = &reply.body[5..];
    let parsed = bson::RawDocument::from_bytes(body).unwrap();
    parsed.get_document("cursor").unwrap().get_array("firstBatch").unwrap().as_bytes().to_vec()
}

const RULES: &str = r#"
version: 1
rules:
  - { name: fields, namespace: "DB.fields", timestamps: { source: at, without_source: clock } }
  - { name: listed, namespace: "DB.listed", timestamps: { source: $clock, fields: [z, "d.x"] } }
  - { name: whole, namespace: "DB.whole", timestamps: { source: at, per: document, without_source: clock } }
  - { name: versions, namespace: "DB.versions", replacement: { policy: check_version, version: v } }
  - { name: numbers, namespace: "DB.numbers", sequence: { field: no, counter: c, collection: counters } }
  - { name: nodes, namespace: "DB.nodes", tree: { path: path, parent: parent } }
"#;

/// A collection, its documents past docward, and updates that mongod would end by as docward sends them.
type Case = (&'static str, Vec<Vec<u8>>, Vec<Document>);

fn cases() -> Vec<Case> {
    let twice = |name: &str| {
        stored(&[
            doc! { "_id": 1, "a": 1 },
            doc! { name: 2 },
            doc! { "y": 1 },
            doc! { name: 3 },
            doc! { "pad": "p".repeat(200) },
        ])
    };
    let in_d = |inner: &[Document]| {
        let d = RawDocumentBuf::from_bytes(stored(inner)).unwrap();
        let mut document = bson::rawdoc! { "_id": 1, "pad": "p".repeat(200) };
        document.append(bson::raw::cstr!("d"), d);
        document.into_bytes()
    };
    let set = |fields: Document| doc! { "q": { "_id": 1 }, "u": { "$set": fields } };
    // Deeper than the levels that are examined one by one.
    let bottom = RawDocumentBuf::from_bytes(stored(&[doc! { "x": 1 }, doc! { "x": 2 }, doc! { "l": 1 }])).unwrap();
    let deep = (0..60).fold(bottom, |inner, _| bson::rawdoc! { "n": [inner], "pad": "p" });
    let other = (0..60).fold(doc! { "x": 2, "l": 1 }, |inner, _| doc! { "n": [inner], "pad": "p" });
    vec![
        ("fields", vec![bson::rawdoc! { "_id": 1, "d": deep.clone() }.into_bytes()], vec![set(doc! { "d": &other })]),
        (
            "whole",
            vec![bson::rawdoc! { "_id": 1, "d": deep }.into_bytes()],
            vec![doc! { "q": { "_id": 1 }, "u": { "d": other } }],
        ),
        ("fields", vec![twice("z")], vec![set(doc! { "z": 9 }), set(doc! { "z": { "k": 1 } })]),
        ("fields", vec![twice("last_modified")], vec![set(doc! { "b": 9 })]),
        (
            "fields",
            vec![in_d(&[doc! { "k": 1, "l": 1 }, doc! { "k": 2, "m": "m".repeat(99) }])],
            vec![set(doc! { "d": { "k": 5, "l": 1, "m": "m".repeat(99) } })],
        ),
        (
            "listed",
            vec![twice("z")],
            vec![set(doc! { "z": 9 }), doc! { "q": { "_id": 1 }, "u": { "$unset": { "z": 1 } } }],
        ),
        ("listed", vec![in_d(&[doc! { "x": 1 }, doc! { "x": 2, "m": "m".repeat(99) }])], vec![set(doc! { "d.x": 9 })]),
        (
            "whole",
            vec![twice("z")],
            vec![set(doc! { "z": 9 }), doc! { "q": { "_id": 1 }, "u": { "z": 9, "b": "b".repeat(300) } }],
        ),
        (
            "versions",
            vec![twice("v")],
            vec![doc! { "q": { "_id": 1 }, "u": [{ "$set": { "b": { "$add": ["$a", 1] } } }] }],
        ),
        ("numbers", vec![twice("no")], vec![doc! { "q": { "_id": 1 }, "u": { "b": "b".repeat(300) } }]),
    ]
}

#[test]
fn no_update_ends_the_server() {
    let mongod = mongod();
    let database = mongod.fresh_database();
    let docward = Docward::start(mongod, &RULES.replace("DB", &database));
    let mut client = Client::connect(&docward.address());
    let mut number = 0_i64;
    for (collection, documents, updates) in cases() {
        for update in updates {
            store(mongod, &database, collection, &documents);
            let before = raw_find(mongod, &database, collection);
            let with =
                |more: Document| update.iter().chain(&more).map(|(k, v)| (k.clone(), v.clone())).collect::<Document>();
            let replaces = !update.get_document("u").is_ok_and(|u| u.keys().all(|key| key.starts_with('$')))
                && update.get_array("u").is_err();
            let mut sent = vec![
                doc! { "update": collection, "updates": [&update] },
                doc! { "update": collection, "updates": [with(doc! { "upsert": true })] },
                doc! { "update": collection, "updates": [{ "q": { "_id": 7 }, "u": { "$set": { "b": 1 } } }, &update], "ordered": false },
                doc! { "findAndModify": collection, "query": { "_id": 1 }, "update": update.get("u").unwrap() },
            ];
            if !replaces {
                sent.push(doc! { "update": collection, "updates": [with(doc! { "multi": true })] });
            }
            for mut command in sent.clone().into_iter().chain(sent) {
                number += 1;
                // Each form once alone, and once in a client's transaction.
                let in_transaction = number % 2 == 0;
                let lsid = doc! { "id": bson::Uuid::new() };
                if in_transaction {
                    command.extend(
                        doc! { "lsid": lsid, "txnNumber": number, "startTransaction": true, "autocommit": false },
                    );
                }
                let shown = format!("{collection}: {command}");
                let reply = client.command(&database, command);
                let error = match reply.get_array("writeErrors") {
                    Ok(errors) => errors[0].as_document().unwrap().clone(),
                    Err(_) => reply.clone(),
                };
                assert_eq!(error.get_i32("code").ok(), Some(121), "{shown}: {reply}");
                let info = error.get_document("errInfo").unwrap().get_document("docward").unwrap();
                assert!(
                    info.get_str("reason").unwrap().contains("stored twice in the document with the _id 1"),
                    "{info}"
                );
                assert!(
                    info.get_str("hint").unwrap().contains("check --data")
                        && info.get_str("rule").unwrap() == collection
                );
                assert!(reply.get("errorLabels").is_none(), "{reply}");
                assert_eq!(raw_find(mongod, &database, collection), before, "{shown}");
            }
        }
    }
    assert_eq!(docward.wait_for_log("stored twice").matches("rule=").count(), 1);
    assert!(mongod.is_awake());
}

/// A repeated name in another field does not matter, and no other document is rejected.
#[test]
fn other_documents_are_updated_as_before() {
    let mongod = mongod();
    let database = mongod.fresh_database();
    let docward = Docward::start(mongod, &RULES.replace("DB", &database));
    let mut client = Client::connect(&docward.address());
    for (collection, _, updates) in cases() {
        for update in updates.into_iter().filter(|_| !matches!(collection, "whole" | "numbers")) {
            let pad = doc! { "_id": 1, "a": 1, "z": 1, "v": 1, "d": { "k": [[1], { "x": 2 }] } };
            store(
                mongod,
                &database,
                collection,
                &[stored(&[pad, doc! { "junk": 1 }, doc! { "junk": 2 }, doc! { "junk": 3 }])],
            );
            let reply = client.command(&database, doc! { "update": collection, "updates": [&update] });
            assert_eq!(reply.get_i32("nModified").ok(), Some(1), "{collection}: {update}: {reply}");
            let junk = raw_find(mongod, &database, collection);
            assert_eq!(junk.windows(5).filter(|name| name == b"junk\0").count(), 3, "{collection}: {update}");
        }
    }
    // More fields than one condition examines, and a deep document.
    let many: Document = (0..100).map(|n| (format!("f{n}"), bson::Bson::Int32(n))).collect();
    let deep = (0..60).fold(doc! { "n": 1 }, |inner, _| doc! { "n": inner });
    for fields in [many, doc! { "z": deep }] {
        for upsert in [true, false] {
            let update = doc! { "q": { "_id": 2 }, "u": { "$set": &fields }, "upsert": upsert };
            let reply = client.command(&database, doc! { "update": "fields", "updates": [update] });
            assert!(reply.get_i32("n").ok() == Some(1) && reply.get("writeErrors").is_none(), "{reply}");
        }
    }
}

/// docward's own writes: a move of a subtree, backfill, reset-clock, a counter; and what check --data reports.
#[test]
fn docwards_own_writes_and_tools_survive() {
    let mongod = mongod();
    let database = mongod.fresh_database();
    let rules = RULES.replace("DB", &database);
    let docward = Docward::start(mongod, &rules);
    let mut client = Client::connect(&docward.address());
    store(
        mongod,
        &database,
        "nodes",
        &[
            stored(&[doc! { "_id": "A", "path": null, "parent": null }]),
            stored(&[doc! { "_id": "B", "path": null, "parent": null }]),
            stored(&[
                doc! { "_id": "C", "parent": "B" },
                doc! { "path": ",B," },
                doc! { "y": 1 },
                doc! { "path": ",B,", "pad": "p".repeat(200) },
            ]),
        ],
    );
    let moved = doc! { "q": { "_id": "B" }, "u": { "$set": { "parent": "A" } } };
    let reply = client.command(&database, doc! { "update": "nodes", "updates": [moved] });
    assert!(reply.to_string().contains("stored twice in the document with the _id C"), "{reply}");

    store(
        mongod,
        &database,
        "counters",
        &[stored(&[doc! { "_id": "c", "seq": 1 }, doc! { "y": 1 }, doc! { "seq": 2, "pad": "p".repeat(200) }])],
    );
    let reply = client.command(&database, doc! { "insert": "numbers", "documents": [{ "_id": 1 }] });
    assert!(reply.to_string().contains("has a field twice"), "{reply}");

    let at = bson::DateTime::from_millis(0);
    store(
        mongod,
        &database,
        "fields",
        &[stored(&[doc! { "_id": 1, "at": at }, doc! { "y": 1 }, doc! { "at": at, "pad": "p".repeat(200) }])],
    );
    store(
        mongod,
        &database,
        "whole",
        &[stored(&[
            doc! { "_id": 1, "at": at },
            doc! { "y": 1 },
            doc! { "at": at },
            doc! { "at": at, "pad": "p".repeat(200) },
        ])],
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yaml");
    std::fs::write(&file, &rules).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(docward_executable());
        command.args(arguments).args(["--upstream", &mongod.uri()]);
        let output = command.output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    let file = file.to_str().unwrap();
    let printed = run(&["backfill", "whole", "--rules", file]);
    assert!(printed.contains("set 0, rejected by the server 1 (a field that it uses is stored twice"), "{printed}");
    run(&["reset-clock", "--rules", file, "--rule", "fields"]);
    let printed = run(&["check", file, "--data"]);
    assert!(printed.matches("in which a field is stored twice").count() == 3, "{printed}");
    assert!(mongod.is_awake());
}
