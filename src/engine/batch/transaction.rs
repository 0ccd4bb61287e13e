//! Statements that need more than themselves ([`Procedure`](crate::patterns::procedure::Procedure)): looks,
//! further statements and the client's own, all in one transaction on the client's own connection.
//!
//! Inside a transaction of the client's all of it belongs to that one, and every error is the client's.
//! Elsewhere docward runs a transaction of its own and repeats it as long as others are in its way; what it
//! says on the wire is in `asking.rs`, whose transaction it is in `ownership.rs`.

use std::time::Duration;

use smallvec::SmallVec;

use super::super::evaluation::RejectedBy;
use super::super::merge;
use super::super::outcome::{OutcomeKind, RuleOutcomes};
use super::super::plan::Step;
use super::{Awaiting, BatchJob, Flow, close, commands, conflicts, limits};
use crate::command::{Form, OwnTransaction, Part, PartOptions, Reply, Statement, code, error_reply};
use crate::document::{Document, OwnedValue, Value};
use crate::patterns::procedure::{ActionResult, NextAction, ProcedureRun};
use crate::patterns::{Rejection, Rule};

/// How often a transaction is repeated for one statement: some seconds of writes that meet on one node.
const MAX_CONFLICTS: u32 = 300;
/// How often a commit of unknown outcome is asked for again.
const MAX_COMMITS: u32 = 3;
/// The longest pause before a repetition is two to this power, in milliseconds.
const MAX_BACKOFF_EXPONENT: u32 = 5;
/// The same where somebody with the same write ended the transaction: longer than one takes on a busy machine.
const LONGEST_TRUCE: u32 = 8;

/// The field of a command that says how long it may take.
pub(super) const MAX_TIME: &str = "maxTimeMS";

/// A statement's transaction under way.
#[derive(Debug)]
pub(super) struct Transaction<'f> {
    index: usize,
    /// After all rules, numbers included.
    statement: Statement<'f>,
    /// One for each rule that has a procedure. Each but the last applies the statement by way of the next one.
    conversations: SmallVec<[(&'f Rule, Box<dyn ProcedureRun>); 1]>,
    /// The conversation that is under way.
    at: usize,
    /// `None` inside the client's transaction.
    pub(super) own: Option<OwnTransaction>,
    /// The server has done something in it, so that it was there.
    answered: bool,
    /// The server's reply to the client's statement.
    applied: Vec<u8>,
    commits: u32,
}

/// What the server was told last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastSent {
    Find,
    Change,
    Apply,
    Commit,
    /// To end a transaction whose number was used before: did that one happen?
    EndEarlier,
    Abort(AfterAbort),
    /// Nothing: it is the pause before the next attempt.
    Pause,
}

/// Why a statement's transaction begins anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RestartReason {
    /// Its number is one of an attempt that is over.
    Number,
    /// Others write to the same nodes.
    Others,
    /// Somebody with the same write ended it, and carries that out now. Both would do so to each other for ever if
    /// neither gave the other the time that a transaction takes.
    Rival,
}

/// What follows when nothing of the transaction is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterAbort {
    /// The statement is refused, as it says itself.
    GoOn,
    /// What the server said of the client's statement, or instead, is the client's.
    Deliver,
}

impl<'f> BatchJob<'f> {
    /// Whether docward holds a transaction of its own open, which should end before the connection does.
    pub(in crate::engine) fn holds_transaction(&self) -> bool {
        self.transaction.as_ref().is_some_and(|transaction| transaction.own.is_some())
    }

    pub(super) fn has_procedure(&self, index: usize) -> bool {
        self.evaluated.get(index).is_some_and(|evaluated| !evaluated.procedures.is_empty())
    }

