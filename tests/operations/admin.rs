//! The admin address: health, the console's data, and access control.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use bson::{Document, doc};
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};
use support::http::{Events, HttpReply, get, post, request, try_get};
use support::mongod::{Kind, Mongod};
use support::process::{Resident, TIMEOUT, docward_executable, free_port, poll};
use support::proxy::Docward;
use support::raw::Client;

const RULES: &str = r#"version: 1
rules:
  - name: whole
    why: "It <b>erases</b> what it has not read."
    namespace: "*.orders"
    replacement: { policy: reject }

  # After a rule, but part of the next one.
  - name: tried   # not yet
    namespace: "*.items"
    mode: shadow
    together: [a, b]
"#;

/// Sends a replacement that the rule `whole` rejects, from a client with an application name.
fn replace(docward: &Docward) -> Document {
    let mut client = Client::connect(&docward.address());
    let hello = doc! { "hello": 1, "client": { "application": { "name": "shop\n\u{1b}[31m" }, "driver": { "name": "raw", "version": "1" }, "os": { "type": "x" } } };
    assert_eq!(client.command("admin", hello).get_f64("ok").ok(), Some(1.0));
    let stored = doc! { "q": { "_id": "secret" }, "u": { "$set": { "there": true } }, "upsert": true };
    Mongod::shared().command("shop", doc! { "update": "orders", "updates": [stored] });
    let update = doc! { "update": "orders", "updates": [{ "q": { "_id": "secret" }, "u": { "status": "secret" } }] };
    client.command("shop", update)
}

fn rule<'a>(rules: &'a Value, name: &str) -> &'a Value {
    rules["rules"].as_array().unwrap().iter().find(|rule| rule["name"] == name).unwrap()
}

#[test]
fn health_reports_readiness() {
    let mongod = Mongod::start(Kind::ReplicaSet);
    let mut docward = Docward::before(&mongod.uri()).admin().start();
    let admin = docward.admin_address();
    assert_eq!(get(&admin, "/healthz").status, 200);
    let ready = poll(TIMEOUT, || Some(get(&admin, "/readyz")).filter(|reply| reply.status == 200)).unwrap();
    assert_eq!(ready.json(), json!({"ready": true, "reasons": []}));
    drop(mongod);
    let unready = poll(TIMEOUT, || Some(get(&admin, "/readyz")).filter(|reply| reply.status == 503)).unwrap();
    assert_eq!(unready.json()["reasons"][0]["code"], "upstream");
    assert_eq!(get(&admin, "/healthz").status, 200);
    let status = get(&admin, "/api/status").json();
    assert_eq!(status["members"][0]["up"], false);
    assert_ne!(status["members"][0]["error"], "");
    assert!(docward.terminate().success());
}

#[test]
fn health_reports_a_drain_until_its_end() {
    let mongod = Mongod::shared();
    let mut docward = Docward::before(&mongod.uri()).admin().start();
    let admin = docward.admin_address();
    let mut client = Client::connect(&docward.address());
    let session = bson::Uuid::new();
    let mut send = |mut command: Document, more: Document| {
        command.extend(doc! { "lsid": { "id": session }, "txnNumber": 1_i64, "autocommit": false });
        command.extend(more);
        client.command(if command.contains_key("insert") { "drained" } else { "admin" }, command)
    };
    let begun = send(doc! { "insert": "c", "documents": [{ "a": 1 }] }, doc! { "startTransaction": true });
    assert_eq!(begun.get_f64("ok").ok(), Some(1.0), "{begun}");
    docward.signal("TERM");
    // On a slow machine the member may not answer for a moment.
    let drains = |reply: &HttpReply| reply.status == 503 && reply.json()["reasons"][0]["code"] == "draining";
    assert!(poll(TIMEOUT, || Some(get(&admin, "/readyz")).filter(drains)).is_some());
    assert_eq!(get(&admin, "/api/status").json()["phase"], "draining");
    assert_eq!(send(doc! { "commitTransaction": 1 }, doc! {}).get_f64("ok").ok(), Some(1.0));
    assert!(docward.wait().success());
}

