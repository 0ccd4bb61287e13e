//! Users: logins pass through, rules see the logged-in user, and docward checks its own user before it listens. Runs
//! on a replica set with access control; the service's roles hold exactly the documented privileges.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use bson::{Bson, Document, doc};
use mongodb::Client;
use mongodb::error::ErrorKind;
use support::driver::code;
use support::frame::{Frame, Message};
use support::mongod::{Kind, Mongod};
use support::process::{TIMEOUT, docward_executable, free_port, poll};
use support::proxy::Docward;
use support::raw;
use support::scripted::{Peer, reply_to};

/// With access control; `root` has all privileges.
fn mongod() -> &'static Mongod {
    static SHARED: OnceLock<Mongod> = OnceLock::new();
    SHARED.get_or_init(|| Mongod::start_with_access_control(Kind::ReplicaSet))
}

/// A connection string for a user of `admin`.
fn uri(address: &str, user: &str, options: &str) -> String {
    format!("mongodb://{user}:secret@{address}/?replicaSet=rs0&authSource=admin{options}")
}

async fn root() -> Client {
    Client::with_uri_str(uri(&mongod().address(), "root", "")).await.unwrap()
}

async fn admin(command: Document) -> Document {
    root().await.database("admin").run_command(command).await.unwrap()
}

async fn create_user(name: &str, roles: Vec<Bson>, mechanisms: &[&str]) {
    admin(doc! { "createUser": name, "pwd": "secret", "roles": roles, "mechanisms": mechanisms }).await;
}

const BOTH: &[&str] = &["SCRAM-SHA-1", "SCRAM-SHA-256"];

fn privilege(database: &str, collection: &str, actions: &[&str]) -> Bson {
    doc! { "resource": { "db": database, "collection": collection }, "actions": actions }.into()
}

/// Creates a user whose only role has exactly these privileges.
async fn create_service(name: &str, privileges: Vec<Bson>) {
    admin(doc! { "createRole": name, "privileges": privileges, "roles": [] }).await;
    create_user(name, vec![doc! { "role": name, "db": "admin" }.into()], BOTH).await;
}

/// A docward in front of the server with access control.
fn before() -> support::proxy::Builder {
    Docward::before(&format!("mongodb://{}/?replicaSet=rs0", mongod().address()))
}

#[tokio::test(flavor = "multi_thread")]
async fn logins_by_password_pass_through() {
    let read_write = || vec![Bson::from("readWriteAnyDatabase")];
    create_user("sha1", read_write(), &["SCRAM-SHA-1"]).await;
    create_user("sha256", read_write(), &["SCRAM-SHA-256"]).await;
    let docward = before().start();
    for (user, mechanism) in [
        ("sha1", "&authMechanism=SCRAM-SHA-1"),
        ("sha256", "&authMechanism=SCRAM-SHA-256"),
        ("sha1", ""),
        ("sha256", ""),
    ] {
        let client = Client::with_uri_str(uri(&docward.address(), user, mechanism)).await.unwrap();
        client.database("x").collection("logins").insert_one(doc! { "user": user }).await.unwrap();
        let wrong = uri(&docward.address(), user, mechanism).replace("secret", "wrong");
        let wrong = Client::with_uri_str(wrong).await.unwrap();
        let error = wrong.database("x").run_command(doc! { "ping": 1 }).await.unwrap_err();
        assert!(matches!(*error.kind, ErrorKind::Authentication { .. }), "{error}");
    }
    let mut anonymous = raw::Client::connect(&docward.address());
    let reply = anonymous.command("x", doc! { "insert": "logins", "documents": [{}] });
    assert_eq!(reply.get_i32("code").unwrap(), 13, "{reply}");
}

