//! Proposes a rule file from [`Habits`]: each rule in `mode: shadow`, with its evidence as a comment above it.

use std::fmt::Write as _;

use super::field::Purpose;
use super::habits::{Collection, Evidence, Habits};
use crate::config::Source;
use crate::rules::RuleSet;
use crate::text::one_line;

/// The fewest pushes to one array for a proposal: a short array needs no buckets.
const MANY_PUSHES: u64 = 20;
/// The most applications named in a comment.
const SHOWN: usize = 3;

/// A rule with its evidence.
struct Proposal {
    /// `orders-replacement`; [`propose`] makes it unique.
    name: String,
    namespace: String,
    /// `replacement: { policy: reject }`
    pattern: String,
    evidence: Vec<String>,
}

/// A rule file that loads, or only comments if there is nothing to propose. A rule that contradicts an earlier
/// proposal becomes a comment too.
#[must_use]
pub fn propose(habits: &Habits, sources: &[String]) -> String {
    const OPENING: &str = "version: 1\nrules:\n";
    let found = proposals(habits);
    let mut head = format!("# Proposed by docward suggest from {}.\n", one_line(&sources.join(", ")));
    if found.is_empty() {
        return head + "# No rule proposed: the traffic gives no reason for one.\n";
    }
    head.push_str(
        "# All rules are in shadow mode: they count decisions and change nothing. Remove `mode` to enforce a rule.\n",
    );
    let (mut body, mut any) = (String::new(), false);
    let mut names = std::collections::HashMap::new();
    for proposal in found {
        let count: &mut u32 = names.entry(proposal.name.clone()).or_insert(0);
        *count += 1;
        let name = if *count == 1 { proposal.name.clone() } else { format!("{}-{count}", proposal.name) };
        let rule = proposal.to_yaml(&name);
        let text = format!("{OPENING}{body}{rule}");
        if RuleSet::from_sources(vec![Source { name: "suggest".to_owned(), text }]).is_ok() {
            body.push_str(&rule);
            any = true;
        } else {
            let reason = if any { "contradicts the rules above" } else { "does not load" };
            let _ = writeln!(body, "\n  # Only a comment: the rule {reason}.");
            for line in rule.lines().filter(|line| !line.is_empty()) {
                // Writing to a String cannot fail.
                let _ = writeln!(body, "  # {}", line.trim_start_matches("  ").trim_start_matches("# "));
            }
        }
    }
    head + if any { OPENING } else { "" } + &body
}

impl Proposal {
    fn new(namespace: &str, what: &str, pattern: String, evidence: Vec<String>) -> Self {
        let collection = namespace.split_once('.').map_or(namespace, |(_, collection)| collection);
        let kebab: String = collection.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let kebab = kebab.trim_matches('-').to_ascii_lowercase();
        let name = if kebab.is_empty() { what.to_owned() } else { format!("{kebab}-{what}") };
        Self { name, namespace: namespace.to_owned(), pattern, evidence }
    }

    fn to_yaml(&self, name: &str) -> String {
        let mut out = String::from("\n");
        for line in &self.evidence {
            let _ = writeln!(out, "  # {}", one_line(line));
        }
        let Self { namespace, pattern, .. } = self;
        let _ =
            writeln!(out, "  - name: {name}\n    namespace: {}\n    mode: shadow\n    {pattern}", quoted(namespace));
        out
    }
}

fn proposals(habits: &Habits) -> Vec<Proposal> {
    let each = habits.collections.iter().flat_map(|(namespace, habits)| {
        let mut found: Vec<Proposal> = Vec::new();
        found.extend(replacement(namespace, habits));
        found.extend(habits.decrements.iter().map(|(field, evidence)| bounds(namespace, field, evidence)));
        found.extend(habits.pushes.iter().filter_map(|(array, evidence)| bucket(namespace, array, evidence, habits)));
        found.extend(timestamps(namespace, habits));
        found.extend(habits.pushes.iter().filter_map(|(array, evidence)| limits(namespace, array, evidence, habits)));
        found.extend(empty_filters(namespace, habits));
        found
    });
    each.collect()
}

fn replacement(namespace: &str, habits: &Collection) -> Option<Proposal> {
    let replaced = habits.replacements.counts.total();
    let blind = replaced - habits.conditional.min(replaced);
    if blind == 0 {
        return None;
    }
    let blindly = if blind == replaced { String::new() } else { format!("{blind} of them ") };
    let read = match habits.after_reading {
        0 => String::new(),
        _ if replaced == 1 => ", after the same connection had read it".to_owned(),
        read => format!(", {read} of them after the same connection had read it"),
    };
    let mut lines = vec![format!(
        "A whole document was replaced {}, {blindly}without a condition other than _id{read}. This overwrites \
         changes that others made in between.",
        times(replaced),
    )];
    lines.extend(evidence(&habits.replacements));
    let version = habits.fields.iter().find(|((purpose, _), _)| *purpose == Purpose::Version);
    let pattern = match version {
        Some(((_, field), carried)) => {
            lines.push(format!(
                "'{field}' looks like a version: {} writes contain it, so replacements can check it.",
                carried.counts.total()
            ));
            format!("replacement: {{ policy: check_version, version: {} }}", quoted(field))
        }
        None => "replacement: { policy: reject }".to_owned(),
    };
    Some(Proposal::new(namespace, "replacement", pattern, lines))
}

