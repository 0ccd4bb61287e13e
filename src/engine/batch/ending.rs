//! Ends docward's own transactions: commits or aborts them, or pauses before another attempt.

use std::time::Duration;

use super::super::port::{Flow, Port};
use super::commands::MAX_TIME;
use super::earlier_sends::SessionPosition;
use super::transaction::{AttemptEnd, AttemptResult, RestartReason, TransactionAttempt, is_over, last, parse};
use super::{BatchJob, commands};
use crate::command::{code, error_reply};
use crate::document::OwnedValue;
use crate::patterns::Rejection;

/// Maximum repetitions of a transaction for one statement: some seconds of conflicting writes on one node.
const MAX_CONFLICTS: u32 = 300;
/// Maximum repetitions of a commit with unknown outcome.
const MAX_COMMITS: u32 = 3;
/// The longest pause before a repetition is two to this power, in milliseconds.
const MAX_BACKOFF_EXPONENT: u32 = 5;
/// The same after another sender of the same write aborted the transaction: longer than a transaction takes on a busy
/// machine.
const MAX_CONTENTION_BACKOFF_EXPONENT: u32 = 8;

impl<'f> BatchJob<'f> {
    /// Commits, and returns the reply to the statement.
    pub(super) async fn commit(
        &mut self,
        transaction: &mut TransactionAttempt<'f>,
        applied: Vec<u8>,
        port: &Port,
    ) -> AttemptEnd {
        let mut failed = 0;
        loop {
            let commit = self.commands(transaction.own).commit();
            let frame = self.exchange(transaction, commit, port).await;
            let reply = match parse(&frame) {
                AttemptResult::Continue(reply) => reply,
                AttemptResult::Break(ending) => return ending,
            };
            if reply.is_ok() {
                let repeatable =
                    self.command.session().txn_number.is_some() && self.remembered_reply(transaction.index).is_some();
                let applied = commands::with_write_concern_error(&applied, &reply, repeatable).unwrap_or(applied);
                return AttemptEnd::Reply(applied);
            }
            failed += 1;
            if is_over(&reply) {
                return AttemptEnd::Again(RestartReason::SameWrite);
            }
            if commands::has_label(&reply, "TransientTransactionError") {
                return AttemptEnd::Again(RestartReason::WriteConflict);
            }
            if commands::is_state_change_error(&reply) || failed > MAX_COMMITS {
                return last(
                    "the server did not report whether docward's transaction was committed; the driver retries the \
                     write",
                );
            }
            let is_final = !commands::has_label(&reply, "UnknownTransactionCommitResult");
            drop(reply);
            if is_final {
                return self.end_with(transaction, frame, port).await;
            }
        }
    }

    /// Aborts a transaction whose number was used before: the reply shows whether that one was committed.
    pub(super) async fn abort_earlier(&mut self, transaction: &mut TransactionAttempt<'f>, port: &Port) -> AttemptEnd {
        let abort = self.commands(transaction.own).abort();
        let frame = self.exchange(transaction, abort, port).await;
        match parse(&frame) {
            AttemptResult::Continue(reply) if reply.code() == Some(code::TRANSACTION_COMMITTED) => {}
            AttemptResult::Continue(_) => return AttemptEnd::Again(RestartReason::UsedNumber),
            AttemptResult::Break(ending) => return ending,
        }
        // Commits again to wait for the client's write concern, which may not be satisfied yet.
        match self.remembered_reply(transaction.index) {
            Some(reply) => self.commit(transaction, reply, port).await,
            None => {
                let rejection = Rejection {
                    code: code::INCOMPLETE_TRANSACTION_HISTORY,
                    reason: "it was carried out when it was first sent, and the reply was lost".to_owned(),
                    hint: "Read the documents to see its result; do not send it again.".to_owned(),
                };
                self.reject(transaction, transaction.rule(), rejection, port)
            }
        }
    }

    /// Ends an attempt whose number is lower than the last one of its session. That may belong to a later attempt at the
    /// same write, and the next attempt follows; or to a newer write of the client, and no attempt can succeed; or another
    /// docward has excluded all attempts.
    pub(super) async fn end_too_old(&mut self, transaction: &mut TransactionAttempt<'f>, port: &Port) -> AttemptEnd {
        let routed = transaction.own.is_some_and(|own| own.routed);
        match self.position(transaction.index, routed, port).await {
            Flow::Break(step) => AttemptEnd::Last(step),
            Flow::Continue(SessionPosition::Attempt) => AttemptEnd::Again(RestartReason::UsedNumber),
            Flow::Continue(SessionPosition::Excluded) => self.end_excluded(transaction.index, port).await,
            Flow::Continue(SessionPosition::Newer) => AttemptEnd::Last(self.too_old()),
        }
    }

