//! Sends the actions of one recorded connection, in order.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::progress::{Done, Progress};
use super::{Connection, Target, TargetError};
use crate::replay::{Action, Outcome};

/// A connection without actions is closed after this time.
const IDLE: Duration = Duration::from_secs(10);
/// How often a connection is tried for one action, and the pause after the first failure; it doubles each time.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);
/// The replay ends if the target answers nothing for this time and no connection can be opened.
const SILENCE: Duration = Duration::from_secs(30);
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
pub(super) struct Shared {
    pub(super) target: Target,
    pub(super) progress: Progress,
    /// Set if the number of connections is limited.
    pub(super) limited: Option<Limited>,
}

/// Connections that streams take in turn.
#[derive(Debug)]
pub(super) struct Limited {
    permits: Arc<Semaphore>,
    /// Connections that no stream uses, with the application's name that they were opened with.
    idle: Mutex<Vec<(Option<Box<str>>, Connection)>>,
}

impl Limited {
    pub(super) fn to(connections: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(connections)), idle: Mutex::default() }
    }
}

/// One recorded connection.
pub(super) struct Stream {
    shared: Arc<Shared>,
    connection: Option<Connection>,
    permit: Option<OwnedSemaphorePermit>,
    app: Option<Box<str>>,
}

impl Stream {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, connection: None, permit: None, app: None }
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
            self.shared.progress.release(number);
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
        let keeps = action.in_transaction;
        self.take_connection(&action).await;
        let behind = due.map_or(Duration::ZERO, |due| due.elapsed());
        let sent = Instant::now();
        let outcome = self.send(&action, &cursors).await;
        self.shared.progress.done(action, Done { outcome, took: sent.elapsed(), behind });
        if !keeps {
            self.give_back();
        }
    }

    async fn send(&mut self, action: &Action, cursors: &[i64]) -> Option<Outcome> {
        let connection = self.connection.as_mut()?;
        let frame = action.frame(connection.next_id(), cursors);
        let Ok(reply) = connection.exchange(&frame).await else {
            self.connection = None;
            return None;
        };
        let outcome = Outcome::of_reply(&reply);
        let code = outcome.answer.as_ref().and_then(|answer| answer.code);
        if code.is_some_and(|code| NOT_PRIMARY.contains(&code)) {
            self.connection = None;
        }
        Some(outcome)
    }

    /// Leaves `connection` unset if none can be opened.
    async fn take_connection(&mut self, action: &Action) {
        if let Some(limited) = &self.shared.limited
            && self.permit.is_none()
        {
            self.permit = limited.permits.clone().acquire_owned().await.ok();
            let mut idle = limited.idle.lock().unwrap_or_else(PoisonError::into_inner);
            let same = idle.iter().position(|(app, _)| *app == action.app);
            self.connection = same.map(|at| idle.swap_remove(at).1);
            if self.connection.is_none() && idle.len() > limited.permits.available_permits() {
                idle.pop();
            }
        }
        self.app.clone_from(&action.app);
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
                    if self.shared.progress.silence() > SILENCE {
                        let seconds = SILENCE.as_secs();
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

    /// With a limited number of connections another stream may have it now.
    fn give_back(&mut self) {
        let Some(limited) = &self.shared.limited else { return };
        if let Some(connection) = self.connection.take() {
            let mut idle = limited.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.push((self.app.take(), connection));
        }
        self.permit = None;
    }
}
