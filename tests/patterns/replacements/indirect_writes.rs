//! Indirect writes to a protected collection, and the settings that let them pass: `unsupported`, `mode`, `except`.

use std::time::Duration;

use bson::{Document, doc};
use mongodb::error::{Error, ErrorKind};

use super::{docward, views};
use support::driver::{Views, code, connect, write_errors};
use support::frame::{MORE_TO_COME, Message};
use support::raw;

/// Commands that write to `collection` without a statement that could be evaluated; each succeeds without docward.
fn unsupported(database: &str, collection: &str) -> Vec<(&'static str, Document)> {
    let into = format!("{database}.{collection}");
    vec![
        (
            "pipeline",
            doc! { "update": collection, "updates": [{ "q": { "_id": 1 }, "u": [{ "$replaceWith": { "b": 1 } }] }] },
        ),
        (
            "pipeline",
            doc! { "findAndModify": collection, "query": { "_id": 1 }, "update": [{ "$project": { "_id": 1 } }] },
        ),
        ("$merge", doc! { "aggregate": "source", "pipeline": [{ "$merge": collection }], "cursor": {} }),
        (
            "$merge",
            doc! { "aggregate": "source", "cursor": {},
            "pipeline": [{ "$merge": { "into": { "db": database, "coll": collection }, "whenMatched": "replace" } }] },
        ),
        (
            "mapReduce",
            doc! { "mapReduce": "source", "map": "function() { emit(this._id, 1) }",
            "reduce": "function(key, values) { return 1 }", "out": { "merge": collection } },
        ),
        ("$out", doc! { "aggregate": "source", "pipeline": [{ "$out": collection }], "cursor": {} }),
        (
            "$out",
            doc! { "aggregate": "source", "pipeline": [{ "$out": { "db": database, "coll": collection } }],
            "cursor": {} },
        ),
        ("rename", doc! { "renameCollection": &into, "to": format!("{database}.elsewhere") }),
        ("rename", doc! { "renameCollection": format!("{database}.elsewhere"), "to": into, "dropTarget": true }),
    ]
}

async fn run(views: &Views, command: Document) -> Result<Document, Error> {
    if command.contains_key("renameCollection") {
        return views.through.client().database("admin").run_command(command).await;
    }
    views.run(command).await
}

async fn prepared(collection: &str) -> Views {
    let views = views().await;
    views.store(collection, [doc! { "_id": 1, "a": 1 }]).await;
    views.store("source", [doc! { "_id": 1, "from": "source" }]).await;
    views
}

#[tokio::test]
async fn indirect_writes_are_rejected() {
    let views = prepared("strict").await;
    for (what, command) in unsupported(views.through.name(), "strict") {
        let described = command.to_string();
        match run(&views, command).await {
            Ok(reply) => assert_eq!(write_errors(&reply), [(0, 121)], "{what}: {described}"),
            Err(error) => {
                assert_eq!(code(&error), 121, "{what}: {error}");
                let ErrorKind::Command(command) = error.kind.as_ref() else { panic!("{error}") };
                assert!(command.message.contains("docward rule 'strict' rejects this"), "{}", command.message);
                let reply = error.server_response().unwrap();
                let info = reply.get_document("errInfo").unwrap().get_document("docward").unwrap();
                assert_eq!(info.get_str("rule").unwrap(), "strict");
            }
        }
        assert_eq!(views.stored("strict").await, [doc! { "_id": 1, "a": 1 }], "{described}");
    }
}

#[tokio::test]
async fn indirect_writes_pass_where_the_rule_allows_them() {
    let views = prepared("lenient").await;
    // A pipeline is checked all the same.
    let commands = unsupported(views.through.name(), "lenient").into_iter().filter(|(what, _)| *what != "pipeline");
    for (what, command) in commands {
        let described = command.to_string();
        let reply = run(&views, command).await.unwrap_or_else(|error| panic!("{what}: {described}: {error}"));
        assert_eq!(write_errors(&reply), [], "{described}");
    }
    assert_eq!(views.stored("lenient").await, [doc! { "_id": 1, "from": "source" }]);
    // A replacement can be evaluated.
    let lenient = views.collection("lenient");
    assert_eq!(code(&lenient.replace_one(doc! { "_id": 1 }, doc! { "b": 1 }).await.unwrap_err()), 121);
}

async fn replaces(views: &Views, collection: &str) -> Result<(), i32> {
    let collection = views.collection(collection);
    collection.replace_one(doc! { "_id": 1 }, doc! { "b": 1 }).await.map(drop).map_err(|error| code(&error))
}

