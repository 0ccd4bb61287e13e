//! Carrying out the judged statements of one write command.
//!
//! A batch goes upstream as one command when nothing stands against it, and its reply then streams through.
//! Otherwise it is cut into runs: a statement whose match count matters goes alone, statements after a
//! refused one in an ordered batch do not go at all, and one reply is put together from what came back.
//! Statements keep their numbers (`stmtIds`), so that a retry is recognised however it is cut.

use std::collections::VecDeque;

use super::judge::{Judged, Refused};
use super::lookup::{Found, Lookup, LookupError, Maximum};
use super::merge::{self, Tally};
use super::observation::{Observations, Said};
use super::plan::{Input, Step};
use super::{allocation, refusal};
use crate::command::{Batch, Command, Form, Operation, Part, PartOptions, Reply};
use crate::document::{Document, Writer};
use crate::patterns::sequence::Strategy;
use crate::patterns::{Conflict, Pattern, Rejection, Rule};
use crate::wire::op_msg;

/// How often an optimistic sequence tries again for one statement before it gives up.
const MAX_ATTEMPTS: u32 = 1000;

/// The work on one write command.
#[derive(Debug)]
pub(super) struct BatchJob<'f> {
    command: Command<'f>,
    batch: Batch<'f>,
    judged: Vec<Judged<'f, 'f>>,
    /// Leases still to be asked for: the rule, and the statements that want its numbers.
    leases: VecDeque<(&'f Rule, Vec<usize>)>,
    /// `None` until all leases are in.
    runs: Option<VecDeque<Run>>,
    awaiting: Awaiting,
    tally: Tally,
    /// Something has gone upstream inside the client's transaction.
    transaction_begun: bool,
    /// docward itself has made an error of a statement.
    refused_any: bool,
    stopped: bool,
}

/// Statements that go upstream as one command.
#[derive(Debug)]
struct Run {
    statements: Vec<usize>,
    /// The next numbers of optimistic sequences, as far as they are known.
    next_numbers: Vec<(crate::rules::RuleId, i64)>,
    attempts: u32,
}

#[derive(Debug)]
enum Awaiting {
    Nothing,
    Lease,
    Maximum,
    Run,
    /// The rest of a bulkWrite's results, whose first part this is.
    Cursor(Vec<u8>),
    Abort,
}

impl<'f> BatchJob<'f> {
    pub(super) fn new(command: Command<'f>, batch: Batch<'f>, judged: Vec<Judged<'f, 'f>>) -> Self {
        let mut job = Self {
            command,
            batch,
            judged,
            leases: VecDeque::new(),
            runs: None,
            awaiting: Awaiting::Nothing,
            tally: Tally::default(),
            transaction_begun: false,
            refused_any: false,
            stopped: false,
        };
        job.leases = job.collect_leases();
        job
    }

    pub(super) fn next(&mut self, input: Input<'_>, observations: &mut Observations) -> Step {
        match (std::mem::replace(&mut self.awaiting, Awaiting::Nothing), input) {
            (Awaiting::Nothing, _) => {}
            (Awaiting::Lease, Input::Found(found)) => {
                if let Err(step) = self.take_lease(found) {
                    return step;
                }
            }
            (Awaiting::Maximum, Input::Found(found)) => {
                if let Err(step) = self.take_maximum(found) {
                    return step;
                }
            }
            (Awaiting::Maximum, Input::Reply(reply)) => {
                match allocation::read_maximum(reply, self.optimistic_field()) {
                    Ok(found) => {
                        self.transaction_begun = true;
                        if let Err(step) = self.take_maximum(Ok(found)) {
                            return step;
                        }
                    }
                    // The server's own error: the transaction is over, as it would be for the client's statement.
                    Err(()) => return self.pass_on(reply),
                }
            }
            (Awaiting::Run, Input::Reply(reply)) => match self.take_reply(reply, observations) {
                Ok(()) => {}
                Err(step) => return step,
            },
            (Awaiting::Cursor(first), Input::Reply(reply)) => match merge::join_cursor(&first, reply) {
                Some(joined) => match self.take_reply(&joined, observations) {
                    Ok(()) => {}
                    Err(step) => return step,
                },
                None => return Step::Close("the rest of a bulkWrite's results cannot be read".to_owned()),
            },
            (Awaiting::Abort, Input::Reply(_)) => return self.finish(),
            (_, _) => return Step::Close("docward lost its place in a batch".to_owned()),
        }
        self.advance()
    }

