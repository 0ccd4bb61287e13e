//! What is known of the deployment and of this process, for whoever looks: one task writes it, anybody reads.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use serde::Serialize;
use tokio::sync::watch;

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
}

/// What is known now.
#[derive(Debug, Default)]
pub(super) struct Board {
    members: ArcSwap<Vec<MemberStatus>>,
    phase: watch::Sender<Phase>,
}

impl Board {
    pub(super) fn set_members(&self, members: Vec<MemberStatus>) {
        self.members.store(Arc::new(members));
    }

    pub(super) fn set_phase(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    pub(super) fn members(&self) -> Arc<Vec<MemberStatus>> {
        self.members.load_full()
    }

    pub(super) fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }
}
