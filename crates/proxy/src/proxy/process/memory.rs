//! One memory budget for what is held for clients: large messages while they are collected, their decompressed form,
//! and what is built from them until the server has taken it; large replies that are collected. A message whose share
//! does not fit is not read further until there is room, first come, first served. Small messages never wait.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

use crate::engine::MAX_EVALUATION_LENGTH;
use crate::rate_limit::RateLimit;
use crate::wire::compressed::CompressedEnvelope;
use crate::wire::{Header, OpCode};

/// Messages up to this length never wait and are not counted: one read delivers them.
pub(in crate::proxy) const SMALL: usize = 64 * 1024;
/// Time between two checks of a message that is collected while others wait.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Time between two checks whether the client of a waiting message is still connected.
const CLIENT_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes that must arrive between two checks while others wait.
const PROGRESS: usize = 64 * 1024;
/// Checks after which the message must be complete while others wait.
const MAX_CHECKS: u32 = 6;
/// The time between two returns of freed memory to the system: longer than mimalloc's option `purge_delay`.
const RETURN_INTERVAL: Duration = Duration::from_millis(1100);
/// How often memory is returned after a release. Memory that is freed meanwhile needs another return.
const RETURNS: usize = 3;
/// The size of an allocation for which mimalloc uses a separate memory page. Each such allocation makes mimalloc return
/// the memory that was freed at least `purge_delay` ago.
const LARGE_ALLOCATION: usize = 1 << 20;

/// The budget.
#[derive(Debug)]
pub(in crate::proxy) struct Memory {
    accounts: Mutex<Accounts>,
    /// At least one message waits.
    contended: AtomicBool,
    /// Lets one complete message at a time exceed the budget to be evaluated: complete messages must not wait for each
    /// other.
    overcommit: Arc<Semaphore>,
    waits: AtomicU64,
    /// Notified when a share is released.
    released: Notify,
    /// Rate limit for warnings about waiting messages.
    warnings: RateLimit,
}

#[derive(Debug, Default)]
struct Accounts {
    limit: usize,
    used: usize,
    next: u64,
    /// Requested bytes by order of arrival.
    waiting: BTreeMap<u64, (usize, Waker)>,
}

/// Current use of the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes.
    pub limit: usize,
    pub used: usize,
    /// Messages that had to wait for room since the start.
    pub waits: u64,
}

/// A part of the budget; dropping it releases it.
#[derive(Debug)]
pub(in crate::proxy) struct MemoryShare {
    memory: Arc<Memory>,
    bytes: usize,
}

/// A pending request for a share.
#[derive(Debug)]
pub(in crate::proxy) struct PendingShare {
    memory: Arc<Memory>,
    bytes: usize,
    ticket: Option<u64>,
}

/// Bytes that the message beginning with `head` will take: itself and what is built from it. `None`: it is small, or
/// its length is not known yet.
pub(in crate::proxy) fn share_of(head: &[u8]) -> Option<usize> {
    let header = Header::parse(head).ok().flatten()?;
    let (length, inner) = match header.op_code {
        OpCode::Compressed => (header.length, CompressedEnvelope::parse(head).ok().flatten()?.header.length),
        _ => (0, header.length),
    };
    (length.max(inner) > SMALL).then_some(length + 2 * inner)
}

impl Memory {
    /// `limit`: in bytes.
    pub(in crate::proxy) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            accounts: Mutex::new(Accounts { limit, ..Accounts::default() }),
            contended: AtomicBool::new(false),
            overcommit: Arc::new(Semaphore::new(1)),
            waits: AtomicU64::new(0),
            released: Notify::new(),
            warnings: RateLimit::default(),
        })
    }

    pub(in crate::proxy) fn usage(&self) -> MemoryUse {
        let (limit, used) = {
            let accounts = self.accounts();
            (accounts.limit, accounts.used)
        };
        MemoryUse { limit, used, waits: self.waits.load(Ordering::Relaxed) }
    }

    /// Changes the limit. Shares that are held stay.
    pub(in crate::proxy) fn set_limit(&self, limit: usize) {
        let mut accounts = self.accounts();
        accounts.limit = limit;
        self.wake(&accounts);
    }

    /// Requests a share for a message. One that is larger than the whole budget is granted when no other share is held.
    pub(in crate::proxy) fn ask(self: &Arc<Self>, bytes: usize) -> PendingShare {
        PendingShare { memory: self.clone(), bytes, ticket: None }
    }

    /// Makes the allocator return freed memory to the system. It does so only when it allocates, some time after the
    /// memory was freed; without traffic it would keep the memory of the last large messages for good.
    pub(in crate::proxy) async fn return_freed(&self) -> Infallible {
        loop {
            self.released.notified().await;
            for _ in 0..RETURNS {
                sleep(RETURN_INTERVAL).await;
                drop(black_box(Vec::<u8>::with_capacity(LARGE_ALLOCATION)));
            }
        }
    }

    /// Counts `bytes` if they are within the budget.
    fn fits(&self, bytes: usize) -> bool {
        let mut accounts = self.accounts();
        let fits = accounts.used + bytes <= accounts.limit;
        if fits {
            accounts.used += bytes;
        }
        fits
    }

    fn accounts(&self) -> MutexGuard<'_, Accounts> {
        // No code panics while it holds the lock; if it did, the sums would still be consistent.
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the first in the queue after a change.
    fn wake(&self, accounts: &Accounts) {
        self.contended.store(!accounts.waiting.is_empty(), Ordering::Relaxed);
        if let Some((bytes, waker)) = accounts.waiting.values().next()
            && accounts.has_room(*bytes)
        {
            waker.wake_by_ref();
        }
    }
}

