//! The effect of a statement on the length of a document, in bytes of BSON.

use super::WrittenBy;
use super::equalities::{equalities, may_match_nothing};
use super::items::AddedValues;
use super::operators::{Write, is_position, is_rename_source, on_insert, on_stored, position};
use crate::command::{Modification, Operation, Update};
use crate::document::{Document, Kind, Value};

/// The largest change of a stored document's length that one write of an update can cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Growth<'u> {
    /// The operator, and the path of the field, which may have positions.
    pub written: WrittenBy<'u>,
    /// Bytes of the field's new element, or, for [`GrowthKind::Appends`], of the new elements of the array.
    pub bytes: usize,
    pub how: GrowthKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrowthKind {
    /// The new element replaces the stored one.
    Replaces,
    /// The new element replaces the stored one, or that stays.
    MayKeep,
    /// The elements are added to the stored array.
    Appends,
    /// The field exists already under another name.
    Moves,
}

/// Bytes of an empty document or array.
pub const EMPTY_LENGTH: usize = 5;

/// Bytes of the `_id` that is generated for a document without one: an ObjectId.
const GENERATED_ID: usize = element_length("_id".len()) + 12;

/// An array of the largest document has fewer positions than this number of digits.
const POSITION_DIGITS: usize = 7;

/// Returns the bytes of an element beside its value: tag, name and NUL.
pub const fn element_length(name: usize) -> usize {
    name + 2
}

/// Bytes of the largest number, a Decimal128.
const ANY_NUMBER: usize = 16;

/// Returns the growth of a stored document by each operator; `None` if one is unknown. Operators that never lengthen a
/// document are omitted.
pub fn growths(operators: Document<'_>) -> Option<Vec<Growth<'_>>> {
    growths_of(on_stored(operators))
}

/// The same for an update by operators, and empty for others. A pipeline that docward made from operators may keep what
/// is stored, if the write is stale or if there is a number.
pub fn update_growths<'u>(update: &'u Update<'_>) -> Option<Vec<Growth<'u>>> {
    let Some(operators) = update.operators() else { return Some(Vec::new()) };
    let mut growths = growths(operators)?;
    if matches!(update.modification, Modification::Pipeline(_)) {
        for growth in growths.iter_mut().filter(|growth| growth.how == GrowthKind::Replaces) {
            growth.how = GrowthKind::MayKeep;
        }
    }
    Some(growths)
}

fn growths_of<'u>(writes: impl Iterator<Item = Write<'u>>) -> Option<Vec<Growth<'u>>> {
    let mut growths = Vec::new();
    for (operator, path, value) in writes {
        let written = WrittenBy { operator, path };
        let name = name_length(path);
        let whole = |bytes: usize, how| Growth { written, bytes: element_length(name) + bytes, how };
        growths.push(match operator {
            b"$unset" | b"$pull" | b"$pullAll" | b"$pop" => continue,
            b"$set" => whole(value.bytes.len(), GrowthKind::Replaces),
            b"$currentDate" => whole(8, GrowthKind::Replaces),
            b"$min" | b"$max" => whole(value.bytes.len(), GrowthKind::MayKeep),
            b"$inc" | b"$mul" | b"$bit" => whole(value.bytes.len().max(8), GrowthKind::MayKeep),
            b"$push" | b"$addToSet" => {
                Growth { written, bytes: appended(AddedValues::in_argument(operator, value)), how: GrowthKind::Appends }
            }
            // Its source only becomes shorter.
            _ if is_rename_source((operator, path, value)) => continue,
            b"$rename" => whole(0, GrowthKind::Moves),
            _ => return None,
        });
    }
    Some(growths)
}

/// Returns the bytes of the array elements that `$push` or `$addToSet` adds.
fn appended(added: AddedValues<'_>) -> usize {
    added.values().map(|value| element_length(POSITION_DIGITS) + value.bytes.len()).sum()
}

impl Growth<'_> {
    /// Returns the most bytes of the field's own element if it is missing.
    pub fn with_missing_field(&self) -> usize {
        match self.how {
            GrowthKind::Appends => self.bytes + element_length(name_length(self.written.path)) + EMPTY_LENGTH,
            GrowthKind::Replaces | GrowthKind::MayKeep | GrowthKind::Moves => self.bytes,
        }
    }
}

/// Returns the bytes of the name of the field at `path`. In a document, `$` creates a field with the position as name.
fn name_length(path: &[u8]) -> usize {
    match path.rsplit(|byte| *byte == b'.').next() {
        Some(b"$") => POSITION_DIGITS,
        last => last.map_or(0, <[u8]>::len),
    }
}

/// Returns the most bytes that the fields around the field at `path` can need if they are missing, and the elements
/// before a position.
pub fn around_length(path: &[u8]) -> usize {
    // The document itself has no positions.
    let below = path.splitn(2, |byte| *byte == b'.').nth(1).unwrap_or_default();
    all_padding(below).saturating_add(around_documents(path))
}

