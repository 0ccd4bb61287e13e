//! Sends the actions of a replay to MongoDB, with sockets and a clock. [`crate::replay`] decides what is sent.
//!
//! [`ReplayTarget`] opens and authenticates connections, [`Player`] sends the actions of each recorded connection in order,
//! [`stored`] compares the documents of two targets.

mod connection;
mod limited;
mod login;
mod playing;
mod progress;
pub mod stored;
mod stream;
mod target;
mod target_error;

pub use connection::PlayerConnection;
pub use playing::{Pace, PlayedSoFar, Player, Watch};
pub use target::ReplayTarget;
pub use target_error::TargetError;
