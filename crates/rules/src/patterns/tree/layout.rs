//! A node's position: its `_id`, its parent and its path, read from documents and written into statements.
//!
//! This file defines the fields and the form of paths. `placement.rs` and `removal.rs` decide which changes are
//! allowed.

use super::id::NodeId;
use crate::command::{Insert, Modification, Operation, StageOrigin, Update, repeated_name_check};
use crate::document::{CowDocument, Document, Kind, OwnedValue, Path, PathLookup, Value, Writer, edit};
use crate::effect::equality;
use crate::patterns::Rejection;
use crate::patterns::collation::write_simple_collation;
use crate::patterns::filter::{narrowed, remade};
use crate::patterns::procedure::TOUCH;

/// Returns ` with the _id ID` for a node whose `_id` can be part of a path, otherwise nothing.
fn of_id(node: Document<'_>, separator: char) -> String {
    let id = node.get("_id").and_then(|id| NodeId::from_value(id, separator));
    id.map_or_else(String::new, |id| format!(" with the _id {}", id.text))
}

/// The fields of the tree.
#[derive(Debug, Clone)]
pub(super) struct TreeFields {
    pub(super) path: Path,
    pub(super) parent: Path,
    pub(super) separator: char,
}

/// A stored node.
#[derive(Debug, Clone)]
pub(super) struct TreeNode {
    /// `None` if it cannot be part of a path; such a node has no children.
    pub(super) id: Option<NodeId>,
    pub(super) raw_id: OwnedValue,
    pub(super) parent: Option<NodeId>,
    /// `None` for a root.
    pub(super) path: Option<String>,
    /// The document has the field, which may be null.
    pub(super) has_path: bool,
}

