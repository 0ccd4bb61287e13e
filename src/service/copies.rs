//! Keeps copies consistent. For each rule, one worker among all docward processes follows the changes of originals and
//! copies, and corrects stale copies.
//!
//! A worker always writes the *current* value of the original, and checks every write to a copy, also by others. So
//! the result does not depend on the order of events, on duplicate events, or on a stalled worker that resumes late: a
//! check follows the last write to either side.
//!
//! `lease` elects the worker and stores its progress, `follow` reads the changes, `repairer` writes copies with the
//! statements of `statements`, `detach` removes references to deleted originals, [`repair`] checks all copies.

mod detach;
mod follow;
mod id;
mod lease;
pub mod repair;
mod repairer;
mod statements;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bson::{Timestamp, doc};
use mongodb::Client;
use mongodb::error::{Error, ErrorKind};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::MongoService;
use super::mongo::Server;
use crate::patterns::AnyPattern;
use crate::patterns::copies::Copies;
use crate::rules::Mode;
use crate::rules::RuleSet;
use lease::{Candidate, WorkerLease};
use repairer::Repairer;

/// How often the rule set is checked for added or removed rules.
const RULES_INTERVAL: Duration = Duration::from_secs(1);
/// How often a process tries to get a lease that another one holds. Together with the lease's length, this bounds the
/// interruption after a worker is killed.
const LEASE_RETRY: Duration = Duration::from_millis(500);
/// Pause after a server or network error.
const ERROR_RETRY: Duration = Duration::from_secs(1);
/// A standalone may become a replica set, but not within seconds.
const STANDALONE_RETRY: Duration = Duration::from_secs(60);
/// After this time without an error, the same error is logged again.
const LOG_AGAIN: Duration = Duration::from_secs(60);
/// How long releasing the leases may take at shutdown.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a worker stopped.
#[derive(Debug)]
enum Stop {
    /// Another process holds the lease.
    Lost,
    /// The changes since the last resume token are no longer available.
    HistoryLost(String),
    /// A stream ends with its collection; later changes are available from `next` on.
    Ended { stream: usize, next: Timestamp, why: String },
    /// The deployment does not support change streams.
    Standalone,
    /// A server or network error; a retry may help.
    Failed(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        /// CappedPositionLost, InvalidResumeToken, ChangeStreamFatalError, ChangeStreamHistoryLost.
        const HISTORY_LOST: [i32; 4] = [136, 260, 280, 286];
        match &*error.kind {
            ErrorKind::Command(command) if HISTORY_LOST.contains(&command.code) => Self::HistoryLost(error.to_string()),
            kind => Self::Failed(kind.to_string()),
        }
    }
}

/// Keeps the copies of all enforced rules consistent until `shutdown` is ready. It follows reloads of the rule set.
pub async fn keep(service: &MongoService, rules: Arc<ArcSwap<RuleSet>>, shutdown: impl Future<Output = ()>) {
    let mut workers = Workers { server: service.server(), running: HashMap::new() };
    let follow_rules = async {
        let mut known: Option<Arc<RuleSet>> = None;
        loop {
            let current = rules.load_full();
            if known.as_ref().is_none_or(|known| !Arc::ptr_eq(known, &current)) {
                workers.follow(&current).await;
                known = Some(current);
            }
            sleep(RULES_INTERVAL).await;
        }
    };
    tokio::select! {
        () = shutdown => {}
        () = follow_rules => {}
    }
    workers.stop_all().await;
}

/// One task for each rule and its settings.
struct Workers {
    server: Arc<Server>,
    running: HashMap<String, Running>,
}

struct Running {
    /// Dropping it stops the task.
    stop: watch::Sender<()>,
    task: JoinHandle<()>,
}

impl Workers {
    async fn follow(&mut self, rules: &RuleSet) {
        let wanted: HashMap<_, _> = enforced(rules).map(|worker| (worker.label(), worker)).collect();
        let gone: Vec<_> = self.running.keys().filter(|label| !wanted.contains_key(*label)).cloned().collect();
        let gone = gone.iter().filter_map(|label| self.running.remove(label)).collect();
        stop(gone).await;
        for (label, worker) in wanted {
            let server = self.server.clone();
            self.running.entry(label).or_insert_with(|| {
                let (sender, stopped) = watch::channel(());
                Running { stop: sender, task: tokio::spawn(worker.run(server, stopped)) }
            });
        }
    }

    async fn stop_all(mut self) {
        stop(self.running.drain().map(|(_, running)| running).collect()).await;
    }
}

/// Stops workers concurrently, which release their leases.
async fn stop(workers: Vec<Running>) {
    let tasks: Vec<_> = workers.into_iter().map(|Running { stop, task }| (drop(stop), task).1).collect();
    // A lease that is not released expires.
    let _ = timeout(RELEASE_TIMEOUT, futures_util::future::join_all(tasks)).await;
}

