//! Where the admin address is, and who may ask there.

use std::fmt;
use std::net::SocketAddr;

use subtle::ConstantTimeEq;

/// Checked: an address that other machines reach has a token.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    pub address: SocketAddr,
    /// The name the address was given by; browsers may call it so.
    pub name: Option<String>,
    /// `None`: everybody on this machine may ask.
    pub token: Option<String>,
}

impl Settings {
    /// In a time that does not tell how much of it is right.
    pub(super) fn is_token(&self, shown: &[u8]) -> bool {
        self.token.as_deref().is_none_or(|token| token.as_bytes().ct_eq(shown).into())
    }
}

/// Without the token.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("address", &self.address).field("name", &self.name).finish_non_exhaustive()
    }
}