/// The server rejects these transactions, so a drain does not wait for them.
#[test]
fn transactions_without_a_login_do_not_delay_a_drain() {
    let mut docward = before().argument("--drain-timeout").argument("60s").start();
    let mut anonymous = raw::Client::connect(&docward.address());
    for number in 0..20_i64 {
        let transaction = doc! {
            "insert": "c", "documents": [{}], "lsid": { "id": bson::Uuid::new() }, "txnNumber": number,
            "startTransaction": true, "autocommit": false,
        };
        let reply = anonymous.command("x", transaction);
        assert_eq!(reply.get_i32("code").unwrap(), 13, "{reply}");
    }
    let began = Instant::now();
    assert!(docward.terminate().success());
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn other_mechanisms_pass_byte_for_byte_and_certificates_are_refused() {
    let peer = Peer::start(|request: Frame| vec![reply_to(&request, doc! { "ok": 1.0, "done": true })]);
    let docward = Docward::before(&peer.uri()).start();
    let mut client = raw::Client::connect(&docward.address());
    let payload = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: b"\0user\0password".to_vec() };
    let plain =
        doc! { "saslStart": 1, "mechanism": "PLAIN", "payload": payload, "autoAuthorize": 1, "$db": "$external" };
    let message = Message::new(plain);
    let reply = client.exchange(&message);
    assert!(reply.body().get_bool("done").unwrap());
    let seen = peer.requests();
    let ours: Vec<_> = seen.iter().filter(|frame| Message::parse(frame).body().contains_key("saslStart")).collect();
    assert_eq!(ours.len(), 1);
    assert_eq!(ours[0].to_bytes(), message.to_frame(1, 0).to_bytes());

    let by_certificate = doc! { "mechanism": "MONGODB-X509", "db": "$external" };
    let mut hello = doc! { "hello": 1, "speculativeAuthenticate": { "authenticate": 1 } };
    hello.get_document_mut("speculativeAuthenticate").unwrap().extend(by_certificate.clone());
    assert!(!client.command("admin", hello).contains_key("speculativeAuthenticate"));
    let mut authenticate = doc! { "authenticate": 1 };
    authenticate.extend(by_certificate);
    let reply = client.command("$external", authenticate);
    assert_eq!(reply.get_i32("code").unwrap(), 18);
    assert!(reply.get_str("errmsg").unwrap().contains("SCRAM-SHA-256"), "{reply}");
    let passed = |frame: &Frame| Message::parse(frame).body().contains_key("authenticate");
    assert!(!peer.requests().iter().any(passed));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_sees_who_is_logged_in() {
    for user in ["writer", "migrator"] {
        create_user(user, vec!["readWriteAnyDatabase".into()], BOTH).await;
    }
    let rules = "version: 1\nrules:\n  - name: no-replace\n    namespace: shop.orders\n    replacement: {policy: reject}\n    \
                 except: {users: [admin.migrator]}\n";
    let docward = before().rules(rules).start();
    let replace = async |user: &str| {
        let client = Client::with_uri_str(uri(&docward.address(), user, "")).await.unwrap();
        let orders = client.database("shop").collection::<Document>("orders");
        orders.replace_one(doc! { "_id": 1 }, doc! { "by": user }).upsert(true).await
    };
    replace("migrator").await.unwrap();
    assert_eq!(code(&replace("writer").await.unwrap_err()), 121);
}

const NUMBERS: &str = "version: 1\nrules:\n  - {name: numbers, namespace: DB.orders, sequence: {field: no, counter: orders, start: after_max}}\n";

/// A driver logged in as the application's user.
async fn application(docward: &Docward) -> Client {
    let reply = root().await.database("admin").run_command(doc! { "usersInfo": "application" }).await.unwrap();
    if reply.get_array("users").unwrap().is_empty() {
        create_user("application", vec!["readWriteAnyDatabase".into()], BOTH).await;
    }
    Client::with_uri_str(uri(&docward.address(), "application", "")).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_need_these_privileges_and_no_others() {
    let privileges = vec![
        privilege("numbers", "counters", &["find", "insert", "update"]),
        privilege("numbers", "orders", &["find"]),
    ];
    create_service("numbers-service", privileges).await;
    let service = uri(&mongod().address(), "numbers-service", "");
    let docward = before().rules(&NUMBERS.replace("DB", "numbers")).argument("--service").argument(service).start();
    let orders = application(&docward).await.database("numbers").collection::<Document>("orders");
    // docward's user may not store a provided number elsewhere, so it creates the counter.
    orders.insert_one(doc! { "_id": 0, "no": 7 }).await.unwrap();
    orders.insert_one(doc! { "_id": 1 }).await.unwrap();
    assert_eq!(orders.find_one(doc! { "_id": 1 }).await.unwrap().unwrap().get_i32("no").unwrap(), 8);

    let optimistic = "version: 1\nrules:\n  - {name: numbers, namespace: numbers.orders, sequence: {field: no, strategy: optimistic}}\n";
    create_service("optimistic-service", vec![privilege("numbers", "orders", &["find"])]).await;
    let service = uri(&mongod().address(), "optimistic-service", "");
    let docward = before().rules(optimistic).argument("--service").argument(service).start();
    let orders = application(&docward).await.database("numbers").collection::<Document>("orders");
    orders.insert_one(doc! { "_id": 2 }).await.unwrap();
    assert_eq!(orders.find_one(doc! { "_id": 2 }).await.unwrap().unwrap().get_i32("no").unwrap(), 9);
}

/// A docward in front of a server with access control, logged in with its own user.
fn numbering() -> Docward {
    const RULES: &str = "version: 1\nrules:\n  \
        - {name: orders, namespace: drawn.orders, sequence: {field: no, counter: orders, on_upsert: true}}\n  \
        - {name: largest, namespace: drawn.largest, sequence: {field: no, strategy: optimistic, on_upsert: true}}\n";
    let service = uri(&mongod().address(), "root", "");
    before().rules(RULES).argument("--service").argument(service).start()
}

/// The last number that was reserved.
async fn drawn() -> Option<i32> {
    let counters = root().await.database("drawn").collection::<Document>("counters");
    let counter = counters.find_one(doc! { "_id": "orders" }).await.unwrap();
    counter.map(|counter| counter.get_i32("seq").unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_are_issued_only_to_users_who_may_insert() {
    let docward = numbering();
    let mut anonymous = raw::Client::connect(&docward.address());
    let documents: Vec<Document> = (0..1000).map(|id| doc! { "_id": id }).collect();
    for collection in ["orders", "largest"] {
        let insert = doc! { "insert": collection, "documents": &documents };
        let (through, direct) = (anonymous.command("drawn", insert.clone()), mongod().command("drawn", insert));
        for key in ["ok", "code", "codeName", "errmsg"] {
            assert_eq!(through.get(key), direct.get(key), "{through}");
        }
    }
    create_user("reader", vec!["readAnyDatabase".into()], BOTH).await;
    create_service("inserter", vec![privilege("drawn", "orders", &["insert"])]).await;
    create_service("updater", vec![privilege("drawn", "orders", &["update"])]).await;
    create_service("by-name", vec![privilege("", "orders", &["insert", "update"])]).await;
    create_service("anything", vec![doc! { "resource": { "anyResource": true }, "actions": ["anyAction"] }.into()])
        .await;
    create_user("database-writer", vec![doc! { "role": "readWrite", "db": "drawn" }.into()], BOTH).await;
    create_user("all", vec!["readWriteAnyDatabase".into()], BOTH).await;
    let mut last = None;
    for (user, may_insert, may_upsert) in [
        ("reader", false, false),
        ("updater", false, false),
        ("inserter", true, false),
        ("by-name", true, true),
        ("anything", true, true),
        ("database-writer", true, true),
        ("all", true, true),
        ("root", true, true),
    ] {
        let client = Client::with_uri_str(uri(&docward.address(), user, "&maxPoolSize=1")).await.unwrap();
        let orders = client.database("drawn").collection::<Document>("orders");
        let of = |operation: &str| doc! { "_id": format!("{user} {operation}") };
        let is_stored = async |operation: &str| {
            let stored = root().await.database("drawn").collection::<Document>("orders").find_one(of(operation)).await;
            stored.unwrap().map(|document| document.get_i32("no").unwrap())
        };
        let inserted = orders.insert_one(of("insert")).await.map(drop);
        let upserted = orders.update_one(of("update"), doc! { "$set": { "a": 1 } }).upsert(true).await.map(drop);
        for (operation, done, may) in [("insert", inserted, may_insert), ("update", upserted, may_upsert)] {
            if may {
                done.unwrap_or_else(|error| panic!("{user} {operation}: {error}"));
                last = Some(last.unwrap_or(0) + 1);
                assert_eq!(is_stored(operation).await, last, "{user} {operation}");
            } else {
                assert_eq!(code(&done.unwrap_err()), 13, "{user} {operation}");
                assert_eq!(is_stored(operation).await, None);
            }
        }
        assert_eq!(drawn().await, last, "{user}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_login_or_of_a_role_is_noticed() {
    let docward = numbering();
    create_user("changing", vec![doc! { "role": "readWrite", "db": "drawn" }.into()], BOTH).await;
    let client = Client::with_uri_str(uri(&docward.address(), "changing", "&maxPoolSize=1")).await.unwrap();
    let largest = client.database("drawn").collection::<Document>("largest");
    largest.insert_one(doc! { "_id": "before" }).await.unwrap();
    client.database("admin").run_command(doc! { "logout": 1 }).await.unwrap();
    assert_eq!(code(&largest.insert_one(doc! { "_id": "after" }).await.unwrap_err()), 13);

    create_user("promoted", vec!["readAnyDatabase".into()], BOTH).await;
    let client = Client::with_uri_str(uri(&docward.address(), "promoted", "&maxPoolSize=1")).await.unwrap();
    let largest = client.database("drawn").collection::<Document>("largest");
    assert_eq!(code(&largest.insert_one(doc! { "_id": "promoted" }).await.unwrap_err()), 13);
    admin(doc! { "grantRolesToUser": "promoted", "roles": ["readWriteAnyDatabase"] }).await;
    largest.insert_one(doc! { "_id": "promoted" }).await.unwrap();
    let stored = largest.find_one(doc! { "_id": "promoted" }).await.unwrap().unwrap();
    assert!(stored.get_i32("no").is_ok(), "{stored}");
}

/// How often mongod has received this command.
fn times_received(mongod: &Mongod, command: &str) -> i64 {
    let status = mongod.command("admin", doc! { "serverStatus": 1 });
    status
        .get_document("metrics")
        .unwrap()
        .get_document("commands")
        .unwrap()
        .get_document(command)
        .map_or(0, |count| count.get_i64("total").unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_access_control_privileges_are_checked_once_per_connection() {
    let mongod = Mongod::start(Kind::ReplicaSet);
    let created =
        mongod.command("admin", doc! { "createUser": "reader", "pwd": "secret", "roles": ["readAnyDatabase"] });
    assert_eq!(created.get_f64("ok").unwrap(), 1.0, "{created}");
    let docward = Docward::before(&mongod.uri()).rules(&NUMBERS.replace("DB", "open"));
    let docward = docward.environment("RUST_LOG", "info,docward_proxy::service::requirements=debug").start();
    // It executes or explains something itself, once.
    docward.wait_for_log("checked whether the server has what the rules need");
    let anonymous =
        Client::with_uri_str(format!("mongodb://{}/?replicaSet=rs0&maxPoolSize=1", docward.address())).await.unwrap();
    let reader = Client::with_uri_str(uri(&docward.address(), "reader", "&maxPoolSize=1")).await.unwrap();
    let before = (times_received(&mongod, "connectionStatus"), times_received(&mongod, "explain"));
    for client in [anonymous, reader] {
        let orders = client.database("open").collection::<Document>("orders");
        for _ in 0..5 {
            orders.insert_many([doc! {}, doc! {}]).await.unwrap();
        }
    }
    assert_eq!(
        (times_received(&mongod, "connectionStatus"), times_received(&mongod, "explain")),
        (before.0 + 2, before.1 + 2)
    );
    let stored = mongod.client().await.database("open").collection::<Document>("orders");
    assert_eq!(stored.count_documents(doc! { "no": { "$gte": 1, "$lte": 20 } }).await.unwrap(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_need_these_privileges_and_no_others() {
    let privileges = vec![
        privilege("copies", "customers", &["find", "changeStream"]),
        privilege("copies", "orders", &["find", "changeStream", "update"]),
        privilege("docward", "leases", &["find", "insert", "update"]),
    ];
    create_service("copies-service", privileges).await;
    let rules = "version: 1\nrules:\n  - name: names\n    namespace: copies.customers\n    copies:\n      \
                 - {into: copies.orders, key: customer_id, fields: {name: customer_name}}\n";
    let service = uri(&mongod().address(), "copies-service", "");
    let docward = before().rules(rules).argument("--service").argument(service).start();
    let database = application(&docward).await.database("copies");
    database.collection("customers").insert_one(doc! { "_id": 1, "name": "old" }).await.unwrap();
    database
        .collection("orders")
        .insert_one(doc! { "_id": 1, "customer_id": 1, "customer_name": "old" })
        .await
        .unwrap();
    docward.wait_for_log("worker started: keeps the copies consistent");
    let customers = database.collection::<Document>("customers");
    customers.update_one(doc! {}, doc! { "$set": { "name": "new" } }).await.unwrap();
    let deadline = Instant::now() + TIMEOUT;
    while database.collection::<Document>("orders").find_one(doc! { "customer_name": "new" }).await.unwrap().is_none() {
        assert!(Instant::now() < deadline, "the copy stays old");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!docward.log().iter().any(|line| line.contains("interrupted")), "{:?}", docward.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_insufficient_service_user_is_reported_at_start() {
    create_service("short-service", vec![privilege("short", "counters", &["find", "update"])]).await;
    let rules = NUMBERS.replace("DB", "short");
    let short = uri(&mongod().address(), "short-service", "");
    for (service, words) in [
        (short.replace("secret", "wrong"), "docward's own user (--service) cannot log in, but rule 'numbers' needs it"),
        (short, "insert on short.counters (rule 'numbers')"),
        (
            format!("mongodb://{}/?replicaSet=rs0", mongod().address()),
            "the upstream requires a login, and rule 'numbers'",
        ),
    ] {
        // docward starts if the server does not answer within five seconds, and logs it.
        let log = poll(TIMEOUT, || match before().rules(&rules).argument("--service").argument(&service).try_start() {
            Err(log) => Some(log),
            Ok(docward) => {
                docward.wait_for_log("are not checked yet");
                None
            }
        });
        let log = log.unwrap();
        assert!(log.contains(words), "{log}");
    }
    // docward does not check privileges that no rule needs, and starts while a server is down.
    before().argument("--service").argument(uri(&mongod().address(), "unknown", "")).start();
    let down = format!("mongodb://127.0.0.1:{}/?serverSelectionTimeoutMS=500", free_port());
    let docward = Docward::before(&down).rules(&rules).start();
    docward.wait_for_log("are not checked yet");
}

#[test]
fn privileges_are_checked_when_a_server_comes_up() {
    let mut mongod = Mongod::start_with(Kind::Standalone, &["--auth"]);
    mongod.stop();
    let docward = Docward::before(&mongod.uri()).rules(&NUMBERS.replace("DB", "late")).start();
    docward.wait_for_log("are not checked yet");
    mongod.restart();
    let is_reported = || docward.log().iter().any(|line| line.contains("the upstream requires a login")).then_some(());
    assert!(poll(TIMEOUT, is_reported).is_some());
}

/// The decision log names the logged-in users, as the server reports them.
#[tokio::test(flavor = "multi_thread")]
async fn the_decision_log_names_users() {
    create_user("named", vec![Bson::from("readWriteAnyDatabase")], BOTH).await;
    let rules = "version: 1\nrules:\n  - { name: frozen, namespace: '*.orders', deny: { operations: update } }\n";
    let docward = before().rules(rules).start();
    let client = Client::with_uri_str(uri(&docward.address(), "named", "&maxPoolSize=1")).await.unwrap();
    for _ in 0..2 {
        let orders = client.database("x").collection::<Document>("orders");
        let error = orders.replace_one(doc! { "_id": 1 }, doc! { "a": 1 }).await.unwrap_err();
        assert_eq!(code(&error), 121);
    }
    let mut anonymous = raw::Client::connect(&docward.address());
    anonymous.command("x", doc! { "update": "orders", "updates": [{ "q": { "_id": 1 }, "u": { "a": 1 } }] });
    docward.wait_for_log("users=\"\"");
    let printed: Vec<String> = docward.log().into_iter().filter(|line| line.contains("rule matched")).collect();
    assert_eq!(printed.iter().filter(|line| line.contains("users=\"admin.named\"")).count(), 2, "{printed:?}");
}

/// Runs `docward check --upstream` with a tree rule for `namespace`, as this user; returns whether it succeeds, and
/// its output.
fn check_as(user: Option<&str>, namespace: &str) -> (bool, String) {
    let rules = format!("version: 1\nrules:\n  - {{ name: r, namespace: '{namespace}', tree: {{}} }}\n");
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    std::fs::write(file.path(), rules).unwrap();
    let upstream = format!("mongodb://{}/?replicaSet=rs0", mongod().address());
    let mut docward = std::process::Command::new(docward_executable());
    docward.arg("check").arg(file.path()).args(["--upstream", &upstream]);
    if let Some(user) = user {
        docward.args(["--service", &uri(&mongod().address(), user, "")]);
    }
    let done = docward.output().unwrap();
    (done.status.success(), String::from_utf8(done.stderr).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn check_upstream_reports_what_its_user_may_not_read() {
    root().await.database("forest").collection("nodes").insert_one(doc! { "_id": 1 }).await.unwrap();
    let role = |role: &str, db: &str| vec![doc! { "role": role, "db": db }.into()];
    create_user("reads-all", role("readAnyDatabase", "admin"), BOTH).await;
    create_user("reads-forest", role("read", "forest"), BOTH).await;
    create_service("finds-nodes", vec![privilege("forest", "nodes", &["find"])]).await;
    create_service("lists-forest", vec![privilege("forest", "", &["listCollections"])]).await;
    const LACKS_INDEX: &str = "`r` needs an index on `path`, and forest.nodes has none";
    for (user, namespace, succeeds, words) in [
        (Some("reads-all"), "forest.nodes", true, LACKS_INDEX),
        (Some("reads-all"), "*.nodes", true, LACKS_INDEX),
        (Some("reads-all"), "wood.nodes", true, "the deployment has no collection `wood.nodes`"),
        (Some("reads-forest"), "forest.nodes", true, LACKS_INDEX),
        // A glob could match collections that this user cannot list, and the collection may exist.
        (Some("reads-forest"), "*.nodes", false, "does not let docward list the databases, for a rule with `*`"),
        (Some("reads-forest"), "wood.nodes", false, "does not let docward list the collections of `wood`"),
        (Some("finds-nodes"), "forest.nodes", false, "does not let docward list the collections of `forest`"),
        (Some("lists-forest"), "forest.nodes", false, "does not let docward list the indexes of `forest.nodes`"),
        (None, "forest.nodes", false, "give --service a user with the role read on `forest`"),
    ] {
        let (succeeded, printed) = check_as(user, namespace);
        assert!(succeeded == succeeds && printed.contains(words), "{user:?} on {namespace}: {printed}");
    }
}
