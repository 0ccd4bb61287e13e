//! What a pattern needs of documents that are stored already, as values: how to find documents that lack it, and what
//! may be set. `crate::service::data` searches and writes.
//!
//! Conditions are aggregation expressions, so that one pass over a collection serves all rules, and an update can
//! repeat the condition in its filter: a document that an application has changed meanwhile is left as it is.

use bson::{Bson, Document, doc};

use crate::command::has_repeated_name;
use crate::document::Path;

/// A search for stored documents that break a rule, or lack what it needs.
#[derive(Debug, Clone, PartialEq)]
pub struct DataCheck {
    /// The documents, as the end of "12 documents …": "without `try`".
    pub found: String,
    /// What follows from it, as half a sentence.
    pub consequence: &'static str,
    pub search: Search,
    /// What `docward backfill` does with them; `None`: nothing.
    pub backfill: Option<Backfill>,
}

/// How the documents are found.
#[derive(Debug, Clone, PartialEq)]
pub enum Search {
    /// The expression is true for such a document.
    Each(Bson),
    /// The same, after stages that add fields to each document.
    Related { stages: Vec<Document>, condition: Bson },
    /// Several documents have the same value in the field. Missing values, null and arrays do not count.
    Duplicates { field: String },
    /// The counter is lower than the largest number in the field.
    Counter { database: String, collection: String, id: String, field: String, may_be_missing: bool },
    /// The copies that differ from their originals.
    Copies,
}

/// What may be set without knowing the application.
#[derive(Debug, Clone, PartialEq)]
pub enum Backfill {
    /// The update pipeline, for each document that still fulfils the condition.
    Update { what: String, pipeline: Vec<Document> },
    /// The field is set to the value that the stages of the search computed in `computed`, if the fields in `unchanged`
    /// have not changed since. Repeated, because documents depend on each other.
    Computed { what: String, field: String, computed: &'static str, unchanged: Vec<String> },
    /// The counter is raised to the largest number.
    Counter,
    /// As `docward repair`.
    Copies,
}

impl DataCheck {
    pub(super) fn each(found: impl Into<String>, consequence: &'static str, condition: impl Into<Bson>) -> Self {
        Self { found: found.into(), consequence, search: Search::Each(condition.into()), backfill: None }
    }

    /// Documents that mongod cannot update by pipeline.
    pub fn repeated_names() -> Option<Self> {
        let condition = Document::from_reader(has_repeated_name().as_document().as_bytes()).ok()?;
        let consequence =
            "docward rejects updates that it makes a pipeline and that use such a field: mongod would end";
        Some(Self::each("in which a field is stored twice", consequence, condition))
    }

    /// Sets a field of the documents that it finds, and separates those in which a value on the way to the field is not a
    /// document: setting the field would replace it. `what` completes "sets …".
    pub(super) fn set(self, what: impl Into<String>, field: &Path, value: impl Into<Bson>) -> Vec<Self> {
        let pipeline = vec![doc! {"$set": {field.as_str(): value.into()}}];
        let backfill = Some(Backfill::Update { what: what.into(), pipeline });
        let (Some(has_room), Search::Each(condition)) = (has_room(field), &self.search) else {
            return vec![Self { backfill, ..self }];
        };
        let blocked = Self::each(
            format!("{}, in which a field around `{field}` is not a document", self.found),
            "docward backfill leaves them as they are",
            all(vec![condition.clone(), not(has_room.clone())]),
        );
        let search = Search::Each(all(vec![condition.clone(), has_room]));
        vec![Self { search, backfill, ..self }, blocked]
    }
}

/// Whether each field around this one is missing or a document; `None` for a top-level field.
fn has_room(field: &Path) -> Option<Bson> {
    let around: Vec<Bson> =
        field.parents().map(|parent| has_type(format!("${parent}"), &["missing", "object"])).collect();
    (!around.is_empty()).then(|| all(around))
}

/// Whether the field is an array, and not one of several in the elements of another array.
pub(super) fn is_one_array(field: &Path) -> Bson {
    all([Some(is_one_of(field, &["array"])), has_room(field)].into_iter().flatten().collect())
}

/// The value of a field.
pub(super) fn value(field: &Path) -> String {
    format!("${field}")
}

pub(super) fn is_missing(field: &Path) -> Bson {
    is_one_of(field, &["missing"])
}

/// Whether a field is missing or null.
pub(super) fn is_absent(field: &Path) -> Bson {
    is_one_of(field, &ABSENT)
}

pub(super) fn is_number(field: &Path) -> Bson {
    is_one_of(field, &["int", "long", "double", "decimal"])
}

/// Whether the type of a field is one of these.
pub(super) fn is_one_of(field: &Path, types: &[&str]) -> Bson {
    has_type(value(field), types)
}

/// The types of a value that is missing or null.
pub(super) const ABSENT: [&str; 3] = ["missing", "null", "undefined"];

/// Whether the type of an expression's value is one of these.
pub(super) fn has_type(expression: impl Into<Bson>, types: &[&str]) -> Bson {
    doc! {"$in": [{"$type": expression.into()}, types]}.into()
}

pub(super) fn not(condition: impl Into<Bson>) -> Bson {
    doc! {"$not": [condition.into()]}.into()
}

pub(super) fn all(conditions: Vec<Bson>) -> Bson {
    doc! {"$and": conditions}.into()
}

pub(super) fn any(conditions: Vec<Bson>) -> Bson {
    doc! {"$or": conditions}.into()
}
