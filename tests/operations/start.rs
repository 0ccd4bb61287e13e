//! What `serve` reports at start about a deployment and settings that do not fit.

use std::time::{Duration, Instant};

use bson::{Document, doc};
use serde_json::Value;
use support::frame::Message;
use support::http::get;
use support::mongod::{Kind, Mongod};
use support::process::{docward, free_port};
use support::proxy::Docward;
use support::raw::Client;
use support::scripted::{Peer, reply_to};

const TREE: &str = "version: 1\nrules: [{ name: r, namespace: d.c, tree: { parent: parent, path: path } }]\n";
const BOUNDS: &str = "version: 1\nrules: [{ name: r, namespace: d.c, bounds: { field: n, min: 0 } }]\n";
const SEQUENCE: &str = "version: 1\nrules: [{ name: r, namespace: d.c, sequence: { field: n, counter: c } }]\n";

#[test]
fn a_server_of_another_replica_set_is_refused() {
    let standalone = Mongod::start(Kind::Standalone);
    let uri = format!("{}?replicaSet=rs7", Mongod::shared().uri().split('?').next().unwrap());
    let shared = Docward::before(&uri).try_start().err().expect("docward started");
    assert!(shared.contains("is a member of the replica set '") && shared.contains("has replicaSet=rs7"), "{shared}");
    let alone = Docward::before(&format!("mongodb://{}/?replicaSet=rs7", standalone.address())).try_start();
    let alone = alone.err().expect("docward started");
    assert!(alone.contains("is not a member of a replica set"), "{alone}");
}

/// Replica sets often have the same name, and their hosts differ.
#[test]
fn a_service_of_another_deployment_is_refused() {
    let (shared, set) = (Mongod::shared(), Mongod::start(Kind::ReplicaSet));
    let (standalone, other) = (Mongod::start(Kind::Standalone), Mongod::start(Kind::Standalone));
    let rules = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    std::fs::write(rules.path(), BOUNDS).unwrap();
    for (upstream, service) in [(shared, &set), (shared, &standalone), (&standalone, shared), (&standalone, &other)] {
        let before = Docward::before(&upstream.uri()).argument("--service").argument(service.uri());
        let refused = before.try_start().err().expect("docward started");
        let expected = "is not of the deployment of `upstream`";
        assert!(refused.contains("--service: ") && refused.contains(expected), "{refused}");
        let path = rules.path().to_str().unwrap();
        let checked = docward(&["check", path, "--upstream", &upstream.uri(), "--service", &service.uri()]);
        let shown = String::from_utf8(checked.stderr).unwrap();
        assert!(checked.status.code() == Some(1) && shown.contains(expected), "{shown}");
    }
    for mongod in [shared, &standalone] {
        Docward::before(&mongod.uri()).argument("--service").argument(mongod.uri()).start();
    }
}

#[test]
fn what_a_server_lacks_is_logged_with_the_rule() {
    let standalone = Mongod::start(Kind::Standalone);
    let docward = Docward::before(&standalone.uri()).rules(TREE).start();
    docward.wait_for_log("rule 'r' (tree) needs transactions (MongoDB 4.0 or later), and the upstream is a standalone");
    // Enough for the rule.
    let docward = Docward::before(&standalone.uri()).rules(BOUNDS).start();
    docward.rewrite_rules(TREE);
    docward.signal("HUP");
    docward.wait_for_log("rule 'r' (tree) needs transactions");
    assert!(!docward.log().iter().any(|line| line.contains("(bounds) needs")), "{:?}", docward.log());
}

/// The hello reply of a release that no test has.
fn hello(wire_version: i32) -> Document {
    doc! {
        "isWritablePrimary": true, "maxBsonObjectSize": 16_777_216, "maxMessageSizeBytes": 48_000_000,
        "maxWriteBatchSize": 100_000, "logicalSessionTimeoutMinutes": 30, "minWireVersion": 0,
        "maxWireVersion": wire_version, "readOnly": false, "ok": 1.0,
    }
}

