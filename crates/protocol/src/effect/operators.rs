//! The effect of update operators on a field: the paths they write, and how these relate to the field.

use super::{Change, WrittenBy, of_lookup};
use crate::document::{Document, Element, Elements, Path, Value, look_below, paths_overlap};

/// The relation of a written path to a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathOverlap {
    Apart,
    Exact,
    /// The path is inside the field.
    Inside,
    /// The path is a parent of the field.
    Around,
    /// The path contains an array position and may refer to the field.
    Positional,
}

/// Returns how a written path relates to `field`. Positional operators (`$`, `$[]`, `$[x]`) and numbers may be
/// positions in arrays on the way to the field.
pub fn touch(field: &Path, written: &[u8]) -> PathOverlap {
    if below_root(written).any(is_position) {
        let (field, written) = (without_positions(field.as_str().as_bytes()), without_positions(written));
        return if paths_overlap(&field, &written) { PathOverlap::Positional } else { PathOverlap::Apart };
    }
    match () {
        () if field.as_str().as_bytes() == written => PathOverlap::Exact,
        () if field.covers(written) => PathOverlap::Inside,
        () if field.is_below(written) => PathOverlap::Around,
        () => PathOverlap::Apart,
    }
}

/// Returns the parts of a path except the first one: the document itself has no positions.
fn below_root(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'.').skip(1)
}

/// Returns a path without the parts that may be positions in arrays.
pub fn without_positions(path: &[u8]) -> Vec<u8> {
    let root = path.split(|byte| *byte == b'.').take(1);
    let parts: Vec<&[u8]> = root.chain(below_root(path).filter(|part| !is_position(part))).collect();
    parts.join(&b'.')
}

/// Returns the number of a part that may be a position in an array.
pub fn position(part: &[u8]) -> Option<usize> {
    let digits = std::str::from_utf8(part).ok().filter(|part| part.bytes().all(|byte| byte.is_ascii_digit()))?;
    (!digits.is_empty()).then(|| digits.parse().unwrap_or(usize::MAX))
}

/// Returns the number of a part that names an element of an array in a filter: the server compares it as text, so it
/// has no leading zeros.
pub fn index(part: &[u8]) -> Option<usize> {
    position(part).filter(|_| part == b"0" || part.first() != Some(&b'0'))
}

/// Returns whether a part of a written path may be a position in an array: `$`, `$[]`, `$[x]` or a number.
pub fn is_position(part: &[u8]) -> bool {
    is_positional_operator(part) || (!part.is_empty() && part.iter().all(u8::is_ascii_digit))
}

/// Returns whether a part of a written path is a positional operator: `$`, `$[]` or `$[x]`. Other parts that begin with `$`
/// are names, such as the `$id` of a DBRef; old servers fail those that a DBRef does not have.
pub(super) fn is_positional_operator(part: &[u8]) -> bool {
    part == b"$" || (part.starts_with(b"$[") && part.ends_with(b"]"))
}

/// Returns the paths that the operators of an update write, with operator and value: `($set, status, "paid")`.
/// `$rename` writes both its paths.
pub fn touched(operators: Document<'_>) -> TouchedPaths<'_> {
    TouchedPaths { operators: operators.elements(), operator: b"", fields: Document::EMPTY.elements(), renamed: None }
}

/// An operator with the path that it writes, and its value for that path.
pub type Write<'u> = (&'u [u8], &'u [u8], Value<'u>);

