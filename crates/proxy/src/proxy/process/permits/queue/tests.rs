//! Bounds, order and fairness of permits.

use proptest::prelude::*;

use super::*;

/// One limit, with the key 0.
struct OneQueue(PermitQueues<u8, u64>);

fn queue(concurrent: u32, rate: u32) -> OneQueue {
    let mut queues = PermitQueues::default();
    queues.set_limits(&0, limits(concurrent, rate));
    OneQueue(queues)
}

fn limits(concurrent: u32, rate: u32) -> PermitLimits {
    PermitLimits { concurrent: NonZeroU32::new(concurrent), rate: NonZeroU32::new(rate) }
}

impl OneQueue {
    fn admit(&mut self, statements: u32, now: Duration) -> bool {
        self.0.admit(&[0], statements, now)
    }

    fn wait(&mut self, statements: u32, now: Duration, waiter: u64) -> Ticket {
        self.0.wait(&Arc::from([0]), statements, now, waiter)
    }

    fn next(&mut self, now: Duration) -> Option<u64> {
        self.0.next(&0, now)
    }

    fn release(&mut self) {
        self.0.release(&[0]);
    }

    fn waiting(&self) -> usize {
        self.0.lanes.values().map(|lane| lane.waiting.len()).sum()
    }

    fn is_unused(&self, now: Duration) -> bool {
        self.0.limits[&0].is_unused(now)
    }
}

