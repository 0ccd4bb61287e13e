//! Compares a scrape of `/metrics` with the operations before it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bson::{Document, doc};
use support::http::get;
use support::mongod::{Kind, Mongod};
use support::process::{TIMEOUT, poll};
use support::proxy::Docward;
use support::raw::Client;

const RULES: &str = r#"version: 1
rules:
  - { name: whole, namespace: "*.orders", together: [a, b], except: { apps: [boss] } }
  - { name: tried, namespace: "*.items", mode: shadow, together: [a, b] }
  - { name: numbered, namespace: "*.bills", sequence: { field: no, counter: no, block: 10 } }
"#;

/// Values by series, in the text format: `name{label="value"}`.
struct Scrape(BTreeMap<String, f64>);

impl Scrape {
    fn of(docward: &Docward) -> Scrape {
        let reply = get(&docward.admin_address(), "/metrics");
        assert_eq!(reply.status, 200);
        assert!(reply.header("content-type").unwrap().starts_with("application/openmetrics-text"));
        assert!(reply.body.ends_with("# EOF\n"));
        let lines = reply.body.lines().filter(|line| !line.starts_with('#'));
        let series = lines.map(|line| line.rsplit_once(' ').unwrap());
        Scrape(series.map(|(series, value)| (series.to_owned(), value.parse().unwrap())).collect())
    }

    fn get(&self, series: &str) -> f64 {
        *self.0.get(series).unwrap_or_else(|| panic!("there is no {series} in {:#?}", self.0.keys()))
    }

    /// The values of all series of this name.
    fn all(&self, name: &str) -> Vec<f64> {
        let named = |series: &str| series.strip_prefix(name).is_some_and(|labels| labels.starts_with('{'));
        self.0.iter().filter(|(series, _)| named(series)).map(|(_, value)| *value).collect()
    }
}

/// Connects as an application with this name.
fn hello(app: &str) -> Document {
    let driver = doc! { "name": "raw", "version": "1" };
    doc! { "hello": 1, "client": { "application": { "name": app }, "driver": driver, "os": { "type": "x" } } }
}

/// An update that is rejected whatever is stored.
fn rejected_update() -> Document {
    doc! { "update": "orders", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "a": 1 } } }] }
}

