//! Every version of a rule that has been loaded, and the rate limits all threads share.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use crate::engine::OutcomeKind;
use crate::proxy::telemetry::written_rule::{RuleLabel, WrittenRule};
use crate::rate_limit::{Allowance, log_has_room};
use crate::rules::RuleSet;

/// Decisions published per second for one rule and outcome, and for all rules together.
pub(super) const MAX_PER_OUTCOME: u32 = 10;
const MAX_DECISIONS: u32 = 100;
/// As many of them may be routine ones, so that these do not suppress the others.
const MAX_ROUTINE: u32 = 50;
/// Rules kept that are no longer loaded; beyond that the oldest are dropped.
const MAX_UNLOADED: usize = 1000;

/// Identifies one version of a rule across rule sets. Later versions have greater keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RuleKey(u64);

/// The known rules, loaded and previously loaded.
#[derive(Debug, Default)]
pub(super) struct KnownRules {
    /// The version of the rule set that `current` belongs to.
    version: Option<u64>,
    /// The rules of that set, by index.
    current: Arc<[RuleKey]>,
    /// Ordered by key.
    rules: Vec<KnownRule>,
    next: u64,
    /// Rate limits, per rule and outcome and for all rules.
    limits: HashMap<(RuleKey, &'static str), Allowance>,
    limit_of_all: Allowance,
    limit_of_routine: Allowance,
}

/// A rule as written, or as it was when it was last loaded.
#[derive(Debug)]
pub(super) struct KnownRule {
    pub(super) key: RuleKey,
    pub(super) label: RuleLabel,
    pub(super) written: Arc<WrittenRule>,
    pub(super) since: SystemTime,
    /// Whether it is loaded now.
    pub(super) loaded: bool,
}

impl KnownRules {
    /// Makes `rules` the current rule set; returns the keys of its rules by index.
    pub(super) fn load(&mut self, rules: &RuleSet) -> Arc<[RuleKey]> {
        if self.version == Some(rules.version()) {
            return self.current.clone();
        }
        self.version = Some(rules.version());
        self.forget();
        self.rules.iter_mut().for_each(|rule| rule.loaded = false);
        let mut indexes: HashMap<RuleLabel, usize> =
            self.rules.iter().enumerate().map(|(index, rule)| (rule.label.clone(), index)).collect();
        let mut current = Vec::new();
        for rule in rules.rules() {
            let label = RuleLabel::new(rules, rule);
            let index = *indexes.entry(label.clone()).or_insert(self.rules.len());
            let written = Arc::new(WrittenRule::new(rules, rule));
            match self.rules.get_mut(index) {
                Some(rule) => (rule.loaded, rule.written) = (true, written),
                None => {
                    let key = RuleKey(self.next);
                    self.next += 1;
                    self.rules.push(KnownRule { key, label, written, since: SystemTime::now(), loaded: true });
                }
            }
            current.extend(self.rules.get(index).map(|rule| rule.key));
        }
        self.current = current.into();
        self.current.clone()
    }

    /// The rules of the current set in the order of the files, then previously loaded ones.
    pub(super) fn in_order(&self) -> Vec<&KnownRule> {
        let current = self.current.iter().filter_map(|key| self.rules.get(self.index(*key)?));
        current.chain(self.rules.iter().filter(|rule| !rule.loaded)).collect()
    }

    /// Whether the rule has not been dropped.
    pub(super) fn knows(&self, key: RuleKey) -> bool {
        self.index(key).is_some()
    }

    /// Returns `Some` if a decision is to be published, with the number of similar ones suppressed since the last one.
    /// `suppressed` of them were suppressed by the caller.
    pub(super) fn may_publish(&mut self, key: RuleKey, kind: OutcomeKind, suppressed: u64) -> Option<u64> {
        let own = self.limits.entry((key, kind.as_str())).or_default();
        own.add_suppressed(suppressed);
        let suppressed = own.take(MAX_PER_OUTCOME)?;
        let routine = kind.is_routine() && self.limit_of_routine.take(MAX_ROUTINE).is_none();
        if routine || !log_has_room() || self.limit_of_all.take(MAX_DECISIONS).is_none() {
            own.add_suppressed(suppressed + 1);
            return None;
        }
        Some(suppressed)
    }

    fn index(&self, key: RuleKey) -> Option<usize> {
        self.rules.binary_search_by_key(&key, |rule| rule.key).ok()
    }

    fn forget(&mut self) {
        let unloaded = self.rules.iter().filter(|rule| !rule.loaded).count();
        let mut surplus = unloaded.saturating_sub(MAX_UNLOADED);
        self.rules.retain(|rule| {
            let forgotten = !rule.loaded && surplus > 0;
            surplus -= usize::from(forgotten);
            !forgotten
        });
        let rules = &self.rules;
        self.limits.retain(|(key, _), _| rules.binary_search_by_key(key, |rule| rule.key).is_ok());
    }
}
