//! The relay's interface to the engine, as two traits. The relay's state machine is tested with a scripted
//! implementation and runs with [`RuleSet`]. The relay must not know what a rule is.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine::routing::PreferredRead;
use crate::engine::{
    self, ClientState, Input, ListenerKind, Now, OutcomeKind, QueryAdmission, RequestHead, RuleOutcome, Step, Triage,
};
use crate::rules::{ClientNames, ModeOverride, Rule, RuleSet, reads};

/// Evaluates a client's messages.
pub trait Interceptor: Send + Sync + 'static {
    /// The steps that carry out one evaluated message.
    type Plan<'p>: Steps + Send
    where
        Self: 'p;

    /// See [`engine::triage`], [`engine::queries::triage`] and [`engine::routing::triage`].
    fn triage(&self, head: &RequestHead<'_>, listener_kind: &ListenerKind) -> Triage;

    /// Whether this kind of listener accepts a message; see [`engine::queries::admit`].
    fn admit(&self, frame: &[u8], listener_kind: &ListenerKind) -> QueryAdmission;

    /// See [`engine::routing::preferred`].
    fn preferred(&self, frame: &[u8], client_state: &ClientState) -> Option<PreferredRead>;

    fn plan<'p>(&'p self, frame: &'p [u8], now: Now) -> Self::Plan<'p>;

    /// See [`engine::explain_validators`].
    fn explain_validators(&self, reply: &[u8]) -> Option<Vec<u8>> {
        let _ = reply;
        None
    }

    /// The largest staleness of a server that answers queries; `None`: unlimited.
    fn max_staleness(&self) -> Option<Duration>;

    /// Identifies the rule set.
    fn version(&self) -> u64 {
        0
    }

    /// The rules in order, for counters that outlive the rule set.
    fn written(&self) -> Vec<(RuleLabel, WrittenRule)> {
        Vec::new()
    }

    /// The names of the rules whose commands need a permit.
    fn rules_with_permits(&self) -> Vec<&str> {
        Vec::new()
    }
}

/// Identifies a rule and its version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RuleLabel {
    pub name: String,
    /// Hash of its text, see [`RuleSet::rule_fingerprint`](crate::rules::RuleSet::rule_fingerprint).
    pub fingerprint: u64,
}

/// A rule as written in its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WrittenRule {
    pub pattern: &'static str,
    /// The outcomes other than "reject" and "rewrite" that it can have if it is enforced.
    #[serde(skip)]
    pub other_outcomes: Vec<&'static str>,
    /// "enforce", "shadow", "disabled": the mode that applies, see [`Rule::mode`].
    pub mode: &'static str,
    /// The mode in the rule file, if another one applies.
    #[serde(rename = "override")]
    pub mode_override: Option<OverriddenMode>,
    pub namespaces: Vec<String>,
    pub why: Option<String>,
    pub file: String,
    /// From 1.
    pub line: u32,
    /// The rule's lines in its file.
    pub source: String,
}

/// Another mode than the one in the rule file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverriddenMode {
    pub mode: Cow<'static, str>,
    /// The clients that have it; empty: all.
    pub only: ClientNames,
    /// The mode in the rule file.
    pub file_mode: Cow<'static, str>,
    /// Milliseconds since 1970 UTC.
    pub until: u64,
    pub reason: String,
    pub by: String,
    /// Whether all docward processes of the deployment use it, or only this one.
    pub shared: bool,
}

/// See [`engine::Plan`].
pub trait Steps {
    fn next(&mut self, input: Input, client_state: &mut ClientState) -> Step;

    fn take_outcomes(&mut self) -> Vec<RuleOutcome>;

    /// See [`engine::Plan::take_rest`].
    fn take_rest(&mut self) -> Vec<RuleOutcome>;

    /// See [`engine::Plan::must_finish`].
    fn must_finish(&self) -> bool;
}

impl Interceptor for RuleSet {
    type Plan<'p> = engine::Plan<'p>;

