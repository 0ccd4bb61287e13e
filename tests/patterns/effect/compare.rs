//! Whether what the server has stored is among the results that the model allows.

use docward::document::{Document, Kind, Path, PathLookup, Value};
use docward::effect::{Change, Growth, GrowthKind, element_length};

/// The values at a path, also those in elements of arrays.
fn reached<'d>(value: Value<'d>, path: &str) -> Vec<Value<'d>> {
    let (part, rest) = path.split_once('.').map_or((path, None), |(part, rest)| (part, Some(rest)));
    let below = |value: Value<'d>| rest.map_or_else(|| vec![value], |rest| reached(value, rest));
    match (value.as_document(), value.as_array()) {
        (Some(document), _) => document.get(part).map_or_else(Vec::new, below),
        (_, Some(array)) => {
            let nested =
                array.values().filter(|element| element.as_document().is_some() || element.as_array().is_some());
            let position = part.parse().ok().and_then(|position| array.values().nth(position));
            nested.flat_map(|element| reached(element, path)).chain(position.into_iter().flat_map(below)).collect()
        }
        (None, None) => Vec::new(),
    }
}

fn all<'d>(document: Document<'d>, path: &Path) -> Vec<Value<'d>> {
    reached(Value::document(document), path.as_str())
}

fn is_same(one: Value<'_>, other: Value<'_>) -> bool {
    let nan = |value: Value<'_>| value.as_f64().is_some_and(f64::is_nan);
    one == other || (nan(one) && nan(other))
}

/// Whether the model allows an update to change the document in this way.
pub(super) fn follows(change: Change<'_>, path: &Path, before: Document<'_>, after: Document<'_>) -> bool {
    let (old, new) = (path.lookup(before), path.lookup(after));
    let is = |value: Value<'_>| matches!(new, PathLookup::Found(found) if is_same(found, value));
    match change {
        Change::Untouched => old == new && all(before, path) == all(after, path),
        Change::Set(value) => is(value),
        Change::Removed => {
            // An element of an array keeps it.
            let kept = all(before, path);
            !matches!(new, PathLookup::Found(_)) && all(after, path).iter().all(|value| kept.contains(value))
        }
        Change::Incremented(amount) => match (old, new) {
            (PathLookup::Found(old), PathLookup::Found(new)) => is_sum(old, amount, new),
            _ => is(amount),
        },
        Change::Either(value) => is(value) || (old == new && matches!(old, PathLookup::Found(_))),
        Change::Now => {
            matches!(new, PathLookup::Found(found) if matches!(found.kind, Kind::DateTime | Kind::Timestamp))
        }
        Change::Inside(_) => match (old, new) {
            (PathLookup::Found(old), PathLookup::Found(new)) => {
                old == new || (is_container(old) && old.kind == new.kind)
            }
            (PathLookup::Missing, PathLookup::Found(new)) => new.kind == Kind::Document,
            _ => old == new,
        },
        Change::Unclear(_) => true,
    }
}

fn is_container(value: Value<'_>) -> bool {
    matches!(value.kind, Kind::Document | Kind::Array)
}

fn is_sum(old: Value<'_>, amount: Value<'_>, new: Value<'_>) -> bool {
    let whole = |value: Value<'_>| value.as_i32().map(i64::from).or(value.as_raw_i64()).map(i128::from);
    let numbers = old.kind.is_number() && new.kind.is_number();
    numbers
        && match (whole(old), whole(amount), whole(new)) {
            (Some(old), Some(amount), Some(new)) => old + amount == new,
            _ => true,
        }
}

/// The most bytes that these writes add to a document; `None` if a path can contain positions of arrays.
pub(super) fn growth(growths: &[Growth<'_>], before: Document<'_>) -> Option<i64> {
    let length = |bytes: usize| i64::try_from(bytes).unwrap();
    let mut sum = 0;
    for growth in growths {
        let text = std::str::from_utf8(growth.written.path).ok()?;
        if text.split('.').any(|part| part.starts_with('$') || part.bytes().all(|byte| byte.is_ascii_digit())) {
            return None;
        }
        let name = text.rsplit('.').next()?;
        let stored = match Path::parse(text)?.lookup(before) {
            PathLookup::Found(value) => element_length(name.len()) + value.bytes.len(),
            _ => 0,
        };
        sum += match growth.how {
            GrowthKind::Replaces => length(growth.bytes) - length(stored),
            GrowthKind::MayKeep => (length(growth.bytes) - length(stored)).max(0),
            GrowthKind::Appends if stored > 0 => length(growth.bytes),
            GrowthKind::Appends => length(growth.with_missing_field()),
            GrowthKind::Moves => length(growth.bytes),
        };
        for (end, _) in text.match_indices('.') {
            let around = Path::parse(&text[..end])?;
            if path_is_missing(&around, before) {
                sum += length(element_length(around.parts().next_back()?.len()) + docward::effect::EMPTY_LENGTH);
            }
        }
    }
    Some(sum)
}

fn path_is_missing(path: &Path, document: Document<'_>) -> bool {
    !matches!(path.lookup(document), PathLookup::Found(_))
}
