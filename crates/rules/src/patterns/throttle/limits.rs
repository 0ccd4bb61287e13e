//! What the clients of a `throttle` rule may use, and which of them share it.

use std::num::NonZeroU32;
use std::time::Duration;

/// What clients with the same key may use together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThrottleLimits {
    /// Commands at a time.
    pub concurrent: Option<NonZeroU32>,
    /// Statements in a second.
    pub rate: Option<NonZeroU32>,
    pub per: LimitedClient,
    /// How long a command may wait.
    pub wait: Duration,
}

/// Which clients share a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitedClient {
    App,
    User,
    Client,
}

impl LimitedClient {
    /// The word for it in rule files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::App => "app",
            Self::User => "user",
            Self::Client => "client",
        }
    }
}
