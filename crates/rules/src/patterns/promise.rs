//! What a promise must know of a statement beside the documents before and after it.

use smallvec::SmallVec;

use super::{Context, Rejection};
use crate::command::{Modification, Operation, Statement};
use crate::document::{Document, OwnedValue, Path, Value, paths_overlap};
use crate::effect::{on_stored, without_positions};
use crate::shell::value_text;
use crate::text::shorten;

/// A document before and after a statement; `None` if it was inserted or deleted.
pub type BeforeAndAfter<'d> = (Option<Document<'d>>, Option<Document<'d>>);

/// How a statement breaks a promise.
#[derive(Debug, Clone)]
pub struct Broken {
    pub rejection: Rejection,
    /// The rule makes no error of it: the statement matches nothing, if it is about one document in a transaction of its own.
    pub is_ignored: bool,
}

impl From<Rejection> for Broken {
    fn from(rejection: Rejection) -> Self {
        Self { rejection, is_ignored: false }
    }
}

/// A field that a rule changes in a document that a checked statement has written.
#[derive(Debug, Clone)]
pub struct Settled {
    pub field: Path,
    pub value: SettledValue,
}

/// What a rule leaves in such a field.
#[derive(Debug, Clone)]
pub enum SettledValue {
    Value(OwnedValue),
    Removed,
    ServerTime,
}

impl Settled {
    pub(super) fn value(field: &Path, value: impl Into<OwnedValue>) -> Self {
        Self { field: field.clone(), value: SettledValue::Value(value.into()) }
    }

    pub(super) fn removed(field: &Path) -> Self {
        Self { field: field.clone(), value: SettledValue::Removed }
    }

    pub(super) fn server_time(field: &Path) -> Self {
        Self { field: field.clone(), value: SettledValue::ServerTime }
    }
}

/// The values of a field in a document; several if its path leads through arrays.
pub(super) type Held<'d> = SmallVec<[Value<'d>; 1]>;

