//! Handles statements that matched nothing after rules added conditions to their filters.
//!
//! There are two cases. The client's own filter matches nothing either: then the result is n: 0 or an upsert. Or a
//! document exists that does not satisfy a rule's condition: then the rule explains the result. docward distinguishes
//! them with a match check, a find with the client's own filter on the client's connection.

use super::super::evaluation::{Evaluated, WatchedRule};
use super::super::merge;
use super::super::outcome::{OutcomeKind, RuleOutcomes};
use super::super::port::{CommandPurpose, Flow, Port, close, parse_reply};
use super::super::rejection_text::RejectedBy;
use super::meaning::{GroupReply, RECORDED_INSERT};
use super::{BatchJob, Group, UpsertStage};
use crate::command::{Operation, Reply, WriteForm};
use crate::document::{CowDocument, Document};
use crate::patterns::NoEffectKind;

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

impl<'r> Evaluated<'r, '_> {
    /// Whether a rule decides the result if the statement matches nothing.
    fn checks_match(&self) -> bool {
        !self.unmatched.is_empty() || self.prerequisites.is_only_new() || self.dropped_increment.is_some()
    }

    /// Whether all rules whose conditions may exclude a document report it by an error.
    fn explains_every_condition(&self) -> bool {
        let is_explained = |watched: &WatchedRule<'_>| self.unmatched.iter().any(|rule| rule.id == watched.rule.id);
        let excludes = |watched: &&WatchedRule<'_>| {
            watched.no_effect.is_some_and(|no_effect| no_effect.kind == NoEffectKind::NoMatch)
        };
        !self.unmatched.is_empty() && self.watched.iter().filter(excludes).all(is_explained)
    }

    /// Whether the result, or how the statement is sent, depends on what its filter matches.
    pub(super) fn depends_on_match(&self) -> bool {
        self.checks_match() || self.is_staged_upsert()
    }

    /// Returns the rejection of the statement before it may insert. `matches`: its filter matches a document.
    pub(super) fn rejection_before_insert(&self, matches: bool) -> Option<RejectedBy<'r>> {
        if matches { self.prerequisites.only_new() } else { self.rejected_later.as_deref().cloned() }
    }

    /// Whether the statement could not insert because a document has the key of its filter.
    fn has_collided(&self, error: Document<'_>) -> bool {
        let Operation::Update(update) = &self.statement.operation else { return false };
        update.upsert && merge::is_duplicate_of_filter(error, update.filter.as_document())
    }
}

impl GroupReply<'_, '_, '_> {
    /// Returns the statement of the group, in this stage, if it must be checked what its filter matches.
    pub(super) fn unmatched(&self, stage: UpsertStage) -> Option<usize> {
        let Self { job, group, reply, errors } = *self;
        let index = *group.statements.first()?;
        let has_matched = || merge::matched(reply, job.batch.form) > 0;
        let is_needed = match (stage, errors.first()) {
            // Another client inserted a document first; check that one. The error aborts a transaction.
            (UpsertStage::Insert, Some((_, error))) if group.attempts < MAX_ATTEMPTS && !job.in_transaction() => {
                job.is(index, |one| one.has_collided(*error))
            }
            (_, Some(_)) | (UpsertStage::Insert | UpsertStage::CheckMatch, None) => false,
            (UpsertStage::Whole, None) => job.is(index, Evaluated::checks_match) && !has_matched(),
            (UpsertStage::Update, None) => !has_matched(),
        };
        is_needed.then_some(index)
    }
}

