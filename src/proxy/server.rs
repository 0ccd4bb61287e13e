//! The front listener_context of the layer: opens the listeners, pairs each client with an upstream connection, drains, and
//! hands over to the next process.
//!
//! Who the members are and which listeners they have is followed in [`super::deployment`].

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

/// Pause after an accept that failed: out of file descriptors is not mended by trying at once.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// The least time that connections have to close after they were asked to.
const FAREWELL: Duration = Duration::from_millis(100);

/// Where to listen and what stands behind it.
#[derive(Debug, Clone)]
pub struct Config {
    pub placement: Placement,
    pub query_listen: Option<SocketAddr>,
    pub upstream: Upstream,
    /// `None`: clients speak plainly.
    pub tls: Option<Arc<ListenerTls>>,
    pub limits: LimitSettings,
    /// How long open transactions and busy connections may take to finish when docward ends.
    pub drain_timeout: Duration,
    /// Where processes pass their sockets to the next one.
    pub hand_over: Option<PathBuf>,
    /// Whether messages are counted and timed, for [`Observer::measures`]; those that are traced are, anyway.
    pub measured: bool,
    /// Where spans go; `None`: nothing is traced.
    pub tracer: Option<Arc<Tracer>>,
    /// Whether decisions are logged with the documents they are about.
    pub log_documents: bool,
}

/// Open listeners, nothing accepted yet.
pub struct Proxy<P> {
    deployment: Deployment<P>,
    topology: Arc<Topology>,
    transactions: Arc<Transactions>,
    recheck: Arc<Notify>,
    leaving: Arc<HandOverSender>,
    activity: Arc<ActivityCounters>,
    predecessor: Option<Predecessor>,
    drain_timeout: Duration,
    hand_over: Option<PathBuf>,
    observer: Arc<Observer<P>>,
}

/// Why nothing listens.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("--hand-over {path}: {error}; stop the process that is there, or remove the file", path = path.display())]
    HandOver { path: PathBuf, error: io::Error },
    #[error("a socket that was passed by the environment (LISTEN_FDS) cannot be used: {0}")]
    Passed(io::Error),
    #[error("cannot start the threads for connections: {0}")]
    Threads(io::Error),
}

