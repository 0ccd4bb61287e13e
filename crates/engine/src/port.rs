//! The port through which the functions that carry out a message ask their caller for each step.
//!
//! The functions are async so that their code is sequential: `port.exchange(command).await` returns the reply. They need
//! no runtime. [`Coroutine`] polls them once for each result that the caller passes, with a waker that does
//! nothing.

use std::future::poll_fn;
use std::mem::take;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use smallvec::SmallVec;

use super::backoff::random_pause;
use super::lookup::{Lookup, LookupError, LookupResult, Maximum, NumberRequest};
use super::outcome::{OutcomeKind, RuleOutcome, RuleOutcomes};
use super::server_times::ServerTimes;
use super::step::{Input, PermitRefusal, PermitRequest, Step};
use super::{ClientState, OwnSession, server_errors};
use crate::command::{Namespace, Reply};
use crate::patterns::Rejection;
use crate::rules::Rule;

/// Continue, or end the message with this final step.
pub(super) type Flow<T = ()> = ControlFlow<Step, T>;

/// Ends the message by closing the connection.
pub(super) fn close<T>(reason: &str) -> Flow<T> {
    Flow::Break(Step::Close(reason.to_owned()))
}

/// Parses the server's reply to `what`; ends the message if it cannot be parsed.
pub(super) fn parse_reply<'r>(frame: &'r [u8], what: &str) -> Flow<Reply<'r>> {
    Reply::parse(frame)
        .map_or_else(|_| close(&format!("the server's reply to {what} cannot be parsed")), Flow::Continue)
}

/// What a sent command is for. Only dry runs and tests use it, to make up a reply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum CommandPurpose {
    #[default]
    Command,
    /// A check of what a statement's own filter matches.
    MatchCheck,
    /// The server's record of an earlier send of the same write.
    Record,
}

/// One end of the connection between the functions and their caller.
#[derive(Debug, Clone)]
pub(super) struct Port(Arc<Mutex<PortState>>);

/// What both ends share. The functions ask for one step at a time.
#[derive(Debug)]
struct PortState {
    step: Option<Step>,
    purpose: CommandPurpose,
    /// The result of the step.
    input: Input,
    holds_transaction: bool,
    /// The newest times in the replies so far.
    times: ServerTimes,
    outcomes: RuleOutcomes,
    /// A copy of the client's, while the functions run.
    own_session: OwnSession,
    /// The client's state, which the caller lends only on request: few functions need it, and it is large.
    lent: Option<Box<ClientState>>,
    requests_client_state: bool,
}

impl Port {
    /// Sends a command and returns the server's reply.
    pub(super) fn exchange(&self, message: Vec<u8>) -> impl Future<Output = Vec<u8>> {
        self.exchange_for(CommandPurpose::Command, message)
    }

    /// Sends a command that has a purpose of its own.
    pub(super) fn exchange_for(&self, purpose: CommandPurpose, message: Vec<u8>) -> impl Future<Output = Vec<u8>> {
        self.ask(purpose, Step::Exchange(message), |input| match input {
            Input::Reply(reply) => Some(reply),
            _ => None,
        })
    }

    /// Sends commands without waiting between them, and returns the server's replies.
    pub(super) fn exchange_all(
        &self,
        messages: SmallVec<[Vec<u8>; 1]>,
    ) -> impl Future<Output = SmallVec<[Vec<u8>; 1]>> {
        self.ask(CommandPurpose::Command, Step::ExchangeAll(messages), |input| match input {
            Input::Replies(replies) => Some(replies),
            _ => None,
        })
    }

