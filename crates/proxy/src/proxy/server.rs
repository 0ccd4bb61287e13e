//! The entry point of the layer: opens the listeners, accepts clients, drains, and hands over to the next process.
//!
//! [`crate::proxy::listening::listeners`] follows the members and opens their listeners.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};

use crate::proxy::config::ProxyConfig;
use crate::proxy::connection::listener_context::{Backend, ListenerContext};
use crate::proxy::listening::admission::{ConnectionSetup, ConnectionToken, Dispatcher};
use crate::proxy::listening::listeners::Listeners;
use crate::proxy::listening::workers::WorkerThreads;
use crate::proxy::members::closing::Closing;
use crate::proxy::members::membership::Membership;
use crate::proxy::members::monitor::Monitors;
use crate::proxy::members::placement::ListenerPlacement;
use crate::proxy::members::queries::Queries;
use crate::proxy::members::status::{ProcessPhase, ProcessStatus};
use crate::proxy::members::topology::Topology;
use crate::proxy::observer::Observer;
use crate::proxy::process::close_spacing::CloseSpacing;
use crate::proxy::process::connection_counts::ConnectionCounters;
use crate::proxy::process::context::{MemberContext, ProcessContext, RuleContext, TrafficContext};
use crate::proxy::process::limits::{ConnectionLimits, LimitSettings};
use crate::proxy::process::memory::Memory;
use crate::proxy::process::permits::Permits;
use crate::proxy::recording::Captures;
use crate::proxy::server_side::pool::registry::Pools;
use crate::proxy::shutdown::activity;
use crate::proxy::shutdown::hand_over::{self, Predecessor};
use crate::proxy::shutdown::other_drains;
use crate::proxy::telemetry::meter::Meter;
use crate::proxy::telemetry::outcome_counters::OutcomeCounters;
use crate::proxy::transport::listening_sockets::{BindError, PassedSockets};
use crate::rules::RuleSet;
use crate::service::Service;

/// The minimum time connections have to close after they were asked to.
const MIN_CLOSE_TIME: Duration = Duration::from_millis(100);

/// A proxy with open listeners that does not accept yet.
pub struct Proxy {
    listeners: Listeners,
    process: Arc<ProcessContext>,
    predecessor: Option<Predecessor>,
    placement: watch::Receiver<ListenerPlacement>,
    limits: watch::Receiver<LimitSettings>,
    drain_timeout: Duration,
    hand_over: Option<PathBuf>,
    observer: Arc<Observer>,
    other_drains: mpsc::Receiver<Instant>,
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

impl Proxy {
    /// Discovers the members of the upstream and opens a listener for each, on a `passed` socket if one fits. An
    /// unreachable upstream is not an error.
    ///
    /// # Errors
    /// [`StartError`]: a socket cannot be bound or used, or a thread cannot start.
    pub async fn open(
        config: ProxyConfig,
        passed: Vec<std::net::TcpListener>,
        rules: Arc<ArcSwap<RuleSet>>,
        service: Arc<dyn Service>,
    ) -> Result<Self, StartError> {
        let placement = config.placement.subscribe();
        let mut limits_changed = config.limits.subscribe();
        let limit_settings = *limits_changed.borrow_and_update();
        let (mut sockets, predecessor) = ask_predecessor(&config).await?;
        for socket in passed {
            sockets.add(None, socket).map_err(StartError::Passed)?;
        }
        let queries = Arc::<Queries>::default();
        let process = Arc::new(ProcessContext {
            rules: RuleContext {
                current: rules,
                service,
                outcomes: OutcomeCounters::new(config.log_documents),
                permits: Permits::new(),
            },
            traffic: TrafficContext {
                meter: meter(&config),
                connection_counters: ConnectionCounters::default(),
                open_connections: Arc::default(),
                memory: Memory::new(limit_settings.memory),
                captures: Captures::default(),
                router_counters: config.router.map(|_| Arc::default()),
                compressors: config.upstream.compressors.clone().map(Arc::from),
            },
            members: MemberContext { topology: Topology::new(Vec::new()), recheck: Arc::default() },
            close_spacing: CloseSpacing::default(),
            activity: Arc::default(),
        });
        let listener_context = ListenerContext::new(Backend::Queries(queries.clone()), process.clone());
        let limits = Arc::new(ConnectionLimits::new(limit_settings));
        let status = Arc::<ProcessStatus>::default();
        let upstream = Arc::new(config.upstream.clone());
        let pools = config.pool.map(|settings| Pools::new(upstream.clone(), settings));
        if let Some(pools) = &pools {
            tokio::spawn(Pools::maintain(Arc::downgrade(pools)));
        }
        let connection_setup = Arc::new(ConnectionSetup::new(&config, upstream.clone(), limits.clone(), pools.clone()));
        let dispatcher =
            Dispatcher { connection_setup, workers: Arc::new(WorkerThreads::start().map_err(StartError::Threads)?) };
        let membership = Membership::discover(upstream).await;
        let listeners =
            Listeners::open(&config, membership, listener_context, dispatcher, queries, status.clone(), sockets)?;
        let query_address = listeners.query_address();
        let (noted, other_drains) = mpsc::channel(other_drains::QUEUE_LENGTH);
        let observer = Observer { process: process.clone(), status, limits, pools, query_address, other_drains: noted };
        let (observer, ProxyConfig { drain_timeout, hand_over, .. }) = (Arc::new(observer), config);
        let limits = limits_changed;
        Ok(Self {
            listeners,
            process,
            predecessor,
            placement,
            limits,
            drain_timeout,
            hand_over,
            observer,
            other_drains,
        })
    }

