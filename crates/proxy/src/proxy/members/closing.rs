//! How a listener notifies its connections that they must close, and the servers that a new connection tries.

use tokio::sync::watch;

use crate::proxy::server_side::upstream::Address;

/// The state a listener sets for its connections; later variants are more urgent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::proxy) enum Closing {
    #[default]
    Open,
    /// The process will end, or another one with the same addresses: drivers must stop selecting its members.
    Drain,
    /// Close when the connection is idle.
    WhenIdle,
    /// Close immediately: the server will not answer.
    Now,
}

/// A server to try for a new connection.
#[derive(Debug)]
pub(in crate::proxy) struct CandidateServer {
    pub(in crate::proxy) address: Address,
    pub(in crate::proxy) closing: watch::Receiver<Closing>,
}
