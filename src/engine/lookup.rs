//! What a plan must know from outside before it can go on, as data: the engine asks, the service answers.

pub use crate::patterns::sequence::Start;

/// A question for the service.
#[derive(Debug, Clone, PartialEq)]
pub enum Lookup {
    Lease(Lease),
    Maximum(Maximum),
}

/// Numbers of a sequence (pattern `sequence`, strategy `counter`).
#[derive(Debug, Clone, PartialEq)]
pub struct Lease {
    /// Where the counter document `{_id: counter, seq: last number issued}` lives.
    pub database: String,
    pub collection: String,
    pub counter: String,
    /// How many numbers the message needs; at least 1.
    pub count: u32,
    /// How many the service takes from the server at once, if it must take any; at least 1.
    pub block: u32,
    pub start: Start,
    /// The guarded collection's own field, for [`Start::AfterMax`].
    pub guarded: Maximum,
}

/// The largest number in a field of a collection.
#[derive(Debug, Clone, PartialEq)]
pub struct Maximum {
    pub database: String,
    pub collection: String,
    pub field: String,
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