    /// Returns the addresses of the members' listeners, the first member's first, or that of the router.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        match self.listeners.router_address() {
            Some(router) => vec![router],
            None => self.process.members.topology.listeners(),
        }
    }

    /// Returns an observer of this proxy.
    pub fn observer(&self) -> Arc<Observer> {
        self.observer.clone()
    }

    /// Returns the address of the query listener.
    pub fn query_address(&self) -> Option<SocketAddr> {
        self.listeners.query_address()
    }

    /// Serves until `shutdown` is ready or another process has taken over the listeners. Then it waits for `ending`, which
    /// gets the drain's deadline and the addresses that clients share with other processes, stops accepting, and drains:
    /// connections close when they are idle, or at a request that the driver sends again, at the latest at the deadline.
    pub async fn serve(mut self, shutdown: impl Future<Output = ()>, ending: impl AsyncFnOnce(Instant, Vec<String>)) {
        let (connections, connection_token) = watch::channel(());
        self.listeners.accept(&connection_token);
        if let Some(predecessor) = self.predecessor.take() {
            predecessor.confirm().await;
        }
        self.observer.status.set_phase(ProcessPhase::Serving);
        let handed_over = self.update_listeners_until(shutdown, &connection_token).await;
        self.observer.status.set_phase(if handed_over { ProcessPhase::HandedOver } else { ProcessPhase::Draining });
        let deadline = Instant::now() + self.drain_timeout;
        if handed_over {
            self.listeners.stop_accepting(true).await;
            // Logged only now, so that after this line all new clients reach the other process.
            tracing::info!("another process has taken over: draining");
        }
        ending(deadline, self.process.members.topology.shared_addresses()).await;
        if !handed_over {
            self.listeners.stop_accepting(false).await;
        }
        drop(connection_token);
        let drained = self.drain(&connections, deadline);
        if timeout_at(deadline.max(Instant::now() + MIN_CLOSE_TIME), drained).await.is_err() {
            let left = connections.receiver_count();
            tracing::warn!(
                "closing {left} connections that are still busy after {} s; drivers retry on other servers what is \
                 retryable",
                self.drain_timeout.as_secs_f64()
            );
        }
    }

    /// Keeps the listeners in step with the members until the process must end. Returns whether another process has
    /// taken over the listeners.
    async fn update_listeners_until(
        &mut self,
        shutdown: impl Future<Output = ()>,
        connection_token: &ConnectionToken,
    ) -> bool {
        let (mut monitors, mut seen) = Monitors::new(
            self.listeners.upstream(),
            self.process.members.recheck.clone(),
            self.observer.pools.is_some(),
        );
        let (path, listening) = (self.hand_over.clone(), self.listeners.listening.clone());
        let mut shutdown = pin!(shutdown);
        let memory = self.process.traffic.memory.clone();
        let mut returning = pin!(memory.return_freed());
        let mut taken_over = pin!(async move {
            let Some(path) = path else { return std::future::pending().await };
            if let Err(error) = hand_over::offer(&path, &listening).await {
                tracing::error!("--hand-over {}: no process can take over: {error}", path.display());
                std::future::pending().await
            }
        });
        let (closing, mut closings) = mpsc::channel(1);
        let mut pausing = pin!(other_drains::pause_for(&mut self.other_drains, &self.process.activity, closing));
        loop {
            self.listeners.watch(&mut monitors);
            tokio::select! {
                () = &mut shutdown => return false,
                never = &mut returning => match never {},
                never = &mut pausing => match never {},
                Some(closing) = closings.recv() => self.listeners.notify_member_connections(closing),
                () = &mut taken_over => return true,
                Ok(()) = self.placement.changed() => {
                    let placement = self.placement.borrow_and_update().clone();
                    self.listeners.place(placement, connection_token).await;
                }
                Ok(()) = self.limits.changed() => {
                    let settings = *self.limits.borrow_and_update();
                    self.observer.limits.set(settings);
                    memory.set_limit(settings.memory);
                }
                Some(hello_result) = seen.recv() => self.listeners.take_hello_result(hello_result, connection_token),
            }
        }
    }

    /// Makes drivers select other members, and waits for all connections to close.
    async fn drain(&self, connections: &watch::Sender<()>, deadline: Instant) {
        self.listeners.notify_connections(Closing::Drain);
        let bound = deadline.min(Instant::now() + activity::TIMEOUT);
        let _ = timeout_at(bound, self.process.activity.wait_until_idle()).await;
        self.process.close_spacing.end_at(deadline, self.process.traffic.connection_counters.open());
        self.listeners.notify_connections(Closing::WhenIdle);
        connections.closed().await;
    }
}

fn meter(config: &ProxyConfig) -> Meter {
    match &config.tracer {
        None if !config.measured => Meter::default(),
        tracer => Meter::running(tracer.clone()),
    }
}

async fn ask_predecessor(config: &ProxyConfig) -> Result<(PassedSockets, Option<Predecessor>), StartError> {
    let Some(path) = &config.hand_over else { return Ok((PassedSockets::default(), None)) };
    match hand_over::ask(path).await {
        Ok(Some((sockets, predecessor))) => Ok((sockets, Some(predecessor))),
        Ok(None) => Ok((PassedSockets::default(), None)),
        Err(error) => Err(StartError::HandOver { path: path.clone(), error }),
    }
}
