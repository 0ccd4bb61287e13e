//! What `audit`, `explain` and `test` show for everyday statements, beside what `serve` counts for them: alone, in a
//! transaction of the client, and as a `bulkWrite` command.

use std::collections::BTreeMap;
use std::path::Path;

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, Uuid, doc};
use docward::audit::capture::CaptureReader;
use docward::audit::{Audit, RecordedCommand, TrafficConsumer};
use docward::command::CommandClass;
use docward::document::Document as Bytes;
use docward::rules::RuleSet;
use docward::shell;
use serde_json::{Value, json};
use support::http::{get, post};
use support::mongod::Mongod;
use support::process::docward;
use support::proxy::Docward;
use support::raw::Client;

/// Each rule applies to the collection of its name, see [`rule_of`].
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
  - { name: fixed, namespace: "*.fixed", frozen: [a] }
  - { name: slim, namespace: "*.slim", limits: { document: 100B } }
  - { name: cards, namespace: DB.authors, copies: [{ into: DB.cards, key: by.id, fields: { name: by.name } }] }
  - name: kept
    namespace: DB.kept
    copies: [{ into: DB.referring, key: by.id, fields: { name: by.name }, on_delete: reject }]
  - { name: past, namespace: DB.past, history: { into: states, keep: 10 } }
  - { name: reports, namespace: "*.reports", reads: {} }
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
    ("fixed", "{_id: 1, a: 1}", EVERYDAY),
    (
        "slim",
        "{_id: 1, a: 'xxxxxxxxxx', m: []}",
        &[
            "insertOne({_id: 5, a: 1})",
            "insertOne({_id: 5, a: 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'})",
            "updateOne({_id: 1}, {$set: {b: 'yyyyyyyyyyyyyyyyyyyy'}})",
            "updateOne({_id: 1}, {$set: {b: 'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy'}})",
            "updateOne({_id: 5}, {$set: {b: 'y'}})",
            "updateOne({_id: 5}, {$set: {b: 'y'}}, {upsert: true})",
            "updateOne({_id: 1}, {$set: {b: 'y'}}, {upsert: true})",
            "updateMany({}, {$push: {m: 1}})",
            "updateOne({_id: 1}, {$unset: {a: 1}})",
            "updateOne({_id: 1}, [{$set: {b: '$a'}}])",
            "replaceOne({_id: 1}, {a: 1})",
            "findOneAndUpdate({_id: 1}, {$push: {m: 1}})",
            "deleteOne({_id: 1})",
        ],
    ),
    (
        "cards",
        "{_id: 1, a: 1, by: {id: 7, name: 'Ada'}}",
        &[
            "insertOne({_id: 5, by: {id: 7, name: 'Ada'}})",
            "insertOne({_id: 5, by: {id: 7}})",
            "insertOne({_id: 5})",
            "updateOne({_id: 1}, {$set: {a: 2}})",
            "updateOne({_id: 1}, {$set: {by: {id: 8, name: 'Eve'}}})",
            "updateOne({_id: 1}, {$set: {'by.id': 8}})",
            "updateOne({_id: 1}, {$set: {'by.name': 'Eve'}})",
            "updateOne({_id: 5}, {$set: {'by.id': 8}}, {upsert: true})",
            "updateOne({_id: 1}, {$unset: {by: 1}})",
            "updateOne({_id: 1}, [{$set: {by: '$a'}}])",
            "updateMany({}, {$rename: {by: 'was'}})",
            "replaceOne({_id: 1}, {a: 2})",
            "replaceOne({_id: 1}, {a: 2, by: {id: 8, name: 'Eve'}})",
            "deleteOne({_id: 1})",
        ],
    ),
    (
        "kept",
        "{_id: 1, name: 'Ada'}",
        &[
            "insertOne({_id: 5})",
            "updateOne({_id: 1}, {$set: {name: 'Eve'}})",
            "deleteOne({_id: 1})",
            "deleteOne({_id: 5})",
            "deleteMany({})",
            "findOneAndDelete({_id: 1})",
        ],
    ),
    (
        "referring",
        "{_id: 1, by: {id: 1, name: 'Ada'}}",
        &["updateOne({_id: 1}, {$set: {a: 2}})", "deleteOne({_id: 1})"],
    ),
    ("past", "{_id: 1, a: 1}", FEW),
    ("states", "{_id: {of: 3, revision: 1}}", FEW),
    ("reports", "{_id: 1, a: 1}", FEW),
];

