//! Carries out statements that need further commands ([`Procedure`](crate::patterns::procedure::Procedure)): finds,
//! other writes and the client's own statement, all in one transaction on the client's own connection.
//!
//! Inside a client's transaction all commands belong to that one, and every error goes to the client. Otherwise
//! docward uses its own transaction and repeats it after write conflicts. `commands.rs` builds the commands,
//! `ownership.rs` chooses the session.

use std::time::Duration;

use smallvec::SmallVec;

use super::super::evaluation::RejectedBy;
use super::super::merge;
use super::super::outcome::{OutcomeKind, RuleOutcomes};
use super::super::plan::Step;
use super::{Awaiting, BatchJob, Flow, close, commands, conflicts, limits};
use crate::command::{EncodeOptions, Form, OwnTransaction, Reply, Statement, StatementPart, code, error_reply};
use crate::document::{Document, OwnedValue, Value};
use crate::patterns::procedure::{ActionResult, NextAction, ProcedureRun};
use crate::patterns::{Rejection, Rule};

/// Maximum repetitions of a transaction for one statement: some seconds of conflicting writes on one node.
const MAX_CONFLICTS: u32 = 300;
/// Maximum repetitions of a commit with unknown outcome.
const MAX_COMMITS: u32 = 3;
/// The longest pause before a repetition is two to this power, in milliseconds.
const MAX_BACKOFF_EXPONENT: u32 = 5;
/// The same after another sender of the same write aborted the transaction: longer than a transaction takes on a busy
/// machine.
const MAX_RIVAL_BACKOFF_EXPONENT: u32 = 8;

/// The field with a command's time limit.
pub(super) const MAX_TIME: &str = "maxTimeMS";

/// The running transaction of a statement.
#[derive(Debug)]
pub(super) struct Transaction<'f> {
    index: usize,
    /// The statement after all rules, with its numbers.
    statement: Statement<'f>,
    /// The procedure of each rule that has one. All but the last apply the statement through the next one.
    procedures: SmallVec<[(&'f Rule, Box<dyn ProcedureRun>); 1]>,
    /// Index of the running procedure.
    at: usize,
    /// docward's own transaction; `None` inside the client's.
    pub(super) own: Option<OwnTransaction>,
    /// A command in it succeeded, so the transaction existed on the server.
    answered: bool,
    /// The server's reply to the client's statement.
    statement_reply: Vec<u8>,
    commits: u32,
}

/// The last command sent to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastSent {
    Find,
    Change,
    Apply,
    Commit,
    /// An abort of a transaction whose number was used before: the reply shows whether that one was committed.
    AbortEarlier,
    Abort(AfterAbort),
    /// None: the plan waits before the next attempt.
    Pause,
}

/// Why a statement's transaction starts again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RestartReason {
    /// Its number belongs to an earlier attempt.
    UsedNumber,
    /// A write conflict on the same nodes.
    WriteConflict,
    /// Another sender of the same write aborted it and is carrying it out now. Without a longer pause the two would
    /// abort each other forever.
    SameWrite,
}

/// What follows after the abort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterAbort {
    /// The statement is rejected; continue with the batch.
    Continue,
    /// Send the server's reply to the client.
    Deliver,
}

impl<'f> BatchJob<'f> {
    /// Whether docward's own transaction is open. It should end before the connection closes.
    pub(in crate::engine) fn holds_transaction(&self) -> bool {
        self.transaction.as_ref().is_some_and(|transaction| transaction.own.is_some())
    }

    pub(super) fn has_procedure(&self, index: usize) -> bool {
        self.evaluated.get(index).is_some_and(|evaluated| !evaluated.procedures.is_empty())
    }

    /// Starts the first run's transaction.
    pub(super) fn begin(&mut self, index: usize, statement: Statement<'f>, outcomes: &mut RuleOutcomes) -> Step {
        let Some(evaluated) = self.evaluated.get(index) else { return self.conclude() };
        let procedures = evaluated.procedures.iter().map(|(rule, procedure)| (*rule, procedure.begin())).collect();
        let own = if self.command.session().in_transaction { None } else { Some(self.own_transaction(index)) };
        let transaction = Transaction {
            index,
            statement,
            procedures,
            at: 0,
            own,
            answered: false,
            statement_reply: Vec::new(),
            commits: 0,
        };
        self.transaction = Some(Box::new(transaction));
        self.run_procedure(ActionResult::Start, outcomes)
    }

