//! Numbers for the statements of a command: from counters before its first part is sent, maxima for each group.

use std::collections::BTreeSet;

use smallvec::SmallVec;

use super::super::evaluation::Evaluated;
use super::super::lookup::{LookupError, LookupResult};
use super::super::optimistic_numbers::{self, is_duplicate_key};
use super::super::outcome::{OutcomeKind, RuleOutcomes};
use super::super::port::{CommandPurpose, Flow, Port, parse_reply};
use super::super::prerequisites::{NumberRule, with_numbers};
use super::super::privileges::{CollectionAccess, Privileges, WriteKind};
use super::super::rejection_text::RejectedBy;
use super::group::{DuplicateNumber, Group};
use super::meaning::GroupReply;
use super::{BatchJob, UpsertStage};
use crate::patterns::Rejection;
use crate::patterns::numbering::NumberRequest;
use crate::rules::{Rule, RuleId};

/// The maximum number of attempts of an optimistic sequence for one statement.
const MAX_ATTEMPTS: u32 = 1000;

/// The numbers that the statements of a command need from counters, and those that clients provide.
#[derive(Debug, Default)]
pub(super) struct CommandNumbers<'f> {
    /// What counters must still be asked for, the last first.
    demands: Vec<NumberDemand<'f>>,
    /// The rule of an optimistic sequence, an index into the batch's namespaces, and a number that a client provides.
    provided: BTreeSet<(RuleId, usize, i64)>,
}

/// The numbers that statements on one namespace need from one rule's counter.
#[derive(Debug)]
struct NumberDemand<'f> {
    rule: NumberRule<'f>,
    /// Index into the batch's namespaces.
    namespace: usize,
    /// The statements that need a number.
    statements: SmallVec<[usize; 1]>,
    /// Numbers that clients provide in other statements.
    provided: Vec<i64>,
}

impl<'f> CommandNumbers<'f> {
    /// Collects the numbers that these statements need, and those that they already contain.
    pub(super) fn collect<'e>(statements: impl Iterator<Item = (usize, &'e Evaluated<'f, 'f>)>) -> Self
    where
        'f: 'e,
    {
        // Most batches need the numbers of one rule on one namespace.
        let mut numbers = Self { demands: Vec::with_capacity(1), provided: BTreeSet::new() };
        for (index, evaluated) in statements {
            let namespace = evaluated.statement.namespace;
            for rule in evaluated.prerequisites.all_numbers().filter(NumberRule::uses_counter) {
                numbers.demand(rule, namespace).statements.push(index);
            }
            for rule in evaluated.prerequisites.provided_numbers() {
                let provided = rule.numbers.provided_numbers(&evaluated.statement);
                if !rule.uses_counter() {
                    numbers.provided.extend(provided.into_iter().map(|number| (rule.rule.id, namespace, number)));
                } else if !provided.is_empty() {
                    numbers.demand(rule, namespace).provided.extend(provided);
                }
            }
        }
        numbers.demands.reverse();
        numbers
    }

    fn demand(&mut self, rule: NumberRule<'f>, namespace: usize) -> &mut NumberDemand<'f> {
        let same = |other: &NumberDemand<'f>| other.rule.rule.id == rule.rule.id && other.namespace == namespace;
        let at = self.demands.iter().position(same).unwrap_or(self.demands.len());
        if at == self.demands.len() {
            self.demands.push(NumberDemand { rule, namespace, statements: SmallVec::new(), provided: Vec::new() });
        }
        &mut self.demands[at]
    }

    /// Returns the optimistic numbers that a statement contains when it is sent in this stage. Takes them from the next
    /// numbers of the rules.
    pub(super) fn take_optimistic(
        &self,
        evaluated: &Evaluated<'f, 'f>,
        stage: UpsertStage,
        next_numbers: &mut [(RuleId, i64)],
    ) -> SmallVec<[(NumberRule<'f>, i64); 1]> {
        let taken = evaluated.optimistic_rules_in(stage).filter_map(|rule| {
            let (id, next) = next_numbers.iter_mut().find(|(known, _)| *known == rule.rule.id)?;
            let mut number = *next;
            while self.provided.contains(&(*id, evaluated.statement.namespace, number)) && number < i64::MAX {
                number += 1;
            }
            // After the largest number there is one more attempt, which reports that no number is left.
            *next = number.saturating_add(1);
            Some((rule, number))
        });
        taken.collect()
    }
}

impl<'r> Evaluated<'r, '_> {
    /// The optimistic sequences that assign the statement a number.
    pub(super) fn optimistic_rules(&self) -> impl Iterator<Item = NumberRule<'r>> {
        self.prerequisites.numbers().filter(|rule| !rule.uses_counter())
    }

    /// Those whose numbers the statement contains when it is sent in this stage.
    fn optimistic_rules_in(&self, stage: UpsertStage) -> impl Iterator<Item = NumberRule<'r>> {
        let is_left_out = move |rule: &NumberRule<'r>| {
            stage == UpsertStage::Update && rule.numbers.inserts_apart(&self.statement.operation)
        };
        self.optimistic_rules().filter(move |rule| !is_left_out(rule))
    }

    /// Whether the statement needs a lookup under docward's own user: of the maximum, which inside a transaction the
    /// client's own session finds; or a counter that assigns it a number, or must not assign one that it contains.
    fn looks_up(&self, in_transaction: bool) -> bool {
        let provides = |rule: NumberRule<'_>| !rule.numbers.provided_numbers(&self.statement).is_empty();
        (self.prerequisites.assigns_number() && !in_transaction)
            || self.prerequisites.all_numbers().any(|rule| rule.uses_counter())
            || self.prerequisites.provided_numbers().filter(NumberRule::uses_counter).any(provides)
    }
}

