//! Limits on the number of client connections and on how long they may be idle.
//!
//! [`Limits`] counts connections, [`IdleTimeouts`] waits. [`super::refused`] replies to refused clients.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::connection_counts::Refusal;
use super::end::End;
use super::unauthenticated::{Slot, UnauthenticatedConnections};

/// Configured limits; `None` means no limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitSettings {
    /// Client connections of all listeners together.
    pub connections: Option<usize>,
    pub connections_per_address: Option<usize>,
    /// Time without a message in either direction. A connection that waits for a reply is not idle.
    pub idle_timeout: Option<Duration>,
    /// For TLS, the first message and, where the server requires one, the login together.
    pub handshake_timeout: Duration,
    /// Connections that have not logged in although they must.
    pub unauthenticated: Option<usize>,
    /// Bytes of large messages that are collected, decompressed and rewritten at the same time.
    pub memory: usize,
}

impl Default for LimitSettings {
    /// Like mongod, no limit on connections and idle time. Ten seconds are the usual handshake timeout of drivers. The
    /// memory fits a machine with 4 GiB.
    fn default() -> Self {
        Self {
            connections: None,
            connections_per_address: None,
            idle_timeout: None,
            handshake_timeout: Duration::from_secs(10),
            unauthenticated: None,
            memory: 1 << 30,
        }
    }
}

/// Why a connection is refused. The text goes to the client and the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Full {
    #[error(
        "all {0} connections of docward are in use (limits: connections); close some, for example with a \
         smaller maxPoolSize, or raise the limit"
    )]
    Connections(usize),
    #[error(
        "{1} already has {0} connections, the limit for one address (limits: connections_per_address); close some, \
         for example with a smaller maxPoolSize, or raise the limit"
    )]
    Address(usize, IpAddr),
}

impl Full {
    pub(super) fn refusal(self) -> Refusal {
        match self {
            Self::Connections(_) => Refusal::Limit,
            Self::Address(..) => Refusal::AddressLimit,
        }
    }
}

/// Counts open connections.
#[derive(Debug, Default)]
pub(super) struct Limits {
    pub(super) settings: LimitSettings,
    unauthenticated: Arc<UnauthenticatedConnections>,
    open: AtomicUsize,
    /// Contains only addresses with open connections, and stays empty without a per-address limit.
    by_address: Mutex<HashMap<IpAddr, usize>>,
}

/// Counts one connection until it is dropped.
#[derive(Debug)]
pub(super) struct Admission {
    limits: Arc<Limits>,
    address: IpAddr,
}

impl Limits {
    pub(super) fn new(settings: LimitSettings) -> Self {
        Self { unauthenticated: UnauthenticatedConnections::new(settings.unauthenticated), settings, ..Self::default() }
    }

    /// The number of open connections.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Counts a connection if the limits allow it.
    ///
    /// # Errors
    /// [`Full`]: a limit is reached.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Result<Admission, Full> {
        let address = address.to_canonical();
        let open = self.open.fetch_add(1, Ordering::Relaxed);
        if let Some(limit) = self.settings.connections.filter(|limit| open >= *limit) {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return Err(Full::Connections(limit));
        }
        if let Some(limit) = self.settings.connections_per_address {
            let mut by_address = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
            let open = by_address.entry(address).or_default();
            if *open >= limit {
                self.open.fetch_sub(1, Ordering::Relaxed);
                return Err(Full::Address(limit, address));
            }
            *open += 1;
        }
        Ok(Admission { limits: self.clone(), address })
    }

    /// Counts a connection that another process admitted, without checking the limits.
    pub(super) fn admitted(self: &Arc<Self>, address: IpAddr) -> Admission {
        let address = address.to_canonical();
        self.open.fetch_add(1, Ordering::Relaxed);
        if self.settings.connections_per_address.is_some() {
            *self.by_address.lock().unwrap_or_else(PoisonError::into_inner).entry(address).or_default() += 1;
        }
        Admission { limits: self.clone(), address }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.limits.open.fetch_sub(1, Ordering::Relaxed);
        if self.limits.settings.connections_per_address.is_some() {
            let mut by_address = self.limits.by_address.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(open) = by_address.get_mut(&self.address) {
                *open -= 1;
                if *open == 0 {
                    by_address.remove(&self.address);
                }
            }
        }
    }
}