    fn run_procedure(&mut self, result: ActionResult<'_>, outcomes: &mut RuleOutcomes) -> Step {
        let Some(transaction) = &mut self.transaction else { return self.conclude() };
        let statement = transaction.statement.clone();
        let (at, last) = (transaction.at, transaction.procedures.len().saturating_sub(1));
        let Some((_, procedure)) = transaction.procedures.get_mut(at) else { return self.conclude() };
        match procedure.next(&statement.operation, result) {
            NextAction::Select { limit, fields } => {
                let message = self.commands().select(&statement, limit, &fields);
                self.exchange(LastSent::Find, message)
            }
            NextAction::Find { filter, limit, fields } => {
                let message = self.commands().find(&statement, &filter, limit, &fields);
                self.exchange(LastSent::Find, message)
            }
            NextAction::FindIn { collection, filter, limit, fields } => {
                let message = self.commands().find_in(&collection, &filter, limit, &fields);
                self.exchange(LastSent::Find, message)
            }
            NextAction::UpdateIn { collection, statements } => {
                let message = self.commands().update_in(&collection, &statements);
                self.change(message, statements.len(), outcomes)
            }
            NextAction::Update(statements) => {
                let message = self.commands().write(&statement, "update", "updates", &statements);
                self.change(message, statements.len(), outcomes)
            }
            NextAction::Delete(statements) => {
                let message = self.commands().write(&statement, "delete", "deletes", &statements);
                self.change(message, statements.len(), outcomes)
            }
            NextAction::Apply(operation) if at < last => {
                transaction.statement = statement.with(operation);
                transaction.at += 1;
                self.run_procedure(ActionResult::Start, outcomes)
            }
            NextAction::Apply(operation) => {
                let (index, statement) = (transaction.index, statement.with(operation));
                if let Some(rejection) = limits::excess_of_statement(&statement) {
                    return self.give_up(rejection, outcomes);
                }
                let own = transaction.own;
                let options = EncodeOptions { transaction_begun: self.transaction_begun, ordered: false, own };
                let part = StatementPart { index, statement: &statement };
                let message = self.batch.encode_part(&self.command, &[part], options);
                self.exchange(LastSent::Apply, message)
            }
            NextAction::Finish if at > 0 => {
                transaction.at -= 1;
                self.run_procedure(ActionResult::Done, outcomes)
            }
            NextAction::Finish if transaction.own.is_some() => self.commit(),
            NextAction::Finish => {
                let applied = std::mem::take(&mut transaction.statement_reply);
                self.deliver(&applied, outcomes)
            }
            NextAction::Reject(rejection) => self.give_up(rejection, outcomes),
        }
    }

    /// Sends the writes that accompany the client's statement, if they fit into one command.
    fn change(&mut self, message: Vec<u8>, statements: usize, outcomes: &mut RuleOutcomes) -> Step {
        match limits::excess_of_writes(&message, statements) {
            Some(rejection) => self.give_up(rejection, outcomes),
            None => self.exchange(LastSent::Change, message),
        }
    }

    /// Sends a command of the transaction.
    fn exchange(&mut self, last_sent: LastSent, message: Vec<u8>) -> Step {
        match self.transaction.as_mut().and_then(|transaction| transaction.own.as_mut()) {
            Some(own) => own.begun = true,
            None => self.transaction_begun = true,
        }
        self.awaiting = Awaiting::Transaction(last_sent);
        Step::Exchange(message)
    }

    fn commit(&mut self) -> Step {
        let message = self.commands().end("commitTransaction");
        self.exchange(LastSent::Commit, message)
    }

    fn abort(&mut self, afterwards: AfterAbort) -> Step {
        let message = self.commands().end("abortTransaction");
        self.exchange(LastSent::Abort(afterwards), message)
    }

    /// Aborts and sends the server's error to the client. The server rejects unknown fields or names before it looks
    /// for the transaction, which then stays open. Aborting a finished one does no harm.
    fn end_with(&mut self, error: &[u8]) -> Step {
        if let Some(transaction) = &mut self.transaction {
            transaction.statement_reply = error.to_vec();
        }
        self.abort(AfterAbort::Deliver)
    }

