//! Carries out statements that need further commands ([`Procedure`](crate::patterns::procedure::Procedure)): finds,
//! other writes and the client's own statement, all in one transaction on the client's own connection.
//!
//! Inside a client's transaction all commands belong to that one, and every error goes to the client. Otherwise
//! docward uses its own transaction and repeats it after write conflicts. `commands.rs` builds the commands,
//! `ownership.rs` chooses the session, `ending.rs` commits or aborts.

use std::ops::ControlFlow;

use smallvec::SmallVec;

use super::super::evaluation::{Evaluated, after_changes_of};
use super::super::merge;
use super::super::outcome::OutcomeKind;
use super::super::port::{CommandPurpose, Flow, Port};
use super::super::rejection_text::RejectedBy;
use super::super::server_errors;
use super::super::step::Step;
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
pub(super) struct TransactionAttempt<'f> {
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
}

impl<'f> TransactionAttempt<'f> {
    /// The rule whose procedure is running.
    pub(super) fn rule(&self) -> &'f Rule {
        self.procedure.rule
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
    pub(super) fn needs_transaction(&self, index: usize) -> bool {
        self.evaluated.get(index).is_some_and(Evaluated::needs_transaction)
    }

    /// Carries out the statement of a group in a transaction, as often as necessary. Returns the server's reply to it;
    /// `None` if it is rejected or has failed.
    pub(super) async fn transact(
        &mut self,
        index: usize,
        group: &Group,
        piece: Option<&SelectedDocuments>,
        port: &Port,
    ) -> Flow<Option<Vec<u8>>> {
        while let Some(mut transaction) = self.begin(index, group, port) {
            transaction.piece = piece.cloned();
            // Otherwise its locks would last until the server's timeout if the client disconnects.
            port.hold_transaction(transaction.own.is_some());
            let ending = self.attempt(&mut transaction, port).await;
            port.hold_transaction(false);
            match ending {
                AttemptEnd::Reply(reply) => return Flow::Continue(Some(reply)),
                AttemptEnd::Settled => break,
                AttemptEnd::Again(reason) => match self.pause_after(index, reason, port) {
                    Ok(pause) => {
                        let elapsed = port.pause(pause).await;
                        if let Err(error) = self.limit_time(elapsed) {
                            return Flow::Continue(Some(error));
                        }
                    }
                    Err(rejection) => {
                        self.reject(&transaction, transaction.rule(), rejection, port);
                        break;
                    }
                },
                AttemptEnd::Last(step) => return Flow::Break(step),
            }
        }
        Flow::Continue(None)
    }