fn bounds(namespace: &str, field: &str, counted: &Evidence) -> Proposal {
    let mut lines = vec![format!(
        "'{field}' was decremented {} without a lower bound in the filter. If it is a stock or a balance, it can \
         become negative.",
        times(counted.counts.total())
    )];
    lines.extend(evidence(counted));
    Proposal::new(namespace, "bounds", format!("bounds: {{ field: {}, min: 0 }}", quoted(field)), lines)
}

fn bucket(namespace: &str, array: &str, pushed: &Evidence, habits: &Collection) -> Option<Proposal> {
    let count = pushed.counts.total();
    if count < MANY_PUSHES || habits.shrinking.contains(array) || array.contains(['.', '$']) {
        return None;
    }
    let mut lines = vec![format!(
        "{count} pushes to '{array}', none with $slice, and nothing was removed from it: it grows until its document \
         reaches 16 MiB. Buckets need a key other than _id: read docs/patterns/bucket.md first."
    )];
    lines.extend(evidence(pushed));
    let pattern =
        format!("bucket: {{ array: {}, count: {}, limit: 100 }}", quoted(array), quoted(&format!("{array}_count")));
    Some(Proposal::new(namespace, "bucket", pattern, lines))
}

fn limits(namespace: &str, array: &str, pushed: &Evidence, habits: &Collection) -> Option<Proposal> {
    let count = pushed.counts.total();
    if count < MANY_PUSHES || habits.shrinking.contains(array) || array.contains('$') {
        return None;
    }
    let mut lines = vec![format!(
        "{count} pushes to '{array}', none with $slice, and nothing was removed from it. A limit keeps its document small; \
         1000 is a guess."
    )];
    lines.extend(evidence(pushed));
    Some(Proposal::new(namespace, "limits", format!("limits: {{ items: {{ {}: 1000 }} }}", quoted(array)), lines))
}

fn timestamps(namespace: &str, habits: &Collection) -> Option<Proposal> {
    let ((_, field), carried) = habits
        .fields
        .iter()
        .filter(|((purpose, _), _)| *purpose == Purpose::Time)
        .max_by_key(|(_, carried)| carried.counts.total())?;
    let mut lines = vec![format!(
        "'{field}' looks like the time of a change: {} writes contain it. If it is the source's own time, a late \
         write can overwrite a newer one.",
        carried.counts.total()
    )];
    lines.extend(evidence(carried));
    let pattern = format!("timestamps: {{ source: {}, per: document, without_source: pass }}", quoted(field));
    Some(Proposal::new(namespace, "timestamps", pattern, lines))
}

fn empty_filters(namespace: &str, habits: &Collection) -> Option<Proposal> {
    let both = [("update", &habits.empty_updates), ("delete", &habits.empty_deletes)];
    let seen: Vec<(&str, &Evidence)> = both.into_iter().filter(|(_, evidence)| evidence.counts.total() > 0).collect();
    let mut lines = Vec::new();
    for (operation, counted) in &seen {
        let article = if *operation == "update" { "An" } else { "A" };
        lines.push(format!("{article} {operation} with an empty filter was sent {}.", times(counted.counts.total())));
        lines.extend(evidence(counted));
    }
    let operations: Vec<&str> = seen.iter().map(|(operation, _)| *operation).collect();
    let pattern = format!("deny: {{ operations: [{}], when: {{ filter: empty }} }}", operations.join(", "));
    (!seen.is_empty()).then(|| Proposal::new(namespace, "empty-filters", pattern, lines))
}

/// The applications, and the most frequent shape.
fn evidence(of: &Evidence) -> Vec<String> {
    let apps = of.apps();
    let more = if apps.len() > SHOWN { format!(", and {} more", apps.len() - SHOWN) } else { String::new() };
    let named: Vec<String> =
        apps.iter().take(SHOWN).map(|(app, counts)| format!("{app} ({})", counts.total())).collect();
    let mut lines = vec![format!("By {}{more}.", named.join(", "))];
    if let Some(example) = of.examples().first() {
        lines.push(format!("Most frequent: {}", example.shape));
    }
    lines
}

/// `text` as a YAML string. JSON strings are valid YAML.
fn quoted(text: &str) -> String {
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
    let word = text.starts_with(|c: char| c.is_ascii_alphabetic());
    if plain && word { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}

fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}
