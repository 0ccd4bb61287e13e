//! The results of operators that compute or append, on values of a new document.

use std::cmp::Ordering;

use super::node::{ImageNode, ImageValue};
use crate::document::{self, Kind, OwnedValue, Value, as_double, compare_numbers};

/// Returns the sum of integers and doubles (`SafeNum`). The result has the wider type. An int that overflows becomes
/// a long. Returns `None` if a long overflows, which fails on the server, or if a decimal is involved.
pub(super) fn sum(node: &ImageNode<'_>, amount: Value<'_>) -> Option<OwnedValue> {
    let ImageValue::Value(stored) = node.held() else { return None };
    match (stored.kind, amount.kind) {
        (Kind::Int32, Kind::Int32) => stored.as_integer()?.checked_add(amount.as_integer()?).map(OwnedValue::integer),
        (Kind::Int32 | Kind::Int64, Kind::Int32 | Kind::Int64) => {
            stored.as_integer()?.checked_add(amount.as_integer()?).map(OwnedValue::int64)
        }
        (Kind::Decimal128, _) | (_, Kind::Decimal128) => None,
        _ => Some(OwnedValue::double(as_double(stored)? + as_double(amount)?)),
    }
}

/// Returns whether `$min` or `$max` leaves a number as it is, because the other number is equal or beyond it; `None` if one
/// of the two is not a known number.
pub(super) fn keeps_known(node: &ImageNode<'_>, operator: &[u8], value: Value<'_>) -> Option<bool> {
    let ImageValue::Value(known) = node.held() else { return None };
    let replaces = if operator == b"$min" { Ordering::Less } else { Ordering::Greater };
    compare_numbers(value, known).map(|ordering| ordering != replaces)
}

/// Returns the result of `$mul` on a missing field: zero, in the type of the factor.
pub(super) fn zero_like<'s>(factor: Value<'_>) -> ImageNode<'s> {
    match factor.kind {
        Kind::Int32 => ImageNode::Owned(OwnedValue::int32(0)),
        Kind::Int64 => ImageNode::Owned(OwnedValue::int64(0)),
        // The result may be -0 or NaN.
        Kind::Double => ImageNode::Owned(OwnedValue::double(0.0 * factor.as_f64().unwrap_or_default())),
        kind => ImageNode::Some(Some(kind)),
    }
}

/// Returns the array that `$push` or `$addToSet` creates; `None` if modifiers or equal elements change it.
pub(super) fn new_array(operator: &[u8], value: Value<'_>) -> Option<OwnedValue> {
    let modifiers = value.as_document().filter(|fields| fields.elements().any(|field| field.key.starts_with(b"$")));
    let each = match modifiers {
        None => None,
        Some(modifiers) if operator == b"$push" && modifiers.elements().count() == 1 => {
            Some(modifiers.get("$each")?.as_array()?)
        }
        Some(_) => return None,
    };
    Some(document::array(|a| match each {
        Some(items) => items.values().for_each(|item| a.value(item)),
        None => a.value(value),
    }))
}
