//! What a promise must know of a statement beside the documents before and after it.

use smallvec::SmallVec;

use crate::command::{Modification, Operation};
use crate::document::{Document, Path, Value, paths_overlap};
use crate::effect::{on_stored, without_positions};

/// What the documents do not show of a statement.
#[derive(Debug, Clone)]
pub struct Facts<'s> {
    targets: Targets<'s>,
}

/// The paths that a statement names as targets, whether or not it changes them.
#[derive(Debug, Clone)]
enum Targets<'s> {
    /// The statement names the document as a whole.
    All,
    Paths(SmallVec<[&'s [u8]; 8]>),
}

impl<'s> Facts<'s> {
    /// Returns the facts of a statement. Operators and the stages `$set`, `$addFields` and `$unset` name their fields; other
    /// stages and replacements name all.
    pub fn of_operation(operation: &'s Operation<'_>) -> Self {
        let targets = match operation {
            Operation::Insert(_) | Operation::Delete(_) => Targets::All,
            Operation::Update(update) => match update.modification.meaning() {
                Modification::Replacement(_) | Modification::Pipeline(_) => Targets::All,
                Modification::Operators(operators) => {
                    Targets::Paths(on_stored(operators.as_document()).map(|(_, path, _)| path).collect())
                }
                Modification::ClientPipeline(stages) => stage_targets(*stages).map_or(Targets::All, Targets::Paths),
            },
        };
        Self { targets }
    }

    /// Returns whether the statement names the field, a part of it or a field around it, in this stored document. A number in
    /// a path is a position only where an array is stored, and does not name the fields beside it.
    pub fn name(&self, field: &Path, stored: Document<'_>) -> bool {
        let is_named = |path: &[u8]| field.overlaps(path) || field.covers(&without_stored_positions(path, stored));
        match &self.targets {
            Targets::All => true,
            Targets::Paths(paths) => paths.iter().any(|path| is_named(path)),
        }
    }
}

/// Returns a path without its positions in the arrays of a stored document.
fn without_stored_positions(path: &[u8], stored: Document<'_>) -> SmallVec<[u8; 64]> {
    let mut named = SmallVec::new();
    let (mut value, mut rest) = (Some(Value::document(stored)), path);
    while !rest.is_empty() {
        let (part, after) = split_path(rest);
        match (value.and_then(Value::as_array), part.first()) {
            // It may be one of several elements.
            (_, Some(b'$')) => {
                append_part(&mut named, &without_positions(after.unwrap_or_default()));
                break;
            }
            (Some(array), Some(b'0'..=b'9')) => value = array.get(part),
            _ => {
                append_part(&mut named, part);
                value = value.and_then(Value::as_document).and_then(|document| document.get(part));
            }
        }
        rest = after.unwrap_or_default();
    }
    named
}

fn append_part(path: &mut SmallVec<[u8; 64]>, part: &[u8]) {
    if !path.is_empty() && !part.is_empty() {
        path.push(b'.');
    }
    path.extend_from_slice(part);
}

/// Returns the first part of a path, and the rest.
pub(super) fn split_path(path: &[u8]) -> (&[u8], Option<&[u8]>) {
    match path.iter().position(|byte| *byte == b'.') {
        Some(dot) => (path.get(..dot).unwrap_or(path), path.get(dot + 1..)),
        None => (path, None),
    }
}

/// Returns whether one of two paths is the other or lies inside it, as written or without positions in arrays.
pub(super) fn is_related(field: &Path, path: &[u8]) -> bool {
    // A path without a dot has no position.
    let without = || paths_overlap(&without_positions(field.as_str().as_bytes()), &without_positions(path));
    field.overlaps(path) || path.contains(&b'.') && without()
}

/// Returns the fields that the stages of a pipeline name; `None` if one names the whole document.
pub(super) fn stage_targets(stages: Document<'_>) -> Option<SmallVec<[&[u8]; 8]>> {
    let mut targets = SmallVec::new();
    for stage in stages.values() {
        let stage = stage.as_document()?.first()?;
        match stage.key {
            b"$set" | b"$addFields" => targets.extend(stage.value.as_document()?.elements().map(|field| field.key)),
            b"$unset" => match stage.value.as_array() {
                Some(names) => targets.extend(names.values().filter_map(Value::as_string_bytes)),
                None => targets.push(stage.value.as_string_bytes()?),
            },
            _ => return None,
        }
    }
    Some(targets)
}
