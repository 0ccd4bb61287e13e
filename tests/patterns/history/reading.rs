//! `docward history`: lists changes and prints old states, or explains why they are not known.

use std::process::{Command, Output};
use std::time::Duration;

use bson::{DateTime, Document, doc};
use support::mongod::{Kind, Mongod};
use support::process::{docward_executable, poll};

use super::{WITHIN, kept, orders, rule, start};

fn history(mongod: &Mongod, rules: &str, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yaml");
    std::fs::write(&file, rules).unwrap();
    let mut command = Command::new(docward_executable());
    command.arg("history").args(arguments).args(["--upstream", &mongod.uri()]).arg("--rules").arg(file);
    command.output().unwrap()
}

/// The state at a time, or why there is none.
fn state_at(mongod: &Mongod, rules: &str, namespace: &str, id: &str, at: DateTime) -> Result<String, String> {
    let at = at.try_to_rfc3339_string().unwrap();
    let output = history(mongod, rules, &[namespace, id, "--at", &at]);
    match output.status.code() {
        Some(0) => Ok(String::from_utf8(output.stdout).unwrap().trim_end().to_owned()),
        _ => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

#[tokio::test]
async fn the_subcommand_lists_changes_and_prints_old_states() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    let id = doc! {"_id": {"country": "it", "no": 7}};
    let typed = "{country: \"it\", no: 7}";
    let full = |rest: Document| {
        let mut document = id.clone();
        document.extend(rest);
        document
    };
    orders(&direct).insert_one(full(doc! {"status": "new"})).await.unwrap();
    let before_the_history = DateTime::now();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let mut docward = start(mongod, direct.name(), "4");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let now = async || {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = DateTime::now();
        tokio::time::sleep(Duration::from_millis(20)).await;
        now
    };
    let at_first = now().await;
    orders(&direct).update_one(id.clone(), doc! {"$set": {"total": 12, "at": DateTime::from_millis(0)}}).await.unwrap();
    let at_total = now().await;
    orders(&direct).replace_one(id.clone(), doc! {"total": 2.5, "note": "x"}).await.unwrap();
    let at_note = now().await;
    orders(&direct).delete_one(id.clone()).await.unwrap();
    let at_nothing = now().await;
    orders(&direct).insert_one(full(doc! {"status": "again"})).await.unwrap();
    let at_last = now().await;
    let (rules, namespace) = (rule(direct.name(), "enforce", "4"), format!("{}.orders", direct.name()));
    let at = |at: DateTime| state_at(mongod, &rules, &namespace, typed, at);
    let document = |rest: &str| Ok(format!("{{\"_id\":{{\"country\":\"it\",\"no\":7}},{rest}}}"));
    // No later change: the stored document, once all changes are recorded.
    assert_eq!(at(at_last), document("\"status\":\"again\""));
    assert!(at(at_nothing).unwrap_err().contains("the document did not exist at"));
    assert_eq!(at(at_note), document("\"total\":2.5,\"note\":\"x\""));
    // The server adds new fields in the order of their names.
    let total = "\"status\":\"new\",\"at\":{\"$date\":\"1970-01-01T00:00:00Z\"},\"total\":12";
    assert_eq!(at(at_total), document(total));
    assert_eq!(at(at_first), document("\"status\":\"new\""));
    assert!(at(before_the_history).unwrap_err().contains("the history begins"));

    let output = history(mongod, &rules, &[&namespace, typed]);
    let printed = String::from_utf8(output.stdout).unwrap();
    let words: Vec<Vec<&str>> = printed.lines().map(|line| line.split_whitespace().collect()).collect();
    let line = |at: usize| (words[at][0], words[at][2], words[at][3..].join(" "));
    assert_eq!(line(1), ("1", "update", "at, total".to_owned()));
    assert_eq!(line(2), ("2", "replace", "at, note, status, total".to_owned()));
    assert_eq!(line(3), ("3", "delete", "note, total".to_owned()));
    assert_eq!(line(4), ("4", "insert", "status".to_owned()));
    let output = history(mongod, &rules, &[&namespace, typed, "--format", "json"]);
    let printed = String::from_utf8(output.stdout).unwrap();
    let listed: Vec<serde_json::Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((listed.len(), &listed[3]["changed"]), (4, &serde_json::json!(["status"])));
    // The `_id` as the state shows it.
    let extended = "{\"country\": \"it\", \"no\": {\"$numberInt\": \"7\"}}";
    assert_eq!(state_at(mongod, &rules, &namespace, extended, at_last), at(at_last));
    let future = DateTime::from_millis(DateTime::now().timestamp_millis() + 60_000);
    assert!(at(future).unwrap_err().contains("it is in the future"));

    // The oldest state is removed: what was before is not known, what was after it is.
    orders(&direct).update_one(id.clone(), doc! {"$set": {"status": "more"}}).await.unwrap();
    kept(&direct, 5).await;
    assert!(at(at_first).unwrap_err().contains("revisions before 2 are no longer kept"));
    assert_eq!(at(at_note), document("\"total\":2.5,\"note\":\"x\""));

    let other = history(mongod, &rules, &[&namespace, "8"]);
    assert_eq!(other.status.code(), Some(1));
    let nearly = namespace.replace("orders", "order");
    for (wrong, help) in [
        (&[namespace.as_str(), "abc"][..], "write it in mongosh syntax"),
        (&[namespace.as_str(), "65a1b2c3d4e5f60718293a4b"], "'ObjectId(\"65a1b2c3d4e5f60718293a4b\")'"),
        (&["no.rule", "8"], "--rules has rules for"),
        (&[nearly.as_str(), "8"], "did you mean"),
        (&[namespace.as_str(), "8", "--at", "yesterday"], "2026-01-31T12:00:00Z"),
    ] {
        let output = history(mongod, &rules, wrong);
        let error = String::from_utf8(output.stderr).unwrap();
        println!("{error}");
        assert_eq!(output.status.code(), Some(64), "{wrong:?}");
        assert!(error.contains(help), "{error}");
    }
    // Without a worker nothing is known of the time after its position.
    assert!(docward.terminate().success());
    orders(&direct).update_one(id.clone(), doc! {"$set": {"status": "later"}}).await.unwrap();
    let error = at(DateTime::now()).unwrap_err();
    assert!(error.contains("changes are recorded only until"), "{error}");
}

#[tokio::test]
async fn what_a_drop_or_another_keep_hides_is_not_made_up() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    let docward = start(mongod, direct.name(), "2");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let namespace = format!("{}.orders", direct.name());
    let set = async |n: i32| {
        let set = doc! {"$set": {"n": n}};
        orders(&direct).update_one(doc! {"_id": 1}, set).upsert(true).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        let after = DateTime::now();
        tokio::time::sleep(Duration::from_millis(20)).await;
        after
    };
    let mut times = Vec::new();
    for n in 0..5 {
        times.push(set(n).await);
    }
    assert_eq!(kept(&direct, 5).await, [4, 5]);
    // Three states were removed. A duration does not bring them back.
    docward.rewrite_rules(&rule(direct.name(), "enforce", "90d"));
    docward.signal("HUP");
    docward.wait_for_log("rules loaded");
    // The worker with the former `keep` would remove further states.
    let starts = || docward.log().iter().filter(|line| line.contains("worker started: keeps the history")).count();
    poll(WITHIN, || (starts() > 1).then_some(()));
    let rules = rule(direct.name(), "enforce", "90d");
    let at = |at| state_at(mongod, &rules, &namespace, "1", at);
    assert!(at(times[1]).unwrap_err().contains("revisions before 4 are no longer kept"));
    assert_eq!(at(times[2]).unwrap(), "{\"_id\":1,\"n\":2}");
    assert_eq!(at(times[4]).unwrap(), "{\"_id\":1,\"n\":4}");

    // What the drop removed is no change of a field.
    orders(&direct).drop().await.unwrap();
    set(5).await;
    kept(&direct, 6).await;
    let output = history(mongod, &rules, &[&namespace, "1"]);
    let printed = String::from_utf8(output.stdout).unwrap();
    println!("{printed}");
    let lines: Vec<&str> = printed.lines().collect();
    assert!(lines[2].starts_with("5 ") && lines[2].contains("not known: the next state is not"), "{printed}");
    assert!(lines[3].starts_with("- ") && lines[3].contains("drop       changes before are not recorded"), "{printed}");
    assert!(lines[4].starts_with("6 ") && lines[4].ends_with("insert     n"), "{printed}");

    // Entries that expired are not known with a longer time, or with a number.
    for (shorter, longer) in [("1h", "2h"), ("30m", "100")] {
        for keep in [shorter, longer] {
            let rules = rule(direct.name(), "enforce", keep);
            docward.rewrite_rules(&rules);
            docward.signal("HUP");
            let seconds = match keep {
                "1h" => Some(3600),
                "30m" => Some(1800),
                "2h" => Some(7200),
                _ => None,
            };
            let deadline = std::time::Instant::now() + super::WITHIN;
            while super::expiry(&direct).await.map(|(_, seconds)| seconds) != seconds.map(bson::Bson::Int32) {
                assert!(std::time::Instant::now() < deadline, "{keep}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        let rules = rule(direct.name(), "enforce", longer);
        let long_ago = DateTime::from_millis(times[0].timestamp_millis() - 5_400_000);
        let error = state_at(mongod, &rules, &namespace, "2", long_ago).unwrap_err();
        assert!(error.contains("states were only kept for"), "{error}");
    }
}

#[test]
fn a_deployment_that_is_down_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yaml");
    std::fs::write(&file, rule("d", "enforce", "5")).unwrap();
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = Command::new(docward_executable());
    command.args(["history", "d.orders", "1", "--upstream", &format!("mongodb://{unused}")]).arg("--rules").arg(&file);
    let output = command.output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    println!("{error}");
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("connection refused") && error.lines().count() == 1 && error.len() < 200, "{error}");
}

#[test]
fn a_server_that_stops_replying_is_an_error() {
    let mongod = Mongod::start(Kind::ReplicaSet);
    mongod.command("d", doc! { "insert": "orders", "documents": [{ "_id": 1 }] });
    let output = std::thread::scope(|scope| {
        // Without a worker the list waits for some seconds, and asks the server meanwhile.
        let listed = scope.spawn(|| history(&mongod, &rule("d", "enforce", "5"), &["d.orders", "1"]));
        std::thread::sleep(Duration::from_millis(1500));
        mongod.signal("STOP");
        let output = listed.join().unwrap();
        mongod.signal("CONT");
        output
    });
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && error.contains("the server did not reply within 15 s"), "{error}");
}
