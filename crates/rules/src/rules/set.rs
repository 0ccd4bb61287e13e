//! All rules, checked and indexed: the entry point of this layer.
//!
//! A [`RuleSet`] is immutable. Loading gives a complete set or an error; a reload replaces the whole set.
//! It knows files only as text; `files.rs` reads them.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::clients::ClientGlobs;
use super::conflict::{self, Budget};
use super::doubt::{Doubt, ProcedureScope};
use super::envelope;
use super::hash::RuleSetHash;
use super::index::{FoundRules, Index, IndexedRule};
use super::ineffective;
use super::mode_override::{ModeOverride, ModeOverrides};
use super::rule::{Mode, Rule, RuleId};
use crate::config::{Diagnostic, NamespaceGlob, Report, SourceFile, SourceFiles};
use crate::fnv::Fnv;
use crate::patterns::{AnyPattern, Procedures};

/// A checked, indexed, immutable set of rules.
#[derive(Clone, Debug)]
pub struct RuleSet {
    rules: Vec<Rule>,
    index: Index,
    /// The index of the rules that evaluate no statements.
    naming: Index,
    /// Whether a rule limits how much clients use at a time.
    needs_permits: bool,
    /// Whether a rule evaluates what aggregations on other collections read.
    evaluates_inputs: bool,
    /// Whether a rule applies to an aggregation because of what it reads of other collections.
    applies_to_inputs: bool,
    /// Set while other rules may have applied to an earlier send of a write.
    doubt: Option<Arc<Doubt>>,
    sources: SourceFiles,
    warnings: Report,
    hash: RuleSetHash,
}

/// The set without rules.
impl Default for RuleSet {
    fn default() -> Self {
        Self::of_rules(Vec::new(), SourceFiles::default(), Report::default())
    }
}

impl RuleSet {
    /// Reads and checks rule files given as text.
    ///
    /// # Errors
    /// Every mistake found in any of them; then nothing is loaded.
    pub fn from_sources(sources: Vec<SourceFile>) -> Result<Self, Report> {
        Self::check(SourceFiles::new(sources), Vec::new(), &ModeOverrides::new())
    }

    /// The same rules with other modes; modes that were overridden before are those of the files again. Overrides of
    /// rules that the set does not have are ignored.
    ///
    /// # Errors
    /// The rules contradict each other in these modes.
    pub fn with_overrides(&self, overrides: &ModeOverrides) -> Result<Self, Report> {
        Self::check(self.sources.clone(), Vec::new(), overrides)
    }

    /// The same rules, with those in shadow mode enforced.
    ///
    /// # Errors
    /// The rules contradict each other in these modes.
    pub fn with_shadow_enforced(&self) -> Result<Self, Report> {
        let enforced = |rule: &Rule| {
            let (only, reason, by) = (ClientGlobs::default(), String::new(), String::new());
            let enforced = ModeOverride { mode: Mode::Enforce, only, until: u64::MAX, reason, by, shared: false };
            (rule.name.value.to_string(), Arc::new(enforced))
        };
        let is_shadow = |rule: &&Rule| rule.mode == Mode::Shadow || rule.narrowed().is_some();
        let shadow = self.rules.iter().filter(is_shadow);
        self.with_overrides(&shadow.map(enforced).collect())
    }

    /// Like [`Self::from_sources`], for `sources` in which reading the files already `found` mistakes.
    pub(super) fn check(
        sources: SourceFiles,
        found: Vec<Diagnostic>,
        overrides: &ModeOverrides,
    ) -> Result<Self, Report> {
        let set = Self::check_in_part(sources, found, overrides);
        if set.warnings.has_errors() { Err(set.warnings) } else { Ok(set) }
    }

