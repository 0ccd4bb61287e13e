//! Changes hello requests ([`request`]) and every reply to them ([`reply`]), so that drivers stay on the proxy and use
//! only supported compressors. Covers the older names (isMaster, ismaster), by OP_MSG and OP_QUERY.
//!
//! Drivers connect to the addresses in the reply, not to those of their connection string (driver specification
//! "Server Discovery And Monitoring"). Does no I/O; the caller passes in the members. [`negotiation`] keeps the
//! agreed compressors. Next: [`crate::proxy`].

pub mod draining;
pub mod negotiation;
pub mod own_reply;
mod reply;
mod request;
pub mod router;
#[cfg(test)]
mod tests;

use crate::document::Malformed;
use crate::wire::{OpCode, WireError};
pub use reply::{AddressMap, HelloReply, Presentation};
pub(super) use request::WRAPPERS;
pub use request::{is_awaitable, note_client_hello, rewrite_request};

/// Why a hello or its reply cannot be processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    #[error("a handshake message cannot be parsed: {0}")]
    Wire(#[from] WireError),
    #[error("a handshake message holds bytes that are not a BSON document: {0}")]
    Document(#[from] Malformed),
    #[error("a handshake message has opcode {0:?}; only OP_MSG, OP_QUERY and OP_REPLY are supported")]
    OpCode(OpCode),
}
