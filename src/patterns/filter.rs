//! Adds conditions to filters.

use crate::command::Update;
use crate::document::{CowDocument, Document, Value, Writer, edit};

/// Returns `filter` with one more condition on `field`, which `condition` writes under the given name. A filter that
/// already names the field is kept whole inside `$and`.
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

/// Returns an update with another filter and modification.
pub(super) fn remade<'a>(
    update: &Update<'a>,
    filter: CowDocument<'a>,
    modification: crate::command::Modification<'a>,
    upsert: bool,
) -> crate::command::Operation<'a> {
    let conditions = update.conditions.clone();
    let (multi, array_filters) = (update.multi, update.array_filters);
    crate::command::Operation::Update(Update { filter, conditions, modification, upsert, multi, array_filters })
}

#[cfg(test)]
mod tests {
    use bson::{doc, raw::RawDocumentBuf};

    use super::*;

    fn bytes(document: bson::Document) -> Vec<u8> {
        RawDocumentBuf::try_from(&document).unwrap().into_bytes()
    }

    #[test]
    fn a_condition_is_added_to_the_filter() {
        let check = |before: bson::Document, after: bson::Document| {
            let raw = bytes(before);
            let ours = narrowed(Document::parse(&raw).unwrap(), "v", |w, field| w.int32(field, 3));
            assert_eq!(ours.as_document().as_bytes(), bytes(after));
        };
        check(doc! {"_id": 1}, doc! {"_id": 1, "v": 3});
        check(doc! {"v": {"$gt": 1}}, doc! {"$and": [{"v": {"$gt": 1}}, {"v": 3}]});
        check(doc! {}, doc! {"v": 3});
    }
}
