//! Statements that lock a job: claims, and saves of a job by the worker that holds it.

use std::time::Duration;

use super::super::number::Bound;
use super::super::{Rejection, Verdict};
use super::lock::LockValues;
use super::{AttemptChange, LOST_CLAIM, NO_JOB, Queue, Target, attempts, upsert_of_a_job};
use crate::command::{Conditions, Modification, Operation, Update};
use crate::document::{CowDocument, Document, Kind, OwnedValue, Path, Value, Writer, edit};
use crate::effect::{Change, PathOverlap, change, touch, touched};
use crate::patterns::plain::NotPlain;

/// The first plausible time of a lease, in milliseconds since 1970. A smaller number is a time in seconds.
const FIRST_MILLISECONDS: i64 = 100_000_000_000;

/// Returns what the filter of a claim requires: a job that is free, or whose lease is over, and whose attempts can be incremented.
pub(super) fn conditions(
    (values, locked, locked_at, lease): (&LockValues, &Path, &Path, Duration),
    (attempts, max_attempts): (&Path, Option<i64>),
) -> Conditions<'static> {
    let free = CowDocument::build(|w| values.write_free_or_over(w, locked, locked_at, lease));
    let countable = CowDocument::build(|w| attempts::write_countable(w, attempts, max_attempts));
    [free, countable].into_iter().collect()
}

