//! Collations: a filter with one can match other values than those that it names.

use smallvec::{SmallVec, smallvec};

use crate::document::{Kind, Value, Writer};

/// Writes the option by which values are compared byte by byte, whatever the collation of the collection is.
pub fn write_simple_collation(w: &mut Writer<'_>) {
    w.nested("collation", |w| w.string("locale", "simple"));
}

/// Returns whether a collation can compare a value with others as equal: it is a text, or has one inside.
pub(super) fn contains_text(value: Value<'_>) -> bool {
    let mut unread: SmallVec<[Value<'_>; 8]> = smallvec![value];
    while let Some(value) = unread.pop() {
        if matches!(value.kind, Kind::String | Kind::Symbol) {
            return true;
        }
        unread.extend(value.as_document_or_array().into_iter().flat_map(|nested| nested.values()));
    }
    false
}
