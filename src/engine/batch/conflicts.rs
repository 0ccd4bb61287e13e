//! Handles statements that matched nothing after rules added conditions to their filters.
//!
//! There are two cases. The client's own filter matches nothing either: then the result is n: 0 or an upsert. Or a
//! document exists that does not satisfy a rule's condition: then the rule explains the result. docward distinguishes
//! them with a match check, a find with the client's own filter on the client's connection.

use super::super::evaluation::Evaluated;
use super::super::merge;
use super::super::outcome::{OutcomeKind, RuleOutcomes};
use super::super::port::{CommandPurpose, Flow, Port, close};
use super::super::rejection_text::RejectedBy;
use super::{BatchJob, Group, UpsertStage};
use crate::command::{Operation, Reply, WriteForm};
use crate::document::{CowDocument, Document, Value};

/// Maximum attempts of an insert that collides with documents which are deleted before the match check.
const MAX_INSERTS: u32 = 4;

/// Maximum attempts of a statement while others insert or delete the document between two steps.
const MAX_ATTEMPTS: u32 = 16;

/// The result of a match check: a document that the client's own filter matches.
pub(super) struct MatchedDocument(Option<CowDocument<'static>>);

impl MatchedDocument {
    /// `None` if the reply cannot be parsed.
    fn from_reply(reply: &Reply<'_>) -> Option<Self> {
        let first = reply.found()?.first().copied();
        Some(Self(first.map(|document| CowDocument::from_writer(document.as_bytes().to_vec()))))
    }

    pub(super) fn document(&self) -> Option<Document<'_>> {
        self.0.as_ref().map(CowDocument::as_document)
    }
}

impl<'f> BatchJob<'f> {
    /// Whether a rule decides the result if the statement matches nothing.
    pub(super) fn checks_match(&self, index: usize) -> bool {
        let checks = |evaluated: &Evaluated<'_, '_>| {
            !evaluated.unmatched.is_empty() || evaluated.prerequisites.is_only_new() || evaluated.uncounted.is_some()
        };
        self.evaluated.get(index).is_some_and(checks)
    }

    pub(super) fn is_staged_upsert(&self, index: usize) -> bool {
        self.evaluated.get(index).is_some_and(Evaluated::is_staged_upsert)
    }

    /// Returns the statement of a group in this stage whose reply requires a match check, if it does.
    pub(super) fn needs_match_check(
        &self,
        group: &Group,
        stage: UpsertStage,
        reply: &Reply<'_>,
        error: Option<Document<'_>>,
    ) -> Option<usize> {
        let index = *group.statements.first()?;
        match (stage, error) {
            // Another client inserted a document first; check that one.
            (UpsertStage::Insert, Some(error)) if group.attempts < MAX_ATTEMPTS && self.collided(index, error) => {}
            (_, Some(_)) | (UpsertStage::Insert | UpsertStage::CheckMatch, None) => return None,
            (UpsertStage::Whole, None) if !self.checks_match(index) => return None,
            (UpsertStage::Whole | UpsertStage::Update, None) if merge::matched(reply, self.batch.form) > 0 => {
                return None;
            }
            (UpsertStage::Whole | UpsertStage::Update, None) => {}
        }
        // The server has aborted the client's transaction because of the error.
        let is_aborted = error.is_some() && self.command.session().in_transaction;
        (!is_aborted).then_some(index)
    }

    /// Checks what the filter of a group's statement matches, before the statement may insert.
    pub(super) async fn check_before_insert(&mut self, group: Group, port: &Port) -> Flow {
        let Some(index) = group.statements.first().copied() else { return Flow::Continue(()) };
        let Some(found) = self.find_match(&group, index, port).await? else { return Flow::Continue(()) };
        let rejected = self.evaluated.get(index).and_then(|evaluated| match found.document() {
            Some(_) => evaluated.prerequisites.only_new(),
            None => evaluated.rejected_later.as_deref().cloned(),
        });
        match rejected {
            Some(rejected) => self.reject_unmatched(index, rejected, port),
            None => self.continue_with(Group { stage: UpsertStage::Insert, attempts: group.attempts + 1, ..group }),
        }
        Flow::Continue(())
    }

