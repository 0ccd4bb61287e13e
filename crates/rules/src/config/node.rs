//! A rule file as a tree of values, each with its location.
//!
//! Types only. `yaml.rs` builds the tree, `reader.rs` reads settings from it. Nothing here knows
//! YAML or rules.

use std::ops::Deref;

use super::source::Span;

/// The longest text in bytes that messages repeat; the source line shows longer ones anyway.
const LONGEST_SHOWN: usize = 60;

/// A value and its location.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The bytes of the value. A block mapping spans from its first key to the end of its last value.
    pub span: Span,
    /// The value.
    pub value: NodeValue,
}

/// A value of a rule file. Only `true` and `false` are booleans.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeValue {
    /// `null`, `~`, or an absent value.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number of 64 bits.
    Integer(i64),
    /// A number with a fraction or an exponent, or one too large for [`Self::Integer`]. One that is not finite is reported by
    /// the parser.
    Float(f64),
    /// Any other scalar.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping in the order of the file, without duplicate keys.
    Map(Vec<(MappingKey, Node)>),
}

/// The key of a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappingKey {
    /// Where the key is.
    pub span: Span,
    /// The key; numbers and booleans as they are spelled.
    pub text: String,
}

impl NodeValue {
    /// Whether it is a number in quotes, which make it text.
    #[must_use]
    pub fn is_quoted_number(&self) -> bool {
        matches!(self, Self::Text(text) if text.parse::<f64>().is_ok())
    }

    /// A description for messages: "the text `merge`", "a list".
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Null => "nothing".to_owned(),
            Self::Bool(value) => format!("the boolean `{value}`"),
            Self::Integer(value) => format!("the integer `{value}`"),
            Self::Float(value) => format!("the number `{value:?}`"),
            Self::Text(value) if value.len() > LONGEST_SHOWN => "a long text".to_owned(),
            Self::Text(value) => format!("the text `{value}`"),
            Self::List(_) => "a list".to_owned(),
            Self::Map(_) => "a mapping".to_owned(),
        }
    }
}

/// A value and its location in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Its location.
    pub span: Span,
}

impl<T> Located<T> {
    /// Changes the value and keeps the location.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Located<U> {
        let span = self.span;
        let value = change(self.value);
        Located { value, span }
    }
}

impl<T> Deref for Located<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// A number as the file spells it: 5 stays an integer, 0.5 is a double.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A whole number.
    Integer(i64),
    /// Any other finite number.
    Float(f64),
}
