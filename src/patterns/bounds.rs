//! `bounds`: a number that must stay in range.
//!
//! Two readers take the last copy of a book: both see `available: 1`, both decrement, and it ends at -1. The
//! condition belongs into the statement that changes the number, where mongod checks it atomically.
//!
//! before: `updateOne({_id: 1}, {$inc: {available: -1}})`
//!
//! after: `updateOne({_id: 1, available: {$gte: 1}}, {$inc: {available: -1}})`; n: 0 means: not available.
//!
//! Whole amounts go into a plain comparison, which an index can serve; others into `$expr`, so that the
//! server's own arithmetic decides.

use std::cmp::Ordering;

use super::filter::{narrowed, remade};
use super::number::{Bound, sign};
use super::{
    Concern, Conflict, Context, Judge, Phase, Rejection, Rewrite, Verdict, concern_for_content, read_required_path,
};
use crate::command::{Modification, Namespace, Operation, Statement, StatementKind, Update};
use crate::document::{CowDocument, Document, Kind, Lookup, Path, Value, Writer};
use crate::effect::{Touch, equality, touch, touched};
use crate::rules::{Claim, Code, Located, MapReader};

/// Settings of the pattern.
#[derive(Debug, Clone)]
pub struct Bounds {
    field: Located<Path>,
    min: Option<Bound>,
    max: Option<Bound>,
    unguarded: Unguarded,
}

/// What becomes of an increment whose filter does not keep the bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unguarded {
    Guard,
    Reject,
}

/// The bound an increment runs towards.
#[derive(Debug, Clone, Copy)]
enum Towards {
    Min(Bound),
    Max(Bound),
}

impl Judge for Bounds {
    fn name(&self) -> &'static str {
        "bounds"
    }

    fn phase(&self) -> Phase {
        Phase::Bounds
    }

    fn rewriting(&self) -> &'static str {
        "the condition that keeps the number in range goes into the filter"
    }

    fn claims(&self) -> Vec<Claim> {
        vec![Claim { kind: "bounds", field: self.field.clone().map(|path| path.as_str().to_owned()) }]
    }

    fn concern(&self, kind: StatementKind, _: Namespace<'_>) -> Concern {
        concern_for_content(kind)
    }

    fn judge<'a>(&self, statement: &Statement<'a>, _: &Context<'_>) -> Verdict<'a> {
        let judged = match &statement.operation {
            Operation::Delete(_) => Ok(Verdict::Forward),
            Operation::Insert(insert) => self.check_document(insert.document.as_document()),
            Operation::Update(update) => match &update.modification {
                Modification::Replacement(document) => self.check_document(document.as_document()),
                Modification::Operators(operators) => self.judge_update(update, operators.as_document()),
                Modification::ClientPipeline(_) | Modification::Pipeline(_) => Ok(Verdict::client_pipeline()),
            },
        };
        judged.unwrap_or_else(Verdict::Reject)
    }
}

