//! Sends the actions of one recorded connection, in order.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::limited::ActionSlots;
use super::progress::{FinishedAction, PlayerProgress};
use super::{PlayerConnection, ReplayTarget, TargetError};
use crate::replay::{Action, RuleFields, TargetReply};

/// A connection without actions is closed after this time.
const IDLE: Duration = Duration::from_secs(10);
/// How often a connection is tried for one action, and the pause after the first failure; it doubles each time.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);
/// The replay ends if the target answers nothing for this time and no connection can be opened.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// Codes of a server that is no primary any more.
const NOT_PRIMARY: [i32; 6] = [91, 189, 10107, 11600, 11602, 13435];

/// A dispatched action.
pub(super) struct Dispatched {
    pub(super) action: Box<Action>,
    /// When to send it; `None`: at once.
    pub(super) due: Option<Instant>,
    /// Its share of the memory for actions that wait.
    pub(super) _memory: OwnedSemaphorePermit,
}

/// What all streams of a player use.
#[derive(Debug)]
pub(super) struct StreamContext {
    pub(super) target: ReplayTarget,
    pub(super) progress: PlayerProgress,
    /// Set if the number of connections is limited.
    pub(super) limited: Option<ActionSlots>,
    /// What a comparison does not look at.
    pub(super) fields: RuleFields,
}

/// One recorded connection.
pub(super) struct RecordedStream {
    shared: Arc<StreamContext>,
    connection: Option<PlayerConnection>,
}

impl RecordedStream {
    pub(super) fn new(shared: Arc<StreamContext>) -> Self {
        Self { shared, connection: None }
    }

    /// Sends actions until there are no more.
    pub(super) async fn run(mut self, mut actions: UnboundedReceiver<Dispatched>) {
        loop {
            let next = match timeout(IDLE, actions.recv()).await {
                Ok(next) => next,
                Err(_) => {
                    self.connection = None;
                    actions.recv().await
                }
            };
            let Some(dispatched) = next else { return };
            let number = dispatched.action.number;
            if self.shared.progress.failure().is_none() {
                self.perform(dispatched).await;
            }
            let earliest = self.shared.progress.release(number);
            self.shared.limited.iter().for_each(|limited| limited.advance(earliest));
        }
    }

    async fn perform(&mut self, Dispatched { action, due, _memory }: Dispatched) {
        if let Some(due) = due {
            sleep_until(due).await;
        }
        if action.begins_stream {
            self.shared.progress.ended_before(action.number).await;
        }
        if let Some(earlier) = action.after {
            self.shared.progress.answered(earlier).await;
        }
        let cursors = self.shared.progress.cursors(&action);
        if cursors.is_empty() && !action.cursors.is_empty() {
            self.shared.progress.without_cursor(action);
            return;
        }
        if let Some(limited) = &self.shared.limited {
            self.connection = limited.take(&action, || self.shared.progress.earliest()).await;
        }
        self.connect(&action).await;
        let behind = due.map_or(Duration::ZERO, |due| due.elapsed());
        let sent = Instant::now();
        let outcome = self.send(&action, &cursors).await;
        let took = sent.elapsed();
        if let Some(limited) = &self.shared.limited {
            limited.give_back(&action, self.connection.take());
        }
        self.shared.progress.done(action, FinishedAction { outcome, took, behind });
    }

    async fn send(&mut self, action: &Action, cursors: &[i64]) -> Option<TargetReply> {
        let connection = self.connection.as_mut()?;
        let frame = action.frame(connection.next_id(), cursors);
        let Ok(reply) = connection.exchange(&frame).await else {
            self.connection = None;
            return None;
        };
        let outcome = TargetReply::of_reply(&reply, &self.shared.fields.of_namespace(&action.namespace));
        let code = outcome.reply.as_ref().and_then(|reply| reply.code);
        if code.is_some_and(|code| NOT_PRIMARY.contains(&code)) {
            self.connection = None;
        }
        Some(outcome)
    }

    /// Leaves `connection` unset if none can be opened.
    async fn connect(&mut self, action: &Action) {
        let mut pause = PAUSE;
        for attempt in 1..=TRIES {
            if self.connection.is_some() {
                return;
            }
            match self.shared.target.connect(action.app.as_deref()).await {
                Ok(connection) => self.connection = Some(connection),
                Err(error @ (TargetError::Login(_) | TargetError::Mechanism | TargetError::Upstream(_))) => {
                    return self.shared.progress.fail(error.to_string());
                }
                Err(error) if attempt == TRIES => {
                    if self.shared.progress.silence() > REPLY_TIMEOUT {
                        let seconds = REPLY_TIMEOUT.as_secs();
                        let reason = format!("the target has not answered for {seconds} s: {error}");
                        self.shared.progress.fail(reason);
                    }
                }
                Err(_) => {
                    sleep(pause).await;
                    pause *= 2;
                }
            }
        }
    }
}
