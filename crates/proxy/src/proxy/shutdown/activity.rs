//! Waits, during a graceful shutdown, until clients no longer send requests to members that drivers have stopped
//! selecting.
//!
//! A driver first selects a member and then checks out a connection. When the connection of its monitor closes, the
//! driver fails requests between these two steps without sending them. So that connection stays open until no client
//! sends anything. [`crate::engine::handshake::draining`] writes the last hello reply for monitors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::sleep;

/// Time without traffic after which clients are idle. It is longer than a driver needs between selecting a member and
/// sending.
const IDLE_PERIOD: Duration = Duration::from_millis(250);
/// Bound on the wait. Some clients never become idle: an open cursor stays on its member, a direct connection has no
/// other member to select, and behind a load balancer a driver's monitor may be connected to another process.
pub(in crate::proxy) const TIMEOUT: Duration = Duration::from_secs(1);

/// Counts activity on draining connections, except those of monitors.
#[derive(Debug, Default)]
pub(in crate::proxy) struct ActivityCounters {
    /// Number of times that bytes arrived.
    events: AtomicU64,
    /// Connections that wait for a reply. In an exhausted pool, other operations may wait for these connections.
    busy: AtomicUsize,
}

/// Counts one connection as busy until this guard is dropped.
#[derive(Debug)]
pub(in crate::proxy) struct BusyGuard(Arc<ActivityCounters>);

impl ActivityCounters {
    /// Counts an arrival of bytes.
    pub(in crate::proxy) fn note_activity(&self) {
        self.events.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until no bytes have arrived for [`IDLE_PERIOD`] and no connection is busy.
    pub(in crate::proxy) async fn wait_until_idle(&self) {
        loop {
            let before = self.events.load(Ordering::Relaxed);
            sleep(IDLE_PERIOD).await;
            if self.events.load(Ordering::Relaxed) == before && self.busy.load(Ordering::Relaxed) == 0 {
                return;
            }
        }
    }
}

impl BusyGuard {
    pub(in crate::proxy) fn new(activity: &Arc<ActivityCounters>) -> Self {
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

    /// A test reaches this timeout only if the code is wrong.
    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn waits_for_silence_and_for_busy_connections() {
        let activity = Arc::new(ActivityCounters::default());
        timeout(LONG, activity.wait_until_idle()).await.unwrap();
        let busy = BusyGuard::new(&activity);
        assert!(timeout(2 * IDLE_PERIOD, activity.wait_until_idle()).await.is_err());
        drop(busy);
        let traffic = async {
            loop {
                activity.note_activity();
                sleep(IDLE_PERIOD / 10).await;
            }
        };
        tokio::select! {
            // Polled first, so that a delayed test still records activity before idleness is checked.
            biased;
            () = traffic => {}
            () = activity.wait_until_idle() => panic!("idle despite traffic"),
            () = sleep(2 * IDLE_PERIOD) => {}
        }
        timeout(LONG, activity.wait_until_idle()).await.unwrap();
    }
}
