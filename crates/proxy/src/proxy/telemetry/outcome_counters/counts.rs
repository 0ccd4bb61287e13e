//! The counters that one thread keeps for each rule.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use foldhash::fast::RandomState;

use super::known_rules::{KnownRules, MAX_PER_OUTCOME, RuleKey};
use crate::audit::{CountedOutcome, Example, ExampleText, RuleTally};
use crate::engine::OutcomeKind;
use crate::proxy::telemetry::history::MinuteCounts;
use crate::rate_limit::Allowance;
use crate::rules::RuleSet;

/// Counters by rule.
#[derive(Debug, Default)]
pub(super) struct CountsByRule {
    /// The version of the rule set that `current` belongs to.
    version: Option<u64>,
    current: Arc<[RuleKey]>,
    /// Rules with outcomes.
    rules: HashMap<RuleKey, RuleCounts, RandomState>,
}

/// Counters of one rule since it was first loaded.
#[derive(Debug, Clone, Default)]
pub struct RuleCounts {
    /// By outcome: "reject", "shadow-reject".
    pub outcomes: BTreeMap<&'static str, u64>,
    /// When it last matched a statement.
    pub last: Option<SystemTime>,
    /// With applications, and examples of all outcomes but the rewrites of enforced rules.
    pub tally: RuleTally,
    /// The same of what it would have done in shadow mode. Its mode can change at any time, and differ by client.
    pub shadow: RuleTally,
    pub history: MinuteCounts,
    /// The rate limit of this thread, by outcome.
    limits: BTreeMap<&'static str, Allowance>,
}

impl CountsByRule {
    /// The key and counters of the rule with index `rule` in `rules`.
    pub(super) fn counters_of(
        &mut self,
        rule: usize,
        rules: &RuleSet,
        register: &Mutex<KnownRules>,
    ) -> Option<(RuleKey, &mut RuleCounts)> {
        if self.version != Some(rules.version()) {
            let mut register = register.lock().unwrap_or_else(PoisonError::into_inner);
            self.version = Some(rules.version());
            self.current = register.load(rules);
            self.rules.retain(|key, _| register.knows(*key));
        }
        let key = *self.current.get(rule)?;
        Some((key, self.rules.entry(key).or_default()))
    }

    /// The counters of every rule with outcomes.
    pub(super) fn all(&self) -> impl Iterator<Item = (RuleKey, &RuleCounts)> {
        self.rules.iter().map(|(key, counts)| (*key, counts))
    }
}

fn milliseconds_since_epoch(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl RuleCounts {
    /// Counts an outcome. Returns `Some` if its decision may be published, with the number of similar ones suppressed
    /// since the last one.
    pub(super) fn count(
        &mut self,
        noted: &CountedOutcome<'_>,
        kind: OutcomeKind,
        shape: Option<String>,
    ) -> Option<u64> {
        let outcome = kind.as_str();
        let now = SystemTime::now();
        let minute = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() / 60;
        *self.outcomes.entry(outcome).or_default() += noted.statements;
        self.last = Some(now);
        self.history.add(minute, noted.outcome, noted.statements, kind.is_shadow());
        let noted = &CountedOutcome { at: Some(milliseconds_since_epoch(now)), ..*noted };
        let tally = if kind.is_shadow() { &mut self.shadow } else { &mut self.tally };
        match shape {
            Some(shape) => tally.count_example(noted, shape, ExampleText::default),
            None => tally.count(noted),
        }
        self.limits.entry(outcome).or_default().take(MAX_PER_OUTCOME)
    }

    /// Adds the counters of another thread.
    pub(super) fn merge(&mut self, other: &Self) {
        for (outcome, count) in &other.outcomes {
            *self.outcomes.entry(outcome).or_default() += count;
        }
        self.last = self.last.max(other.last);
        self.tally.merge(other.tally.clone());
        self.shadow.merge(other.shadow.clone());
        self.history.merge(&other.history);
    }

    /// What the rule did or would have done, of all modes, without examples.
    #[must_use]
    pub fn of_all_modes(&self) -> RuleTally {
        let mut sum = RuleTally::default();
        sum.merge_counts(&self.tally);
        sum.merge_counts(&self.shadow);
        sum
    }

    /// The examples, those of shadow mode last, with their outcomes: "reject", "shadow-reject".
    pub fn examples(&self) -> impl Iterator<Item = (String, &Example)> {
        [("", &self.tally), ("shadow-", &self.shadow)].into_iter().flat_map(|(mode, tally)| {
            tally.examples().into_iter().map(move |example| (format!("{mode}{}", example.outcome.as_str()), example))
        })
    }
}