fn enforced(rules: &RuleSet) -> impl Iterator<Item = Worker> {
    rules.rules().iter().filter(|rule| rule.mode == Mode::Enforce).filter_map(|rule| match &rule.pattern {
        AnyPattern::Copies(copies) => Some(Worker { rule: rule.name.value.clone(), copies: copies.clone() }),
        _ => None,
    })
}

/// Keeps the copies of one rule consistent while it holds the rule's lease.
struct Worker {
    rule: String,
    copies: Copies,
}

impl Worker {
    /// The lease's label. Other settings give another label: what they copy has not been propagated yet.
    fn label(&self) -> String {
        format!("copies {}: {}", self.rule, self.copies)
    }

    async fn run(self, server: Arc<Server>, mut stopped: watch::Receiver<()>) {
        let candidate = Candidate::new(self.label());
        tokio::select! {
            () = self.work(&server, &candidate) => {}
            // The channel carries no values; only its end completes this.
            _ = stopped.changed() => {}
        }
        if let Ok(client) = server.client() {
            candidate.release(&client).await;
        }
    }

    async fn work(&self, server: &Server, candidate: &Candidate) {
        let rule = &self.rule;
        let mut logged = String::new();
        loop {
            let begun = Instant::now();
            let Err(stop) = self.turn(server, candidate).await;
            if begun.elapsed() > LOG_AGAIN {
                logged.clear();
            }
            let (pause, text) = match stop {
                Stop::Lost => (LEASE_RETRY, String::new()),
                Stop::HistoryLost(text) | Stop::Ended { why: text, .. } => {
                    tracing::warn!(rule, "changes may have been missed; checking all copies: {text}");
                    (Duration::ZERO, String::new())
                }
                Stop::Standalone => {
                    let text = "copies are not kept consistent: change streams need a replica set, and the upstream is \
                                a standalone; start mongod with --replSet, or set the rule to `mode: disabled`";
                    (STANDALONE_RETRY, text.to_owned())
                }
                Stop::Failed(text) => (ERROR_RETRY, format!("keeping copies consistent is interrupted: {text}")),
            };
            // A repeated error is logged once.
            if !text.is_empty() && text != logged {
                tracing::error!(rule, "{text}");
            }
            logged = text;
            sleep(pause).await;
        }
    }

    /// Acquires the lease and works until something stops it.
    async fn turn(&self, server: &Server, candidate: &Candidate) -> Result<std::convert::Infallible, Stop> {
        let client = &server.client().map_err(|error| Stop::Failed(error.to_string()))?;
        require_change_streams(client).await?;
        let lease = candidate.acquire(client).await?;
        tracing::info!(rule = self.rule, fence = lease.fence(), "this process keeps the copies consistent");
        let propagated = async {
            let result = self.propagate(client, &lease).await;
            match &result {
                Err(Stop::HistoryLost(_)) => lease.forget().await?,
                Err(Stop::Ended { stream, next, .. }) => lease.begin_again(*stream, *next).await?,
                _ => {}
            }
            result
        };
        tokio::select! {
            stop = lease.keep() => Err(stop),
            result = propagated => result,
        }
    }

    async fn propagate(&self, client: &Client, lease: &WorkerLease) -> Result<std::convert::Infallible, Stop> {
        let repairer = Repairer { client, copies: &self.copies, rule: &self.rule };
        let collections = follow::watched(&self.copies);
        let mut checked = lease.is_repaired();
        // Changes before these streams begin are found by the check of all copies.
        let mut streams = Vec::with_capacity(collections.len());
        for (number, collection) in collections.iter().enumerate() {
            let token = lease.token(number);
            checked &= token.is_some();
            let stream = follow::Stream::open(&repairer, collection, number, token).await?;
            // A successor must not begin later.
            if let Some(token) = stream.beginning()? {
                lease.store_token(number, token).await?;
            }
            streams.push(stream);
        }
        let check_all = async {
            if !checked {
                let counts = repair::repair(&repairer, false, |_| {}).await?;
                tracing::info!(rule = self.rule, "checked all copies: {counts}");
                lease.mark_repaired().await?;
            }
            Ok(())
        };
        let follow_all = futures_util::future::try_join_all(streams.into_iter().map(|stream| stream.follow(lease)));
        let (followed, ()) = futures_util::future::try_join(follow_all, check_all).await?;
        match followed.into_iter().next() {
            Some(never) => Ok(never),
            None => Err(Stop::Failed("there is nothing to follow".to_owned())),
        }
    }
}

async fn require_change_streams(client: &Client) -> Result<(), Stop> {
    let hello = client.database("admin").run_command(doc! {"hello": 1}).await?;
    let is_router = hello.get_str("msg").is_ok_and(|text| text == "isdbgrid");
    if hello.contains_key("setName") || is_router { Ok(()) } else { Err(Stop::Standalone) }
}
