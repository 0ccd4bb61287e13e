//! Replies that docward assembles or writes itself show what is stored: with a replica set whose secondaries are held
//! back, so that nothing is committed by a majority.

use std::time::Duration;

use bson::{Bson, Document, Timestamp, doc};
use mongodb::options::{ReadConcern, ReadPreference, SelectionCriteria};
use support::driver::{code, ok, write_errors};
use support::process::{TIMEOUT, poll};
use support::proxy::Docward;
use support::raw;
use support::replica_set::ReplicaSet;

const RULES: &str = r#"
version: 1
rules:
  - { name: save, namespace: "*.saves", replacement: { policy: check_version, version: version } }
  - { name: stock, namespace: "*.stock", bounds: { field: n, min: 0, on_no_room: error } }
  - { name: length, namespace: "*.lists", limits: { items: { tags: 2 } } }
  - { name: shape, namespace: "*.shapes", schema_version: { field: schema_version, current: 2, minimum: 1 } }
  - { name: categories, namespace: "*.categories", tree: { path: path, parent: parent } }
  - { name: times, namespace: "*.timed", timestamps: { source: at, type: long } }
"#;

/// A set whose secondaries do not apply the oplog.
struct HeldBack {
    set: ReplicaSet,
    docward: Docward,
}

impl HeldBack {
    fn start() -> HeldBack {
        let set = ReplicaSet::start(3);
        let primary = set.await_primary();
        // With the implicit default of the set nothing could be acknowledged while the secondaries are held back.
        let defaults = doc! {
            "setDefaultRWConcern": 1,
            "defaultReadConcern": { "level": "majority" }, "defaultWriteConcern": { "w": 1 },
            "writeConcern": { "w": 3 },
        };
        let reply = set.member(primary).command("admin", defaults);
        assert!(ok(&reply), "{reply}");
        let docward = Docward::before(&set.uri()).rules(RULES).listeners(3).start();
        // Collections that all members have.
        for collection in ["saves", "stock", "lists", "shapes", "categories", "timed"] {
            let command = doc! { "create": collection, "writeConcern": { "w": 3 } };
            assert!(ok(&set.member(primary).command("t", command)));
        }
        for secondary in set.secondaries() {
            let command = doc! { "configureFailPoint": "rsSyncApplyStop", "mode": "alwaysOn" };
            assert!(ok(&set.member(secondary).command("admin", command)));
        }
        HeldBack { set, docward }
    }

    fn primary(&self) -> raw::Client {
        raw::Client::connect(&self.set.member(self.set.await_primary()).address())
    }

    /// A client of the primary through docward.
    fn through(&self) -> raw::Client {
        let connect = |address: &String| {
            let mut client = raw::Client::connect(address);
            let hello = client.command("admin", doc! { "hello": 1 });
            hello.get_bool("isWritablePrimary").unwrap_or(false).then_some(client)
        };
        poll(TIMEOUT, || self.docward.addresses().iter().find_map(connect)).expect("no primary through docward")
    }

    fn store(&self, collection: &str, document: Document) {
        let reply = self.primary().command("t", doc! { "insert": collection, "documents": [document] });
        assert!(ok(&reply) && write_errors(&reply).is_empty(), "{reply}");
    }
}

/// The code of a statement's error or of the command's; 0 without an error.
fn error_code(reply: &Document) -> i32 {
    let of_statement = || write_errors(reply).first().map(|(_, code)| *code);
    reply.get_i32("code").ok().or_else(of_statement).unwrap_or(0)
}

