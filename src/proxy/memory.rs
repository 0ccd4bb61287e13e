//! One budget of memory for what is kept for clients: large messages while they are collected, what is decompressed of
//! them, and what is made of them until the server has taken it. A message whose share does not fit is not read on
//! before there is room; who came first goes first. Small messages never wait.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

use super::rate_limit::RateLimit;
use crate::wire::compressed::Envelope;
use crate::wire::{Header, OpCode};

/// Messages up to this length never wait, and are not counted: one read brings them.
pub(super) const SMALL: usize = 64 * 1024;
/// Between two looks at a message that is being collected while others wait.
const LOOK: Duration = Duration::from_secs(5);
/// Bytes of it that must come between two looks then.
const PROGRESS: usize = 64 * 1024;
/// Looks after which it must be here whole then.
const LOOKS: u32 = 6;

/// The budget.
#[derive(Debug)]
pub(super) struct Memory {
    limit: usize,
    books: Mutex<Accounts>,
    /// Somebody waits.
    pressed: AtomicBool,
    /// One message at a time may go beyond the budget to be evaluated: those that are here whole must not wait for one
    /// another.
    beyond: Arc<Semaphore>,
    waits: AtomicU64,
    /// Lines that say so.
    said: RateLimit,
}

#[derive(Debug, Default)]
struct Accounts {
    used: usize,
    next: u64,
    /// Who waits for how much, in the order they came.
    waiting: BTreeMap<u64, (usize, Waker)>,
}

/// What the budget is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes.
    pub limit: usize,
    pub used: usize,
    /// Messages that had to wait for room since the start.
    pub waits: u64,
}

/// A part of the budget; it is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Share {
    memory: Arc<Memory>,
    bytes: usize,
    _beyond: Option<OwnedSemaphorePermit>,
}

/// Somebody who waits for a share.
#[derive(Debug)]
pub(super) struct Waiting {
    memory: Arc<Memory>,
    bytes: usize,
    place: Option<u64>,
}

/// What a message will take, of which `head` is here: itself, and what it becomes. `None`: it is small, or cannot be
/// told yet.
pub(super) fn share_of(head: &[u8]) -> Option<usize> {
    let header = Header::parse(head).ok().flatten()?;
    let (length, inner) = match header.op_code {
        OpCode::Compressed => (header.length, Envelope::parse(head).ok().flatten()?.header.length),
        _ => (0, header.length),
    };
    (length.max(inner) > SMALL).then_some(length + 2 * inner)
}

impl Memory {
    /// `limit`: in bytes.
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            books: Mutex::default(),
            pressed: AtomicBool::new(false),
            beyond: Arc::new(Semaphore::new(1)),
            waits: AtomicU64::new(0),
            said: RateLimit::default(),
        })
    }

    pub(super) fn usage(&self) -> MemoryUse {
        MemoryUse { limit: self.limit, used: self.books().used, waits: self.waits.load(Ordering::Relaxed) }
    }

    /// Asks for a share; one that is larger than the whole budget is given when nobody else has any.
    pub(super) fn ask(self: &Arc<Self>, bytes: usize) -> Waiting {
        Waiting { memory: self.clone(), bytes, place: None }
    }

    /// A share for what is here already, beyond the budget if there is no room in it; then one at a time.
    pub(super) async fn take(self: &Arc<Self>, bytes: usize) -> Option<Share> {
        let fits = {
            let mut books = self.books();
            let fits = books.used + bytes <= self.limit;
            if fits {
                books.used += bytes;
            }
            fits
        };
        let beyond = if fits { None } else { Some(self.beyond.clone().acquire_owned().await.ok()?) };
        if !fits {
            self.books().used += bytes;
        }
        Some(Share { memory: self.clone(), bytes, _beyond: beyond })
    }

    fn books(&self) -> MutexGuard<'_, Accounts> {
        // Nothing panics while it holds the lock; should it, the sums are still whole.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes who is next, after something has changed.
    fn wake(&self, books: &Accounts) {
        self.pressed.store(!books.waiting.is_empty(), Ordering::Relaxed);
        if let Some((bytes, waker)) = books.waiting.values().next()
            && self.has_room(books, *bytes)
        {
            waker.wake_by_ref();
        }
    }

    fn has_room(&self, books: &Accounts, bytes: usize) -> bool {
        books.used == 0 || books.used + bytes <= self.limit
    }
}

impl Waiting {
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Share> {
        let memory = &self.memory;
        let mut books = memory.books();
        let first = books.waiting.keys().next().copied();
        let is_next = first.is_none() || first == self.place;
        if is_next && memory.has_room(&books, self.bytes) {
            books.used += self.bytes;
            if let Some(place) = self.place.take() {
                books.waiting.remove(&place);
                memory.wake(&books);
            }
            drop(books);
            return Poll::Ready(Share { memory: memory.clone(), bytes: self.bytes, _beyond: None });
        }
        let place = match self.place {
            Some(place) => place,
            None => {
                let place = books.next;
                books.next += 1;
                memory.waits.fetch_add(1, Ordering::Relaxed);
                place
            }
        };
        self.place = Some(place);
        books.waiting.insert(place, (self.bytes, cx.waker().clone()));
        memory.pressed.store(true, Ordering::Relaxed);
        let (used, waiting) = (books.used, books.waiting.len());
        drop(books);
        if let Some(left_out) = memory.said.line() {
            let (limit, bytes) = (memory.limit, self.bytes);
            tracing::warn!(limit, used, bytes, waiting, left_out, "large messages wait for memory (limits: memory)");
        }
        Poll::Pending
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let mut books = self.memory.books();
            books.waiting.remove(&place);
            self.memory.wake(&books);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut books = self.memory.books();
        books.used -= self.bytes;
        self.memory.wake(&books);
    }
}

