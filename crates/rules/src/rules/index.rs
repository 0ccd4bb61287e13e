//! Looks up the rules of a namespace: the hot path.
//!
//! The globs that match an exact name are merged into its entry when the set is built, so a lookup costs
//! one hash probe. For any other name the globs are found by their literal part: by database, by
//! collection, or by the text before the first star. A name without rules costs the same few probes
//! whatever the number of rules. A lookup allocates nothing, and clients cannot make the index grow.
//! The index works with rule numbers; `set.rs` maps them to rules.

use std::borrow::{Borrow, Cow};
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::rule::RuleId;
use crate::config::{Glob, NamespaceGlob, Rank, bucketed_collection, is_server_collection, is_server_database};

/// The rules of one namespace in evaluation order; on the stack up to eight rules.
pub(super) type RuleIds = SmallVec<[RuleId; 8]>;

/// What the index must know of a rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexedRule {
    /// When it evaluates a statement: smaller is earlier.
    pub(super) evaluation_order: u8,
    /// Of rules with the same number only the most specific one applies to a namespace.
    pub(super) exclusive: Option<u16>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    exact: HashMap<ExactName, Box<[RuleId]>, RandomState>,
    globs: Globs,
    /// By rule number.
    indexed_rules: Vec<IndexedRule>,
    collections: Collections,
}

/// The rules found for a namespace.
#[derive(Debug)]
pub(super) enum FoundRules<'a> {
    Exact(&'a [RuleId]),
    Globs(RuleIds),
}

impl FoundRules<'_> {
    /// The rules, in the order of evaluation.
    pub(super) fn ids(&self) -> &[RuleId] {
        match self {
            Self::Exact(rules) => rules,
            Self::Globs(rules) => rules,
        }
    }
}

impl Index {
    /// `indexed_rules` are all rules by number; `namespaces` are those of the active ones.
    pub(super) fn new<'p>(
        indexed_rules: Vec<IndexedRule>,
        namespaces: impl IntoIterator<Item = (RuleId, Cow<'p, NamespaceGlob>)>,
    ) -> Self {
        let mut index = Self { indexed_rules, ..Self::default() };
        let mut exact: HashMap<ExactName, SmallVec<[Match; 8]>, RandomState> = HashMap::default();
        for (rule, namespace) in namespaces {
            index.collections.add(namespace.collection());
            let rank = namespace.rank();
            match namespace.exact() {
                Some((database, collection)) => {
                    let name = ExactName::new(database, collection);
                    exact.entry(name).or_default().push(Match { rule, rank });
                }
                None => index.globs.add(GlobRule { namespace: namespace.into_owned(), found: Match { rule, rank } }),
            }
        }
        for (name, mut matches) in exact {
            index.globs.find(&name.database, &name.collection, &mut matches);
            let rules = index.resolve(matches).to_vec().into_boxed_slice();
            index.exact.insert(name, rules);
        }
        index
    }

    /// The rules of a namespace; `None` if it has none. The buckets of a time-series collection have its rules.
    pub(super) fn find(&self, database: &[u8], collection: &[u8]) -> Option<FoundRules<'_>> {
        let collection = bucketed_collection(collection).unwrap_or(collection);
        let name: &dyn NamespaceParts = &(database, collection);
        if let Some(rules) = self.exact.get(name) {
            return Some(FoundRules::Exact(rules));
        }
        let mut matches = SmallVec::new();
        self.globs.find(database, collection, &mut matches);
        if matches.is_empty() {
            return None;
        }
        Some(FoundRules::Globs(self.resolve(matches)))
    }

    /// Whether a rule may apply to a collection of this name in some database.
    pub(super) fn may_apply_to_collection(&self, collection: &[u8]) -> bool {
        self.collections.may_have(bucketed_collection(collection).unwrap_or(collection))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.globs.is_empty()
    }

    /// Each rule once, in the order of evaluation and then in the order of the files. Of exclusive rules only the most
    /// specific one is included.
    fn resolve(&self, mut matches: SmallVec<[Match; 8]>) -> RuleIds {
        // Each rule keeps its most specific matching namespace.
        matches.sort_unstable_by_key(|found| (found.rule, std::cmp::Reverse(found.rank)));
        matches.dedup_by_key(|found| found.rule);
        let outranked = |one: &Match| {
            let exclusive = self.indexed_rules[one.rule.index()].exclusive;
            let outranks =
                |other: &Match| self.indexed_rules[other.rule.index()].exclusive == exclusive && other.rank > one.rank;
            exclusive.is_some() && matches.iter().any(outranks)
        };
        let mut rules: RuleIds = matches.iter().filter(|one| !outranked(one)).map(|one| one.rule).collect();
        rules.sort_unstable_by_key(|rule| (self.indexed_rules[rule.index()].evaluation_order, *rule));
        rules
    }
}

/// A rule with a matching namespace, and how specific that namespace is.
#[derive(Clone, Copy, Debug)]
struct Match {
    rule: RuleId,
    rank: Rank,
}

/// Database and collection, for lookups that do not build `database.collection`.
trait NamespaceParts {
    fn parts(&self) -> (&[u8], &[u8]);
}

#[derive(Clone, Debug)]
struct ExactName {
    database: Box<[u8]>,
    collection: Box<[u8]>,
}

impl ExactName {
    fn new(database: &str, collection: &str) -> Self {
        Self { database: database.as_bytes().into(), collection: collection.as_bytes().into() }
    }
}