    /// Sends a command again whose reply `frame` is that the server is overloaded and has not begun it: after a pause,
    /// some times, until the time since the first exchange is longer than `limit`. Returns the last reply.
    pub(super) async fn repeat_after_overload(
        &self,
        mut frame: Vec<u8>,
        limit: Option<Duration>,
        command: impl Fn() -> Vec<u8>,
    ) -> Vec<u8> {
        /// As many as drivers make, with pauses as long as theirs (specification "Client Backpressure").
        const MAX_REPEATS: u32 = 5;
        /// The first pause is at most two to this power milliseconds.
        const FIRST_PAUSE: u32 = 7;
        let seed = self.own_session(|own_session| own_session.id);
        let mut left = limit;
        for repeat in 0..MAX_REPEATS {
            if !server_errors::is_overload_frame(&frame) {
                break;
            }
            let pause = random_pause(seed, repeat, FIRST_PAUSE + repeat);
            let elapsed = self.pause(left.map_or(pause, |left| pause.min(left))).await;
            left = limit.map(|limit| limit.saturating_sub(elapsed));
            if left == Some(Duration::ZERO) {
                break;
            }
            frame = self.exchange(command()).await;
        }
        frame
    }

    /// Requests numbers.
    pub(super) fn numbers(&self, request: NumberRequest) -> impl Future<Output = Result<LookupResult, LookupError>> {
        self.look_up(Lookup::Numbers(Box::new(request)), Ok)
    }

    /// Returns the largest number in a field; `None` when no document has a number there.
    pub(super) fn maximum(&self, maximum: Maximum) -> impl Future<Output = Result<Option<i64>, LookupError>> {
        self.look_up(Lookup::Maximum(Box::new(maximum)), LookupResult::into_maximum)
    }

    fn look_up<T>(
        &self,
        lookup: Lookup,
        convert: impl Fn(LookupResult) -> Result<T, LookupError>,
    ) -> impl Future<Output = Result<T, LookupError>> {
        self.ask(CommandPurpose::Command, Step::Lookup(lookup), move |input| match input {
            Input::Found(found) => Some(found.and_then(&convert)),
            _ => None,
        })
    }

    /// Takes permits.
    pub(super) fn permits(&self, requests: Vec<PermitRequest>) -> impl Future<Output = Result<(), PermitRefusal>> {
        self.ask(CommandPurpose::Command, Step::Permits(requests), |input| match input {
            Input::Permits(taken) => Some(taken),
            _ => None,
        })
    }

    /// Waits, and returns the time since the first exchange.
    pub(super) fn pause(&self, duration: Duration) -> impl Future<Output = Duration> {
        self.ask(CommandPurpose::Command, Step::Pause(duration), |input| match input {
            Input::Paused { elapsed } => Some(elapsed),
            _ => None,
        })
    }

    /// Lets other connections go on.
    pub(super) fn yield_now(&self) -> impl Future<Output = ()> {
        self.ask(CommandPurpose::Command, Step::Yield, |input| matches!(input, Input::Resumed).then_some(()))
    }

    /// Asks the caller for a step, and waits for a result that `read` accepts.
    fn ask<T>(
        &self,
        purpose: CommandPurpose,
        step: Step,
        read: impl Fn(Input) -> Option<T>,
    ) -> impl Future<Output = T> {
        {
            let shared = &mut *self.shared();
            (shared.purpose, shared.step) = (purpose, Some(step));
        }
        let mut is_asked = false;
        poll_fn(move |_| {
            if !std::mem::replace(&mut is_asked, true) {
                return Poll::Pending;
            }
            let input = std::mem::replace(&mut self.shared().input, Input::Start);
            read(input).map_or(Poll::Pending, Poll::Ready)
        })
    }

    /// Records whether docward has an open transaction of its own on the server.
    pub(super) fn hold_transaction(&self, holds: bool) {
        self.shared().holds_transaction = holds;
    }

    pub(super) fn add_outcome(
        &self,
        rule: &Rule,
        namespace: Namespace<'_>,
        kind: OutcomeKind,
        rejection: Option<&Rejection>,
    ) {
        self.shared().outcomes.add(rule, namespace, kind, rejection);
    }

    /// Adds outcomes.
    pub(super) fn outcomes<T>(&self, add: impl FnOnce(&mut RuleOutcomes) -> T) -> T {
        add(&mut self.shared().outcomes)
    }

