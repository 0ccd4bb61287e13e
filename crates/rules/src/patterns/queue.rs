//! `queue`: uses a collection as a job queue with a lease.
//!
//! A worker takes a job and stalls past its lease. A second worker takes the job over, and then the first one completes
//! it: the job is done twice. Each claim increments the attempts. Every later statement on the job must name the
//! attempt of its claim (a fencing token), so the first worker's completion matches nothing.
//!
//! claim: `findOneAndUpdate({kind: "mail", locked: false}, {$set: {locked: true, by: "w1"}})` becomes
//! `findOneAndUpdate({kind: "mail", $or: [{locked: {$in: [false, null, 0]}}, {$expr: LEASE_OVER}]},
//! {$set: {locked: true, by: "w1"}, $currentDate: {tlocked: true}, $inc: {try: 1}})`; LEASE_OVER compares `tlocked`
//! with the server's clock (`lock.rs`).

mod attempts;
mod claim;
mod lock;

use std::cmp::Ordering;

use bson::{Bson, doc};
use smallvec::SmallVec;

use super::collation::contains_text;
use super::field_path::FieldPath;
use super::number::{Bound, sign};
use super::on_insert::with_set_on_insert;
use super::plain::{self, NotPlain, PlainWrite};
use super::promise::{BeforeAndAfter, shown};
use super::stored_data::{DataCheck, all, any, is_absent, not};
use super::stored_state::of_one;
use super::{
    Applicability, Broken, Context, Facts, FieldContent, NoEffect, NoEffectCause, NoEffectKind, Pattern, Procedures,
    Properties, Rejection, Requirement, RuleView, Settled, StateCondition, Unmatched, Verdict, WeakerSetting,
    applicability_for_content,
};
use crate::command::{Conditions, Insert, Modification, Namespace, Operation, Statement, StatementKind, Update};
use crate::config::keys::{
    self, Constraint, Declaration, DeclaredScalar, Keys, Mapping, Setting, TEXT, Text, TextOrList, WholeNumber,
};
use crate::config::{Code, MapReader, Node, ReadContext};
use crate::document::{CowDocument, Document, Kind, OwnedValue, Path, PathLookup, Value, Writer, edit};
use crate::effect::{Change, WrittenBy, change, equality, is_equal, touched};
use crate::shell::value_text;
use lock::LockValues;

/// Settings of the pattern.
#[derive(Debug, Clone)]
pub struct Queue {
    locked: Path,
    /// What the values of `locked` mean.
    values: LockValues,
    /// Holds the time of the claim.
    locked_at: Path,
    /// Holds the number of claims: the fencing token.
    attempts: Path,
    max_attempts: Option<i64>,
    /// What the filter of a claim requires of the job.
    claimable: Conditions<'static>,
}

const LOCKED: Setting<FieldPath> = Setting::with_default(
    "locked",
    FieldPath,
    DeclaredScalar::Text("locked"),
    "Whether a worker has the job. A top-level field.",
);
const LOCKED_AT: Setting<FieldPath> = Setting::with_default(
    "locked_at",
    FieldPath,
    DeclaredScalar::Text("tlocked"),
    "The time of the claim. A top-level field.",
);
const ATTEMPTS: Setting<FieldPath> = Setting::with_default(
    "attempts",
    FieldPath,
    DeclaredScalar::Text("try"),
    "The number of claims: the fencing token. A top-level field.",
);
const FIELDS: Setting<Mapping> = Setting::optional(
    "fields",
    Mapping(&Keys::new("", &[&LOCKED, &LOCKED_AT, &ATTEMPTS])),
    "The names of the fields that hold the lease.",
);
const LEASE: Setting<keys::Duration> =
    Setting::required("lease", keys::Duration, "How long a claim lasts.").examples(&["5m"]);
const MAX_ATTEMPTS: Setting<WholeNumber> = Setting::optional(
    "max_attempts",
    WholeNumber(1..=i32::MAX as i64),
    "The number of claims after which a job is not claimed again.",
);
const FREE: Setting<TextOrList<Text>> = Setting::optional(
    "free",
    TextOrList(TEXT),
    "If `locked` is a word: the values that mean free, the first of which new jobs get. Values that are neither free nor \
     claimed, such as DONE, are never claimed.",
);
const CLAIMED: Setting<TextOrList<Text>> =
    Setting::optional("claimed", TextOrList(TEXT), "If `locked` is a word: the values that mean claimed.");
