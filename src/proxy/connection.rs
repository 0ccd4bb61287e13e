//! The life of one client connection, from the first byte to a bounded final_flush.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::sync::watch::error::RecvError;
use tokio::time::{Sleep, sleep, timeout};

use super::end::End;
use super::interceptor::Interceptor;
use super::limits::{Activity, IdleTimeouts};
use super::listener::Closing;
use super::polled_on_wake::WakeGate;
use super::rate_limit::{RateLimit, quoted};
use super::relay::{Event, Relay};
use crate::engine::Session;

/// How long a draining connection must be quiet before it is closed. A driver that closes its idle connections
/// because its monitor's was closed has done so by then, and one that looks at a socket before it uses it again does
/// so after a second: so a close and a request do not cross.
const QUIET: Duration = Duration::from_millis(1200);
/// How long what is still under way may take when one side has gone.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Lines on ends that somebody should look at: a client can bring about thousands in a second.
static ENDS: RateLimit = RateLimit::of(100);

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionOutcome {
    Closed,
    /// It was to be passed on: both sides are open, and the relay stands between two messages.
    Quiescent,
}

/// What the relaying of messages stops for.
enum RelayEvent {
    End(End),
    /// The client's first message has come, and its login where there has to be one.
    Arrived,
    /// The relay was to be passed on, and stands between two messages.
    Stands,
    /// The listener has said something, or is gone.
    Told(Result<(), RecvError>),
    /// A draining connection may have been quiet for long enough.
    Quiet,
    TimedOut,
}

/// One client connection.
#[derive(Debug)]
pub(super) struct Connection<C, U, P> {
    pub(super) relay: Relay<C, U, P>,
    /// What its listener says of it.
    pub(super) closing: watch::Receiver<Closing>,
    pub(super) timeouts: IdleTimeouts,
}

impl<C, U, P> Connection<C, U, P>
where
    C: AsyncRead + AsyncWrite + Unpin + Send,
    U: AsyncRead + AsyncWrite + Unpin + Send,
    P: Interceptor,
{
    /// Relays until either side closes, a message closes the connection, `timeouts` ends, or `closing` asks for the end
    /// and nothing is under way for a while.
    pub(super) async fn run(&mut self) -> ConnectionOutcome {
        let Some(end) = self.end().await else { return ConnectionOutcome::Quiescent };
        self.relay.listener_context.connection_counters.ended(&end);
        log(&end, &self.relay.session);
        // Whoever does not take the last bytes in time loses them.
        let _ = Box::pin(timeout(FLUSH_TIMEOUT, final_flush(&mut self.relay, &end))).await;
        ConnectionOutcome::Closed
    }

    /// Relays until the end; `None`: until it stands.
    async fn end(&mut self) -> Option<End> {
        let mut told = Closing::Open;
        // What was said before the connection came is news to it.
        self.closing.mark_changed();
        // What the connection had done when it was last asked whether it is quiet.
        let mut seen = Activity::default();
        let wake_gate = WakeGate::default();
        loop {
            match self.next(told, &wake_gate).await {
                RelayEvent::End(end) => return Some(end),
                RelayEvent::Arrived => self.timeouts.arrived(),
                RelayEvent::Stands => return None,
                RelayEvent::Told(word) => {
                    let word = word.is_ok().then(|| *self.closing.borrow_and_update());
                    if word == Some(Closing::Now) {
                        return Some(End::Drained);
                    }
                    told = obey(&mut self.relay, word, told);
                }
                RelayEvent::Quiet if self.relay.is_idle() && self.relay.activity == seen => {
                    return Some(End::Drained);
                }
                RelayEvent::Quiet => seen = self.relay.activity,
                RelayEvent::TimedOut => {
                    let (relay, timeouts) = (&self.relay, &mut self.timeouts);
                    if let Err(end) = timeouts.evaluate(relay.activity, relay.is_busy(), relay.unauthenticated_slot()) {
                        return Some(end);
                    }
                }
            }
        }
    }

    /// Relays until something comes up.
    async fn next(&mut self, told: Closing, wake_gate: &WakeGate) -> RelayEvent {
        let Self { relay, closing, timeouts } = self;
        let word = pin!(closing.changed());
        let mut word = (told < Closing::Now).then_some(word);
        // Boxed: most sessions never drain.
        let mut quiet = relay.draining.then(|| Box::pin(sleep(QUIET)));
        let interruption = move |cx: &mut Context<'_>| interruption(cx, word.as_mut(), quiet.as_mut(), timeouts);
        let mut interruption = wake_gate.poll_on_wake(poll_fn(interruption));
        loop {
            let event = poll_fn(|cx| match relay.poll(cx) {
                Poll::Ready(event) => Poll::Ready(Ok(event)),
                Poll::Pending => interruption.poll_unpin(cx).map(Err),
            });
            // Boxed: most sessions never evaluate, and their task should not be as large as a plan's.
            let evaluated = match event.await {
                Ok(Event::Evaluate(frame)) => Box::pin(relay.evaluate(frame)),
                Ok(Event::End(end)) => return RelayEvent::End(end),
                Ok(Event::Arrived) => return RelayEvent::Arrived,
                Ok(Event::Stands) => return RelayEvent::Stands,
                Err(pause) => return pause,
            };
            if let Err(end) = evaluated.await {
                return RelayEvent::End(end);
            }
        }
    }
}

