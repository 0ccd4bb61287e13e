//! Reloads the certificates of one type of connection.

use std::sync::Arc;

use super::{Fingerprint, Reloadable};
use crate::proxy::{FromFiles, PemSource};

/// The certificates for the next handshakes of one type of connection.
pub(in crate::cli) struct Certificates<S: PemSource> {
    /// The type of connection, for the log: listeners, upstream or service.
    side: &'static str,
    tls: Arc<FromFiles<S>>,
    /// Called after they were replaced.
    renewed: Box<dyn Fn() + Send>,
}

impl<S: PemSource> Certificates<S> {
    pub(in crate::cli) fn new(
        side: &'static str,
        tls: Arc<FromFiles<S>>,
        renewed: impl Fn() + Send + 'static,
    ) -> Box<Self> {
        Box::new(Self { side, tls, renewed: Box::new(renewed) })
    }
}

impl<S: PemSource> Reloadable for Certificates<S> {
    fn made_from(&self) -> Fingerprint {
        Fingerprint::from_content(self.tls.made_from())
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::from_content(self.tls.content())
    }

    fn load(&mut self) -> Result<(), String> {
        let side = self.side;
        match self.tls.reload() {
            Ok(()) => {
                tracing::info!(side, "certificates reloaded; new connections use them");
                (self.renewed)();
                Ok(())
            }
            Err(error) => {
                tracing::error!(side, "certificates not reloaded; the previous ones stay in use: {error}");
                Err(error.to_string())
            }
        }
    }
}
