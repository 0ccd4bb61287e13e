//! Plain forms of statements: those that show what they do to a field, whatever is stored. Applications and ODMs send
//! them every day. All other statements are checked: the server executes them, and the promises of the rules are asked
//! for the documents before and after.
//!
//! Nothing here computes what the server would do with an odd statement. When random tests find a fault in a plain form,
//! the first remedy is to remove the form from this module.

use smallvec::SmallVec;

use super::Rejection;
use super::promise::is_related;
use crate::command::{Modification, Operation, Update};
use crate::document::{Document, Element, Kind, Path, PathLookup, Value, paths_overlap};
use crate::effect::{PathOverlap, Write, each, is_position, on_insert, on_stored, touch, without_positions};

/// How a plain form writes a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlainWrite<'s> {
    Untouched,
    /// The field has this value afterwards.
    Set(Value<'s>),
    Removed,
    /// An operator that leaves a value in the field or a part of it, such as `$inc`: the first one.
    Operator(Write<'s>),
    /// An operator that takes elements from an array or a part from the field, and never creates it.
    Shrinks(&'s [u8]),
    /// The field in an array element: the path to the element.
    InElement(&'s [u8]),
}

/// The part of a statement for which it is not plain, as half a sentence.
pub(super) type NotPlain = String;

/// Operators that leave a value in the field that they name.
const WRITING: [&[u8]; 9] =
    [b"$set", b"$inc", b"$mul", b"$min", b"$max", b"$currentDate", b"$bit", b"$push", b"$addToSet"];
/// Operators that take elements from an array.
const SHRINKING: [&[u8]; 3] = [b"$pull", b"$pullAll", b"$pop"];

/// Operators of [`PlainField`](super::procedure::PlainField)s that are written as a whole.
pub(super) const WRITING_ONE: &[&str] =
    &["$set", "$inc", "$mul", "$min", "$max", "$push", "$addToSet", "$pull", "$pullAll", "$pop"];
/// The same for arrays.
pub(super) const OF_ARRAYS: &[&str] = &["$set", "$push", "$addToSet", "$pull", "$pullAll", "$pop", "$unset", "$inc"];

/// What a statement shows of what it stores.
pub(super) enum Form<'s, 'o> {
    Nothing,
    /// An insert or a replacement.
    Document(Document<'s>),
    Update(&'s Update<'o>),
}

pub(super) fn form<'s, 'o>(operation: &'s Operation<'o>) -> Form<'s, 'o> {
    match operation {
        Operation::Delete(_) => Form::Nothing,
        Operation::Insert(insert) => Form::Document(insert.document.as_document()),
        Operation::Update(update) => match update.modification.meaning() {
            Modification::Replacement(document) => Form::Document(document.as_document()),
            _ => Form::Update(update),
        },
    }
}

/// Returns why a statement is checked, for people who want to know what it costs.
pub(super) fn reason_to_check(part: NotPlain) -> Rejection {
    let hint = "Nothing, unless the transaction costs too much. Operators that name the fields themselves need none.";
    Rejection::new(part, hint)
}

/// Stands among the operators that are plain for a field for a replacement. Other rules may make operators of it.
pub(super) const REPLACEMENT: &str = "replacement";

/// Returns whether a rule may have checked a client's update, also after changes of other rules: those make operators of
/// replacements and pipelines. `fields` are the rule's, each as its path and the operators that are plain for it; `folds`:
/// whether the update has a collation.
#[must_use]
pub fn may_have_checked(fields: &[Vec<String>], operation: &Operation<'_>, folds: bool) -> bool {
    let Operation::Update(update) = operation else { return false };
    if matches!(update.modification, Modification::Replacement(_)) && !folds {
        let is_listed = |field: &Vec<String>| field.iter().skip(1).any(|operator| operator == REPLACEMENT);
        return !fields.iter().all(is_listed);
    }
    let is_simple = matches!(update.modification, Modification::Operators(_)) && !update.upsert && !folds;
    let is_plain = |texts: &Vec<String>| {
        let Some((path, operators)) = texts.split_first() else { return false };
        let Some(field) = Path::parse(path) else { return false };
        let is_listed = |operator: &[u8]| operators.iter().any(|known| known.as_bytes() == operator);
        match stored(update, &field) {
            Ok(PlainWrite::Untouched) => true,
            Ok(PlainWrite::Set(_)) => is_listed(b"$set"),
            Ok(PlainWrite::Removed) => is_listed(b"$unset"),
            Ok(PlainWrite::Shrinks(operator)) => is_listed(operator),
            Ok(PlainWrite::Operator((operator, path, value))) => {
                let is_usual = operator != b"$inc" || matches!(value.kind, Kind::Int32 | Kind::Int64);
                path == field.as_str().as_bytes() && is_listed(operator) && is_usual
            }
            Ok(PlainWrite::InElement(_)) | Err(_) => false,
        }
    };
    !is_simple || !fields.iter().all(is_plain)
}

/// Returns the number that a pipeline adds to a field, with other fields that do not depend on it or on which it does not
/// depend: `{$set: {n: {$add: ["$n", 1]}}}`, as Django's `F("n") + 1` and Prisma's `increment` do.
pub(super) fn added<'s>(update: &'s Update<'_>, field: &Path) -> Option<Value<'s>> {
    let Modification::ClientPipeline(stages) = update.modification.meaning() else { return None };
    let fields = single(*stages)?.value.as_document().and_then(single).filter(|stage| stage.key == b"$set")?;
    let mut sums = fields.value.as_document()?.elements().filter(|set| is_related(field, set.key));
    let (Some(set), None) = (sums.next(), sums.next()) else { return None };
    let mut terms = single(set.value.as_document()?).filter(|sum| sum.key == b"$add")?.value.as_array()?.values();
    let (Some(own), Some(amount), None) = (terms.next(), terms.next(), terms.next()) else { return None };
    let reference = own.as_string_bytes()?.strip_prefix(b"$")?;
    let literal = amount.as_document().and_then(single).filter(|one| one.key == b"$literal");
    let name = field.as_str().as_bytes();
    (set.key == name && reference == name).then(|| literal.map_or(amount, |literal| literal.value))
}

/// Returns the only element of a document.
fn single(document: Document<'_>) -> Option<Element<'_>> {
    let mut elements = document.elements();
    elements.next().filter(|_| elements.next().is_none())
}

/// Returns whether an update is a client's pipeline that changes none of these fields of a stored document, and inserts none.
pub(super) fn is_apart<'p>(update: &Update<'_>, fields: impl IntoIterator<Item = &'p Path>) -> bool {
    let is_pipeline = matches!(update.modification, Modification::ClientPipeline(_)) && !update.upsert;
    is_pipeline && fields.into_iter().all(|field| stored(update, field) == Ok(PlainWrite::Untouched))
}

/// Returns how an update writes a field of a stored document.
///
/// # Errors
/// The update is not plain for this field.
pub(super) fn stored<'s>(update: &'s Update<'_>, field: &Path) -> Result<PlainWrite<'s>, NotPlain> {
    match update.modification.meaning() {
        Modification::Operators(operators) => of_writes(on_stored(operators.as_document()), field),
        Modification::ClientPipeline(stages) => of_pipeline(*stages, field),
        Modification::Replacement(_) | Modification::Pipeline(_) => Err("it replaces the document".to_owned()),
    }
}

/// Returns the field of the document that an upsert inserts.
///
/// # Errors
/// The update is not plain for this field: for example, its filter may give the field a value.
pub(super) fn inserted<'s>(update: &'s Update<'_>, field: &Path) -> Result<PlainWrite<'s>, NotPlain> {
    let taken = taken(update.filter.as_document(), field)?;
    match (inserted_by(update, field)?, taken) {
        (write, None) => Ok(write),
        // With a condition that matches nothing, the server takes no field from the filter.
        (PlainWrite::Untouched, Some((value, true))) => Ok(PlainWrite::Set(value)),
        _ => Err(may_give(field)),
    }
}

/// Returns the value that the filter of an upsert gives the field by an equality, and whether all its conditions are
/// equalities.
///
/// # Errors
/// The filter is not plain for this field: it may give the field a value or not.
pub(super) fn taken<'f>(filter: Document<'f>, field: &Path) -> Result<Option<(Value<'f>, bool)>, NotPlain> {
    let (mut equal, mut is_certain) = (None, true);
    for condition in conditions(filter).ok_or_else(|| may_give(field))? {
        is_certain &= is_equality(condition.value);
        match condition.key {
            key if key == field.as_str().as_bytes() && is_equality(condition.value) && equal.is_none() => {
                equal = Some(condition.value);
            }
            b"$or" if !is_apart_from(condition.value, field) => return Err(may_give(field)),
            key if is_related(field, key) && !only_compares(condition.value) => return Err(may_give(field)),
            _ => {}
        }
    }
    Ok(equal.map(|value| (value, is_certain)))
}

/// Returns whether an upsert's filter may give the `_id`.
pub(super) fn may_give_id(filter: Document<'_>) -> bool {
    conditions(filter).is_none_or(|conditions| conditions.iter().any(|one| paths_overlap(one.key, b"_id")))
}

/// The part of an upsert whose filter may give the field a value.
pub(super) fn may_give(field: &Path) -> NotPlain {
    format!("as an upsert, its filter may give '{field}' a value")
}

/// Returns whether no branch of an `$or` has a condition on the field: servers make one equality of equal branches.
fn is_apart_from(branches: Value<'_>, field: &Path) -> bool {
    let is_apart = |condition: Element<'_>| !condition.key.starts_with(b"$") && !is_related(field, condition.key);
    let branches = branches.as_array().unwrap_or(Document::EMPTY).values();
    branches.filter_map(Value::as_document).all(|branch| branch.elements().all(is_apart))
}

/// Returns the conditions of an upsert's filter, with those in `$and`; `None` if another one may give a value. Of an `$or`
/// the server takes values only if it has one branch.
fn conditions(filter: Document<'_>) -> Option<SmallVec<[Element<'_>; 8]>> {
    let (mut conditions, mut unread) = (SmallVec::new(), SmallVec::<[Document<'_>; 4]>::from_elem(filter, 1));
    while let Some(filter) = unread.pop() {
        for condition in filter.elements() {
            let branches = || condition.value.as_array().unwrap_or(Document::EMPTY).values();
            match condition.key {
                b"$comment" => {}
                b"$and" => unread.extend(branches().map(Value::as_document).collect::<Option<Vec<_>>>()?),
                b"$or" if branches().count() > 1 => conditions.push(condition),
                key if key.starts_with(b"$") => return None,
                _ => conditions.push(condition),
            }
        }
    }
    Some(conditions)
}

/// Whether a condition with this value is an equality, and a value like this is inserted.
fn is_equality(value: Value<'_>) -> bool {
    let is_usual = matches!(value.kind, Kind::String | Kind::ObjectId | Kind::Boolean | Kind::DateTime | Kind::Binary);
    value.kind.is_number() || is_usual
}

/// Conditions that give no value, and are true for some.
const COMPARISONS: [&[u8]; 7] = [b"$lt", b"$lte", b"$gt", b"$gte", b"$ne", b"$exists", b"$type"];

/// Whether a condition gives no value, and is true for some.
fn only_compares(condition: Value<'_>) -> bool {
    let compares = |operators: Document<'_>| operators.elements().all(|one| COMPARISONS.contains(&one.key));
    let is_comparison = |one: Element<'_>| match one.key {
        b"$not" => one.value.as_document().is_some_and(compares),
        operator => COMPARISONS.contains(&operator),
    };
    condition.as_document().is_some_and(|operators| !operators.is_empty() && operators.elements().all(is_comparison))
}

/// Returns the fields that the server takes from the filter of an upsert, as equalities with ordinary values and documents
/// of such; `None` if the filter is not plain: it may give others, or match nothing.
pub(super) fn given(filter: Document<'_>) -> Option<SmallVec<[&[u8]; 4]>> {
    let is_field = |one: Element<'_>| !one.key.starts_with(b"$") && is_equality(one.value);
    let mut given = SmallVec::<[&[u8]; 4]>::new();
    for Element { key, value } in conditions(filter)? {
        let is_value = match value.as_document() {
            Some(_) if only_compares(value) => continue,
            Some(fields) => fields.elements().all(is_field),
            None => is_equality(value),
        };
        let is_path = !key.split(|byte| *byte == b'.').any(|part| part.is_empty() || part.starts_with(b"$"));
        if !is_value || !is_path || given.iter().any(|other| paths_overlap(other, key)) {
            return None;
        }
        given.push(key);
    }
    Some(given)
}

/// Returns the field that the update itself writes in the document that it inserts.
fn inserted_by<'s>(update: &'s Update<'_>, field: &Path) -> Result<PlainWrite<'s>, NotPlain> {
    match update.modification.meaning() {
        Modification::Operators(operators) => match of_writes(on_insert(operators.as_document()), field)? {
            PlainWrite::Shrinks(_) => Ok(PlainWrite::Untouched),
            PlainWrite::InElement(_) => Err(format!("as an upsert, it writes '{field}' in an array element")),
            write => Ok(write),
        },
        _ => stored(update, field),
    }
}

/// Returns each of these writes to a field, or to a part of it.
pub(super) fn each_write<'s>(
    writes: impl Iterator<Item = Write<'s>>,
    field: &Path,
) -> impl Iterator<Item = Result<PlainWrite<'s>, NotPlain>> {
    writes.filter(|(_, path, _)| is_related(field, path)).map(|write| of_write(write, field))
}

fn of_writes<'s>(writes: impl Iterator<Item = Write<'s>>, field: &Path) -> Result<PlainWrite<'s>, NotPlain> {
    let mut found = PlainWrite::Untouched;
    for (operator, path, value) in writes.filter(|(_, path, _)| is_related(field, path)) {
        // Several writes inside the field have the effect of one.
        match (found, of_write((operator, path, value), field)?) {
            (PlainWrite::Untouched | PlainWrite::Shrinks(_), next) => found = next,
            (_, PlainWrite::Shrinks(_)) => {}
            (known, next) if known == next => {}
            (PlainWrite::Operator(_), PlainWrite::Operator(_)) => {}
            _ => return Err(format!("it writes '{field}' in several places")),
        }
    }
    Ok(found)
}

