//! Carries out the plan of one evaluated message. It has the connection to itself: no reply is pending, and the
//! client's later messages wait.
//!
//! The engine plans the steps; this file performs them and feeds the results back. It must not know what a rule is.
//! Next: [`crate::engine::Plan`].

use std::sync::Arc;
use std::time::Instant;

use crate::command::{Command, CommandClass, code, error_reply};
use crate::engine::routing::{AfterLoss, PreferredRead, ReadPreference};
use crate::engine::{
    Input, QueryAdmission, QueryRejection, RequestHead, RuleOutcome, Step, evaluation_length, read_users,
    users_question,
};
use crate::proxy::connection::end::End;
use crate::proxy::connection::framing::Request;
use crate::proxy::connection::in_progress::MessageInProgress;
use crate::proxy::connection::packing::{header_of, pack, unpack};
use crate::proxy::connection::planner::{PlanThread, PlannedStep, Planner, is_long, offload};
use crate::proxy::connection::pooling::barrier;
use crate::proxy::interceptor::Interceptor;
use crate::proxy::server_side::pool::CheckoutError;
use crate::proxy::transport::socket::{ClientSocket, ServerSocket};
use crate::rate_limit::{RateLimit, quoted};
use crate::wire::compressed::{CompressedEnvelope, Compressor, compress, inner_op_code};
use crate::wire::{Header, OpCode};

/// Rate limit for warnings of the query listener: a client can cause thousands in a second.
static QUERY_WARNINGS: RateLimit = RateLimit::per_second(100);

