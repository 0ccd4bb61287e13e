//! What a plan must know from outside before it can go on, as data: the engine asks, the service answers.

pub use crate::patterns::sequence::{Beginning, Origin, Start};

/// A question for the service.
#[derive(Debug, Clone, PartialEq)]
pub enum Lookup {
    Lease(Lease),
    Maximum(Maximum),
}

/// Numbers of a sequence (pattern `sequence`, strategy `counter`).
#[derive(Debug, Clone, PartialEq)]
pub struct Lease {
    pub counter: Counter,
    /// How many numbers the message needs.
    pub count: u32,
    /// Numbers that the message brings along: none of them is issued from now on.
    pub brought: Vec<i64>,
    /// How many the service takes from the server at once, if it must take any; at least 1.
    pub block: u32,
    pub beginning: Beginning,
}

/// The document `{_id: id, seq: last number issued}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Counter {
    pub database: String,
    pub collection: String,
    pub id: String,
}

/// The largest number in a field of a collection, rounded down.
#[derive(Debug, Clone, PartialEq)]
pub struct Maximum {
    pub database: String,
    pub collection: String,
    pub field: String,
}

impl Maximum {
    /// A filter for the documents whose numbers count.
    #[must_use]
    pub fn filter(&self) -> Vec<u8> {
        super::allocation::countable(&self.field)
    }
}

/// The service's answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    /// As many numbers as were asked for, ascending.
    Numbers(Vec<i64>),
    /// `None`: no document has a number there.
    Maximum(Option<i64>),
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// Trying again will not help before somebody mends something: the client is told this text.
    #[error("{0}")]
    Refused(String),
    /// The server cannot be reached, or has no primary: the client's connection is closed, so that its
    /// driver retries.
    #[error("{0}")]
    Unavailable(String),
}

impl LookupError {
    /// Nobody will answer any more.
    #[must_use]
    pub fn shutting_down() -> Self {
        Self::Unavailable("docward is shutting down".to_owned())
    }
}