/// Activity of a connection. It is a counter rather than a clock, so that messages need not read the time: an
/// unchanged count between two checks means that nothing happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Activity {
    /// Incremented when bytes arrive from either side; wraps.
    pub(super) moves: u32,
    /// At least one whole message has arrived from the client.
    pub(super) message_received: bool,
}

/// State of a client that must still log in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Unauthenticated {
    /// It has sent a message other than a hello. The monitors of drivers never do, and never log in.
    pub(super) commands_sent: bool,
    /// Part of a message has arrived.
    pub(super) within_message: bool,
    /// Number of its hellos; wraps.
    pub(super) hellos: u8,
}

/// Timeouts of a client that does not use its connection, or does not log in although it must.
#[derive(Debug)]
pub(super) struct IdleTimeouts {
    admission: Admission,
    /// `None`: no timeout applies any more. Boxed, because this is so for most connections.
    wait: Option<Box<Wait>>,
}

#[derive(Debug)]
struct Wait {
    timer: Pin<Box<Sleep>>,
    /// Set while the client must log in.
    slot: Option<Slot>,
    is_displaced: bool,
    /// Time between two checks.
    period: Duration,
    /// [`Activity::moves`] at the last check.
    seen: u32,
    /// How long no activity has been observed.
    quiet: Duration,
    /// [`Unauthenticated::hellos`] at the last check, if part of a message had arrived then.
    stuck_at: Option<u8>,
}

impl Wait {
    fn new(period: Duration, until: Instant, slot: Option<Slot>) -> Box<Self> {
        let (timer, quiet) = (Box::pin(sleep_until(until)), Duration::ZERO);
        Box::new(Self { timer, slot, is_displaced: false, period, seen: 0, quiet, stuck_at: None })
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.slot.as_mut().is_some_and(|slot| slot.poll_displaced(cx).is_ready()) {
            (self.is_displaced, self.slot) = (true, None);
        }
        if self.is_displaced { Poll::Ready(()) } else { self.timer.as_mut().poll(cx) }
    }
}

impl IdleTimeouts {
    /// `deadline` applies to the first message, and to the login if `must_log_in` is set.
    pub(super) fn new(admission: Admission, deadline: Instant, must_log_in: bool) -> Self {
        let period = admission.limits.settings.handshake_timeout;
        let slot = must_log_in.then(|| admission.limits.unauthenticated.add(admission.address));
        Self { admission, wait: Some(Wait::new(period, deadline, slot)) }
    }

    /// Records that the first message has arrived, and the login where one is required.
    pub(super) fn established(&mut self) {
        let period = self.admission.limits.settings.idle_timeout.map(|limit| limit / 2);
        self.wait = period.map(|period| Wait::new(period, Instant::now() + period, None));
    }

    /// Ready when [`Self::evaluate`] must be called.
    pub(super) fn poll_run_out(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.wait.as_mut().map_or(Poll::Pending, |wait| wait.poll(cx))
    }