#[test]
fn rules_count_by_outcome_and_have_series_before_they_match() {
    let docward = Docward::before(&Mongod::shared().uri()).rules(RULES).admin().start();
    let before = Scrape::of(&docward);
    for series in [
        r#"rule="whole",outcome="reject""#,
        r#"rule="whole",outcome="except-reject""#,
        r#"rule="tried",outcome="shadow-reject""#,
    ] {
        assert_eq!(before.get(&format!("docward_rule_statements_total{{{series}}}")), 0.0);
    }
    assert_eq!(before.get(r#"docward_rules{mode="enforce"}"#), 2.0);
    let mut client = Client::connect(&docward.address());
    let mut excepted = Client::connect(&docward.address());
    excepted.command("admin", hello("boss"));
    for _ in 0..3 {
        client.command("metrics", rejected_update());
        excepted.command("metrics", rejected_update());
    }
    client.command("metrics", doc! { "insert": "items", "documents": [{ "a": 1 }, { "a": 1 }] });
    let after = Scrape::of(&docward);
    for (labels, count) in [
        (r#"rule="whole",outcome="reject""#, 3.0),
        (r#"rule="whole",outcome="except-reject""#, 3.0),
        (r#"rule="tried",outcome="shadow-reject""#, 2.0),
    ] {
        assert_eq!(after.get(&format!("docward_rule_statements_total{{{labels}}}")), count, "{labels}");
    }
    // A changed rule keeps its counters under its name, and a refused rule set is counted.
    docward.rewrite_rules(&RULES.replace("[boss]", "[boss, chief]"));
    let reloads = |outcome: &str| {
        let series = format!(r#"docward_reloads_total{{result="{outcome}"}}"#);
        poll(TIMEOUT, || Some(Scrape::of(&docward)).filter(|scrape| scrape.get(&series) == 1.0)).unwrap()
    };
    let changed = reloads("loaded");
    assert_eq!(changed.get(r#"docward_rule_statements_total{rule="whole",outcome="reject"}"#), 3.0);
    let hash = |scrape: &Scrape| scrape.0.keys().find(|series| series.starts_with("docward_rule_set_info")).cloned();
    assert!(hash(&changed).is_some() && hash(&changed) != hash(&after));
    assert_eq!(changed.get("docward_last_reload_successful"), 1.0);
    docward.rewrite_rules("version: 2\n");
    assert_eq!(reloads("failed").get("docward_last_reload_successful"), 0.0);
}

#[test]
fn several_mongos_do_not_lack_a_primary() {
    let servers = [Mongod::start(Kind::Standalone), Mongod::start(Kind::Standalone)];
    let uri = format!("mongodb://{},{}/", servers[0].address(), servers[1].address());
    let docward = Docward::before(&uri).listeners(2).admin().start();
    let up =
        poll(TIMEOUT, || Some(Scrape::of(&docward)).filter(|scrape| scrape.all("docward_member_up") == [1.0, 1.0]));
    assert!(up.unwrap().all("docward_member_primary").is_empty());
}

/// Time is attributed correctly: the server's waiting time counts for the server, and a rejection has no server time.
#[test]
fn latency_is_split_between_docward_and_the_server() {
    let docward = Docward::before(&Mongod::shared().uri()).rules(RULES).admin().start();
    let mut client = Client::connect(&docward.address());
    let sleep = |collection: &str| {
        doc! { "find": collection, "filter": { "$where": "sleep(1500) || true" }, "limit": 1 }
    };
    // One on the fast path, and one evaluated.
    for collection in ["plain", "orders"] {
        client.command("timed", doc! { "insert": collection, "documents": [{ "_id": 1 }] });
        assert_eq!(client.command("timed", sleep(collection)).get_f64("ok").ok(), Some(1.0));
    }
    // For the first one docward asks the server for the logged-in user; the second one needs no server.
    client.command("timed", rejected_update());
    client.command("timed", rejected_update());
    client.wait_until_counted();
    let scrape = Scrape::of(&docward);
    let sum = |name: &str, command: &str| {
        scrape.get(&format!(r#"docward_command_{name}_seconds_sum{{command="{command}"}}"#))
    };
    let count = |name: &str, command: &str| {
        scrape.get(&format!(r#"docward_command_{name}_seconds_count{{command="{command}"}}"#))
    };
    assert!(sum("upstream", "find") >= 3.0 && sum("own", "find") < 1.5, "{:?}", scrape.0);
    assert_eq!((count("upstream", "find"), count("own", "find")), (2.0, 2.0));
    assert_eq!((count("upstream", "insert"), count("own", "insert")), (2.0, 2.0));
    assert_eq!((count("upstream", "update"), count("own", "update")), (1.0, 2.0));
    let bucket =
        |le: &str| scrape.get(&format!(r#"docward_command_upstream_seconds_bucket{{le="{le}",command="find"}}"#));
    assert_eq!((bucket("0.2"), bucket("+Inf")), (0.0, 2.0));
}

#[test]
fn numbers_connections_and_bytes_are_counted() {
    let docward =
        Docward::before(&Mongod::shared().uri()).rules(RULES).argument("--connections").argument("3").admin().start();
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(&docward.address())).collect();
    for client in &mut clients {
        client.command("counted", doc! { "ping": 1 });
    }
    let mut refused = Client::connect(&docward.address());
    refused.command("counted", doc! { "ping": 1 });
    let padding = "x".repeat(100_000);
    for number in 0..4 {
        let bill = doc! { "insert": "bills", "documents": [{ "_id": number, "padding": &padding }] };
        assert_eq!(clients[0].command("counted", bill).get_i32("n").ok(), Some(1));
    }
    let found = clients[1].command("counted", doc! { "find": "bills", "singleBatch": true });
    assert_eq!(found.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len(), 4);
    let scrape = Scrape::of(&docward);
    let of_members: f64 = scrape.all("docward_member_connections").iter().sum();
    assert_eq!((scrape.get("docward_connections_open"), of_members), (3.0, 3.0));
    assert_eq!(scrape.get("docward_connections_accepted_total"), 3.0);
    assert_eq!(scrape.get(r#"docward_connections_refused_total{reason="limit"}"#), 1.0);
    for from in ["clients", "upstream"] {
        let bytes = scrape.get(&format!(r#"docward_received_bytes_total{{from="{from}"}}"#));
        assert!((400_000.0..450_000.0).contains(&bytes), "{from}: {bytes}");
    }
    assert_eq!(scrape.get(r#"docward_lookup_seconds_count{kind="numbers"}"#), 4.0);
    assert_eq!(scrape.get("docward_reservation_seconds_count"), 1.0);
    assert_eq!(scrape.get("docward_reserved_numbers_total"), 10.0);
    assert_eq!(scrape.get("docward_reservation_failures_total"), 0.0);
    clients[0].send_bytes(b"no message of MongoDB's");
    drop(clients);
    let ended =
        |scrape: &Scrape, reason: &str| scrape.get(&format!(r#"docward_connections_ended_total{{reason="{reason}"}}"#));
    // On a slow machine the member may not have answered in time.
    let rests =
        |scrape: &Scrape| scrape.get("docward_connections_open") == 0.0 && scrape.all("docward_member_up") == [1.0];
    let scrape = poll(TIMEOUT, || Some(Scrape::of(&docward)).filter(rests)).unwrap();
    assert_eq!((ended(&scrape, "client_closed"), ended(&scrape, "client_message")), (2.0, 1.0));
    assert_eq!((scrape.get("docward_ready"), scrape.get("docward_draining")), (1.0, 0.0));
}

/// Ten thousand rules.
fn many_rules() -> String {
    let rule = |number: usize| {
        format!("  - {{ name: r{number}, namespace: 'many.c{number}', bounds: {{ field: n, min: 0 }} }}\n")
    };
    format!("version: 1\nrules:\n{}", (0..10_000).map(rule).collect::<String>())
}

/// The time of a scrape grows with the number of rules, not with its square, and health does not wait for it.
#[test]
fn ten_thousand_rules_are_scraped_in_linear_time() {
    // In a debug build a scrape takes less than a second. When it was quadratic, it took more than thirty.
    const LIMIT: Duration = Duration::from_secs(10);
    let docward = Docward::before(&Mongod::shared().uri()).rules(&many_rules()).admin().start();
    let admin = docward.admin_address();
    let began = Instant::now();
    std::thread::scope(|scope| {
        let scrape = scope.spawn(|| get(&admin, "/metrics"));
        let probe = Instant::now();
        assert_eq!(get(&admin, "/healthz").status, 200);
        assert!(probe.elapsed() < Duration::from_secs(2), "{:?}", probe.elapsed());
        assert!(
            scrape.join().unwrap().body.contains(r#"docward_rule_statements_total{rule="r9999",outcome="reject"} 0"#)
        );
    });
    assert!(began.elapsed() < LIMIT, "{:?}", began.elapsed());
}

/// With a small send buffer, each 64 KiB on the loopback interface waits 40 ms for a delayed acknowledgement.
#[test]
fn a_long_scrape_does_not_wait_for_acknowledgements() {
    let docward = Docward::before(&Mongod::shared().uri()).rules(&many_rules()).admin().start();
    let admin = docward.admin_address();
    let waits = || {
        let mut stream = TcpStream::connect(&admin).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n").unwrap();
        let (mut block, mut total, mut waits, mut last) = (vec![0; 1 << 20], 0, 0, None);
        loop {
            let length = stream.read(&mut block).unwrap();
            waits += usize::from(last.is_some_and(|last: Instant| last.elapsed() > Duration::from_millis(35)));
            last = Some(Instant::now());
            total += length;
            if length == 0 {
                break;
            }
        }
        assert!(total > 500_000, "{total}");
        waits
    };
    // Other load on the machine causes some waits. With a small buffer most scrapes have more than ten.
    let mut counts: Vec<usize> = (0..9).map(|_| waits()).collect();
    counts.sort_unstable();
    assert!(counts[4] <= 3, "{counts:?}");
}

#[test]
fn the_process_has_the_standard_metrics() {
    let docward = Docward::before(&Mongod::shared().uri()).rules(RULES).admin().start();
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let _client = Client::connect(&docward.address());
    let scrape = Scrape::of(&docward);
    let started = scrape.get("process_start_time_seconds");
    assert!((started - before).abs() < 60.0, "{started} {before}");
    let resident = scrape.get("process_resident_memory_bytes");
    assert!((1e6..1e9).contains(&resident) && scrape.get("process_virtual_memory_bytes") > resident);
    // The system counts in hundredths of a second.
    assert!(poll(TIMEOUT, || (Scrape::of(&docward).get("process_cpu_seconds_total") > 0.0).then_some(())).is_some());
    let open = scrape.get("process_open_fds");
    assert!(open > 5.0 && open < scrape.get("process_max_fds"), "{open}");
}

/// All application names that clients make up share one series.
#[test]
fn clients_cannot_make_series() {
    let docward = Docward::before(&Mongod::shared().uri()).rules(RULES).admin().start();
    let names = || Scrape::of(&docward).0.into_keys().collect::<BTreeSet<String>>();
    let mut client = Client::connect(&docward.address());
    client.command("made_up", doc! { "madeUp": 1 });
    client.command("made_up", rejected_update());
    client.command("made_up", hello("first"));
    client.wait_until_counted();
    let before = names();
    for number in 0..50 {
        client.command(&format!("made_up_{number}"), doc! { format!("madeUp{number}\"}} 1\n"): 1 });
        let mut client = Client::connect(&docward.address());
        client.command("admin", hello(&format!("made up {number}")));
        client.command(&format!("made_up_{number}"), rejected_update());
    }
    let more: Vec<String> = names().difference(&before).cloned().collect();
    assert!(more.is_empty(), "{more:?}");
    client.wait_until_counted();
    let others = Scrape::of(&docward).get(r#"docward_command_own_seconds_count{command="other"}"#);
    assert!(others >= 51.0, "{others}");
}
