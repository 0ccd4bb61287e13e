//! The query listener: which commands it accepts, and the read preference it adds.
//!
//! It accepts commands that only read, on collections that a `reads` rule names. All others get an error that drivers
//! do not retry. The other rules evaluate the reads as usual. Does no I/O; `crate::proxy` selects the member.

use std::sync::Arc;

use super::Triage;
use super::explain::explained;
use super::message_plan::with_fields;
use super::outcome::{OutcomeKind, RuleOutcome, RuleOutcomes};
use super::request_head::RequestHead;
use super::step::Step;
use crate::command::{Command, CommandClass, Namespace, code, error_reply, input_collections, output_targets};
use crate::document::{self, Document, OwnedValue, Value};
use crate::patterns::Rejection;
use crate::rules::{RuleSet, reads};
use crate::wire::header::{Header, OpCode};

/// The kind of listener that accepted the client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ListenerKind {
    /// A member's listener: all commands are accepted.
    #[default]
    Commands,
    /// The query listener. `commands` is the address of the first member's listener, for error messages.
    Queries { commands: Arc<str> },
    /// A router's listener: reads can go to secondaries by `reads` rules.
    Router,
}

/// Whether the query listener accepts a message.
#[derive(Debug)]
pub enum QueryAdmission {
    /// Accepted unchanged.
    Original,
    /// Accepted with this message instead.
    Instead(Vec<u8>),
    /// Not accepted.
    Rejected(QueryRejection),
}

/// Why the query listener does not accept a message.
#[derive(Debug)]
pub struct QueryRejection {
    /// The message's final step.
    pub step: Step,
    /// "'insert' is not a read command, and the query listener accepts only reads"
    pub reason: String,
    /// The outcome for the `reads` rule that names the collection; empty if there is none.
    pub outcomes: Vec<RuleOutcome>,
}

/// Commands that every member answers under any read preference, and that name no collection. getMore and killCursors
/// use cursors that were accepted before.
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

/// [`super::triage`] for the query listener: messages it would forward are evaluated, except for the commands that
/// are always accepted.
pub fn triage(head: &RequestHead<'_>, rules: &RuleSet) -> Triage {
    match super::triage(head, rules) {
        Triage::Forward { .. } if !head.name().is_some_and(passes) => Triage::Evaluate,
        other => other,
    }
}

fn passes(name: &[u8]) -> bool {
    PASSING.contains(&name)
}

/// Decides whether the query listener accepts a message, and adds a read preference for secondaries to reads.
/// Messages that cannot be parsed are left to the plan, which returns the error.
pub fn admit(frame: &[u8], rules: &RuleSet, commands: &str) -> QueryAdmission {
    if !Header::of_frame(frame).is_ok_and(|header| header.op_code == OpCode::Msg) {
        return QueryAdmission::Original;
    }
    let Ok(command) = Command::parse(frame) else { return QueryAdmission::Original };
    match reason_to_reject(&command, rules) {
        Some(reason) => QueryAdmission::Rejected(reject(&command, reason, rules, commands)),
        None if passes(command.name.as_bytes()) => QueryAdmission::Original,
        None => QueryAdmission::Instead(with_read_preference(&command)),
    }
}

/// Returns why a command is not accepted; the text follows the command's name.
pub(super) fn reason_to_reject(command: &Command<'_>, rules: &RuleSet) -> Option<String> {
    if command.session().in_transaction || command.session().starts_transaction {
        return Some("is part of a transaction, and the query listener does not support transactions".to_owned());
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
        CommandClass::Find | CommandClass::Count | CommandClass::Distinct => unnamed(command.collection(), rules),
        CommandClass::Aggregate => aggregation(command, rules),
        // Only one level: the server does not explain an explain.
        CommandClass::Explain => match explained(command) {
            Ok(Some(inner)) if inner.class != CommandClass::Explain => reason_to_reject(&inner, rules),
            _ => Some("explains a command that is not a read".to_owned()),
        },
        _ => Some("is not a read command, and the query listener accepts only reads".to_owned()),
    }
}

fn aggregation(command: &Command<'_>, rules: &RuleSet) -> Option<String> {
    if !output_targets(command.body, command.database).is_empty() {
        return Some("writes its result into a collection, and the query listener accepts only reads".to_owned());
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
        Some(namespace) if reads::reads_rule(rules, namespace).is_some() => None,
        Some(namespace) => Some(format!("reads {namespace}, which no `reads` rule names")),
        None => Some("does not name its collection by a string, so no `reads` rule can apply to it".to_owned()),
    }
}

