//! Decides which message gets a permit, and when: first come, first served. It has no tasks and reads no clock: times
//! are durations since some beginning, and the waiting message is a type parameter.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// The limits of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PermitLimits {
    /// Most permits that are held at a time.
    pub(super) concurrent: Option<NonZeroU32>,
    /// Statements in a second.
    pub(super) rate: Option<NonZeroU32>,
}

/// A message that waits.
#[derive(Debug)]
struct WaitingMessage<W> {
    ticket: u64,
    statements: u32,
    since: Duration,
    /// When it leaves the queue without a permit.
    until: Option<Duration>,
    waiter: W,
}

/// The messages of the clients that share a limit.
#[derive(Debug)]
pub(super) struct PermitQueue<W> {
    limits: PermitLimits,
    held: u32,
    /// When all statements so far would be done if they were done one after the other at the rate.
    done_at: Duration,
    waiting: VecDeque<WaitingMessage<W>>,
    /// Messages that have left the queue at their time: their tickets, and since when they had waited.
    expired: HashMap<u64, Duration>,
    tickets: u64,
}

impl<W> PermitQueue<W> {
    pub(super) fn new(limits: PermitLimits) -> Self {
        Self { limits, held: 0, done_at: Duration::ZERO, waiting: VecDeque::new(), expired: HashMap::new(), tickets: 0 }
    }

    /// Sets other limits. Permits that are held stay held, also if they are more than the new limits allow.
    pub(super) fn set_limits(&mut self, limits: PermitLimits) {
        self.limits = limits;
    }

    /// Gives a new message a permit, unless it must wait.
    pub(super) fn admit(&mut self, statements: u32, now: Duration) -> bool {
        self.expire(now);
        let admitted = self.waiting.is_empty() && self.is_free(now);
        if admitted {
            self.hold(statements, now);
        }
        admitted
    }

    /// Adds a message that [`Self::admit`] has not given a permit. Returns its ticket. At `until` it leaves the queue by
    /// itself, if it is given; those after it must not have an earlier one.
    pub(super) fn wait(&mut self, statements: u32, now: Duration, until: Option<Duration>, waiter: W) -> u64 {
        self.tickets += 1;
        self.waiting.push_back(WaitingMessage { ticket: self.tickets, statements, since: now, until, waiter });
        self.tickets
    }

    fn expire(&mut self, now: Duration) {
        while let Some(first) = self.waiting.pop_front_if(|first| first.until.is_some_and(|until| until <= now)) {
            self.expired.insert(first.ticket, first.since);
        }
    }

    /// Removes a message that waits or has left the queue. Returns since when it has waited; `None`: it has got its permit.
    pub(super) fn give_up(&mut self, ticket: u64) -> Option<Duration> {
        if let Some(since) = self.expired.remove(&ticket) {
            return Some(since);
        }
        self.waiting.remove(self.position(ticket)?).map(|waiting| waiting.since)
    }

    /// Takes a permit back.
    pub(super) fn release(&mut self) {
        self.held = self.held.saturating_sub(1);
    }

    /// The next message that gets a permit.
    pub(super) fn next(&mut self, now: Duration) -> Option<W> {
        self.expire(now);
        if !self.is_free(now) {
            return None;
        }
        let WaitingMessage { statements, waiter, .. } = self.waiting.pop_front()?;
        self.hold(statements, now);
        Some(waiter)
    }

    /// The first moment at which the rate allows the message with this ticket, after all before it. `None`: it does not
    /// wait for the rate.
    pub(super) fn allowed_at(&self, ticket: u64) -> Option<Duration> {
        self.limits.rate?;
        let before = self.waiting.iter().take_while(|waiting| waiting.ticket < ticket);
        let done_at = before.fold(self.done_at, |done_at, waiting| done_at + self.duration(waiting.statements));
        Some((done_at + self.duration(1)).saturating_sub(SECOND))
    }

    /// The first message that waits, if it waits only for the rate.
    pub(super) fn first_for_rate(&self) -> Option<&W> {
        let first = self.waiting.front().filter(|_| self.limits.rate.is_some() && self.has_permit())?;
        Some(&first.waiter)
    }

