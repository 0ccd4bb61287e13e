//! Plans a message: what to send instead of it, or which query must come first.
//!
//! Planning is one synchronous call, so that frequent messages allocate no future and no port: these cost 800 to 2,300
//! instructions, a quarter of a find with `defaults`. What is missing for it (users, a rule's query) is asked, and planning
//! starts again. Only what follows is async.

use std::ops::ControlFlow;
use std::sync::Arc;

use smallvec::SmallVec;

use super::applicable_rules::{ApplicableRules, Enforcement, applicable_rules, asks_for_users};
use super::authentication::{self, is_by_certificate, read_users};
use super::batch::{BatchJob, Sending};
use super::batch_evaluation::BatchEvaluation;
use super::evaluation::Evaluated;
use super::message_error::MessageError;
use super::outcome::{OutcomeKind, RuleOutcomes};
use super::port::{Flow, Port, close};
use super::rejection_text::RejectedBy;
use super::request_head::RequestHead;
use super::step::Step;
use super::{ClientState, Now, collection_query, rejection_text, server_errors};
use crate::command::own::users_question;
use crate::command::{
    Command, CommandClass, CommandError, Namespace, Reply, Statement, StatementKind, WriteBatch, WriteForm, code,
    error_reply, write_overload,
};
use crate::document::{Document, Kind, OwnedValue, Writer};
use crate::patterns::{CommandVerdict, Rejection, WholeCommand};
use crate::rules::{Doubt, RuleSet};
use crate::wire::header::{Header, MAX_COMMAND_DOCUMENT_LENGTH, OpCode};
use crate::wire::op_msg::{MORE_TO_COME, Message, flags_of_head};

/// Statements on the buckets of a time-series collection.
pub(super) const BUCKET_WRITE: &str = "write to the buckets of";

/// A message, and what is known to plan it.
#[derive(Clone)]
pub(super) struct Incoming<'f> {
    pub(super) frame: &'f [u8],
    pub(super) rules: &'f RuleSet,
    pub(super) now: Now,
    /// The server's reply to a rule's query on the collection.
    reply: Option<Vec<u8>>,
    /// It has the permits that it needs.
    pub(super) has_permits: bool,
    /// Checked statements are sent as they are applied.
    pub(super) is_dry_run: bool,
}

