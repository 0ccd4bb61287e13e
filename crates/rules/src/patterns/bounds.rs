//! `bounds`: keeps a number in a range.
//!
//! Two readers borrow the last copy of a book: both read `available: 1`, both decrement, and the number ends at -1.
//! The statement that changes the number must contain the condition, because mongod checks it atomically.
//!
//! before: `updateOne({_id: 1}, {$inc: {available: -1}})`
//!
//! after: `updateOne({_id: 1, available: {$gte: 1}}, {$inc: {available: -1}})`; n: 0 means that no copy is left.
//!
//! A value that is set, inserted or upserted must be in range itself. For integer amounts the condition is a plain
//! comparison, which can use an index. For other amounts it is an `$expr`, so that the server does the arithmetic. What is not
//! plain is checked: the number after the statement is in range, or no worse than before.

mod range;

use std::cmp::Ordering;

use bson::doc;

use self::range::{Added, Range, Sums};
use super::field_path::ChangingField;
use super::number::Bound;
use super::plain::{self, Form, NotPlain, PlainWrite};
use super::promise::{BeforeAndAfter, Broken, Facts, held, shown};
use super::stored_data::{DataCheck, all, any, is_missing, is_number, not, value};
use super::stored_state::of_each;
use super::{
    Applicability, Context, ExclusiveField, FieldContent, NoEffect, NoEffectCause, NoEffectKind, Pattern, Procedures,
    Properties, Rejection, Requirement, RuleView, StateCondition, Unmatched, Verdict, applicability_for_content,
};
use crate::command::{Namespace, Operation, Statement, StatementKind, Update, code};
use crate::config::keys::{AnyNumber, Constraint, Declaration, DeclaredScalar, Keys, Keywords, Setting};
use crate::config::{Code, Located, MapReader, Node, ReadContext};
use crate::document::{Document, OwnedValue, Path, PathLookup, Value, is_finite, may_overflow};

/// Settings of the pattern.
#[derive(Debug, Clone)]
pub struct Bounds {
    field: Located<Path>,
    range: Range,
    policy: BoundsPolicy,
    on_no_room: OnNoRoom,
}

/// The action for an increment whose filter does not keep the bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BoundsPolicy {
    AddCondition,
    Reject,
}

/// The action for an increment that would leave the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnNoRoom {
    /// The reply has n: 0.
    Ignore,
    /// The reply has a write error with code 121.
    Error,
}

const FIELD: Setting<ChangingField> =
    Setting::required("field", ChangingField, "The field with the number.").examples(&["available"]);
const MIN: Setting<AnyNumber> = Setting::optional("min", AnyNumber, "The smallest value allowed.");
const MAX: Setting<AnyNumber> = Setting::optional("max", AnyNumber, "The largest value allowed.");
const POLICY: Setting<Keywords<BoundsPolicy>> = Setting::with_default(
    "policy",
    Keywords(&[
        ("add_condition", BoundsPolicy::AddCondition, "The condition is added to its filter."),
        ("reject", BoundsPolicy::Reject, "It is rejected."),
    ]),
    DeclaredScalar::Text("add_condition"),
    "The action for an increment whose filter does not keep the bound.",
);
const ON_NO_ROOM: Setting<Keywords<OnNoRoom>> = Setting::with_default(
    "on_no_room",
    Keywords(&[
        ("ignore", OnNoRoom::Ignore, "The reply has n: 0."),
        ("error", OnNoRoom::Error, "An error with code 121 for that statement."),
    ]),
    DeclaredScalar::Text("ignore"),
    "The reply to an increment that would leave the range.",
);
const KEYS: Keys = Keys::new("A number that must stay in a range.", &[&FIELD, &MIN, &MAX, &POLICY, &ON_NO_ROOM])
    .constrained(&[Constraint::AtLeastOneOf(&["min", "max"])]);

const NO_ROOM: NoEffect =
    NoEffect::no_match("it matched nothing: no document has room for the change, or there is no such document");

impl Pattern for Bounds {
    fn declaration() -> Declaration {
        Declaration::mapping(&KEYS).example("{ field: stock, min: 0 }")
    }

    fn read(settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
        context.mapping(settings, &KEYS, Self::read_keys)
    }

    fn properties(&self) -> Properties {
        Properties {
            rewriting: "adds the condition that keeps the number in range to the filter",
            no_effect_causes: &[NoEffectCause::Effect(NoEffectKind::NoMatch)],
            tolerates_unsupported: true,
            exclusive_fields: vec![ExclusiveField::new("bounds", &self.field)],
            procedures: Procedures::NotPlain(vec![(self.field.value.clone(), &["$set", "$inc", "$unset"])]),
            checked_fields: vec![self.field.value.clone()],
            contents: vec![(self.field.value.clone(), FieldContent::Number)],
            requirements: vec![Requirement::Operator("$isNumber")],
            ..Properties::default()
        }
    }

