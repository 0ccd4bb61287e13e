//! What all connections that come through one listener share.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::observations::Observations;
use super::topology::Topology;
use crate::engine::handshake::AddressMap;
use crate::service::Service;
use crate::wire::compressed::Method;

/// One listener's view: which member is behind it, and what its sessions need.
pub(super) struct Door<P> {
    /// Index of the listener in the topology.
    pub(super) index: usize,
    pub(super) topology: Arc<Topology>,
    /// Swapped whole; a message sees one consistent set.
    pub(super) rules: Arc<ArcSwap<P>>,
    pub(super) service: Arc<dyn Service>,
    pub(super) observations: Arc<Observations>,
    /// What the upstream is offered, whatever the client speaks; `None`: what the client offers.
    pub(super) compressors: Option<Arc<[Method]>>,
}

impl<P> Door<P> {
    /// The addresses for hello replies to a client that connected to `local`.
    pub(super) fn addresses(&self, local: IpAddr) -> AddressMap {
        self.topology.addresses(self.index, local)
    }
}

impl<P> std::fmt::Debug for Door<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").field("index", &self.index).finish_non_exhaustive()
    }
}
