//! `docward check --upstream --data` and `docward backfill` on a real mongod: bad data of every kind, concurrent
//! writers, and a process that is killed. `odd_shapes`: values on the way to a field that are not documents, arrays, and
//! types that rules accept beside the usual one.

mod odd_shapes;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bson::{Bson, Document, doc, oid::ObjectId};
use serde_json::Value;
use support::mongod::Mongod;
use support::process::{docward, docward_executable, poll};
use support::raw::Client;
use support::replica_set::ReplicaSet;

const RULES: &str = "\
version: 1
rules:
  - { name: jobs, namespace: DB.jobs, queue: { lease: 5m } }
  - { name: stock, namespace: DB.books, bounds: { field: available, min: 0, max: 9 } }
  - { name: record, namespace: DB.books, together: [available, checkout] }
  - { name: inbox, namespace: DB.inbox, bucket: { array: messages, count: count, limit: 3, opened: time } }
  - { name: numbers, namespace: DB.orders, sequence: { field: no, counter: no } }
  - { name: versions, namespace: DB.docs, replacement: { policy: check_version, version: version } }
  - { name: nodes, namespace: DB.nodes, tree: { separator: / } }
  - { name: devices, namespace: DB.devices, timestamps: { source: at, per: document, max_ahead: 10m } }
  - { name: states, namespace: DB.states, timestamps: { source: at, fields: [a, b] } }
  - { name: names, namespace: DB.users, copies: [{ into: DB.posts, key: user, fields: { name: user_name } }] }
  - { name: small, namespace: DB.logs, limits: { items: { events: 2, a.list: 1 }, document: 100B } }
  - { name: migrated, namespace: DB.people, schema_version: { field: v, current: 3, minimum: 2 } }
  - { name: off, namespace: DB.jobs, mode: disabled, together: [a, b] }
";

struct Fixture {
    database: String,
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self::with_rules(RULES)
    }

    fn with_rules(rules: &str) -> Self {
        let fixture = Self { database: Mongod::shared().fresh_database(), folder: tempfile::tempdir().unwrap() };
        std::fs::write(fixture.rules(), rules.replace("DB", &fixture.database)).unwrap();
        fixture
    }

    fn findings(&self) -> BTreeSet<String> {
        findings(&self.rules(), &Mongod::shared().uri(), &self.database)
    }

    fn rules(&self) -> std::path::PathBuf {
        self.folder.path().join("rules.yaml")
    }

    fn insert(&self, collection: &str, documents: Vec<Document>) {
        for part in documents.chunks(5000) {
            let reply = Mongod::shared().command(&self.database, doc! {"insert": collection, "documents": part});
            assert!(!reply.contains_key("writeErrors") && reply.get_f64("ok").unwrap() == 1.0, "{reply}");
        }
    }

    fn stored(&self, collection: &str) -> Vec<Document> {
        let find = doc! {"find": collection, "sort": {"_id": 1}, "batchSize": 100_000};
        let reply = Mongod::shared().command(&self.database, find);
        let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        batch.iter().map(|document| document.as_document().unwrap().clone()).collect()
    }

    fn count(&self, collection: &str, filter: Document) -> i32 {
        let count = doc! {"count": collection, "query": filter};
        Mongod::shared().command(&self.database, count).get_i32("n").unwrap()
    }

    fn backfill(&self, rule: &str, more: &[&str]) -> String {
        let (rules, uri) = (self.rules(), Mongod::shared().uri());
        let fixed = ["backfill", rule, "--rules", rules.to_str().unwrap(), "--upstream", &uri];
        let done = docward(&[&fixed, more].concat());
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().replace(&self.database, "DB")
    }
}

/// What `check --data` reports about stored documents, without the consequences.
fn findings(rules: &Path, uri: &str, database: &str) -> BTreeSet<String> {
    let arguments = ["check", rules.to_str().unwrap(), "--upstream", uri, "--data", "--format", "json"];
    let done = docward(&arguments);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let found: Value = serde_json::from_slice(&done.stdout).unwrap();
    let data = found.as_array().unwrap().iter().filter(|one| one["code"] == "R0036");
    let text = |one: &Value| {
        let message = one["message"].as_str().unwrap().replace(database, "DB");
        let (message, _) = message.rsplit_once(": ").unwrap();
        let fixed = if one["help"].is_string() { " backfill" } else { "" };
        format!("{message}{fixed}")
    };
    data.map(text).collect()
}

fn expected(lines: &[&str]) -> BTreeSet<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

