//! One side's certificates.

use std::sync::Arc;

use super::{Fingerprint, Part};
use crate::proxy::{FromFiles, Source};

/// What a side's next handshakes are made with.
pub(in crate::cli) struct Certificates<S: Source> {
    /// Which side, for the log.
    side: &'static str,
    tls: Arc<FromFiles<S>>,
    /// Called when they are other ones.
    renewed: Box<dyn Fn() + Send>,
}

impl<S: Source> Certificates<S> {
    pub(in crate::cli) fn new(
        side: &'static str,
        tls: Arc<FromFiles<S>>,
        renewed: impl Fn() + Send + 'static,
    ) -> Box<Self> {
        Box::new(Self { side, tls, renewed: Box::new(renewed) })
    }
}

impl<S: Source> Part for Certificates<S> {
    fn made_from(&self) -> Fingerprint {
        Fingerprint::of(self.tls.made_from())
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.tls.content())
    }

    fn load(&mut self) -> Result<(), String> {
        let side = self.side;
        match self.tls.reload() {
            Ok(()) => {
                tracing::info!(side, "certificates were read again and hold for new connections");
                (self.renewed)();
                Ok(())
            }
            Err(error) => {
                tracing::error!(side, "changed certificates are not used, the old ones stay: {error}");
                Err(error.to_string())
            }
        }
    }
}
