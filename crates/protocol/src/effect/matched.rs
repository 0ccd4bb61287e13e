//! The element that the positional operator `$` selects.

use super::equalities::condition_operators;
use super::operators::index;
use crate::document::{Document, Element, Value, paths_overlap, rest_below, root_of};

/// Filters can nest as deep as documents. Conditions below this depth may be on any array.
const MAX_DEPTH: usize = 100;

/// Returns whether only `array` can give `$` after it its position. The position comes from the array that the filter matched
/// (`MatchDetails::elemMatchKey`). If that is another array, the position may be beyond the end, and the server fills the
/// array with nulls up to it.
pub fn selects_only(filter: Document<'_>, array: &[u8]) -> bool {
    let is_own = |key: &[u8]| paths_overlap(key, array) && !is_below_element(key, array);
    visit(filter, 0, &mut |condition| is_own(condition.key).then_some(())).is_some()
}

/// Returns the condition by which the server selects the array element for `$`, if the filter has only one that can
/// select an element of any array: its path, and its operator with the operand, or `$eq` with the value. `None` if there
/// are several, or if they are not known.
pub fn only_selection(filter: Document<'_>) -> Option<(&[u8], Element<'_>)> {
    let mut only = None;
    visit(filter, 0, &mut |condition| {
        let equality = Element { key: b"$eq", value: condition.value };
        let (single, listed) = match condition_operators(condition.value) {
            None => (Some(equality), Document::EMPTY),
            Some(operators) => (None, operators),
        };
        let selects = |operator: &Element<'_>| !is_negative(operator);
        for operator in single.into_iter().chain(listed.elements().filter(selects)) {
            // Each value of `$all` can select an element of its own.
            let is_several =
                operator.key == b"$all" && operator.value.as_array().is_none_or(|values| values.values().count() > 1);
            if is_several || only.replace((condition.key, operator)).is_some() {
                return None;
            }
        }
        Some(())
    })?;
    only
}

/// Calls `selection` with each condition on a field that can select an element of an array. Returns `None` if it does, or
/// if there can be other such conditions.
fn visit<'f>(filter: Document<'f>, depth: usize, selection: &mut impl FnMut(Element<'f>) -> Option<()>) -> Option<()> {
    if depth > MAX_DEPTH {
        return None;
    }
    for condition in filter.elements() {
        match condition.key {
            b"$and" | b"$or" => {
                let branches = condition.value.as_array().unwrap_or(Document::EMPTY);
                for branch in branches.values().filter_map(Value::as_document) {
                    visit(branch, depth + 1, selection)?;
                }
            }
            // An `_id` cannot be an array.
            b"_id" => {}
            // Its `required` selects elements.
            b"$jsonSchema" => return None,
            // Negated conditions and expressions select no array element.
            key if key.starts_with(b"$") => {}
            _ if selects_none(condition.value) => {}
            _ => selection(condition)?,
        }
    }
    Some(())
}

/// Returns whether a path leads below one element of the array, whose own arrays then give `$` the position.
fn is_below_element(path: &[u8], array: &[u8]) -> bool {
    let below = rest_below(path, array).map(root_of);
    below.and_then(index).is_some()
}

/// Returns whether a condition never selects an element of an array: it is negative.
fn selects_none(condition: Value<'_>) -> bool {
    let operators = condition.as_document().filter(|operators| operators.first().is_some());
    operators.is_some_and(|operators| operators.elements().all(|operator| is_negative(&operator)))
}

fn is_negative(operator: &Element<'_>) -> bool {
    match operator.key {
        b"$ne" | b"$nin" | b"$not" => true,
        b"$exists" => operator.value.as_flag() == Some(false),
        _ => false,
    }
}
