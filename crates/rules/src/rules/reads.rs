//! The collections that the query listener may read, by the rules with the pattern `reads`.

use std::time::Duration;

use super::rule::Rule;
use super::set::RuleSet;
use crate::command::Namespace;
use crate::patterns::Mode;

/// Returns the enforced rule that lets the query listener read this collection.
pub fn reads_rule<'r>(rules: &'r RuleSet, namespace: Namespace<'_>) -> Option<&'r Rule> {
    let found = rules.rules_naming(namespace.database, namespace.collection)?;
    found.iter().find(|rule| rule.mode == Mode::Enforce)
}

/// Returns the shortest staleness of all enforced rules, because one secondary serves all collections of a connection.
/// `None` without a rule.
pub fn max_staleness(rules: &RuleSet) -> Option<Duration> {
    let enforced = rules.rules().iter().filter(|rule| rule.mode == Mode::Enforce);
    enforced.filter_map(|rule| rule.properties.max_staleness).min()
}