    fn begin(&self, index: usize, group: &Group, port: &Port) -> Option<TransactionAttempt<'f>> {
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
        let in_client_transaction = self.command.session().in_transaction;
        let own =
            (!in_client_transaction).then(|| port.own_session(|own_session| self.own_transaction(index, own_session)));
        Some(TransactionAttempt {
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

    async fn attempt(&mut self, transaction: &mut TransactionAttempt<'f>, port: &Port) -> AttemptEnd {
        match self.run_procedures(transaction, port).await {
            AttemptResult::Continue(reply) if transaction.own.is_some() => self.commit(transaction, reply, port).await,
            AttemptResult::Continue(reply) => AttemptEnd::Reply(reply),
            AttemptResult::Break(ending) => ending,
        }
    }

    /// Performs the actions of the procedures. Returns the server's reply to the client's statement.
    async fn run_procedures(
        &mut self,
        transaction: &mut TransactionAttempt<'f>,
        port: &Port,
    ) -> AttemptResult<Vec<u8>> {
        let mut statement_reply = Vec::new();
        let is_checked = self.is_checked(transaction.index);
        let mut action = transaction.next(ActionResult::Start { is_checked });
        loop {
            let (commands, statement) = (self.commands(transaction.own), &transaction.statement);
            action = match action {
                NextAction::Select { limit, fields } => {
                    let find = commands.select(statement, limit, fields.as_document());
                    self.find(transaction, find, port).await?
                }
                NextAction::Find { filter, limit, fields } => {
                    let find = commands.find(statement, filter.as_document(), limit, fields.as_document());
                    self.find(transaction, find, port).await?
                }
                NextAction::FindIn { collection, filter, limit, fields } => {
                    let find = commands.find_in(&collection, filter.as_document(), limit, fields.as_document());
                    self.find(transaction, find, port).await?
                }
                NextAction::UpdateIn { collection, statements } => {
                    let update = commands.update_in(&collection, &statements);
                    self.change(transaction, update, statements.len(), port).await?
                }
                NextAction::Update(statements) => {
                    let update = commands.write(statement, "update", "updates", &statements);
                    self.change(transaction, update, statements.len(), port).await?
                }
                NextAction::Delete(statements) => {
                    let delete = commands.write(statement, "delete", "deletes", &statements);
                    self.change(transaction, delete, statements.len(), port).await?
                }
                NextAction::Apply(operation) => {
                    let narrowed = statement.with(operation);
                    if let Some((rule, broken)) = self.broken_with_additions(transaction, &narrowed) {
                        return self.give_up(transaction, rule, broken, port).await;
                    }
                    if transaction.enter() {
                        transaction.statement = narrowed;
                        transaction.next(ActionResult::Start { is_checked })
                    } else {
                        statement_reply = match is_checked {
                            true => Box::pin(self.apply_checked(transaction, &narrowed, port)).await?,
                            false => self.apply(transaction, &narrowed, port).await?,
                        };
                        self.after_statement(transaction, &statement_reply)
                    }
                }
                NextAction::Finish if transaction.leave() => self.after_statement(transaction, &statement_reply),
                NextAction::Finish => return AttemptResult::Continue(statement_reply),
                NextAction::Reject(rejection) => {
                    return self.give_up(transaction, transaction.rule(), rejection, port).await;
                }
            };
        }
    }

    /// Returns the action after the client's statement.
    fn after_statement(&self, transaction: &mut TransactionAttempt<'f>, reply: &[u8]) -> NextAction<'f> {
        let reply = transaction.statement.is_upsert().then(|| Reply::parse(reply).ok()).flatten();
        let inserted = reply.and_then(|reply| merge::upserted_id(&reply, self.batch.form));
        transaction.next(ActionResult::Applied { inserted: inserted.as_ref().map(OwnedValue::as_value) })
    }

    async fn find(
        &mut self,
        transaction: &mut TransactionAttempt<'f>,
        find: Vec<u8>,
        port: &Port,
    ) -> AttemptResult<NextAction<'f>> {
        let frame = self.exchange(transaction, find, port).await;
        let Some(reply) = transaction.accept(&frame)? else {
            return Box::pin(self.take_failure(transaction, SentCommands::Find, frame, port)).await;
        };
        match reply.found() {
            Some(documents) => AttemptResult::Continue(transaction.next(ActionResult::Documents(&documents))),
            None => end("the server's reply to a find cannot be parsed"),
        }
    }

    /// Sends the writes that accompany the client's statement.
    async fn change(
        &mut self,
        transaction: &mut TransactionAttempt<'f>,
        message: Vec<u8>,
        statements: usize,
        port: &Port,
    ) -> AttemptResult<NextAction<'f>> {
        self.add_writes(transaction, transaction.rule(), (message, statements), port).await?;
        AttemptResult::Continue(transaction.next(ActionResult::Done))
    }

    /// Sends writes that a rule adds, if they fit into one command. `message` has that many `statements`.
    pub(super) async fn add_writes(
        &mut self,
        transaction: &mut TransactionAttempt<'f>,
        rule: &'f Rule,
        (message, statements): (Vec<u8>, usize),
        port: &Port,
    ) -> AttemptResult {
        if let Some(rejection) = limits::excess_of_writes(&message, statements) {
            return self.give_up(transaction, rule, rejection, port).await;
        }
        let frame = self.exchange(transaction, message, port).await;
        let Some(reply) = transaction.accept(&frame)? else {
            return Box::pin(self.take_failure(transaction, SentCommands::Change, frame, port)).await;
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
            return self.give_up(transaction, rule, rejection, port).await;
        }
        AttemptResult::Continue(())
    }

    /// Sends the client's statement and returns the reply, unless it changed nothing.
    pub(super) async fn apply(
        &mut self,
        transaction: &mut TransactionAttempt<'f>,
        statement: &Statement<'f>,
        port: &Port,
    ) -> AttemptResult<Vec<u8>> {
        if let Some(rejection) = limits::excess_of_statement(statement) {
            return self.give_up(transaction, transaction.rule(), rejection, port).await;
        }
        let own = transaction.own;
        let matches_nothing = transaction.piece.as_ref().is_some_and(|piece| piece.0.is_empty());
        let forms = if matches_nothing { Vec::new() } else { self.forms_by_kind(transaction.index, statement) };
        let mut forms = forms.into_iter();
        let mut form = forms.next();
        let (frame, has_failed) = loop {
            let options = EncodeOptions { transaction_begun: self.has_begun_transaction(), ordered: false, own };
            let part = StatementPart { index: transaction.index, statement: form.as_ref().unwrap_or(statement) };
            let message = self.batch.encode_part(&self.command, &[part], options);
            let frame = self.exchange(transaction, message, port).await;
            let Some(reply) = transaction.accept(&frame)? else {
                return Box::pin(self.take_failure(transaction, SentCommands::Statement, frame, port)).await;
            };
            let has_failed = !merge::errors_of(&reply, self.batch.form).is_empty();
            let has_matched = merge::matched(&reply, self.batch.form) > 0;
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
            self.abort(transaction, port).await?;
        }
        AttemptResult::Break(AttemptEnd::Reply(frame))
    }

    /// Sends a command of the transaction.
    pub(super) async fn exchange(
        &mut self,
        transaction: &mut TransactionAttempt<'f>,
        message: Vec<u8>,
        port: &Port,
    ) -> Vec<u8> {
        match &mut transaction.own {
            Some(own) => own.begun = true,
            None => self.transaction_begun = true,
        }
        // Only then it may have to be sent again.
        let copy = if self.merged.has_effect() { message.clone() } else { Vec::new() };
        self.exchange_part(CommandPurpose::Command, message, || copy.clone(), port).await
    }

    /// Takes the error of a command of the transaction.
    pub(super) async fn take_failure<T>(
        &mut self,
        transaction: &mut TransactionAttempt<'f>,
        sent: SentCommands,
        frame: Vec<u8>,
        port: &Port,
    ) -> AttemptResult<T> {
        let reply = parse(&frame)?;
        AttemptResult::Break(self.ending_of(transaction, sent, &reply, &frame, port).await)
    }

    async fn ending_of(
        &mut self,
        transaction: &mut TransactionAttempt<'f>,
        sent: SentCommands,
        reply: &Reply<'_>,
        frame: &[u8],
        port: &Port,
    ) -> AttemptEnd {
        let is_own = transaction.own.is_some();
        if sent == SentCommands::Find && conflicts::is_unreadable(reply) && self.batch.form != WriteForm::FindAndModify
        {
            // An invalid filter is the statement's own error. The server has aborted the client's transaction.
            self.fail(transaction.index, reply);
            return if is_own {
                self.abort_and(transaction, AttemptEnd::Settled, port).await
            } else {
                AttemptEnd::Settled
            };
        }
        if !is_own {
            let is_statement = sent == SentCommands::Statement && self.batch.form == WriteForm::FindAndModify;
            if is_statement && self.is_explained(0, reply.body) {
                return AttemptEnd::Reply(frame.to_vec());
            }
            return AttemptEnd::Last(self.pass_on_error(reply, transaction.answered || self.merged.has_effect()));
        }
        match reply.code() {
            _ if transaction.answered && is_over(reply) => AttemptEnd::Again(RestartReason::SameWrite),
            Some(code::TRANSACTION_TOO_OLD) => self.end_too_old(transaction, port).await,
            // The number was used by an earlier send of the statement.
            Some(code::CONFLICTING_OPERATION_IN_PROGRESS | code::TRANSACTION_COMMITTED) => {
                self.abort_earlier(transaction, port).await
            }
            _ if server_errors::is_state_change(reply) => self.end_with(transaction, frame.to_vec(), port).await,
            _ if server_errors::has_label(reply, server_errors::TRANSIENT) => {
                AttemptEnd::Again(RestartReason::WriteConflict)
            }
            Some(code)
                if self.is_checked(transaction.index)
                    && let Some(which) = server_errors::without_transactions(code) =>
            {
                self.end_without_transaction(transaction, which, port).await
            }
            // Drivers would report this error as missing support for retryable writes.
            Some(code::ILLEGAL_OPERATION) if sent == SentCommands::Find => {
                let reason = "it needs a transaction, which only replica sets and sharded clusters support";
                let rejection = Rejection::new(reason, "Tell the DBA: the rule needs a replica set.");
                self.reject(transaction, transaction.rule(), rejection, port)
            }
            _ if sent == SentCommands::Statement && transaction.in_other_form => {
                self.end_in_own_form(transaction, port).await
            }
            _ => self.end_with(transaction, frame.to_vec(), port).await,
        }
    }

    /// Returns the first rule that the statement keeps, and breaks with the fields that the procedure adds.
    fn broken_with_additions(
        &self,
        transaction: &TransactionAttempt<'f>,
        applied: &Statement<'_>,
    ) -> Option<(&'f Rule, Rejection)> {
        let procedure = &transaction.procedure;
        let evaluated = self.evaluated.get(transaction.index).filter(|_| procedure.run.adds_fields())?;
        let (rule, broken) = evaluated.broken_by(applied)?;
        Some((rule, after_changes_of(procedure.rule, broken)))
    }

    /// Rejects the statement for this rule and aborts its transaction.
    pub(super) async fn give_up<T>(
        &mut self,
        transaction: &mut TransactionAttempt<'f>,
        rule: &'f Rule,
        rejection: Rejection,
        port: &Port,
    ) -> AttemptResult<T> {
        let ending = self.reject(transaction, rule, rejection, port);
        AttemptResult::Break(match transaction.own {
            Some(own) if own.begun => self.abort_and(transaction, ending, port).await,
            _ => ending,
        })
    }

    /// Rejects the statement for this rule.
    pub(super) fn reject(
        &mut self,
        transaction: &TransactionAttempt<'f>,
        rule: &'f Rule,
        rejection: Rejection,
        port: &Port,
    ) -> AttemptEnd {
        let namespace = self.batch.namespace(&transaction.statement);
        let text = (rejection.reason.as_str(), rejection.hint.as_str());
        port.outcomes(|outcomes| outcomes.settle(rule, namespace, OutcomeKind::Reject, text, (1, true)));
        if let Some(evaluated) = self.evaluated.get_mut(transaction.index) {
            evaluated.rejected = Some(RejectedBy::new(rule, rejection));
        }
        self.stopped |= self.stops_on_error();
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
