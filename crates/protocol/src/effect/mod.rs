//! What a statement shows of its effect on documents. `patterns::plain` decides with it which forms are plain.
//!
//! [`change`] returns the value of a field in a stored document after the statement, `equalities.rs` the equalities of a filter,
//! [`items`] and [`growths`] how arrays and whole documents can grow. Results that are not certain are `Unclear`.
//!
//! It follows the server's source in `src/mongo/db/update/` (`path_support.cpp`, one file for each operator).
//! `tests/patterns/effect.rs` compares it with a real mongod.

mod equalities;
mod items;
mod length;
mod matched;
mod operators;

use std::cmp::Ordering;

use crate::command::{Modification, Operation};
use crate::document::{Document, Element, Kind, Path, PathLookup, Value, compare_numbers};

pub use equalities::{
    condition_operators, equalities_agree, equality, given_roots, has_equality_inside, id_equalities_agree, is_equal,
    may_match_nothing, never_matching, uses_expr,
};
pub use items::{AddedValues, each, item_count};
pub use length::{
    EMPTY_LENGTH, Growth, GrowthKind, IdLength, InsertedLength, added_by_stages, around_length, element_length,
    growths, inserted_length, stored_id_length, update_growths,
};
pub use matched::{only_selection, selects_only};
pub use operators::{
    PathOverlap, TouchedPaths, Write, index, is_position, is_rename_source, is_rename_target, on_insert, on_stored,
    position, touch, touched, without_positions, write,
};

/// The effect of a statement on one field of a stored document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'s> {
    Untouched,
    /// The field has this value afterwards.
    Set(Value<'s>),
    /// The field is missing afterwards.
    Removed,
    /// This number is added to the stored value. A missing field counts as zero.
    Incremented(Value<'s>),
    /// The field gets this value or keeps its own (`$min`, `$max`). A missing field gets this value.
    Either(Value<'s>),
    /// The field gets the server's time (`$currentDate`).
    Now,
    /// A part of the field is written: an element of an array or a field of a document.
    Inside(WrittenBy<'s>),
    /// The field changes, but its new value is not known.
    Unclear(WrittenBy<'s>),
}

/// The operator and the path that write a field, for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenBy<'s> {
    /// The operator, such as `$set`, or "a document" for inserts and replacements.
    pub operator: &'s [u8],
    pub path: &'s [u8],
}

/// Returns the effect of the statement on the field at `path` of a stored document, or of the new one for an insert.
///
/// docward's own pipeline may also leave the field unchanged if the write is late.
pub fn change<'s>(operation: &'s Operation<'_>, path: &'s Path) -> Change<'s> {
    match operation {
        Operation::Insert(insert) => of_document(insert.document.as_document(), path),
        Operation::Delete(_) => Change::Removed,
        Operation::Update(update) => of_modification(&update.modification, path),
    }
}

fn of_modification<'s>(modification: &'s Modification<'_>, path: &'s Path) -> Change<'s> {
    match modification {
        Modification::Replacement(document) => of_replacement(document.as_document(), path),
        Modification::Operators(operators) => operators::change(operators.as_document(), path),
        Modification::Pipeline(pipeline) => of_modification(&pipeline.meaning, path),
        Modification::ClientPipeline(_) => {
            Change::Unclear(WrittenBy { operator: b"a pipeline", path: path.as_str().as_bytes() })
        }
    }
}

/// Returns the effect of a replacement on a field. A document without `_id` keeps the stored one.
fn of_replacement<'s>(document: Document<'s>, path: &'s Path) -> Change<'s> {
    let keeps_id = path.root() == "_id" && document.get("_id").is_none();
    if keeps_id { Change::Untouched } else { of_document(document, path) }
}

/// Returns the effect of a whole document on a field. A field that the document does not contain is removed.
fn of_document<'s>(document: Document<'s>, path: &'s Path) -> Change<'s> {
    let key = path.as_str().as_bytes();
    match of_lookup(path.lookup(document), WrittenBy { operator: b"a document", path: key }) {
        Change::Set(value) if path.is_top_level() && is_empty_timestamp(&Element { key, value }) => Change::Now,
        change => change,
    }
}

/// Returns whether the server replaces the value of this top-level field of an inserted document or a replacement with
/// the current time (manual: "BSON Types", Timestamps).
pub fn is_empty_timestamp(field: &Element<'_>) -> bool {
    field.key != b"_id" && field.value.kind == Kind::Timestamp && field.value.bytes.iter().all(|byte| *byte == 0)
}

fn of_lookup<'s>(found: PathLookup<'s>, written: WrittenBy<'s>) -> Change<'s> {
    match found {
        PathLookup::Found(value) => Change::Set(value),
        // The path may refer to fields of the array's elements.
        PathLookup::Blocked(Kind::Array) => Change::Unclear(written),
        PathLookup::Missing | PathLookup::Blocked(_) => Change::Removed,
    }
}

/// Returns whether the server treats two numbers as equal. Their types may differ.
pub fn is_same_number(one: Value<'_>, other: Value<'_>) -> bool {
    compare_numbers(one, other).is_some_and(Ordering::is_eq)
}
