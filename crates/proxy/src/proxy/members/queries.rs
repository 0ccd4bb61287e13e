//! Selects the server for each connection of the query listener, and closes connections to servers that are no longer
//! eligible.
//!
//! [`membership`](super::membership) decides which servers are eligible; here connections are distributed over them in
//! turn. When a server is no longer eligible, its connections close as soon as they are idle, and drivers reconnect to
//! another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::proxy::members::closing::{CandidateServer, Closing};
use crate::proxy::server_side::upstream::Address;

/// The servers that may answer queries.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Queries {
    servers: ArcSwap<Vec<QueryServer>>,
    next: AtomicUsize,
}

#[derive(Debug, Clone)]
struct QueryServer {
    address: Address,
    closing: Arc<watch::Sender<Closing>>,
}

impl Queries {
    /// Sets the eligible servers; called by one task only. Connections to other servers close, immediately if the
    /// server does not answer: its clients would wait, because a driver takes the query listener for one server, and
    /// its monitor may be connected to another one that answers.
    pub(in crate::proxy) fn update(&self, addresses: &[Address], answers: impl Fn(&Address) -> bool) {
        let before = self.servers.load_full();
        let server = |address: &Address| {
            let known = before.iter().find(|server| server.address == *address).cloned();
            known.unwrap_or_else(|| QueryServer { address: address.clone(), closing: Arc::default() })
        };
        let now: Vec<QueryServer> = addresses.iter().map(server).collect();
        self.servers.store(Arc::new(now));
        for server in before.iter().filter(|server| !addresses.contains(&server.address)) {
            let (closing, reason) = match answers(&server.address) {
                true => (Closing::WhenIdle, "its role or staleness has changed, or it left the replica set"),
                false => (Closing::Now, "it does not reply"),
            };
            tracing::info!(member = %server.address, "queries are no longer routed to {}: {reason}", server.address);
            server.closing.send_replace(closing);
        }
    }

    /// The currently eligible servers.
    pub(in crate::proxy) fn servers(&self) -> Vec<Address> {
        self.servers.load().iter().map(|server| server.address.clone()).collect()
    }

    /// Sends a new state to all connections.
    pub(in crate::proxy) fn notify(&self, closing: Closing) {
        for server in self.servers.load().iter() {
            server.closing.send_replace(closing);
        }
    }

    /// The servers in the order a new connection tries them; each connection starts with the next one.
    pub(in crate::proxy) fn candidates(&self) -> Vec<CandidateServer> {
        let servers = self.servers.load();
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let turn = |offset: usize| servers.get(first.wrapping_add(offset) % servers.len());
        let candidate = |server: &QueryServer| CandidateServer {
            address: server.address.clone(),
            closing: server.closing.subscribe(),
        };
        (0..servers.len()).filter_map(turn).map(candidate).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_take_turns_and_connections_to_removed_ones_close() {
        let address = |name: &str| Address::parse(name).unwrap();
        let queries = Queries::default();
        assert!(queries.candidates().is_empty());
        queries.update(&[address("a:1"), address("b:1")], |_| true);
        let order = |candidates: &[CandidateServer]| {
            candidates.iter().map(|one| one.address.host.clone()).collect::<Vec<_>>().concat()
        };
        let candidates = [queries.candidates(), queries.candidates()];
        let mut orders: Vec<_> = candidates.iter().map(|candidates| order(candidates)).collect();
        orders.sort();
        assert_eq!(orders, ["ab", "ba"]);
        queries.update(&[address("b:1")], |_| false);
        let closing: Vec<_> =
            candidates[0].iter().map(|one| (one.address.host.as_str(), *one.closing.borrow())).collect();
        assert!(closing.contains(&("a", Closing::Now)) && closing.contains(&("b", Closing::Open)), "{closing:?}");
        assert_eq!(order(&queries.candidates()), "b");
    }
}
