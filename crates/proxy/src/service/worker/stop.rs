//! Why a worker stopped.

use bson::{RawDocumentBuf, Timestamp};
use mongodb::error::Error;

use crate::service::client::ServiceClient;

/// Why a worker stopped.
#[derive(Debug)]
pub(in crate::service) enum Stop {
    /// Another process holds the lease.
    Lost,
    /// Another connection replaces this one; the work continues on it.
    Replaced,
    /// The changes of a stream since its resume token are no longer available.
    HistoryLost { stream: usize, why: String },
    /// A stream ends with its collection; later changes are available from `next` on.
    Ended { stream: usize, next: Timestamp, why: String },
    /// The deployment does not support the work: why, and what to do.
    Unsupported(String),
    /// A server or network error; a retry may help.
    Driver(Error),
    /// The same as text.
    Failed(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Driver(error)
    }
}

impl Stop {
    /// The text for an operator.
    pub(in crate::service) fn describe(self, server: &ServiceClient) -> String {
        match self {
            Self::Lost => "another process holds the lease".to_owned(),
            Self::Replaced => "another connection replaces this one".to_owned(),
            Self::Driver(error) => server.describe(&error),
            Self::Failed(text)
            | Self::Unsupported(text)
            | Self::HistoryLost { why: text, .. }
            | Self::Ended { why: text, .. } => text,
        }
    }
}

/// Wraps a worker's command for the driver.
pub(in crate::service) fn raw(command: Vec<u8>) -> Result<RawDocumentBuf, Stop> {
    RawDocumentBuf::from_bytes(command).map_err(|error| Stop::Failed(format!("a command cannot be built: {error}")))
}