    /// Begins the first run's transaction.
    pub(super) fn begin(&mut self, index: usize, statement: Statement<'f>, outcomes: &mut RuleOutcomes) -> Step {
        let Some(evaluated) = self.evaluated.get(index) else { return self.conclude() };
        let conversations = evaluated.procedures.iter().map(|(rule, procedure)| (*rule, procedure.begin())).collect();
        let own = if self.command.session().in_transaction { None } else { Some(self.own_transaction(index)) };
        let transaction = Transaction {
            index,
            statement,
            conversations,
            at: 0,
            own,
            answered: false,
            applied: Vec::new(),
            commits: 0,
        };
        self.transaction = Some(Box::new(transaction));
        self.converse(ActionResult::Start, outcomes)
    }

    fn converse(&mut self, heard: ActionResult<'_>, outcomes: &mut RuleOutcomes) -> Step {
        let Some(transaction) = &mut self.transaction else { return self.conclude() };
        let statement = transaction.statement.clone();
        let (at, last) = (transaction.at, transaction.conversations.len().saturating_sub(1));
        let Some((_, conversation)) = transaction.conversations.get_mut(at) else { return self.conclude() };
        match conversation.next(&statement.operation, heard) {
            NextAction::Select { limit, fields } => {
                let message = self.asking().select(&statement, limit, &fields);
                self.tell(LastSent::Find, message)
            }
            NextAction::Find { filter, limit, fields } => {
                let message = self.asking().find(&statement, &filter, limit, &fields);
                self.tell(LastSent::Find, message)
            }
            NextAction::FindIn { collection, filter, limit, fields } => {
                let message = self.asking().find_in(&collection, &filter, limit, &fields);
                self.tell(LastSent::Find, message)
            }
            NextAction::UpdateIn { collection, statements } => {
                let message = self.asking().update_in(&collection, &statements);
                self.change(message, statements.len(), outcomes)
            }
            NextAction::Update(statements) => {
                let message = self.asking().write(&statement, "update", "updates", &statements);
                self.change(message, statements.len(), outcomes)
            }
            NextAction::Delete(statements) => {
                let message = self.asking().write(&statement, "delete", "deletes", &statements);
                self.change(message, statements.len(), outcomes)
            }
            NextAction::Apply(operation) if at < last => {
                transaction.statement = statement.with(operation);
                transaction.at += 1;
                self.converse(ActionResult::Start, outcomes)
            }
            NextAction::Apply(operation) => {
                let (index, statement) = (transaction.index, statement.with(operation));
                if let Some(rejection) = limits::excess_of_applied(&statement) {
                    return self.give_up(rejection, outcomes);
                }
                let own = transaction.own;
                let options = PartOptions { transaction_begun: self.transaction_begun, ordered: false, own };
                let part = Part { index, statement: &statement };
                let message = self.batch.encode_part(&self.command, &[part], options);
                self.tell(LastSent::Apply, message)
            }
            NextAction::Finish if at > 0 => {
                transaction.at -= 1;
                self.converse(ActionResult::Done, outcomes)
            }
            NextAction::Finish if transaction.own.is_some() => self.commit(),
            NextAction::Finish => {
                let applied = std::mem::take(&mut transaction.applied);
                self.deliver(&applied, outcomes)
            }
            NextAction::Reject(rejection) => self.give_up(rejection, outcomes),
        }
    }

    /// Sends what belongs to the client's statement, if one command takes it.
    fn change(&mut self, message: Vec<u8>, statements: usize, outcomes: &mut RuleOutcomes) -> Step {
        match limits::excess_of_change(&message, statements) {
            Some(rejection) => self.give_up(rejection, outcomes),
            None => self.tell(LastSent::Change, message),
        }
    }

    /// Sends a command of the transaction.
    fn tell(&mut self, told: LastSent, message: Vec<u8>) -> Step {
        match self.transaction.as_mut().and_then(|transaction| transaction.own.as_mut()) {
            Some(own) => own.begun = true,
            None => self.transaction_begun = true,
        }
        self.awaiting = Awaiting::Transaction(told);
        Step::Exchange(message)
    }

    fn commit(&mut self) -> Step {
        let message = self.asking().end("commitTransaction");
        self.tell(LastSent::Commit, message)
    }

    fn abort(&mut self, afterwards: AfterAbort) -> Step {
        let message = self.asking().end("abortTransaction");
        self.tell(LastSent::Abort(afterwards), message)
    }

