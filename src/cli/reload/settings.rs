//! Reloads the configuration file, the files with secrets that it names, and the rules.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::{Fingerprint, Reloadable};
use crate::admin;
use crate::cli::active_rules::ActiveRules;
use crate::cli::config_file::ConfigFile;
use crate::cli::file_limit::limits;
use crate::cli::listening::{LISTEN, placement};
use crate::cli::logging;
use crate::config::{MAX_FILE_BYTES, Report, read_file};
use crate::proxy::{LimitSettings, ListenerFiles, ListenerPlacement, ListenerTls, LoadedFiles, PemSource, UpstreamTls};
use crate::rules::RuleSet;
use crate::service::access::try_connection;
use crate::service::{MongoService, TlsFiles};

/// What a reload changes.
pub(in crate::cli) struct ReloadTargets {
    pub(in crate::cli) active: Arc<ActiveRules>,
    pub(in crate::cli) placement: Arc<watch::Sender<ListenerPlacement>>,
    pub(in crate::cli) limits: Arc<watch::Sender<LimitSettings>>,
    pub(in crate::cli) tls: Option<Arc<ListenerTls>>,
    pub(in crate::cli) service: Arc<MongoService>,
    pub(in crate::cli) service_tls: Option<Arc<UpstreamTls>>,
    pub(in crate::cli) admin: Option<Arc<ArcSwap<admin::Settings>>>,
}

/// The settings in use and their sources.
pub(in crate::cli) struct SettingsReload {
    config: Option<PathBuf>,
    /// Reads them again: the flags and the configuration file, combined.
    read_settings: ReadSettings,
    /// The settings in use. Keys that need a restart have their values of the start.
    in_use: ConfigFile,
    /// The content of the files except the rules, when they were loaded.
    content: Content,
    targets: ReloadTargets,
    prepared: Option<Prepared>,
    /// The keys that need a restart that the log has named.
    named: Vec<&'static str>,
    /// If the last reload failed: the fingerprint of what it read. The files that it could not use are watched.
    tried: Option<Fingerprint>,
}

type ReadSettings = Box<dyn Fn() -> Result<ConfigFile, Report> + Send>;

/// The configuration file, and the files with secrets.
type Content = Vec<Option<Vec<u8>>>;

/// A connection that was tried, and its certificates.
type TriedService = (MongoService, Option<LoadedFiles<TlsFiles>>);

/// What has been read and checked, and is not in use yet.
struct Prepared {
    settings: ConfigFile,
    /// Keys that have changed and need a restart.
    for_restart: Vec<&'static str>,
    content: Content,
    rules: RuleSet,
    placement: Option<ListenerPlacement>,
    limits: Option<LimitSettings>,
    tls: Option<LoadedFiles<ListenerFiles>>,
    service: Option<TriedService>,
    admin: Option<admin::Settings>,
}

impl SettingsReload {
    /// `started`: what the flags and the file, combined, gave at the start.
    pub(in crate::cli) fn new(
        config: Option<PathBuf>,
        read_settings: ReadSettings,
        started: ConfigFile,
        targets: ReloadTargets,
    ) -> Self {
        let (prepared, named) = (None, Vec::new());
        let mut this =
            Self { config, read_settings, in_use: started, content: Vec::new(), targets, prepared, named, tried: None };
        this.content = this.current_content(&this.in_use);
        this
    }

    fn current_content(&self, settings: &ConfigFile) -> Content {
        let secrets = settings.secrets.files.iter().chain(&settings.admin.token_file);
        let files = self.config.as_deref().into_iter().chain(secrets.map(|path| &**path));
        files.map(|path| read_file(path, MAX_FILE_BYTES).ok()).collect()
    }

    fn content_with_rules(&self, settings: &ConfigFile) -> (Content, impl std::hash::Hash) {
        (self.current_content(settings), RuleSet::fingerprint(&settings.rules))
    }

    /// The fingerprint of the files that the configuration file names now, instead of those in use. With the certificates,
    /// which may come after the password of their key.
    fn fingerprint_of_named(&self) -> Fingerprint {
        match (self.read_settings)() {
            Ok(read) => Fingerprint::from_content((self.content_with_rules(&read), certificates(&read))),
            // It may be about a file that appears later.
            Err(report) => Fingerprint::from_content((self.content_with_rules(&self.in_use), report.render(false))),
        }
    }

