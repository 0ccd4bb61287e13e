//! The patterns `deny` and `defaults` in front of a real mongod: a denied operator is found wherever the server
//! evaluates an expression, and a time limit of zero counts as none.

use std::sync::OnceLock;

use bson::{Document, doc};
use support::driver::{Views, code};
use support::mongod::Mongod;
use support::proxy::Docward;

const RULES: &str = r#"
version: 1
rules:
  - name: scripts
    namespace: "*.scripts"
    deny:
      operations: [find, count, distinct, aggregate, update, delete]
      when: { uses: [$where, $function, $accumulator] }
  - { name: sizes, namespace: "*.sizes", deny: { operations: [aggregate], when: { uses: [$size] } } }
  - { name: unlimited, namespace: "*.unlimited", deny: { operations: [find, update], when: { without: maxTimeMS } } }
  - name: kept
    namespace: "*.kept"
    unsupported: allow
    except: { apps: [migrator] }
    deny:
      operations: [create, collMod, createIndexes, drop, dropDatabase, dropIndexes, renameCollection]
  - { name: indexed, namespace: "*.indexed", deny: { operations: [dropIndexes] } }
  - { name: bystander, namespace: "other.*", deny: { operations: [dropDatabase] } }
  - { name: shaped, namespace: "*.shaped", deny: { operations: [delete], when: { shape: "deleteMany({})" } } }
  - name: reshaped
    namespace: "*.shaped"
    deny: { operations: [update, find], when: { shape: "updateOne({_id}, {$set: {a}}, {upsert})" } }
  - { name: unfound, namespace: "*.shaped", deny: { operations: [find], when: { shape: "find({a: {$gt}})" } } }
  - { name: unread, namespace: "*.unread", deny: { operations: [find, aggregate] } }
  - { name: found, namespace: "*.found", deny: { operations: [find] } }
  - { name: filtered, namespace: "*.filtered", deny: { operations: [aggregate], when: { filter: empty } } }
  - { name: timed, namespace: "*.timed", deny: { operations: [aggregate], when: { without: maxTimeMS } } }
  - { name: watched, namespace: "*.watched", mode: shadow, deny: { operations: [aggregate] } }
  - { name: limited, namespace: "*.limited", defaults: { maxTimeMS: 200 } }
"#;

async fn views() -> Views {
    static DOCWARD: OnceLock<Docward> = OnceLock::new();
    let start = || Docward::before(&Mongod::shared().uri()).rules(RULES).environment("RUST_LOG", "warn").start();
    Views::of(Mongod::shared(), DOCWARD.get_or_init(start)).await
}

fn script() -> Document {
    doc! { "$function": { "body": "function() { return 1; }", "args": [], "lang": "js" } }
}

/// Commands that run JavaScript, each with another field.
fn scripts(collection: &str) -> Vec<Document> {
    let update = |statement: Document| doc! { "update": collection, "updates": [statement] };
    let modify = |extra: Document| {
        let mut command = doc! { "findAndModify": collection, "query": { "_id": 1 } };
        command.extend(extra);
        command
    };
    let aggregate = |stages: Vec<Document>| doc! { "aggregate": collection, "pipeline": stages, "cursor": {} };
    let is_one = || doc! { "$expr": { "$eq": [script(), 1] } };
    let set = || doc! { "$set": { "a": 2 } };
    let map_reduce = doc! {
        "mapReduce": collection, "map": "function() { emit(1, this.a); }", "reduce": "function(k, v) { return v[0]; }",
        "out": { "inline": 1 },
    };
    vec![
        doc! { "find": collection, "filter": is_one() },
        doc! { "find": collection, "projection": { "x": script() } },
        doc! { "find": collection, "filter": { "$expr": { "$eq": ["$$v", 1] } }, "let": { "v": script() } },
        doc! { "count": collection, "query": { "$where": "true" } },
        doc! { "distinct": collection, "key": "a", "query": { "$or": [{ "$where": "true" }] } },
        aggregate(vec![doc! { "$facet": { "f": [{ "$match": is_one() }] } }]),
        aggregate(vec![doc! { "$lookup": { "from": "x", "pipeline": [{ "$match": is_one() }], "as": "x" } }]),
        aggregate(vec![doc! { "$unionWith": { "coll": "x", "pipeline": [{ "$set": { "x": script() } }] } }]),
        doc! { "aggregate": collection, "pipeline": [{ "$set": { "b": "$$v" } }], "cursor": {}, "let": { "v": script() } },
        map_reduce,
        update(doc! { "q": is_one(), "u": set() }),
        update(doc! { "q": {}, "u": [{ "$set": { "a": script() } }] }),
        doc! {
            "update": collection, "updates": [{ "q": {}, "u": [{ "$set": { "a": "$$v" } }] }], "let": { "v": script() },
        },
        doc! {
            "update": collection, "let": { "v": script() },
            "updates": [{ "q": { "$expr": { "$eq": ["$$v", 1] } }, "u": set() }],
        },
        doc! { "delete": collection, "deletes": [{ "q": is_one(), "limit": 1 }] },
        doc! {
            "delete": collection, "let": { "v": script() },
            "deletes": [{ "q": { "$expr": { "$eq": ["$$v", 1] } }, "limit": 1 }],
        },
        modify(doc! { "update": set(), "fields": { "x": script() } }),
        modify(doc! { "update": [{ "$set": { "a": "$$v" } }], "let": { "v": script() } }),
        modify(doc! { "remove": true, "fields": { "x": script() } }),
    ]
}

