//! Handles statements that matched nothing after rules added conditions to their filters.
//!
//! There are two cases. The client's own filter matches nothing either: then the result is n: 0 or an upsert. Or a
//! document exists that does not satisfy a rule's condition: then the rule explains the result. docward distinguishes
//! them with a match check, a find with the client's own filter on the client's connection.

use super::super::evaluation::{Evaluated, RejectedBy};
use super::super::merge;
use super::super::outcome::{OutcomeKind, RuleOutcomes};
use super::super::plan::Step;
use super::{Awaiting, BatchJob, Flow, Run, Stage, close, commands};
use crate::command::{Form, Operation, Reply};
use crate::document::{Document, Value};
use crate::patterns::{Rule, Unmatched};

/// Maximum attempts of an insert that collides with a document which the match check does not find.
const MAX_INSERTS: u32 = 4;

/// Errors of invalid filters: BadValue, FailedToParse, TypeMismatch, an invalid regular expression.
pub(super) const FILTER_ERRORS: [i32; 4] = [2, 9, 14, 51091];

/// Maximum attempts of a statement while others insert or delete the document between two steps.
const MAX_ATTEMPTS: u32 = 16;

impl<'f> BatchJob<'f> {
    /// Whether a rule decides the result if the statement matches nothing.
    pub(super) fn checks_match(&self, index: usize) -> bool {
        let checks = |evaluated: &Evaluated<'_, '_>| {
            !evaluated.unmatched.is_empty() || evaluated.only_new.is_some() || evaluated.uncounted.is_some()
        };
        self.evaluated.get(index).is_some_and(checks)
    }

    /// Whether the statement is an upsert with conditions, which must distinguish a missing document from one that
    /// fails a condition.
    pub(super) fn is_conditional_upsert(&self, index: usize) -> bool {
        let operation = self.evaluated.get(index).map(|evaluated| &evaluated.statement.operation);
        matches!(operation, Some(Operation::Update(update)) if update.upsert && !update.conditions.is_empty())
    }

    /// Returns the match check that the reply to a run requires, if any.
    pub(super) fn match_check_after(
        &mut self,
        run: &Run,
        reply: &Reply<'_>,
        error: Option<Document<'_>>,
        frame: &[u8],
    ) -> Option<Step> {
        let index = *run.statements.first()?;
        match (run.stage, error) {
            // Another client inserted a document first; check that one.
            (Stage::Insert, Some(error)) if run.attempts < MAX_ATTEMPTS && self.collided(index, error) => {}
            (_, Some(_)) | (Stage::Insert | Stage::CheckMatch, None) => return None,
            (Stage::Whole, None) if !self.checks_match(index) => return None,
            (Stage::Whole | Stage::Update, None) if merge::matched(reply, self.batch.form) > 0 => return None,
            (Stage::Whole | Stage::Update, None) => {}
        }
        // The server has aborted the client's transaction because of the error.
        if error.is_some() && self.command.session().in_transaction {
            return None;
        }
        let run = Run { statements: run.statements.clone(), next_numbers: Vec::new(), ..*run };
        Some(self.check_match(run, index, frame.to_vec()))
    }

    /// Runs the match check before the first run, which may only insert.
    pub(super) fn check_match_first(&mut self) -> Step {
        let Some(run) = self.runs.as_mut().and_then(std::collections::VecDeque::pop_front) else {
            return self.conclude();
        };
        let Some(index) = run.statements.first().copied() else { return self.conclude() };
        self.check_match(run, index, Vec::new())
    }

    fn check_match(&mut self, run: Run, index: usize, unmatched: Vec<u8>) -> Step {
        let Some(evaluated) = self.evaluated.get(index) else { return self.conclude() };
        let message = self.commands().matching(&evaluated.statement, &evaluated.checked_fields());
        self.transaction_begun = true;
        self.awaiting = Awaiting::MatchCheck(run, unmatched);
        Step::Exchange(message)
    }

    /// Whether the plan waits for a match check.
    pub(in crate::engine) fn awaits_match_check(&self) -> bool {
        matches!(self.awaiting, Awaiting::MatchCheck(..) | Awaiting::MatchChecks(_))
    }