/// What docward looks up is what is stored, whatever the deployment's default read concern is.
fn look_ups_see_what_is_stored(held_back: &HeldBack) {
    let mut client = held_back.through();
    let cases = [
        ("saves", doc! { "version": 8 }, doc! { "a": 1, "version": 7 }, 112),
        ("saves", doc! { "version": 8 }, doc! { "a": 1 }, 112),
        ("stock", doc! { "n": 1 }, doc! { "$inc": { "n": -5 } }, 121),
        ("lists", doc! { "tags": [1, 2] }, doc! { "$push": { "tags": 3 } }, 121),
        ("shapes", doc! { "schema_version": 3 }, doc! { "a": 1, "schema_version": 2 }, 121),
    ];
    let (mut id, mut wrong) = (0, Vec::new());
    for (collection, stored, change, expected) in cases {
        for upsert in [false, true] {
            for form in ["update", "batch", "findAndModify", "numbered"] {
                id += 1;
                let mut document = doc! { "_id": id };
                document.extend(stored.clone());
                held_back.store(collection, document.clone());
                let statement = doc! { "q": { "_id": id }, "u": &change, "upsert": upsert };
                let mut command = match form {
                    "findAndModify" => {
                        doc! { "findAndModify": collection, "query": { "_id": id }, "update": &change, "upsert": upsert }
                    }
                    "batch" => {
                        let other = doc! { "q": { "_id": -1 }, "u": { "$set": { "x": 1 } } };
                        doc! { "update": collection, "updates": [statement, other] }
                    }
                    _ => doc! { "update": collection, "updates": [statement] },
                };
                if form == "numbered" {
                    command.extend(doc! { "lsid": { "id": bson::Uuid::new() }, "txnNumber": 1_i64 });
                }
                let reply = client.command("t", command.clone());
                if error_code(&reply) != expected {
                    wrong.push(format!("{expected}: {command}: {reply}"));
                }
                let found = doc! { "find": collection, "filter": { "_id": id }, "readConcern": { "level": "local" } };
                let found = held_back.primary().command("t", found);
                let found = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap().clone();
                assert_eq!(found, [Bson::from(document)], "{command}");
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The time of the last write to a collection.
fn last_write(held_back: &HeldBack, collection: &str) -> Timestamp {
    let name = format!("t.{collection}");
    let filter = doc! { "$or": [{ "ns": &name }, { "o.applyOps.ns": &name }] };
    let find = doc! {
        "find": "oplog.rs", "filter": filter, "sort": { "$natural": -1 }, "limit": 1, "readConcern": { "level": "local" },
    };
    let found = held_back.primary().command("local", find);
    let found = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    found[0].as_document().unwrap().get_timestamp("ts").unwrap()
}

/// The times in a reply are not before the write, however many commands it took.
fn times_are_those_of_the_write(held_back: &HeldBack) {
    let mut client = held_back.through();
    held_back.store("saves", doc! { "_id": "v", "version": 1 });
    let change = |id: &str, parent: &str| doc! { "q": { "_id": id }, "u": { "$set": { "parent": parent } } };
    let commands = [
        doc! { "insert": "categories", "documents": [{ "_id": "A" }] },
        doc! { "insert": "categories", "documents": [{ "_id": "B" }, { "_id": "C", "parent": "A" }], "ordered": false },
        doc! { "update": "categories", "updates": [change("C", "B")] },
        doc! { "findAndModify": "categories", "query": { "_id": "C" }, "update": { "$set": { "parent": "A" } } },
        doc! { "delete": "categories", "deletes": [{ "q": { "_id": "C" }, "limit": 1 }] },
        doc! { "update": "saves", "updates": [
            { "q": { "_id": "v", "version": 1 }, "u": { "n": 1 } },
            { "q": { "_id": "v" }, "u": { "$inc": { "n": 1 } } },
            { "q": { "_id": "v", "version": 3 }, "u": { "n": 1 } },
        ] },
    ];
    for command in commands {
        for session in [doc! {}, doc! { "lsid": { "id": bson::Uuid::new() }, "txnNumber": 1_i64 }] {
            if !session.is_empty() && command.contains_key("insert") {
                continue;
            }
            let mut sent = command.clone();
            sent.extend(session);
            let reply = client.command("t", sent);
            assert_eq!(error_code(&reply), 0, "{command}: {reply}");
            let written = last_write(held_back, command.values().next().unwrap().as_str().unwrap());
            assert!(reply.get_timestamp("operationTime").unwrap() >= written, "{written}, {command}: {reply}");
            let cluster = reply.get_document("$clusterTime").unwrap();
            assert!(cluster.get_timestamp("clusterTime").unwrap() >= written, "{written}, {command}: {reply}");
            if let Ok(time) = reply.get_document("opTime") {
                assert!(time.get_timestamp("ts").unwrap() >= written, "{written}, {command}: {reply}");
            }
            // The next one of the same form must have something to change.
            client.command("t", doc! { "update": "categories", "updates": [change("C", "B")] });
        }
    }
}

/// What docward rejects itself has times as the server's errors have, and they are the server's.
fn rejections_have_times(held_back: &HeldBack) {
    let mut client = held_back.through();
    for (command, is_rejected) in [
        (doc! { "insert": "stock", "documents": [{ "_id": "r", "n": -1 }] }, true),
        (doc! { "findAndModify": "stock", "query": { "_id": "r" }, "update": { "$set": { "n": -1 } } }, true),
        (doc! { "aggregate": "saves", "pipeline": [{ "$out": "stock" }], "cursor": {} }, true),
        (doc! { "update": "saves", "updates": [{ "q": {}, "u": { "n": 1 }, "x": 1 }] }, true),
        (doc! { "insert": "stock", "documents": [{ "_id": "r", "n": 1 }] }, false),
    ] {
        let reply = client.command("t", command.clone());
        assert_eq!(error_code(&reply) != 0, is_rejected, "{command}: {reply}");
        let now = held_back.primary().command("admin", doc! { "ping": 1 });
        for time in [reply.get_timestamp("operationTime").ok(), cluster_time(&reply)] {
            let time = time.unwrap_or_else(|| panic!("no time: {command}: {reply}"));
            assert!(time <= cluster_time(&now).unwrap(), "{command}: {reply}");
            assert!(time.time + 60 > cluster_time(&now).unwrap().time, "{command}: {reply}");
        }
    }
}

fn cluster_time(reply: &Document) -> Option<Timestamp> {
    reply.get_document("$clusterTime").ok()?.get_timestamp("clusterTime").ok()
}

/// A driver's causally consistent session waits for its own write on a secondary that has not got it yet.
async fn a_session_does_not_miss_its_own_write(held_back: &HeldBack) {
    let hosts = held_back.docward.addresses().join(",");
    let client = mongodb::Client::with_uri_str(format!("mongodb://{hosts}/?replicaSet=rs0")).await.unwrap();
    let categories = client.database("t").collection::<Document>("categories");
    let mut session = client.start_session().causal_consistency(true).await.unwrap();
    categories.insert_one(doc! { "_id": "own" }).session(&mut session).await.unwrap();
    let read = categories
        .find_one(doc! { "_id": "own" })
        .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Secondary { options: None }))
        .read_concern(ReadConcern::local())
        .max_time(Duration::from_millis(300))
        .session(&mut session)
        .await;
    // MaxTimeMSExpired: it has waited.
    assert_eq!(read.as_ref().map_err(code), Err(50), "{read:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_show_what_is_stored_and_when() {
    let held_back = tokio::task::block_in_place(HeldBack::start);
    tokio::task::block_in_place(|| {
        look_ups_see_what_is_stored(&held_back);
        times_are_those_of_the_write(&held_back);
        rejections_have_times(&held_back);
    });
    a_session_does_not_miss_its_own_write(&held_back).await;
}