    /// Uses the session for docward's own transactions.
    pub(super) fn own_session<T>(&self, with: impl FnOnce(&mut OwnSession) -> T) -> T {
        with(&mut self.shared().own_session)
    }

    /// Uses the client's state.
    pub(super) async fn client_state<T>(&self, with: impl FnOnce(&mut ClientState, &mut RuleOutcomes) -> T) -> T {
        let mut with = Some(with);
        poll_fn(|_| {
            let PortState { lent, requests_client_state, outcomes, .. } = &mut *self.shared();
            if let Some(lent) = lent
                && let Some(with) = with.take()
            {
                return Poll::Ready(with(lent, outcomes));
            }
            *requests_client_state = true;
            Poll::Pending
        })
        .await
    }

    fn shared(&self) -> MutexGuard<'_, PortState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Functions that carry out a message, suspended while their caller performs a step.
pub(super) struct Coroutine<'f> {
    port: Port,
    functions: Pin<Box<dyn Future<Output = Flow<Step>> + Send + 'f>>,
}

impl<'f> Coroutine<'f> {
    pub(super) fn new<F: Future<Output = Flow<Step>> + Send + 'f>(
        outcomes: RuleOutcomes,
        functions: impl FnOnce(Port) -> F,
    ) -> Self {
        let port = Port(Arc::new(Mutex::new(PortState {
            step: None,
            purpose: CommandPurpose::Command,
            input: Input::Start,
            holds_transaction: false,
            times: ServerTimes::default(),
            outcomes,
            own_session: OwnSession::default(),
            lent: None,
            requests_client_state: false,
        })));
        Self { functions: Box::pin(functions(port.clone())), port }
    }

    /// Passes the result of the last step and returns the next one. Must not be called after a final step.
    pub(super) fn resume(&mut self, input: Input, client_state: &mut ClientState) -> Step {
        {
            let shared = &mut *self.port.shared();
            match &input {
                Input::Reply(reply) => shared.times.add(reply),
                Input::Replies(replies) => replies.iter().for_each(|reply| shared.times.add(reply)),
                _ => {}
            }
            (shared.input, shared.own_session) = (input, client_state.own);
        }
        loop {
            let polled = self.functions.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            let shared = &mut *self.port.shared();
            let step = match polled {
                // Earlier parts may be newer than the one of which the reply is made: a commit, a match check.
                Poll::Ready(Flow::Continue(Step::Reply(reply)) | Flow::Break(Step::Reply(reply))) => {
                    Step::Reply(shared.times.written_to(reply))
                }
                Poll::Ready(Flow::Continue(last) | Flow::Break(last)) => last,
                Poll::Pending => match shared.step.take() {
                    Some(step) => step,
                    None if take(&mut shared.requests_client_state) => {
                        shared.lent.get_or_insert_with(|| Box::new(take(client_state)));
                        continue;
                    }
                    // No caller does this: each passes the result of the step that it got.
                    None => {
                        Step::Close("internal error: the result of a step is of another kind than the step".to_owned())
                    }
                },
            };
            if let Some(lent) = shared.lent.take() {
                *client_state = *lent;
            }
            client_state.own = shared.own_session;
            return step;
        }
    }

    pub(super) fn purpose(&self) -> CommandPurpose {
        self.port.shared().purpose
    }

    pub(super) fn holds_transaction(&self) -> bool {
        self.port.shared().holds_transaction
    }

    /// Ends the functions and returns the outcomes that were not taken.
    pub(super) fn into_outcomes(self) -> RuleOutcomes {
        take(&mut self.port.shared().outcomes)
    }

    /// Takes the outcomes that are final.
    pub(super) fn take_outcomes(&self) -> Vec<RuleOutcome> {
        self.port.shared().outcomes.take_final()
    }

    /// Takes all outcomes.
    pub(super) fn take_all_outcomes(&self) -> Vec<RuleOutcome> {
        self.port.shared().outcomes.take()
    }
}
