//! Well-formed seed frames: driver requests in all forms that docward reads, and replies.

use bson::{DateTime, Document, doc};
use docward::audit::capture::{self, CapturedClient};
use docward::engine::command_of_frame;

use support::frame::{CHECKSUM_PRESENT, Frame, MORE_TO_COME, Message};

/// Returns requests of every class, on protected and unprotected collections.
pub fn frames() -> Vec<Vec<u8>> {
    let session = || doc! { "lsid": { "id": 7 }, "txnNumber": 3i64 };
    let at = DateTime::from_millis(77);
    let updates = || {
        vec![
            doc! { "q": { "_id": 1 }, "u": { "$set": { "a": 1, "at": at, "b.c": [1, { "d": "$x" }] }, "$unset": { "e": 1 } } },
            doc! { "q": { "_id": 1, "version": 3 }, "u": { "a": 2 }, "upsert": true, "multi": false },
            doc! { "q": { "$and": [{ "version": { "$eq": 4i64 } }] }, "u": { "_id": 1, "meta": { "version": 2.0 } } },
            doc! { "q": {}, "u": [{ "$set": { "a": 1 } }], "arrayFilters": [], "collation": { "locale": "de" } },
            doc! { "q": { "_id": 1 }, "u": { "$inc": { "available": -1 }, "$push": { "out": { "by": 1 } } } },
            doc! { "q": { "locked": false }, "u": { "$set": { "locked": true } } },
            doc! { "q": { "to": 1 }, "u": { "$push": { "list": { "$each": [1, 2] } } }, "upsert": true },
            doc! { "q": {}, "u": { "$inc": { "n": 1 }, "$currentDate": { "t": true }, "$setOnInsert": { "x": 1 } }, "upsert": true },
        ]
    };
    let documents = || vec![doc! { "_id": 1, "a": { "b": 1 }, "at": at }, doc! { "no": 5 }, doc! {}];
    let mut messages = Vec::new();
    for (db, collection) in [
        ("shop", "orders"),
        ("shop", "customers"),
        ("x", "carts"),
        ("iot", "devices"),
        ("iot", "states"),
        ("shop", "users"),
        ("shop", "books"),
        ("shop", "jobs"),
        ("shop", "inbox"),
        ("shop", "free"),
    ] {
        let finish = |mut body: Document| {
            body.insert("$db", db);
            Message::new(body)
        };
        messages.push(finish(doc! { "insert": collection, "ordered": false }).sequence("documents", documents()));
        messages.push(finish(doc! { "insert": collection, "documents": documents(), "comment": { "at": 5 } }));
        messages.push(
            finish(doc! { "update": collection, "comment": { "at": 5i64 } }).sequence_first("updates", updates()),
        );
        for update in updates() {
            let mut body = doc! { "update": collection, "updates": [&update], "stmtIds": [9] };
            body.extend(session());
            messages.push(finish(body).flags(CHECKSUM_PRESENT));
            let mut body = doc! { "findAndModify": collection, "query": update.get("q"), "update": update.get("u") };
            body.extend(doc! { "upsert": true, "new": true, "fields": { "a": 1 } });
            messages.push(finish(body));
        }
        let mut transaction = doc! { "update": collection, "updates": updates() };
        transaction.extend(session());
        transaction.extend(doc! { "startTransaction": true, "autocommit": false, "apiVersion": "1" });
        messages.push(finish(transaction));
        messages.push(finish(doc! { "delete": collection, "deletes": [{ "q": {}, "limit": 1 }] }).flags(MORE_TO_COME));
        messages.push(finish(doc! { "find": collection, "projection": { "a": 1 } }));
        let stage = doc! { "$merge": { "into": { "db": db, "coll": collection } } };
        messages.push(finish(doc! { "aggregate": collection, "pipeline": [{ "$match": {} }, stage], "cursor": {} }));
        messages.push(finish(doc! { "mapReduce": "free", "out": { "merge": collection } }));
        messages.push(finish(doc! { "nonsense": collection }));
        let ns = format!("{db}.{collection}");
        messages.push(finish(doc! { "renameCollection": "a.b", "to": &ns }));
        messages.push(finish(doc! { "applyOps": [{ "op": "i", "ns": &ns, "o": {} }] }));
        let ops = vec![
            doc! { "insert": 0, "document": { "a": 1 } },
            doc! { "update": 0, "filter": { "version": 1 }, "updateMods": { "a": 1 }, "upsert": true },
            doc! { "delete": 1, "filter": {}, "multi": true },
        ];
        let info = vec![doc! { "ns": ns }, doc! { "ns": "shop.free" }];
        messages.push(finish(doc! { "bulkWrite": 1 }).sequence("ops", ops.clone()).sequence("nsInfo", info.clone()));
        messages.push(finish(doc! { "bulkWrite": 1, "ops": ops, "nsInfo": info, "ordered": false }));
    }
    let hello =
        doc! { "hello": 1, "compression": ["zlib"], "client": { "application": { "name": "a" } }, "$db": "admin" };
    messages.push(Message::new(hello.clone()));
    let mut frames: Vec<Vec<u8>> = messages.iter().map(|message| message.to_frame(11, 0).to_bytes()).collect();
    frames.push(Frame::query(1, "admin.$cmd", &doc! { "$query": hello }).to_bytes());
    frames
}

