//! Reading filters for what they pin down, and narrowing them.

use crate::command::Update;
use crate::document::{CowDocument, Document, Element, Elements, Kind, Value, Writer, edit};

/// The value a filter demands `field` to be equal to: `{f: v}`, `{f: {$eq: v}}`, also inside `$and`.
pub(crate) fn equality<'f>(filter: Document<'f>, field: &str) -> Option<Value<'f>> {
    let mut unread = vec![filter];
    while let Some(document) = unread.pop() {
        for element in document.elements() {
            if element.key == field.as_bytes()
                && let Some(value) = pinned(element.value)
            {
                return Some(value);
            }
            if element.key == b"$and"
                && let Some(branches) = element.value.as_array()
            {
                unread.extend(branches.values().filter_map(Value::as_document));
            }
        }
    }
    None
}

/// The value of an equality; regular expressions and operator documents are none.
fn pinned(condition: Value<'_>) -> Option<Value<'_>> {
    let operators = condition.as_document().filter(|d| d.first().is_some_and(|first| first.key.starts_with(b"$")));
    match operators {
        Some(operators) => operators.get("$eq"),
        None => (condition.kind != Kind::Regex).then_some(condition),
    }
}

/// `filter` and one more condition on `field`, written by `condition` under the given name. A filter that
/// names the field already is kept whole inside `$and`.
pub(super) fn narrowed<'a>(
    filter: Document<'_>,
    field: &str,
    condition: impl Fn(&mut Writer<'_>, &str),
) -> CowDocument<'a> {
    let named = filter.elements().any(|element| element.key == field.as_bytes());
    CowDocument::from_writer(if named {
        crate::document::document(|w| {
            w.array("$and", |a| {
                a.value(Value::document(filter));
                a.nested(|w| condition(w, field));
            });
        })
    } else {
        edit::append(filter, |w| condition(w, field))
    })
}

/// The paths an update's operators touch, with the operator and the value: `($set, status, "paid")`.
/// `$rename` touches both its ends.
pub(super) fn touched(operators: Document<'_>) -> Touched<'_> {
    Touched { operators: operators.elements(), operator: b"", fields: Document::EMPTY.elements(), renamed: None }
}

/// What [`touched`] gives.
pub(super) struct Touched<'u> {
    operators: Elements<'u>,
    operator: &'u [u8],
    /// The operator's fields to come.
    fields: Elements<'u>,
    /// The other end of the `$rename` that was given last.
    renamed: Option<(&'u [u8], Value<'u>)>,
}

impl<'u> Iterator for Touched<'u> {
    type Item = (&'u [u8], &'u [u8], Value<'u>);

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

/// An update with another filter and modification.
pub(super) fn remade<'a>(
    update: &Update<'a>,
    filter: CowDocument<'a>,
    modification: crate::command::Modification<'a>,
    upsert: bool,
) -> crate::command::Operation<'a> {
    crate::command::Operation::Update(Update {
        filter,
        modification,
        upsert,
        multi: update.multi,
        array_filters: update.array_filters,
    })
}

#[cfg(test)]
mod tests {
    use bson::{Bson, doc, raw::RawDocumentBuf};

    use super::*;

    fn bytes(document: bson::Document) -> Vec<u8> {
        RawDocumentBuf::try_from(&document).unwrap().into_bytes()
    }

    #[test]
    fn equalities_are_found_wherever_the_server_finds_them() {
        let cases = [
            (doc! {"v": 3}, Some(3)),
            (doc! {"v": {"$eq": 3}}, Some(3)),
            (doc! {"$and": [{"a": 1}, {"$and": [{"v": 3}]}]}, Some(3)),
            (doc! {"v": {"$gte": 3}}, None),
            (doc! {"$or": [{"v": 3}]}, None),
            (doc! {"v": {"$in": [3]}}, None),
            (doc! {"w": 3}, None),
        ];
        for (filter, expected) in cases {
            let raw = bytes(filter.clone());
            let found = equality(Document::parse(&raw).unwrap(), "v").and_then(Value::as_i32);
            assert_eq!(found, expected, "{filter}");
        }
    }

    #[test]
    fn a_condition_is_added_beside_what_is_there() {
        let check = |before: bson::Document, after: bson::Document| {
            let raw = bytes(before);
            let ours = narrowed(Document::parse(&raw).unwrap(), "v", |w, field| w.int32(field, 3));
            assert_eq!(ours.as_document().as_bytes(), bytes(after));
        };
        check(doc! {"_id": 1}, doc! {"_id": 1, "v": 3});
        check(doc! {"v": {"$gt": 1}}, doc! {"$and": [{"v": {"$gt": 1}}, {"v": 3}]});
        check(doc! {}, doc! {"v": 3});
        let _ = Bson::Null;
    }
}
