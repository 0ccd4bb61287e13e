//! Lets drivers pause while another process with the same addresses drains.
//!
//! Behind a load balancer a driver has connections to several processes, but one monitor. If the monitor is connected to
//! this process, the driver learns of the other one's drain only here. It does not select the members meanwhile. When its
//! monitor's connection closes, it replaces its idle connections to all processes.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use tokio::sync::mpsc::{Receiver, Sender};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::proxy::members::closing::Closing;
use crate::proxy::shutdown::activity::{self, ActivityCounters};

/// The shortest time between two pauses.
const BETWEEN_PAUSES: Duration = Duration::from_secs(1);
/// Announced drains that wait.
pub(in crate::proxy) const QUEUE_LENGTH: usize = 16;

/// Sends the states of the listeners for each pause. `drains`: when other processes begin to drain.
pub(in crate::proxy) async fn pause_for(
    drains: &mut Receiver<Instant>,
    activity: &ActivityCounters,
    closing: Sender<Closing>,
) -> Infallible {
    let mut last = None;
    loop {
        let Some(drain) = drains.recv().await else { return pending().await };
        if last.is_some_and(|last| drain <= last) {
            continue;
        }
        sleep_until(drain).await;
        last = Some(Instant::now());
        _ = closing.send(Closing::Drain).await;
        _ = timeout(activity::TIMEOUT, activity.wait_until_idle()).await;
        let paused = last.map(|last| last.elapsed());
        tracing::info!(?paused, "another docward with this address drains: drivers waited, and connect again");
        _ = closing.send(Closing::Open).await;
        sleep(BETWEEN_PAUSES).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn drains_at_one_time_have_one_pause_and_later_ones_do_not_follow_at_once() {
        let ((drain, mut drains), (closing, mut closings)) = (channel(QUEUE_LENGTH), channel(1));
        let begin = Instant::now();
        for milliseconds in [20, 10, 100, 50] {
            drain.try_send(begin + Duration::from_millis(milliseconds)).unwrap();
        }
        let activity = ActivityCounters::default();
        let receive = async {
            let mut states = Vec::new();
            while states.len() < 4 {
                states.push((closings.recv().await.unwrap(), begin.elapsed()));
            }
            assert!(timeout(2 * BETWEEN_PAUSES, closings.recv()).await.is_err());
            states
        };
        let states = tokio::select! {
            states = receive => states,
            never = pause_for(&mut drains, &activity, closing) => match never {},
        };
        let [(Closing::Drain, first), (Closing::Open, open), (Closing::Drain, next), (Closing::Open, _)] = states[..]
        else {
            panic!("{states:?}")
        };
        assert!(first >= Duration::from_millis(20) && next - open >= BETWEEN_PAUSES, "{states:?}");
    }
}
