//! The PROXY protocol: from a balancer's address a header is required, and its client is the client everywhere.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use bson::{Document, doc};
use support::balancer::balance_with;
use support::certificates::Authority;
use support::http::get;
use support::mongod::Mongod;
use support::process::{SOON, TIMEOUT, poll};
use support::proxy::{Builder, Docward};
use support::raw::Client;

const BALANCER: [u8; 4] = [127, 0, 0, 9];
const KEPT: &str =
    "version: 1\nrules:\n  - {name: nothing-deleted, namespace: balanced.kept, deny: {operations: [delete]}}\n";
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

fn before() -> Builder {
    Docward::before(&Mongod::shared().uri()).argument("--proxy-protocol").argument("127.0.0.8/29")
}

/// Version 1, for a client at this address and port.
fn line(client: &str) -> Vec<u8> {
    let client: SocketAddr = client.parse().unwrap();
    let (family, to) = if client.is_ipv4() { ("TCP4", "10.0.0.1") } else { ("TCP6", "2001:db8::1") };
    format!("PROXY {family} {} {to} {} 27018\r\n", client.ip(), client.port()).into_bytes()
}

/// Version 2, with a command and a family.
fn binary([command, family]: [u8; 2], body: &[u8]) -> Vec<u8> {
    [SIGNATURE, &[command, family, 0, u8::try_from(body.len()).unwrap()], body].concat()
}

/// The same for the client 192.0.2.7:5000, and with a field that docward does not use.
fn binary_for_client() -> Vec<u8> {
    binary([0x21, 0x11], &[192, 0, 2, 7, 10, 0, 0, 1, 0x13, 0x88, 0x69, 0x8a, 0x04, 0, 1, 0])
}

/// A connection of the balancer that begins with these bytes.
fn through_balancer(docward: &Docward, header: &[u8]) -> Client {
    let mut client = Client::connect_from(BALANCER, &docward.address());
    client.send_bytes(header);
    client
}

fn insert(client: &mut Client, collection: &str) -> Document {
    client.command("balanced", doc! { "insert": collection, "documents": [{}] })
}

