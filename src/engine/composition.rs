//! Rules that can never go together: each lets an ordinary statement pass by itself, and what one makes of it breaks the
//! other's promise. Every such statement is rejected; `docward check` says so beforehand.

use std::collections::HashSet;

use super::dry_run::{DryRun, Outcome, dry_run};
use super::outcome::OutcomeKind;
use super::{Now, Session};
use crate::document::CowDocument;
use crate::patterns::{Rule, RuleSet};
use crate::rules::{Code, Diagnostic, Mode};

/// A warning for each pair, at the rule whose promise would be broken.
pub fn impossible(rules: &RuleSet) -> Vec<Diagnostic> {
    let mut known = HashSet::new();
    let names = rules.rules().iter().flat_map(|rule| &rule.namespaces).map(|namespace| namespace.value.to_string());
    let mut warnings = Vec::new();
    for name in names.collect::<HashSet<_>>() {
        // Any collection that the name matches will do.
        let example = name.replace('*', "x");
        let Some((database, collection)) = example.split_once('.') else { continue };
        let Some(found) = rules.rules_for(database, collection).filter(|found| found.ids().len() > 1) else { continue };
        for (broken, other, how) in found.iter().flat_map(|rule| undone(rule, found.iter())) {
            if known.insert((broken.id, other.id)) {
                warnings.push(undoing(broken, other, how));
            }
        }
        let probe = insert(database, collection);
        let Some((broken, other)) = clash(rules, &probe) else { continue };
        if known.insert((broken.id, other.id)) {
            warnings.push(warning(broken, other));
        }
    }
    warnings
}

/// The rules that break a rule's promise whatever is sent, each with how.
fn undone<'r>(
    rule: &'r Rule,
    others: impl Iterator<Item = &'r Rule>,
) -> impl Iterator<Item = (&'r Rule, &'r Rule, &'static str)> {
    let enforced = |rule: &Rule| rule.mode == Mode::Enforce;
    others
        .filter(move |other| enforced(rule) && enforced(other))
        .filter_map(move |other| Some((rule, other, rule.pattern.undone_by(&other.pattern)?)))
}

fn undoing(broken: &Rule, other: &Rule, how: &str) -> Diagnostic {
    let (one, two) = (&broken.name, &other.name);
    let message = format!("`{}` does not hold beside `{}`: {how}", one.value, two.value);
    Diagnostic::warning(Code::Incompatible, one.span, message)
        .label(two.span, format!("`{}` is about the same fields", two.value))
        .help("change one of the rules, so that no field belongs to both; of `timestamps`, `per: document` helps too")
}

/// An insert that says nothing.
fn insert(database: &str, collection: &str) -> CowDocument<'static> {
    CowDocument::build(|w| {
        w.string("insert", collection);
        w.array("documents", |a| a.nested(|w| w.int32("_id", 1)));
        w.string("$db", database);
    })
}

/// The rule that rejects the command, though not by itself, and the one that changed it before.
fn clash<'r>(rules: &'r RuleSet, probe: &CowDocument<'_>) -> Option<(&'r Rule, &'r Rule)> {
    let all = run(rules, probe);
    if !matches!(all.outcome, Outcome::Rejected { .. }) {
        return None;
    }
    let broken = all.outcomes.iter().rfind(|outcome| outcome.said == OutcomeKind::Reject)?.rule;
    let mut said = all.outcomes.iter().chain(&all.void);
    let other = said.rfind(|o| o.said == OutcomeKind::Rewrite && o.rule != broken)?.rule;
    let (broken, other) = (rules.rule(broken), rules.rule(other));
    let alone = run(&rules.alone(broken), probe);
    (!matches!(alone.outcome, Outcome::Rejected { .. })).then_some((broken, other))
}

fn run(rules: &RuleSet, probe: &CowDocument<'_>) -> DryRun {
    dry_run(probe.as_document(), rules, Now { milliseconds: 0 }, &mut Session::default())
}

fn warning(broken: &Rule, other: &Rule) -> Diagnostic {
    let (one, two) = (&broken.name, &other.name);
    let message = format!("an insert that `{}` completes breaks `{}`: every one is rejected", two.value, one.value);
    Diagnostic::warning(Code::Incompatible, one.span, message)
        .label(two.span, format!("`{}` puts its own fields in", two.value))
        .help("change one of the rules, so that what the other puts in keeps its promise")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Source;

    fn found(patterns: &[&str]) -> Vec<String> {
        let mut text = "version: 1\nrules:\n".to_owned();
        for (index, pattern) in patterns.iter().enumerate() {
            text.push_str(&format!("  - {{ name: rule-{index}, namespace: d.c, {pattern} }}\n"));
        }
        let rules = RuleSet::from_sources(vec![Source { name: "test.yaml".into(), text }]);
        let rules = rules.unwrap_or_else(|report| panic!("{report}"));
        impossible(&rules).into_iter().map(|warning| warning.message).collect()
    }

    #[test]
    fn what_one_rule_puts_in_must_keep_the_others_promise() {
        const QUEUE: &str = "queue: { lease: 5m }";
        assert_eq!(
            found(&["bounds: { field: try, min: 1 }", QUEUE]),
            ["an insert that `rule-1` completes breaks `rule-0`: every one is rejected"]
        );
        assert!(found(&["bounds: { field: try, min: 0 }", QUEUE]).is_empty());
        assert!(found(&["timestamps: { source: at }", QUEUE]).is_empty(), "it is rejected by itself");
        assert!(found(&[QUEUE]).is_empty());
    }

    #[test]
    fn a_stamp_for_each_field_splits_fields_that_change_together() {
        const TOGETHER: &str = "together: [a, b.c]";
        const HOW: &str = "`rule-0` does not hold beside `rule-1`: a write that is late for one of the fields still changes the others";
        assert_eq!(found(&[TOGETHER, "timestamps: { source: at }"]), [HOW]);
        assert_eq!(found(&[TOGETHER, "timestamps: { source: at, fields: [b] }"]), [HOW]);
        assert!(found(&[TOGETHER, "timestamps: { source: at, per: document }"]).is_empty());
        assert!(found(&[TOGETHER, "timestamps: { source: at, fields: [d] }"]).is_empty());
        assert!(found(&[TOGETHER, "mode: shadow, timestamps: { source: at }"]).is_empty());
    }

    #[test]
    fn a_field_of_two_rules_in_one_another_is_told() {
        const NUMBERS: &str = "sequence: { field: a.n, counter: c, on_upsert: true }";
        let tells = |pattern: &str| found(&[pattern, NUMBERS]).iter().any(|told| told.contains("does not hold beside"));
        assert!(tells("together: [a, b]") && tells("bounds: { field: a.n.x, min: 1 }"));
        assert!(tells("replacement: { version: a.n }"));
        assert!(!tells("together: [b, c]") && !tells("bounds: { field: a.n, min: 1 }"));
    }
}
