//! The entry point of the layer: opens the listeners, accepts clients, drains, and hands over to the next process.
//!
//! [`super::deployment`] follows the members and opens their listeners.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::FutureExt;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, timeout_at};

use super::activity::{self, ActivityCounters};
use super::admission::{ConnectionSetup, Dispatcher};
use super::deployment::{Deployment, LivenessToken, Placement};
use super::hand_over::{self, HandOverSender, PassedConnection, Predecessor, Successor};
use super::interceptor::Interceptor;
use super::limits::{LimitSettings, Limits};
use super::listener::{Backend, Closing, ListenerContext};
use super::membership::Membership;
use super::memory::Memory;
use super::meter::Meter;
use super::monitor::Monitors;
use super::observer::Observer;
use super::queries::Queries;
use super::rate_limit::RateLimit;
use super::rule_outcomes::RuleOutcomes;
use super::sockets::{BindError, Passed};
use super::spans::Tracer;
use super::status::{Phase, StatusBoard};
use super::tls::ListenerTls;
use super::topology::Topology;
use super::transactions::Transactions;
use super::upstream::Upstream;
use super::workers::Workers;
use crate::service::Service;

/// Pause after a failed accept: an immediate retry does not help when file descriptors are exhausted.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The minimum time connections have to close after they were asked to.
const MIN_CLOSE_TIME: Duration = Duration::from_millis(100);

/// The listeners, the upstream and their settings.
#[derive(Debug, Clone)]
pub struct ProxyConfig {
    pub placement: Placement,
    pub query_listen: Option<SocketAddr>,
    pub upstream: Upstream,
    /// `None`: clients connect without TLS.
    pub tls: Option<Arc<ListenerTls>>,
    pub limits: LimitSettings,
    /// How long open transactions and busy connections may take to finish during a graceful shutdown.
    pub drain_timeout: Duration,
    /// Socket path over which a process passes its sockets to the next one.
    pub hand_over: Option<PathBuf>,
    /// Whether to measure messages, for [`Observer::measures`]. With a tracer they are measured anyway.
    pub measured: bool,
    /// Receives spans; `None`: no tracing.
    pub tracer: Option<Arc<Tracer>>,
    /// Whether decisions are logged with their documents.
    pub log_documents: bool,
}

/// A proxy with open listeners that does not accept yet.
pub struct Proxy<P> {
    deployment: Deployment<P>,
    topology: Arc<Topology>,
    transactions: Arc<Transactions>,
    recheck: Arc<Notify>,
    hand_over_queue: Arc<HandOverSender>,
    activity: Arc<ActivityCounters>,
    predecessor: Option<Predecessor>,
    drain_timeout: Duration,
    hand_over: Option<PathBuf>,
    observer: Arc<Observer<P>>,
}

/// Why the proxy could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("--hand-over {path}: {error}; stop the process that uses it, or remove the file", path = path.display())]
    HandOver { path: PathBuf, error: io::Error },
    #[error("a socket passed by LISTEN_FDS cannot be used: {0}")]
    Passed(io::Error),
    #[error("cannot start the worker threads: {0}")]
    Threads(io::Error),
}

