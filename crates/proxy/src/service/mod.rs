//! Operations that docward performs at mongod as its own user, through the official driver: numbers of counters, the
//! largest value of a field, consistent copies.
//!
//! The proxy sees one narrow trait, [`Service`]; it must not know about drivers. [`allocator`] reserves numbers in
//! [`counters`], [`mongo`] connects to the server, [`worker`] works in the background for [`copies`] and [`history`], [`modes`] stores
//! overrides of rule modes, [`timestamps`] and [`inspection`] serve the command line.

pub mod access;
mod allocator;
mod background;
mod client;
pub mod connection;
pub mod copies;
mod counters;
pub mod data;
mod error_kind;
pub mod history;
mod id;
pub mod inspection;
mod listing;
pub mod modes;
mod mongo;
mod observed_servers;
mod own_reads;
mod pattern_work;
mod pause;
mod pipeline;
pub mod requirements;
mod reservations;
mod server_time;
pub mod set_name;
mod srv;
pub mod timestamps;
pub mod validators;
pub mod worker;

use std::pin::Pin;

use crate::engine::lookup::{Lookup, LookupError, LookupResult};

pub use connection::{ConnectionString, TlsFiles};
pub use mongo::MongoService;
pub use reservations::ReservationCounts;
pub use server_time::ServerTime;
pub use worker::{WorkerState, WorkerStatus};

/// A result that is available immediately or later.
pub enum LookupReply {
    Ready(Result<LookupResult, LookupError>),
    Pending(Pin<Box<dyn Future<Output = Result<LookupResult, LookupError>> + Send>>),
}

/// Performs the lookups of plans.
pub trait Service: Send + Sync + 'static {
    /// Starts a lookup. Dropping a pending reply may leave a gap in a sequence; a number is never handed out twice.
    fn find(&self, lookup: Lookup) -> LookupReply;

    /// The reservations of numbers so far.
    fn reservations(&self) -> ReservationCounts {
        ReservationCounts::default()
    }

    /// The background workers of this process.
    fn workers(&self) -> Vec<WorkerStatus> {
        Vec::new()
    }
}
