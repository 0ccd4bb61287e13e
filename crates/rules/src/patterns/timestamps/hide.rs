//! `hide: true`: reads return the field with the timestamps only if they ask for it by name.

use std::cmp::Ordering;

use crate::document::{Document, Kind, OwnedValue, Value, compare_numbers, document, edit};

/// Returns a projection that does not return `field`; `None` if the current one needs no change. Servers take null for no
/// projection in some commands, and reject other values that are not documents.
pub(super) fn projection(current: Option<Value<'_>>, field: &str) -> Option<OwnedValue> {
    let current = match current.filter(|current| !current.is_absent()) {
        Some(current) => current.as_document()?,
        None => Document::EMPTY,
    };
    if names(current, field) || includes(current) {
        return None;
    }
    Some(OwnedValue::document(&edit::append(current, |w| w.int32(field, 0))))
}

/// Returns the pipeline with `$unset` of `field`, placed after stages that use indexes. `None` if it names the field,
/// does not read documents of the collection, or writes its result: a copy keeps the timestamps.
pub(super) fn pipeline(stages: Document<'_>, field: &str) -> Option<OwnedValue> {
    if mentions(Value { kind: Kind::Array, bytes: stages.as_bytes() }, field) {
        return None;
    }
    let first = stages.values().next().and_then(Value::as_document).and_then(Document::first);
    if first.is_some_and(|stage| NO_DOCUMENTS.contains(&stage.key)) || stages.values().any(writes) {
        return None;
    }
    let leading = |stage: &Value<'_>| {
        let name = stage.as_document().and_then(Document::first).map(|stage| stage.key);
        name.is_some_and(|name| LEADING.contains(&name))
    };
    let leading = stages.values().take_while(leading).count();
    let hidden = document(|w| {
        w.array("", |a| {
            stages.values().take(leading).for_each(|stage| a.value(stage));
            a.nested(|w| w.string("$unset", field));
            stages.values().skip(leading).for_each(|stage| a.value(stage));
        });
    });
    Document::parse(&hidden).ok().and_then(Document::first).map(|wrapped| wrapped.value.into())
}

fn writes(stage: Value<'_>) -> bool {
    let name = stage.as_document().and_then(Document::first).map(|stage| stage.key);
    matches!(name, Some(b"$out" | b"$merge"))
}

/// Stages that only select and order documents, or must come first. `$unset` follows them, so that they can use the
/// collection's indexes.
const LEADING: [&[u8]; 9] =
    [b"$match", b"$sort", b"$limit", b"$skip", b"$sample", b"$geoNear", b"$search", b"$searchMeta", b"$vectorSearch"];

/// First stages whose output is not the collection's documents.
const NO_DOCUMENTS: [&[u8]; 6] =
    [b"$changeStream", b"$collStats", b"$indexStats", b"$planCacheStats", b"$documents", b"$listSearchIndexes"];

/// Returns whether a projection names `field` or a field inside it.
fn names(projection: Document<'_>, field: &str) -> bool {
    projection.elements().any(|element| is_or_below(element.key, field))
}

/// Returns whether a projection lists the fields to return, rather than those to exclude. The first field that is
/// included or excluded decides, except `_id`. `$slice`, `$meta` and `$elemMatch` decide nothing beside such a field.
/// Without one, a projection with `_id: 1` includes, and so does one with `$elemMatch` but no `$slice`
/// (`projection_parser::parse`; seen on 6.0).
fn includes(projection: Document<'_>) -> bool {
    let mut found = FieldEffects::default();
    let mut includes_id = false;
    for field in projection.elements() {
        match field.value.kind {
            Kind::Document => found.add_value(field.value),
            _ if field.key == b"_id" => includes_id = !excludes(field.value),
            _ => found.add_value(field.value),
        }
    }
    found.includes.unwrap_or(includes_id || found.matches_element && !found.slices)
}

/// What the fields of a projection do.
#[derive(Debug, Default)]
struct FieldEffects {
    /// Whether the first field that decides about the others is included.
    includes: Option<bool>,
    slices: bool,
    matches_element: bool,
}

impl FieldEffects {
    /// Adds what the value of a field does. The depth of checked documents bounds the recursion
    /// ([`MAX_DEPTH`](crate::document::MAX_DEPTH)).
    fn add_value(&mut self, value: Value<'_>) {
        let Some(nested) = value.as_document() else { return self.decide(!excludes(value)) };
        match nested.first().map(|first| first.key) {
            Some(b"$slice") => self.slices = true,
            Some(b"$elemMatch") => self.matches_element = true,
            Some(b"$meta") => {}
            Some(key) if !key.starts_with(b"$") => nested.values().for_each(|value| self.add_value(value)),
            _ => self.decide(true),
        }
    }

    fn decide(&mut self, includes: bool) {
        self.includes.get_or_insert(includes);
    }
}

/// Returns whether a value that is not a document excludes its field: false, or a number that is zero.
fn excludes(value: Value<'_>) -> bool {
    value.as_bool().map_or_else(|| is_zero(value), |flag| !flag)
}

fn is_zero(number: Value<'_>) -> bool {
    compare_numbers(number, OwnedValue::int32(0).as_value()) == Some(Ordering::Equal)
}