/// Returns the writes of [`touched`] to a stored document, which `$setOnInsert` does not change.
pub fn on_stored(operators: Document<'_>) -> impl Iterator<Item = Write<'_>> {
    touched(operators).filter(|(operator, ..)| *operator != b"$setOnInsert")
}

/// Returns the writes of [`touched`] to the document that an upsert inserts: `$setOnInsert` is a `$set` there.
pub fn on_insert(operators: Document<'_>) -> impl Iterator<Item = Write<'_>> {
    touched(operators).map(|(operator, path, value)| match operator {
        b"$setOnInsert" => (&b"$set"[..], path, value),
        _ => (operator, path, value),
    })
}

/// Returns whether `$rename` moves the value at `path` away. Takes an item of [`touched`].
pub fn is_rename_source((operator, path, value): (&[u8], &[u8], Value<'_>)) -> bool {
    operator == b"$rename" && value.as_string_bytes() != Some(path)
}

/// Returns whether `$rename` moves another field's value to `path`. Takes an item of [`touched`].
pub fn is_rename_target((operator, path, value): (&[u8], &[u8], Value<'_>)) -> bool {
    operator == b"$rename" && value.as_string_bytes() == Some(path)
}

/// The iterator of [`touched`].
pub struct TouchedPaths<'u> {
    operators: Elements<'u>,
    operator: &'u [u8],
    /// The remaining fields of the operator.
    fields: Elements<'u>,
    /// The target of the last `$rename`.
    renamed: Option<(&'u [u8], Value<'u>)>,
}

impl<'u> Iterator for TouchedPaths<'u> {
    type Item = Write<'u>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if let Some((target, value)) = self.renamed.take() {
            return Some((self.operator, target, value));
        }
        loop {
            if let Some(Element { key, value }) = self.fields.next() {
                if self.operator == b"$rename" {
                    self.renamed = value.as_string_bytes().map(|target| (target, value));
                }
                return Some((self.operator, key, value));
            }
            let operator = self.operators.next()?;
            self.operator = operator.key;
            self.fields = operator.value.as_document().unwrap_or(Document::EMPTY).elements();
        }
    }
}

/// Returns the effect of the operators on the field at `path` of a stored document. The server fails an update that
/// writes one path twice (ConflictingUpdateOperators), so either one operator determines the effect or several write
/// inside the field.
pub(super) fn change<'u>(operators: Document<'u>, path: &'u Path) -> Change<'u> {
    let mut changes = on_stored(operators).map(|(operator, written, value)| write(path, operator, written, value));
    changes.find(|change| *change != Change::Untouched).unwrap_or(Change::Untouched)
}

/// Returns the effect of one operator that writes `path` on the field at `field` of a stored document.
pub fn write<'u>(field: &Path, operator: &'u [u8], path: &'u [u8], value: Value<'u>) -> Change<'u> {
    let written = WrittenBy { operator, path };
    match (touch(field, path), operator) {
        (PathOverlap::Apart, _) => Change::Untouched,
        (PathOverlap::Exact, b"$set") => Change::Set(value),
        (PathOverlap::Exact, b"$inc") => Change::Incremented(value),
        (PathOverlap::Exact, b"$min" | b"$max") => Change::Either(value),
        (PathOverlap::Exact, b"$currentDate") => Change::Now,
        (PathOverlap::Exact | PathOverlap::Around, b"$unset") => Change::Removed,
        (PathOverlap::Exact | PathOverlap::Around, _) if is_rename_source((operator, path, value)) => Change::Removed,
        (PathOverlap::Around, b"$set") => within(field, path.len(), value, written),
        (PathOverlap::Inside, _) => Change::Inside(written),
        _ => Change::Unclear(written),
    }
}

/// Returns the effect on a field if a parent field is set. The parent's path has `around` bytes.
fn within<'u>(field: &Path, around: usize, value: Value<'u>, written: WrittenBy<'u>) -> Change<'u> {
    let rest = field.as_str().as_bytes().get(around + 1..).unwrap_or_default();
    of_lookup(look_below(rest, value), written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_with_array_positions_touch_the_field() {
        let field = Path::parse("a.b").unwrap();
        let cases = [
            ("a.b", PathOverlap::Exact),
            ("a", PathOverlap::Around),
            ("a.b.c", PathOverlap::Inside),
            ("a.c", PathOverlap::Apart),
            ("ab", PathOverlap::Apart),
            ("a.$.b", PathOverlap::Positional),
            ("a.0.b", PathOverlap::Positional),
            ("a.$[x].b.c", PathOverlap::Positional),
            ("a.0", PathOverlap::Positional),
            ("a.b.0", PathOverlap::Positional),
            ("c.0.b", PathOverlap::Apart),
            ("0", PathOverlap::Apart),
            ("0.b", PathOverlap::Apart),
            ("a.$id", PathOverlap::Apart),
            ("a.$ref.b", PathOverlap::Apart),
            ("a.$name.b", PathOverlap::Apart),
            ("a.$[.b", PathOverlap::Apart),
            ("a.b.$db", PathOverlap::Inside),
        ];
        for (written, expected) in cases {
            assert_eq!(touch(&field, written.as_bytes()), expected, "{written}");
        }
    }
}