/// What the documents do not show of a statement.
#[derive(Debug, Clone)]
pub struct Facts<'s, 'o> {
    pub(super) context: Context<'s>,
    statement: &'s Statement<'o>,
    targets: Targets<'s>,
    /// Numbers that are reserved for the inserted document, each with its field.
    reserved: SmallVec<[(&'s Path, i64); 1]>,
}

/// The paths that a statement names as targets, whether or not it changes them.
#[derive(Debug, Clone)]
enum Targets<'s> {
    /// The statement names the document as a whole.
    All,
    Paths(SmallVec<[&'s [u8]; 8]>),
}

impl<'s, 'o> Facts<'s, 'o> {
    /// Returns the facts of a statement. Operators and the stages `$set`, `$addFields` and `$unset` name their fields; other
    /// stages and replacements name all. `reserved`: numbers for the inserted document, each with its field.
    pub fn new(
        statement: &'s Statement<'o>,
        context: Context<'s>,
        reserved: impl Iterator<Item = (&'s Path, i64)>,
    ) -> Self {
        let targets = match &statement.operation {
            Operation::Insert(_) | Operation::Delete(_) => Targets::All,
            Operation::Update(update) => match update.modification.meaning() {
                Modification::Replacement(_) | Modification::Pipeline(_) => Targets::All,
                Modification::Operators(operators) => {
                    Targets::Paths(on_stored(operators.as_document()).map(|(_, path, _)| path).collect())
                }
                Modification::ClientPipeline(stages) => stage_targets(*stages).map_or(Targets::All, Targets::Paths),
            },
        };
        Self { context, statement, targets, reserved: reserved.collect() }
    }

    /// Returns the statement, for what its filter names by equality and which operator names a field.
    pub(super) fn operation(&self) -> &'s Operation<'o> {
        &self.statement.operation
    }

    pub(super) fn statement(&self) -> &'s Statement<'o> {
        self.statement
    }

    /// Returns the number that is reserved for this field of the inserted document.
    pub(super) fn reserved(&self, field: &Path) -> Option<i64> {
        self.reserved.iter().find(|(of, _)| *of == field).map(|(_, number)| *number)
    }

    /// Returns whether the statement names the document as a whole: it is a replacement, or a pipeline that makes another one.
    pub(super) fn names_all(&self) -> bool {
        matches!(self.targets, Targets::All)
    }

    /// Returns whether the statement names the field, a part of it or a field around it, in this stored document. A number in
    /// a path is a position only where an array is stored, and does not name the fields beside it.
    pub fn name(&self, field: &Path, stored: Document<'_>) -> bool {
        let is_named = |path: &[u8]| field.overlaps(path) || field.covers(&without_stored_positions(path, stored));
        match &self.targets {
            Targets::All => true,
            Targets::Paths(paths) => paths.iter().any(|path| is_named(path)),
        }
    }
}

/// Returns a path without its positions in the arrays of a stored document.
fn without_stored_positions(path: &[u8], stored: Document<'_>) -> SmallVec<[u8; 64]> {
    let mut named = SmallVec::new();
    let (mut value, mut rest) = (Some(Value::document(stored)), path);
    while !rest.is_empty() {
        let (part, after) = split_path(rest);
        match (value.and_then(Value::as_array), part.first()) {
            // It may be one of several elements.
            (_, Some(b'$')) => {
                append_part(&mut named, &without_positions(after.unwrap_or_default()));
                break;
            }
            (Some(array), Some(b'0'..=b'9')) => value = array.get(part),
            _ => {
                append_part(&mut named, part);
                value = value.and_then(Value::as_document).and_then(|document| document.get(part));
            }
        }
        rest = after.unwrap_or_default();
    }
    named
}

fn append_part(path: &mut SmallVec<[u8; 64]>, part: &[u8]) {
    if !path.is_empty() && !part.is_empty() {
        path.push(b'.');
    }
    path.extend_from_slice(part);
}

/// Returns the first part of a path, and the rest.
pub(super) fn split_path(path: &[u8]) -> (&[u8], Option<&[u8]>) {
    match path.iter().position(|byte| *byte == b'.') {
        Some(dot) => (path.get(..dot).unwrap_or(path), path.get(dot + 1..)),
        None => (path, None),
    }
}

/// Returns whether one of two paths is the other or lies inside it, as written or without positions in arrays.
pub(super) fn is_related(field: &Path, path: &[u8]) -> bool {
    // A path without a dot has no position.
    let without = || paths_overlap(&without_positions(field.as_str().as_bytes()), &without_positions(path));
    field.overlaps(path) || path.contains(&b'.') && without()
}

/// Returns whether the statement is a pipeline whose result may have no `_id`.
#[must_use]
pub fn may_omit_id(operation: &Operation<'_>) -> bool {
    let Operation::Update(update) = operation else { return false };
    let Modification::ClientPipeline(stages) = update.modification.meaning() else { return false };
    stage_targets(*stages).is_none_or(|targets| targets.contains(&b"_id".as_slice()))
}

/// Returns the fields that the stages of a pipeline name; `None` if one names the whole document.
#[must_use]
pub fn stage_targets(stages: Document<'_>) -> Option<SmallVec<[&[u8]; 8]>> {
    let mut targets = SmallVec::new();
    for stage in stages.values() {
        let stage = stage.as_document()?.first()?;
        match stage.key {
            b"$set" | b"$addFields" => targets.extend(stage.value.as_document()?.elements().map(|field| field.key)),
            b"$unset" => match stage.value.as_array() {
                Some(names) => targets.extend(names.values().filter_map(Value::as_string_bytes)),
                None => targets.push(stage.value.as_string_bytes()?),
            },
            b"$project" => {
                for field in stage.value.as_document()?.elements() {
                    let is_excluded = field.value.as_flag() == Some(false) && !field.key.starts_with(b"$");
                    targets.push(is_excluded.then_some(field.key)?);
                }
            }
            _ => return None,
        }
    }
    Some(targets)
}

/// Returns the values of the field at `path`, as a query by the path finds them: also in the elements of arrays.
pub(super) fn held<'d>(document: Document<'d>, path: &[u8]) -> Held<'d> {
    let (part, rest) = split_path(path);
    let Some(value) = document.get(part) else { return Held::new() };
    let Some(rest) = rest else { return Held::from_elem(value, 1) };
    match (value.as_document(), value.as_array()) {
        (Some(document), _) => held(document, rest),
        (_, Some(array)) => {
            array.values().filter_map(Value::as_document).flat_map(|element| held(element, rest)).collect()
        }
        (None, None) => Held::new(),
    }
}

/// The values as short text.
pub(super) fn shown(values: &[Value<'_>]) -> String {
    const LONGEST: usize = 100;
    let mut text = match values {
        [] => "nothing".to_owned(),
        values => values.iter().map(|value| value_text(*value)).collect::<Vec<_>>().join(", "),
    };
    shorten(&mut text, LONGEST);
    text
}
