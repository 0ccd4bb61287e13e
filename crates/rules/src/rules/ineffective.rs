//! Warnings about rules that load but probably do not have the intended effect.
//!
//! Three cases: another rule rejects everything that a rule would; a rule applies instead of a less specific one and is
//! weaker; a rule has no effect in its mode. Errors between rules: `conflict.rs`.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::clients::{ClientGlobs, UserGlob};
use super::conflict::{Budget, SeenNamespaces};
use super::rule::{Mode, Rule, Unsupported};
use crate::config::{Code, Diagnostic, Located, NamespaceGlob};
use crate::patterns::WeakerSetting;

/// Reports all of them.
pub(super) fn check(rules: &[Rule], budget: &Budget, found: &mut Vec<Diagnostic>) {
    let active: Vec<_> = rules.iter().filter(|rule| rule.mode != Mode::Disabled).collect();
    found.extend(active.iter().filter_map(|rule| without_effect_in_shadow(rule)));
    found.extend(ineffective(&active, budget));
    found.extend(weaker(&active, budget));
}

/// A rule that evaluates no statements has no effect in shadow mode: there is nothing to count.
fn without_effect_in_shadow(rule: &Rule) -> Option<Diagnostic> {
    if !rule.properties.only_names || rule.mode != Mode::Shadow {
        return None;
    }
    let pattern = rule.pattern.name();
    let message = format!("`{}` has no effect: `mode: shadow` turns a `{pattern}` rule off", rule.name.value);
    let warning = Diagnostic::warning(Code::NeverActs, rule.name.span, message);
    Some(warning.help("remove `mode`, or write `mode: disabled`"))
}

/// One namespace of a rule.
struct RuleNamespace<'r> {
    rule: &'r Rule,
    namespace: &'r Located<NamespaceGlob>,
}

fn rule_namespaces<'r>(rule: &'r Rule) -> impl Iterator<Item = RuleNamespace<'r>> + use<'r> {
    rule.namespaces.iter().map(move |namespace| RuleNamespace { rule, namespace })
}

/// Rules for which every namespace has an earlier enforced rule that makes them ineffective.
fn ineffective(rules: &[&Rule], budget: &Budget) -> Vec<Diagnostic> {
    // A pattern that can make another ineffective does so for itself too, so no other rules need a comparison.
    let capable = |rule: &&&Rule| {
        rule.mode == Mode::Enforce && applies_to_all(rule) && rule.pattern.makes_ineffective(rule.view())
    };
    let earlier_rules: Vec<RuleNamespace<'_>> =
        rules.iter().filter(capable).flat_map(|rule| rule_namespaces(rule)).collect();
    let index = index(budget, earlier_rules.iter().map(|entry| entry.namespace));
    let covering = |entry: &RuleNamespace<'_>| {
        let covers = |candidate: &&RuleNamespace<'_>| {
            comes_before(candidate.rule, entry.rule)
                && makes_ineffective(candidate.rule, entry.rule)
                && candidate.namespace.contains(entry.namespace)
        };
        index.candidates(entry.namespace).filter_map(|at| earlier_rules.get(at)).find(covers)
    };
    let mut found = Vec::new();
    for rule in rules {
        let earlier: Option<Vec<_>> = rule_namespaces(rule).map(|entry| covering(&entry)).collect();
        if let Some(by) = earlier.as_ref().and_then(|earlier| earlier.first()) {
            found.push(ineffective_because_of(rule, by));
        }
    }
    found
}

/// Whether a rule comes before one that it makes ineffective. Of two rules of a pattern, the one that does more.
fn comes_before(one: &Rule, other: &Rule) -> bool {
    let is_stronger = one.pattern.name() == other.pattern.name() && !makes_ineffective(other, one);
    is_stronger || (one.pattern.evaluation_order(), one.id) < (other.pattern.evaluation_order(), other.id)
}

fn makes_ineffective(one: &Rule, other: &Rule) -> bool {
    let unsupported_too = one.unsupported == Unsupported::Reject || other.unsupported == Unsupported::Allow;
    unsupported_too && one.pattern.makes_ineffective(other.view())
}

fn ineffective_because_of(rule: &Rule, by: &RuleNamespace<'_>) -> Diagnostic {
    let (name, other) = (&rule.name.value, &by.rule.name.value);
    let message = format!("`{name}` has no effect: `{other}` rejects everything that `{name}` would reject or change");
    Diagnostic::warning(Code::NoEffect, rule.name.span, message)
        .label(by.namespace.span, format!("`{other}`, for `{}`", by.namespace.value))
        .help(format!("remove `{name}`, or limit the namespaces of `{other}`"))
}

