//! How long a client connection may be idle, and how long a client may take to log in.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::proxy::connection::end::End;
use crate::proxy::process::limits::{Admission, LimitSettings};
use crate::proxy::process::unauthenticated::Slot;

/// Activity of a connection. It is a counter rather than a clock, so that messages need not read the time: an
/// unchanged count between two checks means that nothing happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::proxy) struct Activity {
    /// Incremented when bytes arrive from either side; wraps.
    pub(in crate::proxy) moves: u32,
    /// At least one whole message has arrived from the client.
    pub(in crate::proxy) message_received: bool,
    /// The connection has been reported as established.
    pub(in crate::proxy) established_reported: bool,
}

/// State of a client that must still log in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::proxy) struct Unauthenticated {
    /// It has sent a message other than a hello. The monitors of drivers never do, and never log in.
    pub(in crate::proxy) commands_sent: bool,
    /// Part of a message has arrived.
    pub(in crate::proxy) within_message: bool,
    /// Number of its hellos; wraps.
    pub(in crate::proxy) hellos: u8,
}

/// Timeouts of a client that does not use its connection, or does not log in although it must.
#[derive(Debug)]
pub(in crate::proxy) struct IdleTimeouts {
    admission: Admission,
    /// `None`: no timeout applies any more. Boxed, because this is so for most connections.
    wait: Option<Box<Wait>>,
    /// The end of the lifetime if that is limited, then the next step.
    expiry: Option<Pin<Box<Sleep>>>,
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
    idle_for: Duration,
    /// [`Unauthenticated::hellos`] at the last check, if part of a message had arrived then.
    stuck_at: Option<u8>,
}

impl Wait {
    fn new(period: Duration, until: Instant, slot: Option<Slot>) -> Box<Self> {
        let (timer, idle_for) = (Box::pin(sleep_until(until)), Duration::ZERO);
        Box::new(Self { timer, slot, is_displaced: false, period, seen: 0, idle_for, stuck_at: None })
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
    pub(in crate::proxy) fn new(admission: Admission, deadline: Instant, must_log_in: bool) -> Self {
        let period = admission.settings().handshake_timeout;
        let slot = must_log_in.then(|| admission.count_unauthenticated());
        Self { admission, wait: Some(Wait::new(period, deadline, slot)), expiry: None }
    }

    /// Records that the first message has arrived, and the login where one is required. The lifetime then ends after 80
    /// to 100 % of its maximum, by `random`, so that connections that were opened together do not end together.
    pub(in crate::proxy) fn established(&mut self, random: [u8; 16]) {
        let LimitSettings { idle_timeout, max_lifetime, .. } = self.admission.settings();
        let part = 0.8 + 0.2 * f64::from(random[0]) / 255.0;
        self.expire_in(max_lifetime.map(|limit| limit.mul_f64(part)));
        let period = idle_timeout.map(|limit| limit / 2);
        self.wait = period.map(|period| Wait::new(period, Instant::now() + period, None));
    }

    pub(in crate::proxy) fn max_lifetime(&self) -> Duration {
        self.admission.settings().max_lifetime.unwrap_or(Duration::MAX)
    }

    /// Sets when [`Self::poll_expired`] is ready.
    pub(in crate::proxy) fn expire_in(&mut self, time: Option<Duration>) {
        self.expiry = time.map(|time| Box::pin(sleep(time)));
    }

    /// Ready once, at the end of the lifetime.
    pub(in crate::proxy) fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(expiry) = &mut self.expiry else { return Poll::Pending };
        ready!(expiry.as_mut().poll(cx));
        self.expiry = None;
        Poll::Ready(())
    }

    /// Ready when [`Self::evaluate`] must be called.
    pub(in crate::proxy) fn poll_run_out(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.wait.as_mut().map_or(Poll::Pending, |wait| wait.poll(cx))
    }

