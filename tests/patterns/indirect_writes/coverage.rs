//! The output of `docward check --coverage` for people and scripts; the engine's tests show that it is correct.

use std::process::{Command, Output};

use serde_json::Value;
use support::process::docward_executable;

const RULES: &str = r#"
version: 1
rules:
  - { name: orders, namespace: [shop.orders, "*.carts"], except: { apps: [migrator-*], users: [admin.root] }, replacement: {} }
  - { name: tried, namespace: shop.orders, mode: shadow, unsupported: allow, bounds: { field: n, min: 0 } }
  - name: names
    namespace: social.people
    copies: [{ into: social.posts, key: author.id, fields: { name: author.name } }]
  - { name: recorded, namespace: shop.bills, history: { into: bills_history, keep: 10 } }
"#;

fn check(rules: &str, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yaml");
    std::fs::write(&file, rules).unwrap();
    Command::new(docward_executable()).args(["check", "--coverage"]).args(arguments).arg(file).output().unwrap()
}

fn list(output: &Output) -> Vec<Value> {
    let read: Value = serde_json::from_slice(&output.stdout).unwrap();
    read.as_array().unwrap().clone()
}

/// Sorted.
fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn the_table_lists_the_handling_of_every_command() {
    let output = check(RULES, &[]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let words: Vec<String> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for expected in [
        "orders (replacement) on shop.orders, *.carts",
        "except apps migrator-*: docward forwards everything of these clients and logs it",
        "except users admin.root: docward forwards everything of these clients and logs it",
        "forward insert insert, bulkWrite",
        "evaluate replacement update, findAndModify, findandmodify, bulkWrite",
        "evaluate update by pipeline update, findAndModify, findandmodify, bulkWrite",
        "forward read find, count, distinct, aggregate, mapReduce, mapreduce",
        "forward aggregation that reads it aggregate",
        "reject aggregation into it aggregate",
        "reject unknown command on it",
        "reject write to the buckets of it",
        "reject legacy opcode OP_INSERT, OP_UPDATE, OP_DELETE, OP_QUERY",
        "forward definition of it create, collMod, createIndexes, createSearchIndexes, updateSearchIndex, drop, \
         dropDatabase, deleteIndexes, dropIndexes, dropSearchIndex",
        "recorded (history) on shop.bills",
        "recorded (history) on shop.bills_history",
        "evaluate definition of it create, collMod, createIndexes, createSearchIndexes, updateSearchIndex, drop, \
         dropDatabase, deleteIndexes, dropIndexes, dropSearchIndex",
        "mode: shadow: docward forwards everything and only counts and logs decisions",
        "unsupported: allow: docward forwards statements that the rule cannot analyse",
        "allow applyOps on it applyOps",
        "names (copies) on social.people",
        "names (copies) on social.posts",
    ] {
        assert!(words.iter().any(|line| line == expected), "{expected:?} is not in\n{text}");
    }
}

#[test]
fn the_json_has_the_documented_shape() {
    let output = check(RULES, &["--format", "json"]);
    assert!(output.status.success(), "{output:?}");
    let entries = list(&output);
    assert_eq!(entries.len(), 6, "copies and history have two kinds of collections");
    for entry in &entries {
        let expected = ["rule", "pattern", "namespaces", "mode", "unsupported", "except", "only", "accesses"];
        assert_eq!(keys(entry), expected);
        for access in entry["accesses"].as_array().unwrap() {
            assert_eq!(keys(access), ["access", "commands", "outcome"]);
            assert!(["evaluate", "reject", "allow", "forward"].contains(&access["outcome"].as_str().unwrap()));
        }
    }
    assert_eq!(entries[0]["except"]["users"], serde_json::json!(["admin.root"]));
    assert_eq!((entries[1]["mode"].as_str(), entries[1]["unsupported"].as_str()), (Some("shadow"), Some("allow")));
}

#[test]
fn rules_that_do_not_load_have_no_coverage() {
    let output = check("version: 1\nrules:\n  - { name: x, namespace: a.b, replacment: {} }\n", &["--format", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let entries = list(&output);
    assert!(entries[0].get("message").is_some() && entries[0].get("ways").is_none(), "{entries:?}");
}
