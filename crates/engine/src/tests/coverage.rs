//! Compares the claims of `coverage` with the plans: one command for every access of every pattern, chosen so that an
//! evaluating pattern must act on it.

use super::*;
use crate::coverage::{Access, CoverageOutcome, coverage};

/// A pattern on `d.c`, with a document and operators that it must act on.
struct Sample {
    pattern: &'static str,
    /// The collection whose statements it evaluates.
    collection: &'static str,
    document: Bson,
    operators: Bson,
    filter: Bson,
    upsert: bool,
}

impl Sample {
    fn new(pattern: &'static str, document: Bson, operators: Bson) -> Self {
        Self { pattern, collection: "c", document, operators, filter: doc! {"_id": "a"}, upsert: false }
    }

    fn statement(&self, command: &str, what: &str) -> Bson {
        let pipeline = bson::Bson::from(vec![doc! {"$replaceWith": {"$mergeObjects": ["$$ROOT", {"a": 1}]}}]);
        let update: bson::Bson = match what {
            "update by operators" => self.operators.clone().into(),
            "replacement" => self.document.clone().into(),
            _ => pipeline,
        };
        let (filter, c, upsert) = (self.filter.clone(), self.collection, self.upsert);
        let namespaces = vec![doc! {"ns": format!("d.{c}")}];
        match (command, what) {
            ("insert", _) => doc! {"insert": c, "documents": [self.document.clone()]},
            ("update", _) => doc! {"update": c, "updates": [{"q": filter, "u": update, "upsert": upsert}]},
            ("delete", _) => doc! {"delete": c, "deletes": [{"q": filter, "limit": 1}]},
            ("bulkWrite", "insert") => {
                doc! {"bulkWrite": 1, "ops": [{"insert": 0, "document": self.document.clone()}], "nsInfo": namespaces}
            }
            ("bulkWrite", "delete") => {
                doc! {"bulkWrite": 1, "ops": [{"delete": 0, "filter": filter}], "nsInfo": namespaces}
            }
            ("bulkWrite", _) => {
                let op = doc! {"update": 0, "filter": filter, "updateMods": update, "upsert": upsert};
                doc! {"bulkWrite": 1, "ops": [op], "nsInfo": namespaces}
            }
            (name, "delete") => doc! {name: c, "query": filter, "remove": true},
            (name, _) => doc! {name: c, "query": filter, "update": update, "upsert": upsert},
        }
    }

    fn command(&self, name: &str, what: &str) -> Bson {
        let c = self.collection;
        let ns = format!("d.{c}");
        let mut command = match (name, what) {
            (_, "read") => {
                let mut read = doc! {name: c, "filter": self.filter.clone(), "query": self.filter.clone()};
                read.insert("pipeline", vec![doc! {"$match": self.filter.clone()}]);
                read
            }
            (_, "definition of it") => doc! {name: c},
            (_, "write to the buckets of it") => {
                doc! {"update": format!("system.buckets.{c}"), "updates": [{"q": {}, "u": {"a": 1}}]}
            }
            (_, "unknown command on it") => doc! {"somethingNew": 1, "where": ns},
            (_, "aggregation that reads it") => doc! {"aggregate": "x", "pipeline": [{"$unionWith": c}], "cursor": {}},
            ("aggregate", _) => doc! {"aggregate": "x", "pipeline": [{"$merge": c}]},
            ("mapReduce" | "mapreduce", _) => doc! {name: "x", "out": {"replace": c}},
            ("renameCollection", _) => doc! {name: "d.x", "to": ns},
            ("internalRenameIfOptionsAndIndexesMatch", _) => doc! {name: 1, "from": "d.x", "to": ns},
            ("cloneCollectionAsCapped", _) => doc! {name: "x", "toCollection": c},
            ("applyOps", _) => doc! {name: [{"op": "i", "ns": ns, "o": {}}]},
            _ => self.statement(name, what),
        };
        command.insert("$db", "d");
        command
    }
}