    /// Like [`Self::check`], without the rules that have mistakes. Its warnings include the errors.
    pub(super) fn check_in_part(sources: SourceFiles, mut found: Vec<Diagnostic>, overrides: &ModeOverrides) -> Self {
        let envelope::RuleFileContent { mut rules, names } = envelope::read_rules(&sources, &mut found);
        for rule in &mut rules {
            if let Some(found) = overrides.get(&*rule.name.value) {
                let others = if found.only.is_empty() { found.mode } else { rule.file_mode };
                (rule.mode, rule.mode_override) = (found.mode.max(others), Some(found.clone()));
            }
        }
        conflict::check_names(&names, &mut found);
        let budget = Budget::default();
        conflict::check(&rules, &budget, &mut found);
        ineffective::check(&rules, &budget, &mut found);
        budget.check(&rules, &mut found);
        let report = Report::new(found, sources.clone());
        let views: Vec<_> = rules.iter().map(Rule::view).collect();
        for (at, pattern) in AnyPattern::linked(&views) {
            rules[at].properties = pattern.properties();
            rules[at].pattern = pattern;
        }
        Self::of_rules(rules, sources, report)
    }

    fn of_rules(rules: Vec<Rule>, sources: SourceFiles, warnings: Report) -> Self {
        Self {
            index: Index::new(indexed_rules(&rules), namespaces(&rules, false)),
            naming: Index::new(indexed_rules(&rules), namespaces(&rules, true)),
            needs_permits: any_active(&rules, Rule::needs_permits),
            evaluates_inputs: any_active(&rules, |rule| rule.properties.evaluates_inputs),
            applies_to_inputs: any_active(&rules, Rule::applies_to_inputs),
            doubt: None,
            hash: RuleSetHash::from_sources(&sources),
            warnings,
            sources,
            rules,
        }
    }

    /// A set with only this rule in mode `enforce`, for the rule's own tests.
    #[must_use]
    pub fn alone(&self, rule: &Rule) -> Self {
        let rules = vec![Rule { id: RuleId(0), mode: Mode::Enforce, ..rule.clone() }];
        Self::of_rules(rules, self.sources.clone(), Report::default())
    }
}

