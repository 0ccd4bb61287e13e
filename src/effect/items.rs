//! The effect of a statement on the number of elements of an array.

use super::operators::{PathOverlap, is_position, touch, touched};
use super::{Change, WrittenBy, write};
use crate::document::{Document, Path, Value};

/// The effect of an update on the number of elements of an array in a stored document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Items<'u> {
    /// It does not increase.
    Kept,
    /// It is at most this number, or it does not increase.
    UpTo(usize),
    /// It increases by at most `by`; a `$slice` limits it to `most`.
    Pushed { by: usize, most: Option<usize> },
    /// Of these values, those are added that the array does not contain.
    AddedToSet(AddedValues<'u>),
    /// Unknown.
    Unclear(WrittenBy<'u>),
}

/// The values that a `$push` or `$addToSet` adds to an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddedValues<'u> {
    One(Value<'u>),
    /// The elements of `$each`.
    Each(Document<'u>),
}

impl<'u> AddedValues<'u> {
    /// Returns the values in the argument of the operator. The server fails a statement whose `$each` is not an array.
    pub fn in_argument(operator: &[u8], argument: Value<'u>) -> Self {
        match each(operator, argument) {
            None => Self::One(argument),
            Some(each) => Self::Each(each.as_array().unwrap_or(Document::EMPTY)),
        }
    }

    pub fn count(self) -> usize {
        self.values().count()
    }

    pub fn values(self) -> impl Iterator<Item = Value<'u>> {
        let (one, each) = match self {
            Self::One(value) => (Some(value), Document::EMPTY),
            Self::Each(values) => (None, values),
        };
        one.into_iter().chain(each.values())
    }
}

/// Returns the `$each` of an operator's argument. To `$addToSet` a document is a value unless `$each` is its first
/// field; to `$push` it has modifiers wherever `$each` is, and any other field fails the statement (`addtoset_node.cpp`,
/// `push_node.cpp`).
pub fn each<'u>(operator: &[u8], argument: Value<'u>) -> Option<Value<'u>> {
    let fields = argument.as_document()?;
    match operator {
        b"$addToSet" => fields.elements().next().filter(|first| first.key == b"$each").map(|first| first.value),
        _ => fields.get("$each"),
    }
}

/// Returns the effect of the operators on the array at `path` of a stored document. If several operators write inside
/// the array, it is the effect of all of them.
pub fn items<'u>(operators: Document<'u>, path: &'u Path) -> Items<'u> {
    let stored = touched(operators).filter(|(operator, ..)| *operator != b"$setOnInsert");
    stored.fold(Items::Kept, |known, (operator, written, value)| {
        match (known, of_write(path, operator, written, value)) {
            (known, Items::Kept) => known,
            (Items::UpTo(known), Items::UpTo(more)) => Items::UpTo(known.max(more)),
            (unclear @ Items::Unclear(_), _) => unclear,
            // The server fails an update that writes one path twice.
            (_, other) => other,
        }
    })
}

/// Returns the number of elements of a value: none if it is not an array.
pub fn item_count(value: Value<'_>) -> usize {
    value.as_array().map_or(0, |array| array.values().count())
}

fn of_write<'u>(field: &Path, operator: &'u [u8], path: &'u [u8], value: Value<'u>) -> Items<'u> {
    let written = WrittenBy { operator, path };
    match (touch(field, path), operator) {
        (PathOverlap::Apart, _) | (_, b"$unset" | b"$pull" | b"$pullAll" | b"$pop") => Items::Kept,
        // The server fails them on arrays, and their results are not arrays.
        (PathOverlap::Exact | PathOverlap::Around, b"$inc" | b"$mul" | b"$bit" | b"$currentDate") => Items::Kept,
        (PathOverlap::Exact, b"$push") => pushed(value),
        (PathOverlap::Exact, b"$addToSet") => Items::AddedToSet(AddedValues::in_argument(operator, value)),
        (PathOverlap::Inside | PathOverlap::Positional, _) => match position_in(field, path) {
            Some(position) => Items::UpTo(position.saturating_add(1)),
            None if field.covers(path) => Items::Kept,
            None => Items::Unclear(written),
        },
        (PathOverlap::Exact | PathOverlap::Around, _) => match write(field, operator, path, value) {
            Change::Set(value) | Change::Either(value) => Items::UpTo(item_count(value)),
            Change::Untouched | Change::Removed | Change::Incremented(_) | Change::Now => Items::Kept,
            Change::Inside(_) | Change::Unclear(_) => Items::Unclear(written),
        },
    }
}

