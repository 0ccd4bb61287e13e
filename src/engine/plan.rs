//! Carries out one message, step by step.
//!
//! [`Plan::next`] returns the next step; the caller performs it and passes the result to the next call.
//! [`BatchJob`](super::batch::BatchJob) carries out the statements of write commands; all other messages are decided
//! here in one step.

use std::ops::ControlFlow;
use std::time::Duration;

use smallvec::SmallVec;

use super::authentication::{self, is_by_certificate, read_users, users_question};
use super::batch::BatchJob;
use super::evaluation::{ApplicableRules, Enforcement, Evaluation, RejectedBy, applicable_rules, asks_for_users};
use super::indirect_writes::BUCKET_WRITE;
use super::lookup::{Lookup, LookupError, LookupResult};
use super::outcome::{OutcomeKind, RuleOutcome, RuleOutcomes};
use super::privileges::{PrivilegeCheck, PrivilegeReply};
use super::{ClientState, Now, collection_query, rejection_text};
use crate::command::{
    Command, CommandClass, CommandError, Form, MAX_STATEMENTS, Namespace, WriteBatch, code, error_reply, shorten,
};
use crate::document::{Document, Kind, OwnedValue, Writer, peek};
use crate::patterns::{CommandVerdict, MAX_REASON_LENGTH, Rejection, RuleSet, WholeCommand};
use crate::wire::header::{HEADER_LENGTH, Header, MAX_COMMAND_DOCUMENT_LENGTH, OpCode};
use crate::wire::op_msg::{self, MORE_TO_COME, Message};

/// What the caller must do next.
#[derive(Debug)]
pub enum Step {
    /// Send this upstream and pass the complete reply to the next call.
    Exchange(Vec<u8>),
    /// Pass this lookup to the service, and its answer to the next call.
    Lookup(Lookup),
    /// Wait this long, then call again.
    Pause(Duration),
    /// Yield to other connections, then call again: there are more statements to evaluate.
    Yield,
    /// Final: forward the original message; stream its reply, if one is expected.
    ForwardOriginal { expects_reply: bool },
    /// Final: forward this message instead; stream its reply, if one is expected.
    Forward { message: Vec<u8>, expects_reply: bool },
    /// Final: send this reply to the client.
    Reply(Vec<u8>),
    /// Final: the client expects no reply (w: 0).
    Silent,
    /// Final: close the connection; the text is for the log.
    Close(String),
}

/// The result of the last step.
#[derive(Debug)]
pub enum Input<'i> {
    Start,
    Reply(&'i [u8]),
    Found(Result<LookupResult, LookupError>),
    /// Other connections have had their turn.
    Resumed,
    /// The pause is over; `elapsed` is the time since the first exchange.
    Paused {
        elapsed: Duration,
    },
}

/// The plan for one message.
#[derive(Debug)]
pub struct Plan<'f> {
    frame: &'f [u8],
    pub(super) rules: &'f RuleSet,
    pub(super) now: Now,
    state: State<'f>,
    pub(super) outcomes: RuleOutcomes,
    /// The server's reply to a rule's query on the collection.
    answer: Option<Vec<u8>>,
}

