//! The `_id`s of nodes and their text in paths.
//!
//! Strings, whole numbers and ObjectIds have one text each. `_id`s of different types can have the same text (`7` and
//! `"7"`). So a tree uses only one type of `_id`, and queries for a text also check the type.

use crate::document::{Kind, OwnedValue, Value, Writer};

/// A node's `_id` that can be part of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeId {
    pub(super) class: IdClass,
    /// The text in paths.
    pub(super) text: String,
}

/// The types that `$type` and comparison distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdClass {
    Text,
    Number,
    ObjectId,
}

impl IdClass {
    pub(super) const ALL: [Self; 3] = [Self::Text, Self::Number, Self::ObjectId];

    /// Returns the type's alias for `$type`.
    pub(super) fn alias(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Number => "number",
            Self::ObjectId => "objectId",
        }
    }
}

impl NodeId {
    /// Reads an `_id`. Returns `None` if it cannot be part of a path: another type, an empty string, or a text that
    /// contains the separator.
    pub(super) fn from_value(value: Value<'_>, separator: char) -> Option<Self> {
        let (class, text) = match value.kind {
            Kind::String => (IdClass::Text, value.as_str()?.to_owned()),
            Kind::ObjectId => (IdClass::ObjectId, hex::encode(value.bytes)),
            _ => (IdClass::Number, whole(value)?.to_string()),
        };
        (!text.is_empty() && !text.contains(separator)).then_some(Self { class, text })
    }

    /// Returns every `_id` that has this text.
    pub(super) fn with_text(text: &str) -> Vec<Self> {
        let fits = |class: &IdClass| match class {
            IdClass::Text => true,
            IdClass::Number => text.parse::<i64>().is_ok_and(|number| number.to_string() == text),
            IdClass::ObjectId => {
                text.len() == 24 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
            }
        };
        IdClass::ALL.into_iter().filter(fits).map(|class| Self { class, text: text.to_owned() }).collect()
    }

    /// Returns the value; numbers have the narrowest type, and the server treats all types as equal.
    pub(super) fn value(&self) -> OwnedValue {
        match self.class {
            IdClass::Text => OwnedValue::string(&self.text),
            IdClass::Number => OwnedValue::integer(self.text.parse().unwrap_or_default()),
            IdClass::ObjectId => {
                let bytes = hex::decode(&self.text).unwrap_or_default();
                OwnedValue::from(Value { kind: Kind::ObjectId, bytes: &bytes })
            }
        }
    }

    pub(super) fn write(&self, w: &mut Writer<'_>, key: &str) {
        w.value(key, self.value().as_value());
    }
}

/// Returns a whole number of 64 bits in any numeric type. The server treats equal numbers as equal ids, also -0 and 0.
fn whole(value: Value<'_>) -> Option<i64> {
    /// 2⁶³, which a double holds exactly.
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    match value.kind {
        Kind::Int32 | Kind::Int64 => value.as_integer(),
        Kind::Double => value.as_f64().filter(|v| v.fract() == 0.0 && (-BEYOND..BEYOND).contains(v)).map(|v| v as i64),
        Kind::Decimal128 => whole_decimal(u128::from_le_bytes(*value.bytes.first_chunk()?)),
        _ => None,
    }
}

