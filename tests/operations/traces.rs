//! Spans as a collector receives them. OpenTelemetry's own types parse the requests, so they must be valid OTLP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use bson::{Bson, doc};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use support::frame::Message;
use support::http::get;
use support::mongod::Mongod;
use support::process::{TIMEOUT, free_port, poll};
use support::proxy::Docward;
use support::raw::Client;

const RULES: &str = "version: 1\nrules:\n  - { name: whole, namespace: '*.orders', together: [a, b] }\n";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// The `traceparent` of this trace, sampled or not.
fn parent(sampled: bool) -> String {
    format!("00-{TRACE}-b7ad6b7169203331-0{}", u8::from(sampled))
}

/// Accepts requests like a collector, and passes on their bodies.
fn collector() -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}/otlp", listener.local_addr().unwrap());
    let (sender, bodies) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let body = take(stream.unwrap());
            if sender.send(body).is_err() {
                break;
            }
        }
    });
    (endpoint, bodies)
}

fn take(stream: TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let lines = reader.by_ref().lines().map(Result::unwrap).take_while(|line| !line.is_empty());
    let head: Vec<String> = lines.map(|line| line.to_ascii_lowercase()).collect();
    assert_eq!(head[0], "post /otlp/v1/traces http/1.1");
    assert!(head.contains(&"content-type: application/json".to_owned()), "{head:?}");
    let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let reply = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
    reader.into_inner().write_all(reply).unwrap();
    String::from_utf8(body).unwrap()
}

fn spans(bodies: &[String]) -> Vec<Span> {
    let requests = bodies.iter().map(|body| serde_json::from_str::<ExportTraceServiceRequest>(body).unwrap());
    let resources = requests.flat_map(|request| request.resource_spans);
    resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans).collect()
}

fn attribute(span: &Span, key: &str) -> Option<Value> {
    span.attributes.iter().find(|attribute| attribute.key == key)?.value.clone()?.value
}

fn text(value: Option<Value>) -> String {
    match value {
        Some(Value::StringValue(text)) => text,
        Some(Value::ArrayValue(array)) => {
            array.values.into_iter().map(|one| text(one.value)).collect::<Vec<_>>().join(" ")
        }
        other => panic!("no text: {other:?}"),
    }
}

#[test]
fn messages_become_spans_in_their_applications_traces() {
    let (endpoint, bodies) = collector();
    let mut docward =
        Docward::before(&Mongod::shared().uri()).rules(RULES).argument("--otlp").argument(&endpoint).start();
    let mut client = Client::connect(&docward.address());
    let mut find = |collection: &str, comment: Bson| {
        let find = doc! { "find": collection, "filter": { "a": "secret" }, "comment": comment };
        assert_eq!(client.command("traced", find).get_f64("ok").ok(), Some(1.0));
    };
    find("plain", parent(true).into());
    for comment in [parent(false).into(), Bson::from("no trace")] {
        find("plain", comment);
    }
    find("orders", doc! { "traceparent": parent(false) }.into());
    let stored = doc! { "q": { "_id": "secret" }, "u": { "$set": { "there": true } }, "upsert": true };
    Mongod::shared().command("traced", doc! { "update": "orders", "updates": [stored] });
    let mut replace = |comment: Option<Bson>| {
        let mut update = doc! { "update": "orders", "updates": [{ "q": { "_id": "secret" }, "u": { "a": "secret" } }] };
        update.extend(comment.map(|comment| ("comment".to_owned(), comment)));
        assert!(client.command("traced", update).contains_key("writeErrors"));
    };
    replace(Some(doc! { "by": "shop", "traceparent": parent(true) }.into()));
    replace(None);
    drop(client);
    assert!(docward.terminate().success());
    let bodies: Vec<String> = bodies.try_iter().collect();
    assert!(!bodies.concat().contains("secret"), "{bodies:?}");
    let spans = spans(&bodies);
    let of_trace = |trace: &[u8], command: &str| {
        let is_it = |span: &&Span| span.trace_id == trace && text(attribute(span, "db.operation.name")) == command;
        spans.iter().filter(is_it).collect::<Vec<_>>()
    };
    let trace: Vec<u8> = (0..16).map(|at| u8::from_str_radix(&TRACE[2 * at..2 * at + 2], 16).unwrap()).collect();
    let [found] = of_trace(&trace, "find")[..] else { panic!("{spans:#?}") };
    assert_eq!(found.parent_span_id, [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31]);
    assert_eq!(attribute(found, "docward.evaluated"), Some(Value::BoolValue(false)));
    assert!(found.status.is_none() && found.start_time_unix_nano < found.end_time_unix_nano);
    let upstream = attribute(found, "docward.upstream_seconds");
    assert!(matches!(upstream, Some(Value::DoubleValue(seconds)) if seconds > 0.0), "{upstream:?}");

    let [rejected] = of_trace(&trace, "update")[..] else { panic!("{spans:#?}") };
    assert_eq!(rejected.name, "update traced.orders");
    let status = rejected.status.as_ref().unwrap();
    assert!(status.code == StatusCode::Error as i32 && status.message.starts_with("rule 'whole': "), "{status:?}");
    for (key, value) in [
        ("db.namespace", "traced"),
        ("db.collection.name", "orders"),
        ("docward.rules", "whole"),
        ("docward.outcomes", "reject"),
    ] {
        assert_eq!(text(attribute(rejected, key)), value);
    }
    let others: Vec<&Span> = spans.iter().filter(|span| span.trace_id != trace).collect();
    let [alone] = others[..] else { panic!("{others:#?}") };
    assert!(alone.parent_span_id.is_empty() && alone.span_id != rejected.span_id, "{alone:?}");
}

