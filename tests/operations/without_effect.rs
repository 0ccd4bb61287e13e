//! Statements that a rule's condition stopped are counted as what they are, by rule and application.

use bson::{Document, doc};
use serde_json::Value;
use support::http::get;
use support::mongod::Mongod;
use support::proxy::Docward;
use support::raw::Client;

const RULES: &str = r#"version: 1
rules:
  - { name: stock, namespace: "without_effect.books", bounds: { field: n, min: 0 } }
  - { name: jobs, namespace: "without_effect.jobs", queue: { lease: 5m } }
  - { name: times, namespace: "without_effect.sensors", timestamps: { source: at, type: long } }
  - { name: saves, namespace: "without_effect.orders", replacement: { policy: check_version, version: v } }
"#;

fn application(docward: &Docward, name: &str) -> Client {
    let mut client = Client::connect(&docward.address());
    let driver = doc! { "name": "raw", "version": "1" };
    let metadata = doc! { "application": { "name": name }, "driver": driver, "os": { "type": "x" } };
    client.command("admin", doc! { "hello": 1, "client": metadata });
    client
}

fn rule(docward: &Docward, name: &str) -> Value {
    let rules = get(&docward.admin_address(), "/api/rules").json();
    rules["rules"].as_array().unwrap().iter().find(|rule| rule["name"] == name).unwrap().clone()
}

#[test]
fn what_a_condition_stopped_is_counted_by_rule_and_application() {
    let mongod = Mongod::shared();
    let db = "without_effect";
    mongod.command(db, doc! { "dropDatabase": 1 });
    mongod.command(db, doc! { "insert": "books", "documents": [{ "_id": 1, "n": 2 }] });
    mongod.command(db, doc! { "insert": "orders", "documents": [{ "_id": 1, "v": 4 }] });
    let docward = Docward::before(&mongod.uri()).rules(RULES).admin().start();
    let series = get(&docward.admin_address(), "/metrics").body;
    for (rule, outcome) in [("stock", "no_match"), ("times", "stale"), ("saves", "conflict"), ("saves", "no_match")] {
        let zero = format!(r#"docward_rule_statements_total{{rule="{rule}",outcome="{outcome}"}} 0"#);
        assert!(series.contains(&zero), "{zero}");
    }
    let (mut shop, mut desk) = (application(&docward, "shop"), application(&docward, "desk"));
    let n = |reply: &Document| reply.get_i32("n").unwrap();

    // Three checkouts of two books in one batch, then one more, by a filter with its own condition.
    let checkout = |id: i32| doc! { "q": { "_id": id }, "u": { "$inc": { "n": -1 } } };
    let batch = doc! { "update": "books", "updates": [checkout(1), checkout(1), checkout(1)] };
    assert_eq!(n(&shop.command(db, batch)), 2);
    let own = doc! { "q": { "_id": 1, "n": { "$gte": 1 } }, "u": { "$inc": { "n": -1 } } };
    assert_eq!(n(&desk.command(db, doc! { "update": "books", "updates": [own] })), 0);
    let stock = rule(&docward, "stock");
    assert_eq!(stock["outcomes"], serde_json::json!({"rewrite": 2, "no_match": 2}));
    let app = |name: &str| stock["apps"].as_array().unwrap().iter().find(|app| app["app"] == name).unwrap().clone();
    assert_eq!(
        (&app("shop")["rewrite"], &app("shop")["no_match"], &app("desk")["no_match"]),
        (&2.into(), &1.into(), &1.into())
    );

    // A claim without a free job, and a worker that lost its claim.
    let claim =
        doc! { "findAndModify": "jobs", "query": { "locked": false }, "update": { "$set": { "locked": true } } };
    assert!(shop.command(db, claim.clone()).get("value").unwrap().as_null().is_some());
    shop.command(db, doc! { "insert": "jobs", "documents": [{ "_id": 1 }] });
    assert!(shop.command(db, claim).get_document("value").is_ok());
    let done = |attempt: i32| doc! { "delete": "jobs", "deletes": [{ "q": { "_id": 1, "try": attempt }, "limit": 1 }] };
    assert_eq!((n(&shop.command(db, done(7))), n(&shop.command(db, done(1)))), (0, 1));
    assert_eq!(rule(&docward, "jobs")["outcomes"], serde_json::json!({"rewrite": 2, "no_match": 2}));

    // An event that arrives late, and a save of an old version.
    let event = |at: i64| doc! { "update": "sensors", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "t": at, "at": at } }, "upsert": true }] };
    for at in [5, 7, 6] {
        assert_eq!(n(&shop.command(db, event(at))), 1);
    }
    assert_eq!(rule(&docward, "times")["outcomes"], serde_json::json!({"rewrite": 2, "stale": 1}));
    let save = |v: i32| doc! { "update": "orders", "updates": [{ "q": { "_id": 1 }, "u": { "_id": 1, "v": v } }] };
    let error = shop.command(db, save(3)).get_array("writeErrors").unwrap()[0].as_document().unwrap().clone();
    assert_eq!(error.get_i32("code").unwrap(), 112);
    assert_eq!(n(&shop.command(db, save(4))), 1);
    let saves = rule(&docward, "saves");
    assert_eq!(saves["outcomes"], serde_json::json!({"rewrite": 1, "conflict": 1}));
    assert_eq!((&saves["counts"]["conflict"], &saves["counts"]["warn"]), (&1.into(), &0.into()));

    let example = &saves["examples"][0];
    assert_eq!(
        (&example["outcome"], &example["app"], &example["users"]),
        (&"conflict".into(), &"shop".into(), &"".into())
    );
    assert_eq!(example["shape"], "replaceOne({_id}, {_id, v})");
    assert!(example["reason"].as_str().unwrap().contains("'v' 4") && example["last"].as_u64().is_some(), "{example}");
    let no_match = &stock["examples"][0];
    assert_eq!((&no_match["outcome"], &no_match["statements"]), (&"no_match".into(), &1.into()));

    let metrics = get(&docward.admin_address(), "/metrics").body;
    for (rule, outcome, count) in [("stock", "no_match", 2), ("times", "stale", 1), ("saves", "conflict", 1)] {
        let series = format!(r#"docward_rule_statements_total{{rule="{rule}",outcome="{outcome}"}} {count}"#);
        assert!(metrics.contains(&series), "{series}");
    }
}

