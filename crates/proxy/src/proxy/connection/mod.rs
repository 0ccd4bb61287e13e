//! One client connection and its server connection, from the first message to the last.

mod capturing;
mod checkout;
pub(super) mod client_half;
pub(super) mod conversion;
mod drain_state;
pub(super) mod end;
pub(super) mod evaluation;
mod exchange;
pub(super) mod framing;
mod hello;
mod in_progress;
pub(super) mod lifecycle;
pub(super) mod listener_context;
mod login;
mod packing;
pub(super) mod pending_replies;
pub(super) mod planner;
pub(super) mod polled_on_wake;
pub(super) mod pooling;
pub(super) mod relay;
pub(super) mod server_half;
pub(super) mod timeouts;
pub(super) mod write_buffer;