    /// Checks whether the connection must close; `unauthenticated_slot` is set if its client must still log in.
    /// Established connections are checked twice per idle timeout, so an idle one closes after one to one and a half
    /// timeouts.
    ///
    /// # Errors
    /// [`End::Displaced`], [`End::HandshakeTimeout`], [`End::NoLogin`], [`End::Idle`].
    pub(super) fn evaluate(
        &mut self,
        activity: Activity,
        busy: bool,
        unauthenticated_slot: Option<Unauthenticated>,
    ) -> Result<(), End> {
        let LimitSettings { handshake_timeout, idle_timeout, .. } = self.admission.limits.settings;
        let Some(wait) = &mut self.wait else { return Ok(()) };
        if wait.is_displaced {
            return Err(End::Displaced);
        }
        if !activity.message_received {
            return Err(End::HandshakeTimeout(handshake_timeout));
        }
        if let Some(unauthenticated_slot) = unauthenticated_slot {
            let under_way = unauthenticated_slot.within_message.then_some(unauthenticated_slot.hellos);
            let stuck = under_way.is_some() && under_way == std::mem::replace(&mut wait.stuck_at, under_way);
            if unauthenticated_slot.commands_sent || stuck {
                return Err(End::NoLogin(handshake_timeout));
            }
        }
        let idle = activity.moves == std::mem::replace(&mut wait.seen, activity.moves) && !busy;
        wait.quiet = if idle { wait.quiet + wait.period } else { Duration::ZERO };
        if let Some(limit) = idle_timeout.filter(|limit| wait.quiet >= *limit) {
            return Err(End::Idle(limit));
        }
        wait.timer.as_mut().reset(Instant::now() + wait.period);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(connections: Option<usize>, connections_per_address: Option<usize>) -> Arc<Limits> {
        Arc::new(Limits::new(LimitSettings { connections, connections_per_address, ..LimitSettings::default() }))
    }

    #[test]
    fn a_dropped_admission_frees_its_slot() {
        let (one, two): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        let mapped: IpAddr = "::ffff:192.0.2.1".parse().unwrap();
        let all = limits(Some(2), None);
        let (first, second) = (all.admit(one).unwrap(), all.admit(one).unwrap());
        assert_eq!(all.admit(two).unwrap_err(), Full::Connections(2));
        drop(first);
        let third = all.admit(two).unwrap();
        drop((second, third));
        assert_eq!(all.open.load(Ordering::Relaxed), 0);

        let each = limits(Some(3), Some(1));
        let (first, second) = (each.admit(one).unwrap(), each.admit(two).unwrap());
        assert_eq!(each.admit(mapped).unwrap_err(), Full::Address(1, one));
        assert_eq!(each.open.load(Ordering::Relaxed), 2);
        drop((first, second));
        assert!(each.by_address.lock().unwrap().is_empty());
        let inherited = [each.admitted(one), each.admitted(mapped)];
        assert_eq!(each.admit(one).unwrap_err(), Full::Address(1, one));
        drop(inherited);
        assert_eq!(each.open.load(Ordering::Relaxed), 0);
        assert!(each.admit(mapped).is_ok());
    }

    #[tokio::test]
    async fn idle_connections_time_out_unless_they_wait_for_a_reply() {
        let settings = LimitSettings { idle_timeout: Some(Duration::from_secs(60)), ..LimitSettings::default() };
        let limits = Arc::new(Limits::new(settings));
        let at = |moves| Activity { moves, message_received: true };
        let new = || IdleTimeouts::new(limits.admitted(IpAddr::from([192, 0, 2, 1])), Instant::now(), false);
        assert!(matches!(new().evaluate(Activity::default(), false, None), Err(End::HandshakeTimeout(_))));
        for (checks, kept) in [
            (&[(at(1), false), (at(1), false), (at(1), false)][..], false),
            (&[(at(1), false), (at(1), false), (at(2), false), (at(2), false)], true),
            (&[(at(1), false), (at(1), true), (at(1), true), (at(1), true)], true),
            (&[(at(1), false), (at(1), true), (at(1), false), (at(1), false)], false),
        ] {
            let mut timeouts = new();
            timeouts.established();
            let ends: Vec<bool> =
                checks.iter().map(|(activity, busy)| timeouts.evaluate(*activity, *busy, None).is_err()).collect();
            assert_eq!(!ends.contains(&true), kept, "{checks:?}");
        }
    }

    #[tokio::test]
    async fn clients_that_must_log_in_may_send_only_hellos() {
        let limits = Arc::new(Limits::default());
        let received = |moves| Activity { moves, message_received: true };
        let at = |hellos, within_message| Unauthenticated { hellos, within_message, commands_sent: false };
        for (checks, kept) in [
            (&[at(1, false), at(2, false), at(2, false), at(3, false)][..], true),
            (&[at(1, true), at(2, true), at(3, true), at(4, false)], true),
            (&[at(1, false), at(1, true), at(1, true)], false),
            (&[Unauthenticated { commands_sent: true, ..at(1, false) }], false),
        ] {
            let mut timeouts = IdleTimeouts::new(limits.admitted(IpAddr::from([192, 0, 2, 1])), Instant::now(), false);
            let ends: Vec<bool> = (0..)
                .zip(checks)
                .map(|(moves, check)| timeouts.evaluate(received(moves), false, Some(*check)).is_err())
                .collect();
            assert_eq!(!ends.contains(&true), kept, "{checks:?}");
        }
    }

    #[tokio::test]
    async fn without_an_idle_timeout_no_timer_remains_after_the_first_message() {
        for (idle_timeout, waits) in [(None, false), (Some(Duration::from_secs(60)), true)] {
            let limits = Arc::new(Limits::new(LimitSettings { idle_timeout, ..LimitSettings::default() }));
            let mut timeouts = IdleTimeouts::new(limits.admitted(IpAddr::from([192, 0, 2, 1])), Instant::now(), false);
            assert!(timeouts.wait.is_some());
            timeouts.established();
            assert_eq!(timeouts.wait.is_some(), waits);
        }
    }
}