impl NamespaceParts for ExactName {
    fn parts(&self) -> (&[u8], &[u8]) {
        (&self.database, &self.collection)
    }
}

impl NamespaceParts for (&[u8], &[u8]) {
    fn parts(&self) -> (&[u8], &[u8]) {
        *self
    }
}

impl Hash for dyn NamespaceParts + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl PartialEq for dyn NamespaceParts + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for dyn NamespaceParts + '_ {}

// `HashMap` requires that an owned key hashes and compares like its borrowed form.
impl Hash for ExactName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl PartialEq for ExactName {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for ExactName {}

impl<'a> Borrow<dyn NamespaceParts + 'a> for ExactName {
    fn borrow(&self) -> &(dyn NamespaceParts + 'a) {
        self
    }
}

#[derive(Clone, Debug)]
struct GlobRule {
    namespace: NamespaceGlob,
    found: Match,
}

/// All globs, each stored once, by its literal parts.
#[derive(Clone, Debug, Default)]
struct Globs {
    /// `shop.*`, `shop.order*`: by database, then by the start of the collection.
    by_database: HashMap<Box<[u8]>, PrefixIndex<GlobRule>, RandomState>,
    /// `*.orders`, `tenant*.orders`: by collection, then by the start of the database.
    by_collection: HashMap<Box<[u8]>, PrefixIndex<GlobRule>, RandomState>,
    /// `tenant*.order*`: by the start of the database.
    by_database_prefix: PrefixIndex<GlobRule>,
    /// `*.order*`, `*.*`: by the start of the collection.
    by_collection_prefix: PrefixIndex<GlobRule>,
}

impl Globs {
    fn add(&mut self, rule: GlobRule) {
        let (database, collection) = (rule.namespace.database(), rule.namespace.collection());
        let database_prefix = key(database.literal_prefix());
        let collection_prefix = key(collection.literal_prefix());
        if database.is_literal() {
            let globs = self.by_database.entry(database_prefix).or_default();
            globs.add(collection_prefix, rule);
        } else if collection.is_literal() {
            let globs = self.by_collection.entry(collection_prefix).or_default();
            globs.add(database_prefix, rule);
        } else if database_prefix.is_empty() {
            self.by_collection_prefix.add(collection_prefix, rule);
        } else {
            self.by_database_prefix.add(database_prefix, rule);
        }
    }

    fn find(&self, database: &[u8], collection: &[u8], matches: &mut SmallVec<[Match; 8]>) {
        if is_server_collection(collection) {
            return;
        }
        let mut take = |globs: &PrefixIndex<GlobRule>, name: &[u8]| {
            globs.for_each_candidate(name, |rule| {
                if rule.namespace.matches(database, collection) {
                    matches.push(rule.found);
                }
            });
        };
        if let Some(globs) = self.by_database.get(database) {
            take(globs, collection);
        }
        if is_server_database(database) {
            return;
        }
        if let Some(globs) = self.by_collection.get(collection) {
            take(globs, database);
        }
        take(&self.by_database_prefix, database);
        take(&self.by_collection_prefix, collection);
    }

    fn is_empty(&self) -> bool {
        self.by_database.is_empty()
            && self.by_collection.is_empty()
            && self.by_database_prefix.is_empty()
            && self.by_collection_prefix.is_empty()
    }
}

/// The collection names that rules apply to, in any database.
#[derive(Clone, Debug, Default)]
struct Collections {
    exact: HashSet<Box<[u8]>, RandomState>,
    globs: PrefixIndex<Glob>,
    /// A rule applies to `*`: every collection.
    all: bool,
}

impl Collections {
    fn add(&mut self, collection: &Glob) {
        if collection.is_literal() {
            self.exact.insert(key(collection.as_str()));
        } else if collection.as_str() == "*" {
            self.all = true;
        } else {
            let prefix = key(collection.literal_prefix());
            self.globs.add(prefix, collection.clone());
        }
    }

    fn may_have(&self, collection: &[u8]) -> bool {
        if self.all || self.exact.contains(collection) {
            return true;
        }
        let mut found = false;
        self.globs.for_each_candidate(collection, |glob| found = found || glob.matches(collection));
        found
    }
}

/// Items by the literal text that their glob starts with. A lookup costs one probe for each distinct
/// *length* of such a text. Items that start with the same text are tried in turn.
#[derive(Clone, Debug)]
struct PrefixIndex<T> {
    by_prefix: HashMap<Box<[u8]>, Vec<T>, RandomState>,
    /// The lengths that occur, ascending.
    lengths: Vec<usize>,
}

impl<T> Default for PrefixIndex<T> {
    fn default() -> Self {
        Self { by_prefix: HashMap::default(), lengths: Vec::new() }
    }
}

impl<T> PrefixIndex<T> {
    fn add(&mut self, prefix: Box<[u8]>, thing: T) {
        if let Err(at) = self.lengths.binary_search(&prefix.len()) {
            self.lengths.insert(at, prefix.len());
        }
        self.by_prefix.entry(prefix).or_default().push(thing);
    }

    fn for_each_candidate(&self, name: &[u8], mut take: impl FnMut(&T)) {
        for length in &self.lengths {
            let Some(prefix) = name.get(..*length) else {
                return;
            };
            if let Some(things) = self.by_prefix.get(prefix) {
                things.iter().for_each(&mut take);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.by_prefix.is_empty()
    }
}

fn key(text: &str) -> Box<[u8]> {
    text.as_bytes().into()
}
