//! When something was measured.

use std::time::Duration;

/// A moment in nanoseconds since the meter started; zero if nothing is measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::proxy) struct Moment(u64);

impl Moment {
    pub(in crate::proxy) const NEVER: Self = Self(0);

    /// The moment at a time since the meter started.
    pub(super) fn from_start(since: Duration) -> Self {
        // Wraps after five centuries. The lowest bit is set so that no moment equals NEVER.
        Self(since.as_secs().wrapping_mul(1_000_000_000).wrapping_add(u64::from(since.subsec_nanos())) | 1)
    }

    /// Nanoseconds since the meter started.
    pub(in crate::proxy) fn nanoseconds(self) -> u64 {
        self.0
    }

    /// Nanoseconds from `earlier`, as [`Self::nanoseconds`] returns it, to this moment.
    pub(in crate::proxy) fn since_nanoseconds(self, earlier: u64) -> u64 {
        self.0.saturating_sub(earlier)
    }

    #[cfg(test)]
    pub(in crate::proxy) fn after(self, nanoseconds: u64) -> Self {
        Self(self.0 + nanoseconds)
    }

    /// Nanoseconds from `earlier` to this moment.
    pub(in crate::proxy) fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
