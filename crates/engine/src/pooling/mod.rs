//! What a connection pool must know of messages: which requests may share a connection, and how clients and docward
//! log in. Does no I/O; [`crate::proxy`] holds the connections.

pub mod login;
pub mod scram;
pub mod sharing;