impl Group {
    /// Returns a rule whose next number the group needs and does not have yet, with a statement that needs it.
    pub(super) fn missing_maximum<'f>(&self, evaluated: &[Evaluated<'f, 'f>]) -> Option<(usize, NumberRule<'f>)> {
        let is_missing = |rule: &NumberRule<'f>| !self.next_numbers.iter().any(|(known, _)| *known == rule.rule.id);
        self.statements.iter().find_map(|index| {
            let rule = evaluated.get(*index)?.optimistic_rules_in(self.stage).find(is_missing)?;
            Some((*index, rule))
        })
    }

    fn taken_of(&self, rule: &Rule) -> Option<i64> {
        self.taken.filter(|(of, _)| *of == rule.id).map(|(_, number)| number)
    }
}

impl<'f> BatchJob<'f> {
    /// Whether privileges for numbers must be checked before the statements can be sent.
    pub(crate) fn needs_privileges(&self, privileges: &Privileges) -> bool {
        self.has_numbers() && self.unknown_access(privileges).is_some()
    }

    /// Whether counters must be asked before the statements can be sent.
    pub(crate) fn needs_numbers(&self) -> bool {
        !self.numbers.demands.is_empty()
    }

    /// Whether a rule assigns or observes numbers; false for nearly all batches.
    pub(super) fn has_numbers(&self) -> bool {
        self.evaluated.iter().any(|one| one.prerequisites.has_numbers())
    }

    /// Checks that the client may write what docward requests numbers for as its own user: a client must not gain
    /// access.
    pub(super) async fn check_privileges(&self, port: &Port) -> Flow {
        while let Some(access) =
            port.client_state(|client_state, _| self.unknown_access(&client_state.privileges)).await
        {
            if let Err(denied) = access.require(&self.command, port).await {
                return Flow::Break(self.pass_on(denied));
            }
        }
        Flow::Continue(())
    }

