//! Where a node lies: its `_id`, its parent and its path, read from documents and written into statements.
//!
//! Knows the fields and the form of paths, not what may be done with them: `placement.rs`, `removal.rs`.

use super::id::Id;
use crate::command::{Insert, Modification, Operation, Update};
use crate::document::{CowDocument, Document, Kind, Lookup, OwnedValue, Path, Value, Writer, edit};
use crate::effect::equality;
use crate::patterns::Rejection;
use crate::patterns::filter::{narrowed, remade};
use crate::patterns::procedure::TOUCH;

/// Where the tree's fields are.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) path: Path,
    pub(super) parent: Path,
    pub(super) separator: char,
}

/// A stored node.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// `None` when it cannot stand in a path, so that the node has no children.
    pub(super) id: Option<Id>,
    pub(super) raw_id: OwnedValue,
    pub(super) parent: Option<Id>,
    /// `None` for a root.
    pub(super) path: Option<String>,
}

impl Layout {
    /// The projection for [`node`](Self::node).
    pub(super) fn fields(&self) -> Vec<u8> {
        crate::document::document(|w| {
            w.int32("_id", 1);
            w.int32(self.path.as_str(), 1);
            w.int32(self.parent.as_str(), 1);
        })
    }

    /// # Errors
    /// What is stored is no node: its parent or its path has a wrong form.
    pub(super) fn node(&self, document: Document<'_>) -> Result<Node, Rejection> {
        let broken = |field: &Path| {
            Rejection::new(
                format!("a stored node's '{field}' is not as this rule keeps it"),
                "Tell the DBA: documents from before the rule must be mended first.",
            )
        };
        let raw_id = document.get("_id").map(OwnedValue::from).ok_or_else(|| broken(&self.path))?;
        let parent = match present(self.parent.lookup(document)) {
            None => None,
            Some(value) => Some(Id::read(value, self.separator).ok_or_else(|| broken(&self.parent))?),
        };
        let path = match present(self.path.lookup(document)) {
            None if parent.is_none() => None,
            None => return Err(broken(&self.path)),
            Some(value) => Some(value.as_str().ok_or_else(|| broken(&self.path))?.to_owned()),
        };
        Ok(Node { id: Id::read(raw_id.as_value(), self.separator), raw_id, parent, path })
    }

    /// The path of the children of a node: that node's own path, and its `_id`.
    pub(super) fn below(&self, path: Option<&str>, id: &Id) -> String {
        let separator = self.separator;
        match path {
            Some(path) => format!("{path}{}{separator}", id.text),
            None => format!("{separator}{}{separator}", id.text),
        }
    }

