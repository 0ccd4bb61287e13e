//! Converts update pipelines that only set constants into update operators. Some ODMs send such pipelines instead of
//! operators (Django: `[{$set: {name: {$literal: "Ada"}}}]`).

use crate::document::{CowDocument, Document, Element, Kind, OwnedValue, Value};

/// Returns operators with the same effect as a client's pipeline, if its stages are `$set`, `$addFields` and `$unset`
/// of top-level fields with constant values. Returns `None` for any other pipeline.
///
/// A dotted path or a document as a value has another effect: a pipeline sets the fields inside it, also in arrays
/// and in place of scalars, but `$set` replaces the field or fails (MongoDB manual, "$addFields", "Overwriting an
/// existing field").
pub(super) fn as_operators<'a>(stages: Document<'a>) -> Option<CowDocument<'a>> {
    let mut writes: Vec<(&'a [u8], Option<Value<'a>>)> = Vec::new();
    for stage in stages.values() {
        let stage = stage.as_document()?;
        let Element { key, value } = stage.first().filter(|_| stage.elements().count() == 1)?;
        match key {
            b"$set" | b"$addFields" => {
                let fields = value.as_document()?;
                // The server rejects a stage without fields.
                fields.first()?;
                for field in fields.elements() {
                    record_write(&mut writes, field.key, constant(field.value)?)?;
                }
            }
            b"$unset" if value.kind == Kind::Array => {
                let names: Vec<_> =
                    value.as_array()?.values().map(|name| name.as_string_bytes()).collect::<Option<_>>()?;
                // It also rejects a stage that removes a field twice.
                let is_twice = |(at, name): (usize, &&[u8])| names.iter().take(at).any(|earlier| earlier == name);
                if names.is_empty() || names.iter().enumerate().any(is_twice) {
                    return None;
                }
                names.into_iter().try_for_each(|name| record_write(&mut writes, name, None))?;
            }
            b"$unset" => record_write(&mut writes, value.as_string_bytes()?, None)?,
            _ => return None,
        }
    }
    if writes.is_empty() {
        return None;
    }
    let one = OwnedValue::int32(1);
    Some(CowDocument::build(|w| {
        let of = |sets: bool| writes.iter().filter(move |(_, value)| value.is_some() == sets);
        if of(true).next().is_some() {
            w.nested("$set", |w| {
                of(true).for_each(|(name, value)| value.iter().for_each(|value| w.value(name, *value)))
            });
        }
        if of(false).next().is_some() {
            w.nested("$unset", |w| of(false).for_each(|(name, _)| w.value(name, one.as_value())));
        }
    }))
}

/// Records a write to a field and drops earlier writes to it. Returns `None` if the name is a path.
fn record_write<'a>(
    writes: &mut Vec<(&'a [u8], Option<Value<'a>>)>,
    name: &'a [u8],
    value: Option<Value<'a>>,
) -> Option<()> {
    if name.is_empty() || name.starts_with(b"$") || name.contains(&b'.') {
        return None;
    }
    // A pipeline that removes `_id` has no effect, but `$unset` of it fails.
    if name == b"_id" && value.is_none() {
        return None;
    }
    writes.retain(|(other, _)| *other != name);
    writes.push((name, value));
    Some(())
}

/// Returns the value of a constant expression. `Some(None)` removes the field.
fn constant(expression: Value<'_>) -> Option<Option<Value<'_>>> {
    match expression.kind {
        Kind::String if expression.as_str() == Some("$$REMOVE") => Some(None),
        Kind::Document => {
            let document = expression.as_document()?;
            let Element { key, value } = document.first().filter(|_| document.elements().count() == 1)?;
            matches!(key, b"$literal" | b"$const").then_some(Some(value))
        }
        _ => is_constant(expression).then_some(Some(expression)),
    }
}

/// Returns whether an expression evaluates to itself: not a string that begins with `$`, and not a document, which
/// could be an operator.
fn is_constant(expression: Value<'_>) -> bool {
    match expression.kind {
        Kind::String => expression.as_string_bytes().is_some_and(|text| !text.starts_with(b"$")),
        Kind::Document => false,
        Kind::Array => expression.as_array().is_some_and(|array| array.values().all(is_constant)),
        // The server rejects these types or interprets them differently.
        Kind::Undefined | Kind::JavaScript | Kind::JavaScriptWithScope | Kind::Symbol | Kind::DbPointer => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use bson::{doc, raw::RawDocumentBuf};

    use super::*;

    fn operators_of(stages: Vec<bson::Document>) -> Option<String> {
        let raw = RawDocumentBuf::try_from(&doc! {"u": stages}).unwrap().into_bytes();
        let stages = Document::parse(&raw).unwrap().get("u").and_then(Value::as_array).unwrap();
        let operators = as_operators(stages)?;
        Some(bson::Document::from_reader(operators.as_document().as_bytes()).unwrap().to_string())
    }

    #[test]
    fn stages_of_constants_become_operators() {
        let check = |stages: Vec<bson::Document>, expected: bson::Document| {
            assert_eq!(operators_of(stages.clone()), Some(expected.to_string()), "{stages:?}");
        };
        check(vec![doc! {"$set": {"a": {"$literal": {"x": "$y"}}, "b": 2}}], doc! {"$set": {"a": {"x": "$y"}, "b": 2}});
        check(
            vec![doc! {"$addFields": {"a": [1, "x"]}}, doc! {"$unset": "b"}],
            doc! {"$set": {"a": [1, "x"]}, "$unset": {"b": 1}},
        );
        check(vec![doc! {"$set": {"a": 1}}, doc! {"$unset": ["a"]}, doc! {"$set": {"a": 2}}], doc! {"$set": {"a": 2}});
        check(vec![doc! {"$set": {"a": "$$REMOVE"}}], doc! {"$unset": {"a": 1}});
    }

    #[test]
    fn pipelines_with_expressions_or_paths_are_not_converted() {
        for stage in [
            doc! {"$set": {"a": "$b"}},
            doc! {"$set": {"a": {"$add": ["$a", 1]}}},
            doc! {"$set": {"a": {"x": 1}}},
            doc! {"$set": {"a.b": 1}},
            doc! {"$set": {"a": ["$b"]}},
            doc! {"$set": {"a": "$$NOW"}},
            doc! {"$unset": "a.b"},
            doc! {"$unset": "_id"},
            doc! {"$set": {"_id": "$$REMOVE"}},
            doc! {"$replaceWith": {"$literal": {"a": 1}}},
            doc! {"$project": {"a": 0}},
            doc! {"$set": {}},
        ] {
            assert_eq!(operators_of(vec![stage.clone()]), None, "{stage}");
        }
        assert_eq!(operators_of(Vec::new()), None);
        for invalid in [doc! {"$unset": []}, doc! {"$unset": ["b", "c", "b"]}, doc! {"$set": {}}] {
            assert_eq!(operators_of(vec![doc! {"$set": {"a": 1}}, invalid.clone()]), None, "{invalid}");
        }
    }
}