fn samples() -> Vec<Sample> {
    let t = bson::DateTime::from_millis(5);
    let regex = bson::Regex { pattern: bson::cstr!("x").into(), options: bson::cstr!("").into() };
    let set = |field: &str, value: bson::Bson| doc! {"$set": {field: value}};
    let everything = "deny: { operations: [insert, update, delete, find, count, distinct, aggregate] }";
    let any = doc! {"a": 1};
    vec![
        Sample::new("replacement: {}", any.clone(), set("a", 1.into())),
        Sample::new("timestamps: { source: t, hide: true }", doc! {"t": t}, set("t", t.into())),
        Sample::new("timestamps: { source: t }", doc! {"t": t}, set("t", t.into())),
        Sample {
            upsert: true,
            ..Sample::new("sequence: { field: n, counter: n, on_upsert: true }", any.clone(), set("a", 1.into()))
        },
        Sample { upsert: true, ..Sample::new("sequence: { field: n, counter: n }", any.clone(), set("n", 7.into())) },
        Sample::new("bounds: { field: n, min: 0 }", doc! {"n": -1}, set("n", (-1).into())),
        Sample::new("limits: { items: { m: 1 } }", doc! {"m": [1, 2]}, doc! {"$push": {"m": 1}}),
        Sample::new("schema_version: { field: v, current: 2, minimum: 1 }", doc! {"v": 3}, set("v", 3.into())),
        Sample::new("together: [a, b]", any.clone(), set("a", 1.into())),
        Sample::new("frozen: a", any.clone(), set("a", 1.into())),
        Sample::new(
            "queue: { fields: { locked: l, locked_at: s, attempts: t }, lease: 5m }",
            any.clone(),
            set("a", 1.into()),
        ),
        Sample::new("bucket: { array: m, count: n, limit: 5 }", doc! {"m": [1]}, doc! {"$push": {"m": 1}}),
        Sample {
            filter: doc! {"_id": "a", "p": regex},
            ..Sample::new("tree: { path: p, parent: q }", doc! {"_id": "a", "q": "b"}, set("q", "b".into()))
        },
        Sample::new(everything, any.clone(), set("a", 1.into())),
        Sample::new("deny: { operations: [drop, dropDatabase, dropIndexes] }", any.clone(), set("a", 1.into())),
        Sample::new("deny: { operations: [update], when: { without: maxTimeMS } }", any.clone(), set("a", 1.into())),
        Sample::new("defaults: { maxTimeMS: 5 }", any.clone(), set("a", 1.into())),
        Sample::new("throttle: { concurrent: 5, per: app }", any.clone(), set("a", 1.into())),
        Sample::new("reads: {}", any.clone(), set("a", 1.into())),
        Sample { collection: "h", ..Sample::new("history: { into: h, keep: 5 }", any.clone(), set("a", 1.into())) },
        Sample {
            collection: "k",
            ..Sample::new(
                "copies: [{ into: d.k, key: r.id, fields: { name: r.name } }]",
                doc! {"r": {"id": 1}},
                set("r.id", 1.into()),
            )
        },
    ]
}

/// Returns the first step for a command, and the kinds of its outcomes.
fn carried_out(rules: &RuleSet, message: &[u8]) -> (Step, Vec<OutcomeKind>) {
    if let Triage::Forward { expects_reply } = triage(&RequestHead::new(message), rules) {
        return (Step::ForwardOriginal { expects_reply }, Vec::new());
    }
    let mut plan = Plan::new(message, rules, NOW);
    let step = plan.next(Input::Start, &mut client_state());
    let kinds = plan.take_outcomes().iter().map(|outcome| outcome.kind).collect();
    (step, kinds)
}

fn legacy(op_code: i32) -> Vec<u8> {
    let mut message = frame(&doc! {"x": 1}, "", &[], 0);
    message[12..16].copy_from_slice(&op_code.to_le_bytes());
    message
}

fn check(rules: &RuleSet, sample: &Sample, access: &Access, name: &str) {
    let op_codes = [("OP_INSERT", 2002), ("OP_UPDATE", 2001), ("OP_DELETE", 2006), ("OP_QUERY", 2004)];
    let message = match op_codes.iter().find(|(known, _)| *known == name) {
        Some((_, op_code)) => legacy(*op_code),
        None => frame(&sample.command(name, &access.what), "", &[], 0),
    };
    let (step, kinds) = carried_out(rules, &message);
    let forwarded = matches!(step, Step::ForwardOriginal { .. });
    let as_claimed = match access.outcome {
        CoverageOutcome::Evaluate => !forwarded || !kinds.is_empty(),
        CoverageOutcome::Reject => matches!(step, Step::Reply(_) | Step::Close(_)),
        // Hidden fields may still be removed from what findAndModify returns.
        CoverageOutcome::Allow => {
            matches!(step, Step::ForwardOriginal { .. } | Step::Forward { .. }) && kinds == [OutcomeKind::Allow]
        }
        CoverageOutcome::Forward => forwarded && kinds.is_empty(),
    };
    let pattern = sample.pattern;
    assert!(as_claimed, "{pattern}: {} by {name} should be {:?}, but: {step:?} {kinds:?}", access.what, access.outcome);
}

