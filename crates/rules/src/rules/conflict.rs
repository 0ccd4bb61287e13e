//! Rules that contradict each other: two rules with one name, two equally specific rules of an exclusive
//! pattern for one namespace, two rules with one exclusive field.
//!
//! Rules are compared only within groups that could collide, so that ten thousand rules for ten
//! thousand namespaces load fast. Of disabled rules only the names are checked. A shadow rule does not
//! contradict an enforced one.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use super::rule::{Mode, Rule};
use crate::config::{Code, Diagnostic, Located, NamespaceGlob};
use crate::document::Path;
use crate::patterns::{AnyPattern, ExclusiveField};

/// How many comparisons of namespaces a load may take: one or two seconds. Only namespaces with `*` need more
/// than one comparison each, and thousands of them that may overlap are a mistake.
const COMPARISONS: u64 = 1 << 24;

/// The remaining [`COMPARISONS`].
#[derive(Debug)]
pub(super) struct Budget(Cell<u64>);

impl Default for Budget {
    fn default() -> Self {
        Self(Cell::new(COMPARISONS))
    }
}

impl Budget {
    /// Spends one; false if none is left.
    fn spend(&self) -> bool {
        let left = self.0.get();
        self.0.set(left.saturating_sub(1));
        left > 0
    }

    /// Reports an exhausted budget: some namespaces were not compared.
    pub(super) fn check(&self, rules: &[Rule], found: &mut Vec<Diagnostic>) {
        let globs = |rule: &&Rule| rule.namespaces.iter().filter(|one| one.exact().is_none()).count();
        if self.0.get() > 0 {
            return;
        }
        let Some(namespace) = rules.iter().max_by_key(globs).and_then(|rule| rule.namespaces.first()) else { return };
        let message = "too many namespaces with `*` may overlap; this rule has the most of them";
        let mistake = Diagnostic::error(Code::TooLarge, namespace.span, message);
        found.push(mistake.help("replace several by one `*`, or write the database or collection name in full"));
    }
}

/// Reports contradictions between rules.
pub(super) fn check(rules: &[Rule], budget: &Budget, found: &mut Vec<Diagnostic>) {
    let active: Vec<_> = rules.iter().filter(|rule| rule.mode != Mode::Disabled).collect();
    check_applicable(&active, budget, found);
    check_narrowed(&active, budget, found);
    check_exclusive_fields(&active, budget, found);
    let views: Vec<_> = active.iter().map(|rule| rule.view()).collect();
    found.extend(AnyPattern::contradictions(&views));
}

/// Reports names that several rules share; includes the names of invalid rules.
pub(super) fn check_names(names: &[Located<String>], found: &mut Vec<Diagnostic>) {
    let mut first: HashMap<&str, &Located<String>> = HashMap::new();
    for name in names {
        match first.entry(name) {
            Entry::Vacant(vacant) => {
                vacant.insert(name);
            }
            Entry::Occupied(occupied) => {
                let message = format!("two rules are named `{}`", name.value);
                let mistake = Diagnostic::error(Code::DuplicateName, name.span, message)
                    .note("second rule with this name")
                    .label(occupied.get().span, "first rule is here")
                    .help("rule names appear in logs and error replies; use a unique name");
                found.push(mistake);
            }
        }
    }
}

/// One namespace of one rule, in a group of namespaces that could collide.
struct CompetingNamespace<'r> {
    rule: &'r Rule,
    namespace: &'r Located<NamespaceGlob>,
    /// Its exclusive field, in a group of such fields.
    exclusive_field: Option<&'r ExclusiveField>,
}

