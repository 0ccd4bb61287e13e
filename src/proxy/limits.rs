//! How many connections clients may have, and how long they may stay without using them.
//!
//! [`Limits`] counts, [`IdleTimeouts`] waits. What a refused client is told is in [`super::refusal`].

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

/// What is allowed; `None` is no limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitSettings {
    /// Clients' connections in all, over all listeners.
    pub connections: Option<usize>,
    pub connections_per_address: Option<usize>,
    /// Without a message in either direction; a connection that waits for a reply is not idle.
    pub idle_timeout: Option<Duration>,
    /// For TLS, the first message and, where the server demands one, the login together.
    pub handshake_timeout: Duration,
    /// Connections that have not logged in where they have to.
    pub unauthenticated: Option<usize>,
    /// Bytes of large messages that are collected, decompressed and rewritten at a time.
    pub memory: usize,
}

impl Default for LimitSettings {
    /// As mongod: who is idle stays. Memory is that of a machine with 4 GiB. Ten seconds are a driver's own timeouts with a handshake.
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

/// Why a connection is refused; the text is for the client and the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Full {
    #[error(
        "docward has the {0} connections it may have (limits: connections); close some, for example with a \
         smaller maxPoolSize, or raise the limit"
    )]
    Connections(usize),
    #[error(
        "{1} has the {0} connections that one address may have (limits: connections_per_address); close some, \
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

/// The connections there are.
#[derive(Debug, Default)]
pub(super) struct Limits {
    pub(super) settings: LimitSettings,
    unauthenticated: Arc<UnauthenticatedConnections>,
    open: AtomicUsize,
    /// Only of addresses that have connections, and only if there is a limit for them.
    by_address: Mutex<HashMap<IpAddr, usize>>,
}

/// One connection that counts until this is dropped.
#[derive(Debug)]
pub(super) struct Admission {
    limits: Arc<Limits>,
    address: IpAddr,
}

impl Limits {
    pub(super) fn new(settings: LimitSettings) -> Self {
        Self { unauthenticated: UnauthenticatedConnections::new(settings.unauthenticated), settings, ..Self::default() }
    }

    /// The connections there are now.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// # Errors
    /// [`Full`].
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

    /// Counts a connection that another process admitted, whatever the limits.
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

/// What a connection has done so far. A count instead of a clock that every message would read: who looks again and
/// finds the same count knows that nothing happened meanwhile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Activity {
    /// Goes up when bytes come, from either side; wraps.
    pub(super) moves: u32,
    /// A whole message has come from the client, ever.
    pub(super) heard: bool,
}

/// What a client has done that has not logged in where it has to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Unauthenticated {
    /// It has sent anything but hellos. Drivers' monitors never do, and never log in.
    pub(super) conversed: bool,
    /// A message has begun and is not here whole.
    pub(super) within_message: bool,
    /// Its hellos so far; wraps.
    pub(super) hellos: u8,
}

/// Waits for a client that does not use its connection, or does not log in where it has to.
#[derive(Debug)]
pub(super) struct IdleTimeouts {
    admission: Admission,
    /// `None`: there is nothing to wait for any more. Boxed: of most connections there is not.
    wait: Option<Box<Wait>>,
}

#[derive(Debug)]
struct Wait {
    timer: Pin<Box<Sleep>>,
    /// Where the client has to log in.
    place: Option<Slot>,
    is_displaced: bool,
    /// Between two looks.
    period: Duration,
    /// [`Activity::moves`] at the last look.
    seen: u32,
    /// How long nothing has happened, as far as looks tell.
    quiet: Duration,
    /// [`Unauthenticated::hellos`] at the last look, if a message was under way then.
    stuck_at: Option<u8>,
}

impl Wait {
    fn new(period: Duration, until: Instant, place: Option<Slot>) -> Box<Self> {
        let (timer, quiet) = (Box::pin(sleep_until(until)), Duration::ZERO);
        Box::new(Self { timer, place, is_displaced: false, period, seen: 0, quiet, stuck_at: None })
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.place.as_mut().is_some_and(|place| place.poll_displaced(cx).is_ready()) {
            (self.is_displaced, self.place) = (true, None);
        }
        if self.is_displaced { Poll::Ready(()) } else { self.timer.as_mut().poll(cx) }
    }
}