    /// The statement after all rules decides: what a procedure narrowed to an update may have inserted a document.
    pub(super) fn remembered_reply(&self, index: usize) -> Option<Vec<u8>> {
        let statement = &self.evaluated.get(index)?.statement;
        commands::remembered_reply(&self.command, self.batch.form, &statement.operation)
    }

    pub(super) async fn abort(&mut self, transaction: &mut TransactionAttempt<'f>, port: &Port) -> AttemptResult {
        let abort = self.commands(transaction.own).abort();
        let frame = self.exchange(transaction, abort, port).await;
        parse(&frame)?;
        if let Some(evaluated) = self.evaluated.get_mut(transaction.index) {
            // The number is used up if the statement is sent again in another form.
            evaluated.attempts += 1;
        }
        AttemptResult::Continue(())
    }

    pub(super) async fn abort_and(
        &mut self,
        transaction: &mut TransactionAttempt<'f>,
        ending: AttemptEnd,
        port: &Port,
    ) -> AttemptEnd {
        match self.abort(transaction, port).await {
            AttemptResult::Continue(()) => ending,
            AttemptResult::Break(ending) => ending,
        }
    }

    /// Aborts and sends the server's error to the client. The server rejects unknown fields or names before it looks
    /// for the transaction, which then stays open. Aborting a finished one does no harm.
    pub(super) async fn end_with(
        &mut self,
        transaction: &mut TransactionAttempt<'f>,
        error: Vec<u8>,
        port: &Port,
    ) -> AttemptEnd {
        self.abort_and(transaction, AttemptEnd::Reply(error), port).await
    }

    /// Returns the pause before the transaction starts again, because other writes may be in progress.
    ///
    /// # Errors
    /// The rejection of the statement after too many attempts.
    pub(super) fn pause_after(
        &mut self,
        index: usize,
        reason: RestartReason,
        port: &Port,
    ) -> Result<Duration, Rejection> {
        let evaluated = self.evaluated.get_mut(index);
        let (attempts, contention_aborts) = evaluated.map_or((MAX_CONFLICTS, 0), |evaluated| {
            evaluated.attempts += 1;
            evaluated.contention_aborts += u32::from(reason == RestartReason::SameWrite);
            (evaluated.attempts, evaluated.contention_aborts)
        });
        if attempts >= MAX_CONFLICTS {
            return Err(Rejection {
                code: code::WRITE_CONFLICT,
                reason: format!("{attempts} attempts had write conflicts on the same nodes"),
                hint: "Try again later.".to_owned(),
            });
        }
        let seed = port.own_session(|own_session| own_session.id);
        let pause = match reason {
            RestartReason::UsedNumber => Duration::ZERO,
            RestartReason::WriteConflict => random_pause(seed, attempts, attempts.min(MAX_BACKOFF_EXPONENT)),
            RestartReason::SameWrite => {
                random_pause(seed, attempts, contention_aborts.min(MAX_CONTENTION_BACKOFF_EXPONENT))
            }
        };
        Ok(self.max_time().map_or(pause, |left| pause.min(left)))
    }

    /// Applies the command's maxTimeMS, `elapsed` after the first exchange. It limits all attempts together: later
    /// commands get the remaining time.
    pub(super) fn limit_time(&mut self, elapsed: Duration) -> Flow {
        let Some(limit) = self.time_limit.or_else(|| self.max_time()) else { return Flow::Continue(()) };
        self.time_limit = Some(limit);
        let left = limit.saturating_sub(elapsed).as_millis();
        if left == 0 {
            let text = format!("operation exceeded time limit: {} ms in docward", elapsed.as_millis());
            let error = error_reply(self.command.message.header, code::MAX_TIME_MS_EXPIRED, &text, |_| {});
            return Flow::Break(self.pass_on(error));
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
}

/// Returns a random pause of at most two to this power milliseconds, so that two conflicting senders do not meet again.
fn random_pause(seed: [u8; 16], attempts: u32, power: u32) -> Duration {
    let [a, b, c, d, ..] = seed;
    let random = u32::from_le_bytes([a, b, c, d]).rotate_left(attempts.wrapping_mul(7)).wrapping_add(attempts);
    Duration::from_millis(u64::from(1 + random % (1 << power)))
}
