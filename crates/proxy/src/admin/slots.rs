//! Bounds the connections of the admin address, in total and for each peer. A new connection always gets a slot, so
//! that health probes do. If no slot is free, the peer with the most connections loses one.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// The timeout for a request and its response; slower clients are disconnected.
pub(super) const LIFETIME: Duration = Duration::from_secs(30);
/// The most connections at a time. A console has three, a scraper or a probe one.
const CONNECTIONS: usize = 128;
/// The most connections from one address: half, so that a single peer cannot take all slots.
const CONNECTIONS_PER_PEER: usize = 64;

/// The most streams of decisions at a time; leaves connections for health and metrics.
const STREAMS: usize = 16;

/// What a connection is doing. Connections in an earlier stage are closed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ConnectionStage {
    /// It receives the head of its request.
    Head,
    /// It receives the response.
    Response,
    /// It streams decisions, until the client closes it.
    Stream,
    /// It receives a capture, which has an end of its own.
    Capture,
}

/// The slots of all connections.
#[derive(Debug, Clone, Default)]
pub(super) struct Slots(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    /// Oldest first.
    held: Vec<HeldSlot>,
    last_id: u64,
}

#[derive(Debug)]
struct HeldSlot {
    id: u64,
    peer: IpAddr,
    stage: ConnectionStage,
    since: Instant,
    close: Arc<Notify>,
}

/// The slot of one connection, until this is dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    slots: Slots,
    id: u64,
    close: Arc<Notify>,
}

impl Slots {
    /// Takes a slot for a connection from `peer`. If none is free, another connection is asked to close.
    pub(super) fn take(&self, peer: IpAddr) -> ConnectionSlot {
        let mut table = self.lock();
        if let Some(evicted) = table.evicted(peer) {
            table.close(evicted);
        }
        table.last_id += 1;
        let (id, close) = (table.last_id, Arc::<Notify>::default());
        table.held.push(HeldSlot {
            id,
            peer,
            stage: ConnectionStage::Head,
            since: Instant::now(),
            close: close.clone(),
        });
        ConnectionSlot { slots: self.clone(), id, close }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn enter(&mut self, id: u64, stage: ConnectionStage) {
        if let Some(held) = self.held.iter_mut().find(|held| held.id == id) {
            held.stage = stage;
        }
    }

    fn enter_stream(&mut self, id: u64, now: Instant) -> bool {
        if self.held.iter().filter(|held| held.stage == ConnectionStage::Stream).count() >= STREAMS {
            let Some(evicted) = self.evicted_stream(now) else { return false };
            self.close(evicted);
        }
        self.enter(id, ConnectionStage::Stream);
        true
    }

    fn close(&mut self, at: usize) {
        self.held.remove(at).close.notify_one();
    }

    /// The stream to close for a new one: the oldest of the peer with the most streams. A client that does not read is
    /// noticed only when the buffers of the operating systems are full, so a stream can be lost after the time that
    /// every other response has.
    fn evicted_stream(&self, now: Instant) -> Option<usize> {
        let streams = || self.held.iter().enumerate().filter(|(_, held)| held.stage == ConnectionStage::Stream);
        let of = |peer: IpAddr| streams().filter(|(_, held)| held.peer == peer).count();
        let oldest = streams().min_by_key(|(at, held)| (std::cmp::Reverse(of(held.peer)), *at));
        oldest.filter(|(_, held)| now.saturating_duration_since(held.since) >= LIFETIME).map(|(at, _)| at)
    }

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

impl ConnectionSlot {
    pub(super) fn enter(&self, stage: ConnectionStage) {
        self.slots.lock().enter(self.id, stage);
    }

    /// Begins to stream decisions. Returns false if too many connections do and none can be closed for this one.
    pub(super) fn enter_stream(&self) -> bool {
        self.slots.lock().enter_stream(self.id, Instant::now())
    }

    /// `None`: it must close for a new one.
    pub(super) fn stage(&self) -> Option<ConnectionStage> {
        self.slots.lock().held.iter().find(|held| held.id == self.id).map(|held| held.stage)
    }

    /// Waits until the connection must close for a new one.
    pub(super) async fn lost(&self) {
        self.close.notified().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.slots.lock().held.retain(|held| held.id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn lost(slots: &[ConnectionSlot]) -> Vec<usize> {
        let lost = |(at, slot): (usize, &ConnectionSlot)| slot.lost().now_or_never().map(|()| at);
        slots.iter().enumerate().filter_map(lost).collect()
    }

    #[test]
    fn the_oldest_connection_in_the_earliest_stage_is_closed() {
        let (slots, peer) = (Slots::default(), IpAddr::from([10, 0, 0, 1]));
        let mut held: Vec<ConnectionSlot> = (0..CONNECTIONS_PER_PEER).map(|_| slots.take(peer)).collect();
        assert!(lost(&held).is_empty());
        held[0].enter(ConnectionStage::Stream);
        held[1].enter(ConnectionStage::Response);
        held.push(slots.take(peer));
        assert_eq!(lost(&held), [2]);
        held.iter().for_each(|slot| slot.enter(ConnectionStage::Stream));
        held[1].enter(ConnectionStage::Response);
        held.push(slots.take(peer));
        assert_eq!(lost(&held), [1]);
        drop(held.drain(..10));
        held.push(slots.take(peer));
        assert_eq!(lost(&held), [0; 0]);
    }

    #[test]
    fn a_stream_is_closed_for_a_new_one_after_the_lifetime_of_other_responses() {
        let (slots, now) = (Slots::default(), Instant::now());
        let of_peer = |(last, count)| std::iter::repeat_n(IpAddr::from([10, 0, 0, last]), count);
        let peers = [(1, 2), (2, STREAMS - 2), (3, 2)].into_iter().flat_map(of_peer);
        let held: Vec<ConnectionSlot> = peers.map(|peer| slots.take(peer)).collect();
        assert!(held[..STREAMS].iter().all(ConnectionSlot::enter_stream));
        assert!(!held[STREAMS].enter_stream() && lost(&held).is_empty());
        for slot in &held[STREAMS..] {
            assert!(slots.lock().enter_stream(slot.id, now + 2 * LIFETIME));
        }
        assert_eq!(lost(&held), [2, 3]);
    }

    #[test]
    fn the_peer_with_the_most_connections_loses_one() {
        let slots = Slots::default();
        let peer = |last| IpAddr::from([10, 0, 0, last]);
        let mut held: Vec<ConnectionSlot> = Vec::new();
        for last in 0..2 {
            held.extend((0..CONNECTIONS_PER_PEER - usize::from(last)).map(|_| slots.take(peer(last))));
        }
        held.push(slots.take(peer(2)));
        assert!(lost(&held).is_empty());
        held.push(slots.take(peer(3)));
        assert_eq!(lost(&held), [0]);
    }
}