    fn read_all(&self) -> Result<Prepared, String> {
        let read = (self.read_settings)().map_err(|report| report.render(false))?;
        let content = self.current_content(&read);
        if let Some((_, shared)) = read.shared_addresses(Some(LISTEN)).pop() {
            return Err(shared);
        }
        // A file that is being written, or was lost and created again, looks the same.
        if read.rules.is_empty() && !self.targets.active.current().load().rules().is_empty() {
            return Err("--config: the file names no `rules` any more; restart docward to run without rules".to_owned());
        }
        let rules = RuleSet::load(&read.rules).map_err(|report| report.render(false))?;
        let for_restart = self.in_use.keys_for_restart(&read);
        let settings = self.without(&for_restart, read);
        let placed = (&settings.members, &settings.advertise) != (&self.in_use.members, &self.in_use.advertise);
        let placement = placed.then(|| placement(&settings)).transpose().map_err(|error| error.to_string())?;
        let limits = (settings.limits != self.in_use.limits).then(|| limits(&settings));
        let files = settings.tls.clone().files().map_err(|error| error.to_string())?;
        let changed = files.filter(|_| settings.tls != self.in_use.tls);
        let tls = changed.map(LoadedFiles::load).transpose().map_err(|error| format!("`tls`: {error}"))?;
        let admin = settings.admin.settings().map_err(|error| format!("{error:#}"))?;
        let service = self.try_service(&settings, &rules)?;
        Ok(Prepared { settings, for_restart, content, rules, placement, limits, tls, service, admin })
    }

    /// `read` with the values in use for keys that a reload does not change, because they are `for_restart` or always.
    fn without(&self, for_restart: &[&str], read: ConfigFile) -> ConfigFile {
        let stays = |key| for_restart.contains(&key);
        let in_use = self.in_use.clone();
        ConfigFile {
            members: if stays("members") { in_use.members } else { read.members },
            service: if stays("service") { in_use.service } else { read.service },
            tls: if stays("tls") { in_use.tls } else { read.tls },
            admin: if stays("admin") { in_use.admin } else { read.admin },
            advertise: read.advertise,
            limits: read.limits,
            log_level: read.log_level,
            rules: read.rules,
            secrets: read.secrets,
            ..in_use
        }
    }

    /// A new connection for docward's own work that was tried, if the settings name another one.
    fn try_service(&self, settings: &ConfigFile, rules: &RuleSet) -> Result<Option<TriedService>, String> {
        if settings.service == self.in_use.service {
            return Ok(None);
        }
        let failed = |error: String| format!("`service`: the connection before stays in use: {error}");
        let files = settings.service.as_ref().and_then(|uri| uri.tls_files());
        let files = files.map(LoadedFiles::load).transpose().map_err(|error| failed(error.to_string()))?;
        Handle::current().block_on(async {
            let service = settings.connect_to_serve().await.map_err(|error| failed(format!("{error:#}")))?;
            match try_connection(&service, rules).await {
                Ok(()) => Ok(Some((service, files))),
                Err(error) => {
                    service.close().await;
                    Err(failed(error))
                }
            }
        })
    }

    /// Names the keys that have changed and need a restart, once.
    fn name_for_restart(&mut self, keys: Vec<&'static str>) {
        for key in keys.iter().filter(|key| !self.named.contains(key)) {
            tracing::warn!(key, "--config: `{key}` has changed; it needs a restart or a hand-over");
        }
        self.named = keys;
    }

