//! Documented rejections and deviations of docward for statements that would have been harmless. All other such cases
//! are findings, unless `OPEN` lists them as known and undecided.

use super::case::Statement;
use super::check::Finding;
use super::rules::Rule;

/// The pattern, and a constant part of the reason.
const REJECTIONS: &[(&str, &str)] = &[
    // `policy: reject` requires the condition from the client, whatever is stored.
    ("bounds", "without the condition that keeps it in range"),
    // A statement that writes only some of the fields is rejected, whatever a filter or $setOnInsert adds.
    ("together", "it changes"),
    // The same after the server has executed it: a field that it names counts as changed.
    ("together", "it would change"),
    ("together", "it would leave"),
    // One field is written and the other removed, or an enclosing document is set with only some of them.
    ("together", "it writes"),
    ("together", "in an array element it changes"),
    ("together", "an array element has"),
    // A replacement has all of the fields or none, also where the stored document has only some.
    ("together", "it has '"),
    // Limits: only the attempt or `locked: false` shows that no worker has a job that was claimed before.
    ("queue", "its filter has neither"),
    ("queue", "it replaces a job without"),
    ("queue", "' to an array"),
    ("queue", "is an array"),
    // The jobs of several workers share one number.
    ("queue", "it matches jobs of all workers"),
    ("queue", "which only a claim may increment"),
    ("queue", "is not a number that a claim can count"),
    // The document has no place for the count or the time.
    ("bucket", "cannot be set: a field on its path"),
    ("replacement", "cannot be set: a field on its path"),
    // Limits: operators leave the version unchanged, or increment it.
    ("replacement", "it decreases or removes the version"),
    // Limits: a version with a fraction cannot be counted.
    ("replacement", "by a number that is not a whole number"),
    // Limits: fields are written as a whole, by $set, with a time of the rule's type.
    ("timestamps", "on the order of writes"),
    ("timestamps", "it computes"),
    ("timestamps", "overlaps the protected field"),
    ("timestamps", "timestamps are stored per field"),
    ("timestamps", "without the source time"),
    ("timestamps", "its source time"),
    ("timestamps", "which holds timestamps"),
    ("timestamps", "as a whole, and another rule compares"),
    ("timestamps", "and writes protected fields in one statement"),
    ("timestamps", "would remove the timestamps of other fields"),
    // The values that an old document may get are refused; the test does not read constants in a pipeline.
    ("schema_version", "it must be a whole number from"),
    // Limits: what another rule's pipeline adds is bounded by its own length.
    ("limits", "bytes and the statement can add"),
    ("limits", "the document would have"),
    // The document has no place for the number.
    ("sequence", "cannot be set: a field on its path"),
    ("sequence", "is at its end"),
    ("sequence", "the largest possible number is already used"),
    ("sequence", "begins with $"),
    // Limits: the result of an operator such as $inc, in a document without a number.
    ("sequence", "which the sequence does not know"),
    // Limits: one node per move; _ids of one type, without the separator; no collation.
    ("tree", "it could move many nodes at once"),
    ("tree", "docward cannot predict"),
    ("tree", "it has a collation"),
    ("tree", "cannot be combined with a new "),
    ("tree", "is not a valid _id of a node"),
    ("tree", "its _id has type"),
    ("tree", "cannot be set: a field on its path"),
    // The same if only the server knows it.
    ("tree", "the server rejected a write that the rule adds"),
    ("tree", "twice, or writes a field inside it"),
    // Limits: the condition of a push takes a field that is named by a number for an element.
    ("limits", "is inside an array"),
    // An upsert may match a document, or insert one.
    ("schema_version", "it stores a document without"),
    ("copies", "which is a copy"),
    // Limits: no `_id` is an array.
    ("copies", "as an array, or inside an array of arrays"),
    // An upsert may match a document and then set only the key.
    ("copies", " without '"),
];

/// The piece by which a rejection for this reason is documented; empty: it is not.
pub(super) fn documented_as(pattern: &str, reason: &str) -> &'static str {
    let is_of = |(allowed, piece): &&(&str, &str)| *allowed == pattern && reason.contains(piece);
    REJECTIONS.iter().find(is_of).map_or("", |(_, piece)| piece)
}

/// Known findings without a fix or a decision: kind, the patterns involved, part of the text.
/// `DOCWARD_INVARIANTS_STRICT` reports them like all others. Remove an entry when you fix it.
const OPEN: &[(&str, &str, &str)] = &[];

/// Whether a finding is a known one.
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

/// Whether it is documented that a rule of this pattern rejects this statement for this reason.
pub(super) fn rejects(rules: &[Rule], statement: &Statement, pattern: &str, reason: &str) -> bool {
    // No pattern analyses pipelines that compute or replace.
    if reason.contains("aggregation pipeline") {
        return statement.computes();
    }
    // It writes all of the fields that the reason is about, so it does not write only some of them.
    let named: Vec<&str> = reason.split('\'').skip(1).step_by(2).collect();
    let writes_all = |rule: &Rule| {
        let fields = rule.fields();
        let is_about = named.iter().all(|name| fields.iter().any(|field| field == name));
        rule.name() == "together" && is_about && fields.iter().all(|field| statement.names(field))
    };
    if pattern == "together" && reason.starts_with("it changes") && rules.iter().any(writes_all) {
        return false;
    }
    // A bucket that is inserted has fields that `together` requires with others.
    let is_of = |rule: &Rule| named.iter().any(|field| rule.fields().iter().any(|own| own == field));
    let is_of_bucket = |rule: &Rule| rule.name() == "bucket" && is_of(rule);
    if pattern == "together" && reason.starts_with("as an upsert it could insert") && rules.iter().any(is_of_bucket) {
        return true;
    }
    // An inserted bucket has a count, and an inserted job the number of its attempts: they may be out of the range of
    // `bounds`. `check` reports the two rules if every insert is.
    let adds_number = |rule: &Rule| matches!(rule.name(), "bucket" | "queue") && is_of(rule);
    let adds = rules.iter().any(adds_number) && !statement.names(named.first().unwrap_or(&""));
    let is_of_bounds = ["would be out of range", "would take", "without the condition that keeps it"]
        .iter()
        .any(|one| reason.contains(one));
    if pattern == "bounds" && is_of_bounds && adds {
        return true;
    }
    // `policy: reject` requires a condition, and this is one.
    let is_kept = |rule: &Rule| matches!(rule, Rule::Bounds(bounds) if is_of(rule) && bounds.is_kept_by(statement));
    if pattern == "bounds" && reason.contains("without the condition") && rules.iter().any(is_kept) {
        return false;
    }
    // Only an update that sets the parent or the path moves nodes.
    let moves = |rule: &Rule| rule.name() == "tree" && rule.fields().iter().any(|field| statement.touches(field));
    if pattern == "tree" && reason.contains("move many nodes") && !rules.iter().any(moves) {
        return false;
    }
    let applies = |rule: &Rule| {
        let queries = rule.fields().iter().any(|field| statement.queries(field));
        rule.name() == pattern
            && (rule.alters(statement) || queries || statement.upsert || statement.inserted.is_some())
    };
    rules.iter().any(applies) && !documented_as(pattern, reason).is_empty()
}
