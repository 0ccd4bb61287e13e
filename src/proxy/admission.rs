//! A client's connection from being accepted to being relayed: counted, greeted in TLS if the listener has it,
//! paired with a connection to its member. What goes wrong is said to the client where it can be, and logged.
//!
//! Next: [`super::session`].

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout_at};

use super::connection::{Connection, ConnectionOutcome};
use super::connection_counts::Refusal;
use super::deployment::LivenessToken;
use super::hand_over::{ConnectionSnapshot, PassedConnection};
use super::interceptor::Interceptor;
use super::limits::{Admission, IdleTimeouts, Limits};
use super::listener::{Closing, ListenerContext, Way};
use super::rate_limit::RateLimit;
use super::refused;
use super::relay::Relay;
use super::socket::{self, Stream};
use super::tls::ListenerTls;
use super::upstream::{Address, Upstream};
use super::workers::{WorkerSlot, Workers};
use crate::engine::{OwnSession, Session};

/// Clients that are told at the same time why they are refused; more are closed without a word.
static TELLING: Semaphore = Semaphore::const_new(100);
/// The first byte of a TLS connection; of a message it would be a length, and a strange one.
const TLS_HANDSHAKE: u8 = 0x16;
const TLS_WANTED: &str = "this listener applies TLS only; add tls=true to the connection string";

/// What stands between being accepted and being relayed; shared by all listeners.
#[derive(Debug)]
pub(super) struct ConnectionSetup {
    pub(super) upstream: Arc<Upstream>,
    /// `None`: clients speak plainly.
    pub(super) tls: Option<Arc<ListenerTls>>,
    pub(super) limits: Arc<Limits>,
    /// Lines about clients that cannot come in.
    pub(super) refused: RateLimit,
    /// Lines about clients whose member cannot be dialled.
    pub(super) unreachable: RateLimit,
}

/// Where clients go. Sessions do not hold it, so that the threads end with the listeners.
#[derive(Debug, Clone)]
pub(super) struct Dispatcher {
    pub(super) connection_setup: Arc<ConnectionSetup>,
    pub(super) workers: Arc<Workers>,
}

/// A client that has a server.
struct Paired<P> {
    connection: Connection<Stream, Stream, P>,
    /// Whom the client was paired with. Boxed: only a hand-over asks for it.
    server: Box<Address>,
}

impl Dispatcher {
    /// Gives an accepted client to one of the threads; `alive` is held until its connection ends.
    pub(super) fn admit<P: Interceptor>(
        &self,
        client: TcpStream,
        peer: SocketAddr,
        listener_context: &Arc<ListenerContext<P>>,
        alive: &LivenessToken,
    ) {
        // The runtime that accepted it lets go; that of the thread takes over.
        match client.into_std() {
            Ok(client) => {
                let arriving = receive(client, peer, listener_context.clone(), self.connection_setup.clone());
                self.workers.adopt(|seat| live(arriving, (alive.clone(), seat)));
            }
            Err(error) => self.connection_setup.log(peer, &error),
        }
    }

    /// Gives the rest of a connection that another process began to one of the threads.
    pub(super) fn resume<P: Interceptor>(
        &self,
        connection: PassedConnection,
        listener_context: Arc<ListenerContext<P>>,
        closing: watch::Receiver<Closing>,
        alive: LivenessToken,
    ) {
        let arriving = resume(connection, listener_context, closing, self.connection_setup.clone());
        self.workers.adopt(|seat| live(arriving, (alive, seat)));
    }
}

/// One client, from its arrival to the end of its connection; `held` is held until then.
///
/// No async function: its future would have room for each argument twice.
fn live<P: Interceptor>(
    arriving: impl Future<Output = Option<Paired<P>>> + Send + 'static,
    held: (LivenessToken, WorkerSlot),
) -> impl Future<Output = ()> + Send + 'static {
    // Boxed: it is over soon, and what follows it stays.
    let arriving = Box::pin(arriving);
    async move {
        let mut paired = arriving.await;
        if let Some(Paired { connection, .. }) = &mut paired
            && connection.run().await == ConnectionOutcome::Quiescent
            && let Some(Paired { connection, server }) = paired
        {
            leave(connection.relay, *server);
        }
        drop(held);
    }
}

