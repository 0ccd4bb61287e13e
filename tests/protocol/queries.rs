//! The query listener in front of a replica set of three: a second connection string for reads from secondaries that
//! are fresh enough. It rejects writes.

use std::time::{Duration, Instant};

use bson::{Document, doc};
use mongodb::error::{Error, ErrorKind};
use mongodb::{Client, Collection};
use support::driver::{code, connect, message};
use support::mongod::Mongod;
use support::process::{TIMEOUT, poll};
use support::proxy::Docward;
use support::raw;
use support::replica_set::ReplicaSet;

const RULES: &str = r#"
version: 1
rules:
  - { name: orders-are-read, namespace: shop.orders, reads: { prefer: secondary, max_staleness: 15s } }
  - { name: people-are-read, namespace: "shop.p*", reads: { max_staleness: 90s } }
  - { name: no-scripts, namespace: shop.orders, deny: { operations: [find], when: { uses: [$where] } } }
"#;

fn start(set: &ReplicaSet) -> Docward {
    Docward::before(&set.uri()).rules(RULES).argument("--query-listen").argument("127.0.0.1:0").listeners(4).start()
}

/// The member that answers a driver's queries. Drivers retry reads, but not this command, when its connection closes
/// because queries move to another member.
async fn answering(client: &Client, set: &ReplicaSet) -> usize {
    let asked = async {
        loop {
            match client.database("admin").run_command(doc! { "serverStatus": 1 }).await {
                Err(error) if is_about_connections(&error) => tokio::time::sleep(Duration::from_millis(10)).await,
                other => return other.unwrap(),
            }
        }
    };
    let status = tokio::time::timeout(TIMEOUT, asked).await.unwrap();
    let host = status.get_str("host").unwrap();
    let port = host.rsplit_once(':').unwrap().1;
    set.members().iter().position(|member| member.address().ends_with(&format!(":{port}"))).unwrap()
}

fn is_about_connections(error: &Error) -> bool {
    matches!(*error.kind, ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. })
}

/// Waits until one of the expected members answers a driver's queries.
async fn await_reply(client: &Client, set: &ReplicaSet, expected: impl Fn(usize) -> bool) {
    let moved = async {
        while !expected(answering(client, set).await) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, moved).await.unwrap();
}

async fn count(orders: &Collection<Document>) -> u64 {
    let mut cursor = orders.find(doc! {}).batch_size(2).await.unwrap();
    let mut count = 0;
    while cursor.advance().await.unwrap() {
        count += 1;
    }
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_go_to_a_secondary_and_all_else_is_rejected() {
    let set = ReplicaSet::start(3);
    let docward = start(&set);
    let commands = connect(&docward.address(), "").await;
    let journalled = mongodb::options::WriteConcern::builder().w(mongodb::options::Acknowledgment::Nodes(3)).build();
    let options = mongodb::options::CollectionOptions::builder().write_concern(journalled).build();
    let documents = (0..10).map(|id| doc! { "_id": id });
    let orders = commands.database("shop").collection_with_options::<Document>("orders", options);
    orders.insert_many(documents).await.unwrap();

    let hello = raw::Client::connect(&docward.query_address()).command("admin", doc! { "hello": 1 });
    for field in ["hosts", "setName", "me", "primary", "secondary", "lastWrite", "electionId"] {
        assert!(!hello.contains_key(field), "{field} in {hello}");
    }
    assert!(hello.get_bool("isWritablePrimary").unwrap());

    let queries = connect(&docward.query_address(), "").await;
    let primary = set.await_primary();
    assert_ne!(answering(&queries, &set).await, primary);
    let shop = queries.database("shop");
    let orders = shop.collection::<Document>("orders");
    assert_eq!(count(&orders).await, 10);
    assert_eq!(orders.count_documents(doc! {}).await.unwrap(), 10);
    assert_eq!(orders.distinct("_id", doc! {}).await.unwrap().len(), 10);
    assert!(shop.list_collection_names().await.unwrap().contains(&"orders".to_owned()));

    let expect = |error: Error, wanted: i32, words: &str| {
        assert_eq!(code(&error), wanted, "{error}");
        assert!(message(&error).contains(words), "{error}");
        let labels = error.labels();
        assert!(labels.is_empty(), "{labels:?}");
    };
    let refused = &format!("send it to a member listener of docward ({})", docward.address());
    expect(orders.insert_one(doc! {}).await.unwrap_err(), 115, refused);
    expect(orders.find_one_and_delete(doc! {}).await.unwrap_err(), 115, "is not a read");
    let secret = shop.collection::<Document>("secret");
    expect(secret.find_one(doc! {}).await.unwrap_err(), 115, "reads shop.secret, which no `reads` rule names");
    let lookup = doc! { "$lookup": { "from": "secret", "pipeline": [], "as": "s" } };
    expect(orders.aggregate([lookup]).await.unwrap_err(), 115, "reads shop.secret");
    expect(orders.aggregate([doc! { "$out": "people" }]).await.unwrap_err(), 115, "writes its result");
    // Other rules evaluate queries like commands.
    expect(orders.find_one(doc! { "$where": "true" }).await.unwrap_err(), 121, "no-scripts");
    let mut session = raw::Client::connect(&docward.query_address());
    let id = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![3; 16] };
    let reply = session.command(
        "shop",
        doc! { "find": "orders", "lsid": { "id": id }, "txnNumber": 1_i64, "startTransaction": true, "autocommit": false },
    );
    assert_eq!(reply.get_i32("code").unwrap(), 115, "{reply}");
    // On the other listeners these rules have no effect.
    assert!(commands.database("shop").collection::<Document>("secret").find_one(doc! {}).await.unwrap().is_none());
    expect(
        commands
            .database("shop")
            .collection::<Document>("orders")
            .find_one(doc! { "$where": "true" })
            .await
            .unwrap_err(),
        121,
        "no-scripts",
    );
    commands.database("shop").collection::<Document>("secret").aggregate([doc! { "$out": "people" }]).await.unwrap();
}

