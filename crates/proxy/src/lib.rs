//! All that serves clients, with sockets and clocks:
//!
//! - [`service`]: docward's own user, and the background work of patterns
//! - [`login`]: SCRAM, as far as a proxy and a replay need it
//! - [`proxy`]: listeners, connections, pools, members
//! - [`otlp`]: spans for a collector
//! - [`admin`]: health, metrics and the console over HTTP

pub mod admin;
pub mod histogram;
pub mod login;
pub mod otlp;
pub mod proxy;
pub mod rate_limit;
pub mod service;

use docward_engine as engine;
use docward_protocol::{command, document, fnv, text, wire};
use docward_rules::{config, patterns, rules, secret, shell};
use docward_traffic::audit;
