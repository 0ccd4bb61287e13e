//! Reloads the rules: from the rule files that the flags or the configuration file name.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use super::{Fingerprint, Reloadable};
use crate::cli::active_rules::ActiveRules;
use crate::cli::config_file::ConfigFile;
use crate::cli::connection::ConnectionOptions;
use crate::config::Report;
use crate::rules::RuleSet;

/// The active rules and their sources.
pub(in crate::cli) struct Rules {
    connection: ConnectionOptions,
    /// The settings of the flags and the file that are in use, and the rule paths of the last load.
    settings: ConfigFile,
    /// The content of the configuration file when the rules were loaded.
    config: Option<Vec<u8>>,
    active: Arc<ActiveRules>,
}

impl Rules {
    /// `active` are the rules that the `connection` flags gave at the start.
    pub(in crate::cli) fn new(connection: ConnectionOptions, active: Arc<ActiveRules>) -> Self {
        // The file was readable a moment ago; if it is not now, the first poll reports it.
        let settings = connection.settings().unwrap_or_default();
        Self { config: connection.config_text(), connection, settings, active }
    }

    /// The rule paths in the current configuration; warns about changes to other keys, which need a restart.
    fn take_settings(&mut self, now: ConfigFile) -> Vec<PathBuf> {
        let paths = now.rules.clone();
        let rest = |settings: &ConfigFile| ConfigFile { rules: Vec::new(), ..settings.clone() };
        if rest(&now) != rest(&self.settings) {
            tracing::warn!("--config: keys other than `rules` have changed; restart docward to apply them");
            self.settings = ConfigFile { rules: self.settings.rules.clone(), ..now };
        }
        paths
    }

    /// Warns about rules that the reload removes, because a lost file looks the same.
    fn warn_of_removed(&self, rules: &RuleSet) {
        let before = self.active.current().load_full();
        let names = |rules: &'_ RuleSet| -> BTreeSet<String> {
            rules.rules().iter().map(|rule| rule.name.value.to_string()).collect()
        };
        let removed: Vec<String> = names(&before).difference(&names(rules)).cloned().collect();
        if !removed.is_empty() {
            tracing::warn!(count = removed.len(), "rules that no longer apply: {}", listed(&removed));
        }
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

impl Reloadable for Rules {
    fn made_from(&self) -> Fingerprint {
        Fingerprint::from_content((&self.config, self.active.current().load().hash()))
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::from_content((self.connection.config_text(), RuleSet::fingerprint(&self.settings.rules)))
    }

    fn load(&mut self) -> Result<(), String> {
        let rules = self.try_load().map_err(|report| {
            let (report, current) = (report.render(false), self.active.current().load_full());
            let (loaded, set) = (current.rules().len(), current.hash());
            tracing::error!("rules not reloaded; the {loaded} rules of set {set} stay in force:\n{report}");
            report
        })?;
        self.warn_of_removed(&rules);
        let rules = Arc::new(rules);
        self.active.replace(&rules);
        // Only now, so that every statement after this line is evaluated with these rules.
        tracing::info!(rules = rules.rules().len(), set = %rules.hash(), "rules loaded");
        if !rules.warnings().is_empty() {
            tracing::warn!("the rules have warnings:\n{}", rules.warnings().render(false));
        }
        Ok(())
    }
}

/// The first names, and the number of the others.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 20;
    let (shown, more) = names.split_at(names.len().min(SHOWN));
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    shown.join(", ") + &more
}
