//! Carries out statements that need further commands ([`Procedure`](crate::patterns::procedure::Procedure)): finds,
//! other writes and the client's own statement, all in one transaction on the client's own connection.
//!
//! Inside a client's transaction all commands belong to that one, and every error goes to the client. Otherwise
//! docward uses its own transaction and repeats it after write conflicts. `commands.rs` builds the commands,
//! `ownership.rs` chooses the session, `ending.rs` commits or aborts.

use std::ops::ControlFlow;

use smallvec::SmallVec;

use super::super::evaluation::after_changes_of;
use super::super::merge;
use super::super::outcome::OutcomeKind;
use super::super::port::{CommandPurpose, Flow, Port};
use super::super::rejection_text::RejectedBy;
use super::super::server_errors;
use super::super::step::Step;
use super::commands::TransactionCommands;
use super::selected::SelectedDocuments;
use super::{BatchJob, Group, conflicts, limits};
use crate::command::{
    EncodeOptions, OwnTransaction, Reply, Statement, StatementPart, WriteForm, code, repeated_name_in,
};
use crate::document::OwnedValue;
use crate::patterns::Rejection;
use crate::patterns::procedure::{ActionResult, ApplyOnly, NextAction, ProcedureRun};
use crate::rules::Rule;

/// One attempt at the transaction of a statement.
pub(super) struct TransactionAttempt<'j, 'f> {
    pub(super) job: &'j mut BatchJob<'f>,
    pub(super) port: &'j Port,
    pub(super) index: usize,
    /// The statement after all rules, with its numbers; the procedures may narrow it.
    pub(super) statement: Statement<'f>,
    procedure: RunningProcedure<'f>,
    /// The procedures that apply the statement through `procedure`, the innermost last.
    outer: SmallVec<[RunningProcedure<'f>; 1]>,
    /// The procedures through which `procedure` applies the statement, the next last.
    inner: SmallVec<[RunningProcedure<'f>; 1]>,
    /// docward's own transaction; `None` inside the client's.
    pub(super) own: Option<OwnTransaction>,
    /// A command in it succeeded, so the transaction existed on the server.
    answered: bool,
    /// The statement is checked, and applies to these documents only.
    pub(super) piece: Option<SelectedDocuments>,
    /// The statement was sent in another form than the client's, whose error may differ.
    pub(super) in_other_form: bool,
}

struct RunningProcedure<'f> {
    rule: &'f Rule,
    run: Box<dyn ProcedureRun>,
}

/// How an attempt ends.
pub(super) enum AttemptEnd {
    /// This is the server's reply to the statement.
    Reply(Vec<u8>),
    /// The statement is rejected or has failed; the batch continues.
    Settled,
    /// The transaction must start again.
    Again(RestartReason),
    /// The message ends.
    Last(Step),
}

/// Continue with the attempt, or end it.
pub(super) type AttemptResult<T = ()> = ControlFlow<AttemptEnd, T>;

/// The commands of a transaction before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SentCommands {
    Find,
    Change,
    Statement,
}

/// Why a statement's transaction starts again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RestartReason {
    /// Its number belongs to an earlier attempt.
    UsedNumber,
    /// A write conflict on the same documents.
    WriteConflict,
    /// Another sender of the same write aborted it and is carrying it out now. Without a longer pause the two would
    /// abort each other forever.
    SameWrite,
    /// The member that had it was lost. At the next one no attempt is recorded that was not committed, so they begin with
    /// the first one again: another sender of the same write does the same.
    MemberLost,
}

