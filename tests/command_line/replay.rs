//! `docward replay` of what real applications sent, to real servers: directly and through docward, at every speed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use serde_json::Value;
use support::frame::Message;
use support::mongod::{Kind, Mongod};
use support::process::{docward, mongosh, repository, run};
use support::proxy::Docward;
use support::raw::Client;
use support::scripted::{Peer, reply_to, standalone_hello};

use crate::recorded_traffic::exported;

const RULES: &str = "\
version: 1
rules:
  - { name: accounts-no-replace, namespace: bank.accounts, replacement: { policy: reject } }
";

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn direct(address: &str) -> String {
    format!("mongodb://{address}/?directConnection=true")
}

/// The JSON report of a replay that ends with this exit code.
fn replay(files: &[&Path], to: &str, arguments: &[&str], code: i32) -> Value {
    let files: Vec<&str> = files.iter().map(|file| file.to_str().unwrap()).collect();
    let fixed = ["replay", "--to", to, "--format", "json"];
    let done = docward(&[fixed.as_slice(), arguments, files.as_slice()].concat());
    assert_eq!(done.status.code(), Some(code), "{}", text(&done));
    serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{}", text(&done)))
}

/// Records what `work` does with the address of a recorder.
fn record(upstream: &str, file: &Path, work: impl FnOnce(&str)) {
    let recorder = Docward::before(upstream).subcommand("record").argument(file.to_str().unwrap());
    let mut recorder = recorder.start();
    work(&recorder.address());
    assert!(recorder.terminate().success(), "{}", recorder.log().join("\n"));
}

/// Runs a script in mongosh.
fn shell(address: &str, script: &str, environment: &[(&str, &str)]) {
    let mut command = Command::new(mongosh());
    command.args(["--quiet", "--norc", &direct(address), "--file"]).arg(repository(script));
    command.envs(environment.iter().copied()).stdin(Stdio::null()).stdout(Stdio::null());
    let status = run(&mut command);
    assert!(status.success(), "{script} {environment:?}: {status}");
}

/// Two applications in mongosh: the bank, and the shop of `bench/shell`.
fn applications(address: &str) {
    let shop = [("WORKLOADS", "shop"), ("NUMBERS", "application"), ("WORKERS", "2"), ("ROUNDS", "10")];
    let with = |more: &[(&'static str, &'static str)]| [&shop[..], more].concat();
    for (script, environment) in [
        ("tests/command_line/replay/bank.js", vec![("PHASE", "setup")]),
        ("bench/shell/run.js", with(&[("PHASE", "setup")])),
    ] {
        shell(address, script, &environment);
    }
    std::thread::scope(|scope| {
        for worker in ["0", "1"] {
            let traffic = with(&[("PHASE", "traffic"), ("WORKER", worker)]);
            scope.spawn(move || shell(address, "tests/command_line/replay/bank.js", &[("WORKER", worker)]));
            scope.spawn(move || shell(address, "bench/shell/run.js", &traffic));
        }
    });
}

/// Hashes of what is stored, as far as it does not depend on the order in which concurrent shells are answered.
fn stored(mongod: &Mongod) -> Vec<(&'static str, String)> {
    let hashes = |database: &'static str, collections: &[&'static str]| {
        let reply = mongod.command(database, doc! {"dbHash": 1, "collections": collections});
        let found = reply.get_document("collections").unwrap_or_else(|_| panic!("{reply}")).clone();
        collections.iter().map(|name| (*name, found.get_str(name).unwrap().to_owned())).collect::<Vec<_>>()
    };
    [hashes("bank", &["accounts", "transfers"]), hashes("shop", &["orders"])].concat()
}

fn empty(mongod: &Mongod) {
    for database in ["bank", "shop", "meeting"] {
        mongod.command(database, doc! {"dropDatabase": 1});
    }
}

