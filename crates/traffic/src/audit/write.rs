//! The effect of one recorded write: which documents it selects, and what it does to them.

use crate::command::{StatementKind, WriteForm, classify};
use crate::document::{Document, Value};

/// What a write does to the documents that it selects.
#[derive(Debug, Clone, Copy)]
pub(super) enum WriteAction<'c> {
    Insert(Document<'c>),
    Operators(Document<'c>),
    Replacement(Document<'c>),
    /// The stages of an aggregation pipeline; none if the form of the change is not known.
    Pipeline(Document<'c>),
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
    /// Returns `None` for a command without a statement.
    pub(super) fn from_command(command: Document<'c>) -> Option<Self> {
        let form = WriteForm::for_class(classify(command.first()?.key))?;
        let statement = match form.list() {
            Some(list) => command.get(list)?.as_array()?.values().next()?.as_document()?,
            None => command,
        };
        let document = |name: &str| statement.get(name).and_then(Value::as_document);
        let flag = |name: &str| statement.get(name).and_then(Value::as_flag) == Some(true);
        let multi = flag("multi");
        let (filter, change, multi) = match (form, statement.first().map_or(&b""[..], |first| first.key)) {
            (WriteForm::Insert, _) => (None, WriteAction::Insert(statement), false),
            (WriteForm::Update, _) => (document("q"), change_of(statement.get("u")?), multi),
            (WriteForm::Delete, _) => {
                let multi = statement.get("limit").and_then(Value::as_integer) == Some(0);
                (document("q"), WriteAction::Delete, multi)
            }
            (WriteForm::FindAndModify, _) if flag("remove") => (document("query"), WriteAction::Delete, false),
            (WriteForm::FindAndModify, _) => (document("query"), change_of(statement.get("update")?), false),
            (WriteForm::BulkWrite, b"insert") => (None, WriteAction::Insert(document("document")?), false),
            (WriteForm::BulkWrite, b"delete") => (document("filter"), WriteAction::Delete, multi),
            (WriteForm::BulkWrite, _) => (document("filter"), change_of(statement.get("updateMods")?), multi),
        };
        Some(Self { filter: filter.unwrap_or(Document::EMPTY), change, upsert: flag("upsert"), multi })
    }

    pub(super) fn kind(&self) -> StatementKind {
        match self.change {
            WriteAction::Insert(_) => StatementKind::Insert,
            WriteAction::Operators(_) => StatementKind::Operators,
            WriteAction::Replacement(_) => StatementKind::Replacement,
            WriteAction::Pipeline(_) => StatementKind::Pipeline,
            WriteAction::Delete => StatementKind::Delete,
        }
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
            WriteAction::Pipeline(_) | WriteAction::Delete => None,
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
        None => WriteAction::Pipeline(change.as_array().unwrap_or(Document::EMPTY)),
        Some(document) if has_operators(document) => WriteAction::Operators(document),
        Some(document) => WriteAction::Replacement(document),
    }
}