    /// Checks what the filter of a statement matches, after the statement itself matched nothing or failed to insert.
    /// `reply` is the reply to the statement.
    pub(super) async fn check_after(&mut self, group: Group, index: usize, reply: Vec<u8>, port: &Port) -> Flow {
        let group = Group { next_numbers: Vec::new(), ..group };
        let Some(found) = self.find_match(&group, index, port).await? else { return Flow::Continue(()) };
        let stored = found.document();
        let rejected_later =
            self.evaluated.get(index).and_then(|evaluated| evaluated.rejected_later.as_deref().cloned());
        let attempts = group.attempts + 1;
        let in_transaction = self.command.session().in_transaction;
        match (stored, group.stage, rejected_later) {
            // Another client may have inserted the document after the update. It was there before a second update.
            (Some(_), UpsertStage::Update, _) if group.attempts == 0 && !in_transaction && !self.is_only_new(index) => {
                self.continue_with(Group { attempts, ..group });
            }
            (None, UpsertStage::Update, Some(rejected)) => {
                self.reject_unmatched(index, rejected, port);
            }
            (None, UpsertStage::Update, None) => {
                self.continue_with(Group { stage: UpsertStage::Insert, attempts, ..group })
            }
            (Some(_), UpsertStage::Insert, _) if !self.is_only_new(index) => {
                self.continue_with(Group { stage: UpsertStage::Update, attempts, ..group });
            }
            // The document that it collided with was deleted before the match check, or does not match another condition of
            // the filter.
            (None, UpsertStage::Insert, _) if group.attempts < MAX_INSERTS && self.matches_by_key(index, &reply) => {
                self.continue_with(Group { attempts, ..group })
            }
            (None, UpsertStage::Insert, _) => return self.pass_on_reply(group, &reply),
            (Some(_), UpsertStage::Whole | UpsertStage::Update, _) if let Some(counting) = self.count_again(&group) => {
                self.continue_with(counting);
            }
            _ => match self.rejection_of_no_match(index, stored) {
                Some(rejected) => self.reject_unmatched(index, rejected, port),
                None => return self.pass_on_reply(group, &reply),
            },
        }
        Flow::Continue(())
    }

    /// Finds a document that the statement's own filter matches; or, after an error of unknown cause, one that the
    /// statement selected with the rules' conditions. Returns `None` if the statement has failed.
    pub(super) async fn find_match(
        &mut self,
        group: &Group,
        index: usize,
        port: &Port,
    ) -> Flow<Option<MatchedDocument>> {
        let Some(evaluated) = self.evaluated.get(index) else { return Flow::Continue(None) };
        let statement = match &evaluated.uncounted {
            Some(uncounted) if uncounted.error.is_some() => evaluated.statement.with(uncounted.counted.clone()),
            _ => evaluated.statement.without_conditions(),
        };
        let (fields, measured) = (evaluated.checked_fields(), evaluated.measured());
        let check = || self.commands(None).matching(&statement, &fields, &measured);
        let frame = self.exchange_part(CommandPurpose::MatchCheck, check(), check, port).await;
        self.transaction_begun = true;
        let Ok(reply) = Reply::parse(&frame) else { return close("the server's reply to a find cannot be parsed") };
        if reply.is_ok() {
            return match MatchedDocument::from_reply(&reply) {
                Some(found) => Flow::Continue(Some(found)),
                None => close("the server's reply to a find cannot be parsed"),
            };
        }
        // An invalid filter is the statement's own error.
        if is_unreadable(&reply) && self.batch.form != WriteForm::FindAndModify {
            self.fail(index, &reply);
        } else {
            self.take_command_error(group, &reply)?;
        }
        Flow::Continue(None)
    }

    /// Reports the error of docward's own command as the statement's.
    pub(super) fn fail(&mut self, index: usize, reply: &Reply<'_>) {
        self.merged.fail(index, reply.body, "");
        self.stopped |= self.stops_on_error();
    }

    /// Whether a rule explains a statement's error.
    pub(super) fn is_explained(&self, index: usize, error: Document<'_>) -> bool {
        self.evaluated.get(index).is_some_and(|evaluated| evaluated.explain(error).is_some())
    }

    /// Replaces errors that a rule's change caused with the rule's own rejection.
    pub(super) fn explain_errors(&mut self, outcomes: &mut RuleOutcomes) {
        let mut explained = Vec::new();
        self.merged.retain_errors(|index, error| {
            let rejected = self.evaluated.get(index).and_then(|evaluated| evaluated.explain(error));
            let stays = rejected.is_none();
            explained.extend(rejected.map(|rejected| (index, rejected)));
            stays
        });
        explained.into_iter().for_each(|(index, rejected)| self.reject_sent(index, rejected, outcomes));
    }

    /// Whether the statement is rejected if its filter matches a document.
    pub(super) fn is_only_new(&self, index: usize) -> bool {
        self.evaluated.get(index).is_some_and(|evaluated| evaluated.prerequisites.is_only_new())
    }

    /// Whether a group's statement can match a document only if it was sent before and inserted it.
    pub(super) fn asks_for_record(&self, group: &Group) -> bool {
        group.stage == UpsertStage::Update && group.statements.first().is_some_and(|index| self.is_only_new(*index))
    }

    pub(super) fn continue_with(&mut self, group: Group) {
        self.groups.push_front(group);
    }

