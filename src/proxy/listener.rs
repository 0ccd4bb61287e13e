//! The context that all connections of one listener share: its backend and the state its connections need.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};

use super::activity::ActivityCounters;
use super::connection_counts::ConnectionCounters;
use super::hand_over::HandOverSender;
use super::memory::Memory;
use super::meter::Meter;
use super::queries::Queries;
use super::rule_outcomes::RuleOutcomes;
use super::topology::Topology;
use super::transactions::Transactions;
use super::upstream::Address;
use crate::engine::ListenerKind;
use crate::engine::handshake::Presentation;
use crate::service::Service;
use crate::wire::compressed::Method;

/// Purpose of the query listener. It cannot equal a member's name, which always has a port.
pub(super) const QUERIES: &str = "queries";

/// Context of one listener.
pub(super) struct ListenerContext<P> {
    pub(super) backend: Backend,
    pub(super) topology: Arc<Topology>,
    /// Replaced as a whole, so that each message sees one consistent rule set.
    pub(super) rules: Arc<ArcSwap<P>>,
    pub(super) service: Arc<dyn Service>,
    pub(super) outcomes: Arc<RuleOutcomes>,
    pub(super) transactions: Arc<Transactions>,
    pub(super) connection_counters: Arc<ConnectionCounters>,
    pub(super) meter: Arc<Meter>,
    pub(super) memory: Arc<Memory>,
    /// Compressors docward offers to the upstream independently of its clients, in order of preference.
    pub(super) compressors: Option<Arc<[Method]>>,
    /// Notified when a server could not be reached.
    pub(super) recheck: Arc<Notify>,
    pub(super) hand_over_queue: Arc<HandOverSender>,
    pub(super) activity: Arc<ActivityCounters>,
    /// The member's last hello reply; set before its connections drain.
    pub(super) last_answer: OnceLock<Arc<[u8]>>,
}

/// The servers of a listener.
#[derive(Debug, Clone)]
pub(super) enum Backend {
    /// The member at this index of the topology.
    Member { slot: usize, closing: Arc<watch::Sender<Closing>> },
    /// The servers that may answer queries.
    Queries(Arc<Queries>),
}

/// The state a listener sets for its connections; later variants are more urgent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Closing {
    #[default]
    Open,
    /// Pass the connection to another process, between two messages.
    Pass,
    /// The process will end: drivers must stop selecting its members.
    Drain,
    /// Close when the connection is idle.
    WhenIdle,
    /// Close immediately: the server will not answer.
    Now,
}

/// A server to try for a new connection.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) dial: Address,
    pub(super) closing: watch::Receiver<Closing>,
}

impl<P> ListenerContext<P> {
    /// The servers for a new connection, in the order to try them.
    pub(super) fn candidates(&self) -> Vec<Candidate> {
        match &self.backend {
            Backend::Member { slot, closing } => {
                let candidate = |dial| Candidate { dial, closing: closing.subscribe() };
                self.topology.dial(*slot).map(candidate).into_iter().collect()
            }
            Backend::Queries(queries) => queries.candidates(),
        }
    }

    /// The listener's purpose, the same in every process; `None`: its member is gone.
    pub(super) fn purpose(&self) -> Option<String> {
        match &self.backend {
            Backend::Member { slot, .. } => self.topology.name(*slot),
            Backend::Queries(_) => Some(QUERIES.to_owned()),
        }
    }

    /// What hello replies contain for a client that connected to `local`.
    pub(super) fn presentation(&self, local: IpAddr) -> Presentation {
        match &self.backend {
            Backend::Member { slot, .. } => Presentation::Member(self.topology.addresses(*slot, local)),
            Backend::Queries(_) => Presentation::Standalone,
        }
    }

    pub(super) fn listener_kind(&self, local: IpAddr) -> ListenerKind {
        match &self.backend {
            Backend::Member { .. } => ListenerKind::Commands,
            Backend::Queries(_) => ListenerKind::Queries { commands: self.topology.first_address(local).into() },
        }
    }
}

/// Derives the context of another listener.
impl<P> ListenerContext<P> {
    pub(super) fn to(&self, backend: Backend) -> Self {
        Self {
            backend,
            topology: self.topology.clone(),
            rules: self.rules.clone(),
            service: self.service.clone(),
            outcomes: self.outcomes.clone(),
            transactions: self.transactions.clone(),
            connection_counters: self.connection_counters.clone(),
            meter: self.meter.clone(),
            memory: self.memory.clone(),
            compressors: self.compressors.clone(),
            recheck: self.recheck.clone(),
            hand_over_queue: self.hand_over_queue.clone(),
            activity: self.activity.clone(),
            last_answer: OnceLock::new(),
        }
    }
}

impl<P> std::fmt::Debug for ListenerContext<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListenerContext").field("backend", &self.backend).finish_non_exhaustive()
    }
}
