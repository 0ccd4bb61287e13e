//! What is counted of pools, for metrics and the console.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::engine::sharing::Pin;

/// Counters of one member's pools since the start of the process.
#[derive(Debug, Default)]
pub(in crate::proxy) struct PoolCounters {
    opened: AtomicU64,
    closed: AtomicU64,
    overloaded: AtomicU64,
    sent_away: AtomicU64,
    routed_to_primary: AtomicU64,
    routed_to_others: AtomicU64,
    logins_relayed: AtomicU64,
    logins_by_key: AtomicU64,
    logins_failed: AtomicU64,
    /// Connections that belong to one client, by reason. Signed, because a decrement may be seen first.
    pinned: [AtomicI64; Pin::ALL.len()],
}

/// The current numbers of one pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::proxy) struct PoolLoad {
    /// Connections that requests hold, or that are being opened.
    pub(in crate::proxy) active: usize,
    pub(in crate::proxy) idle: usize,
    /// Requests that wait for a connection.
    pub(in crate::proxy) waiting: usize,
    pub(in crate::proxy) oldest_wait: Duration,
}

/// The numbers of all pools of one member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolStatus {
    /// Address of the member.
    pub member: String,
    /// Connections that requests hold, or that are being opened.
    pub active: usize,
    pub idle: usize,
    /// Connections of one client each, by reason.
    pub pinned: Vec<(&'static str, u64)>,
    /// Requests that wait for a connection.
    pub waiting: usize,
    pub oldest_wait: Duration,
    /// Since the start of the process.
    pub opened: u64,
    pub closed: u64,
    /// Requests that were rejected, by cause: they waited too long, or were sent away to be sent again.
    pub rejected: [(&'static str, u64); 2],
    /// Requests that a router has sent to it, by its role then.
    pub routed: [(&'static str, u64); 2],
    /// Logins by result.
    pub logins: [(&'static str, u64); 3],
}

/// The requests of one user's application that wait for a connection to a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingClients {
    /// Address of the member.
    pub member: String,
    /// "authDb.name"; `None`: clients that are not logged in.
    pub user: Option<String>,
    pub app: Option<Arc<str>>,
    pub waiting: usize,
    pub oldest_wait: Duration,
}

impl PoolCounters {
    /// Counts a connection as opened, and as closed when the result is dropped.
    pub(super) fn open(self: &Arc<Self>) -> OpenGuard {
        self.opened.fetch_add(1, Ordering::Relaxed);
        OpenGuard { counters: self.clone() }
    }

    pub(super) fn overloaded(&self) {
        self.overloaded.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn sent_away(&self) {
        self.sent_away.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request of a router's client.
    pub(in crate::proxy) fn routed(&self, to_primary: bool) {
        let count = if to_primary { &self.routed_to_primary } else { &self.routed_to_others };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a client's login that the server accepted.
    pub(in crate::proxy) fn logged_in(&self) {
        self.logins_relayed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn logged_in_by_key(&self) {
        self.logins_by_key.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::proxy) fn login_failed(&self) {
        self.logins_failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a client with a connection of its own until the result is dropped.
    pub(in crate::proxy) fn pin(self: &Arc<Self>, pin: Pin) -> PinGuard {
        let guard = PinGuard { counters: self.clone(), pin };
        guard.add(1);
        guard
    }

    pub(super) fn status(&self, member: String, loads: impl Iterator<Item = PoolLoad>) -> PoolStatus {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let pinned = Pin::ALL.iter().zip(&self.pinned);
        let mut status = PoolStatus {
            member,
            pinned: pinned
                .map(|(pin, count)| (pin.as_str(), u64::try_from(count.load(Ordering::Relaxed)).unwrap_or(0)))
                .collect(),
            opened: read(&self.opened),
            closed: read(&self.closed),
            rejected: [("max_wait", read(&self.overloaded)), ("sent_away", read(&self.sent_away))],
            routed: [("primary", read(&self.routed_to_primary)), ("secondary", read(&self.routed_to_others))],
            logins: [
                ("relayed", read(&self.logins_relayed)),
                ("by_key", read(&self.logins_by_key)),
                ("failed", read(&self.logins_failed)),
            ],
            ..PoolStatus::default()
        };
        for load in loads {
            status.active += load.active;
            status.idle += load.idle;
            status.waiting += load.waiting;
            status.oldest_wait = status.oldest_wait.max(load.oldest_wait);
        }
        status
    }
}

/// Counts a connection of a pool.
#[derive(Debug)]
pub(super) struct OpenGuard {
    counters: Arc<PoolCounters>,
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.counters.closed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts a client with a connection of its own.
#[derive(Debug)]
pub(in crate::proxy) struct PinGuard {
    counters: Arc<PoolCounters>,
    pin: Pin,
}

impl PinGuard {
    fn add(&self, count: i64) {
        let at = Pin::ALL.iter().position(|known| *known == self.pin);
        if let Some(pinned) = at.and_then(|at| self.counters.pinned.get(at)) {
            pinned.fetch_add(count, Ordering::Relaxed);
        }
    }
}

impl Drop for PinGuard {
    fn drop(&mut self) {
        self.add(-1);
    }
}
