//! The server's limits on what docward makes larger: a statement that a rule blew up is refused, a message that
//! has become too long is cut into several, and the one reply to several commands stays a document.
//!
//! What the client itself made too large goes on, for the server to say so.

use std::collections::VecDeque;

use super::super::evaluation::RejectedBy;
use super::super::outcome::{OutcomeKind, RuleOutcomes};
use super::{BatchJob, Run, Stage};
use crate::command::{Form, MAX_STATEMENTS, PartOptions, Statement};
use crate::patterns::{Pattern, Rejection, Rule};
use crate::wire::{HEADER_LENGTH, MAX_COMMAND_DOCUMENT_LENGTH, MAX_DOCUMENT_LENGTH, MAX_MESSAGE_LENGTH};

/// Bytes of results and upserted ids in a merged reply after which no more is sent; the errors for what was not
/// sent, and what the last run brought, have the rest of the document. mongod's bulkWrite stops likewise.
const MAX_RESULT_LENGTH: usize = 8 * 1024 * 1024;
/// Bytes of results that one run may bring at most, as far as that can be told before.
const MAX_RUN_RESULT_LENGTH: usize = 4 * 1024 * 1024;
/// A successful result of bulkWrite without an upserted `_id`: six short fields.
const RESULT_LENGTH: usize = 100;
/// What a part has for each statement beside it: its number in `stmtIds`.
const STATEMENT_NUMBER_LENGTH: usize = 16;
const HINT: &str = "Make the document smaller, or write it in several steps.";
/// A field put in when the statement is sent: kind, terminator, number.
const NUMBER_LENGTH: usize = 1 + 1 + 8;