    /// Warns about rules that the reload removes, because a lost file looks the same.
    fn warn_of_removed(&self, rules: &RuleSet) {
        let before = self.targets.active.current().load_full();
        let names = |rules: &'_ RuleSet| -> BTreeSet<String> {
            rules.rules().iter().map(|rule| rule.name.value.to_string()).collect()
        };
        let removed: Vec<String> = names(&before).difference(&names(rules)).cloned().collect();
        if !removed.is_empty() {
            tracing::warn!(count = removed.len(), "rules that no longer apply: {}", listed(&removed));
        }
    }

    /// Uses everything but the rules.
    fn apply(&mut self, prepared: Prepared) -> RuleSet {
        let Prepared { settings, for_restart, content, rules, placement, limits, tls, service, admin } = prepared;
        let targets = &self.targets;
        if settings.log_level != self.in_use.log_level {
            logging::set_level(settings.log_level.as_ref());
            tracing::info!("log level loaded");
        }
        if let Some(placement) = placement {
            targets.placement.send_replace(placement);
            tracing::info!(members = settings.members.len(), "members loaded");
        }
        if let Some(limits) = limits {
            targets.limits.send_replace(limits);
            tracing::info!("limits loaded; new connections have them");
        }
        if let (Some(tls), Some(loaded)) = (&targets.tls, tls) {
            tls.replace(loaded);
            tracing::info!("`tls` loaded; new connections use it");
        }
        if let (Some(admin), Some(loaded)) = (&targets.admin, admin)
            && **admin.load() != loaded
        {
            admin.store(Arc::new(loaded));
            tracing::info!("the token of the admin address was replaced");
        }
        if let Some((service, files)) = service {
            targets.service.adopt(&service);
            if let (Some(tls), Some(files)) = (&targets.service_tls, files) {
                tls.replace(files);
            }
            tracing::info!("`service` loaded; docward's own operations use the new connection");
        }
        (self.in_use, self.content) = (settings, content);
        self.name_for_restart(for_restart);
        rules
    }

    /// Marks the certificates that the settings replace, for those who reload them.
    fn announce_certificates(&self) {
        let prepared = self.prepared.as_ref();
        if let Some(tls) = &self.targets.tls {
            tls.set_being_replaced(prepared.is_some_and(|next| next.tls.is_some()));
        }
        if let Some(tls) = &self.targets.service_tls {
            tls.set_being_replaced(prepared.is_some_and(|next| next.service.is_some()));
        }
    }

    fn use_rules(&self, rules: RuleSet) {
        self.warn_of_removed(&rules);
        let rules = Arc::new(rules);
        self.targets.active.replace(&rules);
        // Only now, so that every statement after this line is evaluated with these rules.
        tracing::info!(rules = rules.rules().len(), set = %rules.hash(), "rules loaded");
        if !rules.warnings().is_empty() {
            tracing::warn!("the rules have warnings:\n{}", rules.warnings().render(false));
        }
    }
}

impl Reloadable for SettingsReload {
    fn made_from(&self) -> Fingerprint {
        Fingerprint::from_content((&self.content, self.targets.active.current().load().hash()))
    }

    fn fingerprint(&self) -> Fingerprint {
        match self.tried {
            Some(_) => self.fingerprint_of_named(),
            None => Fingerprint::from_content(self.content_with_rules(&self.in_use)),
        }
    }

    fn tried(&self) -> Option<Fingerprint> {
        self.tried
    }

    fn prepare(&mut self) -> Result<(), String> {
        // Before everything is read: if a file changes meanwhile, the next check sees a different fingerprint.
        self.tried = Some(self.fingerprint_of_named());
        self.prepared = Some(self.read_all().map_err(|report| {
            let current = self.targets.active.current().load_full();
            let (loaded, set) = (current.rules().len(), current.hash());
            tracing::error!("rules not reloaded; the {loaded} rules of set {set} stay in force:\n{report}");
            report
        })?);
        self.announce_certificates();
        Ok(())
    }

    fn finish(&mut self, succeeded: bool) {
        if succeeded {
            self.tried = None;
        }
        let Some(prepared) = self.prepared.take() else { return };
        self.announce_certificates();
        if succeeded {
            let rules = self.apply(prepared);
            self.use_rules(rules);
        } else if let Some((service, _)) = prepared.service {
            Handle::current().block_on(service.close());
        }
    }
}

/// The content of the certificates and keys that the settings name.
fn certificates(settings: &ConfigFile) -> Content {
    let listeners = settings.tls.clone().files().ok().flatten();
    let service = settings.service.as_ref().and_then(|uri| uri.tls_files());
    let files = listeners.iter().flat_map(PemSource::files).chain(service.iter().flat_map(PemSource::files));
    files.map(|path| read_file(path, MAX_FILE_BYTES).ok()).collect()
}

/// The first names, and the number of the others.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 20;
    let (shown, more) = names.split_at(names.len().min(SHOWN));
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    shown.join(", ") + &more
}
