//! A well-behaved client: several connections, one timed command after the other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bson::{Document, doc};
use support::process::{TIMEOUT, poll};

/// Enough connections for each of docward's threads.
const CONNECTIONS: usize = 4;
/// Pause between two commands.
const PAUSE: Duration = Duration::from_millis(2);

pub(crate) struct Bystander {
    commands: Arc<Mutex<Commands>>,
    gone: Arc<AtomicBool>,
}

#[derive(Default)]
struct Commands {
    /// The latencies of all connections since the last measurement.
    completed: Vec<Duration>,
    /// When the command in flight on each connection was sent.
    in_flight: [Option<Instant>; CONNECTIONS],
    /// Connections that have begun.
    connected: usize,
}

/// The latencies of one interval.
pub(crate) struct Measured {
    pub(crate) p99: Duration,
    pub(crate) worst: Duration,
    pub(crate) operations: usize,
}

impl Bystander {
    /// Connects and starts the commands; `logs_in`: as `root`.
    pub(crate) fn start(address: &str, logs_in: bool) -> Bystander {
        let this = Bystander { commands: Arc::default(), gone: Arc::default() };
        let user = if logs_in { "root:secret@" } else { "" };
        let uri = format!("mongodb://{user}{address}/?maxPoolSize=1");
        for number in 0..CONNECTIONS {
            let (uri, commands, gone) = (uri.clone(), this.commands.clone(), this.gone.clone());
            thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(work(&uri, number, &commands, &gone));
            });
        }
        let is_connected = || this.commands.lock().unwrap().connected == CONNECTIONS;
        poll(TIMEOUT, || is_connected().then_some(())).expect("the bystander has connected");
        this
    }

    /// Measures for this long. A command still in flight counts with its duration so far.
    pub(crate) fn measure(&self, duration: Duration) -> Measured {
        // Waits until the connections are open and earlier commands have finished.
        thread::sleep(Duration::from_millis(500));
        self.commands.lock().unwrap().completed.clear();
        thread::sleep(duration);
        let mut commands = self.commands.lock().unwrap();
        let mut times = std::mem::take(&mut commands.completed);
        times.extend(commands.in_flight.iter().flatten().map(Instant::elapsed));
        times.sort_unstable();
        let worst = *times.last().expect("the bystander sends commands");
        Measured { p99: times[(times.len() - 1) * 99 / 100], worst, operations: times.len() }
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
    }
}

/// Sends pings, reads and protected writes in turn.
async fn work(uri: &str, number: usize, commands: &Mutex<Commands>, gone: &AtomicBool) {
    let client = mongodb::Client::with_uri_str(uri).await.unwrap();
    let orders = client.database("bystander").collection::<Document>("orders");
    let id = format!("order-{number}");
    let set = doc! { "$set": { "a": 1 } };
    let upsert = orders.update_one(doc! { "_id": &id }, set.clone()).upsert(true);
    upsert.await.unwrap();
    commands.lock().unwrap().connected += 1;
    while !gone.load(Ordering::Relaxed) {
        for step in 0..3 {
            let began = Instant::now();
            commands.lock().unwrap().in_flight[number] = Some(began);
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
            {
                let mut commands = commands.lock().unwrap();
                commands.in_flight[number] = None;
                commands.completed.push(began.elapsed());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
