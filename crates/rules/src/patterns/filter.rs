//! Conditions of filters: whether there are any, and adding one.

use smallvec::SmallVec;

use crate::command::{self, Update};
use crate::document::{CowDocument, Document, Kind, Value, Writer};

/// Returns `filter` with one more condition on `field`, which `condition` writes under the given name.
pub(super) fn narrowed<'a>(
    filter: Document<'_>,
    field: &str,
    condition: impl Fn(&mut Writer<'_>, &str),
) -> CowDocument<'a> {
    let named = filter.elements().any(|element| element.key == field.as_bytes());
    command::narrowed(filter, named, |w| condition(w, field))
}

/// Returns the conditions on `field` that every document meets which the filter matches: its own, and those in `$and` and
/// in an `$or` with one branch.
pub(super) fn conditions_on<'f>(filter: Document<'f>, field: &str) -> impl Iterator<Item = Value<'f>> {
    let mut unread: SmallVec<[Document<'f>; 4]> = SmallVec::new();
    let mut elements = filter.elements();
    std::iter::from_fn(move || {
        loop {
            let Some(element) = elements.next() else {
                elements = unread.pop()?.elements();
                continue;
            };
            let branches = || element.value.as_array().unwrap_or(Document::EMPTY).values();
            match element.key {
                b"$and" => unread.extend(branches().filter_map(Value::as_document)),
                b"$or" if branches().count() == 1 => unread.extend(branches().filter_map(Value::as_document)),
                key if key == field.as_bytes() => return Some(element.value),
                _ => {}
            }
        }
    })
}

/// Writes the condition that a field has this value, which may be a document with names of operators.
pub(super) fn write_equality(w: &mut Writer<'_>, field: &str, value: Value<'_>) {
    match value.kind {
        Kind::Document | Kind::Regex => w.nested(field, |w| w.value("$eq", value)),
        _ => w.value(field, value),
    }
}

/// Writes the condition on a field that its value is not an array.
pub(super) fn write_no_array(w: &mut Writer<'_>) {
    w.nested("$not", |w| w.string("$type", "array"));
}

/// Returns whether the filter matches every document because it has no condition: it is empty, or has only comments,
/// `$and` of such filters, and `$or` with one of them. mongod treats these as an empty filter
/// (`MatchExpression::isTriviallyTrue`; seen on 6.0). The depth of checked documents bounds the recursion
/// ([`MAX_DEPTH`](crate::document::MAX_DEPTH)).
pub(super) fn has_no_condition(filter: Document<'_>) -> bool {
    filter.elements().all(|element| {
        let branches = || element.value.as_array().unwrap_or(Document::EMPTY).values();
        let is_trivial = |branch: Value<'_>| branch.as_document().is_some_and(has_no_condition);
        match element.key {
            b"$comment" | b"$alwaysTrue" => true,
            b"$and" => branches().all(is_trivial),
            b"$or" => branches().any(is_trivial),
            b"$expr" => element.value.as_flag() == Some(true),
            _ => false,
        }
    })
}

/// Returns an update with another filter and modification.
pub(super) fn remade<'a>(
    update: &Update<'a>,
    filter: CowDocument<'a>,
    modification: crate::command::Modification<'a>,
    upsert: bool,
) -> crate::command::Operation<'a> {
    let conditions = update.conditions.clone();
    let (multi, array_filters, constants) = (update.multi, update.array_filters, update.constants);
    crate::command::Operation::Update(Update {
        filter,
        conditions,
        modification,
        upsert,
        multi,
        array_filters,
        constants,
    })
}

#[cfg(test)]
mod tests {
    use bson::{doc, raw::RawDocumentBuf};

    use super::*;

    fn bytes(document: bson::Document) -> Vec<u8> {
        RawDocumentBuf::try_from(&document).unwrap().into_bytes()
    }

    #[test]
    fn filters_without_a_condition_are_found() {
        let check = |filter: bson::Document| has_no_condition(Document::parse(&bytes(filter)).unwrap());
        for filter in [
            doc! {},
            doc! {"$comment": "nightly"},
            doc! {"$and": [{}, {"$comment": 1}]},
            doc! {"$or": [{"a": 1}, {"$and": [{}]}]},
            doc! {"$alwaysTrue": 1},
            doc! {"$expr": true},
        ] {
            assert!(check(filter.clone()), "{filter}");
        }
        for filter in [
            doc! {"a": 1},
            doc! {"$comment": "nightly", "a": 1},
            doc! {"$and": [{}, {"a": 1}]},
            doc! {"$or": [{"a": 1}]},
            doc! {"$nor": [{}]},
            doc! {"$expr": false},
            doc! {"$expr": {"$eq": ["$a", 1]}},
        ] {
            assert!(!check(filter.clone()), "{filter}");
        }
    }

    #[test]
    fn a_condition_is_added_to_the_filter() {
        let check = |before: bson::Document, after: bson::Document| {
            let raw = bytes(before);
            let ours = narrowed(Document::parse(&raw).unwrap(), "v", |w, field| w.int32(field, 3));
            assert_eq!(ours.as_document().as_bytes(), bytes(after));
        };
        check(doc! {"_id": 1}, doc! {"_id": 1, "v": 3});
        check(doc! {"_id": 9, "v": {"$gt": 1}}, doc! {"_id": 9, "v": {"$gt": 1}, "$and": [{"v": 3}]});
        let own = || doc! {"a": 1};
        check(doc! {"v": 1, "$and": [own()], "b": 2}, doc! {"v": 1, "$and": [own(), {"v": 3}], "b": 2});
        check(doc! {"v": 1, "$and": []}, doc! {"$and": [{"v": 1, "$and": []}, {"v": 3}]});
        check(doc! {}, doc! {"v": 3});
    }
}
