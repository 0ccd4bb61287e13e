//! Array filters of an update whose operators docward changed. The server rejects a filter that no path uses
//! (`ParsedUpdateBase::parseArrayFilters`: "The array filter for identifier … was not used in the update").

use crate::document::{Document, Value, root_of};

/// Returns the client's array filters that `sent` needs: without those whose only uses docward has removed. A filter that
/// the client's own operators do not use stays, and the server rejects it.
pub(super) fn needed<'f>(
    filters: Value<'f>,
    own: Document<'f>,
    sent: Document<'f>,
) -> Option<impl Iterator<Item = Value<'f>> + Clone> {
    let is_needed = move |filter: &Value<'_>| {
        let identifier = filter.as_document().and_then(identifier);
        identifier.is_none_or(|identifier| uses(sent, identifier) || !uses(own, identifier))
    };
    Some(filters.as_array()?.values().filter(is_needed))
}

/// The name for an element in a filter: the first part of its first path, also inside `$and`, `$or` and `$nor`.
fn identifier(filter: Document<'_>) -> Option<&[u8]> {
    let first = filter.first()?;
    match first.value.as_array() {
        Some(branches) if first.key.starts_with(b"$") => {
            branches.values().filter_map(Value::as_document).find_map(identifier)
        }
        _ => Some(root_of(first.key)),
    }
}

/// Whether a path of the operators has the part `$[identifier]`.
fn uses(operators: Document<'_>, identifier: &[u8]) -> bool {
    let is_use = |part: &[u8]| {
        part.strip_prefix(b"$[").and_then(|part| part.strip_suffix(b"]")).is_some_and(|named| named == identifier)
    };
    let fields = operators.elements().filter_map(|operator| operator.value.as_document());
    fields.flat_map(Document::elements).any(|field| field.key.split(|byte| *byte == b'.').any(is_use))
}