#[test]
fn two_shell_applications_store_the_same_at_every_speed() {
    let (recorded, target) = (Mongod::start(Kind::ReplicaSet), Mongod::start(Kind::ReplicaSet));
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("traffic.bson");
    record(&recorded.uri(), &capture, applications);
    let expected = stored(&recorded);
    let proxy = Docward::before(&target.uri()).rules(RULES).start();
    for (uri, arguments, rejected) in [
        (target.uri(), vec!["--speed", "1x"], 0),
        (target.uri(), vec!["--speed", "8x"], 0),
        (target.uri(), vec!["--speed", "max"], 0),
        (target.uri(), vec!["--speed", "max", "--connections", "2"], 0),
        (direct(&proxy.address()), vec!["--speed", "1x"], 2),
        (direct(&proxy.address()), vec!["--speed", "8x"], 2),
        (direct(&proxy.address()), vec!["--speed", "max"], 2),
    ] {
        empty(&target);
        let report = replay(&[&capture], &uri, &arguments, 0);
        let played = &report["targets"][0];
        assert_eq!(stored(&target), expected, "{arguments:?}: {report:#}");
        assert_eq!(played["failed"], rejected, "{report:#}");
        assert_eq!(played["rejected_by_rule"]["accounts-no-replace"].as_u64().unwrap_or_default(), rejected);
        assert_eq!((&played["commands"], &played["without_reply"]), (&report["recorded"]["commands"], &0.into()));
        assert_eq!(played["without_cursor"], 0, "every cursor is continued: {report:#}");
        for command in
            ["commitTransaction", "abortTransaction", "getMore", "killCursors", "createIndexes", "dropDatabase"]
        {
            let counts = [&played["latencies"][command]["count"], &report["recorded"]["latencies"][command]["count"]];
            assert!(counts[0].as_u64() > Some(0) && counts[0] == counts[1], "{command}: {report:#}");
        }
        if arguments == ["--speed", "1x"] {
            let ratio = played["seconds"].as_f64().unwrap() / report["recorded"]["seconds"].as_f64().unwrap();
            assert!((0.95..2.0).contains(&ratio), "it takes as long as it was recorded: {report:#}");
        }
    }
}

