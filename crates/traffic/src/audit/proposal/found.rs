//! The rules that habits give a reason for, with their evidence.

use std::collections::HashSet;

use super::{CandidateRule, quoted, times};
use crate::audit::habits::{
    Claims, CollectionCounts, CopiedValues, CopyKind, Evidence, FieldPurpose, Habits, LateWrites, Nodes, Numbered,
    Pushes, ReadAndSet,
};

/// The fewest pushes to one array of one document for a proposal.
const MANY_PUSHES: u64 = 20;
/// The fewest statements of other habits for a proposal.
const SOME: u64 = 3;
/// The fewest late writes for a proposal.
const LATE: u64 = 2;
/// The most applications named in a comment.
const SHOWN: usize = 3;
/// The most applications that a rule for statements with an empty filter exempts.
const MAX_EXEMPT: usize = 3;

/// All candidates, by collection.
pub(super) fn candidates(habits: &Habits) -> Vec<CandidateRule> {
    let mut found = Vec::new();
    for (namespace, habits) in &habits.counts.collections {
        found.extend(replacement(namespace, habits));
        found.extend(habits.decrements.iter().map(|(field, evidence)| bounds(namespace, field, evidence)));
        found.extend(
            habits
                .numbers
                .numbered
                .iter()
                .filter_map(|(field, one)| sequence(namespace, field, one, habits.numbers.unread(field))),
        );
        found.extend(habits.numbers.read_and_set.iter().filter_map(|(field, one)| counter(namespace, field, one)));
        found.extend(habits.jobs.claims.iter().filter_map(|(field, claims)| queue(namespace, field, claims)));
        found.extend(habits.paths.found.iter().filter_map(|((path, parent), one)| tree(namespace, path, parent, one)));
        found.extend(timestamps(namespace, habits));
        let growing = habits.arrays.pushes.iter().filter(|(array, pushes)| {
            pushes.most >= MANY_PUSHES && habits.arrays.only_grows(array) && !array.contains('$')
        });
        found.extend(growing.map(|(array, pushes)| array_rule(namespace, array, pushes, habits.other_writes)));
        found.extend(empty_filters(namespace, habits));
    }
    found.extend(copies(habits));
    found
}

fn replacement(namespace: &str, habits: &CollectionCounts) -> Option<CandidateRule> {
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
    let mut candidate = CandidateRule::new(namespace, "replacement", lines);
    let versions = habits.fields.iter().filter(|((purpose, _), _)| *purpose == FieldPurpose::Version);
    for ((_, field), carried) in versions {
        if let Some(count) = habits.inserting.get(field) {
            candidate.exclude(
                &check_version(field),
                format!(
                    "{} a document that contains '{field}' already; with check_version such an upsert inserts nothing",
                    if *count == 1 { "1 upsert inserts".to_owned() } else { format!("{count} upserts insert") }
                ),
            );
            continue;
        }
        candidate.add_confirmed(
            check_version(field),
            format!(
                "'{field}' looks like a version: {} writes contain it, so replacements can check it.",
                carried.counts.total()
            ),
        );
    }
    if habits.removing == 0 {
        let shown = match habits.compared.min(replaced) {
            0 => "The traffic does not show whether the recorded ones remove a field.".to_owned(),
            all if all == replaced => "The recorded ones remove no field.".to_owned(),
            some => format!(
                "{some} of the {replaced} recorded ones remove no field; the traffic does not show it of the others."
            ),
        };
        let note =
            "With merge, a replacement keeps the fields that it does not contain, and still overwrites the others.";
        candidate.add("replacement: { policy: merge }".to_owned(), format!("{note} {shown}"));
    } else {
        let removed: Vec<String> = habits.removed.iter().take(SHOWN).map(|name| format!("'{name}'")).collect();
        candidate.exclude(
            "replacement: { policy: merge }",
            format!(
                "{} of {replaced} replacements remove a field ({}), and merge would keep it",
                habits.removing,
                removed.join(", ")
            ),
        );
    }
    Some(candidate)
}

fn check_version(field: &str) -> String {
    format!("replacement: {{ policy: check_version, version: {} }}", quoted(field))
}

fn bounds(namespace: &str, field: &str, decrements: &Evidence) -> CandidateRule {
    let mut lines = vec![format!(
        "'{field}' was decremented {} without a lower bound in the filter. If it is a stock or a balance, it can \
         become negative.",
        times(decrements.counts.total())
    )];
    lines.extend(evidence(decrements));
    let mut candidate = CandidateRule::new(namespace, "bounds", lines);
    candidate.add(format!("bounds: {{ field: {}, min: 0 }}", quoted(field)), String::new());
    candidate
}

