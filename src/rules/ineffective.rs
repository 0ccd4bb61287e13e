//! Rules that load, and yet do not do what their author may think: warnings.
//!
//! A rule that another leaves nothing to do; one that applies instead of a broader rule and guards less than
//! that would; one whose mode makes it mean nothing. What rules must not do beside each other: `conflict.rs`.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::code::Code;
use super::conflict::{Budget, SeenNamespaces};
use super::context::Located;
use super::diagnostic::Diagnostic;
use super::namespace::NamespacePattern;
use super::rule::{Except, Mode, Pattern, Rule, Unsupported, UserGlob, WeakerSetting};

/// Reports them. `rules` contradict each other in nothing.
pub(super) fn check<P: Pattern>(rules: &[Rule<P>], budget: &Budget, found: &mut Vec<Diagnostic>) {
    let active: Vec<_> = rules.iter().filter(|rule| rule.mode != Mode::Disabled).collect();
    found.extend(active.iter().filter_map(|rule| unread(rule)));
    found.extend(silenced(&active, budget));
    found.extend(weaker(&active, budget));
}

/// A rule that only names its namespaces is not on rule_test: nobody would read what it counts.
fn unread<P: Pattern>(rule: &Rule<P>) -> Option<Diagnostic> {
    if rule.pattern.evaluates() || rule.mode != Mode::Shadow {
        return None;
    }
    let pattern = rule.pattern.name();
    let message =
        format!("`{}` does nothing: a `{pattern}` rule in `mode: shadow` names no collection", rule.name.value);
    let warning = Diagnostic::warning(Code::NeverActs, rule.name.span, message);
    Some(warning.help("leave `mode` out, or say `mode: disabled`"))
}

/// One namespace of a rule.
struct RuleNamespace<'r, P> {
    rule: &'r Rule<P>,
    namespace: &'r Located<NamespacePattern>,
}

fn rule_namespaces<'r, P>(rule: &'r Rule<P>) -> impl Iterator<Item = RuleNamespace<'r, P>> + use<'r, P> {
    rule.namespaces.iter().map(move |namespace| RuleNamespace { rule, namespace })
}

/// Rules of which every namespace has an enforced rule before them that leaves them nothing to do.
fn silenced<P: Pattern>(rules: &[&Rule<P>], budget: &Budget) -> Vec<Diagnostic> {
    // A pattern that can silence another silences its like, so all others need not be compared.
    let silencers = rules
        .iter()
        .filter(|rule| rule.mode == Mode::Enforce && rule.except.is_empty() && rule.pattern.silences(&rule.pattern));
    let silencers: Vec<RuleNamespace<'_, P>> = silencers.flat_map(|rule| rule_namespaces(rule)).collect();
    let index = index(budget, silencers.iter().map(|entrant| entrant.namespace));
    let covering = |entrant: &RuleNamespace<'_, P>| {
        let covers = |candidate: &&RuleNamespace<'_, P>| {
            comes_before(candidate.rule, entrant.rule)
                && leaves_nothing(candidate.rule, entrant.rule)
                && candidate.namespace.contains(entrant.namespace)
        };
        index.candidates(entrant.namespace).filter_map(|at| silencers.get(at)).find(covers)
    };
    let mut found = Vec::new();
    for rule in rules {
        let by: Option<Vec<_>> = rule_namespaces(rule).map(|entrant| covering(&entrant)).collect();
        if let Some(by) = by.as_ref().and_then(|by| by.first()) {
            found.push(silenced_by(rule, by));
        }
    }
    found
}

fn comes_before<P: Pattern>(one: &Rule<P>, other: &Rule<P>) -> bool {
    (one.pattern.phase(), one.id) < (other.pattern.phase(), other.id)
}

fn leaves_nothing<P: Pattern>(one: &Rule<P>, other: &Rule<P>) -> bool {
    let indirect_writes = one.unsupported == Unsupported::Reject || other.unsupported == Unsupported::Allow;
    indirect_writes && one.pattern.silences(&other.pattern)
}

fn silenced_by<P>(rule: &Rule<P>, by: &RuleNamespace<'_, P>) -> Diagnostic {
    let (name, other) = (&rule.name.value, &by.rule.name.value);
    let message =
        format!("`{name}` has nothing to do: `{other}` evaluates before it and rejects all that it would look at");
    Diagnostic::warning(Code::Silenced, rule.name.span, message)
        .label(by.namespace.span, format!("`{other}`, for `{}`", by.namespace.value))
        .help(format!("remove `{name}`, or narrow `{other}`"))
}

