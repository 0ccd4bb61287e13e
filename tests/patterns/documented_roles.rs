//! The privileges that the pages give to docward's own user suffice for each pattern and tool, alone, for what it sends.

use std::process::Command;
use std::time::{Duration, Instant};

use bson::{Bson, Document, doc};
use mongodb::Client;
use support::mongod::{Kind, Mongod};
use support::process::{TIMEOUT, docward_executable};
use support::proxy::Docward;

/// The privileges of docs/tls.md below the comment that begins so, up to the next one of a pattern, and those of the
/// leases.
fn documented(begin: &str) -> Vec<Document> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/tls.md")).unwrap();
    let (_, role) = page.split_once("createRole({ role: \"docward\"").unwrap();
    let (role, _) = role.split_once("\n]})").unwrap();
    let blocks = role.split("\n\n");
    let block = blocks.clone().find(|block| block.contains(&format!("// {begin}"))).unwrap();
    let leases = role.lines().filter(|line| line.contains("\"leases\"") && begin != "overrides");
    let privilege = |line: &str| {
        let mut quoted = line.split('"').skip(1).step_by(2).map(str::to_owned);
        let (db, collection) = (quoted.next()?, quoted.next()?);
        Some(doc! { "resource": { "db": db, "collection": collection }, "actions": quoted.collect::<Vec<_>>() })
    };
    block.lines().chain(leases).filter_map(privilege).collect()
}

/// The privileges that docs/patterns name in a sentence.
fn named(pattern: &str) -> Vec<Document> {
    let (collection, actions): (_, &[&str]) = match pattern {
        "optimistic" => ("orders", &["find"]),
        _ => ("devices", &["find", "update"]),
    };
    vec![doc! { "resource": { "db": "shop", "collection": collection }, "actions": actions }]
}

const RULES: [(&str, &str); 6] = [
    ("overrides", "  - { name: r, namespace: shop.orders, deny: { operations: [drop] } }\n"),
    ("sequence", "  - { name: r, namespace: shop.orders, sequence: { field: no, counter: no, start: after_max } }\n"),
    (
        "copies",
        "  - name: r\n    namespace: shop.customers\n    copies:\n      - { into: shop.orders, key: customer.id, fields: { name: customer.name } }\n",
    ),
    ("history", "  - { name: r, namespace: shop.invoices, history: { into: invoices_history, keep: 10 } }\n"),
    ("optimistic", "  - { name: r, namespace: shop.orders, sequence: { field: no, strategy: optimistic } }\n"),
    ("reset-clock", "  - { name: r, namespace: shop.devices, timestamps: { source: at } }\n"),
];

/// Options for applications, which the connection string of docward's own user may have too.
const OPTIONS: &str = "w=1&journal=false&wtimeoutMS=1&readConcernLevel=majority&readPreference=secondaryPreferred";

/// Whether a command of docward's own states what it needs, so that no default of the deployment applies.
fn states_its_needs(command: &Document) -> bool {
    let in_transaction = command.contains_key("autocommit");
    let name = command.keys().next().unwrap().as_str();
    let concern = |name: &str| command.get_document(name).ok();
    match name {
        // The first command of a transaction has its read concern, and the commit its write concern.
        _ if in_transaction => !command.contains_key("startTransaction") || concern("readConcern").is_some(),
        // Watches what a majority has, and has no time limit.
        "aggregate" if command.to_string().contains("$changeStream") => true,
        "find" | "aggregate" | "count" | "distinct" => {
            let level = concern("readConcern").and_then(|one| one.get_str("level").ok());
            level.is_some() && command.get("maxTimeMS").is_some()
        }
        "insert" | "update" | "delete" | "findAndModify" | "create" | "createIndexes" | "collMod" => {
            concern("writeConcern") == Some(&doc! { "w": "majority" })
        }
        _ => true,
    }
}

