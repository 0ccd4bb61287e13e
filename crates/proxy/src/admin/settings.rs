//! The settings of the admin address.

use std::net::SocketAddr;

use subtle::ConstantTimeEq;

use crate::secret::Secret;

/// Invariant: an address that other machines can reach has a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub address: SocketAddr,
    /// The host name in the configuration; browsers may use it in the `Host` header.
    pub name: Option<String>,
    /// `None`: every process on this machine has access.
    pub token: Option<Secret>,
}

impl Settings {
    /// Whether the token is correct, compared in constant time.
    pub(super) fn is_token(&self, shown: &[u8]) -> bool {
        self.token.as_ref().is_none_or(|token| token.reveal().as_bytes().ct_eq(shown).into())
    }
}
