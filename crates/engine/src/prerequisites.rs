//! What rules require before a statement can be sent. `batch.rs` carries it out: numbers of counters before the first
//! command, the check that nothing matches and maxima before the statement's group, a procedure instead of its
//! command, and the type of a stored value after the server's error.
//!
//! Only a procedure is a transaction. If each insert took its number in one, writers would conflict on the counter: 184
//! inserts a second instead of 2,036 with reserved blocks (8 writers, one member, two cores).

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;

use super::rejection_text::RejectedBy;
use crate::command::Statement;
use crate::patterns::numbering::{Numbering, Strategy};
use crate::patterns::procedure::Procedure;
use crate::patterns::{Prerequisite, Rejection};
use crate::rules::Rule;

/// The prerequisites of one statement, in the order in which rules named them. A rule has at most one of each kind.
#[derive(Debug, Default)]
pub(super) struct Prerequisites<'r>(SmallVec<[Needed<'r>; 1]>);

#[derive(Debug)]
struct Needed<'r> {
    rule: &'r Rule,
    prerequisite: Prerequisite,
}

/// A rule that assigns numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct NumberRule<'r> {
    pub(super) rule: &'r Rule,
    pub(super) numbers: &'r dyn Numbering,
}

impl<'r> NumberRule<'r> {
    pub(super) fn new(rule: &'r Rule) -> Option<Self> {
        rule.pattern.numbering().map(|numbers| Self { rule, numbers })
    }

    /// Returns the statement with this number.
    pub(super) fn with_number<'a>(&self, statement: &Statement<'a>, number: i64) -> Statement<'a> {
        statement.with(self.numbers.assign(&statement.operation, number))
    }

    pub(super) fn uses_counter(&self) -> bool {
        self.numbers.strategy() == Strategy::Counter
    }
}

/// Returns the statement with the numbers of these rules.
pub(super) fn with_numbers<'s, 'r, 'a>(
    statement: Cow<'s, Statement<'a>>,
    numbers: impl IntoIterator<Item = (NumberRule<'r>, i64)>,
) -> Cow<'s, Statement<'a>> {
    numbers.into_iter().fold(statement, |statement, (rule, number)| Cow::Owned(rule.with_number(&statement, number)))
}

impl<'r> Prerequisites<'r> {
    /// Adds a prerequisite of a rule, which replaces the rule's last one of this kind.
    pub(super) fn add(&mut self, rule: &'r Rule, prerequisite: Prerequisite) {
        let kind = std::mem::discriminant(&prerequisite);
        let is_same =
            |known: &&mut Needed<'r>| known.rule.id == rule.id && std::mem::discriminant(&known.prerequisite) == kind;
        match self.0.iter_mut().find(is_same) {
            Some(known) => known.prerequisite = prerequisite,
            None => self.0.push(Needed { rule, prerequisite }),
        }
    }

    pub(super) fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The rules that assign a number to the statement.
    pub(super) fn numbers(&self) -> impl Iterator<Item = NumberRule<'r>> {
        self.0.iter().filter_map(|one| match one.prerequisite {
            Prerequisite::Number => NumberRule::new(one.rule),
            _ => None,
        })
    }

    /// The same rules, and those that reserve one for the document that it may insert.
    pub(super) fn all_numbers(&self) -> impl Iterator<Item = NumberRule<'r>> {
        self.0.iter().filter_map(|one| match one.prerequisite {
            Prerequisite::Number | Prerequisite::ReservedNumber => NumberRule::new(one.rule),
            _ => None,
        })
    }

    pub(super) fn assigns_number(&self) -> bool {
        self.0.iter().any(|one| matches!(one.prerequisite, Prerequisite::Number))
    }

    /// The rules that must not assign the numbers that the statement contains to others.
    pub(super) fn provided_numbers(&self) -> impl Iterator<Item = NumberRule<'r>> {
        self.0.iter().filter_map(|one| match one.prerequisite {
            Prerequisite::ProvidedNumbers => NumberRule::new(one.rule),
            _ => None,
        })
    }

    /// Whether a rule assigns or observes numbers.
    pub(super) fn has_numbers(&self) -> bool {
        self.all_numbers().chain(self.provided_numbers()).next().is_some()
    }

    /// The rule that increments a stored value whose type is unknown.
    pub(super) fn increment(&self) -> Option<&'r Rule> {
        let is_increment = |one: &&Needed<'r>| matches!(one.prerequisite, Prerequisite::Incrementable);
        self.0.iter().rfind(is_increment).map(|one| one.rule)
    }

    /// Removes the prerequisite of [`Self::increment`].
    pub(super) fn drop_increment(&mut self) {
        self.0.retain(|one| !matches!(one.prerequisite, Prerequisite::Incrementable));
    }

    /// The rejection of the statement if its filter matches a document.
    pub(super) fn only_new(&self) -> Option<RejectedBy<'r>> {
        self.0.iter().rev().find_map(|one| match &one.prerequisite {
            Prerequisite::NoMatch(rejection) => {
                Some(RejectedBy { rule: one.rule, rejection: rejection.clone(), room_in: None })
            }
            _ => None,
        })
    }

    pub(super) fn is_only_new(&self) -> bool {
        self.0.iter().any(|one| matches!(one.prerequisite, Prerequisite::NoMatch(_)))
    }

    /// The texts of possible rejections, which are shared between statements.
    pub(super) fn rejections(&mut self) -> impl Iterator<Item = &mut Arc<Rejection>> {
        self.0.iter_mut().filter_map(|one| match &mut one.prerequisite {
            Prerequisite::NoMatch(rejection) => Some(rejection),
            _ => None,
        })
    }

    /// The procedures that the statement needs.
    pub(super) fn procedures(&self) -> impl DoubleEndedIterator<Item = (&'r Rule, &Arc<dyn Procedure>)> {
        self.0.iter().filter_map(|one| match &one.prerequisite {
            Prerequisite::Procedure(procedure) => Some((one.rule, procedure)),
            _ => None,
        })
    }

    pub(super) fn has_procedure(&self) -> bool {
        self.procedures().next().is_some()
    }
}