    /// Takes a reply within the transaction and continues.
    pub(super) fn take_transaction(&mut self, last_sent: LastSent, frame: &[u8], outcomes: &mut RuleOutcomes) -> Flow {
        let Ok(reply) = Reply::parse(frame) else {
            return close("the server's reply within a transaction cannot be parsed");
        };
        let Some(transaction) = &mut self.transaction else {
            return close("internal error: unexpected input within a transaction");
        };
        transaction.answered |=
            reply.is_ok() && matches!(last_sent, LastSent::Find | LastSent::Change | LastSent::Apply);
        if let (LastSent::Abort(_), Some(evaluated)) = (last_sent, self.evaluated.get_mut(transaction.index)) {
            // The number is used up if the statement is sent again in another form.
            evaluated.attempts += 1;
        }
        let step = match last_sent {
            LastSent::Abort(AfterAbort::Continue) => {
                self.transaction = None;
                return Flow::Continue(());
            }
            LastSent::Abort(AfterAbort::Deliver) => {
                let applied = std::mem::take(&mut transaction.statement_reply);
                self.deliver(&applied, outcomes)
            }
            LastSent::AbortEarlier => match error_code(&reply) {
                Some(code::TRANSACTION_COMMITTED) => self.was_done_before(outcomes),
                _ => self.again(RestartReason::UsedNumber, outcomes),
            },
            LastSent::Commit => return self.take_commit(&reply, frame, outcomes),
            LastSent::Find | LastSent::Change | LastSent::Apply if !reply.is_ok() => {
                return self.take_failure(last_sent, &reply, frame, outcomes);
            }
            LastSent::Find => match commands::documents(&reply) {
                Some(documents) => self.run_procedure(ActionResult::Documents(&documents), outcomes),
                None => return close("the server's reply to a find cannot be parsed"),
            },
            LastSent::Change => match reply.body.get("writeErrors") {
                None => self.run_procedure(ActionResult::Done, outcomes),
                Some(errors) => {
                    let text = first_message(errors).unwrap_or("no reason given");
                    let reason = format!("the server rejected a write that the rule adds: {text}");
                    self.give_up(Rejection::new(reason, "Report this to the DBA."), outcomes)
                }
            },
            LastSent::Apply => return self.take_applied(&reply, frame, outcomes),
            LastSent::Pause => return close("internal error: unexpected input within a transaction"),
        };
        Flow::Break(step)
    }

    fn take_applied(&mut self, reply: &Reply<'_>, frame: &[u8], outcomes: &mut RuleOutcomes) -> Flow {
        let Some(transaction) = &mut self.transaction else { return Flow::Continue(()) };
        let own = transaction.own.is_some();
        transaction.statement_reply = frame.to_vec();
        let errors = merge::errors_of(reply, self.batch.form);
        let step = match errors.first() {
            // The server has aborted. Repeating does not help against a duplicate key: the existing document is in
            // this transaction's snapshot and the statement's filter did not match it. A concurrent upsert would have
            // caused a write conflict instead.
            Some(_) => self.deliver(frame, outcomes),
            None if merge::matched(reply, self.batch.form) == 0 && own => self.abort(AfterAbort::Deliver),
            None if merge::matched(reply, self.batch.form) == 0 => self.deliver(frame, outcomes),
            None => self.run_procedure(ActionResult::Done, outcomes),
        };
        Flow::Break(step)
    }

    fn take_commit(&mut self, reply: &Reply<'_>, frame: &[u8], outcomes: &mut RuleOutcomes) -> Flow {
        let Some(transaction) = &mut self.transaction else { return Flow::Continue(()) };
        if reply.is_ok() {
            let applied = std::mem::take(&mut transaction.statement_reply);
            let operation = &transaction.statement.operation;
            let repeatable = self.command.session().txn_number.is_some()
                && commands::remembered_reply(&self.command, self.batch.form, operation).is_some();
            let applied = commands::with_write_concern_error(&applied, reply, repeatable).unwrap_or(applied);
            return Flow::Break(self.deliver(&applied, outcomes));
        }
        transaction.commits += 1;
        let step = match () {
            () if is_over(reply) => self.again(RestartReason::SameWrite, outcomes),
            () if commands::has_label(reply, "TransientTransactionError") => {
                self.again(RestartReason::WriteConflict, outcomes)
            }
            () if commands::is_state_change_error(reply) || transaction.commits > MAX_COMMITS => Step::Close(
                "the server did not report whether docward's transaction was committed; the driver retries the write"
                    .to_owned(),
            ),
            () if commands::has_label(reply, "UnknownTransactionCommitResult") => self.commit(),
            () => self.end_with(frame),
        };
        Flow::Break(step)
    }

