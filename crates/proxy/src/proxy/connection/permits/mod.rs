//! The permits of rules with the pattern `throttle`, for all connections of the process. `queue.rs` decides who gets
//! one.
//!
//! A [`Permit`] is returned when it is dropped, whatever ends the message: its last reply, an error, or the end of its
//! connection. Limits belong to the name of a rule, so permits survive a reload of the rules.

mod queue;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::timeout;

use self::queue::{PermitLimits, PermitQueues, Ticket};
use crate::engine::step::PermitRequest;

/// All permits.
#[derive(Debug)]
pub(in crate::proxy) struct Permits {
    began: Instant,
    state: Mutex<PermitState>,
}

#[derive(Debug, Default)]
struct PermitState {
    queues: PermitQueues<LimitKey, PermitWaiter>,
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

/// Wakes a message that waits. `None` for one of a rule in shadow mode, which is sent meanwhile.
type PermitWaiter = Option<Arc<Notify>>;

/// The permits of one message, or its place among those that wait for them. Dropping it returns them.
#[derive(Debug)]
pub(in crate::proxy) struct Permit {
    permits: Arc<Permits>,
    /// Of the limits that apply to the message.
    keys: Arc<[LimitKey]>,
    wait: Duration,
    /// Of a message that waited.
    ticket: Option<Ticket>,
    is_shadow: bool,
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
    changed: Arc<Notify>,
    /// To be asked for when it has its permits.
    shadow: Vec<PermitRequest>,
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
        let Some(first) = requests.first() else { return PermitReply::Now(self.observe(shadow, Vec::new())) };
        let (statements, now) = (first.statements, self.began.elapsed());
        let mut permit = self.permit(&requests);
        let state = &mut *self.lock();
        state.prepare(&permit.keys, &requests, now);
        if state.queues.admit(&permit.keys, statements, now) {
            return PermitReply::Now(self.observe_with(state, shadow, vec![permit]));
        }
        let changed = Arc::<Notify>::default();
        permit.ticket = Some(state.queues.wait(&permit.keys, statements, now, None, Some(changed.clone())));
        for key in permit.keys.iter().filter(|key| state.queues.is_taken(key, now)) {
            counts(&mut state.counts, &key.rule).waited += 1;
        }
        PermitReply::Waits(WaitingPermit { permit, changed, shadow })
    }

    /// Takes the permits of rules in shadow mode.
    fn observe(self: &Arc<Self>, requests: Vec<PermitRequest>, permits: Vec<Permit>) -> Vec<Permit> {
        let state = &mut *self.lock();
        self.observe_with(state, requests, permits)
    }

    fn observe_with(
        self: &Arc<Self>,
        state: &mut PermitState,
        requests: Vec<PermitRequest>,
        mut permits: Vec<Permit>,
    ) -> Vec<Permit> {
        let now = self.began.elapsed();
        for request in requests {
            let request = std::slice::from_ref(&request);
            let mut permit = self.permit(request);
            let statements = request.iter().map(|request| request.statements).sum();
            state.prepare(&permit.keys, request, now);
            if !state.queues.admit(&permit.keys, statements, now) {
                let until = Some(now + permit.wait);
                permit.ticket = Some(state.queues.wait(&permit.keys, statements, now, until, None));
                permit.keys.iter().for_each(|key| counts(&mut state.counts, &key.rule).shadow_waited += 1);
            }
            permits.push(permit);
        }
        permits
    }

    /// The permits of these requests, not yet granted. They wait for the shortest time that one of the rules allows.
    fn permit(self: &Arc<Self>, requests: &[PermitRequest]) -> Permit {
        let key = |request: &PermitRequest| LimitKey {
            rule: request.rule.as_str().into(),
            per: request.limits.per.as_str(),
            client: request.key.as_str().into(),
        };
        Permit {
            permits: self.clone(),
            keys: requests.iter().map(key).collect(),
            wait: requests.iter().map(|request| request.limits.wait).min().unwrap_or_default(),
            ticket: None,
            is_shadow: requests.iter().any(|request| request.is_shadow),
        }
    }

