//! Exact comparison of BSON's four numeric types.

use std::cmp::Ordering;

use super::{Kind, OwnedValue, Value};

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

/// Returns the sum of two numbers, as `$inc` computes it; `None` if one of them is not a number, or the sum is NaN. The
/// sum of two integers can have another type.
pub fn add_numbers(one: Value<'_>, other: Value<'_>) -> Option<OwnedValue> {
    if one.kind == Kind::Decimal128 || other.kind == Kind::Decimal128 {
        return Exact::as_decimal(one)?.plus(&Exact::as_decimal(other)?)?.to_decimal();
    }
    let integers = one.as_integer().zip(other.as_integer());
    Some(match integers.and_then(|(one, other)| one.checked_add(other)) {
        Some(sum) => OwnedValue::integer(sum),
        None => OwnedValue::double(as_double(one)? + as_double(other)?),
    })
}

/// Compares the sum of two numbers, as `$inc` computes it, with a third number. Returns `None` if one of them is not a
/// number, or is NaN.
pub fn compare_sum(one: Value<'_>, other: Value<'_>, third: Value<'_>) -> Option<Ordering> {
    if one.kind == Kind::Decimal128 || other.kind == Kind::Decimal128 {
        let sum = Exact::as_decimal(one)?.plus(&Exact::as_decimal(other)?)?;
        return Some(sum.cmp(&Exact::from_value(third)?));
    }
    compare_numbers(add_numbers(one, other)?.as_value(), third)
}