impl<P: Interceptor> Proxy<P> {
    /// Discovers the members of the upstream and opens a listener for each, on a `passed` socket if one fits. An
    /// unreachable upstream is not an error.
    ///
    /// # Errors
    /// [`StartError`]: a socket cannot be bound or used, or a thread cannot start.
    pub async fn open(
        config: ProxyConfig,
        passed: Vec<std::net::TcpListener>,
        rules: Arc<ArcSwap<P>>,
        service: Arc<dyn Service>,
    ) -> Result<Self, StartError> {
        let (mut sockets, predecessor) = ask_predecessor(&config).await?;
        for socket in passed {
            sockets.add(None, socket).map_err(StartError::Passed)?;
        }
        let queries = Arc::<Queries>::default();
        let listener_context = ListenerContext {
            backend: Backend::Queries(queries.clone()),
            topology: Arc::new(Topology::new(Vec::new())),
            rules,
            service,
            outcomes: Arc::new(RuleOutcomes::new(config.log_documents)),
            transactions: Arc::default(),
            connection_counters: Arc::default(),
            meter: Arc::new(meter(&config)),
            memory: Memory::new(config.limits.memory),
            compressors: config.upstream.compressors.clone().map(Arc::from),
            recheck: Arc::default(),
            hand_over_queue: Arc::default(),
            activity: Arc::default(),
            last_answer: OnceLock::new(),
        };
        let (topology, transactions) = (listener_context.topology.clone(), listener_context.transactions.clone());
        let (recheck, hand_over_queue) = (listener_context.recheck.clone(), listener_context.hand_over_queue.clone());
        let (activity, outcomes) = (listener_context.activity.clone(), listener_context.outcomes.clone());
        let (rules, service) = (listener_context.rules.clone(), listener_context.service.clone());
        let (connection_counters, meter, memory) = (
            listener_context.connection_counters.clone(),
            listener_context.meter.clone(),
            listener_context.memory.clone(),
        );
        let limits = Arc::new(Limits::new(config.limits.clone()));
        let board = Arc::<StatusBoard>::default();
        let upstream = Arc::new(config.upstream.clone());
        let connection_setup = Arc::new(ConnectionSetup::new(upstream.clone(), config.tls.clone(), limits.clone()));
        let dispatcher =
            Dispatcher { connection_setup, workers: Arc::new(Workers::start().map_err(StartError::Threads)?) };
        let membership = Membership::discover(upstream).await;
        let deployment =
            Deployment::open(&config, membership, listener_context, dispatcher, queries, board.clone(), sockets)?;
        let query_address = deployment.query_address();
        let observer =
            Observer { outcomes, rules, board, limits, connection_counters, meter, memory, service, query_address };
        let ProxyConfig { drain_timeout, hand_over, .. } = config;
        Ok(Self {
            deployment,
            topology,
            transactions,
            recheck,
            hand_over_queue,
            activity,
            predecessor,
            drain_timeout,
            hand_over,
            observer: Arc::new(observer),
        })
    }

