//! Accepting clients: one listener for each member, admission, and the threads that run connections.

pub(super) mod acceptor;
pub(super) mod admission;
pub(super) mod listeners;
pub(super) mod refused;
pub(super) mod workers;
