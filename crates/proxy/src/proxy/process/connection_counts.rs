//! Counts client connections: accepted, refused and ended, by reason.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a connection is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proxy) enum Refusal {
    /// `limits: connections`
    Limit,
    /// `limits: connections_per_address`
    AddressLimit,
    /// The handshake failed or took too long, or the client does not use TLS on a TLS listener.
    Tls,
    /// A balancer's connection without a valid header of the PROXY protocol.
    ProxyProtocol,
    /// No server for it can be reached.
    Unreachable,
}

const REFUSALS: [(Refusal, &str); 5] = [
    (Refusal::Limit, "limit"),
    (Refusal::AddressLimit, "address_limit"),
    (Refusal::Tls, "tls"),
    (Refusal::ProxyProtocol, "proxy_protocol"),
    (Refusal::Unreachable, "unreachable"),
];

/// Why a relayed connection ended.
pub(in crate::proxy) const END_KINDS: [&str; 21] = [
    "client_closed",
    "upstream_closed",
    "unreachable",
    "drained",
    "expired",
    "operator",
    "login_needed",
    "handshake_timeout",
    "login_timeout",
    "displaced",
    "idle",
    "client_error",
    "upstream_error",
    "client_message",
    "client_handshake",
    "client_tls",
    "client_too_long_before_login",
    "client_stalled",
    "upstream_message",
    "upstream_handshake",
    "unprocessable",
];

/// Counters since the start of the process.
#[derive(Debug, Default)]
pub(in crate::proxy) struct ConnectionCounters {
    accepted: AtomicU64,
    refused: [AtomicU64; REFUSALS.len()],
    ended: [AtomicU64; END_KINDS.len()],
}

/// Counts of client connections since the start of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionCounts {
    pub accepted: u64,
    /// By reason.
    pub refused: Vec<(&'static str, u64)>,
    /// Relayed and ended, by reason.
    pub ended: Vec<(&'static str, u64)>,
}

impl ConnectionCounters {
    /// Counts an accepted connection and returns its number, from 1.
    pub(in crate::proxy) fn accepted(&self) -> u64 {
        1 + self.accepted.fetch_add(1, Ordering::Relaxed)
    }

    pub(in crate::proxy) fn refused(&self, refusal: Refusal) {
        let index = REFUSALS.iter().position(|(known, _)| *known == refusal);
        add_one(index.and_then(|index| self.refused.get(index)));
    }

    /// `kind`: one of [`END_KINDS`].
    pub(in crate::proxy) fn ended(&self, kind: &str) {
        let index = END_KINDS.iter().position(|known| *known == kind);
        debug_assert!(index.is_some(), "END_KINDS lacks {kind}");
        add_one(index.and_then(|index| self.ended.get(index)));
    }

    /// The number of open connections.
    pub(in crate::proxy) fn open(&self) -> u64 {
        let ended: u64 = self.ended.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        self.accepted.load(Ordering::Relaxed).saturating_sub(ended)
    }

    pub(in crate::proxy) fn counts(&self) -> ConnectionCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ConnectionCounts {
            accepted: read(&self.accepted),
            refused: REFUSALS.iter().zip(&self.refused).map(|((_, name), count)| (*name, read(count))).collect(),
            ended: END_KINDS.iter().zip(&self.ended).map(|(name, count)| (*name, read(count))).collect(),
        }
    }
}

fn add_one(count: Option<&AtomicU64>) {
    if let Some(count) = count {
        count.fetch_add(1, Ordering::Relaxed);
    }
}
