//! The wire protocol and its limits: logins, TLS, compression, malformed and unusual messages, replica sets.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod authentication;
mod before_login;
mod bulk_write;
mod compression;
mod connection_limits;
mod forwarding;
mod handshake;
mod malformed_clients;
mod memory_budget;
mod message_limits;
mod overload;
mod partial_failures;
mod pool;
mod pool_chaos;
mod pool_failures;
mod pool_hellos;
mod pool_queues;
mod pool_replies;
mod pool_users;
mod proxy_protocol;
mod queries;
mod replica_sets;
mod replies;
mod retries;
mod router;
mod router_errors;
mod srv;
mod tls;
mod upstream_failures;
