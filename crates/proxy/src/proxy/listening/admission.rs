//! Sets up a client connection: reads the header of a balancer, checks the limits, performs the TLS handshake if the
//! listener uses TLS, and connects to a member when the first message has arrived, so that health checks and silent
//! clients cost the server nothing.
//! Failures are logged and, where possible, reported to the client.
//!
//! Next: [`crate::proxy::connection::lifecycle`].

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use ipnet::IpNet;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout_at};

use crate::engine::{ClientState, OwnSession};
use crate::proxy::config::ProxyConfig;
use crate::proxy::connection::end::End;
use crate::proxy::connection::lifecycle::{Connection, Dialled};
use crate::proxy::connection::listener_context::{Backend, ListenerContext};
use crate::proxy::connection::pooling::Pooling;
use crate::proxy::connection::relay::Relay;
use crate::proxy::connection::timeouts::IdleTimeouts;
use crate::proxy::listening::refused;
use crate::proxy::listening::workers::{WorkerSlot, WorkerThreads};
use crate::proxy::members::closing::CandidateServer;
use crate::proxy::process::connection_counts::Refusal;
use crate::proxy::process::limits::{Admission, ConnectionLimits};
use crate::proxy::server_side::pool::registry::Pools;
use crate::proxy::server_side::upstream::Upstream;
use crate::proxy::transport::socket::{self, SocketStream};
use crate::proxy::transport::tls::ListenerTls;
use crate::rate_limit::RateLimit;
use crate::rules::RuleSet;
use crate::wire::proxy_header::{self, ProxyHeader, ProxyHeaderError};

/// Refused clients that are sent the reason at the same time. Further ones are closed without a reply.
static REFUSAL_REPLIES: Semaphore = Semaphore::const_new(100);
/// First byte of a TLS connection. In a MongoDB message it would be part of an implausible length.
const TLS_HANDSHAKE: u8 = 0x16;
/// Bytes of a PROXY protocol header that are read at once.
const HEADER_READ: usize = 512;
const TLS_REQUIRED: &str = "this listener accepts TLS only; add tls=true to the connection string";

/// What connection setup needs. All listeners share it.
pub(in crate::proxy) struct ConnectionSetup {
    pub(in crate::proxy) upstream: Arc<Upstream>,
    /// Their connections begin with a header that has the client's address.
    pub(in crate::proxy) balancers: Arc<[IpNet]>,
    /// `None`: clients connect without TLS.
    pub(in crate::proxy) tls: Option<Arc<ListenerTls>>,
    pub(in crate::proxy) limits: Arc<ConnectionLimits>,
    /// `None`: each client has a server connection of its own.
    pub(in crate::proxy) pools: Option<Arc<Pools>>,
    /// Rate limit for log lines about refused clients.
    pub(in crate::proxy) refused: RateLimit,
    /// Rate limit for log lines about unreachable servers.
    pub(in crate::proxy) unreachable: RateLimit,
}

/// Dispatches client connections to worker threads. Connections do not hold it, so the threads end with the listeners.
#[derive(Clone)]
pub(in crate::proxy) struct Dispatcher {
    pub(in crate::proxy) connection_setup: Arc<ConnectionSetup>,
    pub(in crate::proxy) workers: Arc<WorkerThreads>,
}

/// Held by every connection; its sender detects when the last one has ended.
pub(in crate::proxy) type ConnectionToken = watch::Receiver<()>;

/// A client connection with its server connection.
type Paired = Connection<SocketStream, SocketStream, RuleSet>;

impl Dispatcher {
    /// Dispatches an accepted client to a worker thread, which holds `connection_token` until the connection ends.
    pub(in crate::proxy) fn admit(
        &self,
        client: TcpStream,
        peer: SocketAddr,
        listener_context: &Arc<ListenerContext>,
        connection_token: &ConnectionToken,
    ) {
        // Deregisters the socket from this runtime; the worker thread's runtime registers it again.
        match client.into_std() {
            Ok(client) => {
                let setup = receive(client, peer, listener_context.clone(), self.connection_setup.clone());
                self.workers.dispatch(|slot| run_connection(setup, (connection_token.clone(), slot)));
            }
            Err(error) => self.connection_setup.log(peer, &error),
        }
    }
}