const KEYS: Keys = Keys::new(
    "A collection that is used as a job queue, with a lease.",
    &[&FIELDS, &LEASE, &MAX_ATTEMPTS, &FREE, &CLAIMED],
)
.constrained(&[
    Constraint::Needs { key: "free", other: "claimed" },
    Constraint::Needs { key: "claimed", other: "free" },
]);

const NO_JOB: NoEffect = NoEffect::no_match("it matched nothing: no job is free");
const LOST_CLAIM: NoEffect =
    NoEffect::no_match("it matched nothing: another worker has claimed the job since, or there is no such job");

impl Pattern for Queue {
    fn declaration() -> Declaration {
        Declaration::mapping(&KEYS)
    }

    fn read(settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
        context.mapping(settings, &KEYS, Self::read_keys)
    }

    fn properties(&self) -> Properties {
        let endless = WeakerSetting { what: "never gives up a job, however often it fails", setting: "max_attempts" };
        let fields = [&self.locked, &self.locked_at, &self.attempts];
        Properties {
            rewriting: "maintains the lease fields, and limits a claim to free jobs",
            no_effect_causes: &[NoEffectCause::Effect(NoEffectKind::NoMatch)],
            exclusive: true,
            weaker_settings: if self.max_attempts.is_none() { vec![endless] } else { Vec::new() },
            own_fields: fields.into_iter().cloned().collect(),
            deciding_fields: fields.into_iter().cloned().collect(),
            procedures: Procedures::All,
            checked_fields: vec![self.locked.clone()],
            requirements: vec![Requirement::ServerTime, Requirement::Operator("$toLong")],
            incremented_field: Some(self.attempts.clone()),
            needed_number: Some((self.attempts.clone(), self.max_attempts.unwrap_or(1))),
            contents: vec![(self.attempts.clone(), FieldContent::Number)],
            ..Properties::default()
        }
    }

