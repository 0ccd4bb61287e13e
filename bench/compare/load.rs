//! The clients: connections that send messages and read the replies, without a driver, so that they cost little
//! beside what they measure.
//!
//! A closed loop sends the next message when the reply to the last is here: it measures throughput, and what a
//! reply takes when nobody is in a hurry. What clients feel at a given rate is measured in `open_loop.rs`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use super::canned::frame_length;
use super::contenders::Contender;
use super::frames::TICK;

/// The longest latency that is told apart, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;
/// A read buffer at first; it grows with the replies.
const BUFFER: usize = 16 * 1024;

/// What every connection sends, again and again.
pub(crate) struct Load {
    cycles: Vec<Cycle>,
    runtime: Runtime,
}

/// One connection's messages, which together are one operation or several.
#[derive(Clone)]
pub(crate) struct Cycle {
    messages: Vec<Message>,
    /// Messages of one operation.
    per_operation: usize,
}

/// One message, with the places of its source time.
#[derive(Clone)]
struct Message {
    bytes: Vec<u8>,
    ticks: Vec<usize>,
    time: i64,
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

impl Cycle {
    /// One message that is one operation.
    pub(crate) fn of(message: Vec<u8>) -> Self {
        Self::in_turn(vec![message])
    }

    /// Each message is an operation.
    pub(crate) fn in_turn(messages: Vec<Vec<u8>>) -> Self {
        Self { messages: messages.into_iter().map(Message::new).collect(), per_operation: 1 }
    }

    /// All messages together are one operation.
    pub(crate) fn together(messages: Vec<Vec<u8>>) -> Self {
        Self { per_operation: messages.len(), ..Self::in_turn(messages) }
    }
}

impl Load {
    /// `cycle` makes what each connection sends by its number.
    pub(crate) fn new(connections: usize, cycle: impl Fn(i64) -> Cycle) -> Self {
        Self { cycles: (0..connections as i64).map(cycle).collect(), runtime: runtime() }
    }

    /// Sends for this long.
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
            exchange(&mut stream, frame, &mut buffer).await?;
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

/// Refuses a reply that does not say that all went well.
pub(crate) fn check(reply: &[u8]) -> Result<()> {
    /// An error stands at the beginning or the end of its reply; documents that were found lie between.
    const SEARCHED: usize = 1024;
    let ends = [&reply[..reply.len().min(SEARCHED)], &reply[reply.len().saturating_sub(SEARCHED)..]];
    let signs = [&b"\x01ok\0\0\0\0\0\0\0\0\0"[..], b"\x04writeErrors\0"];
    let refused = ends.iter().any(|end| signs.iter().any(|sign| memchr::memmem::find(end, sign).is_some()));
    ensure!(!refused, "the server refused a message: {}", String::from_utf8_lossy(reply));
    Ok(())
}

/// One thread: the clients' own share of a small machine stays small.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime needs only descriptors")
}

async fn connect(address: &str) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn send_until(
    mut stream: TcpStream,
    mut cycle: Cycle,
    until: Instant,
    latencies: Arc<Mutex<Histogram<u64>>>,
) -> Result<Cycle> {
    let mut buffer = vec![0; BUFFER];
    loop {
        for operation in cycle.messages.chunks_mut(cycle.per_operation) {
            let sent = Instant::now();
            if sent >= until {
                return Ok(cycle);
            }
            for message in operation {
                exchange(&mut stream, message.advance(), &mut buffer).await?;
            }
            let took = sent.elapsed().as_nanos() as u64;
            latencies.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(took);
        }
    }
}

/// Sends a message and reads its reply.
async fn exchange(stream: &mut TcpStream, frame: &[u8], buffer: &mut Vec<u8>) -> Result<()> {
    stream.write_all(frame).await?;
    let mut filled = 0;
    loop {
        let read = stream.read(&mut buffer[filled..]).await?;
        ensure!(read > 0, "the connection was closed instead of a reply");
        filled += read;
        match frame_length(&buffer[..filled]) {
            Some(length) if length <= filled => return check(&buffer[..filled]),
            Some(length) if length > buffer.len() => buffer.resize(length, 0),
            _ => {}
        }
    }
}

impl Message {
    fn new(bytes: Vec<u8>) -> Self {
        let tick = TICK.to_le_bytes();
        let ticks = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(&tick)).collect();
        Self { bytes, ticks, time: TICK }
    }

    /// The source's clock goes on, so that every write changes something.
    fn advance(&mut self) -> &[u8] {
        self.time += 1;
        for at in &self.ticks {
            self.bytes[*at..at + 8].copy_from_slice(&self.time.to_le_bytes());
        }
        &self.bytes
    }
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
