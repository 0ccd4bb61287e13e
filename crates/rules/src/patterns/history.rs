//! `history`: keeps the previous state of every changed document.
//!
//! The rule does not change statements. [`crate::service`] follows the changes of the collection and stores the states
//! in `into`. This module reads the settings, and rejects statements that would change the stored states.

use std::collections::HashMap;
use std::time::Duration;

use super::collection::{Collection, NearCollection};
use super::{
    ALL_COLLECTIONS, AnyPattern, Applicability, CommandVerdict, Context, Pattern, Privilege, Properties, Rejection,
    Requirement, RuleView, Verdict, WholeCommand,
};
use crate::command::{CommandClass, Namespace, Statement, StatementKind};
use crate::config::keys::{self, Declaration, DescribeSchema, Keys, ReadValue, Setting, ValueSchema, WholeNumber};
use crate::config::{
    Code, Diagnostic, Located, MapReader, NamespaceGlob, Node, NodeValue, ReadContext, Span, parse_duration,
};

/// Settings of the pattern.
#[derive(Debug, Clone)]
pub struct History {
    /// The collection whose changes are recorded.
    pub of: Collection,
    /// The collection with the previous states.
    pub into: Collection,
    pub keep: Keep,
    into_span: Span,
}

/// Which states stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// This many of each document, the newest; at least one.
    Revisions(i64),
    /// Those of changes in this time.
    For(Duration),
}

const INTO: Setting<NearCollection> = Setting::required(
    "into",
    NearCollection,
    "The collection that gets the previous states: in the same database, or DB.COLLECTION. Only docward writes to it.",
)
.examples(&["orders_history"]);
const KEEP: Setting<KeepSetting> = Setting::required(
    "keep",
    KeepSetting,
    "The states that stay: a number of revisions of each document, or the duration since the change, such as 90d.",
);
const KEYS: Keys = Keys::new(
    "Previous states of changed documents, kept in another collection. The rule's namespace is one collection.",
    &[&INTO, &KEEP],
);

const MOST_REVISIONS: std::ops::RangeInclusive<i64> = 1..=1_000_000_000;
/// A TTL index counts whole seconds in 32 bits.
const LONGEST: Duration = Duration::from_secs(i32::MAX as u64);
const SHORTEST: Duration = Duration::from_secs(1);

/// A number of revisions, or a duration.
#[derive(Clone, Copy, Debug)]
struct KeepSetting;

impl DescribeSchema for KeepSetting {
    fn schema(&self) -> ValueSchema {
        ValueSchema::OneOf(vec![ValueSchema::Whole(MOST_REVISIONS), keys::Duration.schema()])
    }
}

impl ReadValue for KeepSetting {
    type Value = Keep;

    fn read(&self, context: &mut ReadContext<'_>, key: &'static str, node: &Node) -> Option<Keep> {
        if matches!(node.value, NodeValue::Integer(_)) || node.value.is_quoted_number() {
            return WholeNumber(MOST_REVISIONS).read(context, key, node).map(|number| Keep::Revisions(number.value));
        }
        let is_duration = matches!(&node.value, NodeValue::Text(text) if parse_duration(text).is_some());
        if !is_duration {
            let message = format!("`{key}` must be a number of revisions or a duration");
            let mistake = Diagnostic::error(Code::WrongType, node.span, message);
            let mistake = mistake.note(format!("found {}", node.value.describe()));
            context.push(
                mistake.help("write `100` for the last 100 states of each document, or `90d` for those of 90 days"),
            );
            return None;
        }
        let duration = keys::Duration.read(context, key, node)?;
        if !(SHORTEST..=LONGEST).contains(&duration.value) || duration.value.subsec_nanos() > 0 {
            let message = format!("`keep` must be whole seconds, at most {} days", LONGEST.as_secs() / 86_400);
            context.error(Code::InvalidValue, duration.span, message);
            return None;
        }
        Some(Keep::For(duration.value))
    }
}

impl Pattern for History {
    fn declaration() -> Declaration {
        Declaration::mapping(&KEYS).example("{ into: orders_history, keep: 100 }")
    }

    fn read(settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
        context.mapping(settings, &KEYS, Self::read_keys)
    }

