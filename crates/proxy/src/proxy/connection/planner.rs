//! Runs the plan of one message: on the connection's thread or, if the message is large, on another one, so that the
//! other connections of the thread do not wait for it. The other thread belongs to the plan until its end, also while
//! it waits for the server: what it allocates is freed where it was allocated, and so returns to the system.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::engine::{ClientState, Input, Now, RuleOutcome, Step};
use crate::proxy::connection::end::End;
use crate::proxy::interceptor::{Interceptor, Steps};
use crate::proxy::process::context::ProcessContext;
use crate::proxy::telemetry::outcome_counters::OutcomeCounters;

/// Bytes from which work that takes time in proportion to them runs on another thread. That many take some hundred
/// microseconds.
const MAX_INLINE_LENGTH: usize = 128 * 1024;

/// A step of a plan, and what the rules decided on the way to it.
#[derive(Debug)]
pub(super) struct PlannedStep {
    pub(super) step: Step,
    pub(super) outcomes: Vec<RuleOutcome>,
    /// See [`crate::engine::Plan::must_finish`].
    pub(super) must_finish: bool,
}

/// A plan and the thread that runs it.
pub(super) enum Planner<'p, P: Interceptor> {
    Here { plan: P::Plan<'p>, rules: &'p P, frame: &'p [u8] },
    Elsewhere(&'p mut PlanThread),
}

/// The connection's end of a plan that runs on another thread.
#[derive(Debug)]
pub(super) struct PlanThread {
    requests: Sender<(PlanRequest, ClientState)>,
    /// The turn after [`PlanRequest::Next`].
    results: mpsc::Receiver<(Option<PlannedStep>, ClientState)>,
    /// Returns the message.
    thread: JoinHandle<Vec<u8>>,
}

/// What the other thread does next.
#[derive(Debug)]
enum PlanRequest {
    Next(Input),
    /// Count and log the outcomes.
    Note(Vec<RuleOutcome>),
    /// Count and log the outcomes of a plan that cannot be continued.
    NoteRest,
}

impl PlannedStep {
    fn take(plan: &mut impl Steps, input: Input, client_state: &mut ClientState) -> Self {
        let step = plan.next(input, client_state);
        Self { step, outcomes: plan.take_outcomes(), must_finish: plan.must_finish() }
    }
}

impl<'p, P: Interceptor> Planner<'p, P> {
    pub(super) fn here(rules: &'p P, frame: &'p [u8]) -> Self {
        Self::Here { plan: rules.plan(frame, now()), rules, frame }
    }

    /// Passes the result of the last step and returns the next one.
    pub(super) async fn next(&mut self, input: Input, client_state: &mut ClientState) -> Result<PlannedStep, End> {
        match self {
            Self::Here { plan, .. } => Ok(PlannedStep::take(plan, input, client_state)),
            Self::Elsewhere(thread) => {
                thread.ask(PlanRequest::Next(input), client_state).await?.ok_or_else(worker_failed)
            }
        }
    }

    /// Counts and logs outcomes.
    pub(super) async fn publish_outcomes(
        &mut self,
        outcomes: Vec<RuleOutcome>,
        client_state: &mut ClientState,
        counters: &OutcomeCounters,
    ) -> Result<(), End> {
        match self {
            Self::Here { rules, frame, .. } => counters.publish(outcomes, client_state, rules.rules(), frame),
            Self::Elsewhere(_) if outcomes.is_empty() => {}
            Self::Elsewhere(thread) => _ = thread.ask(PlanRequest::Note(outcomes), client_state).await?,
        }
        Ok(())
    }

    /// Counts and logs the outcomes of a plan that cannot be continued.
    pub(super) async fn publish_rest(
        &mut self,
        client_state: &mut ClientState,
        counters: &OutcomeCounters,
    ) -> Result<(), End> {
        match self {
            Self::Here { plan, rules, frame } => counters.publish(plan.take_rest(), client_state, rules.rules(), frame),
            Self::Elsewhere(thread) => _ = thread.ask(PlanRequest::NoteRest, client_state).await?,
        }
        Ok(())
    }
}

impl PlanThread {
    pub(super) fn start<P: Interceptor>(rules: Arc<P>, frame: Vec<u8>, process: Arc<ProcessContext<P>>) -> Self {
        let (requests, requested) = channel();
        let (sender, results) = mpsc::channel(1);
        let thread = spawn_blocking(move || {
            run(&*rules, &frame, &process.rules.outcomes, &requested, &sender);
            frame
        });
        Self { requests, results, thread }
    }

    /// Ends the plan and returns its message.
    pub(super) async fn finish(self) -> Result<Vec<u8>, End> {
        drop(self.requests);
        self.thread.await.map_err(|_| worker_failed())
    }

    /// Lends `client_state` to the thread while it works.
    async fn ask(&mut self, request: PlanRequest, client_state: &mut ClientState) -> Result<Option<PlannedStep>, End> {
        self.requests.send((request, std::mem::take(client_state))).map_err(|_| worker_failed())?;
        let (turn, lent) = self.results.recv().await.ok_or_else(worker_failed)?;
        *client_state = lent;
        Ok(turn)
    }
}

/// Works until the connection ends the plan.
fn run<P: Interceptor>(
    rules: &P,
    frame: &[u8],
    counters: &OutcomeCounters,
    requested: &Receiver<(PlanRequest, ClientState)>,
    results: &mpsc::Sender<(Option<PlannedStep>, ClientState)>,
) {
    let mut plan = rules.plan(frame, now());
    while let Ok((request, mut client_state)) = requested.recv() {
        let turn = match request {
            PlanRequest::Next(input) => Some(PlannedStep::take(&mut plan, input, &mut client_state)),
            PlanRequest::Note(outcomes) => {
                counters.publish(outcomes, &client_state, rules.rules(), frame);
                None
            }
            PlanRequest::NoteRest => {
                counters.publish(plan.take_rest(), &client_state, rules.rules(), frame);
                None
            }
        };
        if results.blocking_send((turn, client_state)).is_err() {
            return;
        }
    }
}

/// Whether work in proportion to `length` runs on another thread.
pub(in crate::proxy) fn is_long(length: usize) -> bool {
    length > MAX_INLINE_LENGTH
}

/// Runs work that takes time in proportion to `length`, on another thread if it is long.
pub(super) async fn offload<T: Send + 'static>(
    length: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, End> {
    if !is_long(length) {
        return Ok(work());
    }
    spawn_blocking(work).await.map_err(|_| worker_failed())
}

/// A thread that is not the connection's own has panicked.
pub(super) fn worker_failed() -> End {
    End::Unprocessable("internal error: a worker thread failed".to_owned())
}

/// The wall-clock time.
pub(super) fn now() -> Now {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { milliseconds: i64::try_from(since.as_millis()).unwrap_or(i64::MAX) }
}
