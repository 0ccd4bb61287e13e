//! Numbers for the statements of a batch: leases before the first command, maxima for each run.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::super::allocation;
use super::super::evaluation::{Evaluated, RejectedBy};
use super::super::lookup::{Lookup, LookupError, LookupResult, Maximum};
use super::super::outcome::{OutcomeKind, RuleOutcomes};
use super::super::plan::Step;
use super::super::privileges::{PrivilegeCheck, Privileges, WriteKind};
use super::run::{DuplicateNumber, Run};
use super::{Awaiting, BatchJob, CounterDemand, Flow, close};
use crate::command::Statement;
use crate::document::Document;
use crate::patterns::sequence::{ProvidedNumbers, Strategy};
use crate::patterns::{Pattern, Rejection, Rule};

/// The maximum number of attempts of an optimistic sequence for one statement.
const MAX_ATTEMPTS: u32 = 1000;

impl<'f> BatchJob<'f> {
    /// Returns the numbers that the statements need from each counter, and those they already contain. Skips
    /// statements that are not sent.
    pub(super) fn collect_leases(&self) -> VecDeque<CounterDemand<'f>> {
        let mut leases = VecDeque::new();
        for index in self.sendable() {
            let Some(evaluated) = self.evaluated.get(index) else { continue };
            let namespace = evaluated.statement.namespace;
            for rule in evaluated.sequences.iter().filter(|rule| strategy(rule) == Some(Strategy::Counter)) {
                demand_of(&mut leases, rule, namespace).statements.push(index);
            }
            for rule in evaluated.brings_number.iter().filter(|rule| strategy(rule) == Some(Strategy::Counter)) {
                let brought = brought(rule, &evaluated.statement);
                if !brought.is_empty() {
                    demand_of(&mut leases, rule, namespace).brought.extend(brought);
                }
            }
        }
        leases
    }

    /// Returns a check of the client's privileges if docward would request numbers as its own user and does not know
    /// whether the client may write them.
    pub(in crate::engine) fn unknown_access(&self, privileges: &Privileges) -> Option<(PrivilegeCheck, Vec<u8>)> {
        let mut known = None;
        for index in self.sendable() {
            let Some(evaluated) = self.evaluated.get(index) else { continue };
            let namespace = evaluated.statement.namespace;
            let kind = WriteKind::of(&evaluated.statement);
            // Most statements need the same access as the previous one.
            if known == Some((namespace, kind)) || !self.looks_up(evaluated) {
                continue;
            }
            let access = self.batch.namespace(&evaluated.statement);
            if !privileges.covers(access, kind) {
                return Some(PrivilegeCheck::about(access, kind, &self.command));
            }
            known = Some((namespace, kind));
        }
        None
    }

    /// Whether the statement needs a lookup under docward's own user.
    fn looks_up(&self, evaluated: &Evaluated<'f, 'f>) -> bool {
        let is_counted = |rule: &Rule| strategy(rule) == Some(Strategy::Counter);
        let in_transaction = self.command.session().in_transaction;
        evaluated.sequences.iter().any(|rule| is_counted(rule) || !in_transaction)
            || evaluated
                .brings_number
                .iter()
                .any(|rule| is_counted(rule) && !brought(rule, &evaluated.statement).is_empty())
    }

    pub(super) fn take_lease(&mut self, found: Result<LookupResult, LookupError>, outcomes: &mut RuleOutcomes) -> Flow {
        let Some(CounterDemand { rule, statements, .. }) = self.leases.pop_front() else { return Flow::Continue(()) };
        match found {
            Ok(LookupResult::Numbers(numbers)) if numbers.len() == statements.len() => {
                for (index, number) in statements.into_iter().zip(numbers) {
                    self.assign(index, rule, number);
                    let Some(evaluated) = self.evaluated.get_mut(index) else { continue };
                    evaluated.check_number(self.batch.namespace(&evaluated.statement), outcomes);
                }
                Flow::Continue(())
            }
            Ok(_) => close("internal error: unexpected answer to a lease"),
            Err(LookupError::Unavailable(text)) => Flow::Break(Step::Close(text)),
            Err(LookupError::Permanent(text)) => {
                for index in statements {
                    self.reject_for_lookup(index, rule, &text, outcomes);
                }
                Flow::Continue(())
            }
        }
    }

    pub(super) fn assign(&mut self, index: usize, rule: &Rule, number: i64) {
        if let Some(evaluated) = self.evaluated.get_mut(index) {
            evaluated.statement = with_number(&evaluated.statement, rule, number);
        }
    }

    /// Rejects a statement because a lookup failed; the log shows the error to the DBA.
    fn reject_for_lookup(&mut self, index: usize, rule: &'f Rule, text: &str, outcomes: &mut RuleOutcomes) {
        let Some(evaluated) = self.evaluated.get_mut(index) else { return };
        let reason = format!("no number could be allocated for it: {text}");
        let hint = "Tell the DBA: docward allocates numbers as its own user, `service`, and this failed.";
        let rejection = Rejection::new(reason, hint);
        outcomes.note(rule, self.batch.namespace(&evaluated.statement), OutcomeKind::Reject, Some(&rejection));
        evaluated.rejected = Some(RejectedBy { rule, rejection });
    }

    pub(super) fn optimistic_rules(&self, index: usize) -> impl Iterator<Item = &'f Rule> + use<'_, 'f> {
        let sequences = self.evaluated.get(index).map(|evaluated| evaluated.sequences.as_slice()).unwrap_or_default();
        sequences.iter().copied().filter(|rule| strategy(rule) == Some(Strategy::Optimistic))
    }

    /// Returns a rule whose next number the first run needs and does not have yet.
    pub(super) fn missing_maximum(&self) -> Option<&'f Rule> {
        let run = self.runs.as_ref()?.front()?;
        let rules = run.statements.iter().flat_map(|index| self.optimistic_rules(*index));
        rules.into_iter().find(|rule| !run.next_numbers.iter().any(|(known, _)| *known == rule.id))
    }

    pub(super) fn optimistic_field(&self) -> &str {
        match self.missing_maximum().map(|rule| &rule.pattern) {
            Some(Pattern::Sequence(sequence)) => sequence.field().as_str(),
            _ => "",
        }
    }

    /// Queries the maximum. Inside a transaction only the client's own session sees its inserts, so the query runs
    /// there.
    pub(super) fn ask_maximum(&mut self, rule: &Rule) -> Step {
        let first = self.runs.as_ref().and_then(|runs| runs.front()?.statements.first().copied()).unwrap_or(0);
        let Some(evaluated) = self.evaluated.get(first) else { return self.conclude() };
        let namespace = self.batch.namespace(&evaluated.statement);
        let Pattern::Sequence(sequence) = &rule.pattern else { return self.conclude() };
        let maximum = Maximum {
            database: namespace.database.to_owned(),
            collection: namespace.collection.to_owned(),
            field: sequence.field().as_str().to_owned(),
        };
        self.awaiting = Awaiting::Maximum;
        if self.command.session().in_transaction {
            return Step::Exchange(allocation::find_maximum(&self.command, &maximum, self.transaction_begun));
        }
        Step::Lookup(Lookup::Maximum(maximum))
    }

    /// Takes the reply to a query of the maximum. An error goes to the client; the transaction is aborted, as after
    /// an error of the statement.
    pub(super) fn take_maximum_reply(&mut self, reply: &[u8], outcomes: &mut RuleOutcomes) -> Flow {
        match allocation::read_maximum(reply, self.optimistic_field()) {
            Some(found) => {
                self.transaction_begun = true;
                self.take_maximum(Ok(found), outcomes)
            }
            None => Flow::Break(self.pass_on(reply)),
        }
    }

    pub(super) fn take_maximum(
        &mut self,
        found: Result<LookupResult, LookupError>,
        outcomes: &mut RuleOutcomes,
    ) -> Flow {
        let Some(rule) = self.missing_maximum() else { return Flow::Continue(()) };
        let Some(run) = self.runs.as_mut().and_then(VecDeque::front_mut) else { return Flow::Continue(()) };
        let next = match found {
            Ok(LookupResult::Maximum(maximum)) => allocation::after(rule, maximum.max(run.taken_of(rule)))
                .ok_or_else(|| LookupError::Permanent("the largest possible number is already used".to_owned())),
            Ok(LookupResult::Numbers(_)) => {
                return close("internal error: unexpected answer to a query of the maximum");
            }
            Err(error) => Err(error),
        };
        match next {
            Ok(next) => {
                run.next_numbers.push((rule.id, next));
                Flow::Continue(())
            }
            Err(LookupError::Unavailable(text)) => Flow::Break(Step::Close(text)),
            Err(LookupError::Permanent(text)) => {
                let statements = std::mem::take(&mut run.statements);
                if let Some(runs) = &mut self.runs {
                    runs.pop_front();
                }
                for index in statements {
                    self.reject_for_lookup(index, rule, &text, outcomes);
                }
                self.stopped |= self.stops_on_error();
                Flow::Continue(())
            }
        }
    }

    /// Returns the position in the run of a statement whose optimistic number is a duplicate, and that number if it
    /// is known. Returns `None` inside a transaction: the server has aborted it, and the client's driver repeats it.
    pub(super) fn retry_of(
        &self,
        run: &Run,
        errors: &[(usize, Document<'_>)],
    ) -> Option<(usize, Option<DuplicateNumber>)> {
        let (place, error) = errors.first()?;
        let index = run.statements.get(*place)?;
        if self.command.session().in_transaction || run.attempts >= MAX_ATTEMPTS {
            return None;
        }
        let rule = self.optimistic_rules(*index).find(|rule| allocation::is_taken(rule, *error))?;
        Some((*place, allocation::taken_number(rule, *error).map(|number| (rule.id, number))))
    }
}

impl Run {
    fn taken_of(&self, rule: &Rule) -> Option<i64> {
        self.taken.filter(|(of, _)| *of == rule.id).map(|(_, number)| number)
    }
}

fn demand_of<'w, 'f>(
    leases: &'w mut VecDeque<CounterDemand<'f>>,
    rule: &'f Rule,
    namespace: usize,
) -> &'w mut CounterDemand<'f> {
    let same = |other: &CounterDemand<'f>| other.rule.id == rule.id && other.namespace == namespace;
    let at = leases.iter().position(same).unwrap_or(leases.len());
    if at == leases.len() {
        if leases.is_empty() {
            // Most batches need one counter.
            *leases = VecDeque::with_capacity(1);
        }
        leases.push_back(CounterDemand { rule, namespace, statements: SmallVec::new(), brought: Vec::new() });
    }
    &mut leases[at]
}

/// Returns the numbers that a statement already contains.
fn brought(rule: &Rule, statement: &Statement<'_>) -> ProvidedNumbers {
    match &rule.pattern {
        Pattern::Sequence(sequence) => sequence.provided_numbers(&statement.operation),
        _ => ProvidedNumbers::new(),
    }
}

pub(super) fn with_number<'f>(statement: &Statement<'f>, rule: &Rule, number: i64) -> Statement<'f> {
    match &rule.pattern {
        Pattern::Sequence(sequence) => statement.with(sequence.assign(&statement.operation, number)),
        _ => statement.clone(),
    }
}

fn strategy(rule: &Rule) -> Option<Strategy> {
    match &rule.pattern {
        Pattern::Sequence(sequence) => Some(sequence.strategy),
        _ => None,
    }
}
