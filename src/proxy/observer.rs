//! What can be seen of a running proxy from outside: counts, decisions, members, how far it has come. Copies are
//! handed out, so that who looks never holds up a connection.

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

/// Sees what goes on in a [`Proxy`](super::Proxy), as long as it likes.
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
    /// The rules in force, and every rule with what it has said since it was first loaded; reloads do not end a count.
    #[must_use]
    pub fn report(&self) -> (Arc<P>, Vec<LiveRule>) {
        let rules = self.rules();
        let report = self.outcomes.report(&*rules);
        (rules, report)
    }

    /// The same as log lines.
    pub fn log(&self) {
        self.report().1.iter().for_each(LiveRule::log);
    }

    /// The rules in force.
    #[must_use]
    pub fn rules(&self) -> Arc<P> {
        self.rules.load_full()
    }

    /// The last decisions, the oldest first, and those to come. A receiver that falls behind loses some, and is told.
    #[must_use]
    pub fn decisions(&self) -> (Vec<Arc<Decision>>, Receiver<Arc<Decision>>) {
        self.outcomes.follow()
    }

    /// The members, as far as they are known.
    #[must_use]
    pub fn members(&self) -> Vec<MemberStatus> {
        self.board.members()
    }

    #[must_use]
    pub fn phase(&self) -> watch::Receiver<Phase> {
        self.board.phase()
    }

    /// Clients' connections that are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.limits.open()
    }

    /// What large messages take of the memory that is there for them.
    #[must_use]
    pub fn memory(&self) -> MemoryUse {
        self.memory.usage()
    }

    /// Clients' connections since the start.
    #[must_use]
    pub fn connection_counts(&self) -> ConnectionCounts {
        self.connection_counters.counts()
    }

    /// What passed since the start; `None` when nothing is measured.
    #[must_use]
    pub fn measures(&self) -> Option<Measures> {
        self.meter.measures()
    }

    /// Blocks of numbers that docward's own user took.
    #[must_use]
    pub fn leases(&self) -> Leases {
        self.service.leases()
    }

    /// The query listener's address.
    #[must_use]
    pub fn query_address(&self) -> Option<SocketAddr> {
        self.query_address
    }
}
