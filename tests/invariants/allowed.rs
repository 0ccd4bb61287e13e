//! What docward's pages say that it rejects, or answers otherwise, although the statement at hand would have done no
//! harm. Everything else of that kind is a finding, unless `OPEN` says that it is known and not yet decided.

use super::check::Finding;
use super::patterns::Policy;
use super::rules::Rule;

/// Pattern, and a piece of the reason that stays the same.
const REJECTIONS: &[(&str, &str)] = &[
    // Pipelines that compute, or replace, are not analysed by any pattern.
    ("*", "aggregation pipeline"),
    // `policy: reject` wants the condition from the client, whatever is stored.
    ("bounds", "without the condition that keeps it in range"),
    // Limits: operators whose result depends on what is stored, parts of the field and fields around it.
    ("bounds", "cannot be bounded"),
    ("bounds", "lies inside an array"),
    // Limits: an upsert that inserts what cannot be told.
    ("bounds", "as an upsert it could insert a document with"),
    // An upsert that adds may also find a document that has no room; it must pick by _id.
    ("bounds", "as an upsert it could insert a second document"),
    // A statement that writes some of the fields is rejected, whatever a filter or $setOnInsert adds to it.
    ("together", "it changes"),
    // So is one that leaves a document with some of them, by what it sets around one.
    ("together", "it writes"),
    ("together", "an element of an array has some of"),
    // Limits: only the attempt or `locked: false` shows that nobody works on the job.
    ("queue", "its filter has neither"),
    ("queue", "it replaces a job without"),
    ("queue", "' to an array"),
    ("queue", "is an array"),
    // Jobs of several workers have one number.
    ("queue", "it reaches every job with this"),
    ("queue", "is neither a claim nor a release"),
    ("queue", "reaches the lock by position"),
    ("queue", "which only a claim counts up"),
    // Limits: an upsert might find a stored job; what is no number cannot be counted up.
    ("queue", "as an upsert it could insert a job without its lock"),
    ("queue", "is no number that a claim can count up"),
    // A claim is of one job.
    ("queue", "several jobs at once"),
    ("queue", "claimed already"),
    // Limits: what takes items away, or pushes to several buckets, is unsupported.
    ("bucket", "could leave array and count apart"),
    ("bucket", "without adding anything"),
    ("bucket", "several buckets"),
    ("bucket", "picks a bucket by _id"),
    // Limits of `merge`.
    ("replacement", "cannot be merged"),
    ("replacement", "which the document itself leaves out"),
    ("replacement", "cannot be reached"),
    // Limits: operators leave the version alone, or count it up.
    ("replacement", "by other means than $set and $inc"),
    ("replacement", "back, or removes it"),
    // Limits: registers are written whole, by $set, with a time of the rule's type.
    ("timestamps", "depends on the order of writes"),
    ("timestamps", "overlaps the protected field"),
    ("timestamps", "timestamps are kept per field"),
    ("timestamps", "cannot be combined with writes to protected fields"),
    ("timestamps", "without its source time"),
    ("timestamps", "its source time"),
    ("timestamps", "positional or numeric part"),
    ("timestamps", "it uses arrayFilters"),
    ("timestamps", "where the timestamps are kept"),
    ("timestamps", "begins with $"),
    ("timestamps", "it has a collation"),
    ("timestamps", "writes protected fields at once"),
    ("timestamps", "and it may touch many documents"),
    ("timestamps", "would erase the timestamps of other fields"),
    // The number has no place.
    ("sequence", "there is no room for"),
    ("sequence", "is at its end"),
    // Limits of `on_upsert` with a nested field: other operators than $set around it.
    ("sequence", "leaves no room for the number"),
    // Limits: moves go one node a statement; _ids in one type, without the separator; no collation.
    ("tree", "it could move many nodes at once"),
    ("tree", "cannot be told beforehand"),
    ("tree", "by other means than $set"),
    ("tree", "it has a collation"),
    ("tree", "cannot go with a parent, by which docward writes the path"),
    ("tree", "is nothing that a node can have as _id"),
    ("tree", "its _id is of type"),
    ("tree", "there is no room for"),
    ("tree", "twice, or writes a field inside it"),
    // Limits: operators that do not tell the new value, references in arrays.
    ("copies", "in a way that does not tell its new value"),
    ("copies", "which is a copy"),
    // An upsert may find a document, for which it sets the key alone.
    ("copies", "' without '"),
];

