//! One look for many statements that are rejected if their filters match a document.
//!
//! The look is an update command that sends each statement's filter, collation and hint with an update that the server
//! refuses for every document there is: to remove `_id`. An error 66 (ImmutableField) tells that the filter matches, and
//! nothing is ever written. So filters are planned, permitted and routed as the statements themselves would be, and each
//! fails for itself. Where such a look does not tell, a find does (`conflicts.rs`).

use super::super::merge;
use super::super::outcome::RuleOutcomes;
use super::super::plan::Step;
use super::{Awaiting, BatchJob, Flow, Run, Stage, close, commands};
use crate::command::{Form, Reply, code};
use crate::document::{Document, Value};

/// Statements in the first look of a batch, and the most in one.
const FIRST: usize = 128;
const MOST: usize = 1024;
/// Bytes of statements in one look, unless one alone has more.
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// How many statements the next look may have. What was looked at is stale once something is inserted. So the look behind
/// an insert begins small: however statements that match alternate with those that insert, few are looked at twice.
#[derive(Debug)]
pub(super) struct Reach(usize);

impl Default for Reach {
    fn default() -> Self {
        Self(FIRST)
    }
}

/// What a look tells of one statement.
enum Seen<'r> {
    Match,
    Nothing,
    /// Its own error.
    Failed(Document<'r>),
    /// Only a find tells.
    Unclear,
}

impl<'f> BatchJob<'f> {
    /// Joins to the first run those behind it that wait for the same.
    pub(super) fn join_runs(&mut self) {
        let Some(runs) = &self.runs else { return };
        let Some(first) = runs.front() else { return };
        let (stage, namespace, mut bytes) = (first.stage, self.namespace_of(first), 0);
        let fits = |run: &&Run| {
            bytes += run.statements.iter().map(|index| self.source_length(*index)).sum::<usize>();
            bytes <= MOST_BYTES && run.stage == stage && self.namespace_of(run) == namespace && self.may_join(run)
        };
        let count = runs.iter().take(self.reach.0).take_while(fits).count();
        let Some(runs) = self.runs.as_mut().filter(|_| count > 1) else { return };
        let statements = runs.drain(..count).flat_map(|run| run.statements).collect();
        runs.push_front(Run { stage, ..Run::of(statements) });
    }

    /// Whether it may be looked at together with others. In a transaction the first error would end it.
    fn may_join(&self, run: &Run) -> bool {
        let &[index] = run.statements.as_slice() else { return false };
        matches!(run.stage, Stage::Look | Stage::Update)
            && !run.alone
            && !self.command.session().in_transaction
            && self.is_only_new(index)
            && !self.has_procedure(index)
            && self.optimistic_rules(index).next().is_none()
    }

    fn namespace_of(&self, run: &Run) -> Option<usize> {
        Some(self.evaluated.get(*run.statements.first()?)?.statement.namespace)
    }

    fn source_length(&self, index: usize) -> usize {
        self.evaluated.get(index).map_or(0, |evaluated| evaluated.statement.source_length())
    }

