//! Decides which request gets a connection of a pool, and when. It has no sockets, tasks and clocks: the connection and
//! the waiting request are type parameters.
//!
//! Each connection and each request belongs to a thread. A request that uses the connection of another thread costs two
//! system calls more, which wake the other thread. So a request gets a connection of its thread if one is idle. In a long
//! queue a connection goes to a request of its thread, before a few older ones of other threads.
//!
//! A transaction's later statements go first and may use reserved connections: otherwise writes that wait for the
//! transaction's locks could hold all connections, and its commit would never be sent. A commit can come from a client
//! that must log in first, so one login at a time may use the reserve, too. Requests that wait for data, and logins, have
//! a bound of their own, so that many of them leave connections to the others.
//!
//! A driver that retries overload errors waits better than a queue does: it waits at the application, and gives its
//! connection to other operations. So a request of such a driver is sent away if it would wait long, once: when the
//! driver sends it again, it is held like those of other drivers.

use std::collections::VecDeque;
use std::time::Duration;

use super::recent::Recent;
use crate::proxy::process::pace::QueuePace;

/// What a request is for, which decides the connections that it may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proxy) enum Lane {
    /// It ends or continues something that the server holds open for others to wait for, such as a transaction.
    Continuation,
    Ordinary,
    /// A getMore that waits for new documents: a change stream or a tailable cursor.
    Awaiting,
    /// A login, which takes several requests.
    Login,
}

impl Lane {
    const COUNT: usize = 4;

    fn index(self) -> usize {
        match self {
            Self::Continuation => 0,
            Self::Ordinary => 1,
            Self::Awaiting => 2,
            Self::Login => 3,
        }
    }

    const ALL: [Self; Self::COUNT] = [Self::Continuation, Self::Ordinary, Self::Awaiting, Self::Login];
}

/// After this many continuations in succession, a request of another lane that can be served is served: otherwise
/// clients that send one transaction after the other could keep all others waiting.
const MAX_CONTINUATIONS: usize = 3;

/// In a shorter queue, first come is first served.
const LONG_QUEUE: usize = 64;

/// In a long queue, at most this many requests of other threads that came later are served before a request. Also the
/// number of idle connections that are searched for one of the request's thread.
const SEARCHED: usize = 32;

/// The sessions that are remembered because a request of theirs was sent away. A forgotten one is sent away again.
const MAX_SENT_AWAY: usize = 65_536;

/// What belongs to a thread.
pub(in crate::proxy) trait OfThread {
    /// The number of the thread.
    fn thread(&self) -> usize;
}

/// The bounds of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proxy) struct PoolBounds {
    /// Most connections; at least 2.
    pub(in crate::proxy) size: usize,
    /// Connections of these that only continuations, and one login, may use; at least 1 and less than `size`.
    pub(in crate::proxy) reserve: usize,
}

impl PoolBounds {
    /// Connections for other than continuations.
    fn unreserved(self) -> usize {
        self.size.saturating_sub(self.reserve).max(1)
    }

    /// Most connections that requests of `lane` hold at a time.
    fn limit(self, lane: Lane) -> usize {
        match lane {
            Lane::Continuation => self.size,
            Lane::Ordinary => self.unreserved(),
            Lane::Awaiting | Lane::Login => (self.unreserved() / 2).max(1),
        }
    }
}

/// A connection for a request.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::proxy) enum Grant<C> {
    Idle(C),
    /// The request must open one.
    Open,
}

/// A request that waits.
#[derive(Debug)]
struct WaitingRequest<W> {
    /// Order of arrival.
    ticket: u64,
    waiter: W,
}

/// The state of one pool. Connections are idle or held by a request. The number of connections never exceeds the size.
#[derive(Debug)]
pub(in crate::proxy) struct PoolQueue<C, W> {
    bounds: PoolBounds,
    /// Whether requests other than logins can open connections.
    can_open: bool,
    /// Connections held by requests, by lane.
    held: [usize; Lane::COUNT],
    /// The last one used is at the end.
    idle: VecDeque<C>,
    waiting: [VecDeque<WaitingRequest<W>>; Lane::COUNT],
    tickets: u64,
    /// Waiting continuations that were served since another lane was.
    continuations: usize,
    /// Of each lane.
    paces: [QueuePace; Lane::COUNT],
    /// Sessions whose request was sent away, and is held when it comes again.
    sent_away: Recent<u64>,
}

