//! Plays actions to one target.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::limited::ActionSlots;
use super::progress::PlayerProgress;
use super::stream::{Dispatched, RecordedStream, StreamContext};
use super::{ReplayTarget, TargetError};
use crate::command::Reply;
use crate::replay::{Action, ReplayTally, RuleFields, Speed, TargetReply};

/// KiB of actions that wait to be sent.
const MEMORY: usize = 64 << 10;
/// Sessions that one command ends.
const SESSIONS: usize = 5_000;
/// Bound on ending the sessions: the replay is complete before.
const SESSION_END_TIMEOUT: Duration = Duration::from_secs(10);

/// How a player sends actions.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    pub speed: Speed,
    /// The most connections in use at a time; `None`: one for each recorded connection.
    pub connections: Option<usize>,
}

/// What has been played so far.
#[derive(Debug, Clone)]
pub struct PlayedSoFar {
    pub tally: ReplayTally,
    pub seconds: f64,
}

/// Reads the counts of a player while it plays.
#[derive(Debug, Clone)]
pub struct Watch(Arc<StreamContext>);

impl Watch {
    /// Returns the counts so far.
    #[must_use]
    pub fn tally(&self) -> ReplayTally {
        self.0.progress.tally()
    }
}

/// Plays actions to one target, in rounds.
#[derive(Debug)]
pub struct Player {
    shared: Arc<StreamContext>,
    streams: HashMap<u64, UnboundedSender<Dispatched>>,
    tasks: JoinSet<()>,
    pace: Pace,
    memory: Arc<Semaphore>,
    /// The time of the round's first action, and when the round began.
    round: Option<(i64, Instant)>,
}

impl Player {
    /// Opens and closes a connection, to see that the target can be used. With `compared`, the outcomes
    /// are kept for a comparison that does not look at these fields.
    ///
    /// # Errors
    /// [`TargetError`]: the target cannot be used.
    pub async fn start(target: ReplayTarget, pace: Pace, compared: Option<RuleFields>) -> Result<Self, TargetError> {
        target.connect(None).await?;
        let limited = pace.connections.map(ActionSlots::to);
        let progress = PlayerProgress::new(compared.is_some());
        let fields = compared.unwrap_or_default();
        let shared = Arc::new(StreamContext { target, progress, limited, fields });
        let memory = Arc::new(Semaphore::new(MEMORY));
        Ok(Self { shared, streams: HashMap::new(), tasks: JoinSet::new(), pace, memory, round: None })
    }

    #[must_use]
    pub fn watch(&self) -> Watch {
        Watch(self.shared.clone())
    }

    /// Returns the target.
    #[must_use]
    pub fn target(&self) -> &ReplayTarget {
        &self.shared.target
    }

    /// Begins a round: time starts again with its first action.
    pub fn begin_round(&mut self) {
        self.round = None;
        self.shared.progress.begin_round();
    }

    /// Dispatches an action. Waits if too many wait to be sent. Actions must come in the order of their recording.
    pub async fn dispatch(&mut self, action: Box<Action>) {
        let kib = action.command().as_bytes().len() / 1024 + 1;
        let permits = u32::try_from(kib.min(MEMORY)).unwrap_or(u32::MAX);
        let Ok(memory) = self.memory.clone().acquire_many_owned(permits).await else { return };
        let (first, began) = *self.round.get_or_insert_with(|| (action.milliseconds, Instant::now()));
        let due = self.pace.speed.due(action.milliseconds.saturating_sub(first)).and_then(|due| began.checked_add(due));
        self.shared.progress.dispatch(&action);
        let stream = self.streams.entry(action.stream).or_insert_with(|| {
            let (sender, receiver) = unbounded_channel();
            self.tasks.spawn(RecordedStream::new(self.shared.clone()).run(receiver));
            sender
        });
        // An error would mean that the stream has failed, which is only possible in a panic.
        let _ = stream.send(Dispatched { action, due, _memory: memory });
    }

    /// Waits until all dispatched actions are answered. Returns the outcomes, if they are kept.
    pub async fn end_round(&mut self) -> Vec<(Box<Action>, TargetReply)> {
        self.shared.progress.all_answered().await;
        self.shared.progress.end_round();
        self.shared.progress.take_outcomes()
    }

    /// Returns why the replay must end, if it must.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.shared.progress.failure()
    }

    /// Returns what has been played so far. The time is that of the rounds that have ended.
    #[must_use]
    pub fn played(&self) -> PlayedSoFar {
        let progress = &self.shared.progress;
        PlayedSoFar { tally: progress.tally(), seconds: progress.played().as_secs_f64() }
    }

    /// Kills the sessions of the replay, which closes its cursors and aborts its transactions.
    pub async fn finish(&mut self, sessions: Vec<[u8; 16]>) {
        self.streams.clear();
        let ending = async {
            while self.tasks.join_next().await.is_some() {}
            let Ok(mut connection) = self.shared.target.connect(None).await else { return };
            for part in sessions.chunks(SESSIONS) {
                let reply = connection.command("admin", |w| {
                    w.array("killSessions", |a| {
                        part.iter().for_each(|id| a.nested(|w| w.slot("id").uuid(*id)));
                    });
                });
                let ended = reply.await.is_ok_and(|reply| Reply::parse(&reply).is_ok_and(|reply| reply.is_ok()));
                if !ended {
                    return;
                }
            }
        };
        // The server ends them itself after half an hour.
        let _ = timeout(SESSION_END_TIMEOUT, ending).await;
    }
}