impl TreeFields {
    /// Returns the projection for [`node`](Self::node).
    pub(super) fn fields(&self) -> CowDocument<'static> {
        CowDocument::build(|w| {
            w.int32("_id", 1);
            w.int32(self.path.as_str(), 1);
            w.int32(self.parent.as_str(), 1);
        })
    }

    /// Reads a stored node.
    ///
    /// # Errors
    /// The stored parent or path has an invalid form.
    pub(super) fn node(&self, document: Document<'_>) -> Result<TreeNode, Rejection> {
        let broken = |field: &Path| {
            Rejection::new(
                format!("a stored node{} has an invalid '{field}'", of_id(document, self.separator)),
                "Ask the DBA to run `docward check --data`, which finds such nodes, and then `docward backfill RULE`, \
                 which corrects their paths.",
            )
        };
        let raw_id = document.get("_id").map(OwnedValue::from).ok_or_else(|| broken(&self.path))?;
        let parent = match present(self.parent.lookup(document)) {
            None => None,
            Some(value) => Some(NodeId::from_value(value, self.separator).ok_or_else(|| broken(&self.parent))?),
        };
        let stored_path = self.path.lookup(document);
        let path = match present(stored_path) {
            None if parent.is_none() => None,
            None => return Err(broken(&self.path)),
            Some(value) => Some(value.as_str().ok_or_else(|| broken(&self.path))?.to_owned()),
        };
        let has_path = matches!(stored_path, PathLookup::Found(_));
        Ok(TreeNode { id: NodeId::from_value(raw_id.as_value(), self.separator), raw_id, parent, path, has_path })
    }

    /// Returns the path of a node's children: the node's own path and its `_id`.
    pub(super) fn below(&self, path: Option<&str>, id: &NodeId) -> String {
        let mut below = String::with_capacity(path.map_or(1, str::len) + id.text.len() + 1);
        match path {
            Some(path) => below.push_str(path),
            None => below.push(self.separator),
        }
        below.push_str(&id.text);
        below.push(self.separator);
        below
    }

    /// Returns the `_id` texts of a path, root first; `None` if the path is malformed.
    pub(super) fn segments<'p>(&self, path: &'p str) -> Option<Vec<&'p str>> {
        let inner = path.strip_prefix(self.separator)?.strip_suffix(self.separator)?;
        let segments: Vec<&str> = inner.split(self.separator).collect();
        segments.iter().all(|segment| !segment.is_empty()).then_some(segments)
    }

    /// Writes a condition for all nodes whose path starts with `below`. It is a range, because an `_id` may contain any
    /// character. The separator is ASCII punctuation, so it always has a successor.
    pub(super) fn write_subtree(&self, w: &mut Writer<'_>, below: &str, id: &NodeId) {
        let end = below.strip_suffix(self.separator).unwrap_or(below);
        let end = format!("{end}{}", char::from(self.separator as u8 + 1));
        w.nested(self.path.as_str(), |w| {
            w.string("$gte", below);
            w.string("$lt", end);
        });
        w.nested("_id", |w| w.string("$type", id.class.alias()));
    }

    /// Returns writes to a node that change nothing in the end, but conflict with every other write to it. There are
    /// two statements because mongod skips a no-op.
    pub(super) fn touch(&self, id: &NodeId) -> [CowDocument<'static>; 2] {
        ["$set", "$unset"].map(|operator| {
            statement(|w| id.write(w, "_id"), |w| w.nested("u", |w| w.nested(operator, |w| w.int32(TOUCH, 1))), false)
        })
    }

    /// Returns the statement that sets the path of one node.
    pub(super) fn set_path_of(&self, id: Value<'_>, path: Option<&str>) -> CowDocument<'static> {
        let path = path.map_or_else(OwnedValue::null, OwnedValue::string);
        let set = |w: &mut Writer<'_>| w.nested("$set", |w| w.value(self.path.as_str(), path.as_value()));
        statement(|w| w.value("_id", id), |w| w.nested("u", set), false)
    }

    /// Returns the statement that replaces the path `from` with `to` in all nodes below it.
    pub(super) fn rebase(&self, from: &str, to: &str, id: &NodeId) -> CowDocument<'static> {
        let reference = format!("${}", self.path);
        let stage = CowDocument::build(|w| {
            w.nested("$set", |w| {
                w.nested(self.path.as_str(), |w| {
                    w.array("$concat", |a| {
                        a.nested(|w| w.string("$literal", to));
                        a.nested(|w| {
                            w.array("$substrBytes", |a| {
                                a.string(&reference);
                                a.slot().integer(from.len() as i64);
                                a.int32(-1);
                            });
                        });
                    });
                });
            });
        });
        let check = repeated_name_check(std::iter::once(stage.as_document()), StageOrigin::Pattern);
        let update = |w: &mut Writer<'_>| {
            w.array("u", |a| {
                [&check, &stage].into_iter().for_each(|stage| a.value(Value::document(stage.as_document())))
            });
        };
        statement(|w| self.write_subtree(w, from, id), update, true)
    }

    /// Returns the operation with this path in the stored document, and with this parent if one is given.
    pub(super) fn set_position<'a>(
        &self,
        operation: &Operation<'a>,
        path: Option<&str>,
        parent: Option<&NodeId>,
    ) -> Operation<'a> {
        let path = path.map_or_else(OwnedValue::null, OwnedValue::string);
        let parent = parent.map(NodeId::value);
        let in_document = |document: Document<'_>| {
            let placed = edit::set(document, &self.path, path.as_value());
            CowDocument::from_writer(match (&parent, Document::parse(&placed)) {
                (Some(parent), Ok(document)) => edit::set(document, &self.parent, parent.as_value()),
                _ => placed,
            })
        };
        match operation {
            Operation::Insert(insert) => {
                Operation::Insert(Insert { document: in_document(insert.document.as_document()) })
            }
            Operation::Update(update) => {
                let modification = match &update.modification {
                    Modification::Replacement(document) => {
                        Modification::Replacement(in_document(document.as_document()))
                    }
                    Modification::Operators(operators) => {
                        let parent = parent.as_ref().map(OwnedValue::as_value);
                        Modification::Operators(self.set_path(operators.as_document(), path.as_value(), parent))
                    }
                    // The path is set after the statement.
                    other @ (Modification::Pipeline(_) | Modification::ClientPipeline(_)) => other.clone(),
                };
                remade(update, update.filter.clone(), modification, update.upsert)
            }
            Operation::Delete(_) => operation.clone(),
        }
    }

    /// Returns the operators with the path. `parent` is given if the statement does not set it.
    fn set_path<'a>(&self, operators: Document<'_>, path: Value<'_>, parent: Option<Value<'_>>) -> CowDocument<'a> {
        let field = self.path.as_str();
        let kept = |w: &mut Writer<'_>, operator: Document<'_>| {
            operator.elements().filter(|e| e.key != field.as_bytes()).for_each(|e| w.element(e));
        };
        CowDocument::build(|w| {
            for operator in operators.elements().filter(|operator| operator.key != b"$set") {
                match operator.value.as_document() {
                    // Servers before 5.0 reject an operator without fields.
                    Some(fields) if touched_only(fields, field) => {}
                    Some(fields) => w.nested(operator.key, |w| kept(w, fields)),
                    None => w.element(operator),
                }
            }
            w.nested("$set", |w| {
                kept(w, operators.get("$set").and_then(Value::as_document).unwrap_or(Document::EMPTY));
                w.value(field, path);
                if let Some(parent) = parent {
                    w.value(self.parent.as_str(), parent);
                }
            });
        })
    }
}