impl Accounts {
    /// Whether a message may begin to arrive. Before they are evaluated, messages may use a part of the budget: the rest
    /// is for their evaluation.
    fn has_room(&self, bytes: usize) -> bool {
        let limit_of_messages = self.limit - (self.limit / 2).min(MAX_EVALUATION_LENGTH);
        self.used == 0 || self.used + bytes <= limit_of_messages
    }
}

impl PendingShare {
    pub(in crate::proxy) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<MemoryShare> {
        let memory = &self.memory;
        let mut accounts = memory.accounts();
        let first = accounts.waiting.keys().next().copied();
        let is_next = first.is_none() || first == self.ticket;
        if is_next && accounts.has_room(self.bytes) {
            accounts.used += self.bytes;
            if let Some(ticket) = self.ticket.take() {
                accounts.waiting.remove(&ticket);
                memory.wake(&accounts);
            }
            drop(accounts);
            return Poll::Ready(MemoryShare { memory: memory.clone(), bytes: self.bytes });
        }
        let ticket = match self.ticket {
            Some(ticket) => ticket,
            None => {
                let ticket = accounts.next;
                accounts.next += 1;
                memory.waits.fetch_add(1, Ordering::Relaxed);
                ticket
            }
        };
        self.ticket = Some(ticket);
        accounts.waiting.insert(ticket, (self.bytes, cx.waker().clone()));
        memory.contended.store(true, Ordering::Relaxed);
        let (limit, used, waiting) = (accounts.limit, accounts.used, accounts.waiting.len());
        drop(accounts);
        if let Some(suppressed) = memory.warnings.line() {
            tracing::warn!(
                limit,
                used,
                bytes = self.bytes,
                waiting,
                suppressed,
                "large messages wait for memory (limits: memory)"
            );
        }
        Poll::Pending
    }
}

impl Drop for PendingShare {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let mut accounts = self.memory.accounts();
            accounts.waiting.remove(&ticket);
            self.memory.wake(&accounts);
        }
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        let mut accounts = self.memory.accounts();
        accounts.used -= self.bytes;
        self.memory.wake(&accounts);
        self.memory.released.notify_one();
    }
}

/// One connection's use of the budget: from collecting a large message until the server has taken what was built from
/// it, and the client its reply.
#[derive(Debug)]
pub(in crate::proxy) struct Reservation {
    memory: Arc<Memory>,
    /// `None`: its share has been granted.
    waiting: Option<PendingShare>,
    shares: Vec<MemoryShare>,
    /// The message may exceed the budget. A message holds this once for all its shares, or it would wait for itself.
    overcommit: Option<OwnedSemaphorePermit>,
    /// The whole message has been processed; only sending remains.
    pub(in crate::proxy) is_done: bool,
    progress: TransferProgress,
    timer: Pin<Box<Sleep>>,
}

/// Checks periodically whether a message makes progress.
#[derive(Debug, Default)]
struct TransferProgress {
    /// Bytes received, or left to send, at the last check.
    seen: usize,
    checks: u32,
}

/// Too few bytes moved while other messages waited for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proxy) struct Stalled;

impl Reservation {
    /// Creates an empty reservation.
    pub(in crate::proxy) fn new(memory: &Arc<Memory>) -> Box<Self> {
        Box::new(Self {
            memory: memory.clone(),
            waiting: None,
            shares: Vec::new(),
            overcommit: None,
            is_done: false,
            progress: TransferProgress::default(),
            timer: Box::pin(sleep(CHECK_INTERVAL)),
        })
    }

    /// Creates a reservation for a message that takes `bytes`.
    pub(in crate::proxy) fn for_message(memory: &Arc<Memory>, bytes: usize) -> Box<Self> {
        let mut kept = Self::new(memory);
        kept.waiting = Some(memory.ask(bytes));
        kept.timer.as_mut().reset(Instant::now() + CLIENT_CHECK_INTERVAL);
        kept
    }

