//! What one recorded statement shows: which document it selects, and what it writes.

use crate::command::{Modification, Operation, Statement, StatementKind, Update};
use crate::document::{Document, Element, Value};
use crate::effect::{equality, touched};

/// The `_id` that it inserts, or that its filter requires.
pub(super) fn id<'s>(write: &'s Statement<'_>) -> Option<Value<'s>> {
    match write.kind() {
        StatementKind::Insert => write.stored()?.get("_id"),
        _ => equality(write.filter(), "_id"),
    }
}

/// Whether its filter has a condition on another field than `_id`.
pub(super) fn is_conditional(write: &Statement<'_>) -> bool {
    write.filter().elements().any(|element| element.key != b"_id")
}

/// The paths that it writes by operators.
pub(super) fn paths<'s>(write: &'s Statement<'_>) -> impl Iterator<Item = &'s [u8]> {
    touched(write.operators().unwrap_or(Document::EMPTY)).map(|(_, path, _)| path)
}

/// The fields of one operator.
pub(super) fn operator<'s>(write: &'s Statement<'_>, name: &str) -> impl Iterator<Item = Element<'s>> {
    let fields = write.operators().and_then(|operators| operators.get(name)?.as_document());
    fields.into_iter().flat_map(Document::elements)
}

/// What it writes into a top-level field: the operator, or nothing for a whole document, and the value.
pub(super) fn written<'s>(write: &'s Statement<'_>, field: &str) -> Option<(&'s [u8], Value<'s>)> {
    let whole = write.stored().and_then(|document| Some((&b""[..], document.get(field)?)));
    let operators = || write.operators().map(touched)?.find(|(_, path, _)| *path == field.as_bytes());
    whole.or_else(|| operators().map(|(operator, _, value)| (operator, value)))
}

/// The stages of a client's pipeline.
pub(super) fn pipeline<'s>(write: &Statement<'s>) -> Option<Document<'s>> {
    match write.operation {
        Operation::Update(Update { modification: Modification::ClientPipeline(stages), .. }) => Some(stages),
        _ => None,
    }
}
