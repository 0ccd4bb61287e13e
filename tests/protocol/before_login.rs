//! Limits for clients that have not logged in, in front of a mongod with access control: short messages only, and at
//! most half of the connections. Logged-in clients are not affected.

use std::time::{Duration, Instant};

use bson::{Document, doc};
use support::frame::Message;
use support::http::get;
use support::login::log_in;
use support::mongod::Mongod;
use support::process::{SOON, TIMEOUT, poll};
use support::proxy::{Builder, Docward};
use support::raw::Client;

/// With access control; `root` has all privileges.
fn mongod() -> &'static Mongod {
    Mongod::shared_with_access_control()
}

fn before() -> Builder {
    Docward::before(&mongod().uri()).admin()
}

/// Number of connections that have ended for this reason.
fn ended(docward: &Docward, reason: &str) -> usize {
    let scrape = get(&docward.admin_address(), "/metrics").body;
    let name = format!("docward_connections_ended_total{{reason=\"{reason}\"}} ");
    scrape.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or(0)
}

fn ping(length: usize) -> Message {
    let mut body = doc! { "ping": 1, "comment": "", "$db": "admin" };
    let without = Message::new(body.clone()).to_frame(1, 0).to_bytes().len();
    body.insert("comment", "c".repeat(length - without));
    Message::new(body)
}

fn is_served(client: &mut Client) -> bool {
    client
        .try_command("admin", doc! { "hello": 1 }, SOON)
        .is_some_and(|reply| reply.get_f64("ok").is_ok_and(|ok| ok == 1.0))
}

fn connect_without_login(docward: &Docward, from: [u8; 4]) -> Client {
    let mut client = Client::connect_from(from, &docward.address());
    assert!(is_served(&mut client));
    client
}

fn user(docward: &Docward, from: [u8; 4]) -> Client {
    let mut client = Client::connect_from(from, &docward.address());
    log_in(&mut client, "root", "secret");
    client
}

/// The logged-in users, as the server reports them.
fn users(client: &mut Client) -> Vec<String> {
    let status = client.command("admin", doc! { "connectionStatus": 1 });
    let users = status.get_document("authInfo").unwrap().get_array("authenticatedUsers").unwrap();
    users.iter().map(|user| user.as_document().unwrap().get_str("user").unwrap().to_owned()).collect()
}

const LIMIT: usize = 64 * 1024;

#[test]
fn a_message_over_64_kib_ends_a_connection_that_has_not_logged_in() {
    let docward = before().start();
    let mut client = Client::connect(&docward.address());
    assert_eq!(client.exchange(&ping(LIMIT)).body().get_f64("ok").unwrap(), 1.0);
    assert_eq!(ended(&docward, "client_too_long_before_login"), 0);
    // The message's header is enough.
    let long = ping(LIMIT + 1).to_frame(2, 0).to_bytes();
    client.send_bytes(&long[..200]);
    assert!(client.closes_within(SOON));
    let line = docward.wait_for_log("before it logged in");
    assert!(line.contains("65537 bytes") && line.contains("the limit until then is 65536"), "{line}");
    assert!(poll(TIMEOUT, || (ended(&docward, "client_too_long_before_login") == 1).then_some(())).is_some());
    // After the login it may be as long as the server allows.
    let mut client = user(&docward, [127, 0, 0, 1]);
    assert_eq!(client.exchange(&ping(20 * LIMIT)).body().get_f64("ok").unwrap(), 1.0);
    let large = doc! { "insert": "c", "documents": [{ "text": "t".repeat(1_000_000) }] };
    assert_eq!(client.command("before_login", large).get_i32("n").unwrap(), 1);
}

#[test]
fn a_hello_does_not_end_the_time_limit_for_a_login() {
    let docward = before().argument("--handshake-timeout").argument("2s").start();
    let mut user = user(&docward, [127, 0, 0, 1]);
    // A ping needs no login.
    let mut pinging = connect_without_login(&docward, [127, 0, 0, 2]);
    assert_eq!(pinging.exchange(&ping(100)).body().get_f64("ok").unwrap(), 1.0);
    let mut stuck = connect_without_login(&docward, [127, 0, 0, 2]);
    stuck.send_bytes(&ping(100).to_frame(2, 0).to_bytes()[..50]);
    for client in [&mut pinging, &mut stuck] {
        assert!(client.closes_within(SOON));
    }
    assert!(poll(TIMEOUT, || (ended(&docward, "login_timeout") == 2).then_some(())).is_some());
    docward.wait_for_log("the client did not log in within 2s");
    // Drivers monitor a server with connections that send only hellos.
    let mut monitor = connect_without_login(&docward, [127, 0, 0, 3]);
    std::thread::sleep(Duration::from_secs(5));
    assert!(is_served(&mut monitor));
    assert_eq!(users(&mut user), ["root"]);
}

#[test]
fn transactions_that_are_made_up_before_a_login_do_not_delay_the_end() {
    let mut docward = before().argument("--drain-timeout").argument("60s").start();
    let mut client = connect_without_login(&docward, [127, 0, 0, 1]);
    for number in 0..20_u8 {
        let id = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![number; 16] };
        let begin = doc! {
            "find": "c", "lsid": { "id": id }, "txnNumber": 1_i64, "startTransaction": true, "autocommit": false,
        };
        assert_eq!(client.command("before_login", begin).get_i32("code").unwrap(), 13);
    }
    let began = Instant::now();
    assert!(docward.terminate().success());
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[test]
fn new_connections_replace_unauthenticated_ones_and_no_users() {
    const BUSY: [u8; 4] = [127, 0, 0, 2];
    // At most half of them may be unauthenticated.
    let docward = before().argument("--connections").argument("10").start();
    // The oldest connection comes from the address that later has the most connections; the next one from an address
    // with few.
    let mut users_of_busy: Vec<Client> = (0..2).map(|_| user(&docward, BUSY)).collect();
    let mut quiet = connect_without_login(&docward, [127, 0, 0, 3]);
    let mut crowd: Vec<Client> = (0..4).map(|_| connect_without_login(&docward, BUSY)).collect();
    assert!(is_served(&mut crowd[0]));
    assert_eq!(ended(&docward, "displaced"), 0);
    for displaced in 0..3 {
        let mut late = connect_without_login(&docward, [127, 0, 0, 4 + displaced]);
        assert!(crowd.remove(0).closes_within(SOON), "{displaced}");
        assert!(crowd.iter_mut().all(is_served) && is_served(&mut quiet) && is_served(&mut late));
        let counted = poll(TIMEOUT, || (ended(&docward, "displaced") == usize::from(displaced) + 1).then_some(()));
        assert!(counted.is_some());
        // It logs in, so it no longer counts as unauthenticated.
        log_in(&mut late, "root", "secret");
        users_of_busy.push(late);
        crowd.push(connect_without_login(&docward, BUSY));
    }
    docward.wait_for_log("the client did not log in before newer connections needed its slot");
    assert!(!users_of_busy[0].closes_within(Duration::from_millis(200)));
    for client in &mut users_of_busy {
        assert_eq!(users(client), ["root"]);
    }
    let open: Document = users_of_busy[0].command("admin", doc! { "ping": 1 });
    assert_eq!(open.get_f64("ok").unwrap(), 1.0);
}
