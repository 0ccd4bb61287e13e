//! What all connections of a process share, in contexts by purpose.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use crate::proxy::members::topology::Topology;
use crate::proxy::process::close_spacing::CloseSpacing;
use crate::proxy::process::connection_counts::ConnectionCounters;
use crate::proxy::process::connection_table::ConnectionTable;
use crate::proxy::process::memory::Memory;
use crate::proxy::process::permits::Permits;
use crate::proxy::recording::Captures;
use crate::proxy::server_side::router_counters::RouterCounters;
use crate::proxy::shutdown::activity::ActivityCounters;
use crate::proxy::telemetry::meter::Meter;
use crate::proxy::telemetry::outcome_counters::OutcomeCounters;
use crate::rules::RuleSet;
use crate::service::Service;
use crate::wire::compressed::CompressionMethod;

/// What all connections of a process share.
pub(in crate::proxy) struct ProcessContext<P = RuleSet> {
    pub(in crate::proxy) rules: RuleContext<P>,
    pub(in crate::proxy) traffic: TrafficContext,
    pub(in crate::proxy) members: MemberContext,
    pub(in crate::proxy) close_spacing: CloseSpacing,
    /// What a drain waits for.
    pub(in crate::proxy) activity: Arc<ActivityCounters>,
}

/// The rules and what their evaluation needs.
pub(in crate::proxy) struct RuleContext<P = RuleSet> {
    /// Replaced as a whole, so that each message sees one consistent rule set.
    pub(in crate::proxy) current: Arc<ArcSwap<P>>,
    pub(in crate::proxy) service: Arc<dyn Service>,
    pub(in crate::proxy) outcomes: OutcomeCounters,
    pub(in crate::proxy) permits: Arc<Permits>,
}

/// What is measured, and what bounds it.
#[derive(Debug)]
pub(in crate::proxy) struct TrafficContext {
    pub(in crate::proxy) meter: Meter,
    pub(in crate::proxy) connection_counters: ConnectionCounters,
    /// Empty if nothing is measured.
    pub(in crate::proxy) open_connections: Arc<ConnectionTable>,
    pub(in crate::proxy) memory: Arc<Memory>,
    pub(in crate::proxy) captures: Captures,
    /// `None`: there is no router.
    pub(in crate::proxy) router_counters: Option<Arc<RouterCounters>>,
    /// Compressors docward offers to the upstream independently of its clients, in order of preference.
    pub(in crate::proxy) compressors: Option<Arc<[CompressionMethod]>>,
}

/// The members and their listeners.
#[derive(Debug)]
pub(in crate::proxy) struct MemberContext {
    pub(in crate::proxy) topology: Topology,
    /// Notified when a server could not be reached.
    pub(in crate::proxy) recheck: Arc<Notify>,
}
