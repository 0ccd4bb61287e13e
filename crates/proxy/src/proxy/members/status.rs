//! The status of the deployment and of this process. One task writes it; readers never block it.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use serde::Serialize;
use tokio::sync::watch;

use crate::proxy::members::closing::Closing;

/// The phase of this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessPhase {
    /// Connections are not accepted yet.
    #[default]
    Starting,
    Serving,
    /// New connections are not accepted any more, or soon; open ones may finish.
    Draining,
    /// Like `Draining`, because another process has taken over the listeners.
    HandedOver,
}

/// A member, or another server of the connection string.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemberStatus {
    /// Its name in the replica set's configuration.
    pub name: String,
    /// The address docward connects to.
    pub address: String,
    /// "primary", "secondary", "standalone" (a standalone or a mongos), "other".
    pub role: Option<&'static str>,
    /// Whether it replied to the last hello.
    pub up: bool,
    /// Why it does not reply; empty if it does.
    pub error: String,
    /// The address of its listener; `None`: hidden from clients.
    pub listener: Option<SocketAddr>,
    /// The host in hello replies, if it differs from the listener's.
    pub advertised: Option<String>,
    /// Number of open client connections through that listener.
    pub connections: usize,
    /// How far a secondary was behind the primary when both replied last, in milliseconds; `None`: unknown.
    pub lag: Option<u64>,
}

impl MemberStatus {
    /// Whether clients cannot write because they do not see this member.
    #[must_use]
    pub fn is_hidden_primary(&self) -> bool {
        self.role == Some("primary") && self.listener.is_none()
    }
}

/// A member and the state channel of its listener.
#[derive(Debug)]
pub(in crate::proxy) struct ListedMember {
    pub(in crate::proxy) status: MemberStatus,
    /// Every connection of the listener subscribes to it; `None`: the member is hidden from clients.
    pub(in crate::proxy) closing: Option<Arc<watch::Sender<Closing>>>,
}

/// The current status.
#[derive(Debug, Default)]
pub(in crate::proxy) struct ProcessStatus {
    members: ArcSwap<Vec<ListedMember>>,
    phase: watch::Sender<ProcessPhase>,
}

impl ProcessStatus {
    pub(in crate::proxy) fn set_members(&self, members: Vec<ListedMember>) {
        self.members.store(Arc::new(members));
    }

    pub(in crate::proxy) fn set_phase(&self, phase: ProcessPhase) {
        self.phase.send_replace(phase);
    }

    pub(in crate::proxy) fn members(&self) -> Vec<MemberStatus> {
        let counted = |ListedMember { status, closing }: &ListedMember| MemberStatus {
            connections: closing.as_ref().map_or(0, |closing| closing.receiver_count()),
            ..status.clone()
        };
        self.members.load().iter().map(counted).collect()
    }

    pub(in crate::proxy) fn phase(&self) -> watch::Receiver<ProcessPhase> {
        self.phase.subscribe()
    }
}
