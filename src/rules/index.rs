//! From a namespace to its rules: the hot path.
//!
//! Exact names are merged with the globs that match them when the set is made, so they cost one
//! hash probe. For any other name the globs are found by their literal part: by database, by
//! collection, or by the text before the first star. So a name that no rule is for costs the same
//! few probes whatever the number of rules, nothing is allocated, and nothing is remembered that a
//! client could make grow. It deals in rule numbers; `set.rs` puts the rules to them.

use std::borrow::{Borrow, Cow};
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::glob::Glob;
use super::namespace::{NamespacePattern, Rank, bucketed_collection, is_server_collection, is_server_database};
use super::rule::RuleId;

/// The rules of one namespace in the order they evaluate; on the stack for all sane rule sets.
pub(super) type RuleIds = SmallVec<[RuleId; 8]>;

/// What the index must know of a rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexedRule {
    /// When it sees a statement.
    pub(super) phase: u8,
    /// Of rules with the same number only the most specific one applies for a namespace.
    pub(super) exclusive: Option<u16>,
}

#[derive(Debug, Default)]
pub(super) struct Index {
    exact: HashMap<ExactName, Box<[RuleId]>, RandomState>,
    globs: Globs,
    /// By rule number.
    indexed_rules: Vec<IndexedRule>,
    collections: Collections,
}

/// The rules found for a namespace.
#[derive(Debug)]
pub(super) enum Found<'a> {
    Exact(&'a [RuleId]),
    Globs(RuleIds),
}

impl Index {
    /// `indexed_rules` are all rules by number, `namespaces` the patterns of those that take part.
    pub(super) fn new<'p>(
        indexed_rules: Vec<IndexedRule>,
        namespaces: impl IntoIterator<Item = (RuleId, Cow<'p, NamespacePattern>)>,
    ) -> Self {
        let mut index = Self { indexed_rules, ..Self::default() };
        let mut exact: HashMap<ExactName, SmallVec<[Match; 8]>, RandomState> = HashMap::default();
        for (rule, pattern) in namespaces {
            index.collections.add(pattern.collection());
            let rank = pattern.rank();
            match pattern.exact() {
                Some((database, collection)) => {
                    let name = ExactName::new(database, collection);
                    exact.entry(name).or_default().push(Match { rule, rank });
                }
                None => index.globs.add(GlobRule { pattern: pattern.into_owned(), found: Match { rule, rank } }),
            }
        }
        for (name, mut matches) in exact {
            index.globs.find(&name.database, &name.collection, &mut matches);
            let rules = index.resolve(matches).to_vec().into_boxed_slice();
            index.exact.insert(name, rules);
        }
        index
    }

    /// The rules for a namespace. `None`: no rule is for it. The buckets of a time-series collection are its own.
    pub(super) fn find(&self, database: &[u8], collection: &[u8]) -> Option<Found<'_>> {
        let collection = bucketed_collection(collection).unwrap_or(collection);
        let name: &dyn Name = &(database, collection);
        if let Some(rules) = self.exact.get(name) {
            return Some(Found::Exact(rules));
        }
        let mut matches = SmallVec::new();
        self.globs.find(database, collection, &mut matches);
        if matches.is_empty() {
            return None;
        }
        Some(Found::Globs(self.resolve(matches)))
    }

    /// Whether a rule may be for a collection of this name in some database.
    pub(super) fn may_concern_collection(&self, collection: &[u8]) -> bool {
        self.collections.may_have(bucketed_collection(collection).unwrap_or(collection))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.globs.is_empty()
    }

    /// Each rule once, by phase and then in the order of the files, and of exclusive ones only
    /// the most specific.
    fn resolve(&self, mut matches: SmallVec<[Match; 8]>) -> RuleIds {
        // The most specific of each rule's namespaces counts.
        matches.sort_unstable_by_key(|found| (found.rule, std::cmp::Reverse(found.rank)));
        matches.dedup_by_key(|found| found.rule);
        let silenced = |one: &Match| {
            let exclusive = self.indexed_rules[one.rule.index()].exclusive;
            let outranks =
                |other: &Match| self.indexed_rules[other.rule.index()].exclusive == exclusive && other.rank > one.rank;
            exclusive.is_some() && matches.iter().any(outranks)
        };
        let mut rules: RuleIds = matches.iter().filter(|one| !silenced(one)).map(|one| one.rule).collect();
        rules.sort_unstable_by_key(|rule| (self.indexed_rules[rule.index()].phase, *rule));
        rules
    }
}

/// A rule one of whose namespaces matches, and how specific that one is.
#[derive(Clone, Copy, Debug)]
struct Match {
    rule: RuleId,
    rank: Rank,
}

/// Database and collection, to be looked up without building a `database.collection`.
trait Name {
    fn parts(&self) -> (&[u8], &[u8]);
}

#[derive(Debug)]
struct ExactName {
    database: Box<[u8]>,
    collection: Box<[u8]>,
}

impl ExactName {
    fn new(database: &str, collection: &str) -> Self {
        Self { database: database.as_bytes().into(), collection: collection.as_bytes().into() }
    }
}

impl Name for ExactName {
    fn parts(&self) -> (&[u8], &[u8]) {
        (&self.database, &self.collection)
    }
}

impl Name for (&[u8], &[u8]) {
    fn parts(&self) -> (&[u8], &[u8]) {
        *self
    }
}

impl Hash for dyn Name + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl PartialEq for dyn Name + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for dyn Name + '_ {}

// `HashMap` asks that an owned key hashes and compares as what it borrows to.
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

impl<'a> Borrow<dyn Name + 'a> for ExactName {
    fn borrow(&self) -> &(dyn Name + 'a) {
        self
    }
}

#[derive(Debug)]
struct GlobRule {
    pattern: NamespacePattern,
    found: Match,
}

/// All globs, each in one place, by what is literal in it.
#[derive(Debug, Default)]
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
        let (database, collection) = (rule.pattern.database(), rule.pattern.collection());
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
                if rule.pattern.matches(database, collection) {
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

/// The collection names that rules are for, in whatever database.
#[derive(Debug, Default)]
struct Collections {
    exact: HashSet<Box<[u8]>, RandomState>,
    globs: PrefixIndex<Glob>,
    /// Some rule is for `*`: every collection.
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

/// Things by the literal text their pattern starts with. Costs one probe for each *length* of
/// such a text, however many there are; those that start with the same text are tried in turn.
#[derive(Debug)]
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
