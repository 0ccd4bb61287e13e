//! Declarations of keys. The reader, the JSON Schema and `docs/reference/keys.md` come from them.
//!
//! A [`Setting`] declares one key with its [`ReadValue`] of values; [`Keys`] are all keys of a mapping.
//! [`MapReader`](super::MapReader) reads a setting, and reports a missing or unknown key or a value of a wrong type:
//!
//! ```ignore
//! const FIELD: Setting<FieldPath> = Setting::required("field", FieldPath, "The field with the number.");
//! const MIN: Setting<Number> = Setting::optional("min", Number, "The smallest value allowed.");
//! const KEYS: Keys = Keys::new("A number that must stay in a range.", &[&FIELD, &MIN]);
//!
//! context.mapping(node, &KEYS, |reader| {
//!     let (field, min) = (reader.get(&FIELD), reader.get(&MIN));
//!     Some(Bounds { field: field?, min })
//! })
//! ```

use std::ops::RangeInclusive;
use std::time;

use super::context::ReadContext;
use super::node::{self, Located, Node, NodeValue};

/// All keys of a mapping.
#[derive(Clone, Copy)]
pub struct Keys {
    /// What the mapping is for, as a sentence; may be empty if the key of the mapping has a meaning.
    pub meaning: &'static str,
    pub settings: &'static [&'static dyn DeclaredKey],
    /// What a schema can express of the relations between the keys. The code that reads them reports violations.
    pub constraints: &'static [Constraint],
}

impl Keys {
    pub const fn new(meaning: &'static str, settings: &'static [&'static dyn DeclaredKey]) -> Self {
        Self { meaning, settings, constraints: &[] }
    }

    #[must_use]
    pub const fn constrained(self, constraints: &'static [Constraint]) -> Self {
        Self { constraints, ..self }
    }
}

/// The value of a key that is declared elsewhere, such as a pattern's.
#[derive(Clone)]
pub struct Declaration {
    /// A sentence.
    pub meaning: &'static str,
    pub schema: ValueSchema,
    /// A correct value, shown if the value has another type.
    pub example: &'static str,
}

impl Declaration {
    pub const fn mapping(keys: &'static Keys) -> Self {
        Self { meaning: keys.meaning, schema: ValueSchema::Mapping(keys), example: "{}" }
    }

    #[must_use]
    pub fn example(self, example: &'static str) -> Self {
        Self { example, ..self }
    }
}

/// A relation between the keys of a mapping.
#[derive(Clone, Copy, Debug)]
pub enum Constraint {
    AtLeastOneKey,
    ExactlyOneKey,
    AtLeastOneOf(&'static [&'static str]),
    ExactlyOneOf(&'static [&'static str]),
    /// `key` is allowed only beside `other`.
    Needs {
        key: &'static str,
        other: &'static str,
    },
    /// `key` is required if `other` has this value.
    RequiredIf {
        key: &'static str,
        other: &'static str,
        value: &'static str,
    },
    /// `key` is required unless `other` has this value.
    RequiredUnless {
        key: &'static str,
        other: &'static str,
        value: &'static str,
    },
}

/// The declaration of one key.
#[derive(Clone, Copy, Debug)]
pub struct Setting<K> {
    pub name: &'static str,
    pub kind: K,
    pub presence: Presence,
    /// A sentence or more.
    pub meaning: &'static str,
    /// Values that an editor proposes.
    pub examples: &'static [&'static str],
}

/// Whether a key can be omitted.
#[derive(Clone, Copy, Debug)]
pub enum Presence {
    Required,
    Optional,
    /// The value that an omitted key has.
    Default(DeclaredScalar),
}

/// A value in a declaration.
#[derive(Clone, Copy, Debug)]
pub enum DeclaredScalar {
    Text(&'static str),
    Integer(i64),
    Boolean(bool),
}

impl From<DeclaredScalar> for NodeValue {
    fn from(scalar: DeclaredScalar) -> Self {
        match scalar {
            DeclaredScalar::Text(text) => Self::Text(text.to_owned()),
            DeclaredScalar::Integer(number) => Self::Integer(number),
            DeclaredScalar::Boolean(flag) => Self::Bool(flag),
        }
    }
}

impl<K> Setting<K> {
    pub const fn required(name: &'static str, kind: K, meaning: &'static str) -> Self {
        Self { name, kind, presence: Presence::Required, meaning, examples: &[] }
    }

    pub const fn optional(name: &'static str, kind: K, meaning: &'static str) -> Self {
        Self { name, kind, presence: Presence::Optional, meaning, examples: &[] }
    }

    pub const fn with_default(name: &'static str, kind: K, default: DeclaredScalar, meaning: &'static str) -> Self {
        Self { name, kind, presence: Presence::Default(default), meaning, examples: &[] }
    }

    #[must_use]
    pub const fn examples(mut self, examples: &'static [&'static str]) -> Self {
        self.examples = examples;
        self
    }
}

