//! Carries out the evaluated statements of one write command.
//!
//! A batch is sent as one command and its reply streamed if no rule needs the reply. Otherwise it is split into groups.
//! A statement whose match count matters is a group of its own. In an ordered batch, statements after a rejected one
//! are not sent. The replies are merged into one. Statements keep their numbers (`stmtIds`), so the server recognises
//! a retry however the batch is split.

mod checked;
mod checked_reply;
mod commands;
mod conflicts;
mod division;
mod earlier_sends;
mod ending;
mod failures;
mod group;
mod increments;
mod limits;
mod match_checks;
mod meaning;
mod numbers;
mod ownership;
mod promises;
mod results;
mod selected;
mod sending;
mod transaction;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

use super::Now;
use super::evaluation::Evaluated;
use super::merge::{self, MergedResults};
use super::outcome::RuleOutcomes;
use super::port::{CommandPurpose, Flow, Port, close, parse_reply};
use super::prerequisites::with_numbers;
use super::step::Step;
use crate::command::own::{self, CommandSession};
use crate::command::{Command, EncodeOptions, Reply, Statement, StatementPart, WriteBatch, WriteForm};
use crate::document::Document;
use crate::rules::{Doubt, RuleId};

use group::{Group, ReplyMeaning, UpsertStage};
pub(super) use sending::Sending;

/// The state of one write command.
#[derive(Debug)]
pub(super) struct BatchJob<'f> {
    command: Command<'f>,
    batch: WriteBatch<'f>,
    evaluated: Vec<Evaluated<'f, 'f>>,
    now: Now,
    /// The rules that may have applied to an earlier send.
    doubt: Option<&'f Doubt>,
    numbers: numbers::CommandNumbers<'f>,
    /// What is still to be sent.
    groups: VecDeque<Group>,
    merged: MergedResults,
    /// A command has been sent, inside the client's transaction if there is one.
    transaction_begun: bool,
    /// The server has rejected a part of the command, and executed an earlier one in the client's transaction.
    must_abort: bool,
    /// The server stayed overloaded while a part was repeated.
    gave_up: bool,
    stopped: bool,
    /// The command's maxTimeMS, set once a transaction had to be repeated.
    time_limit: Option<Duration>,
    check_limit: match_checks::CheckLimit,
    without_effect: results::WithoutEffect<'f>,
}

/// A group, a statement of it that matched nothing or failed to insert, and the reply to it.
type UnmatchedStatement = (Group, usize, Vec<u8>);

impl<'f> BatchJob<'f> {
    pub(super) fn new(
        command: Command<'f>,
        batch: WriteBatch<'f>,
        evaluated: Vec<Evaluated<'f, 'f>>,
        now: Now,
        doubt: Option<&'f Doubt>,
    ) -> Box<Self> {
        let mut job = Box::new(Self {
            command,
            batch,
            evaluated,
            now,
            doubt,
            numbers: numbers::CommandNumbers::default(),
            groups: VecDeque::new(),
            merged: MergedResults::default(),
            transaction_begun: false,
            must_abort: false,
            gave_up: false,
            stopped: false,
            time_limit: None,
            check_limit: match_checks::CheckLimit::default(),
            without_effect: results::WithoutEffect::default(),
        });
        if job.has_numbers() {
            job.numbers = numbers::CommandNumbers::collect(job.sendable());
        }
        job
    }

    /// Asks for earlier sends, checks the client's privileges for the numbers that the statements need, then sends them.
    pub(super) async fn check_and_send(mut self: Box<Self>, port: Port) -> Flow<Step> {
        Box::pin(self.recall(&port)).await?;
        self.check_privileges(&port).await?;
        self.number_and_send(port).await
    }

