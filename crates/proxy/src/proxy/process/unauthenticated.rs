//! Bounds the connections that have not logged in although they must. When there are too many, the oldest connection
//! of the address with the most of them closes. So a client that opens many displaces its own.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::FutureExt;
use tokio::sync::oneshot;

/// All such connections.
#[derive(Debug, Default)]
pub(in crate::proxy) struct UnauthenticatedConnections {
    list: Mutex<UnauthenticatedList>,
}

#[derive(Debug, Default)]
struct UnauthenticatedList {
    /// `None`: unlimited.
    limit: Option<usize>,
    next: u64,
    /// Ordered by arrival.
    waiting: BTreeMap<u64, (IpAddr, oneshot::Sender<()>)>,
    by_address: HashMap<IpAddr, usize>,
}

/// Counts one connection until it is dropped.
#[derive(Debug)]
pub(in crate::proxy) struct Slot {
    unauthenticated: Arc<UnauthenticatedConnections>,
    number: u64,
    displaced: oneshot::Receiver<()>,
}

impl UnauthenticatedConnections {
    pub(in crate::proxy) fn set_limit(&self, limit: Option<usize>) {
        self.list().limit = limit;
    }

    /// Adds a connection from this address; another may have to close for it.
    pub(in crate::proxy) fn add(self: &Arc<Self>, address: IpAddr) -> Slot {
        let address = address.to_canonical();
        let (displace, displaced) = oneshot::channel();
        let mut list = self.list();
        if list.limit.is_some_and(|limit| list.waiting.len() >= limit) {
            list.displace();
        }
        let number = list.next;
        list.next += 1;
        list.waiting.insert(number, (address, displace));
        *list.by_address.entry(address).or_default() += 1;
        Slot { unauthenticated: self.clone(), number, displaced }
    }

    fn list(&self) -> MutexGuard<'_, UnauthenticatedList> {
        // No code panics while it holds the lock.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnauthenticatedList {
    fn displace(&mut self) {
        let most = self.by_address.iter().max_by_key(|(_, count)| **count).map(|(address, _)| *address);
        let oldest = self.waiting.iter().find(|(_, (address, _))| Some(*address) == most).map(|(number, _)| *number);
        if let Some((_, displace)) = oldest.and_then(|oldest| self.remove(oldest)) {
            // An error means that its connection has just ended.
            let _ = displace.send(());
        }
    }

    fn remove(&mut self, number: u64) -> Option<(IpAddr, oneshot::Sender<()>)> {
        let removed = self.waiting.remove(&number)?;
        if let Some(count) = self.by_address.get_mut(&removed.0) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&removed.0);
            }
        }
        Some(removed)
    }
}

impl Slot {
    /// Ready when the connection must close.
    pub(in crate::proxy) fn poll_displaced(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.displaced.poll_unpin(cx).map(|_| ())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.unauthenticated.list().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[test]
    fn the_oldest_connection_of_the_busiest_address_is_displaced() {
        let unauthenticated = Arc::<UnauthenticatedConnections>::default();
        unauthenticated.set_limit(Some(3));
        let (one, many) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let is_displaced = |slot: &mut Slot| poll_fn(|cx| slot.poll_displaced(cx)).now_or_never().is_some();
        let mut first = unauthenticated.add(one);
        let (mut second, mut third) = (unauthenticated.add(many), unauthenticated.add(many));
        assert!(!is_displaced(&mut second));
        let mut fourth = unauthenticated.add(one);
        assert!(is_displaced(&mut second) && !is_displaced(&mut first) && !is_displaced(&mut third));
        // Closed and authenticated connections take no slot.
        drop(first);
        let _fifth = unauthenticated.add(many);
        assert!(!is_displaced(&mut third) && !is_displaced(&mut fourth));
        drop((second, third, fourth, _fifth));
        assert!(unauthenticated.list().waiting.is_empty() && unauthenticated.list().by_address.is_empty());
    }
}
