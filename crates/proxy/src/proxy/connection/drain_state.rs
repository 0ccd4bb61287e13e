//! How far a connection is with the end of its process, or of its own lifetime.
//!
//! A connection that is too old ends as in a drain, by its driver's monitor: if others closed, the driver would clear its
//! pool, and operations that wait for a connection and cannot be repeated would fail.

use crate::engine::Retried;
use crate::proxy::connection::end::End;
use crate::proxy::shutdown::activity::BusyGuard;

/// How far a connection is with its lifetime, if that is limited.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(in crate::proxy) enum Age {
    #[default]
    Young,
    /// It has reached its maximum lifetime, and its driver is to replace it.
    Old,
    /// It closes because of its age.
    Expired,
}

/// The progress of draining.
#[derive(Debug, Default)]
pub(in crate::proxy) struct DrainState {
    /// Close when the connection is idle, or in place of a request that the driver sends again at least this certainly.
    pub(in crate::proxy) closes: Option<Retried>,
    pub(in crate::proxy) age: Age,
    /// Draining has begun.
    pub(super) begun: bool,
    /// The monitor has got its last hello reply; later replies of its server are not forwarded.
    pub(super) last_reply_sent: bool,
    /// Held while something is in flight.
    pub(super) busy: Option<BusyGuard>,
}

impl DrainState {
    /// Why the connection closes.
    pub(in crate::proxy) fn end(&self) -> End {
        if self.age == Age::Expired { End::Expired } else { End::Drained }
    }
}