/// A [`Setting`] of any kind.
pub trait DeclaredKey {
    fn name(&self) -> &'static str;
    fn presence(&self) -> Presence;
    fn meaning(&self) -> &'static str;
    fn examples(&self) -> &'static [&'static str];
    fn schema(&self) -> ValueSchema;
}

impl<K: DescribeSchema> DeclaredKey for Setting<K> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn presence(&self) -> Presence {
        self.presence
    }

    fn meaning(&self) -> &'static str {
        self.meaning
    }

    fn examples(&self) -> &'static [&'static str] {
        self.examples
    }

    fn schema(&self) -> ValueSchema {
        self.kind.schema()
    }
}

/// What values a key has: the reader, the JSON Schema and `docs/reference/keys.md` are made from it.
#[derive(Clone)]
pub enum ValueSchema {
    Text(TextSchema),
    /// A whole number; `i64::MIN` and `i64::MAX` are no limits.
    Whole(RangeInclusive<i64>),
    Number,
    Boolean,
    /// Only this value.
    Constant(DeclaredScalar),
    /// One of these words, each with its meaning.
    Words(Vec<(&'static str, &'static str)>),
    /// A schema with a name.
    Shared(&'static NamedSchema),
    /// One value, or a list of them.
    OneOrMore(Box<ValueSchema>),
    AnyOf(Vec<ValueSchema>),
    /// Exactly one of these schemas matches.
    OneOf(Vec<ValueSchema>),
    List {
        items: Box<ValueSchema>,
        at_least: usize,
        distinct: bool,
    },
    Mapping(&'static Keys),
    /// A mapping with any keys of one schema and values of another, at least one.
    Pairs {
        names: &'static NamedSchema,
        values: Box<ValueSchema>,
    },
}

/// The schema of a text. A text without a pattern must not be empty.
#[derive(Clone, Copy, Debug)]
pub struct TextSchema {
    /// A regular expression that JSON Schema and Rust share.
    pub pattern: Option<&'static str>,
    pub longest: Option<usize>,
    pub other_than: Option<&'static str>,
    /// A name in JSON Schema.
    pub format: Option<&'static str>,
}

impl TextSchema {
    pub const ANY: Self = Self { pattern: None, longest: None, other_than: None, format: None };

    pub const fn matching(pattern: &'static str) -> Self {
        Self { pattern: Some(pattern), ..Self::ANY }
    }
}

/// A schema with a name that several keys share.
pub struct NamedSchema {
    /// The name in the schema's `$defs`.
    pub name: &'static str,
    /// May be empty.
    pub meaning: &'static str,
    pub schema: fn() -> ValueSchema,
}

/// Values that have a schema.
pub trait DescribeSchema {
    fn schema(&self) -> ValueSchema;
}

/// Values that can be read.
pub trait ReadValue: DescribeSchema {
    type Value;

    /// Reads the value `node` of `key`, and reports what is wrong with it.
    fn read(&self, context: &mut ReadContext<'_>, key: &'static str, node: &Node) -> Option<Self::Value>;
}

/// A text of a certain form: a name, a word.
pub trait ReadText: DescribeSchema {
    type Value;

    /// Reads the `text` of `key`, which is not empty, and reports what is wrong with it.
    fn read_text(&self, context: &mut ReadContext<'_>, key: &str, text: Located<String>) -> Option<Self::Value>;
}

impl<T: ReadText> ReadValue for T {
    type Value = T::Value;

    fn read(&self, context: &mut ReadContext<'_>, key: &'static str, node: &Node) -> Option<Self::Value> {
        let text = context.text(node, &format!("`{key}`"))?;
        self.read_text(context, key, text)
    }
}

/// A text.
#[derive(Clone, Copy, Debug)]
pub struct Text(pub TextSchema);

/// Any text that is not empty.
pub const TEXT: Text = Text(TextSchema::ANY);

impl DescribeSchema for Text {
    fn schema(&self) -> ValueSchema {
        ValueSchema::Text(self.0)
    }
}

/// Reads any text that is not empty. The code that uses it checks the rest of its form.
impl ReadText for Text {
    type Value = Located<String>;

    fn read_text(&self, _: &mut ReadContext<'_>, _: &str, text: Located<String>) -> Option<Self::Value> {
        Some(text)
    }
}

/// One text of this form or a list of them, without empty ones and duplicates.
#[derive(Clone, Copy, Debug)]
pub struct TextOrList<S>(pub S);

impl<S: DescribeSchema> DescribeSchema for TextOrList<S> {
    fn schema(&self) -> ValueSchema {
        ValueSchema::OneOrMore(Box::new(self.0.schema()))
    }
}

/// `None` if any of the texts is wrong.
impl<S: ReadText> ReadValue for TextOrList<S> {
    type Value = Vec<S::Value>;

    fn read(&self, context: &mut ReadContext<'_>, key: &'static str, node: &Node) -> Option<Self::Value> {
        let texts = context.texts(node, &format!("`{key}`"))?;
        // All texts are read before the function returns, so that every error is reported.
        let read: Vec<_> = texts.into_iter().map(|text| self.0.read_text(context, key, text)).collect();
        read.into_iter().collect()
    }
}

/// One of these words, each with its value and its meaning.
#[derive(Clone, Copy, Debug)]
pub struct Keywords<T: 'static>(pub &'static [(&'static str, T, &'static str)]);

impl<T> DescribeSchema for Keywords<T> {
    fn schema(&self) -> ValueSchema {
        match self.0 {
            [(word, _, "")] => ValueSchema::Constant(DeclaredScalar::Text(word)),
            words => ValueSchema::Words(words.iter().map(|(word, _, meaning)| (*word, *meaning)).collect()),
        }
    }
}

impl<T: Copy> ReadValue for Keywords<T> {
    type Value = Located<T>;

    fn read(&self, context: &mut ReadContext<'_>, key: &'static str, node: &Node) -> Option<Self::Value> {
        let words: Vec<(&'static str, T)> = self.0.iter().map(|(word, value, _)| (*word, *value)).collect();
        context.choice(key, node, &words)
    }
}

/// A whole number in this range.
#[derive(Clone, Debug)]
pub struct WholeNumber(pub RangeInclusive<i64>);

impl DescribeSchema for WholeNumber {
    fn schema(&self) -> ValueSchema {
        ValueSchema::Whole(self.0.clone())
    }
}

impl ReadValue for WholeNumber {
    type Value = Located<i64>;

    fn read(&self, context: &mut ReadContext<'_>, key: &'static str, node: &Node) -> Option<Self::Value> {
        context.integer_in(key, node, &self.0)
    }
}

/// A number, whole or not.
#[derive(Clone, Copy, Debug)]
pub struct AnyNumber;

impl DescribeSchema for AnyNumber {
    fn schema(&self) -> ValueSchema {
        ValueSchema::Number
    }
}

impl ReadValue for AnyNumber {
    type Value = Located<node::Number>;

    fn read(&self, context: &mut ReadContext<'_>, key: &'static str, node: &Node) -> Option<Self::Value> {
        context.number(key, node)
    }
}

/// `true` or `false`.
#[derive(Clone, Copy, Debug)]
pub struct Boolean;

impl DescribeSchema for Boolean {
    fn schema(&self) -> ValueSchema {
        ValueSchema::Boolean
    }
}

impl ReadValue for Boolean {
    type Value = Located<bool>;

    fn read(&self, context: &mut ReadContext<'_>, key: &'static str, node: &Node) -> Option<Self::Value> {
        context.boolean(key, node)
    }
}

/// A duration above zero.
#[derive(Clone, Copy, Debug)]
pub struct Duration;

const DURATION: NamedSchema = NamedSchema {
    name: "duration",
    meaning: "",
    schema: || ValueSchema::Text(TextSchema::matching("^0*[1-9][0-9]*(ms|s|m|h|d)$")),
};

impl DescribeSchema for Duration {
    fn schema(&self) -> ValueSchema {
        ValueSchema::Shared(&DURATION)
    }
}

impl ReadValue for Duration {
    type Value = Located<time::Duration>;

    fn read(&self, context: &mut ReadContext<'_>, key: &'static str, node: &Node) -> Option<Self::Value> {
        context.duration(key, node)
    }
}

/// A number of bytes above zero, with a unit.
#[derive(Clone, Copy, Debug)]
pub struct Size;

const SIZE: NamedSchema = NamedSchema {
    name: "size",
    meaning: "",
    schema: || ValueSchema::Text(TextSchema::matching("^0*[1-9][0-9]* *(B|KiB|MiB|GiB)$")),
};

impl DescribeSchema for Size {
    fn schema(&self) -> ValueSchema {
        ValueSchema::Shared(&SIZE)
    }
}

impl ReadValue for Size {
    type Value = Located<usize>;

    fn read(&self, context: &mut ReadContext<'_>, key: &'static str, node: &Node) -> Option<Self::Value> {
        context.size(key, node)
    }
}

/// A mapping with keys of its own; [`MapReader::map`](super::MapReader::map) reads it.
#[derive(Clone, Copy)]
pub struct Mapping(pub &'static Keys);

impl DescribeSchema for Mapping {
    fn schema(&self) -> ValueSchema {
        ValueSchema::Mapping(self.0)
    }
}

/// A list of values; [`MapReader::list`](super::MapReader::list) reads it.
#[derive(Clone, Copy)]
pub struct ValueList {
    pub items: &'static NamedSchema,
    pub at_least: usize,
}

impl DescribeSchema for ValueList {
    fn schema(&self) -> ValueSchema {
        ValueSchema::List { items: Box::new(ValueSchema::Shared(self.items)), at_least: self.at_least, distinct: false }
    }
}
