//! Statements that matched nothing although rules have put conditions into them.
//!
//! What that means only the stored document tells: the client's own filter may match nothing either, which is n: 0 or
//! an upsert; or a document is there and a rule's condition does not hold for it, which the rule explains. So docward
//! looks, on the client's connection.

use super::super::evaluation::{Evaluated, RejectedBy};
use super::super::merge;
use super::super::outcome::{OutcomeKind, RuleOutcomes};
use super::super::plan::Step;
use super::{Awaiting, BatchJob, Flow, Run, Stage, close, commands};
use crate::command::{Form, Operation, Reply};
use crate::document::{Document, Value};
use crate::patterns::{Rule, Unmatched};

/// How often an insert is tried that collides with a document which its filter does not match when docward looks.
const MAX_INSERTS: u32 = 4;

/// BadValue, FailedToParse, TypeMismatch, an invalid regular expression: what a filter can be wrong by.
pub(super) const FILTER_ERRORS: [i32; 4] = [2, 9, 14, 51091];

/// How often a statement is sent once more because others inserted or deleted the document between two steps.
const MAX_ATTEMPTS: u32 = 16;

impl<'f> BatchJob<'f> {
    /// Whether a rule decides what it means when the statement matches nothing.
    pub(super) fn checks_match(&self, index: usize) -> bool {
        let checks = |evaluated: &Evaluated<'_, '_>| {
            !evaluated.unmatched.is_empty() || evaluated.only_new.is_some() || evaluated.uncounted.is_some()
        };
        self.evaluated.get(index).is_some_and(checks)
    }

    /// Whether it is an upsert that must tell a document that is missing from one that fails a condition.
    pub(super) fn is_conditional_upsert(&self, index: usize) -> bool {
        let operation = self.evaluated.get(index).map(|evaluated| &evaluated.statement.operation);
        matches!(operation, Some(Operation::Update(update)) if update.upsert && !update.conditions.is_empty())
    }

    /// The look that the reply to a run calls for, if any.
    pub(super) fn look(
        &mut self,
        run: &Run,
        reply: &Reply<'_>,
        error: Option<Document<'_>>,
        frame: &[u8],
    ) -> Option<Step> {
        let index = *run.statements.first()?;
        match (run.stage, error) {
            // Somebody was faster; now there is a document to look at.
            (Stage::Insert, Some(error)) if run.attempts < MAX_ATTEMPTS && self.collided(index, error) => {}
            (_, Some(_)) | (Stage::Insert | Stage::Look, None) => return None,
            (Stage::Whole, None) if !self.checks_match(index) => return None,
            (Stage::Whole | Stage::Update, None) if merge::matched(reply, self.batch.form) > 0 => return None,
            (Stage::Whole | Stage::Update, None) => {}
        }
        // The server has ended the client's transaction with that error.
        if error.is_some() && self.command.session().in_transaction {
            return None;
        }
        let run = Run { statements: run.statements.clone(), next_numbers: Vec::new(), ..*run };
        Some(self.ask_for_match(run, index, frame.to_vec()))
    }

    /// Looks before the first run is sent, which may only insert.
    pub(super) fn look_first(&mut self) -> Step {
        let Some(run) = self.runs.as_mut().and_then(std::collections::VecDeque::pop_front) else {
            return self.conclude();
        };
        let Some(index) = run.statements.first().copied() else { return self.conclude() };
        self.ask_for_match(run, index, Vec::new())
    }

    fn ask_for_match(&mut self, run: Run, index: usize, unmatched: Vec<u8>) -> Step {
        let Some(evaluated) = self.evaluated.get(index) else { return self.conclude() };
        let message = self.asking().matching(&evaluated.statement, &evaluated.checked_fields());
        self.transaction_begun = true;
        self.awaiting = Awaiting::Look(run, unmatched);
        Step::Exchange(message)
    }

    /// Whether the plan waits for what the client's filter matches.
    pub(in crate::engine) fn looks(&self) -> bool {
        matches!(self.awaiting, Awaiting::Look(..) | Awaiting::Looks(_))
    }

