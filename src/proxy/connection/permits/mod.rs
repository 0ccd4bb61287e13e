//! The permits of rules with the pattern `throttle`, for all connections of the process. `queue.rs` decides who gets
//! one.
//!
//! A [`Permit`] is returned when it is dropped, whatever ends the message: its last reply, an error, or the end of its
//! connection. Queues belong to the name of a rule, so permits survive a reload of the rules.

mod queue;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use tokio::sync::Notify;
use tokio::time::timeout;

use self::queue::{PermitLimits, PermitQueue};
use crate::engine::step::PermitRequest;

/// All permits.
#[derive(Debug)]
pub(in crate::proxy) struct Permits {
    began: Instant,
    state: Mutex<PermitState>,
}

#[derive(Debug, Default)]
struct PermitState {
    queues: HashMap<QueueKey, PermitQueue<PermitWaiter>, RandomState>,
    /// The number of queues at which unused ones are removed.
    sweep_at: usize,
    /// By rule.
    counts: BTreeMap<String, PermitCounts>,
}

/// Identifies a queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct QueueKey {
    rule: Arc<str>,
    per: &'static str,
    client: Arc<str>,
}

/// Wakes a message that waits. `None` for one of a rule in shadow mode, which is sent meanwhile.
type PermitWaiter = Option<Arc<Notify>>;

/// A permit, or the right to the next one. Dropping it returns it.
#[derive(Debug)]
pub(in crate::proxy) struct Permit {
    permits: Arc<Permits>,
    key: QueueKey,
    wait: Duration,
    /// Of a message that waited.
    ticket: Option<u64>,
    is_shadow: bool,
}

/// The answer to a request for a permit.
#[derive(Debug)]
pub(in crate::proxy) enum PermitReply {
    Now(Permit),
    Waits(WaitingPermit),
}

/// A permit that a message waits for.
#[derive(Debug)]
pub(in crate::proxy) struct WaitingPermit {
    permit: Permit,
    changed: Arc<Notify>,
}

/// What is counted of one rule since the start of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct PermitCounts {
    waited: u64,
    rejected: u64,
    shadow_waited: u64,
    shadow_rejected: u64,
}

