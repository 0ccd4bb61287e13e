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
