//! Attempt numbers that a claim can count.
//!
//! An attempt number is the fencing token, so each claim must change it. That is true of numbers between -2^53 and 2^53:
//! beyond, 1 is lost in the rounding of a double. It is not true of NaN and infinities, and the server increments
//! nothing else.

use std::cmp::Ordering;

use bson::{Bson, doc};

use super::super::number::Bound;
use crate::document::{Kind, OwnedValue, Path, Value, Writer};
use crate::patterns::stored_data::{all, value};

/// Doubles between this number and its negative are exact to 1.
const LIMIT: i64 = 1 << 53;

/// Returns whether a claim of a job with this number changes the number.
pub(super) fn is_countable(attempts: Value<'_>) -> bool {
    Bound::Integer(-LIMIT).compare(attempts) == Some(Ordering::Greater)
        && Bound::Integer(LIMIT).compare(attempts) == Some(Ordering::Less)
}

/// Returns the number of the next claim; `None` if only the server can add 1 to this one.
pub(super) fn next(attempts: Option<Value<'_>>) -> Option<OwnedValue> {
    let Some(attempts) = attempts else { return Some(OwnedValue::int32(1)) };
    match attempts.as_whole() {
        Some(whole) => whole.checked_add(1).map(OwnedValue::integer),
        None => {
            attempts.as_f64().filter(|_| attempts.kind == Kind::Double).map(|number| OwnedValue::double(number + 1.0))
        }
    }
}

/// Writes the condition of a claim: the job was never claimed, or less than `max` times. Expressions compare all types:
/// NaN is less than every other number, and each other type is less or greater than all numbers.
pub(super) fn write_countable(w: &mut Writer<'_>, attempts: &Path, max: Option<i64>) {
    let attempts = value(attempts);
    w.nested("$expr", |w| {
        w.array("$or", |a| {
            a.nested(|w| {
                w.array("$eq", |a| {
                    a.nested(|w| w.string("$type", &attempts));
                    a.string("missing");
                });
            });
            a.nested(|w| {
                w.array("$and", |a| {
                    for (comparison, limit) in [("$gt", -LIMIT), ("$lt", max.unwrap_or(LIMIT))] {
                        a.nested(|w| {
                            w.array(comparison, |a| {
                                a.string(&attempts);
                                a.slot().integer(limit);
                            });
                        });
                    }
                });
            });
        });
    });
}

/// Returns whether it is a number that a claim can count, or one that it makes of such a number.
pub(super) fn may_be_stored(attempts: Value<'_>) -> bool {
    let compared = |bound| Bound::Integer(bound).compare(attempts);
    compared(-LIMIT).is_some_and(Ordering::is_ge) && compared(LIMIT + 1).is_some_and(Ordering::is_le)
}

/// The JSON Schema of the same numbers.
pub(super) fn storable() -> bson::Document {
    doc! {"bsonType": "number", "minimum": -LIMIT, "maximum": LIMIT + 1}
}

/// The same for a job that has the field, without a maximum.
pub(super) fn countable(attempts: &Path) -> Bson {
    all(vec![doc! {"$gt": [value(attempts), -LIMIT]}.into(), doc! {"$lt": [value(attempts), LIMIT]}.into()])
}
