//! Giving a node its place: inserts, upserts, and updates that change the parent, the path or everything.
//!
//! The conversation: look at the node (updates), look at its new parent, touch that parent and give the
//! subtree its new paths, then carry out the client's statement with the node's own path in it. The touch
//! makes every two writes conflict of which one relies on what the other changes: a parent that is moved or
//! deleted, or two moves that would close a circle.
//!
//! A statement that decides for itself whether it is late comes first: only the document that it leaves says
//! whether there is a new parent at all.

use super::id::{Class, Id};
use super::intent::{InsertedId, Intent, Kind, Wanted};
use super::layout::{Layout, Node, pinned, present};
use crate::command::Operation;
use crate::document::{Document, Kind as ValueKind, Lookup, OwnedValue, document};
use crate::effect::{Change, change, inserted};
use crate::patterns::Rejection;
use crate::patterns::procedure::{ActionResult, NextAction, Procedure, ProcedureRun};

/// A statement that gives a node its place.
#[derive(Debug, Clone)]
pub(super) struct Placement {
    pub(super) layout: Layout,
}

impl Procedure for Placement {
    fn begin(&self) -> Box<dyn ProcedureRun> {
        let intent = Intent { kind: Kind::Change, wanted: Wanted::default(), follows: false };
        Box::new(Placing { layout: self.layout.clone(), intent, node: None, inserted: None, stage: Stage::Start })
    }
}

