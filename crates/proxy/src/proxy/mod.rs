//! Network I/O: listeners, connections, the relay between a client and its member, and the topology.
//!
//! This layer uses tokio and clocks, and carries out what [`crate::engine`] plans. It must not know what a rule is.
//! Start reading at [`server`], then [`listening`], [`connection::lifecycle`] and [`connection::relay`].
//!
//! The modules depend on each other in this order only: [`interceptor`], [`recording`], [`thread_number`],
//! [`transport`], [`telemetry`], [`server_side`], [`members`], [`shutdown`], [`process`], [`connection`], [`config`],
//! [`observer`], [`listening`], [`server`].

mod config;
mod connection;
mod interceptor;
mod listening;
mod members;
mod observer;
mod process;
mod recording;
mod server;
mod server_side;
mod shutdown;
mod telemetry;
mod thread_number;
mod transport;

pub use config::ProxyConfig;
pub use members::placement::ListenerPlacement;
pub use members::status::{MemberStatus, ProcessPhase};
pub use members::topology::{Advertised, Mapped};
pub use observer::Observer;
pub use process::connection_counts::ConnectionCounts;
pub use process::connection_table::OpenConnection;
pub use process::limits::LimitSettings;
pub use process::memory::MemoryUse;
pub use process::permits::{ClientPermits, PermitStatus};
pub use recording::{QueuedRecord, RecordCounts, Records, Sink};
pub use server::{Proxy, StartError};
pub use server_side::hello::{CONNECT_TIMEOUT, exchange_up_to};
pub use server_side::pool::counters::{PoolStatus, WaitingClients};
pub use server_side::pool::settings::PoolSettings;
pub use server_side::router_counters::RouterStatus;
pub use server_side::upstream::{Address, Upstream, UpstreamError};
pub use telemetry::decisions::Decision;
pub use telemetry::history::{MINUTES, MinuteCounts, MinuteOutcomes};
pub use telemetry::meter::{CommandMeasures, LookupMeasures, Measures};
pub use telemetry::outcome_counters::{LiveRule, RuleCounts};
pub use telemetry::slowest::SlowStatement;
pub use telemetry::spans::{SpanDecision, TraceSpan, Tracer};
pub use telemetry::written_rule::{OverriddenMode, RuleLabel, WrittenRule};
pub use transport::socket::SocketStream;
pub use transport::tls::{FromFiles, ListenerFiles, ListenerTls, LoadedFiles, PemSource, TlsError, UpstreamTls};
