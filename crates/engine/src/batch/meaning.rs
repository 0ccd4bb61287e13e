//! Decides what the reply to a group means for its statements, without changing anything.

use super::super::merge;
use super::BatchJob;
use super::group::{Group, KindEnd, ReplyMeaning, UpsertStage};
use crate::command::{Reply, WriteForm};
use crate::document::{Document, Value};

/// "findAndModify retry request is not compatible with previous write in the transaction of type: insert". The server
/// has a record that a findAndModify, now sent without `upsert`, inserted a document: an earlier send of the same write
/// lost its reply. If sent with `upsert`, the server returns that reply again.
pub(super) const RECORDED_INSERT: i32 = 40608;

/// The reply to a group.
pub(super) struct GroupReply<'j, 'r, 'f> {
    pub(super) job: &'j BatchJob<'f>,
    pub(super) group: &'j Group,
    pub(super) reply: &'j Reply<'r>,
    /// The positions of failed statements in the group, and their errors.
    pub(super) errors: &'j [(usize, Document<'r>)],
}

impl<'r, 'f> GroupReply<'_, 'r, 'f> {
    /// Returns the meaning; an earlier case excludes the later ones.
    pub(super) fn meaning(&self) -> ReplyMeaning<'r, 'f> {
        let Self { job, group, reply, errors } = *self;
        if let Some(failed) = self.failed_increment() {
            return ReplyMeaning::IncrementFailed(Box::new(failed));
        }
        if group.stage == UpsertStage::Update && group.statements.len() > 1 {
            return ReplyMeaning::Undecided;
        }
        if let Some((position, taken)) = self.duplicate_number() {
            return ReplyMeaning::DuplicateNumber(position, taken);
        }
        let error = errors.first().map(|(_, error)| *error);
        if let Some(error) = error.filter(|_| job.batch.form == WriteForm::FindAndModify) {
            let is_recorded = error.get("code").and_then(Value::as_i32) == Some(RECORDED_INSERT);
            if group.stage == UpsertStage::Update && is_recorded {
                return ReplyMeaning::HasInserted;
            }
            if job.is_explained(0, error) {
                return ReplyMeaning::Explained(error);
            }
        }
        let first = group.statements.first().and_then(|index| job.evaluated.get(*index));
        let kind = first.and_then(|first| Some((first, first.kind_of(group, job.in_transaction())?)));
        let stage = match kind {
            None => group.stage,
            Some(_) if error.is_some() => return ReplyMeaning::Done,
            Some((first, stored)) => match first.after_kind(group, stored, merge::matched(reply, job.batch.form) > 0) {
                KindEnd::Next { next, matched } => return ReplyMeaning::NextKind { next, matched },
                KindEnd::Done => return ReplyMeaning::Done,
                KindEnd::Unmatched(stage) => stage,
            },
        };
        match self.unmatched(stage) {
            Some(index) => ReplyMeaning::Unmatched(index, stage),
            None => ReplyMeaning::Done,
        }
    }
}
