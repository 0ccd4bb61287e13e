//! The equalities of a filter. Every matched document has these values, and an upsert writes them into the document
//! that it inserts.
//!
//! mongod normalises the filter and then takes the equalities at its top level and below `$and` (`path_support.cpp`,
//! `extractEqualityMatches`). Normalisation turns `$or` and `$and` with one branch into that branch, `$in` with one
//! value into an equality, and `$all` into an `$and` of equalities (`MatchExpression::normalize`; seen on 6.0). Later
//! versions simplify more (8.0: boolean simplifier), so they may find an equality that 6.0 does not find. Such equalities
//! are marked as uncertain.

use std::cmp::Ordering;

use smallvec::SmallVec;

use crate::document::{
    Document, Element, Kind, Path, PathLookup, Value, compare_numbers, is_at_or_below, look_below, paths_overlap,
    root_of,
};

/// A path that the filter requires to have one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FilterEquality<'f> {
    pub(super) path: &'f [u8],
    /// `None` if it is not known which of several equal values the server uses.
    pub(super) value: Option<Value<'f>>,
    /// Whether all versions of the server treat it as an equality.
    pub(super) certain: bool,
}

impl<'f> FilterEquality<'f> {
    /// Returns the name of the top-level field.
    pub(super) fn root(&self) -> &'f [u8] {
        root_of(self.path)
    }
}

pub(super) type Equalities<'f> = SmallVec<[FilterEquality<'f>; 4]>;

/// Returns the equalities of the filter, in its order.
pub(super) fn equalities(filter: Document<'_>) -> Equalities<'_> {
    equalities_and_emptiness(filter).0
}

/// Returns [`equalities`] and [`may_match_nothing`].
pub(super) fn equalities_and_emptiness(filter: Document<'_>) -> (Equalities<'_>, bool) {
    let mut equalities = Equalities::new();
    let matches_nothing = collect(filter, true, 0, &mut equalities);
    (equalities, matches_nothing)
}

/// Returns the names of the top-level fields that an upsert inserts, or may insert, from its filter.
pub fn given_roots<'f>(filter: Document<'f>) -> impl Iterator<Item = &'f [u8]> {
    equalities(filter).into_iter().map(|equality| equality.root())
}

/// Returns whether the server can build a document from the equalities. It fails if two are on one path or one is
/// inside the other (54, NotSingleValueField; seen on 6.0 also if both are the same). If one of the two is uncertain,
/// only some versions of the server can build it.
pub fn equalities_agree(filter: Document<'_>) -> bool {
    agree(equalities(filter).iter())
}

/// Returns the same as `equalities_agree` for `_id` only, the one field that an upsert by replacement takes from its filter.
pub fn id_equalities_agree(filter: Document<'_>) -> bool {
    agree(equalities(filter).iter().filter(|equality| is_at_or_below(equality.path, b"_id")))
}

/// Returns whether the filter has `$expr`: the server rejects upserts with it (224).
pub fn uses_expr(filter: Document<'_>) -> bool {
    uses_expr_at(filter, 0)
}

fn uses_expr_at(filter: Document<'_>, depth: usize) -> bool {
    let branches = |value: Value<'_>| {
        let branches = value.as_array().unwrap_or(Document::EMPTY);
        branches.values().filter_map(Value::as_document).any(|branch| uses_expr_at(branch, depth + 1))
    };
    depth > MAX_DEPTH
        || filter.elements().any(|element| match element.key {
            b"$expr" => true,
            b"$and" | b"$or" | b"$nor" => branches(element.value),
            _ => false,
        })
}

/// Returns whether the server may see without any document that nothing matches the filter. An upsert then takes no
/// equality from it (`$alwaysFalse`, `$all` of nothing; seen on 6.0, `$in` of nothing may follow in later versions).
pub fn may_match_nothing(filter: Document<'_>) -> bool {
    equalities_and_emptiness(filter).1
}

/// Returns the top-level conditions of the filter for which [`may_match_nothing`] is true.
pub fn never_matching(filter: Document<'_>) -> impl Iterator<Item = Element<'_>> {
    filter.elements().filter(|element| collect_element(element, true, 0, &mut Equalities::new()))
}

/// Whether operators of one path may be seen to exclude every value.
fn excludes_all(operators: Document<'_>) -> bool {
    operators.elements().any(|operator| match operator.key {
        b"$in" | b"$all" => operator.value.as_array().is_some_and(Document::is_empty),
        b"$not" => operator.value.as_document().is_some_and(|negated| negated.get("$nin").is_some()),
        _ => false,
    })
}

/// Returns whether none of the equalities overlaps another one.
pub(super) fn agree<'p, 'f: 'p>(equalities: impl Iterator<Item = &'p FilterEquality<'f>>) -> bool {
    let mut paths: SmallVec<[&[u8]; 8]> = equalities.map(|equality| equality.path).collect();
    // A path comes before the paths below it, and between them are only other paths below it.
    paths.sort_unstable_by(|one, other| one.split(is_dot).cmp(other.split(is_dot)));
    paths.windows(2).all(|pair| !matches!(pair, [one, other] if paths_overlap(one, other)))
}

