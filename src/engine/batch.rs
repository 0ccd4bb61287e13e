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
mod counting;
mod division;
mod earlier_sends;
mod ending;
mod failures;
mod group;
mod limits;
mod match_checks;
mod numbers;
mod ownership;
mod promises;
mod results;
mod selected;
mod sending;
mod transaction;

use std::borrow::Cow;
use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use smallvec::SmallVec;

use super::Now;
use super::evaluation::Evaluated;
use super::merge::{self, MergedResults};
use super::outcome::RuleOutcomes;
use super::port::{CommandPurpose, Flow, Port, close};
use super::prerequisites::NumberRule;
use super::server_errors;
use super::step::Step;
use crate::command::own::{self, CommandSession};
use crate::command::{Command, EncodeOptions, Reply, Statement, StatementPart, WriteBatch, WriteForm};
use crate::document::Document;
use crate::rules::{Doubt, RuleId};

use group::{Group, KindEnd, ReplyMeaning, UpsertStage};
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
    /// The numbers that counters must still be asked for, the last first.
    demands: Vec<NumberDemand<'f>>,
    /// Numbers that clients provide.
    provided: Vec<ProvidedNumbersOfRule>,
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
    /// The statements without effect, as far as the replies show them.
    without_effect: Vec<results::WithoutEffect<'f>>,
}

/// A group, a statement of it that matched nothing or failed to insert, and the reply to it.
type UnmatchedStatement = (Group, usize, Vec<u8>);

/// The numbers that statements on one namespace need from one rule's counter.
#[derive(Debug)]
struct NumberDemand<'f> {
    rule: NumberRule<'f>,
    /// Index into the batch's namespaces.
    namespace: usize,
    /// The statements that need a number.
    statements: SmallVec<[usize; 1]>,
    /// Numbers that clients provide in other statements.
    provided: Vec<i64>,
}

