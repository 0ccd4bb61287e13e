//! Changes one field of a document and copies the rest byte for byte.

use super::{Document, Path, Value, Writer};

/// Returns `document` with `value` at `path`. An existing field keeps its position; a new one is appended, with
/// missing parents. A parent that is not a document is replaced by one, so look it up first. `document` must not
/// contain a field twice.
pub fn set(document: Document<'_>, path: &Path, value: Value<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(document.as_bytes().len() + path.as_str().len() + value.bytes.len() + 16);
    Writer::document(&mut out, |w| set_at(w, document, path.as_str(), value));
    out
}

/// Returns `document` without the field at `path`. Documents around it stay.
pub fn without(document: Document<'_>, path: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(document.as_bytes().len());
    Writer::document(&mut out, |w| write_without(w, document, path));
    out
}

/// The path comes from a rule, so the rule bounds this recursion.
fn write_without(w: &mut Writer<'_>, document: Document<'_>, path: &str) {
    let (name, below) = path.split_once('.').map_or((path, None), |(name, below)| (name, Some(below)));
    for element in document.elements() {
        match (element.key == name.as_bytes(), below, element.value.as_document()) {
            (true, None, _) => {}
            (true, Some(below), Some(nested)) => w.nested(name, |w| write_without(w, nested, below)),
            _ => w.element(element),
        }
    }
}

/// Returns `document` with `extra` fields appended.
pub fn append(document: Document<'_>, extra: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(document.as_bytes().len() + 64);
    Writer::document(&mut out, |w| {
        w.elements(document);
        extra(w);
    });
    out
}

/// The path comes from a rule, so the rule bounds this recursion.
fn set_at(w: &mut Writer<'_>, document: Document<'_>, path: &str, value: Value<'_>) {
    let end = path.bytes().position(|byte| byte == b'.').unwrap_or(path.len());
    let (name, below) = (path.get(..end).unwrap_or(path), path.get(end + 1..));
    let write = |w: &mut Writer<'_>, stored: Option<Value<'_>>| match below {
        None => w.value(name, value),
        Some(below) => {
            let nested = stored.and_then(Value::as_document).unwrap_or(Document::EMPTY);
            w.nested(name, |w| set_at(w, nested, below, value));
        }
    };
    let mut after = document.elements();
    let all = after.as_bytes();
    let mut before = 0;
    while let Some(element) = after.next() {
        if element.key == name.as_bytes() {
            w.fields(all.get(..before).unwrap_or_default());
            write(w, Some(element.value));
            return w.fields(after.as_bytes());
        }
        before = all.len() - after.as_bytes().len();
    }
    w.fields(all);
    write(w, None);
}

#[cfg(test)]
mod tests {
    use bson::{doc, raw::RawDocumentBuf};
    use proptest::prelude::*;

    use super::*;
    use crate::document::Kind;

    fn check(before: bson::Document, path: &str, after: bson::Document) {
        let bytes = RawDocumentBuf::try_from(&before).unwrap().into_bytes();
        let number = 7i32.to_le_bytes();
        let edited = set(
            Document::parse(&bytes).unwrap(),
            &Path::parse(path).unwrap(),
            Value { kind: Kind::Int32, bytes: &number },
        );
        assert_eq!(edited, RawDocumentBuf::try_from(&after).unwrap().into_bytes(), "{before} {path}");
    }

    #[test]
    fn an_existing_field_keeps_its_position() {
        check(doc! {"a": 1, "b": 2}, "a", doc! {"a": 7, "b": 2});
        check(doc! {"a": 1}, "b", doc! {"a": 1, "b": 7});
        check(doc! {"a": {"x": 1, "y": 2}, "b": 2}, "a.x", doc! {"a": {"x": 7, "y": 2}, "b": 2});
        check(doc! {}, "a.b.c", doc! {"a": {"b": {"c": 7}}});
    }

    proptest! {
        #[test]
        fn set_equals_insert_of_the_bson_crate(fields in prop::collection::vec(("[a-e]", -9i64..9), 0..6), name in "[a-e]") {
            let mut oracle = bson::Document::new();
            for (key, number) in fields {
                oracle.insert(key, number);
            }
            let bytes = RawDocumentBuf::try_from(&oracle).unwrap().into_bytes();
            let number = 3i64.to_le_bytes();
            let ours = set(Document::parse(&bytes).unwrap(), &Path::parse(&name).unwrap(), Value { kind: Kind::Int64, bytes: &number });
            oracle.insert(name, 3i64);
            prop_assert_eq!(ours, RawDocumentBuf::try_from(&oracle).unwrap().into_bytes());
        }
    }
}