fn store_bad_data(fixture: &Fixture) {
    let date = bson::DateTime::from_millis;
    let late = bson::DateTime::from_millis(bson::DateTime::now().timestamp_millis() + 86_400_000);
    fixture.insert(
        "jobs",
        vec![
            doc! {"_id": 1},
            doc! {"_id": 2, "try": 3, "locked": true, "tlocked": bson::DateTime::now()},
            doc! {"_id": 3, "try": 1, "locked": "w1"},
            doc! {"_id": 4, "try": "x"},
            doc! {"_id": 5, "try": null, "locked": true, "tlocked": "noon"},
            doc! {"_id": 6, "try": 0, "locked": 0},
            doc! {"_id": 7, "try": "NaN".parse::<bson::Decimal128>().unwrap()},
            doc! {"_id": 8, "try": f64::INFINITY},
            doc! {"_id": 9, "try": 1, "locked": 1, "tlocked": "-Infinity".parse::<bson::Decimal128>().unwrap()},
            doc! {"_id": 10, "try": 1, "locked": true, "tlocked": late},
            doc! {"_id": 11, "try": 1, "locked": true, "tlocked": bson::Timestamp { time: 1, increment: 1 }},
        ],
    );
    fixture.insert(
        "books",
        vec![
            doc! {"_id": 1, "available": -3, "checkout": []},
            doc! {"_id": 2, "available": 5.5, "checkout": [1]},
            doc! {"_id": 3, "available": "many", "checkout": []},
            doc! {"_id": 4, "checkout": []},
            doc! {"_id": 5, "available": 10},
            doc! {"_id": 6, "available": f64::NAN, "checkout": []},
            doc! {"_id": 7, "available": "-Infinity".parse::<bson::Decimal128>().unwrap(), "checkout": []},
        ],
    );
    let opened = ObjectId::parse_str("65f000000000000000000001").unwrap();
    fixture.insert(
        "inbox",
        vec![
            doc! {"_id": opened, "messages": [1, 2], "count": 7},
            doc! {"_id": 2, "messages": [1]},
            doc! {"_id": 3, "count": 4},
            doc! {"_id": 4, "messages": "x", "count": 0},
            doc! {"_id": 5, "messages": [1, 2, 3, 4], "count": 4.0, "time": date(0)},
        ],
    );
    fixture.insert(
        "orders",
        vec![
            doc! {"_id": 1, "no": 1},
            doc! {"_id": 2, "no": 2},
            doc! {"_id": 3, "no": 2_i64},
            doc! {"_id": 4},
            doc! {"_id": 5, "no": "7"},
            doc! {"_id": 6, "no": 41.5},
            doc! {"_id": 7, "no": f64::INFINITY},
            doc! {"_id": 8, "no": [99]},
        ],
    );
    fixture.insert("counters", vec![doc! {"_id": "no", "seq": 5}]);
    fixture.insert("docs", vec![doc! {"_id": 1}, doc! {"_id": 2, "version": 3}, doc! {"_id": 3, "version": null}]);
    fixture.insert(
        "nodes",
        vec![
            doc! {"_id": "Books", "parent": null},
            doc! {"_id": "Programming", "parent": "Books", "path": "/Books/"},
            doc! {"_id": "DB", "parent": "Programming", "path": "/Wrong/"},
            doc! {"_id": "Mongo", "parent": "DB", "path": "/Wrong/DB/"},
            doc! {"_id": "Lost", "parent": "None"},
            doc! {"_id": "A", "parent": "B", "path": "/B/"},
            doc! {"_id": "B", "parent": "A", "path": "/A/"},
            doc! {"_id": 7, "path": "/7/"},
            doc! {"_id": 8, "parent": 7.0, "path": "/7/"},
            doc! {"_id": 9, "parent": 8_i64},
            doc! {"_id": "Odd", "path": ["Books"]},
            doc! {"_id": "Below", "parent": "Odd", "path": "/Odd/"},
        ],
    );
    fixture.insert(
        "devices",
        vec![
            doc! {"_id": 1, "at": date(1000), "temp": 4},
            doc! {"_id": 2, "at": date(1000), "last_modified": late},
            doc! {"_id": 3, "temp": 1},
        ],
    );
    fixture.insert(
        "states",
        vec![
            doc! {"_id": 1, "at": date(1000), "a": 4, "c": 5},
            doc! {"_id": 2, "at": date(1000), "a": 4, "last_modified": 7},
            doc! {"_id": 3, "at": date(1000), "a": 4, "last_modified": {"a": date(0)}},
        ],
    );
    fixture.insert(
        "logs",
        vec![
            doc! {"_id": 1, "events": [1, 2], "a": {"list": "x"}},
            doc! {"_id": 2, "events": [1, 2, 3], "a": {"list": [1, 2]}},
            doc! {"_id": 3, "events": 7, "text": "x".repeat(100)},
        ],
    );
    fixture.insert(
        "people",
        vec![
            doc! {"_id": 1, "v": 2},
            doc! {"_id": 2, "v": 3.0},
            doc! {"_id": 3},
            doc! {"_id": 4, "v": 1},
            doc! {"_id": 5, "v": 4_i64},
        ],
    );
    fixture.insert("users", vec![doc! {"_id": 1, "name": "Ann"}, doc! {"_id": 2, "name": "Bob"}]);
    fixture.insert(
        "posts",
        vec![doc! {"_id": 1, "user": 1, "user_name": "Ann"}, doc! {"_id": 2, "user": 2, "user_name": "Rob"}],
    );
}