    /// Checks whether the connection must close; `unauthenticated_slot` is set if its client must still log in.
    /// Established connections are checked twice per idle timeout, so an idle one closes after one to one and a half
    /// timeouts.
    ///
    /// # Errors
    /// [`End::Displaced`], [`End::HandshakeTimeout`], [`End::LoginTimeout`], [`End::Idle`].
    pub(in crate::proxy) fn evaluate(
        &mut self,
        activity: Activity,
        busy: bool,
        unauthenticated_slot: Option<Unauthenticated>,
    ) -> Result<(), End> {
        let LimitSettings { handshake_timeout, idle_timeout, .. } = self.admission.settings();
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
                return Err(End::LoginTimeout(handshake_timeout));
            }
        }
        let idle = activity.moves == std::mem::replace(&mut wait.seen, activity.moves) && !busy;
        wait.idle_for = if idle { wait.idle_for + wait.period } else { Duration::ZERO };
        if let Some(limit) = idle_timeout.filter(|limit| wait.idle_for >= *limit) {
            return Err(End::Idle(limit));
        }
        wait.timer.as_mut().reset(Instant::now() + wait.period);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Arc;

    use super::*;
    use crate::proxy::process::limits::ConnectionLimits;

    #[tokio::test]
    async fn idle_connections_time_out_unless_they_wait_for_a_reply() {
        let settings = LimitSettings { idle_timeout: Some(Duration::from_secs(60)), ..LimitSettings::default() };
        let limits = Arc::new(ConnectionLimits::new(settings));
        let at = |moves| Activity { moves, message_received: true, ..Activity::default() };
        let new = || IdleTimeouts::new(limits.admit(IpAddr::from([192, 0, 2, 1])).unwrap(), Instant::now(), false);
        assert!(matches!(new().evaluate(Activity::default(), false, None), Err(End::HandshakeTimeout(_))));
        for (checks, kept) in [
            (&[(at(1), false), (at(1), false), (at(1), false)][..], false),
            (&[(at(1), false), (at(1), false), (at(2), false), (at(2), false)], true),
            (&[(at(1), false), (at(1), true), (at(1), true), (at(1), true)], true),
            (&[(at(1), false), (at(1), true), (at(1), false), (at(1), false)], false),
        ] {
            let mut timeouts = new();
            timeouts.established([0; 16]);
            let ends: Vec<bool> =
                checks.iter().map(|(activity, busy)| timeouts.evaluate(*activity, *busy, None).is_err()).collect();
            assert_eq!(!ends.contains(&true), kept, "{checks:?}");
        }
    }

    #[tokio::test]
    async fn clients_that_must_log_in_may_send_only_hellos() {
        let limits = Arc::new(ConnectionLimits::default());
        let received = |moves| Activity { moves, message_received: true, ..Activity::default() };
        let at = |hellos, within_message| Unauthenticated { hellos, within_message, commands_sent: false };
        for (checks, kept) in [
            (&[at(1, false), at(2, false), at(2, false), at(3, false)][..], true),
            (&[at(1, true), at(2, true), at(3, true), at(4, false)], true),
            (&[at(1, false), at(1, true), at(1, true)], false),
            (&[Unauthenticated { commands_sent: true, ..at(1, false) }], false),
        ] {
            let mut timeouts =
                IdleTimeouts::new(limits.admit(IpAddr::from([192, 0, 2, 1])).unwrap(), Instant::now(), false);
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
            let limits = Arc::new(ConnectionLimits::new(LimitSettings { idle_timeout, ..LimitSettings::default() }));
            let mut timeouts =
                IdleTimeouts::new(limits.admit(IpAddr::from([192, 0, 2, 1])).unwrap(), Instant::now(), false);
            assert!(timeouts.wait.is_some());
            timeouts.established([0; 16]);
            assert_eq!(timeouts.wait.is_some(), waits);
        }
    }

    #[tokio::test]
    async fn lifetimes_end_at_80_to_100_percent_of_their_maximum() {
        let maximum = Duration::from_millis(500);
        let settings = LimitSettings { max_lifetime: Some(maximum), ..LimitSettings::default() };
        let limits = Arc::new(ConnectionLimits::new(settings));
        for (random, least) in [(0, maximum.mul_f64(0.8)), (255, maximum)] {
            let admission = limits.admit(IpAddr::from([192, 0, 2, 1])).unwrap();
            let mut timeouts = IdleTimeouts::new(admission, Instant::now(), false);
            let began = Instant::now();
            timeouts.established([random; 16]);
            std::future::poll_fn(|cx| timeouts.poll_expired(cx)).await;
            assert!(began.elapsed() >= least, "{:?}", began.elapsed());
            assert!(timeouts.expiry.is_none());
        }
    }
}
