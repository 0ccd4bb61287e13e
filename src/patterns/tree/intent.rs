//! What a statement says of a node's place, before anything stored is known.

use super::id::Id;
use super::layout::{Layout, present};
use crate::command::{Modification, Operation};
use crate::document::{Document, Kind as ValueKind, Lookup, OwnedValue, Path, Value};
use crate::effect::{Change, Held, Inserted, Touch, change, touch, touched};
use crate::patterns::Rejection;

/// What a statement says of a node's place.
#[derive(Debug, Clone)]
pub(super) struct Intent {
    pub(super) kind: Kind,
    pub(super) wanted: Wanted,
    /// Only the document that the statement leaves says where the node lies: the statement may be late, or writes the
    /// fields in a way that depends on the stored document.
    pub(super) follows: bool,
}

/// What kind of statement it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Insert,
    /// By operators: what it does not name stays.
    Change,
    /// Of the whole document: what it does not name goes.
    Replacement,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Wanted {
    /// `Some(None)`: it makes the node a root; `None`: it does not say.
    pub(super) parent: Option<Option<Id>>,
    /// The path the client wrote, `Some(None)` for null.
    pub(super) path: Option<Option<String>>,
}

/// The `_id` of a document that an upsert inserts.
#[derive(Debug, Clone)]
pub(super) enum InsertedId {
    Known(OwnedValue),
    /// The server makes an ObjectId.
    Generated,
}

impl Intent {
    /// What the statement does to a stored node; for an insert, to its own.
    ///
    /// # Errors
    /// No node can lie there.
    pub(super) fn of(operation: &Operation<'_>, layout: &Layout) -> Result<Self, Rejection> {
        let kind = kind_of(operation);
        match written_document(operation) {
            Some(document) => {
                Ok(Self { kind, wanted: Wanted::of_document(document, layout)?, follows: is_pipeline(operation) })
            }
            None => Self::of_change(operation, layout),
        }
    }

    fn of_change(operation: &Operation<'_>, layout: &Layout) -> Result<Self, Rejection> {
        if let Some(kind) = blocked(operation, &layout.path) {
            return Err(no_room(&layout.path, kind));
        }
        check_parts(operation, layout, change(operation, &layout.parent) != Change::Untouched)?;
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
            // A field around it is written as a whole, which says of the path as much as a replacement does.
            Change::Removed if follows && !names(operation, &layout.path) => None,
            Change::Removed => Some(None),
            _ => {
                follows = true;
                None
            }
        };
        Ok(Self { kind: Kind::Change, wanted: Wanted { parent, path }, follows })
    }

    /// Whether a stored node may come to lie elsewhere, or its path may change.
    pub(super) fn concerns_stored(&self, operation: &Operation<'_>, layout: &Layout) -> bool {
        let written = |path| change(operation, path) != Change::Untouched;
        self.kind == Kind::Replacement || written(&layout.parent) || written(&layout.path)
    }

    /// What the document that an upsert inserts says of its place, and its `_id`.
    ///
    /// # Errors
    /// No node can lie there, or it cannot be told.
    pub(super) fn of_inserted(
        operation: &Operation<'_>,
        inserted: &Inserted<'_>,
        layout: &Layout,
    ) -> Result<(Self, InsertedId), Rejection> {
        let id = match Path::parse("_id").map(|path| owned(inserted.at(&path))) {
            Some(Found::Value(value)) => {
                Id::read(value.as_value(), layout.separator).ok_or_else(|| super::unusable_id(layout))?;
                InsertedId::Known(value)
            }
            Some(Found::Missing) => InsertedId::Generated,
            _ => return Err(unknown_node()),
        };
        check_parts(operation, layout, inserted.at(&layout.parent) != Held::Missing)?;
        let follows = is_pipeline(operation) || !writes_path_alone(operation, &layout.path);
        let mut intent = Self { kind: kind_of(operation), wanted: Wanted::default(), follows };
        if let Some(document) = written_document(operation) {
            intent.wanted = Wanted::of_document(document, layout)?;
        } else {
            match owned(inserted.at(&layout.parent)) {
                // An operator takes it away, which the path must not bring back.
                Found::Missing if names(operation, &layout.parent) => intent.wanted.parent = Some(None),
                Found::Missing => {}
                Found::Value(value) => intent.wanted.parent = Some(layout.read_parent(value.as_value())?),
                Found::Blocked(kind) => return Err(no_room(&layout.parent, kind)),
                Found::Unknown => intent.follows = true,
            }
            match owned(inserted.at(&layout.path)) {
                Found::Missing => {}
                Found::Value(value) => intent.wanted.path = Some(layout.read_path(value.as_value())?),
                Found::Blocked(kind) => return Err(no_room(&layout.path, kind)),
                Found::Unknown => intent.follows = true,
            }
        }
        match id {
            // What it leaves could not be looked at.
            InsertedId::Generated if intent.follows => Err(unknown_node()),
            id => Ok((intent, id)),
        }
    }
}

/// What an inserted document holds, as far as it matters here.
enum Found {
    Missing,
    Value(OwnedValue),
    Blocked(ValueKind),
    Unknown,
}

