//! Background work that one process among all docward processes does: the *workers* of `copies` and `history`.
//!
//! Each rule with such work is a [`Task`]. One worker at a time holds the task's lease and follows the changes of its
//! collections. [`lease`] elects the worker and stores its progress, [`stream`] reads the changes, [`progress`] is what
//! metrics and the console show. Each task decides what it does with a change.

pub(super) mod lease;
mod progress;
mod stop;
pub(super) mod stream;
mod task;

use std::collections::HashMap;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bson::doc;
use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::MongoService;
use super::background::BackgroundTasks;
use super::client::ServiceClient;
use super::copies::KeepCopies;
use super::history::KeepHistory;
use super::observed_servers::Capabilities;
use super::pattern_work::PatternWork;
use crate::patterns::Requirement;
use crate::rules::Mode;
use crate::rules::RuleSet;
use lease::WorkerCandidate;
pub use progress::{WorkerProgress, WorkerState, WorkerStatus, WorkersShown};
pub(super) use stop::{Stop, raw};
pub(super) use task::{Task, TaskWords, WorkerContext};

/// How often the rule set is checked for added or removed rules.
const RULES_INTERVAL: Duration = Duration::from_secs(1);
/// How often a process tries to get a lease that another one holds. Together with the lease's length, this bounds the
/// interruption after a worker is killed.
const LEASE_RETRY: Duration = Duration::from_millis(500);
/// Pause after a server or network error.
const ERROR_RETRY: Duration = Duration::from_secs(1);
/// A standalone may become a replica set, and a server be upgraded, but not within seconds.
const UNSUPPORTED_RETRY: Duration = Duration::from_secs(60);
/// How often an error that persists is logged.
const LOG_AGAIN: Duration = Duration::from_secs(60);
/// How long releasing the leases may take; at shutdown at most as long as the drain.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The tasks of all enforced rules, and what they need of the server.
fn tasks(rules: &RuleSet) -> impl Iterator<Item = (Box<dyn Task>, Vec<Requirement>)> {
    rules.rules().iter().filter(|rule| rule.mode == Mode::Enforce).filter_map(|rule| {
        let name = rule.name.value.to_string();
        let task: Box<dyn Task> = match PatternWork::for_pattern(&rule.pattern)? {
            PatternWork::Copies(copies) => Box::new(KeepCopies { rule: name, copies: copies.clone() }),
            PatternWork::History(history) => Box::new(KeepHistory { rule: name, history: history.clone() }),
        };
        Some((task, rule.properties.requirements.clone()))
    })
}

/// Works for all enforced rules until `shutdown` is ready, and then ends within `drain_timeout`. It follows reloads of
/// the rule set.
pub async fn run(
    service: &MongoService,
    rules: Arc<ArcSwap<RuleSet>>,
    drain_timeout: Duration,
    shutdown: impl Future<Output = ()>,
) {
    let mut candidates = RuleTasks {
        server: service.server(),
        background: service.background().clone(),
        shown: service.progress().clone(),
        running: HashMap::new(),
    };
    let follow_rules = async {
        let mut known: Option<Arc<RuleSet>> = None;
        loop {
            let current = rules.load_full();
            if known.as_ref().is_none_or(|known| !Arc::ptr_eq(known, &current)) {
                candidates.update(&current).await;
                known = Some(current);
            }
            sleep(RULES_INTERVAL).await;
        }
    };
    tokio::select! {
        () = shutdown => {}
        () = follow_rules => {}
    }
    candidates.stop_all(RELEASE_TIMEOUT.min(drain_timeout)).await;
}

/// One tokio task for each rule and its settings.
struct RuleTasks {
    server: Arc<ServiceClient>,
    background: BackgroundTasks,
    shown: Arc<WorkersShown>,
    /// By label and settings.
    running: HashMap<(String, String), RunningTask>,
}

struct RunningTask {
    /// Dropping it stops the task.
    stop: watch::Sender<()>,
    task: JoinHandle<Option<()>>,
}

impl RuleTasks {
    async fn update(&mut self, rules: &RuleSet) {
        let wanted: HashMap<_, _> =
            tasks(rules).map(|(task, needed)| ((task.label(), task.settings()), (task, needed))).collect();
        let gone: Vec<_> = self.running.keys().filter(|label| !wanted.contains_key(*label)).cloned().collect();
        let gone = gone.iter().filter_map(|label| self.running.remove(label)).collect();
        stop(gone, RELEASE_TIMEOUT).await;
        for (label, (task, requirements)) in wanted {
            self.running.entry(label).or_insert_with(|| {
                let (sender, stopped) = watch::channel(());
                let progress = self.shown.add(task.rule(), task.words().pattern, task.reads_previous_states());
                let worker = ElectedWorker { task, requirements, server: self.server.clone(), progress };
                RunningTask { stop: sender, task: self.background.spawn(worker.run(stopped)) }
            });
        }
    }

