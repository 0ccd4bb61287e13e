//! Reloads the certificates of one type of connection, and warns before docward's own certificate expires.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::{Fingerprint, Reloadable};
use crate::proxy::{FromFiles, LoadedFiles, PemSource};
use crate::shell::iso;

/// How long before the end of a certificate the warnings begin, in seconds.
const WARNING: i64 = 30 * 24 * 3600;
/// How often the warning is logged.
const REMINDER: Duration = Duration::from_secs(24 * 3600);

/// The certificates for the next handshakes of one type of connection.
pub(in crate::cli) struct Certificates<S: PemSource> {
    /// The type of connection, for the log: listeners, upstream or service.
    side: &'static str,
    tls: Arc<FromFiles<S>>,
    /// Loaded, and not in use yet.
    prepared: Option<LoadedFiles<S>>,
    /// Called after they were replaced.
    renewed: Box<dyn Fn() + Send>,
    /// When the last warning was logged.
    warned: Option<Instant>,
}

/// When docward's own certificates expire, by type of connection.
#[derive(Default)]
pub(in crate::cli) struct Expiry(Vec<(&'static str, ValidUntil)>);

/// In seconds since 1970 UTC; `None`: docward presents no certificate.
type ValidUntil = Box<dyn Fn() -> Option<i64> + Send + Sync>;

impl Expiry {
    pub(in crate::cli) fn add<S: PemSource>(&mut self, side: &'static str, tls: Arc<FromFiles<S>>) {
        self.0.push((side, Box::new(move || tls.valid_until())));
    }

    /// The type of connection, and the time in seconds since 1970 UTC.
    pub(in crate::cli) fn list(&self) -> Vec<(&'static str, i64)> {
        self.0.iter().filter_map(|(side, end)| Some((*side, end()?))).collect()
    }
}

impl<S: PemSource> Certificates<S> {
    pub(in crate::cli) fn new(
        side: &'static str,
        tls: Arc<FromFiles<S>>,
        renewed: impl Fn() + Send + 'static,
    ) -> Box<Self> {
        Box::new(Self { side, tls, prepared: None, renewed: Box::new(renewed), warned: None })
    }
}

impl<S: PemSource> Reloadable for Certificates<S> {
    fn made_from(&self) -> Fingerprint {
        Fingerprint::from_content(self.tls.made_from())
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::from_content(self.tls.content())
    }

    fn prepare(&mut self) -> Result<(), String> {
        if self.tls.is_being_replaced() {
            return Ok(());
        }
        let side = self.side;
        self.prepared = Some(LoadedFiles::load(self.tls.source()).map_err(|error| {
            tracing::error!(side, "certificates not reloaded; the previous ones stay in use: {error}");
            error.to_string()
        })?);
        Ok(())
    }

    fn finish(&mut self, succeeded: bool) {
        let loaded = self.prepared.take().filter(|_| succeeded);
        if let Some(loaded) = loaded {
            self.tls.replace(loaded);
            tracing::info!(side = self.side, "certificates reloaded; new connections use them");
            self.warned = None;
            (self.renewed)();
        }
    }

    fn remind(&mut self) {
        let Some(end) = self.tls.valid_until() else { return };
        if self.warned.is_some_and(|warned| warned.elapsed() < REMINDER) {
            return;
        }
        if let Some(text) = warning(end, SystemTime::now()) {
            tracing::warn!(side = self.side, "{text}");
            self.warned = Some(Instant::now());
        }
    }
}

/// The warning about a certificate that is valid until `end`, in seconds since 1970 UTC; `None`: it is valid for long.
pub(in crate::cli) fn warning(end: i64, now: SystemTime) -> Option<String> {
    let now = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed());
    let left = end - now;
    let date = iso(end.saturating_mul(1000));
    match left {
        ..0 => Some(format!("docward's certificate expired on {date}; renew it")),
        0..WARNING => Some(format!("docward's certificate expires on {date}, in {} days; renew it", left / 86_400)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_begin_thirty_days_before_the_end() {
        let day: i64 = 24 * 3600;
        let at = |days: i64| {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs((1000 * day).cast_unsigned());
            warning((1000 + days) * day, now)
        };
        assert_eq!(at(31), None);
        assert_eq!(
            at(29).as_deref(),
            Some("docward's certificate expires on 1972-10-26T00:00:00Z, in 29 days; renew it")
        );
        assert!(at(-1).is_some_and(|text| text.contains("expired on 1972-09-26")));
    }
}
