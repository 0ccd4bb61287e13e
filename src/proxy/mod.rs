//! Network I/O: listeners, connections, the relay between a client and its member, and the topology.
//!
//! This layer uses tokio and clocks, and carries out what [`crate::engine`] plans. It must not know what a rule is.
//! Start reading at [`server`], then [`relay`] for a connection and [`deployment`] for listeners and members.

mod admission;
mod connection_counts;
mod decisions;
mod deployment;
mod end;
mod evaluation;
mod hand_over;
mod hello;
mod history;
mod limits;
mod listener;
mod membership;
mod memory;
mod polled_on_wake;
mod status;

mod activity;
mod connection;
mod framing;
mod interceptor;
mod meter;
mod monitor;
mod observer;
mod pending_replies;
mod queries;
mod rate_limit;
mod recording;
mod refused;
mod relay;
mod rule_outcomes;
mod server;
mod sharded;
mod socket;
mod sockets;
mod spans;
mod tls;
mod topology;
mod transactions;
mod unauthenticated;
mod upstream;
mod workers;
mod write_buffer;

pub use connection_counts::ConnectionCounts;
pub use decisions::Decision;
pub use deployment::Placement;
pub use history::{History, MINUTES};
pub use interceptor::{Interceptor, RuleLabel, Steps, WrittenRule};
pub use limits::LimitSettings;
pub use memory::MemoryUse;
pub use meter::{CommandMeasures, LookupMeasures, Measures};
pub use observer::Observer;
pub use recording::{RecordCounts, Recorder, Recording, Sink};
pub use rule_outcomes::{LiveRule, RuleCounts};
pub use server::{Proxy, ProxyConfig, StartError};
pub use spans::{Span, SpanDecision, Tracer};
pub use status::{MemberStatus, Phase};
pub use tls::{FromFiles, ListenerFiles, ListenerTls, PemSource, TlsError, UpstreamTls};
pub use topology::{Advertised, Mapped};
pub use upstream::{Address, CONNECT_TIMEOUT, Upstream, UpstreamError};
