//! What the messages of one thread heard of each rule.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use foldhash::fast::RandomState;

use super::known_rules::{Key, KnownRules};
use super::{SAID_OF_ONE, lock};
use crate::audit::{Noted, RuleTally};
use crate::proxy::history::History;
use crate::proxy::interceptor::Interceptor;
use crate::proxy::rate_limit::Allowance;

/// Counts by rule.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// The set that `current` is about.
    version: Option<u64>,
    current: Arc<[Key]>,
    /// Of rules that have spoken.
    rules: HashMap<Key, RuleCounts, RandomState>,
}

/// What one rule has said since it was first loaded.
#[derive(Debug, Clone, Default)]
pub struct RuleCounts {
    /// By what it said: "reject", "shadow-reject".
    pub verdicts: BTreeMap<&'static str, u64>,
    /// When it last said anything.
    pub last: Option<SystemTime>,
    /// With applications; with examples where it is only tried.
    pub tally: RuleTally,
    pub history: History,
    /// Decisions that may be said on, were there no other threads.
    said: BTreeMap<&'static str, Allowance>,
}

impl Counts {
    /// What is counted of a rule of `policy`, by its number there, and its key.
    pub(super) fn of<P: Interceptor>(
        &mut self,
        rule: usize,
        policy: &P,
        register: &Mutex<KnownRules>,
    ) -> Option<(Key, &mut RuleCounts)> {
        if self.version != Some(policy.version()) {
            let mut register = lock(register);
            self.version = Some(policy.version());
            self.current = register.load(policy);
            self.rules.retain(|key, _| register.knows(*key));
        }
        let key = *self.current.get(rule)?;
        Some((key, self.rules.entry(key).or_default()))
    }

    /// Of every rule that has spoken.
    pub(super) fn all(&self) -> impl Iterator<Item = (Key, &RuleCounts)> {
        self.rules.iter().map(|(key, counts)| (*key, counts))
    }
}

impl RuleCounts {
    /// Counts; `Some` when the decision may be said on, with how many like it were not since the last one.
    pub(super) fn note(&mut self, noted: &Noted<'_>, verdict: &'static str, shape: Option<String>) -> Option<u64> {
        let now = SystemTime::now();
        let minute = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() / 60;
        *self.verdicts.entry(verdict).or_default() += noted.statements;
        self.last = Some(now);
        self.history.add(minute, noted.effect, noted.statements);
        match shape {
            Some(shape) => self.tally.note(noted, shape, || None),
            None => self.tally.count(noted),
        }
        self.said.entry(verdict).or_default().take(SAID_OF_ONE)
    }

    /// Adds what another thread counted.
    pub(super) fn merge(&mut self, other: &Self) {
        for (verdict, count) in &other.verdicts {
            *self.verdicts.entry(verdict).or_default() += count;
        }
        self.last = self.last.max(other.last);
        self.tally.merge(other.tally.clone());
        self.history.merge(&other.history);
    }
}