impl<C: OfThread, W: OfThread> PoolQueue<C, W> {
    pub(in crate::proxy) fn new(bounds: PoolBounds, can_open: bool) -> Self {
        let waiting = [VecDeque::new(), VecDeque::new(), VecDeque::new(), VecDeque::new()];
        Self {
            bounds,
            can_open,
            held: [0; Lane::COUNT],
            idle: VecDeque::new(),
            waiting,
            tickets: 0,
            continuations: 0,
            paces: [QueuePace::default(); Lane::COUNT],
            sent_away: Recent::new(MAX_SENT_AWAY),
        }
    }

    /// Gives a new request of this thread a connection, unless it must wait.
    pub(in crate::proxy) fn admit(&mut self, lane: Lane, thread: usize) -> Option<Grant<C>> {
        // Those that wait in another lane wait for what this one does not use.
        if self.waits(lane) { None } else { self.grant(lane, thread) }
    }

    /// Returns whether an ordinary request that [`Self::admit`] has not given a connection is sent away instead of held:
    /// its driver sends it again, in this session, and it would wait for longer than `bound`.
    pub(in crate::proxy) fn sends_away(&mut self, session: u64, bound: Duration, now: Duration) -> bool {
        let was_sent_away = self.sent_away.remove(session);
        let sends_away = !was_sent_away && self.expected_wait(Lane::Ordinary, now).is_some_and(|wait| wait > bound);
        if sends_away {
            self.note_sent_away(session);
        }
        sends_away
    }

    /// The next request of this session is held.
    pub(in crate::proxy) fn note_sent_away(&mut self, session: u64) {
        self.sent_away.insert(session);
    }

    /// Returns how long a request that comes now would wait, if its lane advances as it did; `None`: that is not known.
    pub(in crate::proxy) fn expected_wait(&self, lane: Lane, now: Duration) -> Option<Duration> {
        let waiting = self.waiting.get(lane.index()).map_or(0, VecDeque::len);
        self.paces.get(lane.index())?.time_for(waiting + 1, now)
    }

    /// A request of this lane that has waited has its connection.
    pub(in crate::proxy) fn note_served(&mut self, lane: Lane, now: Duration) {
        if let Some(pace) = self.paces.get_mut(lane.index()) {
            pace.served(now);
        }
    }

    /// Adds a request that [`Self::admit`] has not given a connection.
    pub(in crate::proxy) fn wait(&mut self, lane: Lane, waiter: W, now: Duration) {
        if !self.waits(lane)
            && let Some(pace) = self.paces.get_mut(lane.index())
        {
            pace.begin(now);
        }
        self.tickets += 1;
        let waiting = WaitingRequest { ticket: self.tickets, waiter };
        if let Some(queue) = self.waiting.get_mut(lane.index()) {
            queue.push_back(waiting);
        }
    }

    /// Takes back the connection of a request; `None`: it has closed.
    pub(in crate::proxy) fn put_back(&mut self, lane: Lane, connection: Option<C>) {
        if let Some(held) = self.held.get_mut(lane.index()) {
            *held = held.saturating_sub(1);
        }
        self.idle.extend(connection);
    }

    /// The next waiting request that gets a connection, with its lane.
    pub(in crate::proxy) fn next(&mut self) -> Option<(Lane, W, Grant<C>)> {
        let lane = self.next_lane()?;
        let waiter = self.take_waiting(lane)?;
        let grant = self.grant(lane, waiter.thread())?;
        self.continuations = if lane == Lane::Continuation { self.continuations + 1 } else { 0 };
        Some((lane, waiter, grant))
    }

    /// Removes and returns idle connections, the least recently used first, as long as `remove` returns true.
    pub(in crate::proxy) fn remove_idle(&mut self, mut remove: impl FnMut(&mut C) -> bool) -> Vec<C> {
        let mut removed = Vec::new();
        for mut connection in std::mem::take(&mut self.idle) {
            if remove(&mut connection) {
                removed.push(connection);
            } else {
                self.idle.push_back(connection);
            }
        }
        removed
    }

    /// Sets whether requests other than logins can open connections.
    pub(in crate::proxy) fn set_can_open(&mut self, can_open: bool) {
        self.can_open = can_open;
    }

    /// Whether requests wait for a connection that no one can open.
    pub(in crate::proxy) fn is_stuck(&self) -> bool {
        !self.can_open && self.connections() == 0
    }

