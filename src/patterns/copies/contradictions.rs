//! What rules with copies have against each other: two that write one copied field, and copies that follow
//! each other in a circle and would never come to rest.
//!
//! A copy of a copy is fine: each rule watches what it copies from, whoever writes it.

use std::collections::HashMap;

use super::settings::{Collection, Entry, Field};
use crate::document::Path;
use crate::patterns::{Pattern, Rule};
use crate::rules::{Code, Diagnostic, Mode};

/// One entry of one rule.
#[derive(Clone, Copy)]
struct Node<'r> {
    rule: &'r Rule,
    originals: &'r Collection,
    entry: &'r Entry,
}

/// How far the search for circles has come with an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Not,
    OnTheWay,
    Done,
}

pub(in crate::patterns) fn contradictions(rules: &[&Rule]) -> Vec<Diagnostic> {
    let nodes: Vec<Node<'_>> = rules.iter().flat_map(|rule| nodes(rule)).collect();
    let mut found = claimed_twice(&nodes);
    let enforced: Vec<_> = nodes.into_iter().filter(|node| node.rule.mode == Mode::Enforce).collect();
    found.extend(circle(&enforced));
    found
}

fn nodes(rule: &Rule) -> impl Iterator<Item = Node<'_>> {
    let copies = match &rule.pattern {
        Pattern::Copies(copies) => Some(copies),
        _ => None,
    };
    copies.into_iter().flat_map(move |copies| {
        copies.entries.iter().map(move |entry| Node { rule, originals: &copies.originals, entry })
    })
}

/// A copied field has one original. Within one rule the settings have been checked already.
fn claimed_twice(nodes: &[Node<'_>]) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let mut writers: HashMap<_, Vec<(&Rule, &Field)>> = HashMap::new();
    for node in nodes {
        let key = (&node.entry.into, node.rule.mode == Mode::Shadow);
        let earlier = writers.entry(key).or_default();
        for field in &node.entry.fields {
            let clashes = |other: &&(&Rule, &Field)| {
                other.0.id != node.rule.id && other.1.copied.overlaps(field.copied.as_str().as_bytes())
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

/// The first circle, if there is one.
fn circle(nodes: &[Node<'_>]) -> Option<Diagnostic> {
    let mut readers: HashMap<&Collection, Vec<usize>> = HashMap::new();
    for (at, node) in nodes.iter().enumerate() {
        readers.entry(node.originals).or_default().push(at);
        if node.entry.into != *node.originals {
            readers.entry(&node.entry.into).or_default().push(at);
        }
    }
    let mut seen = vec![Seen::Not; nodes.len()];
    for start in 0..nodes.len() {
        // The way from `start`, each with the followers not yet tried; no recursion, rules may be many.
        let mut way = vec![(start, followers(nodes, &readers, start))];
        if seen[start] != Seen::Not {
            continue;
        }
        seen[start] = Seen::OnTheWay;
        while let Some((at, untried)) = way.last_mut() {
            let at = *at;
            match untried.pop() {
                None => {
                    seen[at] = Seen::Done;
                    way.pop();
                }
                Some(next) if seen[next] == Seen::OnTheWay => return Some(circular(&nodes[at], &nodes[next])),
                Some(next) if seen[next] == Seen::Not => {
                    seen[next] = Seen::OnTheWay;
                    way.push((next, followers(nodes, &readers, next)));
                }
                Some(_) => {}
            }
        }
    }
    None
}

/// The entries whose copies change when those of `at` do.
fn followers(nodes: &[Node<'_>], readers: &HashMap<&Collection, Vec<usize>>, at: usize) -> Vec<usize> {
    let node = &nodes[at];
    let candidates = readers.get(&node.entry.into).into_iter().flatten().copied();
    candidates.filter(|candidate| follows(&nodes[*candidate], node)).collect()
}

/// Whether `one` reads what `other` writes: as an original's field or as its key.
fn follows(one: &Node<'_>, other: &Node<'_>) -> bool {
    let into = &other.entry.into;
    let writes = |path: &Path| other.entry.fields.iter().any(|field| field.copied.overlaps(path.as_str().as_bytes()));
    (one.originals == into && one.entry.fields.iter().any(|field| writes(&field.original)))
        || (one.entry.into == *into && writes(&one.entry.key))
}

fn circular(last: &Node<'_>, first: &Node<'_>) -> Diagnostic {
    let (one, two) = (&first.rule.name.value, &last.rule.name.value);
    let message = if one == two {
        format!("`{one}` copies in a circle: what it writes into {} is what it copies from", last.entry.into)
    } else {
        format!("`{one}` and `{two}` copy in a circle, which would never come to rest")
    };
    let place = last.entry.fields.first().map_or(last.rule.name.span, |field| field.span);
    let mistake = Diagnostic::error(Code::Contradiction, place, message);
    match first.entry.fields.first().filter(|_| one != two) {
        Some(field) => mistake.label(field.span, format!("copied by `{one}`")),
        None => mistake,
    }
}
