//! Operators with further fields for the document that an upsert inserts.

use crate::document::{CowDocument, Document, Element, Value, Writer};

/// Returns the operators with the fields that `write` adds to `$setOnInsert`, which comes last. Of the client's fields there,
/// those stay for which `is_kept` is true.
pub(super) fn with_set_on_insert<'a>(
    operators: Document<'_>,
    is_kept: impl Fn(&Element<'_>) -> bool,
    write: impl FnOnce(&mut Writer<'_>),
) -> CowDocument<'a> {
    const OPERATOR: &str = "$setOnInsert";
    let own = operators.get(OPERATOR).and_then(Value::as_document).unwrap_or(Document::EMPTY);
    CowDocument::build(|w| {
        operators.elements().filter(|one| one.key != OPERATOR.as_bytes()).for_each(|one| w.element(one));
        w.nested(OPERATOR, |w| {
            own.elements().filter(is_kept).for_each(|field| w.element(field));
            write(w);
        });
    })
}
