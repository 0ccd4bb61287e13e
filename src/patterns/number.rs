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
    /// How `value` stands to this bound; `None` when it is no number, or NaN.
    pub(super) fn compare(self, value: Value<'_>) -> Option<Ordering> {
        compare(value, self.as_value().as_value())
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

/// How one number stands to another, as the server compares them: exactly, across types. `None` when one of them is no
/// number, or NaN.
pub(super) fn compare(one: Value<'_>, other: Value<'_>) -> Option<Ordering> {
    match (one.kind, other.kind) {
        (Kind::Int32 | Kind::Int64, Kind::Int32 | Kind::Int64) => Some(one.as_integer()?.cmp(&other.as_integer()?)),
        (Kind::Int32 | Kind::Int64, Kind::Double) => compare_integer(one.as_integer()?, other.as_f64()?),
        (Kind::Double, Kind::Int32 | Kind::Int64) => {
            compare_integer(other.as_integer()?, one.as_f64()?).map(Ordering::reverse)
        }
        (Kind::Double, Kind::Double) => one.as_f64()?.partial_cmp(&other.as_f64()?),
        (Kind::Decimal128, _) | (_, Kind::Decimal128) => Some(Exact::of(one)?.cmp(&Exact::of(other)?)),
        _ => None,
    }
}

/// Whether it is a number other than NaN and the infinities.
pub(super) fn is_finite(value: Value<'_>) -> bool {
    match value.kind {
        Kind::Double => value.as_f64().is_some_and(f64::is_finite),
        _ => Exact::of(value).is_some_and(|exact| !exact.is_infinite),
    }
}

/// A number's sign and decimal digits, which all types of BSON have exactly.
#[derive(Debug, PartialEq, Eq)]
struct Exact {
    negative: bool,
    is_infinite: bool,
    /// Without zeros at either end; empty for zero.
    digits: Vec<u8>,
    /// Where the decimal point stands, counted from before the first digit.
    point: i64,
}

impl Exact {
    /// `None` for NaN and for what is no number.
    fn of(value: Value<'_>) -> Option<Self> {
        match value.kind {
            Kind::Int32 | Kind::Int64 => Self::parse(&value.as_integer()?.to_string()),
            // A double has at most 1074 digits behind its point.
            Kind::Double => Self::parse(&format!("{:.1074}", value.as_f64()?)),
            Kind::Decimal128 => {
                let bytes: [u8; 16] = value.bytes.try_into().ok()?;
                Self::parse(&bson::Decimal128::from_bytes(bytes).to_string())
            }
            _ => None,
        }
    }

    /// `-12.5E+3`, as a Decimal128 is written.
    fn parse(text: &str) -> Option<Self> {
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if text.starts_with(['I', 'i']) {
            return Some(Self { negative, is_infinite: true, digits: Vec::new(), point: 0 });
        }
        let (number, exponent) = text.split_once(['E', 'e']).unwrap_or((text, "0"));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = [whole, fraction].concat();
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let leading = digits.bytes().take_while(|byte| *byte == b'0').count();
        let digits = digits.trim_matches('0').as_bytes().to_vec();
        let exponent: i64 = exponent.parse().ok()?;
        let point = if digits.is_empty() { 0 } else { whole.len() as i64 - leading as i64 + exponent };
        Some(Self { negative: negative && !digits.is_empty(), is_infinite: false, digits, point })
    }

    /// Zero has no sign.
    fn sign(&self) -> i32 {
        match (self.is_infinite || !self.digits.is_empty(), self.negative) {
            (false, _) => 0,
            (true, true) => -1,
            (true, false) => 1,
        }
    }

    fn cmp(&self, other: &Self) -> Ordering {
        let magnitude = |exact: &Self| (exact.is_infinite, exact.point);
        self.sign().cmp(&other.sign()).then_with(|| {
            let ordering = magnitude(self).cmp(&magnitude(other)).then_with(|| self.digits.cmp(&other.digits));
            if self.negative { ordering.reverse() } else { ordering }
        })
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
