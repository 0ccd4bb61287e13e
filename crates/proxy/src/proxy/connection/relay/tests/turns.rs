//! Measures how long one poll of a connection's task holds its thread while large messages pass.
//!
//! CPU time is measured, which other load on the machine does not change. The figures of an optimised build:
//! `cargo test --release --lib turns -- --nocapture`.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::pin::Pin;
use std::thread;

use bson::raw::RawDocumentBuf;
use support::cpu_time::CpuTimer;
use tokio::runtime::Builder;

use super::*;
use crate::config::SourceFile;
use crate::proxy::transport::socket::SocketStream;
use crate::rules::RuleSet;
use crate::wire::compressed::Compressor::{self, Snappy, Zstd};
use crate::wire::compressed::{compress, decompress};

/// The longest turn that this test allows.
const MAX_TURN: Duration = Duration::from_millis(if cfg!(debug_assertions) { 8 } else { 5 });
/// The messages are this many times shorter without optimisation, which makes everything about ten times as slow.
const SHORTER: usize = if cfg!(debug_assertions) { 20 } else { 1 };

/// A future that records the CPU time of its longest poll.
struct Timed<F> {
    future: Pin<Box<F>>,
    longest: Duration,
}

impl<F: Future> Future for Timed<F> {
    type Output = (F::Output, Duration);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let timer = CpuTimer::start();
        let polled = self.future.as_mut().poll(cx);
        self.longest = self.longest.max(timer.elapsed());
        polled.map(|output| (output, self.longest))
    }
}

/// Two ends of a TCP connection.
fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    near.set_nonblocking(true).unwrap();
    (listener.accept().unwrap().0, near)
}

fn receive(stream: &mut TcpStream) -> Vec<u8> {
    let mut frame = vec![0; 16];
    stream.read_exact(&mut frame).unwrap();
    frame.resize(Header::parse(&frame).unwrap().unwrap().length, 0);
    stream.read_exact(&mut frame[16..]).unwrap();
    frame
}

fn raw(document: &bson::Document) -> Vec<u8> {
    RawDocumentBuf::try_from(document).unwrap().into_bytes()
}

fn message(request_id: i32, response_to: i32, body: &bson::Document, sequence: Option<(&str, Vec<u8>)>) -> Vec<u8> {
    let mut writer = op_msg::MessageWriter::new(request_id, response_to, 0, 0);
    writer.body(|out| out.extend_from_slice(&raw(body)));
    if let Some((identifier, documents)) = sequence {
        writer.sequence(identifier, |out| out.extend_from_slice(&documents));
    }
    writer.finish()
}

fn rules() -> RuleSet {
    let rule = |name: &str, more: &str| format!("  - name: {name}\n    namespace: d.{name}\n    {more}\n");
    let text = [
        "version: 1\nrules:\n".to_owned(),
        rule("counted", "replacement: { policy: check_version, version: version }"),
        rule("rejected", "bounds: { field: n, min: 0 }"),
        rule("tried", "bounds: { field: n, min: 0 }\n    mode: shadow"),
    ];
    RuleSet::from_sources(vec![SourceFile { name: "r.yaml".to_owned(), text: text.concat() }]).unwrap()
}

/// Sends `request` through docward, which offers the upstream zstd, and answers what arrives with `reply`, if it is
/// given. Returns the longest turn.
fn longest_turn(request: &[u8], asks: Option<Compressor>, reply: Option<bson::Document>) -> Duration {
    let ((mut client, near_client), (mut upstream, near_upstream)) = (sockets(), sockets());
    let connection = thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let [near_client, near_upstream] = [near_client, near_upstream]
                .map(|near| SocketStream::Plain(tokio::net::TcpStream::from_std(near).unwrap()));
            let own: Arc<[CompressionMethod]> = Arc::new([Zstd.into()]);
            let context = Arc::new(listener_context(rules(), Some(own)));
            let client_state = ClientState { users: Some(Vec::new()), ..ClientState::default() };
            let mut relay = Relay::new(near_client, None, context, LOCAL, client_state);
            relay.server.stream = Some(near_upstream);
            let (_open, closing) = watch::channel(Closing::Open);
            let mut connection = Connection { relay, closing, timeouts: timeouts() };
            Timed { future: Box::pin(async move { connection.run().await }), longest: Duration::ZERO }.await.1
        })
    });
    let compression: Vec<&str> = asks.iter().map(|compressor| compressor.name()).collect();
    client.write_all(&hello(1, 0, 0, &doc! {"hello": 1, "compression": compression, "$db": "admin"})).unwrap();
    receive(&mut upstream);
    upstream.write_all(&hello(50, 1, 0, &doc! {"ok": 1, "compression": ["zstd", "snappy"]})).unwrap();
    receive(&mut client);
    let answering = thread::spawn(move || {
        if let Some(body) = reply {
            let header = Header::parse(&receive(&mut upstream)).unwrap().unwrap();
            let reply = message(60, header.request_id, &body, None);
            let reply = match header.op_code {
                OpCode::Compressed => compress(&reply, Zstd.into()).unwrap(),
                _ => reply,
            };
            upstream.write_all(&reply).unwrap();
        }
        upstream.read_to_end(&mut Vec::new()).unwrap();
    });
    let request = asks.map_or(request.to_vec(), |compressor| compress(request, compressor.into()).unwrap());
    client.write_all(&request).unwrap();
    let reply = receive(&mut client);
    let reply = if asks.is_some() { decompress(&reply).unwrap() } else { reply };
    assert_eq!(Header::parse(&reply).unwrap().unwrap().response_to, 2);
    drop(client);
    answering.join().unwrap();
    connection.join().unwrap()
}