/// The rule that evaluates the statements on a collection of the table.
fn rule_of(collection: &str) -> &str {
    match collection {
        "referring" => "kept",
        "states" => "past",
        named => named,
    }
}

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

const FEW: &[&str] = &[
    "insertOne({_id: 5, a: 1})",
    "updateOne({_id: 1}, {$set: {a: 2}})",
    "updateOne({_id: 5}, {$set: {a: 2}}, {upsert: true})",
    "updateMany({}, {$set: {a: 2}})",
    "findOneAndReplace({_id: 1}, {a: 2})",
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

/// How the client sends a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Alone,
    InTransaction,
    BulkWrite,
}

impl Manner {
    /// The commands of a statement; none if it cannot be sent so.
    fn commands(self, text: &str, database: &str) -> Vec<Document> {
        let parsed = shell::parse(text, database).unwrap().commands;
        let commands = parsed.iter().map(|command| bson(command.as_document()));
        let session = |command: Document| {
            let mut command = command;
            let id = Binary { subtype: BinarySubtype::Uuid, bytes: Uuid::new().bytes().to_vec() };
            command.extend(
                doc! { "lsid": { "id": id }, "txnNumber": 1_i64, "startTransaction": true, "autocommit": false },
            );
            command
        };
        match self {
            Self::Alone => commands.collect(),
            Self::InTransaction => commands.map(session).collect(),
            Self::BulkWrite => commands.filter_map(|command| bulk_write(&command)).collect(),
        }
    }
}

/// A write command as the `bulkWrite` command of MongoDB 8.0.
fn bulk_write(command: &Document) -> Option<Document> {
    let (name, collection) = command.iter().next()?;
    let list = |list: &str| command.get_array(list).unwrap().iter().map(|one| one.as_document().unwrap().clone());
    let flag = |one: &Document, key: &str| one.get_bool(key).unwrap_or_default();
    let ops: Vec<Document> = match name.as_str() {
        "insert" => list("documents").map(|one| doc! { "insert": 0, "document": one }).collect(),
        "update" => list("updates")
            .map(|one| {
                let (filter, mods) = (one.get("q").unwrap(), one.get("u").unwrap());
                let (multi, upsert) = (flag(&one, "multi"), flag(&one, "upsert"));
                doc! { "update": 0, "filter": filter, "updateMods": mods, "multi": multi, "upsert": upsert }
            })
            .collect(),
        "delete" => list("deletes")
            .map(|one| doc! { "delete": 0, "filter": one.get("q").unwrap(), "multi": one.get_i32("limit").is_ok_and(|limit| limit == 0) })
            .collect(),
        _ => return None,
    };
    let namespace = format!("{}.{}", command.get_str("$db").unwrap(), collection.as_str()?);
    Some(doc! { "bulkWrite": 1, "ops": ops, "nsInfo": [{ "ns": namespace }], "$db": "admin" })
}

/// A statement, what `serve` counted for it, and its recorded commands.
struct Row {
    rule: &'static str,
    manner: Manner,
    text: String,
    served: Outcomes,
    explained: Value,
    tested: String,
    /// The documents after `serve`, and after the commands that `explain` shows, if they depend on nothing.
    after: Option<[Vec<Document>; 2]>,
    commands: std::ops::Range<usize>,
}

