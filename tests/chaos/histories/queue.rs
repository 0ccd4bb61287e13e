//! `queue`: workers that claim jobs and complete them, some of them after their lease has expired.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bson::{Bson, Document, doc};

use super::writer::{Operation, Writer};
use super::{Stored, Workload, written_once};
use support::process::TIMEOUT;

pub(super) struct Queue;

/// Longer than the lease.
const STALL: Duration = Duration::from_millis(1500);

impl Workload for Queue {
    fn name(&self) -> &'static str {
        "queue"
    }

    fn settings(&self, _block: usize) -> String {
        "queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 1s }".into()
    }

    fn prepare(&self, writer: &mut Writer) {
        writer.insert(self.name(), (0..20).map(|job| doc! { "_id": format!("job-{job}") })).unwrap();
    }

    fn step(&self, writer: &mut Writer) {
        match writer.below(8) {
            0..3 => {
                let token = writer.token();
                let job = doc! { "_id": format!("job-{token}"), "token": &token };
                writer.record("add", [token], doc! {}, |writer| writer.insert(self.name(), [job]));
            }
            // A worker that has not claimed the job.
            3 => {
                let Some(job) = writer.find(doc! { "locked": true }) else { return };
                let token = writer.token();
                let (key, change) = (doc! { "_id": job.get("_id") }, doc! { "$set": { "token": &token } });
                writer.record("intrude", [token], doc! {}, |writer| writer.update(key, change));
            }
            _ => drop(work(writer)),
        }
    }

    /// Completes the remaining jobs.
    fn finish(&self, writer: &mut Writer) {
        let deadline = Instant::now() + TIMEOUT;
        while writer.find(open()).is_some() && Instant::now() < deadline {
            if work(writer).is_none() {
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }

    fn faults(&self, history: &[Operation], stored: &Stored) -> Vec<String> {
        let jobs = stored.of(self.name());
        let completions = jobs.iter().flat_map(completions);
        let completed = completions.map(|one| one.get_str("token").unwrap().to_owned());
        let added = jobs.iter().filter_map(|job| job.get_str("token").ok()).map(str::to_owned);
        let mut faults = written_once(history, added.chain(completed));
        faults.extend(attempts_given_twice(history));
        faults.extend(jobs.iter().filter_map(|job| job_fault(history, job)));
        faults
    }

    fn anomaly(&self) -> &'static str {
        "was given to two workers"
    }
}

fn open() -> Document {
    doc! { "done": { "$exists": false } }
}

/// Claims a job, works for some time, and completes it; `None` if there was no job to claim.
fn work(writer: &mut Writer) -> Option<()> {
    let lock = doc! { "$set": { "locked": true, "by": writer.number as i32 } };
    let claim = |writer: &Writer| writer.find_and_update("queue", open(), lock, false);
    let job = writer.record("claim", [], doc! {}, claim).document?;
    let stalls = writer.below(10) == 0;
    let pause = Duration::from_millis(writer.below(30) as u64);
    std::thread::sleep(if stalls { STALL } else { pause });
    let (token, attempt) = (writer.token(), job.get("try").cloned().unwrap_or(Bson::Null));
    let completion = doc! { "token": &token, "by": writer.number as i32, "try": attempt.clone() };
    let change = doc! { "$set": { "locked": false, "done": true }, "$push": { "completions": completion } };
    let key = doc! { "_id": job.get("_id"), "try": attempt };
    writer.record("complete", [token], doc! {}, |writer| writer.update(key, change));
    Some(())
}

fn completions(job: &Document) -> impl Iterator<Item = &Document> {
    job.get_array("completions").into_iter().flatten().filter_map(Bson::as_document)
}

/// The worker that got each attempt of each job, from the replies to the claims.
fn holders(history: &[Operation]) -> impl Iterator<Item = ((String, String), usize)> {
    history.iter().filter(|operation| operation.kind == "claim").filter_map(|operation| {
        let job = operation.reply.document.as_ref()?;
        let attempt = format!("{:?}", job.get("try"));
        Some(((job.get_str("_id").unwrap().to_owned(), attempt), operation.writer))
    })
}

fn attempts_given_twice(history: &[Operation]) -> Vec<String> {
    let mut given = BTreeMap::new();
    let twice = holders(history).filter_map(|(attempt, worker)| {
        let other = given.insert(attempt.clone(), worker)?;
        Some(format!("attempt {attempt:?} was given to two workers: {other} and {worker}"))
    });
    twice.collect()
}

/// A job is completed once, with its last claimed attempt, by the worker that claimed it.
fn job_fault(history: &[Operation], job: &Document) -> Option<String> {
    let completions: Vec<&Document> = completions(job).collect();
    let [completion] = completions[..] else {
        return Some(format!("completed {} times: {job}", completions.len()));
    };
    let attempt = completion.get("try");
    if attempt != job.get("try") {
        return Some(format!("completed by another attempt than the last: {job}"));
    }
    let named = (job.get_str("_id").unwrap().to_owned(), format!("{attempt:?}"));
    let holder = holders(history).find(|(attempt, _)| *attempt == named);
    let worker = completion.get_i32("by").unwrap();
    holder
        .is_none_or(|(_, holder)| holder != worker as usize)
        .then(|| format!("completed by who did not hold it: {job}"))
}
