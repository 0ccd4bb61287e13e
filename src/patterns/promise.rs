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

    /// Returns whether the statement names the field, a part of it or a field around it. A number or a positional operator
    /// in a path may be a position in an array, but does not name the fields beside it.
    pub fn name(&self, field: &Path) -> bool {
        let is_named = |path: &[u8]| field.overlaps(path) || field.covers(&without_positions(path));
        match &self.targets {
            Targets::All => true,
            Targets::Paths(paths) => paths.iter().any(|path| is_named(path)),
        }
    }
}

/// Returns whether one of two paths is the other or lies inside it, as written or without positions in arrays.
pub(super) fn is_related(field: &Path, path: &[u8]) -> bool {
    field.overlaps(path) || paths_overlap(&without_positions(field.as_str().as_bytes()), &without_positions(path))
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
