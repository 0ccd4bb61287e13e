//! Finds rules that contradict each other: each alone accepts an ordinary statement, but the change of one breaks the
//! other. Every such statement is rejected; `docward check` warns beforehand.

use std::collections::HashSet;

use super::dry_run::{DryRun, DryRunOutcome, dry_run};
use super::outcome::OutcomeKind;
use super::{ClientState, Now};
use crate::command::Namespace;
use crate::config::{Code, Diagnostic};
use crate::document::{CowDocument, Path};
use crate::patterns::FieldContent;
use crate::rules::{Mode, Rule, RuleSet};

/// Returns a warning for each pair, located at the violated rule.
pub fn incompatible_rules(rules: &RuleSet) -> Vec<Diagnostic> {
    let mut known = HashSet::new();
    let namespaces = rules.rules().iter().flat_map(|rule| &rule.namespaces);
    // Any collection that the globs match will do.
    let examples = namespaces.map(|namespace| namespace.value.example());
    let mut warnings = Vec::new();
    for (database, collection) in examples.collect::<HashSet<_>>() {
        let (database, collection) = (database.as_str(), collection.as_str());
        let namespace = Namespace { database, collection };
        let Some(found) = rules.rules_for(database, collection).filter(|found| found.ids().len() > 1) else { continue };
        for (violated, other, how) in found.iter().flat_map(|rule| undone(rule, found.iter(), namespace)) {
            if known.insert((violated.id, other.id)) {
                warnings.push(undoing(violated, other, how));
            }
        }
        let probe = insert(database, collection);
        let Some((violated, other)) = clash(rules, &probe) else { continue };
        if known.insert((violated.id, other.id)) {
            warnings.push(warning(violated, other));
        }
    }
    warnings
}

/// Returns the rules that always break `rule`, each with an explanation.
fn undone<'r>(
    rule: &'r Rule,
    others: impl Iterator<Item = &'r Rule>,
    namespace: Namespace<'_>,
) -> impl Iterator<Item = (&'r Rule, &'r Rule, &'static str)> {
    let enforced = |rule: &Rule| rule.mode == Mode::Enforce;
    others.filter(move |other| enforced(rule) && enforced(other)).filter_map(move |other| {
        let how = rule.pattern.conflict_with(other.view(), namespace).or_else(|| other_content(rule, other));
        Some((rule, other, how?))
    })
}

/// Why a field cannot be what both rules expect.
fn other_content(rule: &Rule, other: &Rule) -> Option<&'static str> {
    let fields = |rule: &'_ Rule, wanted| {
        let contents = rule.properties.contents.clone().into_iter();
        contents.filter(move |(_, content)| *content == wanted).map(|(field, _)| field)
    };
    let is_array = |number: Path| {
        fields(other, FieldContent::Array).any(|array| array == number || array.is_below(number.as_str().as_bytes()))
    };
    let clashes = fields(rule, FieldContent::Number).any(is_array);
    clashes.then_some("it expects a number in a field that is an array for the other rule")
}

fn undoing(violated: &Rule, other: &Rule, how: &str) -> Diagnostic {
    let (one, two) = (&violated.name, &other.name);
    let message = format!("`{}` conflicts with `{}`: {how}", one.value, two.value);
    Diagnostic::warning(Code::Incompatible, one.span, message)
        .label(two.span, format!("`{}` applies to the same collection", two.value))
        .help(
            "change one of the rules, for example so that they share no field; `timestamps` can have `per: document` beside \
             `together`, and `per: field` beside `queue`",
        )
}

/// A minimal insert.
fn insert(database: &str, collection: &str) -> CowDocument<'static> {
    CowDocument::build(|w| {
        w.string("insert", collection);
        w.array("documents", |a| a.nested(|w| w.int32("_id", 1)));
        w.string("$db", database);
    })
}