    /// Requests the numbers that the statements need, then sends them.
    pub(super) async fn number_and_send(mut self: Box<Self>, port: Port) -> Flow<Step> {
        while let Some(request) = self.next_request() {
            let found = port.numbers(request).await;
            port.outcomes(|outcomes| self.take_numbers(found, outcomes))?;
        }
        let sending = port.outcomes(|outcomes| self.sending(outcomes));
        Box::pin(sending.carry_out(port)).await
    }

    /// Sends the statements, group by group, and returns the client's reply.
    pub(super) async fn send(mut self: Box<Self>, port: Port) -> Flow<Step> {
        let mut last = self.send_groups(&port).await;
        // The whole command has failed for the client, which may commit what it did before.
        if self.must_abort
            && let Flow::Break(closed) = Box::pin(self.abort_client_transaction(&port)).await
        {
            last = Flow::Break(closed);
        }
        port.outcomes(|outcomes| self.without_effect.settle(&self.batch, outcomes));
        last
    }

    /// Aborts the client's transaction, in which a command has been sent. Closes the connection if the server does not
    /// do it: the client must not be able to commit.
    async fn abort_client_transaction(&self, port: &Port) -> Flow {
        let abort = || own::abort_transaction(&self.command, CommandSession::Client { begun: true });
        let frame = port.repeat_after_overload(port.exchange(abort()).await, self.time_limit(), abort).await;
        let reply = parse_reply(&frame, "an abortTransaction")?;
        match reply.is_ok() || transaction::is_over(&reply) {
            true => Flow::Continue(()),
            false => close(&format!(
                "the server did not abort the transaction of a rejected statement: {}",
                reply.error_text()
            )),
        }
    }

    async fn send_groups(&mut self, port: &Port) -> Flow<Step> {
        while let Some(mut group) = self.next_group() {
            // Rare steps are boxed, so that the future of the common ones is small.
            if group.stage == UpsertStage::CheckMatch {
                Box::pin(self.check_matches(group, port)).await?;
                continue;
            }
            if group.missing_maximum(&self.evaluated).is_some()
                && !(Box::pin(self.find_maxima(&mut group, port)).await? && self.check_numbers(&mut group, port))
            {
                continue;
            }
            if let [index] = *group.statements.as_slice()
                && self.is(index, Evaluated::has_unknown_cause)
                && !Box::pin(self.find_cause(&group, index, port)).await?
            {
                continue;
            }
            let reply = match group.statements.as_slice() {
                [index] if self.is(*index, |one| one.committed) => match Box::pin(self.confirm(*index, port)).await? {
                    Some(reply) => reply,
                    None => continue,
                },
                [index] if self.is(*index, Evaluated::needs_transaction) => {
                    let transacted = match self.is(*index, Evaluated::is_checked_in_pieces) {
                        true => Box::pin(self.transact_pieces(*index, &group, port)).await?,
                        false => Box::pin(self.transact(*index, &group, None, port)).await?,
                    };
                    match transacted {
                        Some(reply) => reply,
                        None => continue,
                    }
                }
                _ => self.send_command(&group, port).await,
            };
            let reply = match self.batch.form {
                WriteForm::BulkWrite => Box::pin(self.with_all_results(reply, port)).await?,
                _ => reply,
            };
            if let Some((group, index, reply)) = self.take_reply(group, reply)? {
                Box::pin(self.check_after(group, index, reply, port)).await?;
            }
        }
        port.outcomes(|outcomes| self.explain_errors(outcomes));
        // A rejection inside a transaction aborts it on the server, as a write error does.
        if self.rejected_in_transaction() {
            Box::pin(self.abort_client_transaction(port)).await?;
        }
        Flow::Continue(self.finish())
    }

    /// Whether an earlier command has started the client's transaction.
    fn has_begun_transaction(&self) -> bool {
        self.transaction_begun && self.in_transaction()
    }

    fn in_transaction(&self) -> bool {
        self.command.session().in_transaction
    }

    fn stops_on_error(&self) -> bool {
        self.batch.ordered || self.in_transaction()
    }

