//! Finds what is wrong with a command's result through docward: a broken promise, a reply or document that differs
//! from the direct one without a reason, a rejection of a harmless statement, or a slow statement.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use bson::{Bson, Document, doc};

use super::allowed;
use super::case::{Kind, Session, Statement, Step};
use super::compare::{difference, differs};
use super::excuses;
use super::lab::{Answer, BothSides, Outcome};
use super::later;
use super::patterns;
use super::reply::{Rejection, codes, errors, rejections, without_rejections, without_times};
use super::rules::{Change, Rule};
use super::show;
use super::values::{at, put, take};

/// A statement takes this long only if docward retries it repeatedly.
const SLOW: Duration = Duration::from_secs(2);

/// Writes that docward needs at most for one statement that fails on a duplicate key. More mean that it repeats a
/// statement that cannot succeed.
const MOST_WRITES: i64 = 3;
/// The same if a rule settles documents, one by one after one of them has failed; or if `replacement` increments a version
/// inside a document: in a transaction one for each kind of stored value (a number, another value, no way to the version),
/// because an error would abort it, and then the insert.
const MOST_WRITES_OF_SETTLED: i64 = 4;
/// Writes for one attempt beside `tree`, which writes the parent too.
const WRITES_OF_TREE: i64 = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) kind: &'static str,
    /// The pattern that it is about, if one can be named.
    pub(super) pattern: String,
    pub(super) what: String,
}

impl Finding {
    pub(super) fn new(kind: &'static str, pattern: &str, what: impl Into<String>) -> Finding {
        Finding { kind, pattern: pattern.to_owned(), what: what.into() }
    }

    /// The same key for findings that differ only in names and numbers.
    pub(super) fn key(&self) -> String {
        format!("{}: {}: {}", self.kind, self.pattern, self.general())
    }
}

impl Finding {
    /// Whether a smaller case shows the same finding.
    pub(super) fn resembles(&self, other: &Finding) -> bool {
        self.kind == other.kind && self.general() == other.general()
    }

    /// Without names and numbers, except for error codes.
    fn general(&self) -> String {
        if self.kind == "errors differ" { self.what.clone() } else { general(&self.what) }
    }

    /// Whether it is about the same patterns, or some of them.
    pub(super) fn pattern_is(&self, other: &Finding) -> bool {
        self.pattern.split(" + ").all(|name| other.pattern.split(" + ").any(|known| known == name))
    }
}