fn is_dot(byte: &u8) -> bool {
    *byte == b'.'
}

/// Returns the value of `field` in every document that the filter matches, from an equality of any form: `{f: v}`,
/// `$eq`, `$in` or `$all` with one value, also inside `$and`, inside an `$or` with one branch, or in an enclosing
/// document.
pub fn equality<'f>(filter: Document<'f>, field: &str) -> Option<Value<'f>> {
    equalities(filter).into_iter().filter(|equality| equality.certain).find_map(|equality| {
        let rest = field.as_bytes().strip_prefix(equality.path)?;
        match rest.split_first() {
            None => equality.value,
            Some((b'.', below)) => match look_below(below, equality.value?) {
                PathLookup::Found(value) => Some(value),
                PathLookup::Missing | PathLookup::Blocked(_) => None,
            },
            Some(_) => None,
        }
    })
}

/// Returns whether the filter has an equality on a field inside `field`: then every document that it matches has a document or an
/// array there. Null also matches where there is neither.
pub fn has_equality_inside(filter: Document<'_>, field: &Path) -> bool {
    equalities(filter).into_iter().any(|equality| {
        let is_inside = field.covers(equality.path) && field.as_str().as_bytes() != equality.path;
        is_inside && equality.certain && equality.value.is_some_and(|value| value.kind != Kind::Null)
    })
}

/// Filters can nest as deep as documents. Equalities below this depth are ignored.
const MAX_DEPTH: usize = 100;

/// Collects the equalities of a filter. Returns whether the server may see that nothing matches it.
fn collect<'f>(filter: Document<'f>, certain: bool, depth: usize, equalities: &mut Equalities<'f>) -> bool {
    depth > MAX_DEPTH
        || filter.elements().fold(false, |never, element| never | collect_element(&element, certain, depth, equalities))
}

fn collect_element<'f>(element: &Element<'f>, certain: bool, depth: usize, equalities: &mut Equalities<'f>) -> bool {
    let branches = || element.value.as_array().unwrap_or(Document::EMPTY).values().filter_map(Value::as_document);
    match element.key {
        b"$alwaysFalse" => true,
        b"$and" => branches().fold(false, |never, branch| never | collect(branch, certain, depth + 1, equalities)),
        b"$or" => collect_or(branches(), certain, depth + 1, equalities),
        b"$nor" => {
            branches().for_each(|branch| collect_negated(branch, depth + 1, equalities));
            // A negation of what always matches.
            branches().any(|branch| branch.elements().all(|element| element.key.starts_with(b"$")))
        }
        key if key.starts_with(b"$") => false,
        path => collect_condition(path, element.value, certain, equalities),
    }
}

/// Collects the equalities of an `$or`: those of its only branch, or, as uncertain, those that all branches share. The server
/// drops a branch that it sees to match nothing (`$alwaysFalse`, `$all` of nothing; seen on 6.0). Then the other branch
/// may be the only one.
fn collect_or<'f>(
    branches: impl Iterator<Item = Document<'f>>,
    certain: bool,
    depth: usize,
    equalities: &mut Equalities<'f>,
) -> bool {
    // One of the dropped branches may stay, if the server does not see that it matches nothing.
    let (mut shared, mut of_dropped) = (Equalities::new(), Equalities::new());
    let (mut kept, mut dropped) = (0_usize, 0_usize);
    for branch in branches {
        let mut own = Equalities::new();
        if collect(branch, certain, depth, &mut own) {
            of_dropped.extend(own);
            dropped += 1;
            continue;
        }
        match kept {
            0 => shared = own,
            _ => shared.retain(|equality| {
                own.iter().any(|other| other.path == equality.path && other.value == equality.value)
            }),
        }
        kept += 1;
    }
    let mut found = if kept == 0 { of_dropped } else { shared };
    if kept + dropped > 1 {
        found.iter_mut().for_each(|equality| equality.certain = false);
    }
    equalities.extend(found);
    kept == 0
}

