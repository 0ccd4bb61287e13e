//! Counters that several rules or collections share. A new counter starts after the numbers of all of them: a number
//! that one of them has stored must not be assigned to another.

use std::collections::HashMap;
use std::sync::Arc;

use super::start::{Origin, SharedStart};
use super::{Sequence, Strategy};
use crate::config::{Code, Diagnostic, Glob, Located, NamespaceGlob, Span};
use crate::patterns::{AnyPattern, Mode, RuleView};

/// Returns the sequences with a counter, each with the rules that it shares its counter with.
pub(super) fn share_counters(rules: &[RuleView<'_>]) -> Vec<(usize, Sequence)> {
    let counters: Vec<RuleCounter> = rules.iter().filter_map(|rule| RuleCounter::from_rule(*rule)).collect();
    let linked = |rule: &RuleView<'_>| {
        let (Some(own), AnyPattern::Sequence(sequence)) = (RuleCounter::from_rule(*rule), rule.pattern) else {
            return None;
        };
        // Its own start comes first: a rule that is tested alone uses it in any mode.
        let others = counters.iter().filter(|other| other.is_beside(&own)).map(|other| other.origin.clone());
        let beginning = SharedStart(Arc::new(std::iter::once(own.origin.clone()).chain(others).collect()));
        Some((rule.index, Sequence { beginning, ..sequence.clone() }))
    };
    rules.iter().filter_map(linked).collect()
}

/// [`Diagnostic::error`] or [`Diagnostic::warning`].
type MakeDiagnostic = fn(Code, Span, String) -> Diagnostic;

/// Reports counters in a collection whose documents get numbers: who deletes the documents deletes the counter, and the numbers
/// begin again.
pub(super) fn counters_among_documents(rules: &[RuleView<'_>]) -> Vec<Diagnostic> {
    let numbering = rules.iter().filter(|rule| matches!(rule.pattern, AnyPattern::Sequence(_)));
    let names = || numbering.clone().flat_map(|rule| rule.namespaces);
    let numbered: HashMap<_, _> = names().filter_map(|name| Some((name.exact()?, name.span))).collect();
    let globs: Vec<_> = names().filter(|name| name.exact().is_none()).collect();
    let mistake = |rule: &RuleView<'_>| {
        let AnyPattern::Sequence(sequence) = rule.pattern else { return None };
        let databases = rule.namespaces.iter().map(|name| name.database().as_str());
        let mut counters = databases
            .filter(|_| sequence.strategy == Strategy::Counter)
            .map(|own| (sequence.database.as_deref().unwrap_or(own), &*sequence.collection));
        let exact = |counter: (&str, &str)| Some((Diagnostic::error as MakeDiagnostic, *numbered.get(&counter)?));
        let by_glob = |(database, collection): (&str, &str)| {
            let is_in = |name: &&&Located<NamespaceGlob>| {
                name.database().intersects(&Glob::new(database)) && name.collection().matches(collection.as_bytes())
            };
            Some((Diagnostic::warning as MakeDiagnostic, globs.iter().find(is_in)?.span))
        };
        let (counter, (make, span)) =
            counters.find_map(|counter| Some((counter, exact(counter).or_else(|| by_glob(counter))?)))?;
        let (name, (database, collection)) = (&rule.name.value, counter);
        let message = format!("`{name}` has its counter in {database}.{collection}, whose documents get numbers");
        let mistake = make(Code::ConflictingSettings, rule.name.span, message);
        Some(mistake.label(span, "they get numbers here").help("name another `collection` for the counter"))
    };
    rules.iter().filter_map(mistake).collect()
}

/// A rule's counter.
struct RuleCounter {
    collection: Arc<str>,
    id: Arc<str>,
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
                origin: origin(rule, sequence),
            }),
            _ => None,
        }
    }

    fn is_beside(&self, own: &Self) -> bool {
        let is_same = self.collection == own.collection && self.id == own.id;
        is_same && self.mode != Mode::Disabled && self.origin != own.origin
    }
}

fn origin(rule: RuleView<'_>, sequence: &Sequence) -> Origin {
    Origin {
        start: sequence.start,
        namespaces: rule.namespaces.iter().map(|namespace| namespace.value.clone()).collect(),
        field: sequence.field().as_str().to_owned(),
        database: sequence.database.as_deref().map(str::to_owned),
    }
}
