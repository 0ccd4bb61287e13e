//! The element that the positional operator `$` selects.

use crate::document::{Document, Value, paths_overlap};

/// Filters can nest as deep as documents. Conditions below this depth may be on any array.
const MAX_DEPTH: usize = 100;

/// Returns whether `$` after `array` can only select an element of that array. The position comes from the array that
/// the filter matched (`MatchDetails::elemMatchKey`). If that can be another array, the position may be beyond the end,
/// and the server fills the array up to it.
pub fn selects_in(filter: Document<'_>, array: &[u8]) -> bool {
    selects_at(filter, array, 0)
}

fn selects_at(filter: Document<'_>, array: &[u8], depth: usize) -> bool {
    let of_branches = |value: Value<'_>| {
        let branches = value.as_array().unwrap_or(Document::EMPTY);
        branches.values().filter_map(Value::as_document).all(|branch| selects_at(branch, array, depth + 1))
    };
    depth <= MAX_DEPTH
        && filter.elements().all(|condition| match condition.key {
            b"$and" | b"$or" => of_branches(condition.value),
            // An `_id` is no array, and what must not match selects no element.
            b"_id" | b"$nor" => true,
            key => key.starts_with(b"$") || paths_overlap(key, array) || selects_none(condition.value),
        })
}

/// Returns whether a condition never selects an element of an array: it is negative, or on the whole field.
fn selects_none(condition: Value<'_>) -> bool {
    let negative: [&[u8]; 4] = [b"$exists", b"$ne", b"$nin", b"$not"];
    let operators = condition.as_document().filter(|operators| operators.first().is_some());
    operators.is_some_and(|operators| operators.elements().all(|operator| negative.contains(&operator.key)))
}
