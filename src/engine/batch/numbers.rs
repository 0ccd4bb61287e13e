//! Numbers for the statements of a batch: from counters before the first command, maxima for each group.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::super::evaluation::Evaluated;
use super::super::lookup::{LookupError, LookupResult};
use super::super::optimistic_numbers::{self, is_duplicate_key};
use super::super::outcome::{OutcomeKind, RuleOutcomes};
use super::super::port::{CommandPurpose, Flow, Port, close};
use super::super::prerequisites::NumberRule;
use super::super::privileges::{CollectionAccess, Privileges, WriteKind};
use super::super::rejection_text::RejectedBy;
use super::super::step::Step;
use super::group::{DuplicateNumber, Group};
use super::{BatchJob, NumberDemand, ProvidedNumbersOfRule, UpsertStage};
use crate::command::{Reply, Statement};
use crate::document::Document;
use crate::patterns::Rejection;
use crate::patterns::numbering::{NumberRequest, Strategy};
use crate::rules::{Rule, RuleId};

/// The maximum number of attempts of an optimistic sequence for one statement.
const MAX_ATTEMPTS: u32 = 1000;

impl<'f> BatchJob<'f> {
    /// Returns the numbers that the statements need from each counter, and those they already contain, the last first.
    /// Skips statements that are not sent.
    pub(super) fn collect_demands(&self) -> Vec<NumberDemand<'f>> {
        // Most batches need the numbers of one rule on one namespace.
        let mut demands = Vec::with_capacity(1);
        for index in self.sendable() {
            let Some(evaluated) = self.evaluated.get(index) else { continue };
            let namespace = evaluated.statement.namespace;
            for rule in evaluated.prerequisites.all_numbers().filter(is_counted) {
                demand_of(&mut demands, rule, namespace).statements.push(index);
            }
            for rule in evaluated.prerequisites.provided_numbers().filter(is_counted) {
                let provided = rule.numbers.provided_numbers(&evaluated.statement);
                if !provided.is_empty() {
                    demand_of(&mut demands, rule, namespace).provided.extend(provided);
                }
            }
        }
        demands.reverse();
        demands
    }

    /// Returns the numbers that clients provide, which optimistic sequences must not assign to others.
    pub(super) fn collect_provided(&self) -> Vec<ProvidedNumbersOfRule> {
        let mut provided: Vec<ProvidedNumbersOfRule> = Vec::new();
        for evaluated in self.sendable().filter_map(|index| self.evaluated.get(index)) {
            let namespace = evaluated.statement.namespace;
            for rule in evaluated.prerequisites.provided_numbers().filter(|rule| !is_counted(rule)) {
                let numbers = rule.numbers.provided_numbers(&evaluated.statement);
                match provided.iter_mut().find(|known| known.is_of(rule.rule, namespace)) {
                    Some(known) => known.numbers.extend(numbers),
                    None => {
                        provided.push(ProvidedNumbersOfRule {
                            rule: rule.rule.id,
                            namespace,
                            numbers: numbers.into_iter().collect(),
                        });
                    }
                }
            }
        }
        provided
    }

    /// Returns the first number from `next` on that no statement of the batch contains.
    pub(super) fn free_number(&self, rule: &Rule, namespace: usize, mut next: i64) -> i64 {
        let provided = self.provided.iter().find(|known| known.is_of(rule, namespace));
        while provided.is_some_and(|provided| provided.numbers.contains(&next)) && next < i64::MAX {
            next += 1;
        }
        next
    }

    /// Whether privileges for numbers must be checked before the statements can be sent.
    pub(in crate::engine) fn needs_privileges(&self, privileges: &Privileges) -> bool {
        self.has_numbers() && self.unknown_access(privileges).is_some()
    }

    /// Whether counters must be asked before the statements can be sent.
    pub(in crate::engine) fn needs_numbers(&self) -> bool {
        !self.demands.is_empty()
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
        let mut known = None;
        for index in self.sendable() {
            let Some(evaluated) = self.evaluated.get(index) else { continue };
            let namespace = evaluated.statement.namespace;
            let kind = WriteKind::from_statement(&evaluated.statement);
            // Most statements need the same access as the previous one.
            if known == Some((namespace, kind)) || !self.looks_up(evaluated) {
                continue;
            }
            let access = self.batch.namespace(&evaluated.statement);
            if !privileges.covers(access, kind) {
                return Some(CollectionAccess::new(access, kind));
            }
            known = Some((namespace, kind));
        }
        None
    }

    /// Whether the statement needs a lookup under docward's own user.
    fn looks_up(&self, evaluated: &Evaluated<'f, 'f>) -> bool {
        // Inside a transaction the client's own session finds the maximum.
        let finds_maximum = || evaluated.prerequisites.assigns_number() && !self.command.session().in_transaction;
        finds_maximum() || asks_counter(evaluated)
    }

    /// Requests the numbers of all statements and assigns them.
    pub(super) async fn request_numbers(&mut self, port: &Port) -> Flow {
        while let Some(request) = self.next_request() {
            let found = port.numbers(request).await;
            port.outcomes(|outcomes| self.take_numbers(found, outcomes))?;
        }
        Flow::Continue(())
    }

    /// Returns the next request of numbers that must come before the statements are sent. [`Self::take_numbers`] must
    /// follow it.
    pub(in crate::engine) fn next_request(&mut self) -> Option<NumberRequest> {
        let demand = self.demands.last_mut()?;
        let namespace = self.batch.namespace_at(demand.namespace);
        let count = u32::try_from(demand.statements.len()).unwrap_or(u32::MAX);
        Some(demand.rule.numbers.request(namespace, count, std::mem::take(&mut demand.provided)))
    }

    /// Assigns the numbers of the last request, or rejects its statements.
    pub(in crate::engine) fn take_numbers(
        &mut self,
        found: Result<LookupResult, LookupError>,
        outcomes: &mut RuleOutcomes,
    ) -> Flow {
        let Some(NumberDemand { rule, namespace, statements, .. }) = self.demands.pop() else {
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
            Err(LookupError::Unavailable(text)) => return Flow::Break(Step::Close(text)),
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
        let rejection = Rejection::new(reason, hint);
        let namespace = self.batch.namespace(&evaluated.statement);
        let text = (rejection.reason.as_str(), rejection.hint.as_str());
        outcomes.settle(rule, namespace, OutcomeKind::Reject, text, (1, true));
        evaluated.rejected = Some(RejectedBy::new(rule, rejection));
    }

    pub(super) fn optimistic_rules(&self, index: usize) -> impl Iterator<Item = NumberRule<'f>> + use<'_, 'f> {
        let numbers = self.evaluated.get(index).map(|evaluated| evaluated.prerequisites.numbers());
        numbers.into_iter().flatten().filter(|rule| !is_counted(rule))
    }

    /// The optimistic sequences whose numbers a statement contains when this group sends it.
    pub(super) fn optimistic_rules_of(
        &self,
        group: &Group,
        index: usize,
    ) -> impl Iterator<Item = NumberRule<'f>> + use<'_, 'f> {
        let evaluated = self.evaluated.get(index);
        let updates = group.stage == UpsertStage::Update;
        self.optimistic_rules(index).filter(move |rule| {
            let inserts_apart = |one: &Evaluated<'_, '_>| rule.numbers.inserts_apart(&one.statement.operation);
            !(updates && evaluated.is_some_and(inserts_apart))
        })
    }

    /// Finds the next numbers of a group's optimistic sequences. Returns false if its statements are rejected instead.
    pub(super) async fn find_maxima(&mut self, group: &mut Group, port: &Port) -> Flow<bool> {
        while let Some((index, rule)) = self.missing_maximum(group) {
            let maximum = self.find_maximum(index, rule, port).await?;
            let next = maximum.and_then(|maximum| {
                let next = rule.numbers.after(maximum.max(group.taken_of(rule.rule)));
                next.ok_or_else(|| LookupError::Permanent("the largest possible number is already used".to_owned()))
            });
            match next {
                Ok(next) => group.next_numbers.push((rule.rule.id, next)),
                // Its driver cannot retry what is half done, and must know what is done.
                Err(LookupError::Unavailable(text)) if self.may_be_retried() => {
                    return Flow::Break(Step::Close(text));
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

    /// Returns the optimistic numbers that a statement contains when this group sends it. Takes them from `numbers`.
    pub(super) fn optimistic_numbers(
        &self,
        group: &Group,
        index: usize,
        numbers: &mut [(RuleId, i64)],
    ) -> SmallVec<[(NumberRule<'f>, i64); 1]> {
        let mut taken = SmallVec::new();
        let Some(evaluated) = self.evaluated.get(index) else { return taken };
        for rule in self.optimistic_rules_of(group, index) {
            if let Some((_, next)) = numbers.iter_mut().find(|(known, _)| *known == rule.rule.id) {
                let number = self.free_number(rule.rule, evaluated.statement.namespace, *next);
                taken.push((rule, number));
                // After the largest number there is one more attempt, which reports that no number is left.
                *next = number.saturating_add(1);
            }
        }
        taken
    }

    /// Checks the statements of a group with their optimistic numbers against the rules that they satisfy without.
    /// Rejects those that break one, and removes them from the group. Returns false if there is nothing left to send.
    pub(super) fn check_numbers(&mut self, group: &mut Group, port: &Port) -> bool {
        let mut numbers = group.next_numbers.clone();
        let mut kept = Vec::with_capacity(group.statements.len());
        for (position, index) in group.statements.iter().copied().enumerate() {
            let before = numbers.clone();
            let Some(broken) = self.broken_by_number(index, group, &mut numbers) else {
                kept.push(index);
                continue;
            };
            if self.stops_on_error() && !kept.is_empty() {
                // The statements before it are executed first. One of them may fail, or their numbers may change.
                let rest = group.statements.get(position..).unwrap_or_default();
                self.continue_with(Group { stage: group.stage, ..Group::new(rest.to_vec()) });
                break;
            }
            numbers = before;
            self.reject_broken_by(index, broken, port);
            if self.stops_on_error() {
                self.stopped = true;
                break;
            }
        }
        group.statements = kept;
        !group.statements.is_empty()
    }

    fn broken_by_number(
        &self,
        index: usize,
        group: &Group,
        numbers: &mut [(RuleId, i64)],
    ) -> Option<(&'f Rule, Rejection)> {
        let evaluated = self.evaluated.get(index)?;
        let numbers = self.optimistic_numbers(group, index, numbers);
        let assigned = |statement: Cow<'_, Statement<'f>>, (rule, number): (NumberRule<'f>, i64)| {
            Cow::Owned(rule.with_number(&statement, number))
        };
        let numbered = numbers.into_iter().fold(evaluated.inserting(), assigned);
        evaluated.broken_by(&numbered)
    }

    fn reject_broken_by(&mut self, index: usize, (rule, broken): (&'f Rule, Rejection), port: &Port) {
        let Some(evaluated) = self.evaluated.get_mut(index) else { return };
        let namespace = self.batch.namespace(&evaluated.statement);
        port.outcomes(|outcomes| evaluated.reject_broken(rule, broken, namespace, outcomes));
    }

    /// Returns a rule whose next number a group needs and does not have yet, with a statement that needs it.
    pub(super) fn missing_maximum(&self, group: &Group) -> Option<(usize, NumberRule<'f>)> {
        let is_missing = |rule: &NumberRule<'f>| !group.next_numbers.iter().any(|(known, _)| *known == rule.rule.id);
        group.statements.iter().find_map(|index| {
            let rule = self.optimistic_rules_of(group, *index).find(is_missing)?;
            Some((*index, rule))
        })
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
        if !self.command.session().in_transaction {
            return Flow::Continue(port.maximum(maximum).await);
        }
        let find = || optimistic_numbers::find_maximum(&self.command, &maximum, self.transaction_begun);
        let frame = self.exchange_part(CommandPurpose::Command, find(), find, port).await;
        self.transaction_begun = true;
        let Ok(reply) = Reply::parse(&frame) else { return close("the server's reply to a find cannot be parsed") };
        if !reply.is_ok() {
            return Flow::Break(self.pass_on_error(&reply, self.merged.has_effect()));
        }
        Flow::Continue(Ok(optimistic_numbers::read_maximum(&reply, &maximum.field)))
    }

    /// Returns the position in the group of a statement whose optimistic number is a duplicate, and that number. Returns
    /// `None` for a duplicate of another value: no other number helps. Returns `None` inside a transaction too: the
    /// server has aborted it, and the client's driver repeats it.
    pub(super) fn retry_of(&self, group: &Group, errors: &[(usize, Document<'_>)]) -> Option<(usize, DuplicateNumber)> {
        let (position, error) = errors.first()?;
        if self.command.session().in_transaction || group.attempts >= MAX_ATTEMPTS || !is_duplicate_key(*error) {
            return None;
        }
        let mut numbers = group.next_numbers.clone();
        let sent = group.statements.iter().take(position + 1);
        let own = sent.map(|index| self.optimistic_numbers(group, *index, &mut numbers)).last()?;
        let (rule, number) = own
            .into_iter()
            .find(|(rule, number)| optimistic_numbers::is_taken(rule.numbers.field(), *number, *error))?;
        Some((*position, (rule.rule.id, number)))
    }
}

impl ProvidedNumbersOfRule {
    fn is_of(&self, rule: &Rule, namespace: usize) -> bool {
        self.rule == rule.id && self.namespace == namespace
    }
}

impl Group {
    fn taken_of(&self, rule: &Rule) -> Option<i64> {
        self.taken.filter(|(of, _)| *of == rule.id).map(|(_, number)| number)
    }
}

fn demand_of<'w, 'f>(
    demands: &'w mut Vec<NumberDemand<'f>>,
    rule: NumberRule<'f>,
    namespace: usize,
) -> &'w mut NumberDemand<'f> {
    let same = |other: &NumberDemand<'f>| other.rule.rule.id == rule.rule.id && other.namespace == namespace;
    let at = demands.iter().position(same).unwrap_or(demands.len());
    if at == demands.len() {
        demands.push(NumberDemand { rule, namespace, statements: SmallVec::new(), provided: Vec::new() });
    }
    &mut demands[at]
}

/// Whether a counter assigns the statement a number, or must not assign one that it contains.
fn asks_counter(evaluated: &Evaluated<'_, '_>) -> bool {
    let provides = |rule: NumberRule<'_>| !rule.numbers.provided_numbers(&evaluated.statement).is_empty();
    evaluated.prerequisites.all_numbers().any(|rule| is_counted(&rule))
        || evaluated.prerequisites.provided_numbers().filter(is_counted).any(provides)
}

fn is_counted(rule: &NumberRule<'_>) -> bool {
    rule.numbers.strategy() == Strategy::Counter
}
