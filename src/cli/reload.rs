//! Reloads settings, rules and certificates while `serve` runs: on SIGHUP, and when the files change.
//!
//! It polls the contents of the files instead of their times or file-system events, so that it also detects the links
//! that Kubernetes swaps. A reload replaces everything that has changed, or nothing. Statements and handshakes in progress
//! finish with what they began with.

mod certificates;
mod settings;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use tokio::signal::unix::Signal;
use tokio::time::{MissedTickBehavior, interval};

use crate::admin::ReloadStatus;

pub(super) use self::certificates::{Certificates, Expiry};
pub(super) use self::settings::{ReloadTargets, SettingsReload};

/// How often the files are read. A change is loaded after two equal reads, so that no half-written file is loaded.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Data loaded from files. Its methods read the files and block.
pub(super) trait Reloadable: Send {
    /// The fingerprint of the content that the current data was loaded from.
    fn made_from(&self) -> Fingerprint;

    /// The fingerprint of the files' current content.
    fn fingerprint(&self) -> Fingerprint;

    /// Reads and checks the files. Nothing changes yet.
    ///
    /// # Errors
    /// A message for the user: what is wrong; it is logged.
    fn prepare(&mut self) -> Result<(), String>;

    /// The fingerprint of what a failed reload has read, if that is other files than before.
    fn tried(&self) -> Option<Fingerprint> {
        None
    }

    /// Uses what was prepared if everything else `succeeded` too, and forgets it otherwise; logs the result.
    fn finish(&mut self, succeeded: bool);

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
    /// The fingerprint of the last reload, successful or not.
    known: Fingerprint,
    /// The fingerprint of the last poll.
    seen: Fingerprint,
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
                        "stopped watching settings, rules and certificates; restart docward to load changes: {error}"
                    );
                    return std::future::pending().await;
                }
            }
        }
    }

    /// Loads the parts that differ from what is in use, or all parts if `requested`: all of them or none.
    fn poll(&mut self, requested: bool) {
        self.parts.iter_mut().for_each(|watched| watched.part.remind());
        let mut changed = requested;
        for watched in &mut self.parts {
            changed |= watched.has_settled_change();
        }
        if !changed {
            return;
        }
        let is_due = |watched: &&mut WatchedPart| {
            requested || watched.seen != watched.known || watched.seen != watched.part.made_from()
        };
        let mut due: Vec<_> = self.parts.iter_mut().filter(is_due).collect();
        let errors: Vec<String> = due.iter_mut().filter_map(|watched| watched.prepare().err()).collect();
        let succeeded = errors.is_empty();
        for watched in &mut due {
            watched.part.finish(succeeded);
            // A change during a successful load causes another load. A mistake is reported once.
            if succeeded {
                watched.known = watched.part.made_from();
            } else {
                watched.seen = watched.part.tried().unwrap_or(watched.seen);
                watched.known = watched.seen;
            }
        }
        if !succeeded && errors.len() < due.len() {
            tracing::error!("nothing was reloaded: a reload changes everything or nothing");
        }
        let before = self.reload_status.load();
        let now = SystemTime::now();
        self.reload_status.store(Arc::new(ReloadStatus {
            loaded: before.loaded + u64::from(succeeded),
            failed: before.failed + u64::from(!succeeded),
            loaded_at: if succeeded { now } else { before.loaded_at },
            tried_at: now,
            last_error: (!succeeded).then(|| errors.join("\n")),
        }));
    }
}

impl WatchedPart {
    fn new(part: Box<dyn Reloadable>) -> Self {
        let known = part.made_from();
        Self { part, known, seen: known }
    }

    /// See [`Reloadable::prepare`]. A panic, which is a fault of docward and is logged as one, is a mistake in the files as
    /// others are: it must not end the watching.
    fn prepare(&mut self) -> Result<(), String> {
        let prepared = catch_unwind(AssertUnwindSafe(|| self.part.prepare()));
        prepared.unwrap_or_else(|_| Err("internal error: docward panicked while it read the files".to_owned()))
    }

    /// Whether the files differ from those of the last reload, and are the same as at the last poll.
    fn has_settled_change(&mut self) -> bool {
        let now = self.part.fingerprint();
        std::mem::replace(&mut self.seen, now) == now && now != self.known
    }
}

#[cfg(test)]
mod tests;
