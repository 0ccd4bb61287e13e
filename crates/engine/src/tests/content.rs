//! Rules that do not look at content refuse none: every such rule with every odd content and form. What other rules
//! refuse names the rule.

use bson::Binary;
use bson::spec::BinarySubtype::Uuid;

use super::*;

/// Rules of which none can be broken by a write to `d.c`, or only by a delete.
const BLIND: [&str; 10] = [
    "defaults: { maxTimeMS: 5 }",
    "throttle: { concurrent: 5, per: app }",
    "reads: {}",
    "history: { into: h, keep: 5 }",
    "deny: { operations: [drop, collMod] }",
    "mode: shadow\nbounds: { field: n, min: 0 }",
    "mode: shadow\ntogether: [n, m]",
    "except: { apps: [\"*\"] }\ntimestamps: { source: t }",
    "mode: disabled\nreplacement: {}",
    BLIND_TO_WRITES,
];
const BLIND_TO_WRITES: &str = "deny: { operations: [delete], when: { filter: empty } }";

const LOOKING: [&str; 9] = [
    "replacement: {}",
    "timestamps: { source: t }",
    "sequence: { field: n, counter: n, on_upsert: true }",
    "bounds: { field: n, min: 0 }",
    "together: [n, m]",
    "queue: { lease: 5m }",
    "tree: {}",
    "limits: { document: 1KiB }",
    "deny: { operations: [insert, update, delete, find, aggregate, count] }",
];

/// Renames `nbme` to `name` in a message, so that a document has this field twice.
fn twice(mut message: Vec<u8>) -> Vec<u8> {
    while let Some(at) = message.windows(5).position(|bytes| bytes == b"nbme\0") {
        message[at + 1] = b'a';
    }
    message
}

