//! The sockets: listeners, sessions, the relay between a client and its member, and who the members are.
//!
//! Knows tokio and clocks, and carries out what [`crate::engine`] plans; it must not know what a rule is.
//! Start reading at [`server`], then [`relay`] for a connection and [`deployment`] for listeners and members.

mod deployment;
mod door;
mod end;
mod hand_over;
mod judge;
mod membership;
mod monitor;
mod observations;
mod outbox;
mod owed;
mod policy;
mod queries;
mod relay;
mod server;
mod session;
mod socket;
mod sockets;
mod splitter;
mod topology;
mod transactions;
mod upstream;

pub use deployment::Placement;
pub use policy::{Policy, Steps};
pub use server::{Config, Proxy, StartError};
pub use topology::{Advertised, Mapped};
pub use upstream::{Address, CONNECT_TIMEOUT, Upstream, UpstreamError};