/// Reads a Decimal128 in its binary form (IEEE 754-2008 with a binary coefficient): a sign, 14 bits of exponent, 113
/// bits of coefficient.
fn whole_decimal(bits: u128) -> Option<i64> {
    const COEFFICIENT: u128 = (1 << 113) - 1;
    const LARGEST: u128 = 10_u128.pow(34) - 1;
    const BIAS: i32 = 6176;
    // Infinities, NaN, and a form with coefficients that are too large.
    if (bits >> 125) & 0b11 == 0b11 {
        return None;
    }
    let coefficient = bits & COEFFICIENT;
    if coefficient == 0 || coefficient > LARGEST {
        return (coefficient == 0).then_some(0);
    }
    let exponent = ((bits >> 113) & 0x3fff) as i32 - BIAS;
    let scale = 10_u128.checked_pow(exponent.unsigned_abs())?;
    let size = match exponent {
        0.. => coefficient.checked_mul(scale)?,
        _ => coefficient.is_multiple_of(scale).then_some(coefficient / scale)?,
    };
    let size = i128::try_from(size).ok()?;
    i64::try_from(if bits >> 127 == 1 { -size } else { size }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Document, document};

    fn id(write: impl FnOnce(&mut Writer<'_>)) -> Option<NodeId> {
        let bytes = document(write);
        NodeId::from_value(Document::parse(&bytes).unwrap().get("v").unwrap(), ',')
    }

    #[test]
    fn ids_can_be_read_back_from_their_text() {
        let object_id: [u8; 12] = [0xab; 12];
        let cases = [
            (id(|w| w.string("v", "Books")), IdClass::Text, "Books"),
            (id(|w| w.string("v", "7")), IdClass::Text, "7"),
            (id(|w| w.int32("v", 7)), IdClass::Number, "7"),
            (id(|w| w.double("v", -7.0)), IdClass::Number, "-7"),
            (id(|w| w.integer("v", 1 << 40)), IdClass::Number, "1099511627776"),
            (
                id(|w| w.value("v", Value { kind: Kind::ObjectId, bytes: &object_id })),
                IdClass::ObjectId,
                "abababababababababababab",
            ),
        ];
        for (found, class, text) in cases {
            let found = found.unwrap();
            assert_eq!((found.class, found.text.as_str()), (class, text));
            assert_eq!(NodeId::from_value(found.value().as_value(), ','), Some(found.clone()));
            assert!(NodeId::with_text(text).contains(&found));
        }
    }

    /// mongod finds `_id: 7` by each of these, and rejects another one as a duplicate.
    #[test]
    fn numbers_of_one_value_are_one_id_in_every_type() {
        let decimal = |text: &str| {
            let bytes = text.parse::<bson::Decimal128>().unwrap().bytes();
            id(|w| w.value("v", Value { kind: Kind::Decimal128, bytes: &bytes }))
        };
        for (texts, number) in [
            (&["7", "7.0", "70E-1", "7.000000000000000000000000000000000"][..], 7),
            (&["-7", "-70E-1"], -7),
            (&["0", "-0", "0E-8", "-0E+6000"], 0),
            (&["1E+3", "1000"], 1000),
            (&["-9223372036854775808"], i64::MIN),
            (&["9223372036854775807", "9.223372036854775807E+18"], i64::MAX),
        ] {
            let expected = id(|w| w.slot("v").int64(number));
            assert!(expected.is_some());
            for text in texts {
                assert_eq!(decimal(text), expected, "{text}");
            }
        }
        for text in ["7.5", "1E-1", "NaN", "Infinity", "-Infinity", "9223372036854775808", "1E+400", "1E-6000"] {
            assert_eq!(decimal(text), None, "{text}");
        }
        assert_eq!(id(|w| w.double("v", -0.0)), id(|w| w.int32("v", 0)));
        assert_eq!(id(|w| w.double("v", 9_007_199_254_740_994.0)), id(|w| w.slot("v").int64(9_007_199_254_740_994)));
        for double in [1e300, 9_223_372_036_854_775_808.0, f64::NAN, f64::INFINITY] {
            assert_eq!(id(|w| w.double("v", double)), None, "{double}");
        }
    }

    #[test]
    fn values_without_an_unambiguous_text_are_none() {
        assert_eq!(id(|w| w.string("v", "")), None);
        assert_eq!(id(|w| w.string("v", "a,b")), None);
        assert_eq!(id(|w| w.double("v", 0.5)), None);
        assert_eq!(id(|w| w.boolean("v", true)), None);
        assert_eq!(id(|w| w.nested("v", |w| w.int32("a", 1))), None);
    }
}
