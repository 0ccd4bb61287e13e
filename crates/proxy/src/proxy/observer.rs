//! A view of a running proxy: counters, decisions, members and its phase. It returns copies, so that readers never
//! delay a connection.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::broadcast::Receiver;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::proxy::members::status::{MemberStatus, ProcessPhase, ProcessStatus};
use crate::proxy::process::connection_counts::ConnectionCounts;
use crate::proxy::process::connection_table::OpenConnection;
use crate::proxy::process::context::ProcessContext;
use crate::proxy::process::limits::ConnectionLimits;
use crate::proxy::process::memory::MemoryUse;
use crate::proxy::process::permits::PermitStatus;
use crate::proxy::recording::Sink;
use crate::proxy::server_side::pool::counters::{PoolStatus, WaitingClients};
use crate::proxy::server_side::pool::registry::Pools;
use crate::proxy::server_side::router_counters::RouterStatus;
use crate::proxy::telemetry::decisions::Decision;
use crate::proxy::telemetry::meter::Measures;
use crate::proxy::telemetry::outcome_counters::LiveRule;
use crate::proxy::telemetry::slowest::SlowStatement;
use crate::rules::RuleSet;
use crate::service::{ReservationCounts, WorkerStatus};

/// Observes a [`Proxy`](super::Proxy). It may outlive it.
pub struct Observer {
    pub(super) process: Arc<ProcessContext>,
    pub(super) status: Arc<ProcessStatus>,
    pub(super) limits: Arc<ConnectionLimits>,
    pub(super) pools: Option<Arc<Pools>>,
    pub(super) query_address: Option<SocketAddr>,
    pub(super) other_drains: mpsc::Sender<Instant>,
}

impl Observer {
    /// Returns the current rules, and every rule with its counters since it was first loaded; reloads do not reset
    /// them.
    #[must_use]
    pub fn report(&self) -> (Arc<RuleSet>, Vec<LiveRule>) {
        let rules = self.rules();
        let report = self.process.rules.outcomes.report(&rules);
        (rules, report)
    }

    /// Begins to count for the current rules. Without it, counts begin with the first outcome of any rule.
    pub fn note_loaded(&self) {
        self.process.rules.outcomes.note_loaded(&self.rules());
    }

    /// Returns the current rules.
    #[must_use]
    pub fn rules(&self) -> Arc<RuleSet> {
        self.process.rules.current.load_full()
    }

    /// Returns the last decisions, the oldest first, and a receiver for new ones. A receiver that lags too far behind
    /// misses some and gets an error.
    #[must_use]
    pub fn decisions(&self) -> (Vec<Arc<Decision>>, Receiver<Arc<Decision>>) {
        self.process.rules.outcomes.follow()
    }

    /// Returns the known members.
    #[must_use]
    pub fn members(&self) -> Vec<MemberStatus> {
        self.status.members()
    }

    #[must_use]
    pub fn phase(&self) -> watch::Receiver<ProcessPhase> {
        self.status.phase()
    }

    /// Returns the number of open client connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.limits.open()
    }

    /// Returns every open client connection; empty if nothing is measured.
    #[must_use]
    pub fn open_connections(&self) -> Vec<OpenConnection> {
        let traffic = &self.process.traffic;
        traffic.open_connections.list(&traffic.meter)
    }

    /// Returns the statements that took longest in the last hour, the slowest first; empty if nothing is measured.
    #[must_use]
    pub fn slowest(&self) -> Vec<SlowStatement> {
        let meter = &self.process.traffic.meter;
        meter.slowest().map(|slowest| slowest.list(meter.now())).unwrap_or_default()
    }

    /// Closes a client connection; returns it as it was, or `None` if there is no connection with this number.
    #[must_use]
    pub fn close_connection(&self, number: u64) -> Option<OpenConnection> {
        let traffic = &self.process.traffic;
        traffic.open_connections.close(number, &traffic.meter)
    }

    /// Notes that another process which advertises these addresses begins to drain at this time. If this process advertises
    /// one of them, its monitors let drivers pause at the same time: their connections may be at the other process.
    pub fn note_other_drain(&self, addresses: &[String], at: Instant) {
        let own = self.process.members.topology.shared_addresses();
        if own.iter().any(|address| addresses.contains(address)) {
            // In a full queue are later pauses, which are as good.
            _ = self.other_drains.try_send(at);
        }
    }

    /// Returns the numbers of each member's pools, sorted by address; empty if clients share no connections.
    #[must_use]
    pub fn pools(&self) -> Vec<PoolStatus> {
        self.pools.as_ref().map(|pools| pools.status()).unwrap_or_default()
    }

    /// Returns the applications with the most requests that wait for a server connection, at most `most`.
    #[must_use]
    pub fn waiting_clients(&self, most: usize) -> Vec<WaitingClients> {
        self.pools.as_ref().map(|pools| pools.waiting_clients(most)).unwrap_or_default()
    }

    /// Returns the numbers of the router, if there is one.
    #[must_use]
    pub fn router(&self) -> Option<RouterStatus> {
        Some(self.process.traffic.router_counters.as_ref()?.status())
    }

    /// Starts to record the commands of clients; returns false if a capture runs already.
    #[must_use]
    pub fn start_capture(&self, sink: Sink) -> bool {
        self.process.traffic.captures.start(sink)
    }

    /// Ends the capture. Its consumer gets the records that wait, and then the end.
    pub fn end_capture(&self) {
        self.process.traffic.captures.end();
    }

    /// Returns how much of their memory budget large messages use.
    #[must_use]
    pub fn memory(&self) -> MemoryUse {
        self.process.traffic.memory.usage()
    }

    /// Returns the counters of client connections since the start.
    #[must_use]
    pub fn connection_counts(&self) -> ConnectionCounts {
        self.process.traffic.connection_counters.counts()
    }

    /// Returns the measurements since the start; `None` if nothing is measured.
    #[must_use]
    pub fn measures(&self) -> Option<Measures> {
        self.process.traffic.meter.measures()
    }

    /// Returns the numbers of each rule that limits clients, sorted by name. Rules that are no longer loaded are listed if
    /// they have limited a message. Each lists at most `clients` clients.
    #[must_use]
    pub fn permits(&self, clients: usize) -> Vec<PermitStatus> {
        let rules = self.rules();
        let loaded: Vec<_> = rules.rules_with_permits().map(|rule| &*rule.name.value).collect();
        self.process.rules.permits.status(&loaded, clients)
    }

    /// Returns the reservations of numbers by docward's own user.
    #[must_use]
    pub fn reservations(&self) -> ReservationCounts {
        self.process.rules.service.reservations()
    }

    /// Returns the background workers of rules, sorted by rule.
    #[must_use]
    pub fn workers(&self) -> Vec<WorkerStatus> {
        self.process.rules.service.workers()
    }

    /// Returns the address of the query listener.
    #[must_use]
    pub fn query_address(&self) -> Option<SocketAddr> {
        self.query_address
    }
}
