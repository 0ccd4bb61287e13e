//! `topology: router`: a replica set behind one address. Each request goes to the member that it asks for, and clients see
//! a mongos.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use bson::{Bson, Document, doc};
use futures_util::TryStreamExt;
use mongodb::Client as Driver;
use mongodb::options::{ReadPreference, SelectionCriteria};
use support::driver::ok;
use support::frame::{MORE_TO_COME, Message, OP_COMPRESSED};
use support::login::log_in;
use support::process::{TIMEOUT, poll};
use support::proxy::{Builder, Docward};
use support::raw::Client;
use support::replica_set::ReplicaSet;
use support::scripted::{Peer, reply_to, standalone_hello};

fn router(set: &ReplicaSet) -> Builder {
    Docward::before(&set.uri()).argument("--topology").argument("router").without_test_pool()
}

/// A replica set whose primary stays the same on a busy machine.
fn steady_set(size: usize, change: impl Fn(usize, &mut Document)) -> ReplicaSet {
    let set = ReplicaSet::start_with(size, change);
    set.reconfigure(|configuration| {
        configuration.get_document_mut("settings").unwrap().insert("electionTimeoutMillis", 60_000);
    });
    set
}

/// Whether a write was executed, and its write concern is satisfied.
fn is_acknowledged(reply: &Document) -> bool {
    ok(reply) && !reply.contains_key("writeErrors") && !reply.contains_key("writeConcernError")
}

/// The number `n` of a document, as a majority of the members has it.
fn counted(set: &ReplicaSet, collection: &str, id: i32) -> i32 {
    let find = doc! { "find": collection, "filter": { "_id": id }, "readConcern": { "level": "majority" } };
    let found = set.member(set.await_primary()).command("shop", find);
    let batch = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch[0].as_document().unwrap().get("n").unwrap().as_i32().unwrap()
}

/// The member that carries out a command with this read preference.
fn member_of(client: &mut Client, preference: Option<Document>) -> String {
    let mut command = doc! { "serverStatus": 1, "repl": 0, "wiredTiger": 0, "metrics": 0 };
    command.extend(preference.map(|preference| doc! { "$readPreference": preference }).unwrap_or_default());
    let reply = client.command("admin", command);
    assert!(ok(&reply), "{reply}");
    // The name of the machine, and the port.
    reply.get_str("host").unwrap().rsplit(':').next().unwrap().to_owned()
}

fn mode(mode: &str) -> Document {
    doc! { "mode": mode }
}

/// The ports of members, as [`member_of`] shows them.
fn ports(set: &ReplicaSet, members: &[usize]) -> HashSet<String> {
    members.iter().map(|member| set.member(*member).address().rsplit(':').next().unwrap().to_owned()).collect()
}

#[test]
fn clients_see_one_server_that_looks_like_a_mongos() {
    let set = ReplicaSet::start(2);
    let docward = router(&set).start();
    assert_eq!(docward.addresses().len(), 1);
    for hello in [doc! { "hello": 1 }, doc! { "isMaster": 1, "helloOk": true }] {
        let reply = Client::connect(&docward.address()).command("admin", hello);
        assert_eq!(reply.get_str("msg").unwrap(), "isdbgrid", "{reply}");
        let accepts = reply.get_bool("isWritablePrimary").or_else(|_| reply.get_bool("ismaster"));
        assert!(accepts.unwrap(), "{reply}");
        for absent in ["setName", "hosts", "primary", "me", "secondary", "setVersion", "electionId", "lastWrite"] {
            assert!(!reply.contains_key(absent), "{absent}: {reply}");
        }
        for present in ["maxWireVersion", "logicalSessionTimeoutMinutes", "topologyVersion", "localTime"] {
            assert!(reply.contains_key(present), "{present}: {reply}");
        }
    }
    // The hello of a member has other fields.
    let direct = set.member(0).command("admin", doc! { "hello": 1 });
    assert!(direct.contains_key("setName") && !direct.contains_key("msg"));
}

#[test]
fn each_read_goes_to_a_member_of_its_preference() {
    let set = steady_set(3, |index, member| {
        member.insert("tags", doc! { "rack": index.to_string() });
        member.insert("priority", if index == 0 { 2 } else { 1 });
    });
    let docward = router(&set).start();
    let mut client = Client::connect(&docward.address());
    let (primary, secondaries) = (set.await_primary(), set.secondaries());
    let at = |client: &mut Client, preference: Option<Document>| -> HashSet<String> {
        (0..12).map(|_| member_of(client, preference.clone())).collect()
    };
    let (of_primary, of_secondaries) = (ports(&set, &[primary]), ports(&set, &secondaries));
    for preference in [None, Some(mode("primary")), Some(mode("primaryPreferred"))] {
        assert_eq!(at(&mut client, preference.clone()), of_primary, "{preference:?}");
    }
    for preference in ["secondary", "secondaryPreferred"] {
        assert_eq!(at(&mut client, Some(mode(preference))), of_secondaries, "{preference}");
    }
    let all = of_primary.union(&of_secondaries).cloned().collect();
    assert_eq!(at(&mut client, Some(mode("nearest"))), all);
    let tagged = doc! { "mode": "nearest", "tags": [{ "rack": "9" }, { "rack": secondaries[0].to_string() }] };
    assert_eq!(at(&mut client, Some(tagged)), ports(&set, &secondaries[..1]));
    // Writes, and what a transaction reads, stay at the primary whatever they carry.
    let insert = doc! { "insert": "c", "documents": [{ "_id": 1 }], "$readPreference": mode("secondary") };
    assert!(ok(&client.command("shop", insert)));
    let short = doc! { "mode": "secondary", "maxStalenessSeconds": 1 };
    let reply = client.command("shop", doc! { "find": "c", "$readPreference": short });
    assert_eq!(reply.get_i32("code").unwrap(), 160, "{reply}");
}