fn outcomes(counts: &Value) -> Outcomes {
    let counts = counts.as_object().unwrap().iter().map(|(outcome, count)| (outcome.clone(), count.as_u64().unwrap()));
    counts.filter(|(outcome, count)| *count > 0 && outcome != "forward").collect()
}

fn bson(document: Bytes<'_>) -> Document {
    Document::from_reader(document.as_bytes()).unwrap()
}

/// `serve` and `record` in front of one mongod.
struct Lab {
    serve: Docward,
    record: Docward,
    /// Connections to `serve`, to `record` and to mongod.
    clients: [Client; 3],
    database: String,
}

impl Lab {
    fn new(mongod: &Mongod, database: &str, rules: &str, capture: &Path) -> Self {
        let serve = Docward::before(&mongod.uri()).rules(rules).admin().start();
        let record = Docward::before(&mongod.uri()).subcommand("record").argument(capture.to_str().unwrap()).start();
        let clients = [serve.address(), record.address(), mongod.address()].map(|address| Client::connect(&address));
        Self { serve, record, clients, database: database.to_owned() }
    }

    fn directly(&mut self, command: Document) -> Document {
        self.clients[2].command(&self.database, command)
    }

    /// Stores `stored`, sends the commands to one of the servers, and returns what is stored then, without what differs
    /// from one time to the next.
    fn run(&mut self, server: usize, commands: &[Document], stored: &Document) -> Vec<Document> {
        let collection = stored.get_str("collection").unwrap();
        let quickly = doc! { "w": 1 };
        self.directly(doc! {"delete": collection, "deletes": [{"q": {}, "limit": 0}], "writeConcern": &quickly});
        let documents = stored.get_array("documents").unwrap();
        self.directly(doc! {"insert": collection, "documents": documents, "writeConcern": &quickly});
        for command in commands {
            let mut command = command.clone();
            let database = command.remove("$db").unwrap();
            let session = command.get("lsid").cloned();
            let client = &mut self.clients[server];
            let number = server as i64;
            if session.is_some() {
                command.insert("txnNumber", number);
            }
            client.command(database.as_str().unwrap(), command);
            if let Some(session) = session {
                let commit = doc! { "commitTransaction": 1, "lsid": session, "txnNumber": number, "autocommit": false };
                client.command("admin", commit);
            }
        }
        let reply = self.directly(doc! { "find": collection, "sort": { "_id": 1 } });
        let found = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        let constant = |(key, value): (&String, &Bson)| {
            let is_constant = key != "no" && !matches!(value, Bson::DateTime(_) | Bson::ObjectId(_));
            is_constant.then(|| (key.clone(), value.clone()))
        };
        found.iter().map(|one| one.as_document().unwrap().iter().filter_map(constant).collect()).collect()
    }

    /// What `serve` has counted for the rule.
    fn counted(&self, rule: &str) -> Outcomes {
        let metrics = get(&self.serve.admin_address(), "/metrics").body;
        let start = format!("docward_rule_statements_total{{rule=\"{rule}\",outcome=\"");
        let counts = metrics.lines().filter_map(|line| line.strip_prefix(&start)?.split_once("\"} "));
        counts.map(|(outcome, count)| (outcome.replace('-', "_"), count.parse().unwrap())).collect()
    }

    /// What the console's playground shows, which runs the code of `docward explain`.
    fn explain(&self, text: &str) -> Value {
        let command = json!({"command": text, "database": self.database});
        post(&self.serve.admin_address(), "/api/explain", &command).json()
    }
}

/// The collections that docward's workers write at any time.
const WRITTEN_BY_WORKERS: [&str; 3] = ["states", "cards", "referring"];

