//! Finds out whether a retryable write was carried out before, under other rules.
//!
//! The server recognises a retry only in the session in which the write was executed: the client's own, or the derived
//! one of docward's transactions (`ownership.rs`). So a statement that needs a transaction first asks for the client's
//! session. A statement that is sent directly asks for the derived one while other rules may have applied to an earlier
//! send ([`Doubt`]). A rejected statement then asks for both. The questions change nothing.
//!
//! What no question excludes: an earlier send that reaches the server only after the answer.

use std::collections::HashSet;

use super::super::backoff::random_pause;
use super::super::evaluation::Evaluated;
use super::super::port::{CommandPurpose, Flow, Port, parse_reply};
use super::super::server_errors;
use super::super::step::Step;
use super::numbers::CommandNumbers;
use super::transaction::{AttemptEnd, RestartReason};
use super::{BatchJob, commands};
use crate::command::{Operation, OwnTransaction, Reply, Statement, WriteBatch, code, error_reply};
use crate::document::{Document, Value};
use crate::rules::Doubt;

/// How often docward waits for another one that carries out the same write directly.
const MAX_WAITS: u32 = 16;
/// The longest pause before the number is used up again is two to this power, in milliseconds.
const MAX_PAUSE_POWER: u32 = 5;
/// The server has a record of a write of another kind with this number (`write_ops_retryability.cpp`).
const OTHER_KIND: [i32; 2] = [40607, 40638];

/// Where a derived session stands if a number of it is too low.
pub(super) enum SessionPosition {
    /// At another attempt at this statement.
    Attempt,
    /// All attempts are excluded: another docward sends this statement directly.
    Excluded,
    /// At a newer write of the client.
    Newer,
}

/// Questions to the server about earlier sends of the statements. They change nothing.
pub(super) struct EarlierSends<'j, 'f> {
    job: &'j BatchJob<'f>,
    port: &'j Port,
    routed: bool,
}

impl Evaluated<'_, '_> {
    /// Whether an earlier send may be recorded in the client's session, and this one would not find the record. `doubt`:
    /// the rules that may have applied to it.
    fn may_be_recorded(&self, doubt: Option<&Doubt>) -> bool {
        match self.rejected {
            Some(_) => doubt.is_some(),
            // It is rejected if a document matches, also the one that it has written.
            None => self.needs_transaction() || doubt.is_some() && self.prerequisites.is_only_new(),
        }
    }

    /// Whether an earlier send may be committed in docward's transaction, and this one would not find it.
    fn may_be_committed(&self, doubt: Option<&Doubt>, batch: &WriteBatch<'_>) -> bool {
        let namespace = batch.namespace(&self.statement);
        let Some(doubt) = doubt.filter(|doubt| doubt.covers(namespace.database, namespace.collection)) else {
            return false;
        };
        let original = self.statement.original();
        let operation = original.as_ref().map_or(&self.statement.operation, |original| &original.operation);
        let folds = self.statement.option("collation").is_some();
        doubt.covers_statement(namespace, operation, folds) && (self.rejected.is_some() || !self.needs_transaction())
    }
}

