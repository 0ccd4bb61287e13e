//! What changes while `serve` runs, rules and certificates: on SIGHUP, and when the files say something else than
//! before.
//!
//! The files' contents are looked at, not their times or events: that also sees the links Kubernetes swaps. What is
//! made from files is a [`Part`]; each is taken over whole or not at all, and what is under way finishes as it began.

mod certificates;
mod rules;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use tokio::signal::unix::Signal;
use tokio::time::{MissedTickBehavior, interval};

pub(super) use self::certificates::Certificates;
pub(super) use self::rules::Rules;

/// How often the files are looked at. Two looks that agree are waited for, lest half a file is loaded.
const LOOK: Duration = Duration::from_secs(1);

/// Something made from files. Its methods read them, which blocks.
pub(super) trait Part: Send {
    /// Of what the files said when it was made, as far as it matters whether it is the same.
    fn made_from(&self) -> Fingerprint;

    /// Of what they say now.
    fn fingerprint(&self) -> Fingerprint;

    /// Makes it anew, and logs what is in force then, also if it is what was before.
    ///
    /// # Errors
    /// For people: what is wrong. Then nothing has changed.
    fn load(&mut self) -> Result<(), String>;
}

/// Tells contents apart; proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint(u64);

/// What was loaded since the start, for whoever watches over it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Times that everything which was to be loaded could be.
    pub loaded: u64,
    /// Times that something could not.
    pub refused: u64,
    /// When what is in force was loaded.
    pub loaded_at: SystemTime,
    /// When something was loaded last, whatever came of it.
    pub tried_at: SystemTime,
    /// What is wrong with the files as they were loaded last: of rules, what `docward check` would print; `None`
    /// when all of them are in force.
    pub last_error: Option<String>,
}

impl Status {
    /// Nothing was loaded since the start, which is now.
    fn now() -> Self {
        let now = SystemTime::now();
        Self { loaded: 0, refused: 0, loaded_at: now, tried_at: now, last_error: None }
    }
}

/// Loads anew what changes.
pub struct Reload {
    parts: Vec<Followed>,
    status: Arc<ArcSwap<Status>>,
}

struct Followed {
    part: Box<dyn Part>,
    /// Of what was loaded or refused last.
    known: Fingerprint,
    /// Of the last look.
    seen: Fingerprint,
    /// Why the last load was refused.
    error: Option<String>,
}

impl Fingerprint {
    fn of(content: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        Self(hasher.finish())
    }
}

impl Reload {
    pub(super) fn new(parts: Vec<Box<dyn Part>>) -> Self {
        let status = Arc::new(ArcSwap::from_pointee(Status::now()));
        Self { parts: parts.into_iter().map(Followed::new).collect(), status }
    }

    pub fn status(&self) -> Arc<ArcSwap<Status>> {
        self.status.clone()
    }

    /// Follows signals and files; never ends.
    pub(super) async fn keep(mut self, mut hang_up: Signal) {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let asked = tokio::select! {
                _ = hang_up.recv() => true,
                _ = looks.tick() => false,
            };
            let turn = tokio::task::spawn_blocking(move || {
                self.look(asked);
                self
            });
            match turn.await {
                Ok(reload) => self = reload,
                Err(error) => {
                    tracing::error!("rules and certificates are not followed any more: {error}");
                    return std::future::pending().await;
                }
            }
        }
    }

    /// Loads what has changed; everything, if somebody `asked` for it.
    fn look(&mut self, asked: bool) {
        let loads: Vec<bool> = self.parts.iter_mut().filter_map(|followed| followed.look(asked)).collect();
        if loads.is_empty() {
            return;
        }
        let went_well = !loads.contains(&false);
        let before = self.status.load();
        let errors: Vec<_> = self.parts.iter().filter_map(|followed| followed.error.as_deref()).collect();
        let now = SystemTime::now();
        self.status.store(Arc::new(Status {
            loaded: before.loaded + u64::from(went_well),
            refused: before.refused + u64::from(!went_well),
            loaded_at: if went_well { now } else { before.loaded_at },
            tried_at: now,
            last_error: (!errors.is_empty()).then(|| errors.join("\n")),
        }));
    }
}

impl Followed {
    fn new(part: Box<dyn Part>) -> Self {
        let known = part.made_from();
        Self { part, known, seen: known, error: None }
    }

    /// Whether a load went well, if there was one.
    fn look(&mut self, asked: bool) -> Option<bool> {
        let now = self.part.fingerprint();
        let settled = std::mem::replace(&mut self.seen, now) == now;
        if !asked && (!settled || now == self.known) {
            return None;
        }
        self.error = self.part.load().err();
        // What changed after it was looked at is loaded once more; the same mistake is reported once.
        self.known = if self.error.is_none() { self.part.made_from() } else { now };
        Some(self.error.is_none())
    }
}

#[cfg(test)]
mod tests;
