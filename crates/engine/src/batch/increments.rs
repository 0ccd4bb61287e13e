//! Handles updates that increment a field which may hold a value that cannot be incremented. The server fails them,
//! and docward does not know in advance which documents hold such a value.
//!
//! For one document outside a transaction the statement is sent as it is. After the server's error it is sent again
//! in a form for the value that must be stored there, before the statements after it. An error would abort a
//! transaction, or leave some of many documents changed. In those cases docward sends one statement for each kind of
//! value, which matches no other documents.

use super::group::{FailedIncrement, KindEnd};
use super::meaning::GroupReply;
use super::{BatchJob, Evaluated, Flow, Group, Port, UpsertStage};
use crate::command::{Operation, Reply, Statement, code};
use crate::document::{CowDocument, Value};
use crate::effect::equality;
use crate::evaluation::DroppedIncrement;
use crate::patterns::{Prerequisite, StoredKind};

impl<'f> Evaluated<'f, 'f> {
    /// Whether the statement is sent once for each kind of stored value.
    pub(super) fn is_sent_by_kind(&self, in_transaction: bool) -> bool {
        // A transaction tries the forms of a statement for one document itself.
        self.prerequisites.increment().is_some()
            && (reaches_many(&self.statement) || in_transaction && !self.needs_transaction())
    }

    /// Returns the kind of stored value that the statement's group is for, if the statement is sent once for each kind.
    pub(super) fn kind_of(&self, group: &Group, in_transaction: bool) -> Option<StoredKind> {
        let is_sent =
            matches!(group.stage, UpsertStage::Whole | UpsertStage::Update) && self.is_sent_by_kind(in_transaction);
        is_sent.then(|| group.kind.unwrap_or(StoredKind::Number))
    }

    /// Returns the statement in the form for documents with this kind of value; `None` if there is no such form.
    fn form_for<'s>(&self, statement: &Statement<'s>, stored: StoredKind) -> Option<Statement<'s>> {
        let operation = self.prerequisites.increment()?.pattern.incrementing()?.form_for(statement, stored)?;
        Some(statement.with(operation))
    }

    /// Returns the statement for documents with this kind of value.
    pub(super) fn for_kind<'s>(&self, statement: &Statement<'s>, stored: StoredKind) -> Statement<'s> {
        self.form_for(statement, stored).map_or_else(|| statement.clone(), |form| form.without_upsert())
    }

    /// Returns the forms of a procedure's statement to send before the statement itself, until one matches: inside the
    /// client's transaction the one for each kind of stored value, because an error would abort it.
    pub(super) fn forms_by_kind<'s>(&self, statement: &Statement<'s>) -> Vec<Statement<'s>> {
        if reaches_many(statement) {
            return Vec::new();
        }
        let kinds = std::iter::successors(Some(StoredKind::Number), |kind| kind.next());
        kinds.map_while(|kind| self.form_for(statement, kind)).map(|form| form.without_upsert()).collect()
    }

    /// Returns what follows on the statement for documents with this kind of value. `has_matched`: there were some.
    pub(super) fn after_kind(&self, group: &Group, stored: StoredKind, has_matched: bool) -> KindEnd {
        let (statement, matched) = (&self.statement, group.matched || has_matched);
        match stored.next().filter(|next| self.form_for(statement, *next).is_some()) {
            Some(next) if reaches_many(statement) || !matched => KindEnd::Next { next, matched },
            _ if matched => KindEnd::Done,
            _ if statement.is_upsert() => KindEnd::Unmatched(UpsertStage::Update),
            _ => KindEnd::Unmatched(group.stage),
        }
    }

    /// Removes a rule's increment from the statement.
    fn drop_increment(&mut self, FailedIncrement { rule, without, .. }: FailedIncrement<'f>) {
        self.prerequisites.drop_increment();
        let incremented = std::mem::replace(&mut self.statement, without).operation;
        self.dropped_increment = Some(Box::new(DroppedIncrement { rule, incremented, has_unknown_cause: true }));
    }

    /// Whether the server failed the statement, and it is not known yet that the increment has caused this.
    pub(super) fn has_unknown_cause(&self) -> bool {
        self.dropped_increment.as_ref().is_some_and(|dropped| dropped.has_unknown_cause)
    }
}

