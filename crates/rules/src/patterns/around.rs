//! Splits a value that is set around a field. The server rejects a path that two operators write, so docward can set
//! the field only beside the others of such a document.

use std::borrow::Cow;

use crate::document::{Element, Path, Value};

/// A path and its value, of one `$set`.
pub(super) type SetField<'v> = (Cow<'v, [u8]>, Value<'v>);

/// Adds what `path` is set to. A document around `field` is set field by field. Returns `None` if such a value is not a
/// document, or has a field whose name no path can contain.
pub(super) fn split_around<'v>(
    field: &Path,
    path: Cow<'v, [u8]>,
    value: Value<'v>,
    set: &mut Vec<SetField<'v>>,
) -> Option<()> {
    if !field.is_below(&path) {
        set.push((path, value));
        return Some(());
    }
    let mut fields = value.as_document()?.elements();
    fields.try_for_each(|inner| {
        let is_settable = !cannot_be_set(&inner);
        is_settable.then(|| split_around(field, [&*path, b".", inner.key].concat().into(), inner.value, set))?
    })
}

/// Returns whether `$set` cannot write a field of this name.
pub(super) fn cannot_be_set(field: &Element<'_>) -> bool {
    field.key.is_empty() || field.key.starts_with(b"$") || field.key.contains(&b'.')
}
