//! What docward asks and does at mongod by itself, as its own user and through the official driver: numbers
//! of counters, the largest value of a field, copies kept true.
//!
//! The proxy sees one narrow trait, [`Service`]; it must not know about drivers. [`allocator`] hands out
//! numbers, [`mongo`] talks to the server, [`copies`] works in the background, [`timestamps`] and [`inspection`]
//! for the command line.

pub mod access;
mod allocator;
pub mod connection;
pub mod copies;
pub mod inspection;
mod leases;
mod listing;
mod mongo;
mod srv;
pub mod timestamps;

use std::pin::Pin;

use crate::engine::lookup::{Found, Lookup, LookupError};

pub use connection::{ConnectionString, TlsFiles};
pub use leases::Leases;
pub use mongo::MongoService;

/// An answer, or one on its way.
pub enum Answer {
    Here(Result<Found, LookupError>),
    Coming(Pin<Box<dyn Future<Output = Result<Found, LookupError>> + Send>>),
}

/// Answers what a plan must know from outside.
pub trait Service: Send + Sync + 'static {
    /// Dropping the answer before it is there may leave a gap in a sequence, never a number issued twice.
    fn find(&self, lookup: Lookup) -> Answer;

    /// Blocks of numbers that were taken so far.
    fn leases(&self) -> Leases {
        Leases::default()
    }
}
