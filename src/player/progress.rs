//! What the streams of a player share: counts, cursors, and which actions are not answered yet.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};

use crate::replay::{Action, ReplayTally, TargetReply};

/// Shared state. Locks are held for a few instructions.
#[derive(Debug)]
pub(super) struct PlayerProgress {
    state: Mutex<ProgressState>,
    /// The last action of a round was answered.
    idle: Notify,
    /// The outcomes are kept for a comparison.
    keeps_outcomes: bool,
}

#[derive(Debug)]
struct ProgressState {
    tally: ReplayTally,
    /// Actions that were dispatched and not answered, with those that wait for them.
    pending: BTreeMap<u64, Vec<oneshot::Sender<()>>>,
    /// Of these the last ones of streams.
    pending_ends: BTreeSet<u64>,
    /// First actions of streams, which wait until no earlier one of `pending_ends` is left.
    beginning: Vec<(u64, oneshot::Sender<()>)>,
    /// The cursors that the target holds open, by the actions that opened them.
    cursors: HashMap<u64, i64>,
    outcomes: Vec<(Box<Action>, TargetReply)>,
    /// How long earlier rounds took.
    earlier: Duration,
    round: Instant,
    /// The last time the target answered.
    last_reply: Instant,
    failure: Option<String>,
}

/// What is known of an action after its reply.
pub(super) struct FinishedAction {
    pub(super) outcome: Option<TargetReply>,
    /// From sending it to the end of the reply.
    pub(super) took: Duration,
    /// How much later than due it was sent.
    pub(super) behind: Duration,
}

impl PlayerProgress {
    pub(super) fn new(keeps_outcomes: bool) -> Self {
        let now = Instant::now();
        let state = ProgressState {
            tally: ReplayTally::default(),
            pending: BTreeMap::new(),
            pending_ends: BTreeSet::new(),
            beginning: Vec::new(),
            cursors: HashMap::new(),
            outcomes: Vec::new(),
            earlier: Duration::ZERO,
            round: now,
            last_reply: now,
            failure: None,
        };
        Self { state: Mutex::new(state), idle: Notify::new(), keeps_outcomes }
    }

    fn lock(&self) -> MutexGuard<'_, ProgressState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin_round(&self) {
        let mut state = self.lock();
        state.round = Instant::now();
        state.last_reply = state.round;
    }

    pub(super) fn end_round(&self) {
        let mut state = self.lock();
        let took = state.round.elapsed();
        state.earlier += took;
    }

    /// Returns the time played in the rounds that have ended.
    pub(super) fn played(&self) -> Duration {
        self.lock().earlier
    }

    pub(super) fn tally(&self) -> ReplayTally {
        self.lock().tally.clone()
    }

    pub(super) fn take_outcomes(&self) -> Vec<(Box<Action>, TargetReply)> {
        std::mem::take(&mut self.lock().outcomes)
    }

    pub(super) fn dispatch(&self, action: &Action) {
        let mut state = self.lock();
        state.pending.insert(action.number, Vec::new());
        if action.ends_stream {
            state.pending_ends.insert(action.number);
        }
    }

    /// Waits until the streams that ended before this action are answered: a program that is started after another one
    /// has ended relies on its results.
    pub(super) async fn ended_before(&self, action: u64) {
        let waits = {
            let mut state = self.lock();
            let is_free = state.pending_ends.first().is_none_or(|end| *end >= action);
            (!is_free).then(|| {
                let (sender, receiver) = oneshot::channel();
                state.beginning.push((action, sender));
                receiver
            })
        };
        if let Some(waits) = waits {
            // An error means that the player is gone.
            let _ = waits.await;
        }
    }

    /// Waits until an action is answered.
    pub(super) async fn answered(&self, action: u64) {
        let waits = {
            let mut state = self.lock();
            state.pending.get_mut(&action).map(|waiters| {
                let (sender, receiver) = oneshot::channel();
                waiters.push(sender);
                receiver
            })
        };
        if let Some(waits) = waits {
            // An error means that the action is gone, which is an end too.
            let _ = waits.await;
        }
    }

    /// Waits until all dispatched actions are answered, or the replay must end.
    pub(super) async fn all_answered(&self) {
        loop {
            let notified = self.idle.notified();
            {
                let state = self.lock();
                if state.pending.is_empty() || state.failure.is_some() {
                    return;
                }
            }
            notified.await;
        }
    }

    /// The cursors that the target holds open for an action, in the order in which it names them.
    pub(super) fn cursors(&self, action: &Action) -> Vec<i64> {
        let state = self.lock();
        action.cursors.iter().filter_map(|number| state.cursors.get(number).copied()).collect()
    }

    /// Notes that an action was not sent, because its cursor is closed.
    pub(super) fn without_cursor(&self, action: Box<Action>) {
        let mut state = self.lock();
        state.tally.without_cursor += 1;
        if self.keeps_outcomes {
            state.outcomes.push((action, TargetReply::default()));
        }
    }

    /// Notes the reply to an action, or that there is none.
    pub(super) fn done(&self, action: Box<Action>, done: FinishedAction) {
        let mut state = self.lock();
        let FinishedAction { outcome, took, behind } = done;
        match outcome.as_ref().and_then(|outcome| outcome.reply.as_ref()) {
            None => state.tally.without_reply += 1,
            Some(reply) => {
                let elapsed = state.earlier + state.round.elapsed();
                let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
                let elapsed = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
                state.tally.answered(&action, micros(took), elapsed, micros(behind), reply);
                state.last_reply = Instant::now();
                let opener = action.cursors.first().copied().unwrap_or(action.number);
                if reply.cursor != 0 {
                    state.cursors.insert(opener, reply.cursor);
                } else if reply.code.is_none() {
                    action.cursors.iter().for_each(|number| _ = state.cursors.remove(number));
                }
            }
        }
        if self.keeps_outcomes {
            state.outcomes.push((action, outcome.unwrap_or_default()));
        }
    }

    /// The lowest number of the actions that are dispatched and not answered.
    pub(super) fn earliest(&self) -> Option<u64> {
        self.lock().pending.first_key_value().map(|(number, _)| *number)
    }

    /// Releases those that wait for an action. Returns [`Self::earliest`].
    pub(super) fn release(&self, action: u64) -> Option<u64> {
        let mut state = self.lock();
        state.pending.remove(&action);
        if state.pending_ends.remove(&action) {
            let first = state.pending_ends.first().copied().unwrap_or(u64::MAX);
            let (free, waiting) =
                std::mem::take(&mut state.beginning).into_iter().partition(|(number, _)| *number <= first);
            state.beginning = waiting;
            let free: Vec<(u64, oneshot::Sender<()>)> = free;
            free.into_iter().for_each(|(_, sender)| _ = sender.send(()));
        }
        if state.pending.is_empty() {
            self.idle.notify_waiters();
        }
        state.pending.first_key_value().map(|(number, _)| *number)
    }

    /// How long the target has not answered.
    pub(super) fn silence(&self) -> Duration {
        self.lock().last_reply.elapsed()
    }

    /// Ends the replay. Keeps the first reason.
    pub(super) fn fail(&self, reason: String) {
        self.lock().failure.get_or_insert(reason);
        self.idle.notify_waiters();
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }
}