    async fn stop_all(mut self, longest: Duration) {
        stop(self.running.drain().map(|(_, running)| running).collect(), longest).await;
    }
}

/// Stops workers concurrently, which release their leases.
async fn stop(workers: Vec<RunningTask>, longest: Duration) {
    let tasks: Vec<_> = workers.into_iter().map(|RunningTask { stop, task }| (drop(stop), task).1).collect();
    // A lease that is not released expires.
    let _ = timeout(longest, futures_util::future::join_all(tasks)).await;
}

/// Does one task while it holds the task's lease.
struct ElectedWorker {
    task: Box<dyn Task>,
    requirements: Vec<Requirement>,
    server: Arc<ServiceClient>,
    progress: Arc<WorkerProgress>,
}

impl ElectedWorker {
    async fn run(self, mut stopped: watch::Receiver<()>) {
        let candidate = WorkerCandidate::new(self.task.label());
        tokio::select! {
            () = self.work_repeatedly(&candidate) => {}
            // The channel carries no values; only its end completes this.
            _ = stopped.changed() => {}
        }
        if let Ok(client) = self.server.client() {
            candidate.release(&client).await;
        }
    }

    async fn work_repeatedly(&self, candidate: &WorkerCandidate) {
        let rule = self.task.rule();
        let words = self.task.words();
        let mut logged: Option<(String, Instant)> = None;
        loop {
            let working = AssertUnwindSafe(self.acquire_and_work(candidate)).catch_unwind().await;
            let Err(stop) = match working {
                Ok(stopped) => stopped,
                // A fault of docward: another process, maybe of another version, may do better.
                Err(_) => {
                    if let Ok(client) = self.server.client() {
                        candidate.release(&client).await;
                    }
                    Err(Stop::Failed("internal error: docward panicked".to_owned()))
                }
            };
            let (pause, text) = match stop {
                Stop::Lost => (LEASE_RETRY, String::new()),
                Stop::Replaced => (Duration::ZERO, String::new()),
                Stop::HistoryLost { why: text, .. } | Stop::Ended { why: text, .. } => {
                    tracing::warn!(rule, "changes may have been missed; {}: {text}", words.after_loss);
                    (Duration::ZERO, String::new())
                }
                Stop::Unsupported(why) => (UNSUPPORTED_RETRY, format!("{}: {why}", words.when_stopped)),
                stop @ (Stop::Driver(_) | Stop::Failed(_)) => {
                    let text = stop.describe(&self.server);
                    (ERROR_RETRY, format!("{} for now: {text}", words.when_stopped))
                }
            };
            self.progress.stopped(&text);
            let is_known = logged.as_ref().is_some_and(|(known, at)| *known == text && at.elapsed() < LOG_AGAIN);
            if !text.is_empty() && !is_known {
                tracing::error!(rule, "{text}");
                logged = Some((text, Instant::now()));
            }
            sleep(pause).await;
        }
    }

    /// Acquires the lease and works until something stops it.
    async fn acquire_and_work(&self, candidate: &WorkerCandidate) -> Result<Infallible, Stop> {
        let mut replacements = self.server.replacements();
        let client = &self.server.client().map_err(|error| Stop::Failed(error.to_string()))?;
        let hello = client.database("admin").run_command(doc! {"hello": 1}).await?;
        if let Some((why, help)) = Capabilities::from_hello(&hello).lacks_any(&self.requirements) {
            return Err(Stop::Unsupported(format!("the rule {why}; {help}")));
        }
        let lease = &candidate.acquire(client).await?;
        if self.progress.started(lease.server_time()) {
            let does = self.task.words().when_running;
            tracing::info!(rule = self.task.rule(), fence = lease.fence(), "worker started: {does}");
        }
        let worked = async {
            let result = self.task.work(WorkerContext { client, lease, progress: &self.progress }).await;
            match &result {
                Err(Stop::HistoryLost { stream, .. }) => lease.forget(*stream).await?,
                Err(Stop::Ended { stream, next, .. }) => lease.begin_again(*stream, *next).await?,
                _ => {}
            }
            result
        };
        tokio::select! {
            stop = lease.keep() => Err(stop),
            _ = replacements.changed() => Err(Stop::Replaced),
            result = worked => result,
        }
    }
}
