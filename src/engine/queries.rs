//! The query listener: which commands may pass there, and what they need to be answered by a secondary.
//!
//! What passes is what only reads, of collections that a `reads` rule names; everything else is refused with an
//! error that no driver retries. The other rules evaluate the reads as they do everywhere. Pure; which member
//! answers is decided in `crate::proxy`.

use std::sync::Arc;

use super::Triage;
use super::explain::explained;
use super::outcome::{OutcomeKind, RuleOutcome, RuleOutcomes};
use super::plan::{Step, with_fields};
use crate::command::{Class, Command, Namespace, code, error_reply, input_collections, output_targets};
use crate::document::{self, Document, OwnedValue, Value, peek};
use crate::patterns::{Rejection, RuleSet, reads};
use crate::wire::header::{HEADER_LENGTH, Header, OpCode};

/// Where a client came in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ListenerKind {
    /// A member's listener: everything may be asked for.
    #[default]
    Commands,
    /// The query listener. `commands` is the address of the first member's listener, for errors.
    Queries { commands: Arc<str> },
}

/// Whether a message passes.
#[derive(Debug)]
pub enum Admission {
    /// As it came.
    Original,
    /// In this form.
    Instead(Vec<u8>),
    /// It does not.
    Refused(QueryRejection),
}

/// Why a message does not pass the query listener.
#[derive(Debug)]
pub struct QueryRejection {
    /// The message's last step.
    pub step: Step,
    /// "it is no read, and the query listener only takes reads"
    pub reason: String,
    /// Of the `reads` rule that names the collection; empty where none does.
    pub outcomes: Vec<RuleOutcome>,
}

/// Where the body of an OP_MSG that was let through begins: behind the flags and the section's kind.
const BODY_AT: usize = HEADER_LENGTH + 5;

/// Answered by every member, whatever the read preference, and about no collection. getMore and killCursors
/// go on with what was admitted before.
const PASSING: [&[u8]; 15] = [
    b"buildInfo",
    b"buildinfo",
    b"connectionStatus",
    b"endSessions",
    b"getCmdLineOpts",
    b"getLog",
    b"getMore",
    b"getParameter",
    b"hostInfo",
    b"killCursors",
    b"listCommands",
    b"ping",
    b"refreshSessions",
    b"serverStatus",
    b"whatsmyuri",
];

/// [`super::triage`] at the query listener: what it would let through is evaluated, but for what always passes.
pub fn triage(head: &[u8], rules: &RuleSet) -> Triage {
    match super::triage(head, rules) {
        Triage::Forward { .. }
            if !peek(head.get(BODY_AT..).unwrap_or_default()).next().is_some_and(|first| passes(first.key)) =>
        {
            Triage::Evaluate
        }
        other => other,
    }
}

fn passes(name: &[u8]) -> bool {
    PASSING.contains(&name)
}

/// Reads pass with a read preference that a secondary answers to. What cannot be read is left to the plan, which
/// refuses it.
pub fn admit(frame: &[u8], rules: &RuleSet, commands: &str) -> Admission {
    if !Header::of_frame(frame).is_ok_and(|header| header.op_code == OpCode::Msg) {
        return Admission::Original;
    }
    let Ok(command) = Command::parse(frame) else { return Admission::Original };
    match objection(&command, rules) {
        Some(objection) => Admission::Refused(refuse(&command, objection, rules, commands)),
        None if passes(command.name.as_bytes()) => Admission::Original,
        None => Admission::Instead(with_read_preference(&command)),
    }
}

/// Why a command does not pass; half a sentence.
fn objection(command: &Command<'_>, rules: &RuleSet) -> Option<String> {
    if command.session().in_transaction || command.session().starts_transaction {
        return Some("is part of a transaction, and the query listener has none".to_owned());
    }
    if passes(command.name.as_bytes()) {
        return None;
    }
    match command.name {
        "listCollections" | "listDatabases" | "dbStats" | "dbstats" => return None,
        "listIndexes" | "collStats" | "collstats" => return unnamed(command.collection(), rules),
        _ => {}
    }
    match command.class {
        Class::Find | Class::Count | Class::Distinct => unnamed(command.collection(), rules),
        Class::Aggregate => aggregation(command, rules),
        // Only one level: the server explains no explain.
        Class::Explain => match explained(command) {
            Ok(Some(inner)) if inner.class != Class::Explain => objection(&inner, rules),
            _ => Some("explains what is no read".to_owned()),
        },
        _ => Some("is no read, and the query listener only takes reads".to_owned()),
    }
}