/// What a message needs.
pub(super) enum MessagePlan<'f> {
    /// Nothing first.
    Send(Sending<'f>),
    /// The reply to this query of the authenticated users, then another plan.
    Users(Vec<u8>),
    /// The reply to this query of a rule on the collection, then another plan.
    Collection(Vec<u8>),
    /// The evaluation of more statements.
    Evaluation(Box<Unevaluated<'f>>),
    /// Questions about earlier sends of the write and the client's privileges, before numbers.
    Questions(Box<BatchJob<'f>>),
    /// The question whether the command was carried out before; if not, this step.
    Rejection(Box<BatchJob<'f>>, Step),
    /// Numbers, before the statements are sent.
    Numbers(Box<BatchJob<'f>>),
}

/// A write command with statements that are not evaluated yet.
pub(super) struct Unevaluated<'f> {
    command: Command<'f>,
    batch: WriteBatch<'f>,
    evaluation: BatchEvaluation<'f, 'f>,
}

/// The query that must come before the plan, or the error that the client gets instead of one.
pub(super) enum Unplanned {
    /// The authenticated users must be known.
    Users(Vec<u8>),
    /// A rule must know documents of the collection.
    Collection(Vec<u8>),
    Error(MessageError),
    /// docward cannot read the message, so that a rule cannot evaluate it.
    Unreadable(CommandError),
}

impl From<MessageError> for Unplanned {
    fn from(error: MessageError) -> Self {
        Self::Error(error)
    }
}

impl From<CommandError> for Unplanned {
    fn from(error: CommandError) -> Self {
        Self::Unreadable(error)
    }
}

/// Asks the server for the client's users, and notes them. The server's error is that of the client's command.
pub(super) async fn learn_users(command: &[u8], question: Vec<u8>, port: &Port) -> Flow {
    let reply = port.exchange(question).await;
    if let Some(users) = read_users(&reply) {
        port.client_state(|client_state, _| client_state.users = Some(users)).await;
        return Flow::Continue(());
    }
    match (Command::parse(command), Reply::parse(&reply)) {
        (Ok(command), Ok(error)) if !error.is_ok() => Flow::Break(match command.message.more_to_come() {
            true => Step::Silent,
            false => Step::Reply(server_errors::for_client(&command, &error, false)),
        }),
        _ => close("the server's reply to connectionStatus cannot be parsed"),
    }
}

/// Carries out a plan that needs more than one step, and returns the last step.
pub(super) async fn carry_out<'f>(mut incoming: Incoming<'f>, mut plan: MessagePlan<'f>, port: Port) -> Flow<Step> {
    loop {
        if incoming.needs_permits() && plan.sends() {
            incoming.take_permits(&port).await?;
        }
        match plan {
            MessagePlan::Send(sending) => return Box::pin(sending.carry_out(port)).await,
            MessagePlan::Users(question) => learn_users(incoming.frame, question, &port).await?,
            MessagePlan::Collection(question) => incoming.reply = Some(port.exchange(question).await),
            MessagePlan::Evaluation(unevaluated) => return Box::pin(unevaluated.carry_out(&incoming, port)).await,
            MessagePlan::Questions(job) => return Box::pin(job.check_and_send(port)).await,
            MessagePlan::Rejection(job, step) => return Box::pin(job.reject_unless_sent(step, port)).await,
            MessagePlan::Numbers(job) => return Box::pin(job.number_and_send(port)).await,
        }
        plan = port.client_state(|client_state, outcomes| incoming.plan(client_state, outcomes)).await;
    }
}

impl MessagePlan<'_> {
    pub(super) fn last(step: Step) -> Self {
        Self::Send(Sending::Last(step))
    }

    /// Whether it sends something to the server that a rule may limit. The users are docward's own question.
    pub(super) fn sends(&self) -> bool {
        match self {
            Self::Send(sending) => sending.sends(),
            Self::Users(_) => false,
            Self::Collection(_) | Self::Evaluation(_) | Self::Questions(_) | Self::Rejection(..) | Self::Numbers(_) => {
                true
            }
        }
    }
}

impl<'f> Unevaluated<'f> {
    /// Evaluates the other statements, in turns with other connections, and sends them.
    async fn carry_out(mut self: Box<Self>, incoming: &Incoming<'f>, port: Port) -> Flow<Step> {
        loop {
            port.yield_now().await;
            if port.outcomes(|outcomes| self.evaluation.take_turn(&self.batch, incoming.now, outcomes)) {
                break;
            }
        }
        let Self { command, batch, evaluation } = *self;
        let evaluated = incoming.evaluated(evaluation);
        BatchJob::new(command, batch, evaluated, incoming.now, incoming.doubt()).check_and_send(port).await
    }
}

impl<'f> Incoming<'f> {
    pub(super) fn new(frame: &'f [u8], rules: &'f RuleSet, now: Now) -> Self {
        Self { frame, rules, now, reply: None, has_permits: false, is_dry_run: false }
    }

    fn evaluated(&self, evaluation: BatchEvaluation<'f, 'f>) -> Vec<Evaluated<'f, 'f>> {
        let mut evaluated = evaluation.into_evaluated();
        if self.is_dry_run {
            evaluated.iter_mut().for_each(|one| one.checked.clear());
        }
        evaluated
    }

    /// The rules that may have applied to an earlier send of the message.
    fn doubt(&self) -> Option<&'f Doubt> {
        self.rules.doubt().map(Arc::as_ref)
    }

    /// Plans the message with what is known so far.
    pub(super) fn plan(&mut self, client_state: &mut ClientState, outcomes: &mut RuleOutcomes) -> MessagePlan<'f> {
        let Ok(header) = Header::of_frame(self.frame) else {
            return MessagePlan::last(Step::Close("the length of the message differs from its header".to_owned()));
        };
        let planned = match header.op_code {
            OpCode::Msg => match self.plan_command(client_state, outcomes) {
                Err(Unplanned::Unreadable(error)) => self.plan_unreadable(error, client_state, outcomes),
                planned => planned,
            },
            OpCode::Query => Err(Unplanned::Error(MessageError {
                code: code::UNSUPPORTED_OP_QUERY_COMMAND,
                text: "docward accepts only the hello handshake by OP_QUERY; use a driver that sends OP_MSG".to_owned(),
            })),
            other => {
                let text = format!("{other:?} is a legacy opcode, which docward does not support");
                return MessagePlan::last(Step::Close(text));
            }
        };
        match planned {
            Ok(plan) => plan,
            Err(Unplanned::Users(question)) => MessagePlan::Users(question),
            Err(Unplanned::Collection(question)) => MessagePlan::Collection(question),
            Err(Unplanned::Unreadable(error)) => MessagePlan::last(self.reply_error(header, &error.into())),
            Err(Unplanned::Error(error)) => MessagePlan::last(self.reply_error(header, &error)),
        }
    }

    /// Ends the message with an error reply, or by closing the connection if the client expects no reply.
    fn reply_error(&self, header: Header, error: &MessageError) -> Step {
        if header.op_code == OpCode::Msg && !self.expects_reply() {
            return Step::Close(error.text.clone());
        }
        Step::Reply(error_reply(header, error.code, &format!("docward: {}", error.text), |_| {}))
    }

    /// Whether the client waits for a reply to this OP_MSG, as far as its flags can be read.
    pub(super) fn expects_reply(&self) -> bool {
        flags_of_head(self.frame).is_some_and(|flags| flags & MORE_TO_COME == 0)
    }

    fn plan_command(
        &mut self,
        client_state: &mut ClientState,
        outcomes: &mut RuleOutcomes,
    ) -> Result<MessagePlan<'f>, Unplanned> {
        let command = Command::parse(self.frame)?;
        let class = command.class;
        if let Some(form) = WriteForm::for_class(class) {
            return self.write(command, class, form, client_state, outcomes);
        }
        let forward = Step::ForwardOriginal { expects_reply: !command.message.more_to_come() };
        if let Some(what) = class.indirect_write() {
            let step = self.indirect_write(&command, class, what, client_state, outcomes)?;
            if !matches!(step, Step::ForwardOriginal { .. }) || !class.reads() {
                return Ok(MessagePlan::last(step));
            }
        }
        let step = match class {
            CommandClass::Hello => {
                let text = "a hello must have its body first; this one has a document sequence before it".to_owned();
                return Err(MessageError { code: code::FAILED_TO_PARSE, text }.into());
            }
            CommandClass::Authenticate if is_by_certificate(command.body.elements()) => {
                return Err(authentication::certificate_login_error().into());
            }
            CommandClass::Authenticate if RequestHead::new(self.frame).class().is_none() => {
                let text = "a login must have its body first; this one has a document sequence before it".to_owned();
                return Err(MessageError { code: code::FAILED_TO_PARSE, text }.into());
            }
            CommandClass::Authenticate => {
                client_state.forget_users();
                forward
            }
            CommandClass::Explain => self.explain(&command, client_state, outcomes)?,
            class if class.reads() => self.plan_read(&command, class, client_state, outcomes)?,
            class if class.defines() => self.definition(&command, class, client_state, outcomes)?,
            _ => forward,
        };
        Ok(MessagePlan::last(step))
    }

    /// Evaluates the statements of a write command, as many as fit into one turn.
    fn write(
        &mut self,
        command: Command<'f>,
        class: CommandClass,
        form: WriteForm,
        client_state: &ClientState,
        outcomes: &mut RuleOutcomes,
    ) -> Result<MessagePlan<'f>, Unplanned> {
        let mut batch = WriteBatch::parse(&command, form)?;
        let mut targets = Vec::new();
        let mut applicable_rules_of = SmallVec::<[ApplicableRules<'f>; 1]>::new();
        for namespace in &batch.namespaces {
            let (bucket, applicable_rules) = self.applicable_rules_of(*namespace, client_state);
            targets.extend(bucket);
            applicable_rules_of.push(applicable_rules);
        }
        for applicable_rules in &applicable_rules_of {
            require_users(applicable_rules, client_state, command.message.header)?;
        }
        // A bucket holds many documents: an update of one can insert, change or remove documents.
        let only_inserts = !targets.is_empty() && batch.statements.iter().all(Statement::is_insert);
        let kinds: &[StatementKind] = if only_inserts { &[StatementKind::Insert] } else { &StatementKind::ALL };
        let step = self.unanalysed(&command, targets, kinds, BUCKET_WRITE, client_state, outcomes)?;
        if !matches!(step, Step::ForwardOriginal { .. }) {
            return Ok(MessagePlan::last(step));
        }
        // bulkWrite names several collections, so a rule for one does not apply to the whole command.
        if let [applicable_rules] = applicable_rules_of.as_slice()
            && form != WriteForm::BulkWrite
        {
            match self.evaluate_whole(&command, class, applicable_rules, outcomes)? {
                ControlFlow::Continue(changes) => batch.body_changes = changes,
                ControlFlow::Break(step) if self.doubt().is_some() && command.session().is_retryable_write() => {
                    let statements = std::mem::take(&mut batch.statements).into_iter().map(Evaluated::new);
                    let job = BatchJob::new(command, batch, statements.collect(), self.now, self.doubt());
                    return Ok(MessagePlan::Rejection(job, step));
                }
                ControlFlow::Break(step) => return Ok(MessagePlan::last(step)),
            }
        }
        // In doubt a rejected retryable write may have been carried out, and those after it are sent.
        let may_be_executed = self.doubt().is_some() && command.session().is_retryable_write();
        let stops_on_rejection = command.session().in_transaction || (batch.ordered && !may_be_executed);
        let mut evaluation = BatchEvaluation::new(&mut batch, applicable_rules_of, stops_on_rejection);
        if !evaluation.take_turn(&batch, self.now, outcomes) {
            return Ok(MessagePlan::Evaluation(Box::new(Unevaluated { command, batch, evaluation })));
        }
        let job = BatchJob::new(command, batch, self.evaluated(evaluation), self.now, self.doubt());
        if job.asks_for_earlier_sends() || job.needs_privileges(&client_state.privileges) {
            return Ok(MessagePlan::Questions(job));
        }
        Ok(match job.needs_numbers() {
            true => MessagePlan::Numbers(job),
            false => MessagePlan::Send(job.sending(outcomes)),
        })
    }

    fn plan_read(
        &mut self,
        command: &Command<'f>,
        class: CommandClass,
        client_state: &ClientState,
        outcomes: &mut RuleOutcomes,
    ) -> Result<Step, Unplanned> {
        let expects_reply = !command.message.more_to_come();
        let Some(namespace) = command.collection() else {
            return match command.target.kind {
                // mongod accepts a UUID instead of a name.
                Kind::Binary => self.plan_unnamed_read(command, class, client_state, outcomes),
                // An aggregation of the database can still read collections.
                _ => {
                    let step = self.evaluate_inputs(command, client_state, outcomes)?;
                    Ok(step.unwrap_or(Step::ForwardOriginal { expects_reply }))
                }
            };
        };
        let applicable_rules = applicable_rules(self.rules, namespace, client_state);
        require_users(&applicable_rules, client_state, command.message.header)?;
        if let Some(step) = self.evaluate_inputs(command, client_state, outcomes)? {
            return Ok(step);
        }
        self.plan_whole(command, class, &applicable_rules, outcomes)
    }

    /// Plans a command whose statements, if it has some, no rule evaluates.
    pub(super) fn plan_whole(
        &mut self,
        command: &Command<'f>,
        class: CommandClass,
        applicable_rules: &ApplicableRules<'f>,
        outcomes: &mut RuleOutcomes,
    ) -> Result<Step, Unplanned> {
        let expects_reply = !command.message.more_to_come();
        Ok(match self.evaluate_whole(command, class, applicable_rules, outcomes)? {
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
        outcomes: &mut RuleOutcomes,
    ) -> Result<Flow<Vec<(&'static str, OwnedValue)>>, Unplanned> {
        let Some(namespace) = command.collection() else { return Ok(Flow::Continue(Vec::new())) };
        self.evaluate_on(command, class, namespace, applicable_rules, outcomes)
    }

    /// Evaluates the command as a whole, as one on this namespace.
    pub(super) fn evaluate_on(
        &mut self,
        command: &Command<'f>,
        class: CommandClass,
        namespace: Namespace<'_>,
        applicable_rules: &ApplicableRules<'f>,
        outcomes: &mut RuleOutcomes,
    ) -> Result<Flow<Vec<(&'static str, OwnedValue)>>, Unplanned> {
        let whole = WholeCommand { namespace, class, body: command.body };
        let mut changes = Vec::new();
        for (rule, enforcement) in applicable_rules {
            let mut verdict = rule.pattern.command_verdict(&whole);
            if let CommandVerdict::Query(collection_query) = &verdict {
                let documents = match self.reply.take() {
                    Some(reply) => Some(reply),
                    // In a transaction the query could become its first command, or abort it.
                    None if *enforcement != Enforcement::Enforce || command.session().in_transaction => {
                        Some(Vec::new())
                    }
                    None => None,
                };
                let Some(reply) = documents else {
                    // The command is evaluated again with the reply.
                    outcomes.take();
                    let question = collection_query::question(command, namespace, &**collection_query);
                    return Err(Unplanned::Collection(question));
                };
                verdict = collection_query::conclude(&**collection_query, &whole, &reply);
            }
            match (verdict, enforcement) {
                (CommandVerdict::Forward | CommandVerdict::Query(_), _) => {}
                (CommandVerdict::Warn(warning), _) => {
                    outcomes.add(rule, namespace, OutcomeKind::Warn, Some(&warning));
                }
                (CommandVerdict::Set(key, value), Enforcement::Enforce) if fits(command, key, &value) => {
                    outcomes.add_routine(rule, namespace);
                    changes.push((key, value));
                }
                (CommandVerdict::Set(key, _), Enforcement::Enforce) => {
                    let reason = format!("the command has no room for the field '{key}' that the rule adds");
                    let rejection = Rejection::new(reason, "Make the command smaller.");
                    if !rule.pattern.can_reject(class, namespace) {
                        outcomes.add(rule, namespace, OutcomeKind::Warn, Some(&rejection));
                        continue;
                    }
                    outcomes.add(rule, namespace, OutcomeKind::Reject, Some(&rejection));
                    let rejected = RejectedBy::new(rule, rejection);
                    return Ok(Flow::Break(reject_command(command, &rejected, command.name, namespace)));
                }
                (CommandVerdict::Set(..), enforcement) => outcomes.add(rule, namespace, enforcement.rewrites(), None),
                (CommandVerdict::Reject(rejection), enforcement) => {
                    outcomes.add(rule, namespace, enforcement.rejects(), Some(&rejection));
                    if *enforcement == Enforcement::Enforce {
                        let rejected = RejectedBy::new(rule, rejection);
                        return Ok(Flow::Break(reject_command(command, &rejected, command.name, namespace)));
                    }
                }
            }
        }
        Ok(Flow::Continue(changes))
    }
}

/// Stops the plan if it depends on the client's users and they are not known yet.
pub(super) fn require_users(
    applicable_rules: &ApplicableRules<'_>,
    client_state: &ClientState,
    request: Header,
) -> Result<(), Unplanned> {
    if asks_for_users(applicable_rules, client_state) {
        return Err(Unplanned::Users(users_question(request.request_id)));
    }
    Ok(())
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
    let text = match command.class {
        CommandClass::DropDatabase => {
            rejection_text::message(rejected, what, format_args!("the database '{}'", namespace.database))
        }
        _ => rejection_text::message(rejected, what, namespace),
    };
    if command.message.more_to_come() {
        return Step::Silent;
    }
    reply_rejection(command.message.header, rejected, &text)
}

/// The error reply for a rejected message: `ok: 0` with `errInfo`.
pub(super) fn reply_rejection(request: Header, rejected: &RejectedBy<'_>, text: &str) -> Step {
    Step::Reply(error_reply(request, rejected.rejection.code, text, |w| {
        rejection_text::write_error_info(w, rejected, Document::EMPTY);
        if rejected.rejection.code == code::INGRESS_REQUEST_RATE_LIMIT_EXCEEDED {
            write_overload(w, rejected.room_in);
        }
    }))
}

/// Returns the message with fields of its body replaced or added.
pub(super) fn with_fields(
    message: &Message<'_>,
    body: Document<'_>,
    changes: &[(&'static str, OwnedValue)],
) -> Vec<u8> {
    message.with_body(|out| Writer::document(out, |w| write_with_fields(w, body, changes)))
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
