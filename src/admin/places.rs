//! The connections of the admin address: a bounded number in all and of each peer. A new connection always finds room,
//! so that a health probe does; the peer with the most connections loses one for it.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Connections at a time. A console has three, a scraper or a probe one.
const CONNECTIONS: usize = 128;
/// Of them, from one address: half, so that no single peer takes the room of others.
const CONNECTIONS_PER_PEER: usize = 64;

/// What a connection is doing. The first is the first to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// The head of its request is not complete.
    Head,
    /// It gets an answer.
    Answer,
    /// It follows decisions, which takes as long as somebody looks on.
    Stream,
}

/// All connections.
#[derive(Debug, Clone, Default)]
pub(super) struct Places(Arc<Mutex<Table>>);

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

/// One connection's place, until this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    id: u64,
    close: Arc<Notify>,
}

impl Places {
    /// Makes room for a connection from `peer`: if there is none left, another connection is told to close.
    pub(super) fn take(&self, peer: IpAddr) -> Place {
        let mut table = self.lock();
        if let Some(victim) = table.victim(peer) {
            table.held.remove(victim).close.notify_one();
        }
        table.last_id += 1;
        let (id, close) = (table.last_id, Arc::<Notify>::default());
        table.held.push(Held { id, peer, stage: Stage::Head, close: close.clone() });
        Place { places: self.clone(), id, close }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Who must go for a connection from `peer`: of the peer that has its share already, else, when all places are
    /// taken, of the one with the most connections; there the oldest of the lowest stage.
    fn victim(&self, peer: IpAddr) -> Option<usize> {
        let of = |peer: IpAddr| self.held.iter().filter(move |held| held.peer == peer).count();
        let loser = if of(peer) >= CONNECTIONS_PER_PEER {
            peer
        } else if self.held.len() >= CONNECTIONS {
            self.held.iter().map(|held| held.peer).max_by_key(|peer| of(*peer))?
        } else {
            return None;
        };
        let candidates = self.held.iter().enumerate().filter(|(_, held)| held.peer == loser);
        candidates.min_by_key(|(at, held)| (held.stage, *at)).map(|(at, _)| at)
    }
}

impl Place {
    pub(super) fn enter(&self, stage: Stage) {
        let mut table = self.places.lock();
        if let Some(held) = table.held.iter_mut().find(|held| held.id == self.id) {
            held.stage = stage;
        }
    }

    /// Whether it follows decisions.
    pub(super) fn is_stream(&self) -> bool {
        self.places.lock().held.iter().any(|held| held.id == self.id && held.stage == Stage::Stream)
    }

    /// Waits until the connection must close for another one.
    pub(super) async fn lost(&self) {
        self.close.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().held.retain(|held| held.id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn lost(places: &[Place]) -> Vec<usize> {
        let lost = |(at, place): (usize, &Place)| place.lost().now_or_never().map(|()| at);
        places.iter().enumerate().filter_map(lost).collect()
    }

    #[test]
    fn the_oldest_of_the_lowest_stage_makes_room() {
        let (places, peer) = (Places::default(), IpAddr::from([10, 0, 0, 1]));
        let mut held: Vec<Place> = (0..CONNECTIONS_PER_PEER).map(|_| places.take(peer)).collect();
        assert!(lost(&held).is_empty());
        held[0].enter(Stage::Stream);
        held[1].enter(Stage::Answer);
        held.push(places.take(peer));
        assert_eq!(lost(&held), [2]);
        held.iter().for_each(|place| place.enter(Stage::Stream));
        held[1].enter(Stage::Answer);
        held.push(places.take(peer));
        assert_eq!(lost(&held), [1]);
        drop(held.drain(..10));
        held.push(places.take(peer));
        assert_eq!(lost(&held), [0; 0]);
    }

    #[test]
    fn whoever_has_most_makes_room_for_others() {
        let places = Places::default();
        let peer = |last| IpAddr::from([10, 0, 0, last]);
        let mut held: Vec<Place> = Vec::new();
        for last in 0..2 {
            held.extend((0..CONNECTIONS_PER_PEER - usize::from(last)).map(|_| places.take(peer(last))));
        }
        held.push(places.take(peer(2)));
        assert!(lost(&held).is_empty());
        held.push(places.take(peer(3)));
        assert_eq!(lost(&held), [0]);
    }
}
