//! `pool:` of the configuration.

use std::time::Duration;

use super::queue::PoolBounds;

/// `pool:` of the configuration. The bounds apply to each member and user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolSettings {
    /// Most server connections; at least 2.
    pub size: usize,
    /// Connections of these that only transactions in progress, and one login, may use; at least 1, less than `size`.
    pub reserve: usize,
    /// How long a request waits for a connection before it is rejected.
    pub max_wait: Duration,
    /// A connection that was not used for this time is closed.
    pub idle_timeout: Duration,
    /// A connection is closed when it is this old and no request uses it.
    pub max_lifetime: Duration,
    /// Whether docward may log in again by itself as a user that has logged in.
    pub keep_credentials: bool,
}

impl PoolSettings {
    pub const SIZE: usize = 50;
    pub const MAX_WAIT: Duration = Duration::from_secs(5);
    pub const IDLE_TIMEOUT: Duration = Duration::from_mins(10);
    pub const MAX_LIFETIME: Duration = Duration::from_hours(1);

    /// Returns the reserve for a size if none is configured: a tenth, at least 1.
    #[must_use]
    pub fn reserve_of(size: usize) -> usize {
        (size / 10).max(1)
    }

    /// How long a request may expect to wait whose driver sends it again: it waits better at its application.
    pub(super) fn longest_retried_wait(&self) -> Duration {
        self.max_wait / 4
    }

    pub(super) fn bounds(&self) -> PoolBounds {
        PoolBounds { size: self.size, reserve: self.reserve }
    }
}
