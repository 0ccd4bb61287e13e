//! Which server each connection of the query listener goes to, and when it has to go.
//!
//! Who may answer is decided in [`super::membership`]; here they take turns. A server that may not any more loses
//! its connections as soon as they are idle, and drivers come back to another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::listener::{Closing, Way};
use super::upstream::Address;

/// The servers that may answer queries.
#[derive(Debug, Default)]
pub(super) struct Queries {
    servers: ArcSwap<Vec<Server>>,
    next: AtomicUsize,
}

#[derive(Debug, Clone)]
struct Server {
    dial: Address,
    closing: Arc<watch::Sender<Closing>>,
}

impl Queries {
    /// Takes over who may answer; called by one task only. Connections to others close, to those that do not answer
    /// any more at once: their clients would wait on, since a driver that knows of one server only watches over
    /// whichever answers its monitor.
    pub(super) fn follow(&self, addresses: &[Address], answers: impl Fn(&Address) -> bool) {
        let before = self.servers.load_full();
        let server = |dial: &Address| {
            let known = before.iter().find(|server| server.dial == *dial).cloned();
            known.unwrap_or_else(|| Server { dial: dial.clone(), closing: Arc::default() })
        };
        let now: Vec<Server> = addresses.iter().map(server).collect();
        self.servers.store(Arc::new(now));
        for server in before.iter().filter(|server| !addresses.contains(&server.dial)) {
            tracing::info!("queries do not go to {} any more", server.dial);
            server.closing.send_replace(if answers(&server.dial) { Closing::WhenIdle } else { Closing::Now });
        }
    }

    /// Who may answer at present.
    pub(super) fn servers(&self) -> Vec<Address> {
        self.servers.load().iter().map(|server| server.dial.clone()).collect()
    }

    /// Tells all connections what becomes of them.
    pub(super) fn tell(&self, closing: Closing) {
        for server in self.servers.load().iter() {
            server.closing.send_replace(closing);
        }
    }

    /// Where connections to this server hear what is to become of them; those to one that may not answer go elsewhere as
    /// soon as they are idle.
    pub(super) fn closing(&self, dial: &Address) -> watch::Receiver<Closing> {
        let servers = self.servers.load();
        let known = servers.iter().find(|server| server.dial == *dial);
        known.map_or_else(|| watch::channel(Closing::WhenIdle).1, |server| server.closing.subscribe())
    }

    /// The servers in the order in which a new connection tries them; each connection begins with another.
    pub(super) fn ways(&self) -> Vec<Way> {
        let servers = self.servers.load();
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let turn = |offset: usize| servers.get(first.wrapping_add(offset) % servers.len());
        let way = |server: &Server| Way { dial: server.dial.clone(), closing: server.closing.subscribe() };
        (0..servers.len()).filter_map(turn).map(way).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_take_turns_and_who_leaves_closes() {
        let address = |name: &str| Address::parse(name).unwrap();
        let queries = Queries::default();
        assert!(queries.ways().is_empty());
        queries.follow(&[address("a:1"), address("b:1")], |_| true);
        let order = |ways: &[Way]| ways.iter().map(|way| way.dial.host.clone()).collect::<Vec<_>>().concat();
        let ways = [queries.ways(), queries.ways()];
        let mut orders: Vec<_> = ways.iter().map(|ways| order(ways)).collect();
        orders.sort();
        assert_eq!(orders, ["ab", "ba"]);
        queries.follow(&[address("b:1")], |_| false);
        let closing: Vec<_> = ways[0].iter().map(|way| (way.dial.host.as_str(), *way.closing.borrow())).collect();
        assert!(closing.contains(&("a", Closing::Now)) && closing.contains(&("b", Closing::Open)), "{closing:?}");
        assert_eq!(order(&queries.ways()), "b");
    }
}
