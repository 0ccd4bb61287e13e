//! What a rule requires of one stored document, so that the server itself can hold it in a validator.
//!
//! Conditions are JSON Schemas where they can be: the server names the field and the value that break one, and tools for
//! schemas know them. Each is true of every document that docward lets a client store. A document that broke the rule
//! before may break its condition still: validators are `moderate`.

use bson::{Bson, Document, doc};

use crate::document::Path;

/// A condition on a stored document.
#[derive(Debug, Clone, PartialEq)]
pub struct StateCondition {
    /// What holds, as half a sentence: "`stock` is a number of at least 0".
    pub meaning: String,
    /// The fields; empty: the document as a whole.
    pub fields: Vec<Path>,
    pub test: StateTest,
    /// docward makes it true only after a checked statement has been applied, in the same transaction. An enforcing
    /// validator would reject the state before.
    pub is_settled: bool,
}

/// How the server tests a document.
#[derive(Debug, Clone, PartialEq)]
pub enum StateTest {
    /// A JSON Schema of the document.
    Schema(Document),
    /// An expression that is true.
    Expression(Bson),
}

impl StateCondition {
    pub(super) fn schema(meaning: impl Into<String>, fields: &[&Path], schema: Document) -> Self {
        let fields = fields.iter().map(|field| (*field).clone()).collect();
        Self { meaning: meaning.into(), fields, test: StateTest::Schema(schema), is_settled: false }
    }

    pub(super) fn expression(meaning: impl Into<String>, fields: &[&Path], expression: impl Into<Bson>) -> Self {
        let test = StateTest::Expression(expression.into());
        Self { test, ..Self::schema(meaning, fields, Document::new()) }
    }

    /// Returns it as a match expression that names the rule in the server's `errInfo`.
    #[must_use]
    pub fn to_match(&self, rule: &str) -> Document {
        match &self.test {
            StateTest::Schema(schema) => {
                let mut named = doc! {"title": title(rule), "description": &self.meaning};
                named.extend(schema.clone());
                doc! {"$jsonSchema": named}
            }
            // The server shows the expression, which has no place for a title.
            StateTest::Expression(expression) => {
                let vars = doc! {RULE_VARIABLE: title(rule), MEANING_VARIABLE: &self.meaning};
                doc! {"$expr": {"$let": {"vars": vars, "in": expression.clone()}}}
            }
        }
    }
}

/// The variables of an expression that name its rule and what holds.
pub const RULE_VARIABLE: &str = "rule";
pub const MEANING_VARIABLE: &str = "meaning";
/// How the title of a clause begins; the name of the rule follows.
pub const TITLE: &str = "docward: ";

fn title(rule: &str) -> String {
    format!("{TITLE}{rule}")
}

/// Returns the rule that a title or variable names.
#[must_use]
pub fn rule_in_title(title: &str) -> Option<&str> {
    title.strip_prefix(TITLE)
}

/// Parts of a path up to which [`of_each`] describes it: its size doubles with each.
const MAX_PARTS: usize = 8;

/// Each value at the path, as [`held`](super::promise::held) finds them: also in the elements of arrays. `None` if the path
/// is too deep.
pub(super) fn of_each(path: &Path, leaf: Document) -> Option<Document> {
    let mut schema = around(path, leaf, |part, inner| {
        let below = doc! {"properties": {part: inner}};
        let mut schema = below.clone();
        schema.insert("items", below);
        schema
    });
    // The document itself is no array.
    schema.remove("items");
    (path.parts().count() <= MAX_PARTS).then_some(schema)
}

/// The value at the path if there is one and only documents are around it.
pub(super) fn of_one(path: &Path, leaf: Document) -> Document {
    around(path, leaf, |part, inner| doc! {"properties": {part: inner}})
}

/// The same, and only documents may be around it.
pub(super) fn of_reachable(path: &Path, leaf: Document) -> Document {
    around(path, leaf, |part, inner| doc! {"bsonType": "object", "properties": {part: inner}})
}

/// The value at the path, which is there.
pub(super) fn of_required(path: &Path, leaf: Document) -> Document {
    around(path, leaf, |part, inner| doc! {"bsonType": "object", "required": [part], "properties": {part: inner}})
}

fn around(path: &Path, leaf: Document, wrap: impl Fn(&str, Document) -> Document) -> Document {
    path.parts().rev().fold(leaf, |inner, part| wrap(part, inner))
}

/// All of the fields have a value, or none.
pub(super) fn all_or_none(fields: &[Path]) -> Option<Document> {
    let absent: Vec<Document> = fields.iter().map(|field| of_each(field, nothing())).collect::<Option<_>>()?;
    let present: Vec<Document> = absent.iter().map(|absent| doc! {"not": absent.clone()}).collect();
    Some(doc! {"anyOf": [{"allOf": present}, {"allOf": absent}]})
}

/// No value.
fn nothing() -> Document {
    doc! {"not": {}}
}