    /// The server's error is the client's. A command that it refuses before it looks for the transaction, for an
    /// unknown field or name, leaves that open; to abort one that is over does no harm.
    fn end_with(&mut self, error: &[u8]) -> Step {
        if let Some(transaction) = &mut self.transaction {
            transaction.applied = error.to_vec();
        }
        self.abort(AfterAbort::Deliver)
    }

    /// Goes on after a reply of the server.
    pub(super) fn take_transaction(&mut self, told: LastSent, frame: &[u8], outcomes: &mut RuleOutcomes) -> Flow {
        let Ok(reply) = Reply::parse(frame) else {
            return close("the server's reply within a transaction cannot be read");
        };
        let Some(transaction) = &mut self.transaction else {
            return close("docward lost its place in a transaction");
        };
        transaction.answered |= reply.is_ok() && matches!(told, LastSent::Find | LastSent::Change | LastSent::Apply);
        if let (LastSent::Abort(_), Some(evaluated)) = (told, self.evaluated.get_mut(transaction.index)) {
            // Its number is used, should the statement be sent once more in another form.
            evaluated.attempts += 1;
        }
        let step = match told {
            LastSent::Abort(AfterAbort::GoOn) => {
                self.transaction = None;
                return Flow::Continue(());
            }
            LastSent::Abort(AfterAbort::Deliver) => {
                let applied = std::mem::take(&mut transaction.applied);
                self.deliver(&applied, outcomes)
            }
            LastSent::EndEarlier => match error_code(&reply) {
                Some(code::TRANSACTION_COMMITTED) => self.was_done_before(outcomes),
                _ => self.again(RestartReason::Number, outcomes),
            },
            LastSent::Commit => return self.take_commit(&reply, frame, outcomes),
            LastSent::Find | LastSent::Change | LastSent::Apply if !reply.is_ok() => {
                return self.take_failure(told, &reply, frame, outcomes);
            }
            LastSent::Find => match commands::documents(&reply) {
                Some(documents) => self.converse(ActionResult::Documents(&documents), outcomes),
                None => return close("the server's answer to a find cannot be read"),
            },
            LastSent::Change => match reply.body.get("writeErrors") {
                None => self.converse(ActionResult::Done, outcomes),
                Some(errors) => {
                    let text = first_message(errors).unwrap_or("no reason given");
                    let reason = format!("the server refused what belongs to it: {text}");
                    self.give_up(Rejection::new(reason, "Tell the DBA."), outcomes)
                }
            },
            LastSent::Apply => return self.take_applied(&reply, frame, outcomes),
            LastSent::Pause => return close("docward lost its place in a transaction"),
        };
        Flow::Break(step)
    }

    fn take_applied(&mut self, reply: &Reply<'_>, frame: &[u8], outcomes: &mut RuleOutcomes) -> Flow {
        let Some(transaction) = &mut self.transaction else { return Flow::Continue(()) };
        let own = transaction.own.is_some();
        transaction.applied = frame.to_vec();
        let errors = merge::errors_of(reply, self.batch.form);
        let step = match errors.first() {
            // The server has aborted. No repetition mends a duplicate key: had another upsert been faster, the server
            // would have reported a write conflict, since it is not in this transaction's snapshot. What is in there
            // the statement's own filter did not match.
            Some(_) => self.deliver(frame, outcomes),
            None if merge::matched(reply, self.batch.form) == 0 && own => self.abort(AfterAbort::Deliver),
            None if merge::matched(reply, self.batch.form) == 0 => self.deliver(frame, outcomes),
            None => self.converse(ActionResult::Done, outcomes),
        };
        Flow::Break(step)
    }

