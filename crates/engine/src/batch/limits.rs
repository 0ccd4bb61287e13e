//! Applies the server's size limits to what docward makes larger: rejects a statement that a rule made too large,
//! splits a message that has become too long, and keeps the merged reply within a document.
//!
//! Statements that were too large as the client sent them are forwarded; the server returns the error.

use std::collections::VecDeque;

use super::super::outcome::{OutcomeKind, RuleOutcomes};
use super::super::rejection_text::RejectedBy;
use super::{BatchJob, Evaluated, Group, UpsertStage};
use crate::command::{EncodeOptions, MAX_STATEMENTS, Statement, WriteForm};
use crate::patterns::Rejection;
use crate::wire::op_msg::BODY_AT;
use crate::wire::{MAX_COMMAND_DOCUMENT_LENGTH, MAX_DOCUMENT_LENGTH, MAX_MESSAGE_LENGTH};

/// After this many bytes of results and upserted ids in a merged reply, nothing more is sent. The rest of the
/// document is for errors about unsent statements and for the last group's results. mongod's bulkWrite has the same
/// limit.
const MAX_RESULT_LENGTH: usize = 8 * 1024 * 1024;
/// Upper bound of the result bytes of one group, estimated before sending.
const MAX_GROUP_RESULT_LENGTH: usize = 4 * 1024 * 1024;
/// Bytes of a successful bulkWrite result without an upserted `_id`: six short fields.
const RESULT_LENGTH: usize = 100;
/// Bytes of a statement's number in `stmtIds`.
const STATEMENT_NUMBER_LENGTH: usize = 16;
const HINT: &str = "Make the document smaller, or write it in several steps.";
/// Bytes of a number field that is added when the statement is sent: type, terminator, number.
const NUMBER_LENGTH: usize = 1 + 1 + 8;

impl Evaluated<'_, '_> {
    /// Returns the bytes of the optimistic numbers that the statement is still to get.
    fn optimistic_length(&self) -> usize {
        self.optimistic_rules().map(|rule| rule.numbers.field().as_str().len() + NUMBER_LENGTH).sum()
    }

    /// Returns an upper bound of the bytes that the statement takes in its message.
    fn sent_length(&self) -> usize {
        self.statement.encoded_length() + STATEMENT_NUMBER_LENGTH + self.optimistic_length()
    }

    /// Returns an upper bound of the bytes of the statement's result in the reply. An upserted `_id` comes from the
    /// statement.
    fn result_length(&self, form: WriteForm) -> usize {
        match form {
            _ if self.statement.is_upsert() => self.statement.written_length() + RESULT_LENGTH,
            WriteForm::BulkWrite => RESULT_LENGTH,
            _ => 0,
        }
    }
}

impl<'f> BatchJob<'f> {
    /// Rejects the statements that rules made larger than the server accepts.
    pub(super) fn reject_oversized(&mut self, outcomes: &mut RuleOutcomes) {
        let excess = |(index, evaluated)| Some((index, self.excess(evaluated)?));
        let oversized: Vec<_> = self.sendable().filter_map(excess).collect();
        for (index, (what, limit)) in oversized {
            let Some(evaluated) = self.evaluated.get_mut(index) else { continue };
            let Some(rule) = evaluated.changed_by else { continue };
            let reason =
                format!("with what the rule adds, {what} would be larger than the {limit} bytes that a server accepts");
            let rejection = Rejection::new(reason, HINT);
            outcomes.add(rule, self.batch.namespace(&evaluated.statement), OutcomeKind::Reject, Some(&rejection));
            evaluated.rejected = Some(RejectedBy::new(rule, rejection));
        }
    }

    /// Returns the limit that a statement exceeds as it would be sent but did not exceed as it arrived.
    fn excess(&self, evaluated: &Evaluated<'f, 'f>) -> Option<(&'static str, usize)> {
        let (statement, room) = (&evaluated.statement, evaluated.optimistic_length());
        // An upper bound, which suffices for most statements.
        if evaluated.changed_by.is_none() || statement.written_length() + room <= MAX_DOCUMENT_LENGTH {
            return None;
        }
        let stored = statement.stored().map_or(0, |stored| stored.as_bytes().len() + room);
        if stored > MAX_DOCUMENT_LENGTH && statement.source_length() <= MAX_DOCUMENT_LENGTH {
            return Some(("the document", MAX_DOCUMENT_LENGTH));
        }
        let sent = room
            + match self.batch.form {
                WriteForm::FindAndModify => {
                    let message = self.batch.encode(&self.command, std::iter::once(statement));
                    message.len().saturating_sub(BODY_AT)
                }
                _ => statement.encoded_length(),
            };
        let before = statement.source_length();
        let grew = sent > MAX_COMMAND_DOCUMENT_LENGTH && before <= MAX_COMMAND_DOCUMENT_LENGTH;
        grew.then_some(("the statement", MAX_COMMAND_DOCUMENT_LENGTH))
    }

