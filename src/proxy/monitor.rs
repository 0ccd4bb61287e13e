//! Asks every server again and again who it is: one task and one connection for each.
//!
//! A server holds its answer back until it has news, at most for [`HEARTBEAT`] (an awaitable hello), so that an
//! election or another configuration is known at once and costs nothing until then. What the answers mean is up to
//! [`super::membership`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::hello::Hello;
use super::membership::HelloResult;
use super::upstream::{Address, Upstream};

/// How long a server may keep an answer without news; so old its last write may be when it is evaluated.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(2);
/// Pause before a server that did not answer is asked again, unless somebody cannot wait.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The tasks that ask.
#[derive(Debug)]
pub(super) struct Monitors {
    upstream: Arc<Upstream>,
    sightings: mpsc::Sender<HelloResult>,
    running: HashMap<Address, JoinHandle<()>>,
    recheck: Arc<Notify>,
}

impl Monitors {
    /// `recheck` wakes those who pause.
    pub(super) fn new(upstream: Arc<Upstream>, recheck: Arc<Notify>) -> (Self, mpsc::Receiver<HelloResult>) {
        let (sightings, seen) = mpsc::channel(16);
        (Self { upstream, sightings, running: HashMap::new(), recheck }, seen)
    }

    /// Asks these and nobody else.
    pub(super) fn watch(&mut self, addresses: &[Address]) {
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
                    self.sightings.clone(),
                    self.recheck.clone(),
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

/// Asks a server once, over a connection of its own.
pub(super) async fn ask_once(upstream: &Upstream, address: &Address) -> HelloResult {
    match upstream.hello(address).await {
        Ok(hello) => hello_result(address, hello),
        Err(error) => silence(address, &error),
    }
}

fn hello_result(address: &Address, hello: Hello) -> HelloResult {
    HelloResult { address: address.clone(), hello: Some(hello), failure: String::new(), at: Instant::now() }
}

fn silence(address: &Address, error: &std::io::Error) -> HelloResult {
    HelloResult { address: address.clone(), hello: None, failure: error.to_string(), at: Instant::now() }
}

/// Ends when nobody wants to know any more.
async fn watch(upstream: Arc<Upstream>, address: Address, sightings: mpsc::Sender<HelloResult>, recheck: Arc<Notify>) {
    loop {
        // It only ends well when nobody wants to know any more.
        let Err(error) = follow(&upstream, &address, &sightings).await else { return };
        if sightings.send(silence(&address, &error)).await.is_err() {
            return;
        }
        // Whoever could not connect just now tells so; a storm of them must not become one of ours.
        sleep(ASK_AGAIN / 5).await;
        let _ = timeout(ASK_AGAIN, recheck.notified()).await;
    }
}

/// Asks over one connection until it breaks.
async fn follow(upstream: &Upstream, address: &Address, sightings: &mpsc::Sender<HelloResult>) -> std::io::Result<()> {
    let mut stream = upstream.connect(address).await?;
    let mut last: Option<Hello> = None;
    loop {
        let version = last.as_ref().and_then(|hello| hello.topology_version.as_deref());
        if last.is_some() && version.is_none() {
            sleep(HEARTBEAT).await;
        }
        let hello = Hello::ask(&mut stream, version, HEARTBEAT).await?;
        if last.is_none() {
            upstream.learn_login_demand(address).await;
        }
        last = Some(hello.clone());
        if sightings.send(hello_result(address, hello)).await.is_err() {
            return Ok(());
        }
    }
}
