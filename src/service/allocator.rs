//! Hands out the numbers of counters: leftovers of earlier blocks at once and first, else after one round trip for all
//! who wait. Before the leftovers are used up the next block is asked for, larger if blocks are used up sooner than the
//! next one comes, so that hardly anybody waits.
//!
//! A number leaves this file at most once, whatever fails: numbers come only from a block that the store has
//! granted, and a block whose grant is in doubt is dropped (a gap). It must not know about drivers.
//!
//! Numbers that clients bring along are struck out of the leftovers, and the counter is raised to them, so that no block
//! that anybody is granted later has them. Nobody here asks the store for two things of one counter at once: a block
//! cannot be under way while a number in it is brought. What another process holds in its leftovers is out of reach.

use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use foldhash::fast::RandomState;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::leases::{LeaseMeter, Leases};
use crate::engine::lookup::{Counter, Lease, LookupError};

/// Round trips that what is asked for at once is to last: each has its price, the store's disk included.
const ROUND_TRIPS: i64 = 32;
/// As many blocks are asked for at once at most, unless more is wanted at once.
const MOST_BLOCKS: i64 = 8;

/// Where counters live.
pub(super) trait Store: Send + Sync + 'static {
    /// Moves the counter on by `count` and gives the last number of the block that now belongs to docward.
    fn advance(&self, lease: &Lease, count: i64) -> impl Future<Output = Result<i64, LookupError>> + Send;

    /// Has the counter be at least `number`, and gives its last number. The lease says which counter.
    fn raise(&self, lease: &Lease, number: i64) -> impl Future<Output = Result<i64, LookupError>> + Send;
}

/// What the store is asked for.
#[derive(Debug)]
enum Question {
    Advance(Lease, i64),
    Raise(Lease, i64),
}

/// All counters of one process.
#[derive(Debug)]
pub(super) struct Allocator<S> {
    store: Arc<S>,
    /// Where the store is asked: who wants numbers may be on a thread that ends before the answer is here.
    home: Handle,
    counters: Mutex<HashMap<Counter, Arc<Mutex<CounterNumbers>>, RandomState>>,
    meter: Arc<LeaseMeter>,
}

/// One counter's numbers, wherever rules name it.
#[derive(Debug, Default)]
struct CounterNumbers {
    /// Granted and not handed out, in the order of their grants.
    leftovers: VecDeque<RangeInclusive<i64>>,
    /// The counter's last number when the store said it last: later blocks are behind it.
    last: Option<i64>,
    /// First come, first served: nobody overtakes, or a large batch would wait for ever.
    waiting: VecDeque<Waiter>,
    /// Who left too little behind: another block like theirs is to be there before it is missed.
    low: Option<Lease>,
    /// Numbers that were wanted since the store is being asked.
    wanted_meanwhile: i64,
    /// As many were wanted during the last round trip.
    pace: i64,
    /// A task is asking the store; who comes meanwhile shares its next round trip.
    asking: bool,
}

#[derive(Debug)]
struct Waiter {
    lease: Lease,
    answer: oneshot::Sender<Result<Vec<i64>, LookupError>>,
}

/// Numbers, ascending, as many as were asked for.
#[derive(Debug)]
pub(super) enum Numbers {
    Here(Vec<i64>),
    Pending(PendingLease),
}

/// Numbers that the store is being asked for.
#[derive(Debug)]
pub(super) struct PendingLease(oneshot::Receiver<Result<Vec<i64>, LookupError>>);

impl PendingLease {
    /// # Errors
    /// The store's; no number was taken for this caller then.
    pub(super) async fn arrive(self) -> Result<Vec<i64>, LookupError> {
        self.0.await.unwrap_or_else(|_| Err(LookupError::shutting_down()))
    }
}

impl<S: Store> Allocator<S> {
    pub(super) fn new(store: Arc<S>, home: Handle) -> Self {
        Self { store, home, counters: Mutex::default(), meter: Arc::default() }
    }

    /// `lease.count` numbers.
    pub(super) fn numbers(&self, lease: Lease) -> Numbers {
        let counter = self.counter(&lease.counter);
        let mut locked = lock(&counter);
        let numbers = locked.serve(lease);
        let ask = !locked.asking && locked.is_wanting();
        locked.asking |= ask;
        drop(locked);
        if ask {
            // A task of its own: a client that goes away must not take the others' round trip with it.
            let permit = LeasePermit { numbers: counter, given_back: false };
            self.home.spawn(ask_for_all(self.store.clone(), self.meter.clone(), permit));
        }
        numbers
    }

    /// What was taken from the store so far.
    pub(super) fn leases(&self) -> Leases {
        self.meter.read()
    }

    fn counter(&self, counter: &Counter) -> Arc<Mutex<CounterNumbers>> {
        let mut counters = lock(&self.counters);
        match counters.get(counter) {
            Some(numbers) => numbers.clone(),
            None => counters.entry(counter.clone()).or_default().clone(),
        }
    }
}

/// The right to ask the store for one counter; there is one at a time.
struct LeasePermit {
    numbers: Arc<Mutex<CounterNumbers>>,
    /// Given back in order, under the same lock that found nobody waiting: it may be somebody else's by now.
    given_back: bool,
}

