//! Lookups that a plan needs before it can continue. The engine returns the request as data; the service answers it.

use crate::document::{Writer, parents};
pub use crate::patterns::numbering::{CounterId, NumberRequest};
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
        crate::document::document(|w| self.write_filter(w))
    }

    /// Writes the condition for documents whose numbers count. The comparison matches only numbers; sorting alone would
    /// put dates and strings above them. It excludes numbers without a 64-bit successor, such as infinity. It also
    /// excludes documents with an array in the path, which would be sorted by any element.
    pub(super) fn write_filter(&self, w: &mut Writer<'_>) {
        let is_no_array = |w: &mut Writer<'_>| w.nested("$not", |w| w.string("$type", "array"));
        parents(&self.field).for_each(|parent| w.nested(parent, is_no_array));
        w.nested(&self.field, |w| {
            w.slot("$gte").int64(i64::MIN);
            w.slot("$lte").int64(i64::MAX);
            is_no_array(w);
        });
    }
}

/// The service's reply.
#[derive(Debug, Clone, PartialEq)]
pub enum LookupResult {
    /// As many numbers as were requested, ascending.
    Numbers(Vec<i64>),
    /// `None` when no document has a number there.
    Maximum(Option<i64>),
}

impl LookupResult {
    /// Returns the numbers of a request for `count` of them.
    pub(super) fn into_numbers(self, count: usize) -> Result<Vec<i64>, LookupError> {
        match self {
            Self::Numbers(numbers) if numbers.len() == count => Ok(numbers),
            _ => Err(other_lookup()),
        }
    }

    /// Returns the result of a query for a maximum.
    pub(super) fn into_maximum(self) -> Result<Option<i64>, LookupError> {
        match self {
            Self::Maximum(maximum) => Ok(maximum),
            Self::Numbers(_) => Err(other_lookup()),
        }
    }
}

/// The service does not do this: it answers the lookup that it got.
fn other_lookup() -> LookupError {
    LookupError::Unavailable("internal error: the result of the service belongs to another lookup".to_owned())
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