impl RuleSet {
    /// The rules of a namespace, in the order of evaluation, then in the order of the files; `None` if it has none. Of
    /// an exclusive pattern only the most specific rule of each mode is included. Disabled rules are not.
    #[inline]
    #[must_use]
    pub fn rules_for(&self, database: impl AsRef<[u8]>, collection: impl AsRef<[u8]>) -> Option<NamespaceRules<'_>> {
        let found = self.index.find(database.as_ref(), collection.as_ref())?;
        Some(NamespaceRules { rules: &self.rules, found })
    }

    /// The rules that name a namespace but evaluate no statements, chosen and sorted as in
    /// [`rules_for`](Self::rules_for).
    #[must_use]
    pub fn rules_naming(&self, database: impl AsRef<[u8]>, collection: impl AsRef<[u8]>) -> Option<NamespaceRules<'_>> {
        let found = self.naming.find(database.as_ref(), collection.as_ref())?;
        Some(NamespaceRules { rules: &self.rules, found })
    }

    /// Whether a rule may apply to a collection of this name in some database. Can be true without such a rule,
    /// but is never false with one.
    #[inline]
    #[must_use]
    pub fn may_apply_to_collection(&self, collection: impl AsRef<[u8]>) -> bool {
        self.index.may_apply_to_collection(collection.as_ref())
    }

    /// Whether no rule evaluates statements, for example because all are disabled, and none did so a moment ago.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.is_empty() && self.doubt.is_none()
    }

    /// What a retryable write may have met before; `None`: the same rules as now.
    #[inline]
    #[must_use]
    pub fn doubt(&self) -> Option<&Arc<Doubt>> {
        self.doubt.as_ref()
    }

    /// The same rules, while these may have applied to an earlier send of a write; `None`: the same rules applied.
    #[must_use]
    pub fn with_doubt(&self, doubt: Option<Arc<Doubt>>) -> Self {
        Self { doubt, ..self.clone() }
    }

    /// Where rules carry statements out in docward's own transactions, or would in another mode.
    #[must_use]
    pub fn procedure_scopes(&self) -> BTreeSet<ProcedureScope> {
        // Those of `bucket` become upserts.
        let all_updates = self.rules.iter().any(|rule| rule.pattern.name() == "bucket");
        self.rules.iter().flat_map(|rule| ProcedureScope::of_rule(rule, all_updates)).collect()
    }

    /// Whether these rules carry statements of some client out in docward's own transactions, and those `before` do not.
    #[must_use]
    pub fn adds_procedures(&self, before: &Self) -> bool {
        let known: HashSet<_> = before.enforced_procedures().collect();
        let is_known = |found: &(u64, String)| known.contains(found) || known.contains(&(found.0, String::new()));
        self.enforced_procedures().any(|found| !is_known(&found))
    }

    /// The fingerprints of the enforced rules that carry statements out in docward's own transactions, each with the clients
    /// whose; an empty text: of all.
    fn enforced_procedures(&self) -> impl Iterator<Item = (u64, String)> {
        let enforced = self.rules.iter().filter(|rule| rule.mode == Mode::Enforce);
        let with_procedures = enforced.filter(|rule| rule.properties.procedures != Procedures::None);
        with_procedures.map(|rule| (self.rule_fingerprint(rule), narrowing(rule)))
    }

    /// Identifies what the rules do in this version of docward: their texts and their modes.
    #[must_use]
    pub fn behaviour(&self) -> u64 {
        let mut hash = Fnv::default();
        hash.add(env!("CARGO_PKG_VERSION").as_bytes());
        for rule in active(&self.rules) {
            hash.add(rule.mode.as_str().as_bytes());
            hash.add(narrowing(rule).as_bytes());
            hash.add(&self.rule_fingerprint(rule).to_le_bytes());
        }
        hash.hash()
    }

    /// Whether commands on some namespace need a permit.
    #[inline]
    #[must_use]
    pub fn needs_permits(&self) -> bool {
        self.needs_permits
    }

    /// The rules that are not disabled and whose commands need a permit.
    pub fn rules_with_permits(&self) -> impl Iterator<Item = &Rule> {
        active(&self.rules).filter(|rule| rule.needs_permits())
    }

    /// Whether a rule evaluates what aggregations on other collections read of its namespaces.
    #[must_use]
    pub fn evaluates_inputs(&self) -> bool {
        self.evaluates_inputs
    }

    /// Whether a rule can apply to an aggregation because of the collections that it reads besides its own.
    #[must_use]
    pub fn applies_to_inputs(&self) -> bool {
        self.applies_to_inputs
    }

    /// All rules, including disabled ones, in the order of the files. A [`RuleId`] is an index into this slice.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// One rule.
    ///
    /// # Panics
    /// If `id` is from another, larger set.
    #[must_use]
    pub fn rule(&self, id: RuleId) -> &Rule {
        &self.rules[id.index()]
    }

    /// The texts the rules were read from, for diagnostics that point into them.
    #[must_use]
    pub fn sources(&self) -> &SourceFiles {
        &self.sources
    }

    /// A hash of the rule's text without comments and empty lines. It stays the same when the rule only moves
    /// within its file.
    #[must_use]
    pub fn rule_fingerprint(&self, rule: &Rule) -> u64 {
        let lines = self
            .rule_lines(rule)
            .map(str::trim_end)
            .filter(|line| !matches!(line.trim_start().chars().next(), None | Some('#')));
        let mut hash = Fnv::default();
        lines.for_each(|line| {
            hash.add(line.as_bytes());
            hash.add(b"\n");
        });
        hash.hash()
    }

    /// The rule's text as written. Trailing comments with less indentation than its keys belong to the next rule.
    #[must_use]
    pub fn rule_text(&self, rule: &Rule) -> String {
        let keys = rule.location.column.saturating_sub(1) as usize;
        let is_next = |line: &&str| {
            let text = line.trim_start();
            text.is_empty() || (text.starts_with('#') && line.len() - text.len() < keys)
        };
        let lines: Vec<&str> = self.rule_lines(rule).collect();
        let trailing = lines.iter().rev().take_while(|line| is_next(line)).count();
        lines[..lines.len() - trailing].join("\n")
    }

    fn rule_lines(&self, rule: &Rule) -> impl Iterator<Item = &str> {
        let file = rule.name.span.file;
        let following = self.rules.get(rule.id.index() + 1).filter(|next| next.name.span.file == file);
        let end = following.map_or(u32::MAX, |next| next.location.line);
        self.sources.lines(file, rule.location.line, end).lines()
    }

    /// The warnings of the load; usually empty.
    #[must_use]
    pub fn warnings(&self) -> &Report {
        &self.warnings
    }

    /// Identifies this set in logs: the same for the same texts, whatever the paths of the files.
    #[must_use]
    pub fn hash(&self) -> RuleSetHash {
        self.hash
    }

    /// Like [`Self::hash`], and different for different overrides of modes.
    #[must_use]
    pub fn version(&self) -> u64 {
        let mut hash = Fnv::from_hash(self.hash.0);
        for (rule, found) in self.rules.iter().filter_map(|rule| Some((rule, rule.mode_override.as_ref()?))) {
            for text in [&rule.name.value, found.mode.as_str(), &found.only.to_string(), &found.reason, &found.by] {
                hash.add(text.as_bytes());
                hash.add(&[0, u8::from(found.shared)]);
            }
            hash.add(&found.until.to_le_bytes());
        }
        hash.hash()
    }
}