#[test]
fn many_rejections_do_not_fill_the_log() {
    const WORDS: &str = "the query listener rejected a command";
    let docward =
        Docward::before(&Mongod::shared().uri()).rules(RULES).argument("--query-listen").argument("127.0.0.1:0");
    let docward = docward.listeners(2).start();
    let mut client = raw::Client::connect(&docward.query_address());
    let began = Instant::now();
    let long = "w".repeat(100_000);
    for _ in 0..500 {
        let refused = client.command("shop", doc! { "find": &long });
        assert_eq!(refused.get_i32("code").unwrap(), 115);
    }
    let lines = |seconds: u64| 100 * (seconds as usize + 2);
    let logged: Vec<String> = docward.log().into_iter().filter(|line| line.contains(WORDS)).collect();
    assert!(!logged.is_empty() && logged.len() <= lines(began.elapsed().as_secs()), "{} lines", logged.len());
    assert!(logged.iter().all(|line| line.len() < 2000), "{}", logged[0].len());
    // The next line has the number of suppressed ones.
    std::thread::sleep(Duration::from_secs(1));
    client.command("shop", doc! { "find": &long });
    let suppressed =
        |line: &String| Some(line.split("suppressed=").nth(1)?.split(' ').next()?.parse::<usize>().unwrap());
    let counted = poll(TIMEOUT, || {
        let all: Vec<String> = docward.log().into_iter().filter(|line| line.contains(WORDS)).collect();
        let suppressed: usize = all.iter().filter_map(suppressed).sum();
        (suppressed + all.len() == 501).then_some(())
    });
    assert!(counted.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_loss_of_a_secondary_the_next_query_works_on_another() {
    let mut set = ReplicaSet::start(3);
    let docward = start(&set);
    connect(&docward.address(), "")
        .await
        .database("shop")
        .collection("orders")
        .insert_one(doc! { "_id": 1 })
        .await
        .unwrap();
    let queries = connect(&docward.query_address(), "").await;
    let orders = queries.database("shop").collection::<Document>("orders");
    orders.find_one(doc! {}).await.unwrap();
    let first = answering(&queries, &set).await;
    set.kill(first);
    orders.find_one(doc! {}).await.unwrap();
    let second = answering(&queries, &set).await;
    assert_ne!(second, first);
    // When the other secondary becomes primary, queries move to a secondary if there is one.
    set.restart(first);
    let primary = set.step_down();
    await_reply(&queries, &set, |member| member != primary).await;
    orders.find_one(doc! {}).await.unwrap();
    // A stopped member holds its connections and does not answer; docward closes connections that wait for it.
    let stopped = answering(&queries, &set).await;
    set.stop(stopped);
    let answered = async { while orders.find_one(doc! {}).await.is_err() {} };
    let in_time = tokio::time::timeout(TIMEOUT, answered).await;
    set.go_on(stopped);
    in_time.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_leave_a_secondary_that_lags_and_use_the_primary_last() {
    let set = ReplicaSet::start(3);
    let docward = start(&set);
    let orders = connect(&docward.address(), "").await.database("shop").collection::<Document>("orders");
    let queries = connect(&docward.query_address(), "").await;
    let read = queries.database("shop").collection::<Document>("orders");
    let (primary, secondaries) = (set.await_primary(), set.secondaries());
    let apply = |member: usize, mode: &str| {
        let failpoint = doc! { "configureFailPoint": "rsSyncApplyStop", "mode": mode };
        assert_eq!(set.member(member).command("admin", failpoint).get_f64("ok").unwrap(), 1.0);
    };
    let writing = tokio::spawn(async move {
        loop {
            orders.insert_one(doc! {}).await.unwrap();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    let story = async {
        apply(secondaries[0], "alwaysOn");
        let left = |member: usize| format!("queries are no longer routed to {}", set.member(member).address());
        tokio::task::block_in_place(|| docward.wait_for_log(&left(secondaries[0])));
        expect_only(secondaries[1], &docward, &set).await;
        apply(secondaries[1], "alwaysOn");
        tokio::task::block_in_place(|| docward.wait_for_log(&left(secondaries[1])));
        read.find_one(doc! {}).await.unwrap();
        await_reply(&queries, &set, |member| member == primary).await;
        secondaries.iter().for_each(|member| apply(*member, "off"));
        tokio::task::block_in_place(|| docward.wait_for_log(&left(primary)));
        read.find_one(doc! {}).await.unwrap();
        await_reply(&queries, &set, |member| member != primary).await;
    };
    story.await;
    writing.abort();
}

/// Waits until new connections go to this member. A replica set under load may briefly report less lag than it has,
/// so the first connections may go elsewhere.
async fn expect_only(member: usize, docward: &Docward, set: &ReplicaSet) {
    let several = async {
        let mut in_a_row = 0;
        while in_a_row < 4 {
            let queries = connect(&docward.query_address(), "").await;
            in_a_row = if answering(&queries, set).await == member { in_a_row + 1 } else { 0 };
        }
    };
    tokio::time::timeout(TIMEOUT, several).await.unwrap();
}
