//! Compares numbers of rules with numbers of documents, exactly across BSON's numeric types.

use std::cmp::Ordering;

use crate::config::Number;
use crate::document::{OwnedValue, Value, compare_numbers};

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
    /// Returns how `value` compares to this bound; `None` if it is not a number, or NaN.
    pub(super) fn compare(self, value: Value<'_>) -> Option<Ordering> {
        compare_numbers(value, self.as_value().as_value())
    }

    /// Returns `self - amount`; `None` for floats and on overflow.
    pub(super) fn minus(self, amount: i64) -> Option<OwnedValue> {
        match self {
            Self::Integer(bound) => bound.checked_sub(amount).map(OwnedValue::integer),
            Self::Float(_) => None,
        }
    }

    pub(super) fn as_bson(self) -> bson::Bson {
        match self {
            Self::Integer(number) => number.into(),
            Self::Float(number) => number.into(),
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

/// Returns whether a number is below zero, zero or above it; `None` if the value is not a number, or NaN.
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
    fn decimals_compare_exactly_in_every_form() {
        let decimal = |text: &str| {
            let raw = bson::rawdoc! {"d": text.parse::<bson::Decimal128>().unwrap()}.into_bytes();
            let value: OwnedValue = crate::document::Document::parse(&raw).unwrap().get("d").unwrap().into();
            Bound::Integer(1000).compare(value.as_value())
        };
        assert_eq!(decimal("999.99"), Some(Ordering::Less));
        assert_eq!(decimal("1000.00"), Some(Ordering::Equal));
        assert_eq!(decimal("1000.0000000000000000000000000001"), Some(Ordering::Greater));
        assert_eq!(decimal("1E+3"), Some(Ordering::Equal));
        assert_eq!(decimal("0E-8"), Some(Ordering::Less));
        assert_eq!(decimal("-0"), Some(Ordering::Less));
        assert_eq!(decimal("-1E+3"), Some(Ordering::Less));
        assert_eq!(decimal("0.01E+6"), Some(Ordering::Greater));
        assert_eq!(decimal("Infinity"), Some(Ordering::Greater));
        assert_eq!(decimal("-Infinity"), Some(Ordering::Less));
        assert_eq!(decimal("1000.5"), Some(Ordering::Greater));
        assert_eq!(decimal("NaN"), None);
    }
}
