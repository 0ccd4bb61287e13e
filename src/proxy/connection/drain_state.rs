//! How far a connection is with the end of its process.

use crate::proxy::shutdown::activity::BusyGuard;

/// The progress of draining.
#[derive(Debug, Default)]
pub(in crate::proxy) struct DrainState {
    /// Close when the connection is idle.
    pub(in crate::proxy) when_idle: bool,
    /// Draining has begun.
    pub(super) begun: bool,
    /// The monitor has got its last hello reply; later replies of its server are not forwarded.
    pub(super) last_reply_sent: bool,
    /// Held while something is in flight.
    pub(super) busy: Option<BusyGuard>,
}