/// Rules that apply to a namespace instead of a less specific rule and are weaker than that one.
fn weaker(rules: &[&Rule], budget: &Budget) -> Vec<Diagnostic> {
    let weaker_settings: Vec<Vec<WeakerSetting>> = rules.iter().map(|rule| weaker_settings(rule)).collect();
    let mut groups: HashMap<&'static str, Vec<ExclusiveNamespace<'_>>> = HashMap::new();
    for (rule, weaker_settings) in rules.iter().zip(&weaker_settings) {
        if rule.mode == Mode::Enforce && rule.properties.exclusive {
            let applicable = rule_namespaces(rule).map(|entry| ExclusiveNamespace { entry, weaker_settings });
            groups.entry(rule.pattern.name()).or_default().extend(applicable);
        }
    }
    groups.values().flat_map(|group| weaker_of(group, budget)).collect()
}

/// One namespace of a rule with an exclusive pattern.
struct ExclusiveNamespace<'r> {
    entry: RuleNamespace<'r>,
    weaker_settings: &'r [WeakerSetting],
}

/// The warnings for `group`, the rules of one pattern.
fn weaker_of(group: &[ExclusiveNamespace<'_>], budget: &Budget) -> Vec<Diagnostic> {
    let index = index(budget, group.iter().map(|exclusive| exclusive.entry.namespace));
    let mut found = Vec::new();
    let mut last_reported = None;
    for narrow in
        group.iter().filter(|exclusive| !(exclusive.weaker_settings.is_empty() && applies_to_all(exclusive.entry.rule)))
    {
        let RuleNamespace { rule, namespace } = narrow.entry;
        let replaces = |(_, broad): &(WeakerSetting, &RuleNamespace<'_>)| {
            namespace.compare_specificity(broad.namespace) == Some(Ordering::Greater)
                && namespace.intersects(broad.namespace)
        };
        let candidates = index.candidates(namespace).filter_map(|at| group.get(at));
        let mut weaker = candidates.filter_map(|broad| Some((weaker_setting_of(narrow, broad)?, &broad.entry)));
        // One warning for each rule; the namespaces of a rule are adjacent in `group`.
        if last_reported != Some(rule.id)
            && let Some((weaker_setting, broad)) = weaker.find(replaces)
        {
            last_reported = Some(rule.id);
            found.push(weaker_than(&narrow.entry, broad, weaker_setting));
        }
    }
    found
}

fn weaker_settings(rule: &Rule) -> Vec<WeakerSetting> {
    let allows = WeakerSetting { what: "allows statements that it cannot analyse", setting: "unsupported" };
    let allows = (rule.unsupported == Unsupported::Allow).then_some(allows);
    allows.into_iter().chain(rule.properties.weaker_settings.iter().copied()).collect()
}

fn weaker_setting_of(narrow: &ExclusiveNamespace<'_>, broad: &ExclusiveNamespace<'_>) -> Option<WeakerSetting> {
    if !is_within(&narrow.entry.rule.except, &broad.entry.rule.except) {
        return Some(WeakerSetting { what: "exempts clients that the other rule does not", setting: "except" });
    }
    let (only, others) = (&narrow.entry.rule.only, &broad.entry.rule.only);
    if !only.is_empty() && (others.is_empty() || !is_within(others, only)) {
        return Some(WeakerSetting {
            what: "does not apply to clients that the other rule applies to",
            setting: "only",
        });
    }
    narrow.weaker_settings.iter().find(|weaker_setting| !broad.weaker_settings.contains(weaker_setting)).copied()
}

fn applies_to_all(rule: &Rule) -> bool {
    rule.except.is_empty() && rule.only.is_empty()
}

fn is_within(inner: &ClientGlobs, outer: &ClientGlobs) -> bool {
    let has =
        |outer: &UserGlob, user: &UserGlob| outer.database.contains(&user.database) && outer.user.contains(&user.user);
    inner.apps.iter().all(|app| outer.apps.iter().any(|other| other.0.contains(&app.0)))
        && inner.users.iter().all(|user| outer.users.iter().any(|other| has(other, user)))
}

fn weaker_than(narrow: &RuleNamespace<'_>, broad: &RuleNamespace<'_>, weaker_setting: WeakerSetting) -> Diagnostic {
    let (one, other) = (&narrow.rule.name.value, &broad.rule.name.value);
    let WeakerSetting { what, setting } = weaker_setting;
    let message =
        format!("`{one}` applies to `{}` instead of `{other}` and is weaker: it {what}", narrow.namespace.value);
    let pattern = narrow.rule.pattern.name();
    Diagnostic::warning(Code::Weaker, narrow.namespace.span, message)
        .note(format!("`{other}` does not apply here"))
        .label(broad.namespace.span, format!("`{other}`, for `{}`", broad.namespace.value))
        .help(format!(
            "only the most specific `{pattern}` rule applies to a namespace; if this is not intended, give `{one}` the \
             same `{setting}` as `{other}`"
        ))
}

fn index<'n>(budget: &'n Budget, namespaces: impl Iterator<Item = &'n Located<NamespaceGlob>>) -> SeenNamespaces<'n> {
    let mut index = SeenNamespaces::new(budget);
    for (at, namespace) in namespaces.enumerate() {
        index.add(at, namespace);
    }
    index
}