fn aggregation(command: &Command<'_>, rules: &RuleSet) -> Option<String> {
    if !output_targets(command).is_empty() {
        return Some("writes its result into a collection, and the query listener only takes reads".to_owned());
    }
    unnamed(command.collection(), rules).or_else(|| {
        let inputs = input_collections(command);
        let unnamed = |input: &Result<(String, String), ()>| match input {
            Ok((database, collection)) => unnamed(Some(Namespace { database, collection }), rules),
            Err(()) => unnamed(None, rules),
        };
        inputs.iter().find_map(unnamed)
    })
}

fn unnamed(namespace: Option<Namespace<'_>>, rules: &RuleSet) -> Option<String> {
    match namespace {
        Some(namespace) if reads::naming(rules, namespace).is_some() => None,
        Some(namespace) => Some(format!("reads {namespace}, which no `reads` rule names")),
        None => Some("names no collection by a string, so no `reads` rule can name it".to_owned()),
    }
}

fn refuse(command: &Command<'_>, objection: String, rules: &RuleSet, commands: &str) -> QueryRejection {
    let hint = format!("send it by the connection string for commands (docward listens for them on {commands})");
    let text = format!("docward: '{}' {objection}. What to do: {hint}.", command.name);
    let step = if command.message.more_to_come() {
        Step::Close(text)
    } else {
        Step::Reply(error_reply(command.message.header, code::ILLEGAL_OPERATION, &text, |_| {}))
    };
    let reason = format!("'{}' {objection}", command.name);
    let mut outcomes = RuleOutcomes::default();
    let namespace = command.collection();
    if let Some((namespace, rule)) = namespace.and_then(|namespace| Some((namespace, reads::naming(rules, namespace)?)))
    {
        outcomes.note(rule, namespace, OutcomeKind::Reject, Some(&Rejection::new(reason.clone(), hint)));
    }
    QueryRejection { step, reason, outcomes: outcomes.take() }
}

/// A driver that takes the listener for a standalone sends no read preference, or one for a primary.
fn with_read_preference(command: &Command<'_>) -> Vec<u8> {
    const FIELD: &str = "$readPreference";
    let sent = command.body.get(FIELD).and_then(Value::as_document);
    let mode = sent.and_then(|preference| preference.get("mode")).and_then(Value::as_str);
    if mode.is_some_and(|mode| mode != "primary") {
        return with_fields(&command.message, command.body, &[]);
    }
    let preference = document::document(|w| w.string("mode", "secondaryPreferred"));
    let preference = Document::parse(&preference).map(Value::document).map(OwnedValue::from);
    let changes: Vec<_> = preference.into_iter().map(|preference| (FIELD, preference)).collect();
    with_fields(&command.message, command.body, &changes)
}

#[cfg(test)]
mod tests {
    use bson::{Bson, doc};

    use super::*;
    use crate::rules::Source;
    use crate::wire::op_msg::{Message, Writer};

    fn rules() -> RuleSet {
        let text = "version: 1\nrules:\n  - { name: a, namespace: shop.*, reads: {} }\n  - { name: b, namespace: \
                    shop.secret, mode: disabled, reads: {} }\n  - { name: c, namespace: x.tried, mode: shadow, reads: {} }\n";
        RuleSet::from_sources(vec![Source { name: "r.yaml".into(), text: text.into() }]).unwrap()
    }

    fn frame(body: &bson::Document) -> Vec<u8> {
        let mut writer = Writer::new(7, 0, 0, 0);
        writer.body(|out| out.extend_from_slice(bson::RawDocumentBuf::try_from(body).unwrap().as_bytes()));
        writer.finish()
    }

    fn body(frame: &[u8]) -> bson::Document {
        bson::RawDocument::from_bytes(Message::parse(frame).unwrap().body).unwrap().try_into().unwrap()
    }

    /// What is sent on, or the text of the refusal.
    fn admitted(command: bson::Document) -> Result<bson::Document, String> {
        let sent = frame(&command);
        match admit(&sent, &rules(), "here:1") {
            Admission::Original => Ok(body(&sent)),
            Admission::Instead(instead) => Ok(body(&instead)),
            Admission::Refused(QueryRejection { step: Step::Reply(reply), .. }) => {
                assert_eq!(body(&reply).get("code"), Some(&Bson::from(20)));
                Err(body(&reply).get_str("errmsg").unwrap().to_owned())
            }
            other @ Admission::Refused(_) => panic!("{other:?}"),
        }
    }

