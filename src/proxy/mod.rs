//! The sockets: listeners, sessions, the relay between a client and its member, and who the members are.
//!
//! Knows tokio and clocks, and carries out what [`crate::engine`] plans; it must not know what a rule is.
//! Start reading at [`server`], then [`relay`] for a connection and [`deployment`] for listeners and members.

mod arrival;
mod board;
mod census;
mod decisions;
mod deployment;
mod door;
mod doze;
mod end;
mod hand_over;
mod hello;
mod history;
mod judge;
mod limits;
mod membership;
mod memory;

mod meter;
mod monitor;
mod newcomers;
mod observations;
mod observer;
mod outbox;
mod owed;
mod policy;
mod queries;
mod recording;
mod refusal;
mod relay;
mod retirement;
mod server;
mod session;
mod sharded;
mod socket;
mod sockets;
mod sorting;
mod spans;
mod throttle;
mod tls;
mod topology;
mod transactions;
mod upstream;
mod workers;

pub use board::{MemberStatus, Phase};
pub use census::ConnectionCounts;
pub use decisions::Decision;
pub use deployment::Placement;
pub use history::{History, MINUTES};
pub use limits::LimitSettings;
pub use memory::MemoryUse;
pub use meter::{CommandMeasures, LookupMeasures, Measures};
pub use observations::{LiveRule, RuleCounts};
pub use observer::Observer;
pub use policy::{Policy, RuleLabel, Steps, WrittenRule};
pub use recording::{RecordCounts, Recorder, Recording, Sink};
pub use server::{Config, Proxy, StartError};
pub use spans::{Span, SpanDecision, Tracer};
pub use tls::{FromFiles, ListenerFiles, ListenerTls, Source, TlsError, UpstreamTls};
pub use topology::{Advertised, Mapped};
pub use upstream::{Address, CONNECT_TIMEOUT, Upstream, UpstreamError};