impl<'f> TransactionAttempt<'_, 'f> {
    /// The commands of the transaction.
    pub(super) fn commands(&self) -> TransactionCommands<'_, 'f> {
        self.job.commands(self.own)
    }

    /// The rule whose procedure is running.
    pub(super) fn rule(&self) -> &'f Rule {
        self.procedure.rule
    }

    fn is_checked(&self) -> bool {
        self.job.is(self.index, |evaluated| !evaluated.checked.is_empty())
    }

    fn next(&mut self, result: ActionResult<'_>) -> NextAction<'f> {
        self.procedure.run.next(&self.statement.operation, result)
    }

    /// Returns the reply to a command of the transaction; `None` if it is an error.
    pub(super) fn accept<'r>(&mut self, frame: &'r [u8]) -> AttemptResult<Option<Reply<'r>>> {
        let reply = parse(frame)?;
        self.answered |= reply.is_ok();
        AttemptResult::Continue(Some(reply).filter(Reply::is_ok))
    }

    /// Goes on to the procedure through which the current one applies the statement. Returns false after the last.
    fn enter(&mut self) -> bool {
        let Some(inner) = self.inner.pop() else { return false };
        self.outer.push(std::mem::replace(&mut self.procedure, inner));
        true
    }

    /// Returns to the procedure that applied the statement through the current one. Returns false after the first.
    fn leave(&mut self) -> bool {
        let Some(outer) = self.outer.pop() else { return false };
        self.procedure = outer;
        true
    }
}

impl<'f> BatchJob<'f> {
    /// Carries out the statement of a group in a transaction, as often as necessary. Returns the server's reply to it;
    /// `None` if it is rejected or has failed.
    pub(super) async fn transact(
        &mut self,
        index: usize,
        group: &Group,
        piece: Option<&SelectedDocuments>,
        port: &Port,
    ) -> Flow<Option<Vec<u8>>> {
        while let Some(mut attempt) = self.begin(index, group, port) {
            attempt.piece = piece.cloned();
            // Otherwise its locks would last until the server's timeout if the client disconnects.
            port.hold_transaction(attempt.own.is_some());
            let ending = attempt.run().await;
            port.hold_transaction(false);
            match ending {
                AttemptEnd::Reply(reply) => return Flow::Continue(Some(reply)),
                AttemptEnd::Settled => break,
                AttemptEnd::Again(reason) => match attempt.pause_after(reason) {
                    Ok(pause) => {
                        let elapsed = port.pause(pause).await;
                        if let Err(error) = self.limit_time(elapsed) {
                            return Flow::Continue(Some(error));
                        }
                        // What excluded attempts is gone with the member.
                        if reason == RestartReason::MemberLost
                            && self.command.session().is_retryable_write()
                            && !self.earlier_sends(port).recorded(vec![index]).await?.is_empty()
                        {
                            self.send_as_it_came(index);
                            self.continue_alone(index);
                            break;
                        }
                    }
                    Err(rejection) => {
                        attempt.reject(attempt.rule(), rejection);
                        break;
                    }
                },
                AttemptEnd::Last(step) => return Flow::Break(step),
            }
        }
        Flow::Continue(None)
    }

    fn begin<'j>(&'j mut self, index: usize, group: &Group, port: &'j Port) -> Option<TransactionAttempt<'j, 'f>> {
        let mut numbers = group.next_numbers.clone();
        let statement = self.as_sent(index, group, &mut numbers)?.into_owned();
        let procedures = self.evaluated.get(index)?.prerequisites.procedures();
        let begin = procedures.map(|(rule, procedure)| RunningProcedure { rule, run: procedure.begin() });
        let mut inner: SmallVec<[RunningProcedure<'f>; 1]> = begin.rev().collect();
        let procedure = match inner.pop() {
            Some(procedure) => procedure,
            None => {
                let rule = self.evaluated.get(index)?.checked.first().copied()?;
                RunningProcedure { rule, run: Box::new(ApplyOnly) }
            }
        };
        let next = || port.own_session(|own_session| self.own_transaction(index, own_session));
        let own = (!self.in_transaction()).then(next);
        Some(TransactionAttempt {
            job: self,
            port,
            index,
            statement,
            procedure,
            outer: SmallVec::new(),
            inner,
            own,
            answered: false,
            piece: None,
            in_other_form: false,
        })
    }
}

