//! Failures of members and docward while clients work, in an order that a seed decides. Each event is over when its
//! method returns. Has no dependency on the workload.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::workload::rules;
use support::process::{TIMEOUT, poll};
use support::proxy::{Builder, Docward};
use support::random::Random;
use support::replica_set::ReplicaSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    StepDown,
    /// SIGSTOP, and SIGCONT after the others have elected another primary.
    StopMember,
    /// SIGKILL, and a restart some time later.
    KillMember,
    AddMember,
    RemoveMember,
    /// SIGHUP.
    Reload,
    /// A change of the rule file.
    ChangeRules,
    HandOver,
    /// SIGKILL, and a restart.
    KillDocward,
}

/// The events that a seed shuffles repeatedly, so that every kind occurs.
const ROUND: [Event; 8] = [
    Event::StepDown,
    Event::StopMember,
    Event::KillMember,
    Event::AddMember,
    Event::Reload,
    Event::ChangeRules,
    Event::HandOver,
    Event::KillDocward,
];

/// A replica set of three or four members, and docward in front of it.
pub(crate) struct Stage {
    pub(crate) set: ReplicaSet,
    pub(crate) docward: Docward,
    /// Earlier docward processes, which have ended.
    before: Vec<Docward>,
    /// The events so far, with their counts.
    pub(crate) happened: BTreeMap<Event, usize>,
    listen: String,
    folder: TempDir,
    members: Vec<usize>,
    random: Random,
    round: Vec<Event>,
    topology: Topology,
}

/// What clients see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    Members,
    Router,
}

impl Topology {
    /// Builds a docward before the set; the caller sets its address.
    pub(crate) fn before(self, set: &ReplicaSet, rules: &str) -> Builder {
        match self {
            Topology::Members => docward(set, rules),
            Topology::Router => router(set, rules),
        }
    }

    /// The connection string for the first listeners of docward.
    pub(crate) fn uri(self, docward: &Docward, options: &str) -> String {
        let set = if self == Topology::Members { "replicaSet=rs0&" } else { "" };
        format!("mongodb://{}/?{set}{options}", docward.addresses().join(","))
    }
}

impl Stage {
    pub(crate) fn set(seed: u64, topology: Topology) -> Stage {
        let set = ReplicaSet::start(3);
        let folder = tempfile::tempdir().unwrap();
        let listen = format!("127.0.0.1:{}", lasting_port());
        let docward = start(&set, topology, &listen, &hand_over_path(&folder), 1);
        Stage {
            before: Vec::new(),
            happened: BTreeMap::new(),
            members: vec![0, 1, 2],
            random: Random(seed),
            round: Vec::new(),
            set,
            docward,
            listen,
            folder,
            topology,
        }
    }

    /// Runs the next event, and returns its name.
    pub(crate) fn next(&mut self) -> Event {
        if self.round.is_empty() {
            self.round = ROUND.to_vec();
        }
        let chosen = self.random.below(self.round.len());
        let event = match self.round.swap_remove(chosen) {
            Event::AddMember if self.members.len() > 3 => Event::RemoveMember,
            event => event,
        };
        let started = Instant::now();
        self.carry_out(event);
        *self.happened.entry(event).or_default() += 1;
        println!(
            "{event:?} took {:.1?}; docward is {}, members are {:?}",
            started.elapsed(),
            self.docward.pid(),
            self.members
        );
        event
    }

    fn carry_out(&mut self, event: Event) {
        match event {
            Event::StepDown => drop(self.set.step_down()),
            Event::StopMember => self.stop_member(),
            Event::KillMember => self.kill_member(),
            Event::AddMember => {
                let added = self.set.add();
                self.members.push(added);
            }
            Event::RemoveMember => self.remove_member(),
            Event::Reload => reload(&self.docward, |docward| docward.signal("HUP")),
            Event::ChangeRules => {
                let changed = rules(1 + self.random.below(1000));
                reload(&self.docward, |docward| docward.rewrite_rules(&changed));
            }
            Event::HandOver => {
                let next = self.start();
                self.docward_is(next).wait();
            }
            Event::KillDocward => {
                self.docward.kill();
                let next = self.start();
                self.docward_is(next);
            }
        }
    }