impl<C, U, P> MessageInProgress<'_, C, U, P>
where
    C: ClientSocket,
    U: ServerSocket,
    P: Interceptor,
{
    /// Processes a collected request. When this returns, the write buffers hold what remains to be sent. A compressed
    /// message is decompressed for evaluation, and the evaluated content is what is sent.
    ///
    /// # Errors
    /// [`End`]: either side closed, or the plan closes the connection.
    pub(super) async fn process(mut self, request: Request, frame: Vec<u8>) -> Result<(), End> {
        let began = self.relay.listener_context.process.traffic.meter.now();
        if let Some(registration) = &self.relay.client.registration {
            registration.note_command(Some(self.relay.pending.command), began);
        }
        if request == Request::Convert {
            self.convert(frame).await?;
            self.relay.pending.record_forwarded(&self.relay.listener_context.process.traffic.meter, began);
            return Ok(());
        }
        self.carry_out(request, frame).await?;
        self.relay.pending.keep(self.permits);
        let meter = &self.relay.listener_context.process.traffic.meter;
        self.relay.pending.record_evaluated(meter, began, self.nanoseconds, self.relay.client.sender());
        self.relay.note_command(began);
        Ok(())
    }

    /// Forwards a message with the upstream's compression.
    async fn convert(&mut self, frame: Vec<u8>) -> Result<(), End> {
        let expects_reply = self.watched;
        let (frame, came) = self.decompressed(frame).await?;
        self.remember(&frame, &frame, expects_reply);
        self.forward(frame, came, expects_reply, false).await
    }

    async fn carry_out(&mut self, request: Request, frame: Vec<u8>) -> Result<(), End> {
        if let Some(pooling) = self.relay.pooling.as_mut().filter(|_| request != Request::Repeat) {
            pooling.begin_request();
        }
        self.wait_for_room(&frame).await?;
        let (frame, came) = self.decompressed(frame).await?;
        let preferred = {
            let rules = self.relay.listener_context.process.rules.current.load();
            rules.preferred(&frame, &self.relay.client.state)
        };
        let (frame, preference) = match preferred {
            Some(PreferredRead { message, preference }) => (message, Some(preference)),
            None => (frame, None),
        };
        if self.relay.is_shared() && self.reply_without_rules((request, preference), &frame, came).await? {
            return Ok(());
        }
        let measured = offload(frame.len(), move || (evaluation_length(&frame), frame));
        let (length, frame) = measured.await?;
        self.keep(length).await?;
        self.relay.pending.span =
            self.relay.listener_context.process.traffic.meter.open_evaluated(&RequestHead::new(&frame));
        let (recorded, frame) = self.record(frame).await?;
        let rules = self.relay.listener_context.process.rules.current.load();
        let frame = match rules.admit(&frame, &self.relay.client.state.listener_kind) {
            QueryAdmission::Original => frame,
            QueryAdmission::Instead(instead) => instead,
            QueryAdmission::Rejected(rejection) => {
                let step = self.note_rejected_query(rejection, &**rules, &frame).await?;
                let step = self.record_reply(recorded, step, &frame).await?;
                return self.conclude(step, frame, came).await;
            }
        };
        let request_id = Header::parse(&frame).ok().flatten().map_or(0, |header| header.request_id);
        let (last, frame) = if is_long(frame.len()) {
            let process = self.relay.listener_context.process.clone();
            let mut thread = PlanThread::start(Arc::clone(&rules), frame, process);
            let last = self.run_plan(Planner::Elsewhere(&mut thread), request_id).await?;
            (last, thread.finish().await?)
        } else {
            (self.run_plan(Planner::here(&**rules, &frame), request_id).await?, frame)
        };
        let last = self.record_reply(recorded, last, &frame).await?;
        self.conclude(last, frame, came).await
    }

    /// Performs the steps of a plan and returns its last step.
    async fn run_plan(&mut self, mut planner: Planner<'_, P>, request_id: i32) -> Result<Step, End> {
        let ended = self.run_steps(&mut planner, request_id).await;
        if ended.is_err() {
            let counters = &self.relay.listener_context.process.rules.outcomes;
            // The connection ends in any case.
            let _ = planner.publish_rest(&mut self.relay.client.state, counters).await;
        }
        ended
    }

    async fn run_steps(&mut self, planner: &mut Planner<'_, P>, request_id: i32) -> Result<Step, End> {
        let watched = self.watched;
        // Time is measured from the first exchange on: a plan without one needs no clock.
        let mut begun = None;
        let mut input = Input::Start;
        loop {
            let PlannedStep { step, outcomes, must_finish } = planner.next(input, &mut self.relay.client.state).await?;
            self.watched = watched && !must_finish;
            self.learn_users(&outcomes, request_id).await?;
            let counters = &self.relay.listener_context.process.rules.outcomes;
            planner.publish_outcomes(outcomes, &mut self.relay.client.state, counters).await?;
            input = match step {
                Step::Exchange(message) => {
                    begun.get_or_insert_with(Instant::now);
                    Input::Reply(self.exchange(message).await?)
                }
                Step::ExchangeAll(messages) => {
                    begun.get_or_insert_with(Instant::now);
                    Input::Replies(self.exchange_all(messages).await?)
                }
                Step::Lookup(lookup) => Input::Found(self.look_up(lookup).await?),
                Step::Permits(requests) => match self.take_permits(requests, request_id).await? {
                    Ok(taken) => Input::Permits(taken),
                    Err(last) => return Ok(last),
                },
                Step::Yield => {
                    tokio::task::yield_now().await;
                    Input::Resumed
                }
                Step::Pause(duration) => {
                    tokio::time::sleep(duration).await;
                    Input::Paused { elapsed: begun.map_or(duration, |begun| begun.elapsed()) }
                }
                last => return Ok(last),
            };
        }
    }

    /// Logs and counts a command that the query listener rejected; returns its last step.
    async fn note_rejected_query(&mut self, rejection: QueryRejection, rules: &P, frame: &[u8]) -> Result<Step, End> {
        let QueryRejection { step, reason, outcomes } = rejection;
        if outcomes.is_empty()
            && let Some(suppressed) = QUERY_WARNINGS.line()
        {
            let (client, app) = (&*self.relay.client.state.client, self.relay.client.state.app_name());
            let reason = quoted(&reason);
            tracing::warn!(client, app, suppressed, "the query listener rejected a command: {reason}");
        }
        let request_id = Header::parse(frame).ok().flatten().map_or(0, |header| header.request_id);
        self.learn_users(&outcomes, request_id).await?;
        self.relay.listener_context.process.rules.outcomes.publish(
            outcomes,
            &self.relay.client.state,
            rules.rules(),
            frame,
        );
        Ok(step)
    }

    /// Answers a message of a client that shares connections, if it needs no rule or cannot get a connection; otherwise
    /// takes a connection for it.
    async fn reply_without_rules(
        &mut self,
        (request, preference): (Request, Option<ReadPreference>),
        frame: &[u8],
        came: Option<Compressor>,
    ) -> Result<bool, End> {
        match request {
            Request::Hello => {
                self.detach().await?;
                return self.reply_to_hello(frame, came).await.map(|()| true);
            }
            Request::Login => {
                self.detach().await?;
                return self.reply_to_authentication(frame, came).await.map(|()| true);
            }
            Request::Evaluate | Request::Repeat | Request::Convert => {}
        }
        let need = {
            let head = RequestHead::new(frame);
            // The engine rejects the login. It must not take a connection.
            if head.class().or_else(|| Some(Command::parse(frame).ok()?.class)) == Some(CommandClass::Authenticate) {
                return Ok(false);
            }
            let need = self.relay.pooling.as_mut().map(|pooling| pooling.need(&head));
            need.map(|need| need.with_preference(preference).again(request == Request::Repeat))
        };
        let Some(need) = need else { return Ok(false) };
        let asked = self.relay.listener_context.process.traffic.meter.now();
        if self.relay.pooling.as_ref().is_some_and(|pooling| pooling.must_move(&need)) {
            self.detach().await?;
        }
        self.keeps_connection = self.relay.pooling.as_ref().is_some_and(|pooling| pooling.has_unacknowledged());
        let mut failure = self.take_connection(&need).await?;
        let kills = RequestHead::new(frame).name() == Some(b"killCursors");
        while failure.as_ref().is_some_and(CheckoutError::is_without_member)
            && self.relay.pooling.as_mut().is_some_and(|pooling| pooling.looks_elsewhere(&need, kills))
        {
            failure = self.take_connection(&need).await?;
        }
        self.nanoseconds += self.relay.listener_context.process.traffic.meter.since(asked);
        let Some(error) = failure else { return Ok(false) };
        let head = RequestHead::new(frame);
        let pooling = self.relay.pooling.as_deref().filter(|pooling| pooling.is_routed());
        let has_no_member = pooling.is_some() && error.is_without_member() && head.name() == Some(b"getMore");
        let reply = match AfterLoss::of_request(&head) {
            Some(after_loss) if has_no_member => Some(after_loss.reply_without_cursor()),
            _ => self.reject_without_connection(&error, header_of(frame)?),
        };
        let Some(reply) = reply else { return Err(error.into()) };
        let reply = self.own_reply(reply, frame);
        if self.watched {
            self.relay.client.out.push(pack(reply.into(), came).into_owned());
        }
        Ok(true)
    }

    /// Gives the connection of the client's last request back, before the client's user or compressors change: a later
    /// request must not use it.
    async fn detach(&mut self) -> Result<(), End> {
        if self.relay.pooling.as_mut().is_some_and(|pooling| pooling.is_attached() && pooling.needs_barrier()) {
            // At this member, even if it is no primary any more.
            self.send_barrier(barrier()).await?;
        }
        if let Some(pooling) = &mut self.relay.pooling {
            pooling.give_back(&mut self.relay.server.stream);
        }
        Ok(())
    }

    /// Performs the last step of a message that arrived compressed by `came`.
    async fn conclude(&mut self, last: Step, frame: Vec<u8>, came: Option<Compressor>) -> Result<(), End> {
        let last = match last {
            Step::ForwardOriginal { .. } | Step::Forward { .. } => self.with_connection(last, &frame).await?,
            last => last,
        };
        match last {
            Step::ForwardOriginal { expects_reply } => {
                let pooling = self.relay.pooling.as_ref();
                if let Some(others) = pooling.and_then(|pooling| pooling.send_to_others(&RequestHead::new(&frame))) {
                    self.while_connected(others).await?;
                }
                self.remember(&frame, &frame, expects_reply);
                self.forward(frame, came, expects_reply, true).await?;
            }
            Step::Forward { message, expects_reply } => {
                self.remember(&message, &frame, expects_reply);
                self.forward(message, came, expects_reply, true).await?;
            }
            Step::Reply(message) => {
                let message = self.relay.explained(&message).unwrap_or(message);
                let message = self.own_reply(message, &frame);
                let length = came.map_or(0, |_| message.len());
                let packed = offload(length, move || pack(message.into(), came).into_owned()).await?;
                self.relay.client.out.push(packed);
            }
            Step::Close(reason) => return Err(End::Unprocessable(reason)),
            Step::Silent
            | Step::Exchange(_)
            | Step::ExchangeAll(_)
            | Step::Lookup(_)
            | Step::Permits(_)
            | Step::Pause(_)
            | Step::Yield => {}
        }
        Ok(())
    }

    /// Keeps a request of a router's client that is sent as `sent`: it may have to be sent again.
    fn remember(&mut self, sent: &[u8], request: &[u8], expects_reply: bool) {
        if let Some(pooling) = &mut self.relay.pooling {
            pooling.remember(&RequestHead::new(sent), Some(request), expects_reply);
        }
    }

    /// The message without its compression. If it cannot be decompressed, the client gets an error and the connection
    /// closes: docward cannot tell whether the sender waits for a reply.
    async fn decompressed(&mut self, frame: Vec<u8>) -> Result<(Vec<u8>, Option<Compressor>), End> {
        let Ok(outer) = Header::of_frame(&frame) else { return Ok((frame, None)) };
        if outer.op_code != OpCode::Compressed {
            return Ok((frame, None));
        }
        let length = CompressedEnvelope::parse(&frame).ok().flatten().map_or(0, |envelope| envelope.header.length);
        let unpacked = move || {
            let unpacked = unpack(&frame).map(|(message, compressor)| (message.into_owned(), compressor));
            (unpacked, frame)
        };
        let (unpacked, frame) = offload(length, unpacked).await?;
        let opened = match unpacked {
            Ok((_, Some(compressor))) if !self.relay.negotiation.is_agreed_with_client(compressor) => {
                Err(format!("the message is compressed by {}, which was not agreed on in a hello", compressor.name()))
            }
            Ok(opened) => Ok(opened),
            Err(error) => Err(error.to_string()),
        };
        opened.map_err(|text| {
            let op_code = inner_op_code(&frame).unwrap_or(OpCode::Msg);
            let header = Header { op_code, ..outer };
            self.relay.client.out.push(error_reply(header, code::FAILED_TO_PARSE, &format!("docward: {text}"), |_| {}));
            End::Unprocessable(text)
        })
    }

    async fn forward(
        &mut self,
        message: Vec<u8>,
        came: Option<Compressor>,
        expects_reply: bool,
        is_evaluated: bool,
    ) -> Result<(), End> {
        let Ok(header) = Header::of_frame(&message) else {
            self.relay.server.out.push(message);
            return Ok(());
        };
        let method = self.relay.method_for_upstream(&header, &message, came);
        let length = method.map_or(0, |_| message.len());
        let packed = offload(length, move || match method.and_then(|method| compress(&message, method)) {
            Some(packed) => (packed, method),
            None => (message, None),
        });
        let (message, goes) = packed.await?;
        if expects_reply {
            self.relay.expect_reply(&header, came, goes, is_evaluated);
        }
        self.relay.server.out.push(message);
        Ok(())
    }

    /// Asks the server for the users before outcomes are logged: for other than routine ones the log names them, and the
    /// list of connections shows them, once an operator has opened it. They are asked once after each login.
    async fn learn_users(&mut self, outcomes: &[RuleOutcome], request_id: i32) -> Result<(), End> {
        if let Some(span) = &mut self.relay.pending.span {
            span.add_decisions(outcomes);
        }
        let is_shown = || self.relay.client.is_listed() || outcomes.iter().any(|one| !one.kind.is_routine());
        if self.relay.client.state.users.is_none() && is_shown() {
            self.ask_users(request_id).await?;
        }
        Ok(())
    }

    pub(super) async fn ask_users(&mut self, request_id: i32) -> Result<(), End> {
        let reply = self.exchange(users_question(request_id)).await?;
        self.relay.client.state.users = read_users(&reply);
        self.relay.client.note_identity();
        Ok(())
    }
}
