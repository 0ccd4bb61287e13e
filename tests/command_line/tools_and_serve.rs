//! What `audit` and `explain` show for everyday statements, beside what `serve` counts for them.

use std::collections::BTreeMap;
use std::path::Path;

use bson::{Document, doc};
use docward::audit::capture::CaptureReader;
use docward::audit::{Audit, RecordedCommand};
use docward::document::Document as Bytes;
use docward::rules::RuleSet;
use docward::shell;
use serde_json::Value;
use support::http::{get, post};
use support::mongod::Mongod;
use support::proxy::Docward;
use support::raw::Client;

/// Each rule applies to the collection of its name.
const RULES: &str = r#"version: 1
rules:
  - { name: reject, namespace: "*.reject", replacement: { version: v } }
  - { name: merge, namespace: "*.merge", replacement: { policy: merge } }
  - { name: version, namespace: "*.version", replacement: { policy: check_version, version: v } }
  - { name: times, namespace: "*.times", timestamps: { source: at, type: long, fields: [a] } }
  - { name: alltimes, namespace: "*.alltimes", timestamps: { source: at, type: long } }
  - { name: numbers, namespace: "*.numbers", sequence: { field: no, counter: orders, on_upsert: true } }
  - { name: stock, namespace: "*.stock", bounds: { field: n, min: 0 } }
  - { name: strict, namespace: "*.strict", bounds: { field: n, min: 0, on_no_room: error } }
  - { name: pair, namespace: "*.pair", together: [a, b] }
  - { name: jobs, namespace: "*.jobs", queue: { lease: 5m } }
  - { name: inbox, namespace: "*.inbox", bucket: { array: m, count: c, limit: 2, opened: t } }
  - { name: paths, namespace: "*.paths", tree: { path: path, parent: parent } }
  - { name: guard, namespace: "*.guard", deny: { operations: [delete, update], when: { filter: empty } } }
  - { name: quick, namespace: "*.quick", defaults: { maxTimeMS: 5000 } }
  - { name: schema, namespace: "*.schema", schema_version: { field: s, current: 3, minimum: 2 } }
  - { name: small, namespace: "*.small", limits: { items: { m: 2 } } }
  - { name: busy, namespace: "*.busy", throttle: { concurrent: 5, per: app } }
"#;