fn check_applicable(rules: &[&Rule], budget: &Budget, found: &mut Vec<Diagnostic>) {
    let mut groups: HashMap<_, Vec<CompetingNamespace<'_>>> = HashMap::new();
    for rule in rules.iter().filter(|rule| rule.properties.exclusive) {
        for namespace in &rule.namespaces {
            // Namespace globs are equally specific only if their ranks have the same prefix. They overlap only
            // if the literal text they start with is the same.
            let key =
                (rule.pattern.name(), rule.mode == Mode::Shadow, namespace.rank().prefix(), literal_start(namespace));
            groups.entry(key).or_default().push(CompetingNamespace { rule, namespace, exclusive_field: None });
        }
    }
    let equal =
        |a: &CompetingNamespace<'_>, b: &CompetingNamespace<'_>| a.namespace.compare_specificity(b.namespace).is_none();
    for group in groups.into_values() {
        for (first, second) in collisions(&group, budget, equal) {
            found.push(contradiction(first, second));
        }
    }
}

/// Reports rules whose mode an override cannot change for some clients only.
fn check_narrowed(rules: &[&Rule], budget: &Budget, found: &mut Vec<Diagnostic>) {
    const HELP: &str = "override its mode for all clients";
    for rule in rules.iter().filter(|rule| rule.narrowed().is_some()) {
        let name = &rule.name.value;
        if rule.properties.only_names {
            let message = format!("`{name}` applies to no client, so its mode is the same for all");
            found.push(Diagnostic::error(Code::Contradiction, rule.name.span, message).help(HELP));
        }
        // With less than the mode in its file, the rule applies to a namespace as before.
        let replaces = rule.properties.exclusive && rule.mode != rule.file_mode;
        for (own, other) in rules.iter().filter(|_| replaces).filter_map(|other| replaced(rule, other, budget)) {
            let message = format!("the mode of `{name}` cannot be overridden for some clients only");
            let mistake = Diagnostic::error(Code::Contradiction, own.span, message)
                .note(format!("for the others, `{name}` would take the place of a less specific rule"))
                .label(other.span, "the less specific rule");
            found.push(mistake.help(HELP));
        }
    }
}

/// The namespaces for which `rule` applies instead of `other`, if there are any.
fn replaced<'r>(
    rule: &'r Rule,
    other: &'r Rule,
    budget: &Budget,
) -> Option<(&'r Located<NamespaceGlob>, &'r Located<NamespaceGlob>)> {
    let is_closer = |(own, broad): &(&Located<NamespaceGlob>, &Located<NamespaceGlob>)| {
        budget.spend()
            && own.value.intersects(&broad.value)
            && own.value.compare_specificity(&broad.value) == Some(Ordering::Greater)
    };
    let is_same = other.pattern.name() == rule.pattern.name()
        && (other.mode == Mode::Shadow) == (rule.mode == Mode::Shadow)
        && other.id != rule.id;
    let pairs = rule.namespaces.iter().flat_map(|own| other.namespaces.iter().map(move |broad| (own, broad)));
    pairs.filter(|_| is_same).find(is_closer)
}

/// The text that every matched namespace starts with.
fn literal_start(namespace: &NamespaceGlob) -> String {
    let text = namespace.to_string();
    text.split('*').next().unwrap_or_default().to_owned()
}

fn contradiction(first: &CompetingNamespace<'_>, second: &CompetingNamespace<'_>) -> Diagnostic {
    let pattern = second.rule.pattern.name();
    let (one, other) = (&first.rule.name.value, &second.rule.name.value);
    let message = if first.namespace.value == second.namespace.value {
        let shared = &second.namespace.value;
        format!("`{one}` and `{other}` are equally specific for `{shared}`")
    } else {
        format!("`{one}` and `{other}` are equally specific, and their namespaces overlap")
    };
    Diagnostic::error(Code::Contradiction, second.namespace.span, message)
        .note(format!("`{other}`, for `{}`", second.namespace.value))
        .label(first.namespace.span, format!("`{one}`, for `{}`", first.namespace.value))
        .help(format!(
            "only the most specific `{pattern}` rule applies to a namespace; \
             narrow one of the two, or set it to `mode: shadow` or `mode: disabled`"
        ))
}

