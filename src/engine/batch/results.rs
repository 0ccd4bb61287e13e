//! Finds statements that had no effect by the server's replies, without asking the server again.
//!
//! The reply to one statement shows it, and so does the reply to a bulkWrite with its results. The other replies have
//! only sums for all statements of a command. Then at least as many statements matched nothing as the sum is smaller
//! than the number of statements. docward counts these. They are all of them, unless other statements of the command
//! have no rule that watches them, or match several documents.

use std::collections::HashSet;

use super::super::evaluation::WatchedRule;
use super::super::merge;
use super::super::outcome::{OutcomeKind, RuleOutcomes};
use super::super::port::{Flow, Port};
use super::super::step::Step;
use super::BatchJob;
use crate::command::{Operation, Reply, WriteForm};
use crate::document::{Document, Value};
use crate::patterns::{NoEffect, NoEffectCause, NoEffectKind};

/// Statements without effect that one rule watches.
#[derive(Debug)]
pub(super) struct WithoutEffect<'r> {
    watched: WatchedRule<'r>,
    no_effect: NoEffect,
    /// One of them.
    index: usize,
    statements: u64,
}

/// What a reply shows of one statement, or about several together.
#[derive(Debug, Clone, Copy, Default)]
struct StatementResult {
    /// The documents that were matched or deleted.
    matched: i64,
    /// The updated documents that were matched and not changed; `None`: unknown.
    unchanged: Option<i64>,
    upserted: bool,
}

impl StatementResult {
    fn has_no_effect(self, kind: NoEffectKind) -> bool {
        match kind {
            _ if self.upserted => false,
            NoEffectKind::NoMatch => self.matched == 0,
            NoEffectKind::Stale => self.matched > 0 && self.unchanged == Some(self.matched),
        }
    }
}

impl<'f> BatchJob<'f> {
    /// Returns the message to send for the last step of a plan whose reply a rule needs, to count statements without
    /// effect or to explain errors; or the step.
    pub(super) fn watched_message(&self, last: Step) -> Result<Vec<u8>, Step> {
        if !self.evaluated.iter().any(|evaluated| !evaluated.watched.is_empty() || evaluated.has_own_errors()) {
            return Err(last);
        }
        match last {
            Step::Forward { message, expects_reply: true } => Ok(message),
            Step::ForwardOriginal { expects_reply: true } => {
                let statements = self.evaluated.iter().map(|evaluated| &evaluated.statement);
                Ok(self.batch.encode(&self.command, statements))
            }
            last => Err(last),
        }
    }

    /// Sends one message with all statements, and passes its reply on.
    pub(super) async fn send_once(mut self: Box<Self>, message: Vec<u8>, port: Port) -> Flow<Step> {
        let reply = port.exchange(message).await;
        Flow::Continue(port.outcomes(|outcomes| self.take_only_reply(reply, outcomes)))
    }

    /// Takes the reply to a message with all statements, and passes it on, unless a rule explains an error in it.
    pub(in crate::engine) fn take_only_reply(&mut self, frame: Vec<u8>, outcomes: &mut RuleOutcomes) -> Step {
        let Ok(reply) = Reply::parse(&frame) else {
            return Step::Close("the server's reply to a write cannot be parsed".to_owned());
        };
        let all: smallvec::SmallVec<[usize; 1]> = (0..self.evaluated.len()).collect();
        self.note_results(&reply, &all);
        self.note_without_effect(outcomes);
        let explained = self.take_explained(&reply, &all);
        drop(reply);
        if !explained {
            return Step::Reply(frame);
        }
        self.explain_errors(outcomes);
        self.finish()
    }

    /// Takes the results of a reply in which a rule explains an error. Returns false if there is none.
    fn take_explained(&mut self, reply: &Reply<'_>, statements: &[usize]) -> bool {
        let form = self.batch.form;
        let explained = merge::errors_of(reply, form).iter().any(|(index, error)| self.is_explained(*index, *error));
        match form {
            _ if !explained => {}
            WriteForm::FindAndModify => self.merged.add_error(reply.body),
            _ => self.merged.add(reply, form, statements),
        }
        explained
    }

    /// Notes which of these statements the reply shows to have had no effect.
    pub(super) fn note_results(&mut self, reply: &Reply<'_>, statements: &[usize]) {
        let is_watched = |index: &usize| self.evaluated.get(*index).is_some_and(|one| !one.watched.is_empty());
        if !reply.is_ok() || !statements.iter().any(is_watched) {
            return;
        }
        let errors = merge::errors_of(reply, self.batch.form);
        if let ([index], []) = (statements, errors.as_slice()) {
            self.note_effect(*index, self.effect_of_all(reply));
            return;
        }
        let failed: HashSet<usize> = errors.iter().map(|(position, _)| *position).collect();
        let first_error = errors.first().map(|(position, _)| *position).filter(|_| self.batch.ordered);
        let sent = statements.iter().copied().enumerate().take(first_error.unwrap_or(statements.len()));
        let mut done: Vec<(usize, usize)> = sent.filter(|(position, _)| !failed.contains(position)).collect();
        if self.batch.form == WriteForm::BulkWrite {
            let results = merge::results_of(reply);
            if results.len() == done.len() {
                for ((_, index), result) in done.into_iter().zip(results) {
                    self.note_effect(index, effect_of_result(result));
                }
                return;
            }
        }
        let upserted: HashSet<usize> = reply.upserted().values().filter_map(merge::place_of_upserted).collect();
        done.retain(|(position, _)| !upserted.contains(position));
        self.note_sums(reply, &done.into_iter().map(|(_, index)| index).collect::<Vec<_>>());
    }

