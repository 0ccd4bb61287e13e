//! The effect of `$inc` as an expression.

use crate::command::expressions::{failure, field, has_type};
use crate::document::{Kind, Value, ValueSlot, Writer};

/// A double has every whole number up to this one.
const EXACT_IN_DOUBLE: u64 = 1 << 53;

/// Writes the effect of `$inc`: a missing field becomes the amount. The statement fails if the field is not a number or
/// the sum of integers overflows 64 bits.
pub(super) fn write_add(slot: ValueSlot<'_>, path: &str, amount: Value<'_>) {
    let sum = |w: &mut Writer<'_>| {
        w.array("$add", |a| {
            field(a.slot(), path);
            a.value(amount);
        });
    };
    slot.nested(|w| {
        w.nested("$switch", |w| {
            w.array("branches", |a| {
                a.nested(|w| {
                    w.nested("case", |w| has_type(w, |slot| field(slot, path), "missing"));
                    w.value("then", amount);
                });
                a.nested(|w| {
                    w.nested("case", |w| {
                        w.array("$and", |a| {
                            a.nested(|w| field(w.slot("$isNumber"), path));
                            a.nested(|w| {
                                w.array("$or", |a| {
                                    for inexact in ["double", "decimal"] {
                                        a.nested(|w| has_type(w, |slot| field(slot, path), inexact));
                                    }
                                    a.nested(|w| {
                                        w.array("$ne", |a| {
                                            a.nested(|w| w.nested("$type", sum));
                                            let kept = if amount.kind == Kind::Double { "missing" } else { "double" };
                                            a.string(kept);
                                        });
                                    });
                                });
                            });
                        });
                    });
                    write_sum(w.slot("then"), path, amount);
                });
            });
            failure(
                w.slot("default"),
                &format!("cannot increment field '{path}', which is too large or of type "),
                path,
            );
        });
    });
}

/// Writes the sum of a stored number and the amount, as `$inc` adds them: it converts both to the wider type first, a
/// double to a decimal of 15 digits. `$add` converts exactly (`SafeNum`, `ExpressionAdd`; compared on 6.0).
fn write_sum(slot: ValueSlot<'_>, path: &str, amount: Value<'_>) {
    let is_long = amount.as_raw_i64().is_some_and(|amount| amount.unsigned_abs() > EXACT_IN_DOUBLE);
    // The stored types that need a conversion: of the stored value, or of the amount.
    let conversions: &[(&str, Option<&str>, Option<&str>)] = match amount.kind {
        Kind::Double => &[("decimal", None, Some("$toDecimal")), ("long", Some("$toDouble"), None)],
        Kind::Decimal128 => &[("double", Some("$toDecimal"), None)],
        Kind::Int64 if is_long => &[("double", None, Some("$toDouble"))],
        _ => &[],
    };
    let converted = |slot: ValueSlot<'_>, conversion: Option<&str>, write: &dyn Fn(ValueSlot<'_>)| match conversion {
        Some(conversion) => slot.nested(|w| write(w.slot(conversion))),
        None => write(slot),
    };
    let sum = |slot: ValueSlot<'_>, of_stored, of_amount| {
        slot.nested(|w| {
            w.array("$add", |a| {
                converted(a.slot(), of_stored, &|slot| field(slot, path));
                converted(a.slot(), of_amount, &|slot| slot.value(amount));
            });
        });
    };
    if conversions.is_empty() {
        return sum(slot, None, None);
    }
    slot.nested(|w| {
        w.nested("$switch", |w| {
            w.array("branches", |a| {
                for (stored, of_stored, of_amount) in conversions {
                    a.nested(|w| {
                        w.nested("case", |w| has_type(w, |slot| field(slot, path), stored));
                        sum(w.slot("then"), *of_stored, *of_amount);
                    });
                }
            });
            sum(w.slot("default"), None, None);
        });
    });
}