fn of_write<'s>(write: Write<'s>, field: &Path) -> Result<PlainWrite<'s>, NotPlain> {
    let (operator, path, value) = write;
    let odd = || {
        let text = String::from_utf8_lossy;
        format!("its {} of '{}' may change '{field}' in a way that only the server knows", text(operator), text(path))
    };
    if operator == b"$rename" {
        return Err(odd());
    }
    if field.covers(path) {
        let is_whole = path == field.as_str().as_bytes();
        return match operator {
            b"$set" if is_whole => Ok(PlainWrite::Set(value)),
            b"$unset" if is_whole => Ok(PlainWrite::Removed),
            b"$unset" => Ok(PlainWrite::Shrinks(operator)),
            _ if WRITING.contains(&operator) => Ok(PlainWrite::Operator(write)),
            _ if SHRINKING.contains(&operator) => Ok(PlainWrite::Shrinks(operator)),
            _ => Err(odd()),
        };
    }
    match (touch(field, path), operator) {
        (PathOverlap::Around, b"$unset") => Ok(PlainWrite::Removed),
        // Elements are documents with the field in them.
        (PathOverlap::Around, _) if SHRINKING.contains(&operator) => Ok(PlainWrite::Shrinks(operator)),
        (PathOverlap::Around, b"$push" | b"$addToSet") if has_field(operator, value, field.below(path).as_ref()) => {
            Ok(PlainWrite::Operator(write))
        }
        (PathOverlap::Around, b"$set") => match field.below(path).zip(value.as_document()) {
            Some((below, document)) => match below.lookup(document) {
                PathLookup::Found(value) => Ok(PlainWrite::Set(value)),
                PathLookup::Missing => Ok(PlainWrite::Removed),
                PathLookup::Blocked(Kind::Array) => Err(odd()),
                PathLookup::Blocked(_) => Ok(PlainWrite::Removed),
            },
            None if value.kind == Kind::Array => Err(odd()),
            None => Ok(PlainWrite::Removed),
        },
        (PathOverlap::Positional, _) if WRITING.contains(&operator) => in_element(path, field).ok_or_else(odd),
        _ => Err(odd()),
    }
}

