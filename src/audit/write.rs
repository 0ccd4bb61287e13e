//! The effect of one recorded write: which documents it selects, and what it does to them.

use crate::command::{CommandClass, classify};
use crate::document::{Document, Value};

/// What a write does to the documents that it selects.
#[derive(Debug, Clone, Copy)]
pub(super) enum WriteAction<'c> {
    Insert(Document<'c>),
    Operators(Document<'c>),
    Replacement(Document<'c>),
    /// An aggregation pipeline, or a change in a form that is not known.
    Other,
    Delete,
}

/// The first statement of a command.
#[derive(Debug, Clone, Copy)]
pub(super) struct AuditedWrite<'c> {
    pub(super) filter: Document<'c>,
    pub(super) change: WriteAction<'c>,
    pub(super) upsert: bool,
    pub(super) multi: bool,
}

impl<'c> AuditedWrite<'c> {
    /// Returns `None` for a command that is not an insert, update, delete or findAndModify.
    pub(super) fn from_command(command: Document<'c>) -> Option<Self> {
        let list = |name: &str| command.get(name)?.as_array()?.values().next()?.as_document();
        let document = |of: Document<'c>, name: &str| of.get(name).and_then(Value::as_document);
        let flag = |of: Document<'c>, name: &str| of.get(name).and_then(Value::as_flag) == Some(true);
        let (filter, change, upsert, multi) = match classify(command.first()?.key) {
            CommandClass::Insert => (None, WriteAction::Insert(list("documents")?), false, false),
            CommandClass::Update => {
                let statement = list("updates")?;
                let change = change_of(statement.get("u")?);
                (document(statement, "q"), change, flag(statement, "upsert"), flag(statement, "multi"))
            }
            CommandClass::Delete => {
                let statement = list("deletes")?;
                let multi = statement.get("limit").and_then(Value::as_integer) == Some(0);
                (document(statement, "q"), WriteAction::Delete, false, multi)
            }
            CommandClass::FindAndModify => {
                let change = command.get("update").map_or(WriteAction::Delete, change_of);
                (document(command, "query"), change, flag(command, "upsert"), false)
            }
            _ => return None,
        };
        Some(Self { filter: filter.unwrap_or(Document::EMPTY), change, upsert, multi })
    }

    /// The `_id` that the filter requires.
    pub(super) fn id(&self) -> Option<Value<'c>> {
        match self.change {
            WriteAction::Insert(document) => document.get("_id"),
            _ => id_of(self.filter),
        }
    }

    /// Whether the filter has a condition on another field than `_id`.
    pub(super) fn is_conditional(&self) -> bool {
        self.filter.elements().any(|element| element.key != b"_id")
    }

    /// The paths that it writes by operators.
    pub(super) fn paths(&self) -> impl Iterator<Item = &'c [u8]> {
        let operators = match self.change {
            WriteAction::Operators(operators) => operators,
            _ => Document::EMPTY,
        };
        let fields = operators.values().filter_map(Value::as_document);
        fields.flat_map(Document::elements).map(|element| element.key)
    }

    /// What it writes into a top-level field: the operator, or nothing for a whole document, and the value.
    pub(super) fn written(&self, field: &str) -> Option<(&'c [u8], Value<'c>)> {
        match self.change {
            WriteAction::Insert(document) | WriteAction::Replacement(document) => {
                document.get(field).map(|value| (&b""[..], value))
            }
            WriteAction::Operators(operators) => operators.elements().find_map(|operator| {
                let value = operator.value.as_document()?.get(field)?;
                Some((operator.key, value))
            }),
            WriteAction::Other | WriteAction::Delete => None,
        }
    }

    /// The fields of one operator.
    pub(super) fn operator(&self, name: &str) -> impl Iterator<Item = crate::document::Element<'c>> {
        let fields = match self.change {
            WriteAction::Operators(operators) => operators.get(name).and_then(Value::as_document),
            _ => None,
        };
        fields.into_iter().flat_map(Document::elements)
    }
}

/// The `_id` that a filter requires.
pub(super) fn id_of(filter: Document<'_>) -> Option<Value<'_>> {
    filter.get("_id").filter(|id| id.as_document().is_none_or(|id| !has_operators(id)))
}

/// Whether a document consists of operators, as an update or a condition does.
pub(super) fn has_operators(document: Document<'_>) -> bool {
    document.first().is_some_and(|first| first.key.starts_with(b"$"))
}

fn change_of(change: Value<'_>) -> WriteAction<'_> {
    match change.as_document() {
        None => WriteAction::Other,
        Some(document) if has_operators(document) => WriteAction::Operators(document),
        Some(document) => WriteAction::Replacement(document),
    }
}
