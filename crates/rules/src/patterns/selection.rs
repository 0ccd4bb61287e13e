//! The positional operator `$` where another array of the document may have given it its position.

use super::filter::write_no_array;
use crate::command::{Operation, Statement};
use crate::document::{CowDocument, Document, Path, Value, Writer};
use crate::effect::touched;

/// Returns whether the statement's filter selects an array element: for `$` in an operator's path, or for the element
/// that a findAndModify returns.
pub(super) fn selects_element(statement: &Statement<'_>) -> bool {
    let Operation::Update(update) = &statement.operation else { return false };
    let is_position = |path: &[u8]| path.split(|byte| *byte == b'.').any(|part| part == b"$");
    let fields = statement.returned_fields().unwrap_or(Document::EMPTY);
    fields.elements().any(|field| is_position(field.key))
        || update.operators().is_some_and(|operators| touched(operators).any(|(_, path, _)| is_position(path)))
}

/// Returns the condition that a field has this value, which an element of an array does not meet: `$` would then have its
/// position.
pub(super) fn equality<'a>(field: &Path, value: Value<'_>) -> CowDocument<'a> {
    let equals = |w: &mut Writer<'_>| w.value("$eq", value);
    CowDocument::build(|w| {
        w.nested(field.as_str(), |w| {
            equals(w);
            w.nested("$not", |w| w.nested("$elemMatch", equals));
        });
        field.parents().for_each(|parent| w.nested(parent, write_no_array));
    })
}