impl<'f> BatchJob<'f> {
    pub(super) fn earlier_sends<'j>(&'j self, port: &'j Port) -> EarlierSends<'j, 'f> {
        EarlierSends { job: self, port, routed: port.own_session(|own_session| own_session.routed) }
    }

    /// Whether an earlier send of a statement may have been carried out under other rules.
    pub(crate) fn asks_for_earlier_sends(&self) -> bool {
        let asks =
            |one: &Evaluated<'_, '_>| one.may_be_recorded(self.doubt) || one.may_be_committed(self.doubt, &self.batch);
        self.command.session().is_retryable_write() && self.evaluated.iter().any(asks)
    }

    /// Asks the server about earlier sends. Statements that were carried out are then sent as they came, so that the
    /// server answers them from its record, or only confirmed.
    pub(super) async fn recall(&mut self, port: &Port) -> Flow {
        if !self.asks_for_earlier_sends() {
            return Flow::Continue(());
        }
        let is_asked = |(index, one): &(usize, &Evaluated<'_, '_>)| {
            one.may_be_recorded(self.doubt) && !self.asks_with_write(*index)
        };
        let asked = self.evaluated.iter().enumerate().filter(is_asked).map(|(index, _)| index).collect();
        self.recall_some(asked, port).await?;
        self.numbers = CommandNumbers::collect(self.sendable());
        Flow::Continue(())
    }

    /// Sends a command that is rejected as a whole if all of its statements were carried out before; else returns the
    /// rejection.
    pub(crate) async fn reject_unless_sent(mut self: Box<Self>, rejection: Step, port: Port) -> Flow<Step> {
        let all = self.evaluated.len();
        if self.recall_some((0..all).collect(), &port).await? < all {
            return Flow::Continue(rejection);
        }
        let sending = port.outcomes(|outcomes| self.sending(outcomes));
        Box::pin(sending.carry_out(port)).await
    }

    /// Asks for the records of these statements, and for those that may be committed. Returns how many statements were
    /// carried out before.
    async fn recall_some(&mut self, asked: Vec<usize>, port: &Port) -> Flow<usize> {
        let all = self.evaluated.iter().enumerate();
        let asks = |(_, one): &(usize, &Evaluated<'_, '_>)| one.may_be_committed(self.doubt, &self.batch);
        let committed: Vec<usize> = all.filter(asks).map(|(index, _)| index).collect();
        let recorded = self.earlier_sends(port).recorded(asked).await?;
        recorded.iter().for_each(|index| self.send_as_it_came(*index));
        let mut found = recorded.len();
        for index in committed.into_iter().filter(|index| !recorded.contains(index)) {
            if let Some(attempt) = self.earlier_sends(port).committed_attempt(index).await? {
                self.send_as_it_came(index);
                if let Some(evaluated) = self.evaluated.get_mut(index) {
                    (evaluated.attempts, evaluated.committed) = (attempt, true);
                }
                found += 1;
            }
        }
        Flow::Continue(found)
    }

    /// Takes back what rules made of a statement.
    pub(super) fn send_as_it_came(&mut self, index: usize) {
        if let Some(evaluated) = self.evaluated.get_mut(index)
            && let Some(original) = evaluated.statement.original()
        {
            *evaluated = Evaluated::new(original);
        }
    }

    /// The error for a retry of a write that is not the client's last one.
    pub(super) fn too_old(&self) -> Step {
        let text = "docward: the session has a newer write than this one (its txnNumber is too old)";
        self.pass_on(error_reply(self.command.message.header, code::TRANSACTION_TOO_OLD, text, |_| {}))
    }

    /// Ends an attempt at a statement that another docward, under other rules, sends directly: waits for its record.
    pub(super) async fn end_excluded(&mut self, index: usize, port: &Port) -> AttemptEnd {
        let waits = self.evaluated.get(index).map_or(0, |evaluated| evaluated.attempts);
        match self.earlier_sends(port).recorded(vec![index]).await {
            Flow::Break(step) => AttemptEnd::Last(step),
            Flow::Continue(recorded) if !recorded.is_empty() => {
                self.send_as_it_came(index);
                self.continue_alone(index);
                AttemptEnd::Settled
            }
            Flow::Continue(_) if waits < MAX_WAITS => AttemptEnd::Again(RestartReason::SameWrite),
            // The server keeps no record of a statement that changes nothing.
            Flow::Continue(_) => {
                self.fail_unknown(
                    index,
                    "docward: it was sent before, under other rules, and had no effect then or has not ended. Read the \
                     documents before you send it again.",
                );
                AttemptEnd::Settled
            }
        }
    }

    /// Fails a statement that was sent before, and whose result cannot be given again.
    fn fail_unknown(&mut self, index: usize, text: &str) {
        let error = error_reply(self.command.message.header, code::INCOMPLETE_TRANSACTION_HISTORY, text, |_| {});
        if let Ok(error) = Reply::parse(&error) {
            self.fail(index, &error);
        }
    }

    /// Returns the reply to a statement that was committed before. The commit is repeated, because it waits for the
    /// client's write concern. Returns `None` if the reply needs more than a count: then the statement gets an error.
    pub(super) async fn confirm(&mut self, index: usize, port: &Port) -> Flow<Option<Vec<u8>>> {
        let routed = port.own_session(|own_session| own_session.routed);
        let attempt = self.evaluated.get(index).map_or(0, |evaluated| evaluated.attempts);
        let own = self.attempt_at(index, attempt, routed);
        let frame = port.exchange(self.commands(own).commit()).await;
        let reply = parse_reply(&frame, "a commit")?;
        if !reply.is_ok() {
            return Flow::Break(match server_errors::is_passing(&reply) {
                true => self.pass_on_error(&reply, self.merged.has_effect()),
                false => {
                    let text = format!("the commit of an earlier send was not confirmed: {}", reply.error_text());
                    self.unavailable(&text, self.merged.has_effect())
                }
            });
        }
        if let Some(applied) = self.remembered_reply(index) {
            return Flow::Continue(Some(commands::as_committed(&applied, &reply, true).unwrap_or(applied)));
        }
        self.fail_unknown(
            index,
            "docward: it was carried out when it was first sent, and the reply was lost. Read the documents to see its \
             result; do not send it again.",
        );
        Flow::Continue(None)
    }
}