/// Returns a value that is present and not null.
pub(super) fn present(found: PathLookup<'_>) -> Option<Value<'_>> {
    match found {
        PathLookup::Found(value) => (value.kind != Kind::Null).then_some(value),
        PathLookup::Missing | PathLookup::Blocked(_) => None,
    }
}

fn touched_only(fields: Document<'_>, field: &str) -> bool {
    fields.elements().all(|element| element.key == field.as_bytes())
}

/// Returns the operation restricted to the document that was read.
pub(super) fn narrowed_to<'a>(operation: &Operation<'a>, id: Value<'_>) -> Operation<'a> {
    let narrow = |filter: &CowDocument<'a>| match equality(filter.as_document(), "_id") {
        Some(_) => filter.clone(),
        None => narrowed(filter.as_document(), "_id", |w, key| w.value(key, id)),
    };
    match operation {
        Operation::Insert(_) => operation.clone(),
        Operation::Update(update) => Operation::Update(Update { filter: narrow(&update.filter), ..update.clone() }),
        Operation::Delete(delete) => {
            Operation::Delete(crate::command::Delete { filter: narrow(&delete.filter), multi: delete.multi })
        }
    }
}

/// Writes an element of `updates`. Paths and `_id`s are compared byte by byte, independent of the collection's
/// collation.
fn statement(
    filter: impl FnOnce(&mut Writer<'_>),
    update: impl FnOnce(&mut Writer<'_>),
    multi: bool,
) -> CowDocument<'static> {
    CowDocument::build(|w| {
        w.nested("q", filter);
        update(w);
        w.boolean("multi", multi);
        write_simple_collation(w);
    })
}

const ID_FORM: &str = "Use strings without the separator, whole numbers, or ObjectIds.";

/// Returns the rejection of a node whose `_id` cannot be in its children's paths.
pub(super) fn unusable_id(layout: &TreeFields) -> Rejection {
    let reason = format!("its _id cannot be part of a path with the separator '{}'", layout.separator);
    Rejection::new(reason, ID_FORM)
}

/// Returns the rejection of a parent that cannot be the `_id` of a node.
pub(super) fn unusable_parent(layout: &TreeFields) -> Rejection {
    Rejection::new(format!("its '{}' is not a valid _id of a node", layout.parent), ID_FORM)
}