/// What only people can correct.
const NOT_CORRECTED: [&str; 20] = [
    "`jobs`: 1 document of DB.jobs with a lock whose `tlocked` is in the future (_id: 10)",
    "`stock`: 2 documents of DB.books whose `available` is NaN or infinite (_id: 6, 7)",
    "`stock`: 1 document of DB.books with `available` below 0 (_id: 1)",
    "`stock`: 1 document of DB.books with `available` above 9 (_id: 5)",
    "`stock`: 1 document of DB.books whose `available` is not a number (_id: 3)",
    "`stock`: 1 document of DB.books without `available` (_id: 4)",
    "`record`: 2 documents of DB.books with some of `available`, `checkout`, but not all (_id: 4, 5)",
    "`inbox`: 1 document of DB.inbox whose `messages` is not an array (_id: 4)",
    "`inbox`: 1 document of DB.inbox with more than 3 elements in `messages` (_id: 5)",
    "`numbers`: 2 documents of DB.orders that share their `no` with others (_id: 2, 3)",
    "`numbers`: 1 document of DB.orders without `no` (_id: 4)",
    "`numbers`: 2 documents of DB.orders whose `no` is not a number (_id: 5, 8)",
    "`nodes`: 1 document of DB.nodes whose `parent` is not stored (_id: \"Lost\")",
    "`nodes`: 2 documents of DB.nodes that are below themselves (_id: \"A\", \"B\")",
    "`small`: 1 document of DB.logs with more than 2 elements in `events` (_id: 2)",
    "`small`: 1 document of DB.logs with more than 1 element in `a.list` (_id: 2)",
    "`small`: 1 document of DB.logs with more than 100 bytes (_id: 3)",
    "`migrated`: 1 document of DB.people without `v` (_id: 3)",
    "`migrated`: 1 document of DB.people whose `v` is below 2 (_id: 4)",
    "`migrated`: 1 document of DB.people whose `v` is above 3 (_id: 5)",
];
const NOT_CORRECTED_TIMES: [&str; 3] = [
    "`devices`: 1 document of DB.devices without `last_modified` and without a time in `at` (_id: 3)",
    "`devices`: 1 document of DB.devices with a timestamp further ahead of the server's clock than `max_ahead` (_id: 2)",
    "`states`: 1 document of DB.states whose `last_modified` is not a document (_id: 2)",
];
/// What `backfill` corrects.
const CORRECTED: [&str; 12] = [
    "`jobs`: 3 documents of DB.jobs whose `try` is not a number that a claim can count (_id: 4, 7, 8) backfill",
    "`jobs`: 2 documents of DB.jobs without `try` (_id: 1, 5) backfill",
    "`jobs`: 1 document of DB.jobs with a lock and without `tlocked` (_id: 3) backfill",
    "`jobs`: 2 documents of DB.jobs with a lock whose `tlocked` is not a time (_id: 5, 9) backfill",
    "`inbox`: 2 documents of DB.inbox whose `count` is not the number of elements in `messages` \
     (_id: ObjectId(\"65f000000000000000000001\"), 2) backfill",
    "`inbox`: 1 document of DB.inbox without `messages` and with another `count` than 0 (_id: 3) backfill",
    "`inbox`: 1 document of DB.inbox without `time` (_id: ObjectId(\"65f000000000000000000001\")) backfill",
    "`numbers`: 1 document of DB.orders with a `no` above the counter `no` (_id: 6) backfill",
    "`versions`: 2 documents of DB.docs without `version` (_id: 1, 3) backfill",
    "`nodes`: 5 documents of DB.nodes whose `path` does not agree with `parent` (_id: \"DB\", 7, 8, 9, \"Odd\") backfill",
    "`devices`: 1 document of DB.devices without `last_modified` and with `at` (_id: 1) backfill",
    "`states`: 1 document of DB.states without `last_modified` and with `at` (_id: 1) backfill",
];