/// Messages on `d.c` with content or a form that docward cannot analyse. `true`: a delete could be in them.
fn odd_messages() -> Vec<(&'static str, Vec<u8>, bool)> {
    let author = || doc! {"_id": 1, "author": {"name": 1, "nbme": 2}};
    let body = |command: Bson| {
        let mut command = command;
        command.insert("$db", "d");
        twice(frame(&command, "", &[], 0))
    };
    let listed = |name: &str, list: &str, statement: Bson| {
        twice(frame(&doc! {name: "c", "comment": 1, "$db": "d"}, list, &[statement], 0))
    };
    let uuid = || Binary { subtype: Uuid, bytes: vec![7; 16] };
    let nested = (0..250).fold(doc! {}, |inner, _| doc! {"a": inner});
    let apply = |operation: Bson| body(doc! {"applyOps": [operation]});
    let ops = |op: Bson| body(doc! {"bulkWrite": 1, "ops": [op], "nsInfo": [{"ns": "d.c"}]});
    let position = |mut message: Vec<u8>| {
        let at = message.windows(3).position(|bytes| bytes == b"\x100\0").unwrap();
        message[at + 1] = b'7';
        message
    };
    let two = doc! {"_id": 1, "a": [7]};
    vec![
        ("an insert", listed("insert", "documents", author()), false),
        ("an insert in the body", body(doc! {"insert": "c", "documents": [author()]}), false),
        ("another name of an element", position(listed("insert", "documents", two)), false),
        ("$set", listed("update", "updates", doc! {"q": {"_id": 1}, "u": {"$set": author()}}), false),
        ("a replacement", listed("update", "updates", doc! {"q": {"_id": 1}, "u": author()}), false),
        ("a filter", listed("update", "updates", doc! {"q": author(), "u": {"$set": {"a": 1}}}), false),
        ("findAndModify", body(doc! {"findAndModify": "c", "update": {"$set": author()}, "comment": 1}), false),
        ("an insert of bulkWrite", ops(doc! {"insert": 0, "document": author()}), false),
        ("an unknown option", listed("update", "updates", doc! {"q": {}, "u": {"$set": {"a": 1}}, "new": 1}), false),
        ("no filter", listed("update", "updates", doc! {"u": {"$set": {"a": 1}}}), false),
        ("another type", body(doc! {"update": "c", "updates": 5, "comment": 1}), false),
        ("an unknown sequence", listed("insert", "others", author()), false),
        ("nesting", listed("insert", "documents", nested), false),
        ("a field of the body twice", body(doc! {"insert": "c", "name": 1, "nbme": 1, "documents": []}), false),
        ("a field of a find twice", body(doc! {"find": "c", "name": 1, "nbme": 1, "comment": 1}), false),
        ("find by UUID", body(doc! {"find": uuid(), "comment": 1}), false),
        ("aggregate by UUID", body(doc! {"aggregate": uuid(), "pipeline": [], "comment": 1}), false),
        ("explain", body(doc! {"explain": {"insert": "c", "documents": [author()]}}), false),
        ("an explained field twice", body(doc! {"explain": {"find": "c", "name": 1, "nbme": 1}}), false),
        ("an insert into buckets", body(doc! {"insert": "system.buckets.c", "documents": [author()]}), false),
        ("applyOps", apply(doc! {"op": "i", "ns": "d.c", "o": {}}), true),
        ("applyOps by UUID", apply(doc! {"op": "i", "ns": "d.c", "ui": uuid(), "o": {}}), true),
        ("applyOps of a command", apply(doc! {"op": "c", "ns": "d.$cmd", "o": {"drop": "c"}}), true),
        ("$out", body(doc! {"aggregate": "x", "pipeline": [{"$out": "c"}], "comment": 1}), true),
        ("$merge", body(doc! {"aggregate": "c", "pipeline": [{"$merge": "c"}], "comment": 1}), true),
        ("mapReduce", body(doc! {"mapReduce": "x", "out": {"replace": "c"}, "comment": 1}), true),
        ("renameCollection", body(doc! {"renameCollection": "d.c", "to": "d.x"}), true),
        ("renameCollection onto it", body(doc! {"renameCollection": "d.x", "to": "d.c"}), true),
        ("cloneCollectionAsCapped", body(doc! {"cloneCollectionAsCapped": "c", "toCollection": "x"}), true),
        ("an unknown command", body(doc! {"somethingNew": "c"}), true),
        ("an unknown command by UUID", body(doc! {"somethingNew": uuid()}), true),
    ]
}

/// The last step that is not a lookup of permits, and the outcomes.
fn carried_out(rules: &RuleSet, message: &[u8]) -> (Step, Vec<super::super::RuleOutcome>) {
    if let Triage::Forward { expects_reply } = triage(&RequestHead::new(message), rules) {
        return (Step::ForwardOriginal { expects_reply }, Vec::new());
    }
    let mut client_state = ClientState { app_name: Some("any".into()), ..client_state() };
    let mut plan = Plan::new(message, rules, NOW);
    let mut step = next(&mut plan, Input::Start, &mut client_state);
    if let Step::Permits(_) = step {
        step = next(&mut plan, Input::Permits(Ok(())), &mut client_state);
    }
    (step, plan.take_rest())
}