fn all_padding(path: &[u8]) -> usize {
    path.split(|byte| *byte == b'.').map(padding_length).fold(0, usize::saturating_add)
}

/// Returns the most bytes that the documents around the field at `path` can need if they are missing.
fn around_documents(path: &[u8]) -> usize {
    let mut parts = path.split(|byte| *byte == b'.');
    parts.next_back();
    parts.map(|part| element_length(part.len()) + EMPTY_LENGTH).sum()
}

/// Returns the most bytes of the nulls that the server adds to an array before this position.
fn padding_length(part: &[u8]) -> usize {
    position(part).map_or(0, |position| position.saturating_mul(element_length(part.len())))
}

/// The length of the document that a statement inserts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InsertedLength {
    /// It inserts none.
    None,
    AtMost(usize),
    Unknown,
}

/// Returns the most bytes of the document that an insert or an upsert adds.
pub fn inserted_length(operation: &Operation<'_>) -> InsertedLength {
    let known = |length: Option<usize>| length.map_or(InsertedLength::Unknown, InsertedLength::AtMost);
    match operation {
        Operation::Insert(insert) => InsertedLength::AtMost(with_id(insert.document.as_document(), None)),
        Operation::Update(update) if update.upsert => {
            known(of_upsert(update).map(|length| length.saturating_add(added_by_stages(&update.modification))))
        }
        Operation::Update(_) | Operation::Delete(_) => InsertedLength::None,
    }
}

/// Returns the length of a new document, with the `_id` of this many bytes if it has none.
fn with_id(document: Document<'_>, id: Option<usize>) -> usize {
    let own = document.get("_id").is_some();
    document.as_bytes().len() + if own { 0 } else { id.unwrap_or(GENERATED_ID) }
}

fn of_upsert(update: &Update<'_>) -> Option<usize> {
    let filter = update.filter.as_document();
    match update.modification.meaning() {
        Modification::Replacement(document) => {
            let may_match_nothing = may_match_nothing(filter);
            let mut id = None;
            for equality in equalities(filter).iter().filter(|equality| equality.path == b"_id") {
                let own = element_length("_id".len()) + given_length(equality.value?);
                // A server that finds no equality generates the `_id`.
                let is_certain = equality.certain && !may_match_nothing;
                id = id.max(Some(if is_certain { own } else { own.max(GENERATED_ID) }));
            }
            Some(with_id(document.as_document(), id))
        }
        Modification::Operators(operators) => {
            let mut length = EMPTY_LENGTH + GENERATED_ID;
            let mut add =
                |path: &[u8], bytes: usize| length = length.saturating_add(around_length(path)).saturating_add(bytes);
            for equality in equalities(filter) {
                add(equality.path, element_length(name_length(equality.path)) + given_length(equality.value?));
            }
            for growth in growths_of(on_insert(operators.as_document()))? {
                // It may be in an array from the filter.
                if growth.written.path.split(|byte| *byte == b'.').any(is_position) {
                    return None;
                }
                add(growth.written.path, growth.with_missing_field());
            }
            Some(length)
        }
        Modification::Pipeline(_) | Modification::ClientPipeline(_) => None,
    }
}

/// Returns at least the bytes that the stages of docward's own pipeline store beside the operators' values, such as
/// timestamps: a stage contains every value that it stores.
pub fn added_by_stages(modification: &Modification<'_>) -> usize {
    let Modification::Pipeline(pipeline) = modification else { return 0 };
    let stages: usize = pipeline.stages().iter().map(|stage| stage.as_document().as_bytes().len()).sum();
    match modification.meaning() {
        Modification::Replacement(meaning) | Modification::Operators(meaning) => {
            stages.saturating_sub(meaning.as_document().as_bytes().len())
        }
        Modification::Pipeline(_) | Modification::ClientPipeline(_) => stages,
    }
}

/// Returns the most bytes of a value that a filter requires: equal numbers can have other types.
fn given_length(value: Value<'_>) -> usize {
    if value.kind.is_number() { ANY_NUMBER } else { value.bytes.len() }
}

/// The bytes that the stored `_id` of a document adds to a replacement without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdLength {
    AtMost(usize),
    Unknown,
}

/// Returns the length of the `_id` element of every document that the filter matches.
pub fn stored_id_length(filter: Document<'_>) -> IdLength {
    let Some(id) = super::equality(filter, "_id") else { return IdLength::Unknown };
    match id.kind {
        Kind::ObjectId | Kind::Binary | Kind::DateTime | Kind::Boolean | Kind::Timestamp => {}
        kind if kind.is_number() => {}
        // With a collation, strings of other lengths can be equal; documents contain numbers and strings.
        _ => return IdLength::Unknown,
    }
    IdLength::AtMost(element_length("_id".len()) + given_length(id))
}
