//! Splits a value that is set around a field. The server rejects a path that two operators write, so docward can set
//! the field only beside the others of such a document.

use std::borrow::Cow;

use crate::document::{Document, Element, Kind, Path, Value, paths_overlap};
use crate::effect::touched;
use crate::patterns::Rejection;

/// A path and its value, of one `$set` or `$setOnInsert`.
pub(super) type SetField<'v> = (Cow<'v, [u8]>, Value<'v>);

/// A value around a field is not a document that can be split.
#[derive(Debug)]
pub(super) enum Unsplittable {
    NoDocument(Kind),
    /// It has a field of this name, which no path can contain.
    Name(String),
    /// The filter of the upsert gives a value at this path. The whole document would replace it.
    Given(String),
}

/// Adds what `path` is set to. A document around `field` is set field by field.
///
/// # Errors
/// Such a value is not a document that can be split.
pub(super) fn split_around<'v>(
    field: &Path,
    path: Cow<'v, [u8]>,
    value: Value<'v>,
    set: &mut Vec<SetField<'v>>,
) -> Result<(), Unsplittable> {
    if !field.is_below(&path) {
        set.push((path, value));
        return Ok(());
    }
    for inner in value.as_document().ok_or(Unsplittable::NoDocument(value.kind))?.elements() {
        if cannot_be_set(&inner) {
            return Err(Unsplittable::Name(String::from_utf8_lossy(inner.key).into_owned()));
        }
        split_around(field, [&*path, b".", inner.key].concat().into(), inner.value, set)?;
    }
    Ok(())
}

impl Unsplittable {
    /// Returns the rejection of a statement beside whose value `field` cannot be set.
    pub(super) fn rejection(&self, field: &Path) -> Rejection {
        match self {
            Self::NoDocument(kind) => Rejection::no_room(field, *kind),
            Self::Name(name) => Rejection::new(
                format!("'{field}' cannot be set beside the field '{name}', whose name no path can contain"),
                "Give that field another name.",
            ),
            Self::Given(path) => Rejection::new(
                format!("its filter gives a value at '{path}', and its $setOnInsert replaces that"),
                format!("Set the fields of '{path}' one by one in $setOnInsert, with their full paths."),
            ),
        }
    }
}

/// Returns what `$setOnInsert` sets, without documents around `field`. One stays whole if the client also writes a part of
/// it, so that the server fails the statement. `is_given`: whether an upsert's filter gives more than `field` in the
/// document at a path.
///
/// # Errors
/// As [`split_around`], and if the filter gives something else than `field` in such a document.
pub(super) fn set_on_insert<'v>(
    operators: Document<'v>,
    field: &Path,
    is_given: impl Fn(&[u8]) -> bool,
) -> Result<Vec<SetField<'v>>, Unsplittable> {
    let mut set = Vec::new();
    let on_insert = operators.get("$setOnInsert").and_then(Value::as_document).unwrap_or(Document::EMPTY);
    for one in on_insert.elements() {
        // Of several such fields the server fails the second.
        let is_written_twice =
            || touched(operators).filter(|(_, path, _)| paths_overlap(path, one.key)).nth(1).is_some();
        if field.is_below(one.key) && is_written_twice() {
            return Ok(on_insert.elements().map(|one| (one.key.into(), one.value)).collect());
        }
        split_around(field, one.key.into(), one.value, &mut set)?;
        if field.is_below(one.key) && is_given(one.key) {
            return Err(Unsplittable::Given(String::from_utf8_lossy(one.key).into_owned()));
        }
    }
    Ok(set)
}

/// Returns whether `$set` cannot write a field of this name.
pub(super) fn cannot_be_set(field: &Element<'_>) -> bool {
    field.key.is_empty() || field.key.starts_with(b"$") || field.key.contains(&b'.')
}