#[test]
fn rules_that_do_not_look_at_content_refuse_none() {
    let mut wrong = Vec::new();
    for rule in BLIND {
        let rules = rules(&[("d.c", rule)]);
        for (what, message, may_delete) in odd_messages() {
            if may_delete && rule == BLIND_TO_WRITES {
                continue;
            }
            let (step, outcomes) = carried_out(&rules, &message);
            let is_sent = match &step {
                Step::ForwardOriginal { .. } => true,
                // Only the option was added.
                Step::Forward { message: sent, .. } => {
                    let (sent, own) = (Message::parse(sent).unwrap(), Message::parse(&message).unwrap());
                    let list = |message: &Message<'_>| {
                        message.sequences.iter().flat_map(|one| one.as_bytes().to_vec()).collect::<Vec<_>>()
                    };
                    rule.starts_with("defaults") && (own.sequences.is_empty() || list(&sent) == list(&own))
                }
                _ => false,
            };
            if !is_sent || outcomes.iter().any(|outcome| outcome.kind == OutcomeKind::Reject) {
                wrong.push(format!("{rule}: {what}: {}", described(&step)));
            }
        }
    }
    assert!(wrong.is_empty(), "{} refused:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_other_rules_refuse_for_its_form_names_the_rule() {
    let mut refused = 0;
    for rule in LOOKING {
        let rules = rules(&[("d.c", rule)]);
        for (what, message, _) in odd_messages() {
            let (Step::Reply(reply), outcomes) = carried_out(&rules, &message) else { continue };
            let body = documents(&reply).0;
            let error = match body.get_array("writeErrors") {
                Ok(errors) => errors[0].as_document().unwrap().clone(),
                Err(_) => match body.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch")) {
                    Ok(results) => results[0].as_document().unwrap().clone(),
                    Err(_) => body.clone(),
                },
            };
            let info = error.get_document("errInfo").and_then(|info| info.get_document("docward"));
            let info = info.unwrap_or_else(|_| panic!("{rule}: {what}: {body}"));
            for key in ["rule", "pattern", "reason", "hint"] {
                assert!(!info.get_str(key).unwrap().is_empty(), "{rule}: {what}: {body}");
            }
            assert!(error.get_str("errmsg").unwrap().contains("'rule-0'"), "{rule}: {what}: {body}");
            assert!(outcomes.iter().any(|outcome| outcome.kind == OutcomeKind::Reject), "{rule}: {what}: no log line");
            refused += 1;
        }
    }
    assert!(refused > 150, "{refused}");
}

#[test]
fn what_every_server_refuses_or_no_rule_can_be_broken_by_is_forwarded() {
    let merge = doc! {"_mergeAuthzCollections": 1, "tempRolesCollection": "admin.temproles", "drop": false, "db": "sa"};
    for (namespace, rule) in LOOKING.into_iter().flat_map(|rule| [("d.c", rule), ("*.*", rule)]) {
        let rules = rules(&[(namespace, rule)]);
        let nothing = frame(&doc! {"findAndModify": "c", "query": {"_id": 1}, "$db": "d"}, "", &[], 0);
        let mut merge = merge.clone();
        merge.insert("$db", "admin");
        for message in [nothing, frame(&merge, "", &[], 0)] {
            let (step, outcomes) = carried_out(&rules, &message);
            assert!(
                matches!(step, Step::ForwardOriginal { .. }) && outcomes.is_empty(),
                "{rule}: {}",
                described(&step)
            );
        }
    }
}

/// Of two strings in a command docward makes a namespace only if one can name a database.
#[test]
fn a_namespace_is_no_database() {
    let rules = rules(&[("*.*", "together: [n, m]")]);
    let named = |database: &str| doc! {"somethingNew": 1, "a": "admin.x", "b": database, "$db": "admin"};
    let forwarded =
        |command: &Bson| matches!(first_step(&rules, &frame(command, "", &[], 0)), Step::ForwardOriginal { .. });
    assert!(forwarded(&named("local")) && !forwarded(&named("shop")));
}

/// A rejection names the statement that the client sent, not what an earlier rule made of it.
#[test]
fn a_rejected_replacement_is_called_one() {
    let rules = rules(&[("d.c", "replacement: { policy: merge }"), ("d.c", "together: [n, m]")]);
    let upsert = update(&[doc! {"q": {"_id": 1}, "u": {"n": 1}, "upsert": true}]);
    let (step, _) = carried_out(&rules, &upsert);
    assert!(described(&step).contains("rejects this replacement on d.c"), "{}", described(&step));
}

fn described(step: &Step) -> String {
    match step {
        Step::Reply(reply) => documents(reply).0.to_string(),
        Step::Forward { message, .. } => format!("sent {}", documents(message).0),
        other => format!("{other:?}"),
    }
}