/// Runs the statements through `serve` and `record`, each on the same stored documents. Returns the rows.
fn run_table(lab: &mut Lab) -> Vec<Row> {
    let (mut rows, mut sent) = (Vec::new(), 0);
    lab.directly(doc! { "insert": "referring", "documents": [{ "_id": 1, "by": { "id": 1, "name": "Ada" } }] });
    for (collection, stored, statements) in TABLE {
        let (rule, stored) = (rule_of(collection), shell::named_value("stored", stored, "").unwrap());
        let stored =
            doc! { "collection": collection, "documents": [bson(stored.as_document()).get("stored").unwrap()] };
        let mut before = lab.counted(rule);
        let manners = [Manner::Alone, Manner::InTransaction, Manner::BulkWrite];
        for (statement, manner) in statements.iter().flat_map(|one| manners.map(|manner| (one, manner))) {
            let mut text = format!("db.{collection}.{statement}");
            let commands = manner.commands(&text, &lab.database);
            let Some(command) = commands.first() else { continue };
            if manner != Manner::Alone {
                assert_eq!(commands.len(), 1, "{text}");
                text = shell::render(Bytes::parse(&command.to_vec().unwrap()).unwrap(), &lab.database);
            }
            let after = lab.run(0, &commands, &stored);
            lab.run(1, &commands, &stored);
            let counted = lab.counted(rule);
            let mut served = counted.clone();
            served.iter_mut().for_each(|(outcome, count)| *count -= before.get(outcome).unwrap_or(&0));
            served.retain(|_, count| *count > 0);
            before = counted;
            let explained = lab.explain(&text);
            let shown = shown_commands(&explained).filter(|_| !WRITTEN_BY_WORKERS.contains(collection));
            let after = shown.map(|shown| [after, lab.run(2, &shown, &stored)]);
            let commands = sent..sent + commands.len();
            sent = commands.end;
            rows.push(Row { rule, manner, text, served, explained, after, tested: String::new(), commands });
        }
    }
    assert!(lab.record.terminate().success());
    rows
}

/// The commands that are sent by the output of `explain`; `None` if that depends on stored documents.
fn shown_commands(explained: &Value) -> Option<Vec<Document>> {
    let commands = match &explained["command"] {
        _ if explained["notes"].to_string().contains("aborts the client's transaction") => vec![],
        Value::Null if explained["verdict"] == "reject" => vec![],
        Value::Null => return None,
        Value::Array(several) => several.clone(),
        one => vec![one.clone()],
    };
    let commands = commands.iter().map(|one| bson(shell::document(&one.to_string()).unwrap().as_document()));
    (!depends(explained) && explained["verdict"] != "check").then(|| commands.collect())
}

/// Runs the statements as tests with each expectation, and sets the verdicts that they show.
fn test(rows: &mut [Row], database: &str, folder: &Path) {
    let expectations = ["rejected", "unchanged", "checked"];
    let tests = rows.iter().flat_map(|row| expectations.map(|expect| json!({"given": row.text, "expect": expect})));
    let tests: Vec<Value> = tests.collect();
    let file = folder.join("all.test.yaml");
    std::fs::write(&file, json!({"version": 1, "database": database, "tests": tests}).to_string()).unwrap();
    let done = docward(&["test", "--format", "json", file.to_str().unwrap()]);
    let results: Value = serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{done:?}"));
    for (row, results) in rows.iter_mut().zip(results.as_array().unwrap().chunks(expectations.len())) {
        let passed = results.iter().position(|result| result["passed"] == true);
        row.tested = match passed {
            Some(index) => ["reject", "forward", "check"][index].to_owned(),
            None if results[1]["message"].as_str().unwrap().ends_with("it is sent as") => "rewrite".to_owned(),
            None => results[1]["message"].to_string(),
        };
    }
}

fn recorded_commands(capture: &Path) -> Vec<RecordedCommand> {
    let bytes = std::fs::read(capture).unwrap();
    let (mut reader, mut commands, mut rest) = (CaptureReader::default(), Vec::new(), bytes.as_slice());
    while let Some(length) = rest.first_chunk() {
        let (one, after) = rest.split_at(u32::from_le_bytes(*length) as usize);
        reader.parse_record(one, &|_, class, _| class != CommandClass::Harmless, &mut commands).unwrap();
        rest = after;
    }
    commands
}

