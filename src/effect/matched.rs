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
            b"$and" | b"$or" | b"$nor" => of_branches(condition.value),
            // An `_id` is no array.
            b"_id" => true,
            key => key.starts_with(b"$") || paths_overlap(key, array),
        })
}
