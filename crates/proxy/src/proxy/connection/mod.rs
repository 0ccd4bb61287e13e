//! One client connection and its server connection, from the first message to the last.

mod capturing;
pub(super) mod client_half;
pub(super) mod conversion;
mod drain_state;
pub(super) mod end;
pub(super) mod evaluation;
mod exchange;
pub(super) mod framing;
pub(super) mod lifecycle;
pub(super) mod listener_context;
mod packing;
pub(super) mod pending_replies;
pub(super) mod planner;
pub(super) mod polled_on_wake;
pub(super) mod pooling;
pub(super) mod relay;
pub(super) mod server_half;
pub(super) mod timeouts;
mod waiting;
pub(super) mod write_buffer;