/// Returns the rule that rejects the command but would not do so alone, and the rule that changed the command before.
fn clash<'r>(rules: &'r RuleSet, probe: &CowDocument<'_>) -> Option<(&'r Rule, &'r Rule)> {
    let all = run(rules, probe);
    if !matches!(all.outcome, DryRunOutcome::Rejected { .. }) {
        return None;
    }
    let violated = all.outcomes.iter().rfind(|outcome| outcome.kind == OutcomeKind::Reject)?.rule;
    let mut earlier = all.outcomes.iter().chain(&all.without_effect);
    let other = earlier.rfind(|o| o.kind == OutcomeKind::Rewrite && o.rule != violated)?.rule;
    let (violated, other) = (rules.rule(violated), rules.rule(other));
    let alone = run(&rules.alone(violated), probe);
    (!matches!(alone.outcome, DryRunOutcome::Rejected { .. })).then_some((violated, other))
}

fn run(rules: &RuleSet, probe: &CowDocument<'_>) -> DryRun {
    dry_run(probe.as_document(), rules, Now { milliseconds: 0 }, &mut ClientState::default())
}

fn warning(violated: &Rule, other: &Rule) -> Diagnostic {
    let (one, two) = (&violated.name, &other.name);
    let message = format!("an insert that `{}` changes breaks `{}`: every insert is rejected", two.value, one.value);
    Diagnostic::warning(Code::Incompatible, one.span, message)
        .label(two.span, format!("`{}` adds its own fields", two.value))
        .help("change one of the rules so that the added fields satisfy both")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SourceFile;

    fn found(patterns: &[&str]) -> Vec<String> {
        let mut text = "version: 1\nrules:\n".to_owned();
        for (index, pattern) in patterns.iter().enumerate() {
            text.push_str(&format!("  - {{ name: rule-{index}, namespace: d.c, {pattern} }}\n"));
        }
        let rules = RuleSet::from_sources(vec![SourceFile { name: "test.yaml".into(), text }]);
        let rules = rules.unwrap_or_else(|report| panic!("{report}"));
        incompatible_rules(&rules).into_iter().map(|warning| warning.message).collect()
    }

    #[test]
    fn an_added_field_that_breaks_another_rule_is_reported() {
        const QUEUE: &str = "queue: { lease: 5m }";
        assert_eq!(
            found(&["bounds: { field: try, min: 1 }", QUEUE]),
            ["an insert that `rule-1` changes breaks `rule-0`: every insert is rejected"]
        );
        assert!(found(&["bounds: { field: try, min: 0 }", QUEUE]).is_empty());
        assert!(found(&["timestamps: { source: at }", QUEUE]).is_empty(), "timestamps alone rejects the insert");
        assert!(found(&[QUEUE]).is_empty());
    }

    #[test]
    fn timestamps_per_field_conflict_with_fields_that_change_together() {
        const TOGETHER: &str = "together: [a, b.c]";
        const HOW: &str =
            "`rule-0` conflicts with `rule-1`: a stale write to one of the fields still changes the others";
        assert_eq!(found(&[TOGETHER, "timestamps: { source: at }"]), [HOW]);
        assert_eq!(found(&[TOGETHER, "timestamps: { source: at, fields: [b] }"]), [HOW]);
        assert!(found(&[TOGETHER, "timestamps: { source: at, per: document }"]).is_empty());
        assert!(found(&[TOGETHER, "timestamps: { source: at, fields: [d] }"]).is_empty());
        assert!(found(&[TOGETHER, "mode: shadow, timestamps: { source: at }"]).is_empty());
    }

    #[test]
    fn frozen_fields_that_another_rule_changes_are_reported() {
        let reports = |other: &str| found(&["frozen: [v.n, no]", other]).len() == 1;
        assert!(reports("replacement: { version: v.n }") && reports("timestamps: { source: at, store: v }"));
        assert!(!reports("replacement: { version: v.m }") && !reports("sequence: { field: no, counter: c }"));
    }

    #[test]
    fn nested_fields_of_two_rules_are_reported() {
        const NUMBERS: &str = "sequence: { field: a.n, counter: c, on_upsert: true }";
        let reports = |pattern: &str| found(&[pattern, NUMBERS]).iter().any(|found| found.contains("conflicts with"));
        assert!(reports("together: [a, b]") && reports("bounds: { field: a.n.x, min: 1 }"));
        assert!(!reports("together: [b, c]") && !reports("bounds: { field: a.n, min: 1 }"));
        assert!(reports("bounds: { field: a.n, max: 100 }") && reports("bounds: { field: a.n, min: 2 }"));
    }

    #[test]
    fn a_counted_version_that_changes_together_with_fields_is_reported() {
        let reports = |replacement: &str| found(&["together: [a.n, b]", replacement]).len() == 1;
        assert!(reports("replacement: { version: a.n }") && reports("replacement: { version: a }"));
        assert!(!reports("replacement: { version: a.m }"));
        assert!(!reports("replacement: { version: a.n, count_updates: false }"));
    }

    #[test]
    fn values_that_late_writes_keep_or_change_are_reported() {
        let reports = |one: &str, other: &str| found(&[one, other]).len() == 1;
        const LISTED: &str = "timestamps: { source: at, fields: [a, v] }";
        for rule in ["replacement: { version: v }", "schema_version: { field: v, current: 3, minimum: 0 }"] {
            assert!(reports(LISTED, rule) && !reports("timestamps: { source: at, fields: [a] }", rule), "{rule}");
        }
        const QUEUE: &str = "queue: { lease: 5m }";
        assert!(reports(QUEUE, "timestamps: { source: at, per: document, without_source: pass }"));
        assert!(reports("bounds: { field: ts.a, min: 0 }", "timestamps: { source: at, store: ts, fields: [b] }"));
    }

    #[test]
    fn fields_with_two_contents_are_reported() {
        let reports = |one: &str, other: &str| {
            let warnings = found(&[one, other]);
            warnings.iter().any(|text| text.contains("it expects a number in") || text.contains("in one of the frozen"))
        };
        const BUCKET: &str = "bucket: { array: tags, count: n, limit: 3 }";
        for number in [
            "bounds: { field: tags, min: 0 }",
            "sequence: { field: tags, counter: c }",
            "schema_version: { field: tags, current: 3, minimum: 2 }",
        ] {
            assert!(reports(number, BUCKET) && reports("limits: { items: { tags: 3 } }", number), "{number}");
            assert!(!reports(number, "limits: { items: { others: 3 } }"), "{number}");
        }
        assert!(reports("bounds: { field: a, min: 0 }", "limits: { items: { a.b: 3 } }"));
        assert!(!reports("bounds: { field: a.b, min: 0 }", "limits: { items: { a: 3 } }"), "one in each element");
        assert!(reports("limits: { items: { n: 3 } }", BUCKET));
        assert!(reports("frozen: at", "timestamps: { source: at }"));
        assert!(!reports("frozen: at", "timestamps: { source: updated }"));
    }

    #[test]
    fn deletes_of_other_workers_jobs_are_reported() {
        let reports = |tree: &str| found(&["queue: { lease: 5m }", tree]).len() == 1;
        assert!(reports("tree: { on_delete: cascade }") && !reports("tree: {}"));
    }

    #[test]
    fn buckets_that_another_rule_keeps_from_filling_are_reported() {
        let reports = |other: &str| found(&["bucket: { array: ms, count: count, limit: 4 }", other]).len() == 1;
        assert!(reports("bounds: { field: count, max: 3 }") && !reports("bounds: { field: count, max: 4 }"));
        assert!(!reports("bounds: { field: n, max: 3 }"));
        assert!(reports("limits: { items: { ms: 3 } }") && !reports("limits: { items: { ms: 4 } }"));
        assert!(!reports("limits: { items: { other: 3 } }"));
    }

    #[test]
    fn bounds_that_exclude_a_number_that_another_rule_needs_are_reported() {
        let reports = |range: &str, other: &str| {
            let bounds = format!("bounds: {{ field: n, {range} }}");
            found(&[&bounds, other]).iter().any(|found| found.contains("needs a number that is out of range"))
        };
        const VERSION: &str = "schema_version: { field: n, current: 3, minimum: 2 }";
        const QUEUE: &str = "queue: { fields: { attempts: n }, lease: 5m, max_attempts: 3 }";
        const BUCKET: &str = "bucket: { array: ms, count: n, limit: 3 }";
        for other in [VERSION, QUEUE, BUCKET] {
            assert!(reports("max: 2", other) && reports("min: 4", other), "{other}");
            assert!(!reports("min: 0, max: 3", other), "{other}");
        }
        const ENDLESS: &str = "queue: { fields: { attempts: n }, lease: 5m }";
        assert!(reports("max: 0", ENDLESS) && !reports("max: 9", ENDLESS));
    }

    #[test]
    fn copies_that_another_rule_breaks_are_reported() {
        let reports = |one: &str, other: &str| found(&[one, other]).len() == 1;
        let copies = |list: &str| format!("copies: [{list}]");
        let originals =
            |on_delete: &str| copies(&format!("{{ into: d.o, key: k, fields: {{ n: m }}, on_delete: {on_delete} }}"));
        assert!(reports("tree: { on_delete: cascade }", &originals("reject")));
        assert!(!reports("tree: { on_delete: cascade }", &originals("unset")));
        assert!(!reports("tree: {}", &originals("reject")));
        let of_others = |key: &str, copied: &str, on_delete: &str| {
            let entry = format!("{{ into: d.c, key: {key}, fields: {{ n: {copied} }}, on_delete: {on_delete} }}");
            format!("version: 1\nrules:\n- {{ name: copied, namespace: d.o, copies: [{entry}] }}\n")
        };
        let reports = |other: &str, copies: String| {
            let text = format!("{copies}- {{ name: other, namespace: d.c, {other} }}\n");
            let rules = RuleSet::from_sources(vec![SourceFile { name: "test.yaml".into(), text }]);
            incompatible_rules(&rules.unwrap_or_else(|report| panic!("{report}"))).len() == 1
        };
        for kept in [
            "frozen: m",
            "bounds: { field: m, min: 0 }",
            "limits: { items: { m: 3 } }",
            "together: [m, other]",
            "frozen: m.inner",
        ] {
            assert!(
                reports(kept, of_others("k", "m", "keep")) && !reports(kept, of_others("k", "p", "keep")),
                "{kept}"
            );
        }
        const BUCKET: &str = "bucket: { array: ms, count: count, limit: 4 }";
        assert!(reports("queue: { lease: 5m }", of_others("k", "locked", "keep")));
        assert!(!reports("queue: { lease: 5m }", of_others("k", "m", "keep")));
        assert!(reports("tree: {}", of_others("parent", "m", "unset")));
        assert!(!reports("tree: {}", of_others("parent", "m", "keep")));
        assert!(reports(BUCKET, of_others("ms.id", "ms.n", "unset")));
        assert!(!reports(BUCKET, of_others("ms.id", "ms.n", "keep")));
        assert!(!reports(BUCKET, of_others("k.id", "k.n", "unset")));
        assert!(!reports("tree: { on_delete: cascade }", of_others("k", "m", "reject")));
    }

    #[test]
    fn increments_of_another_rule_without_a_condition_are_reported() {
        let reports = |bounds: &str, other: &str| found(&[bounds, other]).len() == 1;
        const REJECT: &str = "bounds: { field: try, max: 9, policy: reject }";
        const BUCKET: &str = "bucket: { array: messages, count: try, limit: 3 }";
        assert!(reports(REJECT, "queue: { lease: 5m }") && reports(REJECT, BUCKET));
        assert!(!reports("bounds: { field: try, max: 9 }", "queue: { lease: 5m }"));
        assert!(!reports("bounds: { field: n, max: 9, policy: reject }", "queue: { lease: 5m }"));
    }

    #[test]
    fn bounds_on_a_version_are_reported() {
        let reports = |bounds: &str| found(&["replacement: { version: a.n }", bounds]).len() == 1;
        assert!(reports("bounds: { field: a.n, max: 9 }") && reports("bounds: { field: a, min: 0 }"));
        assert!(!reports("bounds: { field: a.n, min: 0 }") && !reports("bounds: { field: a.m, max: 9 }"));
    }
}
