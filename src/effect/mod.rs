//! What a statement does to documents: one model, used by all patterns.
//!
//! Two questions, for any field path. [`change`]: what does a stored document hold there afterwards? [`inserted`]: which
//! document does an insert or an upsert add? The second one is built as mongod builds it: the filter's equalities
//! (`pins.rs`), then the operators (`image.rs`). Answers are never guesses: what cannot be told is `Unclear` or `Unknown`.
//!
//! The claims about the server were read in `src/mongo/db/update/` of its source (`update_driver.cpp`,
//! `path_support.cpp`, one file for each operator's node) and are held against a real mongod by `tests/effect.rs`.

mod image;
mod operators;
mod pins;

use std::cmp::Ordering;

use crate::command::{Modification, Operation};
use crate::document::{Document, Kind, Lookup, Path, Value, compare_numbers};

pub use image::{Held, Inserted};
pub use operators::{Touch, Touched, is_position, touch, touched, write};
pub use pins::{equality, id_pins_agree, pinned_roots, pins_agree};

/// What a statement makes of one field of a document that is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'s> {
    Untouched,
    /// It holds this value afterwards.
    Set(Value<'s>),
    /// It is missing afterwards.
    Removed,
    /// This is added to what is stored; a missing field counts as zero.
    Incremented(Value<'s>),
    /// It holds this value or keeps its own (`$min`, `$max`); a missing field gets this value.
    Either(Value<'s>),
    /// It holds the server's time (`$currentDate`).
    Now,
    /// A part of the field is written: an element of an array, a field of a document.
    Inside(Written<'s>),
    /// It changes in a way that does not tell its new value.
    Unclear(Written<'s>),
}

/// The operator and the path that write a field; for messages to people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written<'s> {
    /// `$set`, or "a document" for inserts and replacements.
    pub operator: &'s [u8],
    pub path: &'s [u8],
}

/// What becomes of the field at `path` of a stored document that the statement changes. For an insert, of the new one.
///
/// A pipeline of docward's own may also leave the field as it is, where the write is late.
pub fn change<'s>(operation: &'s Operation<'_>, path: &'s Path) -> Change<'s> {
    match operation {
        Operation::Insert(insert) => of_document(insert.document.as_document(), path),
        Operation::Delete(_) => Change::Removed,
        Operation::Update(update) => of_modification(&update.modification, path),
    }
}

fn of_modification<'s>(modification: &'s Modification<'_>, path: &'s Path) -> Change<'s> {
    match modification {
        Modification::Replacement(document) => of_document(document.as_document(), path),
        Modification::Operators(operators) => operators::change(operators.as_document(), path),
        Modification::Pipeline(pipeline) => of_modification(&pipeline.meaning, path),
        Modification::ClientPipeline(_) => {
            Change::Unclear(Written { operator: b"a pipeline", path: path.as_str().as_bytes() })
        }
    }
}

/// What a whole document makes of a field; one that it leaves out is gone.
fn of_document<'s>(document: Document<'s>, path: &'s Path) -> Change<'s> {
    of_lookup(path.lookup(document), Written { operator: b"a document", path: path.as_str().as_bytes() })
}

fn of_lookup<'s>(found: Lookup<'s>, written: Written<'s>) -> Change<'s> {
    match found {
        Lookup::Found(value) => Change::Set(value),
        // The path may lead to fields of the array's elements.
        Lookup::Blocked(Kind::Array) => Change::Unclear(written),
        Lookup::Missing | Lookup::Blocked(_) => Change::Removed,
    }
}

/// Whether the server takes two numbers for one, of whatever types they are.
pub fn is_same_number(one: Value<'_>, other: Value<'_>) -> bool {
    compare_numbers(one, other).is_some_and(Ordering::is_eq)
}

/// The document that the statement adds, if it can add one: an insert's, or what an upsert makes of its filter and its
/// update. `None` too where the server fails such an upsert.
pub fn inserted<'s>(operation: &'s Operation<'_>) -> Option<Inserted<'s>> {
    match operation {
        Operation::Insert(insert) => Some(Inserted::of_document(insert.document.as_document())),
        Operation::Update(update) if update.upsert => {
            image::of_upsert(update.filter.as_document(), &update.modification)
        }
        Operation::Update(_) | Operation::Delete(_) => None,
    }
}
