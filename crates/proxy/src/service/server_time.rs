//! The server's clock as a process last saw it. Times that several processes compare come from this clock: their own may
//! differ by hours.

use std::time::{Duration, Instant};

use bson::DateTime;

/// A time that the server reported, and when it arrived here.
#[derive(Clone, Copy, Debug)]
pub struct ServerTime {
    reported: DateTime,
    arrived: Instant,
}

impl ServerTime {
    /// The server has just reported this `$$NOW`.
    #[must_use]
    pub fn reported(now: DateTime) -> Self {
        Self { reported: now, arrived: Instant::now() }
    }

    /// Returns the server's time now, in milliseconds since 1970 UTC. It is late by at most the reply's way here.
    #[must_use]
    pub fn now(&self) -> u64 {
        let reported = u64::try_from(self.reported.timestamp_millis()).unwrap_or_default();
        reported.saturating_add(u64::try_from(self.arrived.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// Returns how long ago this time of the server's clock was; zero for a later one.
    #[must_use]
    pub fn since(&self, milliseconds: u64) -> Duration {
        Duration::from_millis(self.now().saturating_sub(milliseconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_from_what_the_server_reported() {
        // This machine's clock is decades ahead; it is not read.
        let minute = Duration::from_secs(60);
        let arrived = Instant::now().checked_sub(minute).unwrap();
        let time = ServerTime { reported: DateTime::from_millis(7_200_000), arrived };
        assert!((7_260_000..7_270_000).contains(&time.now()), "{}", time.now());
        assert!((minute..2 * minute).contains(&time.since(7_200_000)));
        assert_eq!(time.since(8_000_000), Duration::ZERO);
    }
}
