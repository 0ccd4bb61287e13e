//! MongoDB's wire protocol and commands, without I/O. The layers, each of which depends only on the ones before it:
//!
//! - [`wire`]: bytes ↔ messages
//! - [`document`]: raw BSON, read and rewritten without decoding
//! - [`command`]: the commands and their statements
//! - [`effect`]: what a statement does to a field

pub mod command;
pub mod document;
pub mod effect;
pub mod fnv;
pub mod text;
pub mod wire;
