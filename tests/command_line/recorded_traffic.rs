//! `docward record`, `audit` and `suggest` on the logs and profiles of a real mongod and the traffic of real drivers,
//! and the live report of rules in shadow mode.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use bson::{Document, doc};
use mongodb::Client;
use serde_json::Value;
use support::mongod::{Kind, Mongod};
use support::process::docward;
use support::proxy::Docward;

const RULES: &str = "\
version: 1
rules:
  - { name: no-replace, namespace: shop.orders, except: { apps: [migrator] }, replacement: {} }
  - { name: stock, namespace: shop.orders, bounds: { field: stock, min: 0 } }
  - { name: numbers, namespace: shop.orders, sequence: { field: nr, counter: orders } }
  - { name: no-empty, namespace: 'shop.*', mode: shadow, deny: { operations: [delete, update], when: { filter: empty } } }
  - { name: source-time, namespace: shop.orders, timestamps: { source: $comment.at } }
";

fn audit(rules: &Path, files: &[&Path]) -> Value {
    let files: Vec<&str> = files.iter().map(|file| file.to_str().unwrap()).collect();
    let done =
        docward(&[&["audit", "--format", "json", "--rules", rules.to_str().unwrap()], files.as_slice()].concat());
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

/// By rule: reject, rewrite, cannot_tell, except, forward.
fn counts(report: &Value) -> Vec<(String, [u64; 5])> {
    let count = |rule: &Value, key: &str| rule["counts"][key].as_u64().unwrap();
    let keys = ["reject", "rewrite", "cannot_tell", "except", "forward"];
    let rules = report["rules"].as_array().unwrap().iter();
    rules.map(|rule| (rule["name"].as_str().unwrap().to_owned(), keys.map(|key| count(rule, key)))).collect()
}

fn expected(rows: &[(&str, [u64; 5])]) -> Vec<(String, [u64; 5])> {
    rows.iter().map(|(name, counts)| ((*name).to_owned(), *counts)).collect()
}

fn folder_with(name: &str, content: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    std::fs::write(&file, content).unwrap();
    (folder, file)
}

/// The writes of two applications to shop.orders, in every form that a log shows differently.
async fn traffic(address: &str, options: &str) {
    let billing = client(address, &format!("&appName=billing{options}")).await;
    let orders = billing.database("shop").collection::<Document>("orders");
    orders.insert_many((0..3).map(|id| doc! {"_id": id, "stock": 5, "nr": id})).await.unwrap();
    orders.find_one(doc! {"_id": 1}).await.unwrap();
    orders.replace_one(doc! {"_id": 1}, doc! {"status": "paid"}).await.unwrap();
    orders
        .update_one(doc! {"_id": 2}, doc! {"$inc": {"stock": -1}})
        .comment(doc! {"at": bson::DateTime::now()})
        .await
        .unwrap();
    let color = orders.update_one(doc! {"_id": 2}, doc! {"$set": {"color": "red"}});
    color.comment(doc! {"at": bson::DateTime::now()}).await.unwrap();
    orders.find_one_and_replace(doc! {"_id": 0}, doc! {"status": "open"}).await.unwrap();
    orders.update_one(doc! {"_id": 2}, doc! {"$set": {"text": "x".repeat(20_000)}}).await.unwrap();
    // A batch: two statements of one command.
    let batch = doc! {"update": "orders", "updates": [
        {"q": {"_id": 0}, "u": {"a": 1}}, {"q": {"_id": 0}, "u": {"$set": {"a": 2}}},
    ]};
    billing.database("shop").run_command(batch).await.unwrap();
    let mut session = billing.start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    orders.replace_one(doc! {"_id": 1}, doc! {"status": "sent"}).session(&mut session).await.unwrap();
    session.commit_transaction().await.unwrap();
    let migrator = client(address, &format!("&appName=migrator{options}")).await;
    let orders = migrator.database("shop").collection::<Document>("orders");
    orders.replace_one(doc! {"_id": 1}, doc! {"status": "new"}).await.unwrap();
    orders.delete_many(doc! {}).await.unwrap();
    migrator.database("shop").collection::<Document>("other").replace_one(doc! {}, doc! {"a": 1}).await.unwrap();
}

async fn client(address: &str, options: &str) -> Client {
    Client::with_uri_str(format!("mongodb://{address}/?directConnection=true{options}")).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audit_reads_a_mongod_log() {
    let mut mongod = Mongod::start_with(Kind::ReplicaSet, &["--slowms", "0"]);
    traffic(&mongod.address(), "").await;
    mongod.stop();
    let (folder, rules) = folder_with("rules.yaml", RULES);
    let log = mongod.log_file();
    let report = audit(&rules, &[&log]);
    let rows = [
        // From billing one each as update, as findAndModify, in a batch and in a transaction; a truncated statement
        // could be one too.
        ("no-replace", [4, 0, 1, 1, 0]),
        // A log does not have inserted documents; later rules do not see what an earlier one rejects.
        ("stock", [0, 1, 4, 0, 2]),
        ("numbers", [0, 0, 4, 0, 1]),
        ("no-empty", [2, 0, 1, 0, 7]),
        ("source-time", [2, 1, 4, 0, 0]),
    ];
    assert_eq!(counts(&report), expected(&rows), "{report:#}");
    let replace = &report["rules"][0];
    assert_eq!(replace["apps"][0]["app"], "billing");
    assert_eq!(
        (replace["apps"][1]["app"].as_str(), &replace["apps"][1]["counts"]["except"]),
        (Some("migrator"), &1.into())
    );
    let shells: Vec<&str> =
        replace["examples"].as_array().unwrap().iter().filter_map(|example| example["given"].as_str()).collect();
    assert!(shells.contains(&r#"db.orders.replaceOne({_id: 1}, {status: "paid"})"#), "{shells:?}");

    let packed = folder.path().join("mongod.log.gz");
    let mut gzip = flate2::write::GzEncoder::new(std::fs::File::create(&packed).unwrap(), flate2::Compression::fast());
    gzip.write_all(&std::fs::read(&log).unwrap()).unwrap();
    gzip.finish().unwrap();
    let mut from_packed = audit(&rules, &[&packed]);
    from_packed["sources"] = report["sources"].clone();
    assert_eq!(from_packed, report);

    let printed = docward(&["suggest", log.to_str().unwrap()]);
    let proposed = folder.path().join("proposed.yaml");
    std::fs::write(&proposed, &printed.stdout).unwrap();
    let text = String::from_utf8(printed.stdout).unwrap();
    for part in [
        "name: orders-replacement",
        "2 of them after the same connection had read it",
        "name: orders-bounds",
        "By billing",
        "filter: empty",
    ] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
    let checked = docward(&["check", proposed.to_str().unwrap()]);
    assert!(checked.status.success(), "{text}\n{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn an_audit_of_rules_in_shadow_mode_shows_what_they_would_send() {
    let rule =
        "version: 1\nrules:\n  - { name: r, namespace: shop.orders, mode: shadow, replacement: { policy: merge } }\n";
    let (_folder, rules) = folder_with("rules.yaml", rule);
    let log = support::process::repository("docs/examples/mongod.log");
    let done = docward(&["audit", "--rules", rules.to_str().unwrap(), log.to_str().unwrap()]);
    let text = String::from_utf8(done.stdout).unwrap();
    let (before, after) = (
        r#"db.orders.replaceOne({_id: 1}, {status: "paid"})"#,
        r#"db.orders.updateOne({_id: 1}, {$set: {status: "paid"}})"#,
    );
    assert!(text.contains(&format!("    - {before}\n    + {after}\n")), "{text}");
    let report = audit(&rules, &[&log]);
    let examples = report["rules"][0]["examples"].as_array().unwrap();
    assert!(examples.iter().any(|one| one["given"] == before && one["sent"] == after), "{report:#}");
}

/// `system.profile` of shop as JSON lines, written by MongoDB's Python library.
pub(crate) fn exported(mongod: &Mongod, form: &str) -> Vec<u8> {
    const SCRIPT: &str = "\
import json, sys, pymongo
from bson import json_util
profile = pymongo.MongoClient(sys.argv[1]).shop['system.profile']
for entry in profile.find():
    options = {'json_options': getattr(json_util, sys.argv[2] + '_JSON_OPTIONS')} if sys.argv[2] != 'UNTYPED' else {}
    print(json_util.dumps(entry, **options) if options else json.dumps(entry, default=str))
";
    let python = Command::new(support::process::repository("scripts/python-env.sh")).output().unwrap();
    let python = String::from_utf8(python.stdout).unwrap();
    let done = Command::new(python.trim()).args(["-c", SCRIPT, &mongod.uri(), form]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    done.stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audit_reads_profiler_documents() {
    let mongod = Mongod::start(Kind::ReplicaSet);
    let database = mongod.client().await.database("shop");
    database.run_command(doc! {"profile": 2}).await.unwrap();
    traffic(&mongod.address(), "").await;
    database.run_command(doc! {"profile": 0}).await.unwrap();
    let (folder, rules) = folder_with("rules.yaml", RULES);
    let mut reports = Vec::new();
    for form in ["RELAXED", "CANONICAL"] {
        let file = folder.path().join(form);
        std::fs::write(&file, exported(&mongod, form)).unwrap();
        reports.push(counts(&audit(&rules, &[&file])));
    }
    assert_eq!(reports[0], reports[1]);
    let row = |name: &str| reports[0].iter().find(|(rule, _)| rule == name).unwrap().1;
    // A profile keeps 50 KB of a command, so it has the long update.
    assert_eq!(row("no-replace"), [4, 0, 0, 1, 0]);
    assert_eq!(row("stock"), [0, 1, 3, 0, 4]);
    // Updates without a comment: a profile omits the other fields of their command.
    assert_eq!(row("source-time")[1..], [1, 6, 0, 0]);

    // Dates and identifiers as texts.
    let file = folder.path().join("UNTYPED");
    std::fs::write(&file, exported(&mongod, "UNTYPED")).unwrap();
    let report = audit(&rules, &[&file]);
    for (rule, [reject, rewrite, cannot_tell, ..]) in counts(&report) {
        assert_eq!((reject, rewrite, cannot_tell > 0), (0, 0, true), "{rule}: {report:#}");
    }
    let proposed = docward(&["suggest", file.to_str().unwrap()]);
    let text = String::from_utf8(proposed.stdout).unwrap();
    assert!(text.contains("No rule proposed") && text.contains("the export lost the types of its values"), "{text}");
}

/// Without `whenNotMatched: insert` the entries of the inner writes look like those of a client.
#[tokio::test(flavor = "multi_thread")]
async fn the_writes_of_merge_are_no_statements_of_clients() {
    let mut mongod = Mongod::start_with(Kind::ReplicaSet, &["--slowms", "-1"]);
    let shop = client(&mongod.address(), "").await.database("shop");
    shop.run_command(doc! {"profile": 2, "slowms": -1}).await.unwrap();
    let documents = || (0..3).map(|id| doc! {"_id": id, "at": id});
    shop.collection("daily").insert_many(documents()).await.unwrap();
    shop.collection("total").insert_many(documents()).await.unwrap();
    let merge = |matched: bson::Bson, other: &str| {
        let stage = doc! {"into": "total", "on": "_id", "whenMatched": matched, "whenNotMatched": other};
        doc! {"aggregate": "daily", "pipeline": [{"$merge": stage}], "cursor": {}}
    };
    let pipeline = || bson::bson!([{"$set": {"at": "$$new.at"}}]);
    for matched in ["merge".into(), "replace".into(), pipeline()] {
        for other in ["insert", "discard", "fail"] {
            shop.run_command(merge(matched.clone(), other)).await.unwrap();
        }
    }
    shop.run_command(merge("keepExisting".into(), "insert")).await.unwrap();
    // Those of the client itself.
    let total = shop.collection::<Document>("total");
    total.replace_one(doc! {"_id": 1}, doc! {"_id": 1, "at": 5}).await.unwrap();
    shop.run_command(doc! {"profile": 0}).await.unwrap();
    let rule = "version: 1\nrules:\n  - { name: r, namespace: shop.total, replacement: { policy: reject } }\n";
    let (folder, rules) = folder_with("rules.yaml", rule);
    let profile = folder.path().join("profile");
    std::fs::write(&profile, exported(&mongod, "RELAXED")).unwrap();
    mongod.stop();
    for file in [profile, mongod.log_file()] {
        let report = audit(&rules, &[&file]);
        assert_eq!(counts(&report), expected(&[("r", [11, 0, 0, 0, 0])]), "{report:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_capture_has_everything_except_credentials() {
    let mongod = Mongod::start(Kind::ReplicaSet);
    let (folder, rules) = folder_with("rules.yaml", RULES);
    let capture = folder.path().join("traffic.bson");
    let start = || {
        let recorder = Docward::before(&mongod.uri()).subcommand("record").argument(capture.to_str().unwrap());
        recorder.start()
    };
    let mut recorder = start();
    let root = client(&recorder.address(), "").await;
    let user = doc! {"createUser": "ada", "pwd": "open-sesame", "roles": ["root"]};
    root.database("admin").run_command(user).await.unwrap();
    root.database("admin").run_command(doc! {"updateUser": "ada", "pwd": "open-sesame-2"}).await.unwrap();
    let address = format!("ada:open-sesame-2@{}", recorder.address());
    traffic(&address, "&authSource=admin&compressors=zlib").await;
    assert!(recorder.terminate().success());

    let report = audit(&rules, &[&capture]);
    assert_eq!(
        counts(&report),
        expected(&[
            ("no-replace", [4, 0, 0, 1, 0]),
            ("stock", [0, 1, 0, 0, 4]),
            ("numbers", [0, 0, 0, 0, 1]),
            ("no-empty", [2, 0, 0, 0, 8]),
            ("source-time", [4, 1, 0, 0, 0]),
        ]),
        "{report:#}"
    );
    let bytes = std::fs::read(&capture).unwrap();
    let has = |text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
    for secret in ["open-sesame", "sasl", "SCRAM", "createUser", "updateUser", "speculativeAuthenticate"] {
        assert!(!has(secret), "{secret} is in the capture");
    }
    assert!(has("ada") && has("billing"), "the record names the client");

    // After a kill or truncation the capture is read up to its last complete record, and recording continues it.
    std::fs::write(&capture, &bytes[..bytes.len() - 3]).unwrap();
    let cut = audit(&rules, &[&capture]);
    let note = cut["sources"][0]["note"].as_str().unwrap();
    assert!(note.starts_with("the last record, at byte ") && note.ends_with(" is truncated"), "{note}");
    let before = cut["commands"].as_u64().unwrap();
    let mut recorder = start();
    let orders = client(&recorder.address(), "&appName=late").await.database("shop").collection::<Document>("orders");
    orders.replace_one(doc! {"_id": 1}, doc! {"status": "late"}).await.unwrap();
    let written = support::process::poll(support::process::TIMEOUT, || {
        let report = audit(&rules, &[&capture]);
        (report["commands"] == before + 1).then_some(report)
    });
    recorder.kill();
    let written = written.expect("the record must be written while the recorder runs");
    assert_eq!(written["sources"][0]["note"], Value::Null);
    assert_eq!(audit(&rules, &[&capture])["commands"], before + 1, "written records must survive kill -9");
}

#[test]
fn files_that_are_not_traffic_are_refused_by_name() {
    let (folder, rules) = folder_with("rules.yaml", RULES);
    let rules = rules.to_str().unwrap();
    let file = |name: &str, content: &str| {
        std::fs::write(folder.path().join(name), content).unwrap();
        folder.path().join(name).to_str().unwrap().to_owned()
    };
    let bytes = |name: &str, content: &[u8]| {
        std::fs::write(folder.path().join(name), content).unwrap();
        folder.path().join(name).to_str().unwrap().to_owned()
    };
    let header = bson::serialize_to_vec(&doc! {"docward": "capture", "version": 1}).unwrap();
    let log = std::fs::read(support::process::repository("docs/examples/mongod.log")).unwrap();
    let whole_line = || String::from_utf8_lossy(&log[..=log.iter().position(|byte| *byte == b'\n').unwrap()]);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&log).unwrap();
    let packed = gzip.finish().unwrap();
    let damaged_at = format!("the capture is damaged at byte {}", header.len());
    for (path, code, words) in [
        (file("empty", ""), 1, "the file is empty"),
        (file("blank", "\n\n \n"), 1, "the file has 4 bytes, but no entry"),
        (file("text", "{\"hello\": 1}\n"), 1, "is neither a log of mongod"),
        (folder.path().join("nowhere").to_str().unwrap().to_owned(), 1, "No such file"),
        (
            file("broken", "\n{\"ctx\":\"a\",\"msg\":\"Slow query\",\"attr\":\n"),
            1,
            "no entry can be read; the entry at byte 1",
        ),
        (
            file("partly", &format!("{}{{\"ctx\":\"a\",\"msg\":\"Slow query\",\"attr\":\n", whole_line())),
            0,
            "the entry at byte ",
        ),
        (bytes("header", &header), 1, "the capture has no records after its header of"),
        (bytes("cut-header", &header[..10]), 1, "the capture's header is truncated at byte 10"),
        (bytes("damaged", &[&header[..], &[0xff; 40]].concat()), 1, &damaged_at),
        (bytes("cut.gz", &packed[..packed.len() - 9]), 1, "it cannot be read after byte "),
    ] {
        let done = docward(&["audit", "--rules", rules, &path]);
        let printed = String::from_utf8([done.stdout, done.stderr].concat()).unwrap();
        assert_eq!(done.status.code(), Some(code), "{path}: {printed}");
        assert!(printed.contains(words) && printed.contains(&path), "{path}: {printed}");
        if code == 1 {
            // A replay warns of a line that it cannot read, and then has no command.
            let to = "mongodb://127.0.0.1:1/";
            for (command, words) in [
                (&["suggest", &path][..], words),
                (&["replay", &path, "--to", to], words.trim_start_matches("no entry can be read; ")),
            ] {
                let done = docward(command);
                let printed = String::from_utf8(done.stderr).unwrap();
                assert!(
                    done.stdout.is_empty() && printed.contains(words) && printed.contains(&path),
                    "{command:?}: {printed}"
                );
            }
        }
    }
    let taken = file("taken", "notes");
    let done = docward(&["record", &taken]);
    assert_eq!(done.status.code(), Some(64));
    assert!(String::from_utf8(done.stderr).unwrap().contains("is not a capture"));
    assert_eq!(std::fs::read_to_string(&taken).unwrap(), "notes");
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_in_shadow_mode_report_live() {
    let mongod = Mongod::shared();
    let rules = RULES.replace("name: no-replace, ", "name: no-replace, mode: shadow, ");
    let rules = rules.lines().filter(|line| !line.contains("numbers") && !line.contains("source-time"));
    let rules = rules.collect::<Vec<_>>().join("\n");
    let mut docward = Docward::start(mongod, &rules);
    let orders = client(&docward.address(), "&appName=billing").await.database("shop").collection::<Document>("orders");
    for id in [1, 2] {
        orders.replace_one(doc! {"_id": id}, doc! {"status": "secret"}).await.unwrap();
    }
    docward.signal("USR1");
    docward.wait_for_log("report: what rules did since they were first loaded");
    let row = docward.wait_for_log("no-replace  shadow    20");
    assert!(row.split_whitespace().nth(3) == Some("2"), "two are rejected: {row}");
    docward.wait_for_log("  billing: reject");
    docward.wait_for_log(" 2 × shop.orders replaceOne({_id}, {status})");
    // Another rule is added; the counts continue.
    docward.rewrite_rules(&format!("{rules}\n  - {{ name: another, namespace: shop.orders, together: [a, b] }}\n"));
    docward.signal("HUP");
    docward.wait_for_log("rules=4");
    orders.replace_one(doc! {"_id": 3}, doc! {"status": "secret"}).await.unwrap();
    assert!(docward.terminate().success());
    docward.wait_for_log(" 3 × shop.orders replaceOne({_id}, {status})");
    assert!(!docward.log().iter().any(|line| line.contains("secret")), "values are not in the log");
}

/// Drops are commands without statements. The shapes that the report prints can be denied.
#[tokio::test(flavor = "multi_thread")]
async fn an_audit_finds_recorded_drops_and_their_shapes_can_be_denied() {
    let mut mongod = Mongod::start_with(Kind::ReplicaSet, &["--slowms", "0"]);
    let shop = client(&mongod.address(), "&appName=billing").await.database("shop");
    shop.collection::<Document>("old").insert_one(doc! {"_id": 1}).await.unwrap();
    for command in [doc! {"drop": "old"}, doc! {"dropDatabase": 1}] {
        shop.run_command(command).await.unwrap();
    }
    let deny = |operation: &str, when: &str| {
        format!(
            "version: 1\nrules:\n  - {{ name: r, namespace: 'shop.*', deny: {{ operations: [{operation}]{when} }} }}\n"
        )
    };
    mongod.stop();
    let (folder, rules) = folder_with("rules.yaml", "");
    let log = mongod.log_file();
    let audited = |rule: &str| {
        std::fs::write(folder.path().join("rules.yaml"), rule).unwrap();
        let report = audit(&rules, &[&log]);
        assert_eq!(counts(&report), expected(&[("r", [1, 0, 0, 0, 0])]), "{report:#}");
        report
    };
    let pasted = ["drop", "dropDatabase"].map(|operation| {
        let report = audited(&deny(operation, ""));
        let printed = report["rules"][0]["examples"][0]["shape"].as_str().unwrap_or_else(|| panic!("{report:#}"));
        assert_eq!(report["rules"][0]["apps"][0]["app"], "billing");
        let pasted = deny(operation, &format!(", when: {{ shape: '{printed}' }}"));
        audited(&pasted);
        pasted
    });
    mongod.restart();
    client(&mongod.address(), "").await.database("shop").run_command(doc! {"create": "kept"}).await.unwrap();
    let commands = [doc! {"drop": "kept"}, doc! {"dropDatabase": 1}];
    for (rule, denied) in pasted.iter().zip(commands) {
        let docward = Docward::start(&mongod, rule);
        let through = client(&docward.address(), "").await.database("shop");
        let error = through.run_command(denied).await.unwrap_err();
        assert_eq!(support::driver::code(&error), 121, "{error}");
        through.collection::<Document>("kept").delete_many(doc! {}).await.unwrap();
        assert_eq!(through.list_collection_names().await.unwrap(), ["kept"]);
    }
}

/// docward looks for documents, asks about earlier sends and settles in the client's name; tools must not take that for
/// the application's statements.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_behind_docward_shows_which_commands_are_its_own() {
    const RULES: &str = "\
version: 1
rules:
  - { name: versions, namespace: shop.versions, replacement: { policy: check_version, version: v } }
  - { name: fixed, namespace: shop.fixed, frozen: [a] }
  - { name: stock, namespace: shop.stock, bounds: { field: n, min: 0, on_no_room: error } }
  - { name: paths, namespace: shop.paths, tree: { path: path, parent: parent } }
  - { name: schema, namespace: shop.schema, schema_version: { field: s, current: 3, minimum: 2 } }
";
    let mut mongod = Mongod::start_with(Kind::ReplicaSet, &["--slowms", "-1"]);
    let docward = Docward::before(&mongod.uri()).rules(RULES);
    let mut docward = docward.argument("--service").argument(mongod.uri()).start();
    let shop = client(&docward.address(), "&appName=billing").await.database("shop");
    let mut written = 0;
    for name in ["versions", "fixed", "stock", "paths", "schema"] {
        let collection = shop.collection::<Document>(name);
        let document = doc! {"v": 1, "a": 1, "n": 1, "s": 3, "parent": null};
        for id in 1..3 {
            let stored = doc! {"_id": id}.into_iter().chain(document.clone());
            collection.insert_one(stored.collect::<Document>()).await.unwrap();
        }
        _ = collection.replace_one(doc! {"_id": 1}, document.clone()).await;
        _ = collection.replace_one(doc! {"_id": 7}, document).await;
        _ = collection.update_one(doc! {"_id": 1}, doc! {"$set": {"a": 2, "n": 3}}).await;
        _ = collection.update_one(doc! {"_id": 1}, doc! {"$inc": {"n": -9}}).await;
        _ = collection.update_one(doc! {"_id": 8}, doc! {"$set": {"a": 2}}).upsert(true).await;
        _ = collection.insert_one(doc! {"_id": 9, "s": 1, "parent": 7}).await;
        _ = collection.delete_one(doc! {"_id": 1}).await;
        written += 9;
    }
    assert!(docward.terminate().success());
    mongod.command("shop", doc! {"insert": "paths", "documents": [{"_id": 20, "parent": null, "path": ",1,"}]});
    let (_folder, rules) = folder_with("rules.yaml", RULES);
    let [path, uri] = [rules.to_str().unwrap(), &mongod.uri()];
    let filled = support::process::docward(&["backfill", "paths", "--rules", path, "--upstream", uri]);
    assert!(String::from_utf8_lossy(&filled.stdout).contains("set 1"), "{filled:?}");
    mongod.stop();
    let log = mongod.log_file();
    let report = audit(&rules, &[&log]);
    // What is rejected is not sent.
    assert!((35..=written + 1).contains(&report["commands"].as_u64().unwrap()), "{written} {report:#}");
    assert!(report["sources"][0]["own"].as_u64().unwrap() > 30, "{report:#}");
    for rule in report["rules"].as_array().unwrap() {
        let apps: Vec<&Value> = rule["apps"].as_array().unwrap().iter().map(|app| &app["app"]).collect();
        assert!(apps.iter().all(|app| matches!(app.as_str(), Some("billing" | "(no appName)"))), "{rule:#}");
    }
    let suggested = support::process::docward(&["suggest", log.to_str().unwrap()]);
    for text in [report.to_string(), String::from_utf8(suggested.stdout).unwrap()] {
        assert!(!text.contains("docward:") && !text.contains("docwardEnds"), "{text}");
    }
}
