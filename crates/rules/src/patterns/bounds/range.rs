//! The range, the condition that a stored number can change by an amount within it, and whether a client's filter
//! contains this condition already.

use std::cmp::Ordering;
use std::fmt;

use crate::document::{
    CowDocument, Document, Kind, OwnedValue, Path, PathLookup, Value, ValueSlot, Writer, compare_numbers, compare_sum,
    is_finite,
};
use crate::patterns::filter::conditions_on;
use crate::patterns::number::{Bound, sign};

/// The numbers that are allowed; at least one bound.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    pub(super) min: Option<Bound>,
    pub(super) max: Option<Bound>,
}

/// A number that a statement adds to the stored one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Added<'s> {
    pub(super) amount: Value<'s>,
    /// A missing field counts as zero, as for `$inc`; otherwise the sum is null.
    pub(super) counts_missing: bool,
}

/// The sums that a filter is assumed to lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sums {
    /// The filter alone keeps the range, whatever number is stored.
    Any,
    /// Those of whole numbers, without rounding. docward's own condition decides about the others.
    Whole,
}

/// The bound in the direction of an increment.
#[derive(Debug, Clone, Copy)]
enum BoundAhead {
    Min(Bound),
    Max(Bound),
}

impl BoundAhead {
    /// Returns the last stored number from which the amount does not lead beyond the bound; `None` if the server must
    /// compute the sum.
    fn limit(self, amount: Value<'_>) -> Option<OwnedValue> {
        let (Self::Min(bound) | Self::Max(bound)) = self;
        match amount.kind {
            Kind::Int32 | Kind::Int64 => bound.minus(amount.as_integer()?),
            _ => None,
        }
    }

    /// Returns the first whole number beyond this one, away from the bound.
    fn whole_beyond(self, number: Value<'_>) -> Option<i64> {
        match (self, number.as_whole()) {
            (Self::Min(_), _) => number.floor()?.checked_add(1),
            (Self::Max(_), Some(whole)) => whole.checked_sub(1),
            (Self::Max(_), None) => number.floor(),
        }
    }

    /// Returns whether the sum of both numbers does not pass the bound.
    fn keeps_sum(self, number: Value<'_>, amount: Value<'_>) -> bool {
        let (bound, wrong) = match self {
            Self::Min(bound) => (bound, Ordering::Less),
            Self::Max(bound) => (bound, Ordering::Greater),
        };
        let ordering = match self.limit(amount) {
            Some(limit) => compare_numbers(number, limit.as_value()),
            None => compare_sum(number, amount, bound.as_value().as_value()),
        };
        ordering.is_some_and(|ordering| ordering != wrong)
    }
}

/// `from 0 to 9`, `of at least 0`, after "a number".
impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.min, self.max) {
            (Some(min), Some(max)) => write!(f, "from {min} to {max}"),
            (Some(min), None) => write!(f, "of at least {min}"),
            (None, Some(max)) => write!(f, "of at most {max}"),
            (None, None) => f.write_str("of any size"),
        }
    }
}

impl Range {
    pub(super) fn contains(self, value: Value<'_>) -> bool {
        let kept =
            |bound: Option<Bound>, wrong: Ordering| bound.is_none_or(|bound| bound.compare(value) != Some(wrong));
        is_finite(value) && kept(self.min, Ordering::Less) && kept(self.max, Ordering::Greater)
    }

    /// Returns the bound in the direction of an increment; `None` if the increment cannot leave the range.
    fn towards(self, amount: Value<'_>) -> Option<BoundAhead> {
        match sign(amount)? {
            Ordering::Less => self.min.map(BoundAhead::Min),
            Ordering::Equal => None,
            Ordering::Greater => self.max.map(BoundAhead::Max),
        }
    }

    /// Returns whether a number out of range has moved towards it, or not at all.
    pub(super) fn is_nearer(self, old: Value<'_>, new: Value<'_>) -> bool {
        let is_past = |bound: Option<Bound>, wrong: Ordering| {
            bound.is_some_and(|bound| bound.compare(new) == Some(wrong))
                && compare_numbers(old, new).is_some_and(|old| old == wrong || old == Ordering::Equal)
        };
        is_finite(new) && (is_past(self.min, Ordering::Less) || is_past(self.max, Ordering::Greater))
    }

    /// Returns whether a missing field leads to a number in range.
    fn keeps_missing(self, added: Added<'_>) -> bool {
        added.counts_missing && self.contains(added.amount)
    }

    /// Returns whether the stored number can change by the amount: whether it meets [`condition`](Self::condition).
    pub(super) fn has_room(self, field: &Path, stored: Document<'_>, added: Added<'_>) -> bool {
        let amount = added.amount;
        let number = match field.lookup(stored) {
            PathLookup::Found(value) if value.kind.is_number() => value,
            PathLookup::Missing => return self.keeps_missing(added),
            PathLookup::Found(_) | PathLookup::Blocked(_) => return false,
        };
        self.towards(amount).is_none_or(|ahead| ahead.keeps_sum(number, amount))
    }

