//! The positional operator `$` where another array of the document may have given it its position.

use super::Rejection;
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

/// Returns the condition that none of the fields is an array, or has one on its path.
pub(super) fn no_array(fields: &[&str]) -> CowDocument<'static> {
    CowDocument::build(|w| w.nested("$expr", |w| write_none_is_array(w, fields)))
}

/// Returns an expression for whether one of the fields is an array, or has one on its path.
pub(super) fn has_array(fields: &[&str]) -> CowDocument<'static> {
    CowDocument::build(|w| w.array("$not", |a| a.nested(|w| write_none_is_array(w, fields))))
}

/// Returns the rejection of a statement for a document in which one of them is an array.
pub(super) fn rejection(fields: &[&str]) -> Rejection {
    Rejection::new(
        format!("$ can have the position of an element in another array: '{}'", fields.join("', '")),
        "Use $[name] with arrayFilters, or a filter with conditions on one array.",
    )
}

/// Writes `{$not: [{$or: [{$isArray: ["$tags"]}]}]}`.
fn write_none_is_array(w: &mut Writer<'_>, fields: &[&str]) {
    w.array("$not", |a| {
        a.nested(|w| {
            w.array("$or", |a| {
                for field in fields {
                    a.nested(|w| w.array("$isArray", |a| a.string(format!("${field}"))));
                }
            });
        });
    });
}
