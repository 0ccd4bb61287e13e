//! Outcomes of rules for one message, for logs and counters.

use crate::command::Namespace;
use crate::patterns::Rejection;
use crate::rules::{Rule, RuleId};
use crate::text::shorten;

/// Bytes of a namespace that are kept and logged; servers since 4.4 accept 255.
const MAX_NAMESPACE_LENGTH: usize = 255;

/// The kinds of outcome of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutcomeKind {
    /// The statement was changed and sent.
    Rewrite,
    Reject,
    /// The command is sent, but somebody should look at it.
    Warn,
    /// A checked statement matched nothing.
    Conflict,
    /// The rule could not analyse it and `unsupported: allow` let it pass.
    Allow,
    /// It would have been rewritten, but `except` exempts this client.
    ExceptRewrite,
    ExceptReject,
    ShadowRewrite,
    ShadowReject,
}

impl OutcomeKind {
    /// Returns whether the outcome needs no attention. Only rewrites are routine.
    #[must_use]
    pub fn is_routine(self) -> bool {
        self == Self::Rewrite
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rewrite => "rewrite",
            Self::Reject => "reject",
            Self::Warn => "warn",
            Self::Conflict => "conflict",
            Self::Allow => "allow",
            Self::ExceptRewrite => "except-rewrite",
            Self::ExceptReject => "except-reject",
            Self::ShadowRewrite => "shadow-rewrite",
            Self::ShadowReject => "shadow-reject",
        }
    }
}

/// One rule's outcome for a message, summed over the statements it applies to.
#[derive(Debug, Clone)]
pub struct RuleOutcome {
    pub rule: RuleId,
    pub rule_name: String,
    pub pattern: &'static str,
    /// "database.collection"
    pub namespace: String,
    pub kind: OutcomeKind,
    /// Why the rule rejected the first of them; empty for rewrites.
    pub reason: String,
    /// What to do instead; empty for rewrites.
    pub hint: String,
    /// The number of statements.
    pub statements: u64,
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
        let text = |of: fn(&Rejection) -> &String| rejection.map(of).cloned().unwrap_or_default();
        match self.list.iter_mut().find(|known| known.rule == rule.id && known.kind == kind) {
            Some(known) => known.statements += 1,
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
                    reason: text(|rejection| &rejection.reason),
                    hint: text(|rejection| &rejection.hint),
                    statements: 1,
                });
            }
        }
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
}
