//! The process of `tests/python/chaos_workload.py`, and its output.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::journal::Journal;
use support::process::{ChildGuard, repository};

/// pymongo at work, until it is ended.
pub(crate) struct Pymongo {
    pub(crate) journal: Journal,
    process: ChildGuard,
    /// The process works as long as this is open.
    input: Option<ChildStdin>,
    reader: Option<JoinHandle<()>>,
    addresses: Arc<Mutex<BTreeSet<String>>>,
    _folder: TempDir,
}

impl Pymongo {
    /// Each of its workers pauses this long between two operations.
    pub(crate) fn start(uri: &str, pause: Duration) -> Pymongo {
        let python = Command::new(repository("scripts/python-env.sh")).stderr(Stdio::inherit()).output().unwrap();
        let python = String::from_utf8(python.stdout).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(python.trim_end());
        command
            .arg(repository("tests/python/chaos_workload.py"))
            .args([uri, &pause.as_secs_f64().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = ChildGuard::spawn(&mut command, folder.path());
        let output = process.child().stdout.take().unwrap();
        let input = process.child().stdin.take();
        let (journal, addresses) = (Journal::of("pymongo"), Arc::new(Mutex::new(BTreeSet::new())));
        let (sink, seen) = (journal.clone(), Arc::clone(&addresses));
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
                match line["address"].as_str() {
                    Some(address) => drop(seen.lock().unwrap().insert(address.to_owned())),
                    None if line["ended"] == true => return,
                    None => sink.add(serde_json::from_value(line).unwrap()),
                }
            }
            panic!("pymongo ended too early");
        });
        Pymongo { journal, process, input, reader: Some(reader), addresses, _folder: folder }
    }

    /// Every address that its drivers have ever known.
    pub(crate) fn addresses(&self) -> BTreeSet<String> {
        self.addresses.lock().unwrap().clone()
    }

    /// Lets every worker finish its operation.
    pub(crate) fn end(&mut self) {
        self.input = None;
        self.reader.take().unwrap().join().unwrap();
        self.process.wait();
    }
}