    /// Returns an access of the client that a lookup requires and that docward does not know.
    fn unknown_access(&self, privileges: &Privileges) -> Option<CollectionAccess> {
        let in_transaction = self.in_transaction();
        let mut known = None;
        for (_, evaluated) in self.sendable() {
            let namespace = self.batch.namespace(&evaluated.statement);
            let kind = WriteKind::from_statement(&evaluated.statement);
            // Most statements need the same access as the previous one.
            if known == Some((evaluated.statement.namespace, kind)) || !evaluated.looks_up(in_transaction) {
                continue;
            }
            if !privileges.covers(namespace, kind) {
                return Some(CollectionAccess::new(namespace, kind));
            }
            known = Some((evaluated.statement.namespace, kind));
        }
        None
    }

    /// Returns the next request of numbers that must come before the statements are sent. [`Self::take_numbers`] must
    /// follow it.
    pub(crate) fn next_request(&mut self) -> Option<NumberRequest> {
        let demand = self.numbers.demands.last_mut()?;
        let namespace = self.batch.namespace_at(demand.namespace);
        let count = u32::try_from(demand.statements.len()).unwrap_or(u32::MAX);
        Some(demand.rule.numbers.request(namespace, count, std::mem::take(&mut demand.provided)))
    }

    /// Assigns the numbers of the last request, or rejects its statements.
    pub(crate) fn take_numbers(
        &mut self,
        found: Result<LookupResult, LookupError>,
        outcomes: &mut RuleOutcomes,
    ) -> Flow {
        let Some(NumberDemand { rule, namespace, statements, .. }) = self.numbers.demands.pop() else {
            return Flow::Continue(());
        };
        match found.and_then(|found| found.into_numbers(statements.len())) {
            Ok(numbers) => {
                let namespace = self.batch.namespace_at(namespace);
                for (index, number) in statements.into_iter().zip(numbers) {
                    let Some(evaluated) = self.evaluated.get_mut(index) else { continue };
                    evaluated.assign(rule, number);
                    evaluated.check_number(namespace, outcomes);
                }
            }
            Err(LookupError::Unavailable(text)) => {
                return Flow::Break(
                    self.unavailable(&format!("no number could be reserved: {text}"), self.merged.has_effect()),
                );
            }
            Err(LookupError::Permanent(text)) => {
                statements.into_iter().for_each(|index| self.reject_for_lookup(index, rule.rule, &text, outcomes));
            }
        }
        Flow::Continue(())
    }

    /// Rejects a statement because a lookup failed; the log shows the error to the DBA.
    fn reject_for_lookup(&mut self, index: usize, rule: &'f Rule, text: &str, outcomes: &mut RuleOutcomes) {
        let Some(evaluated) = self.evaluated.get_mut(index) else { return };
        let reason = format!("no number could be reserved for it: {text}");
        let hint = "Ask the DBA to correct this: docward reserves numbers as its own user (--service).";
        let rejected = RejectedBy::new(rule, Rejection::new(reason, hint));
        let namespace = self.batch.namespace(&evaluated.statement);
        evaluated.reject(rejected, (OutcomeKind::Reject, true), namespace, outcomes);
    }

    /// Finds the next numbers of a group's optimistic sequences. Returns false if its statements are rejected instead.
    pub(super) async fn find_maxima(&mut self, group: &mut Group, port: &Port) -> Flow<bool> {
        while let Some((index, rule)) = group.missing_maximum(&self.evaluated) {
            let maximum = self.find_maximum(index, rule, port).await?;
            let next = maximum.and_then(|maximum| {
                let next = rule.numbers.after(maximum.max(group.taken_of(rule.rule)));
                next.ok_or_else(|| LookupError::Permanent("the largest possible number is already used".to_owned()))
            });
            match next {
                Ok(next) => group.next_numbers.push((rule.rule.id, next)),
                // Its driver cannot retry what is half done, and must know what is done.
                Err(LookupError::Unavailable(text)) if self.may_be_retried() => {
                    return Flow::Break(
                        self.unavailable(&format!("no number could be found: {text}"), self.merged.has_effect()),
                    );
                }
                Err(LookupError::Unavailable(text) | LookupError::Permanent(text)) => {
                    for index in &group.statements {
                        port.outcomes(|outcomes| self.reject_for_lookup(*index, rule.rule, &text, outcomes));
                    }
                    self.stopped |= self.stops_on_error();
                    return Flow::Continue(false);
                }
            }
        }
        Flow::Continue(true)
    }