    /// Whether its share has not been granted yet.
    pub(in crate::proxy) fn waits(&self) -> bool {
        self.waiting.is_some()
    }

    /// Ready when there is room for the message, and from then on until it is done.
    pub(in crate::proxy) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(waiting) = &mut self.waiting {
            let Poll::Ready(share) = waiting.poll(cx) else { return Poll::Pending };
            self.waiting = None;
            self.shares.push(share);
            self.timer.as_mut().reset(Instant::now() + CHECK_INTERVAL);
        }
        Poll::Ready(())
    }

    /// Whether it is time to check the client of a waiting message; registers the task for the next check.
    pub(in crate::proxy) fn is_client_check_due(&mut self, cx: &mut Context<'_>) -> bool {
        let mut is_due = false;
        while self.timer.as_mut().poll(cx).is_ready() {
            self.timer.as_mut().reset(Instant::now() + CLIENT_CHECK_INTERVAL);
            is_due = true;
        }
        is_due
    }

    /// Adds a share for what has already arrived. It may exceed the budget, but only one message at a time.
    pub(in crate::proxy) async fn add(&mut self, bytes: usize) {
        if !self.memory.fits(bytes) {
            if self.overcommit.is_none() {
                self.overcommit = self.memory.overcommit.clone().acquire_owned().await.ok();
            }
            self.memory.accounts().used += bytes;
        }
        self.shares.push(MemoryShare { memory: self.memory.clone(), bytes });
    }

    /// Checks the progress if a check is due. `amount`: bytes received, or left to send.
    ///
    /// # Errors
    /// [`Stalled`]: too little progress.
    pub(in crate::proxy) fn check(&mut self, cx: &mut Context<'_>, amount: usize) -> Result<(), Stalled> {
        while self.timer.as_mut().poll(cx).is_ready() {
            let contended = self.memory.contended.load(Ordering::Relaxed);
            if self.progress.stalls(amount) && contended {
                return Err(Stalled);
            }
            self.timer.as_mut().reset(Instant::now() + CHECK_INTERVAL);
        }
        Ok(())
    }
}

impl TransferProgress {
    fn stalls(&mut self, amount: usize) -> bool {
        self.checks += 1;
        let moved = amount.abs_diff(std::mem::replace(&mut self.seen, amount));
        moved < PROGRESS || self.checks >= MAX_CHECKS
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures_util::FutureExt;

    use super::*;

    fn poll(waiting: &mut PendingShare) -> Option<MemoryShare> {
        poll_fn(|cx| waiting.poll(cx)).now_or_never()
    }

    #[test]
    fn shares_are_granted_in_order_of_arrival() {
        // Half of it is for evaluations.
        let memory = Memory::new(200);
        let first = poll(&mut memory.ask(60)).unwrap();
        let (mut large, mut small) = (memory.ask(90), memory.ask(10));
        assert!(poll(&mut large).is_none() && poll(&mut small).is_none());
        assert_eq!(memory.usage(), MemoryUse { limit: 200, used: 60, waits: 2 });
        drop(first);
        assert!(poll(&mut small).is_none());
        let large = poll(&mut large).unwrap();
        let small = poll(&mut small).unwrap();
        assert!(memory.usage().used == 100 && !memory.contended.load(Ordering::Relaxed));
        drop((large, small));
        assert_eq!(memory.usage().used, 0);
        // A share that never fits is granted alone; a cancelled request does not block others.
        let alone = poll(&mut memory.ask(1000)).unwrap();
        let mut gives_up = memory.ask(1);
        assert!(poll(&mut gives_up).is_none());
        drop((alone, gives_up));
        assert!(poll(&mut memory.ask(100)).is_some());
    }

    #[tokio::test]
    async fn complete_messages_exceed_the_budget_one_at_a_time() {
        let memory = Memory::new(100);
        let [mut within, mut first, mut second] = [(); 3].map(|()| Reservation::new(&memory));
        within.add(100).await;
        first.add(50).await;
        assert_eq!(memory.usage().used, 150);
        assert!(second.add(1).now_or_never().is_none());
        first.add(50).now_or_never().expect("a message does not wait for itself");
        assert_eq!(memory.usage().used, 200);
        drop(first);
        assert!(second.add(1).now_or_never().is_some());
        drop((within, second));
        assert_eq!(memory.usage().used, 0);
    }

    #[test]
    fn slow_and_overlong_messages_stall() {
        let mut progress = TransferProgress::default();
        assert!(!progress.stalls(2 * PROGRESS) && !progress.stalls(PROGRESS) && progress.stalls(PROGRESS + 1));
        let mut slow = TransferProgress::default();
        let stalls: Vec<bool> = (1..=MAX_CHECKS as usize).map(|check| slow.stalls(check * PROGRESS)).collect();
        assert_eq!(stalls, [false, false, false, false, false, true]);
    }
}
