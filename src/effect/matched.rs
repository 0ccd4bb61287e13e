//! The element that the positional operator `$` selects.

use super::operators::index;
use crate::document::{Document, Value, paths_overlap, rest_below};

/// Filters can nest as deep as documents. Conditions below this depth may be on any array.
const MAX_DEPTH: usize = 100;

/// Returns the other fields of the filter that give `$` after `array` its position if they are arrays, or have one on
/// their path. The position comes from the array that the filter matched (`MatchDetails::elemMatchKey`). If that is
/// another array, the position may be beyond the end, and the server fills the array with nulls up to it. `None` if the
/// fields are not known, or an expression cannot refer to them.
pub fn other_selections<'f>(filter: Document<'f>, array: &[u8]) -> Option<Vec<&'f str>> {
    let mut fields = Vec::new();
    collect(filter, array, 0, &mut fields)?;
    Some(fields)
}

fn collect<'f>(filter: Document<'f>, array: &[u8], depth: usize, fields: &mut Vec<&'f str>) -> Option<()> {
    if depth > MAX_DEPTH {
        return None;
    }
    for condition in filter.elements() {
        match condition.key {
            b"$and" | b"$or" => {
                let branches = condition.value.as_array().unwrap_or(Document::EMPTY);
                for branch in branches.values().filter_map(Value::as_document) {
                    collect(branch, array, depth + 1, fields)?;
                }
            }
            // An `_id` cannot be an array.
            b"_id" => {}
            // Its `required` selects elements.
            b"$jsonSchema" => return None,
            // Negated conditions and expressions select no array element.
            key if key.starts_with(b"$") => {}
            _ if selects_none(condition.value) => {}
            key if paths_overlap(key, array) && !is_below_element(key, array) => {}
            key => {
                let field = std::str::from_utf8(key).ok()?;
                let is_reference = field.split('.').all(|part| !part.is_empty() && !part.starts_with('$'));
                if !is_reference {
                    return None;
                }
                if !fields.contains(&field) {
                    fields.push(field);
                }
            }
        }
    }
    Some(())
}

/// Returns whether a path leads below one element of the array, whose own arrays then give `$` the position.
fn is_below_element(path: &[u8], array: &[u8]) -> bool {
    let below = rest_below(path, array).and_then(|below| below.split(|byte| *byte == b'.').next());
    below.and_then(index).is_some()
}

/// Returns whether a condition never selects an element of an array: it is negative.
fn selects_none(condition: Value<'_>) -> bool {
    let operators = condition.as_document().filter(|operators| operators.first().is_some());
    operators.is_some_and(|operators| {
        operators.elements().all(|operator| match operator.key {
            b"$ne" | b"$nin" | b"$not" => true,
            b"$exists" => operator.value.as_flag() == Some(false),
            _ => false,
        })
    })
}
