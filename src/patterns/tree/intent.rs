//! Reads a node's position from a statement, without any stored document.

use super::id::NodeId;
use super::layout::{TreeFields, unusable_id, unusable_parent};
use crate::command::{Modification, Operation};
use crate::document::{Document, Kind as ValueKind, OwnedValue, Path, PathLookup, Value};
use crate::effect::{Change, ImageValue, Inserted, PathOverlap, change, is_rename_target, touch, touched};
use crate::patterns::Rejection;

/// A node's position as a statement sets it.
#[derive(Debug, Clone)]
pub(super) struct Intent {
    pub(super) kind: NodeWriteKind,
    pub(super) wanted: RequestedPosition,
    /// Whether only the document after the statement shows the node's position: the statement may be stale, or the result
    /// depends on the stored document.
    pub(super) follows: bool,
}

/// What kind of statement it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeWriteKind {
    Insert,
    /// An update by operators: other fields stay.
    Change,
    /// A replacement: other fields are removed.
    Replacement,
}

#[derive(Debug, Clone, Default)]
pub(super) struct RequestedPosition {
    /// `Some(None)`: the node becomes a root; `None`: the statement does not set it.
    pub(super) parent: Option<Option<NodeId>>,
    /// The path the client wrote, `Some(None)` for null.
    pub(super) path: Option<Option<String>>,
}

/// The `_id` of a document that an upsert inserts.
#[derive(Debug, Clone)]
pub(super) enum InsertedId {
    Known(OwnedValue),
    /// The server generates an ObjectId.
    Generated,
}

impl Intent {
    /// Returns the position that the statement gives to a stored node; for an insert, to its own node.
    ///
    /// # Errors
    /// The position is not possible.
    pub(super) fn from_operation(operation: &Operation<'_>, layout: &TreeFields) -> Result<Self, Rejection> {
        let kind = kind_of(operation);
        match written_document(operation) {
            Some(document) => Ok(Self {
                kind,
                wanted: RequestedPosition::of_document(document, layout)?,
                follows: is_pipeline(operation),
            }),
            None => Self::of_change(operation, layout),
        }
    }

    fn of_change(operation: &Operation<'_>, layout: &TreeFields) -> Result<Self, Rejection> {
        if let Some(kind) = blocked(operation, &layout.path) {
            return Err(Rejection::no_room(&layout.path, kind));
        }
        let gets_parent = change(operation, &layout.parent) != Change::Untouched;
        check_parts(operation, layout, &layout.path, gets_parent)?;
        let mut follows = is_pipeline(operation) || !writes_path_alone(operation, &layout.path);
        let parent = match change(operation, &layout.parent) {
            Change::Untouched => None,
            Change::Set(value) => Some(layout.read_parent(value)?),
            Change::Removed => Some(None),
            _ => {
                follows = true;
                None
            }
        };
        let path = match change(operation, &layout.path) {
            Change::Untouched => None,
            Change::Set(value) => Some(layout.read_path(value)?),
            // A write of a whole field around it sets the path like a replacement does.
            Change::Removed if follows && !names(operation, &layout.path) => None,
            Change::Removed => Some(None),
            _ => {
                follows = true;
                None
            }
        };
        Ok(Self { kind: NodeWriteKind::Change, wanted: RequestedPosition { parent, path }, follows })
    }

    /// Returns whether the statement can change a stored node's position or path.
    pub(super) fn affects_stored(&self, operation: &Operation<'_>, layout: &TreeFields) -> bool {
        let written = |path| change(operation, path) != Change::Untouched;
        self.kind == NodeWriteKind::Replacement || written(&layout.parent) || written(&layout.path)
    }