/// A release or a compatible server that no test has. It accepts the `explain` of everything, as FerretDB does.
#[test]
fn what_an_old_or_compatible_server_lacks_is_logged_with_the_rule() {
    let refuse = |request| {
        let executes = Message::parse(&request).body().contains_key("aggregate");
        let refused = doc! { "ok": 0.0, "errmsg": "$isNumber is not implemented", "code": 238_000 };
        vec![reply_to(
            &request,
            if executes {
                refused
            } else {
                doc! { "ok": 1.0 }
            },
        )]
    };
    let old = Peer::with_hello(hello(8), refuse);
    let docward = Docward::before(&old.uri()).rules(BOUNDS).start();
    docward.wait_for_log(
        "rule 'r' (bounds) needs the operator $isNumber (MongoDB 4.4 or later), and the server is older (its maxWireVersion \
         is 8); upgrade the server",
    );
    let compatible = Peer::with_hello(hello(17), refuse);
    let docward = Docward::before(&compatible.uri()).rules(BOUNDS).start();
    docward.wait_for_log("and the server replies: $isNumber is not implemented (code 238000)");
}

/// Servers that are compatible with MongoDB name a replica set in their hello, whatever they have.
#[test]
fn a_compatible_server_without_transactions_or_change_streams_is_found() {
    let refuse = |request| {
        let body = Message::parse(&request).body().clone();
        let is_stream = format!("{body}").contains("$changeStream");
        let reply = match (body.contains_key("startTransaction"), is_stream) {
            (true, _) => doc! { "ok": 0.0, "errmsg": "no such thing as a transaction", "code": 238 },
            (_, true) => doc! { "ok": 0.0, "errmsg": "no such stage", "code": 40324 },
            _ => doc! { "ok": 1.0 },
        };
        vec![reply_to(&request, reply)]
    };
    let mut hello = hello(17);
    let peer = |hello: &Document| Peer::with_hello(hello.clone(), refuse);
    hello.insert("msg", "isdbgrid");
    let compatible = peer(&hello);
    let docward = Docward::before(&compatible.uri()).rules(&TREE.replace("d.c", "\"*.c*\"")).start();
    docward.wait_for_log("rule 'r' (tree) needs transactions (MongoDB 4.0 or later), and the server replies: no such");
    let history = "version: 1\nrules: [{ name: r, namespace: d.c, history: { into: h, keep: 3 } }]\n";
    let docward = Docward::before(&compatible.uri()).rules(history).start();
    docward.wait_for_log("and the server replies: no such stage (code 40324)");
}

#[test]
fn a_server_that_has_everything_lacks_nothing() {
    let rules = &TREE.replace("]\n", ", { name: h, namespace: e.c, history: { into: h, keep: 3 } }]\n");
    let before = Docward::before(&Mongod::shared().uri()).rules(rules);
    let docward = before.environment("RUST_LOG", "info,docward_proxy::service::requirements=debug").start();
    docward.wait_for_log("checked whether the server has what the rules need lacking=0");
}

/// The driver reports it as a server that cannot be reached, after which a retry would close the connection for ever.
#[test]
fn an_insert_that_needs_a_number_of_a_server_that_is_too_old_is_rejected() {
    let old = Peer::with_hello(hello(8), |request| vec![reply_to(&request, doc! { "n": 1, "ok": 1.0 })]);
    for rules in [SEQUENCE, &SEQUENCE.replace("counter: c", "strategy: optimistic")] {
        let docward = Docward::before(&old.uri()).rules(rules).admin().start();
        docward.wait_for_log(
            "rule 'r' (sequence) needs docward's own connection (MongoDB 4.4 or later), and the server is older (its \
             maxWireVersion is 8); upgrade the server",
        );
        let mut client = Client::connect(&docward.address());
        for _ in 0..2 {
            let reply = client.command("d", doc! { "insert": "c", "documents": [{ "_id": 1 }] });
            let error = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap().get_str("errmsg").unwrap();
            let expected = "docward's own connection needs MongoDB 4.4 or later; the server's maxWireVersion is 8";
            assert!(error.contains("'r'") && error.contains(expected), "{error}");
        }
        assert_eq!(client.command("d", doc! { "find": "c" }).get_i32("n").unwrap(), 1);
        // Nothing was rewritten.
        let metrics = get(&docward.admin_address(), "/metrics").body;
        let counts = |outcome| format!("docward_rule_statements_total{{rule=\"r\",outcome=\"{outcome}\"}} 2");
        assert!(metrics.contains(&counts("reject")) && !metrics.contains(&counts("rewrite")), "{metrics}");
    }
}

