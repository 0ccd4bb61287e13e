//! The configuration of a proxy.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use tokio::sync::watch;

use crate::proxy::members::placement::ListenerPlacement;
use crate::proxy::process::limits::LimitSettings;
use crate::proxy::server_side::pool::settings::PoolSettings;
use crate::proxy::server_side::upstream::Upstream;
use crate::proxy::telemetry::spans::Tracer;
use crate::proxy::transport::tls::ListenerTls;

/// The listeners, the upstream and their settings.
#[derive(Debug, Clone)]
pub struct ProxyConfig {
    /// May be replaced while the proxy runs: listeners whose addresses change close, and others open.
    pub placement: Arc<watch::Sender<ListenerPlacement>>,
    pub query_listen: Option<SocketAddr>,
    /// The address of a router's listener, which takes the place of all listeners of members. Needs a pool.
    pub router: Option<SocketAddr>,
    pub upstream: Upstream,
    /// The addresses of balancers that send a header of the PROXY protocol, with the address of their client.
    pub balancers: Arc<[IpNet]>,
    /// `None`: clients connect without TLS.
    pub tls: Option<Arc<ListenerTls>>,
    /// May be replaced while the proxy runs: new connections get the new limits.
    pub limits: Arc<watch::Sender<LimitSettings>>,
    /// `None`: each client has a server connection of its own.
    pub pool: Option<PoolSettings>,
    /// How long connections may take to finish during a graceful shutdown.
    pub drain_timeout: Duration,
    /// Socket path over which a process passes its sockets to the next one.
    pub hand_over: Option<PathBuf>,
    /// Whether to measure messages, for [`Observer::measures`](super::Observer::measures). With a tracer they are measured anyway.
    pub measured: bool,
    /// Receives spans; `None`: no tracing.
    pub tracer: Option<Arc<Tracer>>,
    /// Whether decisions are logged with their documents.
    pub log_documents: bool,
}