impl Drop for LeasePermit {
    /// The task was cut off (the runtime ends): who comes next asks anew, who waits is told by the end of its
    /// channel.
    fn drop(&mut self) {
        if !self.given_back {
            let mut numbers = lock(&self.numbers);
            numbers.asking = false;
            numbers.waiting.clear();
        }
    }
}

async fn ask_for_all<S: Store>(store: Arc<S>, meter: Arc<LeaseMeter>, mut asking: LeasePermit) {
    while let Some(question) = next_round(&asking.numbers) {
        let asked = Instant::now();
        let (answer, count) = match &question {
            Question::Advance(lease, count) => (store.advance(lease, *count).await, *count),
            Question::Raise(lease, number) => (store.raise(lease, *number).await, 0),
        };
        meter.note(asked, count, answer.is_ok());
        let mut numbers = lock(&asking.numbers);
        numbers.pace = std::mem::take(&mut numbers.wanted_meanwhile);
        match answer {
            Ok(last) => {
                numbers.last = numbers.last.max(Some(last));
                if count > 0 {
                    numbers.leftovers.push_back(last.saturating_sub(count - 1)..=last);
                }
            }
            Err(error) => numbers.waiting.drain(..).for_each(|waiter| {
                // Whoever is gone needs no answer.
                let _ = waiter.answer.send(Err(error.clone()));
            }),
        }
    }
    asking.given_back = true;
}

/// Serves who can be served; what to ask for next, or `None` when nothing is wanting and the right to ask is given
/// back.
fn next_round(numbers: &Mutex<CounterNumbers>) -> Option<Question> {
    let mut numbers = lock(numbers);
    numbers.serve_waiting();
    let question = numbers.question();
    numbers.asking = question.is_some();
    question
}

impl CounterNumbers {
    /// Numbers from the leftovers, or a place behind all who wait.
    fn serve(&mut self, lease: Lease) -> Numbers {
        let count = i64::from(lease.count);
        if self.asking {
            self.wanted_meanwhile = self.wanted_meanwhile.saturating_add(count);
        }
        self.strike(&lease.brought);
        if self.waiting.is_empty() && self.can_serve(&lease) {
            let numbers = self.take(count);
            if self.is_low(&lease) {
                self.low = Some(lease);
            }
            return Numbers::Here(numbers);
        }
        let (answer, numbers) = oneshot::channel();
        self.waiting.push_back(Waiter { lease, answer });
        Numbers::Pending(PendingLease(numbers))
    }

    fn serve_waiting(&mut self) {
        while let Some(waiter) = self.waiting.front() {
            let brought = waiter.lease.brought.clone();
            self.strike(&brought);
            let Some(waiter) = self.waiting.pop_front() else { break };
            if waiter.answer.is_closed() {
                continue;
            }
            if !self.can_serve(&waiter.lease) {
                self.waiting.push_front(waiter);
                break;
            }
            let count = i64::from(waiter.lease.count);
            let before = self.leftovers.clone();
            if waiter.answer.send(Ok(self.take(count))).is_err() {
                // Gone before it could see them, and nobody has had a later number yet.
                self.leftovers = before;
            } else if self.is_low(&waiter.lease) {
                self.low = Some(waiter.lease);
            }
        }
    }

    fn can_serve(&self, lease: &Lease) -> bool {
        i64::from(lease.count) <= self.available() && lease.brought.iter().all(|number| self.last >= Some(*number))
    }

    /// Takes numbers out of what may be handed out.
    fn strike(&mut self, numbers: &[i64]) {
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

    /// Less than half of what is leased at once is left. Of a block of one nothing is asked for ahead: it is to leave
    /// no gap.
    fn is_low(&self, lease: &Lease) -> bool {
        lease.block > 1 && lease.count > 0 && 2 * self.available() < self.at_once(lease)
    }

    /// A block, or so many that they last for some round trips.
    fn at_once(&self, lease: &Lease) -> i64 {
        let block = i64::from(lease.block);
        if block > 1 { self.pace.saturating_mul(ROUND_TRIPS).clamp(block, MOST_BLOCKS * block) } else { block }
    }

    fn is_wanting(&self) -> bool {
        self.low.is_some() || !self.waiting.is_empty()
    }

    /// What the store is to be asked for.
    fn question(&mut self) -> Option<Question> {
        let low = self.low.take();
        let Some(Waiter { lease: first, .. }) = self.waiting.front() else {
            let lease = low.filter(|lease| self.is_low(lease))?;
            let count = self.at_once(&lease);
            return Some(Question::Advance(lease, count));
        };
        let wanted: i64 = self.waiting.iter().map(|waiter| i64::from(waiter.lease.count)).sum();
        let missing = wanted - self.available();
        let ahead = || first.brought.iter().copied().filter(|number| self.last < Some(*number));
        // The next block would have it, and be short of one.
        let is_near = |number: i64| self.last.is_some_and(|last| number <= last.saturating_add(missing));
        if let Some(number) = ahead().max()
            && (missing <= 0 || ahead().any(is_near))
        {
            return Some(Question::Raise(first.clone(), number));
        }
        Some(Question::Advance(first.clone(), missing.max(self.at_once(first)).max(1)))
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

/// Nothing panics while it holds these locks; should it, the state is still whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