    fn take_commit(&mut self, reply: &Reply<'_>, frame: &[u8], outcomes: &mut RuleOutcomes) -> Flow {
        let Some(transaction) = &mut self.transaction else { return Flow::Continue(()) };
        if reply.is_ok() {
            let applied = std::mem::take(&mut transaction.applied);
            let operation = &transaction.statement.operation;
            let repeatable = self.command.session().txn_number.is_some()
                && commands::remembered_reply(&self.command, self.batch.form, operation).is_some();
            let applied = commands::with_write_concern_error(&applied, reply, repeatable).unwrap_or(applied);
            return Flow::Break(self.deliver(&applied, outcomes));
        }
        transaction.commits += 1;
        let step = match () {
            () if is_over(reply) => self.again(RestartReason::Rival, outcomes),
            () if commands::has_label(reply, "TransientTransactionError") => {
                self.again(RestartReason::Others, outcomes)
            }
            () if commands::is_gone(reply) || transaction.commits > MAX_COMMITS => Step::Close(
                "the server did not say whether a transaction of docward's was committed; the driver asks again"
                    .to_owned(),
            ),
            () if commands::has_label(reply, "UnknownTransactionCommitResult") => self.commit(),
            () => self.end_with(frame),
        };
        Flow::Break(step)
    }

    /// The server refused a command of the transaction.
    fn take_failure(&mut self, told: LastSent, reply: &Reply<'_>, frame: &[u8], outcomes: &mut RuleOutcomes) -> Flow {
        let Some(transaction) = &mut self.transaction else { return Flow::Continue(()) };
        if told == LastSent::Find && conflicts::is_unreadable(reply) && self.batch.form != Form::FindAndModify {
            let (index, own) = (transaction.index, transaction.own);
            return self.fail_in_transaction(index, own.is_some(), reply);
        }
        if transaction.own.is_none() {
            self.transaction = None;
            return Flow::Break(self.pass_on(frame));
        }
        let step = match error_code(reply) {
            _ if transaction.answered && is_over(reply) => self.again(RestartReason::Rival, outcomes),
            Some(code::TRANSACTION_TOO_OLD) => self.again(RestartReason::Number, outcomes),
            // This number was used, by the statement as it was sent before.
            Some(code::CONFLICTING_OPERATION_IN_PROGRESS | code::TRANSACTION_COMMITTED) => {
                let message = self.asking().end("abortTransaction");
                self.tell(LastSent::EndEarlier, message)
            }
            _ if commands::is_gone(reply) => {
                Step::Close("the server went away from a transaction of docward's".to_owned())
            }
            _ if commands::has_label(reply, "TransientTransactionError") => self.again(RestartReason::Others, outcomes),
            // Drivers would report that as a want of retryable writes.
            Some(code::ILLEGAL_OPERATION) if told == LastSent::Find => {
                transaction.own = None;
                let reason = "it takes a transaction, which only replica sets and sharded clusters have";
                self.give_up(Rejection::new(reason, "Tell the DBA: the rule needs a replica set."), outcomes)
            }
            _ => self.end_with(frame),
        };
        Flow::Break(step)
    }

    /// A filter that the server cannot read is the statement's own error.
    fn fail_in_transaction(&mut self, index: usize, is_own: bool, reply: &Reply<'_>) -> Flow {
        if let Some(runs) = &mut self.runs {
            runs.pop_front();
        }
        if is_own {
            let _ = self.fail(index, reply);
            return Flow::Break(self.abort(AfterAbort::GoOn));
        }
        // The server has ended the client's transaction.
        self.transaction = None;
        self.fail(index, reply)
    }

    /// The same from the beginning, after a pause if somebody is in the way.
    fn again(&mut self, obstacle: RestartReason, outcomes: &mut RuleOutcomes) -> Step {
        let Some(mut transaction) = self.transaction.take() else { return self.conclude() };
        let (attempts, rivalries) = self.evaluated.get_mut(transaction.index).map_or((MAX_CONFLICTS, 0), |evaluated| {
            evaluated.attempts += 1;
            evaluated.rivalries += u32::from(obstacle == RestartReason::Rival);
            (evaluated.attempts, evaluated.rivalries)
        });
        if attempts >= MAX_CONFLICTS {
            transaction.own = None;
            self.transaction = Some(transaction);
            let rejection = Rejection {
                code: code::WRITE_CONFLICT,
                reason: format!("{attempts} attempts met other writes to the same nodes"),
                hint: "Try again later.".to_owned(),
            };
            return self.give_up(rejection, outcomes);
        }
        let pause = match obstacle {
            RestartReason::Number => Duration::ZERO,
            RestartReason::Others => self.pause(attempts, attempts.min(MAX_BACKOFF_EXPONENT)),
            RestartReason::Rival => self.pause(attempts, rivalries.min(LONGEST_TRUCE)),
        };
        self.awaiting = Awaiting::Transaction(LastSent::Pause);
        Step::Pause(self.max_time().map_or(pause, |left| pause.min(left)))
    }