/// Lets a client in, or turns it away.
async fn receive<P: Interceptor>(
    client: std::net::TcpStream,
    peer: SocketAddr,
    listener_context: Arc<ListenerContext<P>>,
    connection_setup: Arc<ConnectionSetup>,
) -> Option<Paired<P>> {
    let client = TcpStream::from_std(client).ok()?;
    let deadline = connection_setup.deadline();
    match connection_setup.limits.admit(peer.ip()) {
        Ok(admission) => connection_setup.pair(client, peer, listener_context, admission, deadline).await,
        Err(full) => {
            listener_context.connection_counters.refused(full.refusal());
            connection_setup.log(peer, &full);
            let _ = timeout_at(deadline, connection_setup.turn_away(client, &full.to_string())).await;
            None
        }
    }
}

/// The rest of a connection that another process began.
async fn resume<P: Interceptor>(
    connection: PassedConnection,
    listener_context: Arc<ListenerContext<P>>,
    closing: watch::Receiver<Closing>,
    connection_setup: Arc<ConnectionSetup>,
) -> Option<Paired<P>> {
    let PassedConnection { client, upstream, memo } = connection;
    let (local, peer) = (client.local_addr().ok()?, client.peer_addr().ok()?);
    let (client, upstream) = (Stream::from_std(client).ok()?, Stream::from_std(upstream).ok()?);
    let must_log_in = memo.quiescent.must_log_in();
    let timeouts =
        IdleTimeouts::new(connection_setup.limits.admitted(peer.ip()), connection_setup.deadline(), must_log_in);
    let mut relay = Relay::resume(client, upstream, listener_context, local.ip(), memo.quiescent);
    relay.session.connection = relay.listener_context.connection_counters.accepted();
    Some(Paired { connection: Connection { relay, closing, timeouts }, server: Box::new(memo.server) })
}

/// Hands a relay that stands to the next process; `server` is whom its client was paired with.
fn leave<P: Interceptor>(relay: Relay<Stream, Stream, P>, server: Address) {
    let listener_context = relay.listener_context.clone();
    let (client, upstream, quiescent) = relay.into_quiescent();
    if let (Some(purpose), Ok(client), Ok(upstream)) =
        (listener_context.purpose(), client.into_std(), upstream.into_std())
    {
        let memo = ConnectionSnapshot { purpose, server, quiescent };
        listener_context.leaving.send(PassedConnection { client, upstream, memo });
    }
}

impl ConnectionSetup {
    pub(super) fn new(upstream: Arc<Upstream>, tls: Option<Arc<ListenerTls>>, limits: Arc<Limits>) -> Self {
        Self { upstream, tls, limits, refused: RateLimit::default(), unreachable: RateLimit::default() }
    }

    /// When the first message of a client that arrives now must have come.
    fn deadline(&self) -> Instant {
        Instant::now() + self.limits.settings.handshake_timeout
    }

    /// Greets the client and dials its server. When none can be reached the client's connection is closed at once,
    /// which drivers know how to retry.
    async fn pair<P: Interceptor>(
        &self,
        client: TcpStream,
        peer: SocketAddr,
        listener_context: Arc<ListenerContext<P>>,
        admission: Admission,
        deadline: Instant,
    ) -> Option<Paired<P>> {
        let local = client.local_addr().ok()?.ip();
        socket::tune(&client).ok()?;
        let client = self.greeted(client, peer, &listener_context, deadline).await?;
        let (upstream, way) = self.dial(peer, &listener_context).await?;
        let own = OwnSession { id: bson::Uuid::new().bytes(), ..OwnSession::default() };
        let listener_kind = listener_context.listener_kind(local);
        let connection = listener_context.connection_counters.accepted();
        let must_log_in = self.upstream.demands_login();
        let session = Session {
            client: peer.to_string().into(),
            connection,
            own,
            listener_kind,
            must_log_in,
            ..Session::default()
        };
        let relay = Relay::new(client, upstream, listener_context, local, session);
        let timeouts = IdleTimeouts::new(admission, deadline, must_log_in);
        let connection = Connection { relay, closing: way.closing, timeouts };
        Some(Paired { connection, server: Box::new(way.dial) })
    }

