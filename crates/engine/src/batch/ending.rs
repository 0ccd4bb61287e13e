//! Ends docward's own transactions: commits or aborts them, or pauses before another attempt.

use std::time::Duration;

use super::super::backoff::random_pause;
use super::super::port::Flow;
use super::super::server_errors;
use super::commands::MAX_TIME;
use super::earlier_sends::SessionPosition;
use super::transaction::{AttemptEnd, AttemptResult, RestartReason, TransactionAttempt, is_over, last, parse};
use super::{BatchJob, commands};
use crate::command::{Reply, code, error_reply};
use crate::document::OwnedValue;
use crate::patterns::Rejection;

/// Maximum repetitions of a transaction for one statement: some seconds of conflicting writes on one node.
const MAX_CONFLICTS: u32 = 300;
/// Maximum repetitions because members were lost.
const MAX_LOSSES: u32 = 16;
/// Maximum repetitions of a commit with unknown outcome.
const MAX_COMMITS: u32 = 3;
/// The longest pause before a repetition is two to this power, in milliseconds.
const MAX_BACKOFF_EXPONENT: u32 = 5;
/// The same after another sender of the same write aborted the transaction: longer than a transaction takes on a busy
/// machine.
const MAX_CONTENTION_BACKOFF_EXPONENT: u32 = 8;

/// What is known of a transaction after docward asked the server to abort it.
pub(super) enum Fate {
    Committed,
    /// Until then it was open.
    Aborted,
    /// There is none: it was aborted before.
    Missing,
    /// Its session has a later one.
    TooOld,
    /// The server's error.
    Unknown(Vec<u8>),
}

impl<'f> BatchJob<'f> {
    /// The statement after all rules decides: what a procedure narrowed to an update may have inserted a document.
    pub(super) fn remembered_reply(&self, index: usize) -> Option<Vec<u8>> {
        let statement = &self.evaluated.get(index)?.statement;
        commands::remembered_reply(&self.command, self.batch.form, &statement.operation)
    }

    /// Applies the command's maxTimeMS, `elapsed` after the first exchange. It limits all attempts together: later
    /// commands get the remaining time.
    ///
    /// # Errors
    /// The server's error for a command that takes too long.
    pub(super) fn limit_time(&mut self, elapsed: Duration) -> Result<(), Vec<u8>> {
        let Some(limit) = self.time_limit() else { return Ok(()) };
        self.time_limit = Some(limit);
        let left = limit.saturating_sub(elapsed).as_millis();
        if left == 0 {
            let text = format!("operation exceeded time limit: {} ms in docward", elapsed.as_millis());
            return Err(error_reply(self.command.message.header, code::MAX_TIME_MS_EXPIRED, &text, |_| {}));
        }
        let changes = &mut self.batch.body_changes;
        changes.retain(|(name, _)| *name != MAX_TIME);
        changes.push((MAX_TIME, OwnedValue::integer(i64::try_from(left).unwrap_or(i64::MAX))));
        Ok(())
    }

    /// Returns the command's time limit, from the client or a rule, for all attempts and repeats together.
    pub(super) fn time_limit(&self) -> Option<Duration> {
        self.time_limit.or_else(|| self.max_time())
    }

    /// Returns the time limit, or what remained of it when the transaction began again.
    pub(super) fn max_time(&self) -> Option<Duration> {
        let changed = self.batch.body_changes.iter().find(|(name, _)| *name == MAX_TIME);
        let value = changed.map(|(_, value)| value.as_value()).or_else(|| self.command.body.get(MAX_TIME))?;
        let milliseconds = u64::try_from(value.as_integer()?).ok()?;
        (milliseconds > 0).then(|| Duration::from_millis(milliseconds))
    }
}