impl<'f> BatchJob<'f> {
    /// Checks what the filter of a group's statement matches, before the statement may insert.
    pub(super) async fn check_before_insert(&mut self, group: Group, port: &Port) -> Flow {
        let Some(index) = group.statements.first().copied() else { return Flow::Continue(()) };
        let Some(found) = self.find_match(&group, index, port).await? else { return Flow::Continue(()) };
        let evaluated = self.evaluated.get(index);
        let rejected = evaluated.and_then(|one| one.rejection_before_insert(found.document().is_some()));
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
        let rejected_later = self.evaluated.get(index).and_then(|one| one.rejection_before_insert(false));
        let attempts = group.attempts + 1;
        let is_only_new = self.is(index, |one| one.prerequisites.is_only_new());
        match (stored, group.stage, rejected_later) {
            // Another client may have inserted the document after the update. It was there before a second update.
            (Some(_), UpsertStage::Update, _) if group.attempts == 0 && !self.in_transaction() && !is_only_new => {
                self.continue_with(Group { attempts, ..group });
            }
            (None, UpsertStage::Update, Some(rejected)) => {
                self.reject_unmatched(index, rejected, port);
            }
            (None, UpsertStage::Update, None) => {
                self.continue_with(Group { stage: UpsertStage::Insert, attempts, ..group })
            }
            (Some(_), UpsertStage::Insert, _) if !is_only_new => {
                self.continue_with(Group { stage: UpsertStage::Update, attempts, ..group });
            }
            // The document that it collided with was deleted before the match check, or does not match another condition of
            // the filter.
            (None, UpsertStage::Insert, _) if group.attempts < MAX_ATTEMPTS && self.matches_by_key(index, &reply) => {
                self.continue_with(Group { attempts, ..group })
            }
            (None, UpsertStage::Insert, _) => return self.pass_on_reply(group, &reply),
            (Some(_), UpsertStage::Whole | UpsertStage::Update, _)
                if let Some(again) = self.increment_again(&group) =>
            {
                self.continue_with(again);
            }
            _ => match self.evaluated.get(index).and_then(|one| one.rejection_of_no_match(stored)) {
                Some(rejected) => self.reject_unmatched(index, rejected, port),
                // Another client has changed the document since.
                None if stored.is_some()
                    && group.attempts < MAX_ATTEMPTS
                    && !self.in_transaction()
                    && self.is(index, Evaluated::explains_every_condition) =>
                {
                    self.continue_with(Group { attempts, ..group });
                }
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
        let statement = match &evaluated.dropped_increment {
            Some(dropped) if dropped.has_unknown_cause => evaluated.statement.with(dropped.incremented.clone()),
            _ => evaluated.statement.without_conditions(),
        };
        let (fields, measured) = (evaluated.checked_fields(), evaluated.measured());
        let check = || self.commands(None).matching(&statement, &fields, &measured);
        let frame = self.exchange_part(CommandPurpose::MatchCheck, check(), check, port).await;
        self.transaction_begun = true;
        let reply = parse_reply(&frame, "a find")?;
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
        self.is(index, |evaluated| evaluated.explain(error).is_some())
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

    pub(super) fn continue_with(&mut self, group: Group) {
        self.groups.push_front(group);
    }

    /// Passes the server's reply to the statement to the client.
    fn pass_on_reply(&mut self, group: Group, frame: &[u8]) -> Flow {
        let reply = parse_reply(frame, "a write")?;
        if self.batch.form == WriteForm::FindAndModify {
            self.without_effect.note(&reply, &self.batch, &self.evaluated, &group.statements);
            return Flow::Break(self.pass_on(frame.to_vec()));
        }
        let errors = merge::errors_of(&reply, self.batch.form);
        self.count(&reply, group, &errors);
        Flow::Continue(())
    }

    pub(super) fn reject_unmatched(&mut self, index: usize, rejected: RejectedBy<'f>, port: &Port) {
        port.outcomes(|outcomes| self.reject_sent(index, rejected, outcomes));
    }

    /// Rejects a statement that has been sent, and had no effect.
    fn reject_sent(&mut self, index: usize, rejected: RejectedBy<'f>, outcomes: &mut RuleOutcomes) {
        let Some(evaluated) = self.evaluated.get_mut(index) else { return };
        let kind = if rejected.is_conflict() { OutcomeKind::Conflict } else { OutcomeKind::Reject };
        let is_own = |watched: &WatchedRule<'_>| watched.rule.id == rejected.rule.id && watched.rewritten;
        let rewritten = evaluated.watched.iter().any(is_own);
        let namespace = self.batch.namespace(&evaluated.statement);
        evaluated.reject(rejected, (kind, rewritten), namespace, outcomes);
        self.stopped |= self.stops_on_error();
    }

    /// Whether a statement's filter matches every document with the duplicate key in the reply.
    fn matches_by_key(&self, index: usize, frame: &[u8]) -> bool {
        let (Some(evaluated), Ok(reply)) = (self.evaluated.get(index), Reply::parse(frame)) else { return false };
        let Operation::Update(update) = &evaluated.statement.operation else { return false };
        let errors = merge::errors_of(&reply, self.batch.form);
        errors.first().is_some_and(|(_, error)| merge::is_key_only(*error, update.filter.as_document()))
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
    /// Fields of a command that are unknown, missing or repeated (`idl_parser.cpp`); a retry of a [`RECORDED_INSERT`].
    const OF_COMMANDS: [i32; 4] = [40413, 40414, 40415, RECORDED_INSERT];
    /// Codes with a name (`error_codes.yml`): a client that is to be ended, and states of members.
    const OF_SERVERS: [i32; 4] = [46841, 50915, 56846, 57986];
    let is_expression_error = code >= 15_000 && !OF_COMMANDS.contains(&code) && !OF_SERVERS.contains(&code);
    NAMED.contains(&code) || is_expression_error
}
