//! Outcomes of rules for one message, for logs and counters.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::command::Namespace;
use crate::patterns::{NoEffectCause, NoEffectKind, Rejection};
use crate::rules::{Rule, RuleId};
use crate::text::shorten;

/// Bytes of a namespace that are kept and logged; servers since 4.4 accept 255.
const MAX_NAMESPACE_LENGTH: usize = 255;

/// The kinds of outcome of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutcomeKind {
    /// The statement was changed and sent.
    Rewrite,
    /// The statement is not plain for the rule: it was executed in a transaction and compared. If it broke the promise, it was
    /// also rejected.
    Check,
    Reject,
    /// The command is sent, but somebody should look at it.
    Warn,
    /// The stored document has another version than the statement was made for.
    Conflict,
    /// A statement with the rule's condition matched nothing: the condition is not satisfied, or there is no such
    /// document.
    NoMatch,
    /// A statement changed nothing, because what is stored is newer.
    Stale,
    /// The rule could not analyse it and `unsupported: allow` let it pass.
    Allow,
    /// It would have been rewritten, but `except` exempts this client.
    ExceptRewrite,
    ExceptReject,
    /// It would have been checked, but `except` exempts this client.
    ExceptCheck,
    ShadowRewrite,
    ShadowReject,
    /// It would have been checked; the result is not known.
    ShadowCheck,
}

impl OutcomeKind {
    /// The outcomes for clients that `except` exempts.
    pub const EXEMPT: [Self; 3] = [Self::ExceptRewrite, Self::ExceptReject, Self::ExceptCheck];

    /// Returns the outcome of a statement without effect.
    #[must_use]
    pub fn from_no_effect(cause: NoEffectCause) -> Self {
        match cause {
            NoEffectCause::Version => Self::Conflict,
            NoEffectCause::Effect(NoEffectKind::NoMatch) => Self::NoMatch,
            NoEffectCause::Effect(NoEffectKind::Stale) => Self::Stale,
        }
    }

    /// Returns whether the outcome is part of the normal work of rules and needs no attention.
    #[must_use]
    pub fn is_routine(self) -> bool {
        matches!(self, Self::Rewrite | Self::Check | Self::NoMatch | Self::Stale)
    }

    /// Returns whether a statement was rejected or lost a race, or would have been rejected.
    #[must_use]
    pub fn stops(self) -> bool {
        matches!(self, Self::Reject | Self::Conflict | Self::ShadowReject | Self::ExceptReject)
    }

    /// Returns whether the rule only reports what it would have done.
    #[must_use]
    pub fn is_shadow(self) -> bool {
        matches!(self, Self::ShadowRewrite | Self::ShadowReject | Self::ShadowCheck)
    }

    const fn is_rewrite(self) -> bool {
        matches!(self, Self::Rewrite | Self::ExceptRewrite | Self::ShadowRewrite)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rewrite => "rewrite",
            Self::Check => "check",
            Self::Reject => "reject",
            Self::Warn => "warn",
            Self::Conflict => "conflict",
            Self::NoMatch => "no_match",
            Self::Stale => "stale",
            Self::Allow => "allow",
            Self::ExceptRewrite => "except-rewrite",
            Self::ExceptReject => "except-reject",
            Self::ExceptCheck => "except-check",
            Self::ShadowRewrite => "shadow-rewrite",
            Self::ShadowReject => "shadow-reject",
            Self::ShadowCheck => "shadow-check",
        }
    }
}

/// One rule's outcome for a message, summed over the statements it applies to.
#[derive(Debug, Clone)]
pub struct RuleOutcome {
    pub rule: RuleId,
    pub rule_name: Arc<str>,
    pub pattern: &'static str,
    /// "database.collection"
    pub namespace: String,
    pub kind: OutcomeKind,
    /// Why the rule rejected the first of them; how it rewrites.
    pub reason: Cow<'static, str>,
    /// What to do instead; empty for rewrites.
    pub hint: String,
    /// The number of statements.
    pub statements: u64,
    /// As many of them may still get another outcome, because the server has not replied to them yet.
    open: u64,
}

impl RuleOutcome {
    fn is_rewrite_by(&self, rule: &Rule) -> bool {
        self.rule == rule.id && self.kind == OutcomeKind::Rewrite
    }
}

/// The outcomes of one message, one entry for each rule and kind.
#[derive(Debug, Default)]
pub(super) struct RuleOutcomes {
    list: Vec<RuleOutcome>,
    /// Options added to commands are included.
    includes_routine: bool,
}