/// A collector that accepts connections and never replies adds nothing to the drain timeout.
#[test]
fn a_silent_collector_does_not_lengthen_the_end() {
    const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let drain = || {
        let mut docward = Docward::before(&Mongod::shared().uri())
            .rules(RULES)
            .argument("--otlp")
            .argument(&endpoint)
            .argument("--drain-timeout")
            .argument("2s")
            .start();
        let mut client = Client::connect(&docward.address());
        let rejected = doc! { "update": "orders", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "a": 1 } } }] };
        assert!(client.command("traced", rejected).contains_key("writeErrors"));
        client.command("traced", doc! { "insert": "plain", "documents": [{}] });
        let slow = doc! { "find": "plain", "filter": { "$where": "sleep(6000) || true" }, "limit": 1, "$db": "traced" };
        client.send(&Message::new(slow));
        let began = Instant::now();
        assert!(docward.terminate().success());
        docward.wait_for_log("still busy after 2");
        began.elapsed()
    };
    // A busy machine may need longer for other reasons.
    let shortest = (0..3).map(|_| drain()).min().unwrap();
    assert!(shortest >= DRAIN_TIMEOUT && shortest < DRAIN_TIMEOUT + Duration::from_millis(500), "{shortest:?}");
}

#[test]
fn without_a_collector_spans_are_dropped_counted_and_delay_no_client() {
    let unused = format!("http://127.0.0.1:{}", free_port());
    let docward =
        Docward::before(&Mongod::shared().uri()).rules(RULES).argument("--otlp").argument(&unused).admin().start();
    let mut client = Client::connect(&docward.address());
    let lost = || {
        let page = get(&docward.admin_address(), "/metrics").body;
        let line = page.lines().find(|line| line.starts_with(r#"docward_spans_total{result="failed"}"#)).unwrap();
        line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()
    };
    let update = doc! { "update": "orders", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "a": 1 } } }] };
    for _ in 0..3 {
        assert!(client.command("traced", update.clone()).contains_key("writeErrors"));
    }
    assert!(poll(TIMEOUT, || (lost() == 3).then_some(())).is_some());
    docward.wait_for_log("spans cannot be delivered");
    assert_eq!(docward.log().iter().filter(|line| line.contains("spans cannot be delivered")).count(), 1);
    let wrong =
        Docward::before(&Mongod::shared().uri()).argument("--otlp").argument("https://127.0.0.1:4318").try_start();
    assert!(wrong.err().unwrap().contains("http://HOST:4318"));
}
