//! The clients: connections that each send the next message as soon as its reply is here, without a driver,
//! so that they cost little beside what they measure.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use super::canned::frame_length;
use super::contenders::Contender;
use super::frames::TICK;

/// What every connection sends, again and again.
pub(crate) struct Load {
    frames: Vec<Message>,
    runtime: Runtime,
}

/// One connection's message, with the places of its source time.
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
    /// Microseconds from sending to the reply.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

/// Connections on which nothing happens until this is dropped.
pub(crate) struct Idle {
    _connections: Vec<TcpStream>,
    _runtime: Runtime,
}

impl Load {
    /// `frame` makes the message of each connection by its number.
    pub(crate) fn new(connections: usize, frame: impl Fn(i64) -> Vec<u8>) -> Self {
        let frames = (0..connections as i64).map(|id| Message::new(frame(id))).collect();
        Self { frames, runtime: runtime() }
    }

    /// Sends for this long.
    ///
    /// # Errors
    /// The sockets', and the server's when it refuses a message.
    pub(crate) fn run(&mut self, contender: &Contender, duration: Duration) -> Result<Measure> {
        let frames = &mut self.frames;
        self.runtime.block_on(async {
            let mut connections = Vec::with_capacity(frames.len());
            for _ in 0..frames.len() {
                connections.push(connect(&contender.address).await?);
            }
            let (started, cpu) = (Instant::now(), contender.cpu()?);
            let until = started + duration;
            let clients = connections.into_iter().zip(frames.iter_mut()).map(|(stream, message)| {
                let message_now = message.clone();
                let client = tokio::spawn(send_until(stream, message_now, until));
                async move {
                    let (latencies, after) = client.await??;
                    *message = after;
                    anyhow::Ok(latencies)
                }
            });
            let mut latencies = Vec::new();
            for client in clients.collect::<Vec<_>>() {
                latencies.extend(client.await?);
            }
            Measure::of(latencies, started.elapsed(), cpu.zip(contender.cpu()?).map(|(before, after)| after - before))
        })
    }
}

/// Opens connections, has each exchange one message, and leaves them.
pub(crate) fn open_idle(address: &str, count: usize, frame: &[u8]) -> Result<Idle> {
    let runtime = runtime();
    let connections = runtime.block_on(async {
        let mut connections = Vec::with_capacity(count);
        for _ in 0..count {
            let mut stream = connect(address).await?;
            exchange(&mut stream, frame, &mut vec![0; 64 * 1024]).await?;
            connections.push(stream);
        }
        anyhow::Ok(connections)
    })?;
    Ok(Idle { _connections: connections, _runtime: runtime })
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

async fn send_until(mut stream: TcpStream, mut message: Message, until: Instant) -> Result<(Vec<Duration>, Message)> {
    let mut latencies = Vec::with_capacity(16 * 1024);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let sent = Instant::now();
        if sent >= until {
            return Ok((latencies, message));
        }
        message.advance();
        exchange(&mut stream, &message.bytes, &mut buffer).await?;
        latencies.push(sent.elapsed());
    }
}

/// Sends a message and reads its reply, which must say that all went well.
async fn exchange(stream: &mut TcpStream, frame: &[u8], buffer: &mut [u8]) -> Result<()> {
    stream.write_all(frame).await?;
    let mut filled = 0;
    loop {
        let read = stream.read(&mut buffer[filled..]).await?;
        ensure!(read > 0, "the connection was closed instead of a reply");
        filled += read;
        if frame_length(&buffer[..filled]).is_some_and(|length| length <= filled) {
            let reply = &buffer[..filled];
            let refused = [&b"\x01ok\0\0\0\0\0\0\0\0\0"[..], b"\x04writeErrors\0"];
            let failed = refused.iter().any(|part| reply.windows(part.len()).any(|window| window == *part));
            ensure!(!failed, "the server refused a message: {}", String::from_utf8_lossy(reply));
            return Ok(());
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
    fn advance(&mut self) {
        self.time += 1;
        for at in &self.ticks {
            self.bytes[*at..at + 8].copy_from_slice(&self.time.to_le_bytes());
        }
    }
}

impl Measure {
    fn of(mut latencies: Vec<Duration>, took: Duration, cpu: Option<Duration>) -> Result<Self> {
        ensure!(!latencies.is_empty(), "no message was answered in time");
        latencies.sort_unstable();
        let percentile = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
        let count = latencies.len() as f64;
        Ok(Self {
            rate: count / took.as_secs_f64(),
            cpu: cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / count),
            p50: percentile(0.5),
            p99: percentile(0.99),
        })
    }
}
