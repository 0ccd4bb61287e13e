//! The port through which the functions that carry out a message ask their caller for each step.
//!
//! The functions are async, so that they read straight down: `port.exchange(command).await` returns the reply. They
//! need no runtime. [`Coroutine`] polls them once for each result that the caller passes, with a waker that does
//! nothing.

use std::future::poll_fn;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::ClientState;
use super::lookup::{Lease, Lookup, LookupError, LookupResult, Maximum};
use super::outcome::{OutcomeKind, RuleOutcomes};
use super::plan::{Input, Step};
use crate::command::Namespace;
use crate::patterns::Rejection;
use crate::rules::Rule;

/// Continue, or end the message with this final step.
pub(super) type Flow<T = ()> = ControlFlow<Step, T>;

/// Ends the message by closing the connection.
pub(super) fn close<T>(reason: &str) -> Flow<T> {
    Flow::Break(Step::Close(reason.to_owned()))
}

/// What a sent command is for. Only dry runs and tests use it, to make up a reply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Purpose {
    #[default]
    Command,
    /// A check of what a statement's own filter matches.
    MatchCheck,
    /// The server's record of an earlier send of the same write.
    Record,
}

/// One end of the connection between the functions and their caller.
#[derive(Debug, Clone, Default)]
pub(super) struct Port(Arc<Mutex<Shared>>);

/// What both ends share. The functions ask for one step at a time; each kind of result has its own field.
#[derive(Debug, Default)]
struct Shared {
    /// A command to send. It is apart from the other steps because it is by far the most frequent one.
    message: Option<Vec<u8>>,
    step: Option<Step>,
    purpose: Purpose,
    reply: Option<Vec<u8>>,
    found: Option<Result<LookupResult, LookupError>>,
    elapsed: Option<Duration>,
    resumed: Option<()>,
    holds_transaction: bool,
    lent: Lent,
}

/// What the caller lends while the functions run.
#[derive(Debug, Default)]
pub(super) struct Lent {
    pub(super) client_state: ClientState,
    pub(super) outcomes: RuleOutcomes,
}

impl Port {
    /// Sends a command and returns the server's reply.
    pub(super) async fn exchange(&self, message: Vec<u8>) -> Vec<u8> {
        self.exchange_for(Purpose::Command, message).await
    }

    /// Sends a command that has a purpose of its own.
    pub(super) async fn exchange_for(&self, purpose: Purpose, message: Vec<u8>) -> Vec<u8> {
        let mut message = Some(message);
        poll_fn(|_| {
            let shared = &mut *self.shared();
            if message.is_some() {
                (shared.purpose, shared.message) = (purpose, message.take());
                return Poll::Pending;
            }
            shared.reply.take().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Leases numbers: as many as requested, ascending.
    pub(super) async fn lease(&self, lease: Lease) -> Result<Vec<i64>, LookupError> {
        let count = lease.count as usize;
        match self.look_up(Lookup::Lease(Box::new(lease))).await? {
            LookupResult::Numbers(numbers) if numbers.len() == count => Ok(numbers),
            _ => Err(other_lookup()),
        }
    }

    /// Returns the largest number in a field; `None` when no document has a number there.
    pub(super) async fn maximum(&self, maximum: Maximum) -> Result<Option<i64>, LookupError> {
        match self.look_up(Lookup::Maximum(Box::new(maximum))).await? {
            LookupResult::Maximum(maximum) => Ok(maximum),
            LookupResult::Numbers(_) => Err(other_lookup()),
        }
    }

    async fn look_up(&self, lookup: Lookup) -> Result<LookupResult, LookupError> {
        self.ask(Step::Lookup(lookup), |shared| shared.found.take()).await
    }

    /// Waits, and returns the time since the first exchange.
    pub(super) async fn pause(&self, duration: Duration) -> Duration {
        self.ask(Step::Pause(duration), |shared| shared.elapsed.take()).await
    }

    /// Lets other connections go on.
    pub(super) async fn give_way(&self) {
        self.ask(Step::Yield, |shared| shared.resumed.take()).await;
    }

    /// Says whether docward has an open transaction of its own on the server.
    pub(super) fn hold_transaction(&self, holds: bool) {
        self.shared().holds_transaction = holds;
    }

    pub(super) fn note(&self, rule: &Rule, namespace: Namespace<'_>, kind: OutcomeKind, rejection: Option<&Rejection>) {
        self.shared().lent.outcomes.add(rule, namespace, kind, rejection);
    }

    /// Uses what the caller lends.
    pub(super) fn lent<T>(&self, with: impl FnOnce(&mut Lent) -> T) -> T {
        with(&mut self.shared().lent)
    }

    async fn ask<T>(&self, step: Step, take: impl Fn(&mut Shared) -> Option<T>) -> T {
        {
            let shared = &mut *self.shared();
            (shared.purpose, shared.step) = (Purpose::Command, Some(step));
        }
        poll_fn(|_| take(&mut self.shared()).map_or(Poll::Pending, Poll::Ready)).await
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn other_lookup() -> LookupError {
    LookupError::Unavailable("internal error: the answer of the service belongs to another lookup".to_owned())
}

/// Functions that carry out a message, suspended while their caller performs a step.
pub(super) struct Coroutine<'f> {
    port: Port,
    functions: Pin<Box<dyn Future<Output = Step> + Send + 'f>>,
}

impl<'f> Coroutine<'f> {
    pub(super) fn new<F: Future<Output = Step> + Send + 'f>(functions: impl FnOnce(Port) -> F) -> Self {
        let port = Port::default();
        Self { functions: Box::pin(functions(port.clone())), port }
    }

    /// Passes the result of the last step and returns the next one. Must not be called after a final step.
    pub(super) fn resume(&mut self, input: Input, client_state: &mut ClientState, outcomes: &mut RuleOutcomes) -> Step {
        {
            let shared = &mut *self.port.shared();
            match input {
                Input::Start => {}
                Input::Reply(reply) => shared.reply = Some(reply),
                Input::Found(found) => shared.found = Some(found),
                Input::Resumed => shared.resumed = Some(()),
                Input::Paused { elapsed } => shared.elapsed = Some(elapsed),
            }
            shared.lent.swap(client_state, outcomes);
        }
        let polled = self.functions.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let shared = &mut *self.port.shared();
        shared.lent.swap(client_state, outcomes);
        match polled {
            Poll::Ready(last) => last,
            Poll::Pending => match shared.message.take() {
                Some(message) => Step::Exchange(message),
                None => shared.step.take().unwrap_or_else(|| {
                    Step::Close("internal error: the result of a step is of another kind than the step".to_owned())
                }),
            },
        }
    }

    pub(super) fn purpose(&self) -> Purpose {
        self.port.shared().purpose
    }

    pub(super) fn holds_transaction(&self) -> bool {
        self.port.shared().holds_transaction
    }
}

impl Lent {
    fn swap(&mut self, client_state: &mut ClientState, outcomes: &mut RuleOutcomes) {
        std::mem::swap(&mut self.client_state, client_state);
        std::mem::swap(&mut self.outcomes, outcomes);
    }
}
