//! Reserves numbers in counters, and hands them out. Leftovers of earlier blocks are handed out immediately; otherwise
//! one round trip serves all waiting callers. The next block is reserved before the leftovers are used up, and is larger
//! if blocks do not last until the next one arrives.
//!
//! A number is handed out at most once, whatever fails: numbers come only from blocks that the store has granted. A
//! block whose grant is uncertain is dropped, which leaves a gap. This module must not know about drivers.
//!
//! Numbers that clients provide themselves are removed from the leftovers, and the counter is raised to them, so that
//! no later block contains them. There is at most one request to the store per counter at a time, so no block is in
//! flight while a provided number is processed. Leftovers in other processes cannot be reached.

use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use foldhash::fast::RandomState;
use tokio::sync::oneshot;

use super::background::BackgroundTasks;
use super::reservations::{ReservationCounts, ReservationMeter};
use crate::engine::lookup::{CounterId, LookupError, NumberRequest};

/// Round trips that one reservation should last for: each has its cost, including the store's disk.
const ROUND_TRIPS: i64 = 32;
/// Upper bound of one reservation in blocks, unless callers need more immediately.
const MAX_BLOCKS: i64 = 8;

/// The store of counters.
pub(super) trait CounterStore: Send + Sync + 'static {
    /// Increments the counter by `count` and returns the last number of the block that docward now owns.
    fn advance(&self, request: &NumberRequest, count: i64) -> impl Future<Output = Result<i64, LookupError>> + Send;

    /// Raises the counter to at least `number` and returns its last number. The request names the counter.
    fn raise(&self, request: &NumberRequest, number: i64) -> impl Future<Output = Result<i64, LookupError>> + Send;
}

/// A request to the store.
#[derive(Debug)]
enum StoreRequest {
    Advance(NumberRequest, i64),
    Raise(NumberRequest, i64),
}

/// All counters of one process.
#[derive(Debug)]
pub(super) struct Allocator<S> {
    store: Arc<S>,
    /// The requests to the store.
    background: BackgroundTasks,
    counters: Mutex<HashMap<CounterId, Arc<Mutex<CounterNumbers>>, RandomState>>,
    meter: Arc<ReservationMeter>,
}

/// The numbers of one counter, shared by all rules that name it.
#[derive(Debug, Default)]
struct CounterNumbers {
    /// Granted and not handed out, in the order of their grants.
    leftovers: VecDeque<RangeInclusive<i64>>,
    /// The counter's last known value: later blocks begin after it.
    last: Option<i64>,
    /// First come, first served; otherwise a large batch could wait forever.
    waiting: VecDeque<PendingRequest>,
    /// The request of a caller that left few numbers: another such block is reserved in advance.
    low: Option<NumberRequest>,
    /// Numbers requested since the current request to the store began.
    requested_meanwhile: i64,
    /// Numbers requested during the last round trip.
    pace: i64,
    /// A task is waiting for the store; callers meanwhile share its next round trip.
    asking: bool,
}

#[derive(Debug)]
struct PendingRequest {
    request: NumberRequest,
    reply: oneshot::Sender<Result<Vec<i64>, LookupError>>,
}

/// The requested amount of numbers, ascending.
#[derive(Debug)]
pub(super) enum Allocation {
    Ready(Vec<i64>),
    Pending(PendingNumbers),
}

/// Numbers that wait for the store.
#[derive(Debug)]
pub(super) struct PendingNumbers(oneshot::Receiver<Result<Vec<i64>, LookupError>>);

impl PendingNumbers {
    /// Waits for the numbers.
    ///
    /// # Errors
    /// The store's error; no number was taken for this caller then.
    pub(super) async fn wait(self) -> Result<Vec<i64>, LookupError> {
        self.0.await.unwrap_or_else(|_| Err(LookupError::shutting_down()))
    }
}

impl<S: CounterStore> Allocator<S> {
    pub(super) fn new(store: Arc<S>, background: BackgroundTasks) -> Self {
        Self { store, background, counters: Mutex::default(), meter: Arc::default() }
    }