    fn triage(&self, head: &RequestHead<'_>, listener_kind: &ListenerKind) -> Triage {
        match listener_kind {
            ListenerKind::Commands => engine::triage(head, self),
            ListenerKind::Queries { .. } => engine::queries::triage(head, self),
            ListenerKind::Router => engine::routing::triage(head, self),
        }
    }

    fn admit(&self, frame: &[u8], listener_kind: &ListenerKind) -> QueryAdmission {
        match listener_kind {
            ListenerKind::Commands | ListenerKind::Router => QueryAdmission::Original,
            ListenerKind::Queries { commands } => engine::queries::admit(frame, self, commands),
        }
    }

    fn preferred(&self, frame: &[u8], client_state: &ClientState) -> Option<PreferredRead> {
        match client_state.listener_kind {
            ListenerKind::Router => engine::routing::preferred(frame, self, client_state),
            ListenerKind::Commands | ListenerKind::Queries { .. } => None,
        }
    }

    fn plan<'p>(&'p self, frame: &'p [u8], now: Now) -> engine::Plan<'p> {
        engine::Plan::new(frame, self, now)
    }

    fn explain_validators(&self, reply: &[u8]) -> Option<Vec<u8>> {
        engine::explain_validators(reply, self)
    }

    fn max_staleness(&self) -> Option<Duration> {
        reads::max_staleness(self)
    }

    fn version(&self) -> u64 {
        RuleSet::version(self)
    }

    fn written(&self) -> Vec<(RuleLabel, WrittenRule)> {
        let label =
            |rule: &Rule| RuleLabel { name: rule.name.value.to_string(), fingerprint: self.rule_fingerprint(rule) };
        self.rules().iter().map(|rule| (label(rule), written(self, rule))).collect()
    }

    fn rules_with_permits(&self) -> Vec<&str> {
        RuleSet::rules_with_permits(self).map(|rule| &*rule.name.value).collect()
    }
}

fn written(rules: &RuleSet, rule: &Rule) -> WrittenRule {
    let without_effect = rule.properties.no_effect_causes.iter().map(|cause| OutcomeKind::from_no_effect(*cause));
    let exempt: &[OutcomeKind] = if rule.except.is_empty() { &[] } else { &OutcomeKind::EXEMPT };
    WrittenRule {
        pattern: rule.pattern.name(),
        other_outcomes: without_effect.chain(exempt.iter().copied()).map(OutcomeKind::as_str).collect(),
        mode: rule.mode.as_str(),
        mode_override: OverriddenMode::of_rule(rule),
        namespaces: rule.namespaces.iter().map(|namespace| namespace.value.to_string()).collect(),
        why: rule.why.clone(),
        file: rule.location.file.to_string(),
        line: rule.location.line,
        source: rules.rule_text(rule),
    }
}

impl OverriddenMode {
    /// The override of a rule, if there is one.
    #[must_use]
    pub fn of_rule(rule: &Rule) -> Option<Self> {
        Some(Self::new(rule.mode_override.as_deref()?, rule.file_mode.as_str()))
    }

    /// An override of the mode of a rule that has `file_mode` in its file.
    #[must_use]
    pub fn new(found: &ModeOverride, file_mode: &'static str) -> Self {
        let ModeOverride { mode, only, until, reason, by, shared } = found.clone();
        Self { mode: mode.as_str().into(), only: only.names(), file_mode: file_mode.into(), until, reason, by, shared }
    }
}

impl Steps for engine::Plan<'_> {
    fn next(&mut self, input: Input, client_state: &mut ClientState) -> Step {
        engine::Plan::next(self, input, client_state)
    }

    fn take_outcomes(&mut self) -> Vec<RuleOutcome> {
        engine::Plan::take_outcomes(self)
    }

    fn take_rest(&mut self) -> Vec<RuleOutcome> {
        engine::Plan::take_rest(self)
    }

    fn must_finish(&self) -> bool {
        engine::Plan::must_finish(self)
    }
}
