//! The clients: connections that send messages and read replies without a driver, so that their own cost is small
//! compared with the measured one.
//!
//! A closed loop sends the next message when the reply to the last one arrives: it measures throughput, and the
//! latency without queueing. `open_loop.rs` measures the latency at a given rate.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use super::contenders::Contender;
use super::cycle::Cycle;
use super::exchange::{BUFFER, check, connect, exchange};

/// The longest latency that is distinguished, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;

/// The messages that every connection sends repeatedly.
pub(crate) struct Load {
    cycles: Vec<Cycle>,
    runtime: Runtime,
}

/// The results of one run.
pub(crate) struct Measure {
    /// Operations per second.
    pub(crate) rate: f64,
    /// CPU time of the proxy process per operation, in microseconds.
    pub(crate) cpu: Option<f64>,
    /// Nanoseconds from the scheduled send time to the reply.
    pub(crate) latencies: Histogram<u64>,
}

/// Connections that stay idle until this is dropped.
pub(crate) struct Idle {
    _connections: Vec<TcpStream>,
    _runtime: Runtime,
}

impl Load {
    /// `cycle` makes the messages of a connection from its index.
    pub(crate) fn new(connections: usize, cycle: impl Fn(i64) -> Cycle) -> Self {
        let cycle = |number: usize| {
            let mut cycle = cycle(number as i64);
            cycle.set_connection(number as u32);
            cycle
        };
        Self { cycles: (0..connections).map(cycle).collect(), runtime: runtime() }
    }

    /// The messages of each connection.
    pub(crate) fn cycles(&mut self) -> &mut [Cycle] {
        &mut self.cycles
    }

    /// Sends every message of every connection once, one connection after the other.
    ///
    /// # Errors
    /// The same as of [`Self::run`].
    pub(crate) fn run_once(&mut self, address: &str) -> Result<()> {
        self.runtime.block_on(async {
            let mut buffer = vec![0; BUFFER];
            for cycle in &mut self.cycles {
                let mut stream = connect(address).await?;
                cycle.begin();
                for _ in 0..cycle.messages() {
                    exchange_next(&mut stream, cycle, &mut buffer).await?;
                }
            }
            Ok(())
        })
    }

    /// Sends for this long, then continues until every connection has sent all its messages equally often and at
    /// least once.
    ///
    /// # Errors
    /// Socket errors, and replies that report an error.
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

/// Opens connections, exchanges one message on each, and leaves them open.
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

/// A histogram of latencies with three significant digits.
pub(crate) fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, LONGEST, 3)?)
}

/// A single-threaded runtime, so that the clients use little of a small machine.
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
            exchange_next(&mut stream, &mut cycle, &mut buffer).await?;
        }
        let took = sent.elapsed();
        latencies.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(took.as_nanos() as u64);
        if sent + took >= until && cycle.is_whole() {
            return Ok(cycle);
        }
    }
}

/// Sends the next message and reads its reply.
async fn exchange_next(stream: &mut TcpStream, cycle: &mut Cycle, buffer: &mut Vec<u8>) -> Result<()> {
    let (message, frame) = cycle.advance();
    let length = exchange(stream, frame, buffer).await?;
    cycle.on_reply(message, &buffer[..length])
}

impl Measure {
    pub(crate) fn of(latencies: Histogram<u64>, took: Duration, cpu: Option<Duration>) -> Result<Self> {
        let count = latencies.len() as f64;
        ensure!(count > 0.0, "no message was answered in time");
        Ok(Self { rate: count / took.as_secs_f64(), cpu: cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / count), latencies })
    }

    /// The latency in microseconds that this share of the operations does not exceed.
    pub(crate) fn percentile(&self, share: f64) -> f64 {
        self.latencies.value_at_quantile(share) as f64 / 1e3
    }
}