#[test]
fn plans_do_what_coverage_claims() {
    let mut checked = std::collections::HashSet::new();
    for sample in samples() {
        for unsupported in ["reject", "allow"] {
            let text = format!("unsupported: {unsupported}\n{}", sample.pattern);
            let rules = rules(&[("d.c", &text)]);
            let covered = coverage(&rules);
            let evaluated = format!("d.{}", sample.collection);
            let found = covered.iter().find(|covered| covered.namespaces.iter().any(|ns| ns.to_string() == evaluated));
            for access in &found.unwrap().accesses {
                let unnamed = [""];
                let names = if access.commands.is_empty() { &unnamed[..] } else { &access.commands };
                for name in names {
                    check(&rules, &sample, access, name);
                    checked.insert((sample.pattern, *name, format!("{:?}", access.outcome)));
                }
            }
        }
    }
    // Every pattern has a sample, and every outcome occurs.
    for name in crate::patterns::AnyPattern::NAMES {
        assert!(checked.iter().any(|(pattern, ..)| pattern.starts_with(name)), "{name}");
    }
    assert!(checked.len() > 300, "{}", checked.len());
}

#[test]
fn patterns_evaluate_different_statements() {
    let outcome = |pattern: &str, what: &str, name: &str| {
        let rules = rules(&[("d.c", pattern)]);
        let covered = coverage(&rules);
        let access = covered[0].accesses.iter().find(|access| access.what == what && (access.commands.contains(&name)));
        access.unwrap().outcome
    };
    for (pattern, what, name, expected) in [
        ("replacement: {}", "insert", "insert", CoverageOutcome::Forward),
        ("replacement: {}", "replacement", "findandmodify", CoverageOutcome::Evaluate),
        ("bounds: { field: n, min: 0 }", "update by pipeline", "update", CoverageOutcome::Evaluate),
        ("unsupported: allow\nreplacement: {}", "renameCollection of it", "renameCollection", CoverageOutcome::Allow),
        ("bounds: { field: n, min: 0 }", "delete", "delete", CoverageOutcome::Forward),
        (
            "queue: { fields: { locked: l, locked_at: s, attempts: t }, lease: 5m }",
            "delete",
            "bulkWrite",
            CoverageOutcome::Evaluate,
        ),
        ("sequence: { field: n, counter: n }", "update by pipeline", "update", CoverageOutcome::Evaluate),
        ("timestamps: { source: t, hide: true }", "read", "find", CoverageOutcome::Evaluate),
        ("timestamps: { source: t, hide: true }", "read", "count", CoverageOutcome::Forward),
        ("defaults: { maxTimeMS: 5 }", "insert", "bulkWrite", CoverageOutcome::Forward),
        ("defaults: { maxTimeMS: 5 }", "insert", "insert", CoverageOutcome::Evaluate),
        ("replacement: {}", "definition of it", "drop", CoverageOutcome::Forward),
        ("replacement: {}", "aggregation that reads it", "aggregate", CoverageOutcome::Forward),
        ("throttle: { concurrent: 5, per: app }", "aggregation that reads it", "aggregate", CoverageOutcome::Evaluate),
        ("deny: { operations: [aggregate] }", "aggregation that reads it", "aggregate", CoverageOutcome::Evaluate),
        (
            "deny: { operations: [aggregate], when: { multi: true } }",
            "aggregation that reads it",
            "aggregate",
            CoverageOutcome::Forward,
        ),
        ("replacement: {}", "legacy opcode", "OP_UPDATE", CoverageOutcome::Reject),
    ] {
        assert_eq!(outcome(pattern, what, name), expected, "{pattern}: {what} by {name}");
    }
}