fn check_exclusive_fields(rules: &[&Rule], budget: &Budget, found: &mut Vec<Diagnostic>) {
    let fields = |rule: &&'_ Rule| {
        let own = |field: &Path| Located { value: field.as_str().to_owned(), span: rule.name.span };
        let own = rule.properties.own_fields.iter().map(|field| ExclusiveField { kind: OWN, field: own(field) });
        rule.properties.exclusive_fields.iter().cloned().chain(own).collect()
    };
    let exclusive_fields: Vec<(&Rule, Vec<ExclusiveField>)> = rules.iter().map(|rule| (*rule, fields(rule))).collect();
    let mut groups: HashMap<_, Vec<CompetingNamespace<'_>>> = HashMap::new();
    for (rule, exclusive_fields) in &exclusive_fields {
        for exclusive_field in exclusive_fields {
            let root = exclusive_field.field.split('.').next().unwrap_or_default();
            let key = (exclusive_field.kind, rule.mode == Mode::Shadow, root);
            let rule_namespaces = rule.namespaces.iter().map(|namespace| CompetingNamespace {
                rule,
                namespace,
                exclusive_field: Some(exclusive_field),
            });
            groups.entry(key).or_default().extend(rule_namespaces);
        }
    }
    for group in groups.into_values() {
        let apply_together = |one: &CompetingNamespace<'_>, other: &CompetingNamespace<'_>| {
            !is_replaced(rules, budget, one, other) && !is_replaced(rules, budget, other, one)
        };
        let clash = |one: &CompetingNamespace<'_>, other: &CompetingNamespace<'_>| {
            claim_one_field(one, other) && apply_together(one, other)
        };
        for (first, second) in collisions(&group, budget, clash) {
            found.extend(field_claimed_twice(first, second));
        }
    }
}

/// The kind of the fields that rules of different patterns exclude ([`own_fields`](crate::patterns::Properties::own_fields)).
const OWN: &str = "own";

fn claim_one_field(first: &CompetingNamespace<'_>, second: &CompetingNamespace<'_>) -> bool {
    let (one, other) = (first.rule, second.rule);
    let is_own = first.exclusive_field.is_some_and(|field| field.kind == OWN);
    // Only one rule of an exclusive pattern applies to a namespace; `check_applicable` ensures that.
    if one.pattern.name() == other.pattern.name() && (is_own || one.properties.exclusive) {
        return false;
    }
    let within = |outer: &str, inner: &str| {
        let rest = inner.strip_prefix(outer);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    match (first.exclusive_field, second.exclusive_field) {
        (Some(a), Some(b)) => within(&a.field, &b.field) || within(&b.field, &a.field),
        _ => false,
    }
}

/// Returns whether a more specific rule of its pattern applies instead of `one` wherever `other` applies.
fn is_replaced(rules: &[&Rule], budget: &Budget, one: &CompetingNamespace<'_>, other: &CompetingNamespace<'_>) -> bool {
    if !one.rule.properties.exclusive {
        return false;
    }
    let competes = |rule: &&&Rule| {
        let is_shadow = |rule: &Rule| rule.mode == Mode::Shadow;
        rule.id != one.rule.id
            && rule.pattern.name() == one.rule.pattern.name()
            && is_shadow(rule) == is_shadow(one.rule)
    };
    let is_closer = |namespace: &Located<NamespaceGlob>| {
        budget.spend()
            && namespace.value.contains(&other.namespace.value)
            && namespace.value.compare_specificity(&one.namespace.value) == Some(Ordering::Greater)
    };
    rules.iter().filter(competes).flat_map(|rule| &rule.namespaces).any(is_closer)
}

fn field_claimed_twice(first: &CompetingNamespace<'_>, second: &CompetingNamespace<'_>) -> Option<Diagnostic> {
    let (exclusive_field, other) = (second.exclusive_field?, first.exclusive_field?);
    let (one, two) = (&first.rule.name.value, &second.rule.name.value);
    let message =
        format!("`{one}` and `{two}` both claim the field `{}` in the same namespace", exclusive_field.field.value);
    let help = format!(
        "`{}` and `{}` overlap; merge the rules, narrow one, or set one to `mode: disabled`",
        first.namespace.value, second.namespace.value
    );
    let mistake = Diagnostic::error(Code::FieldClaimedTwice, exclusive_field.field.span, message)
        .note(format!("claimed by `{two}`"))
        .label(other.field.span, format!("claimed by `{one}`"));
    Some(mistake.help(help))
}

/// Pairs of different rules in `group` whose namespaces overlap and for which `clash` holds. Returns each pair of
/// rules once, and for each namespace only its first collision.
fn collisions<'g, 'r>(
    group: &'g [CompetingNamespace<'r>],
    budget: &Budget,
    clash: impl Fn(&CompetingNamespace<'r>, &CompetingNamespace<'r>) -> bool,
) -> Vec<(&'g CompetingNamespace<'r>, &'g CompetingNamespace<'r>)> {
    let mut seen = HashSet::new();
    let mut pairs = Vec::new();
    let mut earlier = SeenNamespaces::new(budget);
    for (at, second) in group.iter().enumerate() {
        let namespace = &second.namespace.value;
        let collides = |candidate: &usize| {
            let first = &group[*candidate];
            first.rule.id != second.rule.id && clash(first, second) && first.namespace.intersects(namespace)
        };
        if let Some(first) = earlier.candidates(namespace).find(collides) {
            let first = &group[first];
            if seen.insert((first.rule.id, second.rule.id)) {
                pairs.push((first, second));
            }
        }
        earlier.add(at, namespace);
    }
    pairs
}