/// Returns the position in the array that a path writes: the server fills the array with nulls up to it. A positional
/// operator finds an element that exists.
fn position_in(field: &Path, path: &[u8]) -> Option<usize> {
    let below = path.strip_prefix(field.as_str().as_bytes())?.strip_prefix(b".")?;
    let part = below.split(|byte| *byte == b'.').next().filter(|part| is_position(part) && !part.starts_with(b"$"))?;
    // A number that is too large is larger than every array.
    Some(std::str::from_utf8(part).ok().and_then(|digits| digits.parse().ok()).unwrap_or(usize::MAX))
}

fn pushed(argument: Value<'_>) -> Items<'_> {
    let added = AddedValues::in_argument(b"$push", argument);
    let modifiers = argument.as_document().filter(|_| matches!(added, AddedValues::Each(_)));
    let most = modifiers.and_then(|modifiers| modifiers.get("$slice")).and_then(Value::as_whole);
    Items::Pushed { by: added.count(), most: most.and_then(|most| usize::try_from(most.unsigned_abs()).ok()) }
}

#[cfg(test)]
mod tests {
    use bson::{doc, raw::RawDocumentBuf};

    use super::*;

    #[test]
    fn operators_change_the_number_of_elements() {
        let check = |update: bson::Document, expected: &str| {
            let raw = RawDocumentBuf::try_from(&update).unwrap().into_bytes();
            let path = Path::parse("a.i").unwrap();
            let found = match items(Document::parse(&raw).unwrap(), &path) {
                Items::AddedToSet(added) => format!("AddedToSet({})", added.count()),
                Items::Unclear(written) => format!("Unclear({})", String::from_utf8_lossy(written.path)),
                other => format!("{other:?}"),
            };
            assert_eq!(found, expected, "{update}");
        };
        check(doc! {"$push": {"a.i": 1}}, "Pushed { by: 1, most: None }");
        check(doc! {"$push": {"a.i": {"$each": [1, 2]}}}, "Pushed { by: 2, most: None }");
        check(doc! {"$push": {"a.i": {"$each": [1, 2], "$slice": -5}}}, "Pushed { by: 2, most: Some(5) }");
        check(doc! {"$addToSet": {"a.i": [1, 2]}}, "AddedToSet(1)");
        check(doc! {"$addToSet": {"a.i": {"$each": [1, 2]}}}, "AddedToSet(2)");
        check(doc! {"$push": {"a.i": {"$slice": 5, "$each": [1, 2]}}}, "Pushed { by: 2, most: Some(5) }");
        check(doc! {"$addToSet": {"a.i": {"a": 1, "$each": [1, 2]}}}, "AddedToSet(1)");
        check(doc! {"$set": {"a.i": [1, 2]}}, "UpTo(2)");
        check(doc! {"$set": {"a": {"i": [1, 2]}}}, "UpTo(2)");
        check(doc! {"$set": {"a": {"i": "x"}}}, "UpTo(0)");
        check(doc! {"$set": {"a": [{"i": [1]}]}}, "Unclear(a)");
        check(doc! {"$min": {"a.i": [1, 2, 3]}}, "UpTo(3)");
        check(doc! {"$set": {"a.i.1500": 1}}, "UpTo(1501)");
        check(doc! {"$set": {"a.i.3.x": 1, "a.i.7.x": 1, "b": 1}}, "UpTo(8)");
        check(doc! {"$inc": {"a.i.99999999999999999999999": 1}}, &format!("UpTo({})", usize::MAX));
        check(doc! {"$unset": {"a.i.9": 1}}, "Kept");
        check(doc! {"$set": {"a.i.$[].x": 1, "a.i.$.y": 2}}, "Kept");
        check(doc! {"$push": {"a.$[].i": 1}}, "Unclear(a.$[].i)");
        check(doc! {"$push": {"a.0.i": 1}}, "Unclear(a.0.i)");
        check(doc! {"$push": {"a": 1}}, "Unclear(a)");
        check(doc! {"$rename": {"x": "a.i"}}, "Unclear(a.i)");
        check(doc! {"$rename": {"a.i": "x"}}, "Kept");
        check(doc! {"$pull": {"a.i": 1}, "$setOnInsert": {"b": [1]}}, "Kept");
    }
}