    fn conflict_with(&self, other: RuleView<'_>, _: Namespace<'_>) -> Option<&'static str> {
        if other.properties.may_keep_replaced {
            return Some("a late replacement leaves the job as it is, so docward rejects claims by replacement");
        }
        other.properties.cascades.then_some("the delete of a node also deletes jobs below it that other workers have")
    }

    fn data_checks(&self, _: Namespace<'_>) -> Vec<DataCheck> {
        let Self { locked, locked_at, attempts, .. } = self;
        let is_claimed = self.values.is_claimed_expression(locked);
        let locked_at_time = || lock::milliseconds(locked_at);
        let claimable = "their lease counts as over, so another worker can claim them at once";
        let without_attempts = DataCheck::each(
            format!("without `{attempts}`"),
            "a worker that sends the number of its claim does not match them",
            is_absent(attempts),
        );
        let uncountable = DataCheck::each(
            format!("whose `{attempts}` is not a number that a claim can count"),
            "no claim matches them",
            not(any(vec![is_absent(attempts), attempts::countable(attempts)])),
        );
        let without_time = DataCheck::each(
            format!("with a lock and without `{locked_at}`"),
            claimable,
            all(vec![is_claimed.clone(), is_absent(locked_at)]),
        );
        let without_valid_time = DataCheck::each(
            format!("with a lock whose `{locked_at}` is not a time"),
            claimable,
            all(vec![is_claimed.clone(), doc! {"$eq": [locked_at_time(), Bson::Null]}.into()]),
        );
        let mut checks = without_attempts.set(format!("`{attempts}: 0`"), attempts, 0);
        checks.extend(uncountable.set(format!("`{attempts}` to 0 where no claim can count it"), attempts, 0));
        let now = |why| format!("`{locked_at}` {why} to the current time, so that the lease begins");
        checks.extend(without_time.set(now("that is missing"), locked_at, "$$NOW"));
        checks.extend(without_valid_time.set(now("that is not a time"), locked_at, "$$NOW"));
        checks.push(DataCheck::each(
            format!("with a lock whose `{locked_at}` is in the future"),
            "no worker can claim them before that time and the lease are over",
            all(vec![is_claimed, doc! {"$gt": [locked_at_time(), {"$toLong": "$$NOW"}]}.into()]),
        ));
        checks
    }

    fn stored_state(&self) -> Vec<StateCondition> {
        let Self { locked, attempts, .. } = self;
        let countable = doc! {"anyOf": [{"bsonType": ["null", "undefined"]}, attempts::storable()]};
        vec![
            StateCondition::schema(
                format!("`{locked}` is not an array"),
                &[locked],
                of_one(locked, doc! {"not": {"bsonType": "array"}}),
            ),
            StateCondition::schema(
                format!("`{attempts}` is missing, null or a number that a claim can count"),
                &[attempts],
                of_one(attempts, countable),
            ),
        ]
    }

    fn applicability(&self, kind: StatementKind, _: Namespace<'_>) -> Applicability {
        match kind {
            StatementKind::Delete => Applicability::Each,
            _ => applicability_for_content(kind),
        }
    }

    fn evaluate<'a>(&self, statement: &Statement<'a>, context: &Context<'_>) -> Verdict<'a> {
        self.verdict_on(statement, context.now).unwrap_or_else(Verdict::Reject)
    }

    fn check_final(&self, statement: &Statement<'_>) -> Result<(), Rejection> {
        match self.verdict_on(statement, 0)? {
            Verdict::Reject(rejection) | Verdict::Check(rejection) => Err(rejection),
            Verdict::Rewrite(_) => Err(Rejection::new(
                "a job would be locked, or inserted, without its lease",
                "Send it as a separate statement.",
            )),
            _ => Ok(()),
        }
    }

    /// A new job has all fields of the lease, and a free one that is locked has its attempts incremented and its claim timed.
    fn settle(&self, before: Option<Document<'_>>, after: Document<'_>, _: &Facts<'_, '_>) -> Vec<Settled> {
        match before {
            None => {
                let lacking =
                    self.new_fields(0).into_iter().filter(|(field, _)| field.lookup(after) == PathLookup::Missing);
                let settled = |(field, value): (&Path, OwnedValue)| match *field == self.locked_at {
                    true => Settled::server_time(field),
                    false => Settled::value(field, value),
                };
                lacking.map(settled).collect()
            }
            Some(before) if self.is_claimed_by(before, after) => {
                let is_right = self.held(after, &self.attempts).is_none_or(attempts::may_be_stored);
                let next = is_right.then(|| attempts::next(self.held(before, &self.attempts))).flatten();
                let claimed = |next| vec![Settled::value(&self.attempts, next), Settled::server_time(&self.locked_at)];
                next.map_or(Vec::new(), claimed)
            }
            Some(_) => Vec::new(),
        }
    }

    fn promise(&self, (before, after): BeforeAndAfter<'_>, facts: &Facts<'_, '_>) -> Result<(), Broken> {
        let attempts = |job| self.held(job, &self.attempts);
        let Some(before) = before else {
            let Some(inserted) = after else { return Ok(()) };
            attempts(inserted).map_or(Ok(()), |number| self.check_number(number))?;
            return Ok(self.check_lock(inserted)?);
        };
        let was_claimed = self.is_locked(before) || attempts(before).and_then(sign) == Some(Ordering::Greater);
        if was_claimed && !facts.statement().is_insert() {
            self.check_fence(Target::new(facts.statement()))?;
        }
        let Some(after) = after else { return Ok(()) };
        if self.held(before, &self.locked) != self.held(after, &self.locked) {
            self.check_lock(after)?;
        }
        if self.is_claimed_by(before, after)
            && let Some(ended) = self.held(before, &self.locked).filter(|value| !self.values.is_free(*value))
        {
            let reason =
                format!("it would claim a job whose '{}' is {}, which is not free", self.locked, shown(&[ended]));
            return Err(Rejection::new(reason, format!("Set it to {} first.", text_of(&self.values.free()))).into());
        }
        let (old, new) = (attempts(before), attempts(after));
        if let Some(number) = new.filter(|number| old != new && !attempts::may_be_stored(*number)) {
            self.check_number(number)?;
        }
        match (self.is_claimed_by(before, after), old) {
            (true, Some(number)) => {
                self.check_number(number)?;
                if attempts::next(old).is_none() {
                    let reason = format!("it would claim a job whose '{}' is {}", self.attempts, shown(&[number]));
                    return Err(Rejection::new(reason, "Claim it with $set and nothing else.").into());
                }
                if self.max_attempts.is_some_and(|most| Bound::Integer(most).compare(number) != Some(Ordering::Less)) {
                    let reason = format!("it would claim a job with '{}' {}", self.attempts, shown(&[number]));
                    return Err(Rejection::new(reason, "No worker claims it again.").into());
                }
                Ok(())
            }
            (true, None) => Ok(()),
            (false, _) if old.is_some() && !old.zip(new).is_some_and(|(old, new)| is_equal(old, new)) => {
                let values = [old, new].map(|number| shown(number.as_slice()));
                let reason = format!("'{}' would go from {} to {}", self.attempts, values[0], values[1]);
                Err(Rejection::new(reason, "Only a claim increments it. Leave it as it is.").into())
            }
            (false, _) if self.is_locked(after) && self.held(after, &self.locked_at).is_none() => {
                let had_time = self.held(before, &self.locked_at).is_some();
                if had_time { Err(self.without_time().into()) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    /// Rejects a save that keeps the lock if the stored job is free.
    fn unmatched(&self, _: &Statement<'_>, stored: Option<Document<'_>>) -> Unmatched {
        let Some(stored) = stored else { return Unmatched::Nothing };
        match self.locked.lookup(stored) {
            PathLookup::Found(value) if self.values.is_claimed(value) => Unmatched::Nothing,
            _ => Unmatched::Reject(Rejection::new(
                format!(
                    "it locks a job that is not claimed without incrementing '{}', so another worker could lock it too",
                    self.attempts
                ),
                format!("Claim it with updateOne and $set: {{{}}}.", self.setting(&self.values.claimed())),
            )),
        }
    }
}

/// The jobs that a statement changes.
#[derive(Debug, Clone, Copy)]
struct Target<'s> {
    filter: Document<'s>,
    multi: bool,
    /// Whether the statement has a collation.
    folds: bool,
}

impl<'s> Target<'s> {
    fn new(statement: &'s Statement<'_>) -> Self {
        let folds = statement.option("collation").is_some();
        Self { filter: statement.filter(), multi: statement.is_multi(), folds }
    }
}

/// The effect of a statement on a job's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lock<'s> {
    Kept,
    /// No worker has the job afterwards.
    Freed,
    Taken,
    Unclear(WrittenBy<'s>),
}

/// The effect of a statement on a job's attempt number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttemptChange {
    Untouched,
    /// It is set to the number in the filter.
    Same,
    /// It is set to one more than the number in the filter.
    Next,
    Other,
}

/// Reads the names of the fields `locked`, `locked_at` and `attempts`; each is `None` if it is invalid.
fn read_fields(reader: &mut MapReader<'_, '_, '_>) -> (Option<Path>, Option<Path>, Option<Path>) {
    let mut names = reader.nested_or_empty(&FIELDS);
    let mut field = |setting: &Setting<FieldPath>| names.get(setting).map(|path| path.value);
    let read = (field(&LOCKED), field(&LOCKED_AT), field(&ATTEMPTS));
    names.finish();
    read
}

/// Reads the words of `free` and `claimed`; `None` if they are invalid.
fn read_values(reader: &mut MapReader<'_, '_, '_>) -> Option<LockValues> {
    let (span, keys) = (reader.span(), [&FREE, &CLAIMED]);
    let given = keys.map(|key| reader.has(key));
    let words = keys.map(|key| reader.get(key));
    let [free, claimed] = match (given, words) {
        ([false, false], _) => return Some(LockValues::Flag),
        ([true, true], [Some(free), Some(claimed)]) => [free, claimed],
        ([true, true], _) => return None,
        _ => {
            let message = "`free` and `claimed` belong together: the words of `locked` that mean free, and those that mean claimed";
            reader.context().error(Code::ConflictingSettings, span, message);
            return None;
        }
    };
    if let Some(both) = claimed.iter().find(|word| free.iter().any(|free| free.value == word.value)) {
        let message = format!("`{}` means free and claimed; a word means one of them", both.value);
        reader.context().error(Code::ConflictingSettings, both.span, message);
        return None;
    }
    let [free, claimed] = [free, claimed].map(|words| words.into_iter().map(|word| word.value).collect());
    Some(LockValues::Words { free, claimed })
}

impl Queue {
    fn read_keys(reader: &mut MapReader<'_, '_, '_>) -> Option<Self> {
        let (locked, locked_at, attempts) = read_fields(reader);
        let (lease, max_attempts) = (reader.get(&LEASE), reader.get(&MAX_ATTEMPTS));
        let values = read_values(reader);
        let span = reader.span();
        let (locked, locked_at, attempts) = (locked?, locked_at?, attempts?);
        let fields = [&locked, &locked_at, &attempts];
        let nested = fields.iter().find(|field| !field.is_top_level() || field.as_str() == "_id");
        if let Some(field) = nested {
            let message = format!("`{field}` must be a top-level field other than _id");
            reader.context().error(Code::InvalidValue, span, message);
            return None;
        }
        if locked == locked_at || locked == attempts || locked_at == attempts {
            let message = "`locked`, `locked_at` and `attempts` must be three fields";
            reader.context().error(Code::ConflictingSettings, span, message);
            return None;
        }
        let (lease, values, max_attempts) = (lease?.value, values?, max_attempts.map(|number| number.value));
        let claimable = claim::conditions((&values, &locked, &locked_at, lease), (&attempts, max_attempts));
        Some(Self { locked, values, locked_at, attempts, max_attempts, claimable })
    }

    /// Returns the verdict; `Forward` for a statement that this rule has already rewritten.
    fn verdict_on<'a>(&self, statement: &Statement<'a>, now: i64) -> Result<Verdict<'a>, Rejection> {
        match &statement.operation {
            Operation::Insert(insert) => {
                let filled = self.filled(insert.document.as_document(), now)?;
                let inserted = |document| Verdict::rewrite(Operation::Insert(Insert { document }));
                Ok(filled.map_or(Verdict::Forward, inserted))
            }
            Operation::Delete(_) => self.fenced(Target::new(statement)),
            Operation::Update(update) => self.update(statement, update, now),
        }
    }

    /// Returns a new job with its missing fields: unlocked, now, never claimed. `None` if no field is missing.
    fn filled<'a>(&self, document: Document<'_>, now: i64) -> Result<Option<CowDocument<'a>>, Rejection> {
        let is_null = match self.attempts.lookup(document) {
            PathLookup::Found(value) if value.kind == Kind::Null => true,
            PathLookup::Found(value) => self.check_number(value).map(|()| false)?,
            PathLookup::Missing | PathLookup::Blocked(_) => false,
        };
        self.check_lock(document)?;
        let lacks = |field: &Path| field.lookup(document) == PathLookup::Missing;
        if !is_null && ![&self.locked, &self.locked_at, &self.attempts].into_iter().any(lacks) {
            return Ok(None);
        }
        let zero = OwnedValue::int32(0);
        let started = is_null.then(|| CowDocument::from_writer(edit::set(document, &self.attempts, zero.as_value())));
        let base = started.as_ref().map_or(document, CowDocument::as_document);
        Ok(Some(CowDocument::from_writer(edit::append(base, |w| {
            let news = self.new_fields(now);
            news.iter().filter(|(field, _)| lacks(field)).for_each(|(field, value)| {
                w.value(field.as_str(), value.as_value());
            });
        }))))
    }

    fn array_as_lock(&self) -> Rejection {
        let hint = format!("Lock a job with one value, for example {}.", text_of(&self.values.claimed()));
        Rejection::new(format!("its '{}' is an array", self.locked), hint)
    }

    fn new_fields(&self, now: i64) -> [(&Path, OwnedValue); 3] {
        [
            (&self.locked, self.values.free()),
            (&self.locked_at, OwnedValue::date(now)),
            (&self.attempts, OwnedValue::int32(0)),
        ]
    }

    fn check_number(&self, attempts: Value<'_>) -> Result<(), Rejection> {
        if attempts::is_countable(attempts) {
            return Ok(());
        }
        Err(Rejection::new(
            format!("its '{}' is not a number that a claim can count", self.attempts),
            format!("Leave '{}' out, or send 0.", self.attempts),
        ))
    }

    fn update<'a>(&self, statement: &Statement<'a>, update: &Update<'a>, now: i64) -> Result<Verdict<'a>, Rejection> {
        let operation = &statement.operation;
        let filter = update.filter.as_document();
        let target = Target::new(statement);
        let meaning = update.modification.meaning();
        if matches!(meaning, Modification::ClientPipeline(_)) {
            return match plain::is_apart(update, [&self.locked, &self.locked_at, &self.attempts]) {
                true => self.fenced(target),
                false => Ok(Verdict::not_plain("it is a pipeline that may change the fields of the lease")),
            };
        }
        if let Modification::Operators(operators) = meaning
            && touched(operators.as_document()).all(|(operator, ..)| operator == b"$setOnInsert")
        {
            return Ok(match update.upsert {
                true => self.enqueue(update, operators.as_document(), now).unwrap_or_else(Verdict::not_plain),
                false => Verdict::Forward,
            });
        }
        if let (Modification::Replacement(document), true) = (meaning, update.upsert) {
            return self.first_save(update, document.as_document(), now);
        }
        match (self.lock(operation)?, self.attempt(operation, filter)) {
            (Lock::Unclear(written), _) => Ok(Verdict::not_plain(format!(
                "its {} of '{}' is neither a claim nor a release",
                text(written.operator),
                text(written.path)
            ))),
            (Lock::Taken, AttemptChange::Same) => self.save(operation, update, target),
            (Lock::Taken, attempt) => self.claim(operation, update, attempt, now),
            (Lock::Kept | Lock::Freed, AttemptChange::Untouched | AttemptChange::Same) => {
                if update.upsert {
                    Ok(upsert_of_a_job())
                } else {
                    self.fenced(target)
                }
            }
            (Lock::Kept | Lock::Freed, AttemptChange::Next | AttemptChange::Other) => {
                Err(self.changes_attempts(update))
            }
        }
    }

    fn lock<'s>(&'s self, operation: &'s Operation<'_>) -> Result<Lock<'s>, Rejection> {
        let by = |operator| Lock::Unclear(WrittenBy { operator, path: self.locked.as_str().as_bytes() });
        Ok(match change(operation, &self.locked) {
            Change::Untouched => Lock::Kept,
            Change::Removed => Lock::Freed,
            Change::Now if self.values.is_claimed(OwnedValue::date(0).as_value()) => Lock::Taken,
            Change::Now => Lock::Freed,
            // The server would compare with each element of an array.
            Change::Set(value) if value.kind == Kind::Array => {
                return Err(Rejection::new(
                    format!("it sets '{}' to an array", self.locked),
                    format!("Set '{}' to one value, for example {}.", self.locked, text_of(&self.values.claimed())),
                ));
            }
            Change::Set(value) if self.values.is_claimed(value) => Lock::Taken,
            Change::Set(_) => Lock::Freed,
            Change::Incremented(_) => by(b"$inc"),
            Change::Either(_) => by(b"$min or $max"),
            Change::Inside(written) | Change::Unclear(written) => Lock::Unclear(written),
        })
    }

    fn attempt(&self, operation: &Operation<'_>, filter: Document<'_>) -> AttemptChange {
        match (change(operation, &self.attempts), equality(filter, self.attempts.as_str())) {
            (Change::Untouched, _) => AttemptChange::Untouched,
            (Change::Set(value), Some(token)) if value == token || is_ahead(value, token, 0) => AttemptChange::Same,
            (Change::Set(value), Some(token)) if is_ahead(value, token, 1) => AttemptChange::Next,
            _ => AttemptChange::Other,
        }
    }

    /// Evaluates a replacement that may insert: it is allowed only as the first save of a new job.
    fn first_save<'a>(&self, update: &Update<'a>, document: Document<'_>, now: i64) -> Result<Verdict<'a>, Rejection> {
        let mut operation = Operation::Update(update.clone());
        if let (Operation::Update(update), Some(filled)) = (&mut operation, self.filled(document, now)?) {
            update.modification = Modification::Replacement(filled);
        }
        let stored = Rejection::new(
            "it replaces a stored job, and would insert it again if it was deleted",
            format!("Use updateOne, or replaceOne without upsert, with the job's '{}' in the filter.", self.attempts),
        );
        Ok(Verdict::insert_only(operation, stored))
    }

    fn changes_attempts(&self, update: &Update<'_>) -> Rejection {
        if matches!(update.modification.meaning(), Modification::Replacement(_)) {
            return Rejection::new(
                format!(
                    "it replaces a job without the '{}' of its claim in the filter and in the document",
                    self.attempts
                ),
                "Use updateOne with $set, and the attempt number in the filter.",
            );
        }
        Rejection::new(
            format!("it changes '{}', which only a claim may increment", self.attempts),
            format!("Leave '{}' as it is.", self.attempts),
        )
    }

    /// Evaluates an upsert that changes no stored job: adds the missing fields to the inserted document.
    fn enqueue<'a>(&self, update: &Update<'a>, operators: Document<'_>, now: i64) -> Result<Verdict<'a>, NotPlain> {
        let new_fields = self.new_fields(now);
        let mut lacking: SmallVec<[(&Path, Value<'_>); 3]> = SmallVec::new();
        for (field, value) in &new_fields {
            match plain::inserted(update, field)? {
                PlainWrite::Untouched => lacking.push((field, value.as_value())),
                PlainWrite::Set(value) if *field == &self.attempts && !attempts::is_countable(value) => {
                    return Err(format!("it sets '{field}' to a value that a claim cannot count"));
                }
                PlainWrite::Set(value) if value.kind != Kind::Array => {}
                _ => return Err(format!("as an upsert, it may insert another '{field}'")),
            }
        }
        if lacking.is_empty() {
            return Ok(Verdict::Forward);
        }
        let add = |w: &mut Writer<'_>| lacking.iter().for_each(|(field, value)| w.value(field.as_str(), *value));
        let modification = Modification::Operators(with_set_on_insert(operators, |_| true, add));
        Ok(Verdict::rewrite(Operation::Update(Update { modification, ..update.clone() })))
    }

    /// Returns the value of a field of a job, if it is there and not null.
    fn held<'d>(&self, job: Document<'d>, field: &Path) -> Option<Value<'d>> {
        match field.lookup(job) {
            PathLookup::Found(value) if !matches!(value.kind, Kind::Null | Kind::Undefined) => Some(value),
            _ => None,
        }
    }

    fn is_locked(&self, job: Document<'_>) -> bool {
        self.held(job, &self.locked).is_some_and(|lock| self.values.is_claimed(lock))
    }

    /// Whether a statement has locked a free job.
    fn is_claimed_by(&self, before: Document<'_>, after: Document<'_>) -> bool {
        !self.is_locked(before) && self.is_locked(after)
    }

    fn check_lock(&self, job: Document<'_>) -> Result<(), Rejection> {
        match self.held(job, &self.locked) {
            Some(lock) if lock.kind == Kind::Array => Err(self.array_as_lock()),
            _ => Ok(()),
        }
    }

    /// Returns the text of the lock with this value.
    fn setting(&self, value: &OwnedValue) -> String {
        format!("{}: {}", self.locked, text_of(value))
    }

    fn without_time(&self) -> Rejection {
        Rejection::new(
            format!("it keeps the lock but removes its time '{}'", self.locked_at),
            format!("Send '{}' as it was read, or set {}.", self.locked_at, self.setting(&self.values.free())),
        )
    }

    /// Forwards a statement whose filter shows that no other worker has the job.
    fn fenced<'a>(&self, target: Target<'_>) -> Result<Verdict<'a>, Rejection> {
        self.check_fence(target).map(|()| Verdict::ForwardConditional(LOST_CLAIM))
    }

    /// Checks that the filter names the job's attempt number or matches only free jobs.
    fn check_fence(&self, Target { filter, multi, folds }: Target<'_>) -> Result<(), Rejection> {
        if self.values.proves_unclaimed(filter, &self.locked, folds) {
            return Ok(());
        }
        let free = self.setting(&self.values.free());
        let token = equality(filter, self.attempts.as_str());
        if token.is_none_or(|token| matches!(token.kind, Kind::Null | Kind::Undefined)) {
            return Err(Rejection::new(
                format!("its filter has neither the job's '{}' nor {free}", self.attempts),
                format!("Add the '{}' that the claim returned to the filter.", self.attempts),
            ));
        }
        // Jobs of several workers can have the same number of attempts.
        if multi && !equality(filter, "_id").is_some_and(|id| !folds || !contains_text(id)) {
            return Err(Rejection::new(
                format!("it matches jobs of all workers with this '{}'", self.attempts),
                format!("Add the job's _id or {free} to the filter."),
            ));
        }
        Ok(())
    }
}

fn text_of(value: &OwnedValue) -> String {
    value_text(value.as_value())
}

fn upsert_of_a_job<'a>() -> Verdict<'a> {
    Verdict::not_plain("as an upsert, it may insert a job without its lock")
}

/// Returns whether two numbers of any types are integers, and `value` is `by` more than `than`.
fn is_ahead(value: Value<'_>, than: Value<'_>, by: i64) -> bool {
    let equals = |value: Value<'_>, number: i64| Bound::Integer(number).compare(value) == Some(Ordering::Equal);
    match (value.as_integer(), than.as_integer()) {
        (_, Some(than)) => than.checked_add(by).is_some_and(|number| equals(value, number)),
        (Some(value), None) => value.checked_sub(by).is_some_and(|number| equals(than, number)),
        (None, None) => by == 0 && value == than,
    }
}

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