/// `unread`: inserts with a number of their own.
fn sequence(namespace: &str, field: &str, numbered: &Numbered, unread: u64) -> Option<CandidateRule> {
    let Numbered { next, duplicates, other, .. } = *numbered;
    let total = numbered.evidence.counts.total();
    if total < SOME || next < SOME - 1 {
        return None;
    }
    let mut lines = vec![format!(
        "'{field}' was computed by the application {}: it read the document with the largest '{field}' and inserted the \
         next number. Two inserts at the same time compute the same number.",
        times(total)
    )];
    if duplicates > 0 {
        lines.push(format!("{duplicates} of them used a number that another document had."));
    }
    lines.extend(evidence(&numbered.evidence));
    let collection = namespace.split_once('.').map_or(namespace, |(_, collection)| collection);
    let mut candidate = CandidateRule::new(namespace, "sequence", lines);
    let pattern = format!(
        "sequence: {{ field: {}, counter: {}, start: after_max, provided: replace }}",
        quoted(field),
        quoted(&format!("{collection}_{field}"))
    );
    if field == "_id" {
        candidate.exclude(
            &pattern,
            "the application finds its document by the _id that it sent, and docward's can be another one. Two \
             documents with the same _id are impossible: the second insert fails with E11000"
                .to_owned(),
        );
        candidate.hint = Some(
            "Insert without _id, and number the documents with `field: _id` and `replace_generated: true` \
             (docs/patterns/sequence.md), or retry after E11000."
                .to_owned(),
        );
    } else if let Some((place, _)) = numbered.repeated.iter().find(|(_, count)| **count > total / 2) {
        candidate.exclude(
            &pattern,
            format!("the application also stores the number in '{place}', and docward's can be another one"),
        );
    } else if other + unread > 0 {
        let (other, total) = (other + unread, total + unread);
        candidate.exclude(
            &pattern,
            format!("{other} of {total} inserts have another number than the next one, and the rule would replace it"),
        );
    } else {
        let note = "docward's number replaces the application's. Without a race the two are the same; an application \
                    that uses its number later must read the stored one. A unique index on the field keeps writers \
                    away that do not go through docward.";
        candidate.add(pattern, note.to_owned());
    }
    Some(candidate)
}

fn counter(namespace: &str, field: &str, updates: &ReadAndSet) -> Option<CandidateRule> {
    let total = updates.evidence.counts.total();
    if updates.most < SOME || total < SOME + 2 {
        return None;
    }
    let mut lines = vec![format!(
        "'{field}' was read, computed by the application and set {}, up to {} on one document. Of two such updates at \
         the same time one is lost. Change the application to $inc.",
        times(total),
        times(updates.most)
    )];
    lines.extend(evidence(&updates.evidence));
    let mut candidate = CandidateRule::new(namespace, "bounds", lines);
    if updates.down > 0 {
        let note = "bounds keeps the number from becoming negative. It does not prevent the lost updates.";
        candidate.add(format!("bounds: {{ field: {}, min: 0 }}", quoted(field)), note.to_owned());
    } else {
        candidate.exclude("a rule", format!("no rule makes a $set of '{field}' safe; $inc does"));
    }
    Some(candidate)
}

fn queue(namespace: &str, field: &str, claims: &Claims) -> Option<CandidateRule> {
    let (claimed, completed) = (claims.evidence.counts.total(), claims.completions.counts.total());
    if claimed < SOME || completed < SOME {
        return None;
    }
    let mut lines = vec![format!(
        "A job was claimed {} by setting '{field}', and then changed or deleted {} by _id alone. A worker that stalls \
         completes a job that another worker has taken over, and a job of a crashed worker stays claimed.",
        times(claimed),
        times(completed)
    )];
    lines.extend(evidence(&claims.evidence));
    lines.extend(claims.completions.examples().first().map(|example| format!("Completed by: {}", example.shape)));
    let (lock, locked_at) = (if claims.is_lock() { field } else { "locked" }, claims.locked_at.as_deref());
    let mut candidate = CandidateRule::new(namespace, "queue", lines);
    candidate.hint = Some(
        "Let each claim set the lock and return the job after the update, and put its number of attempts into the \
         filter of every later update (docs/patterns/queue.md). Then this rule fits."
            .to_owned(),
    );
    let pattern = format!(
        "queue: {{ fields: {{ locked: {}, locked_at: {}, attempts: {} }}, lease: 5m }}",
        quoted(lock),
        quoted(locked_at.unwrap_or("tlocked")),
        quoted(claims.attempts.as_deref().unwrap_or("try")),
    );
    candidate.add(pattern, "A lease of 5 minutes is a guess.".to_owned());
    Some(candidate)
}