    /// Index of the first statement that is not carried out.
    fn limit(&self) -> usize {
        let first_rejected = self.evaluated.iter().position(|evaluated| evaluated.rejected.is_some());
        match first_rejected {
            Some(index) if self.stops_on_error() => index,
            _ => self.evaluated.len(),
        }
    }

    /// The statements to send, with their indexes.
    fn sendable(&self) -> impl Iterator<Item = (usize, &Evaluated<'f, 'f>)> {
        let all = self.evaluated.iter().enumerate().take(self.limit());
        all.filter(|(_, evaluated)| evaluated.rejected.is_none())
    }

    /// Whether this holds for a statement.
    fn is(&self, index: usize, holds: impl FnOnce(&Evaluated<'f, 'f>) -> bool) -> bool {
        self.evaluated.get(index).is_some_and(holds)
    }

    /// Divides the statements into groups. Ends with the client's message, or one message instead of it, if no rule needs
    /// the reply; or with the reply if there is nothing to send.
    fn plan_groups(&mut self, outcomes: &mut RuleOutcomes) -> Flow {
        self.reject_oversized(outcomes);
        let plain = self.evaluated.iter().all(|evaluated| evaluated.is_plain(self.batch.form));
        if plain && !self.may_be_too_long() {
            return Flow::Break(self.forward());
        }
        let groups = self.split_long(self.divide(), false);
        if plain && groups.len() <= 1 {
            return Flow::Break(self.forward());
        }
        self.groups = self.split_long(groups, true);
        if self.groups.is_empty() && !self.rejected_in_transaction() {
            return Flow::Break(self.finish());
        }
        Flow::Continue(())
    }

    /// Returns the next statements to send.
    fn next_group(&mut self) -> Option<Group> {
        if self.stopped || self.groups.is_empty() {
            return None;
        }
        self.stop_if_full();
        self.join_groups();
        self.groups.pop_front()
    }

    fn forward(&self) -> Step {
        let expects_reply = !self.command.message.more_to_come();
        let changed = self.evaluated.iter().any(|evaluated| evaluated.statement.is_rewritten())
            || !self.batch.body_changes.is_empty();
        if !changed {
            return Step::ForwardOriginal { expects_reply };
        }
        let message = self.batch.encode(&self.command, self.evaluated.iter().map(|evaluated| &evaluated.statement));
        Step::Forward { message, expects_reply }
    }

    /// Sends the statements of a group as one command.
    async fn send_command(&mut self, group: &Group, port: &Port) -> Vec<u8> {
        // It can match a document only if it was sent before and inserted it.
        let asks_for_record = group.stage == UpsertStage::Update
            && group.statements.first().is_some_and(|index| self.is(*index, |one| one.prerequisites.is_only_new()));
        let purpose = if asks_for_record { CommandPurpose::Record } else { CommandPurpose::Command };
        let message = self.encode_group(group);
        self.transaction_begun = true;
        self.exchange_part(purpose, message, || self.encode_group(group), port).await
    }

    fn encode_group(&self, group: &Group) -> Vec<u8> {
        let mut numbers = group.next_numbers.clone();
        let mut statements = Vec::with_capacity(group.statements.len());
        for index in group.statements.iter().copied() {
            statements.extend(self.as_sent(index, group, &mut numbers).map(|statement| (index, statement)));
        }
        let parts: Vec<StatementPart<'_, 'f>> =
            statements.iter().map(|(index, statement)| StatementPart { index: *index, statement }).collect();
        let ordered = self.ends_at_error(group);
        let options = EncodeOptions { transaction_begun: self.has_begun_transaction(), ordered, own: None };
        self.batch.encode_part(&self.command, &parts, options)
    }

