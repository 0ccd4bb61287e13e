//! Rate limits for log lines that clients can cause at will, in lines for each kind and in bytes for all kinds
//! together. The next line reports how many were suppressed.

use crate::text::{one_line, shorten};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of foreign text in one line.
const MAX_LENGTH: usize = 1000;

/// Foreign text as a single, shortened line.
pub(crate) fn quoted(text: &str) -> String {
    let mut line = one_line(text);
    shorten(&mut line, MAX_LENGTH);
    line
}

/// The bytes of the log of this process.
static LOG_VOLUME: LogVolume = LogVolume { state: Mutex::new(None) };
/// Bytes of log in a second from which lines that clients can cause at will are suppressed; as many more may be written
/// at once. Together they leave room for other lines within one megabyte a second.
const MAX_BYTES_PER_SECOND: f64 = 600e3;
const MAX_BURST: f64 = 200e3;

/// Counts bytes that are written to the log.
pub fn note_logged(bytes: usize) {
    LOG_VOLUME.spend(bytes, Instant::now());
}

/// Whether lines that clients can cause at will may be written now.
pub(crate) fn log_has_room() -> bool {
    LOG_VOLUME.has_room(Instant::now())
}

/// A token bucket. It is filled by [`MAX_BYTES_PER_SECOND`], up to [`MAX_BURST`].
#[derive(Debug)]
struct LogVolume {
    /// When it was last filled, and the bytes left then; negative if more were written. `None`: it is full.
    state: Mutex<Option<(Instant, f64)>>,
}

impl LogVolume {
    fn spend(&self, bytes: usize, now: Instant) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let left = left(*state, now) - bytes as f64;
        *state = Some((now, left));
    }

    fn has_room(&self, now: Instant) -> bool {
        left(*self.state.lock().unwrap_or_else(PoisonError::into_inner), now) > 0.0
    }
}

fn left(state: Option<(Instant, f64)>, now: Instant) -> f64 {
    state.map_or(MAX_BURST, |(filled, left)| {
        let added = now.saturating_duration_since(filled).as_secs_f64() * MAX_BYTES_PER_SECOND;
        (left + added).min(MAX_BURST)
    })
}

/// The rate limit of one kind of line.
#[derive(Debug)]
pub(crate) struct RateLimit {
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
    pub(crate) const fn per_second(limit: u32) -> Self {
        Self { budget: Mutex::new(Allowance { second: None, written: 0, suppressed: 0 }), limit }
    }

    /// `Some` if the line may be written, with the number of lines suppressed since the last one. Lines that are written
    /// once a second do not depend on the bytes of the others.
    pub(crate) fn line(&self) -> Option<u64> {
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        if self.limit > 1 && !log_has_room() {
            budget.add_suppressed(1);
            return None;
        }
        budget.take(self.limit)
    }
}

/// The allowance within a second.
#[derive(Debug, Clone, Default)]
pub(crate) struct Allowance {
    second: Option<Instant>,
    written: u32,
    suppressed: u64,
}

impl Allowance {
    /// `Some` for the first `limit` calls in a second, with the number suppressed since the last one.
    pub(crate) fn take(&mut self, limit: u32) -> Option<u64> {
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
    pub(crate) fn add_suppressed(&mut self, count: u64) {
        self.suppressed += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_stays_within_a_megabyte_in_any_second() {
        let volume = LogVolume { state: Mutex::new(None) };
        let began = Instant::now();
        let mut written = Vec::new();
        for millisecond in 0..5000_u64 {
            let now = began + Duration::from_millis(millisecond);
            while volume.has_room(now) {
                volume.spend(8000, now);
                written.push(millisecond);
            }
        }
        let in_second = |from: u64| written.iter().filter(|at| (from..from + 1000).contains(*at)).count() * 8000;
        let most = (0..4000).map(in_second).max().unwrap();
        assert!((700_000..850_000).contains(&most), "{most}");
    }

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
