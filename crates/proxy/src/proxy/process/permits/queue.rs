//! Decides which message gets its permits, and when. A message gets all its permits at once, and holds none while it
//! waits: otherwise it would keep a permit of one limit from others while it waits for another limit. It has no tasks
//! and reads no clock: times are durations since some beginning, and the waiting message is a type parameter.
//!
//! Messages that need the same limits wait in one lane, first come, first served. Of several lanes, the one whose first
//! message came first is served, among those whose limits are all free.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;

use crate::proxy::process::pace::QueuePace;

const SECOND: Duration = Duration::from_secs(1);

/// The settings of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PermitLimits {
    /// Most permits that are held at a time.
    pub(super) concurrent: Option<NonZeroU32>,
    /// Statements in a second.
    pub(super) rate: Option<NonZeroU32>,
}

/// All limits, by key, and the messages that wait for them.
#[derive(Debug)]
pub(super) struct PermitQueues<K, W> {
    limits: HashMap<K, Limit, RandomState>,
    lanes: HashMap<u64, PermitLane<K, W>, RandomState>,
    tickets: u64,
}

/// What the clients that share a limit use of it.
#[derive(Debug)]
pub(super) struct Limit {
    pub(super) limits: PermitLimits,
    held: u32,
    /// When all statements so far would be done if they were done one after the other at the rate.
    done_at: Duration,
    /// Of those that wait for it.
    pace: QueuePace,
    /// The lanes of the messages that need it.
    lanes: Vec<u64>,
}

/// The waiting messages that need the same limits.
#[derive(Debug)]
struct PermitLane<K, W> {
    keys: Arc<[K]>,
    waiting: VecDeque<WaitingMessage<W>>,
}

/// A message that waits.
#[derive(Debug)]
struct WaitingMessage<W> {
    ticket: u64,
    statements: u32,
    since: Duration,
    waiter: W,
}

/// Identifies a message that waits or has waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket {
    /// The number of the first message in its lane.
    lane: u64,
    number: u64,
}

impl<K, W> Default for PermitQueues<K, W> {
    fn default() -> Self {
        Self { limits: HashMap::default(), lanes: HashMap::default(), tickets: 0 }
    }
}

impl<K: Clone + Eq + Hash, W> PermitQueues<K, W> {
    /// Sets the limits of a key. Permits that are held stay held, also if they are more than the new limits allow.
    pub(super) fn set_limits(&mut self, key: &K, limits: PermitLimits) {
        match self.limits.get_mut(key) {
            Some(limit) => limit.limits = limits,
            None => _ = self.limits.insert(key.clone(), Limit::new(limits)),
        }
    }

    /// Gives a new message a permit of each key, unless it must wait. All that can be served must be served before.
    pub(super) fn admit(&mut self, keys: &[K], statements: u32, now: Duration) -> bool {
        let waits = |lane: u64| self.lanes.get(&lane).is_some_and(|lane| !lane.waiting.is_empty());
        let admitted = !self.lane_of(keys).is_some_and(waits) && self.first_taken(keys, now).is_none();
        if admitted {
            self.hold(keys, statements, now);
        }
        admitted
    }

    /// Returns the index of the first key whose limit is not free.
    pub(super) fn first_taken(&self, keys: &[K], now: Duration) -> Option<usize> {
        keys.iter().position(|key| self.limits.get(key).is_some_and(|limit| !limit.is_free(now)))
    }

    /// Returns whether a message would wait for this limit.
    pub(super) fn is_taken(&self, key: &K, now: Duration) -> bool {
        self.first_taken(std::slice::from_ref(key), now).is_some()
    }

