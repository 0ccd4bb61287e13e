//! The life of one client connection, from the first byte to a bounded goodbye.

use std::future::poll_fn;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::door::Closing;
use super::end::End;
use super::limits::Patience;
use super::policy::Policy;
use super::relay::{Event, Relay};

/// How long a draining connection must be quiet before it is closed. A driver that closes its idle connections
/// because its monitor's was closed has done so by then, and one that looks at a socket before it uses it again does
/// so after a second: so a close and a request do not cross.
const QUIET: Duration = Duration::from_millis(1200);
/// How long what is still under way may take when one side has gone.
const GOODBYE: Duration = Duration::from_secs(5);

/// Relays until either side closes, a message closes the connection, `patience` ends, or `closing` asks for the end and
/// nothing is under way for a while. When `closing` wants it to be passed on, the relay is given back, and both sides
/// stay open.
pub(super) async fn run<C, U, P>(
    mut relay: Relay<C, U, P>,
    mut closing: watch::Receiver<Closing>,
    mut patience: Patience,
) -> Option<Relay<C, U, P>>
where
    C: AsyncRead + AsyncWrite + Unpin + Send,
    U: AsyncRead + AsyncWrite + Unpin + Send,
    P: Policy,
{
    let mut awaited = Closing::Pass;
    let end = loop {
        let event = tokio::select! {
            biased;
            event = poll_fn(|cx| relay.poll(cx)) => event,
            heard = hear(&mut closing, awaited), if awaited > Closing::Open => {
                relay.passing = heard == Some(Closing::Pass);
                relay.draining = !relay.passing;
                awaited = match heard {
                    Some(Closing::Now) => break End::Drained,
                    Some(Closing::Pass) => Closing::WhenIdle,
                    Some(_) => Closing::Now,
                    None => Closing::Open,
                };
                continue;
            }
            // Boxed: most sessions never drain.
            () = async { Box::pin(sleep(QUIET)).await }, if relay.draining => match relay.is_quiet() {
                true => break End::Drained,
                false => continue,
            },
            () = patience.run_out() => {
                let (activity, busy) = relay.take_activity();
                match patience.judge(activity, busy) {
                    Ok(()) => continue,
                    Err(end) => break end,
                }
            }
        };
        match event {
            Event::End(end) => break end,
            Event::Stands => return Some(relay),
            // Boxed: most sessions never judge, and their task should not be as large as a plan's.
            Event::Judge(frame) => {
                if let Err(end) = Box::pin(relay.judge(frame)).await {
                    break end;
                }
            }
        }
    };
    if end.is_remarkable() {
        tracing::warn!(client = relay.session.client, app = relay.session.app_name, "connection closed: {end}");
    } else {
        tracing::debug!(client = relay.session.client, app = relay.session.app_name, "connection closed: {end}");
    }
    // Whoever does not take the last bytes in time loses them.
    let _ = Box::pin(timeout(GOODBYE, goodbye(&mut relay, &end))).await;
    None
}

/// Waits for a word at least as urgent; `None`: the listener is gone, and nothing more will be heard.
async fn hear(closing: &mut watch::Receiver<Closing>, awaited: Closing) -> Option<Closing> {
    closing.wait_for(|closing| *closing >= awaited).await.ok().map(|closing| *closing)
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
