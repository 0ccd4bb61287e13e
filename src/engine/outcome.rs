//! What rules said about a message, for logs and counters.

use crate::command::{Namespace, shorten};
use crate::patterns::{Rejection, Rule};
use crate::rules::RuleId;

/// Bytes of a namespace that are remembered and logged; servers since 4.4 take 255.
const MAX_NAMESPACE_LENGTH: usize = 255;

/// The kinds of things a rule can say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutcomeKind {
    /// The statement went on changed.
    Rewrite,
    Reject,
    /// It passes, but somebody should look at it.
    Warn,
    /// A protected statement matched nothing.
    Conflict,
    /// It could not be analysed, and `unsupported: allow` let it pass.
    Allow,
    /// It would have been rewritten, but `except` leaves this client alone.
    ExceptRewrite,
    ExceptReject,
    ShadowRewrite,
    ShadowReject,
}

impl OutcomeKind {
    /// What rules do all day; whatever else they say, an application or a DBA has to look at.
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

/// One rule's word on a message, however many of its statements it concerned.
#[derive(Debug, Clone)]
pub struct RuleOutcome {
    pub rule: RuleId,
    pub rule_name: String,
    pub pattern: &'static str,
    /// "database.collection"
    pub namespace: String,
    pub said: OutcomeKind,
    /// Why it rejected the first of them; empty for rewrites.
    pub reason: String,
    /// What to do instead; empty for rewrites.
    pub hint: String,
    /// How many statements.
    pub statements: u64,
}

/// RuleOutcomes of one message, one entry for each rule and word.
#[derive(Debug, Default)]
pub(super) struct RuleOutcomes {
    list: Vec<RuleOutcome>,
    /// Routine is noted too.
    thorough: bool,
}

impl RuleOutcomes {
    pub(super) fn note(
        &mut self,
        rule: &Rule,
        namespace: Namespace<'_>,
        said: OutcomeKind,
        rejection: Option<&Rejection>,
    ) {
        let text = |of: fn(&Rejection) -> &String| rejection.map(of).cloned().unwrap_or_default();
        match self.list.iter_mut().find(|seen| seen.rule == rule.id && seen.said == said) {
            Some(seen) => seen.statements += 1,
            None => {
                if self.list.capacity() == 0 {
                    // Most messages are one rule's.
                    self.list = Vec::with_capacity(1);
                }
                let mut name = namespace.full_name();
                shorten(&mut name, MAX_NAMESPACE_LENGTH);
                self.list.push(RuleOutcome {
                    rule: rule.id,
                    rule_name: rule.name.value.clone(),
                    pattern: rule.pattern.name(),
                    namespace: name,
                    said,
                    reason: text(|rejection| &rejection.reason),
                    hint: text(|rejection| &rejection.hint),
                    statements: 1,
                });
            }
        }
    }

    /// Options added to a command: too many to count as news, unless somebody asks about this one command.
    pub(super) fn note_routine(&mut self, rule: &Rule, namespace: Namespace<'_>) {
        if self.thorough {
            self.note(rule, namespace, OutcomeKind::Rewrite, None);
        }
    }

    pub(super) fn be_thorough(&mut self) {
        self.thorough = true;
    }

    pub(super) fn take(&mut self) -> Vec<RuleOutcome> {
        std::mem::take(&mut self.list)
    }
}