#[test]
fn the_client_in_the_header_is_the_one_in_logs_and_lists() {
    let docward = before().rules(KEPT).admin().start();
    let six =
        binary([0x21, 0x21], &[&[0x20, 1, 0xd, 0xb8], &[0; 11][..], &[7], &[1; 16], &[0x13, 0x88, 1, 1]].concat());
    let cases = [
        (line("192.0.2.8:5001"), "192.0.2.8:5001"),
        (line("[2001:db8::8]:5001"), "[2001:db8::8]:5001"),
        (binary_for_client(), "192.0.2.7:5000"),
        (six, "[2001:db8::7]:5000"),
        // The balancer itself.
        (binary([0x20, 0x00], &[]), "127.0.0.9:"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.9:"),
    ];
    for (header, expected) in cases {
        let mut client = Client::connect_from(BALANCER, &docward.address());
        // It need not arrive at once.
        for part in header.chunks(5) {
            client.send_bytes(part);
        }
        let delete = doc! { "q": { "_id": 1 }, "limit": 1 };
        let reply = client.command("balanced", doc! { "delete": "kept", "deletes": [delete] });
        assert!(reply.contains_key("writeErrors"), "{reply}");
        let decision = docward.wait_for_log(&format!("client=\"{expected}"));
        assert!(decision.contains("nothing-deleted"), "{decision}");
        let listed = get(&docward.admin_address(), "/api/connections");
        assert!(listed.body.contains(expected), "{}", listed.body);
    }
    // From other addresses no header is looked for.
    let mut direct = Client::connect(&docward.address());
    assert_eq!(direct.command("admin", doc! { "ping": 1 }).get_f64("ok").ok(), Some(1.0));
    let mut direct = Client::connect(&docward.address());
    direct.send_bytes(&line("192.0.2.8:5001"));
    assert!(direct.closes_within(SOON));
}

#[test]
fn limits_and_permits_are_those_of_the_client() {
    let rules = "version: 1\nrules:\n  - {name: turns, namespace: balanced.turns, throttle: {rate: 1/s, per: client, wait: 1ms}}\n";
    let docward = before().rules(rules).argument("--connections-per-address").argument("2").start();
    let connect = |client: &str| through_balancer(&docward, &line(client));
    let mut clients = [connect("192.0.2.1:1"), connect("192.0.2.1:2"), connect("192.0.2.2:1"), connect("192.0.2.2:2")];
    assert!(clients.iter_mut().all(|client| insert(client, "free").contains_key("n")));
    let mut third = connect("192.0.2.1:3");
    let refused = third.command("admin", doc! { "ping": 1 });
    assert!(refused.get_str("errmsg").unwrap().contains("192.0.2.1 already has 2 connections"), "{refused}");
    assert!(docward.wait_for_log("connection refused").contains("client=192.0.2.1:3"));

    let [first, second, other, _] = &mut clients;
    poll(TIMEOUT, || {
        // A slow machine may take a second for two of them.
        let replies = [insert(first, "turns"), insert(second, "turns")];
        let codes = replies.map(|reply| reply.get_i32("code").ok());
        (codes == [None, Some(462)]).then_some(())
    })
    .unwrap();
    assert!(insert(other, "turns").contains_key("n"));
}

#[test]
fn a_balancer_without_a_valid_header_is_refused() {
    let docward = before().admin().argument("--handshake-timeout").argument("2s").start();
    let hello = support::frame::Message::new(doc! { "hello": 1, "$db": "admin" }).to_frame(1, 0).to_bytes();
    let cases: [(&[u8], &str); 4] = [
        (&hello, "there is no PROXY protocol header; let this balancer send one"),
        (b"PROXY TCP4 192.0.2.7 10.0.0.1 nine 27018\r\n", "malformed: its line is not"),
        (&binary([0x21, 0x11], &[1; 11]), "malformed: it is too short"),
        // It comes late or never, or in part.
        (&SIGNATURE[..5], "took too long (limits: handshake_timeout)"),
    ];
    for (sent, words) in cases {
        // At most one line a second is written.
        poll(TIMEOUT, || {
            let mut client = through_balancer(&docward, sent);
            let started = Instant::now();
            assert!(client.closes_within(SOON), "{words}");
            assert!(sent.len() > 5 || started.elapsed() > Duration::from_secs(1));
            docward.log().iter().find(|line| line.contains(words) && line.contains("client=127.0.0.9:")).map(drop)
        })
        .unwrap_or_else(|| panic!("no line with {words}"));
    }
    assert!(!refused(&docward).ends_with(" 0"));
}

/// The metric of refused connections.
fn refused(docward: &Docward) -> String {
    let scrape = get(&docward.admin_address(), "/metrics").body;
    scrape.lines().find(|line| line.starts_with("docward") && line.contains("proxy_protocol")).unwrap().to_owned()
}

#[test]
fn a_health_check_that_sends_nothing_is_neither_logged_nor_counted() {
    let docward = before().admin().start();
    let mut check = Client::connect_from(BALANCER, &docward.address());
    check.finish_sending();
    assert!(check.closes_within(SOON));
    // What comes later is logged, and counted.
    assert!(through_balancer(&docward, b"no header at all").closes_within(SOON));
    docward.wait_for_log("there is no PROXY protocol header");
    assert!(refused(&docward).ends_with(" 1"), "{}", refused(&docward));
    assert_eq!(docward.log().iter().filter(|line| line.contains("refused")).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_header_comes_before_tls() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let certificate = authority.sign("docward", &["localhost"]);
    let docward = Docward::before(&Mongod::shared().uri())
        .rules(KEPT)
        .argument("--proxy-protocol")
        .argument("127.0.0.1")
        .argument("--tls-certificate")
        .argument(&certificate)
        .start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    balance_with(listener, vec![docward.address().parse().unwrap()], b"PROXY TCP4 192.0.2.7 10.0.0.1 5000 27018\r\n");
    let uri = format!("mongodb://localhost:{port}/?directConnection=true&tls=true&tlsCAFile={}", authority.file());
    let driver = mongodb::Client::with_uri_str(uri).await.unwrap();
    let kept = driver.database("balanced").collection::<Document>("kept");
    assert!(kept.delete_one(doc! { "_id": 1 }).await.is_err());
    docward.wait_for_log("client=\"192.0.2.7:5000\"");
}