/// By rule: the documents that are stored before each statement, and the statements.
const TABLE: &[(&str, &str, &[&str])] = &[
    ("reject", "{_id: 1, v: 1, a: 1}", EVERYDAY),
    ("merge", "{_id: 1, v: 1, a: 1}", EVERYDAY),
    (
        "version",
        "{_id: 1, v: 1, a: 1}",
        &[
            "replaceOne({_id: 1}, {v: 1, a: 2})",
            "replaceOne({_id: 1}, {v: 0, a: 2})",
            "replaceOne({_id: 5}, {v: 1, a: 2})",
            "replaceOne({_id: 5}, {v: 1, a: 2}, {upsert: true})",
            "replaceOne({_id: 5}, {a: 2}, {upsert: true})",
            "replaceOne({_id: 1}, {a: 2}, {upsert: true})",
            "replaceOne({_id: 1, v: 1}, {v: 2, a: 2})",
            "findOneAndReplace({_id: 1}, {v: 1, a: 2})",
            "updateOne({_id: 1}, {$set: {a: 2}})",
            "updateOne({_id: 5}, {$set: {a: 2}})",
            "updateOne({_id: 5}, {$set: {a: 2}}, {upsert: true})",
            "updateMany({}, {$set: {a: 2}})",
            "insertOne({_id: 5, a: 1})",
            "deleteOne({_id: 1})",
        ],
    ),
    ("times", "{_id: 1, a: 1, last_modified: {a: 5}}", TIMES),
    ("alltimes", "{_id: 1, a: 1, last_modified: {a: 5}}", TIMES),
    ("numbers", "{_id: 1, no: 1, a: 1}", EVERYDAY),
    ("stock", "{_id: 1, n: 1}", STOCK),
    ("strict", "{_id: 1, n: 1}", STOCK),
    ("pair", "{_id: 1, a: 1, b: 1}", EVERYDAY),
    (
        "jobs",
        "{_id: 1, locked: false, try: 0, tlocked: null}",
        &[
            "insertOne({_id: 5})",
            "findOneAndUpdate({locked: false}, {$set: {locked: true}})",
            "findOneAndUpdate({locked: false, _id: 5}, {$set: {locked: true}})",
            "updateOne({_id: 1}, {$set: {x: 1}})",
            "updateOne({_id: 1, try: 0}, {$set: {x: 1}})",
            "updateOne({_id: 1, try: 3}, {$set: {x: 1}})",
            "deleteOne({_id: 1, try: 3})",
            "deleteOne({_id: 1, try: 0})",
            "deleteOne({_id: 1})",
        ],
    ),
    (
        "inbox",
        "{_id: 1, o: 1, m: [1], c: 1}",
        &[
            "updateOne({o: 1}, {$push: {m: 2}})",
            "updateOne({o: 2}, {$push: {m: 2}}, {upsert: true})",
            "updateOne({o: 1}, {$push: {m: {$each: [2, 3]}}}, {upsert: true})",
            "updateOne({o: 1}, {$push: {m: {$each: [2, 3, 4]}}})",
            "updateOne({o: 1}, {$set: {x: 1}})",
            "updateOne({o: 1}, {$set: {m: []}})",
            "insertOne({o: 3})",
            "deleteOne({o: 1})",
        ],
    ),
    (
        "paths",
        "{_id: 1, parent: null, path: null, a: 1}",
        &[
            "insertOne({_id: 5, parent: 1})",
            "insertOne({_id: 5, parent: 7})",
            "insertOne({_id: 5})",
            "updateOne({_id: 1}, {$set: {parent: 1}})",
            "updateOne({_id: 1}, {$set: {a: 2}})",
            "deleteOne({_id: 1})",
            "deleteOne({_id: 7})",
            "find({path: /x/})",
            "replaceOne({_id: 1}, {parent: null, a: 3})",
        ],
    ),
    ("guard", "{_id: 1, a: 1}", EVERYDAY),
    (
        "quick",
        "{_id: 1, a: 1}",
        &["find({})", "updateOne({_id: 1}, {$set: {a: 2}})", "insertOne({_id: 5})", "find({}).maxTimeMS(3)"],
    ),
    (
        "schema",
        "{_id: 1, s: 3, a: 1}",
        &[
            "insertOne({_id: 5})",
            "insertOne({_id: 5, s: 3})",
            "updateOne({_id: 1}, {$set: {a: 2}})",
            "updateOne({_id: 1}, {$set: {a: 2, s: 3}})",
            "updateOne({_id: 1}, {$set: {a: 2, s: 2}})",
            "updateOne({_id: 5}, {$set: {a: 2}})",
            "replaceOne({_id: 1}, {a: 2, s: 2})",
            "replaceOne({_id: 1}, {a: 2, s: 3})",
            "replaceOne({_id: 5}, {a: 2, s: 3}, {upsert: true})",
            "replaceOne({_id: 1}, {a: 2, s: 2}, {upsert: true})",
            "deleteOne({_id: 1})",
        ],
    ),
    (
        "small",
        "{_id: 1, m: [1, 2]}",
        &[
            "updateOne({_id: 1}, {$push: {m: 3}})",
            "updateOne({_id: 5}, {$push: {m: 3}})",
            "updateOne({_id: 5}, {$push: {m: 3}}, {upsert: true})",
            "updateOne({_id: 1}, {$push: {m: 3}}, {upsert: true})",
            "updateOne({_id: 1}, {$set: {m: [1, 2, 3]}})",
            "updateOne({_id: 1}, {$pull: {m: 1}})",
            "insertOne({_id: 5, m: [1, 2, 3]})",
            "insertOne({_id: 5, m: [1]})",
            "replaceOne({_id: 1}, {m: [1]})",
        ],
    ),
    ("busy", "{_id: 1, a: 1}", &["find({})", "updateOne({_id: 1}, {$set: {a: 2}})"]),
];

const EVERYDAY: &[&str] = &[
    "insertOne({_id: 5, a: 1})",
    "insertMany([{_id: 5, a: 1, b: 1}, {_id: 6, b: 1}])",
    "updateOne({_id: 1}, {$set: {a: 2}})",
    "updateOne({_id: 1}, {$set: {a: 2, b: 2}})",
    "updateOne({_id: 5}, {$set: {a: 2}})",
    "updateOne({_id: 5}, {$set: {a: 2, b: 2}}, {upsert: true})",
    "updateOne({_id: 1}, {$set: {a: 2, b: 2}}, {upsert: true})",
    "updateMany({}, {$set: {b: 2}})",
    "updateMany({}, {$push: {c: 2}})",
    "updateOne({_id: 1}, [{$set: {a: 2}}])",
    "replaceOne({_id: 1}, {a: 2})",
    "replaceOne({_id: 5}, {a: 2})",
    "replaceOne({_id: 5}, {a: 2}, {upsert: true})",
    "replaceOne({_id: 1}, {a: 2}, {upsert: true})",
    "replaceOne({_id: 1, v: 1}, {a: 2, v: 2})",
    "findOneAndReplace({_id: 1}, {a: 2})",
    "findOneAndUpdate({_id: 1}, {$inc: {a: 1}})",
    "findOneAndUpdate({_id: 5}, {$inc: {a: 1}}, {upsert: true})",
    "deleteOne({_id: 1})",
    "deleteMany({})",
    "find({})",
    "aggregate([{$match: {}}])",
];