/// The numbers that clients provide, on one namespace, in the field of an optimistic sequence.
#[derive(Debug)]
struct ProvidedNumbersOfRule {
    rule: RuleId,
    /// Index into the batch's namespaces.
    namespace: usize,
    numbers: HashSet<i64>,
}

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
            demands: Vec::new(),
            provided: Vec::new(),
            groups: VecDeque::new(),
            merged: MergedResults::default(),
            transaction_begun: false,
            must_abort: false,
            gave_up: false,
            stopped: false,
            time_limit: None,
            check_limit: match_checks::CheckLimit::default(),
            without_effect: Vec::new(),
        });
        job.collect_numbers();
        job
    }

    /// Finds out which numbers the statements need.
    fn collect_numbers(&mut self) {
        if self.has_numbers() {
            self.provided = self.collect_provided();
            self.demands = self.collect_demands();
        }
    }

    /// Asks for earlier sends, checks the client's privileges for the numbers that the statements need, then sends them.
    pub(super) async fn check_and_send(mut self: Box<Self>, port: Port) -> Flow<Step> {
        Box::pin(self.recall(&port)).await?;
        self.check_privileges(&port).await?;
        self.number_and_send(port).await
    }

    /// Requests the numbers that the statements need, then sends them.
    pub(super) async fn number_and_send(mut self: Box<Self>, port: Port) -> Flow<Step> {
        self.request_numbers(&port).await?;
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
        port.outcomes(|outcomes| self.note_without_effect(outcomes));
        last
    }

    /// Aborts the client's transaction, in which a command has been sent. Closes the connection if the server does not
    /// do it: the client must not be able to commit.
    async fn abort_client_transaction(&self, port: &Port) -> Flow {
        let abort = || own::abort_transaction(&self.command, CommandSession::Client { begun: true });
        let frame = port.repeat_after_overload(port.exchange(abort()).await, self.time_limit(), abort).await;
        if server_errors::is_overload_frame(&frame) {
            return close("the server is overloaded and did not abort the transaction of a rejected statement");
        }
        Flow::Continue(())
    }

    async fn send_groups(&mut self, port: &Port) -> Flow<Step> {
        while let Some(mut group) = self.next_group() {
            // Rare steps are boxed, so that the future of the common ones is small.
            if group.stage == UpsertStage::CheckMatch {
                Box::pin(self.check_matches(group, port)).await?;
                continue;
            }
            if self.missing_maximum(&group).is_some()
                && !(Box::pin(self.find_maxima(&mut group, port)).await? && self.check_numbers(&mut group, port))
            {
                continue;
            }
            if let [index] = *group.statements.as_slice()
                && self.has_unknown_cause(index)
                && !Box::pin(self.find_cause(&group, index, port)).await?
            {
                continue;
            }
            let reply = match group.statements.as_slice() {
                [index] if self.is_committed(*index) => match Box::pin(self.confirm(*index, port)).await? {
                    Some(reply) => reply,
                    None => continue,
                },
                [index] if self.needs_transaction(*index) => {
                    let transacted = match self.is_checked_in_pieces(*index) {
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
        self.transaction_begun && self.command.session().in_transaction
    }

    fn stops_on_error(&self) -> bool {
        self.batch.ordered || self.command.session().in_transaction
    }

    /// Index of the first statement that is not carried out.
    fn limit(&self) -> usize {
        let first_rejected = self.evaluated.iter().position(|evaluated| evaluated.rejected.is_some());
        match first_rejected {
            Some(index) if self.stops_on_error() => index,
            _ => self.evaluated.len(),
        }
    }

    /// The indexes of the statements to send, ascending.
    fn sendable(&self) -> impl Iterator<Item = usize> {
        let rejected = |index: &usize| self.evaluated.get(*index).is_some_and(|evaluated| evaluated.rejected.is_some());
        (0..self.limit()).filter(move |index| !rejected(index))
    }

    /// Divides the statements into groups. Ends with the client's message, or one message instead of it, if no rule needs
    /// the reply; or with the reply if there is nothing to send.
    fn plan_groups(&mut self, outcomes: &mut RuleOutcomes) -> Flow {
        self.reject_oversized(outcomes);
        let plain = self.is_plain();
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
        let purpose = if self.asks_for_record(group) { CommandPurpose::Record } else { CommandPurpose::Command };
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
        let mut statement = match group.stage {
            UpsertStage::Insert => evaluated.inserting(),
            _ => Cow::Borrowed(&evaluated.statement),
        };
        // Each attempt assigns its numbers to the original statements.
        for (rule, number) in self.optimistic_numbers(group, index, numbers) {
            statement = Cow::Owned(rule.with_number(&statement, number));
        }
        match group.stage {
            UpsertStage::Update => statement = Cow::Owned(statement.without_upsert()),
            UpsertStage::Insert => statement = Cow::Owned(statement.insert_only()),
            UpsertStage::Whole | UpsertStage::CheckMatch => {}
        }
        if let Some(stored) = self.kind_of(group) {
            statement = Cow::Owned(self.counted(index, &statement, stored));
        }
        Some(statement)
    }

    /// Takes the reply to a group. Returns the group, a statement and the reply if it must be checked what the filter of
    /// this statement matches.
    fn take_reply(&mut self, group: Group, frame: Vec<u8>) -> Flow<Option<UnmatchedStatement>> {
        let Ok(reply) = Reply::parse(&frame) else {
            return close("the server's reply to a write cannot be parsed");
        };
        let is_alone = self.batch.form == WriteForm::FindAndModify;
        if !reply.is_ok() && !is_alone {
            self.take_command_error(&group, &reply)?;
            return Flow::Continue(None);
        }
        let errors = merge::errors_of(&reply, self.batch.form);
        match self.meaning_of(&group, &reply, &errors) {
            ReplyMeaning::IncrementFailed(failed) => self.repeat_uncounted(group, *failed, &reply),
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
                self.continue_with(Group { counting: Some(next), matched, ..group });
            }
            ReplyMeaning::Unmatched(index, stage) => {
                drop((reply, errors));
                return Flow::Continue(Some((Group { stage, counting: None, ..group }, index, frame)));
            }
            ReplyMeaning::Done if is_alone => {
                self.note_results(&reply, &group.statements);
                drop((reply, errors));
                return Flow::Break(self.pass_on_result(&frame));
            }
            ReplyMeaning::Done => self.count(&reply, group, &errors),
        }
        Flow::Continue(None)
    }

    /// Returns what the reply to a group means; an earlier case excludes the later ones.
    fn meaning_of<'r>(
        &self,
        group: &Group,
        reply: &Reply<'r>,
        errors: &[(usize, Document<'r>)],
    ) -> ReplyMeaning<'r, 'f> {
        if let Some(failed) = self.failed_increment(group, errors) {
            return ReplyMeaning::IncrementFailed(Box::new(failed));
        }
        if group.stage == UpsertStage::Update && group.statements.len() > 1 {
            return ReplyMeaning::Undecided;
        }
        if let Some((position, taken)) = self.retry_of(group, errors) {
            return ReplyMeaning::DuplicateNumber(position, taken);
        }
        let error = errors.first().map(|(_, error)| *error);
        if let Some(error) = error.filter(|_| self.batch.form == WriteForm::FindAndModify) {
            if group.stage == UpsertStage::Update && conflicts::has_inserted(error) {
                return ReplyMeaning::HasInserted;
            }
            if self.is_explained(0, error) {
                return ReplyMeaning::Explained(error);
            }
        }
        let stage = match self.kind_of(group) {
            None => group.stage,
            Some(stored) => match self.after_kind(group, stored, reply, error) {
                KindEnd::Next { next, matched } => return ReplyMeaning::NextKind { next, matched },
                KindEnd::Done => return ReplyMeaning::Done,
                KindEnd::Unmatched(stage) => stage,
            },
        };
        match self.needs_match_check(group, stage, reply, error) {
            Some(index) => ReplyMeaning::Unmatched(index, stage),
            None => ReplyMeaning::Done,
        }
    }

    /// Returns the reply to a bulkWrite with all results, which the server may return in several batches.
    async fn with_all_results(&self, mut frame: Vec<u8>, port: &Port) -> Flow<Vec<u8>> {
        loop {
            let cursor = Reply::parse(&frame).ok().filter(Reply::is_ok).and_then(|reply| merge::open_cursor(&reply));
            let Some(cursor) = cursor else { return Flow::Continue(frame) };
            let get_more = || own::more_bulk_results(&self.command, cursor);
            let more = port.repeat_after_overload(port.exchange(get_more()).await, self.time_limit(), get_more).await;
            frame = match merge::join_cursor(&frame, &more) {
                Some(joined) => joined,
                None => return close("the server's reply to the getMore for a bulkWrite's results cannot be parsed"),
            };
        }
    }

    /// Adds the reply to a group whose statements are done.
    fn count(&mut self, reply: &Reply<'_>, group: Group, errors: &[(usize, Document<'_>)]) {
        let last = errors.first().map(|(position, _)| position + 1).filter(|_| self.ends_at_error(&group));
        let (done, rest) = group.statements.split_at(last.unwrap_or(usize::MAX).min(group.statements.len()));
        self.merged.add(reply, self.batch.form, done);
        if !group.matched {
            self.note_results(reply, done);
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
        self.note_results(reply, done);
    }

    /// Whether the server must not execute the statements of a group after one that fails: it may have to be repeated
    /// before them, or they get its number.
    fn ends_at_error(&self, group: &Group) -> bool {
        let may_repeat =
            |index: &usize| self.evaluated.get(*index).is_some_and(|one| one.prerequisites.increment().is_some());
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
        if self.without_effect.is_empty() {
            (self.evaluated, self.groups) = (Vec::new(), VecDeque::new());
        }
        Step::Reply(self.merged.reply(&self.command, self.batch.form))
    }
}
