//! Users under a pool on servers that tell little about them, and with `credentials: forget`.

use bson::{Binary, Document, doc, spec::BinarySubtype};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use support::frame::Message;
use support::login;
use support::mongod::{Kind, Mongod};
use support::process::SOON;
use support::raw::Client;
use support::scripted::{Peer, reply_to};

use super::pool::{connect, create, pooled};

fn binary(bytes: &[u8]) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() }
}

/// A server that accepts each login of `ann`. `user` is what it reports of her, at each login.
fn accepting(user: impl Fn() -> Option<Document> + Send + 'static) -> Peer {
    Peer::start(move |request| {
        let message = Message::parse(&request);
        let body = message.body();
        let reply = match body.keys().next().unwrap().as_str() {
            "saslStart" => doc! {"conversationId": 1, "done": false, "payload": binary(b"r=abcd,s=AAAA,i=4096")},
            "saslContinue" => doc! {"conversationId": 1, "done": true, "payload": binary(b"v=AAAA")},
            "connectionStatus" => {
                let user = doc! {"user": "ann", "db": "admin"};
                doc! {"authInfo": {"authenticatedUsers": [user], "authenticatedUserRoles": []}}
            }
            "usersInfo" => user().map_or(doc! {"ok": 0.0, "code": 13}, |user| doc! {"users": [user]}),
            _ => doc! {"n": 1},
        };
        let mut reply = reply;
        if !reply.contains_key("ok") {
            reply.insert("ok", 1.0);
        }
        vec![reply_to(&request, reply)]
    })
}

fn log_in(address: &str) -> Client {
    let mut client = Client::connect(address);
    let start = doc! {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": binary(b"n,,n=ann,r=ab")};
    assert_eq!(client.command("admin", start).get_f64("ok").unwrap(), 1.0);
    let proof = binary(b"c=biws,r=abcd,p=AAAA");
    let next = doc! {"saslContinue": 1, "conversationId": 1, "payload": proof};
    assert!(client.command("admin", next).get_bool("done").unwrap());
    client
}

/// Such as MongoDB Atlas.
#[test]
fn clients_of_a_user_that_was_created_again_must_log_in_where_the_server_gives_no_credentials() {
    let id = Arc::new(AtomicU8::new(1));
    let current = id.clone();
    let peer = accepting(move || {
        let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![current.load(Ordering::Relaxed); 16] };
        Some(doc! {"user": "ann", "db": "admin", "userId": id, "roles": []})
    });
    let docward = pooled(&peer.uri(), "3").start();
    let mut former = log_in(&docward.address());
    let mut same = log_in(&docward.address());
    for client in [&mut former, &mut same] {
        assert_eq!(client.command("shop", doc! {"count": "c"}).get_i32("n").unwrap(), 1);
    }
    id.store(2, Ordering::Relaxed);
    let mut new = log_in(&docward.address());
    assert_eq!(new.command("shop", doc! {"count": "c"}).get_i32("n").unwrap(), 1);
    former.send(&Message::new(doc! {"count": "c", "$db": "shop"}));
    assert!(former.closes_within(SOON), "the former user used a connection of the new one");
    assert_eq!(new.command("shop", doc! {"count": "c"}).get_i32("n").unwrap(), 1);
}

/// Where a user that was created again cannot be distinguished from the former one, its clients log in again from time to time.
#[test]
fn clients_of_an_unidentified_user_log_in_again_after_max_lifetime() {
    let peer = accepting(|| None);
    let docward = pooled(&peer.uri(), "3").argument("--pool-max-lifetime").argument("2s").start();
    let mut former = log_in(&docward.address());
    let began = Instant::now();
    let ended = loop {
        // Other logins give the pool young connections.
        let mut other = log_in(&docward.address());
        // On a slow machine its connection is too old, too.
        let counted = other.try_command("shop", doc! {"count": "c"}, SOON);
        assert!(counted.is_none_or(|reply| reply.get_i32("n").unwrap() == 1));
        if former.try_command("shop", doc! {"count": "c"}, SOON).is_none() {
            break began.elapsed();
        }
        assert!(began.elapsed() < Duration::from_secs(6), "the client was not disconnected");
        std::thread::sleep(Duration::from_millis(100));
    };
    assert!(ended >= Duration::from_millis(1900), "{ended:?}");
}

