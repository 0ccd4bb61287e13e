//! Keeps a time between two connections that close in place of a request.
//!
//! When one of its connections breaks, a driver closes all others to that server as they become idle (specification
//! "Server Discovery And Monitoring"). Node's driver (7.8) does not repeat a request whose connection breaks after
//! that. So two connections of one client must not close at the same time, and docward does not know which belong to
//! one client.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Longer than drivers need to react to a close, also on a busy machine.
const MAX_PAUSE: Duration = Duration::from_millis(250);

/// Decides when a connection may close in place of a request.
#[derive(Debug)]
pub(in crate::proxy) struct CloseSpacing(Mutex<State>);

#[derive(Debug)]
struct State {
    /// From then on the next connection may close.
    next: Instant,
    /// Until then all connections must close.
    deadline: Option<Instant>,
}

impl Default for CloseSpacing {
    fn default() -> Self {
        Self(Mutex::new(State { next: Instant::now(), deadline: None }))
    }
}

impl CloseSpacing {
    /// Returns whether a connection may close now; `open` is the number of open connections. If so, the next one may
    /// close after a pause.
    pub(in crate::proxy) fn take_turn(&self, open: impl FnOnce() -> u64) -> bool {
        self.lock().take_turn(Instant::now(), open)
    }

    /// Shortens the pauses so that all connections can close until `deadline`, and begins with a pause.
    pub(in crate::proxy) fn end_at(&self, deadline: Instant, open: u64) {
        self.lock().end_at(Instant::now(), deadline, open);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take_turn(&mut self, now: Instant, open: impl FnOnce() -> u64) -> bool {
        let may_close = now >= self.next;
        if may_close {
            self.pause(now, open());
        }
        may_close
    }

    fn end_at(&mut self, now: Instant, deadline: Instant, open: u64) {
        self.deadline = Some(deadline);
        self.pause(now, open);
    }

    fn pause(&mut self, now: Instant, open: u64) {
        let open = u32::try_from(open).unwrap_or(u32::MAX).max(1);
        let share = self.deadline.map(|deadline| deadline.saturating_duration_since(now) / open);
        self.next = now + share.map_or(MAX_PAUSE, |share| share.min(MAX_PAUSE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_close_one_after_the_other_until_the_deadline() {
        let begin = Instant::now();
        let mut state = State { next: begin, deadline: None };
        let closed_in_second = |state: &mut State, second: u64, open| {
            let times = (0..1000).map(|passed| begin + Duration::from_millis(1000 * second + passed));
            times.filter(|now| state.take_turn(*now, || open)).count()
        };
        assert_eq!(closed_in_second(&mut state, 0, 1000), 4);
        state.end_at(begin + Duration::from_secs(1), begin + Duration::from_secs(11), 1000);
        assert!(!state.take_turn(begin + Duration::from_secs(1), || 1000));
        assert!((90..=110).contains(&closed_in_second(&mut state, 1, 1000)));
        assert_eq!(closed_in_second(&mut state, 2, 3), 4);
    }
}