/// Returns a log and a profile of mongod 6.0, line by line and whole, and captures of every request.
pub fn traffic() -> Vec<Vec<u8>> {
    let texts = [include_str!("../../docs/examples/mongod.log"), include_str!("profile.jsonl")];
    let lines = texts.iter().flat_map(|text| text.lines());
    let mut messages: Vec<Vec<u8>> = texts.iter().copied().chain(lines).map(|text| text.as_bytes().to_vec()).collect();
    let users = [("admin".to_owned(), "root".to_owned())];
    for (number, frame) in (1..).zip(frames()) {
        let Some(command) = command_of_frame(&frame) else { continue };
        let (connection, milliseconds) = (number % 3, 1_790_000_000_000 + number);
        let sender = CapturedClient {
            connection,
            client: "127.0.0.1:5",
            app: Some("billing"),
            users: Some(&users),
            milliseconds,
        };
        messages.push([capture::header(), capture::record(&sender, command.as_document())].concat());
    }
    messages
}

/// Returns server replies to commands that docward sends.
pub fn replies() -> Vec<Vec<u8>> {
    let error = doc! { "index": 0, "code": 11000, "errmsg": "E11000", "keyPattern": { "a.no": 1, "version": 1 } };
    let bodies = [
        doc! { "n": 1, "nModified": 1, "ok": 1.0, "operationTime": 5, "retriedStmtIds": [0, 1] },
        doc! { "n": 0, "nModified": 0, "ok": 1.0 },
        doc! { "n": 1, "upserted": [{ "index": 0, "_id": 1 }], "ok": 1.0, "writeConcernError": { "code": 64 } },
        doc! { "n": 0, "writeErrors": [&error], "ok": 1.0 },
        doc! { "lastErrorObject": { "n": 1, "updatedExisting": true }, "value": { "a": 1 }, "ok": 1.0 },
        doc! { "ok": 0.0, "code": 11000, "errmsg": "E11000", "keyPattern": { "a.no": 1 } },
        doc! { "ok": 0.0, "code": 112, "errorLabels": ["TransientTransactionError"] },
        doc! { "cursor": { "id": 0i64, "firstBatch": [{ "ok": 1.0, "idx": 0, "n": 1 }, { "ok": 0.0, "idx": 1, "code": 1 }] }, "nErrors": 1, "nMatched": 1, "ok": 1.0 },
        doc! { "cursor": { "id": 5i64, "firstBatch": [{ "ok": 1.0, "idx": 0, "n": 1 }] }, "nErrors": 0, "ok": 1.0 },
        doc! { "cursor": { "id": 0i64, "nextBatch": [{ "ok": 1.0, "idx": 1, "n": 1 }] }, "ok": 1.0 },
        doc! { "cursor": { "id": 0i64, "firstBatch": [{ "a": { "no": 41 } }] }, "ok": 1.0 },
        doc! { "cursor": { "id": 0i64, "firstBatch": [{ "_id": 1, "path": ",a," }, { "_id": "b", "path": null }] }, "ok": 1.0 },
        doc! { "ok": 0.0, "code": 112, "errmsg": "in the way", "errorLabels": ["TransientTransactionError"] },
        doc! { "ok": 0.0, "code": 117, "errmsg": "in use" },
        doc! { "authInfo": { "authenticatedUsers": [{ "user": "root", "db": "admin" }] }, "ok": 1.0 },
        doc! { "hosts": ["a:1", "b:2"], "arbiters": [], "me": "a:1", "primary": "b:2", "ok": 1.0 },
    ];
    bodies.iter().map(|body| Message::new(body.clone()).to_frame(50, 11).to_bytes()).collect()
}
