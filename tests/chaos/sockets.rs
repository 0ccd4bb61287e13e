//! Who connects to the members: their logs name the port that each driver's connection came from, and this watches
//! which process has which port. Knows nothing of docward but its process numbers.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::support::mongod::Mongod;
use crate::support::process::{Connection, connections};
use crate::verify::driver_ports;

/// Looks at sockets again and again until it is dropped.
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Seen>>,
}

#[derive(Default)]
struct Seen {
    docward: BTreeSet<Connection>,
    /// pymongo's only: the process of the Rust driver's workers also asks members for the tests' sake, and the system
    /// gives a port to one connection after another.
    pymongo: BTreeSet<Connection>,
}

impl Watch {
    /// `docwards` are all of docward's processes so far.
    pub(crate) fn start(docwards: Arc<Mutex<Vec<u32>>>, pymongo: u32) -> Watch {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut seen = Seen::default();
            while !stopped.load(Ordering::Relaxed) {
                let docwards = docwards.lock().unwrap().clone();
                // The last two: during a hand-over both live.
                for pid in docwards.iter().rev().take(2) {
                    seen.docward.extend(connections(*pid));
                }
                seen.pymongo.extend(connections(pymongo));
                std::thread::sleep(Duration::from_millis(30));
            }
            seen
        });
        Watch { stop, thread: Some(thread) }
    }

    /// `known` are the addresses that the drivers themselves say they knew.
    pub(crate) fn assert_no_driver_came_directly(mut self, members: &[Mongod], known: &BTreeSet<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let seen = self.thread.take().unwrap().join().unwrap();
        let (mut all, mut ours) = (0, 0);
        for member in members {
            assert!(!known.contains(&member.address()), "drivers know {}: {known:?}", member.address());
            for local in driver_ports(&member.whole_log()) {
                let connection = Connection { local, remote: member.port() };
                assert!(!seen.pymongo.contains(&connection), "pymongo came to {} itself", member.address());
                all += 1;
                ours += usize::from(seen.docward.contains(&connection));
            }
        }
        println!(
            "the members saw {all} connections with a driver's name; {ours} were seen to be docward's, none pymongo's"
        );
        // The others were over too soon to be seen.
        assert!(ours * 10 > all * 9, "whose connections were the others?");
    }
}
