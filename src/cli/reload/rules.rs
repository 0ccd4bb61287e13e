//! Reloads the rules, from the rule files that the flags or the configuration file name, and `members` of that file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::watch;

use super::{Fingerprint, Reloadable};
use crate::cli::active_rules::ActiveRules;
use crate::cli::config_file::ConfigFile;
use crate::cli::connection::ConnectionOptions;
use crate::cli::listening::placement;
use crate::proxy::ListenerPlacement;
use crate::rules::RuleSet;

/// The active rules and their sources.
pub(in crate::cli) struct Rules {
    connection: ConnectionOptions,
    /// The settings of the flags and the file that are in use, and the rule paths of the last load.
    settings: ConfigFile,
    /// The content of the configuration file when the rules were loaded.
    config: Option<Vec<u8>>,
    /// The flags and the file at the start, combined.
    started: ConfigFile,
    placement: Arc<watch::Sender<ListenerPlacement>>,
    active: Arc<ActiveRules>,
}

impl Rules {
    /// `active` and `placement` are what the flags and the file, combined in `started`, gave at the start.
    pub(in crate::cli) fn new(
        connection: ConnectionOptions,
        started: ConfigFile,
        active: Arc<ActiveRules>,
        placement: Arc<watch::Sender<ListenerPlacement>>,
    ) -> Self {
        // The file was readable a moment ago; if it is not now, the first poll reports it.
        let settings = connection.settings().unwrap_or_default();
        Self { config: connection.config_text(), connection, settings, started, placement, active }
    }

    /// Warns about changes to keys that need a restart.
    fn warn_of_others(&self, now: &ConfigFile) {
        let rest = |settings: &ConfigFile| {
            let members = if self.has_members(now) { BTreeMap::new() } else { settings.members.clone() };
            ConfigFile { rules: Vec::new(), members, ..settings.clone() }
        };
        if rest(now) != rest(&self.settings) {
            tracing::warn!(
                "--config: keys other than `rules` and `members` have changed; restart docward to apply them"
            );
        }
    }

    /// Whether the file's `members` are in use: no flag replaces them, and the listeners began with them.
    fn has_members(&self, now: &ConfigFile) -> bool {
        !now.members.is_empty() && !self.settings.members.is_empty() && self.started.members == self.settings.members
    }

    /// The listeners of the file's members, if they are in use and have changed.
    fn placement(&self, now: &ConfigFile) -> Result<Option<ListenerPlacement>, String> {
        if now.members == self.settings.members || !self.has_members(now) {
            return Ok(None);
        }
        let started = ConfigFile { members: now.members.clone(), ..self.started.clone() };
        if let Some((_, shared)) = started.shared_addresses(None).pop() {
            return Err(shared);
        }
        placement(&started).map(Some).map_err(|error| error.to_string())
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

    fn try_load(&mut self) -> Result<RuleSet, String> {
        let config = self.connection.config_text();
        let settings = self.connection.settings().map_err(|report| report.render(false))?;
        self.warn_of_others(&settings);
        let placed = self.placement(&settings);
        let (paths, members) = (settings.rules.clone(), settings.members.clone());
        let in_use = std::mem::take(&mut self.settings);
        self.settings = ConfigFile { rules: in_use.rules, members: in_use.members, ..settings };
        let placed = placed?;
        // A file that is being written, or was lost and created again, looks the same.
        if paths.is_empty() && !self.active.current().load().rules().is_empty() {
            return Err("--config: the file names no `rules` any more; restart docward to run without rules".to_owned());
        }
        let rules = RuleSet::load(&paths).map_err(|report| report.render(false))?;
        if let Some(placed) = placed {
            self.started.members.clone_from(&members);
            self.placement.send_replace(placed);
            tracing::info!(members = members.len(), "members loaded");
        }
        // Without `members` in the file, the listeners stay as they are.
        if !members.is_empty() {
            self.settings.members = members;
        }
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
            let current = self.active.current().load_full();
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
