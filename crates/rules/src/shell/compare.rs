//! Compares two commands.

use std::collections::HashMap;

use crate::document::{Document, Value};

/// Returns whether two commands are equal. The order of fields after the command name does not matter, nor does the
/// order of the fields of a statement. A missing option equals its default. Filters, updates and other documents must
/// be equal byte for byte.
#[must_use]
pub fn is_same(one: Document<'_>, other: Document<'_>) -> bool {
    let first = |document: Document<'_>| document.first().map(|element| element.key.to_vec());
    first(one) == first(other) && same_fields(one, other, same_field)
}

fn same_fields(one: Document<'_>, other: Document<'_>, same: fn(&[u8], Value<'_>, Value<'_>) -> bool) -> bool {
    let covers = |one: Document<'_>, other: Document<'_>| {
        let partners: HashMap<&[u8], Value<'_>> =
            other.elements().map(|element| (element.key, element.value)).collect();
        one.elements().all(|element| match partners.get(element.key) {
            Some(partner) => same(element.key, element.value, *partner),
            None => is_default(element.key, element.value),
        })
    };
    let no_duplicates = one.reject_duplicates().is_ok() && other.reject_duplicates().is_ok();
    no_duplicates && covers(one, other) && covers(other, one)
}

/// Returns whether a field has the server's default.
fn is_default(key: &[u8], value: Value<'_>) -> bool {
    match key {
        b"ordered" => value.as_bool() == Some(true),
        b"upsert" | b"multi" | b"new" | b"remove" => value.as_bool() == Some(false),
        _ => false,
    }
}

fn same_field(key: &[u8], one: Value<'_>, other: Value<'_>) -> bool {
    match (key, one.as_array(), other.as_array(), one.as_document(), other.as_document()) {
        (b"updates" | b"deletes" | b"ops", Some(one), Some(other), _, _) => same_statements(one, other),
        // The command inside `explain`.
        (b"explain", _, _, Some(one), Some(other)) => is_same(one, other),
        _ => one == other,
    }
}

fn same_statements(one: Document<'_>, other: Document<'_>) -> bool {
    let pairs = one.values().zip(other.values());
    one.values().count() == other.values().count()
        && pairs.into_iter().all(|(one, other)| match (one.as_document(), other.as_document()) {
            (Some(one), Some(other)) => same_fields(one, other, |_, one, other| one == other),
            _ => one == other,
        })
}