fn at(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

#[test]
fn the_first_that_waits_gets_the_next_permit() {
    let mut queue = queue(2, 0);
    assert!(queue.admit(1, at(0)) && queue.admit(1, at(0)) && !queue.admit(1, at(0)));
    let first = queue.wait(1, at(1), 1);
    let second = queue.wait(1, at(2), 2);
    queue.wait(1, at(3), 3);
    assert_eq!(queue.next(at(4)), None);
    queue.release();
    assert_eq!((queue.next(at(5)), queue.next(at(5))), (Some(1), None));
    assert_eq!((queue.0.give_up(first), queue.0.give_up(second)), (None, Some(at(2))));
    queue.release();
    assert!(!queue.admit(1, at(6)), "another one waits");
    assert_eq!((queue.next(at(6)), queue.waiting()), (Some(3), 0));
}

#[test]
fn a_rate_allows_a_second_at_once_and_then_one_after_the_other() {
    let mut queue = queue(0, 10);
    assert_eq!((0..20).filter(|_| queue.admit(1, at(0))).count(), 10);
    let (first, second) = (queue.wait(1, at(0), 1), queue.wait(1, at(0), 2));
    assert_eq!((queue.0.allowed_at(first), queue.0.allowed_at(second)), (Some(at(100)), Some(at(200))));
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
    let ticket = queue.wait(1, at(0), 1);
    assert_eq!(queue.0.allowed_at(ticket), Some(at(2100)));
    assert_eq!((queue.next(at(2099)), queue.next(at(2100))), (None, Some(1)));
}

#[test]
fn lower_bounds_let_the_held_permits_run_out() {
    let mut queue = queue(3, 0);
    (0..3).for_each(|_| assert!(queue.admit(1, at(0))));
    queue.0.set_limits(&0, limits(1, 0));
    queue.wait(1, at(0), 1);
    queue.release();
    queue.release();
    assert_eq!(queue.next(at(0)), None);
    queue.release();
    assert_eq!(queue.next(at(0)), Some(1));
}

#[test]
fn a_message_that_waits_for_one_limit_takes_no_permit_of_another() {
    let mut queues = PermitQueues::default();
    queues.set_limits(&'a', limits(2, 0));
    queues.set_limits(&'b', limits(1, 0));
    queues.set_limits(&'c', limits(1, 0));
    let flood: Arc<[char]> = Arc::new(['a', 'b']);
    assert!(queues.admit(&flood, 1, at(0)));
    assert!(!queues.admit(&flood, 1, at(0)));
    queues.wait(&flood, 1, at(0), 1);
    assert_eq!((queues.next(&'a', at(0)), queues.waiting(&'a', at(0)).0, queues.waiting(&'b', at(0)).0), (None, 0, 1));
    assert!(queues.admit(&['a', 'c'], 1, at(1)), "a permit of a is free");
    // Now both limits of the first are taken, and the second waits behind it for a.
    queues.wait(&Arc::from(['a']), 1, at(2), 2);
    queues.release(&flood);
    assert_eq!((queues.next(&'a', at(3)), queues.next(&'b', at(3))), (Some(1), None));
    queues.release(&['a', 'c']);
    assert_eq!(queues.next(&'c', at(4)).or(queues.next(&'a', at(4))), Some(2));
}

/// A message of the property test.
#[derive(Debug, Clone)]
struct Sent {
    keys: Arc<[u8]>,
    statements: u32,
}

proptest! {
    /// Whatever happens: no more permits than allowed, no more statements than the rate, first come first served among
    /// those that need the same limits, no message waits that could be sent, none that waits holds a permit, an earlier
    /// one is passed only if another limit of it is taken, and nothing is left at the end.
    #[test]
    fn bounds_and_order_hold(
        settings in proptest::array::uniform3((0u32..4, 0u32..20)),
        steps in proptest::collection::vec((0u8..5, 1u8..8, 1u32..6, 0u64..300), 1..200),
    ) {
        let mut queues = PermitQueues::default();
        for (key, (concurrent, rate)) in (0u8..).zip(settings) {
            queues.set_limits(&key, limits(concurrent, rate));
        }
        let (mut now, mut arrivals) = (at(0), 0u64);
        let mut waiting: Vec<(u64, Ticket, Sent)> = Vec::new();
        let mut held: Vec<Arc<[u8]>> = Vec::new();
        let mut sent: Vec<(Duration, Sent)> = Vec::new();
        for (action, chosen, statements, pause) in steps {
            match action {
                0 | 1 => {
                    arrivals += 1;
                    let keys: Arc<[u8]> = (0..3).filter(|key| chosen >> key & 1 == 1).collect();
                    let message = Sent { keys: keys.clone(), statements };
                    if queues.admit(&keys, statements, now) {
                        prop_assert!(waiting.iter().all(|(.., earlier)| earlier.keys != keys));
                        held.push(keys);
                        sent.push((now, message));
                    } else {
                        waiting.push((arrivals, queues.wait(&keys, statements, now, arrivals), message));
                    }
                }
                2 if !held.is_empty() => queues.release(&held.remove(pause as usize % held.len())),
                3 if !waiting.is_empty() => {
                    let (_, ticket, _) = waiting.remove(pause as usize % waiting.len());
                    prop_assert!(queues.give_up(ticket).is_some());
                }
                _ => now += at(pause),
            }
            for key in [0, 1, 2] {
                loop {
                    let taken: Vec<bool> =
                        waiting.iter().map(|(.., one)| queues.first_taken(&one.keys, now).is_some()).collect();
                    let Some(served) = queues.next(&key, now) else { break };
                    let position = waiting.iter().position(|(arrival, ..)| *arrival == served).unwrap();
                    let (_, ticket, message) = waiting.remove(position);
                    prop_assert!(message.keys.contains(&key) && queues.give_up(ticket).is_none());
                    for ((.., earlier), taken) in waiting.iter().zip(&taken).take(position) {
                        prop_assert!(earlier.keys != message.keys, "the first is served first");
                        prop_assert!(*taken || !earlier.keys.contains(&key), "it was the turn of an earlier one");
                    }
                    held.push(message.keys.clone());
                    sent.push((now, message));
                }
            }
            for (key, (concurrent, _)) in (0u8..).zip(settings) {
                let holding = held.iter().filter(|keys| keys.contains(&key)).count() as u32;
                prop_assert_eq!(queues.held(&key), holding);
                prop_assert!(concurrent == 0 || holding <= concurrent);
            }
            for (_, ticket, message) in &waiting {
                prop_assert!(queues.is_waiting(*ticket));
                prop_assert!(queues.first_taken(&message.keys, now).is_some(), "a message waits that could be sent");
            }
        }
        // Before each message, in any time until it, no more than a second's statements and the rate's.
        for (key, (_, rate)) in (0u8..).zip(settings).filter(|(_, (_, rate))| *rate > 0) {
            let limited: Vec<_> = sent.iter().filter(|(_, message)| message.keys.contains(&key)).collect();
            for (end, (last, _)) in limited.iter().enumerate() {
                for (begin, (first, _)) in limited.iter().enumerate().take(end) {
                    let between: u32 = limited[begin..end].iter().map(|(_, message)| message.statements).sum();
                    let allowed = f64::from(rate) * (1.0 + (*last - *first).as_secs_f64());
                    prop_assert!(f64::from(between) <= allowed + 1e-3, "{between} in {:?}", *last - *first);
                }
            }
        }
        waiting.iter().for_each(|(_, ticket, _)| _ = queues.give_up(*ticket));
        held.iter().for_each(|keys| queues.release(keys));
        queues.remove_unused(now + at(1_000_000));
        prop_assert_eq!((queues.len(), queues.lanes.len()), (0, 0));
    }
}

#[test]
fn a_message_that_waits_knows_when_there_will_probably_be_room() {
    let mut queue_of_rate = queue(0, 10);
    assert!((0..10).all(|_| queue_of_rate.admit(1, at(0))));
    let ticket = queue_of_rate.wait(1, at(0), 1);
    assert_eq!(queue_of_rate.0.room_in(&0, ticket, at(30)), Some(at(70)));
    let mut queue = queue(1, 0);
    assert!(queue.admit(1, at(0)));
    (0..8).for_each(|waiter| _ = queue.wait(1, at(0), waiter));
    let ticket = queue.wait(1, at(0), 8);
    assert_eq!(queue.0.room_in(&0, ticket, at(5)), None, "nothing was served yet");
    for turn in 1..=8 {
        queue.release();
        assert_eq!(queue.next(at(10 * turn)), Some(turn - 1));
    }
    assert_eq!(queue.0.room_in(&0, ticket, at(80)), Some(at(10)));
}