    /// Goes on with a statement that matched nothing, in view of what its own filter matches.
    pub(super) fn take_look(&mut self, run: Run, unmatched: &[u8], looked: &[u8], outcomes: &mut RuleOutcomes) -> Flow {
        let Ok(reply) = Reply::parse(looked) else { return close("the server's answer to a find cannot be read") };
        if !reply.is_ok() {
            if commands::is_gone(&reply) && self.command.session().is_retryable_write() {
                return Flow::Break(self.pass_on(&commands::as_retryable_write(&reply)));
            }
            // A filter that the server cannot read is the statement's own error.
            if let ([index], true) =
                (run.statements.as_slice(), is_unreadable(&reply) && self.batch.form != Form::FindAndModify)
            {
                return self.fail(*index, &reply);
            }
            return self.take_refusal(&run, &reply, looked);
        }
        let Some(found) = commands::documents(&reply) else {
            return close("the server's answer to a find cannot be read");
        };
        match (found.first(), run.stage) {
            (None, Stage::Look | Stage::Update) if let Some(refused) = self.otherwise(&run) => {
                self.refuse_run(&run, refused, outcomes)
            }
            (None, Stage::Update | Stage::Look) => {
                self.go_on(Run { stage: Stage::Insert, attempts: run.attempts + 1, ..run });
                Flow::Continue(())
            }
            (Some(_), Stage::Insert) if !run.statements.first().is_some_and(|index| self.is_only_new(*index)) => {
                self.go_on(Run { stage: Stage::Update, attempts: run.attempts + 1, ..run });
                Flow::Continue(())
            }
            (Some(_), Stage::Whole | Stage::Update) if let Some(counting) = self.count_again(&run) => {
                self.go_on(counting);
                Flow::Continue(())
            }
            // What it collided with was deleted before docward could look.
            (None, Stage::Insert) if run.attempts < MAX_INSERTS => {
                self.go_on(Run { attempts: run.attempts + 1, ..run });
                Flow::Continue(())
            }
            // Nothing matches the filter, yet its key is taken: the server's own error.
            (None, Stage::Insert) => self.as_answered(run, unmatched),
            (stored, _) => match self.objection(&run, stored.copied()) {
                Some(refused) => self.refuse_run(&run, refused, outcomes),
                None => self.as_answered(run, unmatched),
            },
        }
    }

    /// The server refused what docward asked for one statement. That is the statement's own error, as it would be in the
    /// client's batch; unless the whole command is to be sent again, or there is only this statement.
    pub(super) fn take_refusal(&mut self, run: &Run, reply: &Reply<'_>, frame: &[u8]) -> Flow {
        let alone = self.evaluated.len() == 1 || self.batch.form == Form::FindAndModify;
        let [index] = run.statements.as_slice() else { return Flow::Break(self.pass_on(frame)) };
        let labelled = reply.body.get("errorLabels").is_some();
        if alone || labelled || commands::is_gone(reply) || self.command.session().in_transaction {
            return Flow::Break(self.pass_on(frame));
        }
        self.fail(*index, reply)
    }

    /// The error of a command of docward's own is the statement's.
    pub(super) fn fail(&mut self, index: usize, reply: &Reply<'_>) -> Flow {
        self.tally.fail(index, reply.body);
        self.stopped |= self.stops_on_error();
        Flow::Continue(())
    }

    /// Whether a rule knows what a findAndModify's error comes of.
    pub(super) fn is_explained(&self, error: Document<'_>) -> bool {
        let rule = self.evaluated.first().and_then(|evaluated| evaluated.explained_by);
        rule.is_some_and(|rule| rule.pattern.explain(error).is_some())
    }

