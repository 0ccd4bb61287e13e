//! Tests the allocator over a store that can fail, lose replies and be slow.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use proptest::prelude::*;
use tokio::task::JoinSet;

use super::*;
use crate::engine::lookup::SharedStart;

/// A counter in memory. `script` defines the outcome of each call in turn; further calls succeed.
#[derive(Debug, Default)]
struct FakeStore {
    seq: Mutex<HashMap<String, i64>>,
    script: Mutex<VecDeque<CallOutcome>>,
    calls: AtomicUsize,
    /// The count of the last call.
    last: AtomicI64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallOutcome {
    Granted,
    /// The server never received the request.
    Lost,
    /// The server applied it, and the reply was lost.
    ReplyLost,
}

impl FakeStore {
    /// Handles one request according to the script.
    async fn ask(&self, request: &NumberRequest, change: impl Fn(i64) -> i64) -> Result<i64, LookupError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let outcome = lock(&self.script).pop_front().unwrap_or(CallOutcome::Granted);
        tokio::task::yield_now().await;
        if outcome == CallOutcome::Lost {
            return Err(LookupError::Unavailable("lost".to_owned()));
        }
        let last = {
            let mut counters = lock(&self.seq);
            let seq = counters.entry(request.counter.id.to_string()).or_default();
            *seq = change(*seq);
            *seq
        };
        tokio::task::yield_now().await;
        if outcome == CallOutcome::Granted { Ok(last) } else { Err(LookupError::Unavailable("answer lost".to_owned())) }
    }
}

impl CounterStore for FakeStore {
    async fn advance(&self, request: &NumberRequest, count: i64) -> Result<i64, LookupError> {
        self.last.store(count, Ordering::Relaxed);
        self.ask(request, |seq| seq + count).await
    }

    async fn raise(&self, request: &NumberRequest, number: i64) -> Result<i64, LookupError> {
        self.ask(request, |seq| seq.max(number)).await
    }
}

fn request(counter: &str, count: u32, block: u32) -> NumberRequest {
    let counter = CounterId { database: "d".into(), collection: "n".into(), id: counter.into() };
    NumberRequest { counter, count, provided: Vec::new(), block, beginning: SharedStart::default() }
}

fn allocator(script: &[CallOutcome]) -> Arc<Allocator<FakeStore>> {
    let store = FakeStore { script: Mutex::new(script.iter().copied().collect()), ..FakeStore::default() };
    Arc::new(Allocator::new(Arc::new(store), BackgroundTasks::new()))
}

/// Requests numbers immediately, and waits if necessary.
fn numbers(
    allocator: &Allocator<FakeStore>,
    request: NumberRequest,
) -> impl Future<Output = Result<Vec<i64>, LookupError>> + use<> {
    let numbers = allocator.numbers(request);
    async {
        match numbers {
            Allocation::Ready(numbers) => Ok(numbers),
            Allocation::Pending(numbers) => numbers.wait().await,
        }
    }
}