impl RuleOutcomes {
    pub(super) fn add(
        &mut self,
        rule: &Rule,
        namespace: Namespace<'_>,
        kind: OutcomeKind,
        rejection: Option<&Rejection>,
    ) {
        let text = rejection.map_or(("", ""), |rejection| (rejection.reason.as_str(), rejection.hint.as_str()));
        self.add_several(rule, namespace, kind, text, 1);
    }

    /// Adds several statements; `text` is the reason and the hint.
    fn add_several(
        &mut self,
        rule: &Rule,
        namespace: Namespace<'_>,
        kind: OutcomeKind,
        (reason, hint): (&str, &str),
        statements: u64,
    ) {
        match self.list.iter_mut().find(|known| known.rule == rule.id && known.kind == kind) {
            Some(known) => known.statements += statements,
            None => {
                if self.list.capacity() == 0 {
                    // Most messages have the outcome of one rule.
                    self.list = Vec::with_capacity(1);
                }
                let mut name = namespace.full_name();
                shorten(&mut name, MAX_NAMESPACE_LENGTH);
                self.list.push(RuleOutcome {
                    rule: rule.id,
                    rule_name: rule.name.value.clone(),
                    pattern: rule.pattern.name(),
                    namespace: name,
                    kind,
                    reason: match kind.is_rewrite() {
                        true => Cow::Borrowed(rule.properties.rewriting),
                        false => Cow::Owned(reason.to_owned()),
                    },
                    hint: hint.to_owned(),
                    statements,
                    open: 0,
                });
            }
        }
    }

    /// The last rewrite that was added for this rule may still get another outcome.
    pub(super) fn keep_open(&mut self, rule: &Rule) {
        if let Some(rewrite) = self.list.iter_mut().find(|known| known.is_rewrite_by(rule)) {
            rewrite.open += 1;
        }
    }

    /// Adds the final outcome of statements. It replaces their rewrites, if they are `rewritten` ones that were kept
    /// open.
    pub(super) fn settle(
        &mut self,
        rule: &Rule,
        namespace: Namespace<'_>,
        kind: OutcomeKind,
        text: (&str, &str),
        (statements, rewritten): (u64, bool),
    ) {
        let at = self.list.iter().position(|known| known.is_rewrite_by(rule) && known.open > 0).filter(|_| rewritten);
        if let Some((at, rewrite)) = at.and_then(|at| Some((at, self.list.get_mut(at)?))) {
            let settled = statements.min(rewrite.open);
            rewrite.open -= settled;
            rewrite.statements -= settled;
            if rewrite.statements == 0 {
                self.list.remove(at);
            }
        }
        self.add_several(rule, namespace, kind, text, statements);
    }

    /// Adds an option that a rule added to a command. These are too frequent to count, so only a dry run includes them.
    pub(super) fn add_routine(&mut self, rule: &Rule, namespace: Namespace<'_>) {
        if self.includes_routine {
            self.add(rule, namespace, OutcomeKind::Rewrite, None);
        }
    }

    pub(super) fn include_routine(&mut self) {
        self.includes_routine = true;
    }

    pub(super) fn take(&mut self) -> Vec<RuleOutcome> {
        std::mem::take(&mut self.list)
    }

    /// Takes the outcomes that are final.
    pub(super) fn take_final(&mut self) -> Vec<RuleOutcome> {
        if self.list.iter().all(|outcome| outcome.open == 0) {
            return self.take();
        }
        self.list.extract_if(.., |outcome| outcome.open == 0).collect()
    }
}

/// Adds the outcomes of one statement to those of its message. A rule may evaluate a statement more than once, because other
/// rules have changed it; an outcome of the same kind counts once.
#[derive(Debug)]
pub(super) struct StatementOutcomes<'o> {
    pub(super) message: &'o mut RuleOutcomes,
    noted: SmallVec<[(RuleId, OutcomeKind); 2]>,
}

impl<'o> StatementOutcomes<'o> {
    pub(super) fn new(message: &'o mut RuleOutcomes) -> Self {
        Self { message, noted: SmallVec::new() }
    }

    pub(super) fn add(
        &mut self,
        rule: &Rule,
        namespace: Namespace<'_>,
        kind: OutcomeKind,
        rejection: Option<&Rejection>,
    ) {
        if !self.noted.contains(&(rule.id, kind)) {
            self.noted.push((rule.id, kind));
            self.message.add(rule, namespace, kind, rejection);
        }
    }
}