/// A text without its quoted parts and its numbers.
fn general(text: &str) -> String {
    let end = text.find(['{', ':', '[']).unwrap_or(text.len());
    let unquoted = text[..end].split(['\'', '"']).step_by(2).collect::<Vec<_>>().join("_");
    unquoted.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// Whether the command, or one of its statements, failed.
pub(super) fn fails(outcome: &Outcome) -> bool {
    outcome.through.reply.as_ref().is_none_or(|reply| !errors(reply).is_empty())
}

/// What is wrong with a command in a transaction that an earlier error has aborted.
pub(super) fn findings_after_abort(outcome: &Outcome) -> Vec<Finding> {
    const NO_SUCH_TRANSACTION: i32 = 251;
    if let Some(leak) = uncommitted_change(outcome) {
        return vec![leak];
    }
    let Some(reply) = &outcome.through.reply else {
        return vec![Finding::new("closed", "", "docward closed the connection")];
    };
    let errors = codes(&errors(reply));
    let is_known = !errors.is_empty() && (errors.contains(&NO_SUCH_TRANSACTION) || !rejections(reply).is_empty());
    let finding =
        || Finding::new("errors differ", "", format!("in an aborted transaction {errors:?} instead of [251]"));
    (!is_known).then(finding).into_iter().collect()
}

/// What is wrong with a command during which another client inserted a document, whichever of the two came first.
pub(super) fn findings_after_race(
    rules: &[Rule],
    step: &Step,
    outcome: &Outcome,
    both_sides: &mut BothSides,
    collection: &str,
) -> Vec<Finding> {
    // Compared as text, because NaN is not equal to itself.
    let is_other = |document: &Document| {
        step.race.as_ref().is_some_and(|race| show::document(&race.document) == show::document(document))
    };
    if outcome.stored.iter().any(is_other) {
        let stored = outcome.stored.iter().filter(|document| !is_other(document)).cloned().collect();
        if findings(rules, step, &Outcome { stored, ..outcome.clone() }, both_sides, collection).is_empty() {
            return Vec::new();
        }
    }
    if collided(step, outcome) {
        return Vec::new();
    }
    let outcome = both_sides.after_race(collection, step, outcome);
    findings(rules, step, &outcome, both_sides, collection)
}

/// Whether an upsert that had found nothing met the other client's document. The server, too, reports the duplicate key,
/// unless the filter states it.
fn collided(step: &Step, outcome: &Outcome) -> bool {
    const DUPLICATE_KEY: i32 = 11000;
    let fails = outcome.through.reply.as_ref().is_some_and(|reply| codes(&errors(reply)) == [DUPLICATE_KEY]);
    let count = outcome.before.len() + 1;
    let states_key = |statement: &Statement| statement.equality("_id").is_some();
    fails && step.upserts() && outcome.stored.len() == count && !step.statements().iter().any(states_key)
}

/// A change by a transaction that is open, was aborted, or could not be committed.
fn uncommitted_change(outcome: &Outcome) -> Option<Finding> {
    let before = outcome.uncommitted.as_ref()?;
    let changed = differs(&[], before, &outcome.visible);
    changed.then(|| Finding::new("broken", "", "a transaction that is not committed has changed something"))
}

/// A retryable write that is sent again is not executed again, and has the same reply, unless this differs directly too:
/// the server executes a statement again that failed or changed nothing.
fn changed_by_retry(rules: &[Rule], step: &Step, outcome: &Outcome) -> Option<Finding> {
    let again = outcome.again.as_ref()?;
    // A statement that a rule rejected is evaluated again, after the others of its batch.
    let is_rejected = |reply: &Document| !rejections(reply).is_empty();
    let count = step.statements().len();
    // So is one that matched nothing, for instance because docward does not let it insert.
    let has_idle = |reply: &Document| reply.get_i32("n").is_ok_and(|n| usize::try_from(n).is_ok_and(|n| n < count));
    let is_again = |reply: &Document| is_rejected(reply) || has_idle(reply);
    if count > 1 && outcome.through.reply.as_ref().is_some_and(is_again) {
        return None;
    }
    // A rejected statement can have used a number, so that its evaluation has another one.
    if rules.iter().any(|rule| rule.counter()) && outcome.through.reply.as_ref().is_some_and(is_rejected) {
        return None;
    }
    let repeats_directly = without_times(outcome.direct.reply.as_ref()) == without_times(again.direct.as_ref())
        && !differs(&[], &outcome.directly_stored, &again.directly_stored);
    if !repeats_directly {
        return None;
    }
    if differs(&[], &outcome.stored, &again.stored) {
        return Some(Finding::new("broken", "", "a retry has changed something"));
    }
    let loses_reply = |reply: &Document| {
        let reasons: Vec<String> = rejections(reply).into_iter().map(|rejection| rejection.reason).collect();
        excuses::loses_reply(rules, step, &codes(&errors(reply)), &reasons)
    };
    if again.through.as_ref().is_some_and(loses_reply) {
        return None;
    }
    let (mut first, mut second) = (outcome.through.reply.clone(), again.through.clone());
    if let (Some(first), Some(second)) = (&mut first, &mut second)
        && excuses::forgets_modified(rules, step, first, second)
    {
        first.remove("nModified");
        second.remove("nModified");
    }
    let (first, second) = (without_times(first.as_ref()), without_times(second.as_ref()));
    let what = || format!("the reply to a retry {{is {second} instead of {first}}}");
    (first != second).then(|| Finding::new("differs", "", what()))
}

/// Everything that is wrong with one step.
pub(super) fn findings(
    rules: &[Rule],
    step: &Step,
    outcome: &Outcome,
    both_sides: &mut BothSides,
    collection: &str,
) -> Vec<Finding> {
    let statements = step.statements();
    let reply = outcome.through.reply.as_ref();
    let broken = rules.iter().filter_map(|rule| {
        // What docward does not count for `limits` may not grow, and counts where it is removed.
        let before = match rule.name() {
            "limits" => outcome.before.clone(),
            _ => seen_by(rule, rules, &outcome.before),
        };
        let after = seen_by(rule, rules, &outcome.stored);
        let through = Change { before: &before, after: &after, statements: &statements, reply };
        // docward reads a node's parent after such an upsert, and its pipeline stores times for what the server has inserted.
        let is_read = matches!(rule.name(), "tree" | "timestamps" | "copies");
        let later = || {
            // What the server has inserted is compared.
            let is_read = is_read || excuses::is_checked(rule);
            let after = later::stored_later(&through).filter(|_| step.upserts() && !is_read)?;
            let broken = rule.broken(&Change { after: &after, ..through })?;
            Some(format!("on a later server, {broken}"))
        };
        Some(Finding::new("broken", rule.name(), rule.broken(&through).or_else(later)?))
    });
    let mut found: Vec<Finding> =
        broken.chain(uncommitted_change(outcome)).chain(changed_by_retry(rules, step, outcome)).collect();
    if let Some(writes) = outcome.writes.filter(|writes| *writes > most_writes(rules)) {
        found.push(Finding::new("repeated", "", format!("the server has executed {writes} writes")));
    }
    if outcome.through.took > SLOW && outcome.direct.took < SLOW / 4 {
        found.push(Finding::new("slow", "", format!("it takes longer than {} s", SLOW.as_secs())));
    }
    let (Some(reply), Some(direct_reply)) = (&outcome.through.reply, &outcome.direct.reply) else {
        if outcome.through.reply.is_none() && outcome.direct.reply.is_some() {
            found.push(Finding::new("closed", "", "docward closed the connection"));
        }
        return found;
    };
    if !found.is_empty() {
        return found;
    }
    let rejections = rejections(reply);
    let errors = (errors(reply), errors(direct_reply));
    if let ([statement], []) = (&statements[..], &errors.1[..]) {
        count_harmless(rules, statement, outcome, rejections.first());
    }
    if !rejections.is_empty() {
        let rejected: Vec<usize> = rejections.iter().filter_map(|one| usize::try_from(one.index).ok()).collect();
        let first = rejections[0].pattern.clone();
        let is_documented = |rejection: &Rejection| {
            let statement = usize::try_from(rejection.index).ok().and_then(|index| statements.get(index));
            statement.is_some_and(|statement| allowed::rejects(rules, statement, &rejection.pattern, &rejection.reason))
        };
        let unknown: Vec<Rejection> = rejections.into_iter().filter(|r| !is_documented(r)).collect();
        let needless = unknown.first().filter(|first| {
            rejected_without_need(rules, step, &rejected, first.index, outcome, both_sides, collection)
        });
        if let Some(needless) = needless {
            return vec![needless.finding()];
        }
        return remaining(rules, step, &rejected, &first, outcome, both_sides, collection);
    }
    if errors.1.is_empty() && outcome_inserts(rules, outcome, &statements) {
        found.push(Finding::new("differs", &names(rules), "it inserted beside a document that it matches"));
        return found;
    }
    let has_effect = matches!(&statements[..], [statement] if !statement.multi)
        && outcome.before.len() < 2
        && differs(rules, &outcome.before, &outcome.stored);
    let both = excuses::Errors { rules, statements: &statements, before: &outcome.before, has_effect };
    if errors.0 != errors.1 && !both.may_differ(&errors.0, &errors.1) {
        // An earlier statement of a batch may have incremented the version.
        let harmless = errors.1.is_empty() && is_harmless(rules, step, outcome, both_sides, collection);
        let is_expected = both.may_follow(&errors.0, &errors.1);
        let is_single = statements.len() == 1;
        let differs = harmless && is_single || !is_expected && (harmless || is_single);
        let mut is_excluded =
            || both.may_exclude() && fails_so_on_fewer(step, outcome, &errors.0, both_sides, collection);
        if differs && !is_excluded() {
            found.push(Finding::new(
                "errors differ",
                &names(rules),
                format!("through docward {:?}, directly {:?}", codes(&errors.0), codes(&errors.1)),
            ));
            return found;
        }
    }
    // Of a statement that fails on one of many documents, those of the other commands may be changed or not.
    let fails_midway = !errors.0.is_empty() && statements.iter().any(|statement| statement.multi);
    let may_split = fails_midway || step.session.in_transaction();
    let is_split = may_split && rules.iter().any(|rule| rule.splits(&outcome.before));
    // A statement that fails on one of many documents leaves the others unchanged in docward's own transaction.
    let is_atomic = fails_midway && rules.iter().any(excuses::has_transactions);
    if !is_split && !is_atomic && errors.0 == errors.1 && is_harmless(rules, step, outcome, both_sides, collection) {
        let difference = difference(rules, step, outcome, reply, direct_reply);
        found.extend(difference.map(|what| Finding::new("differs", &names(rules), what)));
    }
    found
}

/// Statements that directly keep every rule, and those of them that docward rejects, by the pattern and the documented reason
/// of the rejection. A pattern may reject them by its definition, such as a blind replacement or a write without its time.
pub(super) static HARMLESS: Mutex<BTreeMap<String, u32>> = Mutex::new(BTreeMap::new());
pub(super) const ALL_HARMLESS: &str = "all";

fn count_harmless(rules: &[Rule], statement: &Statement, outcome: &Outcome, rejection: Option<&Rejection>) {
    let statements = std::slice::from_ref(statement);
    let reply = outcome.direct.reply.as_ref();
    let direct = Change { before: &outcome.before, after: &outcome.directly_stored, statements, reply };
    if statement.kind == Kind::Update && rules.iter().all(|rule| rule.broken(&direct).is_none()) {
        let mut counts = HARMLESS.lock().unwrap();
        let cause = |one: &Rejection| format!("{}: {}", one.pattern, allowed::documented_as(&one.pattern, &one.reason));
        let rejected = rejection.map(cause);
        rejected.into_iter().chain([ALL_HARMLESS.to_owned()]).for_each(|key| *counts.entry(key).or_default() += 1);
    }
}

/// Whether the command fails in this way directly if its filters do not match some of the documents. No document is
/// inserted: docward does not insert beside a document that does not meet its condition.
fn fails_so_on_fewer(
    step: &Step,
    outcome: &Outcome,
    through: &[(i32, i32)],
    both_sides: &mut BothSides,
    collection: &str,
) -> bool {
    let documents = &outcome.before;
    let step = step.without_upsert();
    (0..(1_u32 << documents.len()) - 1).any(|kept| {
        let is_kept = |(index, _): &(usize, &Document)| kept & (1 << index) != 0;
        let ids = documents.iter().enumerate().filter(is_kept).filter_map(|(_, one)| one.get("_id")).cloned();
        let fewer = step.with_condition(&doc! { "_id": { "$in": ids.collect::<Vec<_>>() } });
        let (answer, _) = both_sides.directly(collection, documents, &fewer);
        answer.reply.is_some_and(|reply| errors(&reply) == through)
    })
}

/// Whether docward sets fields of the rule after a checked statement.
pub(super) fn settles(rule: &Rule) -> bool {
    matches!(rule.name(), "bucket" | "replacement" | "queue" | "sequence")
}

/// The writes that a statement may need that fails on a duplicate key.
fn most_writes(rules: &[Rule]) -> i64 {
    let most = if rules.iter().any(settles) { MOST_WRITES_OF_SETTLED } else { MOST_WRITES };
    let has_tree = rules.iter().any(|rule| rule.name() == "tree");
    if has_tree { most * WRITES_OF_TREE } else { most }
}

/// What is wrong with the other statements of a command of which these are rejected: the command without the rejected
/// statements must have the direct effect.
fn remaining(
    rules: &[Rule],
    step: &Step,
    rejected: &[usize],
    pattern: &str,
    outcome: &Outcome,
    both_sides: &mut BothSides,
    collection: &str,
) -> Vec<Finding> {
    let kept = step.remaining(rejected);
    // The rejection aborts the transaction.
    if kept.is_empty() || step.session.in_transaction() {
        let changed = differs(&[], &outcome.before, &outcome.stored);
        let what = "a rejected statement has changed something";
        return changed.then(|| Finding::new("broken", pattern, what)).into_iter().collect();
    }
    let others = step.only(&kept);
    let (direct, directly_stored) = both_sides.directly(collection, &outcome.before, &others);
    let reply = outcome.through.reply.as_ref().map(|reply| without_rejections(reply, &kept));
    let through = Answer { reply, ..outcome.through.clone() };
    let outcome = Outcome { direct, directly_stored, through, again: None, ..outcome.clone() };
    findings(rules, &others, &outcome, both_sides, collection)
}

/// The documents from one rule's point of view: fields that other patterns write are not protected fields of
/// `timestamps`, and a tree's path changes with the ancestors, whatever other rules do to the document.
fn seen_by(rule: &Rule, rules: &[Rule], documents: &[Document]) -> Vec<Document> {
    let mut seen = documents.to_vec();
    let is_kept = |other: &&Rule| rule.name() == "timestamps" || other.name() == "tree";
    let others = rules.iter().filter(|other| other.name() != rule.name()).filter(is_kept);
    for other in others {
        seen.iter_mut().for_each(|document| match other {
            // A replacement erases the document around the path.
            Rule::Tree(tree) if rule.name() == "replacement" => drop(take(document, tree.path())),
            other => other.strip(document),
        });
    }
    if rule.name() == "timestamps" {
        let deciding: Vec<String> = rules.iter().flat_map(|other| other.deciding()).collect();
        seen.iter_mut().for_each(|document| deciding.iter().for_each(|field| patterns::clear(document, field)));
    }
    // docward takes the parent from a path that a client writes.
    if rule.name() == "timestamps" && rules.iter().any(|other| other.name() == "tree") {
        let parents = ["parent", "node.parent"];
        seen.iter_mut().for_each(|document| parents.iter().for_each(|parent| drop(take(document, parent))));
    }
    seen
}

fn names(rules: &[Rule]) -> String {
    let mut names: Vec<&str> = rules.iter().map(|rule| rule.name()).collect();
    names.sort_unstable();
    names.dedup();
    names.join(" + ")
}

/// An upsert that matches a document does not insert another one, unless a bucket is full.
fn outcome_inserts(rules: &[Rule], outcome: &Outcome, statements: &[Statement]) -> bool {
    let inserts = |after: &[Document]| after.len() > outcome.before.len();
    let is_update = statements.len() == 1 && statements[0].kind == Kind::Update;
    let opens = rules.iter().any(|rule| rule.name() == "bucket");
    is_update && !opens && inserts(&outcome.stored) && !inserts(&outcome.directly_stored)
}

/// Whether docward itself writes the field.
fn is_added(rule: &Rule, field: &str) -> bool {
    let mut document = doc! {};
    put(&mut document, field, Bson::Int32(1));
    rule.strip(&mut document);
    at(&document, field).is_none()
}

fn keeps(rules: &[Rule], step: &Step, before: &[Document], after: &[Document]) -> bool {
    let statements = step.statements();
    let change = Change { before, after, statements: &statements, reply: None };
    rules.iter().all(|rule| rule.harmless(&change))
}

/// Whether the statement at `index` was rejected although, sent directly, it changes something and keeps every
/// promise. A statement that changes nothing does not show what it would do to other documents. Earlier statements
/// that docward rejected too, rightly, have no effect.
fn rejected_without_need(
    rules: &[Rule],
    step: &Step,
    rejected: &[usize],
    index: i32,
    outcome: &Outcome,
    both_sides: &mut BothSides,
    collection: &str,
) -> bool {
    let index = usize::try_from(index).unwrap_or(0);
    let mut before = outcome.before.clone();
    let executed: Vec<usize> = (0..=index).filter(|at| *at == index || !rejected.contains(at)).collect();
    for &at in &executed {
        let single = step.only(&[at]);
        let (answer, after) = both_sides.directly(collection, &before, &single);
        let failed = answer.reply.is_none_or(|reply| !errors(&reply).is_empty());
        if failed && at < index && !step.ordered() {
            continue;
        }
        // After an earlier statement that docward may change, the documents may differ.
        if failed || !keeps(rules, &single, &before, &after) {
            return false;
        }
        if at == index {
            // An upsert that matched a document could have inserted one.
            let is_visible = !single.upserts() || after.len() > before.len();
            // What docward adds to the earlier statements may change the effect of this one.
            return is_visible
                && differs(&[], &before, &after)
                && keeps(rules, &step.only(&executed), &outcome.before, &after);
        }
        before = after;
    }
    false
}

/// Whether the same command without docward keeps every promise after each of its statements.
fn is_harmless(rules: &[Rule], step: &Step, outcome: &Outcome, both_sides: &mut BothSides, collection: &str) -> bool {
    let count = step.statements().len();
    if count < 2 {
        return keeps(rules, step, &outcome.before, &outcome.directly_stored);
    }
    // A later statement may match another document because of what docward has added to one.
    let statements = step.statements();
    let queries_added = |rule: &Rule| {
        let added = rule.fields().into_iter().filter(|field| is_added(rule, field));
        added.into_iter().any(|field| statements.iter().skip(1).any(|statement| statement.queries(&field)))
    };
    if rules.iter().any(queries_added) {
        return false;
    }
    let mut before = outcome.before.clone();
    let together = keeps(rules, step, &outcome.before, &outcome.directly_stored);
    together
        && (0..count).all(|index| {
            let mut single = step.only(&[index]);
            single.session = Session::None;
            let (_, after) = both_sides.directly(collection, &before, &single);
            let kept = keeps(rules, &single, &before, &after);
            before = after;
            kept
        })
}
