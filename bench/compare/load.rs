//! The clients: connections that send messages and read the replies, without a driver, so that they cost little
//! beside what they measure.
//!
//! A closed loop sends the next message when the reply to the last is here: it measures throughput, and what a
//! reply takes when nobody is in a recheck. What clients feel at a given rate is measured in `open_loop.rs`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use super::contenders::Contender;
use super::cycle::Cycle;
use super::exchange::{BUFFER, check, connect, exchange};

/// The longest latency that is told apart, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;

/// What every connection sends, again and again.
pub(crate) struct Load {
    cycles: Vec<Cycle>,
    runtime: Runtime,
}

/// What came of one run.
pub(crate) struct Measure {
    /// Operations a second.
    pub(crate) rate: f64,
    /// CPU time of the process in between for one operation, in microseconds.
    pub(crate) cpu: Option<f64>,
    /// Nanoseconds from when a message was to be sent to its reply.
    pub(crate) latencies: Histogram<u64>,
}

/// Connections on which nothing happens until this is dropped.
pub(crate) struct Idle {
    _connections: Vec<TcpStream>,
    _runtime: Runtime,
}

impl Load {
    /// `cycle` makes what each connection sends by its number.
    pub(crate) fn new(connections: usize, cycle: impl Fn(i64) -> Cycle) -> Self {
        let cycle = |number: usize| {
            let mut cycle = cycle(number as i64);
            cycle.set_connection(number as u32);
            cycle
        };
        Self { cycles: (0..connections).map(cycle).collect(), runtime: runtime() }
    }

    /// What each connection sends.
    pub(crate) fn cycles(&mut self) -> &mut [Cycle] {
        &mut self.cycles
    }

    /// Sends every message of every connection once, one after the other.
    ///
    /// # Errors
    /// As of [`Self::run`].
    pub(crate) fn run_once(&mut self, address: &str) -> Result<()> {
        self.runtime.block_on(async {
            let mut buffer = vec![0; BUFFER];
            for cycle in &mut self.cycles {
                let mut stream = connect(address).await?;
                cycle.begin();
                for _ in 0..cycle.messages() {
                    ask(&mut stream, cycle, &mut buffer).await?;
                }
            }
            Ok(())
        })
    }

    /// Sends for this long, and on until every connection has sent all its messages equally often, at least once.
    ///
    /// # Errors
    /// The sockets', and the server's when it refuses a message.
    pub(crate) fn run(&mut self, contender: &Contender, duration: Duration) -> Result<Measure> {
        let cycles = &mut self.cycles;
        let latencies = Arc::new(Mutex::new(histogram()?));
        let (took, cpu) = self.runtime.block_on(async {
            let mut connections = Vec::with_capacity(cycles.len());
            for _ in 0..cycles.len() {
                connections.push(connect(&contender.address).await?);
            }
            let (started, cpu) = (Instant::now(), contender.cpu()?);
            let until = started + duration;
            let clients = connections.into_iter().zip(cycles.iter_mut()).map(|(stream, cycle)| {
                let client = tokio::spawn(send_until(stream, cycle.clone(), until, latencies.clone()));
                async move {
                    *cycle = client.await??;
                    anyhow::Ok(())
                }
            });
            for client in clients.collect::<Vec<_>>() {
                client.await?;
            }
            anyhow::Ok((started.elapsed(), cpu.zip(contender.cpu()?).map(|(before, after)| after - before)))
        })?;
        let latencies = latencies.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Measure::of(latencies, took, cpu)
    }
}

/// Opens connections, has each exchange one message, and leaves them.
pub(crate) fn open_idle(address: &str, count: usize, frame: &[u8]) -> Result<Idle> {
    let runtime = runtime();
    let connections = runtime.block_on(async {
        let mut connections = Vec::with_capacity(count);
        let mut buffer = vec![0; BUFFER];
        for _ in 0..count {
            let mut stream = connect(address).await?;
            let length = exchange(&mut stream, frame, &mut buffer).await?;
            check(&buffer[..length])?;
            connections.push(stream);
        }
        anyhow::Ok(connections)
    })?;
    Ok(Idle { _connections: connections, _runtime: runtime })
}

/// Latencies with three digits.
pub(crate) fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, LONGEST, 3)?)
}

/// One thread: the clients' own share of a small machine stays small.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime needs only descriptors")
}

async fn send_until(
    mut stream: TcpStream,
    mut cycle: Cycle,
    until: Instant,
    latencies: Arc<Mutex<Histogram<u64>>>,
) -> Result<Cycle> {
    let mut buffer = vec![0; BUFFER];
    cycle.begin();
    loop {
        let sent = Instant::now();
        for _ in 0..cycle.per_operation() {
            ask(&mut stream, &mut cycle, &mut buffer).await?;
        }
        let took = sent.elapsed();
        latencies.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(took.as_nanos() as u64);
        if sent + took >= until && cycle.is_whole() {
            return Ok(cycle);
        }
    }
}

/// Sends the next message, and hears its reply.
async fn ask(stream: &mut TcpStream, cycle: &mut Cycle, buffer: &mut Vec<u8>) -> Result<()> {
    let (message, frame) = cycle.advance();
    let length = exchange(stream, frame, buffer).await?;
    cycle.heard(message, &buffer[..length])
}

impl Measure {
    pub(crate) fn of(latencies: Histogram<u64>, took: Duration, cpu: Option<Duration>) -> Result<Self> {
        let count = latencies.len() as f64;
        ensure!(count > 0.0, "no message was answered in time");
        Ok(Self { rate: count / took.as_secs_f64(), cpu: cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / count), latencies })
    }

    /// Microseconds within which this share of the operations was answered.
    pub(crate) fn percentile(&self, share: f64) -> f64 {
        self.latencies.value_at_quantile(share) as f64 / 1e3
    }
}