fn tree(namespace: &str, path: &str, parent: &str, nodes: &Nodes) -> Option<CandidateRule> {
    let total = nodes.evidence.counts.total();
    if total < SOME {
        return None;
    }
    let mut lines = vec![format!(
        "'{path}' was written {} with the path of the ancestors, which the application computes. Two moves at the same \
         time can leave nodes with a wrong path.",
        times(total)
    )];
    lines.extend(evidence(&nodes.evidence));
    let separator = nodes.fitting.iter().max_by_key(|(_, count)| **count).map_or(',', |(separator, _)| *separator);
    let pattern = format!(
        "tree: {{ path: {}, parent: {}, separator: {} }}",
        quoted(path),
        quoted(parent),
        quoted(&separator.to_string())
    );
    let mut candidate = CandidateRule::new(namespace, "tree", lines);
    let other = total - nodes.fitting.get(&separator).copied().unwrap_or_default().min(total);
    if other > 0 {
        let form = if nodes.form.is_empty() { "a text with another separator" } else { nodes.form };
        candidate.exclude(
            &pattern,
            format!("{other} of {total} statements do not fit it: {form}. A tree rule stores ',Books,Programming,', and null for a root"),
        );
    } else {
        let note =
            "It needs transactions: a replica set. The stored paths must be correct first (docs/patterns/tree.md).";
        candidate.add(pattern, note.to_owned());
    }
    Some(candidate)
}

/// The copied fields, one rule for those with the same reference.
fn copies(habits: &Habits) -> Vec<CandidateRule> {
    let mut kinds: Vec<(&CopyKind, &CopiedValues)> =
        habits.counts.copied.kinds.iter().filter(|(_, one)| is_copied(one)).collect();
    // One copied field has one original: the most frequent.
    kinds.sort_by_key(|(_, one)| std::cmp::Reverse(one.evidence.counts.total()));
    let mut taken = HashSet::new();
    kinds.retain(|(kind, _)| taken.insert((&kind.into, &kind.copy)));
    let (states, kinds): (Vec<_>, Vec<_>) = kinds.into_iter().partition(|(_, one)| one.old_states() > 0);
    let mut rules: Vec<Vec<(&CopyKind, &CopiedValues)>> = Vec::new();
    for (kind, one) in kinds {
        let reference = |kind: &CopyKind| (kind.from.clone(), kind.into.clone(), kind.key.clone());
        let same = rules.iter_mut().find(|rule| rule.iter().any(|(first, _)| reference(first) == reference(kind)));
        match same {
            Some(rule) => rule.push((kind, one)),
            None => rules.push(vec![(kind, one)]),
        }
    }
    let of_states = states.into_iter().map(|(kind, one)| {
        let mut candidate = CandidateRule::new(&kind.from, "copies", copied_lines(kind, one));
        candidate.exclude(
            &copies_pattern(&[(kind, one)]),
            format!(
                "{} other values of '{}' than the newest one for the same '{}', and the application updates none of \
                 them: these may be old states, which the rule would overwrite",
                if one.old_states() == 1 {
                    "1 insert has".to_owned()
                } else {
                    format!("{} inserts have", one.old_states())
                },
                kind.copy,
                kind.key
            ),
        );
        candidate
    });
    rules.iter().map(|rule| copied(rule, habits)).chain(of_states).collect()
}

fn is_copied(copies: &CopiedValues) -> bool {
    let total = copies.evidence.counts.total();
    total >= SOME && copies.distinct() > 1 && copies.different * 10 <= total
}

fn copied_lines(kind: &CopyKind, copies: &CopiedValues) -> Vec<String> {
    let CopyKind { from, into, key, original, copy } = kind;
    let mut lines = vec![format!(
        "'{copy}' of {into} was inserted {} with the '{original}' of the document in {from} that '{key}' refers to. When \
         the original changes, the copies become stale.",
        times(copies.evidence.counts.total())
    )];
    lines.extend(evidence(&copies.evidence));
    lines
}

fn copies_pattern(kinds: &[(&CopyKind, &CopiedValues)]) -> String {
    let fields: Vec<String> =
        kinds.iter().map(|(kind, _)| format!("{}: {}", quoted(&kind.original), quoted(&kind.copy))).collect();
    let (into, key) = kinds.first().map(|(kind, _)| (quoted(&kind.into), quoted(&kind.key))).unwrap_or_default();
    format!("copies: [{{ into: {into}, key: {key}, fields: {{ {} }} }}]", fields.join(", "))
}

/// A rule for fields with the same reference, the most frequent first.
fn copied(kinds: &[(&CopyKind, &CopiedValues)], habits: &Habits) -> CandidateRule {
    let lines = kinds.iter().flat_map(|(kind, one)| copied_lines(kind, one)).collect();
    let (from, into) = kinds.first().map(|(kind, _)| (kind.from.clone(), kind.into.clone())).unwrap_or_default();
    let mut candidate = CandidateRule::new(&from, "copies", lines);
    candidate.others.push(into);
    let outdated: u64 = kinds.iter().map(|(kind, one)| one.outdated(kind, &habits.stored)).sum();
    let note = format!(
        "Of the copies in the traffic the rule would change {outdated}, whose originals have changed since. Delete this \
         rule if the copies must keep the value of their time, as in an invoice. The rule needs docward's own user \
         (--service, docs/patterns/copies.md)."
    );
    candidate.add(copies_pattern(kinds), note.clone());
    // An insert without one of the fields does not fit a rule for all of them.
    if let [first, _, ..] = kinds {
        candidate.add(copies_pattern(std::slice::from_ref(first)), note);
    }
    candidate
}