    /// Takes the error of a command of the transaction.
    fn take_failure(
        &mut self,
        last_sent: LastSent,
        reply: &Reply<'_>,
        frame: &[u8],
        outcomes: &mut RuleOutcomes,
    ) -> Flow {
        let Some(transaction) = &mut self.transaction else { return Flow::Continue(()) };
        if last_sent == LastSent::Find && conflicts::is_unreadable(reply) && self.batch.form != Form::FindAndModify {
            let (index, own) = (transaction.index, transaction.own);
            return self.fail_in_transaction(index, own.is_some(), reply);
        }
        if transaction.own.is_none() {
            self.transaction = None;
            return Flow::Break(self.pass_on(frame));
        }
        let step = match error_code(reply) {
            _ if transaction.answered && is_over(reply) => self.again(RestartReason::SameWrite, outcomes),
            Some(code::TRANSACTION_TOO_OLD) => self.again(RestartReason::UsedNumber, outcomes),
            // The number was used by an earlier send of the statement.
            Some(code::CONFLICTING_OPERATION_IN_PROGRESS | code::TRANSACTION_COMMITTED) => {
                let message = self.commands().end("abortTransaction");
                self.exchange(LastSent::AbortEarlier, message)
            }
            _ if commands::is_state_change_error(reply) => {
                Step::Close("the server stopped or stepped down during docward's transaction".to_owned())
            }
            _ if commands::has_label(reply, "TransientTransactionError") => {
                self.again(RestartReason::WriteConflict, outcomes)
            }
            // Drivers would report this error as missing support for retryable writes.
            Some(code::ILLEGAL_OPERATION) if last_sent == LastSent::Find => {
                transaction.own = None;
                let reason = "it needs a transaction, which only replica sets and sharded clusters support";
                self.give_up(Rejection::new(reason, "Tell the DBA: the rule needs a replica set."), outcomes)
            }
            _ => self.end_with(frame),
        };
        Flow::Break(step)
    }

    /// Reports an invalid filter as the statement's own error.
    fn fail_in_transaction(&mut self, index: usize, is_own: bool, reply: &Reply<'_>) -> Flow {
        if let Some(runs) = &mut self.runs {
            runs.pop_front();
        }
        if is_own {
            let _ = self.fail(index, reply);
            return Flow::Break(self.abort(AfterAbort::Continue));
        }
        // The server has aborted the client's transaction.
        self.transaction = None;
        self.fail(index, reply)
    }

    /// Starts the transaction again, after a pause if other writes are in progress.
    fn again(&mut self, reason: RestartReason, outcomes: &mut RuleOutcomes) -> Step {
        let Some(mut transaction) = self.transaction.take() else { return self.conclude() };
        let evaluated = self.evaluated.get_mut(transaction.index);
        let (attempts, rival_aborts) = evaluated.map_or((MAX_CONFLICTS, 0), |evaluated| {
            evaluated.attempts += 1;
            evaluated.rival_aborts += u32::from(reason == RestartReason::SameWrite);
            (evaluated.attempts, evaluated.rival_aborts)
        });
        if attempts >= MAX_CONFLICTS {
            transaction.own = None;
            self.transaction = Some(transaction);
            let rejection = Rejection {
                code: code::WRITE_CONFLICT,
                reason: format!("{attempts} attempts had write conflicts on the same nodes"),
                hint: "Try again later.".to_owned(),
            };
            return self.give_up(rejection, outcomes);
        }
        let pause = match reason {
            RestartReason::UsedNumber => Duration::ZERO,
            RestartReason::WriteConflict => self.pause(attempts, attempts.min(MAX_BACKOFF_EXPONENT)),
            RestartReason::SameWrite => self.pause(attempts, rival_aborts.min(MAX_RIVAL_BACKOFF_EXPONENT)),
        };
        self.awaiting = Awaiting::Transaction(LastSent::Pause);
        Step::Pause(self.max_time().map_or(pause, |left| pause.min(left)))
    }

