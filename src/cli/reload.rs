//! Reloads rules and certificates while `serve` runs: on SIGHUP, and when the files change.
//!
//! It polls the contents of the files instead of their times or file-system events, so that it also detects the links
//! that Kubernetes swaps. Each [`Reloadable`] is replaced as a whole or not at all. Statements and handshakes in progress
//! finish with the previous one.

mod certificates;
mod rules;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use tokio::signal::unix::Signal;
use tokio::time::{MissedTickBehavior, interval};

use crate::admin::ReloadStatus;

pub(super) use self::certificates::{Certificates, Expiry};
pub(super) use self::rules::Rules;

/// How often the files are read. A change is loaded after two equal reads, so that no half-written file is loaded.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Data loaded from files. Its methods read the files and block.
pub(super) trait Reloadable: Send {
    /// The fingerprint of the content that the current data was loaded from.
    fn made_from(&self) -> Fingerprint;

    /// The fingerprint of the files' current content.
    fn fingerprint(&self) -> Fingerprint;

    /// Reloads the data and logs the result.
    ///
    /// # Errors
    /// A message for the user: what is wrong. The data has not changed then.
    fn load(&mut self) -> Result<(), String>;

    /// Warns of what needs the operator's attention soon; called at each poll.
    fn remind(&mut self) {}
}

/// A hash that detects changed content; not cryptographic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint(u64);

/// Reloads changed parts.
pub struct Reload {
    parts: Vec<WatchedPart>,
    reload_status: Arc<ArcSwap<ReloadStatus>>,
}

struct WatchedPart {
    part: Box<dyn Reloadable>,
    /// The fingerprint of the last load, successful or not.
    known: Fingerprint,
    /// The fingerprint of the last poll.
    seen: Fingerprint,
    /// The error of the last load.
    error: Option<String>,
}

impl Fingerprint {
    fn from_content(content: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        Self(hasher.finish())
    }
}

impl Reload {
    pub(super) fn new(parts: Vec<Box<dyn Reloadable>>) -> Self {
        let reload_status = Arc::new(ArcSwap::from_pointee(ReloadStatus::at_start()));
        Self { parts: parts.into_iter().map(WatchedPart::new).collect(), reload_status }
    }

    pub fn reload_status(&self) -> Arc<ArcSwap<ReloadStatus>> {
        self.reload_status.clone()
    }

    /// Reloads on signals and changed files; never returns.
    pub(super) async fn run(mut self, mut hang_up: Signal) {
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let requested = tokio::select! {
                _ = hang_up.recv() => true,
                _ = ticks.tick() => false,
            };
            let turn = tokio::task::spawn_blocking(move || {
                self.poll(requested);
                self
            });
            match turn.await {
                Ok(reload) => self = reload,
                Err(error) => {
                    tracing::error!(
                        "stopped watching rules and certificates; restart docward to load changes: {error}"
                    );
                    return std::future::pending().await;
                }
            }
        }
    }

    /// Loads changed parts, or all parts if `requested`.
    fn poll(&mut self, requested: bool) {
        let results: Vec<bool> = self.parts.iter_mut().filter_map(|watched| watched.poll(requested)).collect();
        if results.is_empty() {
            return;
        }
        let succeeded = !results.contains(&false);
        let before = self.reload_status.load();
        let errors: Vec<_> = self.parts.iter().filter_map(|watched| watched.error.as_deref()).collect();
        let now = SystemTime::now();
        self.reload_status.store(Arc::new(ReloadStatus {
            loaded: before.loaded + u64::from(succeeded),
            failed: before.failed + u64::from(!succeeded),
            loaded_at: if succeeded { now } else { before.loaded_at },
            tried_at: now,
            last_error: (!errors.is_empty()).then(|| errors.join("\n")),
        }));
    }
}

impl WatchedPart {
    fn new(part: Box<dyn Reloadable>) -> Self {
        let known = part.made_from();
        Self { part, known, seen: known, error: None }
    }

    /// Whether a load was successful; `None` if there was none.
    fn poll(&mut self, requested: bool) -> Option<bool> {
        self.part.remind();
        let now = self.part.fingerprint();
        let settled = std::mem::replace(&mut self.seen, now) == now;
        if !requested && (!settled || now == self.known) {
            return None;
        }
        self.error = self.part.load().err();
        // A change during the load causes another load; the same mistake is reported once.
        self.known = if self.error.is_none() { self.part.made_from() } else { now };
        Some(self.error.is_none())
    }
}

#[cfg(test)]
mod tests;
