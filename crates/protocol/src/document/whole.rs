//! Conversion of numbers of all types to integers, used to continue sequences after stored values.

use super::{Kind, Value};

impl Value<'_> {
    /// Returns an integral number of any type, such as `5`, `5.0` or `NumberDecimal("5.00")`. Returns `None` for
    /// other values and for integers that do not fit into 64 bits.
    pub fn as_whole(self) -> Option<i64> {
        self.split().filter(|(_, is_whole)| *is_whole).map(|(floor, _)| floor)
    }

    /// Returns the number rounded down, or `None` if the value is not a number or the result does not fit into 64
    /// bits.
    pub fn floor(self) -> Option<i64> {
        self.split().map(|(floor, _)| floor)
    }

    /// Returns the number rounded down, and whether it was an integer.
    fn split(self) -> Option<(i64, bool)> {
        match self.kind {
            Kind::Int32 | Kind::Int64 => self.as_integer().map(|number| (number, true)),
            Kind::Double => split_double(self.as_f64()?),
            Kind::Decimal128 => split_decimal(u128::from_le_bytes(self.bytes.try_into().ok()?)),
            _ => None,
        }
    }
}

fn split_double(number: f64) -> Option<(i64, bool)> {
    const TOO_LARGE: f64 = 9_223_372_036_854_775_808.0;
    let floor = number.floor();
    (-TOO_LARGE..TOO_LARGE).contains(&floor).then_some((floor as i64, floor == number))
}

/// Reads an IEEE 754-2008 decimal128 that stores its coefficient as a binary integer.
fn split_decimal(bits: u128) -> Option<(i64, bool)> {
    const COEFFICIENT_BITS: u32 = 113;
    const BIAS: i32 = 6176;
    const LARGEST: u128 = 9_999_999_999_999_999_999_999_999_999_999_999;
    let combination = (bits >> 122) & 0x1f;
    if combination >= 0x1e {
        return None; // infinity or NaN
    }
    let coefficient = bits & ((1 << COEFFICIENT_BITS) - 1);
    // A coefficient in the other encoding, or a too large one, counts as zero.
    if combination >= 0x18 || coefficient > LARGEST || coefficient == 0 {
        return Some((0, true));
    }
    let exponent = ((bits >> COEFFICIENT_BITS) & 0x3fff) as i32 - BIAS;
    let signed = if bits >> 127 == 1 { -(coefficient as i128) } else { coefficient as i128 };
    let power = 10_i128.checked_pow(exponent.unsigned_abs());
    let (floor, is_whole) = match (exponent >= 0, power) {
        (true, power) => (signed.checked_mul(power?)?, true),
        (false, Some(power)) => (signed.div_euclid(power), signed.rem_euclid(power) == 0),
        // The absolute value is less than 1.
        (false, None) => (if signed < 0 { -1 } else { 0 }, false),
    };
    i64::try_from(floor).ok().map(|floor| (floor, is_whole))
}

#[cfg(test)]
mod tests {
    use bson::{Bson, Decimal128, raw::RawDocumentBuf};

    use crate::document::Document;

    fn split(value: impl Into<Bson>) -> Option<(i64, bool)> {
        let raw = RawDocumentBuf::try_from(&bson::doc! {"n": value.into()}).unwrap();
        Document::parse(raw.as_bytes()).unwrap().get("n").unwrap().split()
    }

    #[test]
    fn numbers_of_all_types_are_rounded_down() {
        assert_eq!(split(7), Some((7, true)));
        assert_eq!(split(i64::MAX), Some((i64::MAX, true)));
        assert_eq!(split(8.5), Some((8, false)));
        assert_eq!(split(-8.5), Some((-9, false)));
        assert_eq!(split(9.0e18), Some((9_000_000_000_000_000_000, true)));
        for none in [Bson::from(9.3e18), Bson::from(f64::NAN), Bson::from(f64::INFINITY), "7".into(), Bson::Null] {
            assert_eq!(split(none.clone()), None, "{none}");
        }
    }

    #[test]
    fn decimals_of_all_forms_are_rounded_down() {
        for (text, expected) in [
            ("7", Some((7, true))),
            ("7.00", Some((7, true))),
            ("7E+2", Some((700, true))),
            ("8.5", Some((8, false))),
            ("-8.5", Some((-9, false))),
            ("-0", Some((0, true))),
            ("0E-8", Some((0, true))),
            ("0E+6000", Some((0, true))),
            ("1E-6000", Some((0, false))),
            ("-1E-6000", Some((-1, false))),
            ("9223372036854775807", Some((i64::MAX, true))),
            ("9223372036854775808", None),
            ("1E+30", None),
            ("1E+6000", None),
            ("9999999999999999999999999999999999", None),
            ("NaN", None),
            ("-Infinity", None),
        ] {
            assert_eq!(split(text.parse::<Decimal128>().unwrap()), expected, "{text}");
        }
    }
}