/// Whether a note shows that the verdict depends on stored documents.
fn depends(explained: &Value) -> bool {
    let mut notes = explained["notes"].as_array().unwrap().iter().filter_map(Value::as_str);
    notes.any(|note| ["if ", "first reads"].iter().any(|words| note.contains(words)))
}

/// Whether the verdict is what `serve` did, or has a note on what it depends on.
fn explains(explained: &Value, served: &Outcomes) -> bool {
    let has = |outcomes: &[&str]| outcomes.iter().any(|outcome| served.contains_key(*outcome));
    let has_note = depends(explained);
    match explained["verdict"].as_str().unwrap() {
        "forward" => !has(&["rewrite", "reject", "conflict", "check"]),
        "reject" => has(&["reject"]) || has_note,
        "check" => has(&["check"]),
        _ => has(&["rewrite", "no_match", "stale"]) || has_note,
    }
}

/// Whether `docward test` shows the verdict of `explain`, or that the server decides.
fn agrees(row: &Row) -> bool {
    row.explained["verdict"] == row.tested || row.tested.contains("the result depends on the server")
}

#[test]
fn the_tools_show_what_serve_does() {
    let folder = tempfile::tempdir().unwrap();
    let (rules_file, capture) = (folder.path().join("rules.yaml"), folder.path().join("traffic.bson"));
    let database = Mongod::shared().fresh_database();
    let yaml = RULES.replace("DB", &database);
    std::fs::write(&rules_file, &yaml).unwrap();
    let mut rows = run_table(&mut Lab::new(Mongod::shared(), &database, &yaml, &capture));
    test(&mut rows, &database, folder.path());
    let rules = RuleSet::load(std::slice::from_ref(&rules_file)).unwrap();
    let recorded = recorded_commands(&capture);
    let (mut unconfirmed, mut unknown, mut wrong) = (0, 0, Vec::new());
    assert_eq!(recorded.len(), rows.last().unwrap().commands.end);
    for row in &rows {
        let Row { rule, manner, text, served, explained, after, tested, commands } = row;
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
            // The result of the check is not known.
            ["check"] if served.get("check") == audited.get("check") => {
                unknown += 1;
                true
            }
            ["rewrite" | "reject"] if tally.unconfirmed > 0 => {
                unconfirmed += 1;
                true
            }
            // `serve` does not count the options that it adds.
            ["rewrite"] => *rule == "quick" && served.is_empty(),
            _ => false,
        };
        if !is_audited
            || !(explains(explained, served) || *rule == "quick")
            || !agrees(row)
            || after.as_ref().is_some_and(|[served, shown]| served != shown)
        {
            let (verdict, notes) = (&explained["verdict"], &explained["notes"]);
            wrong.push(format!(
                "{rule}, {manner:?}: {text}\n  serve {served:?}\n  audit {audited:?}\n  explain {verdict} {notes}\n  test {tested}\n  after {after:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
    let upsert = "db.version.replaceOne({_id: 5}, {a: 2}, {upsert: true})";
    let notes = rows.iter().find(|row| row.text == upsert).unwrap().explained["notes"].to_string();
    assert!(notes.contains("if not, docward sends ") && notes.contains("upsert: true"), "{notes}");
    let of_reads = |row: &&Row| row.rule == "reports" && row.manner == Manner::Alone;
    let notes: Vec<String> = rows.iter().filter(of_reads).map(|row| row.explained["notes"].to_string()).collect();
    assert!(notes.len() == FEW.len() && notes.iter().all(|note| note.contains("query listener")), "{notes:?}");
    // Most are exact: the others depend on what was stored, which the capture does not show.
    let exact = rows.len() - unconfirmed - unknown;
    assert!(exact * 5 >= rows.len() * 4, "{exact} of {} are exact, {unconfirmed} may have no effect", rows.len());
}