impl BatchJob<'_> {
    /// Refuses the statements that rules made larger than the server takes.
    pub(super) fn refuse_oversized(&mut self, outcomes: &mut RuleOutcomes) {
        let oversized: Vec<(usize, &str, usize)> = self
            .sendable()
            .filter_map(|index| {
                let (what, limit) = self.excess(index)?;
                Some((index, what, limit))
            })
            .collect();
        for (index, what, limit) in oversized {
            let Some(evaluated) = self.evaluated.get_mut(index) else { continue };
            let Some(rule) = evaluated.changed_by else { continue };
            let reason =
                format!("with what the rule adds to it {what} would be larger than the {limit} bytes a server takes");
            let rejection = Rejection::new(reason, HINT);
            outcomes.note(rule, self.batch.namespace(&evaluated.statement), OutcomeKind::Reject, Some(&rejection));
            evaluated.refused = Some(RejectedBy { rule, rejection });
        }
    }

    /// The limit that a statement keeps as it came and does not keep as it would be sent.
    fn excess(&self, index: usize) -> Option<(&'static str, usize)> {
        let evaluated = self.evaluated.get(index)?;
        let statement = &evaluated.statement;
        let room = self.optimistic_length(index);
        // An upper bound, which is all that most statements need.
        if evaluated.changed_by.is_none() || statement.written_length() + room <= MAX_DOCUMENT_LENGTH {
            return None;
        }
        let stored = statement.stored_length().map_or(0, |stored| stored + room);
        if stored > MAX_DOCUMENT_LENGTH && statement.source_length() <= MAX_DOCUMENT_LENGTH {
            return Some(("the document", MAX_DOCUMENT_LENGTH));
        }
        let sent = room
            + match self.batch.form {
                Form::FindAndModify => {
                    let message = self.batch.encode(&self.command, std::iter::once(statement));
                    message.len().saturating_sub(HEADER_LENGTH + 5)
                }
                _ => statement.encoded_length(),
            };
        let before = statement.source_length();
        let grew = sent > MAX_COMMAND_DOCUMENT_LENGTH && before <= MAX_COMMAND_DOCUMENT_LENGTH;
        grew.then_some(("the statement", MAX_COMMAND_DOCUMENT_LENGTH))
    }

    /// Bytes of the optimistic numbers that a statement is still to get.
    fn optimistic_length(&self, index: usize) -> usize {
        let field = |rule: &Rule| match &rule.pattern {
            Pattern::Sequence(sequence) => sequence.field().as_str().len(),
            _ => 0,
        };
        self.optimistic_rules(index).map(|rule| field(rule) + NUMBER_LENGTH).sum()
    }

    /// Cuts runs that are longer than a message may be, and, where replies are merged, those that might bring
    /// more results than one reply takes.
    pub(super) fn cut(&self, runs: VecDeque<Run>, merged: bool) -> VecDeque<Run> {
        let long = self.may_be_too_long();
        let merged = merged && self.batch.form != Form::FindAndModify;
        let brought = || (0..self.evaluated.len()).map(|index| self.result_length(index)).sum::<usize>();
        if !long && (!merged || brought() <= MAX_RUN_RESULT_LENGTH) {
            return runs;
        }
        let room = if long { self.room() } else { 0 };
        let mut cut = VecDeque::with_capacity(runs.len());
        for run in runs {
            // It goes alone.
            if run.stage != Stage::Whole {
                cut.push_back(run);
                continue;
            }
            let (mut message, mut results) = (0, 0);
            let mut statements: Vec<usize> = Vec::new();
            for index in run.statements {
                let sent = if long { self.sent_length(index) } else { 0 };
                let brought = if merged { self.result_length(index) } else { 0 };
                let full = message + sent > room || results + brought > MAX_RUN_RESULT_LENGTH;
                if full && !statements.is_empty() {
                    cut.push_back(Run::of(std::mem::take(&mut statements)));
                    (message, results) = (0, 0);
                }
                statements.push(index);
                (message, results) = (message + sent, results + brought);
            }
            cut.push_back(Run::of(statements));
        }
        cut
    }

    /// Bytes that statements may take in one message.
    fn room(&self) -> usize {
        let around = self.batch.encode_part(&self.command, &[], PartOptions::default()).len();
        /// Fields that a part may have and the client's command has not.
        const SPARE: usize = 256;
        MAX_MESSAGE_LENGTH.saturating_sub(around + SPARE)
    }

    /// Bytes that a statement takes in its message, at most.
    fn sent_length(&self, index: usize) -> usize {
        let statement = self.evaluated.get(index).map_or(0, |evaluated| evaluated.statement.encoded_length());
        statement + STATEMENT_NUMBER_LENGTH + self.optimistic_length(index)
    }

    /// Bytes that a statement brings to the reply, at most: an upserted `_id` comes from the statement.
    fn result_length(&self, index: usize) -> usize {
        let Some(evaluated) = self.evaluated.get(index) else { return 0 };
        match (self.batch.form, evaluated.statement.is_upsert()) {
            (_, true) => evaluated.statement.written_length() + RESULT_LENGTH,
            (Form::BulkWrite, false) => RESULT_LENGTH,
            (_, false) => 0,
        }
    }

    /// Whether the whole command could be longer than a message; an upper bound.
    pub(super) fn may_be_too_long(&self) -> bool {
        let statements: usize = self.evaluated.iter().map(|evaluated| evaluated.statement.written_length() + 128).sum();
        statements + self.command.message.body.len() > MAX_MESSAGE_LENGTH - 1024
    }

    /// Ends the batch when its reply can take no more: what was not sent is reported as that.
    pub(super) fn stop_if_full(&mut self) {
        if self.tally.result_length() <= MAX_RESULT_LENGTH {
            return;
        }
        let unsent = self.runs.replace(VecDeque::new()).into_iter().flatten().flat_map(|run| run.statements);
        let reported = if self.stops_on_error() { 1 } else { usize::MAX };
        unsent.take(reported).for_each(|index| self.tally.fail_unsent(index));
        self.stopped = true;
    }
}

/// The client's own statement in a procedure, which may have made it larger.
pub(super) fn excess_of_applied(statement: &Statement<'_>) -> Option<Rejection> {
    let fitted = statement.source_length() <= MAX_COMMAND_DOCUMENT_LENGTH;
    (fitted && statement.encoded_length() > MAX_COMMAND_DOCUMENT_LENGTH).then(|| {
        let reason = format!(
            "with what the rule adds to it the statement would be larger than the {MAX_COMMAND_DOCUMENT_LENGTH} bytes a server takes"
        );
        Rejection::new(reason, HINT)
    })
}

/// The further statements of a procedure, which go in one command.
pub(super) fn excess_of_change(message: &[u8], statements: usize) -> Option<Rejection> {
    (message.len() > MAX_COMMAND_DOCUMENT_LENGTH || statements > MAX_STATEMENTS).then(|| {
        let reason = format!("the {statements} changes that belong to it are more than a server takes in one command");
        Rejection::new(reason, HINT)
    })
}