impl Queue {
    /// Rewrites a claim: it matches a free job, sets the time and increments the attempts.
    pub(super) fn claim<'a>(
        &self,
        operation: &Operation<'a>,
        update: &Update<'a>,
        attempt: AttemptChange,
        now: i64,
    ) -> Result<Verdict<'a>, Rejection> {
        if update.multi {
            return Ok(Verdict::not_plain("it claims several jobs at once"));
        }
        if update.upsert {
            return Ok(Verdict::not_plain("as an upsert, it may insert a job that is already claimed"));
        }
        if update.modification.may_keep() && matches!(update.modification.meaning(), Modification::Replacement(_)) {
            return Err(Rejection::new(
                "a late replacement would leave the job as it is, and count as a claim",
                "Claim with updateOne or findOneAndUpdate, and $set.",
            ));
        }
        if self.is_claim(operation, update, attempt) {
            return Ok(Verdict::Forward);
        }
        let modification = match &update.modification {
            Modification::Operators(operators) => {
                let operators = operators.as_document();
                if let Some(part) = self.odd_claim_field(operators) {
                    return Ok(Verdict::not_plain(part));
                }
                let own_time = self.own_time(written_time(operators, self.locked_at.as_str()), now)?;
                Modification::Operators(CowDocument::build(|w| self.write_operators(w, operators, own_time)))
            }
            Modification::Replacement(document) if attempt == AttemptChange::Next => {
                let document = document.as_document();
                let time = self.own_time(document.get(self.locked_at.as_str()), now)?;
                let time = time.unwrap_or_else(|| OwnedValue::date(now));
                Modification::Replacement(CowDocument::from_writer(edit::set(
                    document,
                    &self.locked_at,
                    time.as_value(),
                )))
            }
            _ => return Err(self.changes_attempts(update)),
        };
        let filter = update.filter.as_document();
        let filter = CowDocument::build(|w| self.values.write_others(w, filter, &self.locked));
        let mut conditions = update.conditions.clone();
        conditions.extend(self.claimable.iter().cloned());
        let operation = Operation::Update(Update { filter, conditions, modification, ..update.clone() });
        Ok(Verdict::rewrite_with(operation, NO_JOB))
    }

    /// Returns whether it is a complete claim, as this rule writes it.
    fn is_claim(&self, operation: &Operation<'_>, update: &Update<'_>, attempt: AttemptChange) -> bool {
        let counts = match change(operation, &self.attempts) {
            Change::Incremented(amount) => amount.as_integer() == Some(1),
            _ => attempt == AttemptChange::Next,
        };
        let is_timed = matches!(change(operation, &self.locked_at), Change::Now | Change::Set(_));
        counts && is_timed && has_all(update, &self.claimable)
    }

    /// Returns the part of a claim that writes its fields in a way that this rule cannot replace: only the fields' own paths
    /// can be.
    fn odd_claim_field(&self, operators: Document<'_>) -> Option<NotPlain> {
        let is_odd = |field, path, operator: &[u8]| match touch(field, path) {
            PathOverlap::Apart => false,
            PathOverlap::Exact => operator == b"$rename",
            PathOverlap::Inside | PathOverlap::Around | PathOverlap::Positional => true,
        };
        let (operator, path, _) = touched(operators).find(|(operator, path, _)| {
            [&self.locked_at, &self.attempts].iter().any(|field| is_odd(field, path, operator))
        })?;
        Some(format!("its {} of '{}' changes the fields that a claim sets", super::text(operator), super::text(path)))
    }

    /// Writes the client's operators without its values for the claim's fields, then adds docward's.
    fn write_operators(&self, w: &mut Writer<'_>, operators: Document<'_>, own_time: Option<OwnedValue>) {
        let (truth, one) = (OwnedValue::boolean(true), OwnedValue::int32(1));
        let time = match &own_time {
            Some(time) => ("$set", self.locked_at.as_str(), time),
            None => ("$currentDate", self.locked_at.as_str(), &truth),
        };
        let ours = [time, ("$inc", self.attempts.as_str(), &one)];
        let is_own = |path: &[u8]| ours.iter().any(|(_, field, _)| field.as_bytes() == path);
        let mut write = |name: &[u8], fields: Document<'_>| {
            let kept = || fields.elements().filter(|field| !is_own(field.key));
            let added = || ours.iter().filter(|(operator, ..)| operator.as_bytes() == name);
            if kept().next().is_some() || added().next().is_some() {
                w.nested(name, |w| {
                    kept().for_each(|field| w.element(field));
                    added().for_each(|(_, field, value)| w.value(field, value.as_value()));
                });
            }
        };
        for operator in operators.elements() {
            write(operator.key, operator.value.as_document().unwrap_or(Document::EMPTY));
        }
        for (name, ..) in ours.iter().filter(|(name, ..)| operators.get(name).is_none()) {
            write(name.as_bytes(), Document::EMPTY);
        }
    }

    /// Returns the time for a claim that sets it as a number, from docward's clock: applications may compare numbers.
    /// `None` for the server's date.
    fn own_time(&self, written: Option<Value<'_>>, now: i64) -> Result<Option<OwnedValue>, Rejection> {
        let Some(written) = written else { return Ok(None) };
        let is_number = matches!(written.kind, Kind::Int32 | Kind::Int64 | Kind::Double | Kind::Decimal128);
        let is_time = Bound::Integer(FIRST_MILLISECONDS).compare(written).is_some_and(std::cmp::Ordering::is_ge);
        match written.kind {
            Kind::DateTime | Kind::Timestamp | Kind::Null | Kind::Undefined => Ok(None),
            Kind::Double if is_time => Ok(Some(OwnedValue::double(now as f64))),
            _ if is_number && is_time => Ok(Some(OwnedValue::int64(now))),
            _ => Err(Rejection::new(
                format!("it sets '{}' to a value that is neither a date nor milliseconds since 1970", self.locked_at),
                format!("Leave '{}' out; docward sets it.", self.locked_at),
            )),
        }
    }

    /// Evaluates a save of the whole job with its lock and its attempt number. Only the worker that holds the job sends
    /// one: two workers that lock a free job without incrementing could not be distinguished.
    pub(super) fn save<'a>(
        &self,
        operation: &Operation<'a>,
        update: &Update<'a>,
        target: Target<'_>,
    ) -> Result<Verdict<'a>, Rejection> {
        if update.upsert {
            return Ok(upsert_of_a_job());
        }
        self.check_fence(target)?;
        let timeless = match change(operation, &self.locked_at) {
            Change::Removed => true,
            Change::Set(value) => matches!(value.kind, Kind::Null | Kind::Undefined),
            _ => false,
        };
        if timeless {
            return Err(self.without_time());
        }
        let taken = CowDocument::build(|w| self.values.write_claimed(w, &self.locked));
        if has_all(update, std::slice::from_ref(&taken)) {
            return Ok(Verdict::Forward);
        }
        let mut conditions = update.conditions.clone();
        conditions.push(taken);
        let operation = Operation::Update(Update { conditions, ..update.clone() });
        Ok(Verdict::conditional(operation, true, LOST_CLAIM))
    }
}

/// Returns the value that operators set the time of a claim to.
fn written_time<'o>(operators: Document<'o>, locked_at: &str) -> Option<Value<'o>> {
    let sets = |operator: &[u8]| matches!(operator, b"$set" | b"$min" | b"$max");
    let mut writes = touched(operators).filter(|(operator, path, _)| sets(operator) && *path == locked_at.as_bytes());
    writes.next().map(|(.., value)| value)
}

fn has_all(update: &Update<'_>, conditions: &[CowDocument<'_>]) -> bool {
    conditions.iter().all(|condition| {
        update.conditions.iter().any(|known| known.as_document().as_bytes() == condition.as_document().as_bytes())
    })
}