/// Runs one client connection from its setup to its end, and holds `held` until then.
///
/// It is not an async function: that future would reserve space for each argument twice.
fn run_connection(
    setup: impl Future<Output = Option<Paired>> + Send + 'static,
    held: (ConnectionToken, WorkerSlot),
) -> impl Future<Output = ()> + Send + 'static {
    // Boxed to free the space: setup ends soon, while the connection lives on in the same task.
    let setup = Box::pin(setup);
    async move {
        // Run in place: moving it would reserve its space twice.
        let mut paired = setup.await;
        if let Some(connection) = &mut paired {
            connection.run().await;
        }
        drop(held);
    }
}

/// Sets up the connection of an accepted client, or refuses it.
async fn receive(
    client: std::net::TcpStream,
    peer: SocketAddr,
    listener_context: Arc<ListenerContext>,
    connection_setup: Arc<ConnectionSetup>,
) -> Option<Paired> {
    let mut client = TcpStream::from_std(client).ok()?;
    let deadline = connection_setup.deadline();
    let peer = connection_setup.client_address(&mut client, peer, &listener_context, deadline).await?;
    match connection_setup.limits.admit(peer.ip()) {
        Ok(admission) => connection_setup.pair(client, peer, listener_context, admission, deadline).await,
        Err(full) => {
            listener_context.process.traffic.connection_counters.refused(full.refusal());
            connection_setup.log(peer, &full);
            let _ = timeout_at(deadline, connection_setup.refuse(client, &full.to_string())).await;
            None
        }
    }
}

impl ConnectionSetup {
    pub(in crate::proxy) fn new(
        config: &ProxyConfig,
        upstream: Arc<Upstream>,
        limits: Arc<ConnectionLimits>,
        pools: Option<Arc<Pools>>,
    ) -> Self {
        let (balancers, tls) = (config.balancers.clone(), config.tls.clone());
        let (refused, unreachable) = (RateLimit::default(), RateLimit::default());
        Self { upstream, balancers, tls, limits, pools, refused, unreachable }
    }

    /// The deadline for the first message of a client that is accepted now.
    fn deadline(&self) -> Instant {
        Instant::now() + self.limits.settings().handshake_timeout
    }

    /// The client's address: `peer`, or that of the header if it is a balancer's. `None`: there is no valid header. Until
    /// then no limit counts the connection: only balancers, which send it at once, have such ones.
    async fn client_address(
        &self,
        client: &mut TcpStream,
        peer: SocketAddr,
        listener_context: &ListenerContext,
        deadline: Instant,
    ) -> Option<SocketAddr> {
        let address = peer.ip().to_canonical();
        if !self.balancers.iter().any(|balancer| balancer.contains(&address)) {
            return Some(peer);
        }
        let failure = match timeout_at(deadline, read_proxy_header(client)).await {
            // An error of the socket: it closed before the end of the header, as health checks do.
            Ok(read) => match read.ok()? {
                Ok(of_client) => return Some(of_client.unwrap_or(peer)),
                Err(error) => error.to_string(),
            },
            Err(_) => "the PROXY protocol header took too long (limits: handshake_timeout)".to_owned(),
        };
        listener_context.process.traffic.connection_counters.refused(Refusal::ProxyProtocol);
        let advice = "let this balancer send one (HAProxy: send-proxy-v2), or remove its address from `proxy_protocol`";
        self.log(peer, &format_args!("{failure}; {advice}"));
        None
    }