/// Rules that speak for a namespace instead of a broader rule, and let through what that one would not.
fn weaker<P: Pattern>(rules: &[&Rule<P>], budget: &Budget) -> Vec<Diagnostic> {
    let weaker_settings: Vec<Vec<WeakerSetting>> = rules.iter().map(|rule| weaker_settings(rule)).collect();
    let mut groups: HashMap<&'static str, Vec<SoleRule<'_, P>>> = HashMap::new();
    for (rule, weaker_settings) in rules.iter().zip(&weaker_settings) {
        if rule.mode == Mode::Enforce && rule.pattern.exclusive() {
            let applicable = rule_namespaces(rule).map(|entrant| SoleRule { entrant, weaker_settings });
            groups.entry(rule.pattern.name()).or_default().extend(applicable);
        }
    }
    groups.values().flat_map(|group| weaker_of(group, budget)).collect()
}

/// One namespace of a rule that applies for it alone.
struct SoleRule<'r, P> {
    entrant: RuleNamespace<'r, P>,
    weaker_settings: &'r [WeakerSetting],
}

/// Of rules of one pattern.
fn weaker_of<P: Pattern>(group: &[SoleRule<'_, P>], budget: &Budget) -> Vec<Diagnostic> {
    let index = index(budget, group.iter().map(|speaker| speaker.entrant.namespace));
    let mut found = Vec::new();
    let mut told = None;
    for narrow in
        group.iter().filter(|speaker| !(speaker.weaker_settings.is_empty() && speaker.entrant.rule.except.is_empty()))
    {
        let RuleNamespace { rule, namespace } = narrow.entrant;
        let replaces = |(_, broad): &(WeakerSetting, &RuleNamespace<'_, P>)| {
            namespace.compare_specificity(broad.namespace) == Some(Ordering::Greater)
                && namespace.intersects(broad.namespace)
        };
        let candidates = index.candidates(namespace).filter_map(|at| group.get(at));
        let mut weaker = candidates.filter_map(|broad| Some((laxer_in(narrow, broad)?, &broad.entrant)));
        // Once for a rule, however many namespaces it has: they follow each other.
        if told != Some(rule.id)
            && let Some((weaker_setting, broad)) = weaker.find(replaces)
        {
            told = Some(rule.id);
            found.push(weaker_than(&narrow.entrant, broad, weaker_setting));
        }
    }
    found
}

fn weaker_settings<P: Pattern>(rule: &Rule<P>) -> Vec<WeakerSetting> {
    let unseen = WeakerSetting { what: "lets writes pass that it cannot analyse", setting: "unsupported" };
    let unseen = (rule.unsupported == Unsupported::Allow).then_some(unseen);
    unseen.into_iter().chain(rule.pattern.weaker_settings()).collect()
}

fn laxer_in<P>(narrow: &SoleRule<'_, P>, broad: &SoleRule<'_, P>) -> Option<WeakerSetting> {
    if !is_within(&narrow.entrant.rule.except, &broad.entrant.rule.except) {
        return Some(WeakerSetting { what: "leaves clients alone", setting: "except" });
    }
    narrow.weaker_settings.iter().find(|weaker_setting| !broad.weaker_settings.contains(weaker_setting)).copied()
}

fn is_within(inner: &Except, outer: &Except) -> bool {
    let has =
        |outer: &UserGlob, user: &UserGlob| outer.database.contains(&user.database) && outer.user.contains(&user.user);
    inner.apps.iter().all(|app| outer.apps.iter().any(|other| other.0.contains(&app.0)))
        && inner.users.iter().all(|user| outer.users.iter().any(|other| has(other, user)))
}

fn weaker_than<P: Pattern>(
    narrow: &RuleNamespace<'_, P>,
    broad: &RuleNamespace<'_, P>,
    weaker_setting: WeakerSetting,
) -> Diagnostic {
    let (one, other) = (&narrow.rule.name.value, &broad.rule.name.value);
    let WeakerSetting { what, setting } = weaker_setting;
    let message =
        format!("`{one}` applies for `{}` instead of `{other}`, and {what}, unlike that one", narrow.namespace.value);
    let pattern = narrow.rule.pattern.name();
    Diagnostic::warning(Code::Weaker, narrow.namespace.span, message)
        .note(format!("here `{other}` is not asked"))
        .label(broad.namespace.span, format!("`{other}`, for `{}`", broad.namespace.value))
        .help(format!(
            "of `{pattern}` rules only the most specific one applies; if it is not meant so, give `{one}` the `{setting}` \
             of `{other}`"
        ))
}

fn index<'n>(
    budget: &'n Budget,
    namespaces: impl Iterator<Item = &'n Located<NamespacePattern>>,
) -> SeenNamespaces<'n> {
    let mut index = SeenNamespaces::new(budget);
    for (at, namespace) in namespaces.enumerate() {
        index.add(at, namespace);
    }
    index
}