    /// Two rules that record into one collection, and a history of a history.
    fn contradictions(rules: &[RuleView<'_>]) -> Vec<Diagnostic> {
        let histories: Vec<_> = rules.iter().filter_map(|rule| Some((rule, Self::of_rule(rule)?))).collect();
        let mut found = Vec::new();
        let mut writers: HashMap<_, &RuleView<'_>> = HashMap::new();
        for (rule, history) in &histories {
            let name = &rule.name.value;
            if let Some(other) = writers.insert((&history.into, rule.mode), rule) {
                let message = format!("`{}` and `{name}` both record into {}", other.name.value, history.into);
                let mistake = Diagnostic::error(Code::Contradiction, history.into_span, message);
                found.push(mistake.label(other.name.span, "the other rule").help("give each rule a collection"));
            }
            if let Some((other, _)) = histories.iter().find(|(_, other)| other.of == history.into) {
                let message =
                    format!("`{name}` records into {}, whose history `{}` keeps", history.into, other.name.value);
                let mistake = Diagnostic::error(Code::Contradiction, history.into_span, message);
                found.push(mistake.label(other.name.span, "the other rule").help("record into another collection"));
            }
        }
        found
    }

    fn properties(&self) -> Properties {
        Properties {
            exclusive: true,
            also_evaluates: vec![self.into.namespace.clone()],
            requirements: vec![Requirement::OwnConnection, Requirement::PipelineUpdates, Requirement::PreImages],
            ..Properties::default()
        }
    }

    fn privileges(&self, _: &[Located<NamespaceGlob>]) -> Vec<Privilege> {
        let Self { of, into, keep, .. } = self;
        let keeps: &[&str] = match keep {
            Keep::Revisions(_) => &["find", "insert", "remove", "listIndexes"],
            Keep::For(_) => &["find", "insert", "createIndex", "listIndexes", "collMod"],
        };
        vec![
            Privilege::new(&of.database, &of.name, &["find", "changeStream"]),
            // An empty name: on the database.
            Privilege::new(&of.database, "", &["listCollections"]),
            Privilege { database: into.database.clone(), collection: into.name.clone(), actions: keeps },
            Privilege::new("docward", "leases", &["find", "insert", "update"]),
        ]
    }

    fn applicability(&self, _: StatementKind, namespace: Namespace<'_>) -> Applicability {
        if self.into.is(namespace) { Applicability::Each } else { Applicability::None }
    }

    fn evaluate<'a>(&self, _: &Statement<'a>, _: &Context<'_>) -> Verdict<'a> {
        Verdict::reject(
            format!("it changes {}, which holds previous states of documents of {}", self.into, self.of),
            format!("Only docward writes to {}. To change a document, write to {}.", self.into, self.of),
        )
    }

    /// Commands that could remove the stored states, hide them, or keep the worker from storing more.
    fn evaluates_command(&self, class: CommandClass, _: Option<StatementKind>, namespace: Namespace<'_>) -> bool {
        let is_all = namespace.collection == ALL_COLLECTIONS && namespace.database == self.into.database;
        (class.defines() || class == CommandClass::RenameCollection) && (is_all || self.into.is(namespace))
    }

    fn evaluate_command(&self, _: &WholeCommand<'_>) -> CommandVerdict {
        CommandVerdict::Reject(Rejection::new(
            format!("it could remove or change {}, which holds previous states of documents of {}", self.into, self.of),
            format!(
                "Only docward defines {}. (For the DBA: send it to the server directly, or list an application under \
                 the rule's `except`.)",
                self.into
            ),
        ))
    }
}

impl History {
    fn of_rule<'r>(rule: &RuleView<'r>) -> Option<&'r Self> {
        match rule.pattern {
            AnyPattern::History(history) => Some(history),
            _ => None,
        }
    }

    fn read_keys(reader: &mut MapReader<'_, '_, '_>) -> Option<Self> {
        let (into, keep) = (reader.get(&INTO), reader.get(&KEEP));
        let context = reader.context();
        let of = Collection::only(context, "history", "the documents");
        let (of, into, keep) = (of?, into?, keep?);
        let span = into.span;
        let (database, name) = into.value;
        let full = format!("{}.{name}", database.as_ref().unwrap_or(&of.database));
        let into = Collection::parse(context, INTO.name, &Located { value: full, span })?;
        if into == of {
            context.error(Code::ConflictingSettings, span, "`into` is the collection whose history it keeps");
            return None;
        }
        Some(Self { of, into, keep, into_span: span })
    }
}
