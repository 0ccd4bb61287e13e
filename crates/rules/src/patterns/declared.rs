//! What patterns declare about themselves, as values: for the engine, for `check` and for docward's own user.

use std::time::Duration;

use super::NoEffectKind;
use super::procedure::Procedures;
use super::requirement::Requirement;
use super::throttle::limits::ThrottleLimits;
use crate::config::{Located, NamespaceGlob};
use crate::document::{CowDocument, Path};

/// The properties of a rule, which are constant as long as its settings are. The default is that of a pattern that only
/// rejects.
#[derive(Clone, Debug, Default)]
pub struct Properties {
    /// Describes its rewriting as half a sentence, for people; empty if it never rewrites.
    pub rewriting: &'static str,
    /// Why its statements can have no effect, as far as the server's replies show it.
    pub no_effect_causes: &'static [NoEffectCause],
    /// Only the most specific rule of this pattern applies to a namespace.
    pub exclusive: bool,
    /// The settings that are less strict than others of the same pattern.
    pub weaker_settings: Vec<WeakerSetting>,
    /// It only names its namespaces, and evaluates no statements on them.
    pub only_names: bool,
    /// Its stored documents stay usable after a statement that it cannot analyse: rules of other patterns are not proposed
    /// with `unsupported: allow`.
    pub tolerates_unsupported: bool,
    /// The limits under which commands on its namespaces need a permit; `None`: they need none.
    pub permits: Option<ThrottleLimits>,
    /// The indexes it needs. Without them it is slow or its guarantee does not hold.
    pub needed_indexes: Vec<NeededIndex>,
    /// The version that the stored documents should have.
    pub expected_version: Option<ExpectedVersion>,
    /// The fields that no other rule of this pattern may claim on the same namespace.
    pub exclusive_fields: Vec<ExclusiveField>,
    /// The fields that docward writes for the rule, or whose values decide what the rule accepts. No rule of another pattern
    /// may have such a field in common with it on one namespace.
    pub own_fields: Vec<Path>,
    /// The fields whose stored values decide which statements may change a document. A statement that writes one takes
    /// effect on it whatever its source time is.
    pub deciding_fields: Vec<Path>,
    /// The namespaces, besides the rule's own, whose statements it evaluates too.
    pub also_evaluates: Vec<NamespaceGlob>,
    /// Which of its statements can require a procedure.
    pub procedures: Procedures,
    /// The fields of a stored document that [`unmatched`](super::Pattern::unmatched) looks at.
    pub checked_fields: Vec<Path>,
    /// The field by which a client's filter checks that a stored document is unchanged since it was read. No rule makes an
    /// upsert of a statement with such a check.
    pub version: Option<Path>,
    /// The field that it stores numbers in, and the first number of a counter that does not exist yet.
    pub numbered_field: Option<(Path, i64)>,
    /// What it needs of the server; without it the server rejects what docward sends.
    pub requirements: Vec<Requirement>,
    /// How far behind the primary the query listener's secondary may be; `None`: it may not read the rule's collections.
    pub max_staleness: Option<Duration>,
    /// The field that the rule itself increments in clients' statements.
    pub incremented_field: Option<Path>,
    /// A field, and the largest number that it must be able to have so that the rule works.
    pub needed_number: Option<(Path, i64)>,
    /// The fields that contain nothing else for the rule.
    pub contents: Vec<(Path, FieldContent)>,
    /// The top-level field in which it stores timestamps.
    pub timestamp_field: Option<Path>,
    /// docward's form of a replacement can leave the matched document unchanged.
    pub may_keep_replaced: bool,
    /// A delete removes documents that its filter does not match.
    pub cascades: bool,
    /// The array whose elements it counts in another field.
    pub counted_array: Option<CountedArray>,
    /// It uses the comment of the command.
    pub looks_at_comment: bool,
    /// It evaluates what aggregations read of its namespaces beside their own collection.
    pub evaluates_inputs: bool,
}

impl Properties {
    /// Whether docward itself writes to documents for the rule, beside what clients' statements write.
    #[must_use]
    pub fn writes_itself(&self) -> bool {
        let fields = [&self.version, &self.incremented_field, &self.timestamp_field];
        let copies = !self.also_evaluates.is_empty() && self.procedures != Procedures::None;
        fields.into_iter().any(Option::is_some)
            || self.numbered_field.is_some()
            || self.procedures == Procedures::All
            || copies
    }
}

/// A field that only one rule may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExclusiveField {
    /// Only fields of the same kind exclude each other. Usually the pattern's name.
    pub kind: &'static str,
    /// The field's path. It includes all fields below it.
    pub field: Located<String>,
}

impl ExclusiveField {
    pub(super) fn new(kind: &'static str, field: &Located<Path>) -> Self {
        Self { kind, field: field.clone().map(|path| path.as_str().to_owned()) }
    }
}

/// What a rule expects in a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldContent {
    Array,
    Number,
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
#[derive(Debug, Clone)]
pub struct CountedArray {
    pub array: Path,
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
    pub fn new(database: &str, collection: &str, actions: &'static [&'static str]) -> Self {
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
