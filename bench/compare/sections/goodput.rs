//! What thousands of clients get of a server that can do a quarter of what they ask for: `make goodput`.
//!
//! A mongod that executes few reads at a time, each of which a failpoint delays, does some 500 operations per second
//! whatever the machine does. Each client has a connection and one operation at a time. In the closed loop it thinks
//! before each operation; in the open loop operations come in bursts, and wait for a free client as they would for a
//! connection of a driver. Beside the clients work some of PyMongo, of a version that retries overload errors and of one
//! before.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bson::{Document, doc};
use hdrhistogram::Histogram;
use support::frame::{Frame, Message};
use support::mongod::{Kind, Mongod};
use support::proxy::Docward;
use support::random::Random;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, sleep_until};

use crate::exchange::{BUFFER, connect, exchange};
use crate::load::histogram;
use crate::report::Report;

const CLIENTS: usize = 4_000;
/// Reads at a time, and how many milliseconds each holds a collection: 500 operations per second.
const READS: &str = "wiredTigerConcurrentReadTransactions=10";
const DELAY: i32 = 20;
const MAX_WAIT: Duration = Duration::from_secs(10);
/// The mean time that a client of the closed loop thinks, so that all together ask for 2,000 operations per second.
const THINKING: Duration = Duration::from_secs(2);
/// A burst of the open loop: 2,000 operations per second for this time.
const BURST: Duration = Duration::from_millis(2_500);
const BURST_RATE: f64 = 2_000.0;
const BURST_EVERY: Duration = Duration::from_secs(15);
const BURSTS: u32 = 3;
/// Time until the closed loop is steady, and time in which it is measured.
const WARM_UP: Duration = Duration::from_secs(12);
const MEASURED: Duration = Duration::from_secs(30);
/// Clients that leave the server idle, and clients that occupy it.
const FEW: usize = 50;
const ENOUGH: usize = 200;

/// What a client does with an overload error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Driver {
    /// It does not announce `backpressure`, and reports the error.
    Older,
    /// It announces it, and sends the operation again, as the specification "Client Backpressure" requires.
    Retrying,
}

/// How operations come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loop {
    Closed { clients: usize, thinking: Duration },
    Open,
}

/// The results of one run.
struct Counts {
    done: u64,
    failed: u64,
    attempts: u64,
    /// From the beginning of the operation to its last reply, in nanoseconds.
    operations: Histogram<u64>,
    /// Of the attempt that succeeded.
    admitted: Histogram<u64>,
}

/// What the clients of a run share. All are on one thread.
struct Run {
    driver: Driver,
    random: RefCell<Random>,
    counts: RefCell<Counts>,
    /// Operations that ended earlier are not counted.
    from: Cell<Instant>,
    errors: RefCell<Vec<String>>,
}

struct Client {
    stream: TcpStream,
    find: Vec<u8>,
    buffer: Vec<u8>,
}

impl Client {
    async fn connect(address: &str, driver: Driver, number: u64) -> Result<Self> {
        let mut stream = connect(address).await?;
        let mut hello = doc! { "hello": 1, "client": { "application": { "name": "goodput" } }, "$db": "admin" };
        if driver == Driver::Retrying {
            hello.insert("backpressure", "2");
        }
        let mut buffer = vec![0; BUFFER];
        let hello = Message::new(hello).to_frame(1, 0).to_bytes();
        exchange(&mut stream, &hello, &mut buffer).await?;
        let session = bson::Uuid::from_bytes(u128::from(number).to_be_bytes());
        let find = doc! { "find": "devices", "filter": { "_id": 1 }, "lsid": { "id": session }, "$db": "bench" };
        Ok(Self { stream, find: Message::new(find).to_frame(2, 0).to_bytes(), buffer })
    }

    async fn ask(&mut self) -> Result<Document> {
        let length = exchange(&mut self.stream, &self.find, &mut self.buffer).await?;
        let frame = Frame::read(&mut &self.buffer[..length])?.context("no reply")?;
        Ok(Message::parse(&frame).body().clone())
    }