/// Returns whether any field name or string of a value is `field`, a path below it, or a reference to one.
fn mentions(value: Value<'_>, field: &str) -> bool {
    let mut unread = vec![value];
    while let Some(value) = unread.pop() {
        if let Some(text) = value.as_string_bytes()
            && (is_or_below(text, field) || text.strip_prefix(b"$").is_some_and(|path| refers(path, field)))
        {
            return true;
        }
        let Some(nested) = value.as_document_or_array() else { continue };
        for element in nested.elements() {
            if value.kind == Kind::Document && is_or_below(element.key, field) {
                return true;
            }
            unread.push(element.value);
        }
    }
    false
}

/// Returns whether a reference is to the field: `$field`, `$field.a`, `$$ROOT.field`, `$$CURRENT.field.a`, given
/// without the first `$`.
fn refers(path: &[u8], field: &str) -> bool {
    if is_or_below(path, field) {
        return true;
    }
    let variable = path
        .strip_prefix(b"$")
        .and_then(|path| path.iter().position(|b| *b == b'.').and_then(|dot| path.get(dot + 1..)));
    variable.is_some_and(|path| is_or_below(path, field))
}

fn is_or_below(path: &[u8], field: &str) -> bool {
    path.strip_prefix(field.as_bytes()).is_some_and(|rest| rest.is_empty() || rest.first() == Some(&b'.'))
}

#[cfg(test)]
mod tests {
    use bson::{Array, doc, raw::RawDocumentBuf};

    use super::*;

    fn bytes(document: bson::Document) -> Vec<u8> {
        RawDocumentBuf::try_from(&document).unwrap().into_bytes()
    }

    #[test]
    fn projections_exclude_timestamps_unless_they_name_them() {
        let hidden = |before: bson::Document, mut after: bson::Document| {
            after.insert("lm", 0);
            let raw = bytes(before.clone());
            let ours = projection(Some(Value::document(Document::parse(&raw).unwrap())), "lm");
            assert_eq!(ours, Some(OwnedValue::document(&bytes(after))), "{before}");
        };
        let decimal = |text: &str| bson::Bson::Decimal128(text.parse().unwrap());
        for excluding in [
            doc! {},
            doc! {"a": 0},
            doc! {"a": decimal("-0E+3")},
            doc! {"_id": 0},
            doc! {"a": {"$slice": 1}},
            doc! {"a": {"b": false}},
            doc! {"a": {"$elemMatch": {"b": 1}}, "c": 0},
            doc! {"_id": 0, "a": {"$elemMatch": {"b": 1}}, "c": {"$slice": 1}},
            doc! {"a": {"$elemMatch": {"b": 1}}, "c": {"d": decimal("-0")}},
            doc! {"_id": 0, "c.d": {"$slice": 1}, "a": {"$elemMatch": {"b": 1}}, "e": -0.0},
        ] {
            hidden(excluding.clone(), excluding);
        }
        for kept in [
            doc! {"a": 1},
            doc! {"a": decimal("0.1")},
            doc! {"_id": 1},
            doc! {"_id": 0, "a": true},
            doc! {"lm": 1},
            doc! {"lm.a": 1},
            doc! {"lm": 0},
            doc! {"x": "$a"},
            doc! {"a": {"$elemMatch": {"b": 1}}},
            doc! {"a": {"b": 1}},
            doc! {"_id": 0, "a": {"$elemMatch": {"b": 1}}},
            doc! {"_id": 1, "a": {"$elemMatch": {"b": 1}}, "c": {"$slice": 1}},
        ] {
            let raw = bytes(kept.clone());
            assert_eq!(projection(Some(Value::document(Document::parse(&raw).unwrap())), "lm"), None, "{kept}");
        }
        assert_eq!(projection(None, "lm"), Some(OwnedValue::document(&bytes(doc! {"lm": 0}))));
    }

    #[test]
    fn pipelines_remove_timestamps_after_stages_that_use_indexes() {
        let run = |stages: Array| {
            let raw = bytes(doc! {"p": stages});
            let document = Document::parse(&raw).unwrap();
            pipeline(document.get("p").unwrap().as_array().unwrap(), "lm").map(|array| {
                let wrapped = super::document(|w| w.value("p", array.as_value()));
                let read = bson::Document::try_from(RawDocumentBuf::from_bytes(wrapped).unwrap()).unwrap();
                read.get_array("p").unwrap().clone()
            })
        };
        let stages = |documents: &[bson::Document]| documents.iter().cloned().map(bson::Bson::from).collect::<Array>();
        assert_eq!(run(vec![]), Some(stages(&[doc! {"$unset": "lm"}])));
        assert_eq!(
            run(stages(&[doc! {"$match": {"a": 1}}, doc! {"$group": {"_id": null_id()}}])),
            Some(stages(&[doc! {"$match": {"a": 1}}, doc! {"$unset": "lm"}, doc! {"$group": {"_id": null_id()}}]))
        );
        for kept in [
            doc! {"$match": {"lm.a": 1}},
            doc! {"$project": {"t": "$lm"}},
            doc! {"$project": {"t": "$$ROOT.lm.a"}},
            doc! {"$collStats": {}},
            doc! {"$changeStream": {}},
            doc! {"$unset": ["lm"]},
            doc! {"$out": "copy"},
            doc! {"$merge": {"into": "copy"}},
        ] {
            assert_eq!(run(stages(std::slice::from_ref(&kept))), None, "{kept}");
        }
    }

    fn null_id() -> bson::Bson {
        bson::Bson::Null
    }
}
