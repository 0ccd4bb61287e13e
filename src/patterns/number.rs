//! Numbers of rules against numbers of documents, compared exactly across BSON's numeric types.

use std::cmp::Ordering;

use crate::document::{Kind, OwnedValue, Value};
use crate::rules::Number;

/// A number in a rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Bound {
    Integer(i64),
    Float(f64),
}

impl From<Number> for Bound {
    fn from(number: Number) -> Self {
        match number {
            Number::Integer(number) => Self::Integer(number),
            Number::Float(number) => Self::Float(number),
        }
    }
}

impl Bound {
    /// How `value` stands to this bound; `None` when it is no number, or NaN, or a decimal so close that a
    /// double cannot tell.
    pub(super) fn compare(self, value: Value<'_>) -> Option<Ordering> {
        match (value.kind, self) {
            (Kind::Int32 | Kind::Int64, Self::Integer(bound)) => value.as_integer().map(|value| value.cmp(&bound)),
            (Kind::Int32 | Kind::Int64, Self::Float(bound)) => {
                value.as_integer().and_then(|value| compare_integer(value, bound))
            }
            (Kind::Double, Self::Float(bound)) => value.as_f64()?.partial_cmp(&bound),
            (Kind::Double, Self::Integer(bound)) => compare_integer(bound, value.as_f64()?).map(Ordering::reverse),
            (Kind::Decimal128, bound) => compare_decimal(value, bound),
            _ => None,
        }
    }

    /// `self - amount`, for whole numbers that do not overflow.
    pub(super) fn minus(self, amount: i64) -> Option<OwnedValue> {
        match self {
            Self::Integer(bound) => bound.checked_sub(amount).map(OwnedValue::integer),
            Self::Float(_) => None,
        }
    }

    pub(super) fn as_value(self) -> OwnedValue {
        match self {
            Self::Integer(number) => OwnedValue::integer(number),
            Self::Float(number) => OwnedValue::double(number),
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Integer(number) => number.fmt(formatter),
            Self::Float(number) => number.fmt(formatter),
        }
    }
}

/// Exact, also beyond 2⁵³ where a double cannot hold every integer.
fn compare_integer(integer: i64, float: f64) -> Option<Ordering> {
    const TOO_LARGE: f64 = 9_223_372_036_854_775_808.0;
    if float.is_nan() {
        return None;
    }
    if float >= TOO_LARGE {
        return Some(Ordering::Less);
    }
    if float < -TOO_LARGE {
        return Some(Ordering::Greater);
    }
    let whole = float.trunc();
    Some(integer.cmp(&(whole as i64)).then_with(|| whole.partial_cmp(&float).unwrap_or(Ordering::Equal)))
}

/// A decimal against a bound by way of the nearest double; equal only when its text says so.
fn compare_decimal(value: Value<'_>, bound: Bound) -> Option<Ordering> {
    let bytes: [u8; 16] = value.bytes.try_into().ok()?;
    let text = bson::Decimal128::from_bytes(bytes).to_string();
    let nearest: f64 = text.parse().ok()?;
    let (bound_float, exact) = match bound {
        Bound::Integer(number) => (number as f64, number.to_string()),
        Bound::Float(number) => (number, number.to_string()),
    };
    match nearest.partial_cmp(&bound_float)? {
        Ordering::Equal => {
            let plain = match text.split_once('.') {
                Some((whole, fraction)) => {
                    let fraction = fraction.trim_end_matches('0');
                    if fraction.is_empty() { whole.to_owned() } else { format!("{whole}.{fraction}") }
                }
                None => text,
            };
            (plain == exact).then_some(Ordering::Equal)
        }
        other => Some(other),
    }
}

/// Whether a numeric value is below zero, zero or above it; `None` when it is no number or NaN.
pub(super) fn sign(value: Value<'_>) -> Option<Ordering> {
    Bound::Integer(0).compare(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_are_exact_across_types() {
        let check = |bound: Bound, value: OwnedValue, expected: Option<Ordering>| {
            assert_eq!(bound.compare(value.as_value()), expected, "{value:?} against {bound}");
        };
        check(Bound::Integer(3), OwnedValue::int32(2), Some(Ordering::Less));
        check(Bound::Integer(3), OwnedValue::double(3.0), Some(Ordering::Equal));
        check(Bound::Integer(3), OwnedValue::double(2.9), Some(Ordering::Less));
        check(Bound::Integer(-3), OwnedValue::double(-3.1), Some(Ordering::Less));
        check(Bound::Integer(i64::MAX), OwnedValue::double(9_223_372_036_854_775_808.0), Some(Ordering::Greater));
        check(Bound::Float(9_007_199_254_740_992.0), OwnedValue::int64(9_007_199_254_740_993), Some(Ordering::Greater));
        check(Bound::Float(0.5), OwnedValue::int32(0), Some(Ordering::Less));
        check(Bound::Integer(0), OwnedValue::double(f64::NAN), None);
        check(Bound::Integer(0), OwnedValue::date(5), None);
    }

    #[test]
    fn decimals_compare_by_their_text_where_a_double_cannot_tell() {
        let decimal = |text: &str| {
            let raw = bson::rawdoc! {"d": text.parse::<bson::Decimal128>().unwrap()}.into_bytes();
            let value: OwnedValue = crate::document::Document::parse(&raw).unwrap().get("d").unwrap().into();
            Bound::Integer(1000).compare(value.as_value())
        };
        assert_eq!(decimal("999.99"), Some(Ordering::Less));
        assert_eq!(decimal("1000.00"), Some(Ordering::Equal));
        assert_eq!(decimal("1000.0000000000000000000000000001"), None);
        assert_eq!(decimal("1000.5"), Some(Ordering::Greater));
        assert_eq!(decimal("NaN"), None);
    }
}