impl IdleTimeouts {
    /// `deadline`: when the first message must have come, and the login where there has to be one (`must_log_in`).
    pub(super) fn new(admission: Admission, deadline: Instant, must_log_in: bool) -> Self {
        let period = admission.limits.settings.handshake_timeout;
        let place = must_log_in.then(|| admission.limits.unauthenticated.add(admission.address));
        Self { admission, wait: Some(Wait::new(period, deadline, place)) }
    }

    /// The first message has come, and the login where there has to be one.
    pub(super) fn arrived(&mut self) {
        let period = self.admission.limits.settings.idle_timeout.map(|limit| limit / 2);
        self.wait = period.map(|period| Wait::new(period, Instant::now() + period, None));
    }

    /// Ready when [`Self::evaluate`] is to be asked.
    pub(super) fn poll_run_out(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.wait.as_mut().map_or(Poll::Pending, |wait| wait.poll(cx))
    }

    /// Whether the connection is to be closed; `unauthenticated_slot`: its client has to log in. Who has arrived is looked at twice in
    /// an idle timeout, so what is idle goes after one to one and a half of it.
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
        if !activity.heard {
            return Err(End::HandshakeTimeout(handshake_timeout));
        }
        if let Some(unauthenticated_slot) = unauthenticated_slot {
            let under_way = unauthenticated_slot.within_message.then_some(unauthenticated_slot.hellos);
            let stuck = under_way.is_some() && under_way == std::mem::replace(&mut wait.stuck_at, under_way);
            if unauthenticated_slot.conversed || stuck {
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
    fn a_place_is_free_again_when_its_connection_is_gone() {
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
    async fn who_is_silent_is_let_go_and_who_waits_is_not() {
        let settings = LimitSettings { idle_timeout: Some(Duration::from_secs(60)), ..LimitSettings::default() };
        let limits = Arc::new(Limits::new(settings));
        let at = |moves| Activity { moves, heard: true };
        let new = || IdleTimeouts::new(limits.admitted(IpAddr::from([192, 0, 2, 1])), Instant::now(), false);
        assert!(matches!(new().evaluate(Activity::default(), false, None), Err(End::HandshakeTimeout(_))));
        for (looks, kept) in [
            (&[(at(1), false), (at(1), false), (at(1), false)][..], false),
            (&[(at(1), false), (at(1), false), (at(2), false), (at(2), false)], true),
            (&[(at(1), false), (at(1), true), (at(1), true), (at(1), true)], true),
            (&[(at(1), false), (at(1), true), (at(1), false), (at(1), false)], false),
        ] {
            let mut timeouts = new();
            timeouts.arrived();
            let ends: Vec<bool> =
                looks.iter().map(|(activity, busy)| timeouts.evaluate(*activity, *busy, None).is_err()).collect();
            assert_eq!(!ends.contains(&true), kept, "{looks:?}");
        }
    }

    #[tokio::test]
    async fn who_has_to_log_in_may_say_hello_without_end_and_nothing_else() {
        let limits = Arc::new(Limits::default());
        let heard = |moves| Activity { moves, heard: true };
        let at = |hellos, within_message| Unauthenticated { hellos, within_message, conversed: false };
        for (looks, kept) in [
            (&[at(1, false), at(2, false), at(2, false), at(3, false)][..], true),
            (&[at(1, true), at(2, true), at(3, true), at(4, false)], true),
            (&[at(1, false), at(1, true), at(1, true)], false),
            (&[Unauthenticated { conversed: true, ..at(1, false) }], false),
        ] {
            let mut timeouts = IdleTimeouts::new(limits.admitted(IpAddr::from([192, 0, 2, 1])), Instant::now(), false);
            let ends: Vec<bool> = (0..)
                .zip(looks)
                .map(|(moves, look)| timeouts.evaluate(heard(moves), false, Some(*look)).is_err())
                .collect();
            assert_eq!(!ends.contains(&true), kept, "{looks:?}");
        }
    }

    #[tokio::test]
    async fn without_an_idle_timeout_nothing_is_waited_for_once_the_client_is_heard() {
        for (idle_timeout, waits) in [(None, false), (Some(Duration::from_secs(60)), true)] {
            let limits = Arc::new(Limits::new(LimitSettings { idle_timeout, ..LimitSettings::default() }));
            let mut timeouts = IdleTimeouts::new(limits.admitted(IpAddr::from([192, 0, 2, 1])), Instant::now(), false);
            assert!(timeouts.wait.is_some());
            timeouts.arrived();
            assert_eq!(timeouts.wait.is_some(), waits);
        }
    }
}