const TIMES: &[&str] = &[
    "insertOne({_id: 5, a: 1, at: 7})",
    "insertOne({_id: 5, a: 1})",
    "updateOne({_id: 1}, {$set: {a: 2, at: 7}})",
    "updateOne({_id: 1}, {$set: {a: 2, at: 3}})",
    "updateOne({_id: 5}, {$set: {a: 2, at: 7}})",
    "updateOne({_id: 5}, {$set: {a: 2, at: 7}}, {upsert: true})",
    "updateOne({_id: 1}, {$set: {a: 2, at: 7}}, {upsert: true})",
    "updateOne({_id: 1}, {$set: {a: 2, at: 7}, $push: {c: 1}})",
    "updateOne({_id: 1}, {$set: {a: 2, at: 3}, $push: {c: 1}})",
    "updateOne({_id: 5}, {$set: {a: 2, at: 7}, $push: {c: 1}})",
    "updateOne({_id: 5}, {$set: {a: 2, at: 7}, $push: {c: 1}}, {upsert: true})",
    "updateOne({_id: 1}, {$push: {c: 1}})",
    "updateMany({}, {$set: {a: 2, at: 7}})",
    "replaceOne({_id: 1}, {a: 2, at: 7})",
    "deleteOne({_id: 1})",
];

const STOCK: &[&str] = &[
    "insertOne({_id: 5, n: 1})",
    "insertOne({_id: 5, n: -1})",
    "updateOne({_id: 1}, {$inc: {n: -1}})",
    "updateOne({_id: 1}, {$inc: {n: -2}})",
    "updateOne({_id: 5}, {$inc: {n: -2}})",
    "updateOne({_id: 5}, {$inc: {n: 2}}, {upsert: true})",
    "updateOne({_id: 1}, {$inc: {n: -2}}, {upsert: true})",
    "updateOne({_id: 1}, {$set: {n: -2}})",
    "updateOne({_id: 1}, {$set: {a: 2}})",
    "updateMany({}, {$inc: {n: -1}})",
    "findOneAndUpdate({_id: 1}, {$inc: {n: -2}})",
    "findOneAndUpdate({_id: 1}, {$inc: {n: -1}})",
    "replaceOne({_id: 1}, {n: 2})",
    "deleteOne({_id: 1})",
];

/// Statements of a rule by outcome; without forwarded ones, which `serve` does not count.
type Outcomes = BTreeMap<String, u64>;

/// A statement, what `serve` counted for it, and its recorded commands.
struct Row {
    rule: &'static str,
    text: String,
    served: Outcomes,
    explained: Value,
    commands: std::ops::Range<usize>,
}

fn outcomes(counts: &Value) -> Outcomes {
    let counts = counts.as_object().unwrap().iter().map(|(outcome, count)| (outcome.clone(), count.as_u64().unwrap()));
    counts.filter(|(outcome, count)| *count > 0 && outcome != "forward").collect()
}

fn bson(document: Bytes<'_>) -> Document {
    Document::from_reader(document.as_bytes()).unwrap()
}

