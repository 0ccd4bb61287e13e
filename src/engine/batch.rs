//! Carries out the evaluated statements of one write command.
//!
//! A batch is sent as one command and its reply streamed if no rule needs the reply. Otherwise it is split into runs.
//! A statement whose match count matters is a run of its own. In an ordered batch, statements after a rejected one
//! are not sent. The replies are merged into one. Statements keep their numbers (`stmtIds`), so the server recognises
//! a retry however the batch is split.

mod commands;
mod conflicts;
mod counting;
mod limits;
mod match_checks;
mod ownership;
mod run;
mod sequences;
mod transaction;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::Duration;

use smallvec::SmallVec;

use super::OwnSession;
use super::allocation;
use super::evaluation::Evaluated;
use super::lookup::Lookup;
use super::merge::{self, Tally};
use super::outcome::RuleOutcomes;
use super::plan::{Input, Step};
use crate::command::{Command, EncodeOptions, Form, Reply, Statement, StatementPart, WriteBatch};
use crate::document::{Document, Writer};
use crate::patterns::Rule;
use crate::wire::op_msg;

pub(super) use commands::is_state_change_error;
use counting::Counted;
use run::{Run, Stage};
use transaction::{LastSent, Transaction};

/// Continue with the batch, or break with a step.
type Flow = ControlFlow<Step>;

/// The state of one write command.
#[derive(Debug)]
pub(super) struct BatchJob<'f> {
    command: Command<'f>,
    batch: WriteBatch<'f>,
    evaluated: Vec<Evaluated<'f, 'f>>,
    /// Leases that are still to be requested.
    leases: VecDeque<CounterDemand<'f>>,
    /// `None` until all leases are granted.
    runs: Option<VecDeque<Run>>,
    awaiting: Awaiting,
    tally: Tally,
    /// A command has been sent inside the client's transaction.
    transaction_begun: bool,
    stopped: bool,
    /// The transaction of the statement that is being carried out. Few jobs have one, so it is boxed.
    transaction: Option<Box<Transaction<'f>>>,
    /// For transactions whose session is not derived from the client's.
    own_session: OwnSession,
    /// The command's maxTimeMS, set once a transaction had to be repeated.
    time_limit: Option<Duration>,
    check_limit: match_checks::CheckLimit,
}

/// The numbers that statements on one namespace need from one rule's counter.
#[derive(Debug)]
struct CounterDemand<'f> {
    rule: &'f Rule,
    /// Index into the batch's namespaces.
    namespace: usize,
    /// The statements that need a number.
    statements: SmallVec<[usize; 1]>,
    /// Numbers that other statements already contain.
    brought: Vec<i64>,
}

#[derive(Debug)]
enum Awaiting {
    Nothing,
    Lease,
    Maximum,
    Run,
    /// A check of what the client's filter matches, after the statement with the rules' conditions matched nothing;
    /// with the reply to the statement.
    MatchCheck(Run, Vec<u8>),
    /// The same check for many statements, before they are sent.
    MatchChecks(Run),
    /// The next results of a bulkWrite, after the first reply.
    Cursor(Vec<u8>),
    Abort,
    Transaction(LastSent),
}

impl<'f> BatchJob<'f> {
    /// Boxed at once because it is large.
    pub(super) fn new(
        command: Command<'f>,
        batch: WriteBatch<'f>,
        evaluated: Vec<Evaluated<'f, 'f>>,
        own_session: OwnSession,
    ) -> Box<Self> {
        let mut job = Box::new(Self {
            command,
            batch,
            evaluated,
            leases: VecDeque::new(),
            runs: None,
            awaiting: Awaiting::Nothing,
            tally: Tally::default(),
            transaction_begun: false,
            stopped: false,
            transaction: None,
            own_session,
            time_limit: None,
            check_limit: match_checks::CheckLimit::default(),
        });
        job.leases = job.collect_leases();
        job
    }