    /// Notes the effect of one statement.
    fn note_effect(&mut self, index: usize, effect: StatementResult) {
        let Some(evaluated) = self.evaluated.get(index) else { return };
        for watched in &evaluated.watched {
            if let Some(no_effect) = watched.no_effect.filter(|no_effect| effect.has_no_effect(no_effect.kind)) {
                add(&mut self.without_effect, *watched, no_effect, index, 1);
            }
        }
    }

    /// Notes the least number of statements that had no effect, by the sums for all of them.
    fn note_sums(&mut self, reply: &Reply<'_>, done: &[usize]) {
        let effect = self.effect_of_all(reply);
        let evaluated = |index: &usize| self.evaluated.get(*index);
        let mut rules: Vec<(WatchedRule<'f>, NoEffect, usize, i64)> = Vec::new();
        for (index, watched) in done.iter().flat_map(|index| {
            evaluated(index).into_iter().flat_map(|one| &one.watched).map(|watched| (*index, *watched))
        }) {
            let Some(no_effect) = watched.no_effect else { continue };
            match rules.iter_mut().find(|(known, ..)| known.rule.id == watched.rule.id) {
                Some((known, .., count)) => {
                    known.rewritten |= watched.rewritten;
                    *count += 1;
                }
                None => rules.push((watched, no_effect, index, 1)),
            }
        }
        let updates = || {
            done.iter().filter_map(evaluated).filter_map(|one| match &one.statement.operation {
                Operation::Update(update) => Some(update.multi),
                _ => None,
            })
        };
        for (watched, no_effect, index, count) in rules {
            let least = match no_effect.kind {
                NoEffectKind::NoMatch => count - effect.matched,
                // Each of the others may be one that changed nothing, and a `multi` any number of documents.
                NoEffectKind::Stale if updates().any(|multi| multi) => 0,
                NoEffectKind::Stale => {
                    let others = i64::try_from(updates().count()).unwrap_or(i64::MAX) - count;
                    (effect.unchanged.unwrap_or(0) - others).min(count)
                }
            };
            if let Some(least) = u64::try_from(least).ok().filter(|least| *least > 0) {
                add(&mut self.without_effect, watched, no_effect, index, least);
            }
        }
    }

    /// Returns the sums for all statements of a reply.
    fn effect_of_all(&self, reply: &Reply<'_>) -> StatementResult {
        match self.batch.form {
            WriteForm::BulkWrite => {
                let matched = reply.count("nMatched");
                let unchanged = Some(matched - reply.count("nModified"));
                let upserted = reply.count("nUpserted") > 0;
                StatementResult { matched: matched + reply.count("nDeleted"), unchanged, upserted }
            }
            // Its reply does not show whether the document has changed.
            WriteForm::FindAndModify => {
                StatementResult { matched: merge::matched(reply, self.batch.form), unchanged: None, upserted: false }
            }
            form => {
                let upserted = reply.upserted().values().count();
                let matched = reply.n() - i64::try_from(upserted).unwrap_or(0);
                let unchanged = (form == WriteForm::Update).then(|| matched - reply.modified());
                StatementResult { matched, unchanged, upserted: upserted > 0 }
            }
        }
    }

    /// Adds the outcomes of the statements without effect.
    pub(super) fn note_without_effect(&mut self, outcomes: &mut RuleOutcomes) {
        for WithoutEffect { watched, no_effect, index, statements } in std::mem::take(&mut self.without_effect) {
            let Some(evaluated) = self.evaluated.get(index) else { continue };
            let kind = OutcomeKind::from_no_effect(NoEffectCause::Effect(no_effect.kind));
            let namespace = self.batch.namespace(&evaluated.statement);
            let count = (statements, watched.rewritten);
            outcomes.settle(watched.rule, namespace, kind, (no_effect.reason, ""), count);
        }
    }
}

/// Returns the effect in a result of a bulkWrite.
fn effect_of_result(result: Document<'_>) -> StatementResult {
    let count = |name: &str| result.get(name).and_then(Value::as_integer);
    let matched = count("n").unwrap_or(0);
    let unchanged = count("nModified").map(|modified| matched - modified);
    StatementResult { matched, unchanged, upserted: result.get("upserted").is_some() }
}

/// Adds statements of one rule; those with the same cause are counted together.
fn add<'r>(
    all: &mut Vec<WithoutEffect<'r>>,
    watched: WatchedRule<'r>,
    no_effect: NoEffect,
    index: usize,
    statements: u64,
) {
    let same = |known: &&mut WithoutEffect<'r>| {
        known.watched.rule.id == watched.rule.id
            && known.no_effect == no_effect
            && known.watched.rewritten == watched.rewritten
    };
    match all.iter_mut().find(same) {
        Some(known) => known.statements += statements,
        None => all.push(WithoutEffect { watched, no_effect, index, statements }),
    }
}