#[derive(Debug)]
struct Placing {
    layout: Layout,
    intent: Intent,
    /// The stored node, once it is known.
    node: Option<Node>,
    /// The `_id` of the node that an upsert inserts, once it is known that it does.
    inserted: Option<InsertedId>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Start,
    Node,
    /// The parent is looked for: by its `_id`, or by the path the client gave.
    Parent,
    Touched(Place),
    /// The statement was carried out as it is; what it left is to be looked at.
    Decided,
    Left,
    /// The server refuses to make the document that the upsert would insert.
    Failing,
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

impl ProcedureRun for Placing {
    fn next<'a>(&mut self, operation: &Operation<'a>, heard: ActionResult<'_>) -> NextAction<'a> {
        let wish = match (std::mem::replace(&mut self.stage, Stage::Start), heard) {
            (Stage::Start, _) => self.start(operation),
            (Stage::Node, ActionResult::Documents(found)) => self.take_node(operation, found),
            (Stage::Parent, ActionResult::Documents(found)) => self.take_parent(operation, found),
            (Stage::Touched(place), _) => Ok(self.apply(operation, &place)),
            (Stage::Decided, _) => Ok(self.look_again()),
            (Stage::Left, ActionResult::Documents(found)) => self.follow(operation, found),
            (Stage::Applied, _) => Ok(NextAction::Finish),
            (Stage::Failing, _) => {
                Err(Rejection::new("it inserts a document that cannot be told beforehand", "Tell the DBA."))
            }
            (Stage::Node | Stage::Parent | Stage::Left, _) => {
                Err(Rejection::new("docward lost its place in it", "Tell the DBA."))
            }
        };
        wish.unwrap_or_else(NextAction::Reject)
    }
}

impl Placing {
    fn start<'a>(&mut self, operation: &Operation<'a>) -> Result<NextAction<'a>, Rejection> {
        self.intent = Intent::of(operation, &self.layout)?;
        if self.intent.kind == Kind::Insert {
            return self.seek_parent(operation);
        }
        self.stage = Stage::Node;
        Ok(NextAction::Select { limit: 1, fields: self.layout.fields() })
    }

    fn take_node<'a>(
        &mut self,
        operation: &Operation<'a>,
        found: &[Document<'_>],
    ) -> Result<NextAction<'a>, Rejection> {
        let Some(document) = found.first() else { return self.insert(operation) };
        let node = self.layout.node(*document)?;
        if !self.intent.concerns_stored(operation, &self.layout) {
            self.stage = Stage::Applied;
            return Ok(NextAction::Apply(pinned(operation, node.raw_id.as_value())));
        }
        if self.intent.follows {
            self.node = Some(node);
            return Ok(self.decide(operation));
        }
        let wanted = &self.intent.wanted;
        let stays = match (&wanted.parent, &wanted.path) {
            (Some(parent), _) => *parent == node.parent,
            (None, Some(Some(path))) if self.intent.kind == Kind::Replacement => Some(path) == node.path.as_ref(),
            (None, _) => self.intent.kind == Kind::Change || node.parent.is_none(),
        };
        if !stays {
            self.node = Some(node);
            return self.seek_parent(operation);
        }
        self.check_path(node.path.as_deref())?;
        if wanted.path.is_none() && self.intent.kind == Kind::Change {
            self.stage = Stage::Applied;
            return Ok(NextAction::Apply(pinned(operation, node.raw_id.as_value())));
        }
        let adds_parent = wanted.parent.is_none() && node.parent.is_some() && self.intent.kind == Kind::Replacement;
        let place = Place { path: node.path.clone(), parent: node.parent.clone(), adds_parent };
        self.node = Some(node);
        Ok(self.apply(operation, &place))
    }

    /// The statement matches nothing: an upsert inserts.
    fn insert<'a>(&mut self, operation: &Operation<'a>) -> Result<NextAction<'a>, Rejection> {
        if !matches!(operation, Operation::Update(update) if update.upsert) {
            // That is what the client is to hear.
            self.stage = Stage::Applied;
            return Ok(NextAction::Apply(operation.clone()));
        }
        let Some(inserted) = inserted(operation) else {
            self.stage = Stage::Failing;
            return Ok(NextAction::Apply(operation.clone()));
        };
        let (intent, id) = Intent::of_inserted(operation, &inserted, &self.layout)?;
        (self.intent, self.inserted) = (intent, Some(id));
        if self.intent.follows { Ok(self.decide(operation)) } else { self.seek_parent(operation) }
    }

    /// Asks for the new parent, if there is to be one.
    fn seek_parent<'a>(&mut self, operation: &Operation<'a>) -> Result<NextAction<'a>, Rejection> {
        let layout = &self.layout;
        let candidates = match (&self.intent.wanted.parent, &self.intent.wanted.path) {
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
        Ok(NextAction::Find { filter, limit: candidates.len() as i32, fields: layout.fields() })
    }

    fn take_parent<'a>(
        &mut self,
        operation: &Operation<'a>,
        found: &[Document<'_>],
    ) -> Result<NextAction<'a>, Rejection> {
        let layout = self.layout.clone();
        let found = found.iter().map(|document| layout.node(*document)).collect::<Result<Vec<_>, _>>()?;
        let mut parents = found.into_iter().filter_map(|node| {
            let id = node.id?;
            let below = layout.below(node.path.as_deref(), &id);
            Some((id, below))
        });
        let by_path = match (&self.intent.wanted.parent, &self.intent.wanted.path) {
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
        let layout = &self.layout;
        let generated = || Some(Id { class: Class::ObjectId, text: String::new() });
        let own = match (operation, self.raw_id()) {
            (_, Some(id)) => Id::read(id.as_value(), layout.separator),
            (Operation::Insert(insert), None) => match insert.document.as_document().get("_id") {
                None => generated(),
                Some(id) => Id::read(id, layout.separator),
            },
            (_, None) => generated(),
        };
        let own = own.ok_or_else(|| super::unusable_id(layout))?;
        if own == *parent {
            return Err(circle());
        }
        if own.class != parent.class {
            return Err(Rejection::new(
                format!("its _id is of type {}, its parent's of type {}", own.class.alias(), parent.class.alias()),
                "Use one type of _id in a tree: paths tell them apart by their text only.",
            ));
        }
        let is_below =
            self.node.as_ref().is_some_and(|node| below.starts_with(&layout.below(node.path.as_deref(), &own)));
        if is_below {
            return Err(circle());
        }
        Ok(())
    }

    /// The client's own path must be the one that the parent gives; null stands for "docward knows".
    fn check_path(&self, path: Option<&str>) -> Result<(), Rejection> {
        let Some(Some(given)) = &self.intent.wanted.path else {
            let emptied = self.intent.wanted.path.is_some() && self.intent.kind == Kind::Change;
            return match path.filter(|_| emptied) {
                Some(path) => Err(self.wrong_path(Some(path))),
                None => Ok(()),
            };
        };
        if self.layout.segments(given).is_none() {
            return Err(self.malformed(given));
        }
        if Some(given.as_str()) == path { Ok(()) } else { Err(self.wrong_path(path)) }
    }

    fn wrong_path(&self, path: Option<&str>) -> Rejection {
        let Layout { path: field, parent, .. } = &self.layout;
        let right = path.map_or_else(|| "null".to_owned(), |path| format!("{path:?}"));
        Rejection::new(
            format!("it sets '{field}' to something else than its parent gives, which is {right}"),
            format!("Set '{parent}' only; docward writes '{field}'."),
        )
    }

    fn malformed(&self, path: &str) -> Rejection {
        let Layout { separator, path: field, .. } = &self.layout;
        Rejection::new(
            format!("{path:?} is no path"),
            format!("'{field}' is null for a root, else every ancestor's _id between '{separator}', root first."),
        )
    }

    /// Touches the new parent and moves the subtree; then the statement follows, unless it came first.
    fn put<'a>(&mut self, operation: &Operation<'a>, place: Place) -> Result<NextAction<'a>, Rejection> {
        let layout = &self.layout;
        let mut changes: Vec<Vec<u8>> = place.parent.iter().flat_map(|id| layout.touch(id)).collect();
        changes.extend(self.move_subtree(&place));
        if self.intent.follows {
            changes.extend(self.raw_id().map(|id| layout.set_path_of(id.as_value(), place.path.as_deref())));
            self.stage = Stage::Applied;
            return Ok(NextAction::Update(changes));
        }
        if changes.is_empty() {
            return Ok(self.apply(operation, &place));
        }
        self.stage = Stage::Touched(place);
        Ok(NextAction::Update(changes))
    }

    fn move_subtree(&self, place: &Place) -> Option<Vec<u8>> {
        let (layout, node) = (&self.layout, self.node.as_ref()?);
        let id = node.id.as_ref()?;
        let (from, to) = (layout.below(node.path.as_deref(), id), layout.below(place.path.as_deref(), id));
        (from != to).then(|| layout.rebase(&from, &to, id))
    }

    /// The client's statement, with the path in it.
    fn apply<'a>(&mut self, operation: &Operation<'a>, place: &Place) -> NextAction<'a> {
        self.stage = Stage::Applied;
        let parent = place.parent.as_ref().filter(|_| place.adds_parent);
        self.on_node(&self.layout.place(operation, place.path.as_deref(), parent))
    }

    /// The client's statement as it is, before anything else.
    fn decide<'a>(&mut self, operation: &Operation<'a>) -> NextAction<'a> {
        self.stage = Stage::Decided;
        self.on_node(operation)
    }

    fn on_node<'a>(&self, operation: &Operation<'a>) -> NextAction<'a> {
        NextAction::Apply(match &self.node {
            Some(node) => pinned(operation, node.raw_id.as_value()),
            None => operation.clone(),
        })
    }

    /// The `_id` of the document that is stored, or inserted by an upsert.
    fn raw_id(&self) -> Option<&OwnedValue> {
        match (&self.node, &self.inserted) {
            (Some(node), _) => Some(&node.raw_id),
            (None, Some(InsertedId::Known(id))) => Some(id),
            (None, Some(InsertedId::Generated) | None) => None,
        }
    }

    /// Asks what the statement has left.
    fn look_again<'a>(&mut self) -> NextAction<'a> {
        let filter = document(|w| {
            if let Some(id) = self.raw_id() {
                w.value("_id", id.as_value());
            }
        });
        self.stage = Stage::Left;
        NextAction::Find { filter, limit: 1, fields: self.layout.fields() }
    }

    /// The path follows the parent, if the statement was not too late to change that.
    fn follow<'a>(&mut self, operation: &Operation<'a>, found: &[Document<'_>]) -> Result<NextAction<'a>, Rejection> {
        let layout = &self.layout;
        let Some(document) = found.first() else { return Ok(NextAction::Finish) };
        if self.intent.kind == Kind::Change
            && self.intent.wanted.path.is_none()
            && !matches!(change(operation, &layout.path), Change::Untouched | Change::Removed)
        {
            let path = present(layout.path.lookup(*document)).map(|value| layout.read_path(value)).transpose()?;
            self.intent.wanted.path = Some(path.flatten());
        }
        let parent = match present(layout.parent.lookup(*document)) {
            Some(value) => Some(Id::read(value, layout.separator).ok_or_else(|| super::unusable_parent(layout))?),
            None => None,
        };
        match &self.node {
            Some(node) if node.parent == parent => self.keep_path(operation, node.path.clone(), *document),
            _ => {
                let own = self.raw_id().and_then(|id| Id::read(id.as_value(), layout.separator));
                if own.is_some() && own == parent {
                    return Err(circle());
                }
                self.intent.wanted.parent = Some(parent);
                self.seek_parent(operation)
            }
        }
    }

    /// The node lies where it lay. Its path may have changed nevertheless: it was in the document that was replaced,
    /// or came with a parent that was too late.
    fn keep_path<'a>(
        &mut self,
        operation: &Operation<'a>,
        path: Option<String>,
        left: Document<'_>,
    ) -> Result<NextAction<'a>, Rejection> {
        let layout = &self.layout;
        self.stage = Stage::Applied;
        let is_kept = match layout.path.lookup(left) {
            Lookup::Found(value) if value.kind == ValueKind::Null => path.is_none(),
            Lookup::Found(value) => value.as_str().is_some() && value.as_str() == path.as_deref(),
            // A root from before the rule may have none.
            Lookup::Missing | Lookup::Blocked(_) => {
                path.is_none() && change(operation, &layout.path) == Change::Untouched
            }
        };
        if is_kept {
            return Ok(NextAction::Finish);
        }
        let node = self.node.as_ref();
        let names_another = |wanted: &Option<Id>| node.is_none_or(|node| node.parent != *wanted);
        if !self.intent.wanted.parent.as_ref().is_some_and(names_another) {
            self.check_path(path.as_deref())?;
        }
        let set = self.raw_id().map(|id| layout.set_path_of(id.as_value(), path.as_deref()));
        Ok(set.map_or(NextAction::Finish, |set| NextAction::Update(vec![set])))
    }
}

fn circle() -> Rejection {
    Rejection::new("it would move a node below itself", "Choose a parent outside of its subtree.")
}
