//! The equalities of a filter: what every matched document holds, and what an upsert puts into the document it inserts.
//!
//! mongod parses the filter, normalises it and takes the equalities that are left at its top and below `$and`
//! (`path_support.cpp`, `extractEqualityMatches`). Normalising turns `$or` and `$and` of one branch into that branch,
//! `$in` of one value into an equality and `$all` into an `$and` of equalities (`MatchExpression::normalize`; seen on 6.0).
//! Later versions simplify more (8.0: boolean simplifier): an equality that follows from the whole filter may be found
//! where 6.0 does not see it. Those are pins that may be there or not.

use std::cmp::Ordering;

use smallvec::SmallVec;

use super::operators::look_below;
use crate::document::{Document, Kind, Lookup, Value, compare_numbers};

/// A path that the filter pins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pin<'f> {
    pub(super) path: &'f [u8],
    /// `None` where it cannot be told which of several equal values is taken.
    pub(super) value: Option<Value<'f>>,
    /// Whether all versions of the server take it for an equality.
    pub(super) certain: bool,
}

pub(super) type Pins<'f> = SmallVec<[Pin<'f>; 4]>;

/// The filter's equalities, in its order.
pub(super) fn pins(filter: Document<'_>) -> Pins<'_> {
    let mut pins = Pins::new();
    collect(filter, true, 0, &mut pins);
    pins
}

/// The top-level fields that an upsert by operators takes from its filter, or may take.
pub fn pinned_roots(filter: Document<'_>) -> impl Iterator<Item = &[u8]> {
    pins(filter).into_iter().map(|pin| pin.path.split(|byte| *byte == b'.').next().unwrap_or(pin.path))
}

/// Whether the server can make a document of the filter's equalities: it refuses two on one path, or one inside another
/// (54, NotSingleValueField; seen on 6.0 also where both are the same).
pub fn pins_agree(filter: Document<'_>) -> bool {
    agree(&pins(filter))
}

/// The same for what the filter says of `_id` alone: an upsert by replacement takes nothing else of it.
pub fn id_pins_agree(filter: Document<'_>) -> bool {
    let pins = pins(filter).into_iter().filter(|pin| pin.path == b"_id" || pin.path.starts_with(b"_id."));
    agree(&pins.collect::<Pins<'_>>())
}

fn agree(pins: &[Pin<'_>]) -> bool {
    let meets = |one: &[u8], other: &[u8]| {
        other.strip_prefix(one).is_some_and(|rest| rest.first().is_none_or(|next| *next == b'.'))
    };
    pins.iter().enumerate().all(|(index, pin)| {
        let others = pins.iter().take(index);
        others.clone().all(|other| !meets(pin.path, other.path) && !meets(other.path, pin.path))
    })
}

/// The value that every document which the filter matches holds in `field`, by an equality of any form:
/// `{f: v}`, `$eq`, `$in` or `$all` of one value, also inside `$and`, an `$or` of one branch, or a document around it.
pub fn equality<'f>(filter: Document<'f>, field: &str) -> Option<Value<'f>> {
    pins(filter).into_iter().filter(|pin| pin.certain).find_map(|pin| {
        let rest = field.as_bytes().strip_prefix(pin.path)?;
        match rest.split_first() {
            None => pin.value,
            Some((b'.', below)) => match look_below(below, pin.value?) {
                Lookup::Found(value) => Some(value),
                Lookup::Missing | Lookup::Blocked(_) => None,
            },
            Some(_) => None,
        }
    })
}

/// Filters nest as deep as documents may; what is deeper than this pins nothing certain.
const MAX_DEPTH: usize = 100;

fn collect<'f>(filter: Document<'f>, certain: bool, depth: usize, pins: &mut Pins<'f>) {
    if depth > MAX_DEPTH {
        return;
    }
    for element in filter.elements() {
        let branches = || element.value.as_array().unwrap_or(Document::EMPTY).values().filter_map(Value::as_document);
        match element.key {
            b"$and" => branches().for_each(|branch| collect(branch, certain, depth + 1, pins)),
            b"$or" => collect_or(branches(), certain, depth + 1, pins),
            b"$nor" => branches().for_each(|branch| collect_negated(branch, depth + 1, pins)),
            key if key.starts_with(b"$") => {}
            path => collect_condition(path, element.value, certain, pins),
        }
    }
}

/// What an `$or` pins: of one branch, that branch; of several, perhaps what all of them pin.
fn collect_or<'f>(mut branches: impl Iterator<Item = Document<'f>>, certain: bool, depth: usize, pins: &mut Pins<'f>) {
    let Some(first) = branches.next() else { return };
    let mut common = Pins::new();
    collect(first, certain, depth, &mut common);
    for branch in branches {
        let mut others = Pins::new();
        collect(branch, certain, depth, &mut others);
        common.retain(|pin| others.iter().any(|other| other.path == pin.path && other.value == pin.value));
        common.iter_mut().for_each(|pin| pin.certain = false);
    }
    pins.extend(common);
}

/// A negation of negations may be simplified to what is in it.
fn collect_negated<'f>(filter: Document<'f>, depth: usize, pins: &mut Pins<'f>) {
    for element in filter.elements().filter(|element| element.key == b"$nor") {
        let branches = element.value.as_array().unwrap_or(Document::EMPTY);
        branches.values().filter_map(Value::as_document).for_each(|branch| collect(branch, false, depth, pins));
    }
}

