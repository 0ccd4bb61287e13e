//! How one message is carried out, step by step.
//!
//! [`Plan::next`] says what to do; the caller does it and comes back with what came of it. Statements of
//! write commands go on in [`BatchJob`](super::batch::BatchJob); everything else is decided here at once.

use std::ops::ControlFlow;
use std::time::Duration;

use smallvec::SmallVec;

use super::authentication::{self, is_by_certificate, read_users, users_question};
use super::batch::BatchJob;
use super::evaluation::{ApplicableRules, Enforcement, Evaluation, RejectedBy, applicable_rules, asks_for_users};
use super::indirect_writes::BUCKET_WRITE;
use super::lookup::{Found, Lookup, LookupError};
use super::outcome::{OutcomeKind, RuleOutcome, RuleOutcomes};
use super::privileges::{Answer, PrivilegeCheck};
use super::{Now, Session, collection_query, rejection_text};
use crate::command::{
    Batch, Class, Command, CommandError, Form, MAX_STATEMENTS, Namespace, code, error_reply, shorten,
};
use crate::document::{Document, Kind, OwnedValue, Writer, peek};
use crate::patterns::{CommandVerdict, MAX_REASON_LENGTH, Rejection, RuleSet, WholeCommand};
use crate::wire::header::{HEADER_LENGTH, Header, MAX_COMMAND_DOCUMENT_LENGTH, OpCode};
use crate::wire::op_msg::{self, MORE_TO_COME, Message};

/// What the caller is to do next.
#[derive(Debug)]
pub enum Step {
    /// Send this upstream and come back with the whole reply.
    Exchange(Vec<u8>),
    /// Ask the service and come back with its answer.
    Lookup(Lookup),
    /// Wait this long.
    Pause(Duration),
    /// Let other connections have their turn: there is more to evaluate than a moment's work.
    Yield,
    /// The end: the message goes upstream as it came; its reply, if one is expected, streams through.
    ForwardOriginal { expects_reply: bool },
    /// The end: this goes upstream instead; its reply, if one is expected, streams through.
    Forward { message: Vec<u8>, expects_reply: bool },
    /// The end: this goes to the client.
    Reply(Vec<u8>),
    /// The end: the client does not want to hear anything (w: 0).
    Silent,
    /// The end of the connection; the text is for the log.
    Close(String),
}

/// What came of the last step.
#[derive(Debug)]
pub enum Input<'i> {
    Start,
    Reply(&'i [u8]),
    Found(Result<Found, LookupError>),
    /// Others have had their turn.
    Resumed,
    /// This long after the first exchange.
    Paused {
        elapsed: Duration,
    },
}

/// One message on its way.
#[derive(Debug)]
pub struct Plan<'f> {
    frame: &'f [u8],
    pub(super) rules: &'f RuleSet,
    pub(super) now: Now,
    state: State<'f>,
    pub(super) outcomes: RuleOutcomes,
    /// The server's reply to a rule's question about the collection.
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

/// Bytes that the evaluation of a message takes besides the message and what is sent instead, as an estimate: what is
/// noted of each statement. 0 for short messages.
#[must_use]
pub fn evaluation_length(frame: &[u8]) -> usize {
    /// A statement as it is read, and with what rules say of it.
    const NOTED: usize = 700;
    const SHORT: usize = 4096;
    let Some(message) = (frame.len() > SHORT).then(|| Message::parse(frame).ok()).flatten() else { return 0 };
    let in_sequences: usize = message.sequences.iter().map(|sequence| sequence.count()).sum();
    let lists = peek(message.body).filter(|element| element.value.kind == Kind::Array);
    let in_body = lists.map(|list| peek(list.value.bytes).count()).max().unwrap_or(0);
    (in_sequences + in_body).min(MAX_STATEMENTS) * NOTED
}

/// A write command of which more is to be evaluated.
#[derive(Debug)]
struct Unevaluated<'f> {
    command: Command<'f>,
    batch: Batch<'f>,
    evaluation: Evaluation<'f, 'f>,
}