impl<'f> BatchJob<'f> {
    /// Sends a group's statement whose increment failed again, without it, and then the statements after it.
    pub(super) fn repeat_without_increment(&mut self, group: Group, failed: FailedIncrement<'f>, reply: &Reply<'_>) {
        let (done, rest) = group.statements.split_at(failed.position);
        self.add_done(reply, done);
        let Some((index, rest)) = rest.split_first() else { return };
        if let Some(evaluated) = self.evaluated.get_mut(*index) {
            evaluated.drop_increment(failed);
        }
        let again = Group { attempts: group.attempts + 1, ..self.group_alone(*index) };
        let rest = rest.to_vec();
        self.repeat(&rest, Group { attempts: 0, ..group });
        // The result shows whether the stored version has changed meanwhile.
        self.continue_with(again);
    }

    /// Looks whether the increment has caused the server's error: then the document that the statement selects has a
    /// value that cannot be incremented. Otherwise the statement is sent with the increment again, and the client gets the
    /// error if it is the statement's own: without the increment the statement would select another document. Returns
    /// whether the statement is sent without it.
    pub(super) async fn find_cause(&mut self, group: &Group, index: usize, port: &Port) -> Flow<bool> {
        let Some(found) = self.find_match(group, index, port).await? else { return Flow::Continue(false) };
        let Some(evaluated) = self.evaluated.get_mut(index) else { return Flow::Continue(true) };
        let Some(dropped) = &mut evaluated.dropped_increment else { return Flow::Continue(true) };
        dropped.has_unknown_cause = false;
        // If there is no document, the increment failed in the one that the upsert would insert.
        let Some(stored) = found.document() else { return Flow::Continue(true) };
        let incrementing = dropped.rule.pattern.incrementing();
        if incrementing.is_some_and(|one| one.stored_kind(stored) == StoredKind::Number) {
            // It was so before, or another client has just set it to a number: the server's error to the next attempt shows it.
            self.increment_again(group).into_iter().for_each(|again| self.continue_with(again));
            return Flow::Continue(false);
        }
        if let (Some(id), Operation::Update(update)) = (stored.get("_id"), &mut evaluated.statement.operation) {
            // With the condition on the version, another index may be used, which finds another document first.
            update.conditions.push(CowDocument::build(|w| w.nested("_id", |w| w.value("$eq", id))));
        }
        Flow::Continue(true)
    }

    /// Returns a group with the increment again, after the stored value has become a number.
    pub(super) fn increment_again(&mut self, group: &Group) -> Option<Group> {
        let index = *group.statements.first()?;
        let evaluated = self.evaluated.get_mut(index)?;
        let DroppedIncrement { rule, incremented, .. } = *evaluated.dropped_increment.take()?;
        evaluated.statement = evaluated.statement.with(incremented);
        evaluated.prerequisites.add(rule, Prerequisite::Incrementable);
        Some(Group { attempts: group.attempts + 1, ..self.group_alone(index) })
    }
}

impl<'f> GroupReply<'_, '_, 'f> {
    /// Returns the statement that the server may have failed because of a rule's increment. Returns `None` inside a
    /// transaction, which the server has aborted.
    pub(super) fn failed_increment(&self) -> Option<FailedIncrement<'f>> {
        /// Other clients may change the stored value in between, and the error may be the statement's own.
        const MAX_INCREMENTS: u32 = 4;
        let Self { job, group, .. } = *self;
        let (position, error) = *self.errors.first()?;
        let stored = match error.get("code").and_then(Value::as_i32)? {
            code::TYPE_MISMATCH | code::BAD_VALUE => StoredKind::Other,
            code::PATH_NOT_VIABLE => StoredKind::Unreachable,
            _ => return None,
        };
        let evaluated = job.evaluated.get(*group.statements.get(position)?)?;
        // Such a group has only its insert left.
        let is_sent_by_kind = evaluated.is_sent_by_kind(false) && group.stage != UpsertStage::Insert;
        if is_sent_by_kind || job.in_transaction() || group.attempts >= MAX_INCREMENTS {
            return None;
        }
        let (rule, statement) = (evaluated.prerequisites.increment()?, &evaluated.statement);
        Some(FailedIncrement { position, rule, without: evaluated.form_for(statement, stored)? })
    }
}

/// Whether the statement may change several documents. Under its own collation one `_id` may match several.
fn reaches_many(statement: &Statement<'_>) -> bool {
    let Operation::Update(update) = &statement.operation else { return false };
    let names_one = equality(update.filter.as_document(), "_id").is_some() && statement.option("collation").is_none();
    update.multi && !names_one
}
