//! The JSON Schema of rule files and docward's parser agree: both accept the same files, and both reject every error
//! that a schema can express.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use docward::config::SourceFile;
use docward::patterns::SCHEMA;
use docward::rules::RuleSet;
use docward::rules::TestFiles;
use jsonschema::Validator;
use serde_json::{Value, json};

static SCHEMA_VALUE: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(SCHEMA).unwrap());
static VALIDATOR: LazyLock<Validator> = LazyLock::new(|| jsonschema::validator_for(&SCHEMA_VALUE).unwrap());

/// Every pattern with all its settings.
pub(crate) fn patterns() -> Vec<(&'static str, Value)> {
    vec![
        (
            "replacement",
            json!({ "policy": "check_version", "version": "meta.version", "on_conflict": "ignore", "count_updates": false }),
        ),
        (
            "timestamps",
            json!({ "source": "at", "type": "long", "fields": ["a", "b.c"], "store": "timestamps", "per": "field",
                "without_source": "pass", "max_ahead": "10m", "hide": true }),
        ),
        (
            "sequence",
            json!({ "field": "_id", "counter": "c", "collection": "x.counters", "start": "after_max", "block": 5,
                "strategy": "counter", "on_upsert": true, "replace_generated": true,
                "provided": "reject" }),
        ),
        ("bounds", json!({ "field": "n", "min": 0, "max": 9.5, "policy": "reject", "on_no_room": "error" })),
        ("limits", json!({ "items": { "a": 5, "b.c": 1000 }, "document": "1MiB" })),
        ("schema_version", json!({ "field": "v", "current": 3, "minimum": 2, "on_newer": "ignore" })),
        ("together", json!(["a", "b.c"])),
        ("frozen", json!(["a", "b.c"])),
        (
            "queue",
            json!({ "fields": { "locked": "l", "locked_at": "s", "attempts": "n" }, "lease": "90s", "max_attempts": 3,
                "free": ["QUEUED", "RETRY"], "claimed": "CONSUMED" }),
        ),
        ("bucket", json!({ "array": "m", "count": "n", "limit": 100, "opened": "t" })),
        ("copies", json!([{ "into": "d.other", "key": "a.id", "fields": { "name": "a.name" }, "on_delete": "unset" }])),
        (
            "tree",
            json!({ "path": "p", "parent": "q", "separator": "/", "on_delete": "cascade", "unanchored": "reject" }),
        ),
        ("throttle", json!({ "concurrent": 5, "rate": "1000/s", "per": "user", "wait": "500ms" })),
        ("history", json!({ "into": "c_history", "keep": "90d" })),
        ("reads", json!({ "prefer": "secondary", "max_staleness": "90s" })),
        ("deny", json!({ "operations": ["update", "find"], "when": { "uses": ["$where"] } })),
        ("defaults", json!({ "maxTimeMS": 5000 })),
    ]
}

pub(crate) fn file(pattern: &str, settings: &Value) -> Value {
    let mut rule = json!({ "name": "r", "namespace": "d.c" });
    rule[pattern] = settings.clone();
    json!({ "version": 1, "rules": [rule] })
}

/// A rule with everything that rules have besides a pattern.
pub(crate) fn envelope() -> Value {
    json!({ "version": 1, "rules": [{
        "name": "no-wipe-2", "why": "because", "namespace": ["d.c", "*.x", "shop.*"], "mode": "shadow",
        "except": { "apps": ["migrator-*"], "users": "admin.root" }, "unsupported": "allow",
        "deny": { "operations": "delete" },
        "tests": [
            { "given": "db.c.deleteOne({_id: 1})", "expect": "rejected", "as": { "app": "a", "user": "admin.b" },
                "at": "2026-01-31T12:00:00Z" },
            { "given": "db.c.insertOne({_id: 1})", "becomes": "db.c.insertOne({_id: 1})" },
        ],
    }] })
}

/// JSON is YAML, so docward reads it.
fn loads(file: &Value) -> Result<(), String> {
    let source = SourceFile { name: "rules.yaml".into(), text: file.to_string() };
    RuleSet::from_sources(vec![source]).map(drop).map_err(|report| report.to_string())
}

fn assert_both_accept(file: &Value) {
    if let Err(error) = VALIDATOR.validate(file) {
        panic!("the schema rejects {file}: {error}");
    }
    if let Err(report) = loads(file) {
        panic!("docward rejects {file}: {report}");
    }
}

