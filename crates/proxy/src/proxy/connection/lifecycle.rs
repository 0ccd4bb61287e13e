//! Runs one client connection, from the first byte to a bounded final flush.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::sync::watch::error::RecvError;
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::engine::{ClientState, Retried};
use crate::proxy::connection::end::End;
use crate::proxy::connection::in_progress::MessageInProgress;
use crate::proxy::connection::polled_on_wake::WakeGate;
use crate::proxy::connection::relay::{Event, Relay};
use crate::proxy::connection::timeouts::{Activity, IdleTimeouts};
use crate::proxy::interceptor::Interceptor;
use crate::proxy::members::closing::{CandidateServer, Closing};
use crate::proxy::transport::socket::{ClientSocket, ServerSocket};
use crate::rate_limit::{RateLimit, quoted};

/// Idle time after which a draining connection closes. A driver that closes idle connections because its monitor's
/// connection closed has done so by then. A driver that checks sockets before reuse does so after one second. So
/// docward's close does not race with a request.
const IDLE_PERIOD: Duration = Duration::from_millis(1200);
/// Bound on delivering pending bytes after one side has closed.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Rate limit for warnings about ended connections: a client can cause thousands in a second.
static END_WARNINGS: RateLimit = RateLimit::per_second(100);

/// An event that interrupts the relay.
enum Interruption {
    End(End),
    /// The client's own server connection must be dialled.
    ServerNeeded,
    /// The client's first message has arrived, and its login where one is required.
    Established,
    /// The listener changed its state, or is gone.
    ClosingChanged(Result<(), RecvError>),
    /// [`IDLE_PERIOD`] has elapsed on a draining connection.
    IdlePeriodElapsed,
    /// The connection has reached its maximum lifetime, or the next step of its end after that is due.
    Expired,
    TimedOut,
}

/// A server connection of one client.
#[derive(Debug)]
pub(in crate::proxy) struct Dialled<U> {
    pub(in crate::proxy) stream: U,
    pub(in crate::proxy) server: CandidateServer,
}

/// One client connection.
pub(in crate::proxy) struct Connection<C, U: ServerSocket, P> {
    pub(in crate::proxy) relay: Relay<C, U, P>,
    /// The state of its listener.
    pub(in crate::proxy) closing: watch::Receiver<Closing>,
    pub(in crate::proxy) timeouts: IdleTimeouts,
}

