//! Log lines that somebody outside can cause at will: at most so many a second, and the next one says how many were
//! left out.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::audit::one_line;
use crate::command::shorten;

/// Bytes of what others have written in one line.
const MAX_LENGTH: usize = 1000;

/// What others have written, or part of it, as part of a line.
pub(super) fn quoted(text: &str) -> String {
    let mut line = one_line(text);
    shorten(&mut line, MAX_LENGTH);
    line
}

/// One kind of line, of which so many a second are written.
#[derive(Debug)]
pub(super) struct RateLimit {
    budget: Mutex<Allowance>,
    limit: u32,
}

/// One a second.
impl Default for RateLimit {
    fn default() -> Self {
        Self::of(1)
    }
}

impl RateLimit {
    pub(super) const fn of(limit: u32) -> Self {
        Self { budget: Mutex::new(Allowance { second: None, said: 0, left_out: 0 }), limit }
    }

    /// `Some` when the line is to be written, with how many were not since the last one.
    pub(super) fn line(&self) -> Option<u64> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner).take(self.limit)
    }
}

/// What may be said within a second.
#[derive(Debug, Clone, Default)]
pub(super) struct Allowance {
    second: Option<Instant>,
    said: u32,
    left_out: u64,
}

impl Allowance {
    /// `Some` for the first `limit` in a second, with how many were left out since the last one.
    pub(super) fn take(&mut self, limit: u32) -> Option<u64> {
        if self.second.is_none_or(|second| second.elapsed() >= Duration::from_secs(1)) {
            self.second = Some(Instant::now());
            self.said = 0;
        }
        if self.said >= limit {
            self.left_out += 1;
            return None;
        }
        self.said += 1;
        Some(std::mem::take(&mut self.left_out))
    }

    /// Counts what was left out for another reason.
    pub(super) fn leave_out(&mut self, count: u64) {
        self.left_out += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_out_is_counted() {
        // In a second that lasts as long as the machine may stand still.
        let second = Instant::now() + Duration::from_secs(3600);
        let mut budget = Allowance { second: Some(second), ..Allowance::default() };
        let lines: Vec<_> = (0..5).map(|_| budget.take(2)).collect();
        assert_eq!(lines, [Some(0), Some(0), None, None, None]);
        budget.second = None;
        assert_eq!([budget.take(2), budget.take(2)], [Some(3), Some(0)]);
    }
}