/// Runs the statements through `serve` and `record`, each on the same stored documents. Returns the rows and the capture.
fn run_table(mongod: &Mongod, capture: &Path) -> Vec<Row> {
    let serve = Docward::before(&mongod.uri()).rules(RULES).admin().start();
    let mut record = Docward::before(&mongod.uri()).subcommand("record").argument(capture.to_str().unwrap()).start();
    let (served, recorded) = (mongod.fresh_database(), mongod.fresh_database());
    let (mut to_serve, mut to_record) = (Client::connect(&serve.address()), Client::connect(&record.address()));
    let live = |rule: &str| {
        let rules = get(&serve.admin_address(), "/api/rules").json();
        outcomes(&rules["rules"].as_array().unwrap().iter().find(|one| one["name"] == rule).unwrap()["counts"])
    };
    let (mut rows, mut sent) = (Vec::new(), 0);
    for (rule, stored, statements) in TABLE {
        let stored = shell::named_value("stored", stored, "").unwrap();
        let stored = bson(stored.as_document()).get("stored").unwrap().clone();
        for statement in *statements {
            let text = format!("db.{rule}.{statement}");
            for database in [&served, &recorded] {
                mongod.command(database, doc! {"delete": rule, "deletes": [{"q": {}, "limit": 0}]});
                mongod.command(database, doc! {"insert": rule, "documents": [&stored]});
            }
            let before = live(rule);
            let commands = shell::parse(&text, "d").unwrap().commands;
            for command in &commands {
                let mut command = bson(command.as_document());
                command.remove("$db");
                to_serve.command(&served, command.clone());
                to_record.command(&recorded, command);
            }
            let mut counted = live(rule);
            counted.iter_mut().for_each(|(outcome, count)| *count -= before.get(outcome).unwrap_or(&0));
            counted.retain(|_, count| *count > 0);
            // The console's playground, which runs the code of `docward explain`.
            let command = serde_json::json!({"command": text, "database": served});
            let explained = post(&serve.admin_address(), "/api/explain", &command).json();
            let commands = sent..sent + commands.len();
            sent = commands.end;
            rows.push(Row { rule, text, served: counted, explained, commands });
        }
    }
    assert!(record.terminate().success());
    rows
}

fn recorded_commands(capture: &Path) -> Vec<RecordedCommand> {
    let bytes = std::fs::read(capture).unwrap();
    let (mut reader, mut commands, mut rest) = (CaptureReader::default(), Vec::new(), bytes.as_slice());
    while let Some(length) = rest.first_chunk() {
        let (one, after) = rest.split_at(u32::from_le_bytes(*length) as usize);
        reader.parse_record(one, &|_, _, _| true, &mut commands).unwrap();
        rest = after;
    }
    commands
}

/// Whether the verdict is what `serve` did, or has a note on what it depends on.
fn explains(explained: &Value, served: &Outcomes) -> bool {
    let has = |outcomes: &[&str]| outcomes.iter().any(|outcome| served.contains_key(*outcome));
    let has_note = !explained["notes"].as_array().unwrap().is_empty();
    match explained["verdict"].as_str().unwrap() {
        "forward" => !has(&["rewrite", "reject", "conflict"]),
        "reject" => has(&["reject"]) || has_note,
        "check" => has(&["check"]),
        _ => has(&["rewrite", "no_match", "stale"]) || has_note,
    }
}

#[test]
fn the_tools_show_what_serve_does() {
    let folder = tempfile::tempdir().unwrap();
    let (rules_file, capture) = (folder.path().join("rules.yaml"), folder.path().join("traffic.bson"));
    std::fs::write(&rules_file, RULES).unwrap();
    let rows = run_table(Mongod::shared(), &capture);
    let rules = RuleSet::load(std::slice::from_ref(&rules_file)).unwrap();
    let recorded = recorded_commands(&capture);
    let (mut unconfirmed, mut unknown, mut wrong) = (0, 0, Vec::new());
    for Row { rule, text, served, explained, commands } in &rows {
        let mut audit = Audit::new(&rules);
        recorded[commands.clone()].iter().for_each(|command| audit.add_command(command));
        let index = rules.rules().iter().position(|one| *one.name.value == **rule).unwrap();
        let tally = audit.finish().rules.swap_remove(index);
        let audited = outcomes(&serde_json::to_value(tally.counts).unwrap());
        let is_audited = match audited.keys().map(String::as_str).collect::<Vec<_>>().as_slice() {
            _ if audited == *served => true,
            ["cannot_tell"] => {
                unknown += 1;
                true
            }
            ["rewrite"] if tally.unconfirmed > 0 => {
                unconfirmed += 1;
                true
            }
            // `serve` does not count the options that it adds.
            ["rewrite"] => *rule == "quick" && served.is_empty(),
            _ => false,
        };
        if !is_audited || !(explains(explained, served) || *rule == "quick") {
            wrong.push(format!("{text}\n  serve {served:?}\n  audit {audited:?}\n  explain {explained:#}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
    let upsert = "db.version.replaceOne({_id: 5}, {a: 2}, {upsert: true})";
    let notes = rows.iter().find(|row| row.text == upsert).unwrap().explained["notes"].to_string();
    assert!(notes.contains("if not, docward sends ") && notes.contains("upsert: true"), "{notes}");
    // Most are exact: the others depend on what was stored, which the capture does not show.
    let exact = rows.len() - unconfirmed - unknown;
    assert!(exact * 5 >= rows.len() * 4, "{exact} of {} are exact, {unconfirmed} may have no effect", rows.len());
}
