//! Documented rejections and deviations of docward for statements that would have been harmless. All other such cases
//! are findings, unless `OPEN` lists them as known and undecided.

use super::case::{Statement, Step};
use super::check::Finding;
use super::patterns::Policy;
use super::rules::Rule;
use super::values::related;

/// The pattern, and a constant part of the reason.
const REJECTIONS: &[(&str, &str)] = &[
    // `policy: reject` requires the condition from the client, whatever is stored.
    ("bounds", "without the condition that keeps it in range"),
    // Limits: operators whose result depends on the stored value, parts of the field, and enclosing documents.
    ("bounds", "docward cannot check the result of"),
    ("bounds", "is inside an array"),
    // Limits: an upsert whose inserted document cannot be determined.
    ("bounds", "as an upsert it could insert a document with"),
    // A statement that writes only some of the fields is rejected, whatever a filter or $setOnInsert adds.
    ("together", "it changes"),
    // The same for a statement that sets an enclosing document with only some of the fields.
    ("together", "it writes"),
    ("together", "an array element has some of"),
    // The value that a `$rename` moves to an enclosing document is unknown.
    ("together", "could change some of the fields without the others"),
    // A replacement has all of the fields or none, also where the stored document has only some.
    ("together", "it has '"),
    // Limits: an upsert by an `$or` of equal branches, which some servers treat as one equality.
    ("together", "as an upsert, depending on the server, it could insert"),
    // Limits: only the attempt or `locked: false` shows that no worker has the job.
    ("queue", "its filter has neither"),
    ("queue", "it replaces a job without"),
    ("queue", "' to an array"),
    ("queue", "is an array"),
    // The jobs of several workers share one number.
    ("queue", "it matches jobs of all workers"),
    ("queue", "is neither a claim nor a release"),
    ("queue", "which only a claim may increment"),
    ("queue", "changes the fields that a claim sets"),
    // Limits: an upsert may match a stored job; a value that is not a number cannot be incremented.
    ("queue", "as an upsert it could insert a job without its lock"),
    ("queue", "is not a finite number, so a claim cannot increment it"),
    // A claim takes one job.
    ("queue", "several jobs at once"),
    ("queue", "already claimed"),
    // Limits: removing items, or pushing to several buckets, is unsupported.
    ("bucket", "could make the count wrong or exceed the limit"),
    ("bucket", "without a $push"),
    ("bucket", "several buckets"),
    ("bucket", "selects a bucket by _id"),
    // Limits: changes inside an array that the filter of an upsert inserts.
    ("bucket", "as an upsert it could insert a bucket whose"),
    // Limits of `merge`.
    ("replacement", "cannot be merged"),
    ("replacement", "in the filter but not in the document"),
    ("replacement", "cannot be set: a field on its path"),
    // Limits: operators leave the version unchanged, or increment it.
    ("replacement", "with an operator other than $set and $inc"),
    ("replacement", "it decreases or removes the version"),
    // Limits: fields are written as a whole, by $set, with a time of the rule's type.
    ("timestamps", "depends on the order of writes"),
    ("timestamps", "overlaps the protected field"),
    ("timestamps", "timestamps are stored per field"),
    ("timestamps", "cannot be combined with writes to protected fields"),
    ("timestamps", "without the source time"),
    ("timestamps", "its source time"),
    ("timestamps", "positional or numeric part"),
    ("timestamps", "which holds timestamps"),
    ("timestamps", "begins with $"),
    ("timestamps", "it has a collation"),
    ("timestamps", "and writes protected fields in one statement"),
    ("timestamps", "and it can change many documents"),
    ("timestamps", "would remove the timestamps of other fields"),
    // The values that an old document may get are refused; the test does not read constants in a pipeline.
    ("schema_version", "it must be a whole number from"),
    // Limits: what another rule's pipeline adds is bounded by its own length.
    ("limits", "bytes and the statement can add"),
    ("limits", "the document would have"),
    // The document has no place for the number.
    ("sequence", "cannot be set: a field on its path"),
    ("sequence", "is at its end"),
    ("sequence", "begins with $"),
    // Limits of `on_upsert` with a nested field: operators other than $set on the enclosing document.
    ("sequence", "so docward cannot set the number"),
    // Limits: one node per move; _ids of one type, without the separator; no collation.
    ("tree", "it could move many nodes at once"),
    ("tree", "docward cannot predict"),
    ("tree", "it has a collation"),
    ("tree", "cannot be combined with a new "),
    ("tree", "is not a valid _id of a node"),
    ("tree", "its _id has type"),
    ("tree", "cannot be set: a field on its path"),
    ("tree", "twice, or writes a field inside it"),
    // Limits: paths through arrays, and upserts whose inserted document cannot be bounded.
    ("limits", "docward cannot count the items"),
    ("limits", "is inside an array"),
    ("limits", "as an upsert it could insert"),
    ("limits", "docward cannot bound the bytes"),
    // Limits: the version is set as a whole, by $set or $max.
    ("schema_version", "docward cannot check the result of"),
    ("schema_version", "it could decrease or remove"),
    ("schema_version", "as an upsert it could insert"),
    // An upsert may match a document, or insert one.
    ("schema_version", "it stores a document without"),
    // Limits: operators whose new value is unknown, references in arrays.
    ("copies", "with an operator whose result docward cannot know"),
    ("copies", "which is a copy"),
    // An upsert may match a document and then set only the key.
    ("copies", "' without '"),
];

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