#[test]
fn rules_count_from_their_load_on() {
    let docward = Docward::before(&Mongod::shared().uri()).rules(BOUNDS).admin().start();
    let loaded = milliseconds();
    std::thread::sleep(Duration::from_millis(1500));
    let since = || get(&docward.admin_address(), "/api/rules").json()["rules"][0]["since"].as_i64().unwrap();
    assert!(since() < loaded + 1000, "{} {loaded}", since());
    docward.rewrite_rules(&BOUNDS.replace("min: 0", "min: 1"));
    docward.signal("HUP");
    docward.wait_for_log("rules loaded");
    let loaded = milliseconds();
    std::thread::sleep(Duration::from_millis(1500));
    assert!((loaded - 1000..loaded + 1000).contains(&since()), "{} {loaded}", since());
}

/// The time since 1970.
fn milliseconds() -> i64 {
    bson::DateTime::now().timestamp_millis()
}

#[test]
fn the_listener_opens_at_once_while_the_upstream_is_down() {
    let begun = Instant::now();
    let docward = Docward::before(&format!("mongodb://127.0.0.1:{}/", free_port())).rules(SEQUENCE).start();
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    let line = docward.wait_for_log("the privileges of docward's own user are not checked yet");
    assert!(line.contains(": connection refused; retrying in 10 s"), "{line}");
}

/// Also the addresses on stdout, errors of the configuration, and those that end the process.
#[test]
fn every_line_of_a_json_log_is_an_object() {
    let uri = format!("mongodb://user:secret@127.0.0.1:{}/", free_port());
    let with_format = |rules: &str| Docward::before(&uri).rules(rules).argument("--log-format").argument("json");
    let running = with_format(&BOUNDS.replace("name: r", "name: r, mode: disabled")).start();
    running.wait_for_log("every rule is disabled");
    running.wait_for_log("the credentials in --upstream");
    running.rewrite_rules("version: 1\nrules: [{ name: r }]\n");
    running.signal("HUP");
    running.wait_for_log("rules not reloaded");
    let wrong_rules = with_format("version: 1\nrules: [{ name: r }]\n").try_start().err().expect("docward started");
    let wrong_flags = with_format(BOUNDS)
        .argument("--admin-token")
        .argument("0123456789abcdef")
        .try_start()
        .err()
        .expect("docward started");
    let lines = running.log();
    let output = running.output();
    let all = output.iter().chain(&lines).map(String::as_str).chain(wrong_rules.lines()).chain(wrong_flags.lines());
    let read = |line: &str| serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let found: Vec<Value> = all.map(read).collect();
    let has = |key: &str, value: &str| found.iter().any(|line| line[key] == value);
    assert!(has("code", "R0011") || has("code", "R0008") || found.iter().any(|line| line["line"] == 2), "{found:?}");
    assert!(found.iter().any(|line| line["message"].as_str().unwrap().contains("requires --admin")), "{found:?}");
    assert!(found.iter().any(|line| line["message"].as_str().unwrap().starts_with("listening on ")), "{found:?}");
    assert!(found.iter().all(|line| line["timestamp"].is_string() && line["level"].is_string()), "{found:?}");
}
