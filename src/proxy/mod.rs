//! The sockets: listeners, sessions, the relay between a client and its member, and who the members are.
//!
//! Knows tokio and clocks, and carries out what [`crate::engine`] plans; it must not know what a rule is.
//! Start reading at [`server`], then [`relay`].

mod arrival;
mod door;
mod end;
mod judge;
mod limits;
mod observations;
mod outbox;
mod owed;
mod policy;
mod recording;
mod refusal;
mod relay;
mod server;
mod session;
mod socket;
mod sorting;
mod splitter;
mod throttle;
mod tls;
mod topology;
mod upstream;

pub use limits::LimitSettings;
pub use observations::LiveRule;
pub use policy::{Policy, RuleLabel, Steps};
pub use recording::{RecordCounts, Recorder, Recording, Sink};
pub use server::{BindError, Config, Observer, Proxy};
pub use tls::{Certificates, ListenerFiles, ListenerTls, TlsError};
pub use upstream::{Address, CONNECT_TIMEOUT, Upstream, UpstreamError};