#[test]
fn bad_data_of_every_kind_is_found_and_what_can_be_set_is_set() {
    let fixture = Fixture::new();
    store_bad_data(&fixture);
    let check = || fixture.findings();
    let copies = "`names`: 1 document of DB.posts whose copies differ from the original (_id: 2) backfill";
    let all = [&NOT_CORRECTED[..], &NOT_CORRECTED_TIMES, &CORRECTED, &[copies]].concat();
    // 8 is compared with the path of 7, which is wrong.
    assert_eq!(check(), expected(&all));

    let rules = ["jobs", "stock", "inbox", "numbers", "versions", "nodes", "devices", "states", "names"];
    let before: Vec<Vec<Document>> =
        ["jobs", "inbox", "nodes", "posts", "counters"].map(|name| fixture.stored(name)).into();
    for rule in rules {
        let printed = fixture.backfill(rule, &["--dry-run"]);
        assert!(printed.contains(if rule == "stock" { "nothing to set" } else { "dry run" }), "{printed}");
    }
    let printed = fixture.backfill("--all", &["--dry-run"]);
    assert!(printed.starts_with("jobs:\nDB.jobs: `try: 0`: found 2, set 0\n"), "{printed}");
    assert!(printed.contains("\nnames:\n") && printed.ends_with("\ndry run: nothing was changed\n"), "{printed}");
    assert!(!printed.contains("stock:") && !printed.contains("off:"), "{printed}");
    let after: Vec<Vec<Document>> =
        ["jobs", "inbox", "nodes", "posts", "counters"].map(|name| fixture.stored(name)).into();
    assert_eq!(before, after, "a dry run changes nothing");
    assert_eq!(check(), expected(&all));

    let printed = fixture.backfill("--all", &[]);
    assert!(printed.contains("DB.jobs: `try: 0`: found 2, set 2"), "{printed}");
    assert_eq!(check(), expected(&[&NOT_CORRECTED[..], &NOT_CORRECTED_TIMES].concat()));
    let field = |collection: &str, field: &str| {
        let stored = fixture.stored(collection);
        stored.iter().map(|document| document.get(field).cloned().unwrap_or(Bson::Undefined)).collect::<Vec<_>>()
    };
    assert_eq!(field("inbox", "count"), [Bson::Int32(1), 0.into(), 0.into(), 4.0.into(), 2.into()]);
    assert_eq!(field("counters", "seq"), [Bson::Int64(42)], "after 41.5 comes 43");
    assert_eq!(field("docs", "version"), [Bson::Int32(1), 3.into(), 1.into()]);
    let paths = field("nodes", "path");
    let text = |path: &str| Bson::from(path);
    assert_eq!(paths[..3], [Bson::Null, text("/7/"), text("/7/8/")]);
    assert!(
        paths.contains(&text("/Books/Programming/")) && paths.contains(&text("/Books/Programming/DB/")),
        "{paths:?}"
    );
    assert_eq!(field("states", "last_modified")[0], doc! {"a": bson::DateTime::from_millis(1000)}.into());
    assert_eq!(field("posts", "user_name"), [text("Ann"), text("Bob")]);
    assert!(fixture.backfill("jobs", &[]).contains("found 0, set 0"), "a second run has nothing to do");
}