/// The rules of one namespace; never empty. Needs no allocation: exact names borrow, globs use the stack.
#[derive(Debug)]
pub struct NamespaceRules<'s> {
    rules: &'s [Rule],
    found: FoundRules<'s>,
}

impl<'s> NamespaceRules<'s> {
    /// The rules in evaluation order.
    pub fn iter(&self) -> impl Iterator<Item = &'s Rule> + '_ {
        self.ids().iter().map(|id| &self.rules[id.index()])
    }

    /// Their numbers, in the same order.
    #[must_use]
    pub fn ids(&self) -> &[RuleId] {
        self.found.ids()
    }
}

fn indexed_rules(rules: &[Rule]) -> Vec<IndexedRule> {
    let indexed = |rule: &Rule| IndexedRule {
        evaluation_order: rule.pattern.evaluation_order(),
        exclusive: rule.properties.exclusive.then(|| exclusive_slot(rule)),
    };
    rules.iter().map(indexed).collect()
}

/// What an override for some clients changes, as text; empty if the rule has no such override.
fn narrowing(rule: &Rule) -> String {
    let text = |found: &ModeOverride| format!("{} for {}", found.mode.as_str(), found.only);
    rule.narrowed().map(text).unwrap_or_default()
}

/// The rules that are not disabled.
fn active(rules: &[Rule]) -> impl Iterator<Item = &Rule> {
    rules.iter().filter(|rule| rule.mode != Mode::Disabled)
}

fn any_active(rules: &[Rule], holds: impl Fn(&Rule) -> bool) -> bool {
    active(rules).any(holds)
}

/// A shadow rule applies beside an enforced one, so each mode has its own slot.
fn exclusive_slot(rule: &Rule) -> u16 {
    2 * u16::from(rule.pattern.evaluation_order()) + u16::from(rule.mode == Mode::Shadow)
}