/// Sessions of drivers take any connection of the pool, so the statements of a transaction come from several of them.
#[test]
fn transactions_on_several_connections_are_played_on_few() {
    let (recorded, target) = (Mongod::start(Kind::ReplicaSet), Mongod::start(Kind::ReplicaSet));
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("traffic.bson");
    recorded.command("bank", doc! {"create": "transfers"});
    record(&recorded.uri(), &capture, |address| {
        let mut clients: Vec<Client> = (0..6).map(|_| Client::connect(address)).collect();
        let session = |id: u8| doc! {"id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![id; 16] }};
        let mut send = |client: usize, id: u8, begins: bool, mut command: Document| {
            command.extend(doc! {"lsid": session(id), "txnNumber": 1_i64, "autocommit": false});
            if begins {
                command.insert("startTransaction", true);
            }
            let database = if command.contains_key("insert") { "bank" } else { "admin" };
            let reply = clients[client].command(database, command);
            assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{reply}");
        };
        let insert = |id: i32| doc! {"insert": "transfers", "documents": [{"_id": id}]};
        // The first connections end within their transactions; the last transaction does not end at all.
        (0..2).for_each(|n| send(n, n as u8, true, insert(n as i32)));
        send(2, 2, true, insert(20));
        (0..2).for_each(|n| send(n + 3, n as u8, false, insert(n as i32 + 10)));
        (0..2).for_each(|n| send(n + 3, n as u8, false, doc! {"commitTransaction": 1}));
        let reply = clients[5].command("bank", insert(30));
        assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{reply}");
    });
    for connections in ["1", "2", "6"] {
        target.command("bank", doc! {"dropDatabase": 1});
        target.command("bank", doc! {"create": "transfers"});
        let arguments = ["--speed", "max", "--connections", connections];
        let report = replay(&[&capture], &target.uri(), &arguments, 0);
        assert_eq!(report["targets"][0]["failed"], 0, "{report:#}");
        let stored = target.command("bank", doc! {"distinct": "transfers", "key": "_id"});
        assert_eq!(stored.get_array("values").unwrap(), &[0, 1, 10, 11, 30].map(Bson::Int32), "{report:#}");
    }
}

#[test]
fn a_comparison_names_what_differs() {
    let (recorded, one, other) =
        (Mongod::start(Kind::ReplicaSet), Mongod::start(Kind::ReplicaSet), Mongod::start(Kind::ReplicaSet));
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("traffic.bson");
    record(&recorded.uri(), &capture, |address| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let client = mongodb::Client::with_uri_str(direct(address)).await.unwrap();
            let accounts = client.database("bank").collection::<Document>("accounts");
            for id in 0..30 {
                accounts.insert_one(doc! {"_id": id, "owner": "a", "balance": 1}).await.unwrap();
            }
            accounts.replace_one(doc! {"_id": 3}, doc! {"balance": 2}).await.unwrap();
            accounts.find_one(doc! {"_id": 3}).await.unwrap();
        });
    });
    // The same targets twice: with the rule, and after the data were removed without it.
    let page = folder.path().join("report.html");
    let proxy = Docward::before(&other.uri()).rules(RULES).start();
    let second = direct(&proxy.address());
    let rules = proxy.rules_file();
    let rules = rules.to_str().unwrap();
    let arguments = ["--compare", &second, "--speed", "max", "--rules", rules, "--report", page.to_str().unwrap()];
    let report = replay(&[&capture], &one.uri(), &arguments, 2);
    assert_eq!((&report["rules"]["files"][0], &report["rules"]["count"]), (&"rules.yaml".into(), &1.into()));
    let sentence = report["sentence"].as_str().unwrap();
    let rejected =
        "As fast as possible, 1 of 32 statements would have been rejected, all by accounts-no-replace; p99 from ";
    assert!(sentence.starts_with(rejected) && sentence.ends_with("s."), "{sentence}");
    let comparison = &report["comparison"];
    assert_eq!((&comparison["compared"], &comparison["equal"]), (&32.into(), &30.into()), "{report:#}");
    let what: Vec<&str> =
        comparison["differences"].as_array().unwrap().iter().map(|one| one["what"].as_str().unwrap()).collect();
    assert_eq!(what, ["other documents", "rule 'accounts-no-replace' rejected it only at the second target"]);
    let stored = &comparison["stored"][0];
    assert_eq!((&stored["namespace"], &stored["different"]), (&"bank.accounts".into(), &1.into()), "{report:#}");
    assert_eq!(stored["fields"], serde_json::json!({"balance": 1, "owner": 1}));
    assert_eq!(stored["examples"], serde_json::json!(["3"]));
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(
        page.contains("<svg") && !page.contains("<script") && !page.contains("src="),
        "the page needs no other file"
    );
    assert!(page.contains("replaceOne({_id}, {balance})"), "examples are shapes");
    assert!(page.contains(sentence) && page.contains("rules.yaml (1 rule, set "), "{page}");

    empty(&one);
    empty(&other);
    let second = other.uri();
    let report = replay(&[&capture], &one.uri(), &["--compare", &second, "--speed", "max"], 0);
    assert_eq!(report["comparison"]["differences"], serde_json::json!([]), "{report:#}");
    assert_eq!(report["comparison"]["stored"][0]["equal"], true);
    let sentence = report["sentence"].as_str().unwrap();
    assert!(
        sentence.starts_with("As fast as possible, none of 32 statements would have been rejected; p99 "),
        "{sentence}"
    );

    // What the rules add differs, unless they are named.
    const DATED: &str =
        "version: 1\nrules:\n  - { name: dated, namespace: bank.accounts, timestamps: { source: $clock } }\n";
    let proxy = Docward::before(&other.uri()).rules(DATED).start();
    let (second, rules) = (direct(&proxy.address()), proxy.rules_file());
    let updates = folder.path().join("updates.bson");
    record(&recorded.uri(), &updates, |address| {
        let mut client = Client::connect(address);
        client.command("bank", doc! {"insert": "accounts", "documents": [{"_id": 100, "balance": 1}]});
        let change = doc! {"q": {"_id": 100}, "u": {"$set": {"balance": 2}}};
        client.command("bank", doc! {"update": "accounts", "updates": [change]});
        client.command("bank", doc! {"find": "accounts", "filter": {"_id": 100}});
    });
    for (named, code) in [(&[][..], 2), (&["--rules", rules.to_str().unwrap()][..], 0)] {
        empty(&one);
        empty(&other);
        replay(&[&updates], &one.uri(), &[&["--compare", &second, "--speed", "max"], named].concat(), code);
    }
}