    #[test]
    fn reads_of_named_collections_pass_with_a_read_preference() {
        for mut command in [
            doc! {"find": "orders", "filter": {}},
            doc! {"count": "orders"},
            doc! {"distinct": "orders", "key": "a"},
            doc! {"aggregate": "orders", "pipeline": [{"$lookup": {"from": "books", "pipeline": [], "as": "b"}}]},
            doc! {"aggregate": "orders", "pipeline": [{"$unionWith": {"pipeline": [{"$documents": []}]}}]},
            doc! {"explain": {"find": "orders"}},
            doc! {"listCollections": 1},
            doc! {"collStats": "orders"},
        ] {
            command.insert("$db", "shop");
            let preference = Some(&Bson::from(doc! {"mode": "secondaryPreferred"}));
            assert_eq!(admitted(command.clone()).unwrap().get("$readPreference"), preference, "{command}");
            command.insert("$readPreference", doc! {"mode": "primary"});
            assert_eq!(admitted(command.clone()).unwrap().get("$readPreference"), preference, "{command}");
            command.insert("$readPreference", doc! {"mode": "nearest", "tags": [{"dc": "a"}]});
            assert_eq!(admitted(command.clone()).unwrap(), command);
        }
        for command in [doc! {"ping": 1, "$db": "x"}, doc! {"getMore": 5_i64, "collection": "y", "$db": "x"}] {
            assert_eq!(admitted(command.clone()), Ok(command));
        }
    }

    #[test]
    fn a_refusal_counts_for_the_rule_that_names_the_collection() {
        let spoke = |command: bson::Document| match admit(&frame(&command), &rules(), "here:1") {
            Admission::Refused(QueryRejection { outcomes, .. }) => {
                let said = |of: &RuleOutcome| (of.rule_name.clone(), of.said, of.namespace.clone(), of.reason.clone());
                outcomes.iter().map(said).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        };
        let reason = "'insert' is no read, and the query listener only takes reads".to_owned();
        let expected = ("a".to_owned(), OutcomeKind::Reject, "shop.orders".to_owned(), reason);
        assert_eq!(spoke(doc! {"insert": "orders", "$db": "shop"}), [expected]);
        assert_eq!(spoke(doc! {"insert": "orders", "$db": "x"}), []);
        assert_eq!(spoke(doc! {"find": "tried", "$db": "x"}), []);
    }

    #[test]
    fn everything_else_is_told_where_to_go() {
        for (command, reason) in [
            (doc! {"insert": "orders"}, "'insert' is no read"),
            (doc! {"bulkWrite": 1}, "is no read"),
            (doc! {"dropDatabase": 1}, "is no read"),
            (doc! {"commitTransaction": 1, "autocommit": false}, "is part of a transaction"),
            (doc! {"whoKnows": "orders"}, "is no read"),
            (doc! {"find": "system.users", "$db": "admin"}, "reads admin.system.users, which no `reads` rule names"),
            (doc! {"find": "tried", "$db": "x"}, "reads x.tried, which no `reads` rule names"),
            (doc! {"find": "orders", "startTransaction": true, "autocommit": false}, "is part of a transaction"),
            (doc! {"aggregate": 1, "pipeline": [{"$currentOp": {}}]}, "names no collection"),
            (doc! {"aggregate": "orders", "pipeline": [{"$facet": {"a": [{"$out": "b"}]}}]}, "writes its result"),
            (doc! {"aggregate": "orders", "pipeline": [{"$merge": {"into": "b"}}]}, "writes its result"),
            (
                doc! {"aggregate": "orders", "pipeline": [{"$facet": {"a": [{"$unionWith": {"coll": "c", "db": "x"}}]}}]},
                "reads x.c",
            ),
            (
                doc! {"aggregate": "orders", "pipeline": [{"$lookup": {"from": {"db": "local", "coll": "oplog.rs"}}}]},
                "reads local.oplog.rs",
            ),
            (doc! {"explain": {"update": "orders"}}, "is no read"),
            (doc! {"explain": {"explain": {"find": "orders"}}}, "explains what is no read"),
        ] {
            let mut sent = command.clone();
            sent.entry("$db".to_owned()).or_insert_with(|| "shop".into());
            let text = admitted(sent).unwrap_err();
            assert!(text.contains(reason) && text.contains("here:1"), "{command}: {text}");
        }
    }
}