    /// Returns a statement in the form in which a group sends it. Takes its numbers from `numbers`.
    fn as_sent(&self, index: usize, group: &Group, numbers: &mut [(RuleId, i64)]) -> Option<Cow<'_, Statement<'f>>> {
        let evaluated = self.evaluated.get(index)?;
        let statement = match group.stage {
            UpsertStage::Insert => evaluated.inserting(),
            _ => Cow::Borrowed(&evaluated.statement),
        };
        // Each attempt assigns its numbers to the original statements.
        let mut statement = with_numbers(statement, self.numbers.take_optimistic(evaluated, group.stage, numbers));
        match group.stage {
            UpsertStage::Update => statement = Cow::Owned(statement.without_upsert()),
            UpsertStage::Insert => statement = Cow::Owned(statement.insert_only()),
            UpsertStage::Whole | UpsertStage::CheckMatch => {}
        }
        if let Some(stored) = evaluated.kind_of(group, self.in_transaction()) {
            statement = Cow::Owned(evaluated.for_kind(&statement, stored));
        }
        Some(statement)
    }

    /// Takes the reply to a group. Returns the group, a statement and the reply if it must be checked what the filter of
    /// this statement matches.
    fn take_reply(&mut self, group: Group, frame: Vec<u8>) -> Flow<Option<UnmatchedStatement>> {
        let reply = parse_reply(&frame, "a write")?;
        let is_alone = self.batch.form == WriteForm::FindAndModify;
        if !reply.is_ok() && !is_alone {
            self.take_command_error(&group, &reply)?;
            return Flow::Continue(None);
        }
        let errors = merge::errors_of_sent(&reply, self.batch.form, group.statements.len())?;
        match (meaning::GroupReply { job: self, group: &group, reply: &reply, errors: &errors }).meaning() {
            ReplyMeaning::IncrementFailed(failed) => self.repeat_without_increment(group, *failed, &reply),
            ReplyMeaning::Undecided => self.decide_each(group, &reply, &errors),
            ReplyMeaning::DuplicateNumber(position, taken) => {
                // The statements before it are done; the rest queries the maximum again.
                let (done, rest) = group.statements.split_at(position);
                self.add_done(&reply, done);
                let (rest, attempts) = (rest.to_vec(), group.attempts + u32::from(position == 0));
                self.repeat(&rest, Group { attempts, taken: Some(taken), ..group });
            }
            ReplyMeaning::HasInserted => self.continue_with(Group { stage: UpsertStage::Insert, ..group }),
            ReplyMeaning::Explained(error) => self.merged.add_error(error),
            ReplyMeaning::NextKind { next, matched } => {
                if matched {
                    self.merged.add(&reply, self.batch.form, &group.statements);
                }
                self.continue_with(Group { kind: Some(next), matched, ..group });
            }
            ReplyMeaning::Unmatched(index, stage) => {
                drop((reply, errors));
                return Flow::Continue(Some((Group { stage, kind: None, ..group }, index, frame)));
            }
            ReplyMeaning::Done if is_alone && !reply.is_ok() => return Flow::Break(self.pass_on_error(&reply, false)),
            ReplyMeaning::Done if is_alone => {
                self.without_effect.note(&reply, &self.batch, &self.evaluated, &group.statements);
                drop((reply, errors));
                return Flow::Break(self.pass_on(frame));
            }
            ReplyMeaning::Done => self.count(&reply, group, &errors),
        }
        Flow::Continue(None)
    }

    /// Returns the reply to a bulkWrite with all results, which the server may return in several batches.
    async fn with_all_results(&mut self, mut frame: Vec<u8>, port: &Port) -> Flow<Vec<u8>> {
        loop {
            let cursor = Reply::parse(&frame).ok().filter(Reply::is_ok).and_then(|reply| merge::open_cursor(&reply));
            let Some(cursor) = cursor else { return Flow::Continue(frame) };
            let get_more = || own::more_bulk_results(&self.command, cursor);
            let more = port.repeat_after_overload(port.exchange(get_more()).await, self.time_limit(), get_more).await;
            frame = match merge::join_cursor(&frame, &more) {
                Some(joined) => joined,
                None => {
                    return Flow::Break(
                        self.unavailable("the rest of the bulkWrite's results could not be read", true),
                    );
                }
            };
        }
    }

