//! Whether a filter matches a document of which only a part may be known.

use std::cmp::Ordering;

use super::expression::is_true;
use super::known_documents::{FieldKnowledge, KnownDocument};
use crate::document::{Document, Element, Kind, Value, compare_numbers};
use crate::effect::condition_operators;

/// Returns `None` if it depends on something that is not known. The document was found by its `_id`, so a condition on
/// `_id` counts as true.
pub(super) fn matches(filter: Document<'_>, document: &KnownDocument<'_>) -> Option<bool> {
    all(filter.elements().map(|element| condition(element, document)))
}

fn condition(element: Element<'_>, document: &KnownDocument<'_>) -> Option<bool> {
    let branches = || element.value.as_array().unwrap_or(Document::EMPTY).values().filter_map(Value::as_document);
    match element.key {
        b"_id" => Some(true),
        b"$and" => all(branches().map(|branch| matches(branch, document))),
        b"$or" => any(branches().map(|branch| matches(branch, document))),
        b"$expr" => is_true(element.value, &|path| match document.field(path) {
            FieldKnowledge::Value(value) => Some(Some(value.into())),
            FieldKnowledge::Missing => Some(None),
            FieldKnowledge::Unknown => None,
        }),
        key if key.starts_with(b"$") => None,
        key => value_matches(element.value, document.field(std::str::from_utf8(key).ok()?)),
    }
}

fn value_matches(condition: Value<'_>, stored: FieldKnowledge<'_>) -> Option<bool> {
    match condition_operators(condition) {
        Some(operators) => all(operators.elements().map(|operator| operator_matches(operator, stored))),
        None => equals(condition, stored),
    }
}

fn operator_matches(operator: Element<'_>, stored: FieldKnowledge<'_>) -> Option<bool> {
    let compared =
        |wanted: fn(Ordering) -> bool| compare(stored, operator.value).map(|order| order.is_some_and(wanted));
    let among = || any(operator.value.as_array()?.values().map(|value| equals(value, stored)));
    match operator.key {
        b"$eq" => equals(operator.value, stored),
        b"$ne" => equals(operator.value, stored).map(|equal| !equal),
        b"$in" => among(),
        b"$nin" => among().map(|found| !found),
        b"$gt" => compared(Ordering::is_gt),
        b"$gte" => compared(Ordering::is_ge),
        b"$lt" => compared(Ordering::is_lt),
        b"$lte" => compared(Ordering::is_le),
        b"$exists" => match stored {
            FieldKnowledge::Unknown => None,
            FieldKnowledge::Missing => Some(operator.value.as_flag() == Some(false)),
            FieldKnowledge::Value(_) => Some(operator.value.as_flag() != Some(false)),
        },
        b"$not" => value_matches(operator.value, stored).map(|matched| !matched),
        _ => None,
    }
}

fn equals(wanted: Value<'_>, stored: FieldKnowledge<'_>) -> Option<bool> {
    let stored = match stored {
        FieldKnowledge::Unknown => return None,
        FieldKnowledge::Missing => return Some(wanted.kind == Kind::Null),
        FieldKnowledge::Value(stored) => stored,
    };
    if wanted.kind == stored.kind && wanted.bytes == stored.bytes {
        return Some(true);
    }
    let is_complex = |value: Value<'_>| matches!(value.kind, Kind::Document | Kind::Array | Kind::Regex);
    if is_complex(wanted) || is_complex(stored) {
        return None;
    }
    Some(compare_numbers(wanted, stored).is_some_and(Ordering::is_eq))
}

/// How the stored value compares with a number or date; `Some(None)` if the server does not compare the two.
fn compare(stored: FieldKnowledge<'_>, bound: Value<'_>) -> Option<Option<Ordering>> {
    match stored {
        FieldKnowledge::Unknown => None,
        FieldKnowledge::Missing => bound.kind.is_number().then_some(None),
        FieldKnowledge::Value(stored) if stored.kind.is_number() && bound.kind.is_number() => {
            Some(compare_numbers(stored, bound))
        }
        FieldKnowledge::Value(stored) => Some(Some(stored.as_date()?.cmp(&bound.as_date()?))),
    }
}

fn all(parts: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut result = Some(true);
    for part in parts {
        match part {
            Some(true) => {}
            Some(false) => return Some(false),
            None => result = None,
        }
    }
    result
}

fn any(parts: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    all(parts.map(|part| part.map(|part| !part))).map(|none| !none)
}