    /// An operation that was due at `began`.
    async fn operate(&mut self, run: &Run, began: Instant) -> Result<()> {
        /// The specification's `MAX_RETRIES`, `BASE_BACKOFF` and `MAX_BACKOFF`, in milliseconds.
        const MAX_RETRIES: u32 = 2;
        const BASE_BACKOFF: f64 = 100.0;
        const MAX_BACKOFF: f64 = 10_000.0;
        let mut attempt = 0;
        let (reply, asked) = loop {
            let asked = Instant::now();
            let reply = self.ask().await?;
            attempt += 1;
            let is_overload = reply.get_i32("code").is_ok_and(|code| code == 462);
            if !is_overload || run.driver == Driver::Older || attempt > MAX_RETRIES {
                break (reply, asked);
            }
            let base = reply.get_i32("baseBackoffMS").map_or(BASE_BACKOFF, f64::from);
            let jitter = f64::from(run.random.borrow_mut().below(1_000) as u32) / 1e3;
            let backoff = jitter * MAX_BACKOFF.min(base * f64::from(1 << attempt));
            sleep(Duration::from_secs_f64(backoff / 1e3)).await;
        };
        if Instant::now() < run.from.get() {
            return Ok(());
        }
        let counts = &mut *run.counts.borrow_mut();
        counts.attempts += u64::from(attempt);
        if reply.get_f64("ok").is_ok_and(|ok| ok == 1.0) {
            counts.done += 1;
            counts.operations.saturating_record(began.elapsed().as_nanos() as u64);
            counts.admitted.saturating_record(asked.elapsed().as_nanos() as u64);
        } else {
            counts.failed += 1;
        }
        Ok(())
    }
}