impl Bounds {
    pub(super) fn read(reader: &mut MapReader<'_, '_, '_>) -> Option<Self> {
        let field = read_required_path(reader, "field");
        let (min, max) = (reader.number("min"), reader.number("max"));
        let given = reader.entry("min").is_some() || reader.entry("max").is_some();
        let unguarded = reader.choice("unguarded", &[("guard", Unguarded::Guard), ("reject", Unguarded::Reject)]);
        let place = reader.place();
        if !given {
            reader.context().error(Code::MissingKey, place, "`min` or `max` is missing");
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
            min: min.map(|number| number.value.into()),
            max: max.map(|number| number.value.into()),
            unguarded: unguarded.map_or(Unguarded::Guard, |word| word.value),
        })
    }

    fn check_document<'a>(&self, document: Document<'_>) -> Result<Verdict<'a>, Rejection> {
        match self.field.value.lookup(document) {
            Lookup::Found(value) => self.check_value(value)?,
            Lookup::Blocked(Kind::Array) => {
                return Ok(Verdict::unguardable(
                    format!("its field '{}' lies inside an array", self.field.value),
                    "Keep the number in a plain field.",
                ));
            }
            Lookup::Missing | Lookup::Blocked(_) => {}
        }
        Ok(Verdict::Forward)
    }

    fn check_value(&self, value: Value<'_>) -> Result<(), Rejection> {
        let kept = |bound: Option<Bound>, wrong: Ordering| match bound {
            None => sign(value).is_some(),
            Some(bound) => bound.compare(value).is_some_and(|ordering| ordering != wrong),
        };
        if kept(self.min, Ordering::Less) && kept(self.max, Ordering::Greater) {
            return Ok(());
        }
        Err(Rejection::new(
            format!("'{}' would be out of range; it must be a number {}", self.field.value, self.range()),
            "Send a number in that range.",
        ))
    }

    fn range(&self) -> String {
        match (self.min, self.max) {
            (Some(min), Some(max)) => format!("from {min} to {max}"),
            (Some(min), None) => format!("of at least {min}"),
            (None, Some(max)) => format!("of at most {max}"),
            (None, None) => "of any size".to_owned(),
        }
    }

    fn judge_update<'a>(&self, update: &Update<'a>, operators: Document<'_>) -> Result<Verdict<'a>, Rejection> {
        let mut amount = None;
        for (operator, path, value) in touched(operators) {
            match (touch(&self.field.value, path), operator) {
                (Touch::Apart, _) | (_, b"$unset") => {}
                (Touch::Exact, b"$set" | b"$setOnInsert" | b"$min" | b"$max") => self.check_value(value)?,
                (Touch::Exact, b"$inc") => amount = Some(value),
                (Touch::Around, b"$set" | b"$setOnInsert") => self.check_around(path, value)?,
                _ => {
                    let operator = String::from_utf8_lossy(operator);
                    return Ok(Verdict::unguardable(
                        format!("{operator} on '{}' cannot be bounded", String::from_utf8_lossy(path)),
                        format!("Change '{}' by $inc or $set.", self.field.value),
                    ));
                }
            }
        }
        match amount {
            Some(amount) => self.judge_increment(update, amount),
            None => Ok(Verdict::Forward),
        }
    }

    /// A field around the number is written as a whole.
    fn check_around(&self, path: &[u8], value: Value<'_>) -> Result<(), Rejection> {
        let below = self.field.value.as_str().get(path.len() + 1..).and_then(Path::parse);
        match (below, value.as_document()) {
            (Some(below), Some(nested)) => match below.lookup(nested) {
                Lookup::Found(value) => self.check_value(value),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn judge_increment<'a>(&self, update: &Update<'a>, amount: Value<'_>) -> Result<Verdict<'a>, Rejection> {
        let towards = match sign(amount) {
            Some(Ordering::Less) => self.min.map(Towards::Min),
            Some(Ordering::Equal) => None,
            Some(Ordering::Greater) => self.max.map(Towards::Max),
            None => return Err(Rejection::new("it increments by something that is no number", "Use a number.")),
        };
        if update.upsert {
            self.check_upsert(update, amount, towards.is_some())?;
        }
        let Some(towards) = towards else { return Ok(Verdict::Forward) };
        let filter = update.filter.as_document();
        if self.keeps(filter, towards, amount) {
            return Ok(Verdict::Forward);
        }
        if self.unguarded == Unguarded::Reject {
            return Err(Rejection::new(
                format!("it changes '{}' without the condition that keeps it in range", self.field.value),
                format!("Put a condition on '{}' into the filter, for example {{$gte: AMOUNT}}.", self.field.value),
            ));
        }
        let filter = self.guarded(filter, towards, amount);
        // An upsert that finds the document out of room collides with it: that is n: 0.
        let on_no_match = update.upsert.then_some(Conflict::Ignore);
        let modification = update.modification.clone();
        Ok(Verdict::Rewrite(Rewrite { operation: remade(update, filter, modification, update.upsert), on_no_match }))
    }

    /// An upsert inserts the amount itself, on top of what the filter pins; and with a condition in its filter
    /// it must not insert beside a document that merely has no room.
    fn check_upsert(&self, update: &Update<'_>, amount: Value<'_>, conditional: bool) -> Result<(), Rejection> {
        let filter = update.filter.as_document();
        if equality(filter, self.field.value.as_str()).is_some() || (conditional && equality(filter, "_id").is_none()) {
            return Err(Rejection::new(
                format!("as an upsert it could insert a second document, or '{}' out of range", self.field.value),
                "Insert the document first, or pick it by _id.",
            ));
        }
        self.check_value(amount)
    }

    /// Whether the filter already keeps the bound: `{$gte: min - amount}` or better, or an equality.
    fn keeps(&self, filter: Document<'_>, towards: Towards, amount: Value<'_>) -> bool {
        let Some(amount) = amount.as_integer() else { return false };
        let (bound, enough, wrong): (_, [&str; 2], _) = match towards {
            Towards::Min(bound) => (bound, ["$gte", "$gt"], Ordering::Less),
            Towards::Max(bound) => (bound, ["$lte", "$lt"], Ordering::Greater),
        };
        let Some(needed) = bound.minus(amount).and_then(|needed| needed.as_value().as_integer()) else { return false };
        let holds = |value: Value<'_>| Bound::Integer(needed).compare(value).is_some_and(|o| o != wrong);
        if equality(filter, self.field.value.as_str()).is_some_and(holds) {
            return true;
        }
        let condition = filter.get(self.field.value.as_str()).and_then(Value::as_document);
        condition.is_some_and(|condition| enough.iter().filter_map(|name| condition.get(name)).any(holds))
    }

    fn guarded<'a>(&self, filter: Document<'_>, towards: Towards, amount: Value<'_>) -> CowDocument<'a> {
        let field = self.field.value.as_str();
        let (bound, comparison) = match towards {
            Towards::Min(bound) => (bound, "$gte"),
            Towards::Max(bound) => (bound, "$lte"),
        };
        let whole = match amount.kind {
            Kind::Int32 | Kind::Int64 => amount.as_integer().and_then(|amount| bound.minus(amount)),
            _ => None,
        };
        match whole {
            Some(limit) => {
                narrowed(filter, field, |w, field| w.nested(field, |w| w.value(comparison, limit.as_value())))
            }
            None => {
                narrowed(filter, "$expr", |w, key| w.nested(key, |w| sum_in_range(w, field, amount, comparison, bound)))
            }
        }
    }
}

/// `{$and: [{$isNumber: "$f"}, {$gte: [{$add: ["$f", amount]}, min]}]}`
fn sum_in_range(w: &mut Writer<'_>, field: &str, amount: Value<'_>, comparison: &str, bound: Bound) {
    let reference = format!("${field}");
    w.array("$and", |a| {
        a.nested(|w| w.string("$isNumber", &reference));
        a.nested(|w| {
            w.array(comparison, |a| {
                a.nested(|w| {
                    w.array("$add", |a| {
                        a.string(&reference);
                        a.value(amount);
                    });
                });
                a.value(bound.as_value().as_value());
            });
        });
    });
}
