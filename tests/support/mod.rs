//! Fixtures of the integration tests: a real mongod, docward in front of it, a raw wire client, and a scripted
//! upstream for replies that no server can be made to send. Nothing here may use docward's own code, because an error
//! in it would then hide itself. Each test crate compiles all of it (`mod support;`). Start with `mongod`, `proxy`,
//! `raw` and `scripted`.

#![allow(dead_code, reason = "each test crate uses its own part of the fixtures")]
#![allow(unreachable_pub, reason = "every test crate is the root of its own copy")]
#![allow(clippy::unwrap_used, reason = "a fixture that fails should fail its test")]

pub mod certificates;
pub mod driver;
pub mod frame;
pub mod http;
pub mod login;
pub mod mongod;
pub mod names;
pub mod process;
pub mod proxy;
pub mod random;
pub mod raw;
pub mod replica_set;
pub mod scripted;
