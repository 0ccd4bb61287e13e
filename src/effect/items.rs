//! The effect of a statement on the number of elements of an array.

use std::collections::HashSet;

use super::matched::other_selections;
use super::operators::{PathOverlap, Write, on_insert, on_stored, position, touch};
use super::upsert::Equalities;
use super::{Change, ImageValue, WrittenBy, inserted, write};
use crate::command::Operation;
use crate::document::{Document, Kind, Path, Value, rest_below};

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
    /// It does not increase, except if one of the [`other_selections`] of the filter is an array.
    Selected(WrittenBy<'u>),
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

/// Returns the effect of an update by these operators on the array at `path` of a stored document that the filter
/// matches. If several operators write inside the array, it is the effect of all of them.
pub fn items<'u>(filter: Document<'_>, operators: Document<'u>, path: &'u Path) -> Items<'u> {
    of_writes(on_stored(operators), filter, path)
}

fn of_writes<'u>(writes: impl Iterator<Item = Write<'u>>, filter: Document<'_>, path: &Path) -> Items<'u> {
    writes.fold(Items::Kept, |known, write| {
        match (known, of_write(path, filter, write)) {
            (known, Items::Kept) => known,
            (Items::UpTo(known), Items::UpTo(more)) => Items::UpTo(known.max(more)),
            (unclear @ Items::Unclear(_), _) => unclear,
            (Items::Kept, Items::Selected(written)) | (Items::Selected(_), Items::Selected(written)) => {
                Items::Selected(written)
            }
            (Items::Selected(written), _) | (_, Items::Selected(written)) => Items::Unclear(written),
            // The server fails an update that writes one path twice.
            (_, other) => other,
        }
    })
}

/// Returns the number of elements of a value: none if it is not an array.
pub fn item_count(value: Value<'_>) -> usize {
    value.as_array().map_or(0, |array| array.values().count())
}

/// Returns the most elements of the array at `path` in the document that a statement inserts; `None` if unknown.
pub fn inserted_items(operation: &Operation<'_>, path: &Path) -> Option<usize> {
    let Some(image) = inserted(operation) else { return Some(0) };
    match image.at(path) {
        ImageValue::Missing => Some(0),
        ImageValue::Value(value) => Some(item_count(value)),
        ImageValue::Blocked(kind) | ImageValue::Some(Some(kind)) if kind != Kind::Array => Some(0),
        ImageValue::Blocked(_) => None,
        ImageValue::Some(_) | ImageValue::Unknown => of_upsert(operation, path),
    }
}

/// Returns the most elements that an upsert inserts: those of its filter and those that it adds.
fn of_upsert(operation: &Operation<'_>, path: &Path) -> Option<usize> {
    let Operation::Update(update) = operation else { return None };
    let operators = update.operators()?;
    let filter = update.filter.as_document();
    let from_filter = Equalities::of_filter(filter)?.document()?;
    let pinned_value = match from_filter.at(path) {
        ImageValue::Missing => None,
        ImageValue::Value(value) => Some(value),
        ImageValue::Some(_) | ImageValue::Unknown | ImageValue::Blocked(_) => return None,
    };
    let pinned = pinned_value.map_or(0, item_count);
    match of_writes(on_insert(operators), filter, path) {
        // The server fails an upsert with `$` that inserts.
        Items::Kept | Items::Selected(_) => Some(pinned),
        Items::UpTo(most) => Some(pinned.max(most)),
        Items::Pushed { by, most } => Some(most.map_or(pinned + by, |most| most.min(pinned + by))),
        Items::AddedToSet(added) => {
            let mut new: HashSet<SetItem<'_>> = added.values().map(SetItem::new).collect();
            for known in pinned_value.and_then(Value::as_array).iter().flat_map(|array| array.values()) {
                new.remove(&SetItem::new(known));
            }
            Some(pinned + new.len())
        }
        Items::Unclear(_) => None,
    }
}

/// A value of an array as a set has it: whole numbers are equal across types, such as 1 and 1.0. The server also takes
/// other values for equal, such as fractions of two types.
#[derive(PartialEq, Eq, Hash)]
enum SetItem<'v> {
    Whole(i64),
    Other(Value<'v>),
}

impl<'v> SetItem<'v> {
    fn new(value: Value<'v>) -> Self {
        value.as_whole().map_or(Self::Other(value), Self::Whole)
    }
}

