//! The side of the servers: the connection string, dialling, and hello.

pub(super) mod hello;
pub(super) mod pool;
pub(super) mod router;
pub(super) mod router_counters;
pub(super) mod upstream;