    fn data_checks(&self, _: Namespace<'_>) -> Vec<DataCheck> {
        let field = &self.field.value;
        let beyond = |operator: &str, bound: Bound| doc! {operator: [value(field), bound.as_bson()]}.into();
        let is_finite = || not(doc! {"$in": [value(field), [f64::NAN, f64::INFINITY, f64::NEG_INFINITY]]});
        let mut checks = Vec::new();
        for (operator, word, bound) in [("$lt", "below", self.range.min), ("$gt", "above", self.range.max)] {
            let Some(bound) = bound else { continue };
            checks.push(DataCheck::each(
                format!("with `{field}` {word} {bound}"),
                "the rule keeps the bound from now on, and does not correct what is stored",
                all(vec![is_number(field), is_finite(), beyond(operator, bound)]),
            ));
        }
        checks.push(DataCheck::each(
            format!("whose `{field}` is NaN or infinite"),
            "it is never in range, and no `$inc` changes it",
            all(vec![is_number(field), not(is_finite())]),
        ));
        checks.push(DataCheck::each(
            format!("whose `{field}` is not a number"),
            "the server rejects each `$inc` of it",
            not(any(vec![is_number(field), is_missing(field)])),
        ));
        checks.push(DataCheck::each(format!("without `{field}`"), "the number counts as 0", is_missing(field)));
        checks
    }

    fn stored_state(&self) -> Vec<StateCondition> {
        let field = &self.field.value;
        let mut number = doc! {
            "bsonType": "number",
            "not": {"enum": [f64::NAN, f64::INFINITY, f64::NEG_INFINITY]},
        };
        number.extend(self.range.min.map(|min| ("minimum".to_owned(), min.as_bson())));
        number.extend(self.range.max.map(|max| ("maximum".to_owned(), max.as_bson())));
        let meaning = format!("`{field}` is missing or a number {}", self.range);
        of_each(field, number).map(|schema| StateCondition::schema(meaning, &[field], schema)).into_iter().collect()
    }