    /// Puts the rules' own words in the place of errors that come of what they made of a statement.
    pub(super) fn explain_errors(&mut self, outcomes: &mut RuleOutcomes) {
        let (evaluated, batch) = (&mut self.evaluated, &self.batch);
        self.tally.retain_errors(|index, error| {
            let Some(evaluated) = evaluated.get_mut(index) else { return true };
            let Some(rule) = evaluated.explained_by else { return true };
            let Some(rejection) = rule.pattern.explain(error) else { return true };
            outcomes.note(rule, batch.namespace(&evaluated.statement), OutcomeKind::Reject, Some(&rejection));
            evaluated.refused = Some(RejectedBy { rule, rejection });
            false
        });
    }

    /// Whether it is rejected if its filter matches a document.
    pub(super) fn is_only_new(&self, index: usize) -> bool {
        self.evaluated.get(index).is_some_and(|evaluated| evaluated.only_new.is_some())
    }

    /// Why it is rejected although its filter matches nothing.
    fn otherwise(&self, run: &Run) -> Option<RejectedBy<'f>> {
        self.evaluated.get(*run.statements.first()?)?.otherwise.clone()
    }

    /// Whether the plan waits for a statement that can only match what it has inserted itself, when it was sent before.
    pub(in crate::engine) fn asks_for_record(&self) -> bool {
        let run = self.runs.as_ref().and_then(std::collections::VecDeque::front);
        matches!(self.awaiting, Awaiting::Run)
            && run.is_some_and(|run| {
                run.stage == Stage::Update && run.statements.first().is_some_and(|index| self.is_only_new(*index))
            })
    }

    pub(super) fn go_on(&mut self, run: Run) {
        if let Some(runs) = &mut self.runs {
            runs.push_front(run);
        }
    }

    /// The server's reply to the statement is the client's.
    fn as_answered(&mut self, run: Run, frame: &[u8]) -> Flow {
        if self.batch.form == Form::FindAndModify {
            return Flow::Break(self.pass_on(frame));
        }
        let Ok(reply) = Reply::parse(frame) else { return close("the server's reply to a write cannot be read") };
        let errors = merge::errors_of(&reply, self.batch.form);
        self.count(&reply, run, &errors)
    }

    /// The first rule that has something against n: 0.
    fn objection(&self, run: &Run, stored: Option<Document<'_>>) -> Option<RejectedBy<'f>> {
        let evaluated = self.evaluated.get(*run.statements.first()?)?;
        if let Some(refused) = evaluated.only_new.as_ref().filter(|_| stored.is_some()) {
            return Some(refused.clone());
        }
        evaluated.unmatched.iter().find_map(|rule: &&'f Rule| {
            match rule.pattern.unmatched(&evaluated.statement, stored) {
                Unmatched::Nothing => None,
                Unmatched::Reject(rejection) => Some(RejectedBy { rule, rejection }),
            }
        })
    }

    fn refuse_run(&mut self, run: &Run, refused: RejectedBy<'f>, outcomes: &mut RuleOutcomes) -> Flow {
        run.statements.iter().for_each(|index| self.refuse_unmatched(*index, refused.clone(), outcomes));
        Flow::Continue(())
    }

    pub(super) fn refuse_unmatched(&mut self, index: usize, refused: RejectedBy<'f>, outcomes: &mut RuleOutcomes) {
        let Some(evaluated) = self.evaluated.get_mut(index) else { return };
        let said = if refused.is_conflict() { OutcomeKind::Conflict } else { OutcomeKind::Reject };
        outcomes.note(refused.rule, self.batch.namespace(&evaluated.statement), said, Some(&refused.rejection));
        evaluated.refused = Some(refused);
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

/// Whether the server could not read the filter of a find of docward's.
pub(super) fn is_unreadable(reply: &Reply<'_>) -> bool {
    reply.code().is_some_and(|code| FILTER_ERRORS.contains(&code))
}

/// Whether the server has recorded that a findAndModify, now sent without `upsert`, has inserted: an earlier sending of the
/// same write had its reply lost. With `upsert` it gives that reply again.
pub(super) fn has_inserted(error: Document<'_>) -> bool {
    /// "findAndModify retry request is not compatible with previous write in the transaction of type: insert"
    const RECORDED_INSERT: i32 = 40608;
    error.get("code").and_then(Value::as_i32) == Some(RECORDED_INSERT)
}
