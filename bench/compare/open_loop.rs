//! Clients that send by a fixed schedule without waiting for replies, like independent users.
//!
//! A latency is measured from the scheduled send time. A closed loop sends less while the server stalls, and so never
//! measures how long requests that arrive meanwhile would wait (coordinated omission).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::num::NonZero;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use hdrhistogram::Histogram;

use super::canned::frame_length;
use super::contenders::Contender;
use super::cycle::Cycle;
use super::load::{Load, Measure, histogram};

/// The send times: evenly spaced, with the connections in turn.
#[derive(Clone, Copy)]
struct Schedule {
    start: Instant,
    interval: Duration,
    connections: u32,
    messages: u32,
}

/// Time for preparing the first message.
const LEAD: Duration = Duration::from_millis(20);
/// The longest time a reply may take.
const TIMEOUT: Duration = Duration::from_secs(30);

impl Schedule {
    /// When a connection sends the message with this number.
    fn due(&self, connection: u32, number: u32) -> Instant {
        self.start + self.interval * (number * self.connections + connection)
    }

    /// How many messages a connection sends.
    fn share(&self, connection: u32) -> u32 {
        (self.messages + self.connections - 1 - connection) / self.connections
    }
}

/// Sends this many messages per second over all connections; each message is an operation.
///
/// # Errors
/// Socket errors, and replies that report an error.
pub(crate) fn run(load: &mut Load, contender: &Contender, rate: f64, duration: Duration) -> Result<Measure> {
    let cycles = load.cycles();
    let connections = cycles.len() as u32;
    let sockets = (0..connections).map(|_| connect(&contender.address)).collect::<Result<Vec<_>>>()?;
    let messages = (rate * duration.as_secs_f64()) as u32;
    let interval = Duration::from_secs_f64(1.0 / rate);
    let schedule = Schedule { start: Instant::now() + LEAD, interval, connections, messages };
    let latencies = Mutex::new(histogram()?);
    let cpu = contender.cpu()?;
    thread::scope(|scope| {
        let readers: Vec<_> = (0..)
            .zip(&sockets)
            .zip(cycles.iter_mut())
            .map(|((number, socket), cycle)| {
                cycle.begin();
                let (latencies, cycle) = (&latencies, cycle.clone());
                scope.spawn(move || read(socket, number, &cycle, schedule, latencies))
            })
            .collect();
        let sent = send(&sockets, cycles, schedule);
        let read = readers.into_iter().map(|reader| reader.join().map_err(|_| anyhow!("a reader panicked"))?);
        sent.and(read.collect::<Result<()>>())
    })?;
    let cpu = cpu.zip(contender.cpu()?).map(|(before, after)| after - before);
    let latencies = latencies.into_inner().map_err(|_| anyhow!("a reader panicked"))?;
    Measure::of(latencies, schedule.start.elapsed(), cpu)
}

fn connect(address: &str) -> Result<TcpStream> {
    let socket = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    Ok(socket)
}

/// A sender that is late sends all overdue messages at once.
fn send(sockets: &[TcpStream], cycles: &mut [Cycle], schedule: Schedule) -> Result<()> {
    // To save power the kernel may wake a thread 50 us late, which would add to the latency.
    rustix::thread::set_current_timer_slack(Some(NonZero::<u64>::MIN))?;
    for message in 0..schedule.messages {
        let (number, connection) = (message / schedule.connections, message % schedule.connections);
        let wait = schedule.due(connection, number).saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            thread::sleep(wait);
        }
        let (_, frame) = cycles[connection as usize].advance();
        (&sockets[connection as usize]).write_all(frame)?;
    }
    Ok(())
}

/// Replies arrive in the order of their messages, so counting matches them.
fn read(
    mut socket: &TcpStream,
    connection: u32,
    cycle: &Cycle,
    schedule: Schedule,
    latencies: &Mutex<Histogram<u64>>,
) -> Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    let mut filled = 0;
    let mut number = 0;
    while number < schedule.share(connection) {
        let read = socket.read(&mut buffer[filled..]).context("a reply did not come in time")?;
        anyhow::ensure!(read > 0, "the connection was closed instead of a reply");
        filled += read;
        if let Some(length) = frame_length(&buffer[..filled]).filter(|length| *length > buffer.len()) {
            buffer.resize(length, 0);
        }
        let mut at = 0;
        while let Some(length) = frame_length(&buffer[at..filled]).filter(|length| at + length <= filled) {
            cycle.on_reply(number as usize % cycle.messages(), &buffer[at..at + length])?;
            let took = schedule.due(connection, number).elapsed().as_nanos() as u64;
            latencies.lock().map_err(|_| anyhow!("a reader panicked"))?.saturating_record(took);
            (at, number) = (at + length, number + 1);
        }
        buffer.copy_within(at..filled, 0);
        filled -= at;
    }
    Ok(())
}
