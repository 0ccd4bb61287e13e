//! A replica set of three members with two docward processes in front of it, and the events while writers work.

use std::collections::BTreeMap;
use std::time::Duration;

use mongodb::options::{ClientOptions, ReadConcern, WriteConcern};
use mongodb::{Client, Database};
use tokio::runtime::Runtime;

use super::writer::Writer;
use super::{WRITERS, rules};
use crate::events::{Topology, await_another, lasting_port, reload};
use support::proxy::Docward;
use support::random::Random;
use support::replica_set::ReplicaSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    StepDown,
    /// SIGKILL of one docward, and a restart up to a second later.
    KillDocward,
    /// SIGHUP.
    Reload,
    /// A change of one docward's rule file, so that for a moment the two processes have different rules.
    ChangeRules,
    /// A rule file that cannot be loaded, and then one that can.
    BreakRules,
}

/// The events that a seed shuffles repeatedly, so that every kind occurs.
const ROUND: [Event; 6] =
    [Event::KillDocward, Event::StepDown, Event::KillDocward, Event::Reload, Event::ChangeRules, Event::BreakRules];

/// One of the two docward processes. It restarts at the same address.
struct Side {
    docward: Docward,
    listen: String,
    /// A client for each of its writers.
    clients: Vec<Client>,
}

pub(super) struct Stage {
    pub(super) set: ReplicaSet,
    topology: Topology,
    sides: Vec<Side>,
    direct: Client,
    runtime: Runtime,
    seed: u64,
    random: Random,
    round: Vec<Event>,
    /// A value that makes each rule file different.
    block: usize,
    happened: BTreeMap<Event, usize>,
}

impl Stage {
    pub(super) fn start(seed: u64, topology: Topology) -> Stage {
        let set = ReplicaSet::start(3);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let docwards = [(); 2].map(|()| {
            let listen = format!("127.0.0.1:{}", lasting_port());
            (start(&set, topology, &listen, 1), listen)
        });
        // Each writer of routers uses both.
        let routers = docwards.each_ref().map(|(docward, _)| docward.address()).join(",");
        let uri = |docward: &Docward| match topology {
            Topology::Members => format!("mongodb://{}/?replicaSet=rs0", docward.addresses().join(",")),
            Topology::Router => format!("mongodb://{routers}/"),
        };
        let clients = |uri: &str| (0..WRITERS / 2).map(|_| runtime.block_on(client(uri))).collect();
        let side = |(docward, listen)| Side { clients: clients(&uri(&docward)), docward, listen };
        let sides = docwards.map(side).into();
        let direct = runtime.block_on(client(&set.uri()));
        let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Stage {
            set,
            topology,
            sides,
            direct,
            runtime,
            seed,
            random,
            round: Vec::new(),
            block: 1,
            happened: BTreeMap::new(),
        }
    }

    /// Writers that alternate between the two docward processes, and one for the time after the events.
    pub(super) fn writers(&self, database: &str, name: &'static str) -> Vec<Writer> {
        let client = |number: usize| &self.sides[number % 2].clients[number / 2 % (WRITERS / 2)];
        (0..=WRITERS).map(|number| self.writer(number, client(number).database(database), name, true)).collect()
    }

    /// Writers that connect directly to the replica set.
    pub(super) fn direct_writers(&self, database: &str, name: &'static str) -> Vec<Writer> {
        (0..WRITERS).map(|number| self.writer(number, self.directly(database), name, false)).collect()
    }

    fn writer(&self, number: usize, database: Database, name: &'static str, is_protected: bool) -> Writer {
        Writer::new(number, database, name, self.runtime.handle().clone(), self.seed, is_protected)
    }

    /// A database, accessed without docward.
    pub(super) fn directly(&self, database: &str) -> Database {
        self.direct.database(database)
    }

    pub(super) fn wait_for<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Waits for some time without an event.
    pub(super) fn pause(&mut self) {
        std::thread::sleep(Duration::from_millis(200 + self.random.below(800) as u64));
    }

    /// Runs the next event, which is over when this returns.
    pub(super) fn next(&mut self) {
        if self.round.is_empty() {
            self.round = ROUND.to_vec();
        }
        let chosen = self.random.below(self.round.len());
        let event = self.round.swap_remove(chosen);
        self.carry_out(event);
        *self.happened.entry(event).or_default() += 1;
    }

    fn carry_out(&mut self, event: Event) {
        self.block += 1;
        let (block, delay) = (self.block, self.random.below(1000) as u64);
        let chosen = self.random.below(self.sides.len());
        let side = &mut self.sides[chosen];
        match event {
            Event::StepDown => drop(self.set.step_down()),
            Event::KillDocward => {
                side.docward.kill();
                std::thread::sleep(Duration::from_millis(delay));
                side.docward = start(&self.set, self.topology, &side.listen, block);
            }
            Event::Reload => reload(&side.docward, |docward| docward.signal("HUP")),
            Event::ChangeRules => reload(&side.docward, |docward| docward.rewrite_rules(&rules(block))),
            Event::BreakRules => {
                await_another(&side.docward, "stay in force", |docward| docward.rewrite_rules("rules: 7\n"));
                std::thread::sleep(Duration::from_millis(delay));
                reload(&side.docward, |docward| docward.rewrite_rules(&rules(block)));
            }
        }
    }

    /// The events since the last call, with their counts.
    pub(super) fn take_happened(&mut self) -> BTreeMap<Event, usize> {
        std::mem::take(&mut self.happened)
    }
}

fn start(set: &ReplicaSet, topology: Topology, listen: &str, block: usize) -> Docward {
    topology.before(set, &rules(block)).listen(listen).start()
}

async fn client(uri: &str) -> Client {
    let mut options = ClientOptions::parse(uri).await.unwrap();
    options.write_concern = Some(WriteConcern::majority());
    options.read_concern = Some(ReadConcern::majority());
    options.server_selection_timeout = Some(Duration::from_secs(60));
    options.connect_timeout = Some(Duration::from_secs(3));
    options.heartbeat_freq = Some(Duration::from_millis(500));
    Client::with_options(options).unwrap()
}
