//! How long a docward doubts that an earlier send of a retryable write met the rules that it uses itself.
//!
//! The engine asks the server about such writes ([`Doubt`]). Here is what a process knows: when its own rules changed, and
//! which rules other processes publish.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::rules::{Doubt, ProcedureScope, RuleSet};
use crate::service::modes::{PublishedRules, StoredOverrides};

/// How long after its first send a driver may send a write again: it notices a dead connection after 210 s (a keepalive
/// of 120 s and nine probes), and then searches a server for 30 s.
pub(super) const DOUBT: Duration = Duration::from_secs(5 * 60);
/// How often a process publishes its rules again.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(60);
/// What other processes published is known for so long. Then a process must expect other rules.
const KNOWN: Duration = Duration::from_secs(2);
/// How long published rules count.
pub(super) const PUBLISHED: Duration = DOUBT.saturating_add(PUBLISH_INTERVAL).saturating_add(PUBLISH_INTERVAL);
/// How long a process waits between publishing its next rules and using them. All others know them then, or doubt because
/// they could not read them: they read every second, and wait at most one for the reply.
pub(super) const ANNOUNCED: Duration = Duration::from_secs(3);

#[derive(Default)]
pub(super) struct Doubts {
    /// The rules in use.
    rules: Option<PublishedRules>,
    /// Until when the rules of this process before may have applied, and where these had procedures.
    until: Option<Instant>,
    former: BTreeSet<ProcedureScope>,
    /// The rules that processes published.
    all: Vec<PublishedRules>,
    /// When those were read; `None`: this process does not read them.
    read: Option<Instant>,
    /// What this process published last.
    published: Option<(PublishedRules, Instant)>,
}

impl Doubts {
    /// The process uses these rules from now on.
    pub(super) fn use_rules(&mut self, rules: &RuleSet) {
        self.rules = Some(PublishedRules::from_rules(rules));
    }

    /// Rules with procedures here may apply to a write that is sent now, and others to its retry.
    pub(super) fn add(&mut self, procedures: impl IntoIterator<Item = ProcedureScope>, now: Instant) {
        self.former.extend(procedures);
        self.until = Some(now + DOUBT);
    }

    /// Takes what processes have published; `read` is when it was requested.
    pub(super) fn take_published(&mut self, stored: &StoredOverrides, read: Instant) {
        (self.read, self.all) = (Some(read), stored.published.clone());
    }

    /// The rules that must be published now.
    pub(super) fn unpublished(&self, now: Instant) -> Option<PublishedRules> {
        let is_published = |rules: &PublishedRules| {
            let published = self.published.as_ref().filter(|(published, _)| published == rules);
            published.is_some_and(|(_, at)| now.duration_since(*at) < PUBLISH_INTERVAL)
        };
        self.rules.as_ref().filter(|rules| !is_published(rules)).cloned()
    }

    pub(super) fn note_published(&mut self, rules: &PublishedRules, now: Instant) {
        self.published = Some((rules.clone(), now));
    }

    /// Returns the doubt for the rules in use, which is `current` if nothing has changed.
    pub(super) fn doubt(&mut self, current: Option<&Arc<Doubt>>, now: Instant) -> Option<Arc<Doubt>> {
        if self.until.is_some_and(|until| until <= now) {
            (self.until, self.former) = (None, BTreeSet::new());
        }
        let is_unknown = self.read.is_some_and(|read| now.duration_since(read) > KNOWN);
        if self.until.is_none() && !is_unknown && self.all.iter().all(|one| Some(one) == self.rules.as_ref()) {
            return None;
        }
        let used = self.rules.iter().chain(&self.all).flat_map(|rules| &rules.procedures);
        let all: BTreeSet<ProcedureScope> = used.chain(&self.former).cloned().collect();
        match current.filter(|current| *current.scopes() == all) {
            Some(current) => Some(current.clone()),
            None => Some(Arc::new(Doubt::new(all))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SourceFile;

    fn rules(pattern: &str) -> RuleSet {
        let text = format!("version: 1\nrules:\n  - {{ name: r, namespace: shop.c, {pattern} }}\n");
        RuleSet::from_sources(vec![SourceFile { name: "test.yaml".into(), text }]).unwrap()
    }

    fn published(rules: &[&RuleSet]) -> StoredOverrides {
        let published = rules.iter().map(|rules| PublishedRules::from_rules(rules)).collect();
        StoredOverrides { published, ..StoredOverrides::default() }
    }

    #[test]
    fn a_change_is_doubted_for_some_minutes_and_other_rules_as_long_as_they_are_published() {
        let now = Instant::now();
        let (tree, bounds) = (rules("tree: { path: path, parent: up }"), rules("bounds: { field: n, min: 0 }"));
        let mut doubts = Doubts::default();
        doubts.use_rules(&bounds);
        assert!(doubts.doubt(None, now).is_none());
        doubts.add(tree.procedure_scopes(), now);
        let found = doubts.doubt(None, now).unwrap();
        assert!(found.covers("shop", "c") && !found.covers("shop", "d"));
        assert!(Arc::ptr_eq(&found, &doubts.doubt(Some(&found), now).unwrap()), "no other rule set without a change");
        let later = now + DOUBT;
        assert!(doubts.doubt(None, later).is_none());
        // What the others use.
        doubts.take_published(&published(&[&bounds]), later);
        assert!(doubts.doubt(None, later).is_none());
        assert!(doubts.doubt(None, later + 2 * KNOWN).is_some(), "they may have changed");
        doubts.take_published(&published(&[&bounds, &tree]), later);
        assert!(doubts.doubt(None, later).unwrap().covers("shop", "c"));
        // The same rules in another mode are other rules.
        let shadow = rules("mode: shadow, tree: { path: path, parent: up }");
        assert_ne!(PublishedRules::from_rules(&shadow), PublishedRules::from_rules(&tree));
        assert_eq!(shadow.procedure_scopes(), tree.procedure_scopes());
    }

    #[test]
    fn rules_are_published_again_and_after_a_change() {
        let now = Instant::now();
        let mut doubts = Doubts::default();
        doubts.use_rules(&rules("bounds: { field: n, min: 0 }"));
        let own = doubts.unpublished(now).unwrap();
        doubts.note_published(&own, now);
        assert_eq!(doubts.unpublished(now), None);
        assert_eq!(doubts.unpublished(now + PUBLISH_INTERVAL), Some(own));
        doubts.use_rules(&rules("bounds: { field: n, min: 1 }"));
        assert!(doubts.unpublished(now).is_some());
    }

    #[test]
    fn published_scopes_are_read_as_they_were() {
        for (pattern, text) in [
            ("timestamps: { source: at, fields: [tags] }", "shop.c updates"),
            ("bounds: { field: a b, min: 0 }", "shop.c not plain: [[\"a b\",\"$set\",\"$inc\",\"$unset\"]]"),
            ("tree: { path: path, parent: up }", "shop.c"),
        ] {
            let scopes = rules(pattern).procedure_scopes();
            assert_eq!(scopes.iter().map(ToString::to_string).collect::<Vec<_>>(), [text]);
            let read = scopes.iter().map(|scope| ProcedureScope::parse(&scope.to_string())).collect();
            assert_eq!(scopes, read);
        }
    }
}
