//! What patterns declare about themselves, as values: for the engine, for `check` and for docward's own user.

use super::NoEffectKind;
use crate::config::{Located, NamespaceGlob};
use crate::document::{CowDocument, Path};

/// A field that only one rule may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExclusiveField {
    /// Only fields of the same kind exclude each other. Usually the pattern's name.
    pub kind: &'static str,
    /// The field's path. It includes all fields below it.
    pub field: Located<String>,
}

/// A setting that makes a rule weaker than it could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeakerSetting {
    /// What it does, unlike a stricter rule: `allows …`.
    pub what: &'static str,
    /// The key of the setting.
    pub setting: &'static str,
}

/// How a pattern treats all statements of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applicability {
    /// It does not evaluate them.
    None,
    /// It evaluates each of them.
    Each,
}

/// A value that the server computes from a stored document.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The field in which [`unmatched`](super::Pattern::unmatched) gets it.
    pub name: String,
    /// An aggregation expression.
    pub expression: CowDocument<'static>,
}

/// How a statement can have no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoEffectCause {
    /// The stored document has another version.
    Version,
    Effect(NoEffectKind),
}

/// An index that a pattern needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededIndex {
    /// The collection of the index; `None`: each of the rule's own collections.
    pub collection: Option<NamespaceGlob>,
    pub field: String,
    pub purpose: IndexPurpose,
    /// The consequence without it, as half a sentence: "every move scans the collection".
    pub without: &'static str,
}

/// An array whose elements a rule counts in another field.
#[derive(Debug, Clone, Copy)]
pub struct CountedArray<'p> {
    pub array: &'p Path,
    /// The number of elements from which on nothing more is added.
    pub limit: i64,
}

/// A field whose stored values `docward check --upstream` counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedVersion {
    pub field: String,
    /// Documents with this version are as they should be.
    pub version: i64,
}

/// Actions on a collection that docward's own user must be allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Privilege {
    pub database: String,
    pub collection: String,
    pub actions: &'static [&'static str],
}

impl Privilege {
    pub(crate) fn new(database: &str, collection: &str, actions: &'static [&'static str]) -> Self {
        Self { database: database.to_owned(), collection: collection.to_owned(), actions }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexPurpose {
    /// Documents must not share a value: needs a unique index with the field in its key.
    Unique,
    /// Queries use ranges of the field: needs an ordered index with the field first in its key.
    Range,
    /// Queries use single values of the field: needs an index as for `Range`, or a hashed one.
    Equality,
    /// Many documents share all other fields: a unique index must have the field in its key.
    NotUnique,
}