    fn conflict_with(&self, other: RuleView<'_>, _: Namespace<'_>) -> Option<&'static str> {
        let (other, own) = (other.properties, &self.field.value);
        let (sequence, version) = (other.numbered_field.as_ref(), other.version.as_ref());
        let is_same = |field: &&Path| *field == own;
        let is_nested = |field: &&Path| !is_same(field) && own.overlaps(field.as_str().as_bytes());
        if sequence.map(|(field, _)| field).or(version).filter(is_nested).is_some() {
            return Some("one field lies inside the other, so both cannot be numbers");
        }
        if other.timestamp_field.as_ref().is_some_and(|store| own.root() == store.as_str()) {
            return Some("it stores timestamps in the field, whatever they are");
        }
        if self.policy == BoundsPolicy::Reject && other.incremented_field.as_ref() == Some(own) {
            return Some(
                "it requires a condition for each increment, and the other rule increments the field without one",
            );
        }
        let needed = other.needed_number.as_ref().filter(|(field, _)| field == own);
        if needed.is_some_and(|(_, number)| !self.range.contains(OwnedValue::integer(*number).as_value())) {
            return Some("the other rule counts in the field, and needs a number that is out of range");
        }
        if let Some((_, first)) = sequence.filter(|(field, _)| field == own) {
            if self.range.max.is_some() {
                return Some("the sequence assigns numbers above the maximum, too");
            }
            if self
                .range
                .min
                .is_some_and(|min| min.compare(OwnedValue::integer(*first).as_value()) == Some(Ordering::Less))
            {
                return Some("the first numbers of the sequence are below the minimum");
            }
        }
        version
            .filter(|version| is_same(version) && self.range.max.is_some())
            .map(|_| "updates increment the version, and no update would match at the maximum")
    }

    fn applicability(&self, kind: StatementKind, _: Namespace<'_>) -> Applicability {
        applicability_for_content(kind)
    }

    fn evaluate<'a>(&self, statement: &Statement<'a>, _: &Context<'_>) -> Verdict<'a> {
        match (self.plain(&statement.operation), &statement.operation) {
            (Err(odd), _) => Verdict::not_plain(odd),
            (Ok(Err(broken)), _) => Verdict::Reject(broken),
            (Ok(Ok(Some(added))), Operation::Update(update)) => self.evaluate_sum(update, added),
            _ => Verdict::Forward,
        }
    }

    fn promise(&self, (before, after): BeforeAndAfter<'_>, facts: &Facts<'_, '_>) -> Result<(), Broken> {
        let Some(after) = after else { return Ok(()) };
        let path = self.field.value.as_str().as_bytes();
        let old = before.map(|before| held(before, path)).unwrap_or_default();
        let new = held(after, path);
        let is_no_worse = |number: &Value<'_>| {
            old.contains(number) || matches!((&old[..], &new[..]), ([old], [_]) if self.range.is_nearer(*old, *number))
        };
        if new.iter().all(|number| self.range.contains(*number) || is_no_worse(number)) {
            return Ok(());
        }
        let (field, range) = (&self.field.value, self.range);
        let rejection = Rejection::new(
            format!("'{field}' would go from {} to {}; it must be a number {range}", shown(&old), shown(&new)),
            "Read the document again, and send a change that keeps the range.",
        );
        let lacks_room = || before.is_some() && self.is_increment(facts.operation());
        Err(Broken { rejection, is_ignored: self.on_no_room == OnNoRoom::Ignore && lacks_room() })
    }

    fn check_final(&self, statement: &Statement<'_>) -> Result<(), Rejection> {
        let added = self.plain(&statement.operation).unwrap_or_else(|odd| Err(plain::reason_to_check(odd)))?;
        let (Operation::Update(update), Some(added)) = (&statement.operation, added) else { return Ok(()) };
        let Some(condition) = self.range.condition(&self.field.value, added) else { return Ok(()) };
        let recorded = update.conditions.iter().any(|known| known.as_document() == condition.as_document());
        if recorded || self.is_kept_by(update, added, Sums::Any) { Ok(()) } else { Err(self.without_condition()) }
    }

    /// Rejects if the stored number leaves no room. Otherwise another condition did not match.
    fn unmatched(&self, statement: &Statement<'_>, stored: Option<Document<'_>>) -> Unmatched {
        let (Ok(Ok(Some(added))), Some(stored)) = (self.plain(&statement.operation), stored) else {
            return Unmatched::Nothing;
        };
        if self.range.has_room(&self.field.value, stored, added) {
            return Unmatched::Nothing;
        }
        if let PathLookup::Found(Value { kind, .. }) = self.field.value.lookup(stored)
            && !kind.is_number()
        {
            return Unmatched::Reject(Rejection {
                // The server's own code: the condition only prevented that it was reached.
                code: code::TYPE_MISMATCH,
                ..Rejection::new(
                    format!("'{}' cannot be incremented: its stored value has type {}", self.field.value, kind.name()),
                    format!("Set '{}' to a number {} first.", self.field.value, self.range),
                )
            });
        }
        Unmatched::Reject(Rejection::new(
            format!("this change would take '{}' out of range; it must be a number {}", self.field.value, self.range),
            "Read the document again and use a smaller amount.",
        ))
    }
}

impl Bounds {
    fn read_keys(reader: &mut MapReader<'_, '_, '_>) -> Option<Self> {
        let field = reader.get(&FIELD);
        let (min, max) = (reader.get(&MIN), reader.get(&MAX));
        let given = reader.has(&MIN) || reader.has(&MAX);
        let (policy, on_no_room) = (reader.get_or_default(&POLICY), reader.get_or_default(&ON_NO_ROOM));
        let span = reader.span();
        if !given {
            reader.context().error(Code::MissingKey, span, "`min` or `max` is missing");
            return None;
        }
        let empty = min.as_ref().zip(max.as_ref()).filter(|(min, max)| {
            Bound::from(min.value).compare(Bound::from(max.value).as_value().as_value()) == Some(Ordering::Less)
        });
        if let Some((_, max)) = empty {
            let message = "`max` is less than `min`: no number would be in range";
            reader.context().error(Code::ConflictingSettings, max.span, message);
            return None;
        }
        Some(Self {
            field: field?,
            range: Range { min: min.map(|number| number.value.into()), max: max.map(|number| number.value.into()) },
            policy: policy?.value,
            on_no_room: on_no_room?.value,
        })
    }

    /// Checks a statement of a plain form. Returns what it adds to the stored number, on which the result then depends.
    ///
    /// # Errors
    /// The statement is not plain.
    fn plain<'s>(&self, operation: &'s Operation<'_>) -> Result<Result<Option<Added<'s>>, Rejection>, NotPlain> {
        match plain::form(operation) {
            Form::Nothing => Ok(Ok(None)),
            Form::Document(document) => Ok(self.check_document(document).map(|()| None)),
            Form::Update(update) => self.plain_update(update),
        }
    }