/// The namespaces seen so far, indexed so that namespaces that cannot overlap are never compared.
pub(super) struct SeenNamespaces<'n> {
    budget: &'n Budget,
    by_name: HashMap<(&'n str, &'n str), Vec<usize>>,
    by_database: HashMap<&'n str, Vec<usize>>,
    by_collection: HashMap<&'n str, Vec<usize>>,
    /// Namespaces with a glob in both parts.
    rest: Vec<usize>,
}

impl<'n> SeenNamespaces<'n> {
    pub(super) fn new(budget: &'n Budget) -> Self {
        let (by_name, by_database, by_collection) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { budget, by_name, by_database, by_collection, rest: Vec::new() }
    }

    pub(super) fn add(&mut self, at: usize, namespace: &'n NamespaceGlob) {
        let (database, collection) = (namespace.database(), namespace.collection());
        let list = match (database.is_literal(), collection.is_literal()) {
            (true, true) => {
                let name = (database.as_str(), collection.as_str());
                self.by_name.entry(name).or_default()
            }
            (true, false) => self.by_database.entry(database.as_str()).or_default(),
            (false, true) => self.by_collection.entry(collection.as_str()).or_default(),
            (false, false) => &mut self.rest,
        };
        list.push(at);
    }

    /// Those that may overlap with this one, as long as the budget lasts.
    pub(super) fn candidates<'s>(&'s self, namespace: &'s NamespaceGlob) -> impl Iterator<Item = usize> + 's {
        let (database, collection) = (namespace.database(), namespace.collection());
        let (database, collection) =
            (database.is_literal().then(|| database.as_str()), collection.is_literal().then(|| collection.as_str()));
        let name = database.zip(collection);
        let by_name = under(&self.by_name, name.as_ref());
        by_name
            .chain(under(&self.by_database, database.as_ref()))
            .chain(under(&self.by_collection, collection.as_ref()))
            .chain(std::iter::once(&self.rest))
            .flatten()
            .copied()
            .take_while(|_| self.budget.spend())
    }
}

/// The list under `key`, or all lists without a key.
fn under<'m, K: Eq + Hash>(
    lists: &'m HashMap<K, Vec<usize>>,
    key: Option<&K>,
) -> impl Iterator<Item = &'m Vec<usize>> + use<'m, K> {
    let one = key.and_then(|key| lists.get(key));
    let all = key.is_none().then(|| lists.values());
    one.into_iter().chain(all.into_iter().flatten())
}