/// Findings that are known and neither repaired nor decided: kind, the patterns that take part, a piece of what is found.
/// With `DOCWARD_INVARIANTS_STRICT` they are reported as all others. Whoever repairs one takes its line away.
const OPEN: &[(&str, &str, &str)] = &[];

/// Whether a finding is known to be open.
pub(super) fn is_open(finding: &Finding, rules: &[Rule]) -> bool {
    let strict = std::env::var_os("DOCWARD_INVARIANTS_STRICT").is_some();
    let takes_part = |name: &str| rules.iter().any(|rule| rule.name() == name);
    let is_about = |name: &str| finding.pattern.split(" + ").any(|about| about == name);
    let known = OPEN.iter().any(|(kind, patterns, piece)| {
        let mut names = patterns.split(" + ");
        let first = names.clone().next().is_some_and(is_about);
        *kind == finding.kind && first && names.all(takes_part) && finding.what.contains(piece)
    });
    known && !strict
}

pub(super) fn rejects(pattern: &str, reason: &str) -> bool {
    REJECTIONS.iter().any(|(allowed, piece)| (*allowed == pattern || *allowed == "*") && reason.contains(piece))
}

/// What the server says of a statement that cannot be done, or not to the document at hand.
const ARGUMENTS: [i32; 11] = [2, 9, 14, 28, 40, 52, 53, 54, 56, 66, 224];

/// Whether errors through docward may differ from the direct ones, each an index and a code.
pub(super) fn fails(rules: &[Rule], through: &[(i32, i32)], direct: &[(i32, i32)]) -> bool {
    let has = |names: &[&str]| rules.iter().any(|rule| names.contains(&rule.name()));
    let same_places = through.iter().map(|(index, _)| index).eq(direct.iter().map(|(index, _)| index));
    // Limits of `timestamps`: a pipeline's own error where the operator has another.
    let by_pipeline = has(&["timestamps"]) && same_places && through.iter().all(|(_, code)| *code == 241);
    // A condition that docward adds is not met, or the write is late, so that it does not fail on the document.
    let unreached = has(&["bounds", "queue", "bucket", "replacement", "timestamps"])
        && through.is_empty()
        && direct.iter().all(|(_, code)| ARGUMENTS.contains(code));
    // Limits of `queue`: attempts that are stored as no number, which the server cannot count up.
    let uncounted = has(&["queue"]) && through.iter().all(|(_, code)| *code == 14) && direct.is_empty();
    // Several things are wrong with a statement, and another is noticed first.
    let of_arguments = |errors: &[(i32, i32)]| errors.iter().all(|(_, code)| ARGUMENTS.contains(code) || *code == 112);
    // Another bucket is picked than directly, one whose array is none.
    let no_array = has(&["bucket"]) && through.iter().all(|(_, code)| *code == 2) && direct.is_empty();
    // What the page of `replacement` says of `merge`: a document whose `_id` is the stored number in another type.
    let is_merged = |rule: &Rule| matches!(rule, Rule::Replacement(rule) if rule.policy == Policy::Merge);
    let another_id = rules.iter().any(is_merged) && through.iter().all(|(_, code)| *code == 66) && direct.is_empty();
    // It changes the `_id`, and what it would insert is stored already: a push goes to a stored bucket first.
    let stored_first = has(&["bucket"])
        && same_places
        && through.iter().all(|(_, code)| *code == 66)
        && direct.iter().all(|(_, code)| *code == 11000);
    by_pipeline
        || another_id
        || stored_first
        || unreached
        || no_array
        || uncounted
        || same_places && !direct.is_empty() && of_arguments(through) && of_arguments(direct)
}