    /// Returns the position of the document that an upsert inserts, and its `_id`.
    ///
    /// # Errors
    /// The position is not possible, or docward cannot predict it.
    pub(super) fn of_inserted(
        operation: &Operation<'_>,
        inserted: &Inserted<'_>,
        layout: &TreeFields,
    ) -> Result<(Self, InsertedId), Rejection> {
        let id = match Path::parse("_id").map(|path| owned(inserted.at(&path))) {
            Some(InsertedFields::Value(value)) => {
                NodeId::from_value(value.as_value(), layout.separator).ok_or_else(|| unusable_id(layout))?;
                InsertedId::Known(value)
            }
            Some(InsertedFields::Missing) => InsertedId::Generated,
            _ => return Err(unknown_node()),
        };
        check_parts(operation, layout, &layout.path, inserted.at(&layout.parent) != ImageValue::Missing)?;
        let follows = is_pipeline(operation) || !writes_path_alone(operation, &layout.path);
        let mut intent = Self { kind: kind_of(operation), wanted: RequestedPosition::default(), follows };
        if let Some(document) = written_document(operation) {
            intent.wanted = RequestedPosition::of_document(document, layout)?;
        } else {
            match owned(inserted.at(&layout.parent)) {
                // An operator removes the parent; the path must not restore it.
                InsertedFields::Missing if names(operation, &layout.parent) => intent.wanted.parent = Some(None),
                InsertedFields::Missing => {}
                InsertedFields::Value(value) => intent.wanted.parent = Some(layout.read_parent(value.as_value())?),
                InsertedFields::Blocked(kind) => return Err(Rejection::no_room(&layout.parent, kind)),
                InsertedFields::Unknown => intent.follows = true,
            }
            match owned(inserted.at(&layout.path)) {
                InsertedFields::Missing => {}
                InsertedFields::Value(value) => intent.wanted.path = Some(layout.read_path(value.as_value())?),
                InsertedFields::Blocked(kind) => return Err(Rejection::no_room(&layout.path, kind)),
                InsertedFields::Unknown => intent.follows = true,
            }
            let gets_path = intent.wanted.parent.is_none() && matches!(intent.wanted.path, Some(Some(_)));
            check_parts(operation, layout, &layout.parent, gets_path)?;
        }
        match id {
            // docward could not find the inserted document.
            InsertedId::Generated if intent.follows => Err(unknown_node()),
            id => Ok((intent, id)),
        }
    }
}

/// The value of a field in an inserted document.
enum InsertedFields {
    Missing,
    Value(OwnedValue),
    Blocked(ValueKind),
    Unknown,
}

fn owned(held: ImageValue<'_>) -> InsertedFields {
    match held {
        ImageValue::Missing => InsertedFields::Missing,
        ImageValue::Value(value) => InsertedFields::Value(value.into()),
        ImageValue::Blocked(kind) => InsertedFields::Blocked(kind),
        ImageValue::Some(_) | ImageValue::Unknown => InsertedFields::Unknown,
    }
}

impl RequestedPosition {
    /// Returns the position in a whole document: without a parent and a path it is a root.
    pub(super) fn of_document<'d>(document: Document<'d>, layout: &TreeFields) -> Result<Self, Rejection> {
        let (parent, path) = (layout.parent.lookup(document), layout.path.lookup(document));
        for (field, found) in [(&layout.parent, parent), (&layout.path, path)] {
            if let PathLookup::Blocked(kind) = found {
                return Err(Rejection::no_room(field, kind));
            }
        }
        let found = |found: PathLookup<'d>| if let PathLookup::Found(value) = found { Some(value) } else { None };
        // A parent of null means a root; without a parent, the path gives it.
        let parent = found(parent).map(|value| layout.read_parent(value)).transpose()?;
        let path = found(path).map(|value| layout.read_path(value)).transpose()?;
        Ok(Self { parent, path })
    }
}

impl TreeFields {
    /// Reads the parent that a statement sets.
    fn read_parent(&self, value: Value<'_>) -> Result<Option<NodeId>, Rejection> {
        match value.kind {
            ValueKind::Null => Ok(None),
            _ => NodeId::from_value(value, self.separator).map(Some).ok_or_else(|| unusable_parent(self)),
        }
    }

    pub(super) fn read_path(&self, value: Value<'_>) -> Result<Option<String>, Rejection> {
        match value.kind {
            ValueKind::Null => Ok(None),
            _ => value.as_str().map(|path| Some(path.to_owned())).ok_or_else(|| {
                Rejection::new(
                    format!("its '{}' is of type {}", self.path, value.kind.name()),
                    format!("Set '{}' only; docward writes '{}'.", self.parent, self.path),
                )
            }),
        }
    }
}