    /// Accepts the client. Its server is dialled when its first message has arrived; if no server is known, the client's
    /// connection closes at once: drivers retry after that.
    async fn pair(
        &self,
        client: TcpStream,
        peer: SocketAddr,
        listener_context: Arc<ListenerContext>,
        admission: Admission,
        deadline: Instant,
    ) -> Option<Paired> {
        let local = client.local_addr().ok()?.ip();
        socket::tune(&client).ok()?;
        let client = self.client_stream(client, peer, &listener_context, deadline).await?;
        let candidates = listener_context.candidates();
        let first = candidates.first().ok_or_else(|| "no member is available for this listener".to_owned());
        let found = first.and_then(|first| Ok((first, self.share(&listener_context, first)?)));
        let (first, pooling) =
            found.map_err(|failure| self.refuse_unreachable(peer, &listener_context, &failure)).ok()?;
        let own = OwnSession { id: bson::Uuid::new().bytes(), ..OwnSession::default() };
        let listener_kind = listener_context.listener_kind(local);
        let connection = listener_context.process.traffic.connection_counters.accepted();
        let must_log_in = self.upstream.requires_login();
        let client_state = ClientState {
            client: peer.to_string().into(),
            connection,
            own,
            listener_kind,
            must_log_in,
            ..ClientState::default()
        };
        let traffic = &listener_context.process.traffic;
        let registered = || traffic.open_connections.register(&client_state, &first.address.to_string());
        let registration = traffic.meter.is_running().then(registered);
        let closing = first.closing.clone();
        let has_own_server = pooling.is_none();
        let mut relay = Relay::new(client, pooling, listener_context.clone(), local, client_state);
        relay.client.registration = registration;
        let timeouts = IdleTimeouts::new(admission, deadline, must_log_in);
        let mut connection = Connection { relay, closing, timeouts };
        let dialling = self.dial(peer, &listener_context, candidates);
        (!has_own_server || connection.connect(dialling).await).then_some(connection)
    }

    /// The client's stream, after the TLS handshake if the listener uses TLS.
    async fn client_stream(
        &self,
        client: TcpStream,
        peer: SocketAddr,
        listener_context: &ListenerContext,
        deadline: Instant,
    ) -> Option<SocketStream> {
        let Some(tls) = &self.tls else { return Some(SocketStream::Plain(client)) };
        let client_stream = timeout_at(deadline, self.accept_tls(client, peer, tls)).await;
        let client_stream = client_stream.unwrap_or_else(|_| {
            self.log(peer, &"the TLS handshake took too long (limits: handshake_timeout)");
            None
        });
        if client_stream.is_none() {
            listener_context.process.traffic.connection_counters.refused(Refusal::Tls);
        }
        client_stream
    }

    /// The pools that the client uses, if clients of its listener share connections. Those of the query listener do not:
    /// each stays with one of several servers.
    ///
    /// # Errors
    /// Why no server can be reached.
    fn share(
        &self,
        listener_context: &ListenerContext,
        candidate: &CandidateServer,
    ) -> Result<Option<Box<Pooling<SocketStream>>>, String> {
        let router = match &listener_context.backend {
            Backend::Member { .. } => None,
            Backend::Router { router, .. } => Some(router.clone()),
            Backend::Queries(_) => return Ok(None),
        };
        let Some(pools) = &self.pools else { return Ok(None) };
        let member = pools.member(&candidate.address);
        if member.is_lost() && router.is_none() {
            return Err(format!("upstream {} cannot be reached: it does not reply", candidate.address));
        }
        Ok(Some(Box::new(Pooling::new(router, member, self.upstream.requires_login()))))
    }

    /// Connects to the first candidate that can be reached.
    async fn dial(
        &self,
        peer: SocketAddr,
        listener_context: &ListenerContext,
        candidates: Vec<CandidateServer>,
    ) -> Result<Dialled<SocketStream>, End> {
        let mut failure = String::new();
        for server in candidates {
            match self.upstream.connect(&server.address).await {
                Ok(stream) => {
                    // The logs and currentOp of a server show docward's port; this line names the client of that port.
                    let from = stream.local_addr().ok();
                    tracing::debug!(client = %peer, member = %server.address, ?from, "connected");
                    return Ok(Dialled { stream, server });
                }
                Err(error) => {
                    listener_context.process.members.recheck.notify_waiters();
                    failure = format!("upstream {} cannot be reached: {error}", server.address);
                }
            }
        }
        self.log_unreachable(peer, &failure);
        Err(End::Unreachable(failure))
    }