impl EarlierSends<'_, '_> {
    /// Returns the statements that the server has recorded in the client's session.
    pub(super) async fn recorded(&self, mut asked: Vec<usize>) -> Flow<HashSet<usize>> {
        let mut found = HashSet::new();
        let kind = |index: usize| {
            let statement = self.job.evaluated.get(index).map(|evaluated| &evaluated.statement);
            statement.map(|one| (one.namespace, matches!(one.operation, Operation::Delete(_))))
        };
        while let Some(first) = asked.first().copied() {
            let same: Vec<usize>;
            (same, asked) = asked.into_iter().partition(|index| kind(*index) == kind(first));
            match self.ask_for_records(&same).await? {
                Some(recorded) => found.extend(recorded),
                // The reply does not show which.
                None => {
                    for index in same {
                        if self.ask_for_records(&[index]).await?.is_none_or(|recorded| !recorded.is_empty()) {
                            found.insert(index);
                        }
                    }
                }
            }
        }
        Flow::Continue(found)
    }

    /// Returns which of these statements, all of one kind, are recorded; `None`: some are, as another kind.
    async fn ask_for_records(&self, asked: &[usize]) -> Flow<Option<Vec<usize>>> {
        let Some(first) = asked.first().and_then(|index| self.job.evaluated.get(*index)) else {
            return Flow::Continue(Some(Vec::new()));
        };
        let question = self.record_question(&first.statement, asked);
        let frame = self.port.exchange_for(CommandPurpose::Record, question).await;
        self.read_record(asked, &frame)
    }

    /// Returns the question which of these statements, all of the same kind as `statement`, are recorded.
    pub(super) fn record_question(&self, statement: &Statement<'_>, asked: &[usize]) -> Vec<u8> {
        let ids: Vec<i32> = asked.iter().map(|index| self.job.batch.statement_id(*index)).collect();
        self.job.commands(None).records(statement, &ids)
    }

    /// Reads the answer, as [`ask_for_records`](Self::ask_for_records) returns it.
    pub(super) fn read_record(&self, asked: &[usize], frame: &[u8]) -> Flow<Option<Vec<usize>>> {
        let reply = parse_reply(frame, "a question about a record")?;
        match reply.code() {
            Some(other) if OTHER_KIND.contains(&other) => return Flow::Continue(None),
            // The statement itself gets the error that the server has for it.
            Some(code::UNAUTHORIZED | code::ILLEGAL_OPERATION | code::INVALID_NAMESPACE) => {
                return Flow::Continue(Some(Vec::new()));
            }
            // Also that the session has a newer write, or that the first send has not ended in time.
            _ if !reply.is_ok() => return Flow::Break(self.unanswered(&reply)),
            _ => {}
        }
        let retried = reply.body.get("retriedStmtIds").and_then(Value::as_array).unwrap_or(Document::EMPTY);
        let retried: HashSet<i32> = retried.values().filter_map(Value::as_i32).collect();
        let recorded = asked.iter().copied().filter(|index| retried.contains(&self.job.batch.statement_id(*index)));
        Flow::Continue(Some(recorded.collect()))
    }

    /// Returns the attempt at a statement that was committed. If there is none, no attempt can be committed any more.
    async fn committed_attempt(&self, index: usize) -> Flow<Option<u32>> {
        let mut losses = 0;
        loop {
            let found = self.committed_here(index).await?;
            // What a member knew of the attempts is gone with it.
            if found.is_some() || self.exclude_attempts(index).await? {
                return Flow::Continue(found.flatten());
            }
            losses += 1;
            if losses > MAX_WAITS {
                return Flow::Break(self.job.too_old());
            }
        }
    }