    /// The numbers of each rule in `loaded`, and of each that has limited messages, sorted by name, with at most `most`
    /// of its clients.
    pub(in crate::proxy) fn status(&self, loaded: &[&str], most: usize) -> Vec<PermitStatus> {
        let now = self.began.elapsed();
        let state = &*self.lock();
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
        for (key, held) in state.queues.held() {
            let Some(status) = found.get_mut(&*key.rule) else { continue };
            let (waiting, oldest) = state.queues.waiting(key, now);
            let (held, waiting) = (u64::from(held), u64::try_from(waiting).unwrap_or(u64::MAX));
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

impl PermitState {
    /// Sets the limits of these keys, and serves all that wait for them and can be served.
    fn prepare(&mut self, keys: &[LimitKey], requests: &[PermitRequest], now: Duration) {
        if self.queues.len() >= self.sweep_at {
            // Clients choose their application names, so limits must not remain.
            self.queues.remove_unused(now);
            self.sweep_at = FIRST_SWEEP.max(2 * self.queues.len());
        }
        for (key, PermitRequest { limits, .. }) in keys.iter().zip(requests) {
            counts(&mut self.counts, &key.rule);
            self.queues.set_limits(key, PermitLimits { concurrent: limits.concurrent, rate: limits.rate });
        }
        self.serve(keys, now);
    }

    /// Gives permits to those who wait.
    fn grant(&mut self, keys: &[LimitKey], now: Duration) {
        for key in keys {
            while let Some(waiter) = self.queues.next(key, now) {
                waiter.iter().for_each(|waiter| waiter.notify_one());
            }
        }
    }

    /// The same after a change.
    fn serve(&mut self, keys: &[LimitKey], now: Duration) {
        self.grant(keys, now);
        // Only now they can know how long they wait.
        for first in keys.iter().flat_map(|key| self.queues.first_for_rate(key)).flatten() {
            first.notify_one();
        }
    }
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
    /// It has waited too long: the index of the request whose limit is not free.
    pub(in crate::proxy) async fn granted(self) -> Result<Vec<Permit>, usize> {
        let Self { permit, changed, shadow } = self;
        let deadline = Instant::now() + permit.wait;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match permit.progress() {
                PermitProgress::Granted => {
                    let permits = permit.permits.clone();
                    return Ok(permits.observe(shadow, vec![permit]));
                }
                _ if left.is_zero() => return Err(permit.reject()),
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
        let Some(ticket) = self.ticket else { return PermitProgress::Granted };
        let now = self.permits.began.elapsed();
        state.grant(&self.keys, now);
        if !state.queues.is_waiting(ticket) {
            return PermitProgress::Granted;
        }
        match state.queues.allowed_at(ticket) {
            Some(allowed_at) if allowed_at > now => PermitProgress::Allowed { after: allowed_at - now },
            _ => PermitProgress::Waits,
        }
    }

    /// Counts a rejection for the rule of the first limit that is not free. Returns its index.
    fn reject(&self) -> usize {
        let state = &mut *self.permits.lock();
        let taken = state.queues.first_taken(&self.keys, self.permits.began.elapsed()).unwrap_or_default();
        self.keys.get(taken).into_iter().for_each(|key| counts(&mut state.counts, &key.rule).rejected += 1);
        taken
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let now = self.permits.began.elapsed();
        let state = &mut *self.permits.lock();
        let waited_since = self.ticket.and_then(|ticket| state.queues.give_up(ticket));
        if waited_since.is_none() {
            state.queues.release(&self.keys);
        }
        state.serve(&self.keys, now);
        self.keys.iter().for_each(|key| state.queues.remove_if_unused(key, now));
        if self.is_shadow && waited_since.is_some_and(|since| now.saturating_sub(since) >= self.wait) {
            self.keys.iter().for_each(|key| counts(&mut state.counts, &key.rule).shadow_rejected += 1);
        }
    }
}
