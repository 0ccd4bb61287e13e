//! Numbers for the statements of a batch: leases before anything is sent, maxima run by run.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::super::allocation;
use super::super::evaluation::{Evaluated, RejectedBy};
use super::super::lookup::{Found, Lookup, LookupError, Maximum};
use super::super::outcome::{OutcomeKind, RuleOutcomes};
use super::super::plan::Step;
use super::super::privileges::{Means, PrivilegeCheck, Privileges};
use super::run::{DuplicateNumber, Run};
use super::{Awaiting, BatchJob, CounterDemand, Flow, close};
use crate::command::Statement;
use crate::document::Document;
use crate::patterns::sequence::{Brought, Strategy};
use crate::patterns::{Pattern, Rejection, Rule};

/// How often an optimistic sequence tries again for one statement before it gives up.
const MAX_ATTEMPTS: u32 = 1000;

impl<'f> BatchJob<'f> {
    /// Which statements want which counter's numbers, or bring some. Statements that do not run want none.
    pub(super) fn collect_leases(&self) -> VecDeque<CounterDemand<'f>> {
        let mut leases = VecDeque::new();
        for index in self.sendable() {
            let Some(evaluated) = self.evaluated.get(index) else { continue };
            let namespace = evaluated.statement.namespace;
            for rule in evaluated.sequences.iter().filter(|rule| strategy(rule) == Some(Strategy::Counter)) {
                wanting(&mut leases, rule, namespace).statements.push(index);
            }
            for rule in evaluated.bring.iter().filter(|rule| strategy(rule) == Some(Strategy::Counter)) {
                let brought = brought(rule, &evaluated.statement);
                if !brought.is_empty() {
                    wanting(&mut leases, rule, namespace).brought.extend(brought);
                }
            }
        }
        leases
    }

    /// The first question about what the client may do, where docward would ask for numbers as its own user and does
    /// not know whether the client may store them.
    pub(in crate::engine) fn unknown_access(&self, privileges: &Privileges) -> Option<(PrivilegeCheck, Vec<u8>)> {
        let mut known = None;
        for index in self.sendable() {
            let Some(evaluated) = self.evaluated.get(index) else { continue };
            let namespace = evaluated.statement.namespace;
            let means = Means::of(&evaluated.statement);
            // Most statements are about the same as the one before.
            if known == Some((namespace, means)) || !self.looks_up(evaluated) {
                continue;
            }
            let access = self.batch.namespace(&evaluated.statement);
            if !privileges.covers(access, means) {
                return Some(PrivilegeCheck::about(access, means, &self.command));
            }
            known = Some((namespace, means));
        }
        None
    }

    /// Whether docward asks for something as its own user because of it.
    fn looks_up(&self, evaluated: &Evaluated<'f, 'f>) -> bool {
        let is_counted = |rule: &Rule| strategy(rule) == Some(Strategy::Counter);
        let in_transaction = self.command.session().in_transaction;
        evaluated.sequences.iter().any(|rule| is_counted(rule) || !in_transaction)
            || evaluated.bring.iter().any(|rule| is_counted(rule) && !brought(rule, &evaluated.statement).is_empty())
    }

    pub(super) fn take_lease(&mut self, found: Result<Found, LookupError>, outcomes: &mut RuleOutcomes) -> Flow {
        let Some(CounterDemand { rule, statements, .. }) = self.leases.pop_front() else { return Flow::Continue(()) };
        match found {
            Ok(Found::Numbers(numbers)) if numbers.len() == statements.len() => {
                for (index, number) in statements.into_iter().zip(numbers) {
                    self.assign(index, rule, number);
                    let Some(evaluated) = self.evaluated.get_mut(index) else { continue };
                    evaluated.check_number(self.batch.namespace(&evaluated.statement), outcomes);
                }
                Flow::Continue(())
            }
            Ok(_) => close("the service answered a lease with something else"),
            Err(LookupError::Unavailable(text)) => Flow::Break(Step::Close(text)),
            Err(LookupError::Refused(text)) => {
                for index in statements {
                    self.refuse_for_lookup(index, rule, &text, outcomes);
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

    /// docward's own failure: the statement is refused, and the DBA finds it in the log.
    fn refuse_for_lookup(&mut self, index: usize, rule: &'f Rule, text: &str, outcomes: &mut RuleOutcomes) {
        let Some(evaluated) = self.evaluated.get_mut(index) else { return };
        let reason = format!("no number can be had for it: {text}");
        let hint = "Tell the DBA: docward asks for numbers as its own user, `service`, and could not.";
        let rejection = Rejection::new(reason, hint);
        outcomes.note(rule, self.batch.namespace(&evaluated.statement), OutcomeKind::Reject, Some(&rejection));
        evaluated.refused = Some(RejectedBy { rule, rejection });
    }

    pub(super) fn optimistic_rules(&self, index: usize) -> impl Iterator<Item = &'f Rule> + use<'_, 'f> {
        let sequences = self.evaluated.get(index).map(|evaluated| evaluated.sequences.as_slice()).unwrap_or_default();
        sequences.iter().copied().filter(|rule| strategy(rule) == Some(Strategy::Optimistic))
    }

    /// A rule whose next number the first run needs and does not know.
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

    /// Inside a transaction only the transaction itself sees what it inserted, so the client's own session asks.
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

    /// The server's own error is the client's: the transaction is over, as it would be for the statement.
    pub(super) fn take_maximum_reply(&mut self, reply: &[u8], outcomes: &mut RuleOutcomes) -> Flow {
        match allocation::read_maximum(reply, self.optimistic_field()) {
            Some(found) => {
                self.transaction_begun = true;
                self.take_maximum(Ok(found), outcomes)
            }
            None => Flow::Break(self.pass_on(reply)),
        }
    }

    pub(super) fn take_maximum(&mut self, found: Result<Found, LookupError>, outcomes: &mut RuleOutcomes) -> Flow {
        let Some(rule) = self.missing_maximum() else { return Flow::Continue(()) };
        let Some(run) = self.runs.as_mut().and_then(VecDeque::front_mut) else { return Flow::Continue(()) };
        let next = match found {
            Ok(Found::Maximum(maximum)) => allocation::after(rule, maximum.max(run.taken_of(rule)))
                .ok_or_else(|| LookupError::Refused("the largest one there can be is taken".to_owned())),
            Ok(Found::Numbers(_)) => return close("the service answered a maximum with something else"),
            Err(error) => Err(error),
        };
        match next {
            Ok(next) => {
                run.next_numbers.push((rule.id, next));
                Flow::Continue(())
            }
            Err(LookupError::Unavailable(text)) => Flow::Break(Step::Close(text)),
            Err(LookupError::Refused(text)) => {
                let statements = std::mem::take(&mut run.statements);
                if let Some(runs) = &mut self.runs {
                    runs.pop_front();
                }
                for index in statements {
                    self.refuse_for_lookup(index, rule, &text, outcomes);
                }
                self.stopped |= self.stops_on_error();
                Flow::Continue(())
            }
        }
    }

    /// The place in the run of a statement whose optimistic number is taken, and that number if it is known. Inside a transaction
    /// the server has aborted, and the client's driver repeats the whole.
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

fn wanting<'w, 'f>(
    leases: &'w mut VecDeque<CounterDemand<'f>>,
    rule: &'f Rule,
    namespace: usize,
) -> &'w mut CounterDemand<'f> {
    let same = |other: &CounterDemand<'f>| other.rule.id == rule.id && other.namespace == namespace;
    let at = leases.iter().position(same).unwrap_or(leases.len());
    if at == leases.len() {
        if leases.is_empty() {
            // Most batches want one counter's numbers.
            *leases = VecDeque::with_capacity(1);
        }
        leases.push_back(CounterDemand { rule, namespace, statements: SmallVec::new(), brought: Vec::new() });
    }
    &mut leases[at]
}

/// The numbers that a statement brings along.
fn brought(rule: &Rule, statement: &Statement<'_>) -> Brought {
    match &rule.pattern {
        Pattern::Sequence(sequence) => sequence.brought(&statement.operation),
        _ => Brought::new(),
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