    /// The `_id` texts of a path, root first.
    pub(super) fn segments<'p>(&self, path: &'p str) -> Option<Vec<&'p str>> {
        let inner = path.strip_prefix(self.separator)?.strip_suffix(self.separator)?;
        let segments: Vec<&str> = inner.split(self.separator).collect();
        segments.iter().all(|segment| !segment.is_empty()).then_some(segments)
    }

    /// Writes a condition for all nodes whose path begins with `below`. A range, because an `_id` may hold
    /// anything; the separator is ASCII punctuation, which always has a successor.
    pub(super) fn write_subtree(&self, w: &mut Writer<'_>, below: &str, id: &Id) {
        let end = below.strip_suffix(self.separator).unwrap_or(below);
        let end = format!("{end}{}", char::from(self.separator as u8 + 1));
        w.nested(self.path.as_str(), |w| {
            w.string("$gte", below);
            w.string("$lt", end);
        });
        w.nested("_id", |w| w.string("$type", id.class.alias()));
    }

    /// A write to a node that changes nothing in the end, but conflicts with every other write to it. As two
    /// statements: mongod skips one that does nothing.
    pub(super) fn touch(&self, id: &Id) -> [Vec<u8>; 2] {
        ["$set", "$unset"].map(|operator| {
            statement(|w| id.write(w, "_id"), |w| w.nested("u", |w| w.nested(operator, |w| w.int32(TOUCH, 1))), false)
        })
    }

    /// Gives one node its path.
    pub(super) fn set_path_of(&self, id: Value<'_>, path: Option<&str>) -> Vec<u8> {
        let path = path.map_or_else(OwnedValue::null, OwnedValue::string);
        let set = |w: &mut Writer<'_>| w.nested("$set", |w| w.value(self.path.as_str(), path.as_value()));
        statement(|w| w.value("_id", id), |w| w.nested("u", set), false)
    }

    /// Gives all nodes below the path `from` the path `to` in its place.
    pub(super) fn rebase(&self, from: &str, to: &str, id: &Id) -> Vec<u8> {
        let reference = format!("${}", self.path);
        let update = |w: &mut Writer<'_>| {
            w.array("u", |a| {
                a.nested(|w| {
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
            });
        };
        statement(|w| self.write_subtree(w, from, id), update, true)
    }

    /// The operation with this path in what it stores, and with this parent if one is given.
    pub(super) fn place<'a>(
        &self,
        operation: &Operation<'a>,
        path: Option<&str>,
        parent: Option<&Id>,
    ) -> Operation<'a> {
        let path = path.map_or_else(OwnedValue::null, OwnedValue::string);
        let parent = parent.map(Id::value);
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
                    // Its path follows what it decides.
                    other @ (Modification::Pipeline(_) | Modification::ClientPipeline(_)) => other.clone(),
                };
                remade(update, update.filter.clone(), modification, update.upsert)
            }
            Operation::Delete(_) => operation.clone(),
        }
    }

    /// `parent` is set too where the statement says nothing of it.
    fn set_path<'a>(&self, operators: Document<'_>, path: Value<'_>, parent: Option<Value<'_>>) -> CowDocument<'a> {
        let field = self.path.as_str();
        let kept = |w: &mut Writer<'_>, operator: Document<'_>| {
            operator.elements().filter(|e| e.key != field.as_bytes()).for_each(|e| w.element(e));
        };
        CowDocument::build(|w| {
            for operator in operators.elements().filter(|operator| operator.key != b"$set") {
                match operator.value.as_document() {
                    // An operator without fields is refused by servers before 5.0.
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

/// What is there and not null.
pub(super) fn present(found: Lookup<'_>) -> Option<Value<'_>> {
    match found {
        Lookup::Found(value) => (value.kind != Kind::Null).then_some(value),
        Lookup::Missing | Lookup::Blocked(_) => None,
    }
}

fn touched_only(fields: Document<'_>, field: &str) -> bool {
    fields.elements().all(|element| element.key == field.as_bytes())
}

/// The operation on exactly the document that was looked at.
pub(super) fn pinned<'a>(operation: &Operation<'a>, id: Value<'_>) -> Operation<'a> {
    let pin = |filter: &CowDocument<'a>| match equality(filter.as_document(), "_id") {
        Some(_) => filter.clone(),
        None => narrowed(filter.as_document(), "_id", |w, key| w.value(key, id)),
    };
    match operation {
        Operation::Insert(_) => operation.clone(),
        Operation::Update(update) => Operation::Update(Update { filter: pin(&update.filter), ..update.clone() }),
        Operation::Delete(delete) => {
            Operation::Delete(crate::command::Delete { filter: pin(&delete.filter), multi: delete.multi })
        }
    }
}

/// An element of `updates`. Paths and `_id`s are compared byte by byte, whatever the collection's collation.
fn statement(filter: impl FnOnce(&mut Writer<'_>), update: impl FnOnce(&mut Writer<'_>), multi: bool) -> Vec<u8> {
    crate::document::document(|w| {
        w.nested("q", filter);
        update(w);
        w.boolean("multi", multi);
        w.nested("collation", |w| w.string("locale", "simple"));
    })
}
