//! The drains that other docwards announce.

use std::time::{Duration, Instant};

use crate::service::modes::{AnnouncedDrain, StoredOverrides};

/// How long before a drain docward announces it: the others read every second.
pub(super) const LEAD: Duration = Duration::from_millis(1500);

/// Finds new ones.
#[derive(Default)]
pub(super) struct KnownDrains {
    /// As last read; `None`: nothing has been read.
    known: Option<Vec<AnnouncedDrain>>,
}

impl KnownDrains {
    /// Returns the addresses of the drains that are not known yet, and when they begin. Those that began before the first
    /// call are those of earlier processes.
    pub(super) fn take<'s>(&mut self, stored: &'s StoredOverrides) -> Vec<(&'s [String], Instant)> {
        let now = stored.time.map_or(0, |time| time.now());
        let known = self.known.replace(stored.drains.clone());
        let is_new = |drain: &&AnnouncedDrain| match &known {
            Some(known) => !known.contains(drain),
            None => drain.at > now,
        };
        let begins = |drain: &AnnouncedDrain| Duration::from_millis(drain.at.saturating_sub(now)).min(LEAD);
        let new = stored.drains.iter().filter(is_new);
        new.map(|drain| (drain.addresses.as_slice(), Instant::now() + begins(drain))).collect()
    }
}

#[cfg(test)]
mod tests {
    use bson::DateTime;

    use super::*;
    use crate::service::ServerTime;

    #[test]
    fn each_drain_is_noted_once_by_the_clock_of_the_server() {
        // This machine's clock is decades ahead.
        let stored = |now, drains: &[u64]| StoredOverrides {
            time: Some(ServerTime::reported(DateTime::from_millis(now))),
            drains: drains.iter().map(|at| AnnouncedDrain { at: *at, addresses: vec![at.to_string()] }).collect(),
            ..StoredOverrides::default()
        };
        let mut known = KnownDrains::default();
        let mut new = |stored: StoredOverrides| {
            let begun = Instant::now();
            let new = known.take(&stored);
            new.iter().for_each(|(_, at)| assert!(*at >= begun && *at <= Instant::now() + LEAD));
            new.into_iter().flat_map(|(addresses, _)| addresses.to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(new(stored(60_000, &[59_000])), [""; 0], "an earlier process of this address");
        assert_eq!(new(stored(61_000, &[59_000, 62_000])), ["62000"]);
        assert_eq!(new(stored(62_000, &[59_000, 62_000])), [""; 0]);
        assert_eq!(new(stored(65_000, &[64_000, 62_000, i64::MAX as u64])), ["64000", "9223372036854775807"]);
        assert_eq!(KnownDrains::default().take(&stored(60_000, &[61_000])).len(), 1, "during a hand-over");
    }
}