/// The namespaces of the rules that only name them, or of those that evaluate statements.
fn namespaces(rules: &[Rule], only_names: bool) -> impl Iterator<Item = (RuleId, Cow<'_, NamespaceGlob>)> {
    active(rules).filter(move |rule| rule.properties.only_names == only_names).flat_map(|rule| {
        let own = rule.namespaces.iter().map(|one| &one.value);
        own.chain(&rule.properties.also_evaluates).map(|namespace| (rule.id, Cow::Borrowed(namespace)))
    })
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::hint::black_box;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use support::cpu_time::CpuTimer;

    /// One rule for each `(namespaces, mode, settings)`, named `r0`, `r1`, ….
    fn load(rules: &[(String, &str, &str)]) -> Result<RuleSet, Report> {
        let mut text = "version: 1\nrules:\n".to_owned();
        for (at, (namespaces, mode, settings)) in rules.iter().enumerate() {
            writeln!(text, "  - {{name: r{at}, namespace: [{namespaces}], mode: {mode}, {settings}}}").unwrap();
        }
        let name = "rules.yaml".to_owned();
        RuleSet::from_sources(vec![SourceFile { name, text }])
    }

    fn names(rules: &RuleSet, database: &str, collection: &str) -> Vec<String> {
        let found = rules.rules_for(database, collection);
        found.map_or_else(Vec::new, |rules| rules.iter().map(|rule| rule.name.value.to_string()).collect())
    }

    const ALONE: &str = "replacement: {}";
    const LATE: &str = "bounds: {field: n, min: 0}";
    const MANY: &str = "together: [a, b]";

    #[test]
    fn rules_are_in_the_order_of_evaluation_and_only_the_most_specific_exclusive_one_applies() {
        let rule = |namespaces: &str, mode, settings| (namespaces.to_owned(), mode, settings);
        let rules = load(&[
            rule("'*.*'", "enforce", LATE),
            rule("'*.*'", "enforce", MANY),
            rule("shop.*", "enforce", ALONE),
            rule("shop.orders, '*.old'", "enforce", ALONE),
            rule("shop.orders", "shadow", ALONE),
            rule("shop.orders", "disabled", ALONE),
        ])
        .unwrap();
        for (database, collection, expected) in [
            ("shop", "orders", "r3 r4 r1 r0"),
            ("shop", "books", "r2 r1 r0"),
            ("shop", "old", "r2 r1 r0"),
            ("x", "old", "r3 r1 r0"),
            ("x", "y", "r1 r0"),
            ("config", "y", ""),
            ("x", "system.views", ""),
        ] {
            let found = names(&rules, database, collection).join(" ");
            assert_eq!(found, expected, "{database}.{collection}");
        }
        assert_eq!(rules.rules().len(), 6);
        assert!(!rules.is_empty());
        assert!(load(&[rule("a.b", "disabled", ALONE)]).unwrap().is_empty());
        assert!(RuleSet::default().rules_for("a", "b").is_none());
    }

    #[test]
    fn the_hash_identifies_the_content() {
        let one = load(&[("a.b".to_owned(), "enforce", ALONE)]).unwrap();
        let same = load(&[("a.b".to_owned(), "enforce", ALONE)]).unwrap();
        let other = load(&[("a.c".to_owned(), "enforce", ALONE)]).unwrap();
        assert_eq!(one.hash(), same.hash());
        assert_ne!(one.hash(), other.hash());
        assert_eq!(one.hash().to_string().len(), 16);
    }

    proptest! {
        #[test]
        fn lookup_agrees_with_the_definition(
            patterns in prop::collection::vec(("[ab*]{1,3}\\.[ab*]{1,3}", 0..4_u8), 1..8),
            names in prop::collection::vec(("[ab]{1,3}", "[ab]{1,3}"), 40),
        ) {
            let rules: Vec<_> = patterns
                .iter()
                .map(|(namespace, kind)| match kind {
                    0 => (format!("'{namespace}'"), "enforce", MANY),
                    1 => (format!("'{namespace}'"), "disabled", MANY),
                    2 => (format!("'{namespace}'"), "shadow", ALONE),
                    _ => (format!("'{namespace}'"), "enforce", ALONE),
                })
                .collect();
            let loaded = load(&rules);
            // Two exclusive rules of one mode must not load if neither is more specific.
            let parsed: Vec<_> = patterns
                .iter()
                .map(|(namespace, kind)| (crate::config::NamespaceGlob::parse(namespace).unwrap(), *kind))
                .collect();
            let contradiction = parsed.iter().enumerate().any(|(at, (one, kind))| {
                parsed[..at].iter().any(|(other, other_kind)| {
                    let same_exclusive = *kind >= 2 && kind == other_kind;
                    same_exclusive && one.intersects(other) && one.compare_specificity(other).is_none()
                })
            });
            prop_assert_eq!(loaded.is_err(), contradiction);
            let Ok(loaded) = loaded else { return Ok(()) };
            for (database, collection) in &names {
                let matching = |(one, kind): &&(crate::config::NamespaceGlob, u8)| {
                    *kind != 1 && one.matches(database.as_bytes(), collection.as_bytes())
                };
                let applies = |(one, kind): &(crate::config::NamespaceGlob, u8)| {
                    *kind < 2 || parsed.iter().filter(matching).all(|(other, other_kind)| {
                        kind != other_kind || other.compare_specificity(one) != Some(std::cmp::Ordering::Greater)
                    })
                };
                let mut expected: Vec<_> = parsed
                    .iter()
                    .enumerate()
                    .filter(|(_, one)| matching(one) && applies(one))
                    .map(|(at, (_, kind))| (*kind < 2, at, format!("r{at}")))
                    .collect();
                expected.sort();
                let expected: Vec<_> = expected.into_iter().map(|(_, _, name)| name).collect();
                prop_assert_eq!(self::names(&loaded, database, collection), expected.clone());
                if !expected.is_empty() {
                    prop_assert!(loaded.may_apply_to_collection(collection));
                }
            }
        }
    }

    /// The least time of many rounds of lookups for a name without rules.
    fn probe(rules: &RuleSet) -> Duration {
        let round = || {
            let started = CpuTimer::start();
            for _ in 0..1_000 {
                black_box(rules.rules_for(black_box("elsewhere"), black_box("things")));
                black_box(rules.may_apply_to_collection(black_box("things")));
            }
            started.elapsed()
        };
        (0..50).map(|_| round()).min().unwrap_or_default()
    }

    #[test]
    fn a_hundred_thousand_namespaces_are_loaded_or_reported_fast() {
        let one = |name: &dyn Fn(usize) -> String| {
            let namespaces: Vec<String> = (0..100_000).map(|at| format!("'{}'", name(at))).collect();
            let started = CpuTimer::start();
            let loaded = load(&[(namespaces.join(", "), "enforce", ALONE)]);
            // Unoptimized, on a slow machine.
            assert!(started.elapsed() < Duration::from_secs(40), "{}: {:?}", name(0), started.elapsed());
            loaded
        };
        assert!(one(&|at| format!("d.c{at}")).is_ok());
        assert!(one(&|at| format!("d{at}.*")).is_ok());
        let many = one(&|at| format!("t*{at}.c*{at}")).unwrap_err();
        assert!(many.to_string().contains("too many namespaces with `*`"), "{}", &many.to_string()[..200]);
    }

    #[test]
    fn a_name_without_rules_costs_the_same_for_ten_thousand_rules_as_for_ten() {
        let many = |count: usize| {
            let rules: Vec<_> = (0..count)
                .map(|at| match at % 4 {
                    0 => (format!("d{at}.c{at}"), "enforce", ALONE),
                    1 => (format!("d{at:05}.*"), "enforce", MANY),
                    2 => (format!("'*.c{at:05}'"), "enforce", ALONE),
                    _ => (format!("'tenant{at:05}*.c*'"), "enforce", ALONE),
                })
                .collect();
            load(&rules).unwrap()
        };
        let few = many(12);
        let started = CpuTimer::start();
        let all = many(10_000);
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
        assert_eq!(names(&all, "d4", "c4"), ["r4"]);
        assert_eq!(names(&all, "d00005", "x"), ["r5"]);
        assert_eq!(names(&all, "x", "c00006"), ["r6"]);
        assert_eq!(names(&all, "tenant000075", "c"), ["r7"]);
        let (few, all) = (probe(&few), probe(&all));
        assert!(all < 4 * few, "{few:?} for 12 rules, {all:?} for 10000");
    }
}
