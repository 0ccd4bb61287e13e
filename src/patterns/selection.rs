//! The positional operator `$` where another array of the document may have given it its position.

use super::Rejection;
use crate::document::{CowDocument, Writer};

/// Returns the condition that none of the fields is an array, or has one on its path.
pub(super) fn no_array(fields: &[&str]) -> CowDocument<'static> {
    CowDocument::build(|w| w.nested("$expr", |w| write_no_array(w, fields)))
}

/// Returns an expression for whether one of the fields is an array, or has one on its path.
pub(super) fn has_array(fields: &[&str]) -> CowDocument<'static> {
    CowDocument::build(|w| w.array("$not", |a| a.nested(|w| write_no_array(w, fields))))
}

/// Returns the rejection of a statement for a document in which one of them is an array.
pub(super) fn rejection(fields: &[&str]) -> Rejection {
    Rejection::new(
        format!("$ can have the position of an element in another array: '{}'", fields.join("', '")),
        "Use $[name] with arrayFilters, or a filter with conditions on one array.",
    )
}

/// Writes `{$not: [{$or: [{$isArray: ["$tags"]}]}]}`.
fn write_no_array(w: &mut Writer<'_>, fields: &[&str]) {
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