/// Documents of random bytes, so that compression has work to do.
fn documents(count: usize, length: usize) -> Vec<u8> {
    let mut random = support::random::Random(7);
    let noise: Vec<u8> =
        std::iter::repeat_with(|| random.next_number().to_le_bytes()).take(length / 8).flatten().collect();
    let document = |number: usize| {
        let noise = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: noise.clone() };
        raw(&doc! {"_id": number as i64, "n": 1, "noise": noise})
    };
    (0..count).flat_map(document).collect()
}

#[test]
fn no_large_message_holds_its_thread() {
    let insert = |collection: &str, documents: Vec<u8>| {
        message(2, 0, &doc! {"insert": collection, "$db": "d"}, Some(("documents", documents)))
    };
    let update = |collection: &str, count: usize| {
        let statement = raw(&doc! {"q": {"_id": 1}, "u": {"$set": {"n": -1}}});
        let body = doc! {"update": collection, "ordered": false, "$db": "d"};
        message(2, 0, &body, Some(("updates", statement.repeat(count))))
    };
    let inserted = |count: i32| Some(doc! {"n": count, "ok": 1.0});
    let (few, many) = (documents(3, 15_000_000 / SHORTER), documents(90_000 / SHORTER, 400));
    let found = |length: usize| {
        let bytes = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: documents(1, length / SHORTER) };
        Some(doc! {"value": {"noise": bytes}, "lastErrorObject": {"n": 1, "updatedExisting": true}, "ok": 1.0})
    };
    let find_and_modify = |collection: &str| {
        let body = doc! {
            "findAndModify": collection, "query": {"_id": 1}, "update": {"a": 1, "version": 3}, "$db": "d",
        };
        message(2, 0, &body, None)
    };
    let cases = [
        ("3 documents of 15 MB, rewritten", insert("counted", few.clone()), None, inserted(3)),
        ("90,000 documents of 400 bytes, rewritten", insert("counted", many.clone()), None, inserted(90_000)),
        ("the same, snappy", insert("counted", many.clone()), Some(Snappy), inserted(90_000)),
        ("90,000 documents, a rule in shadow mode", insert("tried", many.clone()), None, inserted(90_000)),
        ("90,000 documents without a rule", insert("plain", many), None, inserted(90_000)),
        ("3 documents without a rule, snappy to zstd", insert("plain", few), Some(Snappy), inserted(3)),
        ("100,000 rejected updates", update("rejected", 100_000 / SHORTER), None, None),
        ("a reply of 15 MB, zstd to none", find_and_modify("plain"), None, found(15_000_000)),
        ("a reply of 15 MB, zstd to snappy", find_and_modify("plain"), Some(Snappy), found(15_000_000)),
        ("a reply of 15 MB to a rewritten message", find_and_modify("counted"), None, found(15_000_000)),
    ];
    let mut too_long = Vec::new();
    for (name, request, asks, reply) in cases {
        // On a busy machine the wait for memory counts too.
        let mut attempts = (0..3).map(|_| longest_turn(&request, asks, reply.clone()));
        let first = attempts.next().unwrap();
        let longest = if first > MAX_TURN { attempts.fold(first, Duration::min) } else { first };
        println!("{name}: {} bytes, the longest turn {longest:.1?}", request.len());
        if longest > MAX_TURN {
            too_long.push(format!("{name}: {longest:?}"));
        }
    }
    assert!(too_long.is_empty(), "longer than {MAX_TURN:?}: {too_long:#?}");
}
