//! Rate limit for log lines that clients can cause at will. The next line reports how many were suppressed.

use crate::text::{one_line, shorten};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of foreign text in one line.
const MAX_LENGTH: usize = 1000;

/// Foreign text as a single, shortened line.
pub(in crate::proxy) fn quoted(text: &str) -> String {
    let mut line = one_line(text);
    shorten(&mut line, MAX_LENGTH);
    line
}

/// The rate limit of one kind of line.
#[derive(Debug)]
pub(in crate::proxy) struct RateLimit {
    budget: Mutex<Allowance>,
    limit: u32,
}

/// One line a second.
impl Default for RateLimit {
    fn default() -> Self {
        Self::per_second(1)
    }
}

impl RateLimit {
    pub(in crate::proxy) const fn per_second(limit: u32) -> Self {
        Self { budget: Mutex::new(Allowance { second: None, written: 0, suppressed: 0 }), limit }
    }

    /// `Some` if the line may be written, with the number of lines suppressed since the last one.
    pub(in crate::proxy) fn line(&self) -> Option<u64> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner).take(self.limit)
    }
}

/// The allowance within a second.
#[derive(Debug, Clone, Default)]
pub(in crate::proxy) struct Allowance {
    second: Option<Instant>,
    written: u32,
    suppressed: u64,
}

impl Allowance {
    /// `Some` for the first `limit` calls in a second, with the number suppressed since the last one.
    pub(in crate::proxy) fn take(&mut self, limit: u32) -> Option<u64> {
        if self.second.is_none_or(|second| second.elapsed() >= Duration::from_secs(1)) {
            self.second = Some(Instant::now());
            self.written = 0;
        }
        if self.written >= limit {
            self.suppressed += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.suppressed))
    }

    /// Counts what was suppressed for another reason.
    pub(in crate::proxy) fn add_suppressed(&mut self, count: u64) {
        self.suppressed += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suppressed_lines_are_counted() {
        // A second that cannot end during the test.
        let second = Instant::now() + Duration::from_secs(3600);
        let mut budget = Allowance { second: Some(second), ..Allowance::default() };
        let lines: Vec<_> = (0..5).map(|_| budget.take(2)).collect();
        assert_eq!(lines, [Some(0), Some(0), None, None, None]);
        budget.second = None;
        assert_eq!([budget.take(2), budget.take(2)], [Some(3), Some(0)]);
    }
}
