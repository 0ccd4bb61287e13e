//! Finds statements that had no effect by the server's replies, without asking the server again.
//!
//! The reply to one statement shows it, and so does the reply to a bulkWrite with its results. The other replies have
//! only sums for all statements of a command. Then at least as many statements matched nothing as the sum is smaller
//! than the number of statements. docward counts these. They are all of them, unless other statements of the command
//! have no rule that watches them, or match several documents.

use std::collections::HashSet;

use super::super::evaluation::{Evaluated, WatchedRule};
use super::super::merge;
use super::super::outcome::{OutcomeKind, RuleOutcomes};
use crate::command::{Operation, Reply, WriteBatch, WriteForm};
use crate::document::{Document, Value};
use crate::patterns::{NoEffect, NoEffectCause, NoEffectKind};

/// The statements of a command that had no effect, as far as the replies show them.
#[derive(Debug, Default)]
pub(super) struct WithoutEffect<'r>(Vec<WatchedStatements<'r>>);

/// Statements that one rule watches.
#[derive(Debug)]
struct WatchedStatements<'r> {
    watched: WatchedRule<'r>,
    no_effect: NoEffect,
    /// The namespace of one of them.
    namespace: usize,
    count: i64,
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

impl<'r> WithoutEffect<'r> {
    /// Notes which of the statements with these indexes, all of the sent command, its reply shows to have had no effect.
    pub(super) fn note(
        &mut self,
        reply: &Reply<'_>,
        batch: &WriteBatch<'_>,
        evaluated: &[Evaluated<'r, '_>],
        statements: &[usize],
    ) {
        let sent = statements.iter().filter_map(|index| evaluated.get(*index));
        if !reply.is_ok() || sent.clone().all(|one| one.watched.is_empty()) {
            return;
        }
        let errors = merge::errors_of(reply, batch.form);
        if let ([_], []) = (statements, errors.as_slice()) {
            let result = StatementResult::of_all(reply, batch.form);
            return sent.for_each(|one| self.note_one(one, result));
        }
        let failed: HashSet<usize> = errors.iter().map(|(position, _)| *position).collect();
        let first_error = errors.first().map(|(position, _)| *position).filter(|_| batch.ordered);
        let executed = sent.enumerate().take(first_error.unwrap_or(statements.len()));
        let mut done: Vec<_> = executed.filter(|(position, _)| !failed.contains(position)).collect();
        if batch.form == WriteForm::BulkWrite {
            let results = merge::results_of(reply);
            if results.len() == done.len() {
                let of_each = results.into_iter().map(StatementResult::from_bulk_write);
                return done.into_iter().zip(of_each).for_each(|((_, one), result)| self.note_one(one, result));
            }
        }
        let upserted: HashSet<usize> = reply.upserted().values().filter_map(merge::place_of_upserted).collect();
        done.retain(|(position, _)| !upserted.contains(position));
        let done: Vec<_> = done.into_iter().map(|(_, one)| one).collect();
        self.note_sums(StatementResult::of_all(reply, batch.form), &done);
    }

    fn note_one(&mut self, evaluated: &Evaluated<'r, '_>, result: StatementResult) {
        let namespace = evaluated.statement.namespace;
        for watched in evaluated.watched.iter().copied() {
            if let Some(no_effect) = watched.no_effect.filter(|no_effect| result.has_no_effect(no_effect.kind)) {
                self.add(WatchedStatements { watched, no_effect, namespace, count: 1 });
            }
        }
    }

    /// Notes the least number of statements that had no effect, by the sums for all of them.
    fn note_sums(&mut self, sums: StatementResult, done: &[&Evaluated<'r, '_>]) {
        let mut rules: Vec<WatchedStatements<'r>> = Vec::new();
        for (evaluated, watched) in done.iter().flat_map(|one| one.watched.iter().map(move |watched| (one, *watched))) {
            let Some(no_effect) = watched.no_effect else { continue };
            match rules.iter_mut().find(|known| known.watched.rule.id == watched.rule.id) {
                Some(known) => {
                    known.watched.rewritten |= watched.rewritten;
                    known.count += 1;
                }
                None => {
                    let namespace = evaluated.statement.namespace;
                    rules.push(WatchedStatements { watched, no_effect, namespace, count: 1 });
                }
            }
        }
        let updates = done.iter().filter_map(|one| match &one.statement.operation {
            Operation::Update(update) => Some(update.multi),
            _ => None,
        });
        for one in rules {
            let count = match one.no_effect.kind {
                NoEffectKind::NoMatch => one.count - sums.matched,
                // Each of the others may be one that changed nothing, and a `multi` any number of documents.
                NoEffectKind::Stale if updates.clone().any(|multi| multi) => 0,
                NoEffectKind::Stale => {
                    let others = i64::try_from(updates.clone().count()).unwrap_or(i64::MAX) - one.count;
                    (sums.unchanged.unwrap_or(0) - others).min(one.count)
                }
            };
            if count > 0 {
                self.add(WatchedStatements { count, ..one });
            }
        }
    }

    /// Adds statements of one rule; those with the same cause are counted together.
    fn add(&mut self, added: WatchedStatements<'r>) {
        let is_same = |known: &&mut WatchedStatements<'r>| {
            known.watched.rule.id == added.watched.rule.id
                && known.no_effect == added.no_effect
                && known.watched.rewritten == added.watched.rewritten
        };
        match self.0.iter_mut().find(is_same) {
            Some(known) => known.count += added.count,
            None => self.0.push(added),
        }
    }

    /// Moves the statements to the outcomes.
    pub(super) fn settle(&mut self, batch: &WriteBatch<'_>, outcomes: &mut RuleOutcomes) {
        for WatchedStatements { watched, no_effect, namespace, count } in std::mem::take(&mut self.0) {
            let kind = OutcomeKind::from_no_effect(NoEffectCause::Effect(no_effect.kind));
            let counted = (count.unsigned_abs(), watched.rewritten);
            outcomes.settle(watched.rule, batch.namespace_at(namespace), kind, (no_effect.reason, ""), counted);
        }
    }
}

impl StatementResult {
    /// Returns the sums for all statements of a reply.
    fn of_all(reply: &Reply<'_>, form: WriteForm) -> Self {
        match form {
            WriteForm::BulkWrite => {
                let matched = reply.count("nMatched");
                let unchanged = Some(matched - reply.count("nModified"));
                let upserted = reply.count("nUpserted") > 0;
                Self { matched: matched + reply.count("nDeleted"), unchanged, upserted }
            }
            // Its reply does not show whether the document has changed.
            WriteForm::FindAndModify => Self { matched: merge::matched(reply, form), unchanged: None, upserted: false },
            form => {
                let upserted = reply.upserted().values().count();
                let matched = reply.n() - i64::try_from(upserted).unwrap_or(0);
                let unchanged = (form == WriteForm::Update).then(|| matched - reply.modified());
                Self { matched, unchanged, upserted: upserted > 0 }
            }
        }
    }

    /// Returns a result in the reply to a bulkWrite.
    fn from_bulk_write(result: Document<'_>) -> Self {
        let count = |name: &str| result.get(name).and_then(Value::as_integer);
        let matched = count("n").unwrap_or(0);
        let unchanged = count("nModified").map(|modified| matched - modified);
        Self { matched, unchanged, upserted: result.get("upserted").is_some() }
    }

    fn has_no_effect(self, kind: NoEffectKind) -> bool {
        match kind {
            _ if self.upserted => false,
            NoEffectKind::NoMatch => self.matched == 0,
            NoEffectKind::Stale => self.matched > 0 && self.unchanged == Some(self.matched),
        }
    }
}
