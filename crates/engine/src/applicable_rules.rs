//! The rules that apply to a client on a namespace, and whether they are enforced for it.

use smallvec::SmallVec;

use super::ClientState;
use super::outcome::OutcomeKind;
use crate::command::Namespace;
use crate::patterns::AnyPattern;
use crate::rules::{Mode, Rule, RuleSet};

/// How a rule applies to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Enforcement {
    Enforce,
    Shadow,
    Except,
}

impl Enforcement {
    /// The outcome kind of a rejection under this enforcement.
    pub(super) fn rejects(self) -> OutcomeKind {
        match self {
            Self::Enforce => OutcomeKind::Reject,
            Self::Shadow => OutcomeKind::ShadowReject,
            Self::Except => OutcomeKind::ExceptReject,
        }
    }

    /// The outcome kind of a rewrite under this enforcement.
    pub(super) fn rewrites(self) -> OutcomeKind {
        match self {
            Self::Enforce => OutcomeKind::Rewrite,
            Self::Shadow => OutcomeKind::ShadowRewrite,
            Self::Except => OutcomeKind::ExceptRewrite,
        }
    }

    /// The outcome kind of a checked statement under this enforcement.
    pub(super) fn checks(self) -> OutcomeKind {
        match self {
            Self::Enforce => OutcomeKind::Check,
            Self::Shadow => OutcomeKind::ShadowCheck,
            Self::Except => OutcomeKind::ExceptCheck,
        }
    }
}

/// A namespace's rules with their enforcement for one client, in evaluation order.
pub(super) type ApplicableRules<'r> = SmallVec<[(&'r Rule, Enforcement); 4]>;

/// Returns the rules that apply to a namespace.
pub(super) fn applicable_rules<'r>(
    rules: &'r RuleSet,
    namespace: Namespace<'_>,
    client_state: &ClientState,
) -> ApplicableRules<'r> {
    let Some(found) = rules.rules_for(namespace.database, namespace.collection) else { return ApplicableRules::new() };
    let mut applicable_rules = ApplicableRules::new();
    for rule in found.iter() {
        applicable_rules.extend(enforcement(rule, client_state).map(|enforcement| (rule, enforcement)));
    }
    applicable_rules
}

/// Returns the rules that are enforced.
pub(super) fn enforced<'r>(applicable_rules: &ApplicableRules<'r>) -> impl Iterator<Item = &'r Rule> {
    let enforced = applicable_rules.iter().filter(|(_, enforcement)| *enforcement == Enforcement::Enforce);
    enforced.map(|(rule, _)| *rule)
}

/// Whether the enforcement of a rule depends on the client's users, which are not known yet.
pub(super) fn asks_for_users(applicable_rules: &ApplicableRules<'_>, client_state: &ClientState) -> bool {
    client_state.users.is_none() && applicable_rules.iter().any(|(rule, _)| rule.names_users())
}

/// Returns how a rule applies to a client; `None`: it does not.
pub(super) fn enforcement(rule: &Rule, client_state: &ClientState) -> Option<Enforcement> {
    let (app, users) = (client_state.app_name(), client_state.users.as_deref());
    if !rule.applies_to(app, users) {
        return None;
    }
    Some(match rule.mode_for(app, users) {
        Mode::Disabled => return None,
        Mode::Shadow => Enforcement::Shadow,
        Mode::Enforce if rule.except.covers(app, users.unwrap_or_default()) => Enforcement::Except,
        Mode::Enforce => Enforcement::Enforce,
    })
}

/// Returns whether this holds for one of the rule's namespaces. Patterns compare names, so a glob itself stands for every
/// name that it matches.
pub(super) fn on_any(rule: &Rule, holds: impl Fn(&AnyPattern, Namespace<'_>) -> bool) -> bool {
    rule.namespaces.iter().any(|namespace| {
        let (database, collection) = (namespace.value.database().as_str(), namespace.value.collection().as_str());
        holds(&rule.pattern, Namespace { database, collection })
    })
}
