//! Equality and hash of `_id`s and keys, as the server compares them.
//!
//! Numbers are equal across their types (int, long, double, decimal), also inside documents. A symbol equals the
//! string with the same text. See `compareElements` in the server's `src/mongo/bson/bsonelement.cpp` and
//! `src/mongo/base/compare_numbers.h`.

use crate::document::{Document, Kind, Value};

/// A normalised `_id` for use as a map key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct IdKey(Vec<u8>);

impl From<Value<'_>> for IdKey {
    fn from(value: Value<'_>) -> Self {
        let mut bytes = Vec::with_capacity(value.bytes.len() + 8);
        write(value, &mut bytes);
        Self(bytes)
    }
}

fn write(value: Value<'_>, out: &mut Vec<u8>) {
    let kind = if value.kind == Kind::Symbol { Kind::String } else { value.kind };
    if let Some(number) = IdNumber::from_value(value) {
        out.push(Kind::Double as u8);
        number.write(out);
        return;
    }
    out.push(kind as u8);
    match (value.as_document(), value.as_array()) {
        (Some(document), _) => write_elements(document, true, out),
        (_, Some(array)) => write_elements(array, false, out),
        _ => out.extend_from_slice(value.bytes),
    }
}

fn write_elements(document: Document<'_>, named: bool, out: &mut Vec<u8>) {
    for element in document.elements() {
        // Separates elements; 0 ends the list.
        out.push(1);
        if named {
            out.extend_from_slice(element.key);
            out.push(0);
        }
        write(element.value, out);
    }
    out.push(0);
}

/// A number of any type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IdNumber {
    /// `±coefficient · 10^exponent`; the coefficient is not a multiple of ten, and zero is `0 · 10^0`.
    Decimal {
        negative: bool,
        coefficient: u128,
        exponent: i32,
    },
    Infinity {
        negative: bool,
    },
    NaN,
    /// A double with more digits than a decimal can hold, so it equals no number of another type.
    Binary(u64),
}

impl IdNumber {
    fn from_value(value: Value<'_>) -> Option<Self> {
        match value.kind {
            Kind::Int32 => value.as_i32().map(|number| Self::integer(i64::from(number))),
            Kind::Int64 => value.as_raw_i64().map(Self::integer),
            Kind::Double => value.as_f64().map(Self::double),
            Kind::Decimal128 => value.bytes.first_chunk().map(|bytes| Self::decimal(u128::from_le_bytes(*bytes))),
            _ => None,
        }
    }

    fn integer(number: i64) -> Self {
        Self::scaled(number < 0, u128::from(number.unsigned_abs()), 0)
    }

    fn double(number: f64) -> Self {
        const MANTISSA: u32 = 52;
        const BIAS: i32 = 1075;
        if number.is_nan() {
            return Self::NaN;
        }
        let negative = number.is_sign_negative();
        if number.is_infinite() {
            return Self::Infinity { negative };
        }
        let bits = number.to_bits();
        let fraction = bits & ((1 << MANTISSA) - 1);
        // At most eleven bits remain.
        let (mantissa, power) = match (bits >> MANTISSA) as i32 & 0x7ff {
            0 => (fraction, 1 - BIAS),
            biased => (fraction | (1 << MANTISSA), biased - BIAS),
        };
        Self::binary(negative, mantissa, power).unwrap_or(Self::Binary(bits))
    }

    /// `±mantissa · 2^power`, if a decimal can hold its digits.
    fn binary(negative: bool, mantissa: u64, power: i32) -> Option<Self> {
        if mantissa == 0 {
            return Some(Self::scaled(false, 0, 0));
        }
        let zeros = mantissa.trailing_zeros();
        let (mut coefficient, mut power) = (u128::from(mantissa >> zeros), power + zeros as i32);
        let mut exponent = 0;
        // 2 · 5 = 10, and 2^-1 = 5 · 10^-1.
        while power > 0 {
            if coefficient.is_multiple_of(5) {
                (coefficient, exponent) = (coefficient / 5, exponent + 1);
            } else {
                coefficient *= 2;
            }
            power -= 1;
            within(coefficient)?;
        }
        while power < 0 {
            (coefficient, exponent, power) = (coefficient * 5, exponent - 1, power + 1);
            within(coefficient)?;
        }
        Some(Self::scaled(negative, coefficient, exponent))
    }