    fn plain_update<'s>(&self, update: &'s Update<'_>) -> Result<Result<Option<Added<'s>>, Rejection>, NotPlain> {
        let field = &self.field.value;
        if let Some(amount) = plain::added(update, field).filter(|amount| is_ordinary(*amount) && !update.upsert) {
            return Ok(Ok(Some(Added { amount, counts_missing: false })));
        }
        let added = match self.plain_write(plain::stored(update, field)?)? {
            Ok(added) => added,
            Err(broken) => return Ok(Err(broken)),
        };
        if update.upsert {
            match self.plain_write(plain::inserted(update, field)?)? {
                // It is inserted as it is.
                Ok(Some(added)) if !self.range.contains(added.amount) => return Ok(Err(self.inserts_out_of_range())),
                Ok(_) => {}
                Err(_) => return Ok(Err(self.inserts_out_of_range())),
            }
        }
        Ok(Ok(added))
    }

    fn plain_write<'s>(&self, write: PlainWrite<'s>) -> Result<Result<Option<Added<'s>>, Rejection>, NotPlain> {
        let path = self.field.value.as_str().as_bytes();
        match write {
            PlainWrite::Untouched | PlainWrite::Removed => Ok(Ok(None)),
            PlainWrite::Set(value) => Ok(self.check_value(value).map(|()| None)),
            PlainWrite::Operator((b"$inc", written, amount)) if written == path && is_ordinary(amount) => {
                Ok(Ok(Some(Added { amount, counts_missing: true })))
            }
            // The stored number stays, or it becomes this one.
            PlainWrite::Operator((b"$min" | b"$max", written, value))
                if written == path && self.range.contains(value) =>
            {
                Ok(Ok(None))
            }
            PlainWrite::Operator((operator, ..)) | PlainWrite::Shrinks(operator) => {
                let operator = String::from_utf8_lossy(operator);
                Err(format!("its {operator} may change '{}' in a way that only the server knows", self.field.value))
            }
            PlainWrite::InElement(_) => Err(format!("it writes '{}' in an array element", self.field.value)),
        }
    }

    /// Whether the statement adds a number to the stored one, in any form.
    fn is_increment(&self, operation: &Operation<'_>) -> bool {
        let Operation::Update(update) = operation else { return false };
        let amount = match plain::stored(update, &self.field.value) {
            Ok(PlainWrite::Operator((b"$inc", _, amount))) => Some(amount),
            _ => plain::added(update, &self.field.value),
        };
        amount.is_some_and(is_finite)
    }

    /// Checks the values of the field in a new document.
    fn check_document(&self, document: Document<'_>) -> Result<(), Rejection> {
        held(document, self.field.value.as_str().as_bytes()).into_iter().try_for_each(|value| self.check_value(value))
    }

    fn check_value(&self, value: Value<'_>) -> Result<(), Rejection> {
        if self.range.contains(value) { Ok(()) } else { Err(self.out_of_range()) }
    }

    fn out_of_range(&self) -> Rejection {
        Rejection::new(
            format!("'{}' would be out of range; it must be a number {}", self.field.value, self.range),
            "Send a number in that range.",
        )
    }

    fn inserts_out_of_range(&self) -> Rejection {
        Rejection::new(
            format!(
                "as an upsert it could insert a document with '{}' out of range; it must be a number {}",
                self.field.value, self.range
            ),
            "Leave `upsert` out of statements that only change documents, or insert the document first.",
        )
    }

    /// Returns whether the client's filter already keeps the range.
    fn is_kept_by(&self, update: &Update<'_>, added: Added<'_>, sums: Sums) -> bool {
        self.range.is_kept_by(update.filter.as_document(), &self.field.value, added, sums)
    }

    fn evaluate_sum<'a>(&self, update: &Update<'a>, added: Added<'_>) -> Verdict<'a> {
        let Some(condition) = self.range.condition(&self.field.value, added) else { return Verdict::Forward };
        if self.is_kept_by(update, added, Sums::Any) && (!update.upsert || self.on_no_room == OnNoRoom::Ignore) {
            return Verdict::ForwardConditional(NO_ROOM);
        }
        if self.policy == BoundsPolicy::Reject && !self.is_kept_by(update, added, Sums::Whole) {
            return Verdict::Reject(self.without_condition());
        }
        let mut update = update.clone();
        update.conditions.push(condition);
        let checks_match = self.on_no_room == OnNoRoom::Error;
        Verdict::conditional(Operation::Update(update), checks_match, NO_ROOM)
    }

    fn without_condition(&self) -> Rejection {
        Rejection::new(
            format!("it changes '{}' without the condition that keeps it in range", self.field.value),
            format!("Add a condition on '{}' to the filter, for example {{$gte: AMOUNT}}.", self.field.value),
        )
    }
}

/// Whether the condition for a sum with this amount can be written down: the sum is finite.
fn is_ordinary(amount: Value<'_>) -> bool {
    is_finite(amount) && !may_overflow(amount)
}