/// Also under defaults that are meant for applications.
#[tokio::test]
async fn each_pattern_works_with_its_documented_role_alone() {
    let mongod = Mongod::start_with_access_control(Kind::ReplicaSet);
    let uri = |address: &str, user: &str| format!("mongodb://{user}:secret@{address}/?replicaSet=rs0&authSource=admin");
    let root = Client::with_uri_str(uri(&mongod.address(), "root")).await.unwrap();
    let (admin, shop) = (root.database("admin"), root.database("shop"));
    let folder = tempfile::tempdir().unwrap();
    let (read, write) = (doc! { "level": "majority" }, doc! { "w": 1, "wtimeout": 1 });
    let defaults = doc! { "setDefaultRWConcern": 1, "defaultReadConcern": read, "defaultWriteConcern": write };
    admin.run_command(defaults).await.unwrap();
    let profiled = [shop.clone(), root.database("docward")];
    for database in &profiled {
        database.run_command(doc! { "profile": 2 }).await.unwrap();
    }
    for (pattern, rule) in RULES {
        let privileges =
            if matches!(pattern, "optimistic" | "reset-clock") { named(pattern) } else { documented(pattern) };
        let role = doc! { "createRole": pattern, "privileges": privileges, "roles": [] };
        admin.run_command(role).await.unwrap();
        let user = doc! { "createUser": pattern, "pwd": "secret", "roles": [Bson::from(pattern)] };
        admin.run_command(user).await.unwrap();
        let rules = format!("version: 1\nrules:\n{rule}");
        let service = format!("{}&{OPTIONS}", uri(&mongod.address(), pattern));
        let upstream = format!("mongodb://{}/?replicaSet=rs0", mongod.address());
        let docward = Docward::before(&upstream).rules(&rules).argument("--service").argument(service.clone()).start();
        let through = Client::with_uri_str(uri(&docward.address(), "root")).await.unwrap().database("shop");
        let file = folder.path().join("rules.yaml");
        std::fs::write(&file, &rules).unwrap();
        let run = |arguments: &[&str]| {
            let mut command = Command::new(docward_executable());
            command.args(arguments).args([
                "--rules",
                file.to_str().unwrap(),
                "--upstream",
                &upstream,
                "--service",
                &service,
            ]);
            let output = command.output().unwrap();
            let printed =
                [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
            assert!(output.status.success(), "{pattern}: {arguments:?}: {printed}");
        };
        let until = async |collection: &str, filter: Document| {
            let deadline = Instant::now() + TIMEOUT;
            while shop.collection::<Document>(collection).count_documents(filter.clone()).await.unwrap() == 0 {
                assert!(Instant::now() < deadline, "{pattern}: {:?}", docward.log());
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        match pattern {
            "overrides" => run(&["mode", "r", "shadow", "--for", "1h", "--reason", "test"]),
            "sequence" => {
                through.collection("orders").insert_one(doc! { "_id": 1 }).await.unwrap();
                until("orders", doc! { "no": 1 }).await;
                run(&["backfill", "r"]);
            }
            "optimistic" => {
                let index = doc! { "key": { "no": 1 }, "name": "no", "unique": true };
                shop.run_command(doc! { "createIndexes": "orders", "indexes": [index] }).await.unwrap();
                for id in [11, 12] {
                    through.collection("orders").insert_one(doc! { "_id": id }).await.unwrap();
                }
                until("orders", doc! { "_id": 12, "no": { "$gt": 1 } }).await;
            }
            "reset-clock" => {
                let later = bson::DateTime::from_millis(4_000_000_000_000);
                shop.collection("devices")
                    .insert_one(doc! { "_id": 1, "last_modified": { "a": later } })
                    .await
                    .unwrap();
                run(&["reset-clock", "--rule", "r"]);
                until("devices", doc! { "_id": 1, "last_modified": { "$exists": false } }).await;
            }
            "copies" => {
                shop.collection("orders")
                    .insert_one(doc! { "_id": 2, "customer": { "id": 7, "name": "Ada" } })
                    .await
                    .unwrap();
                through.collection("customers").insert_one(doc! { "_id": 7, "name": "Emma" }).await.unwrap();
                until("orders", doc! { "customer.name": "Emma" }).await;
                run(&["repair", "--rule", "r"]);
            }
            _ => {
                let invoices = through.collection::<Document>("invoices");
                docward.wait_for_log("switched on pre-images");
                for n in 0..3 {
                    let set = doc! { "$set": { "n": n } };
                    invoices.update_one(doc! { "_id": 1 }, set).upsert(true).await.unwrap();
                }
                until("invoices_history", doc! { "_id.revision": 3 }).await;
            }
        }
        let sent = doc! { "user": format!("{pattern}@admin"), "op": { "$nin": ["update", "remove", "getmore"] } };
        let mut count = 0;
        for database in &profiled {
            let mut sent = database.collection::<Document>("system.profile").find(sent.clone()).await.unwrap();
            while sent.advance().await.unwrap() {
                let entry: Document = sent.deserialize_current().unwrap();
                let command = entry.get_document("command").unwrap();
                assert!(states_its_needs(command), "{pattern}: {command}");
                count += 1;
            }
        }
        assert!(count > 0, "{pattern}: the profile has no command of docward's own user");
    }
}

/// `check --data` needs the role `read` on the databases of the rules, for every pattern, and uses the file's own `upstream`.
/// One user with `readWrite` on them and the documented role suffices for it, `backfill` and `serve` (docs/faq.md).
#[tokio::test]
async fn stored_data_is_checked_and_set_with_the_documented_roles() {
    const RULES: &str = "version: 1
rules:
  - { name: bounds, namespace: shop.orders, bounds: { field: qty, min: 0 } }
  - { name: sequence, namespace: shop.orders, sequence: { field: no, counter: no } }
  - { name: history, namespace: shop.invoices, history: { into: invoices_history, keep: 10 } }
  - { name: replacement, namespace: shop.docs, replacement: { policy: check_version, version: version } }
  - { name: together, namespace: shop.docs, together: [a, b] }
  - { name: frozen, namespace: shop.docs, frozen: a }
  - { name: limits, namespace: shop.docs, limits: { document: 1KiB } }
  - { name: queue, namespace: shop.jobs, queue: { lease: 5m } }
  - { name: bucket, namespace: shop.inbox, bucket: { array: messages, count: count, limit: 3, opened: time } }
  - { name: tree, namespace: shop.nodes, tree: { separator: / } }
  - { name: timestamps, namespace: shop.devices, timestamps: { source: at } }
  - { name: versions, namespace: shop.people, schema_version: { field: v, current: 3, minimum: 2 } }
  - { name: copies, namespace: shop.users, copies: [{ into: blog.posts, key: user, fields: { name: user_name } }] }
";
    let mongod = Mongod::start_with_access_control(Kind::ReplicaSet);
    let uri = |user: &str| format!("mongodb://{user}:secret@{}/?replicaSet=rs0&authSource=admin", mongod.address());
    let root = Client::with_uri_str(uri("root")).await.unwrap();
    let privileges: Vec<Document> =
        ["overrides", "sequence", "copies", "history"].into_iter().flat_map(documented).collect();
    let role = doc! { "createRole": "docward", "privileges": privileges, "roles": [] };
    root.database("admin").run_command(role).await.unwrap();
    let on = |role: &str, databases: &[&str]| -> Vec<Bson> {
        databases.iter().map(|name| doc! { "role": role, "db": *name }.into()).collect()
    };
    let own = [vec![Bson::from("docward")], on("readWrite", &["shop", "blog"])].concat();
    for (user, roles) in [("reader", on("read", &["shop", "blog"])), ("some", on("read", &["shop"])), ("own", own)] {
        let created = doc! { "createUser": user, "pwd": "secret", "roles": roles };
        root.database("admin").run_command(created).await.unwrap();
    }
    let bad = doc! { "qty": -1, "no": 7, "a": 1, "messages": 1, "parent": 9, "at": 1, "user": 1 };
    for collection in ["orders", "invoices", "docs", "jobs", "inbox", "nodes", "devices", "people"] {
        root.database("shop").collection(collection).insert_one(bad.clone()).await.unwrap();
    }
    root.database("shop").collection("users").insert_one(doc! { "_id": 1, "name": "Ann" }).await.unwrap();
    root.database("blog").collection("posts").insert_one(bad).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("rules.yaml"), RULES).unwrap();
    let run = |command: &str, user: &str, arguments: &[&str]| {
        let config = folder.path().join("docward.yaml");
        let named = format!("members: {{ \"{}\": {{ listen: 127.0.0.1:27018 }} }}", mongod.address());
        let upstream = format!("mongodb://{}/?replicaSet=rs0", mongod.address());
        let own = format!("upstream: {upstream}\nservice: {}\nrules: [rules.yaml]\n{named}\n", uri(user));
        std::fs::write(&config, own).unwrap();
        let mut docward = Command::new(docward_executable());
        let output = docward.args([command, "--config"]).arg(&config).args(arguments).output().unwrap();
        let printed = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        (output.status.success(), printed)
    };
    let check = |user: &str, arguments: &[&str]| run("check", user, arguments);
    let (is_done, printed) = check("reader", &["--data"]);
    assert!(is_done && !printed.contains("privilege"), "{printed}");
    for rule in ["bounds", "sequence", "replacement", "together", "queue", "bucket", "tree", "versions", "copies"] {
        assert!(printed.contains(&format!("warning[R0036]: `{rule}`: 1 document of")), "{rule}: {printed}");
    }
    // Without the stored documents, and without a deployment.
    let (is_done, printed) = check("reader", &["--upstream"]);
    assert!(is_done && printed.contains("R0031") && !printed.contains("R0036"), "{printed}");
    assert!(!check("reader", &[]).1.contains("R0031"));
    let (is_done, printed) = check("some", &["--data"]);
    assert!(!is_done && printed.contains("blog"), "{printed}");
    // The user of `serve` as for all that it does.
    let (is_done, checked) = check("own", &["--data"]);
    assert!(is_done && checked.contains("`copies`: 1 document of"), "{checked}");
    let (is_done, printed) = run("backfill", "own", &["--all"]);
    assert!(is_done && printed.contains("shop.docs: `version: 1`: found 1, set 1"), "{printed}");
    let upstream = format!("mongodb://{}/?replicaSet=rs0", mongod.address());
    let docward = Docward::before(&upstream).rules(RULES).argument("--service").argument(uri("own")).start();
    docward.wait_for_log("switched on pre-images");
}