    /// Removes and returns all waiting requests.
    pub(in crate::proxy) fn drain_waiting(&mut self) -> Vec<W> {
        self.waiting.iter_mut().flat_map(std::mem::take).map(|waiting| waiting.waiter).collect()
    }

    /// If requests wait for a connection that no one can open: removes and returns them. Logins stay, because they can.
    pub(in crate::proxy) fn drain_stuck(&mut self) -> Vec<W> {
        if !self.is_stuck() {
            return Vec::new();
        }
        let logins = self.waiting.get_mut(Lane::Login.index()).map(std::mem::take).unwrap_or_default();
        let stuck = self.drain_waiting();
        if let Some(lane) = self.waiting.get_mut(Lane::Login.index()) {
            *lane = logins;
        }
        stuck
    }

    /// Removes and returns waiting requests that are given up.
    pub(in crate::proxy) fn remove_waiting(&mut self, is_given_up: impl Fn(&W) -> bool) -> Vec<W> {
        let mut removed = Vec::new();
        for lane in &mut self.waiting {
            for waiting in std::mem::take(lane) {
                if is_given_up(&waiting.waiter) {
                    removed.push(waiting.waiter);
                } else {
                    lane.push_back(waiting);
                }
            }
        }
        removed
    }

    /// Whether a request of this lane waits.
    pub(in crate::proxy) fn has_waiting(&self, lane: Lane) -> bool {
        self.waits(lane)
    }

    /// Adds a connection that was opened for another pool.
    pub(in crate::proxy) fn adopt(&mut self, connection: C) -> Option<C> {
        if self.connections() >= self.bounds.size {
            return Some(connection);
        }
        self.idle.push_back(connection);
        None
    }

    /// The requests that wait.
    pub(in crate::proxy) fn waiters(&self) -> impl Iterator<Item = &W> {
        self.waiting.iter().flatten().map(|waiting| &waiting.waiter)
    }

    /// The request that has waited longest.
    pub(in crate::proxy) fn oldest(&self) -> Option<&W> {
        let first = self.waiting.iter().filter_map(VecDeque::front).min_by_key(|waiting| waiting.ticket);
        first.map(|waiting| &waiting.waiter)
    }

    /// Number of connections, those that are being opened included.
    pub(in crate::proxy) fn connections(&self) -> usize {
        self.held() + self.idle.len()
    }

    /// Number of connections that requests hold.
    pub(in crate::proxy) fn held(&self) -> usize {
        self.held.iter().sum()
    }

    /// Number of requests that wait.
    pub(in crate::proxy) fn waiting(&self) -> usize {
        self.waiting.iter().map(VecDeque::len).sum()
    }

    /// Continuations first, but not for ever; then the first come of the requests that may hold a connection more.
    fn next_lane(&self) -> Option<Lane> {
        let is_ready = |lane: &Lane| self.waits(*lane) && self.may_hold(*lane) && self.has_for(*lane);
        let others = Lane::ALL.into_iter().filter(|lane| *lane != Lane::Continuation).filter(is_ready);
        let first_other = others.min_by_key(|lane| self.first_ticket(*lane));
        let continuation = Some(Lane::Continuation).filter(is_ready);
        if self.continuations < MAX_CONTINUATIONS { continuation.or(first_other) } else { first_other.or(continuation) }
    }

    fn first_ticket(&self, lane: Lane) -> Option<u64> {
        self.waiting.get(lane.index()).and_then(VecDeque::front).map(|waiting| waiting.ticket)
    }

    /// Removes and returns the next request of a lane.
    fn take_waiting(&mut self, lane: Lane) -> Option<W> {
        let thread = self.idle.back().map(OfThread::thread);
        let queue = self.waiting.get_mut(lane.index())?;
        if queue.len() < LONG_QUEUE {
            return queue.pop_front().map(|waiting| waiting.waiter);
        }
        let last = queue.front()?.ticket + SEARCHED as u64;
        let mut candidates = queue.iter().take_while(|waiting| waiting.ticket <= last);
        let index = candidates.position(|waiting| Some(waiting.waiter.thread()) == thread).unwrap_or(0);
        queue.remove(index).map(|waiting| waiting.waiter)
    }

