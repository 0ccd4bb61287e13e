//! Fixtures of the integration tests: a real mongod, docward in front of it, a raw wire client, and a scripted
//! upstream for replies that no server can be made to send. Nothing here may use docward's own code, because an error
//! in it would then hide itself. Start with `mongod`, `proxy`, `raw` and `scripted`.
//!
//! Without the feature `servers` it contains only what needs no server: fuzz targets, benchmarks and unit tests use it.

#![allow(clippy::unwrap_used, reason = "a fixture that fails should fail its test")]

#[cfg(feature = "servers")]
pub mod balancer;
#[cfg(feature = "certificates")]
pub mod certificates;
pub mod cpu_time;
#[cfg(feature = "servers")]
pub mod driver;
pub mod frame;
#[cfg(feature = "servers")]
pub mod http;
#[cfg(feature = "servers")]
pub mod login;
#[cfg(feature = "servers")]
pub mod mongod;
#[cfg(feature = "servers")]
pub mod names;
#[cfg(feature = "servers")]
pub mod process;
#[cfg(feature = "servers")]
pub mod proxy;
pub mod random;
#[cfg(feature = "servers")]
pub mod raw;
#[cfg(feature = "servers")]
pub mod replica_set;
#[cfg(feature = "servers")]
pub mod scripted;
