//! Lookups that a plan needs before it can continue. The engine returns the request as data; the service answers it.

pub use crate::patterns::numbering::{Counter, NumberRequest};
pub use crate::patterns::sequence::{Origin, SequenceStart, SharedStart};

/// A request to the service.
#[derive(Debug, Clone, PartialEq)]
pub enum Lookup {
    Numbers(Box<NumberRequest>),
    Maximum(Box<Maximum>),
}

/// The largest number in a field of a collection, rounded down.
#[derive(Debug, Clone, PartialEq)]
pub struct Maximum {
    pub database: String,
    pub collection: String,
    pub field: String,
}

impl Maximum {
    /// Returns the filter for documents whose numbers count.
    #[must_use]
    pub fn filter(&self) -> Vec<u8> {
        super::allocation::countable(&self.field)
    }
}

/// The service's answer.
#[derive(Debug, Clone, PartialEq)]
pub enum LookupResult {
    /// As many numbers as were requested, ascending.
    Numbers(Vec<i64>),
    /// `None` when no document has a number there.
    Maximum(Option<i64>),
}

/// Why a lookup failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// A permanent error: a retry fails too until somebody fixes the cause. The client gets this text.
    #[error("{0}")]
    Permanent(String),
    /// The server cannot be reached or has no primary. The client's connection is closed so that its driver retries.
    #[error("{0}")]
    Unavailable(String),
}

impl LookupError {
    /// Returns the error for lookups during shutdown.
    #[must_use]
    pub fn shutting_down() -> Self {
        Self::Unavailable("docward is shutting down".to_owned())
    }
}