    /// The same as far as the member of the moment knows; `None`: there is none, and later ones are to be excluded.
    async fn committed_here(&self, index: usize) -> Flow<Option<Option<u32>>> {
        let mut attempt = 0;
        while let Some(own) = self.job.attempt_at(index, attempt, self.routed) {
            let frame = self.abort_attempt(own).await;
            let reply = parse_reply(&frame, "an abort")?;
            match reply.code() {
                Some(code::TRANSACTION_COMMITTED) => return Flow::Continue(Some(Some(attempt))),
                Some(code::TRANSACTION_TOO_OLD) => match self.position(index).await? {
                    SessionPosition::Attempt => attempt += 1,
                    SessionPosition::Excluded => return Flow::Continue(Some(None)),
                    SessionPosition::Newer => return Flow::Break(self.job.too_old()),
                },
                Some(code::NO_SUCH_TRANSACTION) => break,
                _ if reply.is_ok() => break,
                _ => return Flow::Break(self.unanswered(&reply)),
            }
        }
        Flow::Continue(None)
    }

    /// Uses up the last number of a statement, so that an attempt that is still under way cannot be committed. Returns false
    /// if the member was lost.
    async fn exclude_attempts(&self, index: usize) -> Flow<bool> {
        let last = self.job.last_attempt(index, self.routed);
        let (Some(last), Some(evaluated)) = (last, self.job.evaluated.get(index)) else { return Flow::Continue(true) };
        let own = Some(OwnTransaction { begun: false, ..last });
        let mut repeats = 0;
        loop {
            let frame = self.port.exchange(self.job.commands(own).failing(&evaluated.statement)).await;
            let reply = parse_reply(&frame, "a write")?;
            return match reply.code() {
                Some(code::TRANSACTION_TOO_OLD) => Flow::Break(self.job.too_old()),
                // The transaction has not begun, for example because the collection was just created.
                _ if reply.is_ok() => Flow::Continue(true),
                _ if server_errors::is_lost_member(&reply) => Flow::Continue(false),
                _ if server_errors::has_label(&reply, server_errors::TRANSIENT) && repeats < MAX_WAITS => {
                    drop(reply);
                    repeats += 1;
                    let seed = self.port.own_session(|own_session| own_session.id);
                    self.port.pause(random_pause(seed, repeats, repeats.min(MAX_PAUSE_POWER))).await;
                    continue;
                }
                // It may not have begun.
                _ if server_errors::is_passing(&reply) => Flow::Break(self.unanswered(&reply)),
                _ => Flow::Continue(true),
            };
        }
    }

    /// The server's error for a question is that of the client's command.
    fn unanswered(&self, error: &Reply<'_>) -> Step {
        self.job.pass_on(server_errors::for_client(&self.job.command, error, self.job.merged.has_effect()))
    }

    /// Finds out where the derived session stands, after the server has found a number of it too low. The numbers that it
    /// asks about are those that no attempt uses, so nothing is aborted.
    pub(super) async fn position(&self, index: usize) -> Flow<SessionPosition> {
        let Some(last) = self.job.last_attempt(index, self.routed) else {
            return Flow::Continue(SessionPosition::Attempt);
        };
        let before_last = OwnTransaction { number: last.number - 1, ..last };
        for (own, position) in [(before_last, SessionPosition::Attempt), (last, SessionPosition::Excluded)] {
            let frame = self.abort_attempt(own).await;
            let reply = parse_reply(&frame, "an abort")?;
            match reply.code() {
                Some(code::TRANSACTION_TOO_OLD) => {}
                Some(code::NO_SUCH_TRANSACTION) => return Flow::Continue(position),
                _ if server_errors::is_passing(&reply) => return Flow::Break(self.unanswered(&reply)),
                _ => return Flow::Continue(position),
            }
        }
        Flow::Continue(SessionPosition::Newer)
    }

    fn abort_attempt(&self, own: OwnTransaction) -> impl Future<Output = Vec<u8>> {
        self.port.exchange(self.job.commands(Some(own)).abort())
    }
}
