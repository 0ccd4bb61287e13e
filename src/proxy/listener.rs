//! What all connections that come through one listener share: who is behind it, and what their sessions need.

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

/// What the query listener is for; no member's name is without a port.
pub(super) const QUERIES: &str = "queries";

/// One listener's view.
pub(super) struct ListenerContext<P> {
    pub(super) behind: Backend,
    pub(super) topology: Arc<Topology>,
    /// Swapped whole; a message sees one consistent set.
    pub(super) rules: Arc<ArcSwap<P>>,
    pub(super) service: Arc<dyn Service>,
    pub(super) outcomes: Arc<RuleOutcomes>,
    pub(super) transactions: Arc<Transactions>,
    pub(super) connection_counters: Arc<ConnectionCounters>,
    pub(super) meter: Arc<Meter>,
    pub(super) memory: Arc<Memory>,
    /// What docward offers the upstream whatever its clients do, the best first.
    pub(super) compressors: Option<Arc<[Method]>>,
    /// Told when a server could not be reached.
    pub(super) recheck: Arc<Notify>,
    pub(super) leaving: Arc<HandOverSender>,
    pub(super) activity: Arc<ActivityCounters>,
    /// How the member answered a hello last; set before its connections drain.
    pub(super) last_answer: OnceLock<Arc<[u8]>>,
}

/// Who answers.
#[derive(Debug, Clone)]
pub(super) enum Backend {
    /// The member of this place in the topology.
    Member { place: usize, closing: Arc<watch::Sender<Closing>> },
    /// Whoever may answer queries.
    Queries(Arc<Queries>),
}

/// What is to become of a connection; later ones are more urgent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Closing {
    #[default]
    Open,
    /// It does not close: another process goes on with it, from between two messages.
    Pass,
    /// It will: drivers are to choose its member no more.
    Retire,
    /// As soon as this harms nobody.
    WhenIdle,
    /// Whatever is under way: the server will not answer.
    Now,
}

/// A server for a new connection.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) dial: Address,
    pub(super) closing: watch::Receiver<Closing>,
}

impl<P> ListenerContext<P> {
    /// The servers for a new connection, in the order they are tried.
    pub(super) fn ways(&self) -> Vec<Way> {
        match &self.behind {
            Backend::Member { place, closing } => {
                let way = |dial| Way { dial, closing: closing.subscribe() };
                self.topology.dial(*place).map(way).into_iter().collect()
            }
            Backend::Queries(queries) => queries.ways(),
        }
    }

    /// What the listener is for, whichever process it is in; `None`: its member is gone.
    pub(super) fn purpose(&self) -> Option<String> {
        match &self.behind {
            Backend::Member { place, .. } => self.topology.name(*place),
            Backend::Queries(_) => Some(QUERIES.to_owned()),
        }
    }

    /// What hello replies show to a client that connected to `local`.
    pub(super) fn presentation(&self, local: IpAddr) -> Presentation {
        match &self.behind {
            Backend::Member { place, .. } => Presentation::Member(self.topology.addresses(*place, local)),
            Backend::Queries(_) => Presentation::Standalone,
        }
    }

    pub(super) fn listener_kind(&self, local: IpAddr) -> ListenerKind {
        match &self.behind {
            Backend::Member { .. } => ListenerKind::Commands,
            Backend::Queries(_) => ListenerKind::Queries { commands: self.topology.first_address(local).into() },
        }
    }
}

/// Another listener's listener_context.
impl<P> ListenerContext<P> {
    pub(super) fn to(&self, behind: Backend) -> Self {
        Self {
            behind,
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
            leaving: self.leaving.clone(),
            activity: self.activity.clone(),
            last_answer: OnceLock::new(),
        }
    }
}

impl<P> std::fmt::Debug for ListenerContext<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListenerContext").field("behind", &self.behind).finish_non_exhaustive()
    }
}