/// What one connection has of the budget, from when a large message is collected until the server has taken what became
/// of it, and the client its reply.
#[derive(Debug)]
pub(super) struct Reservation {
    memory: Arc<Memory>,
    /// `None`: it has its share.
    waiting: Option<Waiting>,
    shares: Vec<Share>,
    /// The message has been taken up whole; what is left is to send what became of it.
    pub(super) is_done: bool,
    progress: Progress,
    timer: Pin<Box<Sleep>>,
}

/// Looks now and then whether something comes on.
#[derive(Debug, Default)]
struct Progress {
    /// What was here of it at the last look, or left of it.
    seen: usize,
    looks: u32,
}

/// Too little came or went while others waited for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stalled;

impl Reservation {
    /// Nothing yet.
    pub(super) fn new(memory: &Arc<Memory>) -> Box<Self> {
        let (memory, timer) = (memory.clone(), Box::pin(sleep(LOOK)));
        Box::new(Self {
            memory,
            waiting: None,
            shares: Vec::new(),
            is_done: false,
            progress: Progress::default(),
            timer,
        })
    }

    /// For a message that will take so many bytes.
    pub(super) fn for_message(memory: &Arc<Memory>, bytes: usize) -> Box<Self> {
        let mut kept = Self::new(memory);
        kept.waiting = Some(memory.ask(bytes));
        kept
    }

    /// Whether it has no share yet.
    pub(super) fn waits(&self) -> bool {
        self.waiting.is_some()
    }

    /// Ready when there is room for the message; then it is so until it is done.
    pub(super) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(waiting) = &mut self.waiting {
            let Poll::Ready(share) = waiting.poll(cx) else { return Poll::Pending };
            self.waiting = None;
            self.shares.push(share);
            self.timer.as_mut().reset(Instant::now() + LOOK);
        }
        Poll::Ready(())
    }

    /// Adds a share for what is here already.
    pub(super) async fn add(&mut self, bytes: usize) {
        let share = self.memory.take(bytes).await;
        self.shares.extend(share);
    }

    /// Looks whether it comes on, if that is due. `amount`: bytes of it that have come, or that are left to go.
    ///
    /// # Errors
    /// [`Stalled`].
    pub(super) fn look(&mut self, cx: &mut Context<'_>, amount: usize) -> Result<(), Stalled> {
        while self.timer.as_mut().poll(cx).is_ready() {
            let pressed = self.memory.pressed.load(Ordering::Relaxed);
            if self.progress.stalls(amount) && pressed {
                return Err(Stalled);
            }
            self.timer.as_mut().reset(Instant::now() + LOOK);
        }
        Ok(())
    }
}

impl Progress {
    fn stalls(&mut self, amount: usize) -> bool {
        self.looks += 1;
        let moved = amount.abs_diff(std::mem::replace(&mut self.seen, amount));
        moved < PROGRESS || self.looks >= LOOKS
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures_util::FutureExt;

    use super::*;

    fn poll(waiting: &mut Waiting) -> Option<Share> {
        poll_fn(|cx| waiting.poll(cx)).now_or_never()
    }

    #[test]
    fn who_came_first_has_room_first() {
        let memory = Memory::new(100);
        let first = poll(&mut memory.ask(60)).unwrap();
        let (mut large, mut small) = (memory.ask(90), memory.ask(10));
        assert!(poll(&mut large).is_none() && poll(&mut small).is_none());
        assert_eq!(memory.usage(), MemoryUse { limit: 100, used: 60, waits: 2 });
        drop(first);
        assert!(poll(&mut small).is_none());
        let large = poll(&mut large).unwrap();
        let small = poll(&mut small).unwrap();
        assert!(memory.usage().used == 100 && !memory.pressed.load(Ordering::Relaxed));
        drop((large, small));
        assert_eq!(memory.usage().used, 0);
        // One that never fits goes alone, and one that gives up holds up nobody.
        let alone = poll(&mut memory.ask(1000)).unwrap();
        let mut gives_up = memory.ask(1);
        assert!(poll(&mut gives_up).is_none());
        drop((alone, gives_up));
        assert!(poll(&mut memory.ask(100)).is_some());
    }

    #[tokio::test]
    async fn what_is_here_goes_beyond_the_budget_one_after_the_other() {
        let memory = Memory::new(100);
        let within = memory.take(100).await.unwrap();
        let beyond = memory.take(50).await.unwrap();
        assert_eq!(memory.usage().used, 150);
        assert!(memory.take(1).now_or_never().is_none());
        drop(beyond);
        assert!(memory.take(1).now_or_never().is_some());
        drop(within);
        assert_eq!(memory.usage().used, 0);
    }

    #[test]
    fn what_hardly_moves_stalls_and_so_does_what_takes_too_long() {
        let mut progress = Progress::default();
        assert!(!progress.stalls(2 * PROGRESS) && !progress.stalls(PROGRESS) && progress.stalls(PROGRESS + 1));
        let mut slow = Progress::default();
        let stalls: Vec<bool> = (1..=LOOKS as usize).map(|look| slow.stalls(look * PROGRESS)).collect();
        assert_eq!(stalls, [false, false, false, false, false, true]);
    }
}
