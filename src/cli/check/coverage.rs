//! Renders coverage as text tables and as JSON. `crate::engine::coverage` computes it.

use std::fmt::Write as _;

use serde::Serialize;

use crate::engine::coverage::{Access, Coverage, CoverageOutcome, coverage};
use crate::rules::{ClientNames, Mode, Rule, RuleSet, Unsupported};

/// One rule on some of its namespaces; docs/coverage.md documents the fields.
#[derive(Serialize)]
struct CoverageEntry<'r> {
    rule: &'r str,
    pattern: &'static str,
    namespaces: Vec<String>,
    mode: &'static str,
    unsupported: &'static str,
    except: ClientNames,
    only: ClientNames,
    accesses: Vec<CoverageLine>,
}

#[derive(Serialize)]
struct CoverageLine {
    access: String,
    commands: Vec<&'static str>,
    outcome: &'static str,
}

/// The entries as a JSON list.
pub(super) fn json(rules: &RuleSet) -> String {
    let entries: Vec<CoverageEntry<'_>> = coverage(rules).iter().map(entry).collect();
    // Strings and lists of strings always serialize.
    serde_json::to_string_pretty(&entries).unwrap_or_default()
}

/// A text table for each entry.
pub(super) fn text(rules: &RuleSet) -> String {
    let mut out = String::new();
    for covered in coverage(rules) {
        let entry = entry(&covered);
        let _ = writeln!(out, "{} ({}) on {}", entry.rule, entry.pattern, entry.namespaces.join(", "));
        for note in notes(covered.rule, &entry) {
            let _ = writeln!(out, "  {note}");
        }
        for line in &entry.accesses {
            let by = if line.commands.is_empty() { String::new() } else { format!("  {}", line.commands.join(", ")) };
            let row = format!("  {:<9} {:<28}{by}", line.outcome, line.access);
            let _ = writeln!(out, "{}", row.trim_end());
        }
        out.push('\n');
    }
    out
}

fn entry<'r>(covered: &Coverage<'r>) -> CoverageEntry<'r> {
    let rule = covered.rule;
    CoverageEntry {
        rule: &rule.name.value,
        pattern: rule.pattern.name(),
        namespaces: covered.namespaces.iter().map(ToString::to_string).collect(),
        mode: match rule.mode {
            Mode::Enforce => "enforce",
            Mode::Shadow => "shadow",
            Mode::Disabled => "disabled",
        },
        unsupported: match rule.unsupported {
            Unsupported::Reject => "reject",
            Unsupported::Allow => "allow",
        },
        except: rule.except.names(),
        only: rule.only.names(),
        accesses: covered.accesses.iter().map(line).collect(),
    }
}

fn line(access: &Access) -> CoverageLine {
    let outcome = match access.outcome {
        CoverageOutcome::Evaluate => "evaluate",
        CoverageOutcome::Reject => "reject",
        CoverageOutcome::Allow => "allow",
        CoverageOutcome::Forward => "forward",
    };
    CoverageLine { access: access.what.clone(), commands: access.commands.clone(), outcome }
}

/// Settings that weaken everything in the table.
fn notes(rule: &Rule, entry: &CoverageEntry<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    match rule.mode {
        Mode::Enforce => {}
        Mode::Shadow => {
            notes.push("mode: shadow: docward forwards everything and only counts and logs decisions".to_owned());
        }
        Mode::Disabled => notes.push("mode: disabled: docward forwards everything".to_owned()),
    }
    if rule.unsupported == Unsupported::Allow {
        notes.push("unsupported: allow: docward forwards statements that the rule cannot analyse".to_owned());
    }
    let clients = [
        (&entry.except, "except", "docward forwards everything of these clients and logs it"),
        (&entry.only, "only", "docward forwards everything of other clients"),
    ];
    for (clients, key, effect) in clients {
        for (who, names) in [("apps", &clients.apps), ("users", &clients.users)] {
            if !names.is_empty() {
                notes.push(format!("{key} {who} {}: {effect}", names.join(", ")));
            }
        }
    }
    notes
}
