//! Monitors the servers with hello commands: one task and one connection for each server.
//!
//! A server delays its reply until its topology changes, at most for [`HEARTBEAT`] (an awaitable hello). So docward
//! learns of an election or reconfiguration at once, with little traffic otherwise. [`crate::proxy::members::membership`] interprets
//! the results.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::command::own::ping;
use crate::proxy::server_side::hello::{CONNECT_TIMEOUT, Hello, exchange};
use crate::proxy::server_side::upstream::{Address, Upstream};
use crate::proxy::transport::socket::SocketStream;
use crate::text::io_reason;

/// How long a server may delay its reply. Its last write may be this old when its staleness is estimated.
pub(in crate::proxy) const HEARTBEAT: Duration = Duration::from_secs(2);
/// Pause before a server that did not answer is asked again, unless `recheck` is notified.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// A server's reply to a hello, or `None` if it did not answer.
#[derive(Debug, Clone)]
pub(in crate::proxy) struct HelloResult {
    pub(in crate::proxy) address: Address,
    pub(in crate::proxy) hello: Option<Hello>,
    /// Smoothed time from a request to its reply; zero unless it is measured.
    pub(in crate::proxy) round_trip: Duration,
    /// Why it did not answer, for people.
    pub(in crate::proxy) failure: String,
    pub(in crate::proxy) at: Instant,
}

/// The monitoring tasks.
#[derive(Debug)]
pub(in crate::proxy) struct Monitors {
    upstream: Arc<Upstream>,
    results: mpsc::Sender<HelloResult>,
    running: HashMap<Address, JoinHandle<()>>,
    recheck: Arc<Notify>,
    /// Whether round trips are measured.
    measured: bool,
}

impl Monitors {
    /// `recheck` wakes monitors that pause. `measured`: round trips are measured.
    pub(in crate::proxy) fn new(
        upstream: Arc<Upstream>,
        recheck: Arc<Notify>,
        measured: bool,
    ) -> (Self, mpsc::Receiver<HelloResult>) {
        let (results, seen) = mpsc::channel(16);
        (Self { upstream, results, running: HashMap::new(), recheck, measured }, seen)
    }

    /// Monitors exactly these servers.
    pub(in crate::proxy) fn watch(&mut self, addresses: &[Address]) {
        self.running.retain(|address, task| {
            let stays = addresses.contains(address);
            if !stays {
                task.abort();
            }
            stays
        });
        for address in addresses {
            if !self.running.contains_key(address) {
                let task = tokio::spawn(watch(
                    self.upstream.clone(),
                    address.clone(),
                    self.results.clone(),
                    self.recheck.clone(),
                    self.measured,
                ));
                self.running.insert(address.clone(), task);
            }
        }
    }
}

impl Drop for Monitors {
    fn drop(&mut self) {
        self.running.values().for_each(JoinHandle::abort);
    }
}

/// Asks a server once, over a separate connection.
pub(in crate::proxy) async fn ask_once(upstream: &Upstream, address: &Address) -> HelloResult {
    match upstream.hello(address).await {
        Ok(hello) => hello_result(address, hello, Duration::ZERO),
        Err(error) => no_reply(address, &error),
    }
}

fn hello_result(address: &Address, hello: Hello, round_trip: Duration) -> HelloResult {
    let (address, failure) = (address.clone(), String::new());
    HelloResult { address, hello: Some(hello), round_trip, failure, at: Instant::now() }
}

fn no_reply(address: &Address, error: &std::io::Error) -> HelloResult {
    let (address, failure) = (address.clone(), io_reason(error));
    HelloResult { address, hello: None, round_trip: Duration::ZERO, failure, at: Instant::now() }
}

/// Monitors one server until the receiver is dropped.
async fn watch(
    upstream: Arc<Upstream>,
    address: Address,
    results: mpsc::Sender<HelloResult>,
    recheck: Arc<Notify>,
    measured: bool,
) {
    loop {
        // It returns `Ok` only when the receiver is dropped.
        let Err(error) = follow(&upstream, &address, &results, measured).await else { return };
        if results.send(no_reply(&address, &error)).await.is_err() {
            return;
        }
        // Failed client connections notify `recheck`. The minimum pause keeps many of them from causing as many
        // hellos.
        sleep(RETRY_PAUSE / 5).await;
        let _ = timeout(RETRY_PAUSE, recheck.notified()).await;
    }
}

/// Asks over one connection until it fails.
async fn follow(
    upstream: &Upstream,
    address: &Address,
    results: &mpsc::Sender<HelloResult>,
    measured: bool,
) -> std::io::Result<()> {
    let mut stream = upstream.connect(address).await?;
    let mut last: Option<Hello> = None;
    let mut round_trip = Duration::ZERO;
    loop {
        let version = last.as_ref().and_then(|hello| hello.topology_version.as_deref());
        if last.is_some() && version.is_none() {
            sleep(HEARTBEAT).await;
        }
        if measured {
            round_trip = smoothed(round_trip, measure_round_trip(&mut stream).await?);
        }
        let hello = Hello::ask(&mut stream, version, HEARTBEAT).await?;
        if last.is_none() {
            upstream.check_login_requirement(address).await;
        }
        last = Some(hello.clone());
        if results.send(hello_result(address, hello, round_trip)).await.is_err() {
            return Ok(());
        }
    }
}

/// The time from a ping to its reply.
async fn measure_round_trip(stream: &mut SocketStream) -> std::io::Result<Duration> {
    let asked = Instant::now();
    timeout(CONNECT_TIMEOUT, exchange(stream, &ping(1))).await??;
    Ok(asked.elapsed())
}

/// The exponentially weighted average that drivers use (specification "Server Selection", "Average Round Trip Times").
fn smoothed(average: Duration, sample: Duration) -> Duration {
    if average.is_zero() { sample } else { average.mul_f64(0.8) + sample.mul_f64(0.2) }
}