#[derive(Debug)]
enum State<'f> {
    Fresh,
    AwaitingUsers,
    AwaitingAnswer,
    AwaitingPrivileges(Box<BatchJob<'f>>, PrivilegeCheck),
    Evaluation(Box<Unevaluated<'f>>),
    Writing(Box<BatchJob<'f>>),
    Done,
}

/// Returns an estimate of the bytes that evaluating a message takes, besides the message itself and what is sent
/// instead. Returns 0 for short messages.
#[must_use]
pub fn evaluation_length(frame: &[u8]) -> usize {
    /// A parsed statement with the verdicts of its rules.
    const NOTED: usize = 700;
    const SHORT: usize = 4096;
    let Some(message) = (frame.len() > SHORT).then(|| Message::parse(frame).ok()).flatten() else { return 0 };
    let in_sequences: usize = message.sequences.iter().map(|sequence| sequence.count()).sum();
    let lists = peek(message.body).filter(|element| element.value.kind == Kind::Array);
    let in_body = lists.map(|list| peek(list.value.bytes).count()).max().unwrap_or(0);
    (in_sequences + in_body).min(MAX_STATEMENTS) * NOTED
}

/// A write command with statements that are not evaluated yet.
#[derive(Debug)]
struct Unevaluated<'f> {
    command: Command<'f>,
    batch: WriteBatch<'f>,
    evaluation: Evaluation<'f, 'f>,
}

/// The error for a message that cannot be carried out.
pub(super) struct NoPlan {
    pub(super) code: i32,
    pub(super) text: String,
}

impl From<CommandError> for NoPlan {
    fn from(error: CommandError) -> Self {
        let mut text = error.to_string();
        shorten(&mut text, MAX_REASON_LENGTH);
        Self { code: code::FAILED_TO_PARSE, text }
    }
}

impl<'f> Plan<'f> {
    /// Creates the plan for `frame`, one complete message.
    pub fn new(frame: &'f [u8], rules: &'f RuleSet, now: Now) -> Self {
        Self { frame, rules, now, state: State::Fresh, outcomes: RuleOutcomes::default(), answer: None }
    }

    /// For a dry run: also notes routine outcomes.
    pub(super) fn noting_routine(mut self) -> Self {
        self.outcomes.note_everything();
        self
    }

    /// Returns the rules' outcomes since the last call.
    pub fn take_outcomes(&mut self) -> Vec<RuleOutcome> {
        self.outcomes.take()
    }

    /// Returns whether docward has an open transaction on the server. Then run the plan to its end even if the client
    /// disconnects: otherwise its locks are held until the server's timeout.
    pub fn must_finish(&self) -> bool {
        matches!(&self.state, State::Writing(job) if job.holds_transaction())
    }

    /// Whether the plan waits for a check of what a statement's own filter matches.
    pub(super) fn awaits_match_check(&self) -> bool {
        matches!(&self.state, State::Writing(job) if job.awaits_match_check())
    }

    /// Whether the plan waits for the server's record of an earlier send of the same write.
    pub(super) fn awaits_record(&self) -> bool {
        matches!(&self.state, State::Writing(job) if job.awaits_record())
    }

    /// Takes the result of the last step and returns the next one. Stores the users and privileges in `session`.
    pub fn next(&mut self, input: Input<'_>, client_state: &mut ClientState) -> Step {
        match (std::mem::replace(&mut self.state, State::Done), input) {
            (State::Fresh, _) => self.open(client_state),
            (State::AwaitingUsers, Input::Reply(reply)) => match read_users(reply) {
                Some(users) => {
                    client_state.users = Some(users);
                    self.open(client_state)
                }
                None => Step::Close("the server's reply to connectionStatus cannot be parsed".to_owned()),
            },
            (State::Writing(mut job), input) => {
                let step = job.next(input, &mut self.outcomes);
                client_state.own = job.own_session();
                self.state = State::Writing(job);
                step
            }
            (State::Evaluation(unevaluated), Input::Resumed) => self.go_on_evaluating(unevaluated, client_state),
            (State::AwaitingAnswer, Input::Reply(reply)) => {
                self.answer = Some(reply.to_vec());
                self.open(client_state)
            }
            (State::AwaitingPrivileges(job, check), Input::Reply(reply)) => {
                self.take_privileges(job, check, reply, client_state)
            }
            (
                State::AwaitingUsers
                | State::AwaitingAnswer
                | State::AwaitingPrivileges(..)
                | State::Evaluation(_)
                | State::Done,
                _,
            ) => Step::Close("internal error: unexpected input for a plan".to_owned()),
        }
    }

    fn open(&mut self, client_state: &mut ClientState) -> Step {
        let Ok(header) = Header::of_frame(self.frame) else {
            return Step::Close("internal error: the length of a frame differs from its header".to_owned());
        };
        match header.op_code {
            OpCode::Msg => match self.decide(client_state) {
                Ok(step) => step,
                Err(error) => self.reply_error(header, &error),
            },
            OpCode::Query => self.reply_error(
                header,
                &NoPlan {
                    code: code::UNSUPPORTED_OP_QUERY_COMMAND,
                    text: "docward accepts only the hello handshake by OP_QUERY; use a driver that sends OP_MSG"
                        .to_owned(),
                },
            ),
            other => Step::Close(format!("{other:?} is a legacy opcode, which docward does not support")),
        }
    }

    /// Ends the message with an error reply, or by closing the connection if the client expects no reply.
    fn reply_error(&self, header: Header, error: &NoPlan) -> Step {
        let flags = self.frame.get(HEADER_LENGTH..).and_then(|rest| rest.first_chunk().map(|b| u32::from_le_bytes(*b)));
        if header.op_code == OpCode::Msg && flags.is_none_or(|flags| flags & MORE_TO_COME != 0) {
            return Step::Close(error.text.clone());
        }
        Step::Reply(error_reply(header, error.code, &format!("docward: {}", error.text), |_| {}))
    }

    fn decide(&mut self, client_state: &mut ClientState) -> Result<Step, NoPlan> {
        let command = Command::parse(self.frame)?;
        let forward = Step::ForwardOriginal { expects_reply: !command.message.more_to_come() };
        let class = command.class;
        if let Some(form) = Form::of(class) {
            return self.write(command, class, form, client_state);
        }
        if let Some(what) = class.indirect_write() {
            let step = self.indirect_write(&command, class, what, client_state)?;
            if !matches!(step, Step::ForwardOriginal { .. }) || !class.reads() {
                return Ok(step);
            }
        }
        match class {
            CommandClass::Hello => Err(NoPlan {
                code: code::FAILED_TO_PARSE,
                text: "a hello must have its body first; this one has a document sequence before it".to_owned(),
            }),
            CommandClass::Authenticate if is_by_certificate(command.body.elements()) => {
                Err(authentication::certificate_login_error())
            }
            CommandClass::Authenticate => {
                client_state.forget_users();
                Ok(forward)
            }
            CommandClass::Explain => self.explain(&command, client_state),
            class if class.reads() => self.read(&command, class, client_state),
            _ => Ok(forward),
        }
    }

    /// Evaluates the statements of a write command and starts to carry them out.
    fn write(
        &mut self,
        command: Command<'f>,
        class: CommandClass,
        form: Form,
        client_state: &mut ClientState,
    ) -> Result<Step, NoPlan> {
        let mut batch = WriteBatch::read(&command, form)?;
        let mut targets = Vec::new();
        let mut applicable_rules_of = SmallVec::<[ApplicableRules<'f>; 1]>::new();
        for namespace in &batch.namespaces {
            let (bucket, applicable_rules) = self.applicable_rules_of(*namespace, client_state);
            targets.extend(bucket);
            applicable_rules_of.push(applicable_rules);
        }
        if applicable_rules_of.iter().any(|applicable_rules| asks_for_users(applicable_rules, client_state)) {
            return Ok(self.ask_for_users(&command));
        }
        let step = self.unanalysed(&command, targets, BUCKET_WRITE, client_state)?;
        if !matches!(step, Step::ForwardOriginal { .. }) {
            return Ok(step);
        }
        // bulkWrite names several collections, so a rule for one does not apply to the whole command.
        if let [applicable_rules] = applicable_rules_of.as_slice()
            && form != Form::BulkWrite
        {
            match self.evaluate_whole(&command, class, applicable_rules) {
                ControlFlow::Continue(changes) => batch.body_changes = changes,
                ControlFlow::Break(step) => return Ok(step),
            }
        }
        let stops_on_rejection = batch.ordered || command.session().in_transaction;
        let mut evaluation = Evaluation::new(&mut batch, applicable_rules_of, stops_on_rejection);
        if !evaluation.take_turn(&batch, self.now, &mut self.outcomes) {
            self.state = State::Evaluation(Box::new(Unevaluated { command, batch, evaluation }));
            return Ok(Step::Yield);
        }
        let job = BatchJob::new(command, batch, evaluation.into_evaluated(), client_state.own);
        Ok(self.begin(job, client_state))
    }

    /// Evaluates the next group of statements.
    fn go_on_evaluating(&mut self, mut unevaluated: Box<Unevaluated<'f>>, client_state: &mut ClientState) -> Step {
        let Unevaluated { batch, evaluation, .. } = &mut *unevaluated;
        if !evaluation.take_turn(batch, self.now, &mut self.outcomes) {
            self.state = State::Evaluation(unevaluated);
            return Step::Yield;
        }
        let Unevaluated { command, batch, evaluation } = *unevaluated;
        let job = BatchJob::new(command, batch, evaluation.into_evaluated(), client_state.own);
        self.begin(job, client_state)
    }

    /// Carries out the batch. Checks the client's privileges first where docward uses its own: a client must not gain
    /// access.
    fn begin(&mut self, mut job: Box<BatchJob<'f>>, client_state: &mut ClientState) -> Step {
        if let Some((check, question)) = job.unknown_access(&client_state.privileges) {
            self.state = State::AwaitingPrivileges(job, check);
            return Step::Exchange(question);
        }
        let step = job.next(Input::Start, &mut self.outcomes);
        client_state.own = job.own_session();
        self.state = State::Writing(job);
        step
    }

    fn take_privileges(
        &mut self,
        job: Box<BatchJob<'f>>,
        check: PrivilegeCheck,
        reply: &[u8],
        client_state: &mut ClientState,
    ) -> Step {
        match check.take(reply, job.command(), &mut client_state.privileges) {
            PrivilegeReply::Granted => self.begin(job, client_state),
            PrivilegeReply::Ask(check, question) => {
                self.state = State::AwaitingPrivileges(job, check);
                Step::Exchange(question)
            }
            PrivilegeReply::Denied(reply) => job.pass_on(&reply),
        }
    }

    /// Queries the authenticated users from the server on the client's own connection.
    pub(super) fn ask_for_users(&mut self, command: &Command<'_>) -> Step {
        self.state = State::AwaitingUsers;
        Step::Exchange(users_question(command.message.header.request_id))
    }

    fn read(&mut self, command: &Command<'f>, class: CommandClass, client_state: &ClientState) -> Result<Step, NoPlan> {
        let expects_reply = !command.message.more_to_come();
        let Some(namespace) = command.collection() else {
            return match command.target.kind {
                // mongod accepts a UUID instead of a name.
                Kind::Binary => self.read_unnamed(command, class, client_state),
                _ => Ok(Step::ForwardOriginal { expects_reply }),
            };
        };
        let applicable_rules = applicable_rules(self.rules, namespace, client_state);
        if asks_for_users(&applicable_rules, client_state) {
            return Ok(self.ask_for_users(command));
        }
        Ok(match self.evaluate_whole(command, class, &applicable_rules) {
            ControlFlow::Break(step) => step,
            ControlFlow::Continue(changes) if changes.is_empty() => Step::ForwardOriginal { expects_reply },
            ControlFlow::Continue(changes) => {
                Step::Forward { message: with_fields(&command.message, command.body, &changes), expects_reply }
            }
        })
    }

    /// Evaluates the command as a whole; returns the body fields to set, or the rejection.
    pub(super) fn evaluate_whole(
        &mut self,
        command: &Command<'f>,
        class: CommandClass,
        applicable_rules: &ApplicableRules<'f>,
    ) -> ControlFlow<Step, Vec<(&'static str, OwnedValue)>> {
        let Some(namespace) = command.collection() else { return ControlFlow::Continue(Vec::new()) };
        let whole = WholeCommand { class, body: command.body };
        let mut changes = Vec::new();
        for (rule, enforcement) in applicable_rules {
            let mut verdict = rule.pattern.command_verdict(&whole);
            if let CommandVerdict::Ask(collection_query) = &verdict {
                let documents = match self.answer.take() {
                    Some(answer) => Some(answer),
                    // In a transaction the query could become its first command, or abort it.
                    None if *enforcement != Enforcement::Enforce || command.session().in_transaction => {
                        Some(Vec::new())
                    }
                    None => None,
                };
                let Some(answer) = documents else {
                    // The command is evaluated again with the answer.
                    self.outcomes.take();
                    self.state = State::AwaitingAnswer;
                    return ControlFlow::Break(Step::Exchange(collection_query::question(
                        command,
                        namespace,
                        &**collection_query,
                    )));
                };
                verdict = collection_query::conclude(&**collection_query, &whole, &answer);
            }
            match (verdict, enforcement) {
                (CommandVerdict::Forward | CommandVerdict::Ask(_), _) => {}
                (CommandVerdict::Warn(warning), _) => {
                    self.outcomes.note(rule, namespace, OutcomeKind::Warn, Some(&warning));
                }
                (CommandVerdict::Set(key, value), Enforcement::Enforce) if fits(command, key, &value) => {
                    self.outcomes.note_routine(rule, namespace);
                    changes.push((key, value));
                }
                (CommandVerdict::Set(key, _), Enforcement::Enforce) => {
                    let reason = format!("the command has no room for the field '{key}' that the rule adds");
                    let rejection = Rejection::new(reason, "Make the command smaller.");
                    self.outcomes.note(rule, namespace, OutcomeKind::Reject, Some(&rejection));
                    let rejected = RejectedBy { rule, rejection };
                    return ControlFlow::Break(reject_command(command, &rejected, command.name, namespace));
                }
                (CommandVerdict::Set(..), enforcement) => {
                    self.outcomes.note(rule, namespace, enforcement.rewrites(), None)
                }
                (CommandVerdict::Reject(rejection), enforcement) => {
                    self.outcomes.note(rule, namespace, enforcement.rejects(), Some(&rejection));
                    if *enforcement == Enforcement::Enforce {
                        let rejected = RejectedBy { rule, rejection };
                        return ControlFlow::Break(reject_command(command, &rejected, command.name, namespace));
                    }
                }
            }
        }
        ControlFlow::Continue(changes)
    }
}

/// Whether another field fits into a command's body.
fn fits(command: &Command<'_>, key: &str, value: &OwnedValue) -> bool {
    /// Type byte and terminator of a field, and small fields of other rules.
    const AROUND: usize = 2 + 64;
    let added = key.len() + value.as_value().bytes.len() + AROUND;
    command.body.as_bytes().len() + added <= MAX_COMMAND_DOCUMENT_LENGTH
}

/// The error reply for a rejected command without statements: `ok: 0` with `errInfo`.
pub(super) fn reject_command(
    command: &Command<'_>,
    rejected: &RejectedBy<'_>,
    what: &str,
    namespace: Namespace<'_>,
) -> Step {
    let text = rejection_text::message(rejected, what, namespace);
    if command.message.more_to_come() {
        return Step::Silent;
    }
    Step::Reply(error_reply(command.message.header, rejected.rejection.code, &text, |w| {
        rejection_text::write_error_info(w, rejected);
    }))
}

/// Returns the message with fields of its body replaced or added.
pub(super) fn with_fields(
    message: &Message<'_>,
    body: Document<'_>,
    changes: &[(&'static str, OwnedValue)],
) -> Vec<u8> {
    let header = message.header;
    let mut writer = op_msg::Writer::new(header.request_id, header.response_to, message.flags, header.length + 128);
    writer.body(|out| Writer::document(out, |w| write_with_fields(w, body, changes)));
    for sequence in &message.sequences {
        writer.sequence(sequence.identifier, |out| out.extend_from_slice(sequence.as_bytes()));
    }
    writer.finish()
}

/// Writes the fields of `body` with `changes` replaced or added.
pub(super) fn write_with_fields(w: &mut Writer<'_>, body: Document<'_>, changes: &[(&'static str, OwnedValue)]) {
    for element in body.elements() {
        match changes.iter().find(|(changed, _)| changed.as_bytes() == element.key) {
            Some((key, value)) => w.value(key, value.as_value()),
            None => w.element(element),
        }
    }
    for (key, value) in changes.iter().filter(|(key, _)| body.get(key).is_none()) {
        w.value(key, value.as_value());
    }
}
