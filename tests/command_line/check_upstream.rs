//! `docward check --upstream`: what rules require and a real deployment lacks.

use std::process::{Command, Output};

use bson::{Document, doc};
use serde_json::Value;
use support::mongod::{Kind, Mongod};
use support::process::{docward, docward_executable};

fn check(arguments: &[&str]) -> Output {
    Command::new(docward_executable()).arg("check").args(arguments).output().unwrap()
}

/// The codes and messages for one rule with these settings, with `DB` as the database's name.
fn warnings(database: &str, settings: &str) -> Vec<String> {
    warnings_of(Mongod::shared(), database, settings)
}

fn warnings_of(mongod: &Mongod, database: &str, settings: &str) -> Vec<String> {
    let rules = format!("version: 1\nrules:\n  - {{ name: r, {settings} }}\n").replace("DB", database);
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    std::fs::write(file.path(), rules).unwrap();
    let done = check(&[file.path().to_str().unwrap(), "--upstream", &mongod.uri(), "--format", "json"]);
    assert!(done.status.success(), "{settings}: {done:?}");
    let found: Value = serde_json::from_slice(&done.stdout).unwrap();
    let line = |one: &Value| {
        assert!(one["severity"] == "warning" && one["line"] == 3, "{one}");
        let text = ["code", "message", "help"].map(|key| one[key].as_str().unwrap_or_default());
        text.join(" ").replace(database, "DB")
    };
    found.as_array().unwrap().iter().map(line).collect()
}

fn create_index(database: &str, collection: &str, key: Document, options: Document) {
    let mut index = doc! { "key": key, "name": format!("i{}", bson::oid::ObjectId::new()) };
    index.extend(options);
    let done = Mongod::shared().command(database, doc! { "createIndexes": collection, "indexes": [index] });
    assert_eq!(done.get_f64("ok").unwrap(), 1.0, "{done}");
}

#[test]
fn what_a_standalone_server_lacks_is_a_warning() {
    let standalone = Mongod::start(Kind::Standalone);
    let tree = warnings_of(&standalone, "none", "namespace: none.c, tree: { parent: parent, path: path }");
    let expected = "R0037 `r` needs transactions (MongoDB 4.0 or later), and the upstream is a standalone server start";
    assert!(tree.iter().any(|line| line.starts_with(expected)), "{tree:?}");
    let bounds = warnings_of(&standalone, "none", "namespace: none.c, bounds: { field: n, min: 0 }");
    assert!(!bounds.iter().any(|line| line.starts_with("R0037")), "{bounds:?}");
}

#[test]
fn a_deployment_that_cannot_keep_a_history_is_a_warning() {
    let settings = "namespace: DB.orders, history: { into: orders_history, keep: 10 }";
    let standalone = Mongod::start(Kind::Standalone);
    standalone.command("none", doc! { "create": "orders" });
    let found = warnings_of(&standalone, "none", settings);
    let expected = "R0037 `r` needs change streams with pre-images";
    assert!(found.iter().any(|line| line.starts_with(expected) && line.contains("standalone")), "{found:?}");
    let database = &Mongod::shared().fresh_database();
    Mongod::shared().command(database, doc! { "create": "orders", "viewOn": "all", "pipeline": [] });
    let found = warnings(database, settings);
    let expected = "R0038 `r`: the history of DB.orders cannot be kept: it is a view or a time series";
    assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
    // docward's own user may switch pre-images on.
    Mongod::shared().command(database, doc! { "drop": "orders" });
    Mongod::shared().command(database, doc! { "create": "orders" });
    assert_eq!(warnings(database, settings), [] as [&str; 0]);
}

#[test]
fn documents_of_other_schema_versions_are_counted() {
    let database = &Mongod::shared().fresh_database();
    let settings = "namespace: DB.people, schema_version: { field: v, current: 3, minimum: 2 }";
    let insert = |documents: Vec<Document>| {
        Mongod::shared().command(database, doc! { "insert": "people", "documents": documents });
    };
    insert(vec![doc! { "v": 3 }, doc! { "v": 3 }]);
    assert_eq!(warnings(database, settings), [] as [&str; 0], "all have the current version");
    insert(vec![doc! { "v": 2 }, doc! { "v": 2 }, doc! { "v": "x" }, doc! {}]);
    let found = warnings(database, settings);
    let [line] = &found[..] else { panic!("{found:?}") };
    assert!(line.starts_with("R0035 `r`: DB.people has documents of other versions than 3; by `v`: "), "{line}");
    for count in ["2 with 3", "2 with 2", "1 with \"no version\""] {
        assert!(line.contains(count), "{line}");
    }
}

