//! Giving a node its place: inserts, upserts, and updates that change the parent, the path or everything.
//!
//! The conversation: look at the node (updates), look at its new parent, touch that parent and give the
//! subtree its new paths, then carry out the client's statement with the node's own path in it. The touch
//! makes every two writes conflict of which one relies on what the other changes: a parent that is moved or
//! deleted, or two moves that would close a circle.

use super::id::Id;
use super::layout::{Layout, Node, pinned, present};
use crate::command::{Modification, Operation, Update};
use crate::document::{Document, OwnedValue, document};
use crate::patterns::Rejection;
use crate::patterns::procedure::{Conversation, Heard, Procedure, Wish};

/// What a statement says of a node's place.
#[derive(Debug, Clone, Default)]
pub(super) struct Wanted {
    /// `Some(None)`: it makes the node a root; `None`: it does not say.
    pub(super) parent: Option<Option<Id>>,
    /// The path the client wrote, `Some(None)` for null.
    pub(super) path: Option<Option<String>>,
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

/// A statement that gives a node its place.
#[derive(Debug, Clone)]
pub(super) struct Placement {
    pub(super) layout: Layout,
    pub(super) kind: Kind,
    pub(super) wanted: Wanted,
    /// For upserts: where the node lies that they insert.
    pub(super) on_insert: Option<Wanted>,
    /// For upserts: the `_id` of what they insert.
    pub(super) upserted: Option<OwnedValue>,
}

impl Procedure for Placement {
    fn begin(&self) -> Box<dyn Conversation> {
        Box::new(Placing {
            statement: self.clone(),
            node: None,
            inserts: self.kind == Kind::Insert,
            stage: Stage::Start,
        })
    }
}

#[derive(Debug)]
struct Placing {
    statement: Placement,
    /// The stored node, once it is known.
    node: Option<Node>,
    inserts: bool,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Start,
    Node,
    /// The parent is looked for: by its `_id`, or by the path the client gave.
    Parent,
    Touched(Place),
    /// The statement decides for itself whether it is too late; then it changes no parent.
    Decided(Place),
    Checked(Place),
    Applied,
}

/// The place that was found for the node.
#[derive(Debug, Clone)]
struct Place {
    path: Option<String>,
    parent: Option<Id>,
    /// The statement gave only a path.
    adds_parent: bool,
}

impl Conversation for Placing {
    fn next<'a>(&mut self, operation: &Operation<'a>, heard: Heard<'_>) -> Wish<'a> {
        let wish = match (std::mem::replace(&mut self.stage, Stage::Start), heard) {
            (Stage::Start, _) if self.inserts => self.seek_parent(operation),
            (Stage::Start, _) => {
                self.stage = Stage::Node;
                Ok(Wish::Select { limit: 1, fields: self.statement.layout.fields() })
            }
            (Stage::Node, Heard::Documents(found)) => self.take_node(operation, found),
            (Stage::Parent, Heard::Documents(found)) => self.take_parent(operation, found),
            (Stage::Touched(place), _) => self.apply(operation, place),
            (Stage::Decided(place), _) => Ok(self.look_again(place)),
            (Stage::Checked(place), Heard::Documents(found)) => self.follow(&place, found),
            (Stage::Applied, _) => Ok(Wish::Finish),
            (Stage::Node | Stage::Parent | Stage::Checked(_), _) => {
                Err(Rejection::new("docward lost its place in it", "Tell the DBA."))
            }
        };
        wish.unwrap_or_else(Wish::Reject)
    }
}

impl Placing {
    fn take_node<'a>(&mut self, operation: &Operation<'a>, found: &[Document<'_>]) -> Result<Wish<'a>, Rejection> {
        let Some(document) = found.first() else {
            return match self.statement.on_insert.clone() {
                Some(wanted) => {
                    self.statement.wanted = wanted;
                    self.inserts = true;
                    self.seek_parent(operation)
                }
                // It matches nothing, and that is what the client is to hear.
                None => Ok(self.apply_as_it_is(operation)),
            };
        };
        let node = self.statement.layout.node(*document)?;
        let wanted = &self.statement.wanted;
        let stays = match (&wanted.parent, &wanted.path) {
            (Some(parent), _) => *parent == node.parent,
            (None, Some(Some(path))) if self.statement.kind == Kind::Replacement => Some(path) == node.path.as_ref(),
            (None, _) => self.statement.kind == Kind::Change || node.parent.is_none(),
        };
        if !stays {
            self.node = Some(node);
            return self.seek_parent(operation);
        }
        self.check_path(node.path.as_deref())?;
        if wanted.path.is_none() && self.statement.kind == Kind::Change {
            self.stage = Stage::Applied;
            return Ok(Wish::Apply(pinned(operation, node.raw_id.as_value())));
        }
        let adds_parent = wanted.parent.is_none() && node.parent.is_some() && self.statement.kind == Kind::Replacement;
        let place = Place { path: node.path.clone(), parent: node.parent.clone(), adds_parent };
        self.node = Some(node);
        self.apply(operation, place)
    }

    /// Asks for the new parent, if there is to be one.
    fn seek_parent<'a>(&mut self, operation: &Operation<'a>) -> Result<Wish<'a>, Rejection> {
        let layout = &self.statement.layout;
        let candidates = match (&self.statement.wanted.parent, &self.statement.wanted.path) {
            (Some(Some(parent)), _) => vec![parent.clone()],
            (None, Some(Some(path))) => {
                let segments = layout.segments(path).ok_or_else(|| self.malformed(path))?;
                segments.last().map(|text| Id::with_text(text)).unwrap_or_default()
            }
            (Some(None), _) | (None, _) => {
                self.check_path(None)?;
                return self.put(operation, Place { path: None, parent: None, adds_parent: false });
            }
        };
        let filter = document(|w| {
            w.nested("_id", |w| w.array("$in", |a| candidates.iter().for_each(|id| a.value(id.value().as_value()))));
        });
        self.stage = Stage::Parent;
        Ok(Wish::Find { filter, limit: candidates.len() as i32, fields: layout.fields() })
    }

