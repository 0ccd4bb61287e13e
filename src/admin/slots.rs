//! Bounds the connections of the admin address, in total and for each peer. A new connection always gets a slot, so
//! that health probes do. If no slot is free, the peer with the most connections loses one.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The most connections at a time. A console has three, a scraper or a probe one.
const CONNECTIONS: usize = 128;
/// The most connections from one address: half, so that a single peer cannot take all slots.
const CONNECTIONS_PER_PEER: usize = 64;

/// What a connection is doing. Connections in an earlier stage are closed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// It receives the head of its request.
    Head,
    /// It receives the response.
    Answer,
    /// It streams decisions, until the client closes it.
    Stream,
}

/// The slots of all connections.
#[derive(Debug, Clone, Default)]
pub(super) struct Slots(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    /// Oldest first.
    held: Vec<Held>,
    last_id: u64,
}

#[derive(Debug)]
struct Held {
    id: u64,
    peer: IpAddr,
    stage: Stage,
    close: Arc<Notify>,
}

/// The slot of one connection, until this is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Slots,
    id: u64,
    close: Arc<Notify>,
}

impl Slots {
    /// Takes a slot for a connection from `peer`. If none is free, another connection is asked to close.
    pub(super) fn take(&self, peer: IpAddr) -> Slot {
        let mut table = self.lock();
        if let Some(evicted) = table.evicted(peer) {
            table.held.remove(evicted).close.notify_one();
        }
        table.last_id += 1;
        let (id, close) = (table.last_id, Arc::<Notify>::default());
        table.held.push(Held { id, peer, stage: Stage::Head, close: close.clone() });
        Slot { slots: self.clone(), id, close }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// The connection to close for a new one from `peer`: one of `peer` if it has all its slots, else, if all slots are
    /// taken, one of the peer with the most connections. Of that peer, the oldest in the earliest stage.
    fn evicted(&self, peer: IpAddr) -> Option<usize> {
        let of = |peer: IpAddr| self.held.iter().filter(move |held| held.peer == peer).count();
        let peer_to_evict = if of(peer) >= CONNECTIONS_PER_PEER {
            peer
        } else if self.held.len() >= CONNECTIONS {
            self.held.iter().map(|held| held.peer).max_by_key(|peer| of(*peer))?
        } else {
            return None;
        };
        let candidates = self.held.iter().enumerate().filter(|(_, held)| held.peer == peer_to_evict);
        candidates.min_by_key(|(at, held)| (held.stage, *at)).map(|(at, _)| at)
    }
}

impl Slot {
    pub(super) fn enter(&self, stage: Stage) {
        let mut table = self.slots.lock();
        if let Some(held) = table.held.iter_mut().find(|held| held.id == self.id) {
            held.stage = stage;
        }
    }

    /// Whether it streams decisions.
    pub(super) fn is_stream(&self) -> bool {
        self.slots.lock().held.iter().any(|held| held.id == self.id && held.stage == Stage::Stream)
    }

    /// Waits until the connection must close for a new one.
    pub(super) async fn lost(&self) {
        self.close.notified().await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.lock().held.retain(|held| held.id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn lost(slots: &[Slot]) -> Vec<usize> {
        let lost = |(at, slot): (usize, &Slot)| slot.lost().now_or_never().map(|()| at);
        slots.iter().enumerate().filter_map(lost).collect()
    }

    #[test]
    fn the_oldest_connection_in_the_earliest_stage_is_closed() {
        let (slots, peer) = (Slots::default(), IpAddr::from([10, 0, 0, 1]));
        let mut held: Vec<Slot> = (0..CONNECTIONS_PER_PEER).map(|_| slots.take(peer)).collect();
        assert!(lost(&held).is_empty());
        held[0].enter(Stage::Stream);
        held[1].enter(Stage::Answer);
        held.push(slots.take(peer));
        assert_eq!(lost(&held), [2]);
        held.iter().for_each(|slot| slot.enter(Stage::Stream));
        held[1].enter(Stage::Answer);
        held.push(slots.take(peer));
        assert_eq!(lost(&held), [1]);
        drop(held.drain(..10));
        held.push(slots.take(peer));
        assert_eq!(lost(&held), [0; 0]);
    }

    #[test]
    fn the_peer_with_the_most_connections_loses_one() {
        let slots = Slots::default();
        let peer = |last| IpAddr::from([10, 0, 0, last]);
        let mut held: Vec<Slot> = Vec::new();
        for last in 0..2 {
            held.extend((0..CONNECTIONS_PER_PEER - usize::from(last)).map(|_| slots.take(peer(last))));
        }
        held.push(slots.take(peer(2)));
        assert!(lost(&held).is_empty());
        held.push(slots.take(peer(3)));
        assert_eq!(lost(&held), [0]);
    }
}