#[tokio::test]
async fn scripts_are_found_wherever_the_server_runs_them() {
    let views = views().await;
    let stored = [doc! { "_id": 1, "a": 1 }];
    for (denied, plain) in scripts("scripts").into_iter().zip(scripts("plain")) {
        for collection in ["scripts", "plain"] {
            views.direct.collection::<Document>(collection).delete_many(doc! {}).await.unwrap();
            views.store(collection, stored.clone()).await;
        }
        // The server accepts the same command, so it passes without a rule.
        let reply = views.run(plain.clone()).await.unwrap();
        assert!(!reply.contains_key("writeErrors"), "{plain}: {reply}");
        let rejected = match views.run(denied.clone()).await {
            Err(error) => code(&error),
            Ok(reply) => reply
                .get_array("writeErrors")
                .map_or(0, |errors| errors[0].as_document().unwrap().get_i32("code").unwrap()),
        };
        assert_eq!(rejected, 121, "{denied}");
        assert_eq!(views.stored("scripts").await, stored, "{denied}");
    }
    // Stored values are data, not expressions; and a mapReduce is not one of the other operators.
    let data = doc! { "$set": { "data": { "$literal": { "$function": 1 } } }, "$push": { "list": { "x": "$where" } } };
    views.collection("scripts").update_one(doc! { "_id": 1 }, data).await.unwrap();
    let map_reduce = scripts("sizes").into_iter().find(|command| command.contains_key("mapReduce")).unwrap();
    views.run(map_reduce).await.unwrap();
}