    /// Returns `request.count` reserved numbers.
    pub(super) fn numbers(&self, request: NumberRequest) -> Allocation {
        let counter = self.counter(&request.counter);
        let mut locked = lock(&counter);
        let numbers = locked.serve(request);
        let ask = !locked.asking && locked.needs_store();
        locked.asking |= ask;
        drop(locked);
        if ask {
            // A separate task: a client that closes must not cancel the round trip of other callers.
            let permit = StorePermit { numbers: counter, returned: false };
            self.background.spawn(serve_from_store(self.store.clone(), self.meter.clone(), permit));
        }
        numbers
    }

    /// The reservations made in the store so far.
    pub(super) fn reservations(&self) -> ReservationCounts {
        self.meter.snapshot()
    }

    fn counter(&self, counter: &CounterId) -> Arc<Mutex<CounterNumbers>> {
        let mut counters = lock(&self.counters);
        match counters.get(counter) {
            Some(numbers) => numbers.clone(),
            None => counters.entry(counter.clone()).or_default().clone(),
        }
    }
}

/// The right to send requests to the store for one counter; only one exists at a time.
struct StorePermit {
    numbers: Arc<Mutex<CounterNumbers>>,
    /// Set when the right was returned regularly, under the lock that found no waiting caller. Another task may hold
    /// it by now.
    returned: bool,
}

impl Drop for StorePermit {
    /// Handles a cancelled task (the process ends): the next caller starts a new one, and waiting callers get an error
    /// because their channels close.
    fn drop(&mut self) {
        if !self.returned {
            let mut numbers = lock(&self.numbers);
            numbers.asking = false;
            numbers.waiting.clear();
        }
    }
}

async fn serve_from_store<S: CounterStore>(store: Arc<S>, meter: Arc<ReservationMeter>, mut permit: StorePermit) {
    while let Some(store_request) = next_round(&permit.numbers) {
        let asked = Instant::now();
        let (reply, count) = match &store_request {
            StoreRequest::Advance(request, count) => (store.advance(request, *count).await, *count),
            StoreRequest::Raise(request, number) => (store.raise(request, *number).await, 0),
        };
        meter.record(asked, count, reply.is_ok());
        let mut numbers = lock(&permit.numbers);
        numbers.pace = std::mem::take(&mut numbers.requested_meanwhile);
        match reply {
            Ok(last) => {
                // Lower than before if someone has set the counter back.
                numbers.last = Some(last);
                if count > 0 {
                    numbers.leftovers.push_back(last.saturating_sub(count - 1)..=last);
                }
            }
            Err(error) => numbers.waiting.drain(..).for_each(|waiter| {
                // An error means that the caller is gone.
                let _ = waiter.reply.send(Err(error.clone()));
            }),
        }
    }
    permit.returned = true;
}

/// Serves the callers that can be served. Returns the next request, or `None` if nothing is needed and the right to
/// ask is returned.
fn next_round(numbers: &Mutex<CounterNumbers>) -> Option<StoreRequest> {
    let mut numbers = lock(numbers);
    numbers.serve_waiting();
    let store_request = numbers.next_store_request();
    numbers.asking = store_request.is_some();
    store_request
}

impl CounterNumbers {
    /// Numbers from the leftovers, or a position at the end of the queue.
    fn serve(&mut self, request: NumberRequest) -> Allocation {
        let count = i64::from(request.count);
        if self.asking {
            self.requested_meanwhile = self.requested_meanwhile.saturating_add(count);
        }
        self.remove_from_leftovers(&request.provided);
        if self.waiting.is_empty() && self.can_serve(&request) {
            let numbers = self.take(count);
            if self.is_low(&request) {
                self.low = Some(request);
            }
            return Allocation::Ready(numbers);
        }
        let (reply, numbers) = oneshot::channel();
        self.waiting.push_back(PendingRequest { request, reply });
        Allocation::Pending(PendingNumbers(numbers))
    }