    fn stops_on_error(&self) -> bool {
        self.batch.ordered || self.command.session().in_transaction
    }

    /// Statements from here on do not run.
    fn limit(&self) -> usize {
        let first_refused = self.judged.iter().position(|judged| judged.refused.is_some());
        match first_refused {
            Some(index) if self.stops_on_error() => index,
            _ => self.judged.len(),
        }
    }

    /// The statements that are to be sent, ascending.
    fn sendable(&self) -> impl Iterator<Item = usize> {
        let refused = |index: &usize| self.judged.get(*index).is_some_and(|judged| judged.refused.is_some());
        (0..self.limit()).filter(move |index| !refused(index))
    }

    fn advance(&mut self) -> Step {
        if let Some((rule, statements)) = self.leases.front() {
            let namespace = statements.first().and_then(|index| self.judged.get(*index));
            let namespace = namespace.map(|judged| self.batch.namespace(&judged.statement));
            let lease = namespace.and_then(|namespace| allocation::lease(rule, namespace, statements.len()));
            if let Some(lease) = lease {
                self.awaiting = Awaiting::Lease;
                return Step::Lookup(Lookup::Lease(lease));
            }
            self.leases.pop_front();
            return self.advance();
        }
        if self.runs.is_none() {
            let runs = self.plan_runs();
            if self.is_one_command(&runs) {
                return self.forward();
            }
            self.runs = Some(runs);
        }
        if self.stopped || self.runs.as_ref().is_none_or(VecDeque::is_empty) {
            return self.conclude();
        }
        if let Some(rule) = self.missing_maximum() {
            return self.ask_maximum(rule);
        }
        self.send_run()
    }

    // --- sequences

    /// Which statements want which counter's numbers. Statements that do not run want none.
    fn collect_leases(&self) -> VecDeque<(&'f Rule, Vec<usize>)> {
        let mut leases: VecDeque<(&'f Rule, usize, Vec<usize>)> = VecDeque::new();
        for index in self.sendable() {
            let Some(judged) = self.judged.get(index) else { continue };
            let namespace = judged.statement.namespace;
            for rule in judged.sequences.iter().filter(|rule| strategy(rule) == Some(Strategy::Counter)) {
                match leases.iter_mut().find(|(other, ns, _)| other.id == rule.id && *ns == namespace) {
                    Some((_, _, statements)) => statements.push(index),
                    None => leases.push_back((rule, namespace, vec![index])),
                }
            }
        }
        leases.into_iter().map(|(rule, _, statements)| (rule, statements)).collect()
    }

    fn take_lease(&mut self, found: Result<Found, LookupError>) -> Result<(), Step> {
        let Some((rule, statements)) = self.leases.pop_front() else { return Ok(()) };
        match found {
            Ok(Found::Numbers(numbers)) if numbers.len() == statements.len() => {
                for (index, number) in statements.into_iter().zip(numbers) {
                    self.assign(index, rule, number);
                }
                Ok(())
            }
            Ok(_) => Err(Step::Close("the service answered a lease with something else".to_owned())),
            Err(LookupError::Unavailable(text)) => Err(Step::Close(text)),
            Err(LookupError::Refused(text)) => {
                for index in statements {
                    self.refuse_for_lookup(index, rule, &text);
                }
                Ok(())
            }
        }
    }

    fn assign(&mut self, index: usize, rule: &Rule, number: i64) {
        if let (Some(judged), Pattern::Sequence(sequence)) = (self.judged.get_mut(index), &rule.pattern) {
            judged.statement = judged.statement.with(sequence.assign(&judged.statement.operation, number));
        }
    }

    fn refuse_for_lookup(&mut self, index: usize, rule: &'f Rule, text: &str) {
        if let Some(judged) = self.judged.get_mut(index) {
            let rejection = Rejection::new(format!("no number can be had for it: {text}"), "Tell the DBA.");
            judged.refused = Some(Refused { rule, rejection });
        }
    }

    fn optimistic_rules(&self, index: usize) -> impl Iterator<Item = &'f Rule> + use<'_, 'f> {
        let sequences = self.judged.get(index).map(|judged| judged.sequences.as_slice()).unwrap_or_default();
        sequences.iter().copied().filter(|rule| strategy(rule) == Some(Strategy::Optimistic))
    }

