//! A well-behaved client: several connections, one timed command after the other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bson::{Document, doc};

/// Enough connections for each of docward's threads.
const CONNECTIONS: usize = 4;
/// Pause between two commands.
const PAUSE: Duration = Duration::from_millis(2);

pub(crate) struct Bystander {
    /// The latencies of all connections since the last measurement.
    times: Arc<Mutex<Vec<Duration>>>,
    gone: Arc<AtomicBool>,
}

/// The latencies of one interval.
pub(crate) struct Measured {
    pub(crate) p99: Duration,
    pub(crate) operations: usize,
}

impl Bystander {
    /// Connects and starts the commands; `logs_in`: as `root`.
    pub(crate) fn start(address: &str, logs_in: bool) -> Bystander {
        let this = Bystander { times: Arc::default(), gone: Arc::default() };
        let user = if logs_in { "root:secret@" } else { "" };
        let uri = format!("mongodb://{user}{address}/?maxPoolSize=1");
        for number in 0..CONNECTIONS {
            let (uri, times, gone) = (uri.clone(), this.times.clone(), this.gone.clone());
            thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(work(&uri, number, &times, &gone));
            });
        }
        this
    }

    /// Measures for this long. A command still in flight counts with its duration so far.
    pub(crate) fn measure(&self, duration: Duration) -> Measured {
        // Waits until the connections are open and earlier commands have finished.
        thread::sleep(Duration::from_millis(500));
        self.times.lock().unwrap().clear();
        thread::sleep(duration);
        let mut times = std::mem::take(&mut *self.times.lock().unwrap());
        assert!(!times.is_empty(), "the bystander completed no command in {duration:?}");
        times.sort_unstable();
        Measured { p99: times[(times.len() - 1) * 99 / 100], operations: times.len() }
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
    }
}

/// Sends pings, reads and protected writes in turn.
async fn work(uri: &str, number: usize, times: &Mutex<Vec<Duration>>, gone: &AtomicBool) {
    let client = mongodb::Client::with_uri_str(uri).await.unwrap();
    let orders = client.database("bystander").collection::<Document>("orders");
    let id = format!("order-{number}");
    let set = doc! { "$set": { "a": 1 } };
    let upsert = orders.update_one(doc! { "_id": &id }, set.clone()).upsert(true);
    upsert.await.unwrap();
    while !gone.load(Ordering::Relaxed) {
        for step in 0..3 {
            let began = Instant::now();
            let done = match step {
                0 => client.database("admin").run_command(doc! { "ping": 1 }).await.map(|_| ()),
                1 => orders.find_one(doc! { "_id": &id }).await.map(|_| ()),
                _ => orders.update_one(doc! { "_id": &id }, set.clone()).await.map(|_| ()),
            };
            // docward stops at the end.
            if done.is_err() {
                assert!(gone.load(Ordering::Relaxed), "{done:?}");
                return;
            }
            times.lock().unwrap().push(began.elapsed());
            tokio::time::sleep(PAUSE).await;
        }
    }
}
