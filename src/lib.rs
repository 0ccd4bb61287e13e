//! docward: a MongoDB wire-protocol proxy that enforces data-modelling patterns.
//!
//! The layers, each of which depends only on the ones before it (ARCHITECTURE.md follows a message through them):
//!
//! - [`wire`]: bytes ↔ messages
//! - [`document`]: raw BSON, read and rewritten without decoding
//! - `command`, [`effect`], `shell`, `config`, `patterns`, `rules`, `engine`: what a message does, and the verdict on
//!   it; pure
//! - `audit`: recorded traffic evaluated against rules; pure
//! - `replay`: recorded traffic as commands that are sent again, and what is counted; pure
//! - `service`, `proxy`, `player`, `otlp`, `admin`, `cli`: sockets, clocks and files; only with the feature `io`, which is the
//!   default

#[cfg(feature = "io")]
pub mod admin;
pub mod audit;
#[cfg(feature = "io")]
pub mod cli;
pub mod command;
pub mod config;
pub mod document;
pub mod effect;
pub mod engine;
mod fnv;
pub mod histogram;
#[cfg(feature = "io")]
pub mod otlp;
pub mod patterns;
#[cfg(feature = "io")]
pub mod player;
pub mod plot;
#[cfg(feature = "io")]
pub mod proxy;
#[cfg(feature = "io")]
mod rate_limit;
pub mod replay;
pub mod rules;
pub mod secret;
#[cfg(feature = "io")]
pub mod service;
pub mod shell;
mod suggest;
mod text;
pub mod wire;