    /// Splits groups that are longer than a message may be. If replies are merged, also splits groups whose results might
    /// exceed one reply.
    pub(super) fn split_long(&self, groups: VecDeque<Group>, merged: bool) -> VecDeque<Group> {
        let long = self.may_be_too_long();
        let merged = merged && self.batch.form != WriteForm::FindAndModify;
        let expected = || self.evaluated.iter().map(|one| one.result_length(self.batch.form)).sum::<usize>();
        if !long && (!merged || expected() <= MAX_GROUP_RESULT_LENGTH) {
            return groups;
        }
        let room = if long { self.room() } else { 0 };
        let mut split = VecDeque::with_capacity(groups.len());
        for group in groups {
            // Such a group holds one statement.
            if group.stage != UpsertStage::Whole {
                split.push_back(group);
                continue;
            }
            let (mut message, mut results) = (0, 0);
            let mut statements: Vec<usize> = Vec::new();
            for index in group.statements {
                let Some(evaluated) = self.evaluated.get(index) else { continue };
                let sent = if long { evaluated.sent_length() } else { 0 };
                let expected = if merged { evaluated.result_length(self.batch.form) } else { 0 };
                let full = message + sent > room || results + expected > MAX_GROUP_RESULT_LENGTH;
                if full && !statements.is_empty() {
                    split.push_back(Group::new(std::mem::take(&mut statements)));
                    (message, results) = (0, 0);
                }
                statements.push(index);
                (message, results) = (message + sent, results + expected);
            }
            split.push_back(Group::new(statements));
        }
        split
    }

    /// Returns the bytes for statements in one message.
    fn room(&self) -> usize {
        let around = self.batch.encode_part(&self.command, &[], EncodeOptions::default()).len();
        /// Bytes of fields that a part may have in addition to the client's command.
        const SPARE: usize = 256;
        MAX_MESSAGE_LENGTH.saturating_sub(around + SPARE)
    }

    /// Whether the whole command could be longer than a message; an upper bound.
    pub(super) fn may_be_too_long(&self) -> bool {
        let statements: usize = self.evaluated.iter().map(|evaluated| evaluated.statement.written_length() + 128).sum();
        statements + self.command.message.body.len() > MAX_MESSAGE_LENGTH - 1024
    }

    /// Ends the batch when its reply is full; unsent statements are reported as errors.
    pub(super) fn stop_if_full(&mut self) {
        if self.merged.result_length() <= MAX_RESULT_LENGTH {
            return;
        }
        let unsent = std::mem::take(&mut self.groups).into_iter().flat_map(|group| group.statements);
        let reported = if self.stops_on_error() { 1 } else { usize::MAX };
        unsent.take(reported).for_each(|index| self.merged.fail_unsent(index));
        self.stopped = true;
    }
}

/// Returns the rejection of a client's statement that a procedure made too large.
pub(super) fn excess_of_statement(statement: &Statement<'_>) -> Option<Rejection> {
    let fitted = statement.source_length() <= MAX_COMMAND_DOCUMENT_LENGTH;
    (fitted && statement.encoded_length() > MAX_COMMAND_DOCUMENT_LENGTH).then(|| {
        let reason = format!(
            "with what the rule adds, the statement would be larger than the {MAX_COMMAND_DOCUMENT_LENGTH} bytes \
             that a server accepts"
        );
        Rejection::new(reason, HINT)
    })
}

/// Returns the rejection of a procedure's further statements, sent as one command, if they are too large or too many.
pub(super) fn excess_of_writes(message: &[u8], statements: usize) -> Option<Rejection> {
    (message.len() > MAX_COMMAND_DOCUMENT_LENGTH || statements > MAX_STATEMENTS).then(|| {
        let reason = format!("the rule adds {statements} writes to it, more than a server accepts in one command");
        Rejection::new(reason, HINT)
    })
}
