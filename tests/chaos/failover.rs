//! How long clients have no primary after a stepdown: through docward, and directly at the same replica set.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bson::{Document, doc};
use mongodb::options::{ClientOptions, WriteConcern};
use mongodb::{Client, Collection};

use crate::{events, setting};
use support::process::{TIMEOUT, poll};
use support::replica_set::ReplicaSet;

/// Writers at work during the stepdown.
const WRITERS: usize = 4;
/// The interval between the writers' starts, which bounds the precision.
const STEP: Duration = Duration::from_millis(5);

/// The time from the stepdown request until a majority has the first write that was begun after the primary had
/// stepped down.
async fn recovery(set: &ReplicaSet, uri: &str) -> Duration {
    let mut options = ClientOptions::parse(uri).await.unwrap();
    options.write_concern = Some(WriteConcern::majority());
    let client = Client::with_options(options).unwrap();
    let writes: Collection<Document> = client.database("failover").collection("writes");
    writes.insert_one(doc! {}).await.unwrap();

    let gone = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> =
        (0..WRITERS).map(|_| tokio::spawn(write_until_there(writes.clone(), Arc::clone(&gone)))).collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let before = set.await_primary();
    let started = Instant::now();
    let reply = tokio::task::block_in_place(|| {
        set.member(before).command("admin", doc! { "replSetStepDown": 30, "secondaryCatchUpPeriodSecs": 10 })
    });
    assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{reply}");
    gone.store(true, Ordering::SeqCst);
    let mut first = Duration::MAX;
    for writer in writers {
        first = first.min(writer.await.unwrap() - started);
    }
    tokio::task::block_in_place(|| {
        // The member may be elected again, and the stepdown period must not disturb the next election.
        poll(TIMEOUT, || set.primary().filter(|primary| *primary != before)).unwrap();
        set.member(before).command("admin", doc! { "replSetFreeze": 0 });
        poll(TIMEOUT, || (set.secondaries().len() == 2).then_some(())).unwrap();
    });
    first
}

/// Returns when the first write begun after the stepdown was acknowledged. A failed write is repeated; drivers
/// themselves retry once.
async fn write_until_there(writes: Collection<Document>, gone: Arc<AtomicBool>) -> Instant {
    loop {
        let begun_after = gone.load(Ordering::SeqCst);
        if writes.insert_one(doc! {}).await.is_ok() && begun_after {
            return Instant::now();
        }
        tokio::time::sleep(STEP).await;
    }
}

/// The median.
fn median(values: &[Duration]) -> Duration {
    let mut values = values.to_vec();
    values.sort();
    values[values.len() / 2]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement of some minutes: make chaos"]
async fn recovery_from_a_step_down_takes_as_long_as_directly() {
    let set = tokio::task::block_in_place(|| ReplicaSet::start(3));
    let docward = events::docward(&set, "").start();
    let through = format!("mongodb://{}/?replicaSet=rs0", docward.addresses().join(","));
    let rounds = setting("DOCWARD_FAILOVERS", 15);
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        // Which of the two goes first alternates.
        for turn in 0..2 {
            let way = ((round + turn) % 2) as usize;
            let uri = [set.uri(), through.clone()][way].clone();
            times[way].push(recovery(&set, &uri).await);
        }
    }
    println!("time from replSetStepDown to the first majority write begun afterwards, {rounds} each:");
    for (name, times) in ["directly", "through docward"].iter().zip(&times) {
        let (least, most) = (times.iter().min().unwrap(), times.iter().max().unwrap());
        let all: Vec<u128> = times.iter().map(Duration::as_millis).collect();
        let [median, least, most] = [&median(times), least, most].map(Duration::as_millis);
        println!("{name:16} median {median:5} ms  least {least:5} ms  most {most:5} ms  {all:?}");
    }
    let [directly, through] = times.map(|times| median(&times));
    println!("ratio of the medians: {:.2}", through.as_secs_f64() / directly.as_secs_f64());
    // A margin for other load on the machine.
    assert!(through < directly.mul_f64(1.2) + Duration::from_millis(50), "{through:?}, directly {directly:?}");
}
