//! Checked histories: for each pattern eight writers send the operations that the pattern protects, through two
//! docward processes with the same rules in front of one replica set, each through one of them, or through both as
//! routers. Meanwhile primaries step down, and docward processes are killed, restarted and reloaded. A checker compares
//! the stored documents with the result of each operation: acknowledged, rejected, or unknown.
//!
//! Each checker must first fail: the same operations without docward must show the anomaly.
//!
//! `DOCWARD_CHAOS_PATTERN` selects a pattern (`queue`) or one workload (`replacement-merge`), `DOCWARD_CHAOS_SECONDS`
//! the length of each history, `DOCWARD_CHAOS_SEED` the order of events and operations.

mod bounds;
mod bucket;
mod copies;
mod everyday;
mod frozen;
mod history;
mod limits;
mod queue;
mod replacement;
mod schema_version;
mod sequence;
mod stage;
mod throttle;
mod timestamps;
mod tree;
mod writer;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bson::{Document, doc};
use mongodb::Database;

use crate::events::Topology;
use crate::journal::Outcome;
use crate::{setting, verify};
use stage::Stage;
use support::driver::all;
use support::process::{TIMEOUT, poll};
use writer::{Operation, Writer};

/// The database that the rules name, and one without rules.
const PROTECTED: &str = "histories";
const BARE: &str = "bare";

/// Half of them write through each docward.
const WRITERS: usize = 8;
/// A writer's pause between two operations.
const PAUSE: Duration = Duration::from_millis(5);
/// The minimum of acknowledged operations for a meaningful result.
const ENOUGH: usize = 50;

/// The number of faults printed per history.
const SHOWN: usize = 20;

/// The operations on the collections of one rule, and the check that the rule's promise holds.
trait Workload: Sync {
    /// The collection of the rule, and the prefix of further collections. It starts with the pattern's name.
    fn name(&self) -> &'static str;

    /// The pattern with its settings, as in a rule. `block` differs from reload to reload.
    fn settings(&self, block: usize) -> String;

    /// Stores the initial documents.
    fn prepare(&self, writer: &mut Writer);

    /// One operation, or several that belong together.
    fn step(&self, writer: &mut Writer);

    /// What one writer does after all events.
    fn finish(&self, _writer: &mut Writer) {}

    /// How long the stored documents may take to become correct after the last write.
    fn settles_within(&self) -> Duration {
        Duration::ZERO
    }

    /// Descriptions of everything that is wrong; empty if the promise holds.
    fn faults(&self, history: &[Operation], stored: &Stored) -> Vec<String>;

    /// Part of the fault text that the same operations cause without docward.
    fn anomaly(&self) -> &'static str;
}

const WORKLOADS: [&dyn Workload; 21] = [
    &replacement::Reject,
    &replacement::Merge,
    &replacement::CheckVersion,
    &timestamps::PerField,
    &timestamps::PerDocument,
    &sequence::Counter,
    &sequence::Optimistic,
    &bounds::Bounds,
    &bounds::Together,
    &frozen::Frozen,
    &limits::Limits,
    &schema_version::SchemaVersion,
    &queue::Queue,
    &bucket::Bucket,
    &copies::Followed,
    &copies::Referenced,
    &tree::Tree,
    &history::History,
    &everyday::Deny,
    &everyday::Defaults,
    &throttle::Throttle,
];

/// The workloads of a pattern, or the one with this name; all if neither is given.
fn chosen() -> Vec<&'static dyn Workload> {
    let wanted = std::env::var("DOCWARD_CHAOS_PATTERN").unwrap_or_default();
    let matches = |name: &str| wanted.is_empty() || name == wanted || name.split('-').next() == Some(&wanted);
    let chosen: Vec<_> = WORKLOADS.into_iter().filter(|workload| matches(workload.name())).collect();
    let names = WORKLOADS.map(|workload| workload.name()).join(", ");
    assert!(!chosen.is_empty(), "DOCWARD_CHAOS_PATTERN={wanted} is no pattern and none of: {names}");
    chosen
}

/// A rule file with one rule for each workload.
fn rules(block: usize) -> String {
    let rule = |workload: &dyn Workload| {
        let (name, settings) = (workload.name(), workload.settings(block));
        format!("  - {{ name: {name}, namespace: {PROTECTED}.{name}, {settings} }}\n")
    };
    format!("version: 1\nrules:\n{}", WORKLOADS.map(rule).concat())
}

/// The collections of a workload, read with majority read concern.
struct Stored(BTreeMap<String, Vec<Document>>);

impl Stored {
    async fn read(database: &Database, workload: &dyn Workload) -> Stored {
        let mut names = database.list_collection_names().await.unwrap();
        names.retain(|name| name.starts_with(workload.name()));
        let mut collections = BTreeMap::new();
        for name in names {
            let documents = all(database, &name).await;
            collections.insert(name, documents);
        }
        Stored(collections)
    }

    fn of(&self, collection: &str) -> &[Document] {
        self.0.get(collection).map_or(&[], Vec::as_slice)
    }
}

/// The result of `verify::written_once` for a history. `found` is how often each token is stored.
fn written_once(history: &[Operation], found: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for token in found {
        *counts.entry(token).or_default() += 1;
    }
    let expected = |operation: &Operation| {
        let outcome = operation.reply.outcome;
        operation.tokens.clone().into_iter().map(move |token| (token, outcome))
    };
    verify::written_once(history.iter().flat_map(expected), counts)
}

