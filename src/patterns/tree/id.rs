//! The `_id`s of nodes and how they stand in paths.
//!
//! Strings, whole numbers and ObjectIds have one text each. Two `_id`s of different types may share a text
//! (`7` and `"7"`), so a tree holds one type of `_id` only, and whoever looks for texts asks for the type too.

use crate::document::{Kind, OwnedValue, Value, Writer};

/// A node's `_id` that can stand in a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Id {
    pub(super) class: Class,
    /// As it stands in paths.
    pub(super) text: String,
}

/// The types that `$type` and comparison tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Text,
    Number,
    ObjectId,
}

impl Class {
    pub(super) const ALL: [Self; 3] = [Self::Text, Self::Number, Self::ObjectId];

    /// The alias `$type` takes.
    pub(super) fn alias(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Number => "number",
            Self::ObjectId => "objectId",
        }
    }
}

impl Id {
    /// `None` when the value cannot stand in a path: another type, an empty string, or text that contains the
    /// separator.
    pub(super) fn read(value: Value<'_>, separator: char) -> Option<Self> {
        let (class, text) = match value.kind {
            Kind::String => (Class::Text, value.as_str()?.to_owned()),
            Kind::ObjectId => (Class::ObjectId, value.bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
            _ => (Class::Number, value.as_integer()?.to_string()),
        };
        (!text.is_empty() && !text.contains(separator)).then_some(Self { class, text })
    }

    /// Every `_id` that has this text.
    pub(super) fn with_text(text: &str) -> Vec<Self> {
        let fits = |class: &Class| match class {
            Class::Text => true,
            Class::Number => text.parse::<i64>().is_ok_and(|number| number.to_string() == text),
            Class::ObjectId => {
                text.len() == 24 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
            }
        };
        Class::ALL.into_iter().filter(fits).map(|class| Self { class, text: text.to_owned() }).collect()
    }

    /// The value; numbers in the narrowest type, which equals all others.
    pub(super) fn value(&self) -> OwnedValue {
        match self.class {
            Class::Text => OwnedValue::string(&self.text),
            Class::Number => OwnedValue::integer(self.text.parse().unwrap_or_default()),
            Class::ObjectId => {
                let digits = self.text.as_bytes().chunks_exact(2);
                let byte =
                    |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok());
                let bytes: Vec<u8> = digits.filter_map(byte).collect();
                OwnedValue::from(Value { kind: Kind::ObjectId, bytes: &bytes })
            }
        }
    }

    pub(super) fn write(&self, w: &mut Writer<'_>, key: &str) {
        w.value(key, self.value().as_value());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Document, document};

    fn id(write: impl FnOnce(&mut Writer<'_>)) -> Option<Id> {
        let bytes = document(write);
        Id::read(Document::parse(&bytes).unwrap().get("v").unwrap(), ',')
    }

    #[test]
    fn ids_have_one_text_and_come_back_from_it() {
        let object_id: [u8; 12] = [0xab; 12];
        let cases = [
            (id(|w| w.string("v", "Books")), Class::Text, "Books"),
            (id(|w| w.string("v", "7")), Class::Text, "7"),
            (id(|w| w.int32("v", 7)), Class::Number, "7"),
            (id(|w| w.double("v", -7.0)), Class::Number, "-7"),
            (id(|w| w.integer("v", 1 << 40)), Class::Number, "1099511627776"),
            (
                id(|w| w.value("v", Value { kind: Kind::ObjectId, bytes: &object_id })),
                Class::ObjectId,
                "abababababababababababab",
            ),
        ];
        for (found, class, text) in cases {
            let found = found.unwrap();
            assert_eq!((found.class, found.text.as_str()), (class, text));
            assert_eq!(Id::read(found.value().as_value(), ','), Some(found.clone()));
            assert!(Id::with_text(text).contains(&found));
        }
    }

    #[test]
    fn what_has_no_unambiguous_text_is_none() {
        assert_eq!(id(|w| w.string("v", "")), None);
        assert_eq!(id(|w| w.string("v", "a,b")), None);
        assert_eq!(id(|w| w.double("v", 0.5)), None);
        assert_eq!(id(|w| w.boolean("v", true)), None);
        assert_eq!(id(|w| w.nested("v", |w| w.int32("a", 1))), None);
    }
}