    /// A rule whose next number the first run needs and does not know.
    fn missing_maximum(&self) -> Option<&'f Rule> {
        let run = self.runs.as_ref()?.front()?;
        let rules = run.statements.iter().flat_map(|index| self.optimistic_rules(*index));
        rules.into_iter().find(|rule| !run.next_numbers.iter().any(|(known, _)| *known == rule.id))
    }

    fn optimistic_field(&self) -> &str {
        match self.missing_maximum().map(|rule| &rule.pattern) {
            Some(Pattern::Sequence(sequence)) => sequence.field().as_str(),
            _ => "",
        }
    }

    /// Inside a transaction only the transaction itself sees what it inserted, so the client's own session asks.
    fn ask_maximum(&mut self, rule: &Rule) -> Step {
        let first = self.runs.as_ref().and_then(|runs| runs.front()?.statements.first().copied()).unwrap_or(0);
        let Some(judged) = self.judged.get(first) else { return self.conclude() };
        let namespace = self.batch.namespace(&judged.statement);
        let Pattern::Sequence(sequence) = &rule.pattern else { return self.conclude() };
        let maximum = Maximum {
            database: namespace.database.to_owned(),
            collection: namespace.collection.to_owned(),
            field: sequence.field().as_str().to_owned(),
        };
        self.awaiting = Awaiting::Maximum;
        if self.command.session().in_transaction {
            return Step::Exchange(allocation::find_maximum(&self.command, &maximum, self.transaction_begun));
        }
        Step::Lookup(Lookup::Maximum(maximum))
    }

    fn take_maximum(&mut self, found: Result<Found, LookupError>) -> Result<(), Step> {
        let Some(rule) = self.missing_maximum() else { return Ok(()) };
        let Some(run) = self.runs.as_mut().and_then(VecDeque::front_mut) else { return Ok(()) };
        match found {
            Ok(Found::Maximum(maximum)) => {
                run.next_numbers.push((rule.id, allocation::after(rule, maximum)));
                Ok(())
            }
            Ok(Found::Numbers(_)) => Err(Step::Close("the service answered a maximum with something else".to_owned())),
            Err(LookupError::Unavailable(text)) => Err(Step::Close(text)),
            Err(LookupError::Refused(text)) => {
                let statements = std::mem::take(&mut run.statements);
                if let Some(runs) = &mut self.runs {
                    runs.pop_front();
                }
                for index in statements {
                    self.refuse_for_lookup(index, rule, &text);
                }
                self.stopped |= self.stops_on_error();
                Ok(())
            }
        }
    }

    // --- runs

    fn plan_runs(&self) -> VecDeque<Run> {
        let run = |statements: Vec<usize>| Run { statements, next_numbers: Vec::new(), attempts: 0 };
        let mut runs: VecDeque<Run> = VecDeque::new();
        let mut together: Vec<usize> = Vec::new();
        for index in self.sendable() {
            if !self.goes_alone(index) {
                together.push(index);
                continue;
            }
            if self.stops_on_error() && !together.is_empty() {
                runs.push_back(run(std::mem::take(&mut together)));
            }
            runs.push_back(run(vec![index]));
        }
        if !together.is_empty() {
            runs.push_back(run(together));
        }
        runs
    }

    /// Its match count matters, or it may have to be repeated and its command cannot be cut anywhere else.
    fn goes_alone(&self, index: usize) -> bool {
        let checked = self.judged.get(index).is_some_and(|judged| judged.on_no_match.is_some());
        checked || (self.batch.form != Form::Insert && self.optimistic_rules(index).next().is_some())
    }

    /// Nothing is to be done with the reply, so that the batch can go as the command it came as.
    fn is_one_command(&self, runs: &VecDeque<Run>) -> bool {
        let plain = |judged: &Judged<'_, '_>| judged.refused.is_none() && judged.on_no_match.is_none();
        runs.len() <= 1
            && self.judged.iter().all(plain)
            && (0..self.judged.len()).all(|index| self.optimistic_rules(index).next().is_none())
    }

    fn forward(&self) -> Step {
        let expects_reply = !self.command.message.more_to_come();
        let changed =
            self.judged.iter().any(|judged| judged.statement.is_rewritten()) || self.batch.projection.is_some();
        if !changed {
            return Step::ForwardOriginal { expects_reply };
        }
        let message = self.batch.encode(&self.command, self.judged.iter().map(|judged| &judged.statement));
        Step::Forward { message, expects_reply }
    }

    fn send_run(&mut self) -> Step {
        let Some(run) = self.runs.as_mut().and_then(VecDeque::front_mut) else { return self.conclude() };
        let (statements, mut numbers) = (run.statements.clone(), run.next_numbers.clone());
        let mut optimistic = false;
        for index in &statements {
            let rules: Vec<&'f Rule> = self.optimistic_rules(*index).collect();
            for rule in rules {
                optimistic = true;
                if let Some((_, next)) = numbers.iter_mut().find(|(known, _)| *known == rule.id) {
                    self.assign(*index, rule, *next);
                    *next += 1;
                }
            }
        }
        let options = PartOptions { transaction_begun: self.transaction_begun, ordered: optimistic };
        let parts: Vec<Part<'_, 'f>> = statements
            .iter()
            .filter_map(|index| {
                self.judged.get(*index).map(|judged| Part { index: *index, statement: &judged.statement })
            })
            .collect();
        let message = self.batch.encode_part(&self.command, &parts, options);
        self.awaiting = Awaiting::Run;
        self.transaction_begun = true;
        Step::Exchange(message)
    }

    /// What came back for the first run.
    fn take_reply(&mut self, frame: &[u8], observations: &mut Observations) -> Result<(), Step> {
        let Ok(reply) = Reply::parse(frame) else {
            return Err(Step::Close("the server's reply to a write cannot be read".to_owned()));
        };
        let Some(run) = self.runs.as_mut().and_then(VecDeque::pop_front) else { return Ok(()) };
        if self.batch.form == Form::FindAndModify {
            return self.take_find_and_modify(&reply, frame, run, observations);
        }
        if !reply.is_ok() {
            return Err(self.pass_on(frame));
        }
        if let Some(cursor) = merge::open_cursor(&reply) {
            if let Some(runs) = &mut self.runs {
                runs.push_front(run);
            }
            self.awaiting = Awaiting::Cursor(frame.to_vec());
            return Err(Step::Exchange(merge::get_more(&self.command, cursor)));
        }
        let errors = merge::errors_of(&reply, self.batch.form);
        if let Some(retry) = self.retry_of(&run, &errors) {
            // What stands before the taken number is done; the rest asks for the maximum again.
            let (done, rest) = run.statements.split_at(retry);
            self.tally.add(&reply, self.batch.form, done);
            self.repeat(rest.to_vec(), run.attempts + u32::from(retry == 0));
            return Ok(());
        }
        if self.is_conflict(&run, &reply, errors.first().map(|(_, error)| *error)) {
            self.tally.note_reply(&reply);
            if let Some(index) = run.statements.first() {
                self.note_conflict(*index, errors.is_empty(), observations);
            }
            return Ok(());
        }
        self.tally.add(&reply, self.batch.form, &run.statements);
        let optimistic = run.statements.iter().any(|index| self.optimistic_rules(*index).next().is_some());
        if !errors.is_empty() && self.stops_on_error() {
            self.stopped = true;
        } else if let (true, Some((failed, _))) = (optimistic, errors.first()) {
            // An unordered batch goes on behind the failed statement; its number is free again.
            let rest = run.statements.get(failed + 1..).unwrap_or_default().to_vec();
            self.repeat(rest, 0);
        }
        Ok(())
    }

    fn repeat(&mut self, statements: Vec<usize>, attempts: u32) {
        if statements.is_empty() {
            return;
        }
        if let Some(runs) = &mut self.runs {
            runs.push_front(Run { statements, next_numbers: Vec::new(), attempts });
        }
    }

    /// The place in the run of a statement whose optimistic number somebody else took. Inside a transaction
    /// the server has aborted, and the client's driver repeats the whole.
    fn retry_of(&self, run: &Run, errors: &[(usize, Document<'_>)]) -> Option<usize> {
        let (place, error) = errors.first()?;
        let index = run.statements.get(*place)?;
        if self.command.session().in_transaction || run.attempts >= MAX_ATTEMPTS {
            return None;
        }
        let taken = self.optimistic_rules(*index).any(|rule| allocation::is_taken(rule, *error));
        taken.then_some(*place)
    }

    // --- conflicts

    fn on_no_match(&self, index: usize) -> Option<(&'f Rule, Conflict)> {
        self.judged.get(index).and_then(|judged| judged.on_no_match)
    }

    /// A guarded statement that matched nothing, or whose upsert collided with the document it should have
    /// matched.
    fn is_conflict(&self, run: &Run, reply: &Reply<'_>, error: Option<Document<'_>>) -> bool {
        let Some(index) = run.statements.first().copied().filter(|index| self.on_no_match(*index).is_some()) else {
            return false;
        };
        match error {
            Some(error) => self.collided(index, error),
            None => merge::matched(reply, self.batch.form) == 0,
        }
    }

    fn collided(&self, index: usize, error: Document<'_>) -> bool {
        let Some(Operation::Update(update)) = self.judged.get(index).map(|judged| &judged.statement.operation) else {
            return false;
        };
        update.upsert && merge::is_duplicate_of_filter(error, update.filter.as_document())
    }

    fn note_conflict(&mut self, index: usize, server_goes_on: bool, observations: &mut Observations) {
        let Some((rule, conflict)) = self.on_no_match(index) else { return };
        let Some(judged) = self.judged.get_mut(index) else { return };
        let aborted = self.command.session().in_transaction && !server_goes_on;
        if conflict == Conflict::Ignore && !aborted {
            return;
        }
        let namespace = self.batch.namespace(&judged.statement);
        let refused = refusal::conflict(rule);
        observations.note(rule, &namespace, Said::Conflict, &refused.rejection.reason);
        judged.refused = Some(refused);
        self.stopped |= self.stops_on_error();
    }

    fn take_find_and_modify(
        &mut self,
        reply: &Reply<'_>,
        frame: &[u8],
        run: Run,
        observations: &mut Observations,
    ) -> Result<(), Step> {
        let error = (!reply.is_ok()).then_some(reply.body);
        if let Some(error) = error
            && self.retry_of(&run, &[(0, error)]).is_some()
        {
            self.repeat(run.statements, run.attempts + 1);
            return Ok(());
        }
        let conflict = self.is_conflict(&run, reply, error);
        let ignored = run.statements.first().and_then(|index| self.on_no_match(*index)).map(|(_, c)| c);
        match (conflict, ignored, error) {
            (true, Some(Conflict::Ignore), None) | (false, _, _) => Err(self.pass_on(frame)),
            (true, Some(Conflict::Ignore), Some(_)) if !self.command.session().in_transaction => {
                self.tally.found_nothing();
                Ok(())
            }
            (true, _, _) => {
                self.note_conflict(0, error.is_none(), observations);
                Ok(())
            }
        }
    }

    // --- the end

    /// The server's reply is the client's.
    fn pass_on(&self, frame: &[u8]) -> Step {
        if self.command.message.more_to_come() { Step::Silent } else { Step::Reply(frame.to_vec()) }
    }

    /// All is sent: a rejection inside a transaction ends it on the server, as a write error there does.
    fn conclude(&mut self) -> Step {
        self.refused_any = self.judged.iter().any(|judged| judged.refused.is_some());
        let session = self.command.session();
        let active = session.in_transaction && (self.transaction_begun || !session.starts_transaction);
        if self.refused_any && active {
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
        let refused = self.judged.iter().enumerate().filter_map(|(index, judged)| {
            let refused = judged.refused.as_ref()?;
            // In an ordered batch nothing behind the first error is reported.
            (index <= limit).then_some((index, &judged.statement, refused))
        });
        for (index, statement, refused) in refused {
            if self.stops_on_error() && self.tally.first_error().is_some_and(|first| first < index) {
                continue;
            }
            self.tally.refuse(index, statement, refused, self.batch.namespace(statement));
        }
        Step::Reply(self.tally.reply(&self.command, self.batch.form))
    }
}

fn strategy(rule: &Rule) -> Option<Strategy> {
    match &rule.pattern {
        Pattern::Sequence(sequence) => Some(sequence.strategy),
        _ => None,
    }
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
            w.string("$db", "admin");
        });
    });
    writer.finish()
}