    /// Checks the statements of a group with their optimistic numbers against the rules that they satisfy without.
    /// Rejects those that break one, and removes them from the group. Returns false if there is nothing left to send.
    pub(super) fn check_numbers(&mut self, group: &mut Group, port: &Port) -> bool {
        let stops_on_error = self.stops_on_error();
        let mut numbers = group.next_numbers.clone();
        let mut kept = Vec::with_capacity(group.statements.len());
        for (position, index) in group.statements.iter().copied().enumerate() {
            let Some(evaluated) = self.evaluated.get_mut(index) else { continue };
            let before = numbers.clone();
            let assigned = self.numbers.take_optimistic(evaluated, group.stage, &mut numbers);
            let Some((rule, broken)) = evaluated.broken_by(&with_numbers(evaluated.inserting(), assigned)) else {
                kept.push(index);
                continue;
            };
            if stops_on_error && !kept.is_empty() {
                // The statements before it are executed first. One of them may fail, or their numbers may change.
                let rest = group.statements.get(position..).unwrap_or_default();
                self.continue_with(Group { stage: group.stage, ..Group::new(rest.to_vec()) });
                break;
            }
            numbers = before;
            let namespace = self.batch.namespace(&evaluated.statement);
            port.outcomes(|outcomes| evaluated.reject_broken(rule, broken, namespace, outcomes));
            if stops_on_error {
                self.stopped = true;
                break;
            }
        }
        group.statements = kept;
        !group.statements.is_empty()
    }

    /// Queries the maximum. Inside a transaction only the client's own session sees its inserts, so the query runs
    /// there, and its error goes to the client: the transaction is aborted, as after an error of the statement.
    async fn find_maximum(
        &mut self,
        index: usize,
        rule: NumberRule<'f>,
        port: &Port,
    ) -> Flow<Result<Option<i64>, LookupError>> {
        let Some(evaluated) = self.evaluated.get(index) else { return Flow::Continue(Ok(None)) };
        let maximum = optimistic_numbers::maximum(rule.numbers.field(), self.batch.namespace(&evaluated.statement));
        if !self.in_transaction() {
            return Flow::Continue(port.maximum(maximum).await);
        }
        let find = || optimistic_numbers::find_maximum(&self.command, &maximum, self.transaction_begun);
        let frame = self.exchange_part(CommandPurpose::Command, find(), find, port).await;
        self.transaction_begun = true;
        let reply = parse_reply(&frame, "a find")?;
        if !reply.is_ok() {
            return Flow::Break(self.pass_on_error(&reply, self.merged.has_effect()));
        }
        Flow::Continue(Ok(optimistic_numbers::read_maximum(&reply, &maximum.field)))
    }
}

impl<'f> GroupReply<'_, '_, 'f> {
    /// Returns the position in the group of a statement whose optimistic number is a duplicate, and that number. Returns
    /// `None` for a duplicate of another value: no other number helps. Returns `None` inside a transaction too: the
    /// server has aborted it, and the client's driver repeats it.
    pub(super) fn duplicate_number(&self) -> Option<(usize, DuplicateNumber)> {
        let Self { job, group, .. } = *self;
        let (position, error) = *self.errors.first()?;
        if job.in_transaction() || group.attempts >= MAX_ATTEMPTS || !is_duplicate_key(error) {
            return None;
        }
        let mut numbers = group.next_numbers.clone();
        let sent = group.statements.iter().take(position + 1).filter_map(|index| job.evaluated.get(*index));
        let own = sent.map(|one| job.numbers.take_optimistic(one, group.stage, &mut numbers)).last()?;
        let is_taken =
            |(rule, number): &(NumberRule<'f>, i64)| optimistic_numbers::is_taken(rule.numbers.field(), *number, error);
        let (rule, number) = own.into_iter().find(is_taken)?;
        Some((position, (rule.rule.id, number)))
    }
}