    /// Returns the addresses of the members' listeners, the first member's first.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.topology.listeners()
    }

    /// Returns an observer of this proxy.
    pub fn observer(&self) -> Arc<Observer<P>> {
        self.observer.clone()
    }

    /// Returns the address of the query listener.
    pub fn query_address(&self) -> Option<SocketAddr> {
        self.deployment.query_address()
    }

    /// Serves until `shutdown` is ready or another process has taken over. Then it calls `ending` and stops accepting.
    /// The other process resumes the connections. Without one, or if a connection cannot be passed, connections close
    /// when they are idle and no transaction is open. The drain timeout bounds all of this.
    pub async fn serve(mut self, shutdown: impl Future<Output = ()>, ending: impl FnOnce()) {
        let (connections, liveness) = watch::channel(());
        self.deployment.accept(&liveness);
        // Without a predecessor this channel is closed.
        let mut inherited = self.predecessor.take().map_or_else(|| mpsc::channel(1).1, Predecessor::release);
        self.observer.board.set_phase(Phase::Serving);
        let successor = self.follow(shutdown, &mut inherited, &liveness).await;
        self.observer.board.set_phase(if successor.is_some() { Phase::HandedOver } else { Phase::Draining });
        ending();
        let deadline = Instant::now() + self.drain_timeout;
        self.deployment.stop_accepting(successor.is_some()).await;
        // Resumes connections that the predecessor is still passing.
        let all_inherited = async {
            while let Some(connection) = inherited.recv().await {
                self.deployment.resume(connection, &liveness);
            }
        };
        let _ = timeout_at(deadline, all_inherited).await;
        drop(liveness);
        let next = successor.filter(|next| next.takes_connections() && self.deployment.can_pass_connections());
        let ended = async {
            match next {
                Some(next) => self.pass_connections(next, &connections).await,
                None => self.drain(&connections, deadline).await,
            }
        };
        if timeout_at(deadline.max(Instant::now() + MIN_CLOSE_TIME), ended).await.is_err() {
            let left = connections.receiver_count();
            tracing::warn!("closing {left} connections that are still busy after {:?}", self.drain_timeout);
        }
        self.observer.log();
    }

    /// Keeps the listeners in step with the members until the process must end. Returns the process that has taken
    /// over, if any.
    async fn follow(
        &mut self,
        shutdown: impl Future<Output = ()>,
        inherited: &mut mpsc::Receiver<PassedConnection>,
        liveness: &LivenessToken,
    ) -> Option<Successor> {
        let (mut monitors, mut seen) = Monitors::new(self.deployment.upstream(), self.recheck.clone());
        let (path, listening) = (self.hand_over.clone(), self.deployment.listening.clone());
        let mut shutdown = pin!(shutdown);
        let mut offer = pin!(async move {
            let Some(path) = path else { return std::future::pending().await };
            match hand_over::offer(&path, &listening).await {
                Ok(successor) => successor,
                Err(error) => {
                    tracing::error!("--hand-over {}: no process can take over: {error}", path.display());
                    std::future::pending().await
                }
            }
        });
        loop {
            self.deployment.watch(&mut monitors);
            tokio::select! {
                () = &mut shutdown => return None,
                successor = &mut offer => {
                    tracing::info!("another process has taken over: draining");
                    return Some(successor);
                }
                Some(connection) = inherited.recv() => self.deployment.resume(connection, liveness),
                Some(hello_result) = seen.recv() => self.deployment.observed(hello_result, liveness),
            }
        }
    }

    /// Passes every connection to the next process as soon as it is between two messages.
    async fn pass_connections(&self, mut successor: Successor, connections: &watch::Sender<()>) {
        let mut queue = self.hand_over_queue.open();
        self.deployment.notify_connections(Closing::Pass);
        let mut count = 0;
        loop {
            let connection = tokio::select! {
                biased;
                Some(connection) = queue.recv() => connection,
                // The last connections may have been queued meanwhile.
                () = connections.closed() => match queue.try_recv() {
                    Ok(connection) => connection,
                    Err(_) => break,
                },
            };
            if let Err(error) = successor.pass(&connection).await {
                tracing::error!("the process that took over has ended; closing connections: {error}");
                return;
            }
            count += 1;
        }
        tracing::info!("passed {count} connections to the next process");
    }

    /// Waits for open transactions, then makes drivers select other members, and waits for all connections to close.
    async fn drain(&self, connections: &watch::Sender<()>, deadline: Instant) {
        if timeout_at(deadline, self.transactions.ended()).await.is_err() {
            tracing::warn!("transactions are still open after {:?}", self.drain_timeout);
        }
        self.deployment.drain();
        let _ = timeout_at(deadline.min(Instant::now() + activity::TIMEOUT), self.activity.wait_until_idle()).await;
        self.deployment.notify_connections(Closing::WhenIdle);
        connections.closed().await;
    }
}

fn meter(config: &ProxyConfig) -> Meter {
    match &config.tracer {
        None if !config.measured => Meter::default(),
        tracer => Meter::running(tracer.clone()),
    }
}

async fn ask_predecessor(config: &ProxyConfig) -> Result<(Passed, Option<Predecessor>), StartError> {
    let Some(path) = &config.hand_over else { return Ok((Passed::default(), None)) };
    match hand_over::ask(path).await {
        Ok(Some((sockets, predecessor))) => Ok((sockets, Some(predecessor))),
        Ok(None) => Ok((Passed::default(), None)),
        Err(error) => Err(StartError::HandOver { path: path.clone(), error }),
    }
}

/// Accepts until `stop` turns true, and then the clients in the queue.
pub(super) async fn accept<P: Interceptor>(
    listener: Arc<TcpListener>,
    listener_context: Arc<ListenerContext<P>>,
    dispatcher: Dispatcher,
    liveness: LivenessToken,
    mut stop: watch::Receiver<bool>,
) {
    let failed = RateLimit::default();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((client, peer)) => dispatcher.admit(client, peer, &listener_context, &liveness),
            Err(error) => {
                if let Some(suppressed) = failed.line() {
                    tracing::warn!(suppressed, "cannot accept connections; clients wait: {error}");
                }
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
    while let Some(Ok((client, peer))) = listener.accept().now_or_never() {
        dispatcher.admit(client, peer, &listener_context, &liveness);
    }
}