    /// The server's answer to statements that could only match what they have inserted themselves, when they were sent
    /// before. Gives the run back if it is none of these.
    pub(super) fn take_records(
        &mut self,
        run: Run,
        reply: &Reply<'_>,
        errors: &[(usize, Document<'_>)],
    ) -> Option<Run> {
        if run.stage != Stage::Update || run.statements.len() < 2 {
            return Some(run);
        }
        let failed = |place: usize| errors.iter().find(|(failed, _)| *failed == place).map(|(_, error)| *error);
        let first_failed = errors.first().map(|(place, _)| *place);
        let mut next = Vec::with_capacity(run.statements.len());
        for (place, index) in run.statements.into_iter().enumerate() {
            let stopped = self.stops_on_error() && first_failed.is_some_and(|first| place >= first);
            match failed(place) {
                // Which of them is recorded is not told, and what the first error of an ordered batch is, not yet.
                _ if merge::matched(reply, self.batch.form) > 0 || stopped => {
                    let alone = !stopped || first_failed == Some(place);
                    next.push(Run { stage: Stage::Update, alone, ..Run::of(vec![index]) });
                }
                Some(error) => self.tally.fail(index, error),
                None => next.push(Run { stage: Stage::Look, ..Run::of(vec![index]) }),
            }
        }
        self.go_on_with(next);
        None
    }

    /// Looks for what the filters of all statements of the first run match.
    pub(super) fn look_together(&mut self) -> Step {
        let Some(run) = self.runs.as_mut().and_then(std::collections::VecDeque::pop_front) else {
            return self.conclude();
        };
        let evaluated = run.statements.iter().filter_map(|index| self.evaluated.get(*index));
        let statements: Vec<_> = evaluated.map(|evaluated| &evaluated.statement).collect();
        let Some(first) = statements.first() else { return self.conclude() };
        let message = self.asking().match_all(self.batch.namespace(first), &statements);
        self.transaction_begun = true;
        self.awaiting = Awaiting::Looks(run);
        Step::Exchange(message)
    }

    /// Goes on with the statements of a run, in view of what their filters match.
    pub(super) fn take_looks(&mut self, run: Run, looked: &[u8], outcomes: &mut RuleOutcomes) -> Flow {
        let Ok(reply) = Reply::parse(looked) else { return close("the server's answer to a look cannot be read") };
        if !reply.is_ok() {
            if commands::is_gone(&reply) && self.command.session().is_retryable_write() {
                return Flow::Break(self.pass_on(&commands::as_retryable_write(&reply)));
            }
            return self.take_refusal(&run, &reply, looked);
        }
        let mut errors = merge::errors_of(&reply, Form::Update).into_iter().peekable();
        // Those that match nothing and insert nothing: the server counts them.
        let mut counted = Vec::new();
        let mut unclear = Vec::new();
        for (place, index) in run.statements.iter().copied().enumerate() {
            let error = errors.next_if(|(failed, _)| *failed == place).map(|(_, error)| error);
            // Something was updated, which cannot be.
            let seen = if reply.n() > 0 { Seen::Unclear } else { Seen::of(error) };
            let refused = match seen {
                Seen::Match => self.evaluated.get(index).and_then(|evaluated| evaluated.only_new.clone()),
                Seen::Nothing => self.evaluated.get(index).and_then(|evaluated| evaluated.otherwise.clone()),
                Seen::Failed(_) | Seen::Unclear => None,
            };
            let ends = self.stops_on_error() && !matches!((&seen, &refused), (Seen::Nothing, None));
            if ends && !counted.is_empty() {
                // One of those before it may fail.
                let rest = run.statements.get(place..).unwrap_or_default();
                return self.resume_looks(counted, unclear, None, rest);
            }
            match (seen, refused) {
                (_, Some(refused)) => {
                    self.refuse_unmatched(index, refused, outcomes);
                    if self.stopped {
                        return Flow::Continue(());
                    }
                }
                (Seen::Nothing, None)
                    if self.evaluated.get(index).is_some_and(|evaluated| evaluated.statement.is_upsert()) =>
                {
                    self.reach = Reach(1);
                    let rest = run.statements.get(place + 1..).unwrap_or_default();
                    return self.resume_looks(counted, unclear, Some(index), rest);
                }
                (Seen::Nothing, None) => counted.push(index),
                (Seen::Failed(error), None) => {
                    self.tally.fail(index, error);
                    if self.stops_on_error() {
                        self.stopped = true;
                        return Flow::Continue(());
                    }
                }
                (Seen::Match | Seen::Unclear, None) => {
                    unclear.push(index);
                    if self.stops_on_error() {
                        self.reach = Reach(1);
                        let rest = run.statements.get(place + 1..).unwrap_or_default();
                        return self.resume_looks(counted, unclear, None, rest);
                    }
                }
            }
        }
        self.reach = Reach((self.reach.0 * 2).min(MOST));
        self.resume_looks(counted, unclear, None, &[])
    }

    /// Sends what a look was clear about, and looks anew for the rest.
    fn resume_looks(
        &mut self,
        counted: Vec<usize>,
        unclear: Vec<usize>,
        upsert: Option<usize>,
        rest: &[usize],
    ) -> Flow {
        let mut next = Vec::with_capacity(rest.len() + unclear.len() + 2);
        if !counted.is_empty() {
            next.push(Run { stage: Stage::Insert, ..Run::of(counted) });
        }
        next.extend(unclear.into_iter().map(|index| Run { stage: Stage::Look, alone: true, ..Run::of(vec![index]) }));
        next.extend(upsert.map(|index| Run { stage: Stage::Insert, ..Run::of(vec![index]) }));
        next.extend(rest.iter().map(|index| Run { stage: Stage::Look, ..Run::of(vec![*index]) }));
        self.go_on_with(next);
        Flow::Continue(())
    }

    fn go_on_with(&mut self, next: Vec<Run>) {
        next.into_iter().rev().for_each(|run| self.go_on(run));
    }
}

impl<'r> Seen<'r> {
    fn of(error: Option<Document<'r>>) -> Self {
        let Some(error) = error else { return Self::Nothing };
        match error.get("code").and_then(Value::as_i32) {
            Some(code::IMMUTABLE_FIELD) => Self::Match,
            Some(code) if super::conflicts::FILTER_ERRORS.contains(&code) => Self::Failed(error),
            _ => Self::Unclear,
        }
    }
}