    /// The client's end of the relay, behind the TLS handshake if the listener has one.
    async fn greeted<P>(
        &self,
        client: TcpStream,
        peer: SocketAddr,
        listener_context: &ListenerContext<P>,
        deadline: Instant,
    ) -> Option<Stream> {
        let Some(tls) = &self.tls else { return Some(Stream::Plain(client)) };
        let greeted = timeout_at(deadline, self.greet(client, peer, tls)).await;
        let greeted = greeted.unwrap_or_else(|_| {
            self.log(peer, &"the TLS handshake took too long (limits: handshake_timeout)");
            None
        });
        if greeted.is_none() {
            listener_context.connection_counters.refused(Refusal::Tls);
        }
        greeted
    }

    /// The first of the listener_context's servers that can be reached.
    async fn dial<P>(&self, peer: SocketAddr, listener_context: &ListenerContext<P>) -> Option<(Stream, Way)> {
        let mut failure = "there is no server for it".to_owned();
        for way in listener_context.ways() {
            match self.upstream.connect(&way.dial).await {
                Ok(upstream) => {
                    // Servers' logs and currentOp name docward's port; this tells whose it is.
                    tracing::debug!(client = %peer, upstream = %way.dial, from = ?upstream.local_addr().ok(), "connected");
                    return Some((upstream, way));
                }
                Err(error) => {
                    listener_context.recheck.notify_waiters();
                    failure = format!("upstream {} cannot be reached: {error}", way.dial);
                }
            }
        }
        listener_context.connection_counters.refused(Refusal::Unreachable);
        if let Some(left_out) = self.unreachable.line() {
            tracing::warn!(client = %peer, left_out, "connection closed: {failure}");
        }
        None
    }

    /// Shakes hands; who applies plainly is told.
    async fn greet(&self, client: TcpStream, peer: SocketAddr, tls: &ListenerTls) -> Option<Stream> {
        if !speaks_tls(&client).await? {
            self.log(peer, &TLS_WANTED);
            let _permit = TELLING.try_acquire().ok()?;
            tell(client, TLS_WANTED).await;
            return None;
        }
        tls.accept(client).await.map_err(|error| self.log(peer, &error)).ok()
    }

    async fn turn_away(&self, client: TcpStream, text: &str) {
        let Ok(_permit) = TELLING.try_acquire() else { return };
        match &self.tls {
            Some(tls) if speaks_tls(&client).await == Some(true) => {
                if let Ok(client) = tls.accept(client).await {
                    tell(client, text).await;
                }
            }
            _ => tell(client, text).await,
        }
    }

    fn log(&self, peer: SocketAddr, reason: &dyn std::fmt::Display) {
        if let Some(left_out) = self.refused.line() {
            tracing::warn!(client = %peer, left_out, "connection refused: {reason}");
        }
    }
}

/// `None`: the client went away without a word, as health checks do.
async fn speaks_tls(client: &TcpStream) -> Option<bool> {
    let mut first = [0];
    match client.peek(&mut first).await {
        Ok(1) => Some(first == [TLS_HANDSHAKE]),
        _ => None,
    }
}

/// Whoever does not listen does not get to know.
async fn tell(client: impl AsyncRead + AsyncWrite + Unpin, text: &str) {
    let _ = refused::tell(client, text).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patterns::RuleSet;

    type Accepted = std::future::Pending<Option<Paired<RuleSet>>>;

    fn size_of_future<F: Future>(_: impl Fn(Accepted, (LivenessToken, WorkerSlot)) -> F) -> usize {
        size_of::<F>()
    }

    /// With what tokio adds a task has 1,152 bytes then, and takes 1,280 with its alignment; beyond, 1,536.
    #[test]
    fn a_session_is_small() {
        let size = size_of_future(live);
        assert!(size <= 1_048, "a session's task has {size} bytes");
    }
}
