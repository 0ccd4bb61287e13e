//! All rules, checked and ready to be asked: the front door of the layer.
//!
//! A [`RuleSet`] is made whole or not at all, never changes, and is swapped as one on a reload.
//! It knows files only as text (`files.rs` reads them) and patterns only as [`Pattern`].

use std::fmt;
use std::ops::Deref;

use super::conflict;
use super::diagnostic::{Diagnostic, Report};
use super::envelope;
use super::index::{Found, Index, RuleIds, Speaker};
use super::rule::{Mode, Pattern, Rule, RuleId};
use super::source::{Source, Sources};

/// A checked, indexed, immutable set of rules.
#[derive(Debug)]
pub struct RuleSet<P> {
    rules: Vec<Rule<P>>,
    index: Index,
    sources: Sources,
    warnings: Report,
    hash: RuleSetHash,
}

/// No rules: everything passes.
impl<P> Default for RuleSet<P> {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            index: Index::default(),
            sources: Sources::default(),
            warnings: Report::default(),
            hash: RuleSetHash::of(&Sources::default()),
        }
    }
}

impl<P: Pattern> RuleSet<P> {
    /// Reads and checks rule files given as text.
    ///
    /// # Errors
    /// Every mistake found in any of them; then nothing is loaded.
    pub fn from_sources(sources: Vec<Source>) -> Result<Self, Report> {
        Self::check(Sources::new(sources), Vec::new())
    }

    /// The same, with the mistakes already made in reading the files.
    pub(super) fn check(sources: Sources, mut found: Vec<Diagnostic>) -> Result<Self, Report> {
        let rules = envelope::read(&sources, &mut found);
        conflict::check(&rules, &mut found);
        let report = Report::new(found, sources.clone());
        if report.has_errors() {
            return Err(report);
        }
        Ok(Self {
            index: Index::new(speakers(&rules), namespaces(&rules)),
            hash: RuleSetHash::of(&sources),
            warnings: report,
            sources,
            rules,
        })
    }
}

impl<P> RuleSet<P> {
    /// The rules for a namespace: by phase, then in the order of the files; of exclusive patterns
    /// the most specific rule of each mode; disabled ones left out. `None`: no rule is for it.
    #[inline]
    #[must_use]
    pub fn rules_for(&self, database: impl AsRef<[u8]>, collection: impl AsRef<[u8]>) -> Option<NamespaceRules<'_, P>> {
        let found = self.index.find(database.as_ref(), collection.as_ref())?;
        Some(NamespaceRules { rules: &self.rules, found })
    }

    /// Whether a rule may be for a collection of this name in some database: sometimes yes
    /// without need, never no where there is one.
    #[inline]
    #[must_use]
    pub fn may_concern_collection(&self, collection: impl AsRef<[u8]>) -> bool {
        self.index.may_concern_collection(collection.as_ref())
    }

    /// Whether no rule takes part in anything: there are none, or all are disabled.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// All rules, disabled ones too, in the order of the files; a [`RuleId`] is its place here.
    #[must_use]
    pub fn rules(&self) -> &[Rule<P>] {
        &self.rules
    }

    /// One rule.
    ///
    /// # Panics
    /// When `id` is of another, larger set.
    #[must_use]
    pub fn rule(&self, id: RuleId) -> &Rule<P> {
        &self.rules[id.index()]
    }

    /// The texts the rules were read from, for diagnostics that point into them.
    #[must_use]
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// What somebody should look at although the rules load; usually empty.
    #[must_use]
    pub fn warnings(&self) -> &Report {
        &self.warnings
    }

    /// Names this set in logs: the same for the same texts, wherever the files are.
    #[must_use]
    pub fn hash(&self) -> RuleSetHash {
        self.hash
    }
}

/// The rules of one namespace; never empty. Cheap: exact names borrow, globs sit on the stack.
#[derive(Debug)]
pub struct NamespaceRules<'s, P> {
    rules: &'s [Rule<P>],
    found: Found<'s>,
}

impl<'s, P> NamespaceRules<'s, P> {
    /// The rules in the order they judge.
    pub fn iter(&self) -> impl Iterator<Item = &'s Rule<P>> + '_ {
        self.ids().iter().map(|id| &self.rules[id.index()])
    }

    /// Their numbers, in the same order.
    #[must_use]
    pub fn ids(&self) -> &[RuleId] {
        match &self.found {
            Found::Exact(rules) => rules,
            Found::Globs(rules) => RuleIds::deref(rules),
        }
    }
}

/// The content of a rule set as a number: 64-bit FNV-1a over the texts, so that it is the same in
/// every build. It tells sets apart in logs; it does not prove anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleSetHash(pub u64);

impl RuleSetHash {
    fn of(sources: &Sources) -> Self {
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        let mut add = |bytes: &[u8]| {
            for byte in bytes {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        for file in sources.files() {
            let text = sources.text(file);
            // The length keeps two files apart from one with both texts.
            add(&(text.len() as u64).to_le_bytes());
            add(text.as_bytes());
        }
        Self(hash)
    }
}

impl fmt::Display for RuleSetHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

fn speakers<P: Pattern>(rules: &[Rule<P>]) -> Vec<Speaker> {
    let speaker = |rule: &Rule<P>| Speaker {
        phase: rule.pattern.phase(),
        exclusive: rule.pattern.exclusive().then(|| exclusive_slot(rule)),
    };
    rules.iter().map(speaker).collect()
}

/// A rule that is tried speaks beside the one it may replace, so each mode has its own slot.
fn exclusive_slot<P: Pattern>(rule: &Rule<P>) -> u16 {
    let name = rule.pattern.name();
    let position = P::NAMES.iter().position(|known| *known == name);
    let position = position.unwrap_or(P::NAMES.len());
    u16::try_from(2 * position).unwrap_or(u16::MAX) | u16::from(rule.mode == Mode::Shadow)
}

fn namespaces<P>(rules: &[Rule<P>]) -> impl Iterator<Item = (RuleId, &super::namespace::NamespacePattern)> {
    let active = rules.iter().filter(|rule| rule.mode != Mode::Disabled);
    active.flat_map(|rule| rule.namespaces.iter().map(|one| (rule.id, &one.value)))
}