/// Why a message ends without a plan.
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
    /// `frame` is one whole message.
    pub fn new(frame: &'f [u8], rules: &'f RuleSet, now: Now) -> Self {
        Self { frame, rules, now, state: State::Fresh, outcomes: RuleOutcomes::default(), answer: None }
    }

    /// For a dry_run: rules speak even of what happens to nearly every command.
    pub(super) fn thoroughly(mut self) -> Self {
        self.outcomes.be_thorough();
        self
    }

    /// What rules have said since the last call.
    pub fn take_outcomes(&mut self) -> Vec<RuleOutcome> {
        self.outcomes.take()
    }

    /// Whether docward holds a transaction open on the server: then the plan should come to its end even if
    /// the client does not wait for it, or what it locks stays locked until the server's timeouts ends.
    pub fn must_finish(&self) -> bool {
        matches!(&self.state, State::Writing(job) if job.holds_transaction())
    }

    /// Whether it waits for what a statement's own filter matches.
    pub(super) fn looks(&self) -> bool {
        matches!(&self.state, State::Writing(job) if job.looks())
    }

    /// Whether it waits for what the server has recorded of a write that was sent before.
    pub(super) fn asks_for_record(&self) -> bool {
        matches!(&self.state, State::Writing(job) if job.asks_for_record())
    }

    /// Goes on. `session` learns who the users are.
    pub fn next(&mut self, input: Input<'_>, session: &mut Session) -> Step {
        match (std::mem::replace(&mut self.state, State::Done), input) {
            (State::Fresh, _) => self.open(session),
            (State::AwaitingUsers, Input::Reply(reply)) => match read_users(reply) {
                Some(users) => {
                    session.users = Some(users);
                    self.open(session)
                }
                None => Step::Close("the server's answer to connectionStatus cannot be read".to_owned()),
            },
            (State::Writing(mut job), input) => {
                let step = job.next(input, &mut self.outcomes);
                session.own = job.own_session();
                self.state = State::Writing(job);
                step
            }
            (State::Evaluation(unevaluated), Input::Resumed) => self.go_on_evaluating(unevaluated, session),
            (State::AwaitingAnswer, Input::Reply(reply)) => {
                self.answer = Some(reply.to_vec());
                self.open(session)
            }
            (State::AwaitingPrivileges(job, asking), Input::Reply(reply)) => {
                self.take_privileges(job, asking, reply, session)
            }
            (
                State::AwaitingUsers
                | State::AwaitingAnswer
                | State::AwaitingPrivileges(..)
                | State::Evaluation(_)
                | State::Done,
                _,
            ) => Step::Close("docward lost its place in a plan".to_owned()),
        }
    }

    fn open(&mut self, session: &mut Session) -> Step {
        let Ok(header) = Header::of_frame(self.frame) else {
            return Step::Close("a frame's length changed under way".to_owned());
        };
        match header.op_code {
            OpCode::Msg => match self.decide(session) {
                Ok(step) => step,
                Err(refuse) => self.refuse(header, &refuse),
            },
            OpCode::Query => self.refuse(
                header,
                &NoPlan {
                    code: code::UNSUPPORTED_OP_QUERY_COMMAND,
                    text: "docward takes only the hello handshake by OP_QUERY; use a driver that sends OP_MSG"
                        .to_owned(),
                },
            ),
            other => Step::Close(format!("{other:?} is a legacy opcode, which docward does not pass")),
        }
    }

    /// A whole message refused. Who does not wait for a reply learns by the connection's end.
    fn refuse(&self, header: Header, refuse: &NoPlan) -> Step {
        let flags = self.frame.get(HEADER_LENGTH..).and_then(|rest| rest.first_chunk().map(|b| u32::from_le_bytes(*b)));
        if header.op_code == OpCode::Msg && flags.is_none_or(|flags| flags & MORE_TO_COME != 0) {
            return Step::Close(refuse.text.clone());
        }
        Step::Reply(error_reply(header, refuse.code, &format!("docward: {}", refuse.text), |_| {}))
    }

    fn decide(&mut self, session: &mut Session) -> Result<Step, NoPlan> {
        let command = Command::parse(self.frame)?;
        let forward = Step::ForwardOriginal { expects_reply: !command.message.more_to_come() };
        let class = command.class;
        if let Some(form) = Form::of(class) {
            return self.write(command, class, form, session);
        }
        if let Some(what) = class.indirect_write() {
            let step = self.indirect_write(&command, class, what, session)?;
            if !matches!(step, Step::ForwardOriginal { .. }) || !class.reads() {
                return Ok(step);
            }
        }
        match class {
            Class::Hello => Err(NoPlan {
                code: code::FAILED_TO_PARSE,
                text: "a hello has its body first; this one has a document sequence before it".to_owned(),
            }),
            Class::Authenticate if is_by_certificate(command.body.elements()) => Err(authentication::refusal()),
            Class::Authenticate => {
                session.forget_users();
                Ok(forward)
            }
            Class::Explain => self.explain(&command, session),
            class if class.reads() => self.read(&command, class, session),
            _ => Ok(forward),
        }
    }

    /// A write command: its statements are evaluated, and what is left of them is carried out.
    fn write(&mut self, command: Command<'f>, class: Class, form: Form, session: &mut Session) -> Result<Step, NoPlan> {
        let mut batch = Batch::read(&command, form)?;
        let mut targets = Vec::new();
        let mut applicable_rules_of = SmallVec::<[ApplicableRules<'f>; 1]>::new();
        for namespace in &batch.namespaces {
            let (bucket, applicable_rules) = self.applicable_rules_of(*namespace, session);
            targets.extend(bucket);
            applicable_rules_of.push(applicable_rules);
        }
        if applicable_rules_of.iter().any(|applicable_rules| asks_for_users(applicable_rules, session)) {
            return Ok(self.ask_for_users(&command));
        }
        let step = self.unanalysed(&command, targets, BUCKET_WRITE, session)?;
        if !matches!(step, Step::ForwardOriginal { .. }) {
            return Ok(step);
        }
        // bulkWrite names several collections; what is about one is not about the command.
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
        let job = BatchJob::new(command, batch, evaluation.into_evaluated(), session.own);
        Ok(self.begin(job, session))
    }

    /// Judges the next of the statements that are left.
    fn go_on_evaluating(&mut self, mut unevaluated: Box<Unevaluated<'f>>, session: &mut Session) -> Step {
        let Unevaluated { batch, evaluation, .. } = &mut *unevaluated;
        if !evaluation.take_turn(batch, self.now, &mut self.outcomes) {
            self.state = State::Evaluation(unevaluated);
            return Step::Yield;
        }
        let Unevaluated { command, batch, evaluation } = *unevaluated;
        let job = BatchJob::new(command, batch, evaluation.into_evaluated(), session.own);
        self.begin(job, session)
    }

    /// Nothing is done for a client with docward's own privileges that it may not do itself.
    fn begin(&mut self, mut job: Box<BatchJob<'f>>, session: &mut Session) -> Step {
        if let Some((asking, question)) = job.unknown_access(&session.privileges) {
            self.state = State::AwaitingPrivileges(job, asking);
            return Step::Exchange(question);
        }
        let step = job.next(Input::Start, &mut self.outcomes);
        session.own = job.own_session();
        self.state = State::Writing(job);
        step
    }

    fn take_privileges(
        &mut self,
        job: Box<BatchJob<'f>>,
        asking: PrivilegeCheck,
        reply: &[u8],
        session: &mut Session,
    ) -> Step {
        match asking.take(reply, job.command(), &mut session.privileges) {
            Answer::Granted => self.begin(job, session),
            Answer::Ask(asking, question) => {
                self.state = State::AwaitingPrivileges(job, asking);
                Step::Exchange(question)
            }
            Answer::Refused(reply) => job.pass_on(&reply),
        }
    }

    /// Who is authenticated is asked of the server itself, on the client's own connection.
    pub(super) fn ask_for_users(&mut self, command: &Command<'_>) -> Step {
        self.state = State::AwaitingUsers;
        Step::Exchange(users_question(command.message.header.request_id))
    }

    fn read(&mut self, command: &Command<'f>, class: Class, session: &Session) -> Result<Step, NoPlan> {
        let expects_reply = !command.message.more_to_come();
        let Some(namespace) = command.collection() else {
            return match command.target.kind {
                // mongod takes a UUID for a name.
                Kind::Binary => self.read_unnamed(command, class, session),
                _ => Ok(Step::ForwardOriginal { expects_reply }),
            };
        };
        let applicable_rules = applicable_rules(self.rules, namespace, session);
        if asks_for_users(&applicable_rules, session) {
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

    /// What the rules make of the command as a whole: fields of its body to set, or its rejection.
    pub(super) fn evaluate_whole(
        &mut self,
        command: &Command<'f>,
        class: Class,
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
                    // In a transaction the question could be its first command, or abort it.
                    None if *enforcement != Enforcement::Enforce || command.session().in_transaction => {
                        Some(Vec::new())
                    }
                    None => None,
                };
                let Some(answer) = documents else {
                    // The command is evaluated anew with the answer.
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
                    let reason = format!("there is no room in it for the field '{key}' that the rule adds");
                    let rejection = Rejection::new(reason, "Make the command smaller.");
                    self.outcomes.note(rule, namespace, OutcomeKind::Reject, Some(&rejection));
                    let refused = RejectedBy { rule, rejection };
                    return ControlFlow::Break(reject_command(command, &refused, command.name, namespace));
                }
                (CommandVerdict::Set(..), enforcement) => {
                    self.outcomes.note(rule, namespace, enforcement.rewrites(), None)
                }
                (CommandVerdict::Reject(rejection), enforcement) => {
                    self.outcomes.note(rule, namespace, enforcement.rejects(), Some(&rejection));
                    if *enforcement == Enforcement::Enforce {
                        let refused = RejectedBy { rule, rejection };
                        return ControlFlow::Break(reject_command(command, &refused, command.name, namespace));
                    }
                }
            }
        }
        ControlFlow::Continue(changes)
    }
}

/// Whether a command's body has room for another field.
fn fits(command: &Command<'_>, key: &str, value: &OwnedValue) -> bool {
    /// Kind and terminator of a field; other rules' fields of a few bytes.
    const AROUND: usize = 2 + 64;
    let added = key.len() + value.as_value().bytes.len() + AROUND;
    command.body.as_bytes().len() + added <= MAX_COMMAND_DOCUMENT_LENGTH
}

/// `ok: 0` with `errInfo`, for a command without statements.
pub(super) fn reject_command(
    command: &Command<'_>,
    refused: &RejectedBy<'_>,
    what: &str,
    namespace: Namespace<'_>,
) -> Step {
    let text = rejection_text::message(refused, what, namespace);
    if command.message.more_to_come() {
        return Step::Silent;
    }
    Step::Reply(error_reply(command.message.header, refused.rejection.code, &text, |w| {
        rejection_text::write_error_info(w, refused);
    }))
}

/// The message with fields of its body replaced or added.
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

/// The fields of `body`, some of them replaced or added.
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