    fn refuse_unreachable(&self, peer: SocketAddr, listener_context: &ListenerContext, failure: &str) {
        listener_context.process.traffic.connection_counters.refused(Refusal::Unreachable);
        self.log_unreachable(peer, failure);
    }

    fn log_unreachable(&self, peer: SocketAddr, failure: &str) {
        if let Some(suppressed) = self.unreachable.line() {
            tracing::warn!(client = %peer, suppressed, "connection closed: {failure}");
        }
    }

    /// Performs the TLS handshake, and refuses a client that does not use TLS.
    async fn accept_tls(&self, client: TcpStream, peer: SocketAddr, tls: &ListenerTls) -> Option<SocketStream> {
        if !starts_tls(&client).await? {
            self.log(peer, &TLS_REQUIRED);
            let _permit = REFUSAL_REPLIES.try_acquire().ok()?;
            send_refusal(client, TLS_REQUIRED).await;
            return None;
        }
        tls.accept(client).await.map_err(|error| self.log(peer, &error)).ok()
    }

    async fn refuse(&self, client: TcpStream, text: &str) {
        let Ok(_permit) = REFUSAL_REPLIES.try_acquire() else { return };
        match &self.tls {
            Some(tls) if starts_tls(&client).await == Some(true) => {
                if let Ok(client) = tls.accept(client).await {
                    send_refusal(client, text).await;
                }
            }
            _ => send_refusal(client, text).await,
        }
    }

    fn log(&self, peer: SocketAddr, reason: &dyn std::fmt::Display) {
        if let Some(suppressed) = self.refused.line() {
            tracing::warn!(client = %peer, suppressed, "connection refused: {reason}");
        }
    }
}

/// Reads the header of the PROXY protocol, and returns the client's address in it.
///
/// # Errors
/// Those of the socket.
async fn read_proxy_header(
    client: &mut (impl AsyncRead + Unpin),
) -> io::Result<Result<Option<SocketAddr>, ProxyHeaderError>> {
    let mut header = Vec::new();
    loop {
        match proxy_header::parse(&header) {
            // Exactly these: what follows the header may be a TLS handshake.
            Ok(ProxyHeader::Incomplete(missing)) => {
                let read = header.len();
                // Memory for what has arrived, not for what is announced.
                header.resize(read + missing.min(HEADER_READ), 0);
                client.read_exact(&mut header[read..]).await?;
            }
            Ok(ProxyHeader::Complete(address)) => return Ok(Ok(address)),
            Err(error) => return Ok(Err(error)),
        }
    }
}

/// Whether the client starts with a TLS handshake; `None`: it closed without sending, as health checks do.
async fn starts_tls(client: &TcpStream) -> Option<bool> {
    let mut first = [0];
    match client.peek(&mut first).await {
        Ok(1) => Some(first == [TLS_HANDSHAKE]),
        _ => None,
    }
}

/// Sends the reason of a refusal. Errors are ignored: the connection closes anyway.
async fn send_refusal(client: impl AsyncRead + AsyncWrite + Unpin, text: &str) {
    let _ = refused::send_refusal(client, text).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    type Accepted = std::future::Pending<Option<Paired>>;

    fn size_of_future<F: Future>(_: impl Fn(Accepted, (ConnectionToken, WorkerSlot)) -> F) -> usize {
        size_of::<F>()
    }

    /// With tokio's overhead, a task of this size has 1,152 bytes and is allocated as 1,280; a larger one as 1,536.
    #[test]
    fn a_connection_task_is_small() {
        let size = size_of_future(run_connection);
        assert!(size <= 1_048, "the task of a connection has {size} bytes");
    }
}