#[test]
fn a_replay_logs_in_and_refuses_the_recorded_deployment() {
    let protected = Mongod::shared_with_access_control();
    let database = protected.fresh_database();
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("traffic.bson");
    let user = |address: &str, password: &str| format!("mongodb://root:{password}@{address}/?authSource=admin");
    record(&protected.uri(), &capture, |address| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let client = mongodb::Client::with_uri_str(user(address, "secret") + "&appName=billing").await.unwrap();
            client.database(&database).collection("a").insert_one(doc! {"_id": 1}).await.unwrap();
        });
    });
    let file = capture.to_str().unwrap();
    let run = |uri: &str, more: &[&str]| {
        let done = docward(&[&["replay", file, "--to", uri], more].concat());
        (done.status.code(), text(&done))
    };
    let (code, printed) = run(&user(&protected.address(), "secret"), &[]);
    assert!(
        code == Some(64) && printed.contains("--allow-same-deployment") && !printed.contains("secret@"),
        "{printed}"
    );
    let again = ["--allow-same-deployment"];
    let (code, printed) = run(&user(&protected.address(), "wrong"), &again);
    assert!(code == Some(1) && printed.contains("the login failed: Authentication failed."), "{printed}");
    // The document is there already, so the insert was sent with the rights of the user.
    let (code, printed) = run(&user(&protected.address(), "secret"), &again);
    assert!(code == Some(0) && printed.contains("error 11000 DuplicateKey: 1"), "{printed}");
    let (code, printed) = run(&protected.uri(), &again);
    assert!(code == Some(0) && printed.contains("error 13 Unauthorized: 1"), "{printed}");
    // The application's name is that of the recording, because rules can make exceptions for it.
    let rules = format!(
        "version: 1\nrules:\n  - {{ name: none, namespace: {database}.a, except: {{ apps: [shop] }}, deny: {{ operations: [insert] }} }}\n"
    );
    let proxy = Docward::before(&protected.uri()).rules(&rules).start();
    let (code, printed) = run(&user(&proxy.address(), "secret"), &again);
    assert!(code == Some(0) && printed.contains("rejected by rule 'none': 1"), "{printed}");
    proxy.rewrite_rules(&rules.replace("[shop]", "[billing]"));
    proxy.signal("HUP");
    proxy.wait_for_log("rules=1");
    let (code, printed) = run(&user(&proxy.address(), "secret"), &again);
    assert!(code == Some(0) && printed.contains("error 11000 DuplicateKey: 1"), "{printed}");
}

