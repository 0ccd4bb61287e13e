//! The subcommands, as people type them, and the files they read.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod arguments;
mod check_upstream;
mod configuration;
mod explain_and_test;
mod mongosh;
mod morning;
mod names;
mod proposals;
mod recorded_traffic;
mod replay;
mod schema;
mod shell_traffic;
mod stored_data;
mod suggested;
mod tools_and_serve;
mod traffic_files;
mod unreachable_server;
mod validators;
