//! A view of a running proxy: counters, decisions, members and its phase. It returns copies, so that readers never
//! delay a connection.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::broadcast::Receiver;
use tokio::sync::watch;

use super::connection_counts::{ConnectionCounters, ConnectionCounts};
use super::decisions::Decision;
use super::interceptor::Interceptor;
use super::limits::Limits;
use super::memory::{Memory, MemoryUse};
use super::meter::{Measures, Meter};
use super::rule_outcomes::{LiveRule, RuleOutcomes};
use super::status::{MemberStatus, Phase, StatusBoard};
use crate::service::{Leases, Service};

/// Observes a [`Proxy`](super::Proxy). It may outlive it.
pub struct Observer<P> {
    pub(super) outcomes: Arc<RuleOutcomes>,
    pub(super) rules: Arc<ArcSwap<P>>,
    pub(super) board: Arc<StatusBoard>,
    pub(super) limits: Arc<Limits>,
    pub(super) connection_counters: Arc<ConnectionCounters>,
    pub(super) meter: Arc<Meter>,
    pub(super) memory: Arc<Memory>,
    pub(super) service: Arc<dyn Service>,
    pub(super) query_address: Option<SocketAddr>,
}

impl<P: Interceptor> Observer<P> {
    /// Returns the current rules, and every rule with its counters since it was first loaded; reloads do not reset
    /// them.
    #[must_use]
    pub fn report(&self) -> (Arc<P>, Vec<LiveRule>) {
        let rules = self.rules();
        let report = self.outcomes.report(&*rules);
        (rules, report)
    }

    /// Logs the report.
    pub fn log(&self) {
        self.report().1.iter().for_each(LiveRule::log);
    }

    /// Returns the current rules.
    #[must_use]
    pub fn rules(&self) -> Arc<P> {
        self.rules.load_full()
    }

    /// Returns the last decisions, the oldest first, and a receiver for new ones. A receiver that lags too far behind
    /// misses some and gets an error.
    #[must_use]
    pub fn decisions(&self) -> (Vec<Arc<Decision>>, Receiver<Arc<Decision>>) {
        self.outcomes.follow()
    }

    /// Returns the known members.
    #[must_use]
    pub fn members(&self) -> Vec<MemberStatus> {
        self.board.members()
    }

    #[must_use]
    pub fn phase(&self) -> watch::Receiver<Phase> {
        self.board.phase()
    }

    /// Returns the number of open client connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.limits.open()
    }

    /// Returns how much of their memory budget large messages use.
    #[must_use]
    pub fn memory(&self) -> MemoryUse {
        self.memory.usage()
    }

    /// Returns the counters of client connections since the start.
    #[must_use]
    pub fn connection_counts(&self) -> ConnectionCounts {
        self.connection_counters.counts()
    }

    /// Returns the measurements since the start; `None` if nothing is measured.
    #[must_use]
    pub fn measures(&self) -> Option<Measures> {
        self.meter.measures()
    }

    /// Returns the blocks of numbers leased by docward's own user.
    #[must_use]
    pub fn leases(&self) -> Leases {
        self.service.leases()
    }

    /// Returns the address of the query listener.
    #[must_use]
    pub fn query_address(&self) -> Option<SocketAddr> {
        self.query_address
    }
}