/// The targets are compared by the process that accepts their writes, not by what is written in their connection strings.
#[test]
fn targets_with_the_same_data_or_of_another_set_are_refused() {
    let (recorded, target) = (Mongod::start(Kind::ReplicaSet), Mongod::start(Kind::ReplicaSet));
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("traffic.bson");
    record(&recorded.uri(), &capture, |address| {
        let reply = Client::connect(address).command("notes", doc! {"insert": "notes", "documents": [{"_id": 1}]});
        assert_eq!(reply.get_i32("n").unwrap(), 1, "{reply}");
    });
    let proxy = Docward::before(&target.uri()).start();
    let file = capture.to_str().unwrap();
    let other_set = format!("mongodb://{}/?replicaSet=rs7", target.address());
    let by_name = format!("mongodb://localhost:{}/?directConnection=true", target.port());
    let other = recorded.uri();
    let (same, named) = ("--to and --compare are the same deployment", "but the connection string has replicaSet=rs7");
    for (to, compare, words) in [
        (target.uri(), Some(direct(&proxy.address())), same),
        (target.uri(), Some(by_name), same),
        (other_set.clone(), None, named),
        (target.uri(), Some(other_set), named),
    ] {
        let compared = compare.iter().flat_map(|uri| ["--compare", uri]);
        let arguments: Vec<&str> = ["replay", file, "--to", &to].into_iter().chain(compared).collect();
        let done = docward(&arguments);
        assert!(done.status.code() == Some(64) && text(&done).contains(words), "{arguments:?}: {}", text(&done));
    }
    let stored = target.command("notes", doc! {"count": "notes"});
    assert_eq!(stored.get_i32("n").unwrap(), 0, "nothing was sent");
    let arguments = ["--compare", &other, "--allow-same-deployment", "--speed", "max"];
    replay(&[&capture], &target.uri(), &arguments, 2);
}

/// A mongos that answers every command, of the cluster with this id.
fn mongos(cluster: ObjectId) -> Peer {
    let mut hello = standalone_hello();
    hello.extend(doc! {"msg": "isdbgrid", "topologyVersion": {"processId": ObjectId::new(), "counter": 0_i64}});
    Peer::with_hello(hello, move |request| {
        let version = doc! {"_id": 1, "clusterId": cluster};
        let cursor = doc! {"id": 0_i64, "ns": "config.version", "firstBatch": [version]};
        vec![reply_to(&request, doc! {"n": 1, "cursor": cursor, "ok": 1.0})]
    })
}

/// Scripted servers, because the tests have no sharded cluster.
#[test]
fn two_mongos_of_one_cluster_are_the_same_deployment() {
    let recorded = Mongod::start(Kind::Standalone);
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("traffic.bson");
    record(&recorded.uri(), &capture, |address| {
        Client::connect(address).command("notes", doc! {"insert": "notes", "documents": [{"_id": 1}]});
    });
    let cluster = ObjectId::new();
    let first = mongos(cluster);
    for (second, is_same) in [(mongos(cluster), true), (mongos(ObjectId::new()), false)] {
        let (to, compare) = (direct(&first.address()), direct(&second.address()));
        let done = docward(&["replay", capture.to_str().unwrap(), "--to", &to, "--compare", &compare]);
        let is_refused = done.status.code() == Some(64)
            && text(&done)
                .contains("--to and --compare are the same deployment, and each target needs data of its own");
        assert_eq!(is_refused, is_same, "{}", text(&done));
        let inserted = |peer: &Peer| {
            let requests = peer.requests();
            requests.iter().any(|request| Message::parse(request).body().contains_key("insert"))
        };
        assert_eq!(inserted(&second), !is_same, "{}", text(&done));
    }
}

