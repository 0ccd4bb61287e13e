//! Rules that change while `serve` runs: on SIGHUP, and when their files say something else than before.
//!
//! The files' contents are looked at, not their times or events: that also sees the links Kubernetes swaps. A set
//! is taken whole or not at all; statements under way finish under the rules they began with. Whoever else has
//! something to load anew adds it here ([`Reload::also`]).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use tokio::signal::unix::Signal;
use tokio::time::{MissedTickBehavior, interval};

use super::config::ConfigFile;
use super::connection::Connection;
use crate::patterns::RuleSet;
use crate::rules::RuleSetHash;

/// How often the files are looked at. Two looks that agree are waited for, lest half a file is loaded.
const LOOK: Duration = Duration::from_secs(1);

/// Loads something anew; the error says what is wrong, for people.
pub type Part = Box<dyn FnMut() -> Result<(), String> + Send>;

/// What was loaded since the start, for whoever watches over it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub loaded: u64,
    pub refused: u64,
    /// When what is in force was loaded.
    pub loaded_at: SystemTime,
    /// When something was loaded last, whatever came of it.
    pub tried_at: SystemTime,
    /// What `docward check` would print of the last load; `None` when it went well.
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
    connection: Connection,
    /// What the flags and the file say, as far as it was heard.
    settings: ConfigFile,
    rules: Arc<ArcSwap<RuleSet>>,
    parts: Vec<Part>,
    status: Arc<ArcSwap<Status>>,
    /// Of the files that were loaded or refused last.
    known: Fingerprint,
}

/// What the files say, as far as it matters whether it is the same.
type Fingerprint = (Option<Vec<u8>>, RuleSetHash);

impl Reload {
    /// `rules` are what the `connection` flags gave at the start.
    pub(super) fn new(connection: Connection, rules: Arc<ArcSwap<RuleSet>>) -> Self {
        // It could be read a moment ago; if not now, the first look says so.
        let settings = connection.settings().unwrap_or_default();
        let known = (connection.config_text(), rules.load().hash());
        Self {
            connection,
            settings,
            rules,
            parts: Vec::new(),
            status: Arc::new(ArcSwap::from_pointee(Status::now())),
            known,
        }
    }

    /// Loads this too, on every SIGHUP.
    pub fn also(&mut self, part: Part) {
        self.parts.push(part);
    }

    pub fn status(&self) -> Arc<ArcSwap<Status>> {
        self.status.clone()
    }

    /// Follows signals and files; never ends.
    pub(super) async fn keep(mut self, mut hang_up: Signal) {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut before = self.known.clone();
        loop {
            let asked = tokio::select! {
                _ = hang_up.recv() => true,
                _ = looks.tick() => false,
            };
            // Reading and checking files blocks.
            let turn = tokio::task::spawn_blocking(move || {
                let now = self.fingerprint();
                if asked || now == before && now != self.known {
                    self.load(now.clone());
                }
                if asked {
                    self.load_parts();
                }
                (self, now)
            });
            match turn.await {
                Ok((reload, now)) => (self, before) = (reload, now),
                Err(error) => {
                    tracing::error!("rules are not followed any more: {error}");
                    return std::future::pending().await;
                }
            }
        }
    }

    fn fingerprint(&self) -> Fingerprint {
        (self.connection.config_text(), RuleSet::fingerprint(&self.settings.rules))
    }

    fn load(&mut self, fingerprint: Fingerprint) {
        let paths = match self.connection.settings() {
            Ok(now) => self.take_settings(now),
            Err(error) => return self.refused(fingerprint, &format!("{error:#}")),
        };
        match RuleSet::load(&paths) {
            Ok(rules) => {
                // The files may have changed since they were compared; then they are loaded once more.
                self.known = (fingerprint.0, rules.hash());
                self.settings.rules = paths;
                tracing::info!(rules = rules.rules().len(), set = %rules.hash(), "rules loaded");
                if !rules.warnings().is_empty() {
                    tracing::warn!("the rules load, but:\n{}", rules.warnings().render(false));
                }
                self.rules.store(Arc::new(rules));
                self.note(None);
            }
            Err(report) => self.refused(fingerprint, &report.render(false)),
        }
    }

    fn load_parts(&mut self) {
        let errors: Vec<String> = self.parts.iter_mut().filter_map(|part| part().err()).collect();
        for error in errors {
            tracing::error!("{error}; what was loaded before stays in force");
            self.note(Some(error));
        }
    }

    /// The rules' paths that the configuration names now; other keys wait for the next start.
    fn take_settings(&mut self, now: ConfigFile) -> Vec<PathBuf> {
        let paths = now.rules.clone();
        let rest = |settings: &ConfigFile| ConfigFile { rules: Vec::new(), ..settings.clone() };
        if rest(&now) != rest(&self.settings) {
            tracing::warn!(
                "--config: keys other than `rules` have changed; they take effect when docward starts again"
            );
            self.settings = ConfigFile { rules: self.settings.rules.clone(), ..now };
        }
        paths
    }

    fn refused(&mut self, fingerprint: Fingerprint, error: &str) {
        self.known = fingerprint;
        let (loaded, set) = (self.rules.load().rules().len(), self.rules.load().hash());
        tracing::error!("the new rules are refused; the {loaded} rules of set {set} stay in force:\n{error}");
        self.note(Some(error.to_owned()));
    }

    fn note(&self, error: Option<String>) {
        let before = self.status.load();
        let (loaded, refused) = (u64::from(error.is_none()), u64::from(error.is_some()));
        let now = SystemTime::now();
        let status = Status {
            loaded: before.loaded + loaded,
            refused: before.refused + refused,
            loaded_at: if error.is_none() { now } else { before.loaded_at },
            tried_at: now,
            last_error: error,
        };
        self.status.store(Arc::new(status));
    }
}