fn assert_both_reject(file: &Value) {
    assert!(!VALIDATOR.is_valid(file), "the schema accepts {file}");
    assert!(loads(file).is_err(), "docward accepts {file}");
}

/// The schema of the settings of `pattern`, or of a mapping among them.
fn properties(pattern: &str) -> Option<&'static serde_json::Map<String, Value>> {
    SCHEMA_VALUE["$defs"]["rule"]["properties"][pattern]["properties"].as_object()
}

#[test]
fn docward_reads_every_setting_of_the_schema() {
    assert_both_accept(&envelope());
    for (pattern, settings) in patterns() {
        assert_both_accept(&file(pattern, &settings));
        let Some(known) = properties(pattern) else { continue };
        let unused: Vec<_> = known.keys().filter(|key| settings.get(key.as_str()).is_none()).collect();
        assert!(unused.is_empty(), "{pattern}: {unused:?} are in the schema and not in the example");
    }
    let named: Vec<_> = patterns().iter().map(|(name, _)| json!({ "required": [name] })).collect();
    let listed = SCHEMA_VALUE["$defs"]["rule"]["oneOf"].as_array().unwrap();
    assert!(listed.iter().all(|one| named.contains(one)) && listed.len() == named.len());
    let mut patterns: Vec<&str> = docward::patterns::AnyPattern::NAMES.to_vec();
    patterns.sort_unstable();
    let mut examples: Vec<&str> = self::patterns().iter().map(|(name, _)| *name).collect();
    examples.sort_unstable();
    assert_eq!(patterns, examples);
}

#[test]
fn docward_accepts_exactly_the_schemas_choices() {
    for (pattern, settings) in patterns() {
        for (key, schema) in properties(pattern).into_iter().flatten() {
            let Some(words) = schema["oneOf"].as_array() else { continue };
            let words: Vec<_> = words.iter().filter_map(|word| word.get("const")).collect();
            for word in words {
                let mut changed = settings.clone();
                changed[key] = word.clone();
                assert_both_accept(&file(pattern, &changed));
            }
        }
    }
}

#[test]
fn both_reject_values_of_wrong_types_and_unknown_keys() {
    for (pattern, settings) in patterns() {
        assert_both_reject(&file(pattern, &json!(7)));
        assert_both_reject(&file(pattern, &json!(null)));
        for key in settings.as_object().into_iter().flat_map(|map| map.keys()) {
            for wrong in [json!([[1]]), json!({ "x": [[1]] }), json!(null), json!("")] {
                let mut changed = settings.clone();
                changed[key] = wrong;
                assert_both_reject(&file(pattern, &changed));
            }
        }
        if settings.is_object() {
            let mut changed = settings.clone();
            changed["unknown"] = json!(1);
            assert_both_reject(&file(pattern, &changed));
        }
    }
}

#[test]
fn both_require_the_same_keys() {
    for (pattern, settings) in patterns() {
        for key in settings.as_object().into_iter().flat_map(|map| map.keys()) {
            let mut changed = settings.clone();
            changed.as_object_mut().unwrap().remove(key);
            let file = file(pattern, &changed);
            assert_eq!(VALIDATOR.is_valid(&file), loads(&file).is_ok(), "{file}");
        }
    }
}