/// Runs several callers with a series of requests each; returns the numbers each one got, in order.
async fn run(allocator: &Arc<Allocator<FakeStore>>, callers: Vec<Vec<(u32, u32)>>) -> Vec<Vec<i64>> {
    let mut tasks = JoinSet::new();
    for asks in callers {
        let allocator = allocator.clone();
        tasks.spawn(async move {
            let mut got = Vec::new();
            for (count, block) in asks {
                if let Ok(numbers) = numbers(&allocator, request("k", count, block)).await {
                    assert_eq!(numbers.len(), count as usize);
                    got.extend(numbers);
                }
            }
            got
        });
    }
    tasks.join_all().await
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

proptest! {
    #[test]
    fn no_number_is_issued_twice_whatever_fails(
        callers in prop::collection::vec(prop::collection::vec((1u32..5, 1u32..6), 0..6), 1..8),
        script in prop::collection::vec(prop_oneof![Just(CallOutcome::Granted), Just(CallOutcome::Lost), Just(CallOutcome::ReplyLost)], 0..20),
    ) {
        let all = block_on(async { run(&allocator(&script), callers).await });
        let mut seen = HashSet::new();
        for got in all {
            prop_assert!(got.is_sorted_by(|a, b| a < b), "{got:?}");
            prop_assert!(got.into_iter().all(|number| seen.insert(number)));
        }
    }

    /// A number that a client has provided is not handed out later. A failed request provides none.
    #[test]
    fn no_number_is_issued_that_was_supplied(
        callers in prop::collection::vec(prop::collection::vec((0u32..4, 1u32..8, prop::collection::vec(1i64..40, 0..3)), 0..6), 1..6),
        script in prop::collection::vec(prop_oneof![4 => Just(CallOutcome::Granted), 1 => Just(CallOutcome::Lost), 1 => Just(CallOutcome::ReplyLost)], 0..20),
    ) {
        let allocator = || allocator(&script);
        let (handed_out, provided) = block_on(async {
            let (allocator, order) = (allocator(), Arc::new(AtomicUsize::new(0)));
            let mut tasks = JoinSet::new();
            for asks in callers {
                let (allocator, order) = (allocator.clone(), order.clone());
                tasks.spawn(async move {
                    let (mut handed_out, mut kept) = (Vec::new(), Vec::new());
                    for (count, block, provided) in asks {
                        let began = order.fetch_add(1, Ordering::Relaxed);
                        let request = NumberRequest { provided: provided.clone(), ..request("k", count, block) };
                        let Ok(numbers) = numbers(&allocator, request).await else { continue };
                        let done = order.fetch_add(1, Ordering::Relaxed);
                        handed_out.extend(numbers.into_iter().map(|number| (number, began)));
                        kept.extend(provided.into_iter().map(|number| (number, done)));
                        // The same holds within the batch.
                        assert!(!handed_out.iter().any(|(number, at)| *at == began && kept.contains(&(*number, done))));
                    }
                    (handed_out, kept)
                });
            }
            let all = tasks.join_all().await;
            let (handed_out, provided): (Vec<_>, Vec<_>) = all.into_iter().unzip();
            (handed_out.concat(), provided.concat())
        });
        let mut seen = HashSet::new();
        for (number, began) in handed_out {
            prop_assert!(seen.insert(number));
            prop_assert!(!provided.iter().any(|(other, done)| *other == number && *done < began), "{number}");
        }
    }

    #[test]
    fn with_blocks_of_one_and_no_failure_there_is_no_gap(
        callers in prop::collection::vec(prop::collection::vec((1u32..5, Just(1u32)), 0..6), 1..8),
    ) {
        let wanted: u32 = callers.iter().flatten().map(|(count, _)| count).sum();
        let mut numbers = block_on(async { run(&allocator(&[]), callers).await }).concat();
        numbers.sort_unstable();
        prop_assert_eq!(numbers, (1..=i64::from(wanted)).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn the_next_block_is_reserved_when_less_than_half_is_left() {
    let allocator = allocator(&[]);
    for (count, ready, last, calls) in
        [(1, false, 1, 1), (1, true, 2, 1), (1, true, 3, 2), (2, true, 5, 2), (4, true, 9, 3), (20, false, 29, 5)]
    {
        let numbers = allocator.numbers(request("k", count, 5));
        assert_eq!(matches!(numbers, Allocation::Ready(_)), ready);
        let numbers = match numbers {
            Allocation::Ready(numbers) => numbers,
            Allocation::Pending(numbers) => numbers.wait().await.unwrap(),
        };
        assert_eq!(numbers, (last - i64::from(count) + 1..=last).collect::<Vec<_>>());
        settle().await;
        assert_eq!(allocator.store.calls.load(Ordering::Relaxed), calls, "{count} numbers to {last}");
    }
    assert_eq!(numbers(&allocator, request("other", 1, 5)).await, Ok(vec![1]));
}

/// Requests `count` times one number concurrently. Returns the calls to the store so far, and the count of the last
/// one.
async fn ask_at_once(allocator: &Arc<Allocator<FakeStore>>, count: u32, block: u32) -> (usize, i64) {
    let asks: Vec<_> = (0..count).map(|_| numbers(allocator, request("k", 1, block))).collect();
    assert!(futures_util::future::join_all(asks).await.iter().all(Result::is_ok));
    settle().await;
    (allocator.store.calls.load(Ordering::Relaxed), allocator.store.last.load(Ordering::Relaxed))
}

/// Blocks that do not last until the next one arrives are reserved several at a time, as long as this is so.
#[tokio::test]
async fn reservations_grow_when_callers_outrun_the_store() {
    let allocator = allocator(&[]);
    let ask = |count| ask_at_once(&allocator, count, 10);
    // The first block has as many numbers as were requested by then. 29 were requested during its round trip; 32 times
    // that exceeds the bound of eight blocks.
    assert_eq!(ask(30).await, (2, 80));
    // No request came meanwhile: from now on one block is enough, reserved when less than half of one is left.
    assert_eq!(ask(75).await, (2, 80));
    assert_eq!(ask(1).await, (3, 10));
    assert_eq!(ask(1).await, (3, 10));
}

/// A reservation should last, because each one has its cost at the server.
#[tokio::test]
async fn a_reservation_is_for_many_round_trips() {
    let allocator = allocator(&[]);
    let ask = |count| ask_at_once(&allocator, count, 100);
    // Five requests come during the round trip of the first: 160 numbers are reserved for the next 32 round trips.
    assert_eq!(ask(6).await, (1, 100));
    assert_eq!(ask(14).await, (1, 100));
    assert_eq!(ask(1).await, (2, 160));
}

/// Lets the task that asks the store finish.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn blocks_of_one_are_not_reserved_in_advance() {
    let allocator = allocator(&[]);
    for number in 1..4 {
        assert_eq!(numbers(&allocator, request("k", 1, 1)).await, Ok(vec![number]));
        settle().await;
        assert_eq!(allocator.store.calls.load(Ordering::Relaxed), number as usize);
    }
}

#[tokio::test]
async fn a_failed_advance_reservation_is_retried_by_the_next_request() {
    let allocator = allocator(&[CallOutcome::Granted, CallOutcome::Lost, CallOutcome::ReplyLost]);
    for (number, calls) in [(1, 1), (2, 1), (3, 2), (4, 3)] {
        assert_eq!(numbers(&allocator, request("k", 1, 4)).await, Ok(vec![number]));
        settle().await;
        assert_eq!(allocator.store.calls.load(Ordering::Relaxed), calls);
    }
    // The block whose reply was lost is a gap.
    assert_eq!(numbers(&allocator, request("k", 1, 4)).await, Ok(vec![9]));
}

#[tokio::test]
async fn callers_during_a_round_trip_share_the_next_one() {
    let allocator = allocator(&[]);
    let asks = (0..50).map(|_| numbers(&allocator, request("k", 2, 1)));
    let numbers = futures_util::future::join_all(asks).await;
    assert_eq!(numbers.into_iter().flat_map(Result::unwrap).collect::<Vec<_>>(), (1..=100).collect::<Vec<_>>());
    assert!(allocator.store.calls.load(Ordering::Relaxed) <= 2);
}

#[tokio::test]
async fn an_error_reaches_all_waiting_callers_and_no_later_one() {
    let allocator = allocator(&[CallOutcome::Lost]);
    let asks = (0..3).map(|_| numbers(&allocator, request("k", 1, 1)));
    assert!(futures_util::future::join_all(asks).await.iter().all(Result::is_err));
    assert_eq!(numbers(&allocator, request("k", 1, 1)).await, Ok(vec![1]));
}

#[tokio::test]
async fn a_cancelled_caller_takes_no_numbers() {
    let allocator = allocator(&[]);
    tokio::select! {
        biased;
        _ = numbers(&allocator, request("k", 3, 1)) => unreachable!("the store has not answered yet"),
        () = std::future::ready(()) => {}
    }
    assert_eq!(numbers(&allocator, request("k", 2, 1)).await, Ok(vec![1, 2]));
}

/// Someone has deleted the counter, so it begins again below the numbers that docward knows of.
#[tokio::test]
async fn a_supplied_number_raises_a_counter_that_was_set_back() {
    let allocator = allocator(&[]);
    let providing = |count, number| NumberRequest { provided: vec![number], ..request("k", count, 1) };
    assert_eq!(numbers(&allocator, providing(0, 50)).await, Ok(vec![]));
    lock(&allocator.store.seq).clear();
    assert_eq!(numbers(&allocator, providing(1, 2)).await, Ok(vec![1]));
    assert_eq!(numbers(&allocator, request("k", 1, 1)).await, Ok(vec![3]));
}
