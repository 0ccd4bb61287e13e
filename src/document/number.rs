//! Exact comparison of BSON's four numeric types.

use std::cmp::Ordering;

use super::{Kind, Value};

/// Compares two numbers as the server does: exactly, across types. Returns `None` if one of them is not a number, or
/// is NaN.
pub fn compare_numbers(one: Value<'_>, other: Value<'_>) -> Option<Ordering> {
    match (one.kind, other.kind) {
        (Kind::Int32 | Kind::Int64, Kind::Int32 | Kind::Int64) => Some(one.as_integer()?.cmp(&other.as_integer()?)),
        (Kind::Int32 | Kind::Int64, Kind::Double) => compare_integer(one.as_integer()?, other.as_f64()?),
        (Kind::Double, Kind::Int32 | Kind::Int64) => {
            compare_integer(other.as_integer()?, one.as_f64()?).map(Ordering::reverse)
        }
        (Kind::Double, Kind::Double) => one.as_f64()?.partial_cmp(&other.as_f64()?),
        (Kind::Decimal128, _) | (_, Kind::Decimal128) => Some(Exact::from_value(one)?.cmp(&Exact::from_value(other)?)),
        _ => None,
    }
}

/// Returns whether the value is a number other than NaN and the infinities.
pub fn is_finite(value: Value<'_>) -> bool {
    match value.kind {
        Kind::Int32 | Kind::Int64 => true,
        Kind::Double => value.as_f64().is_some_and(f64::is_finite),
        _ => Exact::from_value(value).is_some_and(|exact| !exact.is_infinite),
    }
}

/// Returns whether the sum of this number and another finite one can be infinite: from half a unit in the last place of
/// the largest double, or decimal, on.
pub fn may_overflow(amount: Value<'_>) -> bool {
    /// 2^970.
    const LEAST_DOUBLE: f64 = 9.979_201_547_673_6e291;
    /// The exponent of the last digit of the largest decimal.
    const LEAST_DECIMAL_EXPONENT: i64 = 6111;
    match amount.kind {
        Kind::Double => amount.as_f64().is_some_and(|amount| amount.abs() >= LEAST_DOUBLE),
        Kind::Decimal128 => Exact::from_value(amount).is_some_and(|exact| {
            exact.is_infinite || !exact.digits.is_empty() && exact.point >= LEAST_DECIMAL_EXPONENT
        }),
        _ => false,
    }
}

/// The sign and the decimal digits of a number. Every numeric type of BSON has an exact decimal form.
#[derive(Debug, PartialEq, Eq)]
struct Exact {
    negative: bool,
    is_infinite: bool,
    /// Without leading and trailing zeros. Empty for zero.
    digits: Vec<u8>,
    /// Position of the decimal point, counted from the first digit.
    point: i64,
}

impl Exact {
    /// Returns `None` for NaN and for other types.
    fn from_value(value: Value<'_>) -> Option<Self> {
        match value.kind {
            Kind::Int32 | Kind::Int64 => Self::parse(&value.as_integer()?.to_string()),
            // A double has at most 1074 digits after the decimal point.
            Kind::Double => Self::parse(&format!("{:.1074}", value.as_f64()?)),
            Kind::Decimal128 => {
                let bytes: [u8; 16] = value.bytes.try_into().ok()?;
                Self::parse(&bson::Decimal128::from_bytes(bytes).to_string())
            }
            _ => None,
        }
    }

    /// Parses a number such as `-12.5E+3`, the text form of a Decimal128.
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

    /// Returns 0 for positive and negative zero.
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

/// Compares exactly, also above 2⁵³, where a double cannot represent every integer.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::OwnedValue;

    #[test]
    fn only_sums_of_amounts_that_may_overflow_are_infinite() {
        let least = 2_f64.powi(970);
        let overflows = |amount: f64| may_overflow(OwnedValue::double(amount).as_value());
        assert!(overflows(least) && overflows(-least) && overflows(f64::MAX));
        assert!((f64::MAX + least).is_infinite());
        assert!(!overflows(least.next_down()) && !overflows(0.0) && !overflows(f64::MIN_POSITIVE));
        assert!((f64::MAX + least.next_down()).is_finite());
    }
}
