//! Replays captures: each of many connections repeats the commands of one recorded shell.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use bson::{Bson, Document, RawDocument, Uuid};

use super::super::contenders::Contender;
use super::super::cycle::{Cycle, Replies};
use super::super::load::{Load, Measure};
use super::super::open_loop;
use super::capture::{Capture, Target};
use super::deployment::Deployment;
use super::{Recorded, WORKLOADS};

/// Bytes of an OP_MSG reply before its body.
const BODY_AT: usize = 16 + 4 + 1;
/// Error codes of a rule's rejection: the document fails validation, or its version has changed.
const REJECTION_CODES: [i32; 2] = [121, 112];

/// One workload, prepared for sending.
pub(crate) struct Replay {
    pub(crate) workload: &'static str,
    setup: Load,
    load: Load,
    outcome: Arc<Mutex<Outcome>>,
}

/// The rate of messages.
#[derive(Clone, Copy)]
pub(crate) enum Pace {
    /// Sends the next message when the last reply arrives.
    Closed,
    /// Sends this many per second in all, without waiting for replies.
    Open(f64),
}

/// The content of the replies.
#[derive(Clone, Default)]
pub(crate) struct Outcome {
    /// Documents that updates changed or inserted, by collection.
    changed: BTreeMap<String, i64>,
    /// Statements that rules rejected.
    pub(crate) refused: u64,
}

/// Reads the replies of one connection.
struct Listener {
    targets: Vec<Target>,
    outcome: Arc<Mutex<Outcome>>,
}

/// All workloads, each over this many connections.
pub(crate) fn prepare_all(connections: usize) -> Result<Vec<Replay>> {
    WORKLOADS.iter().map(|workload| Replay::prepare(workload, connections)).collect()
}

impl Replay {
    fn prepare(workload: &'static str, connections: usize) -> Result<Self> {
        let outcome = Arc::new(Mutex::new(Outcome::default()));
        let cycle = |capture: &Capture, nth: i64| {
            let (messages, targets) = capture.messages(nth as usize, Uuid::new().bytes());
            Cycle::conversation(messages, Arc::new(Listener { targets, outcome: outcome.clone() }))
        };
        let setup = Capture::load(workload, Recorded::Setup)?;
        let traffic = Capture::load(workload, Recorded::Traffic)?;
        let (setup, load) =
            (Load::new(1, |nth| cycle(&setup, nth)), Load::new(connections, |nth| cycle(&traffic, nth)));
        Ok(Self { workload, setup, load, outcome })
    }

    /// Fills the collections, sends for this long, and records what the server acknowledged.
    ///
    /// # Errors
    /// A reply reports an error other than a rule's rejection.
    pub(crate) fn run(
        &mut self,
        deployment: &Deployment,
        contender: &Contender,
        pace: Pace,
        duration: Duration,
    ) -> Result<(Measure, Outcome)> {
        self.setup.run_once(&deployment.mongod.address())?;
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Outcome::default();
        let measure = match pace {
            Pace::Closed => self.load.run(contender, duration)?,
            Pace::Open(rate) => open_loop::run(&mut self.load, contender, rate, duration)?,
        };
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let changes = outcome.changed.iter().map(|(collection, count)| (collection.clone(), Bson::from(*count)));
        deployment.note_acknowledged(self.workload, changes.collect::<Document>())?;
        Ok((measure, outcome))
    }
}

impl Replies for Listener {
    fn on_reply(&self, message: usize, reply: &[u8]) -> Result<()> {
        let body = RawDocument::from_bytes(reply.get(BODY_AT..).unwrap_or_default())?;
        let refused = is_rejection(body)?;
        let Target { command, collection } = &self.targets[message];
        if !refused && command != "update" {
            return Ok(());
        }
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.refused += u64::from(refused);
        if command == "update" {
            let made = body.get_array("upserted").map_or(0, |made| made.into_iter().count());
            let changed = i64::from(body.get_i32("nModified").unwrap_or_default()) + made as i64;
            *outcome.changed.entry(collection.clone()).or_default() += changed;
        }
        Ok(())
    }
}

/// Whether a rule rejected a statement. The recorded commands have one statement each.
fn is_rejection(body: &RawDocument) -> Result<bool> {
    let error = match body.get_array("writeErrors") {
        Ok(errors) => match errors.into_iter().next().transpose()? {
            Some(first) => first.as_document(),
            None => None,
        },
        Err(_) => body.get_f64("ok").is_ok_and(|ok| ok == 0.0).then_some(body),
    };
    let Some(error) = error else { return Ok(false) };
    let code = error.get_i32("code").unwrap_or_default();
    ensure!(REJECTION_CODES.contains(&code), "the server refused a message: {body:?}");
    Ok(true)
}