#[test]
fn a_log_is_played_as_far_as_it_contains_commands() {
    let mut recorded = Mongod::start_with(Kind::ReplicaSet, &["--slowms", "0"]);
    let target = Mongod::start(Kind::ReplicaSet);
    for mongod in [&recorded, &target] {
        let documents: Vec<Document> = (0..10).map(|id| doc! {"_id": id, "n": 0}).collect();
        mongod.command("shop", doc! {"insert": "orders", "documents": documents});
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = mongodb::Client::with_uri_str(direct(&recorded.address())).await.unwrap();
        let orders = client.database("shop").collection::<Document>("orders");
        for id in 0..10 {
            orders.update_one(doc! {"_id": id}, doc! {"$inc": {"n": id}}).await.unwrap();
        }
        let mut cursor = orders.find(doc! {}).batch_size(4).await.unwrap();
        while cursor.advance().await.unwrap() {}
    });
    let hash = |mongod: &Mongod| {
        let reply = mongod.command("shop", doc! {"dbHash": 1, "collections": ["orders"]});
        reply.get_document("collections").unwrap().get_str("orders").unwrap().to_owned()
    };
    let expected = hash(&recorded);
    assert_ne!(hash(&target), expected);
    recorded.stop();
    let report = replay(&[&recorded.log_file()], &target.uri(), &["--speed", "max"], 0);
    assert_eq!(hash(&target), expected, "{report:#}");
    let played = &report["targets"][0]["latencies"];
    assert_eq!((&played["update"]["count"], &played["getMore"]["count"]), (&10.into(), &2.into()), "{report:#}");
    let reasons = report["not_sent"].to_string();
    assert!(
        reasons.contains("the recording does not contain the whole command with its values"),
        "the insert: {reasons}"
    );
}

#[test]
fn rotated_logs_of_one_server_must_be_joined() {
    let recorded = Mongod::start_with(Kind::ReplicaSet, &["--slowms", "0"]);
    let update = doc! {"update": "orders", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}]};
    recorded.command("shop", update.clone());
    let log = recorded.log_file();
    let folder = tempfile::tempdir().unwrap();
    let (first, joined) = (folder.path().join("first.log"), folder.path().join("joined.log"));
    std::fs::copy(&log, &first).unwrap();
    // Rotated, so that it begins with the details of the process.
    recorded.command("admin", doc! {"logRotate": 1});
    recorded.command("shop", update);
    let second = std::fs::read(&log).unwrap();
    std::fs::write(&joined, [std::fs::read(&first).unwrap(), second].concat()).unwrap();
    let target = Mongod::start(Kind::ReplicaSet);
    for (files, words) in [
        ([&first, &log], "are logs of one server"),
        ([&log, &first], "are logs of one server"),
        ([&first, &first], "is given twice"),
    ] {
        let files = files.map(|file| file.to_str().unwrap());
        let done = docward(&["replay", files[0], files[1], "--to", &direct(&target.address())]);
        assert!(done.status.code() == Some(1) && text(&done).contains(words), "{}", text(&done));
    }
    replay(&[&joined], &target.uri(), &["--speed", "max"], 0);
}

#[test]
fn a_log_is_not_played_to_the_deployment_that_wrote_it() {
    let folder = tempfile::tempdir().unwrap();
    for kind in [Kind::Standalone, Kind::ReplicaSet] {
        let recorded = Mongod::start_with(kind, &["--slowms", "0"]);
        recorded.command("shop", doc! {"update": "orders", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}]});
        let log = std::fs::read_to_string(recorded.log_file()).unwrap();
        let commands: String =
            log.lines().filter(|line| line.contains("Slow query")).map(|line| format!("{line}\n")).collect();
        let part = folder.path().join("part.log");
        std::fs::write(&part, commands).unwrap();
        for (file, words) in [
            (recorded.log_file(), "was recorded from this deployment"),
            (part, "part.log does not show whether it was recorded from this deployment"),
        ] {
            let done = docward(&["replay", file.to_str().unwrap(), "--to", &direct(&recorded.address())]);
            assert!(done.status.code() == Some(64) && text(&done).contains(words), "{kind:?}: {}", text(&done));
        }
    }
}

