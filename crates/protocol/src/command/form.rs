//! The commands that carry statements, and the names of their fields.

use super::{CommandClass, classify};
use crate::document::{Document, Value};

/// The name of a document sequence (kind-1 section) in errors.
pub(super) const DOCUMENT_SEQUENCE: &str = "a document sequence";

/// The kinds of statements that rules distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StatementKind {
    Insert,
    /// An update by operators, or by a pipeline that docward made from operators.
    Operators,
    /// An update by a replacement document.
    Replacement,
    /// An update by a pipeline of the client.
    Pipeline,
    Delete,
}

impl StatementKind {
    pub const ALL: [Self; 5] = [Self::Insert, Self::Operators, Self::Replacement, Self::Pipeline, Self::Delete];
}

/// The command that carries a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteForm {
    Insert,
    Update,
    Delete,
    FindAndModify,
    BulkWrite,
}

/// The field names of a statement in a form.
pub(super) struct StatementFieldNames {
    pub(super) part: &'static str,
    pub(super) filter: &'static str,
    pub(super) update: &'static str,
    /// All fields that a statement of this form may have. `None` if mongod checks them, as it does for a command
    /// body.
    pub(super) fields: Option<&'static [&'static str]>,
}

impl WriteForm {
    /// Returns the form of a command body; `None` if it is no write.
    pub fn of_command(command: Document<'_>) -> Option<Self> {
        Self::for_class(classify(command.first()?.key))
    }

    /// Returns the statements in a command body of this form: the elements of its list, or the body itself.
    pub fn statements(self, command: Document<'_>) -> impl Iterator<Item = Document<'_>> + Clone {
        let list = self.list().and_then(|list| command.get(list)?.as_array());
        let whole = self.list().is_none().then_some(command);
        list.into_iter().flat_map(Document::values).filter_map(Value::as_document).chain(whole)
    }

    pub fn for_class(class: CommandClass) -> Option<Self> {
        match class {
            CommandClass::Insert => Some(Self::Insert),
            CommandClass::Update => Some(Self::Update),
            CommandClass::Delete => Some(Self::Delete),
            CommandClass::FindAndModify => Some(Self::FindAndModify),
            CommandClass::BulkWrite => Some(Self::BulkWrite),
            _ => None,
        }
    }

    /// Returns whether this command can carry statements of this kind.
    pub fn carries(self, kind: StatementKind) -> bool {
        match self {
            Self::Insert => kind == StatementKind::Insert,
            Self::Update => !matches!(kind, StatementKind::Insert | StatementKind::Delete),
            Self::Delete => kind == StatementKind::Delete,
            Self::FindAndModify => kind != StatementKind::Insert,
            Self::BulkWrite => true,
        }
    }

    /// Returns the kinds of statements that this command can carry.
    pub fn kinds(self) -> impl Iterator<Item = StatementKind> {
        StatementKind::ALL.into_iter().filter(move |kind| self.carries(*kind))
    }

    /// Returns the name of the statement list: an array in the body or a kind-1 section.
    pub fn list(self) -> Option<&'static str> {
        match self {
            Self::Insert => Some("documents"),
            Self::Update => Some("updates"),
            Self::Delete => Some("deletes"),
            Self::BulkWrite => Some("ops"),
            Self::FindAndModify => None,
        }
    }

    pub(super) fn names(self) -> StatementFieldNames {
        match self {
            Self::Insert => StatementFieldNames { part: "an inserted document", filter: "", update: "", fields: None },
            Self::Update => StatementFieldNames {
                part: "an update statement",
                filter: "q",
                update: "u",
                fields: Some(&[
                    "q",
                    "u",
                    "c",
                    "multi",
                    "upsert",
                    "arrayFilters",
                    "hint",
                    "collation",
                    "sort",
                    "sampleId",
                ]),
            },
            Self::Delete => StatementFieldNames {
                part: "a delete statement",
                filter: "q",
                update: "",
                fields: Some(&["q", "limit", "hint", "collation", "sampleId"]),
            },
            Self::FindAndModify => {
                StatementFieldNames { part: "the findAndModify", filter: "query", update: "update", fields: None }
            }
            Self::BulkWrite => StatementFieldNames {
                part: "an op of bulkWrite",
                filter: "filter",
                update: "updateMods",
                fields: Some(&[
                    "insert",
                    "document",
                    "update",
                    "delete",
                    "filter",
                    "updateMods",
                    "multi",
                    "upsert",
                    "arrayFilters",
                    "hint",
                    "collation",
                    "constants",
                    "sort",
                    "sampleId",
                ]),
            },
        }
    }
}