fn array_rule(namespace: &str, array: &str, pushes: &Pushes, other_writes: u64) -> CandidateRule {
    let count = pushes.evidence.counts.total();
    let mut lines = vec![format!(
        "{count} pushes to '{array}', up to {} to one document, none with $slice, and nothing was removed from it: it \
         grows until its document reaches 16 MiB.",
        pushes.most
    )];
    lines.extend(evidence(&pushes.evidence));
    let mut candidate = CandidateRule::new(namespace, "limits", lines);
    // Only an application that lets pushes insert documents, and writes them in no other way, can have several of them.
    if pushes.upserts == count && other_writes == 0 && !array.contains('.') {
        let field = quoted(&format!("{array}_count"));
        let pattern = format!("bucket: {{ array: {}, count: {field}, limit: 100 }}", quoted(array));
        candidate.add_named(
            "bucket",
            pattern,
            "One owner then has several documents: change its reads first (docs/patterns/bucket.md).".to_owned(),
        );
    }
    let limit = [1_000, 10_000, 100_000].into_iter().find(|limit| pushes.most * 2 < *limit).unwrap_or(1_000_000);
    let pattern = format!("limits: {{ items: {{ {}: {limit} }} }}", quoted(array));
    candidate.add(pattern, format!("A limit keeps its document small; {limit} is a guess."));
    candidate
}

fn timestamps(namespace: &str, habits: &CollectionCounts) -> Option<CandidateRule> {
    let total = |late: &LateWrites| late.evidence.counts.total();
    let (field, late) = habits.late.iter().max_by_key(|(_, late)| total(late))?;
    if total(late) < LATE {
        return None;
    }
    let mut lines = vec![format!(
        "'{field}' looks like the time of a change at its source, and {} writes were late: the stored document had a \
         newer time, and they overwrote it.",
        total(late)
    )];
    lines.extend(evidence(&late.evidence));
    let mut candidate = CandidateRule::new(namespace, "timestamps", lines);
    // A late update may set other fields than the newer one, so only those that it has in common may be ignored.
    let per = if late.replacements > 0 { "per: document, " } else { "" };
    let pattern = format!("timestamps: {{ source: {}, {per}without_source: pass }}", quoted(field));
    if late.deliberate > 0 {
        let reason = format!(
            "{} of {} late writes came from a connection that had read the newer time, so the application sets it back \
             on purpose, and the rule would ignore that",
            late.deliberate,
            total(late)
        );
        candidate.exclude(&pattern, reason);
    } else {
        candidate.add(pattern, String::new());
    }
    Some(candidate)
}

fn empty_filters(namespace: &str, habits: &CollectionCounts) -> Option<CandidateRule> {
    let both = [("update", &habits.empty_updates), ("delete", &habits.empty_deletes)];
    let seen: Vec<(&str, &Evidence)> = both.into_iter().filter(|(_, evidence)| evidence.counts.total() > 0).collect();
    let mut lines = Vec::new();
    let mut apps: Vec<&str> = Vec::new();
    for (operation, found) in &seen {
        let article = if *operation == "update" { "An" } else { "A" };
        lines.push(format!("{article} {operation} with an empty filter was sent {}.", times(found.counts.total())));
        lines.extend(evidence(found));
        apps.extend(found.apps().into_iter().map(|(app, _)| app));
    }
    let operations: Vec<&str> = seen.iter().map(|(operation, _)| *operation).collect();
    let pattern = format!("deny: {{ operations: [{}], when: {{ filter: empty }} }}", operations.join(", "));
    apps.sort_unstable();
    apps.dedup();
    let mut candidate = CandidateRule::new(namespace, "empty-filters", lines);
    let can_exempt = |app: &str| !app.contains(['*', '?', '[', '\\', '(']);
    if apps.len() <= MAX_EXEMPT && apps.iter().all(|app| can_exempt(app)) {
        let exempt: Vec<String> = apps.iter().map(|app| quoted(app)).collect();
        candidate.add(
            format!("except: {{ apps: [{}] }}\n    {pattern}", exempt.join(", ")),
            "The application that sends them is exempt. Remove `except` if they were mistakes.".to_owned(),
        );
    } else {
        candidate.add(pattern, String::new());
    }
    (!seen.is_empty()).then_some(candidate)
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