    pub(super) fn is_waiting(&self, ticket: u64) -> bool {
        self.position(ticket).is_some()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn held(&self) -> u32 {
        self.held
    }

    /// Since when the message that has waited longest has waited.
    pub(super) fn oldest(&self) -> Option<Duration> {
        self.waiting.front().map(|waiting| waiting.since)
    }

    /// Whether a new queue would do the same.
    pub(super) fn is_unused(&self, now: Duration) -> bool {
        self.held == 0 && self.waiting.is_empty() && self.expired.is_empty() && self.done_at <= now
    }

    /// A second without statements allows as many at once as the rate. A message with more is allowed too; those after
    /// it wait longer.
    fn is_free(&self, now: Duration) -> bool {
        self.has_permit() && (self.limits.rate.is_none() || self.done_at.max(now) + self.duration(1) <= now + SECOND)
    }

    fn has_permit(&self) -> bool {
        self.limits.concurrent.is_none_or(|concurrent| self.held < concurrent.get())
    }

    fn position(&self, ticket: u64) -> Option<usize> {
        // Tickets ascend.
        self.waiting.binary_search_by_key(&ticket, |waiting| waiting.ticket).ok()
    }

    fn hold(&mut self, statements: u32, now: Duration) {
        self.held += 1;
        self.done_at = self.done_at.max(now) + self.duration(statements);
    }

    /// The time of statements at the rate.
    fn duration(&self, statements: u32) -> Duration {
        self.limits.rate.map_or(Duration::ZERO, |rate| SECOND * statements / rate.get())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn queue(concurrent: u32, rate: u32) -> PermitQueue<u64> {
        PermitQueue::new(PermitLimits { concurrent: NonZeroU32::new(concurrent), rate: NonZeroU32::new(rate) })
    }

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn the_first_that_waits_gets_the_next_permit() {
        let mut queue = queue(2, 0);
        assert!(queue.admit(1, at(0)) && queue.admit(1, at(0)) && !queue.admit(1, at(0)));
        let first = queue.wait(1, at(1), None, 1);
        queue.wait(1, at(2), None, 2);
        queue.wait(1, at(3), None, 3);
        assert_eq!(queue.next(at(4)), None);
        queue.release();
        assert_eq!((queue.next(at(5)), queue.next(at(5))), (Some(1), None));
        assert_eq!((queue.give_up(first), queue.give_up(first + 1)), (None, Some(at(2))));
        queue.release();
        assert!(!queue.admit(1, at(6)), "another one waits");
        assert_eq!((queue.next(at(6)), queue.waiting()), (Some(3), 0));
    }

    #[test]
    fn a_message_leaves_the_queue_at_its_time_without_a_permit() {
        let mut queue = queue(1, 0);
        assert!(queue.admit(1, at(0)));
        let first = queue.wait(1, at(0), Some(at(200)), 1);
        let second = queue.wait(1, at(100), Some(at(300)), 2);
        queue.release();
        assert_eq!((queue.next(at(250)), queue.waiting()), (Some(2), 0));
        assert!(!queue.is_unused(at(250)));
        assert_eq!((queue.give_up(first), queue.give_up(second)), (Some(at(0)), None));
        queue.release();
        assert!(queue.is_unused(at(250)));
    }

    #[test]
    fn a_rate_allows_a_second_at_once_and_then_one_after_the_other() {
        let mut queue = queue(0, 10);
        assert_eq!((0..20).filter(|_| queue.admit(1, at(0))).count(), 10);
        let (first, second) = (queue.wait(1, at(0), None, 1), queue.wait(1, at(0), None, 2));
        assert_eq!((queue.allowed_at(first), queue.allowed_at(second)), (Some(at(100)), Some(at(200))));
        assert_eq!((queue.next(at(99)), queue.next(at(100)), queue.next(at(100))), (None, Some(1), None));
        assert_eq!(queue.next(at(200)), Some(2));
        assert!(!queue.is_unused(at(200)));
        (0..12).for_each(|_| queue.release());
        assert!(!queue.is_unused(at(200)) && queue.is_unused(at(1200)));
    }

    #[test]
    fn a_large_batch_is_sent_and_those_after_it_wait() {
        let mut queue = queue(0, 10);
        assert!(queue.admit(30, at(0)));
        let ticket = queue.wait(1, at(0), None, 1);
        assert_eq!(queue.allowed_at(ticket), Some(at(2100)));
        assert_eq!((queue.next(at(2099)), queue.next(at(2100))), (None, Some(1)));
    }

    #[test]
    fn lower_bounds_let_the_held_permits_run_out() {
        let mut queue = queue(3, 0);
        (0..3).for_each(|_| assert!(queue.admit(1, at(0))));
        queue.set_limits(PermitLimits { concurrent: NonZeroU32::new(1), rate: None });
        queue.wait(1, at(0), None, 1);
        queue.release();
        queue.release();
        assert_eq!(queue.next(at(0)), None);
        queue.release();
        assert_eq!(queue.next(at(0)), Some(1));
    }

    proptest! {
        /// Whatever happens: no more permits than allowed, no more statements than the rate, first come first served,
        /// no message waits that could be sent, and nothing is left at the end.
        #[test]
        fn bounds_and_order_hold(
            concurrent in 0u32..4,
            rate in 0u32..20,
            steps in proptest::collection::vec((0u8..5, 1u32..6, 0u64..300), 1..200),
        ) {
            let mut queue = queue(concurrent, rate);
            let (mut now, mut held, mut arrivals) = (at(0), 0u32, 0u64);
            let mut waiting: Vec<(u64, u64, u32)> = Vec::new();
            let mut sent: Vec<(Duration, u32)> = Vec::new();
            for (action, statements, pause) in steps {
                match action {
                    0 | 1 => {
                        arrivals += 1;
                        if queue.admit(statements, now) {
                            prop_assert!(waiting.is_empty());
                            sent.push((now, statements));
                            held += 1;
                        } else {
                            waiting.push((arrivals, queue.wait(statements, now, None, arrivals), statements));
                        }
                    }
                    2 if held > 0 => {
                        held -= 1;
                        queue.release();
                    }
                    3 if !waiting.is_empty() => {
                        let (_, ticket, _) = waiting.remove(pause as usize % waiting.len());
                        prop_assert!(queue.give_up(ticket).is_some());
                    }
                    _ => now += at(pause),
                }
                while let Some(served) = queue.next(now) {
                    let (first, ticket, statements) = waiting.remove(0);
                    prop_assert_eq!(served, first);
                    prop_assert!(queue.give_up(ticket).is_none());
                    sent.push((now, statements));
                    held += 1;
                }
                prop_assert_eq!((queue.held(), queue.waiting()), (held, waiting.len()));
                prop_assert!(concurrent == 0 || held <= concurrent);
                if let Some((_, ticket, _)) = waiting.first() {
                    let full = concurrent > 0 && held == concurrent;
                    let early = queue.allowed_at(*ticket).is_some_and(|allowed| allowed > now);
                    prop_assert!(full || early, "a message waits that could be sent");
                }
            }
            // Before each message, in any time until it, no more than a second's statements and the rate's.
            for (end, (last, _)) in sent.iter().enumerate().filter(|_| rate > 0) {
                for (begin, (first, _)) in sent.iter().enumerate().take(end) {
                    let between: u32 = sent[begin..end].iter().map(|(_, statements)| statements).sum();
                    let allowed = f64::from(rate) * (1.0 + (*last - *first).as_secs_f64());
                    prop_assert!(f64::from(between) <= allowed + 1e-3, "{between} in {:?}", *last - *first);
                }
            }
            waiting.iter().for_each(|(_, ticket, _)| _ = queue.give_up(*ticket));
            (0..held).for_each(|_| queue.release());
            prop_assert!(queue.is_unused(now + at(1_000_000)));
        }
    }
}