    fn take_parent<'a>(&mut self, operation: &Operation<'a>, found: &[Document<'_>]) -> Result<Wish<'a>, Rejection> {
        let layout = self.statement.layout.clone();
        let found = found.iter().map(|document| layout.node(*document)).collect::<Result<Vec<_>, _>>()?;
        let mut parents = found.into_iter().filter_map(|node| {
            let id = node.id?;
            let below = layout.below(node.path.as_deref(), &id);
            Some((id, below))
        });
        let by_path = match (&self.statement.wanted.parent, &self.statement.wanted.path) {
            (None, Some(path)) => path.clone(),
            _ => None,
        };
        let parent = match &by_path {
            Some(path) => parents.find(|(_, below)| below == path),
            None => parents.next(),
        };
        let Some((parent, below)) = parent else {
            return Err(match &by_path {
                Some(path) => Rejection::new(
                    format!("there are no nodes along the path {path:?}"),
                    format!("Insert the ancestors first, or set '{}' and leave the path to docward.", layout.parent),
                ),
                None => Rejection::new("its parent does not exist", "Insert the parent first, or name another."),
            });
        };
        self.check_kin(operation, &parent, &below)?;
        self.check_path(Some(&below))?;
        self.put(operation, Place { path: Some(below), parent: Some(parent), adds_parent: by_path.is_some() })
    }

    /// A node and its parent have `_id`s of one type, and a node does not come to lie below itself.
    fn check_kin(&self, operation: &Operation<'_>, parent: &Id, below: &str) -> Result<(), Rejection> {
        let layout = &self.statement.layout;
        let own = match (&self.node, operation) {
            (Some(node), _) => node.id.clone(),
            (None, Operation::Insert(insert)) => match insert.document.as_document().get("_id") {
                // mongod makes an ObjectId.
                None => Some(Id { class: super::id::Class::ObjectId, text: String::new() }),
                Some(id) => Id::read(id, layout.separator),
            },
            (None, _) => self.statement.upserted.as_ref().and_then(|id| Id::read(id.as_value(), layout.separator)),
        };
        let own = own.ok_or_else(|| super::unusable_id(layout))?;
        if own.class != parent.class {
            return Err(Rejection::new(
                format!("its _id is of type {}, its parent's of type {}", own.class.alias(), parent.class.alias()),
                "Use one type of _id in a tree: paths tell them apart by their text only.",
            ));
        }
        let circle =
            self.node.as_ref().is_some_and(|node| below.starts_with(&layout.below(node.path.as_deref(), &own)));
        if circle {
            return Err(Rejection::new("it would move a node below itself", "Choose a parent outside of its subtree."));
        }
        Ok(())
    }

    /// The client's own path must be the one that the parent gives; null stands for "docward knows".
    fn check_path(&self, path: Option<&str>) -> Result<(), Rejection> {
        let Some(Some(given)) = &self.statement.wanted.path else {
            let emptied = self.statement.wanted.path.is_some() && self.statement.kind == Kind::Change;
            return match path.filter(|_| emptied) {
                Some(path) => Err(self.wrong_path(Some(path))),
                None => Ok(()),
            };
        };
        if self.statement.layout.segments(given).is_none() {
            return Err(self.malformed(given));
        }
        if Some(given.as_str()) == path { Ok(()) } else { Err(self.wrong_path(path)) }
    }

    fn wrong_path(&self, path: Option<&str>) -> Rejection {
        let Layout { path: field, parent, .. } = &self.statement.layout;
        let right = path.map_or_else(|| "null".to_owned(), |path| format!("{path:?}"));
        Rejection::new(
            format!("it sets '{field}' to something else than its parent gives, which is {right}"),
            format!("Set '{parent}' only; docward writes '{field}'."),
        )
    }

    fn malformed(&self, path: &str) -> Rejection {
        let Layout { separator, path: field, .. } = &self.statement.layout;
        Rejection::new(
            format!("{path:?} is no path"),
            format!("'{field}' is null for a root, else every ancestor's _id between '{separator}', root first."),
        )
    }

    /// Touches the new parent and moves the subtree, then the statement follows.
    fn put<'a>(&mut self, operation: &Operation<'a>, place: Place) -> Result<Wish<'a>, Rejection> {
        let layout = &self.statement.layout;
        let mut changes: Vec<Vec<u8>> = place.parent.iter().flat_map(|id| layout.touch(id)).collect();
        if !decides_for_itself(operation) {
            changes.extend(self.move_subtree(&place));
        }
        if changes.is_empty() {
            return self.apply(operation, place);
        }
        self.stage = Stage::Touched(place);
        Ok(Wish::Update(changes))
    }

    fn move_subtree(&self, place: &Place) -> Option<Vec<u8>> {
        let (layout, node) = (&self.statement.layout, self.node.as_ref()?);
        let id = node.id.as_ref()?;
        let (from, to) = (layout.below(node.path.as_deref(), id), layout.below(place.path.as_deref(), id));
        (from != to).then(|| layout.rebase(&from, &to, id))
    }

    /// The client's statement, with the path in it.
    fn apply<'a>(&mut self, operation: &Operation<'a>, place: Place) -> Result<Wish<'a>, Rejection> {
        let placed = if !decides_for_itself(operation) {
            self.stage = Stage::Applied;
            self.statement.layout.place(
                operation,
                place.path.as_deref(),
                place.parent.as_ref().filter(|_| place.adds_parent),
            )
        } else if place.adds_parent {
            let reason = "it says where the node lies by its path only, while another rule may find it too late";
            return Err(Rejection::new(reason, format!("Set '{}'.", self.statement.layout.parent)));
        } else {
            self.stage = Stage::Decided(place);
            operation.clone()
        };
        Ok(Wish::Apply(match &self.node {
            Some(node) => pinned(&placed, node.raw_id.as_value()),
            None => placed,
        }))
    }

    /// Asks which parent the statement has left.
    fn look_again<'a>(&mut self, place: Place) -> Wish<'a> {
        let id = self.node.as_ref().map(|node| &node.raw_id).or(self.statement.upserted.as_ref());
        let filter = document(|w| {
            if let Some(id) = id {
                w.value("_id", id.as_value());
            }
        });
        self.stage = Stage::Checked(place);
        Wish::Find { filter, limit: 1, fields: self.statement.layout.fields() }
    }

    /// The path follows the parent, if the statement was not too late to change that.
    fn follow<'a>(&mut self, place: &Place, found: &[Document<'_>]) -> Result<Wish<'a>, Rejection> {
        let layout = &self.statement.layout;
        let parent = found.first().and_then(|document| present(layout.parent.lookup(*document)));
        let parent = parent.and_then(|value| Id::read(value, layout.separator));
        self.stage = Stage::Applied;
        let id = self.node.as_ref().map(|node| &node.raw_id).or(self.statement.upserted.as_ref());
        let Some(id) = id.filter(|_| parent == place.parent) else { return Ok(Wish::Finish) };
        let mut changes = vec![layout.set_path_of(id.as_value(), place.path.as_deref())];
        changes.extend(self.move_subtree(place));
        Ok(Wish::Update(changes))
    }

    fn apply_as_it_is<'a>(&mut self, operation: &Operation<'a>) -> Wish<'a> {
        self.stage = Stage::Applied;
        Wish::Apply(operation.clone())
    }
}

/// Whether a later rule has made a pipeline of the statement, which may leave the stored fields as they are.
fn decides_for_itself(operation: &Operation<'_>) -> bool {
    matches!(operation, Operation::Update(Update { modification: Modification::Pipeline(_), .. }))
}