#[test]
fn a_profile_is_played_as_far_as_it_contains_commands() {
    let (recorded, target) = (Mongod::start(Kind::ReplicaSet), Mongod::start(Kind::ReplicaSet));
    for mongod in [&recorded, &target] {
        let documents: Vec<Document> = (0..10).map(|id| doc! {"_id": id, "n": 0}).collect();
        mongod.command("shop", doc! {"insert": "orders", "documents": documents});
    }
    recorded.command("shop", doc! {"profile": 2});
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let uri = format!("{}&appName=warehouse", direct(&recorded.address()));
        let client = mongodb::Client::with_uri_str(uri).await.unwrap();
        let orders = client.database("shop").collection::<Document>("orders");
        for id in 0..8 {
            orders.update_one(doc! {"_id": id}, doc! {"$inc": {"n": id}}).await.unwrap();
        }
        orders.replace_one(doc! {"_id": 8}, doc! {"n": "replaced"}).await.unwrap();
        orders.delete_one(doc! {"_id": 9}).await.unwrap();
        orders.find_one_and_update(doc! {"_id": 1}, doc! {"$set": {"at": bson::DateTime::now()}}).await.unwrap();
        orders.insert_one(doc! {"_id": 10}).await.unwrap();
        let mut cursor = orders.find(doc! {"_id": {"$lt": 10}}).batch_size(4).await.unwrap();
        while cursor.advance().await.unwrap() {}
        drop(client);
    });
    recorded.command("shop", doc! {"profile": 0});
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("profile.json");
    // Exported with the newest entry first.
    let entries = String::from_utf8(exported(&recorded, "RELAXED")).unwrap();
    std::fs::write(&profile, entries.lines().rev().collect::<Vec<_>>().join("\n")).unwrap();
    // A profile has no inserted document.
    recorded.command("shop", doc! {"delete": "orders", "deletes": [{"q": {"_id": 10}, "limit": 1}]});
    let rules = "version: 1\nrules:\n  - { name: whole, namespace: shop.orders, except: { apps: [warehouse] }, replacement: {} }\n";
    let proxy = Docward::before(&target.uri()).rules(rules).start();
    // Joined with the log of another server, it still does not.
    let start = r#"{"t":{"$date":"2026-01-01T00:00:00.000Z"},"s":"I","c":"CONTROL","id":4615611,"ctx":"initandlisten","msg":"MongoDB starting","attr":{"pid":1,"port":27017,"host":"elsewhere"}}"#;
    let joined = folder.path().join("joined.json");
    std::fs::write(&joined, format!("{start}\n{}", std::fs::read_to_string(&profile).unwrap())).unwrap();
    for file in [&profile, &joined] {
        let refused = docward(&["replay", file.to_str().unwrap(), "--to", &direct(&proxy.address())]);
        let words = "does not show whether it was recorded from this deployment";
        assert!(refused.status.code() == Some(64) && text(&refused).contains(words), "{}", text(&refused));
    }
    let confirmed = ["--speed", "max", "--allow-same-deployment"];
    let report = replay(&[&profile], &direct(&proxy.address()), &confirmed, 0);
    let hash = |mongod: &Mongod| {
        let reply = mongod.command("shop", doc! {"dbHash": 1, "collections": ["orders"]});
        reply.get_document("collections").unwrap().get_str("orders").unwrap().to_owned()
    };
    assert_eq!(hash(&target), hash(&recorded), "{report:#}");
    let played = &report["targets"][0];
    let counts = ["update", "delete", "findAndModify", "find", "getMore", "insert"]
        .map(|command| played["latencies"][command]["count"].as_u64().unwrap_or_default());
    assert_eq!(counts, [9, 1, 1, 1, 2, 0], "{report:#}");
    assert_eq!(played["failed"], 0, "the application's name is kept: {report:#}");
    let reasons = report["not_sent"].to_string();
    assert!(
        reasons.contains("the recording does not contain the whole command with its values"),
        "the insert: {reasons}"
    );
    let recorded = &report["recorded"]["latencies"]["update"];
    assert!(recorded["count"] == 9, "a profile has the latencies: {report:#}");
}

