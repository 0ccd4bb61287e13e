//! What docward answers itself under a pool, hellos, and the clients that get a server connection of their own.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use bson::{Binary, Document, doc, spec::BinarySubtype};
use support::frame::{EXHAUST_ALLOWED, MORE_TO_COME, Message};
use support::http;
use support::mongod::{Kind, Mongod};
use support::process::{SOON, TIMEOUT, poll};
use support::proxy::Docward;
use support::raw::Client;

use super::pool::pooled;

/// The reason for a connection of its own, and what a client does to get one.
type Pin<'p> = (&'p str, &'p dyn Fn(&mut Client));

/// The clients that have a connection of their own for this reason.
fn pinned(docward: &Docward, reason: &str) -> f64 {
    let scrape = http::get(&docward.admin_address(), "/metrics").body;
    let is_wanted = |line: &&str| {
        line.starts_with("docward_pool_pinned_connections{") && line.contains(&format!("reason=\"{reason}\""))
    };
    let line = scrape.lines().find(is_wanted).unwrap_or_else(|| panic!("no {reason} in:\n{scrape}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn clients_that_need_a_connection_of_their_own_have_one_until_they_leave() {
    let mongod = Mongod::start(Kind::Standalone);
    let many: Vec<Document> = (0..10).map(|id| doc! {"_id": id}).collect();
    mongod.command("shop", doc! {"insert": "free", "documents": many});
    let docward = pooled(&mongod.uri(), "2").admin().start();
    let exhausts = |client: &mut Client| {
        let found = client.command("shop", doc! {"find": "free", "batchSize": 2});
        let cursor = found.get_document("cursor").unwrap().get_i64("id").unwrap();
        let more = doc! {"getMore": cursor, "collection": "free", "batchSize": 2, "$db": "shop"};
        let mut previous_id = client.send(&Message::new(more).flags(EXHAUST_ALLOWED));
        let mut documents = 2;
        loop {
            let frame = client.receive();
            assert_eq!(frame.response_to, previous_id);
            previous_id = frame.request_id;
            let reply = Message::parse(&frame);
            let batch = reply.body().get_document("cursor").unwrap().get_array("nextBatch").unwrap();
            documents += batch.len();
            if reply.flags & MORE_TO_COME == 0 {
                break;
            }
        }
        assert_eq!(documents, 10);
    };
    let load_balanced = |client: &mut Client| {
        client.command("admin", doc! {"hello": 1, "loadBalanced": true});
    };
    let mechanism = |client: &mut Client| {
        let payload = Binary { subtype: BinarySubtype::Generic, bytes: b"\0ann\0secret".to_vec() };
        let start = doc! {"saslStart": 1, "mechanism": "PLAIN", "payload": payload};
        assert_eq!(client.command("$external", start).get_f64("ok").unwrap(), 0.0);
    };
    let pins: [Pin<'_>; 3] = [("exhaust", &exhausts), ("load_balanced", &load_balanced), ("mechanism", &mechanism)];
    for (reason, pin) in pins {
        let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(&docward.address())).collect();
        for client in &mut clients {
            pin(client);
            assert_eq!(client.command("shop", doc! {"count": "free"}).get_i32("n").unwrap(), 10, "{reason}");
        }
        assert_eq!(pinned(&docward, reason), 3.0, "{reason}");
        // They are not part of the size.
        let mut other = Client::connect(&docward.address());
        assert_eq!(other.command("shop", doc! {"count": "free"}).get_i32("n").unwrap(), 10);
        drop(clients);
        poll(TIMEOUT, || (pinned(&docward, reason) == 0.0).then_some(())).expect(reason);
    }
}

#[test]
fn a_streamed_hello_goes_on_and_ends_when_the_member_is_lost() {
    let mut mongod = Mongod::start(Kind::ReplicaSet);
    let docward = pooled(&mongod.uri(), "2").start();
    let mut streamed = Client::connect(&docward.address());
    let version = streamed.command("admin", doc! {"hello": 1}).get_document("topologyVersion").unwrap().clone();
    let hello = |wait: i32| {
        doc! {"hello": 1, "topologyVersion": &version, "maxAwaitTimeMS": wait, "$db": "admin"}
    };
    let mut previous_id = streamed.send(&Message::new(hello(200)).flags(EXHAUST_ALLOWED));
    for _ in 0..4 {
        let frame = streamed.receive();
        assert_eq!(frame.response_to, previous_id, "each reply answers the one before it");
        previous_id = frame.request_id;
        let reply = Message::parse(&frame);
        assert_ne!(reply.flags & MORE_TO_COME, 0);
        assert!(reply.body().get_bool("isWritablePrimary").unwrap());
    }
    let mut waiting = Client::connect(&docward.address());
    waiting.send(&Message::new(hello(600_000)));
    mongod.kill();
    for client in [&mut waiting, &mut streamed] {
        while client.receive_within(SOON).unwrap().is_some() {}
    }
    mongod.restart();
    let replied = || {
        let mut client = Client::try_connect(&docward.address()).ok()?;
        client.try_command("admin", doc! {"hello": 1}, SOON)
    };
    poll(TIMEOUT, replied).expect("no hello after the restart");
}

/// A relay that delays what passes by this time, in either direction.
fn delaying(server: String, delay: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let relay = move |mut from: TcpStream, mut to: TcpStream| {
        let mut buffer = [0; 65_536];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            std::thread::sleep(delay);
            if to.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
    };
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(&server) else { continue };
            let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || relay(from, to));
            std::thread::spawn(move || relay(server, client));
        }
    });
    address
}

/// Otherwise `nearest` and the latency window would compare the ways to docward only.
#[test]
fn the_time_of_a_hello_includes_the_way_to_the_member() {
    let mongod = Mongod::start(Kind::Standalone);
    let relay = delaying(mongod.address(), Duration::from_millis(100));
    let docward = pooled(&format!("mongodb://{relay}/"), "2").start();
    let mut client = Client::connect(&docward.address());
    // docward has measured the time to the member soon after its start.
    let measured = || {
        let began = Instant::now();
        client.command("admin", doc! {"hello": 1});
        (began.elapsed() >= Duration::from_millis(180)).then_some(())
    };
    poll(SOON, measured).expect("hellos are answered at once");
}
