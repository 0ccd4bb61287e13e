//! The commands that enforcement would let wait and reject.

use std::num::NonZeroU32;
use std::sync::Arc;

use proptest::prelude::*;

use super::super::queue::PermitQueues;
use super::*;

fn limits(concurrent: u32, rate: u32) -> PermitLimits {
    PermitLimits { concurrent: NonZeroU32::new(concurrent), rate: NonZeroU32::new(rate) }
}

fn at(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A command that arrives at a millisecond and takes some once it has its permit.
#[derive(Debug, Clone)]
struct SentCommand {
    arrival: u64,
    statements: u32,
    takes: u64,
}

/// The numbers of commands that wait and that are rejected if the limits are enforced.
fn enforced(limits: PermitLimits, wait: Duration, sent: &[SentCommand], end: u64) -> (u64, u64) {
    let mut queues = PermitQueues::default();
    queues.set_limits(&(), limits);
    let (mut waited, mut rejected) = (0, 0);
    let mut waiting = Vec::new();
    let mut ends: Vec<u64> = Vec::new();
    for now in 0..end {
        waiting.retain(|(ticket, until)| {
            let expires = *until < at(now) && queues.is_waiting(*ticket);
            if expires {
                assert!(queues.give_up(*ticket).is_some());
                rejected += 1;
            }
            !expires
        });
        ends.iter().filter(|end| **end == now).for_each(|_| queues.release(&[()]));
        while let Some(takes) = queues.next(&(), at(now)) {
            ends.push(now + takes);
        }
        for one in sent.iter().filter(|one| one.arrival == now) {
            if queues.admit(&[()], one.statements, at(now)) {
                ends.push(now + one.takes);
            } else {
                waited += 1;
                let ticket = queues.wait(&Arc::from([()]), one.statements, at(now), one.takes);
                waiting.push((ticket, at(now) + wait));
            }
        }
    }
    (waited, rejected)
}

/// The same in shadow mode, where each command is sent at once.
fn shadow(limits: PermitLimits, wait: Duration, sent: &[SentCommand], end: u64) -> (u64, u64, ShadowQueue) {
    let mut queue = ShadowQueue::new(limits);
    let mut waited = 0;
    let mut ends = Vec::new();
    for now in 0..end {
        ends.iter().filter(|(end, _)| *end == now).for_each(|(_, ticket)| queue.end(*ticket, at(now)));
        for one in sent.iter().filter(|one| one.arrival == now) {
            let (ticket, waits) = queue.arrive(limits, one.statements, wait, at(now));
            waited += u64::from(waits);
            ends.push((now + one.takes, ticket));
        }
    }
    queue.advance(at(end));
    (waited, queue.take_rejected(), queue)
}

#[test]
fn a_flood_counts_as_with_enforcement() {
    let flood: Vec<SentCommand> =
        (0..12_000).step_by(6).map(|arrival| SentCommand { arrival, statements: 1, takes: 1 }).collect();
    let (waited, rejected, _) = shadow(limits(0, 5), at(500), &flood, 14_000);
    // 5 are sent at once, and 5 in each second until the last one's wait ends.
    assert_eq!((waited, rejected), (2000 - 5, 2000 - 5 - 62));
    assert_eq!(enforced(limits(0, 5), Duration::from_micros(500_500), &flood, 14_000), (waited, rejected));
}

#[test]
fn the_queue_is_bounded() {
    let mut queue = ShadowQueue::new(limits(1, 0));
    for _ in 0..MAX_WAITING + 11 {
        queue.arrive(limits(1, 0), 1, at(3_600_000), at(0));
    }
    assert_eq!((queue.waiting().0, queue.take_rejected()), (MAX_WAITING, 10));
}

/// Its ticket must not be that of a command of the next queue.
#[test]
fn a_queue_is_used_as_long_as_a_rejected_command_is_in_progress() {
    let mut queue = ShadowQueue::new(limits(1, 0));
    let (first, _) = queue.arrive(limits(1, 0), 1, at(100), at(0));
    let (second, waits) = queue.arrive(limits(1, 0), 1, at(100), at(100));
    assert!(waits);
    queue.end(first, at(1000));
    assert_eq!((queue.take_rejected(), queue.is_unused()), (1, false));
    queue.end(second, at(10_000));
    assert!(queue.is_unused());
}

proptest! {
    /// For clients that send at times of their own, as many commands wait and are rejected as with enforcement.
    #[test]
    fn the_counts_are_those_of_enforcement(
        concurrent in 0u32..4,
        rate in proptest::sample::select(vec![0u32, 1, 2, 5, 10, 20, 50]),
        wait in 0u64..800,
        sent in proptest::collection::vec((0u64..3000, 1u32..4, 1u64..400), 1..80),
    ) {
        // No wait ends at a moment at which something else happens.
        let wait = at(wait) + Duration::from_micros(500);
        let mut sent: Vec<SentCommand> =
            sent.into_iter().map(|(arrival, statements, takes)| SentCommand { arrival, statements, takes }).collect();
        sent.sort_by_key(|one| one.arrival);
        let (waited, rejected, mut queue) = shadow(limits(concurrent, rate), wait, &sent, 5000);
        prop_assert_eq!((waited, rejected), enforced(limits(concurrent, rate), wait, &sent, 5000));
        queue.advance(at(1_000_000));
        prop_assert!(queue.is_unused(), "{queue:?}");
    }
}