#[test]
fn rules_are_listed_with_their_decisions_and_removed_rules_too() {
    let docward = Docward::before(&Mongod::shared().uri()).rules(RULES).admin().start();
    let admin = docward.admin_address();
    for _ in 0..3 {
        assert!(replace(&docward).contains_key("writeErrors"));
    }
    let rules = get(&admin, "/api/rules").json();
    let whole = rule(&rules, "whole");
    assert_eq!((&whole["outcomes"], &whole["counts"]["reject"]), (&json!({"reject": 3}), &json!(3)));
    let written = &whole["written"];
    assert_eq!(written["why"], "It <b>erases</b> what it has not read.");
    assert_eq!(
        (&written["line"], &written["mode"], &written["pattern"]),
        (&3.into(), &"enforce".into(), &"replacement".into())
    );
    assert_eq!(written["source"], RULES.lines().skip(2).take(4).collect::<Vec<_>>().join("\n"));
    assert!(written["file"].as_str().unwrap().ends_with("rules.yaml"));
    let rejected: u64 =
        whole["history"].as_array().unwrap().iter().map(|minute| minute["reject"].as_u64().unwrap()).sum();
    assert_eq!(rejected, 3);
    assert_eq!(whole["apps"][0]["reject"], 3);
    assert!(whole["last"].as_u64() >= whole["since"].as_u64());
    let tried = rule(&rules, "tried");
    assert_eq!(
        (&tried["written"]["mode"], &tried["last"], &tried["history"]),
        (&"shadow".into(), &Value::Null, &json!([]))
    );

    let status = get(&admin, "/api/status").json();
    assert_eq!((&status["set"]["hash"], &status["set"]["rules"]), (&rules["set"]["hash"], &2.into()));
    assert_eq!(status["members"][0]["listener"], docward.address());
    docward.rewrite_rules("version: 2\n");
    let status =
        poll(TIMEOUT, || Some(get(&admin, "/api/status").json()).filter(|status| status["reloads"]["failed"] == 1));
    assert!(status.unwrap()["reloads"]["last_error"].as_str().unwrap().contains("rules.yaml:1:10"));
    docward.rewrite_rules(&RULES.replace("reject", "merge"));
    let changed = poll(TIMEOUT, || Some(get(&admin, "/api/rules").json()).filter(|now| now["set"] != rules["set"]));
    let changed = changed.unwrap();
    let incarnations: Vec<_> =
        changed["rules"].as_array().unwrap().iter().filter(|rule| rule["name"] == "whole").collect();
    assert_eq!(
        incarnations.iter().map(|rule| (&rule["loaded"], &rule["counts"]["reject"])).collect::<Vec<_>>(),
        [(&json!(true), &json!(0)), (&json!(false), &json!(3)),]
    );
    assert_eq!(incarnations[1]["written"]["source"], written["source"]);
    // The rules are in force a moment before the status shows the reload.
    let is_reloaded = || get(&admin, "/api/status").json()["reloads"]["last_error"].is_null();
    poll(TIMEOUT, || is_reloaded().then_some(())).expect("the status has an old error");
}

#[test]
fn decisions_are_streamed_without_values() {
    let docward = Docward::before(&Mongod::shared().uri()).rules(RULES).admin().start();
    let admin = docward.admin_address();
    let mut early = Events::open(&admin, "/api/decisions").unwrap();
    replace(&docward);
    let (event, decision) = early.next_event();
    assert_eq!(event, "decision");
    let expected = [
        ("rule", "whole"),
        ("pattern", "replacement"),
        ("namespace", "shop.orders"),
        ("outcome", "reject"),
        ("shape", "replaceOne({_id}, {status})"),
        ("app", "shop\n\u{1b}[31m"),
    ];
    for (field, value) in expected {
        assert_eq!(decision[field], value, "{field}");
    }
    assert!(!decision.to_string().contains("secret"));
    assert!(decision["connection"].as_u64() > Some(0) && decision["number"] == 1);
    // A later subscriber receives the recent decisions.
    let mut late = Events::open(&admin, "/api/decisions").unwrap();
    assert_eq!(late.next_event(), (event, decision));
    replace(&docward);
    assert_eq!(late.next_event(), early.next_event());
    // The log has the decision too, on one line and without terminal escapes.
    let line = docward.wait_for_log("rule matched");
    assert!(line.contains("replaceOne({_id}, {status})") && line.contains(r"shop\n\u{1b}[31m"), "{line}");
    assert!(!line.contains("secret") && !line.contains('\u{1b}'), "{line}");
}

