//! docward: a MongoDB wire-protocol proxy that enforces data-modelling patterns. This crate is the command line
//! ([`cli`]) and the sender of recorded traffic ([`player`]). Below it, each depending only on those before it:
//! `docward_protocol`, `docward_rules`, `docward_engine` (the verdict on a message) and `docward_traffic` (recorded
//! traffic), without I/O or clocks; and `docward_proxy`. ARCHITECTURE.md follows a message through them.

pub mod cli;
pub mod player;

pub use docward_engine as engine;
pub use docward_protocol::{command, document, effect, wire};
pub use docward_proxy::{admin, histogram, otlp, proxy, service};
pub use docward_rules::{config, patterns, rules, secret, shell};
pub use docward_traffic::{audit, plot, replay};

use docward_protocol::text;
use docward_proxy::{login, rate_limit};
use docward_rules::suggest;