fn owned(held: Held<'_>) -> Found {
    match held {
        Held::Missing => Found::Missing,
        Held::Value(value) => Found::Value(value.into()),
        Held::Blocked(kind) => Found::Blocked(kind),
        Held::Some(_) | Held::Unknown => Found::Unknown,
    }
}

impl Wanted {
    /// What a whole document says: without a parent and a path it is a root.
    pub(super) fn of_document(document: Document<'_>, layout: &Layout) -> Result<Self, Rejection> {
        for field in [&layout.parent, &layout.path] {
            if let Lookup::Blocked(kind) = field.lookup(document) {
                return Err(no_room(field, kind));
            }
        }
        let parent = present(layout.parent.lookup(document)).map(|value| layout.read_parent(value)).transpose()?;
        let path = match layout.path.lookup(document) {
            Lookup::Found(value) => Some(layout.read_path(value)?),
            _ => None,
        };
        Ok(Self { parent, path })
    }
}

impl Layout {
    /// The parent that a statement names.
    fn read_parent(&self, value: Value<'_>) -> Result<Option<Id>, Rejection> {
        match value.kind {
            ValueKind::Null => Ok(None),
            _ => Id::read(value, self.separator).map(Some).ok_or_else(|| super::unusable_parent(self)),
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
    Rejection::new("as an upsert it could insert a node that cannot be told beforehand", "Pick it by _id.")
}

fn no_room(field: &Path, kind: ValueKind) -> Rejection {
    Rejection::new(
        format!("there is no room for '{field}': a field on the way is of type {}", kind.name()),
        "Leave that field out, or make it an object.",
    )
}

/// Whether a later rule has made a pipeline of the statement, which may leave the stored fields as they are.
fn is_pipeline(operation: &Operation<'_>) -> bool {
    matches!(operation, Operation::Update(update) if matches!(update.modification, Modification::Pipeline(_)))
}

/// The client's modification, whatever later rules have made of it.
fn meaning<'o, 'a>(operation: &'o Operation<'a>) -> Option<&'o Modification<'a>> {
    let Operation::Update(update) = operation else { return None };
    match &update.modification {
        Modification::Pipeline(pipeline) => Some(&pipeline.meaning),
        other => Some(other),
    }
}

fn kind_of(operation: &Operation<'_>) -> Kind {
    match (operation, meaning(operation)) {
        (Operation::Insert(_), _) => Kind::Insert,
        (_, Some(Modification::Replacement(_))) => Kind::Replacement,
        _ => Kind::Change,
    }
}

/// The whole document that an insert or a replacement stores.
fn written_document<'o>(operation: &'o Operation<'_>) -> Option<Document<'o>> {
    match (operation, meaning(operation)) {
        (Operation::Insert(insert), _) => Some(insert.document.as_document()),
        (_, Some(Modification::Replacement(document))) => Some(document.as_document()),
        _ => None,
    }
}

/// The kind of what is put around the path and is no document: the server could not create the path in it.
fn blocked(operation: &Operation<'_>, path: &Path) -> Option<ValueKind> {
    let Some(Modification::Operators(operators)) = meaning(operation) else { return None };
    let mut around = touched(operators.as_document())
        .filter(|(operator, written, _)| *operator == b"$set" && touch(path, written) == Touch::Around);
    around.find_map(|(_, _, value)| value.as_document().is_none().then_some(value.kind))
}

/// A node that gets a parent gets its path as a whole, which no operator can write beside a part of it, or beside what a
/// `$rename` may bring there.
fn check_parts(operation: &Operation<'_>, layout: &Layout, gets_parent: bool) -> Result<(), Rejection> {
    let Some(Modification::Operators(operators)) = meaning(operation).filter(|_| gets_parent) else { return Ok(()) };
    let mut touched = touched(operators.as_document());
    let meets = |(operator, written, value): &(&[u8], &[u8], Value<'_>)| match touch(&layout.path, written) {
        Touch::Inside | Touch::Positional => true,
        Touch::Exact => *operator == b"$rename" && value.as_string_bytes() == Some(*written),
        Touch::Around | Touch::Apart => false,
    };
    let Some((operator, written, _)) = touched.find(meets) else { return Ok(()) };
    let text = String::from_utf8_lossy;
    Err(Rejection::new(
        format!("{} on '{}' cannot go with a parent, by which docward writes the path", text(operator), text(written)),
        format!("Set '{}' only; docward writes '{}'.", layout.parent, layout.path),
    ))
}

/// Whether an operator names just this field.
fn names(operation: &Operation<'_>, path: &Path) -> bool {
    let Some(Modification::Operators(operators)) = meaning(operation) else { return false };
    touched(operators.as_document()).any(|(_, written, _)| written == path.as_str().as_bytes())
}

/// Whether docward's own path can take the place of what the operators write there: one operator at most writes it, by
/// `$set` if it gives it a value, and none writes a field around it or a part of it.
fn writes_path_alone(operation: &Operation<'_>, path: &Path) -> bool {
    let Some(Modification::Operators(operators)) = meaning(operation) else { return true };
    let mut writes = touched(operators.as_document()).filter(|(_, written, _)| touch(path, written) != Touch::Apart);
    let alone = writes.next().is_none_or(|(operator, written, _)| {
        touch(path, written) == Touch::Exact && matches!(operator, b"$set" | b"$setOnInsert" | b"$unset")
    });
    alone && writes.next().is_none()
}
