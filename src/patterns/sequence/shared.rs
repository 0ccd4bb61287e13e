//! Counters that several rules or collections share. A new counter starts after the numbers of all of them: a number
//! that one of them has stored must not be issued to another.

use std::sync::Arc;

use super::{Sequence, SequenceStart, Strategy};
use crate::config::NamespaceGlob;
use crate::patterns::{AnyPattern, Mode, RuleView};

/// The rules that share a counter, each with its own start.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SharedStart(Arc<[Origin]>);

/// One rule's part in the first number of a counter.
#[derive(Debug, Clone, PartialEq)]
pub struct Origin {
    pub start: SequenceStart,
    /// The collections that contain its numbers.
    pub namespaces: Vec<NamespaceGlob>,
    pub field: String,
    /// The database of its counter; `None`: each protected database has one.
    database: Option<String>,
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
        let is_counted_there = self.database.is_some() || database == counter;
        let matches = |of: &NamespaceGlob| of.matches(database.as_bytes(), collection.as_bytes());
        is_counted_there && self.namespaces.iter().any(matches)
    }

    /// Returns the database of all documents that use the counter in `counter`; `None` if there can be several.
    pub fn only_database<'c>(&self, counter: &'c str) -> Option<&'c str> {
        self.database.is_none().then_some(counter)
    }

    fn from_rule(rule: RuleView<'_>, sequence: &Sequence) -> Self {
        Self {
            start: sequence.start,
            namespaces: rule.namespaces.iter().map(|namespace| namespace.value.clone()).collect(),
            field: sequence.field().as_str().to_owned(),
            database: sequence.database.clone(),
        }
    }
}

/// Returns the sequences with a counter, each with the rules that it shares its counter with.
pub(super) fn share_counters(rules: &[RuleView<'_>]) -> Vec<(usize, Sequence)> {
    let counters: Vec<RuleCounter> = rules.iter().filter_map(|rule| RuleCounter::from_rule(*rule)).collect();
    let linked = |rule: &RuleView<'_>| {
        let (Some(own), AnyPattern::Sequence(sequence)) = (RuleCounter::from_rule(*rule), rule.pattern) else {
            return None;
        };
        // Its own start comes first: a rule that is tested alone uses it in any mode.
        let others = counters.iter().filter(|other| other.is_beside(&own)).map(|other| other.origin.clone());
        let beginning = SharedStart(std::iter::once(own.origin.clone()).chain(others).collect());
        Some((rule.index, Sequence { beginning, ..sequence.clone() }))
    };
    rules.iter().filter_map(linked).collect()
}

/// A rule's counter.
struct RuleCounter {
    collection: String,
    id: String,
    mode: Mode,
    origin: Origin,
}

impl RuleCounter {
    fn from_rule(rule: RuleView<'_>) -> Option<Self> {
        match rule.pattern {
            AnyPattern::Sequence(sequence) if sequence.strategy == Strategy::Counter => Some(Self {
                collection: sequence.collection.clone(),
                id: sequence.counter.clone(),
                mode: rule.mode,
                origin: Origin::from_rule(rule, sequence),
            }),
            _ => None,
        }
    }

    fn is_beside(&self, own: &Self) -> bool {
        let is_same = self.collection == own.collection && self.id == own.id;
        is_same && self.mode != Mode::Disabled && self.origin != own.origin
    }
}