/// What an aggregation on another collection reads of a protected one is evaluated.
#[tokio::test]
async fn aggregations_on_other_collections_are_evaluated_where_they_read_a_protected_one() {
    let views = views().await;
    for collection in ["plain", "scripts", "unread", "found", "filtered", "timed", "watched"] {
        views.store(collection, [doc! { "_id": 1, "a": 1 }]).await;
    }
    let is_one = || doc! { "$match": { "$expr": { "$eq": [script(), 1] } } };
    let lookup =
        |from: &str, pipeline: Vec<Document>| doc! { "$lookup": { "from": from, "pipeline": pipeline, "as": "x" } };
    let join = |from: &str| doc! { "$lookup": { "from": from, "localField": "a", "foreignField": "a", "as": "x" } };
    let graph = |from: &str, restriction: Document| {
        doc! { "$graphLookup": {
            "from": from, "startWith": "$a", "connectFromField": "a", "connectToField": "a", "as": "x",
            "restrictSearchWithMatch": restriction,
        } }
    };
    let union = |coll: &str, pipeline: Vec<Document>| doc! { "$unionWith": { "coll": coll, "pipeline": pipeline } };
    let one = || doc! { "$match": { "_id": 1 } };
    let none: Option<&str> = None;
    for (stage, rule) in [
        (lookup("scripts", vec![is_one()]), Some("scripts")),
        (union("scripts", vec![is_one()]), Some("scripts")),
        (lookup("plain", vec![union("scripts", vec![is_one()])]), Some("scripts")),
        (doc! { "$facet": { "f": [lookup("scripts", vec![is_one()])] } }, Some("scripts")),
        (lookup("scripts", vec![one()]), none),
        (lookup("plain", vec![is_one()]), none),
        (is_one(), none),
        (lookup("unread", vec![one()]), Some("unread")),
        (join("unread"), Some("unread")),
        (graph("unread", doc! {}), Some("unread")),
        (doc! { "$unionWith": "unread" }, Some("unread")),
        (lookup("found", vec![]), none),
        (doc! { "$unionWith": "filtered" }, Some("filtered")),
        (union("filtered", vec![doc! { "$match": {} }]), Some("filtered")),
        (union("filtered", vec![one()]), none),
        (lookup("filtered", vec![]), Some("filtered")),
        (lookup("filtered", vec![one()]), none),
        (join("filtered"), none),
        (graph("filtered", doc! {}), none),
        (join("timed"), Some("timed")),
        (join("watched"), none),
    ] {
        let aggregate = doc! { "aggregate": "plain", "pipeline": [stage], "cursor": {} };
        let explain = doc! { "explain": aggregate.clone(), "verbosity": "executionStats" };
        for command in [aggregate, explain] {
            let direct = views.direct.run_command(command.clone()).await;
            assert!(direct.is_ok(), "{command}: {direct:?}");
            match (views.run(command.clone()).await, rule) {
                (Ok(_), None) => {}
                (Err(error), Some(rule)) => {
                    assert_eq!(code(&error), 121, "{command}: {error}");
                    assert!(error.to_string().contains(&format!("rule '{rule}'")), "{command}: {error}");
                }
                (result, _) => panic!("{command}: {result:?}"),
            }
        }
    }
    let timed = doc! { "aggregate": "plain", "pipeline": [join("timed")], "cursor": {}, "maxTimeMS": 10_000 };
    views.run(timed).await.unwrap();
    // An aggregation of the database, and one of the protected collection with itself.
    let documents = doc! { "aggregate": 1, "pipeline": [{ "$documents": [{ "a": 1 }] }, join("unread")], "cursor": {} };
    views.direct.run_command(documents.clone()).await.unwrap();
    assert_eq!(code(&views.run(documents).await.unwrap_err()), 121);
    let own = doc! { "aggregate": "filtered", "pipeline": [one(), { "$unionWith": "filtered" }], "cursor": {} };
    views.direct.run_command(own.clone()).await.unwrap();
    assert_eq!(code(&views.run(own).await.unwrap_err()), 121);
}

#[tokio::test]
async fn a_limit_of_zero_is_none() {
    let views = views().await;
    let update = |limit: bson::Bson| {
        doc! { "update": "unlimited", "updates": [{ "q": {}, "u": { "$set": { "a": 1 } } }], "maxTimeMS": limit }
    };
    for limit in [bson::Bson::from(0), 0_i64.into(), 0.0.into()] {
        let found = views.run(doc! { "find": "unlimited", "maxTimeMS": limit.clone() }).await;
        assert_eq!(code(&found.unwrap_err()), 121, "{limit}");
        assert_eq!(code(&views.run(update(limit.clone())).await.unwrap_err()), 121, "{limit}");
    }
    views.run(doc! { "find": "unlimited", "maxTimeMS": 100 }).await.unwrap();
    views.run(update(100.into())).await.unwrap();

    views.store("limited", [doc! { "_id": 1 }]).await;
    let slow = |limit: Option<i32>| {
        let mut find = doc! { "find": "limited", "filter": { "$where": "sleep(1000) || true" } };
        find.extend(limit.map(|limit| ("maxTimeMS".to_owned(), limit.into())));
        find
    };
    for limit in [None, Some(0)] {
        let error = views.run(slow(limit)).await.unwrap_err();
        assert_eq!(code(&error), 50, "{limit:?}: {error}");
    }
    views.run(slow(Some(20_000))).await.unwrap();
}