    pub(super) fn next(&mut self, input: Input<'_>, outcomes: &mut RuleOutcomes) -> Step {
        let flow = match (std::mem::replace(&mut self.awaiting, Awaiting::Nothing), input) {
            (Awaiting::Nothing, _) => Flow::Continue(()),
            (Awaiting::Lease, Input::Found(found)) => self.take_lease(found, outcomes),
            (Awaiting::Maximum, Input::Found(found)) => self.take_maximum(found, outcomes),
            (Awaiting::Maximum, Input::Reply(reply)) => self.take_maximum_reply(reply, outcomes),
            (Awaiting::Run, Input::Reply(reply)) => self.take_reply(reply),
            (Awaiting::Cursor(first), Input::Reply(reply)) => match merge::join_cursor(&first, reply) {
                Some(joined) => self.take_reply(&joined),
                None => close("the server's reply to the getMore for a bulkWrite's results cannot be parsed"),
            },
            (Awaiting::MatchCheck(run, unmatched), Input::Reply(reply)) => {
                self.take_match_check(run, &unmatched, reply, outcomes)
            }
            (Awaiting::MatchChecks(run), Input::Reply(reply)) => self.take_match_checks(run, reply, outcomes),
            (Awaiting::Abort, Input::Reply(_)) => Flow::Break(self.finish()),
            (Awaiting::Transaction(LastSent::Pause), Input::Paused { elapsed }) => self.resume(elapsed),
            (Awaiting::Transaction(last_sent), Input::Reply(reply)) => {
                self.take_transaction(last_sent, reply, outcomes)
            }
            (_, _) => close("internal error: unexpected input for a write command"),
        };
        match flow {
            Flow::Continue(()) => self.advance(outcomes),
            Flow::Break(step) => step,
        }
    }