#[test]
fn a_read_goes_to_members_that_know_the_user_and_its_password() {
    let set = steady_set(3, |_, _| {});
    let docward = router(&set).start();
    let (primary, secondaries) = (set.await_primary(), set.secondaries());
    let run = |member: usize, command: Document| {
        let reply = set.member(member).command("admin", command.clone());
        assert!(is_acknowledged(&reply), "{command}: {reply}");
    };
    let (behind, other) = (secondaries[0], secondaries[1]);
    run(other, doc! { "replSetSyncFrom": set.member(primary).address() });
    let behind_port = ports(&set, &[behind]).into_iter().next().unwrap();
    for (command, password) in [("createUser", "old"), ("updateUser", "new")] {
        run(behind, doc! { "configureFailPoint": "rsSyncApplyStop", "mode": "alwaysOn" });
        let user = doc! { command: "ann", "pwd": password, "roles": ["root"], "writeConcern": { "w": 2 } };
        run(primary, user);
        let mut client = Client::connect(&docward.address());
        log_in(&mut client, "ann", password);
        for preference in ["secondary", "secondaryPreferred", "nearest"] {
            let at: HashSet<_> = (0..12).map(|_| member_of(&mut client, Some(mode(preference)))).collect();
            assert!(!at.contains(&behind_port), "{command}, {preference}: {at:?}");
        }
        run(behind, doc! { "configureFailPoint": "rsSyncApplyStop", "mode": "off" });
        let is_back = || (member_of(&mut client, Some(mode("secondary"))) == behind_port).then_some(());
        poll(TIMEOUT, is_back).expect("the member that is no longer behind gets no read");
    }
    // If none knows the user, the read waits.
    let switch = |mode: &str| {
        secondaries.iter().for_each(|at| run(*at, doc! { "configureFailPoint": "rsSyncApplyStop", "mode": mode }));
    };
    switch("alwaysOn");
    run(primary, doc! { "createUser": "bob", "pwd": "new", "roles": ["root"], "writeConcern": { "w": 1 } });
    let mut client = Client::connect(&docward.address());
    log_in(&mut client, "bob", "new");
    let reader = spawn(move || member_of(&mut client, Some(mode("secondary"))));
    sleep(Duration::from_secs(3));
    assert!(!reader.is_finished());
    switch("off");
    assert!(ports(&set, &secondaries).contains(&reader.join().unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn cursors_stay_at_their_members() {
    let set = ReplicaSet::start(3);
    let docward = router(&set).start();
    let driver = Driver::with_uri_str(format!("mongodb://{}/", docward.address())).await.unwrap();
    let collection = driver.database("shop").collection::<Document>("items");
    let documents: Vec<Document> = (0..300).map(|id| doc! { "_id": id, "text": "x".repeat(9000) }).collect();
    let majority = mongodb::options::WriteConcern::builder().w(mongodb::options::Acknowledgment::Nodes(3)).build();
    collection.insert_many(documents).write_concern(majority).await.unwrap();
    let secondary = SelectionCriteria::ReadPreference(ReadPreference::Secondary { options: None });
    let mut cursors = Vec::new();
    for number in 0..8 {
        let find = collection.find(doc! {}).batch_size(7).sort(doc! { "_id": 1 });
        // Replies of over a megabyte, too.
        let find = if number % 2 == 0 { find.selection_criteria(secondary.clone()) } else { find.batch_size(150) };
        cursors.push(find.await.unwrap());
    }
    // In turns, so that each getMore follows a request to another member on the same connection.
    for expected in 0..300 {
        for cursor in &mut cursors {
            let document = cursor.try_next().await.unwrap().unwrap();
            assert_eq!(document.get_i32("_id").unwrap(), expected);
        }
    }
    for mut cursor in cursors {
        assert_eq!(cursor.try_next().await.unwrap(), None);
    }
    let mut client = Client::connect(&docward.address());
    // Those that are given up are killed where they are: drivers name those of one server together.
    let mut open = |preference: &str| {
        let find = doc! { "find": "items", "batchSize": 2, "$readPreference": mode(preference) };
        client.command("shop", find).get_document("cursor").unwrap().get_i64("id").unwrap()
    };
    let mut cursors = ["secondary", "primary", "secondary"].map(&mut open);
    let kill = doc! { "killCursors": "items", "cursors": [cursors[0], 77_i64, cursors[1], cursors[2]] };
    let reply = client.command("shop", kill);
    let mut killed: Vec<i64> =
        reply.get_array("cursorsKilled").unwrap().iter().map(|id| id.as_i64().unwrap()).collect();
    killed.sort_unstable();
    cursors.sort_unstable();
    assert_eq!(killed, cursors, "{reply}");
    assert_eq!(reply.get_array("cursorsNotFound").unwrap(), &[Bson::Int64(77)], "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_and_rules_work_as_at_a_member() {
    let set = ReplicaSet::start(2);
    let rules = "version: 1\nrules:\n- { name: stock, namespace: 'shop.*', bounds: { field: n, min: 0 } }\n";
    let docward = router(&set).rules(rules).start();
    let driver = Driver::with_uri_str(format!("mongodb://{}/", docward.address())).await.unwrap();
    let database = driver.database("shop");
    let items = database.collection::<Document>("items");
    items.insert_one(doc! { "_id": 1, "n": 2 }).await.unwrap();
    let mut session = driver.start_session().await.unwrap();
    for (take, commits) in [(1, true), (1, false), (1, true)] {
        session.start_transaction().await.unwrap();
        let update = items.update_one(doc! { "_id": 1 }, doc! { "$inc": { "n": -take } }).session(&mut session);
        assert_eq!(update.await.unwrap().modified_count, 1);
        match commits {
            true => session.commit_transaction().await.unwrap(),
            false => session.abort_transaction().await.unwrap(),
        }
    }
    let rejected = items.update_one(doc! { "_id": 1 }, doc! { "$inc": { "n": -1 } }).await.unwrap();
    assert_eq!(rejected.matched_count, 0);
    assert_eq!(items.find_one(doc! {}).await.unwrap().unwrap().get_i32("n").unwrap(), 0);
}

/// A client that reads at a secondary after an unacknowledged write: the write ends first.
#[test]
fn an_unacknowledged_write_ends_before_a_request_to_another_member() {
    let set = ReplicaSet::start(2);
    let docward = router(&set).start();
    let mut client = Client::connect(&docward.address());
    let secondary = ports(&set, &set.secondaries()).into_iter().next().unwrap();
    for id in 0..50 {
        let insert = doc! { "insert": "c", "documents": [{ "_id": id }], "writeConcern": { "w": 0 }, "$db": "shop" };
        client.send(&Message::new(insert).flags(MORE_TO_COME));
        assert_eq!(member_of(&mut client, Some(mode("secondary"))), secondary);
        // Directly at the primary, on a connection of its own.
        let found = set.member(set.await_primary()).command("shop", doc! { "count": "c", "query": { "_id": id } });
        assert_eq!(found.get_i32("n").unwrap(), 1, "{id}");
    }
}

/// An unacknowledged write has no reply that could be lost with its member: its client stays connected, and a read that
/// follows at once gets its own reply.
#[test]
fn unacknowledged_writes_outlive_their_primary() {
    let mut set = ReplicaSet::start(3);
    let docward = router(&set).start();
    let mut client = Client::connect(&docward.address());
    assert!(ok(&client.command("shop", doc! { "create": "c" })));
    let stopped = Arc::new(AtomicBool::new(false));
    let writer = spawn({
        let stopped = stopped.clone();
        move || {
            for id in (0..).take_while(|_| !stopped.load(Ordering::Relaxed)) {
                let insert =
                    doc! { "insert": "c", "documents": [{ "_id": id }], "writeConcern": { "w": 0 }, "$db": "shop" };
                let mut bytes = Message::new(insert).flags(MORE_TO_COME).to_frame(1, 0).to_bytes();
                let reads = id % 2 == 1;
                if reads {
                    let mut count = doc! { "count": "c", "$db": "shop" };
                    // Some go to another member.
                    count.extend((id % 4 == 1).then(|| ("$readPreference".to_owned(), mode("secondary").into())));
                    bytes.extend(Message::new(count).to_frame(id, 0).to_bytes());
                }
                client.send_bytes(&bytes);
                if !reads {
                    sleep(Duration::from_millis(2));
                    continue;
                }
                let reply = client.receive_within(TIMEOUT).unwrap().expect("the client is not disconnected");
                let body = Message::parse(&reply).body().clone();
                assert!(reply.response_to == id && ok(&body), "{reply:?}");
            }
            client.try_command("shop", doc! { "count": "c" }, TIMEOUT).expect("the client is not disconnected")
        }
    });
    disturb(&mut set);
    stopped.store(true, Ordering::Relaxed);
    let reply = writer.join().unwrap();
    assert!(ok(&reply), "{reply}");
}

/// That the primary is gone shows as a longer wait only.
#[test]
fn requests_wait_for_the_next_primary() {
    let mut set = ReplicaSet::start(3);
    let docward = router(&set).start();
    let mut client = Client::connect(&docward.address());
    assert!(ok(
        &client.command("shop", doc! { "insert": "c", "documents": [{ "_id": 0 }], "writeConcern": { "w": 3 } })
    ));
    let killed = set.await_primary();
    set.kill(killed);
    let began = Instant::now();
    let address = docward.address();
    let writers: Vec<_> = (1..20)
        .map(|id| {
            let address = address.clone();
            spawn(move || {
                sleep(Duration::from_millis(100 * id));
                let mut client = Client::connect(&address);
                let insert = doc! { "insert": "c", "documents": [{ "_id": id as i64 }] };
                client.try_command("shop", insert, TIMEOUT).expect("the client is not disconnected")
            })
        })
        .collect();
    // Reads that may go to a secondary do not wait.
    let reply = client.command("shop", doc! { "find": "c", "$readPreference": mode("secondaryPreferred") });
    assert!(ok(&reply), "{reply}");
    let waited = began.elapsed();
    sleep(Duration::from_millis(300));
    let reply = client.command("shop", doc! { "count": "c", "maxTimeMS": 1 });
    assert_eq!(reply.get_i32("code").unwrap_or_default(), 50, "it waits no longer than its client does: {reply}");
    for writer in writers {
        let reply = writer.join().unwrap();
        assert!(ok(&reply), "{reply}");
    }
    assert!(waited < began.elapsed() / 2, "{waited:?} of {:?}", began.elapsed());
    let primary = set.await_primary();
    let count = set.member(primary).command("shop", doc! { "count": "c" });
    assert_eq!(count.get_i32("n").unwrap(), 20);
}

/// The error of a request that no primary could get. Its driver may have sent it before.
#[test]
fn without_a_primary_an_error_does_not_hide_that_an_earlier_attempt_may_be_executed() {
    let mut set = ReplicaSet::start(3);
    let rules = "version: 1\nrules:\n- { name: b, namespace: shop.ruled, bounds: { field: n, min: 0 } }\n";
    let docward = router(&set).rules(rules).start();
    let primary = set.await_primary();
    set.kill(primary);
    set.kill((primary + 1) % 3);
    let [retryable, transient] = ["RetryableWriteError", "TransientTransactionError"];
    let insert = |collection: &str| doc! { "insert": collection, "documents": [{ "n": 1 }], "$db": "shop" };
    let numbered = |collection| insert(collection).into_iter().chain(doc! { "txnNumber": 1_i64 }).collect::<Document>();
    let in_transaction = |command: Document| {
        let fields = doc! { "txnNumber": 1_i64, "autocommit": false };
        command.into_iter().chain(fields).collect::<Document>()
    };
    let cases = [
        (insert("c"), 133, vec![]),
        (numbered("c"), 133, vec![retryable, "NoWritesPerformed"]),
        (numbered("ruled"), 133, vec![retryable, "NoWritesPerformed"]),
        (in_transaction(insert("ruled")), 133, vec![transient]),
        (in_transaction(doc! { "commitTransaction": 1, "$db": "admin" }), 6, vec![retryable]),
        (in_transaction(doc! { "abortTransaction": 1, "$db": "admin" }), 133, vec![]),
    ];
    let waiting = cases.map(|(mut command, code, labels)| {
        let mut client = Client::connect(&docward.address());
        command.insert("lsid", doc! { "id": bson::Uuid::from_bytes([51; 16]) });
        client.send(&Message::new(command.clone()));
        (client, command, code, labels)
    });
    for (mut client, command, code, labels) in waiting {
        let reply = client.receive_within(TIMEOUT).unwrap().expect("the client is not disconnected");
        let reply = Message::parse(&reply).body().clone();
        let found: Vec<&str> =
            reply.get_array("errorLabels").ok().into_iter().flatten().filter_map(Bson::as_str).collect();
        assert_eq!((reply.get_i32("code").unwrap_or_default(), found), (code, labels), "{command}: {reply}");
    }
}

/// Primaries step down and die in turn.
fn disturb(set: &mut ReplicaSet) {
    for round in 0..4 {
        sleep(Duration::from_millis(700));
        if round % 2 == 0 {
            set.step_down();
        } else {
            let killed = set.await_primary();
            set.kill(killed);
            set.await_primary();
            set.restart(killed);
        }
    }
}

/// Sends a command compressed. `None`: the client is disconnected.
fn exchange_compressed(client: &mut Client, mut command: Document) -> Option<Document> {
    command.insert("$db", "shop");
    client.send_bytes(&Message::new(command).to_frame(7, 0).compressed(1).to_bytes());
    let reply = client.receive_within(TIMEOUT).ok()??;
    // docward's own errors may come as they are.
    let reply = if reply.op_code == OP_COMPRESSED { reply.decompressed().1 } else { reply };
    Some(Message::parse(&reply).body().clone())
}

/// Clients that do not retry, while primaries step down and die: a request that was not executed is sent again by docward,
/// no connection closes, and no acknowledged write is lost.
#[test]
fn what_was_not_executed_is_sent_again() {
    let mut set = ReplicaSet::start(3);
    let docward = router(&set).start();
    let stopped = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..8)
        .map(|number| {
            let (stopped, address) = (stopped.clone(), docward.address());
            spawn(move || {
                let mut client = Client::connect(&address);
                client.command("admin", doc! { "hello": 1, "compression": ["snappy"] });
                let (mut acknowledged, mut unknown) = (Vec::new(), Vec::new());
                for id in (number..).step_by(8).take_while(|_| !stopped.load(Ordering::Relaxed)) {
                    // Half of the clients number their writes, so that the server executes each once.
                    let mut insert =
                        doc! { "insert": "c", "documents": [{ "_id": id }], "writeConcern": { "w": "majority" } };
                    if number % 2 == 0 {
                        let session = bson::Uuid::from_bytes([number as u8; 16]);
                        insert.extend(doc! { "lsid": { "id": session }, "txnNumber": i64::from(id) });
                        insert.insert("comment", "long ".repeat(if number % 4 == 0 { 20_000 } else { 1 }));
                    }
                    let reply = match number {
                        4 => exchange_compressed(&mut client, insert),
                        _ => client.try_command("shop", insert, TIMEOUT),
                    };
                    let reply = reply.expect("the client is not disconnected");
                    match is_acknowledged(&reply) {
                        true => acknowledged.push(id),
                        false => unknown.push((id, reply)),
                    }
                }
                (number, acknowledged, unknown)
            })
        })
        .collect();
    disturb(&mut set);
    sleep(Duration::from_millis(500));
    stopped.store(true, Ordering::Relaxed);
    // Only then all acknowledged writes are stored.
    let writers: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    let primary = set.await_primary();
    let find = doc! { "find": "c", "projection": { "_id": 1 }, "batchSize": 1_000_000, "readConcern": { "level": "majority" } };
    let stored = set.member(primary).command("shop", find);
    let batch = stored.get_document("cursor").unwrap().get_array("firstBatch").unwrap().clone();
    let stored: HashSet<i32> = batch.iter().map(|one| one.as_document().unwrap().get_i32("_id").unwrap()).collect();
    for (number, acknowledged, unknown) in writers {
        println!("client {number}: {} acknowledged; {unknown:?}", acknowledged.len());
        assert!(!acknowledged.is_empty() && acknowledged.iter().all(|id| stored.contains(id)), "{number}");
        // What the server was executing is unknown without a number, at most once for each event.
        assert!(unknown.len() <= if number % 2 == 0 { 0 } else { 4 }, "{number}: {unknown:?}");
        for (_, reply) in unknown {
            let concern = reply.get_document("writeConcernError").and_then(|error| error.get_i32("code"));
            let code = concern.or_else(|_| reply.get_i32("code")).unwrap_or_else(|_| panic!("{reply}"));
            assert_eq!(code, 6, "{reply}");
        }
    }
}

/// Statements that rules change or check, of clients that do not retry, while primaries step down and die: no client sees
/// that a member is gone, and what docward executes in a transaction of its own is executed once.
#[test]
fn statements_with_rules_outlive_their_primary() {
    let mut set = ReplicaSet::start(3);
    let rules = "version: 1\nrules:\n- { name: stock, namespace: 'shop.*', bounds: { field: n, min: 0 } }\n";
    let docward = router(&set).rules(rules).start();
    let direct = |set: &ReplicaSet, command: Document| set.member(set.await_primary()).command("shop", command);
    let counters: Vec<Document> = (0..8).map(|id| doc! { "_id": id, "n": 0 }).collect();
    assert!(ok(&direct(
        &set,
        doc! { "insert": "counters", "documents": counters, "writeConcern": { "w": "majority" } }
    )));
    let stopped = Arc::new(AtomicBool::new(false));
    let is_checked = |number: i32| number % 2 == 0;
    let writers: Vec<_> = (0..8)
        .map(|number| {
            let (stopped, address) = (stopped.clone(), docward.address());
            spawn(move || {
                let mut client = Client::connect(&address);
                // The first is checked in a transaction of docward's own, the second gets a condition.
                let change = match is_checked(number) {
                    true => Bson::from(vec![
                        doc! { "$replaceWith": { "$mergeObjects": ["$$ROOT", { "n": { "$add": ["$n", 1] } }] } },
                    ]),
                    false => Bson::from(doc! { "$inc": { "n": 1 } }),
                };
                let update = doc! {
                    "update": "counters", "updates": [{ "q": { "_id": number }, "u": change }],
                    "writeConcern": { "w": "majority" },
                };
                let (mut acknowledged, mut unknown) = (0, Vec::new());
                while !stopped.load(Ordering::Relaxed) {
                    let reply = client.try_command("shop", update.clone(), TIMEOUT).expect("it is not disconnected");
                    match is_acknowledged(&reply) {
                        true => acknowledged += 1,
                        false => unknown.push(reply),
                    }
                }
                (number, acknowledged, unknown)
            })
        })
        .collect();
    disturb(&mut set);
    sleep(Duration::from_millis(500));
    stopped.store(true, Ordering::Relaxed);
    let writers: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    let status = direct(&set, doc! { "serverStatus": 1 });
    assert!(status.get_document("transactions").unwrap().get_i64("totalCommitted").unwrap() > 0, "none is checked");
    for (number, acknowledged, unknown) in writers {
        let stored = counted(&set, "counters", number);
        println!("{number}: {acknowledged} acknowledged, {stored} stored; {unknown:?}");
        assert!(acknowledged > 0 && (acknowledged..=acknowledged + unknown.len() as i32).contains(&stored), "{number}");
        assert!(unknown.len() <= if is_checked(number) { 0 } else { 4 }, "{number}: {unknown:?}");
        for reply in unknown {
            let concern = reply.get_document("writeConcernError").and_then(|error| error.get_i32("code"));
            assert_eq!(concern.or_else(|_| reply.get_i32("code")).unwrap_or_else(|_| panic!("{reply}")), 6);
        }
    }
}

/// The same write sent twice at once, as a driver does that stopped waiting, while primaries step down and die: it is
/// executed once.
#[test]
fn a_write_that_is_sent_twice_is_executed_once_across_elections() {
    send_twice(ReplicaSet::start(3), disturb);
}

/// The member that was primary is primary again, and has forgotten which numbers were used.
#[test]
fn a_write_that_is_sent_twice_is_executed_once_across_restarts() {
    send_twice(ReplicaSet::start(1), |set| {
        for _ in 0..4 {
            sleep(Duration::from_millis(700));
            set.kill(0);
            set.restart(0);
            set.await_primary();
        }
    });
}

fn send_twice(mut set: ReplicaSet, disturb: impl Fn(&mut ReplicaSet)) {
    let rules = "version: 1\nrules:\n- { name: stock, namespace: 'shop.*', bounds: { field: n, min: 0 } }\n";
    let docwards = [router(&set).rules(rules).start(), router(&set).rules(rules).start()];
    let insert = doc! { "insert": "c", "documents": [{ "_id": 0, "n": 0 }, { "_id": 1, "n": 0 }] };
    assert!(ok(&Client::connect(&docwards[0].address()).command("shop", insert)));
    let stopped = Arc::new(AtomicBool::new(false));
    let senders: Vec<_> = (0..2)
        .map(|number| {
            let stopped = stopped.clone();
            // At one docward, and at two.
            let addresses = [docwards[0].address(), docwards[number].address()];
            spawn(move || {
                let mut clients = addresses.map(|address| Client::connect(&address));
                let session = doc! { "id": bson::Uuid::from_bytes([number as u8; 16]) };
                let change = doc! { "$replaceWith": { "$mergeObjects": ["$$ROOT", { "n": { "$add": ["$n", 1] } }] } };
                let (mut acknowledged, mut unknown) = (0, Vec::new());
                for round in 1_i64.. {
                    if stopped.load(Ordering::Relaxed) {
                        break;
                    }
                    let update = doc! {
                        "update": "c", "updates": [{ "q": { "_id": number as i32 }, "u": [&change] }], "lsid": &session,
                        "txnNumber": round, "writeConcern": { "w": "majority" },
                    };
                    let replies = std::thread::scope(|scope| {
                        let sent = clients.each_mut().map(|client| {
                            let update = update.clone();
                            scope.spawn(move || client.try_command("shop", update, TIMEOUT).expect("no disconnection"))
                        });
                        sent.map(|sent| sent.join().unwrap())
                    });
                    match replies.iter().any(is_acknowledged) {
                        true => acknowledged += 1,
                        false => unknown.push(replies),
                    }
                }
                (number, acknowledged, unknown)
            })
        })
        .collect();
    disturb(&mut set);
    sleep(Duration::from_millis(500));
    stopped.store(true, Ordering::Relaxed);
    let senders: Vec<_> = senders.into_iter().map(|sender| sender.join().unwrap()).collect();
    for (number, acknowledged, unknown) in senders {
        let stored = counted(&set, "c", number as i32);
        println!("{number}: {acknowledged} acknowledged, {stored} stored; {unknown:?}");
        assert!(acknowledged > 0 && (acknowledged..=acknowledged + unknown.len() as i32).contains(&stored), "{number}");
    }
}

#[test]
fn clients_behind_a_load_balancer_get_a_service_and_leave_no_transaction() {
    let set = ReplicaSet::start(2);
    let docward = router(&set).start();
    let hello = doc! { "hello": 1, "loadBalanced": true };
    let mut client = Client::connect(&docward.address());
    let reply = client.command("admin", hello.clone());
    let service = reply.get_object_id("serviceId").unwrap_or_else(|_| panic!("{reply}"));
    assert_eq!(reply.get_str("msg").unwrap(), "isdbgrid");
    let other = Client::connect(&docward.address()).command("admin", hello);
    assert_eq!(other.get_object_id("serviceId").unwrap(), service);
    assert!(!Client::connect(&docward.address()).command("admin", doc! { "hello": 1 }).contains_key("serviceId"));
    let session = doc! { "id": bson::Uuid::from_bytes([7; 16]) };
    let insert = doc! {
        "insert": "c", "documents": [{ "_id": 1 }], "lsid": session, "txnNumber": 1_i64, "autocommit": false,
        "startTransaction": true,
    };
    assert!(ok(&client.command("shop", doc! { "create": "c" })));
    assert!(ok(&client.command("shop", insert)));
    let open = |member: usize| {
        let status = set.member(member).command("admin", doc! { "serverStatus": 1 });
        status.get_document("transactions").unwrap().get_i64("currentOpen").unwrap()
    };
    let primary = set.await_primary();
    assert_eq!(open(primary), 1);
    drop(client);
    assert!(poll(TIMEOUT, || (open(primary) == 0).then_some(())).is_some(), "the transaction is still open");
}

/// docward would abort the transaction with the connection.
#[test]
fn a_drain_waits_for_the_transaction_of_a_client_behind_a_load_balancer() {
    let set = ReplicaSet::start(1);
    let docward = router(&set).argument("--drain-timeout").argument("30s").start();
    let mut client = Client::connect(&docward.address());
    assert!(ok(&client.command("admin", doc! { "hello": 1, "loadBalanced": true })));
    assert!(ok(&client.command("shop", doc! { "create": "c" })));
    let of_transaction =
        doc! { "lsid": { "id": bson::Uuid::from_bytes([5; 16]) }, "txnNumber": 1_i64, "autocommit": false };
    let with = |mut command: Document| {
        command.extend(of_transaction.clone());
        command
    };
    let mut first = with(doc! { "insert": "c", "documents": [{ "_id": 1 }] });
    first.insert("startTransaction", true);
    assert!(ok(&client.command("shop", first)));
    docward.signal("TERM");
    // Longer than an idle connection stays open in a drain.
    sleep(Duration::from_secs(3));
    assert!(ok(&client.command("shop", with(doc! { "insert": "c", "documents": [{ "_id": 2 }] }))));
    assert!(ok(&client.command("admin", with(doc! { "commitTransaction": 1 }))));
    let count = set.member(0).command("shop", doc! { "count": "c" });
    assert_eq!(count.get_i32("n").unwrap(), 2);
}

/// Cursors of another docward, of a primary that has stepped down, of a member that hangs, and of no member.
#[test]
fn cursors_are_found_where_they_are() {
    let set = ReplicaSet::start(3);
    let docwards = [router(&set).start(), router(&set).start()];
    let mut clients = docwards.each_ref().map(|docward| Client::connect(&docward.address()));
    let documents: Vec<Document> = (0..100).map(|id| doc! { "_id": id }).collect();
    let insert = doc! { "insert": "c", "documents": documents, "writeConcern": { "w": 3 } };
    assert!(ok(&clients[0].command("shop", insert)));
    let open = |client: &mut Client, preference: Option<Document>| {
        let mut find = doc! { "find": "c", "batchSize": 2, "sort": { "_id": 1 } };
        find.extend(preference.map(|preference| doc! { "$readPreference": preference }).unwrap_or_default());
        client.command("shop", find).get_document("cursor").unwrap().get_i64("id").unwrap()
    };
    let more = |client: &mut Client, cursor: i64| {
        client.command("shop", doc! { "getMore": cursor, "collection": "c", "batchSize": 1 })
    };
    let mut cursors: Vec<i64> = (0..4).map(|_| open(&mut clients[0], Some(mode("secondary")))).collect();
    cursors.push(open(&mut clients[0], None));
    set.step_down();
    for id in 2..6 {
        for cursor in &cursors {
            let reply = more(&mut clients[id as usize % 2], *cursor);
            let batch =
                reply.get_document("cursor").unwrap_or_else(|_| panic!("{reply}")).get_array("nextBatch").unwrap();
            assert_eq!(batch, &[Bson::from(doc! { "_id": id })], "{reply}");
        }
    }
    let reply = more(&mut clients[1], 12345);
    assert_eq!(reply.get_i32("code").unwrap(), 43, "{reply}");
    assert!(ok(&clients[1].command("shop", doc! { "ping": 1 })));
    let cursors: Vec<i64> = (0..4).map(|_| open(&mut clients[0], Some(mode("secondary")))).collect();
    let hung = set.secondaries()[0];
    set.stop(hung);
    for cursor in &cursors {
        let reply = more(&mut clients[1], *cursor);
        assert!(ok(&reply) || reply.get_i32("code").unwrap() == 6, "{reply}");
    }
    set.go_on(hung);
    for cursor in &cursors {
        let found = poll(TIMEOUT, || ok(&more(&mut clients[1], *cursor)).then_some(()));
        found.expect("the member has the cursor");
    }
}

#[test]
fn reads_go_to_secondaries_by_rule() {
    let set = steady_set(2, |_, _| {});
    let rules = "version: 1\nrules:\n- { name: reports, namespace: shop.orders, reads: { max_staleness: 15s }, \
                 except: { apps: [editor] } }\n";
    let docward = router(&set).rules(rules).start();
    let (primary, secondary) = (set.await_primary(), set.secondaries()[0]);
    let mut direct = Client::connect(&set.member(primary).address());
    let insert =
        |collection: &str| doc! { "insert": collection, "documents": [{ "_id": 1 }], "writeConcern": { "w": 2 } };
    ["orders", "others"].iter().for_each(|collection| assert!(ok(&direct.command("shop", insert(collection)))));
    let mut client = Client::connect(&docward.address());
    // Where a command was executed, by the counters of the members.
    let executed_at = |client: &mut Client, command: Document| {
        let count = |member: usize| {
            let status = set.member(member).command("admin", doc! { "serverStatus": 1 });
            let commands = status.get_document("metrics").unwrap().get_document("commands").unwrap();
            let name = command.keys().next().unwrap();
            commands.get_document(name).unwrap().get_i64("total").unwrap()
        };
        let before = [count(primary), count(secondary)];
        let reply = client.command("shop", command.clone());
        assert!(ok(&reply), "{reply}");
        [count(primary) - before[0], count(secondary) - before[1]]
    };
    let at_secondary = [
        doc! { "distinct": "orders", "key": "a" },
        doc! { "distinct": "orders", "key": "a", "readConcern": { "level": "majority" } },
    ];
    for command in at_secondary {
        assert_eq!(executed_at(&mut client, command.clone()), [0, 1], "{command}");
    }
    let session = doc! { "id": bson::Uuid::from_bytes([3; 16]) };
    let in_transaction = doc! {
        "distinct": "orders", "key": "a", "lsid": session, "txnNumber": 1_i64, "autocommit": false, "startTransaction": true,
    };
    let at_primary = [
        doc! { "distinct": "others", "key": "a" },
        doc! { "distinct": "orders", "key": "a", "$readPreference": mode("primary") },
        in_transaction,
    ];
    for command in at_primary {
        assert_eq!(executed_at(&mut client, command.clone()), [1, 0], "{command}");
    }
    let mut editor = Client::connect(&docward.address());
    editor.command("admin", doc! { "hello": 1, "client": { "application": { "name": "editor" }, "driver": { "name": "raw", "version": "1" }, "os": { "type": "Linux" } } });
    assert_eq!(executed_at(&mut editor, doc! { "distinct": "orders", "key": "a" }), [1, 0]);
}

#[test]
fn no_command_holds_a_member() {
    let set = ReplicaSet::start(2);
    let docward = router(&set).start();
    let mut client = Client::connect(&docward.address());
    let secondaries = ports(&set, &set.secondaries());
    let unknown = client.command("shop", doc! { "noSuchCommand": 1 });
    assert_eq!(unknown.get_i32("code").unwrap(), 59, "{unknown}");
    let member = member_of(&mut client, Some(mode("secondary")));
    assert!(secondaries.contains(&member), "{member}");
}

/// mongod closes the connection of a client that violates the protocol. That is no sign that the member is gone.
#[test]
fn a_client_whose_requests_end_connections_does_not_hold_up_others() {
    let set = ReplicaSet::start(2);
    let docward = router(&set).start();
    let stopped = Arc::new(AtomicBool::new(false));
    let attackers: Vec<_> = (0..4)
        .map(|_| {
            let (stopped, address) = (stopped.clone(), docward.address());
            spawn(move || {
                let mut sent = 0;
                while !stopped.load(Ordering::Relaxed) {
                    let mut client = Client::connect(&address);
                    // A required flag that no server knows.
                    client.send(&Message::new(doc! { "ping": 1, "$db": "shop" }).flags(1 << 3));
                    _ = client.receive_within(Duration::from_secs(1));
                    sent += 1;
                }
                sent
            })
        })
        .collect();
    let mut client = Client::connect(&docward.address());
    let began = Instant::now();
    for id in 0..200 {
        assert!(ok(&client.command("shop", doc! { "insert": "c", "documents": [{ "_id": id }] })));
    }
    // Each time that the primary is taken for lost, its clients wait for the next answer to its monitor.
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    stopped.store(true, Ordering::Relaxed);
    let sent: usize = attackers.into_iter().map(|attacker| attacker.join().unwrap()).sum();
    assert!(sent > 20, "{sent}");
}

/// What was decided for a request whose member was lost is not used for the next one.
#[test]
fn a_connection_goes_on_after_a_cursor_was_lost() {
    let mut set = ReplicaSet::start(3);
    let docward = router(&set).start();
    let mut client = Client::connect(&docward.address());
    let documents: Vec<Document> = (0..9).map(|id| doc! { "_id": id }).collect();
    let insert = doc! { "insert": "c", "documents": documents, "writeConcern": { "w": 3 } };
    assert!(ok(&client.command("shop", insert)));
    let watch = doc! { "aggregate": "c", "pipeline": [{ "$changeStream": {} }], "cursor": {} };
    let find = doc! { "find": "c", "batchSize": 2, "$readPreference": mode("secondary") };
    let [cursor, other] =
        [watch, find].map(|open| client.command("shop", open).get_document("cursor").unwrap().get_i64("id").unwrap());
    client.send(&Message::new(doc! { "getMore": cursor, "collection": "c", "maxTimeMS": 60_000, "$db": "shop" }));
    sleep(Duration::from_millis(300));
    let killed = set.await_primary();
    set.kill(killed);
    let reply = client.receive_within(TIMEOUT).unwrap().expect("the client is not disconnected");
    let reply = Message::parse(&reply).body().clone();
    assert_eq!(reply.get_i32("code").unwrap(), 6, "{reply}");
    assert_eq!(reply.get_array("errorLabels").unwrap(), &[Bson::from("ResumableChangeStreamError")], "{reply}");
    // The cursors of members that are left are killed.
    let reply = client.command("shop", doc! { "killCursors": "c", "cursors": [cursor, other] });
    let ids = |list: &str| reply.get_array(list).unwrap_or_else(|_| panic!("{reply}")).clone();
    assert_eq!((ids("cursorsKilled"), ids("cursorsNotFound")), (vec![other.into()], vec![cursor.into()]), "{reply}");
    let reply = client.command("shop", doc! { "insert": "c", "documents": [{ "_id": 10 }] });
    assert!(ok(&reply), "{reply}");
}

/// The cursors of a session are at the members that read for it. Those of an unacknowledged killCursors may be at any.
#[test]
fn what_ends_cursors_ends_them_at_every_member() {
    let set = steady_set(3, |_, _| {});
    let docward = router(&set).start();
    let mut client = Client::connect(&docward.address());
    let documents: Vec<Document> = (0..10).map(|id| doc! { "_id": id }).collect();
    let insert = doc! { "insert": "c", "documents": documents, "writeConcern": { "w": 3 } };
    assert!(ok(&client.command("shop", insert)));
    let open_at_members = || -> Vec<i64> {
        let status = |member: &support::mongod::Mongod| member.command("admin", doc! { "serverStatus": 1 });
        let open = |status: Document| {
            let cursors = status.get_document("metrics").unwrap().get_document("cursor").unwrap();
            cursors.get_document("open").unwrap().get_i64("noTimeout").unwrap_or_default()
        };
        set.members().iter().map(status).map(open).collect()
    };
    let lsid = doc! { "id": bson::Uuid::from_bytes([52; 16]) };
    let mut open = || {
        ["primary", "secondary", "secondary"].map(|preference| {
            let find = doc! { "find": "c", "batchSize": 2, "noCursorTimeout": true, "lsid": &lsid };
            let find = find.into_iter().chain(doc! { "$readPreference": mode(preference) }).collect();
            client.command("shop", find).get_document("cursor").unwrap().get_i64("id").unwrap()
        })
    };
    let none = vec![0, 0, 0];
    open();
    assert_eq!(open_at_members(), [1, 1, 1]);
    let mut other = Client::connect(&docward.address());
    assert!(ok(&other.command("admin", doc! { "killSessions": [&lsid] })));
    poll(TIMEOUT, || (open_at_members() == none).then_some(())).unwrap_or_else(|| panic!("{:?}", open_at_members()));
    let cursors = open().to_vec();
    assert_eq!(open_at_members(), [1, 1, 1]);
    let kill = doc! { "killCursors": "c", "cursors": cursors, "lsid": &lsid, "$db": "shop" };
    client.send(&Message::new(kill).flags(MORE_TO_COME));
    poll(TIMEOUT, || (open_at_members() == none).then_some(())).unwrap_or_else(|| panic!("{:?}", open_at_members()));
}

/// The request of a member that hangs gets its reply from the next primary, or an error.
#[test]
fn a_request_does_not_wait_for_a_member_that_hangs() {
    let set = ReplicaSet::start(3);
    let docward = router(&set).start();
    let insert = |id: i32| doc! { "insert": "c", "documents": [{ "_id": id }], "$db": "shop" };
    let mut clients = [0, 1].map(|_| Client::connect(&docward.address()));
    assert!(ok(&clients[0].command("shop", doc! { "insert": "c", "documents": [{ "_id": 0 }] })));
    let hung = set.await_primary();
    set.stop(hung);
    let session = bson::Uuid::from_bytes([9; 16]);
    let mut numbered = insert(1);
    numbered.extend(doc! { "lsid": { "id": session }, "txnNumber": 1_i64 });
    clients[0].send(&Message::new(numbered));
    clients[1].send(&Message::new(insert(2)));
    let [first, second] = clients.each_mut().map(|client| {
        let reply = client.receive_within(Duration::from_secs(60)).unwrap().expect("the client is not disconnected");
        Message::parse(&reply).body().clone()
    });
    set.go_on(hung);
    assert!(ok(&first), "{first}");
    assert!(ok(&second) || second.get_i32("code").is_ok_and(|code| code == 6), "{second}");
}

/// A server that answers as a mongos, with its number in each reply.
fn mongos(number: i32) -> Peer {
    let mut hello = standalone_hello();
    hello.insert("msg", "isdbgrid");
    Peer::with_hello(hello, move |request| vec![reply_to(&request, doc! { "ok": 1.0, "mongos": number })])
}

#[test]
fn each_session_has_its_mongos_at_every_docward() {
    let mut servers: Vec<Peer> = (0..3).map(mongos).collect();
    let uri = format!("mongodb://{}/", servers.iter().map(Peer::address).collect::<Vec<_>>().join(","));
    let start = || Docward::before(&uri).argument("--topology").argument("router").without_test_pool().start();
    let docwards = [start(), start()];
    let mut clients = docwards.each_ref().map(|docward| Client::connect(&docward.address()));
    // The mongos of the requests of thirty sessions, which go to both docwards in turn.
    let mut places = || -> Vec<i32> {
        let place_of = |session: u8| {
            let session = doc! { "lsid": { "id": bson::Uuid::from_bytes([session; 16]) } };
            let transaction = doc! { "txnNumber": 1_i64, "autocommit": false };
            let requests = [
                (doc! { "insert": "c", "documents": [{}], "startTransaction": true }, Some(&transaction)),
                (doc! { "find": "c", "$readPreference": { "mode": "secondary" } }, None),
                (doc! { "getMore": 7_i64, "collection": "c" }, None),
                (doc! { "commitTransaction": 1, "recoveryToken": { "shard": "s" } }, Some(&transaction)),
            ];
            let used = requests.into_iter().enumerate().map(|(at, (mut request, number))| {
                request.extend(session.clone());
                request.extend(number.cloned().unwrap_or_default());
                let reply = clients[at % 2].command("shop", request);
                reply.get_i32("mongos").unwrap_or_else(|_| panic!("{reply}"))
            });
            let used: Vec<i32> = used.collect();
            assert!(used.iter().all(|one| *one == used[0]), "{used:?}");
            used[0]
        };
        (0..30).map(place_of).collect()
    };
    let before = places();
    assert_eq!(before.iter().collect::<HashSet<_>>().len(), 3, "{before:?}");
    let requests: Vec<_> = servers.iter().flat_map(Peer::requests).collect();
    let mut commits =
        requests.iter().map(Message::parse).filter(|message| message.body().contains_key("commitTransaction"));
    assert!(commits.all(|commit| commit.body().contains_key("recoveryToken")));
    drop(servers.pop());
    let after = poll(TIMEOUT, || Some(places()).filter(|places| !places.contains(&2))).unwrap();
    assert!(before.iter().zip(&after).all(|(before, after)| before == after || *before == 2), "{before:?} {after:?}");
}

/// A docward behind docwards is to it one of several mongos.
#[test]
fn a_router_before_routers_continues_what_the_other_began() {
    let set = steady_set(2, |_, _| {});
    let inner = [router(&set).start(), router(&set).start()];
    let uri = format!("mongodb://{},{}/", inner[0].address(), inner[1].address());
    let docward = Docward::before(&uri).argument("--topology").argument("router").without_test_pool().start();
    let mut client = Client::connect(&docward.address());
    assert!(ok(&client.command("shop", doc! { "create": "c" })));
    for number in 0..8_u8 {
        let numbered = doc! {
            "lsid": { "id": bson::Uuid::from_bytes([number; 16]) }, "txnNumber": 1_i64, "autocommit": false,
        };
        let mut insert =
            doc! { "insert": "c", "documents": [{ "_id": i32::from(number), "n": 5 }], "startTransaction": true };
        let mut commit = doc! { "commitTransaction": 1, "writeConcern": { "w": "majority" } };
        insert.extend(numbered.clone());
        commit.extend(numbered);
        let replies = [client.command("shop", insert), client.command("admin", commit)];
        assert!(replies.iter().all(is_acknowledged), "{replies:?}");
        assert_eq!(counted(&set, "c", i32::from(number)), 5);
    }
    let secondary = member_of(&mut client, Some(mode("secondary")));
    assert!(ports(&set, &set.secondaries()).contains(&secondary));
}