#[test]
fn both_reject_errors_of_every_kind() {
    for (pointer, wrong) in [
        ("/version", json!(2)),
        ("/version", json!("1")),
        ("/rules", json!([])),
        ("/rules/0/name", json!("NoWipe")),
        ("/rules/0/name", json!("a--b")),
        ("/rules/0/namespace", json!("orders")),
        ("/rules/0/namespace", json!(["a b.c"])),
        ("/rules/0/namespace", json!([])),
        ("/rules/0/namespace", json!(["d.c", "d.c"])),
        ("/rules/0/mode", json!("shadwo")),
        ("/rules/0/except", json!({})),
        ("/rules/0/except/users", json!("root")),
        ("/rules/0/except/apps", json!([])),
        ("/rules/0/unsupported", json!(true)),
        ("/rules/0/tests/0/expect", json!("refused")),
        ("/rules/0/tests/0/at", json!("yesterday")),
        ("/rules/0/tests/0/as", json!({ "user": "root" })),
        ("/rules/0/deny", json!({ "operations": ["remove"] })),
        ("/rules/0/deny", json!({ "operations": [] })),
        ("/rules/0/deny", json!({ "operations": ["find"], "when": {} })),
        ("/rules/0/deny", json!({ "operations": ["find"], "when": { "multi": false } })),
        ("/rules/0/deny", json!({ "operations": ["find"], "when": { "filter": "empty", "multi": true } })),
    ] {
        let mut file = envelope();
        *file.pointer_mut(pointer).unwrap() = wrong;
        assert_both_reject(&file);
    }
    for (pattern, settings) in [
        ("replacement", json!({ "policy": "check_version" })),
        ("replacement", json!({ "count_updates": false })),
        ("replacement", json!({ "version": "a..b" })),
        ("replacement", json!({ "version": "a.0" })),
        ("replacement", json!({ "version": "$a" })),
        ("timestamps", json!({ "source": "at", "store": "a.b" })),
        ("timestamps", json!({ "source": "at", "store": "_id" })),
        ("sequence", json!({ "field": "no" })),
        ("sequence", json!({ "field": "no", "counter": "c", "block": 0 })),
        ("sequence", json!({ "field": "no", "counter": "c", "block": 1_000_001 })),
        ("sequence", json!({ "field": "no", "counter": "c", "provided": "ignore" })),
        ("bounds", json!({ "field": "n" })),
        ("together", json!(["a"])),
        ("together", json!("a")),
        ("frozen", json!([])),
        ("frozen", json!(["a.0"])),
        ("queue", json!({ "lease": "5" })),
        ("queue", json!({ "lease": "0s" })),
        ("queue", json!({ "lease": "5m", "max_attempts": 0 })),
        ("bucket", json!({ "array": "m", "count": "n", "limit": 0 })),
        ("copies", json!([])),
        ("copies", json!([{ "into": "d.*", "key": "a", "fields": { "b": "c" } }])),
        ("copies", json!([{ "into": "d.x", "key": "a", "fields": {} }])),
        ("copies", json!([{ "into": "d.x", "key": "a", "fields": { "b": "c" }, "on_delete": "cascade" }])),
        ("tree", json!({ "separator": "ab" })),
        ("tree", json!({ "separator": "a" })),
        ("defaults", json!({ "maxTimeMS": 0 })),
    ] {
        assert_both_reject(&file(pattern, &settings));
    }
    let mut two = envelope();
    two["rules"][0]["together"] = json!(["a", "b"]);
    assert_both_reject(&two);
    let mut none = envelope();
    none["rules"][0].as_object_mut().unwrap().remove("deny");
    assert_both_reject(&none);
}

#[test]
fn both_accept_and_reject_the_same_test_files() {
    let whole = json!({ "version": 1, "database": "shop", "rules": ["rules/", "a.yaml"], "tests": [
        { "given": "db.c.deleteOne({_id: 1})", "expect": "rejected", "as": { "app": "a" } },
    ] });
    let reads = |file: &Value| {
        let source = SourceFile { name: "all.test.yaml".into(), text: file.to_string() };
        TestFiles::from_sources(vec![source]).is_ok()
    };
    assert!(VALIDATOR.is_valid(&whole) && reads(&whole));
    for (pointer, wrong) in [
        ("/version", json!(2)),
        ("/database", json!(5)),
        ("/database", json!("")),
        ("/rules", json!([])),
        ("/rules", json!([{ "name": "r" }])),
        ("/tests", json!({})),
        ("/tests", json!(["db.c.find()"])),
        ("/tests/0/expect", json!("refused")),
        ("/tests/0/given", json!("")),
    ] {
        let mut file = whole.clone();
        *file.pointer_mut(pointer).unwrap() = wrong;
        assert!(!VALIDATOR.is_valid(&file) && !reads(&file), "{file}");
    }
    let mut more = whole;
    more["name"] = json!("all");
    assert!(!VALIDATOR.is_valid(&more) && !reads(&more), "{more}");
}

#[test]
fn the_files_that_come_with_docward_are_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("rules");
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let file: Value = serde_yaml::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        assert!(VALIDATOR.is_valid(&file), "{}: {:?}", path.display(), VALIDATOR.validate(&file).err());
    }
}