/// Whether each element that the operator adds is a document that has the field.
fn has_field(operator: &[u8], value: Value<'_>, below: Option<&Path>) -> bool {
    let holds = |element: Value<'_>| {
        let document = element.as_document();
        document.zip(below).is_some_and(|(document, below)| matches!(below.lookup(document), PathLookup::Found(_)))
    };
    match each(operator, value) {
        Some(each) => each.as_array().is_some_and(|elements| !elements.is_empty() && elements.values().all(holds)),
        None => holds(value),
    }
}

/// A write to the field itself, in the elements of one array.
fn in_element<'s>(path: &'s [u8], field: &Path) -> Option<PlainWrite<'s>> {
    let (mut end, mut start) = (0, 0);
    for part in path.split(|byte| *byte == b'.') {
        if start > 0 && is_position(part) {
            end = start + part.len();
        }
        start += part.len() + 1;
    }
    let (element, below) = (path.get(..end)?, path.get(end + 1..)?);
    // What is around the element has the same names without its positions.
    let around = without_positions(element);
    let rest = field.as_str().as_bytes().get(around.len() + 1..)?;
    (field.is_below(&around) && rest == below).then_some(PlainWrite::InElement(element))
}

/// Only stages that name fields apart from this one are plain. Those that set constants are read as operators before.
fn of_pipeline<'s>(stages: Document<'_>, field: &Path) -> Result<PlainWrite<'s>, NotPlain> {
    match super::promise::stage_targets(stages) {
        None => Err("it is a pipeline that replaces the document".to_owned()),
        Some(targets) if targets.iter().any(|path| is_related(field, path)) => {
            Err(format!("it is a pipeline that computes '{field}'"))
        }
        Some(_) => Ok(PlainWrite::Untouched),
    }
}