/// The numbers of one rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PermitStatus {
    /// The rule's name.
    pub rule: String,
    /// Permits that messages hold.
    pub held: u64,
    /// Messages that wait. Those of a rule in shadow mode would wait.
    pub waiting: u64,
    pub oldest_wait: Duration,
    /// Since the start of the process, by mode: messages that waited, or would have waited.
    pub waited: [(&'static str, u64); 2],
    /// Messages that were rejected because they waited too long, or would have been.
    pub rejected: [(&'static str, u64); 2],
    /// The clients that hold permits or wait, those with the most waiting messages first.
    pub clients: Vec<ClientPermits>,
    /// As many more are not listed.
    pub more_clients: u64,
}

/// The numbers of one client of a rule: an application, a user, or a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientPermits {
    pub client: Arc<str>,
    /// What the rule counts as one client: "app", "user" or "client".
    pub per: &'static str,
    pub held: u64,
    pub waiting: u64,
    pub oldest_wait: Duration,
}

/// The number of queues at which unused ones are first removed.
const FIRST_SWEEP: usize = 64;

impl Permits {
    pub(in crate::proxy) fn new() -> Arc<Self> {
        let state = PermitState { sweep_at: FIRST_SWEEP, ..PermitState::default() };
        Arc::new(Self { began: Instant::now(), state: Mutex::new(state) })
    }

    /// Asks for a permit. A message of a rule in shadow mode never waits.
    pub(in crate::proxy) fn ask(self: &Arc<Self>, request: PermitRequest) -> PermitReply {
        let PermitRequest { rule, limits, key, statements, is_shadow } = request;
        let key = QueueKey { rule: rule.into(), per: limits.per.as_str(), client: key.into() };
        let now = self.began.elapsed();
        let mut permit = Permit { permits: self.clone(), key, wait: limits.wait, ticket: None, is_shadow };
        let state = &mut *self.lock();
        let queue = state.queue(&permit.key, PermitLimits { concurrent: limits.concurrent, rate: limits.rate }, now);
        queue.serve(now);
        if queue.admit(statements, now) {
            return PermitReply::Now(permit);
        }
        let changed = Arc::<Notify>::default();
        let (until, waiter) = if is_shadow { (Some(now + limits.wait), None) } else { (None, Some(changed.clone())) };
        permit.ticket = Some(queue.wait(statements, now, until, waiter));
        let counts = state.counts(&permit.key.rule);
        if is_shadow {
            counts.shadow_waited += 1;
            return PermitReply::Now(permit);
        }
        counts.waited += 1;
        PermitReply::Waits(WaitingPermit { permit, changed })
    }

    /// The numbers of each rule that has limited messages, sorted by name, with at most `most` of its clients.
    pub(in crate::proxy) fn status(&self, most: usize) -> Vec<PermitStatus> {
        let now = self.began.elapsed();
        let state = &*self.lock();
        let mut found: BTreeMap<&str, PermitStatus> = BTreeMap::new();
        for (rule, counts) in &state.counts {
            let PermitCounts { waited, rejected, shadow_waited, shadow_rejected } = *counts;
            let status = PermitStatus {
                rule: rule.clone(),
                waited: [("enforce", waited), ("shadow", shadow_waited)],
                rejected: [("enforce", rejected), ("shadow", shadow_rejected)],
                ..PermitStatus::default()
            };
            found.insert(rule, status);
        }
        for (key, queue) in &state.queues {
            let Some(status) = found.get_mut(&*key.rule) else { continue };
            let held = u64::from(queue.held());
            let waiting = u64::try_from(queue.waiting()).unwrap_or(u64::MAX);
            let oldest_wait = queue.oldest().map_or(Duration::ZERO, |since| now.saturating_sub(since));
            status.held += held;
            status.waiting += waiting;
            status.oldest_wait = status.oldest_wait.max(oldest_wait);
            if most > 0 && held + waiting > 0 {
                status.clients.push(ClientPermits {
                    client: key.client.clone(),
                    per: key.per,
                    held,
                    waiting,
                    oldest_wait,
                });
            }
        }
        let mut found: Vec<_> = found.into_values().collect();
        for PermitStatus { clients, more_clients, .. } in &mut found {
            clients.sort_unstable_by(|one, other| {
                let rank = |client: &ClientPermits| (client.waiting, client.held, client.oldest_wait);
                rank(other).cmp(&rank(one)).then_with(|| one.client.cmp(&other.client))
            });
            *more_clients = u64::try_from(clients.len().saturating_sub(most)).unwrap_or(u64::MAX);
            clients.truncate(most);
        }
        found
    }

    fn lock(&self) -> MutexGuard<'_, PermitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PermitState {
    /// The queue of this key, with these limits.
    fn queue(&mut self, key: &QueueKey, limits: PermitLimits, now: Duration) -> &mut PermitQueue<PermitWaiter> {
        if self.queues.len() >= self.sweep_at {
            // Clients choose their application names, so queues must not remain.
            self.queues.retain(|_, queue| !queue.is_unused(now));
            self.sweep_at = FIRST_SWEEP.max(2 * self.queues.len());
        }
        self.counts(&key.rule);
        let queue = self.queues.entry(key.clone()).or_insert_with(|| PermitQueue::new(limits));
        queue.set_limits(limits);
        queue
    }

    fn counts(&mut self, rule: &str) -> &mut PermitCounts {
        if !self.counts.contains_key(rule) {
            self.counts.insert(rule.to_owned(), PermitCounts::default());
        }
        self.counts.entry(rule.to_owned()).or_default()
    }
}

impl PermitQueue<PermitWaiter> {
    /// Gives permits to those who wait.
    fn grant(&mut self, now: Duration) {
        while let Some(waiter) = self.next(now) {
            waiter.iter().for_each(|waiter| waiter.notify_one());
        }
    }

    /// The same after a change.
    fn serve(&mut self, now: Duration) {
        self.grant(now);
        // Only now it can know how long it waits.
        self.first_for_rate().into_iter().flatten().for_each(|first| first.notify_one());
    }
}

impl WaitingPermit {
    /// Waits for the permit; `None`: too long.
    pub(in crate::proxy) async fn granted(self) -> Option<Permit> {
        let Self { permit, changed } = self;
        let deadline = Instant::now() + permit.wait;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match permit.progress() {
                PermitProgress::Granted => return Some(permit),
                _ if left.is_zero() => return None,
                PermitProgress::Allowed { after } => _ = timeout(left.min(after), changed.notified()).await,
                PermitProgress::Waits => _ = timeout(left, changed.notified()).await,
            }
        }
    }
}

/// The state of a message that waits.
enum PermitProgress {
    Granted,
    /// The rate allows it after this time.
    Allowed {
        after: Duration,
    },
    /// Others return their permits first.
    Waits,
}

impl Permit {
    fn progress(&self) -> PermitProgress {
        let state = &mut *self.permits.lock();
        let Some((queue, ticket)) = state.queues.get_mut(&self.key).zip(self.ticket) else {
            return PermitProgress::Granted;
        };
        let now = self.permits.began.elapsed();
        queue.grant(now);
        if !queue.is_waiting(ticket) {
            return PermitProgress::Granted;
        }
        match queue.allowed_at(ticket) {
            Some(allowed_at) if allowed_at > now => PermitProgress::Allowed { after: allowed_at - now },
            _ => PermitProgress::Waits,
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let now = self.permits.began.elapsed();
        let state = &mut *self.permits.lock();
        let Some(queue) = state.queues.get_mut(&self.key) else { return };
        let waited_since = self.ticket.and_then(|ticket| queue.give_up(ticket));
        if waited_since.is_none() {
            queue.release();
        }
        queue.serve(now);
        if queue.is_unused(now) {
            state.queues.remove(&self.key);
        }
        if waited_since.is_some_and(|since| now.saturating_sub(since) >= self.wait) {
            let counts = state.counts(&self.key.rule);
            *(if self.is_shadow { &mut counts.shadow_rejected } else { &mut counts.rejected }) += 1;
        }
    }
}