    /// Removes and returns an idle connection, the last one used of the thread if there is one.
    fn take_idle(&mut self, thread: usize) -> Option<C> {
        let of_thread = self.idle.iter().rev().take(SEARCHED).position(|connection| connection.thread() == thread);
        self.idle.remove(self.idle.len().checked_sub(1 + of_thread.unwrap_or(0))?)
    }

    fn waits(&self, lane: Lane) -> bool {
        self.first_ticket(lane).is_some()
    }

    fn may_hold(&self, lane: Lane) -> bool {
        let held = |lane: Lane| self.held.get(lane.index()).copied().unwrap_or_default();
        // As long as only these are bounded, what remains is enough for a continuation, which ends by itself.
        let others = self.held() - held(Lane::Continuation);
        let is_within = match lane {
            Lane::Continuation => true,
            Lane::Login if held(Lane::Login) == 0 => true,
            Lane::Ordinary | Lane::Awaiting | Lane::Login => others < self.bounds.unreserved(),
        };
        is_within && self.held() < self.bounds.size && held(lane) < self.bounds.limit(lane)
    }

    /// Whether a connection is idle or can be opened.
    fn has_for(&self, lane: Lane) -> bool {
        !self.idle.is_empty() || self.may_open(lane)
    }

    fn may_open(&self, lane: Lane) -> bool {
        (self.can_open || lane == Lane::Login) && self.connections() < self.bounds.size
    }

