//! What the relay asks the engine, as two traits, so that its state machine is tested with a scripted
//! policy and runs with [`RuleSet`]. The relay must not know what a rule is.

use std::time::Duration;

use serde::Serialize;

use crate::engine::{self, Admission, Input, ListenerKind, Now, RuleOutcome, Session, Step, Triage};
use crate::patterns::{Rule, RuleSet, reads};

/// Judges a client's messages.
pub trait Interceptor: Send + Sync + 'static {
    /// How one evaluated message is carried out.
    type Plan<'p>: Steps + Send
    where
        Self: 'p;

    /// See [`engine::triage`] and [`engine::queries::triage`].
    fn triage(&self, head: &[u8], listener_kind: &ListenerKind) -> Triage;

    /// Whether a message passes at its listener_kind; see [`engine::queries::admit`].
    fn admit(&self, frame: &[u8], listener_kind: &ListenerKind) -> Admission;

    fn plan<'p>(&'p self, frame: &'p [u8], now: Now) -> Self::Plan<'p>;

    /// How far a server that answers queries may be behind; `None`: however far.
    fn max_staleness(&self) -> Option<Duration>;

    /// Tells sets of rules apart.
    fn version(&self) -> u64 {
        0
    }

    /// The rules by their numbers, for counters that outlive the set.
    fn written(&self) -> Vec<(RuleLabel, WrittenRule)> {
        Vec::new()
    }
}

/// Tells a rule from others and from what it was before it was changed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RuleLabel {
    pub name: String,
    /// Of its text, see [`RuleSet::fingerprint`](crate::rules::RuleSet::rule_fingerprint).
    pub fingerprint: u64,
}

/// A rule as it is written, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WrittenRule {
    pub pattern: &'static str,
    /// "enforce", "shadow", "disabled".
    pub mode: &'static str,
    pub namespaces: Vec<String>,
    pub why: Option<String>,
    pub file: String,
    /// From 1.
    pub line: u32,
    /// The rule's lines of its file.
    pub source: String,
}

/// See [`engine::Plan`].
pub trait Steps {
    fn next(&mut self, input: Input<'_>, session: &mut Session) -> Step;

    fn take_outcomes(&mut self) -> Vec<RuleOutcome>;

    /// See [`engine::Plan::must_finish`].
    fn must_finish(&self) -> bool;
}

impl Interceptor for RuleSet {
    type Plan<'p> = engine::Plan<'p>;

    fn triage(&self, head: &[u8], listener_kind: &ListenerKind) -> Triage {
        match listener_kind {
            ListenerKind::Commands => engine::triage(head, self),
            ListenerKind::Queries { .. } => engine::queries::triage(head, self),
        }
    }

    fn admit(&self, frame: &[u8], listener_kind: &ListenerKind) -> Admission {
        match listener_kind {
            ListenerKind::Commands => Admission::Original,
            ListenerKind::Queries { commands } => engine::queries::admit(frame, self, commands),
        }
    }

    fn plan<'p>(&'p self, frame: &'p [u8], now: Now) -> engine::Plan<'p> {
        engine::Plan::new(frame, self, now)
    }

    fn max_staleness(&self) -> Option<Duration> {
        reads::max_staleness(self)
    }

    fn version(&self) -> u64 {
        self.hash().0
    }

    fn written(&self) -> Vec<(RuleLabel, WrittenRule)> {
        let label = |rule: &Rule| RuleLabel { name: rule.name.value.clone(), fingerprint: self.rule_fingerprint(rule) };
        self.rules().iter().map(|rule| (label(rule), written(self, rule))).collect()
    }
}

fn written(rules: &RuleSet, rule: &Rule) -> WrittenRule {
    WrittenRule {
        pattern: rule.pattern.name(),
        mode: rule.mode.as_str(),
        namespaces: rule.namespaces.iter().map(|namespace| namespace.value.to_string()).collect(),
        why: rule.why.clone(),
        file: rule.location.file.to_string(),
        line: rule.location.line,
        source: rules.rule_text(rule),
    }
}

impl Steps for engine::Plan<'_> {
    fn next(&mut self, input: Input<'_>, session: &mut Session) -> Step {
        engine::Plan::next(self, input, session)
    }

    fn take_outcomes(&mut self) -> Vec<RuleOutcome> {
        engine::Plan::take_outcomes(self)
    }

    fn must_finish(&self) -> bool {
        engine::Plan::must_finish(self)
    }
}
