//! The value of an aggregation expression on a document of which only a part may be known: of the operators that rules
//! write into filters for numbers.

use std::cmp::Ordering;

use crate::document::{Document, Kind, OwnedValue, Value, add_numbers, compare_numbers};

/// A value; the inner `None` if the field is missing, the outer one if it is not known.
type KnownValue = Option<Option<OwnedValue>>;

/// Whether a `$expr` is true; `None` if it depends on something that is not known. `field`: the value at a path.
pub(super) fn is_true(expression: Value<'_>, field: &dyn Fn(&str) -> KnownValue) -> Option<bool> {
    let value = evaluate(expression, field)?;
    let is_null = |value: Value<'_>| matches!(value.kind, Kind::Null | Kind::Undefined);
    Some(value.is_some_and(|value| !is_null(value.as_value()) && value.as_value().as_flag() != Some(false)))
}

fn evaluate(expression: Value<'_>, field: &dyn Fn(&str) -> KnownValue) -> KnownValue {
    if let Some(path) = expression.as_str().and_then(|text| text.strip_prefix('$')) {
        return if path.starts_with('$') { None } else { field(path) };
    }
    match expression.as_document().map(|document| (document.first(), document.elements().count())) {
        Some((Some(operator), 1)) if operator.key.starts_with(b"$") => apply(operator.key, operator.value, field),
        None if expression.kind != Kind::Array => Some(Some(expression.into())),
        _ => None,
    }
}

fn apply(operator: &[u8], operand: Value<'_>, field: &dyn Fn(&str) -> KnownValue) -> KnownValue {
    let list = || operand.as_array().unwrap_or(Document::EMPTY).values();
    let nth = |at: usize| evaluate(list().nth(at)?, field);
    let bool = |truth: bool| Some(Some(OwnedValue::boolean(truth)));
    let compared = |wanted: fn(Ordering) -> bool| bool(wanted(compare(&nth(0)?, &nth(1)?)?));
    match operator {
        b"$and" => {
            let mut parts = list().map(|part| is_true(part, field));
            // A part that is not known does not matter after one that is false.
            match parts
                .try_fold(true, |all, part| if part == Some(false) { Err(()) } else { Ok(all && part.is_some()) })
            {
                Err(()) => bool(false),
                Ok(is_known) => is_known.then(|| Some(OwnedValue::boolean(true))),
            }
        }
        b"$isNumber" => bool(evaluate(operand, field)?.is_some_and(|value| value.as_value().kind.is_number())),
        b"$type" => {
            let name = evaluate(operand, field)?.map_or("missing", |value| value.as_value().kind.name());
            Some(Some(OwnedValue::string(name)))
        }
        b"$ifNull" => match nth(0)? {
            Some(value) if value.as_value().kind != Kind::Null => Some(Some(value)),
            _ => nth(1),
        },
        b"$cond" => nth(if is_true(list().next()?, field)? { 1 } else { 2 }),
        // Sums of decimals convert the other number.
        b"$toDecimal" => evaluate(operand, field),
        b"$add" => Some(Some(add_numbers(nth(0)??.as_value(), nth(1)??.as_value())?)),
        b"$eq" => compared(Ordering::is_eq),
        b"$gt" => compared(Ordering::is_gt),
        b"$gte" => compared(Ordering::is_ge),
        b"$lt" => compared(Ordering::is_lt),
        b"$lte" => compared(Ordering::is_le),
        _ => None,
    }
}

/// How two numbers or texts compare in an expression; `None` for other types.
fn compare(one: &Option<OwnedValue>, other: &Option<OwnedValue>) -> Option<Ordering> {
    let (one, other) = (one.as_ref()?.as_value(), other.as_ref()?.as_value());
    if one.kind.is_number() && other.kind.is_number() {
        let is_nan = |value: Value<'_>| compare_numbers(value, value).is_none();
        return match (is_nan(one), is_nan(other)) {
            // NaN is less than every number.
            (true, true) => Some(Ordering::Equal),
            (true, false) => Some(Ordering::Less),
            (false, true) => Some(Ordering::Greater),
            (false, false) => compare_numbers(one, other),
        };
    }
    Some(one.as_str()?.cmp(other.as_str()?))
}
