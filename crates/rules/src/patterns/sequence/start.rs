//! The first number of a counter, which rules can share.

use std::sync::Arc;

use crate::config::NamespaceGlob;

/// The first number of a counter that does not exist yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceStart {
    /// With this number.
    At(i64),
    /// The number after the largest value of the protected field.
    AfterMax,
}

/// The rules that share a counter, each with its own start. A thin pointer: it is part of every request for numbers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SharedStart(pub(super) Arc<Vec<Origin>>);

/// One rule's part in the first number of a counter.
#[derive(Debug, Clone, PartialEq)]
pub struct Origin {
    pub start: SequenceStart,
    /// The collections that contain its numbers.
    pub namespaces: Vec<NamespaceGlob>,
    pub field: String,
    /// The database of its counter; `None`: each protected database has one.
    pub(super) database: Option<String>,
}

impl SharedStart {
    /// Returns the rules that use the counter of this name in this database.
    pub fn origins<'b>(&'b self, database: &'b str) -> impl Iterator<Item = &'b Origin> {
        self.0.iter().filter(move |origin| match &origin.database {
            Some(own) => own == database,
            None => origin.namespaces.iter().any(|namespace| namespace.matches_database(database.as_bytes())),
        })
    }

    /// Returns the first number if no document has one.
    pub fn least(&self, database: &str) -> i64 {
        let starts = self.origins(database).filter_map(|origin| match origin.start {
            SequenceStart::At(first) => Some(first),
            SequenceStart::AfterMax => None,
        });
        starts.max().unwrap_or(1)
    }

    /// Returns the first number after the largest stored one.
    pub fn behind(&self, database: &str, largest: i64) -> Option<i64> {
        let has_start = self.origins(database).any(|origin| matches!(origin.start, SequenceStart::At(_)));
        let next = largest.checked_add(1)?;
        Some(if has_start { next.max(self.least(database)) } else { next })
    }
}

impl Origin {
    /// Returns whether documents of this collection get their numbers from the counter in the database `counter`.
    pub fn covers(&self, counter: &str, database: &str, collection: &str) -> bool {
        let uses_this_counter = self.database.is_some() || database == counter;
        let matches = |of: &NamespaceGlob| of.matches(database.as_bytes(), collection.as_bytes());
        uses_this_counter && self.namespaces.iter().any(matches)
    }

    /// Returns the database of all documents that use the counter in `counter`; `None` if there can be several.
    pub fn only_database<'c>(&self, counter: &'c str) -> Option<&'c str> {
        self.database.is_none().then_some(counter)
    }
}