impl<C, U, P> Connection<C, U, P>
where
    C: ClientSocket + Send,
    U: ServerSocket,
    P: Interceptor,
{
    /// Waits for the client's first message, and then connects the client to a server of its own by `dialling`. Returns
    /// false if the connection has ended.
    pub(in crate::proxy) async fn connect(&mut self, dialling: impl Future<Output = Result<Dialled<U>, End>>) -> bool {
        let dialled = match self.relay_until_end().await {
            Some(end) => Err(end),
            None => dialling.await,
        };
        match dialled {
            Ok(Dialled { stream, server }) => {
                if let Some(registration) = &self.relay.client.registration {
                    registration.note_server(&server.address.to_string());
                }
                self.relay.server.stream = Some(stream);
                self.closing = server.closing;
                true
            }
            Err(end) => {
                self.finish(end).await;
                false
            }
        }
    }

    /// Relays messages until either side closes, a message closes the connection, a timeout expires, or `closing` asks
    /// for the end and the connection is idle.
    pub(in crate::proxy) async fn run(&mut self) {
        let end = self.relay_until_end().await;
        self.finish(end.unwrap_or_else(|| End::UpstreamError(ErrorKind::NotConnected.into()))).await;
    }

    async fn finish(&mut self, end: End) {
        self.relay.listener_context.process.traffic.connection_counters.ended(end.kind());
        let unanswered = end.is_of_server() && self.relay.pending.oldest_command().is_some();
        log(&end, unanswered, &self.relay.client.state);
        let ended = Instant::now();
        let max_wait = self.relay.pooling.as_ref().map_or(FLUSH_TIMEOUT, |pooling| pooling.max_wait());
        // Bytes that the peer does not take in time are lost.
        let flush = AssertUnwindSafe(final_flush(&mut self.relay, &end)).catch_unwind();
        let _ = Box::pin(timeout(FLUSH_TIMEOUT.min(max_wait), flush)).await;
        if !end.is_of_server() {
            self.relay.abandon_server(ended + max_wait);
        }
        if let Some(pooling) = &mut self.relay.pooling {
            pooling.end_transaction();
        }
    }

    /// Relays until the connection ends; `None`: until the client's own server connection must be dialled. A panic is a
    /// fault of docward, and ends this connection as other errors do.
    async fn relay_until_end(&mut self) -> Option<End> {
        let relaying = AssertUnwindSafe(self.relay_until_interrupted()).catch_unwind().await;
        relaying.unwrap_or_else(|_| Some(End::Unprocessable("internal error: docward panicked".to_owned())))
    }

    async fn relay_until_interrupted(&mut self) -> Option<End> {
        let mut applied = if self.relay.drain_state.begun { Closing::Drain } else { Closing::Open };
        // Makes the current state, set before this connection began, count as a change.
        self.closing.mark_changed();
        // The activity at the last idle check.
        let mut seen = Activity::default();
        let wake_gate = WakeGate::default();
        // Registers the task once: its waker stays the same.
        poll_fn(|cx| Poll::Ready(_ = self.relay.client.poll_closing(cx))).await;
        loop {
            match self.next(applied, &wake_gate).await {
                Interruption::End(end) => return Some(end),
                Interruption::ServerNeeded => return None,
                Interruption::Established => self.timeouts.established(self.relay.client.state.own.id),
                Interruption::ClosingChanged(state) => {
                    let state = state.is_ok().then(|| *self.closing.borrow_and_update());
                    if state == Some(Closing::Now) {
                        return Some(End::Drained);
                    }
                    applied = apply(&mut self.relay, state, applied);
                    seen = self.relay.activity;
                }
                Interruption::IdlePeriodElapsed
                    if self.relay.is_idle() && self.relay.activity == seen && !self.relay.holds_transaction() =>
                {
                    return Some(self.relay.drain_state.end());
                }
                Interruption::IdlePeriodElapsed => {
                    seen = self.relay.activity;
                    self.relay.drain_state.closes = Some(Retried::ByDefault);
                }
                Interruption::Expired => {
                    let next = self.relay.expire(self.timeouts.max_lifetime());
                    self.timeouts.expire_in(next);
                }
                Interruption::TimedOut => {
                    let (relay, timeouts) = (&self.relay, &mut self.timeouts);
                    if let Err(end) =
                        timeouts.evaluate(relay.activity, relay.is_busy(), relay.client.unauthenticated_slot())
                    {
                        return Some(end);
                    }
                }
            }
        }
    }

    /// Relays until an event needs attention.
    async fn next(&mut self, applied: Closing, wake_gate: &WakeGate) -> Interruption {
        let Self { relay, closing, timeouts } = self;
        let changed = pin!(closing.changed());
        let mut changed = (applied < Closing::Now).then_some(changed);
        // Boxed: most connections never drain.
        let mut idle = relay.drain_state.closes.map(|_| Box::pin(sleep(IDLE_PERIOD)));
        let interruption = move |cx: &mut Context<'_>| poll_interruption(cx, changed.as_mut(), idle.as_mut(), timeouts);
        let mut interruption = wake_gate.poll_on_wake(poll_fn(interruption));
        loop {
            let event = poll_fn(|cx| {
                if relay.client.is_closing() {
                    return Poll::Ready(Ok(Event::End(End::ClosedByOperator)));
                }
                match relay.poll(cx) {
                    Poll::Ready(event) => Poll::Ready(Ok(event)),
                    Poll::Pending => interruption.poll_unpin(cx).map(Err),
                }
            });
            // Boxed: most connections never evaluate a message, and their task must not be as large as a plan.
            let processed = match event.await {
                Ok(Event::Collected(request, frame)) => {
                    Box::pin(MessageInProgress::new(relay, &frame).process(request, frame))
                }
                Ok(Event::End(end)) => return Interruption::End(end),
                Ok(Event::ServerNeeded) => return Interruption::ServerNeeded,
                Ok(Event::Established) => return Interruption::Established,
                Err(interruption) => return interruption,
            };
            if let Err(end) = processed.await {
                return Interruption::End(end);
            }
        }
    }
}

