//! Writes a replacement document as an expression of a pipeline.

use super::Rejection;
use crate::document::{Document, Element, Value, ValueSlot};
use crate::effect::is_empty_timestamp;

/// Writes the document that the server would store. In a replacement, but not in a pipeline, the server sets empty
/// timestamps at the top level, except `_id`, to the current time (manual: "BSON Types", Timestamps).
/// `$$CLUSTER_TIME` needs a replica set. An expression cannot name a field with a dot or a leading `$`; such a
/// timestamp stays empty.
pub(super) fn write(slot: ValueSlot<'_>, document: Document<'_>) {
    let literal = |slot: ValueSlot<'_>| slot.nested(|w| w.value("$literal", Value::document(document)));
    let empty = || document.elements().filter(is_empty_timestamp).filter(has_plain_name);
    if empty().next().is_none() {
        return literal(slot);
    }
    slot.nested(|w| {
        w.array("$mergeObjects", |a| {
            literal(a.slot());
            a.nested(|w| empty().for_each(|field| w.string(field.key, "$$CLUSTER_TIME")));
        });
    });
}

/// Returns the rejection of a replacement with a field whose name begins with `$`. The server stores such a field by a
/// pipeline, but not by a replacement of a stored document (52, DollarPrefixedFieldName).
pub(super) fn operator_field(document: Document<'_>) -> Option<Rejection> {
    let field = document.elements().find(|field| field.key.starts_with(b"$"))?;
    let name = String::from_utf8_lossy(field.key);
    Some(Rejection::new(format!("its field name '{name}' begins with $"), "Rename the field."))
}

fn has_plain_name(field: &Element<'_>) -> bool {
    !field.key.is_empty() && !field.key.starts_with(b"$") && !field.key.contains(&b'.')
}
