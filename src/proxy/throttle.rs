//! Log lines that somebody outside can cause at will: at most one a second, which says how many were left out.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_secs(1);

/// One kind of line.
#[derive(Debug, Default)]
pub(super) struct Throttle(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    left_out: u64,
}

impl Throttle {
    /// `Some` when the line is to be written, with how many were not since the last one.
    pub(super) fn line(&self) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.last.is_some_and(|last| last.elapsed() < PAUSE) {
            state.left_out += 1;
            return None;
        }
        state.last = Some(Instant::now());
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_out_is_counted() {
        let throttle = Throttle::default();
        let lines: Vec<_> = (0..4).map(|_| throttle.line()).collect();
        assert_eq!(lines, [Some(0), None, None, None]);
        throttle.0.lock().unwrap().last = None;
        assert_eq!(throttle.line(), Some(3));
    }
}
