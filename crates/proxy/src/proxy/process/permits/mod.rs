//! The permits of rules with the pattern `throttle`, for all connections of the process. `queue.rs` decides who gets
//! one, `shadow_queue.rs` who would get one of a rule in shadow mode. The two do not share a limit: what is in shadow mode
//! delays nothing.
//!
//! A [`Permit`] is returned when it is dropped, whatever ends the message: its last reply, an error, or the end of its
//! connection. Limits belong to the name of a rule, so permits survive a reload of the rules.

mod queue;
mod shadow_queue;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use tokio::sync::Notify;
use tokio::time::timeout;

use self::queue::{PermitLimits, PermitQueues, Ticket};
use self::shadow_queue::{ShadowQueue, ShadowTicket};
use crate::engine::step::{PermitRefusal, PermitRequest};

/// All permits.
#[derive(Debug)]
pub(in crate::proxy) struct Permits {
    began: Instant,
    state: Mutex<PermitState>,
}

#[derive(Debug, Default)]
struct PermitState {
    queues: PermitQueues<LimitKey, Arc<Notify>>,
    /// Of rules in shadow mode.
    shadow_queues: HashMap<LimitKey, ShadowQueue, RandomState>,
    /// The number of limits at which unused ones are removed.
    sweep_at: usize,
    /// By rule.
    counts: BTreeMap<String, PermitCounts>,
}

/// Identifies a limit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct LimitKey {
    rule: Arc<str>,
    per: &'static str,
    client: Arc<str>,
}

/// What a message holds. Dropping it returns it.
#[derive(Debug)]
pub(in crate::proxy) struct Permit {
    permits: Arc<Permits>,
    held: HeldPermit,
}

#[derive(Debug)]
enum HeldPermit {
    /// The permits of these limits, or the place among those that wait for them.
    Permits { keys: Arc<[LimitKey]>, ticket: Option<Ticket> },
    /// A place in the queue of a rule in shadow mode.
    Shadow { key: LimitKey, ticket: ShadowTicket },
}

/// The reply to a request for permits.
#[derive(Debug)]
pub(in crate::proxy) enum PermitReply {
    Now(Vec<Permit>),
    Waits(WaitingPermit),
}

/// Permits that a message waits for.
#[derive(Debug)]
pub(in crate::proxy) struct WaitingPermit {
    permit: Permit,
    keys: Arc<[LimitKey]>,
    ticket: Ticket,
    wait: Duration,
    changed: Arc<Notify>,
    /// To be asked for when it has its permits.
    shadow: Vec<PermitRequest>,
    /// See [`PermitRequest::is_retried`].
    is_retried: bool,
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
    pub name: Arc<str>,
    /// What the rule counts as one client: "app", "user" or "client".
    pub per: &'static str,
    pub held: u64,
    pub waiting: u64,
    pub oldest_wait: Duration,
}

/// The number of limits at which unused ones are first removed.
const FIRST_SWEEP: usize = 64;

impl Permits {
    pub(in crate::proxy) fn new() -> Arc<Self> {
        let state = PermitState { sweep_at: FIRST_SWEEP, ..PermitState::default() };
        Arc::new(Self { began: Instant::now(), state: Mutex::new(state) })
    }

    /// Asks for the permits of a message: all, or none until all are free. Those of rules in shadow mode come last, and
    /// never wait.
    pub(in crate::proxy) fn ask(self: &Arc<Self>, mut requests: Vec<PermitRequest>) -> PermitReply {
        let shadow = requests.split_off(requests.partition_point(|request| !request.is_shadow));
        let Some(first) = requests.first() else { return PermitReply::Now(self.observe(shadow).collect()) };
        let (statements, is_retried, now) = (first.statements, first.is_retried, self.began.elapsed());
        let keys: Arc<[LimitKey]> = requests.iter().map(LimitKey::of_request).collect();
        let permit =
            |ticket| Permit { permits: self.clone(), held: HeldPermit::Permits { keys: keys.clone(), ticket } };
        let mut guard = self.lock();
        let state = &mut *guard;
        state.prepare(&keys, &requests, now);
        if state.queues.admit(&keys, statements, now) {
            drop(guard);
            return PermitReply::Now(permit(None).and(shadow));
        }
        let changed = Arc::<Notify>::default();
        let ticket = state.queues.wait(&keys, statements, now, changed.clone());
        for key in keys.iter().filter(|key| state.queues.is_taken(key, now)) {
            counts(&mut state.counts, &key.rule).waited += 1;
        }
        // The shortest that one of the rules allows.
        let wait = requests.iter().map(|request| request.limits.wait).min().unwrap_or_default();
        let permit = permit(Some(ticket));
        PermitReply::Waits(WaitingPermit { permit, keys, ticket, wait, changed, shadow, is_retried })
    }

