//! The values that a statement adds to an array.

use crate::document::{Document, Value};

/// The values that a `$push` or `$addToSet` adds to an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddedValues<'u> {
    One(Value<'u>),
    /// The elements of `$each`.
    Each(Document<'u>),
}

impl<'u> AddedValues<'u> {
    /// Returns the values in the argument of the operator. The server fails a statement whose `$each` is not an array.
    pub fn in_argument(operator: &[u8], argument: Value<'u>) -> Self {
        match each(operator, argument) {
            None => Self::One(argument),
            Some(each) => Self::Each(each.as_array().unwrap_or(Document::EMPTY)),
        }
    }

    pub fn count(self) -> usize {
        self.values().count()
    }

    pub fn values(self) -> impl Iterator<Item = Value<'u>> {
        let (one, each) = match self {
            Self::One(value) => (Some(value), Document::EMPTY),
            Self::Each(values) => (None, values),
        };
        one.into_iter().chain(each.values())
    }
}

/// Returns the `$each` of an operator's argument. To `$addToSet` a document is a value unless `$each` is its first
/// field; to `$push` it has modifiers wherever `$each` is, and any other field fails the statement (`addtoset_node.cpp`,
/// `push_node.cpp`).
pub fn each<'u>(operator: &[u8], argument: Value<'u>) -> Option<Value<'u>> {
    let fields = argument.as_document()?;
    match operator {
        b"$addToSet" => fields.elements().next().filter(|first| first.key == b"$each").map(|first| first.value),
        _ => fields.get("$each"),
    }
}

/// Returns the number of elements of a value: none if it is not an array.
pub fn item_count(value: Value<'_>) -> usize {
    value.as_array().map_or(0, |array| array.values().count())
}
