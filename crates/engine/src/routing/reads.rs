//! Reads that a `reads` rule sends to secondaries: on a router, if they have no read preference of their own.

use super::destination::{ReadMode, ReadPreference, is_read};
use super::everywhere::is_for_every_member;
use crate::applicable_rules::{Enforcement, enforcement};
use crate::command::Command;
use crate::queries::{reason_to_reject, with_read_preference};
use crate::request_head::RequestHead;
use crate::rules::{RuleSet, reads};
use crate::{ClientState, Triage};

/// A read with the read preference of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreferredRead {
    /// The message with a `$readPreference`, which secondaries require.
    pub message: Vec<u8>,
    pub preference: ReadPreference,
}

/// [`triage`](crate::triage()) for a router: a read that a rule may send to secondaries is evaluated, and what every member
/// gets, because that must wait for the others.
pub fn triage(head: &RequestHead<'_>, rules: &RuleSet) -> Triage {
    match crate::triage(head, rules) {
        Triage::Forward { .. } if may_prefer(head, rules) || is_for_every_member(head) => Triage::Evaluate,
        other => other,
    }
}

fn may_prefer(head: &RequestHead<'_>, rules: &RuleSet) -> bool {
    head.class().is_some_and(is_read)
        && !head.fields().has_autocommit
        && head.fields().read_preference.is_none()
        && head.namespace().is_some_and(|namespace| reads::reads_rule(rules, namespace).is_some())
}

/// Returns the read with the read preference of the rule that applies to it; `None`: it goes where it asks for.
pub fn preferred(frame: &[u8], rules: &RuleSet, client_state: &ClientState) -> Option<PreferredRead> {
    if !may_prefer(&RequestHead::new(frame), rules) {
        return None;
    }
    let command = Command::parse(frame).ok()?;
    // It may read collections without a rule, or write its result.
    if reason_to_reject(&command, rules).is_some() {
        return None;
    }
    let rule = reads::reads_rule(rules, command.collection()?)?;
    if enforcement(rule, client_state) != Some(Enforcement::Enforce) {
        return None;
    }
    let preference = ReadPreference {
        mode: ReadMode::SecondaryPreferred,
        tag_sets: Vec::new(),
        max_staleness: rule.properties.max_staleness,
    };
    Some(PreferredRead { message: with_read_preference(&command), preference })
}
