//! What is known of the deployment and of this process, for whoever looks: one task writes it, anybody reads.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use serde::Serialize;
use tokio::sync::watch;

use super::listener::Closing;

/// How far this process has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Nobody is accepted yet.
    #[default]
    Starting,
    Serving,
    /// Nobody is accepted any more; who is here may finish.
    Draining,
    /// The same, because another process has taken over the listeners.
    HandedOver,
}

/// A member, or another server that the connection string names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemberStatus {
    /// As its set calls it.
    pub name: String,
    /// Where docward dials it.
    pub address: String,
    /// "primary", "secondary", "alone" (a standalone or a mongos), "other".
    pub role: Option<&'static str>,
    /// Whether it answered when it was asked last.
    pub answers: bool,
    /// Why it is silent; empty when it answers.
    pub failure: String,
    /// The address listened on for it; `None`: clients do not see it.
    pub listener: Option<SocketAddr>,
    /// The host that hello answers name, if it is not the one listened on.
    pub advertised: Option<String>,
    /// Clients' connections through that listener, now.
    pub connections: usize,
}

/// A member and its listener's connections.
#[derive(Debug)]
pub(super) struct Posted {
    pub(super) status: MemberStatus,
    /// Every connection listens to it; `None`: clients do not see the member.
    pub(super) closing: Option<Arc<watch::Sender<Closing>>>,
}

/// What is known now.
#[derive(Debug, Default)]
pub(super) struct StatusBoard {
    members: ArcSwap<Vec<Posted>>,
    phase: watch::Sender<Phase>,
}

impl StatusBoard {
    pub(super) fn set_members(&self, members: Vec<Posted>) {
        self.members.store(Arc::new(members));
    }

    pub(super) fn set_phase(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    pub(super) fn members(&self) -> Vec<MemberStatus> {
        let counted = |Posted { status, closing }: &Posted| MemberStatus {
            connections: closing.as_ref().map_or(0, |closing| closing.receiver_count()),
            ..status.clone()
        };
        self.members.load().iter().map(counted).collect()
    }

    pub(super) fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }
}