fn collect_condition<'f>(path: &'f [u8], condition: Value<'f>, certain: bool, pins: &mut Pins<'f>) {
    let mut pin = |value: Option<Value<'f>>, certain| pins.push(Pin { path, value, certain });
    let Some(operators) = operators(condition) else {
        // A regular expression is a condition of its own.
        if condition.kind != Kind::Regex {
            pin(Some(condition), certain);
        }
        return;
    };
    for operator in operators.elements() {
        let values = || operator.value.as_array().unwrap_or(Document::EMPTY).values();
        match operator.key {
            b"$eq" => pin(Some(operator.value), certain),
            b"$in" => {
                let mut values = values();
                let Some(first) = values.next().filter(|first| first.kind != Kind::Regex) else { continue };
                let rest: SmallVec<[Value<'f>; 4]> = values.collect();
                if rest.iter().all(|value| *value == first) {
                    pin(Some(first), certain);
                } else if rest.iter().all(|value| may_be_equal(*value, first)) {
                    pin(None, false);
                }
            }
            b"$all" => {
                let plain = |value: &Value<'f>| value.kind != Kind::Regex && super::pins::operators(*value).is_none();
                values().filter(plain).for_each(|value| pin(Some(value), certain));
            }
            b"$not" if operator.value.as_document().is_some_and(|nested| nested.get("$not").is_some()) => {
                pin(None, false);
            }
            _ => {}
        }
    }
}

/// The operators of a condition, if it is no value. A DBRef begins with `$` and is a value.
fn operators(condition: Value<'_>) -> Option<Document<'_>> {
    let document = condition.as_document()?;
    let first = document.first()?;
    let is_operator = first.key.starts_with(b"$") && !matches!(first.key, b"$ref" | b"$id" | b"$db");
    is_operator.then_some(document)
}

/// Whether two different values may be one to the server, which then sees an `$in` of one value: numbers of different
/// types, texts under a collation.
fn may_be_equal(one: Value<'_>, other: Value<'_>) -> bool {
    let is_text = |value: Value<'_>| matches!(value.kind, Kind::String | Kind::Symbol);
    let fields = |value: Value<'_>| value.as_document().or(value.as_array()).map(|nested| nested.values().count());
    match (compare_numbers(one, other), fields(one), fields(other)) {
        (Some(ordering), ..) => ordering == Ordering::Equal,
        (None, Some(count), Some(others)) => one.kind == other.kind && count == others && count > 0,
        // Every NaN equals every other.
        (None, None, None) => (is_text(one) && is_text(other)) || (one.kind.is_number() && other.kind.is_number()),
        (None, ..) => false,
    }
}

#[cfg(test)]
mod tests {
    use bson::{doc, raw::RawDocumentBuf};

    use super::*;

    fn found(filter: bson::Document, field: &str) -> Option<i32> {
        let raw = RawDocumentBuf::try_from(&filter).unwrap().into_bytes();
        equality(Document::parse(&raw).unwrap(), field).and_then(Value::as_i32)
    }

    #[test]
    fn equalities_are_found_wherever_the_server_finds_them() {
        let cases = [
            (doc! {"v": 3}, Some(3)),
            (doc! {"v": {"$eq": 3}}, Some(3)),
            (doc! {"$and": [{"a": 1}, {"$and": [{"v": 3}]}]}, Some(3)),
            (doc! {"$or": [{"v": 3}]}, Some(3)),
            (doc! {"v": {"$in": [3]}}, Some(3)),
            (doc! {"v": {"$in": [3, 3]}}, Some(3)),
            (doc! {"v": {"$all": [3]}}, Some(3)),
            (doc! {"v": {"$gt": 1, "$in": [3]}}, Some(3)),
            (doc! {"v": {"$gte": 3}}, None),
            (doc! {"v": {"$in": [3, 4]}}, None),
            (doc! {"v": {"$in": []}}, None),
            (doc! {"v": {"$elemMatch": {"$eq": 3}}}, None),
            (doc! {"v": {"$not": {"$eq": 3}}}, None),
            (doc! {"$nor": [{"v": 3}]}, None),
            (doc! {"$or": [{"v": 3}, {"v": 4}]}, None),
            (doc! {"$expr": {"$eq": ["$v", 3]}}, None),
            (doc! {"w": 3}, None),
        ];
        for (filter, expected) in cases {
            assert_eq!(found(filter.clone(), "v"), expected, "{filter}");
        }
    }

    #[test]
    fn equalities_of_documents_around_a_field_count() {
        assert_eq!(found(doc! {"a": {"b": {"c": 3}}}, "a.b.c"), Some(3));
        assert_eq!(found(doc! {"a.b": {"$in": [{"c": 3}]}}, "a.b.c"), Some(3));
        assert_eq!(found(doc! {"a": {"b": 1}}, "a.c"), None);
        assert_eq!(found(doc! {"a": 1}, "ab"), None);
    }

    #[test]
    fn what_only_some_servers_see_is_not_certain() {
        let raw = RawDocumentBuf::try_from(&doc! {"$or": [{"v": 3, "a": 1}, {"v": 3}]}).unwrap().into_bytes();
        let pins = pins(Document::parse(&raw).unwrap());
        assert_eq!(pins.iter().map(|pin| (pin.path, pin.certain)).collect::<Vec<_>>(), [(&b"v"[..], false)]);
    }
}
