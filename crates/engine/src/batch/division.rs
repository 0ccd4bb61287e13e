//! Divides a batch into groups: which statements can be sent together, and which need their own reply.

use std::collections::VecDeque;

use super::super::evaluation::Evaluated;
use super::BatchJob;
use super::group::{Group, UpsertStage};
use crate::command::WriteForm;

impl<'f> Evaluated<'f, 'f> {
    /// Its match count matters, or it may have to be repeated and the command cannot be split elsewhere.
    fn goes_alone(&self, form: WriteForm, in_transaction: bool) -> bool {
        self.depends_on_match()
            || self.needs_transaction()
            || self.committed
            || self.is_sent_by_kind(in_transaction)
            || (form != WriteForm::Insert && self.optimistic_rules().next().is_some())
    }

    /// No rule needs its reply, so it can be sent with all others as one command if that fits.
    pub(super) fn is_plain(&self, form: WriteForm) -> bool {
        // A bulkWrite's results may need several replies.
        let needs_results = form == WriteForm::BulkWrite && self.has_own_errors();
        self.rejected.is_none()
            && !self.committed
            && !needs_results
            && !self.needs_transaction()
            && !self.depends_on_match()
            && self.prerequisites.increment().is_none()
            && self.optimistic_rules().next().is_none()
    }
}

impl BatchJob<'_> {
    pub(super) fn divide(&self) -> VecDeque<Group> {
        // Most batches are one group.
        let mut groups: VecDeque<Group> = VecDeque::with_capacity(1);
        let mut together: Vec<usize> = Vec::with_capacity(1);
        for (index, evaluated) in self.sendable() {
            if !evaluated.goes_alone(self.batch.form, self.in_transaction()) {
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
        let is_only_new = self.is(index, |one| one.prerequisites.is_only_new());
        let stage = match self.is(index, Evaluated::is_staged_upsert) {
            // A driver sends a write again if its reply was lost, so the server may have a record of it.
            true if !is_only_new || self.command.session().is_retryable_write() => UpsertStage::Update,
            _ if is_only_new => UpsertStage::CheckMatch,
            _ => UpsertStage::Whole,
        };
        Group { stage, ..Group::new(vec![index]) }
    }

    /// Continues with a statement that is sent alone.
    pub(super) fn continue_alone(&mut self, index: usize) {
        let group = self.group_alone(index);
        self.continue_with(group);
    }
}