/// Collects the equalities below a double negation, which the server may simplify.
fn collect_negated<'f>(filter: Document<'f>, depth: usize, equalities: &mut Equalities<'f>) {
    for element in filter.elements().filter(|element| element.key == b"$nor") {
        let branches = element.value.as_array().unwrap_or(Document::EMPTY);
        branches
            .values()
            .filter_map(Value::as_document)
            .for_each(|branch| _ = collect(branch, false, depth, equalities));
    }
}

fn collect_condition<'f>(path: &'f [u8], condition: Value<'f>, certain: bool, equalities: &mut Equalities<'f>) -> bool {
    let mut add = |value: Option<Value<'f>>, certain| equalities.push(FilterEquality { path, value, certain });
    let Some(operators) = condition_operators(condition) else {
        // A regular expression is not an equality.
        if condition.kind != Kind::Regex {
            add(Some(condition), certain);
        }
        return false;
    };
    for operator in operators.elements() {
        let values = || operator.value.as_array().unwrap_or(Document::EMPTY).values();
        match operator.key {
            b"$eq" => add(Some(operator.value), certain),
            b"$in" => {
                let mut values = values();
                let Some(first) = values.next().filter(|first| first.kind != Kind::Regex) else { continue };
                let rest: SmallVec<[Value<'f>; 4]> = values.collect();
                let all =
                    |are_equal: fn(Value<'f>, Value<'f>) -> bool| rest.iter().all(|value| are_equal(*value, first));
                match () {
                    () if all(|one, other| one == other) => add(Some(first), certain),
                    // The server keeps the first of equal values, but sorting many of them may change their order.
                    () if all(is_equal) => add(Some(first).filter(|_| rest.len() < FEW_VALUES), certain),
                    () if all(may_be_equal) => add(None, false),
                    () => {}
                }
            }
            b"$all" => {
                let plain = |value: &Value<'f>| value.kind != Kind::Regex && condition_operators(*value).is_none();
                values().filter(plain).for_each(|value| add(Some(value), certain));
            }
            b"$not" if operator.value.as_document().is_some_and(|nested| nested.get("$not").is_some()) => {
                add(None, false);
            }
            _ => {}
        }
    }
    excludes_all(operators)
}

/// Returns the operators of a condition, or `None` if it is a value. A DBRef begins with `$` and is a value.
pub fn condition_operators(condition: Value<'_>) -> Option<Document<'_>> {
    let document = condition.as_document()?;
    let first = document.first()?;
    let is_operator = first.key.starts_with(b"$") && !matches!(first.key, b"$ref" | b"$id" | b"$db");
    is_operator.then_some(document)
}

/// The server sorts this number of values with an algorithm that keeps the order of equal ones (`std::sort`).
const FEW_VALUES: usize = 16;

/// Returns whether two values are equal for the server, which then treats an `$in` of both as one value: numbers of
/// different types, also inside documents and arrays.
pub fn is_equal(one: Value<'_>, other: Value<'_>) -> bool {
    equal_if(one, other, &|one: Value<'_>, other: Value<'_>| one.bytes == other.bytes)
}

/// Returns whether two values may be equal for the server: those of [`is_equal`], and, under a collation, strings.
fn may_be_equal(one: Value<'_>, other: Value<'_>) -> bool {
    equal_if(one, other, &|_: Value<'_>, _: Value<'_>| true)
}

/// Compares two values; strings with `equal_texts`.
fn equal_if(one: Value<'_>, other: Value<'_>, equal_texts: &impl Fn(Value<'_>, Value<'_>) -> bool) -> bool {
    let is_text = |value: Value<'_>| matches!(value.kind, Kind::String | Kind::Symbol);
    if one == other {
        return true;
    }
    match (compare_numbers(one, other), one.as_document_or_array(), other.as_document_or_array()) {
        (Some(ordering), ..) => ordering == Ordering::Equal,
        (None, Some(fields), Some(others)) => {
            let same_count = one.kind == other.kind && fields.values().count() == others.values().count();
            let are_equal = |(field, other): (Element<'_>, Element<'_>)| {
                field.key == other.key && equal_if(field.value, other.value, equal_texts)
            };
            same_count && fields.elements().zip(others.elements()).all(are_equal)
        }
        // All NaN values are equal.
        (None, None, None) => {
            (is_text(one) && is_text(other) && equal_texts(one, other)) || (is_nan(one) && is_nan(other))
        }
        (None, ..) => false,
    }
}

fn is_nan(value: Value<'_>) -> bool {
    value.kind.is_number() && compare_numbers(value, value).is_none()
}

#[cfg(test)]
mod tests {
    use bson::{doc, raw::RawDocumentBuf};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agreement_is_that_of_all_pairs(paths in prop::collection::vec("[ab]([-.][ab]?){0,3}", 0..6)) {
            let equality = |path: &'static str| FilterEquality { path: path.as_bytes(), value: None, certain: true };
            let equalities: Vec<FilterEquality<'_>> = paths.iter().map(|path| equality(path.clone().leak())).collect();
            let earlier = |index: usize| equalities.iter().take(index);
            let in_pairs = equalities.iter().enumerate().all(|(index, equality)| !earlier(index).any(|other| paths_overlap(equality.path, other.path)));
            prop_assert_eq!(agree(equalities.iter()), in_pairs);
        }
    }

    fn found(filter: bson::Document, field: &str) -> Option<i32> {
        let raw = RawDocumentBuf::try_from(&filter).unwrap().into_bytes();
        equality(Document::parse(&raw).unwrap(), field).and_then(Value::as_i32)
    }

    #[test]
    fn equalities_are_found_in_all_forms_the_server_supports() {
        let cases = [
            (doc! {"v": 3}, Some(3)),
            (doc! {"v": {"$eq": 3}}, Some(3)),
            (doc! {"$and": [{"a": 1}, {"$and": [{"v": 3}]}]}, Some(3)),
            (doc! {"$or": [{"v": 3}]}, Some(3)),
            (doc! {"v": {"$in": [3]}}, Some(3)),
            (doc! {"v": {"$in": [3, 3]}}, Some(3)),
            (doc! {"v": {"$in": [3, 3.0]}}, Some(3)),
            (doc! {"v": {"$all": [3]}}, Some(3)),
            (doc! {"v": {"$gt": 1, "$in": [3]}}, Some(3)),
            (doc! {"v": {"$gte": 3}}, None),
            (doc! {"v": {"$in": [3, 4]}}, None),
            (doc! {"v": {"$in": []}}, None),
            (doc! {"v": {"$elemMatch": {"$eq": 3}}}, None),
            (doc! {"v": {"$not": {"$eq": 3}}}, None),
            (doc! {"$nor": [{"v": 3}]}, None),
            (doc! {"$or": [{"v": 3}, {"v": 4}]}, None),
            (doc! {"$expr": {"$eq": ["$v", 3]}}, None),
            (doc! {"w": 3}, None),
        ];
        for (filter, expected) in cases {
            assert_eq!(found(filter.clone(), "v"), expected, "{filter}");
        }
    }

    #[test]
    fn equalities_of_parent_documents_count() {
        assert_eq!(found(doc! {"a": {"b": {"c": 3}}}, "a.b.c"), Some(3));
        assert_eq!(found(doc! {"a.b": {"$in": [{"c": 3}]}}, "a.b.c"), Some(3));
        assert_eq!(found(doc! {"a": {"b": 1}}, "a.c"), None);
        assert_eq!(found(doc! {"a": 1}, "ab"), None);
    }

    #[test]
    fn values_that_are_equal_for_the_server_are_one() {
        // Whether it is certain that they are equal; `None` if they are not.
        let given = |values: bson::Document| {
            let raw = RawDocumentBuf::try_from(&doc! {"v": values}).unwrap().into_bytes();
            equalities(Document::parse(&raw).unwrap()).first().map(|equality| equality.certain)
        };
        let decimal = bson::Bson::Decimal128("2".parse().unwrap());
        assert_eq!(given(doc! {"$in": [2.0, decimal]}), Some(true));
        assert_eq!(given(doc! {"$in": [{"a": 1}, {"a": 1_i64}]}), Some(true));
        assert_eq!(given(doc! {"$in": [f64::NAN, f64::NAN]}), Some(true));
        assert_eq!(given(doc! {"$in": [[1, "a"], [1.0, "A"]]}), Some(false));
        assert_eq!(given(doc! {"$in": [[1, 2], [1, 3]]}), None);
        assert_eq!(given(doc! {"$in": [{"a": 1}, {"b": 1}]}), None);
        assert_eq!(given(doc! {"$in": [[1], [1, 2]]}), None);
        assert_eq!(given(doc! {"$in": [1, f64::NAN]}), None);
    }

    #[test]
    fn equalities_of_some_versions_only_are_uncertain() {
        let raw = RawDocumentBuf::try_from(&doc! {"$or": [{"v": 3, "a": 1}, {"v": 3}]}).unwrap().into_bytes();
        let equalities = equalities(Document::parse(&raw).unwrap());
        assert_eq!(
            equalities.iter().map(|equality| (equality.path, equality.certain)).collect::<Vec<_>>(),
            [(&b"v"[..], false)]
        );
    }
}
