//! Where the admin address is, and who may ask there.

use std::net::SocketAddr;

use subtle::ConstantTimeEq;

use crate::secret::Secret;

/// Checked: an address that other machines reach has a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub address: SocketAddr,
    /// The name the address was given by; browsers may call it so.
    pub name: Option<String>,
    /// `None`: everybody on this machine may ask.
    pub token: Option<Secret>,
}

impl Settings {
    /// In a time that does not tell how much of it is right.
    pub(super) fn is_token(&self, shown: &[u8]) -> bool {
        self.token.as_ref().is_none_or(|token| token.reveal().as_bytes().ct_eq(shown).into())
    }
}
