//! Sockets: options, TLS, and listening sockets that come from other processes.

pub(super) mod listening_sockets;
pub(super) mod socket;
pub(super) mod tls;
