//! What operators use: the admin address, metrics, logs, reload, hand-over, deployment files, secrets.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod admin;
mod application_names;
mod captures;
mod connections;
mod decision_log;
mod deployment;
mod ending;
mod hand_over;
mod members;
mod metrics;
mod metrics_named;
mod modes;
mod reload;
mod secrets;
mod start;
mod traces;
mod without_effect;
