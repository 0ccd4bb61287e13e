//! Hands out the numbers of counters: leftovers of the last block first, then one round trip for all who wait.
//!
//! A number leaves this file at most once, whatever fails: numbers come only from a block that the store has
//! granted, and a block whose grant is in doubt is dropped (a gap). It must not know about drivers.

use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::oneshot;

use super::leases::{LeaseMeter, Leases};
use crate::engine::lookup::{Lease, LookupError};

/// Where counters live.
pub(super) trait Store: Send + Sync + 'static {
    /// Moves the counter on by `count` and gives the last number of the block that now belongs to docward.
    fn advance(&self, lease: &Lease, count: i64) -> impl Future<Output = Result<i64, LookupError>> + Send;
}

/// All counters of one process.
#[derive(Debug)]
pub(super) struct Allocator<S> {
    store: Arc<S>,
    counters: Mutex<HashMap<Key, Arc<Mutex<Counter>>>>,
    meter: Arc<LeaseMeter>,
}

/// One counter, wherever rules name it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    database: String,
    collection: String,
    counter: String,
}

#[derive(Debug, Default)]
struct Counter {
    /// Granted and not handed out, in the order of their grants.
    leftovers: VecDeque<RangeInclusive<i64>>,
    /// First come, first served: nobody overtakes, or a large batch would wait for ever.
    waiting: VecDeque<Waiter>,
    /// A task is asking the store; who comes meanwhile shares its next round trip.
    asking: bool,
}

#[derive(Debug)]
struct Waiter {
    lease: Lease,
    answer: oneshot::Sender<Result<Vec<i64>, LookupError>>,
}

impl<S: Store> Allocator<S> {
    pub(super) fn new(store: Arc<S>) -> Self {
        Self { store, counters: Mutex::default(), meter: Arc::default() }
    }

    /// `lease.count` numbers, ascending.
    ///
    /// # Errors
    /// The store's; no number was taken for this caller then.
    pub(super) async fn numbers(&self, lease: Lease) -> Result<Vec<i64>, LookupError> {
        let counter = self.counter(&lease);
        let (answer, numbers) = oneshot::channel();
        let ask = {
            let mut counter = lock(&counter);
            counter.waiting.push_back(Waiter { lease, answer });
            !counter.asking && counter.must_ask()
        };
        if ask {
            // A task of its own: a client that goes away must not take the others' round trip with it.
            let asking = Asking { counter, given_back: false };
            tokio::spawn(ask_for_all(self.store.clone(), self.meter.clone(), asking));
        }
        numbers.await.unwrap_or_else(|_| Err(LookupError::Unavailable("docward is shutting down".to_owned())))
    }

    /// What was taken from the store so far.
    pub(super) fn leases(&self) -> Leases {
        self.meter.read()
    }

    fn counter(&self, lease: &Lease) -> Arc<Mutex<Counter>> {
        let key = Key {
            database: lease.database.clone(),
            collection: lease.collection.clone(),
            counter: lease.counter.clone(),
        };
        lock(&self.counters).entry(key).or_default().clone()
    }
}

/// The right to ask the store for one counter; there is one at a time.
struct Asking {
    counter: Arc<Mutex<Counter>>,
    /// Given back in order, under the same lock that found nobody waiting: it may be somebody else's by now.
    given_back: bool,
}

impl Drop for Asking {
    /// The task was cut off (the runtime ends): who comes next asks anew, who waits is told by the end of its
    /// channel.
    fn drop(&mut self) {
        if !self.given_back {
            let mut counter = lock(&self.counter);
            counter.asking = false;
            counter.waiting.clear();
        }
    }
}

async fn ask_for_all<S: Store>(store: Arc<S>, meter: Arc<LeaseMeter>, mut asking: Asking) {
    while let Some((lease, count)) = next_round(&asking.counter) {
        let asked = Instant::now();
        let granted = store.advance(&lease, count).await;
        meter.note(asked, count, granted.is_ok());
        let mut counter = lock(&asking.counter);
        match granted {
            Ok(last) => counter.leftovers.push_back(last.saturating_sub(count - 1)..=last),
            Err(error) => counter.waiting.drain(..).for_each(|waiter| {
                // Whoever is gone needs no answer.
                let _ = waiter.answer.send(Err(error.clone()));
            }),
        }
    }
    asking.given_back = true;
}

/// Serves who can be served; what to ask for next, or `None` when nobody waits and the right to ask is given
/// back.
fn next_round(counter: &Mutex<Counter>) -> Option<(Lease, i64)> {
    let mut counter = lock(counter);
    if !counter.must_ask() {
        return None;
    }
    let lease = counter.waiting.front()?.lease.clone();
    let wanted: i64 = counter.waiting.iter().map(|waiter| i64::from(waiter.lease.count)).sum();
    let count = (wanted - counter.available()).max(i64::from(lease.block)).max(1);
    Some((lease, count))
}

impl Counter {
    /// Serves from the leftovers; whether somebody still waits, and is asked for from now on.
    fn must_ask(&mut self) -> bool {
        while let Some(waiter) = self.waiting.front() {
            let count = i64::from(waiter.lease.count);
            if self.available() < count && !waiter.answer.is_closed() {
                break;
            }
            let Some(waiter) = self.waiting.pop_front() else { break };
            if waiter.answer.is_closed() {
                continue;
            }
            let before = self.leftovers.clone();
            if waiter.answer.send(Ok(self.take(count))).is_err() {
                // Gone before it could see them, and nobody has had a later number yet.
                self.leftovers = before;
            }
        }
        self.asking = !self.waiting.is_empty();
        self.asking
    }

    fn available(&self) -> i64 {
        self.leftovers.iter().map(|block| block.end() - block.start() + 1).sum()
    }

    fn take(&mut self, count: i64) -> Vec<i64> {
        let mut numbers = Vec::new();
        let mut missing = count;
        while let Some(block) = self.leftovers.pop_front().filter(|_| missing > 0) {
            let last = (block.start() + missing - 1).min(*block.end());
            numbers.extend(*block.start()..=last);
            missing = count - numbers.len() as i64;
            if last < *block.end() {
                self.leftovers.push_front(last + 1..=*block.end());
                break;
            }
        }
        numbers
    }
}

/// Nothing panics while it holds these locks; should it, the state is still whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