    /// Adds a message that [`Self::admit`] has not given permits. Returns its ticket.
    pub(super) fn wait(&mut self, keys: &Arc<[K]>, statements: u32, now: Duration, waiter: W) -> Ticket {
        self.tickets += 1;
        let number = self.tickets;
        for limit in keys.iter() {
            let limit = self.limits.get_mut(limit).filter(|limit| limit.lanes.is_empty());
            limit.into_iter().for_each(|limit| limit.pace.begin(now));
        }
        let lane = self.lane_of(keys).unwrap_or_else(|| {
            for limit in keys.iter() {
                self.limits.get_mut(limit).into_iter().for_each(|limit| limit.lanes.push(number));
            }
            let lane = PermitLane { keys: keys.clone(), waiting: VecDeque::new() };
            self.lanes.insert(number, lane);
            number
        });
        let message = WaitingMessage { ticket: number, statements, since: now, waiter };
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.waiting.push_back(message);
        }
        Ticket { lane, number }
    }

    /// Removes a message that waits. Returns since when it has waited; `None`: it has got its permits.
    pub(super) fn give_up(&mut self, ticket: Ticket) -> Option<Duration> {
        let lane = self.lanes.get_mut(&ticket.lane)?;
        let waiting = lane.position(ticket).and_then(|position| lane.waiting.remove(position));
        self.remove_empty(ticket.lane);
        waiting.map(|waiting| waiting.since)
    }

    /// Takes permits back.
    pub(super) fn release(&mut self, keys: &[K]) {
        for key in keys {
            self.limits.get_mut(key).into_iter().for_each(Limit::release);
        }
    }

    /// The next message that gets its permits, among those that need a permit of this key.
    pub(super) fn next(&mut self, key: &K, now: Duration) -> Option<W> {
        let limit = self.limits.get(key).filter(|limit| limit.is_free(now))?;
        let first = limit.lanes.iter().filter_map(|id| {
            let lane = self.lanes.get(id)?;
            let first = lane.waiting.front()?;
            self.first_taken(&lane.keys, now).is_none().then_some((first.ticket, *id))
        });
        let (_, id) = first.min()?;
        let lane = self.lanes.get_mut(&id)?;
        let WaitingMessage { statements, waiter, .. } = lane.waiting.pop_front()?;
        let keys = lane.keys.clone();
        self.remove_empty(id);
        self.hold(&keys, statements, now);
        for limit in keys.iter() {
            self.limits.get_mut(limit).into_iter().for_each(|limit| limit.pace.served(now));
        }
        Some(waiter)
    }

    /// The first moment at which the rates allow the message with this ticket, after all before it in its lane. `None`:
    /// it does not wait for a rate.
    pub(super) fn allowed_at(&self, ticket: Ticket) -> Option<Duration> {
        let lane = self.lanes.get(&ticket.lane)?;
        let before = || lane.waiting.iter().take_while(|waiting| waiting.ticket < ticket.number);
        let limits =
            lane.keys.iter().filter_map(|key| self.limits.get(key).filter(|limit| limit.limits.rate.is_some()));
        let allowed_at = limits.map(|limit| {
            let done_at = before().fold(limit.done_at, |done_at, one| done_at + limit.duration(one.statements));
            (done_at + limit.duration(1)).saturating_sub(SECOND)
        });
        allowed_at.max()
    }

    /// In what time the limit of this key will probably be free for the message with this ticket; `None`: that is not
    /// known.
    pub(super) fn room_in(&self, key: &K, ticket: Ticket, now: Duration) -> Option<Duration> {
        let by_rate = self.allowed_at(ticket).and_then(|allowed_at| allowed_at.checked_sub(now));
        let (waiting, _) = self.waiting(key, now);
        by_rate.filter(|time| !time.is_zero()).or_else(|| self.limits.get(key)?.pace.time_for(waiting, now))
    }

    /// Those messages that need a permit of this key, are the first of their lane, and wait only for a rate.
    pub(super) fn first_for_rate(&self, key: &K) -> impl Iterator<Item = &W> {
        let lanes = self.limits.get(key).into_iter().flat_map(|limit| &limit.lanes);
        lanes.filter_map(|lane| {
            let lane = self.lanes.get(lane)?;
            let mut limits = lane.keys.iter().filter_map(|key| self.limits.get(key));
            let has_rate = limits.clone().any(|limit| limit.limits.rate.is_some());
            lane.waiting.front().filter(|_| has_rate && limits.all(Limit::has_permit)).map(|first| &first.waiter)
        })
    }

    pub(super) fn is_waiting(&self, ticket: Ticket) -> bool {
        self.lanes.get(&ticket.lane).is_some_and(|lane| lane.position(ticket).is_some())
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.limits.keys()
    }

    /// The number of permits of this limit that are held.
    pub(super) fn held(&self, key: &K) -> u32 {
        self.limits.get(key).map_or(0, Limit::held)
    }

    /// The number of messages that wait for this limit, and since when the first of them has waited. Those that wait
    /// only for another limit do not count.
    pub(super) fn waiting(&self, key: &K, now: Duration) -> (usize, Option<Duration>) {
        let limit = self.limits.get(key).filter(|limit| !limit.is_free(now));
        let lanes = limit.into_iter().flat_map(|limit| &limit.lanes).filter_map(|lane| self.lanes.get(lane));
        let count = lanes.clone().map(|lane| lane.waiting.len()).sum();
        (count, lanes.filter_map(|lane| lane.waiting.front()).map(|first| first.since).min())
    }

    pub(super) fn len(&self) -> usize {
        self.limits.len()
    }

    /// Forgets the limits for which a new one would do the same.
    pub(super) fn remove_unused(&mut self, now: Duration) {
        self.limits.retain(|_, limit| !limit.is_unused(now));
    }

    /// The same for one limit.
    pub(super) fn remove_if_unused(&mut self, key: &K, now: Duration) {
        if self.limits.get(key).is_some_and(|limit| limit.is_unused(now)) {
            self.limits.remove(key);
        }
    }

    fn lane_of(&self, keys: &[K]) -> Option<u64> {
        let limit = self.limits.get(keys.first()?)?;
        limit.lanes.iter().copied().find(|lane| self.lanes.get(lane).is_some_and(|lane| *lane.keys == *keys))
    }

    fn remove_empty(&mut self, id: u64) {
        if !self.lanes.get(&id).is_some_and(|lane| lane.waiting.is_empty()) {
            return;
        }
        for key in self.lanes.remove(&id).iter().flat_map(|lane| lane.keys.iter()) {
            self.limits.get_mut(key).into_iter().for_each(|limit| limit.lanes.retain(|lane| *lane != id));
        }
    }

    fn hold(&mut self, keys: &[K], statements: u32, now: Duration) {
        for limit in keys {
            self.limits.get_mut(limit).into_iter().for_each(|limit| limit.hold(statements, now));
        }
    }
}

