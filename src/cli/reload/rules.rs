//! The rules: from their files, and from the configuration file, which may name others.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::{Fingerprint, Part};
use crate::cli::config::ConfigFile;
use crate::cli::connection::Connection;
use crate::patterns::RuleSet;
use crate::rules::Report;

/// The rules that evaluate, and where they come from.
pub(in crate::cli) struct Rules {
    connection: Connection,
    /// What the flags and the file say, as far as it was heard.
    settings: ConfigFile,
    /// The configuration file when the rules were loaded.
    config: Option<Vec<u8>>,
    current: Arc<ArcSwap<RuleSet>>,
}

impl Rules {
    /// `current` are what the `connection` flags gave at the start.
    pub(in crate::cli) fn new(connection: Connection, current: Arc<ArcSwap<RuleSet>>) -> Self {
        // It could be read a moment ago; if not now, the first look says so.
        let settings = connection.settings().unwrap_or_default();
        Self { config: connection.config_text(), connection, settings, current }
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

    fn try_load(&mut self) -> Result<RuleSet, Report> {
        let config = self.connection.config_text();
        let settings = self.connection.settings()?;
        let paths = self.take_settings(settings);
        let rules = RuleSet::load(&paths)?;
        (self.settings.rules, self.config) = (paths, config);
        Ok(rules)
    }
}

impl Part for Rules {
    fn made_from(&self) -> Fingerprint {
        Fingerprint::of((&self.config, self.current.load().hash()))
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of((self.connection.config_text(), RuleSet::fingerprint(&self.settings.rules)))
    }

    fn load(&mut self) -> Result<(), String> {
        let rules = self.try_load().map_err(|report| {
            let (report, current) = (report.render(false), self.current.load());
            let (loaded, set) = (current.rules().len(), current.hash());
            tracing::error!("the new rules are refused; the {loaded} rules of set {set} stay in force:\n{report}");
            report
        })?;
        tracing::info!(rules = rules.rules().len(), set = %rules.hash(), "rules loaded");
        if !rules.warnings().is_empty() {
            tracing::warn!("the rules load, but:\n{}", rules.warnings().render(false));
        }
        self.current.store(Arc::new(rules));
        Ok(())
    }
}