/// The clients of one run, and how long the server was busy for each of its operations.
fn run(address: &str, driver: Driver, arrivals: Loop) -> Result<(Counts, Duration)> {
    let counts = Counts { done: 0, failed: 0, attempts: 0, operations: histogram()?, admitted: histogram()? };
    let run = Rc::new(Run {
        driver,
        random: RefCell::new(Random(7)),
        counts: RefCell::new(counts),
        from: Cell::new(Instant::now()),
        errors: RefCell::default(),
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let took = LocalSet::new().block_on(&runtime, async {
        let count = if let Loop::Closed { clients, .. } = arrivals { clients } else { CLIENTS };
        let mut clients = Vec::with_capacity(count);
        for number in 0..count as u64 {
            clients.push(Client::connect(address, driver, number).await?);
        }
        match arrivals {
            Loop::Closed { thinking, .. } => closed(&run, clients, thinking).await,
            Loop::Open => open(&run, clients).await,
        }
    })?;
    let errors = run.errors.take();
    ensure!(errors.is_empty(), "{} clients failed: {}", errors.len(), errors[0]);
    let run = Rc::into_inner(run).context("a client still works")?;
    Ok((run.counts.into_inner(), took))
}

/// Each client thinks, operates, and thinks again.
async fn closed(run: &Rc<Run>, clients: Vec<Client>, thinking: Duration) -> Result<Duration> {
    let from = Instant::now() + WARM_UP;
    run.from.set(from);
    let mut tasks = JoinSet::new();
    for mut client in clients {
        let run = run.clone();
        tasks.spawn_local(async move {
            loop {
                let share = f64::from(run.random.borrow_mut().below(2_000) as u32) / 1e3;
                sleep(thinking.mul_f64(share)).await;
                if let Err(error) = client.operate(&run, Instant::now()).await {
                    return run.errors.borrow_mut().push(error.to_string());
                }
            }
        });
    }
    sleep_until((from + MEASURED).into()).await;
    tasks.shutdown().await;
    Ok(MEASURED)
}

/// Operations come in bursts. Returns for how long the server had work.
async fn open(run: &Rc<Run>, clients: Vec<Client>) -> Result<Duration> {
    let (free, freed) = (Rc::new(RefCell::new(VecDeque::from(clients))), Rc::new(Notify::new()));
    let mut busy = Duration::ZERO;
    for _ in 0..BURSTS {
        let began = Instant::now();
        let count = (BURST_RATE * BURST.as_secs_f64()) as u32;
        let mut tasks = JoinSet::new();
        for number in 0..count {
            let due = began + BURST * number / count;
            sleep_until(due.into()).await;
            let (run, free, freed) = (run.clone(), free.clone(), freed.clone());
            tasks.spawn_local(async move {
                let mut client = loop {
                    let found = free.borrow_mut().pop_front();
                    match found {
                        Some(client) => break client,
                        None => freed.notified().await,
                    }
                };
                match client.operate(&run, due).await {
                    Ok(()) => free.borrow_mut().push_back(client),
                    Err(error) => run.errors.borrow_mut().push(error.to_string()),
                }
                freed.notify_one();
            });
        }
        while tasks.join_next().await.is_some() {}
        busy += began.elapsed();
        sleep(BURST_EVERY.saturating_sub(began.elapsed())).await;
    }
    Ok(busy)
}

/// Twenty clients of a PyMongo; `PYMONGO_OLDER` is the Python of a version before overload errors were retried.
fn pymongo(address: &str) -> Result<Vec<(String, Child)>> {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/goodput_clients.py");
    let pythons = ["PYTHON", "PYMONGO_OLDER"].into_iter().filter_map(std::env::var_os);
    let started = pythons.map(|python| {
        let uri = format!("mongodb://{address}/?directConnection=true");
        let mut command = Command::new(&python);
        command.arg(program).arg(uri).stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok((python.to_string_lossy().into_owned(), command.spawn().context("python")?))
    });
    started.collect()
}

pub(super) fn goodput() -> Result<Option<Report>> {
    if std::env::var_os("MONGOD").is_none() {
        eprintln!("skipped: set MONGOD to the path of a mongod, or run `make goodput`");
        return Ok(None);
    }
    let mongod = Mongod::start_with(Kind::Standalone, &["--setParameter", READS]);
    mongod.command("bench", doc! { "insert": "devices", "documents": [{ "_id": 1 }] });
    let data = doc! { "waitForMillis": DELAY };
    mongod
        .command("admin", doc! { "configureFailPoint": "setAutoGetCollectionWait", "mode": "alwaysOn", "data": data });
    let docward = Docward::before(&mongod.uri()).argument("--pool-size").argument("50");
    let docward = docward.argument("--pool-max-wait").argument(format!("{}s", MAX_WAIT.as_secs())).start();

    let quiet = run(&mongod.address(), Driver::Older, Loop::Closed { clients: FEW, thinking: THINKING })?;
    let peak = run(&mongod.address(), Driver::Older, Loop::Closed { clients: ENOUGH, thinking: Duration::ZERO })?;
    let peak = peak.0.done as f64 / peak.1.as_secs_f64();
    let quiet = quiet.0.operations.value_at_quantile(0.99) as f64 / 1e6;
    let mut report = Report::new("goodput");
    let limit = MAX_WAIT.as_secs_f64() + 2.0 * quiet / 1e3;
    report.text(&format!(
        "{ENOUGH} clients without pauses directly: {peak:.0} operations per second, the peak. Quiet p99: {quiet:.0} ms. Goals: 95 % of the \
         peak; p99 of what is admitted at most {limit:.1} s; failed at most 0.1 % (held), 1 % (sent away).\n"
    ));
    let mut table = "| load | path, clients | operations/s, of the peak | p50, p99 of operations | p99 of what is admitted | attempts each | failed |\n".to_owned();
    table += "|---|---|---|---|---|---|---|\n";
    let closed = Loop::Closed { clients: CLIENTS, thinking: THINKING };
    let paths = [
        ("direct", mongod.address(), Driver::Older),
        ("docward, held", docward.address(), Driver::Older),
        ("docward, sent away", docward.address(), Driver::Retrying),
    ];
    let mut drivers = String::new();
    for (load, arrivals) in [("closed loop", closed), ("bursts", Loop::Open)] {
        for (path, address, driver) in &paths {
            let beside = pymongo(address)?;
            let (counts, busy) = run(address, *driver, arrivals)?;
            let Counts { done, failed, attempts, operations, admitted } = counts;
            let rate = done as f64 / busy.as_secs_f64();
            let seconds = |histogram: &Histogram<u64>, share| histogram.value_at_quantile(share) as f64 / 1e9;
            let all = (done + failed).max(1) as f64;
            table += &format!(
                "| {load} | {path} | {rate:.0}, {:.0} % | {:.1} s, {:.1} s | {:.1} s | {:.2} | {:.2} % |\n",
                rate / peak * 100.0,
                seconds(&operations, 0.5),
                seconds(&operations, 0.99),
                seconds(&admitted, 0.99),
                attempts as f64 / all,
                failed as f64 / all * 100.0,
            );
            for (_, child) in beside {
                let output = child.wait_with_output()?;
                ensure!(output.status.success(), "goodput_clients.py failed");
                drivers += &format!("| {load} | {path} | {} |\n", String::from_utf8_lossy(&output.stdout).trim());
            }
            eprintln!("{load}, {path}");
        }
    }
    report.text(&table);
    if !drivers.is_empty() {
        report.text(&format!(
            "| load | path | driver | operations | failed | p99 |\n|---|---|---|---|---|---|\n{drivers}"
        ));
    }
    Ok(Some(report))
}
