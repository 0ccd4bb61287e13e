//! Drivers work in front of docward and a replica set of three while failures hit both. Afterwards the stored
//! documents are compared with the results that the drivers got.
//!
//! `make test` runs a short version of `no_acknowledged_write_is_lost_or_repeated_under_failures`; `make chaos` runs
//! the long one, and the measurements that are ignored here. `DOCWARD_CHAOS_EVENTS` sets the number of events,
//! `DOCWARD_CHAOS_SEED` their order. `histories` checks each pattern separately.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod endurance;
mod events;
mod failover;
mod histories;
mod journal;
mod pymongo;
mod side_by_side;
mod sockets;
mod verify;
mod workload;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use events::{Stage, Topology};
use journal::Journal;
use mongodb::Client;
use pymongo::Pymongo;
use support::process::{TIMEOUT, poll};
use workload::Workload;

/// A number from the environment.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// How long after an event each driver may need for ten more acknowledged writes.
const RECOVERY: Duration = TIMEOUT;

fn recovery_time(journals: [&Journal; 2]) -> Duration {
    let started = Instant::now();
    let before = journals.map(Journal::acknowledged);
    let enough = || journals.iter().zip(before).all(|(journal, before)| journal.acknowledged() >= before + 10);
    poll(RECOVERY, || enough().then_some(())).unwrap_or_else(|| panic!("clients do not recover: {before:?}"));
    started.elapsed()
}

#[test]
fn no_acknowledged_write_is_lost_or_repeated_under_failures() {
    work_under_failures(Topology::Members);
}

#[test]
#[ignore = "for make chaos; the protocol tests have the short version"]
fn no_acknowledged_write_is_lost_or_repeated_behind_a_router() {
    work_under_failures(Topology::Router);
}

fn work_under_failures(topology: Topology) {
    let seed = setting("DOCWARD_CHAOS_SEED", 20_261_121);
    let mut stage = Stage::set(seed, topology);
    let options = "w=majority&serverSelectionTimeoutMS=60000&connectTimeoutMS=3000&heartbeatFrequencyMS=1000";
    let uri = topology.uri(&stage.docward, options);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = Client::with_uri_str(&uri).await.unwrap();
        workload::prepare(&client.database("chaos")).await.unwrap();
    });
    let mut pymongo = Pymongo::start(&uri, Duration::from_millis(30));
    let workload = Workload::start(&uri, Duration::from_millis(30));
    let journals = [&workload.journal.clone(), &pymongo.journal.clone()];
    recovery_time(journals);
    let started = Instant::now();
    let events = setting("DOCWARD_CHAOS_EVENTS", 8);
    for number in 1..=events {
        let event = stage.next();
        let recovery = recovery_time(journals);
        println!("{number}/{events} {event:?}: clients recovered after {recovery:.1?}");
    }
    println!("seed {seed}: {:?} in {:.0?}", stage.happened, started.elapsed());
    let addresses = Arc::clone(&workload.addresses);
    workload.end();
    pymongo.end();
    journals.iter().for_each(|journal| journal.print_summary());

    stage.set.await_settled();
    let found = runtime.block_on(async {
        let database = stage.set.client().await.database("chaos");
        verify::faults(&database, &journals).await
    });
    assert!(found.is_empty(), "{found:#?}");
    let seen: BTreeSet<String> = addresses.lock().unwrap().iter().cloned().chain(pymongo.addresses()).collect();
    match topology {
        Topology::Members => sockets::assert_no_driver_came_directly(stage.set.members(), &seen, &stage.log()),
        Topology::Router => assert_eq!(seen, stage.docward.addresses().iter().cloned().collect()),
    }
}
