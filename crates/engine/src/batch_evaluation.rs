//! Evaluates the statements of a batch in turns, so that a long batch does not hold its thread.

use std::sync::Arc;

use smallvec::SmallVec;

use super::Now;
use super::applicable_rules::{ApplicableRules, enforced};
use super::evaluation::Evaluated;
use super::merge::MAX_ERROR_BYTES;
use super::outcome::RuleOutcomes;
use crate::command::{Statement, WriteBatch};
use crate::document::Path;
use crate::patterns::{Context, Rejection};
use crate::rules::Rule;

/// Statements, and bytes of them, that are evaluated before yielding to other connections: some hundred microseconds
/// of work.
const TURN: usize = 100;
const TURN_BYTES: usize = 128 * 1024;
/// Bytes of different texts of rejections that are kept for one message. The reply has no room for more.
const MAX_REJECTION_TEXT: usize = MAX_ERROR_BYTES;

/// The evaluation of a batch, in groups of statements.
#[derive(Debug)]
pub(super) struct BatchEvaluation<'r, 'a> {
    applicable_rules_of: SmallVec<[ApplicableRules<'r>; 1]>,
    compared: SmallVec<[ComparedFields<'r>; 1]>,
    /// In reverse order, so that the memory of those that are done can be returned.
    rest: Vec<Statement<'a>>,
    evaluated: Vec<Evaluated<'r, 'a>>,
    rejection_texts: RejectionTexts,
    /// The batch ends at the first rejection, so later statements are not evaluated.
    stops_on_rejection: bool,
}

impl<'r, 'a> BatchEvaluation<'r, 'a> {
    /// Takes the statements out of `batch`. `applicable_rules_of` holds the rules of its namespaces, in the same
    /// order.
    pub(super) fn new(
        batch: &mut WriteBatch<'a>,
        applicable_rules_of: SmallVec<[ApplicableRules<'r>; 1]>,
        stops_on_rejection: bool,
    ) -> Self {
        let mut rest = std::mem::take(&mut batch.statements);
        rest.reverse();
        let evaluated = Vec::with_capacity(rest.len());
        let compared = applicable_rules_of.iter().map(ComparedFields::of_several).collect();
        Self {
            applicable_rules_of,
            compared,
            rest,
            evaluated,
            rejection_texts: RejectionTexts::default(),
            stops_on_rejection,
        }
    }

    /// Evaluates the next statements of `batch`; returns false when more are left.
    pub(super) fn take_turn(&mut self, batch: &WriteBatch<'a>, now: Now, outcomes: &mut RuleOutcomes) -> bool {
        let (none, nothing) = (ApplicableRules::new(), ComparedFields::default());
        let mut bytes = 0;
        for _ in 0..TURN {
            let Some(statement) = self.rest.pop() else { break };
            bytes += statement.source_length();
            let applicable_rules = self.applicable_rules_of.get(statement.namespace).unwrap_or(&none);
            let compared = self.compared.get(statement.namespace).unwrap_or(&nothing);
            let context = compared.context(now, batch, &statement);
            self.evaluated.push(Evaluated::new(statement));
            let Some(evaluated) = self.evaluated.last_mut() else { break };
            evaluated.evaluate(applicable_rules, &context, outcomes);
            self.rejection_texts.share(evaluated);
            if evaluated.rejected.is_some() && self.stops_on_rejection {
                return true;
            }
            if bytes >= TURN_BYTES {
                break;
            }
        }
        if self.rest.len() < self.rest.capacity() / 2 {
            self.rest.shrink_to_fit();
        }
        self.rest.is_empty()
    }

    /// Returns the evaluated statements.
    pub(super) fn into_evaluated(self) -> Vec<Evaluated<'r, 'a>> {
        self.evaluated
    }
}

/// The texts of rejections in a batch.
#[derive(Debug, Default)]
struct RejectionTexts {
    last: Option<Arc<Rejection>>,
    /// Bytes of the different ones so far.
    length: usize,
}

impl RejectionTexts {
    /// Replaces a rejection by the last one if that is the same, or if no more texts are kept.
    fn share(&mut self, evaluated: &mut Evaluated<'_, '_>) {
        let rejected = evaluated.rejected.iter_mut().chain(evaluated.rejected_later.as_deref_mut());
        let rejections = rejected.map(|rejected| &mut rejected.rejection);
        for rejection in rejections.chain(evaluated.prerequisites.rejections()) {
            let is_full = self.length > MAX_REJECTION_TEXT;
            let shared = |last: &&Arc<Rejection>| *last == rejection || is_full && last.code == rejection.code;
            match self.last.as_ref().filter(shared) {
                Some(last) => *rejection = last.clone(),
                None => {
                    self.length += rejection.reason.len() + rejection.hint.len();
                    self.last = Some(rejection.clone());
                }
            }
        }
    }
}

/// The fields that rules on a namespace compare.
#[derive(Debug, Default)]
pub(super) struct ComparedFields<'r> {
    /// Clients' filters compare them to check that a document is unchanged since it was read.
    versions: SmallVec<[&'r Path; 1]>,
    deciding: SmallVec<[&'r Path; 3]>,
}

impl<'r> ComparedFields<'r> {
    /// A rule looks only at those of others, so one rule alone needs none. A rule in shadow mode looks at them too.
    fn of_several(applicable_rules: &ApplicableRules<'r>) -> Self {
        match applicable_rules.len() {
            ..2 => Self::default(),
            _ => Self::new(enforced(applicable_rules)),
        }
    }

    pub(super) fn new(enforced: impl Iterator<Item = &'r Rule>) -> Self {
        let mut compared = Self::default();
        for rule in enforced {
            compared.versions.extend(&rule.properties.version);
            compared.deciding.extend(&rule.properties.deciding_fields);
        }
        compared
    }

    /// Returns what the rules look at besides a statement of the batch.
    pub(super) fn context<'c, 'a: 'c>(
        &'c self,
        now: Now,
        batch: &WriteBatch<'a>,
        statement: &Statement<'_>,
    ) -> Context<'c> {
        Context {
            now: now.milliseconds,
            comment: batch.comment,
            variables: batch.variables,
            namespace: batch.namespace(statement),
            versions: &self.versions,
            deciding: &self.deciding,
        }
    }
}
