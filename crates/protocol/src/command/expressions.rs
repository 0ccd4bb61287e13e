//! Parts of the expressions that docward writes into pipelines.

use crate::document::{ValueSlot, Writer};

/// Writes the condition that a value has this type.
pub fn has_type(w: &mut Writer<'_>, of: impl FnOnce(ValueSlot<'_>), type_name: &str) {
    w.array("$eq", |a| {
        a.nested(|w| of(w.slot("$type")));
        a.string(type_name);
    });
}

/// Writes an expression that fails with a text. `$toInt` of a string fails, and the server quotes the string. It
/// depends on the document, so that the optimizer does not evaluate it in advance.
pub fn failure(slot: ValueSlot<'_>, text: &str, path: &str) {
    slot.nested(|w| {
        w.nested("$toInt", |w| {
            w.array("$concat", |a| {
                a.string(format!("docward: {text}"));
                a.nested(|w| field(w.slot("$type"), path));
            });
        });
    });
}

/// Writes `$cond`.
pub fn cond(
    slot: ValueSlot<'_>,
    test: impl FnOnce(ValueSlot<'_>),
    then: impl FnOnce(ValueSlot<'_>),
    otherwise: impl FnOnce(ValueSlot<'_>),
) {
    slot.nested(|w| {
        w.array("$cond", |a| {
            test(a.slot());
            then(a.slot());
            otherwise(a.slot());
        });
    });
}

/// Writes the stored value of a field.
pub fn field(slot: ValueSlot<'_>, path: &str) {
    slot.prefixed("$", path);
}
