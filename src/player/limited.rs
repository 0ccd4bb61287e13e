//! A limited number of connections, which streams take in turn.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::PlayerConnection;
use crate::replay::{Action, SessionId};

/// Gives each action a slot among at most `slots`, the earliest first.
///
/// A transaction keeps its slot between its actions, on any of its streams: other actions may wait in the server
/// for its end, and would take all slots from it. If all slots are kept, the earliest action of all takes one of them,
/// because the transactions may wait for it.
#[derive(Debug)]
pub(super) struct ActionSlots {
    state: Mutex<ActionSlotsState>,
}

#[derive(Debug)]
struct ActionSlotsState {
    slots: usize,
    /// Slots of actions that are being performed.
    used: usize,
    /// Sessions whose transaction keeps a slot.
    kept: BTreeSet<SessionId>,
    /// Actions that wait for a slot, by number.
    waiting: BTreeMap<u64, oneshot::Sender<()>>,
    /// Connections that no stream uses, with the application's name that they were opened with.
    idle: Vec<(Option<Box<str>>, PlayerConnection)>,
}

impl ActionSlots {
    pub(super) fn to(slots: usize) -> Self {
        let state =
            ActionSlotsState { slots, used: 0, kept: BTreeSet::new(), waiting: BTreeMap::new(), idle: Vec::new() };
        Self { state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, ActionSlotsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a slot, and returns an idle connection of the same application if there is one. `earliest`: the
    /// lowest number of the actions that are not answered.
    pub(super) async fn take(
        &self,
        action: &Action,
        earliest: impl FnOnce() -> Option<u64>,
    ) -> Option<PlayerConnection> {
        let waits = self.lock().request(action.number, action.transaction);
        if let Some(waits) = waits {
            self.advance(earliest());
            // An error means that the player is gone.
            let _ = waits.await;
        }
        let mut state = self.lock();
        let same = state.idle.iter().position(|(app, _)| *app == action.app);
        let connection = same.map(|at| state.idle.swap_remove(at).1);
        if connection.is_none() && state.idle.len() + state.used > state.slots {
            state.idle.pop();
        }
        connection
    }

    /// Gives the slot back after an action, unless its transaction keeps it.
    pub(super) fn give_back(&self, action: &Action, connection: Option<PlayerConnection>) {
        let mut state = self.lock();
        state.idle.extend(connection.map(|connection| (action.app.clone(), connection)));
        state.used -= 1;
        match action.transaction.filter(|_| action.in_transaction) {
            Some(session) => _ = state.kept.insert(session),
            None => state.serve(),
        }
    }

    /// Notes which action is now the earliest that is not answered.
    pub(super) fn advance(&self, earliest: Option<u64>) {
        let mut state = self.lock();
        if state.waiting.first_key_value().is_some_and(|(number, _)| Some(*number) == earliest) && state.used == 0 {
            state.kept.pop_first();
            state.serve();
        }
    }
}

impl ActionSlotsState {
    /// Takes a slot, or waits for one.
    fn request(&mut self, number: u64, transaction: Option<SessionId>) -> Option<oneshot::Receiver<()>> {
        let kept = transaction.is_some_and(|session| self.kept.remove(&session));
        if kept || self.used + self.kept.len() < self.slots {
            self.used += 1;
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        self.waiting.insert(number, sender);
        Some(receiver)
    }

    /// Gives free slots to those that wait.
    fn serve(&mut self) {
        while self.used + self.kept.len() < self.slots
            && let Some((_, sender)) = self.waiting.pop_first()
        {
            self.used += 1;
            let _ = sender.send(());
        }
    }
}