fn reject(command: &Command<'_>, reason: String, rules: &RuleSet, commands: &str) -> QueryRejection {
    let hint = format!("send it to a member listener of docward ({commands})");
    let text = format!("docward: '{}' {reason}. What to do: {hint}.", command.name);
    let step = if command.message.more_to_come() {
        Step::Close(text)
    } else {
        Step::Reply(error_reply(command.message.header, code::COMMAND_NOT_SUPPORTED, &text, |_| {}))
    };
    let reason = format!("'{}' {reason}", command.name);
    let mut outcomes = RuleOutcomes::default();
    let namespace = command.collection();
    if let Some((namespace, rule)) =
        namespace.and_then(|namespace| Some((namespace, reads::reads_rule(rules, namespace)?)))
    {
        outcomes.add(rule, namespace, OutcomeKind::Reject, Some(&Rejection::new(reason.clone(), hint)));
    }
    QueryRejection { step, reason, outcomes: outcomes.take() }
}

/// A driver that sees a standalone server sends no read preference, or `primary`.
pub(super) fn with_read_preference(command: &Command<'_>) -> Vec<u8> {
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
    use crate::config::SourceFile;
    use crate::wire::op_msg::{Message, MessageWriter};

    fn rules() -> RuleSet {
        let text = "version: 1\nrules:\n  - { name: a, namespace: shop.*, reads: {} }\n  - { name: b, namespace: \
                    shop.secret, mode: disabled, reads: {} }\n  - { name: c, namespace: x.tried, mode: shadow, reads: {} }\n";
        RuleSet::from_sources(vec![SourceFile { name: "r.yaml".into(), text: text.into() }]).unwrap()
    }

    fn frame(body: &bson::Document) -> Vec<u8> {
        let mut writer = MessageWriter::new(7, 0, 0, 0);
        writer.body(|out| out.extend_from_slice(bson::RawDocumentBuf::try_from(body).unwrap().as_bytes()));
        writer.finish()
    }

    fn body(frame: &[u8]) -> bson::Document {
        bson::RawDocument::from_bytes(Message::parse(frame).unwrap().body).unwrap().try_into().unwrap()
    }

    /// The forwarded command, or the error message.
    fn admitted(command: bson::Document) -> Result<bson::Document, String> {
        let sent = frame(&command);
        match admit(&sent, &rules(), "here:1") {
            QueryAdmission::Original => Ok(body(&sent)),
            QueryAdmission::Instead(instead) => Ok(body(&instead)),
            QueryAdmission::Rejected(QueryRejection { step: Step::Reply(reply), .. }) => {
                assert_eq!(body(&reply).get("code"), Some(&Bson::from(115)));
                Err(body(&reply).get_str("errmsg").unwrap().to_owned())
            }
            other @ QueryAdmission::Rejected(_) => panic!("{other:?}"),
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
    fn a_refused_command_counts_for_the_rule_that_names_the_collection() {
        let outcomes_of = |command: bson::Document| match admit(&frame(&command), &rules(), "here:1") {
            QueryAdmission::Rejected(QueryRejection { outcomes, .. }) => {
                let parts =
                    |of: &RuleOutcome| (of.rule_name.to_string(), of.kind, of.namespace.clone(), of.reason.to_string());
                outcomes.iter().map(parts).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        };
        let reason = "'insert' is not a read command, and the query listener accepts only reads".to_owned();
        let expected = ("a".to_owned(), OutcomeKind::Reject, "shop.orders".to_owned(), reason);
        assert_eq!(outcomes_of(doc! {"insert": "orders", "$db": "shop"}), [expected]);
        assert_eq!(outcomes_of(doc! {"insert": "orders", "$db": "x"}), []);
        assert_eq!(outcomes_of(doc! {"find": "tried", "$db": "x"}), []);
    }

    #[test]
    fn all_other_commands_get_an_error_with_the_address_for_commands() {
        for (command, reason) in [
            (doc! {"insert": "orders"}, "'insert' is not a read"),
            (doc! {"bulkWrite": 1}, "is not a read"),
            (doc! {"dropDatabase": 1}, "is not a read"),
            (doc! {"commitTransaction": 1, "autocommit": false}, "is part of a transaction"),
            (doc! {"whoKnows": "orders"}, "is not a read"),
            (doc! {"find": "system.users", "$db": "admin"}, "reads admin.system.users, which no `reads` rule names"),
            (doc! {"find": "tried", "$db": "x"}, "reads x.tried, which no `reads` rule names"),
            (doc! {"find": "orders", "startTransaction": true, "autocommit": false}, "is part of a transaction"),
            (doc! {"aggregate": 1, "pipeline": [{"$currentOp": {}}]}, "does not name its collection"),
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
            (doc! {"explain": {"update": "orders"}}, "is not a read"),
            (doc! {"explain": {"explain": {"find": "orders"}}}, "explains a command that is not a read"),
        ] {
            let mut sent = command.clone();
            sent.entry("$db".to_owned()).or_insert_with(|| "shop".into());
            let text = admitted(sent).unwrap_err();
            assert!(text.contains(reason) && text.contains("here:1"), "{command}: {text}");
        }
    }
}