    /// Takes the reply to a match check and continues with the statement.
    pub(super) fn take_match_check(
        &mut self,
        run: Run,
        unmatched: &[u8],
        frame: &[u8],
        outcomes: &mut RuleOutcomes,
    ) -> Flow {
        let Ok(reply) = Reply::parse(frame) else { return close("the server's reply to a find cannot be parsed") };
        if !reply.is_ok() {
            if commands::is_state_change_error(&reply) && self.command.session().is_retryable_write() {
                return Flow::Break(self.pass_on(&commands::as_retryable_write(&reply)));
            }
            // An invalid filter is the statement's own error.
            if let ([index], true) =
                (run.statements.as_slice(), is_unreadable(&reply) && self.batch.form != Form::FindAndModify)
            {
                return self.fail(*index, &reply);
            }
            return self.take_command_error(&run, &reply, frame);
        }
        let Some(found) = commands::documents(&reply) else {
            return close("the server's reply to a find cannot be parsed");
        };
        match (found.first(), run.stage) {
            (None, Stage::CheckMatch | Stage::Update) if let Some(rejected) = self.rejected_later(&run) => {
                self.reject_run(&run, rejected, outcomes)
            }
            (None, Stage::Update | Stage::CheckMatch) => {
                self.continue_with(Run { stage: Stage::Insert, attempts: run.attempts + 1, ..run });
                Flow::Continue(())
            }
            (Some(_), Stage::Insert) if !run.statements.first().is_some_and(|index| self.is_only_new(*index)) => {
                self.continue_with(Run { stage: Stage::Update, attempts: run.attempts + 1, ..run });
                Flow::Continue(())
            }
            (Some(_), Stage::Whole | Stage::Update) if let Some(counting) = self.count_again(&run) => {
                self.continue_with(counting);
                Flow::Continue(())
            }
            // The document that it collided with was deleted before the match check.
            (None, Stage::Insert) if run.attempts < MAX_INSERTS => {
                self.continue_with(Run { attempts: run.attempts + 1, ..run });
                Flow::Continue(())
            }
            // The filter matches nothing but the key exists: report the server's own error.
            (None, Stage::Insert) => self.as_answered(run, unmatched),
            (stored, _) => match self.rejection_of_no_match(&run, stored.copied()) {
                Some(rejected) => self.reject_run(&run, rejected, outcomes),
                None => self.as_answered(run, unmatched),
            },
        }
    }

    /// Takes the error of docward's own command for one statement. It becomes the statement's own error, as it would
    /// in the client's batch. It goes to the client as it is if the command should be retried or has only this
    /// statement.
    pub(super) fn take_command_error(&mut self, run: &Run, reply: &Reply<'_>, frame: &[u8]) -> Flow {
        let alone = self.evaluated.len() == 1 || self.batch.form == Form::FindAndModify;
        let [index] = run.statements.as_slice() else { return Flow::Break(self.pass_on(frame)) };
        let labelled = reply.body.get("errorLabels").is_some();
        if alone || labelled || commands::is_state_change_error(reply) || self.command.session().in_transaction {
            return Flow::Break(self.pass_on(frame));
        }
        self.fail(*index, reply)
    }

    /// Reports the error of docward's own command as the statement's.
    pub(super) fn fail(&mut self, index: usize, reply: &Reply<'_>) -> Flow {
        self.tally.fail(index, reply.body);
        self.stopped |= self.stops_on_error();
        Flow::Continue(())
    }

    /// Whether a rule explains a findAndModify's error.
    pub(super) fn is_explained(&self, error: Document<'_>) -> bool {
        let rule = self.evaluated.first().and_then(|evaluated| evaluated.explained_by);
        rule.is_some_and(|rule| rule.pattern.explain(error).is_some())
    }

    /// Replaces errors that a rule's change caused with the rule's own rejection.
    pub(super) fn explain_errors(&mut self, outcomes: &mut RuleOutcomes) {
        let (evaluated, batch) = (&mut self.evaluated, &self.batch);
        self.tally.retain_errors(|index, error| {
            let Some(evaluated) = evaluated.get_mut(index) else { return true };
            let Some(rule) = evaluated.explained_by else { return true };
            let Some(rejection) = rule.pattern.explain(error) else { return true };
            outcomes.note(rule, batch.namespace(&evaluated.statement), OutcomeKind::Reject, Some(&rejection));
            evaluated.rejected = Some(RejectedBy { rule, rejection });
            false
        });
    }