#[tokio::test]
async fn definitions_are_rejected_and_nothing_changes() {
    let views = views().await;
    let database = views.direct.name().to_owned();
    let kept = format!("{database}.kept");
    let seed = async || {
        let key = doc! { "key": { "a": 1 }, "name": "a" };
        views.direct.run_command(doc! { "drop": "kept" }).await.ok();
        views.direct.run_command(doc! { "drop": "renamed" }).await.ok();
        views.store("kept", [doc! { "_id": 1, "a": 1 }]).await;
        views.direct.run_command(doc! { "createIndexes": "kept", "indexes": [key] }).await.unwrap();
        views.direct.collection::<Document>("plain").insert_one(doc! {}).await.unwrap();
    };
    let index = || doc! { "key": { "b": 1 }, "name": "b", "expireAfterSeconds": 0 };
    let (own, admin) = (database.clone(), "admin".to_owned());
    let commands = [
        (&own, doc! { "drop": "kept" }),
        (&own, doc! { "drop": "kept", "comment": "an option", "writeConcern": { "w": 1 } }),
        (&own, doc! { "dropDatabase": 1 }),
        (&own, doc! { "dropDatabase": 1.0, "comment": "x" }),
        (&own, doc! { "createIndexes": "kept", "indexes": [index()] }),
        (&own, doc! { "createSearchIndexes": "kept", "indexes": [{ "name": "s", "definition": {} }] }),
        (&own, doc! { "updateSearchIndex": "kept", "name": "s", "definition": {} }),
        (&own, doc! { "dropSearchIndex": "kept", "name": "s" }),
        (&own, doc! { "dropIndexes": "kept", "index": "*" }),
        (&own, doc! { "deleteIndexes": "kept", "index": "a" }),
        (&own, doc! { "collMod": "kept", "validator": { "a": 2 } }),
        (&own, doc! { "create": "kept" }),
        (&admin, doc! { "renameCollection": &kept, "to": format!("{database}.renamed") }),
        (&admin, doc! { "renameCollection": format!("{database}.plain"), "to": &kept, "dropTarget": true }),
    ];
    let through = views.through.client();
    for (database, command) in &commands {
        seed().await;
        let error = through.database(database).run_command(command.clone()).await.unwrap_err();
        assert_eq!(code(&error), 121, "{command}: {error}");
        assert!(error.to_string().contains("'kept'"), "{command}: {error}");
        if command.contains_key("dropDatabase") {
            let text = format!(
                "rejects this dropDatabase on the database '{database}': this operation is not allowed on a database \
                 with a protected collection. What to do"
            );
            assert!(error.to_string().contains(&text), "{error}");
        }
        assert_eq!(views.stored("kept").await, [doc! { "_id": 1, "a": 1 }], "{command}");
        let indexes = views.direct.collection::<Document>("kept").list_index_names().await.unwrap();
        assert_eq!(indexes, ["_id_", "a"], "{command}");
        // The server executes it: without the rule it drops or changes the collection. `create` fails: it exists. Only
        // Atlas has search indexes.
        let direct = views.direct.client().database(database).run_command(command.clone()).await;
        let fails = command.keys().next().is_some_and(|name| name == "create" || name.contains("Search"));
        assert!(direct.is_ok() || fails, "{command}: {direct:?}");
    }
    // Rules that name other commands or other databases do not reject them.
    views.store("indexed", [doc! { "_id": 1 }]).await;
    views.run(doc! { "createIndexes": "indexed", "indexes": [index()] }).await.unwrap();
    assert_eq!(code(&views.run(doc! { "dropIndexes": "indexed", "index": "*" }).await.unwrap_err()), 121);
    views.run(doc! { "drop": "indexed" }).await.unwrap();
}

#[tokio::test]
async fn statements_of_a_shape_are_rejected() {
    let views = views().await;
    let delete = |filter: Document, limit: i32| {
        doc! { "delete": "shaped", "deletes": [{ "q": { "b": 1 }, "limit": 0 }, { "q": filter, "limit": limit }] }
    };
    let update = |filter: Document, change: Document, upsert: bool| {
        doc! { "update": "shaped", "updates": [{ "q": filter, "u": change, "upsert": upsert }] }
    };
    let set = || doc! { "$set": { "a": 5 } };
    for (command, rejected) in [
        (delete(doc! {}, 0), true),
        (delete(doc! {}, 1), false),
        (delete(doc! { "a": 1 }, 0), false),
        (update(doc! { "_id": 7 }, set(), true), true),
        (update(doc! { "_id": "x" }, doc! { "$set": { "a": "y" } }, true), true),
        (update(doc! { "_id": 7 }, set(), false), false),
        (update(doc! { "_id": 7, "b": 1 }, set(), true), false),
        (doc! { "find": "shaped", "filter": { "a": { "$gt": 9 } } }, true),
        (doc! { "find": "shaped", "filter": { "a": 9 } }, false),
    ] {
        let code = match views.run(command.clone()).await {
            Err(error) => Some(code(&error)),
            Ok(reply) => support::driver::write_errors(&reply).first().map(|(_, code)| *code),
        };
        assert_eq!(code, rejected.then_some(121), "{command}");
    }
}