/// Applies the listener's `state` if it is more urgent than `applied`, the previous one, or ends the drain of another
/// process. If the listener is gone, the connection closes when it is idle and ignores later states. Returns the state
/// now applied.
fn apply<C, U, P>(relay: &mut Relay<C, U, P>, state: Option<Closing>, applied: Closing) -> Closing
where
    C: ClientSocket,
    U: ServerSocket,
    P: Interceptor,
{
    match state {
        Some(Closing::Open) if applied == Closing::Drain => relay.resume(),
        Some(state) if state <= applied => return applied,
        Some(Closing::Open) => {}
        Some(Closing::Drain) => relay.drain(),
        Some(Closing::WhenIdle | Closing::Now) | None => relay.drain_state.closes = Some(Retried::Always),
    }
    state.unwrap_or(Closing::Now)
}

/// `unanswered`: the server caused the end, and a command waited for its reply.
fn log(end: &End, unanswered: bool, client_state: &ClientState) {
    let (client, connection, app) = (&*client_state.client, client_state.connection, client_state.app_name());
    // The text may contain parts of the client's message.
    let mut end_text = quoted(&end.to_string());
    if unanswered {
        end_text.push_str(" before it replied to a command");
    }
    if end.is_remarkable() || unanswered {
        if let Some(suppressed) = END_WARNINGS.line() {
            tracing::warn!(client, connection, app, suppressed, "connection closed: {end_text}");
        }
    } else {
        tracing::debug!(client, connection, app, "connection closed: {end_text}");
    }
}

/// Polls for what can end the connection besides its relay.
fn poll_interruption(
    cx: &mut Context<'_>,
    changed: Option<&mut Pin<&mut impl Future<Output = Result<(), RecvError>>>>,
    idle: Option<&mut Pin<Box<Sleep>>>,
    timeouts: &mut IdleTimeouts,
) -> Poll<Interruption> {
    if let Some(Poll::Ready(changed)) = changed.map(|changed| changed.as_mut().poll(cx)) {
        return Poll::Ready(Interruption::ClosingChanged(changed));
    }
    if let Some(Poll::Ready(())) = idle.map(|idle| idle.poll_unpin(cx)) {
        return Poll::Ready(Interruption::IdlePeriodElapsed);
    }
    if timeouts.poll_expired(cx).is_ready() {
        return Poll::Ready(Interruption::Expired);
    }
    timeouts.poll_run_out(cx).map(|()| Interruption::TimedOut)
}

/// Sends the bytes that can still be delivered.
async fn final_flush<C, U, P>(relay: &mut Relay<C, U, P>, end: &End) -> Result<(), End>
where
    C: ClientSocket,
    U: ServerSocket,
    P: Interceptor,
{
    // An error here is either the end already reported or follows from it; the other side is still flushed.
    let _ = poll_fn(|cx| relay.server.poll_flush(cx)).await;
    if let End::ClientClosed = end {
        // The server also sees the close, and then finishes or cancels as for its own clients. A client that closed
        // only its sending half still gets its replies.
        if let Some(server) = &mut relay.server.stream {
            server.shutdown().await.map_err(End::UpstreamError)?;
        }
        // docward's own replies to hellos are of no use to a client that has gone.
        if !(relay.server.stream.is_none() && relay.pending.only_hellos()) {
            let _ = poll_fn(|cx| relay.poll_last_replies(cx)).await;
        }
    }
    poll_fn(|cx| relay.client.poll_flush(cx)).await?;
    relay.client.stream.shutdown().await.map_err(End::ClientError)
}