impl<'f> TransactionAttempt<'_, 'f> {
    async fn run(&mut self) -> AttemptEnd {
        match self.run_procedures().await {
            AttemptResult::Continue(reply) if self.own.is_some() => self.commit(reply).await,
            AttemptResult::Continue(reply) => AttemptEnd::Reply(reply),
            AttemptResult::Break(ending) => ending,
        }
    }

    /// Performs the actions of the procedures. Returns the server's reply to the client's statement.
    async fn run_procedures(&mut self) -> AttemptResult<Vec<u8>> {
        let mut statement_reply = Vec::new();
        let is_checked = self.is_checked();
        let mut action = self.next(ActionResult::Start { is_checked });
        loop {
            let (commands, statement) = (self.commands(), &self.statement);
            action = match action {
                NextAction::Select { limit, fields } => {
                    let find = commands.select(statement, limit, fields.as_document());
                    self.find(find).await?
                }
                NextAction::Find { filter, limit, fields } => {
                    let find = commands.find(statement, filter.as_document(), limit, fields.as_document());
                    self.find(find).await?
                }
                NextAction::FindIn { collection, filter, limit, fields } => {
                    let find = commands.find_in(&collection, filter.as_document(), limit, fields.as_document());
                    self.find(find).await?
                }
                NextAction::UpdateIn { collection, statements } => {
                    let update = commands.update_in(&collection, &statements);
                    self.change(update, statements.len()).await?
                }
                NextAction::Update(statements) => {
                    let update = commands.write(statement, "update", "updates", &statements);
                    self.change(update, statements.len()).await?
                }
                NextAction::Delete(statements) => {
                    let delete = commands.write(statement, "delete", "deletes", &statements);
                    self.change(delete, statements.len()).await?
                }
                NextAction::Apply(operation) => {
                    let narrowed = statement.with(operation);
                    if let Some((rule, broken)) = self.broken_with_additions(&narrowed) {
                        return self.give_up(rule, broken).await;
                    }
                    if self.enter() {
                        self.statement = narrowed;
                        self.next(ActionResult::Start { is_checked })
                    } else {
                        statement_reply = match is_checked {
                            true => Box::pin(self.apply_checked(&narrowed)).await?,
                            false => self.apply(&narrowed).await?,
                        };
                        self.after_statement(&statement_reply)
                    }
                }
                NextAction::Finish if self.leave() => self.after_statement(&statement_reply),
                NextAction::Finish => return AttemptResult::Continue(statement_reply),
                NextAction::Reject(rejection) => {
                    return self.give_up(self.rule(), rejection).await;
                }
            };
        }
    }

    /// Returns the action after the client's statement.
    fn after_statement(&mut self, reply: &[u8]) -> NextAction<'f> {
        let reply = self.statement.is_upsert().then(|| Reply::parse(reply).ok()).flatten();
        let inserted = reply.and_then(|reply| merge::upserted_id(&reply, self.job.batch.form));
        self.next(ActionResult::Applied { inserted: inserted.as_ref().map(OwnedValue::as_value) })
    }

    async fn find(&mut self, find: Vec<u8>) -> AttemptResult<NextAction<'f>> {
        let frame = self.exchange(find).await;
        let Some(reply) = self.accept(&frame)? else {
            return Box::pin(self.take_failure(SentCommands::Find, frame)).await;
        };
        match reply.found() {
            Some(documents) => AttemptResult::Continue(self.next(ActionResult::Documents(&documents))),
            None => end("the server's reply to a find cannot be parsed"),
        }
    }

    /// Sends the writes that accompany the client's statement.
    async fn change(&mut self, message: Vec<u8>, statements: usize) -> AttemptResult<NextAction<'f>> {
        self.add_writes(self.rule(), (message, statements)).await?;
        AttemptResult::Continue(self.next(ActionResult::Done))
    }

    /// Sends writes that a rule adds, if they fit into one command. `message` has that many `statements`.
    pub(super) async fn add_writes(
        &mut self,
        rule: &'f Rule,
        (message, statements): (Vec<u8>, usize),
    ) -> AttemptResult {
        if let Some(rejection) = limits::excess_of_writes(&message, statements) {
            return self.give_up(rule, rejection).await;
        }
        let frame = self.exchange(message).await;
        let Some(reply) = self.accept(&frame)? else {
            return Box::pin(self.take_failure(SentCommands::Change, frame)).await;
        };
        if let Some(error) = reply.write_errors().first() {
            let text = error.value.as_document().and_then(|error| error.get("errmsg")?.as_str());
            let text = text.unwrap_or("no reason given");
            let rejection = match repeated_name_in(text) {
                Some(id) => Rejection::repeated_name(id),
                None => {
                    let reason = format!("the server rejected a write that the rule adds: {text}");
                    Rejection::new(reason, "Report this to the DBA.")
                }
            };
            return self.give_up(rule, rejection).await;
        }
        AttemptResult::Continue(())
    }

    /// Sends the client's statement and returns the reply, unless it changed nothing.
    pub(super) async fn apply(&mut self, statement: &Statement<'f>) -> AttemptResult<Vec<u8>> {
        if let Some(rejection) = limits::excess_of_statement(statement) {
            return self.give_up(self.rule(), rejection).await;
        }
        let own = self.own;
        let matches_nothing = self.piece.as_ref().is_some_and(|piece| piece.0.is_empty());
        let evaluated = self.job.evaluated.get(self.index).filter(|_| own.is_none() && !matches_nothing);
        let mut forms = evaluated.map_or_else(Vec::new, |one| one.forms_by_kind(statement)).into_iter();
        let mut form = forms.next();
        let (frame, has_failed) = loop {
            let options = EncodeOptions { transaction_begun: self.job.has_begun_transaction(), ordered: false, own };
            let part = StatementPart { index: self.index, statement: form.as_ref().unwrap_or(statement) };
            let message = self.job.batch.encode_part(&self.job.command, &[part], options);
            let frame = self.exchange(message).await;
            let Some(reply) = self.accept(&frame)? else {
                return Box::pin(self.take_failure(SentCommands::Statement, frame)).await;
            };
            let has_failed = !merge::errors_of(&reply, self.job.batch.form).is_empty();
            let has_matched = merge::matched(&reply, self.job.batch.form) > 0;
            drop(reply);
            if !has_failed && has_matched {
                return AttemptResult::Continue(frame);
            }
            // The statement itself is the last form.
            if has_failed || form.is_none() {
                break (frame, has_failed);
            }
            form = forms.next();
        };
        // After an error the server has aborted. Repeating does not help against a duplicate key: the existing
        // document is in this transaction's snapshot and the statement's filter did not match it. A concurrent upsert
        // would have caused a write conflict instead.
        if !has_failed && own.is_some() {
            self.abort().await?;
        }
        AttemptResult::Break(AttemptEnd::Reply(frame))
    }

    /// Sends a command of the transaction.
    pub(super) async fn exchange(&mut self, message: Vec<u8>) -> Vec<u8> {
        match &mut self.own {
            Some(own) => own.begun = true,
            None => self.job.transaction_begun = true,
        }
        // Only then it may have to be sent again.
        let copy = if self.job.merged.has_effect() { message.clone() } else { Vec::new() };
        self.job.exchange_part(CommandPurpose::Command, message, || copy.clone(), self.port).await
    }

    /// Takes the error of a command of the transaction.
    pub(super) async fn take_failure<T>(&mut self, sent: SentCommands, frame: Vec<u8>) -> AttemptResult<T> {
        let reply = parse(&frame)?;
        AttemptResult::Break(self.ending_of(sent, &reply, &frame).await)
    }

    async fn ending_of(&mut self, sent: SentCommands, reply: &Reply<'_>, frame: &[u8]) -> AttemptEnd {
        let is_own = self.own.is_some();
        if sent == SentCommands::Find
            && conflicts::is_unreadable(reply)
            && self.job.batch.form != WriteForm::FindAndModify
        {
            // An invalid filter is the statement's own error. The server has aborted the client's transaction.
            self.job.fail(self.index, reply);
            return if is_own { self.abort_and(AttemptEnd::Settled).await } else { AttemptEnd::Settled };
        }
        if !is_own {
            let is_statement = sent == SentCommands::Statement && self.job.batch.form == WriteForm::FindAndModify;
            if is_statement && self.job.is_explained(0, reply.body) {
                return AttemptEnd::Reply(frame.to_vec());
            }
            return AttemptEnd::Last(self.job.pass_on_error(reply, self.answered || self.job.merged.has_effect()));
        }
        match reply.code() {
            _ if server_errors::is_lost_member(reply) => AttemptEnd::Again(RestartReason::MemberLost),
            _ if self.answered && is_over(reply) => AttemptEnd::Again(RestartReason::SameWrite),
            Some(code::TRANSACTION_TOO_OLD) => self.end_too_old().await,
            // The number was used by an earlier send of the statement.
            Some(code::CONFLICTING_OPERATION_IN_PROGRESS | code::TRANSACTION_COMMITTED) => self.abort_earlier().await,
            _ if server_errors::is_state_change(reply) => self.abort_and(AttemptEnd::Reply(frame.to_vec())).await,
            _ if server_errors::has_label(reply, server_errors::TRANSIENT) => {
                AttemptEnd::Again(RestartReason::WriteConflict)
            }
            Some(code)
                if self.is_checked()
                    && let Some(which) = server_errors::without_transactions(code) =>
            {
                self.end_without_transaction(which).await
            }
            // Drivers would report this error as missing support for retryable writes.
            Some(code::ILLEGAL_OPERATION) if sent == SentCommands::Find => {
                let reason = "it needs a transaction, which only replica sets and sharded clusters support";
                let rejection = Rejection::new(reason, "Tell the DBA: the rule needs a replica set.");
                self.reject(self.rule(), rejection)
            }
            _ if sent == SentCommands::Statement && self.in_other_form => self.end_in_own_form().await,
            // The server rejects unknown fields or names before it looks for the transaction, which then stays open.
            // Aborting a finished one does no harm.
            _ => self.abort_and(AttemptEnd::Reply(frame.to_vec())).await,
        }
    }

    /// Returns the first rule that the statement keeps, and breaks with the fields that the procedure adds.
    fn broken_with_additions(&self, applied: &Statement<'_>) -> Option<(&'f Rule, Rejection)> {
        let procedure = &self.procedure;
        let evaluated = self.job.evaluated.get(self.index).filter(|_| procedure.run.adds_fields())?;
        let (rule, broken) = evaluated.broken_by(applied)?;
        Some((rule, after_changes_of(procedure.rule, broken)))
    }

    /// Rejects the statement for this rule and aborts its transaction.
    pub(super) async fn give_up<T>(&mut self, rule: &'f Rule, rejection: Rejection) -> AttemptResult<T> {
        let ending = self.reject(rule, rejection);
        AttemptResult::Break(match self.own {
            Some(own) if own.begun => self.abort_and(ending).await,
            _ => ending,
        })
    }

    /// Rejects the statement for this rule.
    pub(super) fn reject(&mut self, rule: &'f Rule, rejection: Rejection) -> AttemptEnd {
        let namespace = self.job.batch.namespace(&self.statement);
        let rejected = RejectedBy::new(rule, rejection);
        if let Some(evaluated) = self.job.evaluated.get_mut(self.index) {
            let outcome = (OutcomeKind::Reject, true);
            self.port.outcomes(|outcomes| evaluated.reject(rejected, outcome, namespace, outcomes));
        }
        self.job.stopped |= self.job.stops_on_error();
        AttemptEnd::Settled
    }
}

pub(super) fn parse(frame: &[u8]) -> AttemptResult<Reply<'_>> {
    match Reply::parse(frame) {
        Ok(reply) => AttemptResult::Continue(reply),
        Err(_) => end("the server's reply within a transaction cannot be parsed"),
    }
}

/// Ends the message by closing the connection.
pub(super) fn end<T>(reason: &str) -> AttemptResult<T> {
    AttemptResult::Break(last(reason))
}

pub(super) fn last(reason: &str) -> AttemptEnd {
    AttemptEnd::Last(Step::Close(reason.to_owned()))
}

/// Whether the command's transaction no longer exists.
pub(super) fn is_over(reply: &Reply<'_>) -> bool {
    matches!(reply.code(), Some(code::TRANSACTION_TOO_OLD | code::NO_SUCH_TRANSACTION))
}
