//! The list of open connections, and closing one.

use std::time::{Duration, Instant};

use bson::doc;
use serde_json::Value;
use support::frame::{EXHAUST_ALLOWED, Message};
use support::http::{HttpReply, get, request};
use support::mongod::Mongod;
use support::process::{TIMEOUT, poll};
use support::proxy::Docward;
use support::raw::Client;

const TOKEN: &str = "0123456789abcdef";
const RULES: &str = "version: 1\nrules:\n  - { name: r, namespace: 'listed.c', bounds: { field: n, min: 0 } }\n";

fn docward(arguments: &[&str]) -> Docward {
    let docward = Docward::before(&Mongod::shared().uri()).rules(RULES).admin();
    let docward = docward.argument("--admin-token").argument(TOKEN);
    arguments.iter().fold(docward, |docward, argument| docward.argument(*argument)).start()
}

fn send(docward: &Docward, method: &str, body: &str) -> HttpReply {
    let authorization = format!("Bearer {TOKEN}");
    let headers =
        [("Host", "localhost"), ("Authorization", authorization.as_str()), ("Content-Type", "application/json")];
    request(&docward.admin_address(), method, "/api/connections", &headers, body)
}

/// The connections of the application "shop".
fn of_shop(docward: &Docward) -> Vec<Value> {
    let listed = send(docward, "GET", "").json();
    let all = listed["connections"].as_array().unwrap().clone();
    assert_eq!(listed["total"], all.len());
    all.into_iter().filter(|one| one["app"] == "shop").collect()
}

fn shop(docward: &Docward) -> Client {
    let mut client = Client::connect(&docward.address());
    let driver = doc! { "name": "raw", "version": "1" };
    let metadata = doc! { "application": { "name": "shop" }, "driver": driver, "os": { "type": "x" } };
    client.command("admin", doc! { "hello": 1, "client": metadata });
    client
}

fn close(docward: &Docward, connection: &Value) -> HttpReply {
    send(docward, "POST", &format!(r#"{{"connection": {connection}, "by": "ada"}}"#))
}

#[test]
fn connections_are_listed_and_closed_also_while_they_wait() {
    for arguments in [&[][..], &["--pool-size", "2"]] {
        let docward = docward(arguments);
        let mut client = shop(&docward);
        client.command("listed", doc! { "ping": 1 });
        let idle = poll(TIMEOUT, || of_shop(&docward).pop().filter(|one| one["command"].is_null()));
        let idle = idle.unwrap_or_else(|| panic!("{arguments:?} {}", send(&docward, "GET", "").body));
        assert!(
            idle["bytes"]["client"].as_u64().unwrap() > 100 && idle["bytes"]["upstream"].as_u64().unwrap() > 0,
            "{idle}"
        );
        assert!(idle["client"].as_str().unwrap().starts_with("127.0.0.1:"), "{idle}");
        assert_eq!(close(&docward, &idle["connection"]).status, 200);
        assert!(poll(TIMEOUT, || of_shop(&docward).is_empty().then_some(())).is_some());
        assert!(client.closes_within(TIMEOUT), "{arguments:?}");
        assert_eq!(close(&docward, &idle["connection"]).status, 404);

        // The users of a connection that somebody has seen are known after its next evaluated message.
        let mut client = shop(&docward);
        let update = doc! { "update": "c", "updates": [{ "q": { "_id": 0 }, "u": { "$set": { "n": 5 } } }] };
        client.command("listed", update.clone());
        let users = || of_shop(&docward).pop().map(|one| one["users"].clone());
        let before = users();
        client.command("listed", update);
        assert_eq!((before, users()), (Some(Value::Null), Some(Value::Array(Vec::new()))), "{arguments:?}");
        drop(client);

        // Commands that the server does not answer for a minute: one that streams through, and one with a rule.
        Mongod::shared().command(
            "listed",
            doc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "n": 5 } }, "upsert": true }] },
        );
        let slow = doc! { "$where": "sleep(60000) || true" };
        let find = doc! { "find": "c", "filter": slow.clone() };
        let update = doc! { "update": "c", "updates": [{ "q": slow, "u": { "$inc": { "n": -1 } } }] };
        for (name, command) in [("find", find), ("update", update)] {
            let mut client = shop(&docward);
            let mut sent = command;
            sent.insert("$db", "listed");
            client.send(&Message::new(sent));
            let busy = |one: &Value| one["command"] == name && one["pending"].as_u64() > Some(200);
            let waiting = poll(Duration::from_secs(10), || of_shop(&docward).into_iter().find(busy));
            let waiting = waiting.unwrap_or_else(|| panic!("{name} {arguments:?}: {:?}", of_shop(&docward)));
            let began = Instant::now();
            assert_eq!(close(&docward, &waiting["connection"]).status, 200);
            assert!(client.closes_within(TIMEOUT), "{name} {arguments:?}");
            assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        }
        // Others go on, with the same pool.
        let mut other = shop(&docward);
        assert_eq!(other.command("listed", doc! { "ping": 1 }).get_f64("ok").unwrap(), 1.0);
        let authorization = format!("Bearer {TOKEN}");
        let headers = [("Host", "localhost"), ("Authorization", authorization.as_str())];
        let metrics = request(&docward.admin_address(), "GET", "/metrics", &headers, "").body;
        assert!(metrics.contains(r#"docward_connections_ended_total{reason="operator"} 3"#), "{metrics}");
        assert!(docward.log().iter().any(|line| line.contains("closed by an operator") && line.contains("ada")));
    }
}