/// Runs all writers while `meanwhile` runs, and then until enough operations are acknowledged.
fn at_work(workload: &dyn Workload, writers: Vec<Writer>, meanwhile: impl FnOnce()) -> Vec<Operation> {
    /// Stops the writers even if the thread that waits for them panics.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    let (stopping, acknowledged) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let stop = Stop(&stopping);
        let work = |mut writer: Writer| {
            while !stopping.load(Ordering::Relaxed) {
                let before = writer.history.len();
                workload.step(&mut writer);
                let added = writer.history[before..].iter().filter(|operation| operation.reply.is_acknowledged());
                acknowledged.fetch_add(added.count(), Ordering::Relaxed);
                std::thread::sleep(PAUSE);
            }
            writer.history
        };
        let writers: Vec<_> = writers.into_iter().map(|writer| scope.spawn(move || work(writer))).collect();
        meanwhile();
        let enough = || (acknowledged.load(Ordering::Relaxed) >= ENOUGH).then_some(());
        poll(TIMEOUT, enough).unwrap_or_else(|| panic!("{}: writers do not get on", workload.name()));
        drop(stop);
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    })
}

/// Runs the workload without docward, in short rounds, until its checker finds the anomaly.
fn shows_the_anomaly(workload: &dyn Workload, stage: &Stage) {
    const ROUNDS: u32 = 30;
    let mut last = Vec::new();
    for round in 1..=ROUNDS {
        let database = stage.directly(BARE);
        stage.wait_for(async { database.drop().await.unwrap() });
        let mut writers = stage.direct_writers(BARE, workload.name());
        workload.prepare(&mut writers[0]);
        let history = at_work(workload, writers, || std::thread::sleep(Duration::from_millis(300)));
        last = workload.faults(&history, &stage.wait_for(Stored::read(&database, workload)));
        if let Some(fault) = last.iter().find(|fault| fault.contains(workload.anomaly())) {
            println!("{}: without docward, round {round}: {fault:.200}", workload.name());
            return;
        }
    }
    panic!("{}: {ROUNDS} rounds without docward never show {:?}: {last:#?}", workload.name(), workload.anomaly());
}

/// Runs the workload through both docward processes, with events; returns the faults.
fn checked(workload: &dyn Workload, stage: &mut Stage, duration: Duration) -> Vec<String> {
    let mut writers = stage.writers(PROTECTED, workload.name());
    let mut last = writers.pop().unwrap();
    workload.prepare(&mut writers[0]);
    let started = Instant::now();
    let mut history = at_work(workload, writers, || {
        while started.elapsed() < duration {
            stage.pause();
            stage.next();
        }
    });
    stage.set.await_settled();
    workload.finish(&mut last);
    history.append(&mut last.history);
    print_summary(workload, &history);
    let database = stage.directly(PROTECTED);
    // A new primary may not know yet that a majority has its predecessor's last writes; its own write confirms it.
    stage.wait_for(async { database.collection("settled").insert_one(doc! {}).await.unwrap() });
    let faults = || workload.faults(&history, &stage.wait_for(Stored::read(&database, workload)));
    poll(workload.settles_within(), || faults().is_empty().then_some(())).map_or_else(faults, |()| Vec::new())
}

fn print_summary(workload: &dyn Workload, history: &[Operation]) {
    let mut kinds: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    let mut errors: BTreeMap<String, usize> = BTreeMap::new();
    for Operation { kind, reply, .. } in history {
        kinds.entry(kind).or_default()[reply.outcome as usize] += 1;
        if let Some(error) = reply.error.as_ref().filter(|_| reply.outcome == Outcome::Unknown) {
            *errors.entry(error.chars().take(120).collect()).or_default() += 1;
        }
    }
    for (kind, [acknowledged, rejected, unknown]) in kinds {
        println!(
            "{:20} {kind:12} {acknowledged:6} acknowledged {rejected:6} rejected {unknown:4} unknown",
            workload.name()
        );
    }
    for (error, count) in errors {
        println!("{:20} {count:6} times: {error}", workload.name());
    }
}

#[test]
fn every_pattern_keeps_its_promise() {
    keep_promises(Topology::Members);
}

#[test]
#[ignore = "for make chaos"]
fn every_pattern_keeps_its_promise_behind_two_routers() {
    keep_promises(Topology::Router);
}

fn keep_promises(topology: Topology) {
    let seed = setting("DOCWARD_CHAOS_SEED", 20_261_121);
    let duration = Duration::from_secs(setting("DOCWARD_CHAOS_SECONDS", 1));
    println!("DOCWARD_CHAOS_SEED={seed}");
    let mut chosen = chosen();
    // Each docward gives its own permits, and these writers use both.
    chosen.retain(|workload| topology == Topology::Members || workload.name() != throttle::Throttle.name());
    let mut stage = Stage::start(seed, topology);
    let mut broken = Vec::new();
    for workload in chosen {
        shows_the_anomaly(workload, &stage);
        let faults = checked(workload, &mut stage, duration);
        println!("{}: {} faults after {:?}", workload.name(), faults.len(), stage.take_happened());
        faults.iter().take(SHOWN).for_each(|fault| println!("{}: {fault:.1000}", workload.name()));
        broken.extend((!faults.is_empty()).then(|| workload.name()));
    }
    assert!(broken.is_empty(), "DOCWARD_CHAOS_SEED={seed}: see above what is wrong with {}", broken.join(", "));
}
