//! Limits on the number of client connections. [`crate::proxy::listening::refused`] replies to refused clients.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::proxy::process::connection_counts::Refusal;
use crate::proxy::process::unauthenticated::{Slot, UnauthenticatedConnections};

/// Configured limits; `None` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitSettings {
    /// Client connections of all listeners together.
    pub connections: Option<usize>,
    pub connections_per_address: Option<usize>,
    /// Time without a message in either direction. A connection that waits for a reply is not idle.
    pub idle_timeout: Option<Duration>,
    /// Of client connections, from the first message, or the login where the server requires one.
    pub max_lifetime: Option<Duration>,
    /// For TLS, the first message and, where the server requires one, the login together.
    pub handshake_timeout: Duration,
    /// Connections that have not logged in although they must.
    pub unauthenticated: Option<usize>,
    /// Bytes of large messages that are collected, decompressed and rewritten at the same time.
    pub memory: usize,
}

impl Default for LimitSettings {
    /// Like mongod, no limit on connections and idle time. Ten seconds are the usual handshake timeout of drivers. The
    /// memory fits a machine with 4 GiB.
    fn default() -> Self {
        Self {
            connections: None,
            connections_per_address: None,
            idle_timeout: None,
            max_lifetime: None,
            handshake_timeout: Duration::from_secs(10),
            unauthenticated: None,
            memory: 1 << 30,
        }
    }
}

/// Why a connection is refused. The text goes to the client and the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in crate::proxy) enum LimitReached {
    #[error(
        "all {0} connections of docward are in use (limits: connections); close some, for example with a \
         smaller maxPoolSize, or raise the limit"
    )]
    Connections(usize),
    #[error(
        "{1} already has {0} connections, the limit for one address (limits: connections_per_address); close some, \
         for example with a smaller maxPoolSize, or raise the limit"
    )]
    Address(usize, IpAddr),
}

impl LimitReached {
    pub(in crate::proxy) fn refusal(self) -> Refusal {
        match self {
            Self::Connections(_) => Refusal::Limit,
            Self::Address(..) => Refusal::AddressLimit,
        }
    }
}

/// Counts open connections.
#[derive(Debug, Default)]
pub(in crate::proxy) struct ConnectionLimits {
    settings: ArcSwap<LimitSettings>,
    unauthenticated: Arc<UnauthenticatedConnections>,
    open: AtomicUsize,
    /// Contains only addresses with open connections.
    by_address: Mutex<HashMap<IpAddr, usize>>,
}

/// Counts one connection until it is dropped.
#[derive(Debug)]
pub(in crate::proxy) struct Admission {
    limits: Arc<ConnectionLimits>,
    address: IpAddr,
}

impl ConnectionLimits {
    pub(in crate::proxy) fn new(settings: LimitSettings) -> Self {
        let limits = Self::default();
        limits.set(settings);
        limits
    }

    /// Sets the limits of new connections. Open ones stay, and keep the timeouts that have begun.
    pub(in crate::proxy) fn set(&self, settings: LimitSettings) {
        self.unauthenticated.set_limit(settings.unauthenticated);
        self.settings.store(Arc::new(settings));
    }

    pub(in crate::proxy) fn settings(&self) -> LimitSettings {
        **self.settings.load()
    }

    /// The number of open connections.
    pub(in crate::proxy) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Counts a connection if the limits allow it.
    ///
    /// # Errors
    /// [`LimitReached`]: a limit is reached.
    pub(in crate::proxy) fn admit(self: &Arc<Self>, address: IpAddr) -> Result<Admission, LimitReached> {
        let address = address.to_canonical();
        let LimitSettings { connections, connections_per_address, .. } = self.settings();
        let open = self.open.fetch_add(1, Ordering::Relaxed);
        if let Some(limit) = connections.filter(|limit| open >= *limit) {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return Err(LimitReached::Connections(limit));
        }
        // Counted without a limit too: a reload may set one.
        let mut by_address = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        let open = by_address.entry(address).or_default();
        if let Some(limit) = connections_per_address.filter(|limit| *open >= *limit) {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return Err(LimitReached::Address(limit, address));
        }
        *open += 1;
        Ok(Admission { limits: self.clone(), address })
    }
}

impl Admission {
    pub(in crate::proxy) fn settings(&self) -> LimitSettings {
        self.limits.settings()
    }

    /// Counts the connection as one that has not logged in although it must.
    pub(in crate::proxy) fn count_unauthenticated(&self) -> Slot {
        self.limits.unauthenticated.add(self.address)
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.limits.open.fetch_sub(1, Ordering::Relaxed);
        let mut by_address = self.limits.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = by_address.get_mut(&self.address) {
            *open -= 1;
            if *open == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(connections: Option<usize>, connections_per_address: Option<usize>) -> Arc<ConnectionLimits> {
        Arc::new(ConnectionLimits::new(LimitSettings {
            connections,
            connections_per_address,
            ..LimitSettings::default()
        }))
    }

    #[test]
    fn a_dropped_admission_frees_its_slot() {
        let (one, two): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        let mapped: IpAddr = "::ffff:192.0.2.1".parse().unwrap();
        let all = limits(Some(2), None);
        let (first, second) = (all.admit(one).unwrap(), all.admit(one).unwrap());
        assert_eq!(all.admit(two).unwrap_err(), LimitReached::Connections(2));
        drop(first);
        let third = all.admit(two).unwrap();
        drop((second, third));
        assert_eq!(all.open.load(Ordering::Relaxed), 0);

        let each = limits(Some(3), Some(1));
        let (first, second) = (each.admit(one).unwrap(), each.admit(two).unwrap());
        assert_eq!(each.admit(mapped).unwrap_err(), LimitReached::Address(1, one));
        assert_eq!(each.open.load(Ordering::Relaxed), 2);
        drop((first, second));
        assert!(each.by_address.lock().unwrap().is_empty());
        assert_eq!(each.open.load(Ordering::Relaxed), 0);
        assert!(each.admit(mapped).is_ok());
    }

    #[test]
    fn new_limits_count_the_connections_that_are_open() {
        let (one, two): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let limits = limits(None, None);
        let _open = [limits.admit(one).unwrap(), limits.admit(one).unwrap()];
        limits.set(LimitSettings { connections_per_address: Some(2), ..LimitSettings::default() });
        assert_eq!(limits.admit(one).unwrap_err(), LimitReached::Address(2, one));
        let _other = limits.admit(two).unwrap();
        limits.set(LimitSettings { connections: Some(3), ..LimitSettings::default() });
        assert_eq!(limits.admit(two).unwrap_err(), LimitReached::Connections(3));
    }
}