/// A flood of decisions is sampled, and the events report how many were suppressed.
#[test]
fn a_flood_of_decisions_is_sampled_and_counted() {
    let docward = Docward::before(&Mongod::shared().uri()).rules(RULES).admin().start();
    let mut events = Events::open(&docward.admin_address(), "/api/decisions").unwrap();
    let mut client = Client::connect(&docward.address());
    client.command("shop", doc! { "insert": "orders", "documents": [{}] });
    let (began, mut sent) = (Instant::now(), 0);
    let (shown, suppressed) = std::thread::scope(|scope| {
        let listening = scope.spawn(|| {
            // The first decision of the next second reports the number suppressed in the previous one.
            for shown in 1.. {
                let suppressed = events.next_event().1["suppressed"].as_u64().unwrap();
                assert!(began.elapsed() < TIMEOUT, "none of {shown} reports suppressed decisions");
                if suppressed > 0 {
                    return (shown, suppressed);
                }
            }
            unreachable!()
        });
        while !listening.is_finished() {
            let update = doc! { "update": "orders", "updates": [{ "q": {}, "u": { "a": 1 } }] };
            assert!(client.command("shop", update).contains_key("writeErrors"));
            sent += 1;
        }
        listening.join().unwrap()
    });
    let seconds = began.elapsed().as_secs() + 1;
    assert!(shown > 10 && shown <= 10 * seconds, "{shown} in {seconds} seconds");
    assert!(shown + suppressed <= sent, "{shown} shown and {suppressed} suppressed of {sent}");
    let rules = get(&docward.admin_address(), "/api/rules").json();
    assert_eq!(rule(&rules, "whole")["outcomes"]["reject"], sent);
}

