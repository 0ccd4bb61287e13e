//! How much is still going on when this process is about to go and drivers choose its members no more.
//!
//! A driver chooses a member first and takes a connection then. It fails, unsent, what stands between the two when
//! the monitor's connection closes, so that is closed only when nobody asks for anything any more. What monitors
//! are told is in [`crate::engine::handshake::draining`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::sleep;

/// How long nobody must have asked for anything: more than a driver needs to send what it has chosen a member for.
const QUIET_PERIOD: Duration = Duration::from_millis(250);
/// How long calm is waited for. Some never give it: an open cursor goes on at its member, and a client that is
/// connected directly has no choice.
pub(super) const TIMEOUT: Duration = Duration::from_secs(2);

/// What goes on in connections that were told; those of monitors do not count.
#[derive(Debug, Default)]
pub(super) struct ActivityCounters {
    /// How often bytes came.
    events: AtomicU64,
    /// Connections that wait for something: others may wait for them, in a pool that is used up.
    busy: AtomicUsize,
}

/// One connection that waits for something, until this is dropped.
#[derive(Debug)]
pub(super) struct BusyGuard(Arc<ActivityCounters>);

impl ActivityCounters {
    /// Bytes have come.
    pub(super) fn note_activity(&self) {
        self.events.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until nothing has gone on for a while.
    pub(super) async fn calm(&self) {
        loop {
            let before = self.events.load(Ordering::Relaxed);
            sleep(QUIET_PERIOD).await;
            if self.events.load(Ordering::Relaxed) == before && self.busy.load(Ordering::Relaxed) == 0 {
                return;
            }
        }
    }
}

impl BusyGuard {
    pub(super) fn new(activity: &Arc<ActivityCounters>) -> Self {
        activity.busy.fetch_add(1, Ordering::Relaxed);
        Self(activity.clone())
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    /// Only a mistake reaches it.
    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn calm_is_when_nobody_stirs_and_nobody_waits() {
        let activity = Arc::new(ActivityCounters::default());
        timeout(LONG, activity.calm()).await.unwrap();
        let busy = BusyGuard::new(&activity);
        assert!(timeout(2 * QUIET_PERIOD, activity.calm()).await.is_err());
        drop(busy);
        let stirring = async {
            loop {
                activity.note_activity();
                sleep(QUIET_PERIOD / 10).await;
            }
        };
        tokio::select! {
            // Whoever gets no time for as long as that has stirred before it is asked whether somebody did.
            biased;
            () = stirring => {}
            () = activity.calm() => panic!("somebody events"),
            () = sleep(2 * QUIET_PERIOD) => {}
        }
        timeout(LONG, activity.calm()).await.unwrap();
    }
}
