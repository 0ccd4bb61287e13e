//! Conflicts between rules with copies: two rules that write one copied field, and copies that follow each other in a
//! cycle, so that updates would never end.
//!
//! A copy of a copy is allowed: each rule watches its originals for changes from any writer.

use std::collections::HashMap;

use super::settings::{CopiedField, CopiesEntry};
use crate::config::{Code, Diagnostic};
use crate::document::Path;
use crate::patterns::{AnyPattern, Collection, Mode, RuleView};

/// One entry of one rule.
#[derive(Clone, Copy)]
struct CopyEdge<'r> {
    rule: RuleView<'r>,
    originals: &'r Collection,
    entry: &'r CopiesEntry,
}

/// The state of an entry in the search for cycles.
#[derive(Clone, Copy, PartialEq, Eq)]
enum VisitState {
    Not,
    OnPath,
    Done,
}

pub(super) fn contradictions(rules: &[RuleView<'_>]) -> Vec<Diagnostic> {
    let nodes: Vec<CopyEdge<'_>> = rules.iter().flat_map(|rule| nodes(*rule)).collect();
    let mut found = claimed_twice(&nodes);
    let enforced: Vec<_> = nodes.into_iter().filter(|node| node.rule.mode == Mode::Enforce).collect();
    found.extend(cycle(&enforced));
    found
}

fn nodes(rule: RuleView<'_>) -> impl Iterator<Item = CopyEdge<'_>> {
    let copies = match rule.pattern {
        AnyPattern::Copies(copies) => Some(copies),
        _ => None,
    };
    copies.into_iter().flat_map(move |copies| {
        copies.entries.iter().map(move |entry| CopyEdge { rule, originals: &copies.originals, entry })
    })
}

/// Finds copied fields with two originals in different rules. Conflicts within one rule are errors of its settings.
fn claimed_twice(nodes: &[CopyEdge<'_>]) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let mut writers: HashMap<_, Vec<(RuleView<'_>, &CopiedField)>> = HashMap::new();
    for node in nodes {
        let key = (&node.entry.into, node.rule.mode == Mode::Shadow);
        let earlier = writers.entry(key).or_default();
        for field in &node.entry.fields {
            let clashes = |other: &&(RuleView<'_>, &CopiedField)| {
                other.0.index != node.rule.index && other.1.copied.overlaps(field.copied.as_str().as_bytes())
            };
            if let Some((rule, other)) = earlier.iter().find(clashes) {
                let (one, two) = (&rule.name.value, &node.rule.name.value);
                let message = format!("`{one}` and `{two}` both copy into `{}` of {}", field.copied, node.entry.into);
                let mistake = Diagnostic::error(Code::FieldClaimedTwice, field.span, message)
                    .note(format!("copied by `{two}`"))
                    .label(other.span, format!("copied by `{one}`"));
                found.push(mistake.help("a copied field follows one original; remove it from one of the rules"));
            }
            earlier.push((node.rule, field));
        }
    }
    found
}

/// Returns an error for the first cycle, if there is one.
fn cycle(nodes: &[CopyEdge<'_>]) -> Option<Diagnostic> {
    let mut readers: HashMap<&Collection, Vec<usize>> = HashMap::new();
    for (at, node) in nodes.iter().enumerate() {
        readers.entry(node.originals).or_default().push(at);
        if node.entry.into != *node.originals {
            readers.entry(&node.entry.into).or_default().push(at);
        }
    }
    let mut seen = vec![VisitState::Not; nodes.len()];
    for start in 0..nodes.len() {
        // The path from `start`, each entry with its followers not yet tried. It is not recursive: there may be many
        // rules.
        let mut path = vec![(start, followers(nodes, &readers, start))];
        if seen[start] != VisitState::Not {
            continue;
        }
        seen[start] = VisitState::OnPath;
        while let Some((at, untried)) = path.last_mut() {
            let at = *at;
            match untried.pop() {
                None => {
                    seen[at] = VisitState::Done;
                    path.pop();
                }
                Some(next) if seen[next] == VisitState::OnPath => return Some(circular(&nodes[at], &nodes[next])),
                Some(next) if seen[next] == VisitState::Not => {
                    seen[next] = VisitState::OnPath;
                    path.push((next, followers(nodes, &readers, next)));
                }
                Some(_) => {}
            }
        }
    }
    None
}

/// Returns the entries whose copies change when the copies of `at` change.
fn followers(nodes: &[CopyEdge<'_>], readers: &HashMap<&Collection, Vec<usize>>, at: usize) -> Vec<usize> {
    let node = &nodes[at];
    let candidates = readers.get(&node.entry.into).into_iter().flatten().copied();
    candidates.filter(|candidate| follows(&nodes[*candidate], node)).collect()
}

/// Returns whether `one` reads a field that `other` writes: as an original's field or as its key.
fn follows(one: &CopyEdge<'_>, other: &CopyEdge<'_>) -> bool {
    let into = &other.entry.into;
    let writes = |path: &Path| other.entry.fields.iter().any(|field| field.copied.overlaps(path.as_str().as_bytes()));
    (one.originals == into && one.entry.fields.iter().any(|field| writes(&field.original)))
        || (one.entry.into == *into && writes(&one.entry.key))
}

fn circular(last: &CopyEdge<'_>, first: &CopyEdge<'_>) -> Diagnostic {
    let (one, two) = (&first.rule.name.value, &last.rule.name.value);
    let message = if one == two {
        format!("`{one}` copies in a cycle: it copies from the fields that it writes in {}", last.entry.into)
    } else {
        format!("`{one}` and `{two}` copy in a cycle, so updates would never end")
    };
    let span = last.entry.fields.first().map_or(last.rule.name.span, |field| field.span);
    let mistake = Diagnostic::error(Code::Contradiction, span, message);
    match first.entry.fields.first().filter(|_| one != two) {
        Some(field) => mistake.label(field.span, format!("copied by `{one}`")),
        None => mistake,
    }
}