    /// Passes the server's reply to the statement to the client.
    fn pass_on_reply(&mut self, group: Group, frame: &[u8]) -> Flow {
        let Ok(reply) = Reply::parse(frame) else { return close("the server's reply to a write cannot be parsed") };
        if self.batch.form == WriteForm::FindAndModify {
            self.note_results(&reply, &group.statements);
            return Flow::Break(self.pass_on(frame.to_vec()));
        }
        let errors = merge::errors_of(&reply, self.batch.form);
        self.count(&reply, group, &errors);
        Flow::Continue(())
    }

    /// Returns the first rejection of the result n: 0.
    fn rejection_of_no_match(&self, index: usize, stored: Option<Document<'_>>) -> Option<RejectedBy<'f>> {
        let evaluated = self.evaluated.get(index)?;
        let only_new = || evaluated.prerequisites.only_new();
        stored.and_then(|_| only_new()).or_else(|| evaluated.rejection_of_no_match(stored))
    }

    pub(super) fn reject_unmatched(&mut self, index: usize, rejected: RejectedBy<'f>, port: &Port) {
        port.outcomes(|outcomes| self.reject_sent(index, rejected, outcomes));
    }

    /// Rejects a statement that has been sent, and had no effect.
    fn reject_sent(&mut self, index: usize, rejected: RejectedBy<'f>, outcomes: &mut RuleOutcomes) {
        let Some(evaluated) = self.evaluated.get_mut(index) else { return };
        let kind = if rejected.is_conflict() { OutcomeKind::Conflict } else { OutcomeKind::Reject };
        let RejectedBy { rule, rejection } = &rejected;
        let rewritten = evaluated.watched.iter().any(|watched| watched.rule.id == rule.id && watched.rewritten);
        let namespace = self.batch.namespace(&evaluated.statement);
        let text = (rejection.reason.as_str(), rejection.hint.as_str());
        outcomes.settle(rule, namespace, kind, text, (1, rewritten));
        evaluated.rejected = Some(rejected);
        self.stopped |= self.stops_on_error();
    }

    /// Whether a statement's filter matches every document with the duplicate key in the reply.
    fn matches_by_key(&self, index: usize, frame: &[u8]) -> bool {
        let Ok(reply) = Reply::parse(frame) else { return false };
        let Some(Evaluated { statement, .. }) = self.evaluated.get(index) else { return false };
        let Operation::Update(update) = &statement.operation else { return false };
        let errors = merge::errors_of(&reply, self.batch.form);
        errors.first().is_some_and(|(_, error)| merge::is_key_only(*error, update.filter.as_document()))
    }

    fn collided(&self, index: usize, error: Document<'_>) -> bool {
        let Some(Operation::Update(update)) = self.evaluated.get(index).map(|evaluated| &evaluated.statement.operation)
        else {
            return false;
        };
        update.upsert && merge::is_duplicate_of_filter(error, update.filter.as_document())
    }
}

/// Whether the error of docward's find is due to the statement's filter.
pub(super) fn is_unreadable(reply: &Reply<'_>) -> bool {
    reply.code().is_some_and(is_filter_error)
}

/// Whether the server has this error for a filter: an invalid one, or an expression that fails for a document. The
/// server's expressions have codes without a name, from 15000 on.
pub(super) fn is_filter_error(code: i32) -> bool {
    /// BadValue, FailedToParse, TypeMismatch, IndexNotFound, ExceededMemoryLimit, InvalidPipelineOperator,
    /// ConversionFailure, NoQueryExecutionPlans, QueryExceededMemoryLimitNoDiskUseAllowed.
    const NAMED: [i32; 9] = [2, 9, 14, 27, 146, 168, 241, 291, 292];
    /// Fields of a command that are unknown, missing or repeated (`idl_parser.cpp`); a retry that [`has_inserted`].
    const OF_COMMANDS: [i32; 4] = [40413, 40414, 40415, RECORDED_INSERT];
    /// Codes with a name (`error_codes.yml`): a client that is to be ended, and states of members.
    const OF_SERVERS: [i32; 4] = [46841, 50915, 56846, 57986];
    let is_expression_error = code >= 15_000 && !OF_COMMANDS.contains(&code) && !OF_SERVERS.contains(&code);
    NAMED.contains(&code) || is_expression_error
}

/// "findAndModify retry request is not compatible with previous write in the transaction of type: insert"
const RECORDED_INSERT: i32 = 40608;

/// Whether the server has a record that a findAndModify, now sent without `upsert`, inserted a document: an earlier
/// send of the same write lost its reply. If sent with `upsert`, the server returns that reply again.
pub(super) fn has_inserted(error: Document<'_>) -> bool {
    error.get("code").and_then(Value::as_i32) == Some(RECORDED_INSERT)
}