/// Whether a number was issued twice because an earlier command of the case computed one: documented for `sequence`.
pub(super) fn is_computed(finding: &Finding, rules: &[Rule], earlier: &[Step]) -> bool {
    let computes = |rule: &Rule, statement: &Statement| {
        let is_known = |operator: &str| matches!(operator, "$set" | "$min" | "$max");
        let writes = statement.writes();
        let computed = writes.iter().any(|(operator, path, _)| !is_known(operator) && related(path, &rule.fields()[0]));
        statement.is_pipeline() || computed
    };
    let sequences = || rules.iter().filter(|rule| rule.name() == "sequence");
    let statements = || earlier.iter().flat_map(Step::statements);
    finding.what == "inserted with the number of another"
        && sequences().any(|rule| statements().any(|statement| computes(rule, &statement)))
}

/// Whether the documentation says that a rule of this pattern rejects this statement for this reason.
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
    REJECTIONS.iter().any(|(allowed, piece)| *allowed == pattern && reason.contains(piece))
}

/// Whether the reply to a retry may be an error, of which these are the codes and the reasons. docward does not know
/// the reply of its own transaction that was committed, if that depends on the documents. A number for a retry cannot
/// be reserved if the first command has used the last one.
pub(super) fn loses_reply(rules: &[Rule], codes: &[i32], reasons: &[String]) -> bool {
    const INCOMPLETE_TRANSACTION_HISTORY: i32 = 217;
    rules.iter().any(has_transactions) && codes.contains(&INCOMPLETE_TRANSACTION_HISTORY)
        || reasons.iter().any(|reason| reason.contains("is at its end"))
}

/// Whether a retry may report a document as modified that the statement itself left unchanged: of a transaction of its own docward
/// knows only that it was committed.
pub(super) fn forgets_modified(rules: &[Rule]) -> bool {
    rules.iter().any(has_transactions)
}

/// Whether docward executes statements in transactions of its own.
fn has_transactions(rule: &Rule) -> bool {
    matches!(rule.name(), "tree" | "timestamps") || matches!(rule, Rule::Copies(rule) if rule.on_delete == "reject")
}

/// Texts of server errors about invalid statements, or statements that the document does not allow.
const ARGUMENTS: [i32; 11] = [2, 9, 14, 28, 40, 52, 53, 54, 56, 66, 224];

/// A statement has several errors, and docward's form of it has another of them first: the pattern, and the codes
/// through docward and directly.
const OTHER_FIRST: &[(&str, (i32, i32))] = &[
    // Its own `$setOnInsert` or `$set` of a field, and the client's invalid write of an element in it.
    ("bucket", (40, 2)),
    ("bucket", (40, 224)),
    ("queue", (40, 2)),
    ("queue", (40, 54)),
    // docward's find reads the filter before the server reads the upsert.
    ("tree", (2, 224)),
    // With the condition the filter matches nothing, so the invalid change is not tried: this is a version conflict.
    ("limits", (112, 66)),
    ("replacement", (112, 66)),
    ("replacement", (112, 2)),
    // An upsert with `$expr` is sent without `upsert` first, and the change fails on the stored document.
    ("limits", (14, 224)),
];

