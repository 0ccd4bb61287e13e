//! The values that update operators may write at a path, wherever arrays are on the way.

use super::items::AddedValues;
use super::operators::{PathOverlap, touch, touched, without_positions};
use super::upsert::Equalities;
use crate::document::{Document, Path, Value, rest_below};

/// Calls `found` with each value that `$set`, `$setOnInsert`, `$min`, `$max`, `$push` and `$addToSet` may give to the
/// field, of a stored document or a new one: also as an element of it, and inside the values of fields around it.
/// Results that the server computes are not among them. `upsert`: whether the statement may insert a document, which gets
/// what `$setOnInsert` sets.
pub fn written_values<'u>(operators: Document<'u>, field: &Path, upsert: bool, mut found: impl FnMut(Value<'u>)) {
    for (operator, written, value) in touched(operators) {
        let added = match operator {
            b"$setOnInsert" if !upsert => continue,
            b"$set" | b"$setOnInsert" | b"$min" | b"$max" => AddedValues::One(value),
            b"$push" | b"$addToSet" => AddedValues::in_argument(operator, value),
            _ => continue,
        };
        match touch(field, written) {
            PathOverlap::Apart | PathOverlap::Inside => {}
            PathOverlap::Exact => added.values().for_each(|value| at_end(value, &mut found)),
            PathOverlap::Around | PathOverlap::Positional => {
                let (field, written) = (without_positions(field.as_str().as_bytes()), without_positions(written));
                added.values().for_each(|value| match rest_below(&field, &written) {
                    Some(rest) => below(value, rest, &mut found),
                    None if field == written => at_end(value, &mut found),
                    None => {}
                });
            }
        }
    }
}

/// The same for the values that an upsert takes from its filter.
pub fn pinned_values<'f>(filter: Document<'f>, field: &Path, mut found: impl FnMut(Value<'f>)) {
    let path = field.as_str().as_bytes();
    for (pinned, value) in Equalities::of_filter(filter).iter().flat_map(Equalities::values) {
        match rest_below(path, pinned) {
            Some(rest) => below(value, rest, &mut found),
            None if path == pinned => at_end(value, &mut found),
            None => {}
        }
    }
}

/// Finds the values at the path `rest` below a value, in each element of arrays.
fn below<'u>(value: Value<'u>, rest: &[u8], found: &mut impl FnMut(Value<'u>)) {
    if let Some(elements) = value.as_array() {
        return elements.values().for_each(|element| below(element, rest, found));
    }
    let Some(document) = value.as_document() else { return };
    let (name, deeper) = match rest.iter().position(|byte| *byte == b'.') {
        Some(dot) => (rest.get(..dot).unwrap_or_default(), rest.get(dot + 1..)),
        None => (rest, None),
    };
    match (document.get(name), deeper) {
        (Some(value), Some(deeper)) => below(value, deeper, found),
        (Some(value), None) => at_end(value, found),
        (None, _) => {}
    }
}

fn at_end<'u>(value: Value<'u>, found: &mut impl FnMut(Value<'u>)) {
    match value.as_array() {
        Some(elements) => elements.values().for_each(found),
        None => found(value),
    }
}

#[cfg(test)]
mod tests {
    use bson::{Document as Bson, RawDocumentBuf, doc};

    use super::*;

    #[test]
    fn values_are_found_in_arrays_and_documents() {
        let cases: [(&str, Bson, &[i64]); 11] = [
            ("n", doc! { "$set": { "n": 1, "m": 2 } }, &[1]),
            ("n", doc! { "$setOnInsert": { "n": [1, 2] } }, &[1, 2]),
            ("n", doc! { "$max": { "n.0": 5 } }, &[5]),
            ("n", doc! { "$set": { "n.x": 5 } }, &[]),
            ("n", doc! { "$push": { "n": { "$each": [1, 2], "$position": 0 } } }, &[1, 2]),
            ("n", doc! { "$addToSet": { "n": 3 } }, &[3]),
            ("n", doc! { "$inc": { "n": 3 }, "$pull": { "n": 4 } }, &[]),
            ("a.n", doc! { "$set": { "a": [{ "n": 1 }, { "n": [2, 3] }, 4] } }, &[1, 2, 3]),
            ("a.n", doc! { "$min": { "a": { "n": 7, "z": 1 } } }, &[7]),
            ("a.n", doc! { "$set": { "a.0": { "n": 7 }, "a.$[].n": 8, "a.b": 9 } }, &[7, 8]),
            ("a.b.n", doc! { "$push": { "a": { "b": [{ "n": 1 }] } } }, &[1]),
        ];
        for (field, operators, expected) in cases {
            let bytes = RawDocumentBuf::try_from(&operators).unwrap().into_bytes();
            let mut found = Vec::new();
            let field = Path::parse(field).unwrap();
            written_values(Document::parse(&bytes).unwrap(), &field, true, |value| found.extend(value.as_integer()));
            assert_eq!(found, expected, "{operators}");
        }
    }
}
