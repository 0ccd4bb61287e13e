//! Divides a batch into groups: which statements can be sent together, and which need their own reply.

use std::collections::VecDeque;

use super::super::evaluation::Evaluated;
use super::BatchJob;
use super::group::{Group, UpsertStage};
use crate::command::WriteForm;

impl BatchJob<'_> {
    pub(super) fn divide(&self) -> VecDeque<Group> {
        // Most batches are one group.
        let mut groups: VecDeque<Group> = VecDeque::with_capacity(1);
        let mut together: Vec<usize> = Vec::with_capacity(1);
        for index in self.sendable() {
            if !self.goes_alone(index) {
                together.push(index);
                continue;
            }
            // The server executes an unordered batch in its order, too.
            if !together.is_empty() {
                groups.push_back(Group::new(std::mem::take(&mut together)));
            }
            groups.push_back(self.group_alone(index));
        }
        if !together.is_empty() {
            groups.push_back(Group::new(together));
        }
        groups
    }

    pub(super) fn group_alone(&self, index: usize) -> Group {
        let stage = match self.is_staged_upsert(index) {
            // A driver sends a write again if its reply was lost, so the server may have a record of it.
            true if !self.is_only_new(index) || self.command.session().is_retryable_write() => UpsertStage::Update,
            _ if self.is_only_new(index) => UpsertStage::CheckMatch,
            _ => UpsertStage::Whole,
        };
        Group { stage, ..Group::new(vec![index]) }
    }

    /// Its match count matters, or it may have to be repeated and the command cannot be split elsewhere.
    fn goes_alone(&self, index: usize) -> bool {
        self.checks_match(index)
            || self.is_staged_upsert(index)
            || self.needs_transaction(index)
            || self.is_committed(index)
            || self.counts_by_kind(index)
            || (self.batch.form != WriteForm::Insert && self.optimistic_rules(index).next().is_some())
    }

    /// No rule needs the reply, so the batch can be sent as one command if it fits.
    pub(super) fn is_plain(&self) -> bool {
        // Those of a bulkWrite may need several replies.
        let needs_results =
            |evaluated: &Evaluated<'_, '_>| self.batch.form == WriteForm::BulkWrite && evaluated.has_own_errors();
        let plain = |evaluated: &Evaluated<'_, '_>| {
            evaluated.rejected.is_none()
                && !evaluated.committed
                && !needs_results(evaluated)
                && !evaluated.needs_transaction()
                && evaluated.prerequisites.increment().is_none()
        };
        let alone = |index| {
            self.checks_match(index) || self.is_staged_upsert(index) || self.optimistic_rules(index).next().is_some()
        };
        self.evaluated.iter().all(plain) && !(0..self.evaluated.len()).any(alone)
    }
}
