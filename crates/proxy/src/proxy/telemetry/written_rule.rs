//! Rules as their files have them, for reports that outlive a rule set.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::engine::OutcomeKind;
use crate::rules::{ClientNames, ModeOverride, Rule, RuleSet};

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

impl RuleLabel {
    pub(super) fn new(rules: &RuleSet, rule: &Rule) -> Self {
        Self { name: rule.name.value.to_string(), fingerprint: rules.rule_fingerprint(rule) }
    }
}

impl WrittenRule {
    pub(super) fn new(rules: &RuleSet, rule: &Rule) -> Self {
        let without_effect = rule.properties.no_effect_causes.iter().map(|cause| OutcomeKind::from_no_effect(*cause));
        let exempt: &[OutcomeKind] = if rule.except.is_empty() { &[] } else { &OutcomeKind::EXEMPT };
        Self {
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