#[test]
fn missing_indexes_and_collections_are_warnings() {
    let database = &Mongod::shared().fresh_database();
    for collection in ["orders", "invoices", "plain", "nodes", "cards"] {
        Mongod::shared().command(database, doc! { "create": collection });
    }
    Mongod::shared().command(database, doc! { "create": "seen", "viewOn": "orders", "pipeline": [] });
    create_index(database, "orders", doc! { "shop": 1, "no": 1 }, doc! { "unique": true });
    create_index(database, "invoices", doc! { "no": 1 }, doc! {});
    create_index(database, "nodes", doc! { "path": 1, "title": 1 }, doc! {});
    create_index(database, "plain", doc! { "title": 1, "path": 1 }, doc! {});
    create_index(database, "plain", doc! { "path": "hashed" }, doc! {});
    create_index(database, "plain", doc! { "path": 1 }, doc! { "hidden": true });
    create_index(database, "cards", doc! { "by": "hashed" }, doc! {});
    for (settings, expected) in [
        ("namespace: DB.orders, together: [a, b]", &[][..]),
        ("namespace: 'DB.*', together: [a, b]", &[]),
        ("namespace: DB.order, together: [a, b]", &["R0030 the deployment has no collection `DB.order`"]),
        ("namespace: ['DB.x*', DB.orders], together: [a, b]", &["R0030 `DB.x*` matches no collection"]),
        ("namespace: DB.none, mode: disabled, together: [a, b]", &[]),
        ("namespace: DB.orders, sequence: { field: no, counter: c }", &[]),
        ("namespace: DB.seen, sequence: { field: no, counter: c }", &["R0027 `r` has no effect on the view `DB.seen`"]),
        ("namespace: [DB.orders, DB.seen], frozen: a", &["R0027 `r` has no effect on the view `DB.seen`"]),
        ("namespace: 'DB.s*', frozen: a", &[]),
        ("namespace: DB.seen, deny: { operations: [find, update] }", &[]),
        ("namespace: DB.plain, sequence: { field: _id, counter: c, replace_generated: true }", &[]),
        (
            "namespace: 'DB.*s', sequence: { field: no, counter: c }",
            &[
                "R0025 `r` has its counter in DB.counters, whose documents get numbers",
                "R0031 `r` needs a unique index on `no`, and DB.cards, as 2 more collections, has none: a number",
            ],
        ),
        (
            "namespace: DB.invoices, sequence: { field: no, strategy: optimistic }",
            &["R0031 `r` needs a unique index on `no`, and DB.invoices has none: numbers ARE ASSIGNED TWICE"],
        ),
        ("namespace: DB.invoices, bucket: { array: a, count: n, limit: 5 }", &[]),
        ("namespace: DB.orders, bucket: { array: a, count: n, limit: 5, opened: no }", &[]),
        (
            "namespace: DB.orders, bucket: { array: a, count: n, limit: 5, opened: time }",
            &["R0034 `r`: DB.orders has the unique index `i"],
        ),
        ("namespace: DB.nodes, tree: {}", &[]),
        ("namespace: DB.plain, tree: {}", &["R0032 `r` needs an index on `path`, and DB.plain has none: every move"]),
        ("namespace: DB.orders, copies: [{ into: DB.cards, key: by, fields: { a: b } }]", &[]),
        (
            "namespace: DB.orders, copies: [{ into: DB.plain, key: by, fields: { a: b } }]",
            &["R0032 `r` needs an index on `by`, and DB.plain has none: every change"],
        ),
    ] {
        let found = warnings(database, settings);
        let fits = found.len() == expected.len() && found.iter().zip(expected).all(|(f, e)| f.starts_with(e));
        assert!(fits, "{settings}: {found:#?}");
    }
    let [optimistic] = &*warnings(database, "namespace: DB.invoices, sequence: { field: no, strategy: optimistic }")
    else {
        panic!()
    };
    let command = r#"db.getSiblingDB("DB").getCollection("invoices").createIndex({"no": 1}, {unique: true})"#;
    assert!(optimistic.ends_with(command), "{optimistic}");
}

#[test]
fn an_unreachable_deployment_is_an_error() {
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/rules/bounds.yaml");
    let done = check(&[rules, "--upstream", "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=50"]);
    let printed = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.code() == Some(1) && printed.contains("docward: cannot inspect the deployment: "), "{printed}");
    let alone = check(&[rules, "--service", "mongodb://127.0.0.1:1"]);
    assert_eq!(alone.status.code(), Some(64), "{alone:?}");
}

/// A person types the connection string that works in mongosh.
#[test]
fn tools_log_in_as_the_user_of_upstream() {
    let mongod = Mongod::shared_with_access_control();
    let database = &mongod.fresh_database();
    let uri = format!("mongodb://root:secret@{}/", mongod.address());
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    let rules = format!("version: 1\nrules:\n  - {{ name: r, namespace: {database}.c, queue: {{ lease: 5m }} }}\n");
    std::fs::write(file.path(), rules).unwrap();
    let path = file.path().to_str().unwrap();
    let done = check(&[path, "--upstream", &uri]);
    assert!(done.status.success(), "{done:?}");
    let done = docward(&["backfill", "r", "--rules", path, "--upstream", &uri]);
    assert!(done.status.success(), "{done:?}");
}

#[test]
fn members_that_the_configuration_does_not_name_are_warnings() {
    let mongod = Mongod::shared();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("docward.yaml");
    std::fs::write(&config, "members: {'other:1': {listen: '127.0.0.1:0'}}\n").unwrap();
    let done = check(&["--config", config.to_str().unwrap(), "--upstream", &mongod.uri()]);
    let shown = String::from_utf8(done.stderr).unwrap();
    let address = mongod.address();
    assert!(shown.contains(&format!("`members` does not name {address}: clients do not see it")), "{shown}");
    assert!(shown.contains("`members` names other:1, which is not a member of the replica set"), "{shown}");
}
