//! The life of one client connection, from the first byte to a bounded goodbye.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::door::Closing;
use super::doze::Dozer;
use super::end::End;
use super::limits::{Activity, Patience};
use super::policy::Policy;
use super::relay::{Event, Relay};
use crate::audit::one_line;
use crate::engine::Session;

/// How long a draining connection must be quiet before it is closed. A driver that closes its idle connections
/// because its monitor's was closed has done so by then, and one that looks at a socket before it uses it again does
/// so after a second: so a close and a request do not cross.
const QUIET: Duration = Duration::from_millis(1200);
/// How long what is still under way may take when one side has gone.
const GOODBYE: Duration = Duration::from_secs(5);

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parting {
    Closed,
    /// It was to be passed on: both sides are open, and the relay stands between two messages.
    Standing,
}

/// Why a relay is looked at though nothing came for it.
enum Interruption {
    /// The listener's word; `None`: it is gone.
    Heard(Option<Closing>),
    /// A draining connection may have been quiet for long enough.
    Quiet,
    OutOfPatience,
}

/// Relays until either side closes, a message closes the connection, `patience` ends, or `closing` asks for the end and
/// nothing is under way for a while.
pub(super) async fn run<C, U, P>(
    relay: &mut Relay<C, U, P>,
    mut closing: watch::Receiver<Closing>,
    mut patience: Patience,
) -> Parting
where
    C: AsyncRead + AsyncWrite + Unpin + Send,
    U: AsyncRead + AsyncWrite + Unpin + Send,
    P: Policy,
{
    let mut told = Closing::Open;
    // What the connection had done when it was last asked whether it is quiet.
    let mut seen = Activity::default();
    let dozer = Dozer::default();
    let end = loop {
        let event = {
            let interruption = pin!(interruption(&mut closing, told, relay.draining, &mut patience));
            tokio::select! {
                biased;
                event = poll_fn(|cx| relay.poll(cx)) => Ok(event),
                interruption = dozer.doze(interruption) => Err(interruption),
            }
        };
        match event {
            Ok(Event::End(end)) => break end,
            Ok(Event::Stands) => return Parting::Standing,
            // Boxed: most sessions never judge, and their task should not be as large as a plan's.
            Ok(Event::Judge(frame)) => {
                if let Err(end) = Box::pin(relay.judge(frame)).await {
                    break end;
                }
            }
            Err(Interruption::Heard(Some(Closing::Now))) => break End::Drained,
            Err(Interruption::Heard(word)) => {
                heed(relay, word);
                // Whose listener is gone hears nothing more.
                told = word.unwrap_or(Closing::Now);
            }
            Err(Interruption::Quiet) if relay.is_idle() && relay.activity == seen => break End::Drained,
            Err(Interruption::Quiet) => seen = relay.activity,
            Err(Interruption::OutOfPatience) => {
                if let Err(end) = patience.judge(relay.activity, relay.is_busy()) {
                    break end;
                }
            }
        }
    };
    relay.door.census.ended(&end);
    log(&end, &relay.session);
    // Whoever does not take the last bytes in time loses them.
    let _ = Box::pin(timeout(GOODBYE, goodbye(relay, &end))).await;
    Parting::Closed
}

/// Does as the listener says; where it is gone, the connection closes when it is idle.
fn heed<C, U, P>(relay: &mut Relay<C, U, P>, word: Option<Closing>)
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
    P: Policy,
{
    relay.passing = word == Some(Closing::Pass);
    match word {
        Some(Closing::Open | Closing::Pass) => {}
        Some(Closing::Retire) => relay.retire(),
        Some(Closing::WhenIdle | Closing::Now) | None => relay.draining = true,
    }
}

fn log(end: &End, session: &Session) {
    let Session { client, connection, app_name: app, .. } = session;
    // What clients send may be part of it.
    let end_text = one_line(&end.to_string());
    if end.is_remarkable() {
        tracing::warn!(client, connection, app, "connection closed: {end_text}");
    } else {
        tracing::debug!(client, connection, app, "connection closed: {end_text}");
    }
}

/// Waits for what may end the session beside its relay.
async fn interruption(
    closing: &mut watch::Receiver<Closing>,
    told: Closing,
    draining: bool,
    patience: &mut Patience,
) -> Interruption {
    tokio::select! {
        biased;
        heard = hear(closing, told), if told < Closing::Now => Interruption::Heard(heard),
        // Boxed: most sessions never drain.
        () = async { Box::pin(sleep(QUIET)).await }, if draining => Interruption::Quiet,
        () = patience.run_out() => Interruption::OutOfPatience,
    }
}

/// Waits for a more urgent word; `None`: the listener is gone, and nothing more will be heard.
async fn hear(closing: &mut watch::Receiver<Closing>, told: Closing) -> Option<Closing> {
    closing.wait_for(|closing| *closing > told).await.ok().map(|closing| *closing)
}

/// Delivers what can be delivered.
async fn goodbye<C, U, P>(relay: &mut Relay<C, U, P>, end: &End) -> std::io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
    P: Policy,
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
