//! The patterns in front of a real mongod: what is stored, and what the application sees.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod bounds;
mod checked;
mod contention;
mod convergence;
mod copies;
mod documented_roles;
mod effect;
mod everyday;
mod history;
mod indirect_writes;
mod limits;
mod queue;
mod repeated_names;
mod replacements;
mod retries;
mod schema_version;
mod sequences;
mod throttle;
mod timestamps;
mod tree;