/// The line that docward has logged about a collection of this test's database.
fn logged(views: &Views, collection: &str) -> String {
    docward().wait_for_log(&format!("{}.{collection}", views.through.name()))
}

#[tokio::test]
async fn a_rule_in_shadow_mode_logs_its_verdict_and_a_disabled_one_nothing() {
    for (collection, expected) in [("shadowed", "shadow-reject"), ("lenient", "reject")] {
        let views = prepared(collection).await;
        assert_eq!(replaces(&views, collection).await, if collection == "shadowed" { Ok(()) } else { Err(121) });
        let line = logged(&views, collection);
        assert!(line.contains(expected), "{line}");
    }
    let views = prepared("disabled").await;
    assert_eq!(replaces(&views, "disabled").await, Ok(()));
    assert_eq!(views.stored("disabled").await, [doc! { "_id": 1, "b": 1 }]);
    let named = format!("{}.disabled", views.through.name());
    assert!(!docward().log().iter().any(|line| line.contains(&named)));
}

#[tokio::test]
async fn excepted_applications_are_not_restricted() {
    for (app, expected) in [("migrator-7", Ok(())), ("migrator", Err(121)), ("shop", Err(121))] {
        let mut views = prepared("excepting").await;
        let client = connect(&docward().address(), &format!("appName={app}")).await;
        views.through = client.database(views.through.name());
        assert_eq!(replaces(&views, "excepting").await, expected, "{app}");
        let printed = if expected.is_ok() { "except-reject" } else { "reject" };
        let line = logged(&views, "excepting");
        assert!(line.contains(printed) && line.contains(app), "{line}");
    }
}

/// mongod accepts logins even without access control.
#[tokio::test]
async fn excepted_users_are_not_restricted() {
    for (user, expected) in [("root", Ok(())), ("shop", Err(121))] {
        let mut views = prepared("excepting").await;
        let database = views.through.name().to_owned();
        let command = doc! { "createUser": user, "pwd": "secret", "roles": ["readWrite"] };
        views.direct.run_command(command).await.unwrap();
        let address = docward().address();
        let client = mongodb::Client::with_uri_str(format!("mongodb://{user}:secret@{address}/{database}")).await;
        views.through = client.unwrap().database(&database);
        assert_eq!(replaces(&views, "excepting").await, expected, "{user}");
        let pipeline = doc! { "aggregate": "source", "pipeline": [{ "$merge": "excepting" }], "cursor": {} };
        assert_eq!(views.run(pipeline).await.map(drop).map_err(|error| code(&error)), expected, "{user}");
    }
}

/// The client requests no reply, but the statements are evaluated.
#[tokio::test]
async fn unacknowledged_writes_are_evaluated() {
    let views = prepared("strict").await;
    let mut client = raw::Client::connect(&docward().address());
    let mut send = |collection: &str, ordered: bool, updates: Vec<Document>| {
        let body = doc! {
            "update": collection, "ordered": ordered, "writeConcern": { "w": 0 }, "$db": views.through.name(),
        };
        client.send(&Message::new(body).sequence("updates", updates).flags(MORE_TO_COME));
        assert!(!client.closes_within(Duration::from_millis(50)), "the connection ended");
    };
    let set = |id: i32| doc! { "q": { "_id": id }, "u": { "$set": { "s": 1 } }, "upsert": true };
    let replace = |id: i32, document: Document| doc! { "q": { "_id": id }, "u": document, "upsert": true };
    send("strict", true, vec![set(2), replace(1, doc! {}), set(3)]);
    send("strict", false, vec![set(4), replace(1, doc! {}), set(5)]);
    send("checking", false, vec![replace(1, doc! {}), replace(1, doc! {}), replace(2, doc! { "version": 4 })]);
    send("checking", true, vec![replace(1, doc! { "version": 1 }), replace(1, doc! {}), set(3)]);
    // The connection still works, and the reply shows that all earlier messages are done.
    let reply = client.command(views.through.name(), doc! { "count": "strict" });
    assert_eq!(reply.get_i32("n").unwrap(), 4, "{reply}");
    let ids = |documents: Vec<Document>| documents.iter().map(|d| d.get_i32("_id").unwrap()).collect::<Vec<_>>();
    assert_eq!(ids(views.stored("strict").await), [1, 2, 4, 5]);
    assert_eq!(views.stored("checking").await, [doc! { "_id": 1, "version": 2 }]);
}
