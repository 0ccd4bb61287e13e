//! Parsed values with their spans: arguments and command fields before they become BSON.

use std::collections::HashMap;
use std::ops::Range;

use crate::document::{ArrayWriter, CowDocument, Kind, OwnedValue, Value, ValueSlot, Writer};

/// A value and its span in the text. A generated value has the span of its source, or an empty one.
#[derive(Debug, Clone)]
pub(super) struct Term {
    pub(super) span: Range<usize>,
    pub(super) content: TermContent,
}

#[derive(Debug, Clone)]
pub(super) enum TermContent {
    Scalar(OwnedValue),
    Array(Vec<Term>),
    Document(Vec<TermField>),
}

/// One field of a document.
#[derive(Debug, Clone)]
pub(super) struct TermField {
    pub(super) key: String,
    pub(super) key_span: Range<usize>,
    pub(super) term: Term,
}

impl Term {
    pub(super) fn scalar(span: Range<usize>, value: OwnedValue) -> Self {
        Self { span, content: TermContent::Scalar(value) }
    }

    pub(super) fn string(text: &str) -> Self {
        Self::scalar(0..0, OwnedValue::string(text))
    }

    pub(super) fn int32(number: i32) -> Self {
        Self::scalar(0..0, OwnedValue::int32(number))
    }

    pub(super) fn boolean(value: bool) -> Self {
        Self::scalar(0..0, boolean(value))
    }

    pub(super) fn array(terms: Vec<Self>) -> Self {
        Self { span: 0..0, content: TermContent::Array(terms) }
    }

    pub(super) fn document(fields: Vec<TermField>) -> Self {
        Self { span: 0..0, content: TermContent::Document(fields) }
    }

    pub(super) fn as_value(&self) -> Option<Value<'_>> {
        match &self.content {
            TermContent::Scalar(value) => Some(value.as_value()),
            _ => None,
        }
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        self.as_value()?.as_str()
    }

    pub(super) fn as_bool(&self) -> Option<bool> {
        self.as_value()?.as_bool()
    }

    pub(super) fn as_number(&self) -> Option<f64> {
        let value = self.as_value()?;
        value.as_f64().or(value.as_integer().map(|whole| whole as f64))
    }

    pub(super) fn is_null(&self) -> bool {
        self.as_value().is_some_and(|value| value.kind == Kind::Null)
    }

    /// Returns a description for messages.
    pub(super) fn describe(&self) -> &'static str {
        match &self.content {
            TermContent::Array(_) => "an array",
            TermContent::Document(_) => "a document",
            TermContent::Scalar(value) => match value.as_value().kind {
                Kind::Double | Kind::Int32 | Kind::Int64 | Kind::Decimal128 => "a number",
                Kind::String => "a string",
                Kind::Boolean => "true or false",
                Kind::Null | Kind::Undefined => "null",
                Kind::DateTime => "a date",
                Kind::JavaScript | Kind::JavaScriptWithScope => "a function",
                other => other.name(),
            },
        }
    }

    /// Writes the value. [`MAX_NESTING`](super::MAX_NESTING) bounds the recursion.
    pub(super) fn write(&self, slot: ValueSlot<'_>) {
        match &self.content {
            TermContent::Scalar(value) => slot.value(value.as_value()),
            TermContent::Array(terms) => {
                slot.array(|a: &mut ArrayWriter<'_>| terms.iter().for_each(|t| t.write(a.slot())))
            }
            TermContent::Document(fields) => slot.nested(|w| write_fields(fields, w)),
        }
    }
}

impl TermField {
    pub(super) fn new(key: &str, term: Term) -> Self {
        Self { key: key.to_owned(), key_span: term.span.clone(), term }
    }
}

fn write_fields(fields: &[TermField], w: &mut Writer<'_>) {
    fields.iter().for_each(|field| field.term.write(w.slot(&field.key)));
}

/// Returns the fields as BSON.
pub(super) fn to_document(fields: &[TermField]) -> CowDocument<'static> {
    CowDocument::build(|w| write_fields(fields, w))
}

pub(super) fn boolean(value: bool) -> OwnedValue {
    OwnedValue::from(Value { kind: Kind::Boolean, bytes: &[u8::from(value)] })
}

/// Returns the fields of an object in JavaScript's order: array indexes first, in ascending order. A repeated key has
/// the position of the first and the value of the last.
pub(super) fn in_javascript_order(fields: Vec<TermField>) -> Vec<TermField> {
    let mut positions: HashMap<String, usize> = HashMap::with_capacity(fields.len());
    let mut kept: Vec<TermField> = Vec::with_capacity(fields.len());
    for field in fields {
        match positions.get(&field.key).and_then(|position| kept.get_mut(*position)) {
            Some(first) => first.term = field.term,
            None => {
                positions.insert(field.key.clone(), kept.len());
                kept.push(field);
            }
        }
    }
    kept.sort_by_key(|field| array_index(&field.key).unwrap_or(u64::MAX));
    kept
}

/// Returns the index if JavaScript treats the key as an array index: "0" and "7", but not "07".
pub(super) fn array_index(key: &str) -> Option<u64> {
    let index: u64 = key.parse().ok().filter(|index| *index < u64::from(u32::MAX))?;
    (index.to_string() == key).then_some(index)
}
