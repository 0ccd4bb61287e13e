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
    let (mut shop, mut desk) = (application(&docward, "shop"), application(&docward, "desk"));
    let n = |reply: &Document| reply.get_i32("n").unwrap();

    // Three checkouts of two books in one batch, then one more, by a filter with its own condition.
    let checkout = |id: i32| doc! { "q": { "_id": id }, "u": { "$inc": { "n": -1 } } };
    let batch = doc! { "update": "books", "updates": [checkout(1), checkout(1), checkout(1)] };
    assert_eq!(n(&shop.command(db, batch)), 2);
    let own = doc! { "q": { "_id": 1, "n": { "$gte": 1 } }, "u": { "$inc": { "n": -1 } } };
    assert_eq!(n(&desk.command(db, doc! { "update": "books", "updates": [own] })), 0);
    let stock = rule(&docward, "stock");
    assert_eq!(stock["verdicts"], serde_json::json!({"rewrite": 2, "no_match": 2}));
    let app = |name: &str| stock["apps"].as_array().unwrap().iter().find(|app| app["app"] == name).unwrap().clone();
    assert_eq!(
        (&app("shop")["rewritten"], &app("shop")["no_match"], &app("desk")["no_match"]),
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
    assert_eq!(rule(&docward, "jobs")["verdicts"], serde_json::json!({"rewrite": 2, "no_match": 2}));

    // An event that arrives late, and a save of an old version.
    let event = |at: i64| doc! { "update": "sensors", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "t": at, "at": at } }, "upsert": true }] };
    for at in [5, 7, 6] {
        assert_eq!(n(&shop.command(db, event(at))), 1);
    }
    assert_eq!(rule(&docward, "times")["verdicts"], serde_json::json!({"rewrite": 2, "stale": 1}));
    let save = |v: i32| doc! { "update": "orders", "updates": [{ "q": { "_id": 1 }, "u": { "_id": 1, "v": v } }] };
    let error = shop.command(db, save(3)).get_array("writeErrors").unwrap()[0].as_document().unwrap().clone();
    assert_eq!(error.get_i32("code").unwrap(), 112);
    assert_eq!(n(&shop.command(db, save(4))), 1);
    let saves = rule(&docward, "saves");
    assert_eq!(saves["verdicts"], serde_json::json!({"rewrite": 1, "conflict": 1}));
    assert_eq!((&saves["counts"]["conflict"], &saves["counts"]["warned"]), (&1.into(), &0.into()));

    let example = &saves["examples"][0];
    assert_eq!(
        (&example["effect"], &example["app"], &example["users"]),
        (&"conflict".into(), &"shop".into(), &"".into())
    );
    assert_eq!(example["shape"], "replaceOne({_id}, {_id, v})");
    assert!(example["reason"].as_str().unwrap().contains("'v' 4") && example["last"].as_u64().is_some(), "{example}");
    let no_match = &stock["examples"][0];
    assert_eq!((&no_match["effect"], &no_match["statements"]), (&"no_match".into(), &1.into()));

    let metrics = get(&docward.admin_address(), "/metrics").body;
    for (rule, verdict, count) in [("stock", "no_match", 2), ("times", "stale", 1), ("saves", "conflict", 1)] {
        let series = format!(r#"docward_rule_statements_total{{rule="{rule}",verdict="{verdict}"}} {count}"#);
        assert!(metrics.contains(&series), "{series}");
    }
}