/// Jobs without `try`, which a worker claims in any order, some of them several times, while they are set to 0.
#[test]
fn a_backfill_overwrites_no_concurrent_write() {
    const JOBS: usize = 30_000;
    let fixture = Fixture::new();
    fixture.insert("jobs", (0..JOBS as i32).map(|id| doc! {"_id": id}).collect());
    let ended = AtomicBool::new(false);
    let claimed = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut client = Client::connect(&Mongod::shared().address());
            let mut claims = vec![0; JOBS];
            let mut random = 1_u64;
            while !ended.load(Ordering::Relaxed) {
                let mut updates = Vec::new();
                for _ in 0..50 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let id = (random >> 33) as usize % JOBS;
                    claims[id] += 1;
                    updates.push(doc! {"q": {"_id": id as i32}, "u": {"$inc": {"try": 1}}});
                }
                let reply = client.command(&fixture.database, doc! {"update": "jobs", "updates": updates});
                assert_eq!(reply.get_i32("nModified").unwrap(), 50, "{reply}");
            }
            claims
        });
        let printed = fixture.backfill("jobs", &[]);
        ended.store(true, Ordering::Relaxed);
        assert!(!printed.contains("`try: 0`: found 0") && !printed.contains("set 0\nDB.jobs: `try` to 0"), "{printed}");
        worker.join().unwrap()
    });
    assert!(claimed.iter().filter(|count| **count > 0).count() > JOBS / 10, "the worker was too slow");
    let stored = fixture.stored("jobs");
    let lost: Vec<usize> = (0..JOBS).filter(|id| stored[*id].get_i32("try").unwrap() != claimed[*id]).collect();
    assert!(lost.is_empty(), "{} jobs lost a claim", lost.len());
}

#[test]
fn a_killed_backfill_is_continued_by_the_next_one() {
    const JOBS: i32 = 60_000;
    let fixture = Fixture::new();
    fixture.insert("jobs", (0..JOBS).map(|id| doc! {"_id": id, "text": "x".repeat(100)}).collect());
    let lacking = || fixture.count("jobs", doc! {"try": {"$exists": false}});
    let rules = fixture.rules();
    let mut child = Command::new(docward_executable())
        .args(["backfill", "jobs", "--rules", rules.to_str().unwrap(), "--upstream", &Mongod::shared().uri()])
        .spawn()
        .unwrap();
    poll(Duration::from_secs(60), || (lacking() < JOBS - 2000).then_some(())).expect("it must begin");
    child.kill().unwrap();
    child.wait().unwrap();
    let left = lacking();
    assert!(left > 0, "it was killed too late");
    let printed = fixture.backfill("jobs", &[]);
    let set = printed.split("`try: 0`: found ").nth(1).unwrap().split(',').next().unwrap();
    // The server may have carried out one more update of the killed process.
    let set: i32 = set.parse().unwrap();
    assert!((left - 500..=left).contains(&set), "{left} were left: {printed}");
    assert_eq!(lacking(), 0);
}

/// More documents than the server returns at a time.
#[test]
fn duplicates_and_stale_copies_are_found_across_batches() {
    const COUNT: i32 = 2501;
    let fixture = Fixture::new();
    let number = |id: i32| if id % 3 == 0 { Bson::Int64(i64::from(id) % 1001) } else { Bson::Int32(id % 1001) };
    fixture.insert("orders", (0..COUNT).map(|id| doc! {"_id": id, "no": number(id)}).collect());
    fixture.insert("users", vec![doc! {"_id": 1, "name": "Ann"}]);
    let name = |id: i32| if id < 1200 { "Ann" } else { "Bob" };
    fixture.insert("posts", (0..COUNT).map(|id| doc! {"_id": id, "user": 1, "user_name": name(id)}).collect());
    let found = fixture.findings();
    let has = |text: &str| found.iter().any(|line| line.starts_with(text));
    assert!(
        has("`numbers`: 2501 documents of DB.orders that share their `no` with others (_id: 0, 1001, 2002, "),
        "{found:?}"
    );
    let stale = "`names`: 1301 documents of DB.posts whose copies differ from the original (_id: 1200, 1201, 1202, ";
    assert!(has(stale), "{found:?}");
}

#[test]
fn a_check_reads_a_secondary() {
    let set = ReplicaSet::start(2);
    set.await_settled();
    let primary = set.member(set.primary().unwrap());
    let secondary = set.member(set.secondaries()[0]);
    let jobs = doc! {"insert": "jobs", "documents": [{"_id": 1}], "writeConcern": {"w": 2}};
    primary.command("shop", jobs);
    for member in [primary, secondary] {
        assert_eq!(member.command("admin", doc! {"profile": 0, "slowms": -1}).get_f64("ok").unwrap(), 1.0);
    }
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.yaml");
    std::fs::write(&rules, "version: 1\nrules:\n  - { name: jobs, namespace: shop.jobs, queue: { lease: 5m } }\n")
        .unwrap();
    let found = findings(&rules, &set.uri(), "none");
    assert_eq!(found, expected(&["`jobs`: 1 document of shop.jobs without `try` (_id: 1) backfill"]));
    // The primary explains what the rule needs of the server.
    let read = |member: &Mongod| member.whole_log().contains(r#""command":{"aggregate":"jobs""#);
    assert!(read(secondary) && !read(primary));
}
