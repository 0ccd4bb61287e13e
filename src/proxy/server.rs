//! The listeners: binds one per member, accepts, and drains. What becomes of a client is in [`super::arrival`].

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

use super::arrival::{self, Reception};
use super::door::Door;
use super::limits::{LimitSettings, Limits};
use super::observations::{LiveRule, Observations};
use super::policy::Policy;
use super::throttle::Throttle;
use super::tls::ListenerTls;
use super::topology::{Topology, discover};
use super::upstream::Upstream;
use crate::service::Service;
use crate::wire::compressed::Method;

/// How long busy connections may take to finish when docward shuts down.
const DRAIN: Duration = Duration::from_secs(10);
/// Pause after an accept that failed: out of file descriptors is not mended by trying at once.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Where to listen and what stands behind it.
#[derive(Debug, Clone)]
pub struct Config {
    /// The first member's listener; further members take the following ports.
    pub listen: SocketAddr,
    /// Host name for hello replies, if another than the address listened on.
    pub advertise: Option<String>,
    pub upstream: Upstream,
    /// What clients meet; `None`: they speak plainly.
    pub tls: Option<Arc<ListenerTls>>,
    pub limits: LimitSettings,
}

/// Bound listeners, nothing accepted yet.
pub struct Proxy<P> {
    listeners: Vec<TcpListener>,
    topology: Arc<Topology>,
    reception: Arc<Reception>,
    /// Whether some member's own name is still unknown.
    incomplete: bool,
    rules: Arc<ArcSwap<P>>,
    service: Arc<dyn Service>,
    observations: Arc<Observations>,
    compressors: Option<Arc<[Method]>>,
}

/// Sees what rules have said so far.
pub struct Observer<P> {
    observations: Arc<Observations>,
    rules: Arc<ArcSwap<P>>,
}

impl<P: Policy> Observer<P> {
    /// Every rule, with what it has said since it was first loaded; reloads do not end a count.
    #[must_use]
    pub fn report(&self) -> Vec<LiveRule> {
        self.observations.report(&**self.rules.load())
    }

    /// The same as log lines.
    pub fn log(&self) {
        self.report().iter().for_each(LiveRule::log);
    }
}

/// A listener could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {error}; choose another address with --listen or stop who holds it")]
pub struct BindError {
    address: SocketAddr,
    error: io::Error,
}

impl<P: Policy> Proxy<P> {
    /// Asks the upstream for its members and binds a listener for each. An upstream that is down is no error.
    ///
    /// # Errors
    /// [`BindError`].
    pub async fn bind(config: Config, rules: Arc<ArcSwap<P>>, service: Arc<dyn Service>) -> Result<Self, BindError> {
        let (members, answered) = discover(&config.upstream).await;
        let mut listeners = Vec::with_capacity(members.len());
        let mut addresses = Vec::with_capacity(members.len());
        for offset in 0..members.len() {
            let (listener, address) = bind(following(config.listen, offset)).await?;
            listeners.push(listener);
            addresses.push(address);
        }
        let topology = Arc::new(Topology::new(config.advertise, members, addresses));
        let limits = Arc::new(Limits::new(config.limits));
        let compressors = config.upstream.compressors.clone().map(Arc::from);
        let reception = Arc::new(Reception::new(config.upstream, config.tls, limits));
        Ok(Self {
            listeners,
            topology,
            reception,
            incomplete: !answered,
            rules,
            service,
            observations: Arc::default(),
            compressors,
        })
    }

    /// The addresses listened on, the first member's first.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.topology.listeners().iter().copied()
    }

    /// What rules say while it serves.
    pub fn observer(&self) -> Observer<P> {
        Observer { observations: self.observations.clone(), rules: self.rules.clone() }
    }

    /// Serves until `shutdown` is ready; then accepts nobody, closes idle connections and gives busy ones
    /// [`DRAIN`].
    pub async fn serve(self, shutdown: impl Future<Output = ()>) {
        let (draining, drained) = watch::channel(false);
        let mut accepting = tokio::task::JoinSet::new();
        if self.incomplete {
            let (topology, reception) = (self.topology.clone(), self.reception.clone());
            accepting.spawn(async move { topology.learn_names(&reception.upstream).await });
        }
        for (index, listener) in self.listeners.into_iter().enumerate() {
            let door = Arc::new(Door {
                index,
                topology: self.topology.clone(),
                rules: self.rules.clone(),
                service: self.service.clone(),
                observations: self.observations.clone(),
                compressors: self.compressors.clone(),
            });
            accepting.spawn(accept(listener, door, self.reception.clone(), drained.clone()));
        }
        drop(drained);
        shutdown.await;
        accepting.shutdown().await;
        draining.send_replace(true);
        if timeout(DRAIN, draining.closed()).await.is_err() {
            let left = draining.receiver_count();
            tracing::warn!("{left} connections were still busy after {} s and are closed", DRAIN.as_secs());
        }
        Observer { observations: self.observations, rules: self.rules }.log();
    }
}

/// The port of a further member; an ephemeral port (0) stays one.
fn following(first: SocketAddr, offset: usize) -> SocketAddr {
    let mut address = first;
    if first.port() != 0 {
        address.set_port(first.port().saturating_add(u16::try_from(offset).unwrap_or(u16::MAX)));
    }
    address
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), BindError> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let actual = listener.local_addr()?;
        Ok((listener, actual))
    };
    bound.await.map_err(|error| BindError { address, error })
}

async fn accept<P: Policy>(
    listener: TcpListener,
    door: Arc<Door<P>>,
    reception: Arc<Reception>,
    shutdown: watch::Receiver<bool>,
) {
    let failed = Throttle::default();
    loop {
        match listener.accept().await {
            Ok((client, peer)) => {
                tokio::spawn(arrival::receive(client, peer, door.clone(), reception.clone(), shutdown.clone()));
            }
            Err(error) => {
                if let Some(left_out) = failed.line() {
                    tracing::warn!(left_out, "cannot accept a connection, clients wait: {error}");
                }
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_members_take_the_following_ports() {
        let first = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(following(first(27018), 2), first(27020));
        assert_eq!(following(first(0), 2), first(0));
    }
}