/// The bound that docs/pool.md names: the connections of a user end after `max_lifetime`, and the former key opens none.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_password_ends_the_clients_of_the_former_one_after_max_lifetime() {
    let mongod = Mongod::start_with_access_control(Kind::Standalone);
    let root = connect("root", "secret", &mongod.address()).await;
    create(&root, "ann").await;
    let docward =
        pooled(&format!("mongodb://{}/", mongod.address()), "2").argument("--pool-max-lifetime").argument("3s").start();
    let mut ann = Client::connect(&docward.address());
    login::log_in(&mut ann, "ann", "ann");
    root.database("admin").run_command(doc! {"updateUser": "ann", "pwd": "new"}).await.unwrap();
    let began = Instant::now();
    while ann.try_command("ann", doc! {"count": "marks"}, SOON).is_some() {
        assert!(began.elapsed() < Duration::from_secs(8), "the client goes on");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Those who send many requests and read no reply before they log in do not keep others from logging in.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_send_before_they_log_in_and_do_not_read_hold_up_no_login() {
    let mongod = Mongod::start_with_access_control(Kind::Standalone);
    let root = connect("root", "secret", &mongod.address()).await;
    create(&root, "ann").await;
    let docward = pooled(&format!("mongodb://{}/", mongod.address()), "2").start();
    let mut stalled = Vec::new();
    for _ in 0..2 {
        let mut client = Client::connect(&docward.address());
        let kill = |id| doc! {"killCursors": "c", "cursors": [id], "$db": "shop"};
        // Until the replies fill the buffers of both sides, or docward reads no more.
        client.set_write_timeout(Duration::from_millis(500));
        for id in 0..40_000_i64 {
            if client.try_send_bytes(&Message::new(kill(id)).to_frame(9, 0).to_bytes()).is_err() {
                break;
            }
        }
        stalled.push(client);
    }
    let began = Instant::now();
    // A driver asks for the mechanisms of the user first.
    let ann = connect("ann", "ann", &docward.address()).await;
    ann.database("ann").collection("marks").insert_one(doc! {"_id": 1}).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

/// A client whose replies are noted as codes and users.
struct Noted {
    client: Client,
    replies: Vec<String>,
}

impl Noted {
    fn new(address: &str) -> Noted {
        Noted { client: Client::connect(address), replies: Vec::new() }
    }

    fn command(&mut self, what: &str, database: &str, command: Document) -> Document {
        let reply = self.client.command(database, command);
        self.replies.push(match reply.get_i32("code") {
            Ok(code) => format!("{what}: {code} {}", reply.get_str("codeName").unwrap()),
            Err(_) => format!("{what}: ok"),
        });
        reply
    }

    fn log_in(&mut self, name: &str, password: &str, database: &str) {
        let scram = login::Scram::new(name, password);
        let begun = self.command(&format!("{name} of {database} begins"), database, scram.start(true));
        if begun.contains_key("conversationId") {
            self.command(&format!("{name} of {database} goes on"), database, scram.proof(&begun));
        }
        self.status();
    }

    /// Notes which users the server has for the connection.
    fn status(&mut self) {
        let reply = self.client.command("admin", doc! {"connectionStatus": 1});
        let users = reply.get_document("authInfo").unwrap().get_array("authenticatedUsers").unwrap();
        self.replies.push(format!("users: {users:?}"));
    }
}

/// Two users of `admin`, and one of the same name in another database.
async fn with_ann_and_bob() -> support::mongod::Mongod {
    let mongod = Mongod::start_with_access_control(Kind::Standalone);
    let root = connect("root", "secret", &mongod.address()).await;
    create(&root, "ann").await;
    create(&root, "bob").await;
    root.database("shop").run_command(doc! {"createUser": "ann", "pwd": "ann", "roles": []}).await.unwrap();
    mongod
}

/// As on a direct connection: the server accepts the first user only, and the connection stays logged in as it.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_has_one_user() {
    let mongod = with_ann_and_bob().await;
    let docward = pooled(&format!("mongodb://{}/", mongod.address()), "3").start();
    let replies = |address: &str| {
        let mut client = Noted::new(address);
        client.log_in("ann", "ann", "admin");
        client.log_in("bob", "bob", "admin");
        client.log_in("bob", "wrong", "admin");
        client.log_in("ann", "ann", "shop");
        client.log_in("ann", "wrong", "admin");
        client.log_in("ann", "ann", "admin");
        client.command("count", "ann", doc! {"count": "marks"});
        client.command("count of bob", "bob", doc! {"count": "marks"});
        client.replies
    };
    assert_eq!(replies(&docward.address()), replies(&mongod.address()));
    // What docward does not log in at once, it does not log in as a second user either.
    let mut client = Noted::new(&docward.address());
    client.log_in("ann", "ann", "admin");
    let plain = doc! {"saslStart": 1, "mechanism": "PLAIN", "payload": binary(b"\0bob\0bob")};
    client.command("PLAIN", "$external", plain);
    client.command("count", "ann", doc! {"count": "marks"});
    assert_eq!(client.replies[3..], ["PLAIN: 5626701 Location5626701", "count: ok"]);
}

/// As on a direct connection: a logout needs a user, ends the login of its database, and no login that has only begun.
#[tokio::test(flavor = "multi_thread")]
async fn a_logout_needs_a_user() {
    let mongod = with_ann_and_bob().await;
    let docward = pooled(&format!("mongodb://{}/", mongod.address()), "3").start();
    let replies = |address: &str| {
        let mut client = Noted::new(address);
        let logout = || doc! {"logout": 1};
        client.command("logout before the login", "admin", logout());
        client.log_in("ann", "ann", "admin");
        client.command("logout of another database", "shop", logout());
        client.status();
        client.command("logout", "admin", logout());
        client.status();
        client.command("second logout", "admin", logout());
        client.command("count", "ann", doc! {"count": "marks"});
        let scram = login::Scram::new("bob", "bob");
        let begun = client.command("bob begins", "admin", scram.start(true));
        client.command("logout during a login", "admin", logout());
        client.command("bob goes on", "admin", scram.proof(&begun));
        client.status();
        client.replies
    };
    assert_eq!(replies(&docward.address()), replies(&mongod.address()));
}