    fn grant(&mut self, lane: Lane, thread: usize) -> Option<Grant<C>> {
        if !self.may_hold(lane) {
            return None;
        }
        // A login needs a connection without a user, as long as there is room for one.
        let idle = if lane == Lane::Login && self.may_open(lane) { None } else { self.take_idle(thread) };
        let grant = match idle {
            Some(connection) => Grant::Idle(connection),
            None if self.may_open(lane) => Grant::Open,
            None => return None,
        };
        if let Some(held) = self.held.get_mut(lane.index()) {
            *held += 1;
        }
        Some(grant)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Numbered = PoolQueue<u32, u32>;

    const NOW: Duration = Duration::ZERO;

    /// Even numbers belong to thread 0, odd ones to thread 1.
    impl OfThread for u32 {
        fn thread(&self) -> usize {
            *self as usize % 2
        }
    }

    fn queue(size: usize, reserve: usize) -> Numbered {
        PoolQueue::new(PoolBounds { size, reserve }, true)
    }

    #[test]
    fn connections_are_opened_when_none_is_idle_and_the_last_used_comes_first() {
        let mut queue = queue(4, 1);
        assert_eq!(queue.admit(Lane::Ordinary, 0), Some(Grant::Open));
        assert_eq!(queue.admit(Lane::Ordinary, 0), Some(Grant::Open));
        queue.put_back(Lane::Ordinary, Some(1));
        queue.put_back(Lane::Ordinary, Some(2));
        assert_eq!(queue.admit(Lane::Ordinary, 0), Some(Grant::Idle(2)));
        assert_eq!(queue.admit(Lane::Login, 0), Some(Grant::Open), "a login needs a new one while there is room");
        assert_eq!((queue.connections(), queue.held()), (3, 2));
    }

    #[test]
    fn requests_get_connections_of_their_thread() {
        let mut queue = queue(4, 1);
        (0..3).for_each(|_| assert_eq!(queue.admit(Lane::Ordinary, 1), Some(Grant::Open)));
        (1..=2).for_each(|connection| queue.put_back(Lane::Ordinary, Some(connection)));
        assert_eq!(queue.admit(Lane::Ordinary, 1), Some(Grant::Idle(1)), "not the last one used");
        assert_eq!(queue.admit(Lane::Ordinary, 1), Some(Grant::Idle(2)), "there is none of its thread");
    }

    #[test]
    fn a_long_queue_prefers_requests_of_the_connections_thread_and_starves_none() {
        let mut queue = queue(2, 1);
        assert_eq!(queue.admit(Lane::Ordinary, 0), Some(Grant::Open));
        (0..2 * LONG_QUEUE as u32).for_each(|waiter| queue.wait(Lane::Ordinary, waiter, NOW));
        let mut serve = |connection| {
            queue.put_back(Lane::Ordinary, Some(connection));
            queue.next().unwrap().1
        };
        let order: Vec<u32> = (0..LONG_QUEUE).map(|_| serve(0)).collect();
        let preferred: Vec<u32> = (0..=SEARCHED as u32).step_by(2).collect();
        assert_eq!(order[..preferred.len()], preferred, "those of thread 0");
        assert_eq!(order[preferred.len()], 1, "the first of thread 1 waits no longer");
    }

    #[test]
    fn a_continuation_uses_the_reserve_and_goes_first() {
        let mut queue = queue(3, 1);
        assert_eq!(queue.admit(Lane::Ordinary, 0), Some(Grant::Open));
        assert_eq!(queue.admit(Lane::Ordinary, 0), Some(Grant::Open));
        assert_eq!(queue.admit(Lane::Ordinary, 0), None);
        queue.wait(Lane::Ordinary, 7, NOW);
        assert_eq!(queue.admit(Lane::Continuation, 0), Some(Grant::Open));
        assert_eq!(queue.admit(Lane::Continuation, 0), None);
        queue.wait(Lane::Continuation, 8, NOW);
        queue.put_back(Lane::Ordinary, Some(1));
        assert_eq!(queue.next(), Some((Lane::Continuation, 8, Grant::Idle(1))));
        assert_eq!(queue.next(), None);
        queue.put_back(Lane::Continuation, Some(2));
        assert_eq!(queue.next(), Some((Lane::Ordinary, 7, Grant::Idle(2))));
        queue.wait(Lane::Ordinary, 9, NOW);
        queue.put_back(Lane::Continuation, Some(3));
        assert_eq!(queue.next(), None, "two ordinary requests are served, as many as there are without the reserve");
    }

    #[test]
    fn one_login_uses_the_reserve() {
        let mut queue = queue(2, 1);
        assert_eq!(queue.admit(Lane::Ordinary, 0), Some(Grant::Open));
        assert_eq!(queue.admit(Lane::Login, 0), Some(Grant::Open));
        queue.wait(Lane::Login, 1, NOW);
        queue.wait(Lane::Continuation, 2, NOW);
        queue.put_back(Lane::Login, Some(5));
        assert_eq!(queue.next(), Some((Lane::Continuation, 2, Grant::Idle(5))), "a commit goes before the next login");
        queue.put_back(Lane::Continuation, Some(5));
        assert_eq!(queue.next(), Some((Lane::Login, 1, Grant::Idle(5))));
    }

    #[test]
    fn continuations_do_not_keep_others_waiting() {
        let mut queue = queue(2, 1);
        assert_eq!(queue.admit(Lane::Continuation, 0), Some(Grant::Open));
        assert_eq!(queue.admit(Lane::Continuation, 0), Some(Grant::Open));
        queue.wait(Lane::Ordinary, 100, NOW);
        for turn in 0..MAX_CONTINUATIONS as u32 {
            queue.wait(Lane::Continuation, turn, NOW);
            queue.put_back(Lane::Continuation, Some(1));
            assert_eq!(queue.next(), Some((Lane::Continuation, turn, Grant::Idle(1))));
        }
        queue.wait(Lane::Continuation, 99, NOW);
        queue.put_back(Lane::Continuation, Some(1));
        assert_eq!(queue.next(), Some((Lane::Ordinary, 100, Grant::Idle(1))));
    }

    #[test]
    fn requests_that_wait_for_data_leave_connections_to_others() {
        let mut queue = queue(9, 1);
        let granted = (0..9).filter(|_| queue.admit(Lane::Awaiting, 0).is_some()).count();
        assert_eq!(granted, 4);
        queue.wait(Lane::Awaiting, 1, NOW);
        assert_eq!(
            queue.admit(Lane::Ordinary, 0),
            Some(Grant::Open),
            "those that wait in a full lane hold up no others"
        );
        queue.put_back(Lane::Awaiting, Some(5));
        assert_eq!(queue.next(), Some((Lane::Awaiting, 1, Grant::Idle(5))));
    }

    #[test]
    fn without_credentials_only_logins_open_connections() {
        let mut queue: Numbered = PoolQueue::new(PoolBounds { size: 3, reserve: 1 }, false);
        assert_eq!(queue.admit(Lane::Ordinary, 0), None);
        assert!(queue.is_stuck());
        queue.wait(Lane::Ordinary, 1, NOW);
        assert_eq!(queue.admit(Lane::Login, 0), Some(Grant::Open));
        assert!(!queue.is_stuck());
        queue.put_back(Lane::Login, None);
        assert!(queue.is_stuck() && queue.next().is_none());
        queue.wait(Lane::Login, 2, NOW);
        assert_eq!(queue.drain_stuck(), [1]);
        assert_eq!(queue.next(), Some((Lane::Login, 2, Grant::Open)), "a login can open a connection");
    }

    #[test]
    fn a_request_that_would_wait_long_is_sent_away_once() {
        let mut queue = queue(2, 1);
        let (ms, bound) = (Duration::from_millis, Duration::from_secs(1));
        assert_eq!(queue.admit(Lane::Ordinary, 0), Some(Grant::Open));
        (0..600).for_each(|waiter| queue.wait(Lane::Ordinary, waiter, NOW));
        assert!(!queue.sends_away(7, bound, ms(1)), "the pace is not known yet");
        for served in 1..=200 {
            queue.put_back(Lane::Ordinary, Some(1));
            assert!(queue.next().is_some());
            queue.note_served(Lane::Ordinary, ms(2 * served));
        }
        assert_eq!(queue.expected_wait(Lane::Ordinary, ms(400)), Some(ms(802)));
        assert!(!queue.sends_away(7, bound, ms(400)));
        assert!(queue.sends_away(7, bound / 2, ms(400)));
        assert!(!queue.sends_away(7, bound / 2, ms(400)), "its driver has sent it again");
        assert!(queue.sends_away(7, bound / 2, ms(400)), "another request of the session");
    }

    proptest! {
        /// Whatever happens, the size holds, first come is first served within a lane, or in a long queue nearly so, no
        /// request waits while it could be served, and continuations do not keep others waiting that could be served.
        #[test]
        fn bounds_and_order_hold(
            size in 2usize..6,
            reserve in 1usize..5,
            lanes in 1usize..=4,
            steps in proptest::collection::vec((0usize..4, 0usize..3, any::<bool>()), 1..600),
        ) {
            let bounds = PoolBounds { size, reserve: reserve.min(size - 1) };
            let mut queue: Numbered = PoolQueue::new(bounds, true);
            let mut held: Vec<Lane> = Vec::new();
            let mut waiting: [Vec<u32>; Lane::COUNT] = Default::default();
            let (mut arrivals, mut in_succession) = (0u32, 0);
            for (lane, action, closes) in steps {
                // Fewer lanes make longer queues.
                let lane = Lane::ALL[lane % lanes];
                if action < 2 {
                    match queue.admit(lane, 0) {
                        Some(_) => held.push(lane),
                        None => {
                            arrivals += 1;
                            queue.wait(lane, arrivals, NOW);
                            waiting[lane.index()].push(arrivals);
                        }
                    }
                } else if !held.is_empty() {
                    // Any of them ends next.
                    let lane = held.swap_remove(arrivals as usize % held.len());
                    queue.put_back(lane, (!closes).then_some(arrivals / 3));
                    loop {
                        let others = [Lane::Ordinary, Lane::Awaiting, Lane::Login];
                        let others_wait = others.into_iter().any(|lane| queue.waits(lane) && queue.may_hold(lane));
                        let Some((lane, waiter, _)) = queue.next() else { break };
                        let waiting = &mut waiting[lane.index()];
                        let overtaken = if waiting.len() < LONG_QUEUE { 0 } else { SEARCHED as u32 };
                        prop_assert!(waiter <= waiting[0] + overtaken);
                        waiting.retain(|other| *other != waiter);
                        held.push(lane);
                        in_succession = if lane == Lane::Continuation { in_succession + 1 } else { 0 };
                        prop_assert!(!others_wait || in_succession <= MAX_CONTINUATIONS, "others wait for ever");
                    }
                }
                prop_assert_eq!(queue.held(), held.len());
                prop_assert!(queue.connections() <= size);
                let count = |lane: Lane| held.iter().filter(|held| **held == lane).count();
                let logins = count(Lane::Login);
                prop_assert!(count(Lane::Ordinary) + count(Lane::Awaiting) <= bounds.unreserved());
                // One login may use the reserve.
                let others = held.len() - count(Lane::Continuation);
                prop_assert!(others <= bounds.unreserved() + usize::from(logins > 0));
                prop_assert!(queue.next().is_none(), "a request waits that could be served");
                let is_full = held.len() == size;
                prop_assert!(is_full || !queue.waits(Lane::Continuation), "the reserve is free, and a commit waits");
                prop_assert!(is_full || logins > 0 || !queue.waits(Lane::Login), "the reserve is free, and a login waits");
            }
        }
    }
}
