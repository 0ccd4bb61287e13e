//! Inputs of any size. Each family repeats one thing that a client or a file may have many times. The work of a
//! parser must be proportional to the length of its input.

use std::fmt::Write as _;

use bson::{Bson, Document, doc};

use support::frame::Message;

/// Inputs for `target` that contain something `count` times.
pub struct Family {
    pub target: &'static str,
    pub name: &'static str,
    pub grown: fn(count: usize) -> Vec<u8>,
}

const fn family(target: &'static str, name: &'static str, grown: fn(usize) -> Vec<u8>) -> Family {
    Family { target, name, grown }
}

pub const FAMILIES: &[Family] = &[
    family("frame", "first key", |n| frame(doc! { "a".repeat(n): 1 })),
    family("frame", "fields of a hello", |n| frame(with(doc! { "hello": 1 }, fields(n)))),
    family("document", "fields", |n| body(&fields(n))),
    family("document", "one value", |n| body(&doc! { "a": "x".repeat(n) })),
    family("command", "documents", |n| frame(insert("orders", n))),
    family("command", "statements", |n| frame(updates("elsewhere", n))),
    family("plan", "fields of a command", |n| plan_input(with(doc! { "saslStart": 1 }, fields(n)))),
    family("plan", "documents to number", |n| plan_input(insert("orders", n))),
    family("plan", "documents with a bound", |n| plan_input(insert("books", n))),
    family("plan", "replacements to reject", |n| plan_input(updates("orders", n))),
    family("plan", "replacements to merge", |n| plan_input(updates("customers", n))),
    family("plan", "fields set", |n| plan_input(update("orders", doc! {}, doc! { "$set": fields(n) }))),
    family("plan", "parts of a path", |n| plan_input(update("users", doc! {}, doc! { "$set": { path(n): 1 } }))),
    family("plan", "clauses of a filter", |n| {
        plan_input(update("books", doc! { "$and": clauses(n) }, doc! { "$inc": { "available": -1 } }))
    }),
    family("shell", "parts of a name", |n| format!("db.{}.find()", path(n)).into_bytes()),
    family("shell", "documents", |n| format!("db.c.insertMany([{}])", "{a: 1},".repeat(n)).into_bytes()),
    family("shell", "fields", |n| format!("db.c.find({})", json(n)).into_bytes()),
    family("shell", "calls", |n| format!("db.c.find(){}", ".limit(1)".repeat(n)).into_bytes()),
    family("rules", "namespaces", |n| rule(&list(n, "a.c"))),
    family("rules", "namespaces of one database", |n| rule(&list(n, "a.*"))),
    family("rules", "rules", |n| {
        let one = |at: usize| format!("  - {{name: r{at}, namespace: a.c{at}, together: [a, b]}}\n");
        format!("version: 1\nrules:\n{}", (0..n).map(one).collect::<String>()).into_bytes()
    }),
    family("traffic", "lines", |n| "{\"t\": 1, \"msg\": \"Slow query\", \"attr\": {}}\n".repeat(n).into_bytes()),
];

fn fields(count: usize) -> Document {
    (0..count).map(|at| (format!("a{at}"), Bson::from(1))).collect()
}

fn with(mut document: Document, more: Document) -> Document {
    document.extend(more);
    document
}

fn path(parts: usize) -> String {
    format!("a{}", ".a".repeat(parts))
}

fn clauses(count: usize) -> Vec<Document> {
    (0..count).map(|at| doc! { format!("a{at}"): 1 }).collect()
}

fn insert(collection: &str, count: usize) -> Document {
    doc! { "insert": collection, "documents": clauses(count) }
}

fn updates(collection: &str, count: usize) -> Document {
    let update = |at: usize| doc! { "q": { "_id": at as i64 }, "u": { "a": 1 } };
    doc! { "update": collection, "updates": (0..count).map(update).collect::<Vec<_>>() }
}

fn update(collection: &str, filter: Document, update: Document) -> Document {
    doc! { "update": collection, "updates": [{ "q": filter, "u": update }] }
}

fn frame(mut command: Document) -> Vec<u8> {
    command.insert("$db", "shop");
    Message::new(command).to_frame(1, 0).to_bytes()
}

/// Returns an input of the target `plan`.
fn plan_input(command: Document) -> Vec<u8> {
    [&7u64.to_le_bytes()[..], &frame(command)].concat()
}

fn body(document: &Document) -> Vec<u8> {
    bson::RawDocumentBuf::try_from(document).unwrap().into_bytes()
}

fn json(count: usize) -> String {
    let mut text = "{".to_owned();
    (0..count).for_each(|at| write!(text, "a{at}: 1,").unwrap());
    text + "}"
}

fn list(count: usize, kind: &str) -> String {
    (0..count).map(|at| format!("'{}{at}',", kind.replace('*', "*b"))).collect()
}

fn rule(namespaces: &str) -> Vec<u8> {
    format!("version: 1\nrules:\n  - {{name: r, namespace: [{namespaces}], replacement: {{policy: reject}}}}\n")
        .into_bytes()
}