    /// Goes on after a pause, `elapsed` after the first exchange. Its maxTimeMS bounds all attempts together:
    /// what is sent from now on has only what is left of it.
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

    /// The time that the client, or a rule, gave the command, or what is left of it.
    pub(super) fn max_time(&self) -> Option<Duration> {
        let changed = self.batch.body_changes.iter().find(|(name, _)| *name == MAX_TIME);
        let value = changed.map(|(_, value)| value.as_value()).or_else(|| self.command.body.get(MAX_TIME))?;
        let milliseconds = u64::try_from(value.as_integer()?).ok()?;
        (milliseconds > 0).then(|| Duration::from_millis(milliseconds))
    }

    /// Two to this power milliseconds at most, and random enough that two who met do not meet again.
    fn pause(&self, attempts: u32, power: u32) -> Duration {
        let [a, b, c, d, ..] = self.own_session.id;
        let dice = u32::from_le_bytes([a, b, c, d]).rotate_left(attempts.wrapping_mul(7)).wrapping_add(attempts);
        Duration::from_millis(u64::from(1 + dice % (1 << power)))
    }

    /// The statement was carried out when the client sent it the first time. The members that the client's write
    /// concern asks for may still lack it: to commit it again waits for them.
    fn was_done_before(&mut self, outcomes: &mut RuleOutcomes) -> Step {
        let Some(transaction) = &mut self.transaction else { return self.conclude() };
        match commands::remembered_reply(&self.command, self.batch.form, &transaction.statement.operation) {
            Some(reply) => {
                transaction.applied = reply;
                self.commit()
            }
            None => {
                transaction.own = None;
                let rejection = Rejection {
                    code: code::INCOMPLETE_TRANSACTION_HISTORY,
                    reason: "it was carried out when it was sent the first time, and the answer was lost".to_owned(),
                    hint: "Read what it left; do not send it again.".to_owned(),
                };
                self.give_up(rejection, outcomes)
            }
        }
    }

    /// Nothing of the statement is to happen.
    fn give_up(&mut self, rejection: Rejection, outcomes: &mut RuleOutcomes) -> Step {
        let Some(transaction) = &self.transaction else { return self.conclude() };
        let (index, own) = (transaction.index, transaction.own);
        let Some((rule, _)) = transaction.conversations.get(transaction.at) else { return self.conclude() };
        let rule = *rule;
        let namespace = self.batch.namespace(&transaction.statement);
        outcomes.note(rule, namespace, OutcomeKind::Reject, Some(&rejection));
        if let Some(evaluated) = self.evaluated.get_mut(index) {
            evaluated.refused = Some(RejectedBy { rule, rejection });
        }
        if let Some(runs) = &mut self.runs {
            runs.pop_front();
        }
        self.stopped |= self.stops_on_error();
        if own.is_some_and(|own| own.begun) {
            return self.abort(AfterAbort::GoOn);
        }
        self.transaction = None;
        self.advance(outcomes)
    }

    /// The transaction is over; its statement's reply is treated like any other.
    fn deliver(&mut self, frame: &[u8], outcomes: &mut RuleOutcomes) -> Step {
        self.transaction = None;
        match self.take_reply(frame) {
            Flow::Continue(()) => self.advance(outcomes),
            Flow::Break(step) => step,
        }
    }
}

/// Whether the transaction that the command was for is there no more.
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