    /// Adds the reply to a group whose statements are done.
    fn count(&mut self, reply: &Reply<'_>, group: Group, errors: &[(usize, Document<'_>)]) {
        let last =
            errors.first().map(|(position, _)| position.saturating_add(1)).filter(|_| self.ends_at_error(&group));
        let (done, rest) = group.statements.split_at(last.unwrap_or(usize::MAX).min(group.statements.len()));
        self.merged.add(reply, self.batch.form, done);
        if !group.matched {
            self.without_effect.note(reply, &self.batch, &self.evaluated, done);
        }
        if !errors.is_empty() && self.stops_on_error() {
            self.stopped = true;
        } else {
            // An unordered batch continues after the failed statement.
            let rest = rest.to_vec();
            self.repeat(&rest, Group { attempts: 0, taken: None, ..group });
        }
    }

    /// Adds the part of a reply for the statements before one that is repeated.
    fn add_done(&mut self, reply: &Reply<'_>, done: &[usize]) {
        self.merged.add(reply, self.batch.form, done);
        self.without_effect.note(reply, &self.batch, &self.evaluated, done);
    }

    /// Whether the server must not execute the statements of a group after one that fails: it may have to be repeated
    /// before them, or they get its number.
    fn ends_at_error(&self, group: &Group) -> bool {
        let may_repeat = |index: &usize| self.is(*index, |one| one.prerequisites.increment().is_some());
        !group.next_numbers.is_empty() || group.statements.iter().any(may_repeat)
    }

    /// Sends these statements of a group again, with new numbers. The groups become larger, so that a long batch is not
    /// sent once for each statement that fails.
    fn repeat(&mut self, statements: &[usize], group: Group) {
        /// Statements in the first group.
        const FIRST: usize = 128;
        let (first, mut rest) = statements.split_at(FIRST.min(statements.len()));
        if first.is_empty() {
            return;
        }
        let stage = group.stage;
        let mut groups = vec![Group { statements: first.to_vec(), next_numbers: Vec::new(), ..group }];
        let mut size = FIRST;
        while !rest.is_empty() {
            size *= 2;
            let (next, later) = rest.split_at(size.min(rest.len()));
            groups.push(Group { stage, ..Group::new(next.to_vec()) });
            rest = later;
        }
        groups.into_iter().rev().for_each(|group| self.continue_with(group));
    }

    /// Passes the server's reply to the client.
    fn pass_on(&self, frame: Vec<u8>) -> Step {
        if self.command.message.more_to_come() { Step::Silent } else { Step::Reply(frame) }
    }

    fn rejected_in_transaction(&self) -> bool {
        let session = self.command.session();
        let is_active = session.in_transaction && (self.transaction_begun || !session.starts_transaction);
        is_active && self.evaluated.iter().any(|evaluated| evaluated.rejected.is_some())
    }

    fn finish(&mut self) -> Step {
        if self.command.message.more_to_come() {
            return Step::Silent;
        }
        let limit = self.limit();
        let rejected = self.evaluated.iter().enumerate().filter_map(|(index, evaluated)| {
            let rejected = evaluated.rejected.as_ref()?;
            // In an ordered batch only the first error is reported.
            (index <= limit).then_some((index, &evaluated.statement, rejected))
        });
        for (index, statement, rejected) in rejected {
            if self.stops_on_error() && self.merged.first_error().is_some_and(|first| first < index) {
                continue;
            }
            self.merged.reject(index, statement, rejected, self.batch.namespace(statement));
        }
        // Before the reply is built: both can be large.
        (self.evaluated, self.groups) = (Vec::new(), VecDeque::new());
        Step::Reply(self.merged.reply(&self.command, self.batch.form))
    }
}