/// Whether errors through docward may differ from the direct ones; each error is an index and a code. `has_effect` is
/// whether a single statement changed the only stored document through docward, or inserted one.
pub(super) fn fails(
    rules: &[Rule],
    statements: &[Statement],
    through: &[(i32, i32)],
    direct: &[(i32, i32)],
    has_effect: bool,
) -> bool {
    let has = |names: &[&str]| rules.iter().any(|rule| names.contains(&rule.name()));
    let same_places = through.iter().map(|(index, _)| index).eq(direct.iter().map(|(index, _)| index));
    // Limits of `timestamps`: a pipeline has another error than the operator.
    let by_pipeline = has(&["timestamps"]) && same_places && through.iter().all(|(_, code)| *code == 241);
    // `provided` of `sequence`: docward removes the operator that writes the number, or the upsert becomes an update.
    let not_written = rules.iter().any(|rule| matches!(rule, Rule::Sequence(rule) if rule.provided != "keep"))
        && through.is_empty()
        && direct.iter().all(|(_, code)| ARGUMENTS.contains(code) || *code == 11000);
    // A replacing upsert inserts the number of its filter, which another document may have: the unique index rejects it.
    let inserts_pinned = |rule: &Rule| {
        let Rule::Sequence(rule) = rule else { return false };
        let replaces = |statement: &Statement| statement.replacement().is_some() && statement.queries(rule.field);
        rule.optimistic && statements.iter().any(replaces)
    };
    let number_is_taken =
        rules.iter().any(inserts_pinned) && through.iter().all(|(_, code)| *code == 11000) && direct.is_empty();
    // A condition that docward adds does not match, or the write is late, so the statement does not fail on the
    // document; a late write of one field leaves the others; a push goes to another bucket, and a claim sets its own time.
    let has_parts = |rule: &Rule| matches!(rule, Rule::Timestamps(rule) if !rule.per_document);
    let unreached = has(&["bounds", "queue", "bucket", "replacement", "timestamps", "limits", "schema_version"])
        && through.is_empty()
        && (!has_effect || has(&["bucket", "queue"]) || rules.iter().any(has_parts))
        && direct.iter().all(|(_, code)| ARGUMENTS.contains(code));
    // Limits of `queue`: stored attempts that are not numbers, which the server cannot increment.
    let uncounted = has(&["queue"]) && through.iter().all(|(_, code)| *code == 14) && direct.is_empty();
    let is_other_first = |((_, through), (_, direct)): (&(i32, i32), &(i32, i32))| {
        through == direct || OTHER_FIRST.iter().any(|(pattern, codes)| has(&[pattern]) && *codes == (*through, *direct))
    };
    let other_first = same_places && through.iter().zip(direct).all(is_other_first);
    // docward picks another bucket than the direct statement, which picks one without an array.
    let no_array = has(&["bucket"]) && through.iter().all(|(_, code)| *code == 2) && direct.is_empty();
    // Documented for `merge` of `replacement`: a document whose `_id` equals the stored number but has another type.
    let is_merged = |rule: &Rule| matches!(rule, Rule::Replacement(rule) if rule.policy == Policy::Merge);
    let another_id = rules.iter().any(is_merged) && through.iter().all(|(_, code)| *code == 66) && direct.is_empty();
    // It changes the `_id`, and the document it would insert exists already: a push goes to a stored bucket first.
    let stored_first = has(&["bucket"])
        && same_places
        && through.iter().all(|(_, code)| *code == 66)
        && direct.iter().all(|(_, code)| *code == 11000);
    by_pipeline
        || not_written
        || number_is_taken
        || another_id
        || stored_first
        || unreached
        || no_array
        || uncounted
        || other_first
}

/// The document that the direct statement changes does not meet a condition that docward adds, so the server fails on
/// the next one, of `documents` in all. Limits of `bounds`: a number in an array meets the condition too.
pub(super) fn fails_on_next(rules: &[Rule], documents: usize, through: &[(i32, i32)], direct: &[(i32, i32)]) -> bool {
    let has = |names: &[&str]| rules.iter().any(|rule| names.contains(&rule.name()));
    let fail_with = |codes: &[i32]| direct.is_empty() && through.iter().all(|(_, code)| codes.contains(code));
    has(&["bounds"]) && fail_with(&[14, 28])
        || has(&["bounds", "queue", "bucket", "limits", "schema_version"]) && documents > 1 && fail_with(&ARGUMENTS)
}