    /// IEEE 754-2008, decimal128 with a binary coefficient.
    fn decimal(bits: u128) -> Self {
        const BIAS: i32 = 6176;
        const COEFFICIENT: u32 = 113;
        let negative = bits >> 127 == 1;
        match (bits >> 122) & 0x1f {
            0x1e => return Self::Infinity { negative },
            0x1f => return Self::NaN,
            _ => {}
        }
        // A coefficient with too many digits counts as zero.
        let large = (bits >> 125) & 3 == 3;
        let coefficient = bits & ((1 << COEFFICIENT) - 1);
        let coefficient = within(coefficient).filter(|_| !large).unwrap_or(0);
        let exponent = (bits >> COEFFICIENT) as i32 & 0x3fff;
        Self::scaled(negative, coefficient, exponent - BIAS)
    }

    fn scaled(negative: bool, mut coefficient: u128, mut exponent: i32) -> Self {
        if coefficient == 0 {
            return Self::Decimal { negative: false, coefficient: 0, exponent: 0 };
        }
        while coefficient.is_multiple_of(10) {
            (coefficient, exponent) = (coefficient / 10, exponent + 1);
        }
        Self::Decimal { negative, coefficient, exponent }
    }

    fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Decimal { negative, coefficient, exponent } => {
                out.push(u8::from(negative));
                out.extend_from_slice(&coefficient.to_le_bytes());
                out.extend_from_slice(&exponent.to_le_bytes());
            }
            Self::Infinity { negative } => out.push(2 + u8::from(negative)),
            Self::NaN => out.push(4),
            Self::Binary(bits) => {
                out.push(5);
                out.extend_from_slice(&bits.to_le_bytes());
            }
        }
    }
}

/// The coefficient, if it fits into the 34 digits of a decimal.
fn within(coefficient: u128) -> Option<u128> {
    const END: u128 = 10u128.pow(34);
    (coefficient < END).then_some(coefficient)
}

#[cfg(test)]
mod tests {
    use bson::{Bson, Decimal128};

    use super::*;

    fn id(value: impl Into<Bson>) -> IdKey {
        let raw = bson::RawDocumentBuf::try_from(&bson::doc! {"v": value.into()}).unwrap().into_bytes();
        IdKey::from(Document::parse(&raw).unwrap().get("v").unwrap())
    }

    fn decimal(text: &str) -> Bson {
        Bson::Decimal128(text.parse::<Decimal128>().unwrap())
    }

    #[test]
    fn numbers_are_equal_across_types() {
        let equal: [&[Bson]; 9] = [
            &[1.into(), 1i64.into(), 1.0.into(), decimal("1"), decimal("1.000"), decimal("0.1E+1")],
            &[0.into(), 0i64.into(), 0.0.into(), (-0.0).into(), decimal("0"), decimal("-0E+3"), decimal("0E-8")],
            &[(-1500).into(), (-1500.0).into(), decimal("-1.5E3")],
            &[0.5.into(), decimal("0.5"), decimal("0.50")],
            &[f64::NAN.into(), (-f64::NAN).into(), decimal("NaN")],
            &[f64::INFINITY.into(), decimal("Infinity")],
            &[f64::NEG_INFINITY.into(), decimal("-Infinity")],
            &[i64::MIN.into(), (i64::MIN as f64).into(), decimal("-9223372036854775808")],
            &[1e22.into(), decimal("1E22")],
        ];
        for (at, group) in equal.iter().enumerate() {
            for one in *group {
                assert_eq!(id(one.clone()), id(group[0].clone()), "{one}");
                for other in equal.iter().skip(at + 1).flat_map(|other| other.iter()) {
                    assert_ne!(id(one.clone()), id(other.clone()), "{one} and {other}");
                }
            }
        }
        let different: [(Bson, Bson); 7] = [
            (0.1.into(), decimal("0.1")),
            (i64::MAX.into(), (i64::MAX as f64).into()),
            (5e-324.into(), decimal("5E-324")),
            (1.into(), "1".into()),
            (1.into(), true.into()),
            (1.into(), Bson::DateTime(bson::DateTime::from_millis(1))),
            (1e300.into(), decimal("1E300")),
        ];
        for (one, other) in different {
            assert_ne!(id(one.clone()), id(other.clone()), "{one} and {other}");
        }
    }

    #[test]
    fn numbers_inside_documents_too() {
        assert_eq!(id(bson::doc! {"a": 1, "b": [2]}), id(bson::doc! {"a": 1.0, "b": [decimal("2")]}));
        assert_ne!(id(bson::doc! {"a": 1, "b": 2}), id(bson::doc! {"b": 2, "a": 1}));
        assert_ne!(id(bson::doc! {"a": [1, 2]}), id(bson::doc! {"a": [1], "b": 2}));
        assert_eq!(id(Bson::Symbol("a".into())), id("a"));
    }
}