#[test]
fn files_and_targets_that_cannot_be_used_are_named() {
    let mongod = Mongod::shared();
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("traffic.bson");
    let database = mongod.fresh_database();
    record(&mongod.uri(), &capture, |address| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let client = mongodb::Client::with_uri_str(direct(address)).await.unwrap();
            client.database(&database).collection("a").insert_one(doc! {"_id": 1}).await.unwrap();
        });
    });
    let bytes = std::fs::read(&capture).unwrap();
    let damaged = folder.path().join("damaged.bson");
    std::fs::write(&damaged, [&bytes[..], &[0xff; 40]].concat()).unwrap();
    let inside = folder.path().join("inside.bson");
    let last = bytes.len() - 20;
    std::fs::write(&inside, [&bytes[..last], &[0xff; 20]].concat()).unwrap();
    let file = |path: &Path| path.to_str().unwrap().to_owned();
    let nowhere = "mongodb://127.0.0.1:1/";
    for (path, to, code, words) in [
        (file(&capture), nowhere, 1, "--to: 127.0.0.1:1: connection refused".to_owned()),
        (file(&damaged), nowhere, 1, format!("damaged.bson: the capture is damaged at byte {}", bytes.len())),
        (file(&inside), nowhere, 1, "is damaged (".to_owned()),
        (file(&folder.path().join("none")), nowhere, 1, "No such file".to_owned()),
        (file(&capture), "nowhere", 64, "--to".to_owned()),
    ] {
        let done = docward(&["replay", &path, "--to", to]);
        assert!(done.status.code() == Some(code) && text(&done).contains(&words), "{path} {to}: {}", text(&done));
    }
    let done = docward(&["replay", &file(&capture), "--to", nowhere, "--speed", "fast"]);
    assert!(done.status.code() == Some(64) && text(&done).contains("write 1x, 4x or another factor, or max"));
}

#[test]
fn a_recording_is_rotated_and_replayed_from_all_its_files() {
    let (recorded, target) = (Mongod::start(Kind::ReplicaSet), Mongod::start(Kind::ReplicaSet));
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("traffic.bson");
    let numbered = |number: usize| folder.path().join(format!("traffic.bson.{number}"));
    let run = |arguments: &[&str], count: i32| {
        let start = Docward::before(&recorded.uri()).subcommand("record").argument(capture.to_str().unwrap());
        let mut recorder = arguments.iter().fold(start, |start, argument| start.argument(*argument)).start();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let client = mongodb::Client::with_uri_str(direct(&recorder.address())).await.unwrap();
            let notes = client.database("notes").collection::<Document>("notes");
            for id in 0..count {
                notes.insert_one(doc! {"_id": id, "text": "x".repeat(1000)}).await.unwrap();
            }
        });
        assert!(recorder.terminate().success());
        recorder.log().join("\n")
    };
    run(&["--max-size", "32KiB", "--rotate", "9"], 100);
    let files: Vec<PathBuf> = (1..10).map(numbered).filter(|file| file.exists()).chain([capture.clone()]).collect();
    assert!(files.len() > 3, "{files:?}");
    assert!(files.iter().all(|file| std::fs::metadata(file).unwrap().len() <= 32 << 10));
    // In any order: the newest is first.
    let files: Vec<&Path> = files.iter().rev().map(PathBuf::as_path).collect();
    let report = replay(&files, &target.uri(), &["--speed", "max"], 0);
    assert_eq!(report["targets"][0]["latencies"]["insert"]["count"], 100, "{report:#}");
    assert_eq!(target.command("notes", doc! {"count": "notes"}).get_i32("n").unwrap(), 100);

    files.iter().for_each(|file| std::fs::remove_file(file).unwrap());
    recorded.command("notes", doc! {"dropDatabase": 1});
    let log = run(&["--max-size", "32KiB"], 100);
    assert!(log.contains("the capture has reached --max-size"), "{log}");
    assert!(std::fs::metadata(&capture).unwrap().len() <= 32 << 10 && !numbered(1).exists());
    assert_eq!(
        recorded.command("notes", doc! {"count": "notes"}).get_i32("n").unwrap(),
        100,
        "clients are still served"
    );
}
