//! The rules in use: those of the files, in the modes that operators have set at run time.
//!
//! With a service connection, overrides are kept in MongoDB (`crate::service::modes`), and every docward process of the
//! deployment follows them. Without one they belong to this process. Each process publishes its rules there, too, and
//! those that it uses next before it uses them: otherwise another process would not know that a retryable write may
//! have been carried out in another way (`doubts.rs`).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::doubts::{ANNOUNCED, Doubts, PUBLISHED};
use super::drains::{KnownDrains, LEAD};
use super::explain::milliseconds_now;
use super::mode::{ModeChange, ModeResult, shown_time};
use crate::rules::{ModeOverride, ModeOverrides, RuleSet};
use crate::service::modes::{self, PublishedRules, StoredOverrides};
use crate::service::{MongoService, ServerTime};

/// How often stored overrides are read; every process uses a change within two seconds.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The longest wait for the server: also at the start, when it may be down.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// The rules in use and their overrides.
pub(super) struct ActiveRules {
    current: Arc<ArcSwap<RuleSet>>,
    changed: Notify,
    /// Stores the overrides; `None`: they belong to this process.
    service: Option<Arc<MongoService>>,
    overrides: Mutex<Overrides>,
    /// Held while other rules come into use.
    switching: Mutex<()>,
}

#[derive(Default)]
struct Overrides {
    /// As last read from the server.
    shared: StoredOverrides,
    /// The number of changes by this process, so that a read that began before a change does not undo it.
    changes: u64,
    /// Those of this process.
    local: ModeOverrides,
    /// Overrides that cannot be applied, each logged once.
    logged: BTreeSet<String>,
    doubts: Doubts,
}

impl Overrides {
    /// All that have not expired: shared ones by the server's clock, those of this process by its own.
    fn valid(&self) -> ModeOverrides {
        let now = u64::try_from(milliseconds_now()).unwrap_or_default();
        let local = self.local.iter().filter(|(_, found)| found.until > now);
        self.shared.valid().chain(local).map(|(rule, found)| (rule.clone(), found.clone())).collect()
    }
}

impl ActiveRules {
    /// `rules` are those of the files. With a `service`, overrides are kept on the server.
    pub(super) fn new(rules: Arc<RuleSet>, service: Option<Arc<MongoService>>) -> Self {
        let (overrides, switching) = (Mutex::default(), Mutex::default());
        Self { current: Arc::new(ArcSwap::new(rules)), changed: Notify::new(), service, overrides, switching }
    }

    /// The rules in use, for the proxy.
    pub(super) fn current(&self) -> Arc<ArcSwap<RuleSet>> {
        self.current.clone()
    }