#[test]
fn explain_answers_like_the_command_line() {
    let docward = Docward::before(&Mongod::shared().uri()).rules(RULES).admin().start();
    let admin = docward.admin_address();
    let command = "db.orders.replaceOne({_id: 1}, {status: 'paid'})";
    let asked = post(&admin, "/api/explain", &json!({"command": command, "database": "shop"}));
    let rules = docward.rules_file();
    let explain = |command: &str| {
        let arguments = ["explain", "--format", "json", "--db", "shop", "--rules", rules.to_str().unwrap(), command];
        let output = Command::new(docward_executable()).args(arguments).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    assert_eq!((asked.status, asked.json()), (200, explain(command)));
    assert_eq!(asked.json()["verdict"], "reject");
    let wrong = post(&admin, "/api/explain", &json!({"command": "db.orders.replaceOne(", "database": "shop"}));
    assert_eq!((wrong.status, wrong.json()), (422, explain("db.orders.replaceOne(")));
    assert_eq!(wrong.json()[0]["line"], 1);
    for (status, content_type, body) in [
        (415, "text/plain", r#"{"command": "db.c.find()"}"#.to_owned()),
        (422, "application/json", r#"{"command": "db.c.find()", "data": 1}"#.to_owned()),
        (400, "application/json", "{".to_owned()),
        (413, "application/json", format!(r#"{{"command": "{}"}}"#, "x".repeat(1 << 20))),
    ] {
        let reply = request(&admin, "POST", "/api/explain", &[("Host", &admin), ("Content-Type", content_type)], &body);
        assert_eq!(reply.status, status, "{reply:?}");
        assert!(reply.json()["error"].is_string());
    }
    let deep = format!("db.c.insertOne({}1{})", "{a: ".repeat(20_000), "}".repeat(20_000));
    assert_eq!(post(&admin, "/api/explain", &json!({"command": deep})).status, 422);
    assert_eq!(get(&admin, "/healthz").status, 200);
}

#[test]
fn explanations_are_bounded() {
    // Each of many rules has an explanation for each statement.
    let tried = |number: usize| {
        format!(
            "  - {{ name: tried-{number}, namespace: shop.orders, mode: shadow, bounds: {{ field: n{number}, min: 0 }} }}\n"
        )
    };
    let rules = format!("version: 1\nrules:\n{}", (0..20).map(tried).collect::<String>());
    let docward = Docward::before(&Mongod::shared().uri()).rules(&rules).admin().start();
    let admin = docward.admin_address();
    let batch = |count: usize| {
        let one = "{updateOne: {filter: {}, update: [{$replaceWith: '$b'}]}},".repeat(count);
        let command = format!("db.orders.bulkWrite([{one}], {{ordered: false}})");
        post(&admin, "/api/explain", &json!({"command": command, "database": "shop"}))
    };
    let (some, many) = (batch(50), batch(2000));
    assert_eq!((some.status, some.json()["statements"].as_array().unwrap().len()), (200, 50));
    assert_eq!(many.status, 413, "{} bytes", many.body.len());
    assert!(many.json()["error"].as_str().unwrap().contains("explain fewer statements at a time"), "{many:?}");
}

/// Each statement of an explanation is a command with all fields of the batch: together they are a thousand times
/// as long as the request.
#[test]
fn explanations_take_little_memory() {
    let docward = Docward::before(&Mongod::shared().uri()).rules(RULES).admin().start();
    let admin = docward.admin_address();
    let before = Resident::of(docward.pid()).most;
    let (statements, long) = ("{q: {}, u: {}}, ".repeat(3500), "l".repeat(60_000));
    let command = format!("db.runCommand({{update: 'orders', let: {{a: '{long}'}}, updates: [{statements}]}})");
    let reply = post(&admin, "/api/explain", &json!({"command": command, "database": "shop"}));
    assert!([200, 413].contains(&reply.status), "{reply:?}");
    let grown = Resident::of(docward.pid()).most - before;
    assert!(grown < 64 << 20, "{} MiB", grown >> 20);
}

#[test]
fn requests_are_checked_for_host_origin_and_method() {
    let docward = Docward::before(&Mongod::shared().uri()).admin().start();
    let admin = docward.admin_address();
    let port = admin.rsplit_once(':').unwrap().1;
    for (host, status) in [
        (format!("localhost:{port}"), 200),
        ("LOCALHOST".to_owned(), 200),
        (format!("[::1]:{port}"), 200),
        (format!("rebound.example.com:{port}"), 421),
        ("evil.com@localhost".to_owned(), 421),
        (format!("evil.com:1@localhost:{port}"), 421),
        ("localhost:port".to_owned(), 421),
        ("localhost:123456".to_owned(), 421),
        ("localhost.example.com".to_owned(), 421),
        (String::new(), 421),
    ] {
        assert_eq!(request(&admin, "GET", "/api/status", &[("Host", &host)], "").status, status, "{host}");
    }
    let elsewhere = Docward::before(&Mongod::shared().uri()).admin_at("127.0.0.2:0").start();
    for (host, status) in [("127.0.0.2", 200), ("127.0.0.1", 200), ("127.0.0.3", 421)] {
        let reply = request(&elsewhere.admin_address(), "GET", "/api/status", &[("Host", host)], "");
        assert_eq!(reply.status, status, "{host}");
    }
    // Probes of load balancers and orchestrators: HAProxy sends no `Host` header, others the address they connect to.
    for path in ["/healthz", "/readyz"] {
        for headers in [&[][..], &[("Host", "10.1.2.3:9216")], &[("Host", "")]] {
            for method in ["GET", "HEAD", "OPTIONS"] {
                let reply = request(&admin, method, path, headers, "");
                assert_eq!(reply.status, 200, "{method} {path} {headers:?}");
            }
        }
        let mut stream = TcpStream::connect(&admin).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    }
    let twice = [("Host", "localhost"), ("Host", "example.com")];
    assert_ne!(request(&admin, "GET", "/api/status", &twice, "").status, 200);
    for (method, path, status) in [
        ("POST", "/api/status", 405),
        ("GET", "/api/explain", 405),
        ("DELETE", "/api/rules", 405),
        ("GET", "/api", 404),
    ] {
        let reply = request(&admin, method, path, &[("Host", "localhost")], "");
        assert_eq!(reply.status, status, "{method} {path}");
        assert!(reply.json()["error"].is_string());
        for (name, value) in [
            ("cache-control", "no-store"),
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(reply.header(name), Some(value), "{reply:?}");
        }
        assert!(reply.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
    }
    let page = get(&admin, "/");
    let policy = page.header("content-security-policy").unwrap();
    for part in
        ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"]
    {
        assert!(policy.contains(part) && !policy.contains("unsafe"), "{policy}");
    }
    assert_eq!(
        (page.header("content-type"), page.header("x-content-type-options")),
        (Some("text/html; charset=utf-8"), Some("nosniff"))
    );
    let rebound = request(&admin, "GET", "/", &[("Host", "rebound.example.com")], "");
    assert_eq!(rebound.status, 421);
    let long = "x".repeat(32 * 1024);
    let reply = request(&admin, "GET", "/api/status", &[("Host", "localhost"), ("Cookie", &long)], "");
    assert_eq!(reply.status, 431);
}

#[test]
fn a_public_admin_address_requires_the_token() {
    let upstream = Mongod::shared().uri();
    let everywhere = format!("0.0.0.0:{}", free_port());
    let refused = Docward::before(&upstream).argument("--admin").argument(&everywhere).try_start();
    assert!(refused.err().unwrap().contains("set --admin-token-file"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "short\n").unwrap();
    let with_file = |address: &str| {
        let flags = Docward::before(&upstream).argument("--admin").argument(address);
        flags.argument("--admin-token-file").argument(file.to_str().unwrap())
    };
    assert!(with_file(&everywhere).try_start().err().unwrap().contains("at least 16"));
    std::fs::write(&file, "0123456789abcdef\n").unwrap();
    let docward = with_file(&everywhere).listeners(2).start();
    let admin = everywhere.replace("0.0.0.0", "127.0.0.1");
    for (token, status) in [
        (None, 401),
        (Some("Bearer 0123456789abcde"), 401),
        (Some("Bearer 0123456789abcdef0"), 401),
        (Some("Basic 0123456789abcdef"), 401),
        (Some("Bearer 0123456789abcdef"), 200),
        (Some("bearer 0123456789abcdef"), 200),
    ] {
        let authorization = token.map(|token| ("Authorization", token));
        let headers: Vec<_> = [("Host", "docward.example.com")].into_iter().chain(authorization).collect();
        for path in ["/api/status", "/api/rules"] {
            assert_eq!(request(&admin, "GET", path, &headers, "").status, status, "{token:?}");
        }
        // The console's files contain no data; the console asks the user for the token.
        for path in ["/healthz", "/", "/console/console.js"] {
            assert_eq!(request(&admin, "GET", path, &headers, "").status, 200, "{path}");
        }
    }
    assert!(!docward.log().join("\n").contains("0123456789abcdef"));
}

#[test]
fn idle_admin_connections_block_no_other_client() {
    let docward = Docward::before(&Mongod::shared().uri()).rules(RULES).admin().start();
    let admin = docward.admin_address();
    let subscribers: Vec<Events> = (0..16).map(|_| Events::open(&admin, "/api/decisions").unwrap()).collect();
    assert_eq!(Events::open(&admin, "/api/decisions").err(), Some(503));
    assert_eq!(get(&admin, "/healthz").status, 200);
    // More connections than the limit, all silent: clients of the proxy notice nothing.
    let idle: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(&admin).unwrap()).collect();
    assert!(replace(&docward).contains_key("writeErrors"));
    drop((idle, subscribers));
    assert_eq!(get(&admin, "/healthz").status, 200);
    let again = poll(TIMEOUT, || Events::open(&admin, "/api/decisions").ok());
    assert!(again.is_some(), "places are free again");
}

/// Opens this many connections, sends `text` on each, and keeps them open.
fn open(admin: &str, count: usize, text: &str) -> Vec<TcpStream> {
    let connect = || {
        let mut stream = TcpStream::connect(admin).unwrap();
        // Connections over the limit may be closed already.
        let _ = stream.write_all(text.as_bytes());
        stream
    };
    (0..count).map(|_| connect()).collect()
}

/// Returns how long it takes until the other side closes.
fn closes(mut stream: TcpStream) -> Duration {
    let began = Instant::now();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut reply = Vec::new();
    // The connection is reset if it closes with unread data.
    let _ = stream.read_to_end(&mut reply);
    began.elapsed()
}

#[test]
fn health_is_answered_under_load() {
    // A probe waits one second or more and is repeated.
    const PROBE: Duration = Duration::from_secs(5);
    let docward = Docward::before(&Mongod::shared().uri()).rules(RULES).admin().start();
    let admin = docward.admin_address();
    let body = json!({"command": format!("db.{}.find()", "a.".repeat(60_000) + "a")}).to_string();
    let long = format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
    for (what, count, text) in [
        ("half a head", 200, "GET /healthz HTTP/1.1\r\nHost: local".to_owned()),
        ("no word", 200, String::new()),
        ("half a body", 100, format!("POST /api/explain HTTP/1.1\r\nHost: localhost\r\n{long}{{")),
        ("a hundred answers at once", 200, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100)),
        ("decisions not read", 200, "GET /api/decisions HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned()),
        ("explanations", 50, format!("POST /api/explain HTTP/1.1\r\nHost: localhost\r\n{long}{body}")),
    ] {
        let held = open(&admin, count, &text);
        for path in ["/healthz", "/readyz", "/healthz"] {
            let began = Instant::now();
            let reply = try_get(&admin, path);
            assert!(reply.is_ok_and(|reply| reply.status == 200), "{what}");
            assert!(began.elapsed() < PROBE, "{what}: {:?}", began.elapsed());
        }
        drop(held);
    }
}

#[test]
fn slow_requests_are_cut_off() {
    let docward = Docward::before(&Mongod::shared().uri()).admin().start();
    let admin = docward.admin_address();
    for text in [
        "GET /healthz HTTP/1.1\r\nHost: local",
        "POST /api/explain HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
    ] {
        let took = open(&admin, 1, text).pop().map(closes).unwrap();
        assert!(took >= Duration::from_secs(4) && took < Duration::from_secs(20), "{text}: {took:?}");
    }
}

/// Subscribes to decisions and never reads; the socket's receive buffer is small.
fn slow_subscriber(admin: &str) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&admin.parse::<SocketAddr>().unwrap().into()).unwrap();
    (&socket).write_all(b"GET /api/decisions HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    socket
}

#[test]
fn a_subscriber_that_does_not_read_is_disconnected() {
    let docward = Docward::before(&Mongod::shared().uri()).rules(RULES).admin().start();
    let admin = docward.admin_address();
    let deaf: Vec<Socket> = (0..16).map(|_| slow_subscriber(&admin)).collect();
    let full = poll(TIMEOUT, || (Events::open(&admin, "/api/decisions").err() == Some(503)).then_some(()));
    assert!(full.is_some());
    // Without the disconnect a subscriber that reads would get no slot for ten minutes.
    let mut client = Client::connect(&docward.address());
    let long = "w".repeat(800);
    let began = Instant::now();
    let place = poll(Duration::from_secs(60), || {
        for number in 0..100 {
            let mut set = Document::new();
            set.insert(format!("{long}{number}"), 1);
            set.insert("a", 1);
            client
                .command("shop", doc! { "update": "items", "updates": [{ "q": { "_id": 1 }, "u": { "$set": set } }] });
        }
        Events::open(&admin, "/api/decisions").ok()
    });
    assert!(place.is_some(), "{:?}", began.elapsed());
    assert!(began.elapsed() >= Duration::from_secs(9), "{:?}", began.elapsed());
    drop(deaf);
}

#[test]
fn a_silent_subscriber_loses_its_slot_to_a_new_one() {
    let docward = Docward::before(&Mongod::shared().uri()).rules(RULES).admin().start();
    let admin = docward.admin_address();
    let silent: Vec<Socket> = (0..16).map(|_| slow_subscriber(&admin)).collect();
    let full = poll(TIMEOUT, || (Events::open(&admin, "/api/decisions").err() == Some(503)).then_some(()));
    assert!(full.is_some());
    let open = poll(Duration::from_secs(60), || Events::open(&admin, "/api/decisions").ok());
    assert!(open.is_some(), "no slot within a minute");
    drop(silent);
}

#[test]
fn a_process_that_takes_over_takes_the_admin_address_too() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("hand-over");
    let (listen, admin) = (format!("127.0.0.1:{}", free_port()), format!("127.0.0.1:{}", free_port()));
    let start = || {
        let flags = Docward::before(&Mongod::shared().uri()).listen(&listen).listeners(2);
        flags.argument("--hand-over").argument(socket.to_str().unwrap()).argument("--admin").argument(&admin).start()
    };
    let mut first = start();
    let started = get(&admin, "/api/status").json()["started"].as_u64().unwrap();
    let _second = start();
    let taken = poll(TIMEOUT, || {
        // Requests during the switch get no reply: scrapers and consoles repeat them.
        let status = try_get(&admin, "/api/status").ok()?.json();
        (status["started"].as_u64().unwrap() > started && status["ready"] == true).then_some(())
    });
    assert!(taken.is_some());
    assert!(first.wait().success());
}
