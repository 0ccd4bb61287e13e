//! The rules that were ever loaded, as they are written, and what they may say together.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use super::{SAID_OF_ALL, SAID_OF_ONE};
use crate::proxy::interceptor::{Interceptor, RuleLabel, WrittenRule};
use crate::proxy::rate_limit::Allowance;

/// Rules remembered that are no longer loaded; of more the oldest are forgotten.
const MAX_RETIRED: usize = 1000;

/// Names a rule as it is written, whichever set it is in. Later rules have greater ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key(u64);

/// See above.
#[derive(Debug, Default)]
pub(super) struct KnownRules {
    /// The set that `current` is about.
    version: Option<u64>,
    /// The set's rules, by their numbers.
    current: Arc<[Key]>,
    /// In the order of their keys.
    rules: Vec<Known>,
    next: u64,
    /// Decisions of one rule and verdict, and of all.
    said: HashMap<(Key, &'static str), Allowance>,
    said_of_all: Allowance,
}

/// A rule as it is written; of one that is no longer loaded, as it was.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) key: Key,
    pub(super) label: RuleLabel,
    pub(super) written: Arc<WrittenRule>,
    pub(super) since: SystemTime,
    /// Whether it is in force now.
    pub(super) loaded: bool,
}

impl KnownRules {
    /// Makes `policy` the set in force; gives its rules by their numbers.
    pub(super) fn load<P: Interceptor>(&mut self, policy: &P) -> Arc<[Key]> {
        if self.version == Some(policy.version()) {
            return self.current.clone();
        }
        self.version = Some(policy.version());
        self.forget();
        self.rules.iter_mut().for_each(|rule| rule.loaded = false);
        let mut places: HashMap<RuleLabel, usize> =
            self.rules.iter().enumerate().map(|(place, rule)| (rule.label.clone(), place)).collect();
        let mut current = Vec::new();
        for (label, written) in policy.written() {
            let place = *places.entry(label.clone()).or_insert(self.rules.len());
            let written = Arc::new(written);
            match self.rules.get_mut(place) {
                Some(rule) => (rule.loaded, rule.written) = (true, written),
                None => {
                    let key = Key(self.next);
                    self.next += 1;
                    self.rules.push(Known { key, label, written, since: SystemTime::now(), loaded: true });
                }
            }
            current.extend(self.rules.get(place).map(|rule| rule.key));
        }
        self.current = current.into();
        self.current.clone()
    }

    /// Those of the set in force, in the order of the files, then those that were loaded before.
    pub(super) fn in_order(&self) -> Vec<&Known> {
        let current = self.current.iter().filter_map(|key| self.rules.get(self.place(*key)?));
        current.chain(self.rules.iter().filter(|rule| !rule.loaded)).collect()
    }

    /// Whether it has not been forgotten.
    pub(super) fn knows(&self, key: Key) -> bool {
        self.place(key).is_some()
    }

    /// `Some` when a decision is to be said on, with how many like it were not since the last one; `left_out` of them
    /// were not even asked for.
    pub(super) fn may_say(&mut self, key: Key, verdict: &'static str, left_out: u64) -> Option<u64> {
        let own = self.said.entry((key, verdict)).or_default();
        own.leave_out(left_out);
        let left_out = own.take(SAID_OF_ONE)?;
        if self.said_of_all.take(SAID_OF_ALL).is_none() {
            own.leave_out(left_out + 1);
            return None;
        }
        Some(left_out)
    }

    fn place(&self, key: Key) -> Option<usize> {
        self.rules.binary_search_by_key(&key, |rule| rule.key).ok()
    }

    fn forget(&mut self) {
        let drained = self.rules.iter().filter(|rule| !rule.loaded).count();
        let mut surplus = drained.saturating_sub(MAX_RETIRED);
        self.rules.retain(|rule| {
            let forgotten = !rule.loaded && surplus > 0;
            surplus -= usize::from(forgotten);
            !forgotten
        });
        let rules = &self.rules;
        self.said.retain(|(key, _), _| rules.binary_search_by_key(key, |rule| rule.key).is_ok());
    }
}