    /// Continues after a pause, `elapsed` after the first exchange. The command's maxTimeMS limits all attempts
    /// together: later commands get the remaining time.
    pub(super) fn resume(&mut self, elapsed: Duration) -> Flow {
        let Some(limit) = self.time_limit.or_else(|| self.max_time()) else { return Flow::Continue(()) };
        self.time_limit = Some(limit);
        let left = limit.saturating_sub(elapsed).as_millis();
        if left == 0 {
            let text = format!("operation exceeded time limit: {} ms in docward", elapsed.as_millis());
            let error = error_reply(self.command.message.header, code::MAX_TIME_MS_EXPIRED, &text, |_| {});
            return Flow::Break(self.pass_on(&error));
        }
        let changes = &mut self.batch.body_changes;
        changes.retain(|(name, _)| *name != MAX_TIME);
        changes.push((MAX_TIME, OwnedValue::integer(i64::try_from(left).unwrap_or(i64::MAX))));
        Flow::Continue(())
    }

    /// Returns the command's time limit, from the client or a rule, or what remains of it.
    pub(super) fn max_time(&self) -> Option<Duration> {
        let changed = self.batch.body_changes.iter().find(|(name, _)| *name == MAX_TIME);
        let value = changed.map(|(_, value)| value.as_value()).or_else(|| self.command.body.get(MAX_TIME))?;
        let milliseconds = u64::try_from(value.as_integer()?).ok()?;
        (milliseconds > 0).then(|| Duration::from_millis(milliseconds))
    }

    /// Returns a random pause of at most two to this power milliseconds, so that two conflicting senders do not meet
    /// again.
    fn pause(&self, attempts: u32, power: u32) -> Duration {
        let [a, b, c, d, ..] = self.own_session.id;
        let random = u32::from_le_bytes([a, b, c, d]).rotate_left(attempts.wrapping_mul(7)).wrapping_add(attempts);
        Duration::from_millis(u64::from(1 + random % (1 << power)))
    }

    /// Handles a statement that was committed when the client sent it the first time. Commits again to wait for the
    /// client's write concern, which may not be satisfied yet.
    fn was_done_before(&mut self, outcomes: &mut RuleOutcomes) -> Step {
        let Some(transaction) = &mut self.transaction else { return self.conclude() };
        match commands::remembered_reply(&self.command, self.batch.form, &transaction.statement.operation) {
            Some(reply) => {
                transaction.statement_reply = reply;
                self.commit()
            }
            None => {
                transaction.own = None;
                let rejection = Rejection {
                    code: code::INCOMPLETE_TRANSACTION_HISTORY,
                    reason: "it was carried out when it was first sent, and the reply was lost".to_owned(),
                    hint: "Read the documents to see its result; do not send it again.".to_owned(),
                };
                self.give_up(rejection, outcomes)
            }
        }
    }

    /// Rejects the statement and aborts its transaction.
    fn give_up(&mut self, rejection: Rejection, outcomes: &mut RuleOutcomes) -> Step {
        let Some(transaction) = &self.transaction else { return self.conclude() };
        let (index, own) = (transaction.index, transaction.own);
        let Some((rule, _)) = transaction.procedures.get(transaction.at) else { return self.conclude() };
        let rule = *rule;
        let namespace = self.batch.namespace(&transaction.statement);
        outcomes.note(rule, namespace, OutcomeKind::Reject, Some(&rejection));
        if let Some(evaluated) = self.evaluated.get_mut(index) {
            evaluated.rejected = Some(RejectedBy { rule, rejection });
        }
        if let Some(runs) = &mut self.runs {
            runs.pop_front();
        }
        self.stopped |= self.stops_on_error();
        if own.is_some_and(|own| own.begun) {
            return self.abort(AfterAbort::Continue);
        }
        self.transaction = None;
        self.advance(outcomes)
    }

    /// Ends the transaction and handles its statement's reply like any other.
    fn deliver(&mut self, frame: &[u8], outcomes: &mut RuleOutcomes) -> Step {
        self.transaction = None;
        match self.take_reply(frame) {
            Flow::Continue(()) => self.advance(outcomes),
            Flow::Break(step) => step,
        }
    }
}

/// Whether the command's transaction no longer exists.
fn is_over(reply: &Reply<'_>) -> bool {
    matches!(error_code(reply), Some(code::TRANSACTION_TOO_OLD | code::NO_SUCH_TRANSACTION))
}

fn error_code(reply: &Reply<'_>) -> Option<i32> {
    reply.body.get("code").and_then(Value::as_i32)
}

fn first_message(errors: Value<'_>) -> Option<&str> {
    let errors: Document<'_> = errors.as_array()?;
    errors.values().next()?.as_document()?.get("errmsg")?.as_str()
}