    /// Whether the statement is rejected if its filter matches a document.
    pub(super) fn is_only_new(&self, index: usize) -> bool {
        self.evaluated.get(index).is_some_and(|evaluated| evaluated.only_new.is_some())
    }

    /// The rejection that applies although the filter matches nothing.
    fn rejected_later(&self, run: &Run) -> Option<RejectedBy<'f>> {
        self.evaluated.get(*run.statements.first()?)?.rejected_later.clone()
    }

    /// Whether the plan waits for a statement that can match a document only if it was sent before and inserted it.
    pub(in crate::engine) fn awaits_record(&self) -> bool {
        let run = self.runs.as_ref().and_then(std::collections::VecDeque::front);
        matches!(self.awaiting, Awaiting::Run)
            && run.is_some_and(|run| {
                run.stage == Stage::Update && run.statements.first().is_some_and(|index| self.is_only_new(*index))
            })
    }

    pub(super) fn continue_with(&mut self, run: Run) {
        if let Some(runs) = &mut self.runs {
            runs.push_front(run);
        }
    }

    /// Passes the server's reply to the statement to the client.
    fn as_answered(&mut self, run: Run, frame: &[u8]) -> Flow {
        if self.batch.form == Form::FindAndModify {
            return Flow::Break(self.pass_on(frame));
        }
        let Ok(reply) = Reply::parse(frame) else { return close("the server's reply to a write cannot be parsed") };
        let errors = merge::errors_of(&reply, self.batch.form);
        self.count(&reply, run, &errors)
    }

    /// Returns the first rejection of the result n: 0.
    fn rejection_of_no_match(&self, run: &Run, stored: Option<Document<'_>>) -> Option<RejectedBy<'f>> {
        let evaluated = self.evaluated.get(*run.statements.first()?)?;
        if let Some(rejected) = evaluated.only_new.as_ref().filter(|_| stored.is_some()) {
            return Some(rejected.clone());
        }
        evaluated.unmatched.iter().find_map(|rule: &&'f Rule| {
            match rule.pattern.unmatched(&evaluated.statement, stored) {
                Unmatched::Nothing => None,
                Unmatched::Reject(rejection) => Some(RejectedBy { rule, rejection }),
            }
        })
    }

    fn reject_run(&mut self, run: &Run, rejected: RejectedBy<'f>, outcomes: &mut RuleOutcomes) -> Flow {
        run.statements.iter().for_each(|index| self.reject_unmatched(*index, rejected.clone(), outcomes));
        Flow::Continue(())
    }

    pub(super) fn reject_unmatched(&mut self, index: usize, rejected: RejectedBy<'f>, outcomes: &mut RuleOutcomes) {
        let Some(evaluated) = self.evaluated.get_mut(index) else { return };
        let kind = if rejected.is_conflict() { OutcomeKind::Conflict } else { OutcomeKind::Reject };
        outcomes.note(rejected.rule, self.batch.namespace(&evaluated.statement), kind, Some(&rejected.rejection));
        evaluated.rejected = Some(rejected);
        self.stopped |= self.stops_on_error();
    }

    fn collided(&self, index: usize, error: Document<'_>) -> bool {
        let Some(Operation::Update(update)) = self.evaluated.get(index).map(|evaluated| &evaluated.statement.operation)
        else {
            return false;
        };
        update.upsert && merge::is_duplicate_of_filter(error, update.filter.as_document())
    }
}

/// Whether the error of docward's find is due to the statement's filter.
pub(super) fn is_unreadable(reply: &Reply<'_>) -> bool {
    reply.code().is_some_and(|code| FILTER_ERRORS.contains(&code))
}

/// Whether the server has a record that a findAndModify, now sent without `upsert`, inserted a document: an earlier
/// send of the same write lost its reply. If sent with `upsert`, the server returns that reply again.
pub(super) fn has_inserted(error: Document<'_>) -> bool {
    /// "findAndModify retry request is not compatible with previous write in the transaction of type: insert"
    const RECORDED_INSERT: i32 = 40608;
    error.get("code").and_then(Value::as_i32) == Some(RECORDED_INSERT)
}
