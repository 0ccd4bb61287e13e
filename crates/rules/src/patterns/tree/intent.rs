//! Reads a node's position from a statement, without any stored document.

use super::id::NodeId;
use super::layout::{TreeFields, unusable_id, unusable_parent};
use crate::command::{Modification, Operation, Update};
use crate::document::{Document, Kind as ValueKind, OwnedValue, Path, PathLookup, Value};
use crate::effect::{Change, PathOverlap, change, is_rename_target, touch, touched};
use crate::patterns::Rejection;
use crate::patterns::plain::{self, NotPlain, PlainWrite};

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

    /// Returns the position of the document that an upsert inserts, and its `_id`; `None` if it is not known before.
    ///
    /// # Errors
    /// The position is not possible.
    pub(super) fn of_inserted(
        operation: &Operation<'_>,
        update: &Update<'_>,
        layout: &TreeFields,
    ) -> Result<(Self, Option<OwnedValue>), Rejection> {
        let id = inserted_id(operation, update);
        if let Ok(Some(id)) = &id {
            NodeId::from_value(id.as_value(), layout.separator).ok_or_else(|| unusable_id(layout))?;
        }
        let (parent, path) = (plain::inserted(update, &layout.parent), plain::inserted(update, &layout.path));
        check_parts(operation, layout, &layout.path, is_given(&parent))?;
        let follows = id.is_err() || is_pipeline(operation) || !writes_path_alone(operation, &layout.path);
        let mut intent = Self { kind: kind_of(operation), wanted: RequestedPosition::default(), follows };
        if let Some(document) = written_document(operation) {
            intent.wanted = RequestedPosition::of_document(document, layout)?;
        } else {
            for field in [&layout.parent, &layout.path] {
                if let Some(kind) = blocked(operation, field) {
                    return Err(Rejection::no_room(field, kind));
                }
            }
            match parent {
                Ok(PlainWrite::Set(value)) => intent.wanted.parent = Some(layout.read_parent(value)?),
                // An operator removes the parent; the path must not restore it.
                Ok(PlainWrite::Untouched | PlainWrite::Removed) if names(operation, &layout.parent) => {
                    intent.wanted.parent = Some(None);
                }
                Ok(PlainWrite::Untouched | PlainWrite::Removed) => {}
                _ => intent.follows = true,
            }
            match path {
                Ok(PlainWrite::Set(value)) => intent.wanted.path = Some(layout.read_path(value)?),
                Ok(PlainWrite::Untouched | PlainWrite::Removed) => {}
                _ => intent.follows = true,
            }
            let gets_path = intent.wanted.parent.is_none() && matches!(intent.wanted.path, Some(Some(_)));
            check_parts(operation, layout, &layout.parent, gets_path)?;
        }
        Ok((intent, id.ok().flatten()))
    }
}

/// Returns whether a field may have a value in the inserted document.
fn is_given(write: &Result<PlainWrite<'_>, NotPlain>) -> bool {
    !matches!(write, Ok(PlainWrite::Untouched | PlainWrite::Removed))
}

/// Returns the `_id` of the document that an upsert inserts; `None` if the server generates an ObjectId.
///
/// # Errors
/// It is not plain.
fn inserted_id(operation: &Operation<'_>, update: &Update<'_>) -> Result<Option<OwnedValue>, NotPlain> {
    let unclear = || "as an upsert, it may insert another _id".to_owned();
    let path = Path::parse("_id").ok_or_else(unclear)?;
    let id = match written_document(operation).map(|document| document.get("_id")) {
        Some(Some(id)) => Some(id),
        Some(None) => match plain::taken(update.filter.as_document(), &path)? {
            Some((_, false)) => return Err(unclear()),
            taken => taken.map(|(id, _)| id),
        },
        None => match plain::inserted(update, &path)? {
            PlainWrite::Set(id) => Some(id),
            PlainWrite::Untouched => None,
            _ => return Err(unclear()),
        },
    };
    Ok(id.map(OwnedValue::from))
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
