//! What all connections that come through one listener share: who is behind it, and what their sessions need.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};

use super::census::Census;
use super::hand_over::Leaving;
use super::memory::Memory;
use super::meter::Meter;
use super::observations::Observations;
use super::queries::Queries;
use super::retirement::Bustle;
use super::topology::Topology;
use super::transactions::Transactions;
use super::upstream::Address;
use crate::engine::Entrance;
use crate::engine::handshake::Face;
use crate::service::Service;
use crate::wire::compressed::Method;

/// What the query listener is for; no member's name is without a port.
pub(super) const QUERIES: &str = "queries";

/// One listener's view.
pub(super) struct Door<P> {
    pub(super) behind: Behind,
    pub(super) topology: Arc<Topology>,
    /// Swapped whole; a message sees one consistent set.
    pub(super) rules: Arc<ArcSwap<P>>,
    pub(super) service: Arc<dyn Service>,
    pub(super) observations: Arc<Observations>,
    pub(super) transactions: Arc<Transactions>,
    pub(super) census: Arc<Census>,
    pub(super) meter: Arc<Meter>,
    pub(super) memory: Arc<Memory>,
    /// What docward offers the upstream whatever its clients do, the best first.
    pub(super) compressors: Option<Arc<[Method]>>,
    /// Told when a server could not be reached.
    pub(super) hurry: Arc<Notify>,
    pub(super) leaving: Arc<Leaving>,
    pub(super) bustle: Arc<Bustle>,
    /// How the member answered a hello last; set before its connections retire.
    pub(super) last_answer: OnceLock<Arc<[u8]>>,
}

/// Who answers.
#[derive(Debug, Clone)]
pub(super) enum Behind {
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

impl<P> Door<P> {
    /// The servers for a new connection, in the order they are tried.
    pub(super) fn ways(&self) -> Vec<Way> {
        match &self.behind {
            Behind::Member { place, closing } => {
                let way = |dial| Way { dial, closing: closing.subscribe() };
                self.topology.dial(*place).map(way).into_iter().collect()
            }
            Behind::Queries(queries) => queries.ways(),
        }
    }

    /// What the listener is for, whichever process it is in; `None`: its member is gone.
    pub(super) fn purpose(&self) -> Option<String> {
        match &self.behind {
            Behind::Member { place, .. } => self.topology.name(*place),
            Behind::Queries(_) => Some(QUERIES.to_owned()),
        }
    }

    /// What hello replies show to a client that connected to `local`.
    pub(super) fn face(&self, local: IpAddr) -> Face {
        match &self.behind {
            Behind::Member { place, .. } => Face::Member(self.topology.addresses(*place, local)),
            Behind::Queries(_) => Face::Standalone,
        }
    }

    pub(super) fn entrance(&self, local: IpAddr) -> Entrance {
        match &self.behind {
            Behind::Member { .. } => Entrance::Commands,
            Behind::Queries(_) => Entrance::Queries { commands: self.topology.first_address(local).into() },
        }
    }
}

/// Another listener's door.
impl<P> Door<P> {
    pub(super) fn to(&self, behind: Behind) -> Self {
        Self {
            behind,
            topology: self.topology.clone(),
            rules: self.rules.clone(),
            service: self.service.clone(),
            observations: self.observations.clone(),
            transactions: self.transactions.clone(),
            census: self.census.clone(),
            meter: self.meter.clone(),
            memory: self.memory.clone(),
            compressors: self.compressors.clone(),
            hurry: self.hurry.clone(),
            leaving: self.leaving.clone(),
            bustle: self.bustle.clone(),
            last_answer: OnceLock::new(),
        }
    }
}

impl<P> std::fmt::Debug for Door<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").field("behind", &self.behind).finish_non_exhaustive()
    }
}