impl<P: Interceptor> Proxy<P> {
    /// Asks the upstream for its members and opens a listener for each, on a socket that was `passed` if there is
    /// one. An upstream that is down is no error.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn open(
        config: Config,
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
            behind: Backend::Queries(queries.clone()),
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
            leaving: Arc::default(),
            activity: Arc::default(),
            last_answer: OnceLock::new(),
        };
        let (topology, transactions) = (listener_context.topology.clone(), listener_context.transactions.clone());
        let (recheck, leaving) = (listener_context.recheck.clone(), listener_context.leaving.clone());
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
        let Config { drain_timeout, hand_over, .. } = config;
        Ok(Self {
            deployment,
            topology,
            transactions,
            recheck,
            leaving,
            activity,
            predecessor,
            drain_timeout,
            hand_over,
            observer: Arc::new(observer),
        })
    }

    /// The addresses of the members' listeners, the first member's first.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.topology.listeners()
    }

    /// Sees what goes on while it serves.
    pub fn observer(&self) -> Arc<Observer<P>> {
        self.observer.clone()
    }

    /// The query listener's address.
    pub fn query_address(&self) -> Option<SocketAddr> {
        self.deployment.query_address()
    }

    /// Serves until `shutdown` is ready or another process has taken over. Then calls `ending` and accepts nobody. The
    /// other process goes on with the connections; without one, or where it cannot, they close when they are idle and
    /// no transaction is open. All of it is bounded by the drain timeout.
    pub async fn serve(mut self, shutdown: impl Future<Output = ()>, ending: impl FnOnce()) {
        let (sessions, alive) = watch::channel(());
        self.deployment.accept(&alive);
        // Without a predecessor the queue is at its end.
        let mut inherited = self.predecessor.take().map_or_else(|| mpsc::channel(1).1, Predecessor::release);
        self.observer.board.set_phase(Phase::Serving);
        let successor = self.follow(shutdown, &mut inherited, &alive).await;
        self.observer.board.set_phase(if successor.is_some() { Phase::HandedOver } else { Phase::Draining });
        ending();
        let deadline = Instant::now() + self.drain_timeout;
        self.deployment.stop_accepting(successor.is_some()).await;
        // What is still on its way to us is to go on with us.
        let all_inherited = async {
            while let Some(connection) = inherited.recv().await {
                self.deployment.resume(connection, &alive);
            }
        };
        let _ = timeout_at(deadline, all_inherited).await;
        drop(alive);
        let heir = successor.filter(|next| next.takes_connections() && self.deployment.can_pass_connections());
        let ended = async {
            match heir {
                Some(heir) => self.pass_connections(heir, &sessions).await,
                None => self.drain(&sessions, deadline).await,
            }
        };
        if timeout_at(deadline.max(Instant::now() + FAREWELL), ended).await.is_err() {
            let left = sessions.receiver_count();
            tracing::warn!("{left} connections were still busy after {:?} and are closed", self.drain_timeout);
        }
        self.observer.log();
    }

    /// Keeps the listeners in step with the members until the end comes: whoever has taken over, or nobody.
    async fn follow(
        &mut self,
        shutdown: impl Future<Output = ()>,
        inherited: &mut mpsc::Receiver<PassedConnection>,
        alive: &LivenessToken,
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
                Some(connection) = inherited.recv() => self.deployment.resume(connection, alive),
                Some(hello_result) = seen.recv() => self.deployment.observed(hello_result, alive),
            }
        }
    }

    /// Has the next process go on with every connection, as each stands between two messages.
    async fn pass_connections(&self, mut successor: Successor, sessions: &watch::Sender<()>) {
        let mut leaving = self.leaving.open();
        self.deployment.tell_connections(Closing::Pass);
        let mut count = 0;
        loop {
            let connection = tokio::select! {
                biased;
                Some(connection) = leaving.recv() => connection,
                // The last ones may have left since.
                () = sessions.closed() => match leaving.try_recv() {
                    Ok(connection) => connection,
                    Err(_) => break,
                },
            };
            if let Err(error) = successor.pass(&connection).await {
                tracing::error!("the process that took over is gone, connections close: {error}");
                return;
            }
            count += 1;
        }
        tracing::info!("{count} connections were passed on");
    }

    /// Waits for the transactions that are open, then has drivers choose other members, and waits for all connections
    /// to close.
    async fn drain(&self, sessions: &watch::Sender<()>, deadline: Instant) {
        if timeout_at(deadline, self.transactions.ended()).await.is_err() {
            tracing::warn!("transactions were still open after {:?}", self.drain_timeout);
        }
        self.deployment.drain();
        let _ = timeout_at(deadline.min(Instant::now() + activity::TIMEOUT), self.activity.calm()).await;
        self.deployment.tell_connections(Closing::WhenIdle);
        sessions.closed().await;
    }
}

fn meter(config: &Config) -> Meter {
    match &config.tracer {
        None if !config.measured => Meter::default(),
        tracer => Meter::running(tracer.clone()),
    }
}

async fn ask_predecessor(config: &Config) -> Result<(Passed, Option<Predecessor>), StartError> {
    let Some(path) = &config.hand_over else { return Ok((Passed::default(), None)) };
    match hand_over::ask(path).await {
        Ok(Some((sockets, predecessor))) => Ok((sockets, Some(predecessor))),
        Ok(None) => Ok((Passed::default(), None)),
        Err(error) => Err(StartError::HandOver { path: path.clone(), error }),
    }
}

/// Accepts until `stop` turns true, then whoever waits in the queue.
pub(super) async fn accept<P: Interceptor>(
    listener: Arc<TcpListener>,
    listener_context: Arc<ListenerContext<P>>,
    dispatcher: Dispatcher,
    alive: LivenessToken,
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
            Ok((client, peer)) => dispatcher.admit(client, peer, &listener_context, &alive),
            Err(error) => {
                if let Some(left_out) = failed.line() {
                    tracing::warn!(left_out, "cannot accept a connection, clients wait: {error}");
                }
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
    while let Some(Ok((client, peer))) = listener.accept().now_or_never() {
        dispatcher.admit(client, peer, &listener_context, &alive);
    }
}
