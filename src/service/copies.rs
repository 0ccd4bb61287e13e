//! Keeps copies true: for each rule one worker among all docward processes follows the changes of originals
//! and copies, and writes what differs.
//!
//! Everything that is written is what the original says *now*, and every write to a copy is looked at again,
//! whoever made it. So nothing depends on the order of events, on whether one comes twice, or on a stalled
//! worker that wakes up late: the last write to either side is always followed by a check that sees it.
//!
//! `lease` elects the worker and remembers how far it came, `follow` reads the changes, `repair` writes copies by
//! the statements of `statements`, `detach` removes references to deleted originals, [`repair`] goes through all
//! copies.

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
use crate::patterns::copies::Copies;
use crate::patterns::{Pattern, RuleSet};
use crate::rules::Mode;
use lease::{Candidate, Lease};
use repairer::Repairer;

/// How often the rule set is looked at for rules that came or went.
const RULES_AGAIN: Duration = Duration::from_secs(1);
/// How often a process asks for a lease that another one holds: with the lease's length, what a killed
/// worker costs.
const LEASE_AGAIN: Duration = Duration::from_millis(500);
/// Pause after an error of the server or the network.
const ERROR_AGAIN: Duration = Duration::from_secs(1);
/// A standalone may become a replica set, but not within seconds.
const STANDALONE_AGAIN: Duration = Duration::from_secs(60);
/// After so much time without trouble the same trouble is news again.
const TELL_AGAIN: Duration = Duration::from_secs(60);
/// How long leases may take to be given back when docward shuts down.
const RELEASE: Duration = Duration::from_secs(2);

/// Why a worker's turn ended.
#[derive(Debug)]
enum Stop {
    /// Another process has the lease, or has taken it over.
    Lost,
    /// The changes since the last token cannot be had any more.
    HistoryLost(String),
    /// A stream ends with its collection; the changes after that can be had from this time on.
    Ended { stream: usize, next: Timestamp, why: String },
    /// The deployment has no change streams.
    Standalone,
    /// The server or the network; trying again may help.
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

/// Keeps the copies of all enforced rules true until `shutdown` is ready; follows the rule set when it is
/// swapped.
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
            sleep(RULES_AGAIN).await;
        }
    };
    tokio::select! {
        () = shutdown => {}
        () = follow_rules => {}
    }
    workers.stop_all().await;
}

/// One task for each rule, by rule and settings.
struct Workers {
    server: Arc<Server>,
    running: HashMap<String, Running>,
}

struct Running {
    /// Dropped, it stops the task.
    leash: watch::Sender<()>,
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
                let (leash, stopped) = watch::channel(());
                Running { leash, task: tokio::spawn(worker.run(server, stopped)) }
            });
        }
    }

    async fn stop_all(mut self) {
        stop(self.running.drain().map(|(_, running)| running).collect()).await;
    }
}

/// Lets workers give their leases back, all at the same time.
async fn stop(workers: Vec<Running>) {
    let tasks: Vec<_> = workers.into_iter().map(|Running { leash, task }| (drop(leash), task).1).collect();
    // A lease that is not given back runs out by itself.
    let _ = timeout(RELEASE, futures_util::future::join_all(tasks)).await;
}

fn enforced(rules: &RuleSet) -> impl Iterator<Item = Worker> {
    rules.rules().iter().filter(|rule| rule.mode == Mode::Enforce).filter_map(|rule| match &rule.pattern {
        Pattern::Copies(copies) => Some(Worker { rule: rule.name.value.clone(), copies: copies.clone() }),
        _ => None,
    })
}

/// Keeps one rule's copies true while it holds the rule's lease.
struct Worker {
    rule: String,
    copies: Copies,
}

impl Worker {
    /// Names the lease. Other settings are another label: what they copy has not been propagated yet.
    fn label(&self) -> String {
        format!("copies {}: {}", self.rule, self.copies)
    }

    async fn run(self, server: Arc<Server>, mut stopped: watch::Receiver<()>) {
        let candidate = Candidate::new(self.label());
        tokio::select! {
            () = self.work(&server, &candidate) => {}
            // Only the end of the channel is ever heard.
            _ = stopped.changed() => {}
        }
        if let Ok(client) = server.client() {
            candidate.release(&client).await;
        }
    }

    async fn work(&self, server: &Server, candidate: &Candidate) {
        let rule = &self.rule;
        let mut told = String::new();
        loop {
            let begun = Instant::now();
            let Err(stop) = self.turn(server, candidate).await;
            if begun.elapsed() > TELL_AGAIN {
                told.clear();
            }
            let (pause, text) = match stop {
                Stop::Lost => (LEASE_AGAIN, String::new()),
                Stop::HistoryLost(text) | Stop::Ended { why: text, .. } => {
                    tracing::warn!(rule, "changes may have been missed; all copies are checked: {text}");
                    (Duration::ZERO, String::new())
                }
                Stop::Standalone => {
                    let text = "copies are not kept true: change streams need a replica set, and the upstream is \
                                a standalone; start mongod with --replSet, or set the rule to `mode: disabled`";
                    (STANDALONE_AGAIN, text.to_owned())
                }
                Stop::Failed(text) => (ERROR_AGAIN, format!("keeping copies true is interrupted: {text}")),
            };
            // The same trouble every second is told once.
            if !text.is_empty() && text != told {
                tracing::error!(rule, "{text}");
            }
            told = text;
            sleep(pause).await;
        }
    }

    /// Once the lease is held, this goes on until something stops it.
    async fn turn(&self, server: &Server, candidate: &Candidate) -> Result<std::convert::Infallible, Stop> {
        let client = &server.client().map_err(|error| Stop::Failed(error.to_string()))?;
        require_change_streams(client).await?;
        let lease = candidate.acquire(client).await?;
        tracing::info!(rule = self.rule, fence = lease.fence(), "this process keeps the copies true");
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

    async fn propagate(&self, client: &Client, lease: &Lease) -> Result<std::convert::Infallible, Stop> {
        let repairer = Repairer { client, copies: &self.copies, rule: &self.rule };
        let collections = follow::watched(&self.copies);
        let mut checked = lease.is_repaired();
        // What is not in these streams is from before them, and found by the repair.
        let mut streams = Vec::with_capacity(collections.len());
        for (number, collection) in collections.iter().enumerate() {
            let token = lease.token(number);
            checked &= token.is_some();
            let stream = follow::Stream::open(&repairer, collection, number, token).await?;
            // Whoever goes on must not begin later.
            if let Some(token) = stream.beginning()? {
                lease.store_token(number, token).await?;
            }
            streams.push(stream);
        }
        let check_all = async {
            if !checked {
                let counts = repair::repair(&repairer, false, |_| {}).await?;
                tracing::info!(rule = self.rule, "all copies were checked: {counts}");
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