    /// The primary half of the time, else any member.
    fn victim(&mut self) -> usize {
        let primary = self.set.await_primary();
        if self.random.below(2) == 0 { primary } else { self.members[self.random.below(self.members.len())] }
    }

    fn stop_member(&mut self) {
        let victim = self.victim();
        self.set.stop(victim);
        std::thread::sleep(Duration::from_millis(3000 + self.random.below(3000) as u64));
        // Another primary, if it was the primary.
        self.set.await_primary();
        self.set.go_on(victim);
        self.set.await_settled();
    }

    fn kill_member(&mut self) {
        let victim = self.victim();
        self.set.kill(victim);
        std::thread::sleep(Duration::from_millis(self.random.below(3000) as u64));
        self.set.restart(victim);
    }

    fn remove_member(&mut self) {
        let primary = self.set.await_primary();
        let others: Vec<usize> = self.members.iter().copied().filter(|member| *member != primary).collect();
        let removed = others[self.random.below(others.len())];
        self.set.remove(removed);
        self.members.retain(|member| *member != removed);
        self.set.kill(removed);
    }

    /// Starts a docward that replaces the running or the last one.
    fn start(&mut self) -> Docward {
        let block = 1 + self.random.below(7);
        start(&self.set, self.topology, &self.listen, &hand_over_path(&self.folder), block)
    }

    /// Stores the new docward, and returns the previous one.
    fn docward_is(&mut self, next: Docward) -> &mut Docward {
        self.before.push(std::mem::replace(&mut self.docward, next));
        self.before.last_mut().unwrap()
    }

    /// The logs of all docward processes.
    pub(crate) fn log(&self) -> Vec<String> {
        self.before.iter().chain([&self.docward]).flat_map(Docward::log).collect()
    }
}

/// Makes docward load its rules, and waits for its log line.
pub(crate) fn reload(docward: &Docward, cause: impl FnOnce(&Docward)) {
    await_another(docward, "rules loaded", cause);
}

/// Waits until docward has logged one more line with `words` than before `cause`.
pub(crate) fn await_another(docward: &Docward, words: &str, cause: impl FnOnce(&Docward)) {
    let count = || docward.log().iter().filter(|line| line.contains(words)).count();
    let before = count();
    cause(docward);
    poll(TIMEOUT, || (count() > before).then_some(())).unwrap_or_else(|| panic!("docward did not log {words:?}"));
}

/// A port, followed by eleven more, that stay free while docward is dead, because they are below the range for
/// outgoing connections. Each call returns another one.
pub(crate) fn lasting_port() -> u16 {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let begin = (std::process::id() % 1000) as u16;
    let candidates = std::iter::repeat_with(|| 20_000 + (begin + GIVEN.fetch_add(1, Ordering::Relaxed)) % 1000 * 12);
    let mut candidates = candidates.take(1000);
    candidates.find(|port| (*port..port + 12).all(is_free)).expect("no twelve free ports in a row")
}

fn hand_over_path(folder: &TempDir) -> PathBuf {
    folder.path().join("docward.sock")
}

fn start(set: &ReplicaSet, topology: Topology, listen: &str, hand_over: &std::path::Path, block: usize) -> Docward {
    topology
        .before(set, &rules(block))
        .listen(listen)
        .argument("--hand-over")
        .argument(hand_over.to_str().unwrap())
        .environment("RUST_LOG", "info,docward_proxy::proxy::listening::admission=debug")
        .start()
}

/// Builds a docward that shows the set as one server.
pub(crate) fn router(set: &ReplicaSet, rules: &str) -> Builder {
    Docward::before(&set.uri()).rules(rules).argument("--topology").argument("router").without_test_pool()
}

/// Builds a docward in front of three or more members; the caller sets its address.
pub(crate) fn docward(set: &ReplicaSet, rules: &str) -> Builder {
    Docward::before(&set.uri()).rules(rules).listeners(3)
}