    /// Adds a message that is sent now to the queues of rules in shadow mode.
    fn observe(self: &Arc<Self>, requests: Vec<PermitRequest>) -> impl Iterator<Item = Permit> {
        requests.into_iter().map(|request| {
            let (key, now) = (LimitKey::of_request(&request), self.began.elapsed());
            let ticket = self.lock().observe(&key, &request, now);
            Permit { permits: self.clone(), held: HeldPermit::Shadow { key, ticket } }
        })
    }

    /// The numbers of each rule in `loaded`, and of each that has limited messages, sorted by name, with at most `most`
    /// of its clients.
    pub(in crate::proxy) fn status(&self, loaded: &[&str], most: usize) -> Vec<PermitStatus> {
        let now = self.began.elapsed();
        let mut guard = self.lock();
        guard.advance_shadow_queues(now);
        let state = &*guard;
        let mut found: BTreeMap<&str, PermitStatus> = BTreeMap::new();
        let unused = loaded.iter().filter(|rule| !state.counts.contains_key(**rule));
        let counted = state.counts.iter().map(|(rule, counts)| (rule.as_str(), *counts));
        for (rule, counts) in counted.chain(unused.map(|rule| (*rule, PermitCounts::default()))) {
            let PermitCounts { waited, rejected, shadow_waited, shadow_rejected } = counts;
            let status = PermitStatus {
                rule: rule.to_owned(),
                waited: [("enforce", waited), ("shadow", shadow_waited)],
                rejected: [("enforce", rejected), ("shadow", shadow_rejected)],
                ..PermitStatus::default()
            };
            found.insert(rule, status);
        }
        let keys: HashSet<&LimitKey> = state.queues.keys().chain(state.shadow_queues.keys()).collect();
        for key in keys {
            let Some(status) = found.get_mut(&*key.rule) else { continue };
            let shadow = state.shadow_queues.get(key);
            let held = u64::from(state.queues.held(key)) + shadow.map_or(0, |queue| queue.held().into());
            let ((waiting, oldest), (shadow_waiting, shadow_oldest)) =
                (state.queues.waiting(key, now), shadow.map(ShadowQueue::waiting).unwrap_or_default());
            let waiting = u64::try_from(waiting + shadow_waiting).unwrap_or(u64::MAX);
            let oldest = oldest.into_iter().chain(shadow_oldest).min();
            let oldest_wait = oldest.map_or(Duration::ZERO, |since| now.saturating_sub(since));
            status.held += held;
            status.waiting += waiting;
            status.oldest_wait = status.oldest_wait.max(oldest_wait);
            if most > 0 && held + waiting > 0 {
                status.clients.push(ClientPermits {
                    name: key.client.clone(),
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
                rank(other).cmp(&rank(one)).then_with(|| one.name.cmp(&other.name))
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

impl LimitKey {
    fn of_request(request: &PermitRequest) -> Self {
        Self {
            rule: request.rule.as_str().into(),
            per: request.limits.per.as_str(),
            client: request.key.as_str().into(),
        }
    }
}

impl PermitState {
    /// Sets the limits of these keys, and serves all that wait for them and can be served.
    fn prepare(&mut self, keys: &[LimitKey], requests: &[PermitRequest], now: Duration) {
        self.sweep(now);
        for (key, request) in keys.iter().zip(requests) {
            counts(&mut self.counts, &key.rule);
            self.queues.set_limits(key, limits(request));
        }
        self.serve(keys, now);
    }

    /// Adds a message to the queue of a rule in shadow mode.
    fn observe(&mut self, key: &LimitKey, request: &PermitRequest, now: Duration) -> ShadowTicket {
        self.sweep(now);
        let limits = limits(request);
        let queue = self.shadow_queues.entry(key.clone()).or_insert_with(|| ShadowQueue::new(limits));
        let (ticket, waits) = queue.arrive(limits, request.statements, request.limits.wait, now);
        let counts = counts(&mut self.counts, &key.rule);
        counts.shadow_waited += u64::from(waits);
        counts.shadow_rejected += queue.take_rejected();
        ticket
    }

    /// Removes unused limits if there are many: clients choose their application names.
    fn sweep(&mut self, now: Duration) {
        if self.queues.len() + self.shadow_queues.len() >= self.sweep_at {
            self.queues.remove_unused(now);
            self.advance_shadow_queues(now);
            self.shadow_queues.retain(|_, queue| !queue.is_unused());
            self.sweep_at = FIRST_SWEEP.max(2 * (self.queues.len() + self.shadow_queues.len()));
        }
    }

    fn advance_shadow_queues(&mut self, now: Duration) {
        for (key, queue) in &mut self.shadow_queues {
            queue.advance(now);
            counts(&mut self.counts, &key.rule).shadow_rejected += queue.take_rejected();
        }
    }

    /// Gives permits to those who wait.
    fn grant(&mut self, keys: &[LimitKey], now: Duration) {
        for key in keys {
            while let Some(waiter) = self.queues.next(key, now) {
                waiter.notify_one();
            }
        }
    }

    /// The same after a change.
    fn serve(&mut self, keys: &[LimitKey], now: Duration) {
        self.grant(keys, now);
        // Only now they can know how long they wait.
        for first in keys.iter().flat_map(|key| self.queues.first_for_rate(key)) {
            first.notify_one();
        }
    }
}

fn limits(request: &PermitRequest) -> PermitLimits {
    PermitLimits { concurrent: request.limits.concurrent, rate: request.limits.rate }
}

fn counts<'c>(counts: &'c mut BTreeMap<String, PermitCounts>, rule: &str) -> &'c mut PermitCounts {
    if !counts.contains_key(rule) {
        counts.insert(rule.to_owned(), PermitCounts::default());
    }
    counts.entry(rule.to_owned()).or_default()
}

impl WaitingPermit {
    /// Waits for the permits.
    ///
    /// # Errors
    /// It has waited too long; or it would, and is retried.
    pub(in crate::proxy) async fn granted(self) -> Result<Vec<Permit>, PermitRefusal> {
        let deadline = Instant::now() + self.wait;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.progress() {
                PermitProgress::Granted => return Ok(self.permit.and(self.shadow)),
                _ if left.is_zero() => return Err(self.reject()),
                PermitProgress::Allowed { after } if self.is_retried && after > left => return Err(self.reject()),
                PermitProgress::Allowed { after } => _ = timeout(left.min(after), self.changed.notified()).await,
                PermitProgress::Waits => _ = timeout(left, self.changed.notified()).await,
            }
        }
    }

    fn progress(&self) -> PermitProgress {
        let permits = &self.permit.permits;
        let state = &mut *permits.lock();
        let now = permits.began.elapsed();
        state.grant(&self.keys, now);
        if !state.queues.is_waiting(self.ticket) {
            return PermitProgress::Granted;
        }
        match state.queues.allowed_at(self.ticket) {
            Some(allowed_at) if allowed_at > now => PermitProgress::Allowed { after: allowed_at - now },
            _ => PermitProgress::Waits,
        }
    }

    /// Counts a rejection for the rule of the first limit that is not free.
    fn reject(&self) -> PermitRefusal {
        let permits = &self.permit.permits;
        let state = &mut *permits.lock();
        let now = permits.began.elapsed();
        let at = state.queues.first_taken(&self.keys, now).unwrap_or_default();
        let key = self.keys.get(at);
        key.into_iter().for_each(|key| counts(&mut state.counts, &key.rule).rejected += 1);
        PermitRefusal { at, room_in: key.and_then(|key| state.queues.room_in(key, self.ticket, now)) }
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
    /// This, and the places of the message in the queues of rules in shadow mode.
    fn and(self, shadow: Vec<PermitRequest>) -> Vec<Self> {
        let permits = self.permits.clone();
        std::iter::once(self).chain(permits.observe(shadow)).collect()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let now = self.permits.began.elapsed();
        let state = &mut *self.permits.lock();
        match &self.held {
            HeldPermit::Permits { keys, ticket } => {
                if ticket.and_then(|ticket| state.queues.give_up(ticket)).is_none() {
                    state.queues.release(keys);
                }
                state.serve(keys, now);
                keys.iter().for_each(|key| state.queues.remove_if_unused(key, now));
            }
            HeldPermit::Shadow { key, ticket } => {
                let Some(queue) = state.shadow_queues.get_mut(key) else { return };
                queue.end(*ticket, now);
                counts(&mut state.counts, &key.rule).shadow_rejected += queue.take_rejected();
                if queue.is_unused() {
                    state.shadow_queues.remove(key);
                }
            }
        }
    }
}