/// Returns an integer or a double as a double, rounded if it is a large integer; `None` for other types.
pub fn as_double(value: Value<'_>) -> Option<f64> {
    value.as_f64().or_else(|| value.as_integer().map(|number| number as f64))
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
#[derive(Debug, Clone, PartialEq, Eq)]
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

    /// Returns the number that the server takes for this value in a sum of decimals: a double is rounded to 15 digits.
    fn as_decimal(value: Value<'_>) -> Option<Self> {
        match value.kind {
            Kind::Double => Self::parse(&format!("{:.14e}", value.as_f64()?)),
            _ => Self::from_value(value),
        }
    }

    /// Returns the sum, rounded to the digits of a Decimal128; `None` if it is not a number.
    fn plus(&self, other: &Self) -> Option<Self> {
        if self.is_infinite || other.is_infinite {
            let infinite = if self.is_infinite { self } else { other };
            let is_nan = self.is_infinite && other.is_infinite && self.negative != other.negative;
            return (!is_nan).then(|| infinite.clone());
        }
        let (larger, smaller) = if self.magnitude() < other.magnitude() { (other, self) } else { (self, other) };
        let sign = if larger.negative == smaller.negative { 1 } else { -1 };
        // The place of a digit is the power of ten that it counts; places below the last digit of both do not occur.
        let last = larger.last_place().min(smaller.last_place());
        let places = usize::try_from(larger.point.max(smaller.point) - last).ok()?;
        let (mut digits, mut carry) = (Vec::with_capacity(places + 1), 0);
        for place in (0..places).map(|place| place as i64 + last) {
            let digit = larger.digit_at(place) + sign * smaller.digit_at(place) + carry;
            carry = digit.div_euclid(10);
            digits.push(digit.rem_euclid(10) as u8 + b'0');
        }
        digits.push(carry as u8 + b'0');
        digits.reverse();
        let point = last + digits.len() as i64;
        Some(Self::normal(larger.negative, digits, point).rounded())
    }

    /// Returns the number with this sign and these digits, without the zeros around them.
    fn normal(negative: bool, digits: Vec<u8>, point: i64) -> Self {
        let is_zero = |digit: &&u8| **digit == b'0';
        let leading = digits.iter().take_while(is_zero).count();
        let trailing = digits.iter().skip(leading).rev().take_while(is_zero).count();
        let digits: Vec<u8> = digits.get(leading..digits.len() - trailing).unwrap_or_default().to_vec();
        let point = if digits.is_empty() { 0 } else { point - leading as i64 };
        Self { negative: negative && !digits.is_empty(), is_infinite: false, digits, point }
    }

    /// Rounds to the digits that a Decimal128 has, half to even.
    fn rounded(self) -> Self {
        const MOST_DIGITS: usize = 34;
        let Some((kept, [first, rest @ ..])) = self.digits.split_at_checked(MOST_DIGITS) else { return self };
        let is_odd = kept.last().is_some_and(|digit| digit % 2 == 1);
        let rounds_up = *first > b'5' || (*first == b'5' && (!rest.is_empty() || is_odd));
        let mut digits = kept.to_vec();
        let mut point = self.point;
        if rounds_up {
            let nines = digits.iter().rev().take_while(|digit| **digit == b'9').count();
            digits.truncate(digits.len() - nines);
            match digits.last_mut() {
                Some(digit) => *digit += 1,
                None => {
                    digits.push(b'1');
                    point += 1;
                }
            }
        }
        Self::normal(self.negative, digits, point)
    }

    /// Returns `None` if a Decimal128 cannot represent it.
    fn to_decimal(&self) -> Option<OwnedValue> {
        let sign = if self.negative { "-" } else { "" };
        let text = match std::str::from_utf8(&self.digits).ok()? {
            _ if self.is_infinite => format!("{sign}Infinity"),
            "" => "0".to_owned(),
            digits => format!("{sign}{digits}E{}", self.last_place()),
        };
        let decimal: bson::Decimal128 = text.parse().ok()?;
        Some(Value { kind: Kind::Decimal128, bytes: &decimal.bytes() }.into())
    }

    fn last_place(&self) -> i64 {
        self.point - self.digits.len() as i64
    }

    /// Returns the digit that counts this power of ten.
    fn digit_at(&self, place: i64) -> i32 {
        let index = usize::try_from(self.point - 1 - place).ok();
        index.and_then(|index| self.digits.get(index)).map_or(0, |digit| i32::from(digit - b'0'))
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
        let exponent: i64 = exponent.parse().ok()?;
        let point = whole.len() as i64 + exponent;
        Some(Self::normal(negative, digits.into_bytes(), point))
    }

    /// Returns 0 for positive and negative zero.
    fn sign(&self) -> i32 {
        match (self.is_infinite || !self.digits.is_empty(), self.negative) {
            (false, _) => 0,
            (true, true) => -1,
            (true, false) => 1,
        }
    }

    /// Returns the absolute value in an order; zero is the least one.
    fn magnitude(&self) -> (bool, bool, i64, &[u8]) {
        (self.is_infinite, !self.digits.is_empty(), self.point, &self.digits)
    }

    fn cmp(&self, other: &Self) -> Ordering {
        self.sign().cmp(&other.sign()).then_with(|| {
            let ordering = self.magnitude().cmp(&other.magnitude());
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

    #[test]
    fn decimals_are_added_as_the_server_does() {
        let exact = |text: &str| Exact::parse(text).unwrap();
        let check = |one: &str, other: &str, sum: &str| {
            assert_eq!(exact(one).plus(&exact(other)), Some(exact(sum)), "{one} + {other}");
            assert_eq!(exact(other).plus(&exact(one)), Some(exact(sum)), "{other} + {one}");
        };
        check("10.50", "-1", "9.5");
        check("0.5", "-1", "-0.5");
        check("999", "1", "1000");
        check("-1", "1", "0");
        check("0", "-7", "-7");
        check("1E+3", "1E-3", "1000.001");
        check("-0.001", "-99.999", "-100");
        check("Infinity", "-1", "Infinity");
        assert_eq!(exact("Infinity").plus(&exact("-Infinity")), None);
        // 34 digits, half to even.
        let nines = "9".repeat(34);
        check(&nines, "0.4", &nines);
        check(&nines, "0.5", "1E+34");
        check("1E+33", "0.5", "1E+33");
        check("1000000000000000000000000000000001", "0.5", "1000000000000000000000000000000002");
        check("1E+33", "0.50001", "1000000000000000000000000000000001");
    }

    #[test]
    fn sums_are_those_of_the_wider_type() {
        let decimal = |text: &str| {
            let raw = bson::rawdoc! {"d": text.parse::<bson::Decimal128>().unwrap()}.into_bytes();
            OwnedValue::from(crate::document::Document::parse(&raw).unwrap().get("d").unwrap())
        };
        let check = |one: &OwnedValue, other: &OwnedValue, third: i64, expected: Option<Ordering>| {
            let third = OwnedValue::integer(third);
            let found = compare_sum(one.as_value(), other.as_value(), third.as_value());
            assert_eq!(found, expected, "{one:?} + {other:?}");
        };
        let (int, double) = (OwnedValue::integer, OwnedValue::double);
        check(&int(10), &int(-10), 0, Some(Ordering::Equal));
        check(&int(i64::MAX), &int(1), i64::MAX, Some(Ordering::Greater));
        check(&double(10.5), &int(-11), 0, Some(Ordering::Less));
        check(&decimal("10.5"), &int(-10), 0, Some(Ordering::Greater));
        // 0.1 + 0.2 is not 0.3 for doubles; as decimals they have 15 digits.
        check(&decimal("0.3"), &double(-0.3), 0, Some(Ordering::Equal));
        check(&decimal("NaN"), &int(1), 0, None);
        check(&double(f64::NAN), &int(1), 0, None);
        check(&double(f64::INFINITY), &int(-1), 0, Some(Ordering::Greater));
    }

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
