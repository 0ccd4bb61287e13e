//! The result of every operation as its client saw it, the only data that the database is compared with afterwards.
//! Has no dependency on docward or MongoDB; `workload` and `pymongo` write it, `verify` reads it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde::Deserialize;

/// How an operation ended, as its client saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// Acknowledged with write concern majority: stored exactly once.
    Acknowledged,
    /// A rule or a filter rejected it: not stored.
    Rejected,
    /// The driver gave up: stored at most once.
    Unknown,
}

/// One operation. It writes its token, so that the checker can find it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Record {
    pub(crate) kind: String,
    pub(crate) token: String,
    pub(crate) outcome: Outcome,
    /// The kind of failure the client saw.
    #[serde(default)]
    pub(crate) error: Option<String>,
}

/// The records of one driver, written while it works.
#[derive(Clone)]
pub(crate) struct Journal {
    pub(crate) driver: &'static str,
    records: Arc<Mutex<Vec<Record>>>,
    acknowledged: Arc<AtomicUsize>,
}

impl Journal {
    pub(crate) fn of(driver: &'static str) -> Journal {
        Journal { driver, records: Arc::default(), acknowledged: Arc::default() }
    }

    pub(crate) fn add(&self, record: Record) {
        if record.outcome == Outcome::Acknowledged {
            self.acknowledged.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(error) = &record.error {
            println!("  {} {} {}: {error}", self.driver, record.kind, record.token);
        }
        self.records.lock().unwrap().push(record);
    }

    /// The number of acknowledged operations so far.
    pub(crate) fn acknowledged(&self) -> usize {
        self.acknowledged.load(Ordering::Relaxed)
    }

    pub(crate) fn records(&self) -> Vec<Record> {
        self.records.lock().unwrap().clone()
    }

    /// Prints the number of operations by kind and result, then the failures by what the client saw.
    pub(crate) fn print_summary(&self) {
        let mut kinds: BTreeMap<String, [usize; 3]> = BTreeMap::new();
        let mut errors: BTreeMap<String, usize> = BTreeMap::new();
        for record in self.records() {
            kinds.entry(record.kind).or_default()[record.outcome as usize] += 1;
            if let Some(error) = record.error {
                // The start of the text gives its kind; the rest differs by member and time.
                let kind: String = error.chars().take(90).collect();
                *errors.entry(kind).or_default() += 1;
            }
        }
        for (kind, [acknowledged, refused, unknown]) in kinds {
            println!(
                "{:8} {kind:9} {acknowledged:6} acknowledged {refused:5} refused {unknown:3} unknown",
                self.driver
            );
        }
        for (error, count) in errors {
            println!("{:8} failure   {count:6} {error}", self.driver);
        }
    }
}