fn of_write<'u>(field: &Path, filter: Document<'_>, (operator, path, value): Write<'u>) -> Items<'u> {
    let written = WrittenBy { operator, path };
    match (touch(field, path), operator) {
        (PathOverlap::Apart, _) | (_, b"$unset" | b"$pull" | b"$pullAll" | b"$pop") => Items::Kept,
        // The server fails them on arrays, and their results are not arrays.
        (PathOverlap::Exact | PathOverlap::Around, b"$inc" | b"$mul" | b"$bit" | b"$currentDate") => Items::Kept,
        (PathOverlap::Exact, b"$push") => pushed(value),
        (PathOverlap::Exact, b"$addToSet") => Items::AddedToSet(AddedValues::in_argument(operator, value)),
        (PathOverlap::Inside | PathOverlap::Positional, _) => match first_below(field, path) {
            None => Items::Unclear(written),
            Some(b"$") => match other_selections(filter, field.as_str().as_bytes()).as_deref() {
                None => Items::Unclear(written),
                Some([]) => Items::Kept,
                Some(_) => Items::Selected(written),
            },
            // The server fills the array with nulls up to a position.
            Some(part) => position(part).map_or(Items::Kept, |position| Items::UpTo(position.saturating_add(1))),
        },
        (PathOverlap::Exact | PathOverlap::Around, _) => match write(field, operator, path, value) {
            Change::Set(value) | Change::Either(value) => Items::UpTo(item_count(value)),
            Change::Untouched | Change::Removed | Change::Incremented(_) | Change::Now => Items::Kept,
            Change::Inside(_) | Change::Unclear(_) => Items::Unclear(written),
        },
    }
}

/// Returns the first part of a written path below the field.
fn first_below<'p>(field: &Path, path: &'p [u8]) -> Option<&'p [u8]> {
    let below = rest_below(path, field.as_str().as_bytes())?;
    below.split(|byte| *byte == b'.').next()
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
        let check_with = |filter: bson::Document, update: bson::Document, expected: &str| {
            let bytes = |document| RawDocumentBuf::try_from(document).unwrap().into_bytes();
            let (q, u, path) = (bytes(&filter), bytes(&update), Path::parse("a.i").unwrap());
            let found = match items(Document::parse(&q).unwrap(), Document::parse(&u).unwrap(), &path) {
                Items::AddedToSet(added) => format!("AddedToSet({})", added.count()),
                Items::Unclear(written) => format!("Unclear({})", String::from_utf8_lossy(written.path)),
                Items::Selected(written) => format!("Selected({})", String::from_utf8_lossy(written.path)),
                other => format!("{other:?}"),
            };
            assert_eq!(found, expected, "{filter} {update}");
        };
        let check = |update: bson::Document, expected: &str| check_with(doc! {"_id": 1}, update, expected);
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
        // The position can be that of an element of another array.
        check_with(doc! {"$or": [{"a.i.x": 1}]}, doc! {"$set": {"a.i.$.x": 1}}, "Kept");
        check_with(doc! {"a.i.x": 1, "b": {"$ne": 1}}, doc! {"$set": {"a.i.$.x": 1}}, "Kept");
        check_with(doc! {"$or": [{"a.i.x": 1, "b": 1}]}, doc! {"$set": {"a.i.$.x": 1}}, "Selected(a.i.$.x)");
        check_with(doc! {"b": {"$exists": false}}, doc! {"$set": {"a.i.$.x": 1}}, "Kept");
        check_with(doc! {"b": {"$exists": true}}, doc! {"$set": {"a.i.$.x": 1}}, "Selected(a.i.$.x)");
        check_with(doc! {"a.i.0.x": 1}, doc! {"$set": {"a.i.$.x": 1}}, "Selected(a.i.$.x)");
        check_with(doc! {"a.i.$id": 1, "a.i.00.x": 1}, doc! {"$set": {"a.i.$.x": 1}}, "Kept");
        check_with(doc! {"$jsonSchema": {"required": ["b"]}}, doc! {"$set": {"a.i.$.x": 1}}, "Unclear(a.i.$.x)");
        check_with(doc! {"b.$id": 1}, doc! {"$set": {"a.i.$.x": 1}}, "Unclear(a.i.$.x)");
        check_with(doc! {"b": 1}, doc! {"$set": {"a.i.$.x": 1, "a.i.9": 1}}, "Unclear(a.i.$.x)");
        check(doc! {"$push": {"a.$[].i": 1}}, "Unclear(a.$[].i)");
        check(doc! {"$push": {"a.0.i": 1}}, "Unclear(a.0.i)");
        check(doc! {"$push": {"a": 1}}, "Unclear(a)");
        check(doc! {"$rename": {"x": "a.i"}}, "Unclear(a.i)");
        check(doc! {"$rename": {"a.i": "x"}}, "Kept");
        check(doc! {"$pull": {"a.i": 1}, "$setOnInsert": {"b": [1]}}, "Kept");
    }
}
