//! Why a replay cannot use its target.

use std::io;

use crate::proxy::{Address, UpstreamError};
use crate::text::io_reason;

/// Why a target cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    #[error("the connection string has a mechanism that replay does not support; use a user with SCRAM")]
    Mechanism,
    #[error("the login failed: {0}")]
    Login(String),
    #[error("{0} is not a primary, and none of its members is")]
    NoPrimary(String),
    #[error("{0}: {reason}", reason = io_reason(.1))]
    Server(Address, io::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
}
