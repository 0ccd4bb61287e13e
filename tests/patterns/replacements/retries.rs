//! Retryable writes: if the connection breaks or a write concern fails after the server has applied a write, the
//! repeated command applies nothing twice, even if docward split its batch. Uses its own mongod because of the
//! failpoints.

use bson::{Document, doc};

use super::RULES;
use support::driver::{Views, write_errors};
use support::frame::Message;
use support::mongod::{Kind, Mongod};
use support::process::TIMEOUT;
use support::proxy::Docward;
use support::raw;

struct Scene {
    mongod: Mongod,
    docward: Docward,
    session: bson::Uuid,
    number: i64,
}

impl Scene {
    fn new() -> Scene {
        let mongod = Mongod::start(Kind::ReplicaSet);
        let docward = Docward::start(&mongod, RULES);
        Scene { mongod, docward, session: bson::Uuid::new(), number: 0 }
    }

    fn fail_point(&self, name: &str, mode: impl Into<bson::Bson>, data: Document) {
        let command = doc! { "configureFailPoint": name, "mode": mode.into(), "data": data };
        let reply = self.mongod.command("admin", command);
        assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{reply}");
    }

    /// Makes a command a retryable write, as drivers do; `repeated` keeps the last transaction number.
    fn numbered(&mut self, mut command: Document, repeated: bool) -> Document {
        self.number += i64::from(!repeated);
        command.insert("lsid", doc! { "id": self.session });
        command.insert("txnNumber", self.number);
        command
    }

    /// Sends it on a new connection, as after a network error; `None` if the connection breaks.
    fn send(&self, database: &str, mut command: Document) -> Option<Document> {
        command.insert("$db", database);
        let mut client = raw::Client::connect(&self.docward.address());
        client.send(&Message::new(command));
        let frame = client.receive_within(TIMEOUT).unwrap()?;
        Some(Message::parse(&frame).body().clone())
    }
}

fn batch() -> Document {
    doc! { "update": "checking", "ordered": false, "updates": [
        { "q": { "_id": 1 }, "u": { "$inc": { "n": 1 } } },
        { "q": { "_id": 2 }, "u": { "a": 1, "version": 7 } },
        { "q": { "_id": 3 }, "u": { "a": 1, "version": 3 } },
        { "q": { "_id": 4 }, "u": { "a": 1 }, "upsert": true },
        { "q": { "_id": 5 }, "u": { "$inc": { "n": 1 } }, "upsert": true },
    ] }
}

async fn prepared(scene: &Scene) -> Views {
    let views = Views::of(&scene.mongod, &scene.docward).await;
    let stored = [doc! { "_id": 1, "n": 0 }, doc! { "_id": 2, "version": 7 }, doc! { "_id": 3, "version": 8 }];
    views.store("checking", stored).await;
    views
}

fn applied_once() -> Vec<Document> {
    vec![
        doc! { "_id": 1, "n": 1, "version": 1 },
        doc! { "_id": 2, "a": 1, "version": 8 },
        doc! { "_id": 3, "version": 8 },
        doc! { "_id": 4, "a": 1, "version": 1 },
        doc! { "_id": 5, "n": 1, "version": 1 },
    ]
}

fn assert_complete(reply: &Document) {
    assert_eq!((reply.get_i32("n").unwrap(), reply.get_i32("nModified").unwrap()), (4, 2), "{reply}");
    assert_eq!(write_errors(reply), [(2, 112)], "{reply}");
    let upserted = reply.get_array("upserted").unwrap();
    assert_eq!(*upserted, [doc! { "index": 3, "_id": 4 }.into(), doc! { "index": 4, "_id": 5 }.into()], "{reply}");
}

fn retried(reply: &Document) -> Vec<i32> {
    let ids = reply.get_array("retriedStmtIds").cloned().unwrap_or_default();
    let mut ids: Vec<i32> = ids.iter().map(|id| id.as_i32().unwrap()).collect();
    ids.sort_unstable();
    ids
}

#[tokio::test]
async fn a_repeated_batch_applies_nothing_twice() {
    let mut scene = Scene::new();
    let views = prepared(&scene).await;
    let command = scene.numbered(batch(), false);
    let first = scene.send(views.through.name(), command).unwrap();
    assert_complete(&first);
    assert!(retried(&first).is_empty());
    let command = scene.numbered(batch(), true);
    let second = scene.send(views.through.name(), command).unwrap();
    assert_complete(&second);
    assert_eq!(retried(&second), [0, 1, 3, 4], "{second}");
    assert_eq!(views.stored("checking").await, applied_once());
}

/// The server closes docward's connection after the first, second, ... write that it has applied.
#[tokio::test]
async fn a_batch_whose_connection_breaks_is_continued() {
    let mut scene = Scene::new();
    for applied in 0..4 {
        let views = prepared(&scene).await;
        let command = scene.numbered(batch(), false);
        scene.fail_point("onPrimaryTransactionalWrite", doc! { "skip": applied }, doc! { "closeConnection": true });
        let broken = scene.send(views.through.name(), command);
        assert_eq!(broken, None, "the client must see a broken connection after {applied} writes");
        scene.fail_point("onPrimaryTransactionalWrite", "off", doc! {});
        let command = scene.numbered(batch(), true);
        let reply = scene.send(views.through.name(), command).unwrap();
        assert_complete(&reply);
        assert!(!retried(&reply).is_empty(), "{reply}");
        assert_eq!(views.stored("checking").await, applied_once());
    }
}