    /// Returns whether the client's filter already keeps the bound: by `{$gte: min - amount}` or a stricter condition,
    /// or by an equality; if the sums are those of whole numbers, also by `{$gt: ...}`.
    pub(super) fn is_kept_by(self, filter: Document<'_>, field: &Path, added: Added<'_>, sums: Sums) -> bool {
        let amount = added.amount;
        let Some(ahead) = self.towards(amount) else { return self.keeps_missing(added) };
        let (inclusive, exclusive) = match ahead {
            BoundAhead::Min(_) => ("$gte", "$gt"),
            BoundAhead::Max(_) => ("$lte", "$lt"),
        };
        if sums == Sums::Any && ahead.limit(amount).is_none() {
            return false;
        }
        let keeps = |value: Value<'_>| ahead.keeps_sum(value, amount);
        let counts_whole = sums == Sums::Whole && amount.as_whole().is_some();
        let keeps_beyond = |value: Value<'_>| match ahead.whole_beyond(value).filter(|_| counts_whole) {
            Some(whole) => keeps(OwnedValue::integer(whole).as_value()),
            None => keeps(value),
        };
        let is_enough = |condition: Value<'_>| match condition.as_document() {
            None => keeps(condition),
            Some(operators) => {
                let has = |name: &str, keeps: &dyn Fn(Value<'_>) -> bool| operators.get(name).is_some_and(keeps);
                let listed = operators.get("$in").and_then(Value::as_array).filter(|listed| !listed.is_empty());
                has("$eq", &keeps)
                    || has(inclusive, &keeps)
                    || has(exclusive, &keeps_beyond)
                    || listed.is_some_and(|listed| listed.values().all(keeps))
            }
        };
        conditions_on(filter, field.as_str()).any(is_enough)
    }

    /// Returns the condition on the stored number; `None` if every number is allowed.
    pub(super) fn condition<'a>(self, field: &Path, added: Added<'_>) -> Option<CowDocument<'a>> {
        let (field, amount, keeps_missing) = (field.as_str(), added.amount, self.keeps_missing(added));
        let Some(towards) = self.towards(amount) else {
            // The sum cannot leave the range, except for a missing field, or another value if `$add` makes a number of it.
            let condition = |w: &mut Writer<'_>| match added.counts_missing {
                true => w.boolean("$exists", true),
                false => {
                    w.slot("$gt").double(f64::NEG_INFINITY);
                    w.slot("$lt").double(f64::INFINITY);
                }
            };
            return (!keeps_missing).then(|| CowDocument::build(|w| w.nested(field, condition)));
        };
        let (bound, comparison, opposite) = match towards {
            BoundAhead::Min(bound) => (bound, "$gte", "$lt"),
            BoundAhead::Max(bound) => (bound, "$lte", "$gt"),
        };
        Some(CowDocument::build(|w| match towards.limit(amount) {
            // `$not` also matches values that are not numbers; the server then rejects the increment. It must not match
            // NaN, which every other comparison excludes.
            Some(limit) if keeps_missing => w.nested(field, |w| {
                w.nested("$not", |w| w.value(opposite, limit.as_value()));
                w.slot("$ne").double(f64::NAN);
            }),
            Some(limit) => w.nested(field, |w| w.value(comparison, limit.as_value())),
            None => w.nested("$expr", |w| sum_in_range(w, field, amount, keeps_missing, comparison, bound)),
        }))
    }
}

/// Writes `{$gte: [{$add: [NUMBER, amount]}, min]}` for numbers. NUMBER is the field; if `counts_missing`, a missing one
/// is zero. The condition does not match other values, nor NaN, which is less than every other number in an expression.
fn sum_in_range(
    w: &mut Writer<'_>,
    field: &str,
    amount: Value<'_>,
    counts_missing: bool,
    comparison: &str,
    bound: Bound,
) {
    let reference = format!("${field}");
    let number = |slot: ValueSlot<'_>| match counts_missing {
        true => slot.nested(|w| {
            w.array("$ifNull", |a| {
                a.string(&reference);
                a.int32(0);
            });
        }),
        false => slot.string(&reference),
    };
    w.array("$and", |a| {
        a.nested(|w| number(w.slot("$isNumber")));
        if comparison == "$lte" {
            a.nested(|w| {
                w.array("$gt", |a| {
                    number(a.slot());
                    a.slot().double(f64::NAN);
                });
            });
        }
        a.nested(|w| {
            w.array(comparison, |a| {
                write_sum(a.slot(), &reference, number, amount);
                a.value(bound.as_value().as_value());
            });
        });
    });
}

/// Writes the sum as `$inc` computes it. If one of the two numbers is a decimal, `$inc` rounds a double to 15 digits, as
/// `$toDecimal` does and `$add` does not (seen with 6.0.5).
fn write_sum(slot: ValueSlot<'_>, reference: &str, number: impl Fn(ValueSlot<'_>), amount: Value<'_>) {
    let add = |slot: ValueSlot<'_>, is_decimal: bool| {
        slot.nested(|w| {
            w.array("$add", |a| match is_decimal {
                true => {
                    a.nested(|w| number(w.slot("$toDecimal")));
                    a.nested(|w| w.value("$toDecimal", amount));
                }
                false => {
                    number(a.slot());
                    a.value(amount);
                }
            });
        });
    };
    if amount.kind == Kind::Decimal128 {
        return add(slot, true);
    }
    slot.nested(|w| {
        w.array("$cond", |a| {
            a.nested(|w| {
                w.array("$eq", |a| {
                    a.nested(|w| w.string("$type", reference));
                    a.string("decimal");
                });
            });
            add(a.slot(), true);
            add(a.slot(), false);
        });
    });
}