    fn serve_waiting(&mut self) {
        while let Some(waiter) = self.waiting.front() {
            let provided = waiter.request.provided.clone();
            self.remove_from_leftovers(&provided);
            let Some(waiter) = self.waiting.pop_front() else { break };
            if waiter.reply.is_closed() {
                continue;
            }
            if !self.can_serve(&waiter.request) {
                self.waiting.push_front(waiter);
                break;
            }
            let count = i64::from(waiter.request.count);
            let before = self.leftovers.clone();
            if waiter.reply.send(Ok(self.take(count))).is_err() {
                // The caller was gone before it received them, and no later number has been handed out.
                self.leftovers = before;
            } else if self.is_low(&waiter.request) {
                self.low = Some(waiter.request);
            }
        }
    }

    fn can_serve(&self, request: &NumberRequest) -> bool {
        i64::from(request.count) <= self.available() && request.provided.iter().all(|number| self.last >= Some(*number))
    }

    /// Removes numbers from the leftovers.
    fn remove_from_leftovers(&mut self, numbers: &[i64]) {
        for number in numbers {
            let Some(at) = self.leftovers.iter().position(|block| block.contains(number)) else { continue };
            let Some(block) = self.leftovers.remove(at) else { continue };
            if number < block.end() {
                self.leftovers.insert(at, number + 1..=*block.end());
            }
            if number > block.start() {
                self.leftovers.insert(at, *block.start()..=number - 1);
            }
        }
    }

    /// Whether less than half of a reservation is left. Blocks of one are never reserved in advance, since they must leave no
    /// gap.
    fn is_low(&self, request: &NumberRequest) -> bool {
        request.block > 1 && request.count > 0 && 2 * self.available() < self.reservation_size(request)
    }

    /// The size of a reservation: one block, or enough for several round trips.
    fn reservation_size(&self, request: &NumberRequest) -> i64 {
        let block = i64::from(request.block);
        if block > 1 { self.pace.saturating_mul(ROUND_TRIPS).clamp(block, MAX_BLOCKS * block) } else { block }
    }

    fn needs_store(&self) -> bool {
        self.low.is_some() || !self.waiting.is_empty()
    }

    /// The next request to the store, if any.
    fn next_store_request(&mut self) -> Option<StoreRequest> {
        let low = self.low.take();
        let Some(PendingRequest { request: first, .. }) = self.waiting.front() else {
            let request = low.filter(|request| self.is_low(request))?;
            let count = self.reservation_size(&request);
            return Some(StoreRequest::Advance(request, count));
        };
        let wanted: i64 = self.waiting.iter().map(|waiter| i64::from(waiter.request.count)).sum();
        let missing = wanted - self.available();
        let ahead = || first.provided.iter().copied().filter(|number| self.last < Some(*number));
        // The next block would contain the number, and then be one number short.
        let is_near = |number: i64| self.last.is_some_and(|last| number <= last.saturating_add(missing));
        if let Some(number) = ahead().max()
            && (missing <= 0 || ahead().any(is_near))
        {
            return Some(StoreRequest::Raise(first.clone(), number));
        }
        Some(StoreRequest::Advance(first.clone(), missing.max(self.reservation_size(first)).max(1)))
    }

    fn available(&self) -> i64 {
        self.leftovers.iter().map(|block| block.end() - block.start() + 1).sum()
    }

    fn take(&mut self, count: i64) -> Vec<i64> {
        let mut numbers = Vec::new();
        let mut missing = count;
        while missing > 0
            && let Some(block) = self.leftovers.pop_front()
        {
            let last = block.start().saturating_add(missing - 1).min(*block.end());
            numbers.extend(*block.start()..=last);
            missing = count - numbers.len() as i64;
            if last < *block.end() {
                self.leftovers.push_front(last + 1..=*block.end());
            }
        }
        numbers
    }
}

/// No code panics while it holds these locks; if it did, the state would still be consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