    /// Waits until other rules are in use.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn store(&self, rules: &RuleSet) {
        let mut overrides = self.lock();
        overrides.doubts.use_rules(rules);
        let doubt = overrides.doubts.doubt(None, Instant::now());
        self.current.store(Arc::new(rules.with_doubt(doubt)));
        self.changed.notify_one();
    }

    /// Doubts what may differ now.
    fn update_doubt(&self) {
        let mut overrides = self.lock();
        let current = self.current.load_full();
        let doubt = overrides.doubts.doubt(current.doubt(), Instant::now());
        if doubt.as_ref().map(Arc::as_ptr) != current.doubt().map(Arc::as_ptr) {
            self.current.store(Arc::new(current.with_doubt(doubt)));
        }
    }

    /// Prepares for other rules: writes that are sent under these ones may be sent again under the next ones. If the next
    /// ones carry more of them out in transactions, other processes get time to learn of them. Blocks.
    fn announce(&self, next: &RuleSet) {
        let current = self.current.load_full();
        if current.behaviour() == next.behaviour() {
            return;
        }
        let procedures = || current.procedure_scopes().into_iter().chain(next.procedure_scopes());
        self.lock().doubts.add(procedures(), Instant::now());
        self.update_doubt();
        let waits = self.service.is_some() && next.adds_procedures(&current);
        if waits && Handle::current().block_on(self.publish(&PublishedRules::from_rules(next))) {
            std::thread::sleep(ANNOUNCED);
            // Some time has passed.
            self.lock().doubts.add(procedures(), Instant::now());
        }
    }

    /// Publishes that this process uses these rules; returns whether that succeeded.
    async fn publish(&self, rules: &PublishedRules) -> bool {
        let Some(service) = &self.service else { return false };
        let error = match in_time(modes::publish(service, rules, PUBLISHED)).await {
            Ok(()) => {
                self.lock().doubts.note_published(rules, Instant::now());
                return true;
            }
            Err(error) => error,
        };
        if self.lock().logged.insert(error.clone()) {
            tracing::warn!(
                "other docwards do not know the rules of this one: a write that is retried there may be carried out \
                 twice if their rules differ: {error}"
            );
        }
        false
    }

    /// Uses the rules of a reload, with the overrides that are still valid. Blocks while other processes learn of them.
    pub(super) fn replace(&self, rules: &Arc<RuleSet>) {
        let _one_at_a_time = self.switching.lock().unwrap_or_else(PoisonError::into_inner);
        let (valid, (combined, applied)) = {
            let mut overrides = self.lock();
            let valid = overrides.valid();
            let combined = overrides.combine(rules, &valid);
            (valid, combined)
        };
        self.announce(&combined);
        for (rule, found) in &applied {
            let (mode, until) = (found.mode.as_str(), shown_time(found.until));
            tracing::warn!(rule, mode, until, by = found.by, "the reload keeps the override of the rule's mode");
        }
        for rule in valid.keys().filter(|rule| !applied.contains_key(*rule)) {
            tracing::warn!(
                rule,
                "after the reload, the override of a rule's mode has no effect: the rule is not loaded or conflicts"
            );
        }
        self.store(&combined);
    }

    /// Reads the stored overrides once, before the listeners open, and lets other processes learn of this one's rules.
    pub(super) async fn start(&self) {
        let mut known = Vec::new();
        match self.load_overrides().await {
            Ok(stored) => known = stored.published,
            Err(error) => {
                tracing::warn!("overrides of rule modes are not known yet; the modes in the rule files apply: {error}");
            }
        }
        let combined = {
            let mut overrides = self.lock();
            let valid = overrides.valid();
            overrides.combine(&self.current.load_full(), &valid)
        };
        self.note_modes(&ModeOverrides::new(), &combined.1);
        let own = PublishedRules::from_rules(&combined.0);
        if !known.contains(&own) {
            // A process before this one may have had other rules.
            self.lock().doubts.add([], Instant::now());
        }
        self.store(&combined.0);
        let has_others = known.iter().any(|other| *other != own);
        if self.publish(&own).await && has_others && combined.0.adds_procedures(&RuleSet::default()) {
            tokio::time::sleep(ANNOUNCED).await;
        }
    }

    /// Announces a drain that ends until `deadline` to the processes with these addresses, and waits until they know it.
    pub(super) async fn announce_drain(&self, addresses: &[String], deadline: Instant) {
        let Some(service) = self.service.as_ref().filter(|_| !addresses.is_empty()) else { return };
        let begin = Instant::now();
        let length = deadline.saturating_duration_since(begin);
        let lead = LEAD.min(length / 4);
        match in_time(modes::announce_drain(service, addresses, lead, length)).await {
            // Not later than the others begin: this process must not accept the connections that their clients replace.
            Ok(()) => tokio::time::sleep_until((begin + lead).into()).await,
            Err(error) => tracing::warn!(
                "other docwards do not know of this drain: operations of their clients that drivers do not repeat may \
                 fail: {error}"
            ),
        }
    }

    /// Follows stored overrides, ends expired ones, and calls `noted` for each drain of another process; never returns.
    pub(super) async fn follow(self: &Arc<Self>, noted: impl Fn(&[String], Instant)) {
        let mut drains = KnownDrains::default();
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut logged = String::new();
        loop {
            ticks.tick().await;
            let stored = self.load_overrides().await;
            stored.iter().flat_map(|stored| drains.take(stored)).for_each(|(addresses, at)| noted(addresses, at));
            let error = stored.err().unwrap_or_default();
            let unpublished = self.lock().doubts.unpublished(Instant::now());
            if let Some(rules) = unpublished {
                self.publish(&rules).await;
            }
            if !error.is_empty() && error != logged {
                tracing::warn!(
                    "overrides of rule modes cannot be read; the known ones stay until they expire: {error}"
                );
            }
            logged = error;
            self.update_doubt();
            self.apply_soon().await;
        }
    }

    async fn apply_soon(self: &Arc<Self>) {
        let active = self.clone();
        // Checking many rules takes time, and so does announcing others.
        _ = tokio::task::spawn_blocking(move || active.apply()).await;
    }

    /// The overrides in use.
    pub(super) fn list(&self) -> ModeOverrides {
        let rules = self.current.load();
        let overridden = |rule: &crate::rules::Rule| Some((rule.name.value.to_string(), rule.mode_override.clone()?));
        rules.rules().iter().filter_map(overridden).collect()
    }

    /// Starts a task that may use the service connection. Closing that connection waits for it.
    pub(super) fn spawn_to_end<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
        runtime: &Handle,
    ) -> JoinHandle<T> {
        match &self.service {
            Some(service) => service.spawn_to_end(task),
            None => runtime.spawn(task),
        }
    }

    /// Overrides modes of rules, or ends overrides; a dry run only returns what would change.
    ///
    /// # Errors
    /// A message for the user: there is no such rule or override, or the rules would contradict each other.
    pub(super) async fn change(self: Arc<Self>, change: ModeChange, dry_run: bool) -> Result<ModeResult, String> {
        // Others may have changed the stored ones a moment ago. If the server does not reply, the known ones count.
        _ = self.load_overrides().await;
        let changed = change.dry_run(&self.current.load_full(), &self.lock().valid())?;
        if dry_run {
            return Ok(ModeResult { found: None, note: None, changed });
        }
        let names: Vec<String> = changed.rules.iter().map(|changed| changed.rule.clone()).collect();
        let Some(wanted) = &change.wanted else {
            if let Some(service) = &self.service {
                modes::clear(service, &names).await?;
            }
            self.lock().clear(&names);
            self.apply_soon().await;
            return Ok(ModeResult { found: None, note: None, changed });
        };
        let stored = match &self.service {
            Some(service) => ModeChange::store(wanted, &names, service).await.map(Some),
            None => Ok(None),
        };
        let (stored, note) = match stored {
            Ok(Some(stored)) => (Some(stored), None),
            Ok(None) => (None, Some("docward has no `service` connection".to_owned())),
            Err(error) => (None, Some(error)),
        };
        let (found, time) = stored.map_or_else(|| (wanted.local(&names), None), |(found, time)| (found, Some(time)));
        let first = found.values().next().cloned();
        self.lock().set(found, time);
        self.apply_soon().await;
        Ok(ModeResult { found: first, note, changed })
    }

    async fn load_overrides(&self) -> Result<StoredOverrides, String> {
        let Some(service) = &self.service else { return Ok(StoredOverrides::default()) };
        let (changes, asked) = (self.lock().changes, Instant::now());
        // The driver would search longer for a server, and the listeners open after the first read.
        let read = async {
            tokio::select! {
                found = modes::load_overrides(service) => found,
                reason = service.is_down() => Err(reason),
            }
        };
        let shared = in_time(read).await?;
        let mut overrides = self.lock();
        overrides.doubts.take_published(&shared, asked);
        if overrides.changes == changes {
            overrides.shared = shared.clone();
        }
        Ok(shared)
    }

    /// Puts the rules into the modes that are valid now, if that changes any; logs the changes.
    fn apply(&self) {
        let _one_at_a_time = self.switching.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.list();
        let (combined, applied) = {
            let mut overrides = self.lock();
            let valid = overrides.valid();
            if valid == before {
                return;
            }
            overrides.combine(&self.current.load_full(), &valid)
        };
        if applied != before {
            self.announce(&combined);
            self.store(&combined);
        }
        self.note_modes(&before, &applied);
    }

    /// Logs which modes have changed.
    fn note_modes(&self, before: &ModeOverrides, applied: &ModeOverrides) {
        let rules = self.current.load_full();
        for (rule, found) in applied.iter().filter(|(rule, found)| before.get(*rule) != Some(found)) {
            let ModeOverride { mode, only, until, reason, by, shared } = &**found;
            let (mode, until) = (mode.as_str(), shown_time(*until));
            let only = (!only.is_empty()).then(|| only.to_string());
            tracing::warn!(rule, mode, only, until, reason, by, shared, "the rule's mode is overridden");
        }
        for rule in before.keys().filter(|rule| !applied.contains_key(*rule)) {
            let file_mode =
                rules.rules().iter().find(|one| *one.name.value == **rule).map(|one| one.file_mode.as_str());
            tracing::warn!(
                rule,
                mode = file_mode,
                "the override of the rule's mode ended; the mode in the file applies"
            );
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Overrides> {
        self.overrides.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn in_time<T>(asked: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    timeout(READ_TIMEOUT, asked).await.unwrap_or_else(|_| Err("the server did not answer in time".to_owned()))
}

impl Overrides {
    /// `time`: the server's, if it has stored the overrides.
    fn set(&mut self, found: ModeOverrides, time: Option<ServerTime>) {
        self.changes += 1;
        self.local.retain(|rule, _| !found.contains_key(rule));
        if time.is_some() {
            self.shared.time = time;
            self.shared.overrides.extend(found);
        } else {
            self.local.extend(found);
        }
    }

    fn clear(&mut self, rules: &[String]) {
        self.changes += 1;
        self.local.retain(|rule, _| !rules.contains(rule));
        self.shared.overrides.retain(|rule, _| !rules.contains(rule));
    }

    /// `rules` in these modes, and the overrides that could be applied. The others are logged.
    fn combine(&mut self, rules: &Arc<RuleSet>, wanted: &ModeOverrides) -> (Arc<RuleSet>, ModeOverrides) {
        let is_loaded = |name: &str| rules.rules().iter().any(|rule| *rule.name.value == *name);
        let mut applied = wanted.clone();
        applied.retain(|rule, _| {
            let loaded = is_loaded(rule);
            // Normal if docward processes of one deployment have different rules.
            if !loaded && self.logged.insert(rule.clone()) {
                tracing::info!(rule, "an override names a rule that is not loaded here; it has no effect");
            }
            loaded
        });
        if let Ok(combined) = rules.with_overrides(&applied) {
            return (Arc::new(combined), applied);
        }
        let (mut combined, mut fitting) = (rules.with_overrides(&ModeOverrides::new()).ok(), ModeOverrides::new());
        for (rule, found) in applied {
            let mut more = fitting.clone();
            more.insert(rule.clone(), found);
            match rules.with_overrides(&more) {
                Ok(rules) => (combined, fitting) = (Some(rules), more),
                Err(report) => {
                    let report = report.render(false);
                    if self.logged.insert(format!("{rule}: {report}")) {
                        tracing::error!(rule, "the override of the rule's mode is not applied:\n{report}");
                    }
                }
            }
        }
        (combined.map_or_else(|| rules.clone(), Arc::new), fitting)
    }
}