impl Limit {
    pub(super) fn new(limits: PermitLimits) -> Self {
        Self { limits, held: 0, done_at: Duration::ZERO, pace: QueuePace::default(), lanes: Vec::new() }
    }

    /// A second without statements allows as many at once as the rate. A message with more is allowed too; those after
    /// it wait longer.
    fn is_free(&self, now: Duration) -> bool {
        self.has_permit() && self.allowed_at().is_none_or(|allowed_at| allowed_at <= now)
    }

    /// When the rate allows the next statement; `None`: always.
    pub(super) fn allowed_at(&self) -> Option<Duration> {
        self.limits.rate.map(|_| (self.done_at + self.duration(1)).saturating_sub(SECOND))
    }

    pub(super) fn has_permit(&self) -> bool {
        self.limits.concurrent.is_none_or(|concurrent| self.held < concurrent.get())
    }

    pub(super) fn hold(&mut self, statements: u32, now: Duration) {
        self.held += 1;
        self.done_at = self.done_at.max(now) + self.duration(statements);
    }

    pub(super) fn release(&mut self) {
        self.held = self.held.saturating_sub(1);
    }

    pub(super) fn held(&self) -> u32 {
        self.held
    }

    /// Whether a new limit would do the same.
    pub(super) fn is_unused(&self, now: Duration) -> bool {
        self.held == 0 && self.lanes.is_empty() && self.done_at <= now
    }

    /// The time of statements at the rate.
    fn duration(&self, statements: u32) -> Duration {
        self.limits.rate.map_or(Duration::ZERO, |rate| SECOND * statements / rate.get())
    }
}

impl<K, W> PermitLane<K, W> {
    fn position(&self, ticket: Ticket) -> Option<usize> {
        // Tickets ascend.
        self.waiting.binary_search_by_key(&ticket.number, |waiting| waiting.ticket).ok()
    }
}

#[cfg(test)]
mod tests;
