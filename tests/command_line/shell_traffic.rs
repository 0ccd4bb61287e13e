//! A short version of the workloads of `bench/shell/`: docward keeps the invariants that break without it, with real
//! shells and when their traffic is replayed over many connections. Without rules the replay also breaks them, so the
//! checks can fail.

#[path = "../../bench/compare/canned.rs"]
#[allow(dead_code, reason = "shared with the benchmark")]
mod canned;
#[path = "../../bench/compare/contenders.rs"]
#[allow(dead_code, reason = "shared with the benchmark")]
mod contenders;
#[path = "../../bench/compare/cycle.rs"]
#[allow(dead_code, reason = "shared with the benchmark")]
mod cycle;
#[path = "../../bench/compare/exchange.rs"]
mod exchange;
#[path = "../../bench/frames.rs"]
mod frames;
#[path = "../../bench/compare/load.rs"]
#[allow(dead_code, reason = "shared with the benchmark")]
mod load;
#[path = "../../bench/compare/open_loop.rs"]
mod open_loop;
#[path = "../../bench/compare/shell/mod.rs"]
#[allow(dead_code, reason = "shared with the benchmark")]
mod shell;
#[path = "../../bench/compare/usage.rs"]
#[allow(dead_code, reason = "shared with the benchmark")]
mod usage;

use std::time::Duration;

use contenders::Contender;
use shell::WORKLOADS;
use shell::deployment::Deployment;
use shell::mongosh::{Amount, Broken, Numbers, check, set_up, work};
use shell::replay::{Pace, prepare_all};

const AMOUNT: Amount = Amount { shells: 2, rounds: 30 };
const CONNECTIONS: usize = 8;
/// In a closed loop every connection sends all its messages at least once, however slow the machine is.
const CLOSED: (Pace, Duration) = (Pace::Closed, Duration::from_millis(50));
const OPEN: (Pace, Duration) = (Pace::Open(1_000.0), Duration::from_millis(300));

#[test]
fn docward_keeps_the_invariants_of_shells() {
    let deployment = Deployment::start().unwrap();
    let direct = deployment.mongod.uri();
    work(&direct, AMOUNT, Numbers::Application).unwrap();
    assert_all_broken(&check(&direct).unwrap());

    set_up(&direct).unwrap();
    let protected = deployment.protected();
    let done = work(&protected.uri(), AMOUNT, Numbers::Docward).unwrap();
    assert_none_broken(&check(&direct).unwrap());
    assert!(WORKLOADS.iter().all(|workload| done[*workload].operations > 0));
}

#[test]
fn docward_keeps_the_invariants_of_a_replay() {
    let deployment = Deployment::start().unwrap();
    let replay = |contender: &Contender, (pace, turn)| {
        for mut replay in prepare_all(CONNECTIONS).unwrap() {
            let (measure, _) = replay.run(&deployment, contender, pace, turn).unwrap();
            assert!(!measure.latencies.is_empty(), "{}", replay.workload);
        }
        check(&deployment.mongod.uri()).unwrap()
    };
    let protected = Contender::running(deployment.protected());
    assert_none_broken(&replay(&protected, CLOSED));
    assert_none_broken(&replay(&protected, OPEN));
    let unprotected = Contender::running(deployment.unprotected());
    assert_all_broken(&replay(&unprotected, CLOSED));
}

fn assert_none_broken(broken: &Broken) {
    assert_eq!(broken.len(), WORKLOADS.len());
    assert!(broken.values().flat_map(|counts| counts.values()).all(|count| *count == 0), "{broken:#?}");
}

/// Every workload has a broken invariant.
fn assert_all_broken(broken: &Broken) {
    assert_eq!(broken.len(), WORKLOADS.len());
    assert!(broken.values().all(|counts| counts.values().any(|count| *count > 0)), "{broken:#?}");
}