    pub(super) fn command(&self) -> &Command<'f> {
        &self.command
    }

    pub(super) fn own_session(&self) -> OwnSession {
        self.own_session
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

    fn advance(&mut self, outcomes: &mut RuleOutcomes) -> Step {
        if let Some(demand) = self.leases.front_mut() {
            let brought = std::mem::take(&mut demand.brought);
            let namespace = self.batch.namespaces.get(demand.namespace);
            let count = demand.statements.len();
            let lease = namespace.and_then(|namespace| allocation::lease(demand.rule, *namespace, count, brought));
            if let Some(lease) = lease {
                self.awaiting = Awaiting::Lease;
                return Step::Lookup(Lookup::Lease(lease));
            }
            self.leases.pop_front();
            return self.advance(outcomes);
        }
        if self.runs.is_none() {
            self.reject_oversized(outcomes);
            let plain = self.is_plain();
            if plain && !self.may_be_too_long() {
                return self.forward();
            }
            let runs = self.cut(self.plan_runs(), false);
            if plain && runs.len() <= 1 {
                return self.forward();
            }
            self.runs = Some(self.cut(runs, true));
        }
        if self.runs.as_ref().is_some_and(|runs| !runs.is_empty()) {
            self.stop_if_full();
        }
        if self.stopped || self.runs.as_ref().is_none_or(VecDeque::is_empty) {
            self.explain_errors(outcomes);
            return self.conclude();
        }
        if let Some(rule) = self.missing_maximum() {
            return self.ask_maximum(rule);
        }
        self.send_run(outcomes)
    }

    fn plan_runs(&self) -> VecDeque<Run> {
        let mut runs: VecDeque<Run> = VecDeque::new();
        let mut together: Vec<usize> = Vec::new();
        for index in self.sendable() {
            if !self.goes_alone(index) {
                together.push(index);
                continue;
            }
            // In an unordered batch, too, a node's parent may come before it. Statements before an insert must not
            // see what it inserts.
            let inserts = self.evaluated.get(index).is_some_and(|evaluated| evaluated.statement.is_upsert());
            if (self.stops_on_error() || self.has_procedure(index) || inserts) && !together.is_empty() {
                runs.push_back(Run::of(std::mem::take(&mut together)));
            }
            runs.push_back(self.run_alone(index));
        }
        if !together.is_empty() {
            runs.push_back(Run::of(together));
        }
        runs
    }

    fn run_alone(&self, index: usize) -> Run {
        let stage = match self.is_conditional_upsert(index) {
            // A driver sends a write again if its reply was lost, so the server may have a record of it.
            true if !self.is_only_new(index) || self.command.session().is_retryable_write() => Stage::Update,
            _ if self.is_only_new(index) => Stage::CheckMatch,
            _ => Stage::Whole,
        };
        Run { stage, ..Run::of(vec![index]) }
    }

    /// Its match count matters, or it may have to be repeated and the command cannot be split elsewhere.
    fn goes_alone(&self, index: usize) -> bool {
        self.checks_match(index)
            || self.is_conditional_upsert(index)
            || self.has_procedure(index)
            || self.counts_by_kind(index)
            || (self.batch.form != Form::Insert && self.optimistic_rules(index).next().is_some())
    }

    /// No rule needs the reply, so the batch can be sent as one command if it fits.
    fn is_plain(&self) -> bool {
        let plain = |evaluated: &Evaluated<'_, '_>| {
            evaluated.rejected.is_none()
                && evaluated.procedures.is_empty()
                && evaluated.explained_by.is_none()
                && evaluated.counted_by.is_none()
        };
        let alone = |index| {
            self.checks_match(index)
                || self.is_conditional_upsert(index)
                || self.optimistic_rules(index).next().is_some()
        };
        self.evaluated.iter().all(plain) && !(0..self.evaluated.len()).any(alone)
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

    fn send_run(&mut self, outcomes: &mut RuleOutcomes) -> Step {
        self.join_runs();
        let Some(run) = self.runs.as_ref().and_then(VecDeque::front) else { return self.conclude() };
        let mut numbers = run.next_numbers.clone();
        let mut optimistic = false;
        let stage = run.stage;
        if stage == Stage::CheckMatch {
            return if run.statements.len() > 1 { self.check_matches() } else { self.check_match_first() };
        }
        // Each attempt assigns its numbers to the original statements.
        let stored = self.kind_of(run);
        let mut numbered = Vec::with_capacity(run.statements.len());
        for index in run.statements.iter().copied() {
            let Some(evaluated) = self.evaluated.get(index) else { continue };
            let mut statement = Cow::Borrowed(&evaluated.statement);
            for rule in self.optimistic_rules(index) {
                optimistic = true;
                if let Some((_, next)) = numbers.iter_mut().find(|(known, _)| *known == rule.id) {
                    statement = Cow::Owned(sequences::with_number(&statement, rule, *next));
                    // After the largest number there is one more attempt, which reports that no number is left.
                    *next = next.saturating_add(1);
                }
            }
            match stage {
                Stage::Update => statement = Cow::Owned(statement.without_upsert()),
                Stage::Insert => statement = Cow::Owned(statement.insert_only()),
                Stage::Whole | Stage::CheckMatch => {}
            }
            if let Some(stored) = stored {
                statement = Cow::Owned(self.counted(index, &statement, stored));
            }
            numbered.push((index, statement));
        }
        if let [(index, statement)] = numbered.as_slice()
            && self.has_procedure(*index)
        {
            let (index, statement) = (*index, Statement::clone(statement));
            return self.begin(index, statement, outcomes);
        }
        let options = EncodeOptions { transaction_begun: self.transaction_begun, ordered: optimistic, own: None };
        let parts: Vec<StatementPart<'_, 'f>> =
            numbered.iter().map(|(index, statement)| StatementPart { index: *index, statement }).collect();
        let message = self.batch.encode_part(&self.command, &parts, options);
        self.awaiting = Awaiting::Run;
        self.transaction_begun = true;
        Step::Exchange(message)
    }

    /// Takes the reply to the first run.
    fn take_reply(&mut self, frame: &[u8]) -> Flow {
        let Ok(reply) = Reply::parse(frame) else {
            return close("the server's reply to a write cannot be parsed");
        };
        let Some(run) = self.runs.as_mut().and_then(VecDeque::pop_front) else { return Flow::Continue(()) };
        if self.batch.form == Form::FindAndModify {
            return self.take_find_and_modify(&reply, frame, run);
        }
        if !reply.is_ok() {
            return self.take_command_error(&run, &reply, frame);
        }
        if let Some(cursor) = merge::open_cursor(&reply) {
            if let Some(runs) = &mut self.runs {
                runs.push_front(run);
            }
            self.awaiting = Awaiting::Cursor(frame.to_vec());
            return Flow::Break(Step::Exchange(merge::get_more(&self.command, cursor)));
        }
        let errors = merge::errors_of(&reply, self.batch.form);
        let Some(run) = self.fall_back(run, &reply, &errors) else { return Flow::Continue(()) };
        let Some(run) = self.take_records(run, &reply, &errors) else { return Flow::Continue(()) };
        if let Some((retry, taken)) = self.retry_of(&run, &errors) {
            // The statements before the duplicate number are done; the rest queries the maximum again.
            let (done, rest) = run.statements.split_at(retry);
            self.tally.add(&reply, self.batch.form, done);
            self.repeat(rest.to_vec(), Run { attempts: run.attempts + u32::from(retry == 0), taken, ..run });
            return Flow::Continue(());
        }
        let run = match self.take_counted(run, &reply, errors.is_empty()) {
            Counted::Goes => return Flow::Continue(()),
            Counted::Done(run) => return self.count(&reply, run, &errors),
            Counted::Nothing(run) => run,
        };
        if let Some(step) = self.match_check_after(&run, &reply, errors.first().map(|(_, error)| *error), frame) {
            return Flow::Break(step);
        }
        self.count(&reply, run, &errors)
    }

    /// Adds the reply to a run whose statements are done.
    fn count(&mut self, reply: &Reply<'_>, run: Run, errors: &[(usize, Document<'_>)]) -> Flow {
        self.tally.add(reply, self.batch.form, &run.statements);
        let optimistic = run.statements.iter().any(|index| self.optimistic_rules(*index).next().is_some());
        if !errors.is_empty() && self.stops_on_error() {
            self.stopped = true;
        } else if let (true, Some((failed, _))) = (optimistic, errors.first()) {
            // An unordered batch continues after the failed statement; that statement's number is free again.
            let rest = run.statements.get(failed + 1..).unwrap_or_default().to_vec();
            self.repeat(rest, Run { attempts: 0, taken: None, ..run });
        }
        Flow::Continue(())
    }

    /// Sends these statements of a run again, with new numbers.
    fn repeat(&mut self, statements: Vec<usize>, run: Run) {
        if statements.is_empty() {
            return;
        }
        if let Some(runs) = &mut self.runs {
            runs.push_front(Run { statements, next_numbers: Vec::new(), ..run });
        }
    }

    fn take_find_and_modify(&mut self, reply: &Reply<'_>, frame: &[u8], run: Run) -> Flow {
        let error = (!reply.is_ok()).then_some(reply.body);
        if error.is_some_and(|error| self.uncount(0, error, &run)) {
            self.continue_with(Run { attempts: run.attempts + 1, ..self.run_alone(0) });
            return Flow::Continue(());
        }
        if let Some(error) = error
            && let Some((_, taken)) = self.retry_of(&run, &[(0, error)])
        {
            let statements = run.statements.clone();
            self.repeat(statements, Run { attempts: run.attempts + 1, taken, ..run });
            return Flow::Continue(());
        }
        if error.is_some_and(|error| run.stage == Stage::Update && conflicts::has_inserted(error)) {
            self.continue_with(Run { stage: Stage::Insert, ..run });
            return Flow::Continue(());
        }
        if let Some(error) = error
            && self.is_explained(error)
        {
            self.tally.add_error(error);
            return Flow::Continue(());
        }
        let run = match self.take_counted(run, reply, error.is_none()) {
            Counted::Goes => return Flow::Continue(()),
            Counted::Done(_) => return Flow::Break(self.pass_on(frame)),
            Counted::Nothing(run) => run,
        };
        Flow::Break(match self.match_check_after(&run, reply, error, frame) {
            Some(step) => step,
            None => self.pass_on(frame),
        })
    }

    /// Passes the server's reply to the client.
    pub(super) fn pass_on(&self, frame: &[u8]) -> Step {
        if self.command.message.more_to_come() { Step::Silent } else { Step::Reply(frame.to_vec()) }
    }

    /// Ends the batch. A rejection inside a transaction aborts it on the server, as a write error does.
    fn conclude(&mut self) -> Step {
        let rejected_any = self.evaluated.iter().any(|evaluated| evaluated.rejected.is_some());
        let session = self.command.session();
        let active = session.in_transaction && (self.transaction_begun || !session.starts_transaction);
        if rejected_any && active {
            self.awaiting = Awaiting::Abort;
            return Step::Exchange(abort_transaction(&self.command));
        }
        self.finish()
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
            if self.stops_on_error() && self.tally.first_error().is_some_and(|first| first < index) {
                continue;
            }
            self.tally.reject(index, statement, rejected, self.batch.namespace(statement));
        }
        Step::Reply(self.tally.reply(&self.command, self.batch.form))
    }
}

fn close(reason: &str) -> Flow {
    Flow::Break(Step::Close(reason.to_owned()))
}

fn abort_transaction(command: &Command<'_>) -> Vec<u8> {
    let session = command.session();
    let mut writer = op_msg::Writer::new(command.message.header.request_id, 0, 0, 128);
    writer.body(|out| {
        Writer::document(out, |w| {
            w.int32("abortTransaction", 1);
            for (key, value) in [("lsid", session.lsid), ("txnNumber", session.txn_number)] {
                if let Some(value) = value {
                    w.value(key, value);
                }
            }
            w.boolean("autocommit", false);
            command.api_parameters().for_each(|element| w.element(element));
            w.string("$db", "admin");
        });
    });
    writer.finish()
}
