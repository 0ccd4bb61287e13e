//! Splits a value that is set around a field. The server rejects a path that two operators write, so docward can set
//! the field only beside the others of such a document.

use std::borrow::Cow;

use crate::document::{Document, Element, Kind, Path, Value, paths_overlap};
use crate::effect::touched;

/// A path and its value, of one `$set` or `$setOnInsert`.
pub(super) type SetField<'v> = (Cow<'v, [u8]>, Value<'v>);

/// A document cannot be split: the server cannot set `field` in a value of this kind, or the document has a field whose
/// name no path can contain.
#[derive(Debug)]
pub(super) struct Unsplittable<'p> {
    pub(super) field: &'p Path,
    pub(super) kind: Kind,
}

/// Adds what `path` is set to. A document around one of `fields` is set field by field.
///
/// # Errors
/// Such a value is not a document that can be split.
pub(super) fn split_around<'p, 'v>(
    fields: &[&'p Path],
    path: Cow<'v, [u8]>,
    value: Value<'v>,
    set: &mut Vec<SetField<'v>>,
) -> Result<(), Unsplittable<'p>> {
    let Some(field) = fields.iter().find(|field| field.is_below(&path)) else {
        set.push((path, value));
        return Ok(());
    };
    let unsplittable = || Unsplittable { field, kind: value.kind };
    for inner in value.as_document().ok_or_else(unsplittable)?.elements() {
        if cannot_be_set(&inner) {
            return Err(unsplittable());
        }
        split_around(fields, [&*path, b".", inner.key].concat().into(), inner.value, set)?;
    }
    Ok(())
}

/// Returns what `$setOnInsert` sets, without documents around one of `fields`. One that another operator writes into stays
/// whole, so that the server fails it.
///
/// # Errors
/// As [`split_around`].
pub(super) fn set_on_insert<'p, 'v>(
    operators: Document<'v>,
    fields: &[&'p Path],
) -> Result<Vec<SetField<'v>>, Unsplittable<'p>> {
    let mut set = Vec::new();
    let on_insert = operators.get("$setOnInsert").and_then(Value::as_document).unwrap_or(Document::EMPTY);
    for field in on_insert.elements() {
        let is_written = || {
            let mut others = touched(operators).filter(|(operator, ..)| *operator != b"$setOnInsert");
            others.any(|(_, path, _)| paths_overlap(path, field.key))
        };
        if fields.iter().any(|own| own.is_below(field.key)) && is_written() {
            set.push((field.key.into(), field.value));
        } else {
            split_around(fields, field.key.into(), field.value, &mut set)?;
        }
    }
    Ok(set)
}

/// Returns whether `$set` cannot write a field of this name.
pub(super) fn cannot_be_set(field: &Element<'_>) -> bool {
    field.key.is_empty() || field.key.starts_with(b"$") || field.key.contains(&b'.')
}