fn unknown_node() -> Rejection {
    Rejection::new("as an upsert it could insert a node that docward cannot predict", "Select it by _id.")
}

/// Returns whether a later rule made a pipeline of the statement; it may leave the stored fields as they are.
fn is_pipeline(operation: &Operation<'_>) -> bool {
    matches!(operation, Operation::Update(update) if matches!(update.modification, Modification::Pipeline(_)))
}

/// Returns the client's modification, before later rules changed it.
fn meaning<'o, 'a>(operation: &'o Operation<'a>) -> Option<&'o Modification<'a>> {
    let Operation::Update(update) = operation else { return None };
    match &update.modification {
        Modification::Pipeline(pipeline) => Some(&pipeline.meaning),
        other => Some(other),
    }
}

fn kind_of(operation: &Operation<'_>) -> NodeWriteKind {
    match (operation, meaning(operation)) {
        (Operation::Insert(_), _) => NodeWriteKind::Insert,
        (_, Some(Modification::Replacement(_))) => NodeWriteKind::Replacement,
        _ => NodeWriteKind::Change,
    }
}

/// Returns the whole document that an insert or a replacement stores.
fn written_document<'o>(operation: &'o Operation<'_>) -> Option<Document<'o>> {
    match (operation, meaning(operation)) {
        (Operation::Insert(insert), _) => Some(insert.document.as_document()),
        (_, Some(Modification::Replacement(document))) => Some(document.as_document()),
        _ => None,
    }
}

/// Returns the type of a value set around the path that is not a document: the server could not create the path in it.
fn blocked(operation: &Operation<'_>, path: &Path) -> Option<ValueKind> {
    let Some(Modification::Operators(operators)) = meaning(operation) else { return None };
    let mut around = touched(operators.as_document())
        .filter(|(operator, written, _)| *operator == b"$set" && touch(path, written) == PathOverlap::Around);
    around.find_map(|(_, _, value)| value.as_document().is_none().then_some(value.kind))
}

/// Checks that a statement writes no part of the field that docward adds: of the path beside a new parent, of the parent
/// beside the path of a new node. docward sets the whole field, which the server rejects beside a write to a part of it,
/// or beside a `$rename` to it.
fn check_parts(operation: &Operation<'_>, layout: &TreeFields, added: &Path, is_added: bool) -> Result<(), Rejection> {
    let Some(Modification::Operators(operators)) = meaning(operation).filter(|_| is_added) else { return Ok(()) };
    let mut touched = touched(operators.as_document());
    let meets = |write: &(&[u8], &[u8], Value<'_>)| match touch(added, write.1) {
        PathOverlap::Inside | PathOverlap::Positional => true,
        PathOverlap::Exact => is_rename_target(*write),
        PathOverlap::Around | PathOverlap::Apart => false,
    };
    let Some((operator, written, _)) = touched.find(meets) else { return Ok(()) };
    let reason = if *added == layout.path {
        "a new parent, for which docward writes the path"
    } else {
        "a new path, for which docward writes the parent"
    };
    let text = String::from_utf8_lossy;
    Err(Rejection::new(
        format!("{} on '{}' cannot be combined with {reason}", text(operator), text(written)),
        format!("Set '{}' only; docward writes '{}'.", layout.parent, layout.path),
    ))
}

/// Returns whether an operator names exactly this field.
pub(super) fn names(operation: &Operation<'_>, path: &Path) -> bool {
    let Some(Modification::Operators(operators)) = meaning(operation) else { return false };
    touched(operators.as_document()).any(|(_, written, _)| written == path.as_str().as_bytes())
}

/// Returns whether docward's path can replace the operators' writes of it: at most one operator writes it, and none
/// writes a part of it or a field around it. A value must be written with `$set`.
fn writes_path_alone(operation: &Operation<'_>, path: &Path) -> bool {
    let Some(Modification::Operators(operators)) = meaning(operation) else { return true };
    let mut writes =
        touched(operators.as_document()).filter(|(_, written, _)| touch(path, written) != PathOverlap::Apart);
    let alone = writes.next().is_none_or(|(operator, written, _)| {
        touch(path, written) == PathOverlap::Exact && matches!(operator, b"$set" | b"$setOnInsert" | b"$unset")
    });
    alone && writes.next().is_none()
}