/// Does as the listener says, if that is more urgent than what it was `told` before; where the listener is gone, the
/// connection closes when it is idle, and hears nothing more. Gives what it has been told by now.
fn obey<C, U, P>(relay: &mut Relay<C, U, P>, word: Option<Closing>, told: Closing) -> Closing
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
    P: Interceptor,
{
    if word.is_some_and(|word| word <= told) {
        return told;
    }
    relay.passing = word == Some(Closing::Pass);
    match word {
        Some(Closing::Open | Closing::Pass) => {}
        Some(Closing::Retire) => relay.drain(),
        Some(Closing::WhenIdle | Closing::Now) | None => relay.draining = true,
    }
    word.unwrap_or(Closing::Now)
}

fn log(end: &End, session: &Session) {
    let (client, connection, app) = (&*session.client, session.connection, session.app_name());
    // What clients send may be part of it.
    let end_text = quoted(&end.to_string());
    if end.is_remarkable() {
        if let Some(left_out) = ENDS.line() {
            tracing::warn!(client, connection, app, left_out, "connection closed: {end_text}");
        }
    } else {
        tracing::debug!(client, connection, app, "connection closed: {end_text}");
    }
}

/// Looks for what may end the session beside its relay.
fn interruption(
    cx: &mut Context<'_>,
    word: Option<&mut Pin<&mut impl Future<Output = Result<(), RecvError>>>>,
    quiet: Option<&mut Pin<Box<Sleep>>>,
    timeouts: &mut IdleTimeouts,
) -> Poll<RelayEvent> {
    if let Some(Poll::Ready(word)) = word.map(|word| word.as_mut().poll(cx)) {
        return Poll::Ready(RelayEvent::Told(word));
    }
    if let Some(Poll::Ready(())) = quiet.map(|quiet| quiet.poll_unpin(cx)) {
        return Poll::Ready(RelayEvent::Quiet);
    }
    timeouts.poll_run_out(cx).map(|()| RelayEvent::TimedOut)
}

/// Delivers what can be delivered.
async fn final_flush<C, U, P>(relay: &mut Relay<C, U, P>, end: &End) -> std::io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
    P: Interceptor,
{
    // An error here is the end that is already known, or the next one; the other side is still served.
    let _ = poll_fn(|cx| relay.to_upstream.poll_flush(cx, &mut relay.upstream)).await;
    if let End::ClientClosed = end {
        // The server sees the end too, finishes or cancels as it does for its own clients, and a client that
        // only closed its sending half still gets its replies.
        relay.upstream.shutdown().await?;
        let _ = poll_fn(|cx| relay.poll_last_replies(cx)).await;
    }
    poll_fn(|cx| relay.to_client.poll_flush(cx, &mut relay.client)).await?;
    relay.client.shutdown().await
}