/// Operators that a pipeline cannot express are checked, and a move in a tree is applied in a transaction.
#[test]
fn late_statements_in_transactions_are_counted() {
    let mongod = Mongod::shared();
    let db = &mongod.fresh_database();
    let rules = format!(
        r#"version: 1
rules:
  - {{ name: views, namespace: "{db}.views", timestamps: {{ source: at, type: long, fields: [last] }} }}
  - {{ name: moves, namespace: "{db}.tree", timestamps: {{ source: at, type: long, per: document }} }}
  - {{ name: tree, namespace: "{db}.tree", tree: {{ parent: parent, path: path }} }}
"#
    );
    let docward = Docward::before(&mongod.uri()).rules(&rules).admin().start();
    let mut app = application(&docward, "app");
    let counts = |reply: &Document| (reply.get_i32("n").unwrap(), reply.get_i32("nModified").unwrap());

    for (at, expected) in [(5, (1, 0)), (7, (1, 1)), (6, (1, 0))] {
        let change = doc! { "$set": { "last": at, "at": at }, "$setOnInsert": { "first": at }, "$push": { "log": { "$each": [] } } };
        let view = doc! { "q": { "_id": 1 }, "u": change, "upsert": true };
        assert_eq!(counts(&app.command(db, doc! { "update": "views", "updates": [view] })), expected, "{at}");
    }
    assert_eq!(rule(&docward, "views")["outcomes"], serde_json::json!({"check": 3}));

    let nodes = ["a", "b"].map(|id| doc! { "_id": id, "parent": null, "at": 1_i64 });
    app.command(db, doc! { "insert": "tree", "documents": nodes.to_vec() });
    app.command(db, doc! { "insert": "tree", "documents": [{ "_id": "c", "parent": "a", "at": 5_i64 }] });
    for (parent, at, modified) in [("b", 4_i64, 0), ("b", 6, 1)] {
        let change = doc! { "$set": { "parent": parent, "at": at } };
        let reply = app.command(db, doc! { "update": "tree", "updates": [{ "q": { "_id": "c" }, "u": change }] });
        assert_eq!(counts(&reply), (1, modified), "{reply}");
    }
    let moves = rule(&docward, "moves")["outcomes"].clone();
    assert_eq!((&moves["stale"], &moves["rewrite"]), (&1.into(), &4.into()), "{moves}");
}