impl<'f> TransactionAttempt<'_, 'f> {
    /// Commits, and returns the reply to the statement.
    pub(super) async fn commit(&mut self, applied: Vec<u8>) -> AttemptEnd {
        let (mut failed, mut lost) = (0, None);
        loop {
            let (job, own) = (&*self.job, self.own);
            let commit = || job.commands(own).commit();
            let frame = self.port.exchange(commit()).await;
            let frame = self.port.repeat_after_overload(frame, self.job.time_limit(), commit).await;
            let reply = match parse(&frame) {
                AttemptResult::Continue(reply) => reply,
                AttemptResult::Break(ending) => return ending,
            };
            failed += 1;
            let is_lost = server_errors::is_lost_member(&reply);
            // Otherwise the next member waits for the write concern, or has not got the transaction.
            if reply.is_ok() && !(is_lost && failed <= MAX_LOSSES) {
                return AttemptEnd::Reply(self.committed(applied, &reply));
            }
            if is_over(&reply) {
                let reason = if lost.is_some() { RestartReason::MemberLost } else { RestartReason::SameWrite };
                return AttemptEnd::Again(reason);
            }
            if server_errors::has_label(&reply, server_errors::TRANSIENT) {
                return AttemptEnd::Again(RestartReason::WriteConflict);
            }
            let is_repeated = match is_lost {
                true => failed <= MAX_LOSSES,
                false => failed <= MAX_COMMITS && server_errors::has_label(&reply, server_errors::UNKNOWN_COMMIT),
            };
            let is_final = server_errors::is_state_change(&reply) || !is_repeated;
            if is_final {
                // The server has rejected it, and its step-down has aborted the transaction, or it has not begun it.
                let is_refused = failed == 1
                    && (reply.code() == Some(code::NOT_WRITABLE_PRIMARY) || server_errors::is_overload(&reply));
                drop(reply);
                // That a later member could not be asked shows nothing of the first.
                let frame = lost.filter(|_| !is_lost).unwrap_or(frame);
                return self.end_failed_commit(applied, (frame, is_refused)).await;
            }
            drop(reply);
            if is_lost {
                lost = Some(frame);
            }
        }
    }

    /// Returns the reply to the statement as of the commit.
    fn committed(&self, applied: Vec<u8>, commit: &Reply<'_>) -> Vec<u8> {
        let repeatable =
            self.job.command.session().txn_number.is_some() && self.job.remembered_reply(self.index).is_some();
        commands::as_committed(&applied, commit, repeatable).unwrap_or(applied)
    }

    /// Ends a transaction whose commit has failed with an error, `is_refused`: without effect. Otherwise the server's
    /// reply to an abort shows whether it had one.
    async fn end_failed_commit(&mut self, applied: Vec<u8>, (error, is_refused): (Vec<u8>, bool)) -> AttemptEnd {
        let is_lost = server_errors::is_lost_member_frame(&error);
        match self.ask_to_abort().await {
            AttemptResult::Continue(Fate::Committed) => match parse(&error) {
                AttemptResult::Continue(reply) => AttemptEnd::Reply(self.committed(applied, &reply)),
                AttemptResult::Break(ending) => ending,
            },
            // Another member has answered.
            AttemptResult::Continue(Fate::Aborted | Fate::Missing) if is_lost => {
                AttemptEnd::Again(RestartReason::MemberLost)
            }
            AttemptResult::Continue(Fate::Aborted | Fate::Missing) => {
                self.use_up();
                AttemptEnd::Reply(error)
            }
            AttemptResult::Continue(Fate::Unknown(_)) if is_refused => AttemptEnd::Reply(error),
            // The label of a lost member lets the driver retry it.
            AttemptResult::Continue(Fate::TooOld | Fate::Unknown(_))
                if is_lost && self.job.command.session().is_retryable_write() =>
            {
                AttemptEnd::Reply(error)
            }
            AttemptResult::Continue(Fate::TooOld | Fate::Unknown(_)) if self.job.may_be_retried() && !is_lost => last(
                "the server did not report whether docward's transaction was committed; the driver retries the write",
            ),
            AttemptResult::Continue(Fate::TooOld | Fate::Unknown(_)) => {
                AttemptEnd::Reply(as_unknown(&error).unwrap_or(error))
            }
            AttemptResult::Break(ending) => ending,
        }
    }

    /// Aborts a transaction whose number was used before: the reply shows whether that one was committed.
    pub(super) async fn abort_earlier(&mut self) -> AttemptEnd {
        match self.ask_to_abort().await {
            AttemptResult::Continue(Fate::Committed) => {}
            AttemptResult::Continue(Fate::Aborted | Fate::Missing | Fate::TooOld) => {
                return AttemptEnd::Again(RestartReason::UsedNumber);
            }
            // The next attempt must not begin before it is known.
            AttemptResult::Continue(Fate::Unknown(error)) => return AttemptEnd::Reply(error),
            AttemptResult::Break(ending) => return ending,
        }
        // Commits again to wait for the client's write concern, which may not be satisfied yet.
        match self.job.remembered_reply(self.index) {
            Some(reply) => self.commit(reply).await,
            None => {
                let rejection = Rejection {
                    code: code::INCOMPLETE_TRANSACTION_HISTORY,
                    reason: "it was carried out when it was first sent, and the reply was lost".to_owned(),
                    hint: "Read the documents to see its result; do not send it again.".to_owned(),
                };
                self.reject(self.rule(), rejection)
            }
        }
    }

    /// Ends an attempt whose number is lower than the last one of its session. That may belong to a later attempt at the
    /// same write, and the next attempt follows; or to a newer write of the client, and no attempt can succeed; or another
    /// docward has excluded all attempts.
    pub(super) async fn end_too_old(&mut self) -> AttemptEnd {
        match self.job.earlier_sends(self.port).position(self.index).await {
            Flow::Break(step) => AttemptEnd::Last(step),
            Flow::Continue(SessionPosition::Attempt) => AttemptEnd::Again(RestartReason::UsedNumber),
            Flow::Continue(SessionPosition::Excluded) => self.job.end_excluded(self.index, self.port).await,
            Flow::Continue(SessionPosition::Newer) => AttemptEnd::Last(self.job.too_old()),
        }
    }

    /// The number is used up if the statement is sent again in another form.
    fn use_up(&mut self) {
        if let Some(evaluated) = self.job.evaluated.get_mut(self.index) {
            evaluated.attempts += 1;
        }
    }

    pub(super) async fn abort(&mut self) -> AttemptResult<Fate> {
        let fate = self.ask_to_abort().await?;
        self.use_up();
        AttemptResult::Continue(fate)
    }

    /// Aborts a transaction of docward's own, and returns what the reply shows.
    async fn ask_to_abort(&mut self) -> AttemptResult<Fate> {
        let (job, own) = (&*self.job, self.own);
        let abort = || job.commands(own).abort();
        let frame =
            self.port.repeat_after_overload(self.port.exchange(abort()).await, self.job.time_limit(), abort).await;
        let reply = parse(&frame)?;
        let fate = match reply.code() {
            _ if reply.is_ok() => Some(Fate::Aborted),
            Some(code::NO_SUCH_TRANSACTION) => Some(Fate::Missing),
            Some(code::TRANSACTION_COMMITTED) => Some(Fate::Committed),
            Some(code::TRANSACTION_TOO_OLD) => Some(Fate::TooOld),
            _ => None,
        };
        drop(reply);
        AttemptResult::Continue(fate.unwrap_or(Fate::Unknown(frame)))
    }

    pub(super) async fn abort_and(&mut self, ending: AttemptEnd) -> AttemptEnd {
        match self.abort().await {
            AttemptResult::Continue(_) => ending,
            AttemptResult::Break(ending) => ending,
        }
    }

    /// Returns the pause before the transaction starts again, because other writes may be in progress.
    ///
    /// # Errors
    /// The rejection of the statement after too many attempts.
    pub(super) fn pause_after(&mut self, reason: RestartReason) -> Result<Duration, Rejection> {
        let evaluated = self.job.evaluated.get_mut(self.index);
        let (attempts, contention_aborts, losses) = evaluated.map_or((MAX_CONFLICTS, 0, 0), |evaluated| {
            match reason {
                RestartReason::MemberLost => (evaluated.attempts, evaluated.losses) = (0, evaluated.losses + 1),
                _ => evaluated.attempts += 1,
            }
            evaluated.contention_aborts += u32::from(reason == RestartReason::SameWrite);
            (evaluated.attempts, evaluated.contention_aborts, evaluated.losses)
        });
        if attempts >= MAX_CONFLICTS || losses > MAX_LOSSES {
            return Err(Rejection {
                code: code::WRITE_CONFLICT,
                reason: format!(
                    "{attempts} attempts failed because of other writes to the same documents, or of errors that pass"
                ),
                hint: "Try again later.".to_owned(),
            });
        }
        let seed = self.port.own_session(|own_session| own_session.id);
        let pause = match reason {
            RestartReason::UsedNumber | RestartReason::MemberLost => Duration::ZERO,
            RestartReason::WriteConflict => random_pause(seed, attempts, attempts.min(MAX_BACKOFF_EXPONENT)),
            RestartReason::SameWrite => {
                random_pause(seed, attempts, contention_aborts.min(MAX_CONTENTION_BACKOFF_EXPONENT))
            }
        };
        Ok(self.job.max_time().map_or(pause, |left| pause.min(left)))
    }
}

/// Returns the error of a commit for a statement of which is not known whether it was executed.
fn as_unknown(error: &[u8]) -> Option<Vec<u8>> {
    let error = Reply::parse(error).ok()?;
    Some(error.with_body(error.message.header.response_to, |w| {
        for element in error.body.elements() {
            match (element.key, element.value.as_str()) {
                (b"errmsg", Some(text)) => w.string(
                    "errmsg",
                    format!(
                        "it is not known whether this statement was executed; read the documents. The commit of \
                         docward's transaction failed: {text}"
                    ),
                ),
                _ => w.element(element),
            }
        }
    }))
}