/// The first or the last command of the split batch fails its write concern after it was applied.
#[tokio::test]
async fn a_write_concern_error_in_any_part_reaches_the_client() {
    let mut scene = Scene::new();
    let error = doc! { "code": 91, "codeName": "ShutdownInProgress", "errmsg": "going down" };
    let mut data = doc! {
        "failCommands": ["update"], "writeConcernError": &error, "errorLabels": ["RetryableWriteError"],
    };
    // The first command is a question, which writes nothing.
    for mode in [doc! { "times": 2 }, doc! { "times": 3 }, doc! { "skip": 1 }, doc! { "skip": 3 }] {
        let views = prepared(&scene).await;
        let command = scene.numbered(batch(), false);
        // The probes of a starting docward are updates, too.
        data.insert("namespace", format!("{}.checking", views.through.name()));
        scene.fail_point("failCommand", mode.clone(), data.clone());
        let reply = scene.send(views.through.name(), command).unwrap();
        scene.fail_point("failCommand", "off", doc! {});
        assert_complete(&reply);
        let failed = reply.get_document("writeConcernError").unwrap_or_else(|_| panic!("{mode}: {reply}"));
        assert_eq!(failed.get_i32("code").unwrap(), 91, "{mode}: {reply}");
        let labels = reply.get_array("errorLabels").unwrap_or_else(|_| panic!("no errorLabels: {reply}"));
        assert_eq!(*labels, ["RetryableWriteError".into()], "{reply}");
        let command = scene.numbered(batch(), true);
        assert_complete(&scene.send(views.through.name(), command).unwrap());
        assert_eq!(views.stored("checking").await, applied_once());
    }
}

/// An upsert under a rule becomes several commands. Repeated after its reply was lost, it is still the one insert and
/// does not insert a second document.
#[tokio::test]
async fn a_repeated_upsert_is_the_insert_that_it_was() {
    let mut scene = Scene::new();
    for collection in ["strict", "checking", "bounded"] {
        let views = Views::of(&scene.mongod, &scene.docward).await;
        let modification = if collection == "bounded" {
            doc! { "$inc": { "n": 1 } }
        } else {
            doc! { "n": 1 }
        };
        let update = |id: i32| {
            doc! { "update": collection, "updates": [{ "q": { "_id": id }, "u": modification.clone(), "upsert": true }] }
        };
        let find_and_modify = |id: i32| {
            doc! { "findAndModify": collection, "query": { "_id": id }, "update": modification.clone(), "upsert": true }
        };
        for command in [update(1), find_and_modify(2)] {
            let replies = [false, true].map(|repeated| {
                let command = scene.numbered(command.clone(), repeated);
                let reply = scene.send(views.through.name(), command).unwrap();
                assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{collection}: {reply}");
                assert_eq!(write_errors(&reply), [], "{collection}: {reply}");
                ["n", "nModified", "upserted", "value", "lastErrorObject"].map(|field| reply.get(field).cloned())
            });
            assert_eq!(replies[0], replies[1], "{collection}: {command}");
        }
        let stored = views.stored(collection).await;
        assert_eq!(stored.iter().map(|d| d.get_i32("n").unwrap()).collect::<Vec<_>>(), [1, 1], "{collection}");
        // With a new transaction number it is another write.
        if collection == "strict" {
            for command in [update(1), find_and_modify(2)] {
                let command = scene.numbered(command, false);
                let reply = scene.send(views.through.name(), command).unwrap();
                let code = reply.get_i32("code").ok().or(write_errors(&reply).first().map(|(_, code)| *code));
                assert_eq!(code, Some(121), "{reply}");
            }
        }
    }
}

/// The same with the driver's own retries.
#[tokio::test]
async fn the_driver_retries_checked_replacements() {
    let scene = Scene::new();
    let views = Views::of(&scene.mongod, &scene.docward).await;
    views.store("checking", [doc! { "_id": 1, "version": 1 }]).await;
    let checking = views.collection("checking");
    let closing =
        || scene.fail_point("onPrimaryTransactionalWrite", doc! { "times": 1 }, doc! { "closeConnection": true });
    let mut version = 1;
    let next = |version: &mut i32| {
        *version += 1;
        doc! { "version": *version - 1 }
    };
    closing();
    let result = checking.replace_one(doc! { "_id": 1 }, next(&mut version)).await.unwrap();
    assert_eq!(result.matched_count, 1);
    closing();
    let before = checking.find_one_and_replace(doc! { "_id": 1 }, next(&mut version)).await.unwrap();
    assert_eq!(before, Some(doc! { "_id": 1, "version": 2 }));
    for command in ["update", "findAndModify"] {
        // A code that does not affect the driver's view of the server; otherwise it would wait for its next
        // heartbeat.
        let error = doc! { "code": 262, "errmsg": "took too long" };
        let data = doc! {
            "failCommands": [command], "writeConcernError": error, "errorLabels": ["RetryableWriteError"],
        };
        scene.fail_point("failCommand", doc! { "times": 1 }, data);
        let document = next(&mut version);
        match command {
            "update" => drop(checking.replace_one(doc! { "_id": 1 }, document).await.unwrap()),
            _ => drop(checking.find_one_and_replace(doc! { "_id": 1 }, document).await.unwrap().unwrap()),
        }
    }
    assert_eq!(views.stored("checking").await, [doc! { "_id": 1, "version": 5 }]);
}