#[test]
fn closing_requires_a_configured_token() {
    let docward = Docward::before(&Mongod::shared().uri()).admin().start();
    assert_eq!(get(&docward.admin_address(), "/api/connections").status, 200);
    let headers = [("Host", "localhost"), ("Content-Type", "application/json")];
    let reply = request(&docward.admin_address(), "POST", "/api/connections", &headers, r#"{"connection": 1}"#);
    assert_eq!(reply.status, 403);
}

#[test]
fn the_slowest_statements_are_listed_with_their_clients() {
    let docward = docward(&[]);
    let mut client = shop(&docward);
    // One through the rule, the other one forwarded.
    let slow = |milliseconds: i32| format!("sleep({milliseconds}) || true");
    for id in 0..2 {
        client.command("listed", doc! { "insert": "c", "documents": [{ "_id": id, "n": 1 }] });
        client.command("listed", doc! { "insert": "free", "documents": [{ "_id": id }] });
    }
    client.command("listed", doc! { "find": "free", "filter": { "_id": 0, "$where": slow(700) } });
    client.command("listed", doc! { "find": "free", "filter": { "_id": 0, "$where": slow(300) } });
    let statement = doc! { "q": { "_id": 1, "$where": slow(400) }, "u": { "$set": { "n": 2 } } };
    let mut sent = doc! { "update": "c" };
    sent.insert("$db", "listed");
    client.exchange(&Message::new(sent).sequence("updates", vec![statement]));
    client.wait_until_counted();
    let authorization = format!("Bearer {TOKEN}");
    let headers = [("Host", "localhost"), ("Authorization", authorization.as_str())];
    let reply = request(&docward.admin_address(), "GET", "/api/slowest", &headers, "");
    let listed: Value = serde_json::from_str(&reply.body).unwrap();
    let statements = listed["statements"].as_array().unwrap();
    let found = |shape: &str| {
        let same: Vec<_> = statements.iter().filter(|one| one["shape"] == shape).collect();
        assert_eq!(same.len(), 1, "{shape}: {listed:#}");
        same[0].clone()
    };
    let (find, update) = (found("find({_id, $where})"), found("updateOne({_id, $where}, {$set: {n}})"));
    assert_eq!((&find["namespace"], &find["app"]), (&"listed.free".into(), &"shop".into()));
    assert_eq!((&update["namespace"], &update["app"]), (&"listed.c".into(), &"shop".into()));
    for (one, least) in [(&find, 700.0), (&update, 400.0)] {
        let times = [&one["milliseconds"], &one["upstream"]].map(|time| time.as_f64().unwrap());
        assert!(times[1] >= least && times[0] >= times[1], "{one}");
    }
    assert!(statements.iter().is_sorted_by(|a, b| a["milliseconds"].as_f64() >= b["milliseconds"].as_f64()));
}

/// A driver replaces its connections when that of its monitor closes. Without a monitor they close after twice the time.
#[test]
fn old_connections_close_when_they_are_idle_or_at_a_request_that_drivers_repeat() {
    for arguments in [&["--max-lifetime", "1s"][..], &["--max-lifetime", "1s", "--pool-size", "2"]] {
        let docward = docward(arguments);
        let [mut idle, mut busy, mut monitor] = [(); 3].map(|()| Client::connect(&docward.address()));
        // The lifetime begins with the first message.
        for client in [&mut idle, &mut busy] {
            client.command("listed", doc! { "ping": 1 });
        }
        let hello = monitor.command("admin", doc! { "hello": 1 });
        let version = hello.get_document("topologyVersion").unwrap().clone();
        let awaiting = doc! { "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 60_000, "$db": "admin" };
        monitor.send(&Message::new(awaiting).flags(EXHAUST_ALLOWED));
        let last = Message::parse(&monitor.receive());
        assert!(!last.body().get_bool("isWritablePrimary").unwrap(), "{arguments:?} {:?}", last.body());
        assert!(monitor.closes_within(TIMEOUT), "{arguments:?}");
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(1500) {
            let update = doc! { "q": {}, "u": { "$set": { "a": 1 } }, "multi": true };
            let reply = busy.command("listed", doc! { "update": "old", "updates": [update] });
            assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{reply}");
        }
        let session = doc! { "id": bson::Uuid::new() };
        let insert = doc! { "insert": "old", "documents": [{}], "lsid": session, "txnNumber": 1_i64, "$db": "listed" };
        busy.send(&Message::new(insert));
        assert!(busy.closes_within(TIMEOUT) && idle.closes_within(TIMEOUT), "{arguments:?}");
        assert_eq!(Mongod::shared().command("listed", doc! { "count": "old" }).get_i32("n").unwrap(), 0);
        let headers = [("Host", "localhost"), ("Authorization", &*format!("Bearer {TOKEN}"))];
        let metrics = request(&docward.admin_address(), "GET", "/metrics", &headers, "").body;
        assert!(metrics.contains(r#"docward_connections_ended_total{reason="expired"} 3"#), "{metrics}");
    }
}
