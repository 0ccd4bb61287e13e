//! The context that all connections of one listener share.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::engine::handshake::Presentation;
use crate::engine::{ListenerKind, ServerTimes};
use crate::proxy::members::closing::{CandidateServer, Closing};
use crate::proxy::members::queries::Queries;
use crate::proxy::process::context::ProcessContext;
use crate::proxy::server_side::pool::member::Member;
use crate::proxy::server_side::router::Router;
use crate::proxy::transport::socket::SocketStream;
use crate::rules::RuleSet;

/// Purpose of the query listener. It cannot equal a member's name, which always has a port.
pub(in crate::proxy) const QUERIES: &str = "queries";
/// Purpose of the router's listener.
pub(in crate::proxy) const ROUTER: &str = "router";

/// Context of one listener.
pub(in crate::proxy) struct ListenerContext<P = RuleSet> {
    pub(in crate::proxy) backend: Backend,
    pub(in crate::proxy) process: Arc<ProcessContext<P>>,
    /// The member's last hello reply.
    last_reply: Mutex<Option<Arc<[u8]>>>,
}

/// The servers of a listener.
#[derive(Clone)]
pub(in crate::proxy) enum Backend {
    /// The member at this index of the topology.
    Member { slot: usize, closing: Arc<watch::Sender<Closing>> },
    /// The servers that may answer queries.
    Queries(Arc<Queries>),
    /// All members: each request goes to the one that it asks for.
    Router { router: Arc<Router<SocketStream>>, closing: Arc<watch::Sender<Closing>> },
}

impl<P> ListenerContext<P> {
    pub(in crate::proxy) fn new(backend: Backend, process: Arc<ProcessContext<P>>) -> Self {
        Self { backend, process, last_reply: Mutex::default() }
    }

    /// The member's last hello reply; `None`: it has not replied yet, or there are several servers.
    pub(in crate::proxy) fn last_reply(&self) -> Option<Arc<[u8]>> {
        self.last_reply.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(in crate::proxy) fn set_last_reply(&self, reply: Arc<[u8]>) {
        *self.last_reply.lock().unwrap_or_else(PoisonError::into_inner) = Some(reply);
    }

    /// Returns a reply that docward has written itself with the newest times that the member's monitor has seen. The
    /// monitor has not logged in, so every client may have its signature of the cluster time.
    pub(in crate::proxy) fn with_times(&self, reply: Vec<u8>) -> Vec<u8> {
        match self.last_reply() {
            Some(hello) => ServerTimes::of_reply(&hello).completing(reply),
            None => reply,
        }
    }

    /// The servers for a new connection, in the order to try them.
    pub(in crate::proxy) fn candidates(&self) -> Vec<CandidateServer> {
        match &self.backend {
            Backend::Member { slot, closing } => {
                let candidate = |address| CandidateServer { address, closing: closing.subscribe() };
                self.process.members.topology.server_address(*slot).map(candidate).into_iter().collect()
            }
            Backend::Queries(queries) => queries.candidates(),
            Backend::Router { router, closing } => {
                let member = router.for_login();
                let candidate = |member: Arc<Member<SocketStream>>| CandidateServer {
                    address: member.address().clone(),
                    closing: closing.subscribe(),
                };
                member.map(candidate).into_iter().collect()
            }
        }
    }

    /// What hello replies contain for a client that connected to `local`.
    pub(in crate::proxy) fn presentation(&self, local: IpAddr) -> Presentation {
        match &self.backend {
            Backend::Member { slot, .. } => Presentation::Member(self.process.members.topology.addresses(*slot, local)),
            Backend::Queries(_) => Presentation::Standalone,
            Backend::Router { .. } => Presentation::Router,
        }
    }

    pub(in crate::proxy) fn listener_kind(&self, local: IpAddr) -> ListenerKind {
        match &self.backend {
            Backend::Member { .. } => ListenerKind::Commands,
            Backend::Router { .. } => ListenerKind::Router,
            Backend::Queries(_) => {
                ListenerKind::Queries { commands: self.process.members.topology.first_address(local).into() }
            }
        }
    }
}
