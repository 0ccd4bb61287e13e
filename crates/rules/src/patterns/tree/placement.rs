//! Places a node: inserts, upserts, and updates that change the parent, the path or the whole document.
//!
//! The steps: read the node (updates), read its new parent, touch that parent, give the subtree its new paths, then run
//! the client's statement with the node's own path. The touch causes a write conflict between two statements if one
//! depends on a change of the other: a parent that is moved or deleted, or two moves that would create a cycle.
//!
//! A statement that checks itself whether it is stale runs first: only the resulting document shows whether there is a
//! new parent.

use super::id::{IdClass, NodeId};
use super::intent::{Intent, NodeWriteKind, RequestedPosition, names};
use super::layout::{TreeFields, TreeNode, narrowed_to, present, unusable_id, unusable_parent};
use crate::command::Operation;
use crate::document::{CowDocument, Document, Kind as ValueKind, OwnedValue, PathLookup};
use crate::effect::{Change, change};
use crate::patterns::Rejection;
use crate::patterns::procedure::{ActionResult, NextAction, Procedure, ProcedureRun};

/// A statement that gives a node its position.
#[derive(Debug, Clone)]
pub(super) struct PlacementProcedure {
    pub(super) layout: TreeFields,
}

impl Procedure for PlacementProcedure {
    fn begin(&self) -> Box<dyn ProcedureRun> {
        let intent = Intent { kind: NodeWriteKind::Change, wanted: RequestedPosition::default(), follows: false };
        Box::new(PlacementRun {
            layout: self.layout.clone(),
            intent,
            node: None,
            removes_path: false,
            is_settled: false,
            adds_parent: false,
            inserted: None,
            stage: PlacementStage::Start,
        })
    }
}

#[derive(Debug)]
struct PlacementRun {
    layout: TreeFields,
    intent: Intent,
    /// The stored node, if it has been read.
    node: Option<TreeNode>,
    /// The statement removes the path that the stored node has.
    removes_path: bool,
    /// Another rule may settle the node after the statement: only the result shows the position.
    is_settled: bool,
    /// The statement was given the parent that its path names.
    adds_parent: bool,
    /// The `_id` of the node that an upsert inserts, once it is known.
    inserted: Option<OwnedValue>,
    stage: PlacementStage,
}

#[derive(Debug)]
enum PlacementStage {
    Start,
    Node,
    /// docward looks for the parent, by its `_id` or by the client's path.
    Parent,
    Touched(NodePosition),
    /// The statement has been executed as it is; its result must be read.
    Executed,
    /// The result is being read.
    ReadingResult,
    Applied,
}

/// The position that was found for the node.
#[derive(Debug, Clone)]
struct NodePosition {
    path: Option<String>,
    parent: Option<NodeId>,
    /// The statement sets only a path, so docward adds the parent.
    adds_parent: bool,
}

impl ProcedureRun for PlacementRun {
    fn next<'a>(&mut self, operation: &Operation<'a>, result: ActionResult<'_>) -> NextAction<'a> {
        let action = match (std::mem::replace(&mut self.stage, PlacementStage::Start), result) {
            (PlacementStage::Start, ActionResult::Start { is_checked }) => self.start(operation, is_checked),
            (PlacementStage::Node, ActionResult::Documents(found)) => self.take_node(operation, found),
            (PlacementStage::Parent, ActionResult::Documents(found)) => self.take_parent(operation, found),
            (PlacementStage::Touched(position), _) => Ok(self.apply(operation, &position)),
            (PlacementStage::Executed, ActionResult::Applied { inserted }) => {
                self.inserted = inserted.map(OwnedValue::from);
                Ok(self.read_result())
            }
            (PlacementStage::ReadingResult, ActionResult::Documents(found)) => self.follow(operation, found),
            (PlacementStage::Applied, _) => Ok(NextAction::Finish),
            (
                PlacementStage::Start
                | PlacementStage::Node
                | PlacementStage::Parent
                | PlacementStage::Executed
                | PlacementStage::ReadingResult,
                _,
            ) => Err(Rejection::unexpected_reply()),
        };
        action.unwrap_or_else(NextAction::Reject)
    }

    fn adds_fields(&self) -> bool {
        self.adds_parent
    }
}

impl PlacementRun {
    fn start<'a>(&mut self, operation: &Operation<'a>, is_checked: bool) -> Result<NextAction<'a>, Rejection> {
        self.intent = Intent::from_operation(operation, &self.layout)?;
        if self.intent.kind == NodeWriteKind::Insert {
            return self.seek_parent(operation);
        }
        self.is_settled = is_checked;
        self.intent.follows |= is_checked;
        self.stage = PlacementStage::Node;
        Ok(NextAction::Select { limit: 1, fields: self.layout.fields() })
    }

    fn take_node<'a>(
        &mut self,
        operation: &Operation<'a>,
        found: &[Document<'_>],
    ) -> Result<NextAction<'a>, Rejection> {
        let Some(document) = found.first() else { return self.insert(operation) };
        let is_multi = matches!(operation, Operation::Update(update) if update.multi);
        if is_multi && !self.intent.affects_stored(operation, &self.layout) {
            // It changes every node that it matches, and inserts none.
            self.stage = PlacementStage::Applied;
            return Ok(NextAction::Apply(operation.clone()));
        }
        let node = self.layout.node(*document)?;
        if !self.intent.affects_stored(operation, &self.layout) {
            self.stage = PlacementStage::Applied;
            return Ok(NextAction::Apply(narrowed_to(operation, node.raw_id.as_value())));
        }
        if self.intent.wanted.path == Some(None) && change(operation, &self.layout.path) == Change::Removed {
            self.removes_path = node.has_path;
            if !node.has_path {
                self.intent.wanted.path = None;
            }
        }
        if self.intent.follows {
            self.node = Some(node);
            return Ok(self.execute_first(operation));
        }
        let wanted = &self.intent.wanted;
        let stays = match (&wanted.parent, &wanted.path) {
            (Some(parent), _) => *parent == node.parent,
            (None, Some(Some(path))) if self.intent.kind == NodeWriteKind::Replacement => {
                Some(path) == node.path.as_ref()
            }
            (None, _) => self.intent.kind == NodeWriteKind::Change || node.parent.is_none(),
        };
        if !stays {
            self.node = Some(node);
            return self.seek_parent(operation);
        }
        self.check_path(node.path.as_deref())?;
        if wanted.path.is_none() && self.intent.kind == NodeWriteKind::Change {
            self.stage = PlacementStage::Applied;
            return Ok(NextAction::Apply(narrowed_to(operation, node.raw_id.as_value())));
        }
        let adds_parent =
            wanted.parent.is_none() && node.parent.is_some() && self.intent.kind == NodeWriteKind::Replacement;
        let position = NodePosition { path: node.path.clone(), parent: node.parent.clone(), adds_parent };
        self.node = Some(node);
        Ok(self.apply(operation, &position))
    }

    /// Handles a statement that matches nothing: an upsert inserts.
    fn insert<'a>(&mut self, operation: &Operation<'a>) -> Result<NextAction<'a>, Rejection> {
        let Operation::Update(update) = operation else { return Err(Rejection::unexpected_reply()) };
        if !update.upsert {
            // The client gets the server's reply to its own statement.
            self.stage = PlacementStage::Applied;
            return Ok(NextAction::Apply(operation.clone()));
        }
        (self.intent, self.inserted) = Intent::of_inserted(operation, update, &self.layout)?;
        self.intent.follows |= self.is_settled;
        if self.intent.follows { Ok(self.execute_first(operation)) } else { self.seek_parent(operation) }
    }

    /// Reads the new parent, if there is one.
    fn seek_parent<'a>(&mut self, operation: &Operation<'a>) -> Result<NextAction<'a>, Rejection> {
        let layout = &self.layout;
        let candidates = match (&self.intent.wanted.parent, &self.intent.wanted.path) {
            (Some(Some(parent)), _) => vec![parent.clone()],
            (None, Some(Some(path))) => {
                let segments = layout.segments(path).ok_or_else(|| self.malformed(path))?;
                segments.last().map(|text| NodeId::with_text(text)).unwrap_or_default()
            }
            (Some(None), _) | (None, _) => {
                self.check_path(None)?;
                return self.put(operation, NodePosition { path: None, parent: None, adds_parent: false });
            }
        };
        let filter = CowDocument::build(|w| {
            w.nested("_id", |w| w.array("$in", |a| candidates.iter().for_each(|id| a.value(id.value().as_value()))));
        });
        self.stage = PlacementStage::Parent;
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
                    format!(
                        "it sets '{}' to {path:?}, but no stored node is the parent that this path names",
                        layout.path
                    ),
                    format!("Insert the ancestors first, or set only '{}'; docward writes the path.", layout.parent),
                ),
                None => {
                    let id = self.intent.wanted.parent.iter().flatten().next();
                    let id = id.map_or_else(String::new, |id| format!(": no node has the _id {}", id.text));
                    let hint = format!("Insert the parent first, or set another '{}'.", layout.parent);
                    Rejection::new(format!("its parent does not exist{id}"), hint)
                }
            });
        };
        self.check_kin(operation, &parent, &below)?;
        self.check_path(Some(&below))?;
        self.put(operation, NodePosition { path: Some(below), parent: Some(parent), adds_parent: by_path.is_some() })
    }

    /// Checks that a node and its parent have `_id`s of one type, and that the node does not move below itself.
    fn check_kin(&self, operation: &Operation<'_>, parent: &NodeId, below: &str) -> Result<(), Rejection> {
        let layout = &self.layout;
        let generated = || Some(NodeId { class: IdClass::ObjectId, text: String::new() });
        let own = match (operation, self.raw_id()) {
            (_, Some(id)) => NodeId::from_value(id.as_value(), layout.separator),
            (Operation::Insert(insert), None) => match insert.document.as_document().get("_id") {
                None => generated(),
                Some(id) => NodeId::from_value(id, layout.separator),
            },
            (_, None) => generated(),
        };
        let own = own.ok_or_else(|| unusable_id(layout))?;
        if own == *parent {
            return Err(cycle());
        }
        if own.class != parent.class {
            return Err(Rejection::new(
                format!(
                    "its _id has type {}, but its parent's _id has type {}",
                    own.class.alias(),
                    parent.class.alias()
                ),
                "Use one type of _id in a tree: paths contain only the text of each _id.",
            ));
        }
        let is_below =
            self.node.as_ref().is_some_and(|node| below.starts_with(&layout.below(node.path.as_deref(), &own)));
        if is_below {
            return Err(cycle());
        }
        Ok(())
    }

    /// Checks that the client's own path is the parent's; null means that docward sets it.
    fn check_path(&self, path: Option<&str>) -> Result<(), Rejection> {
        let Some(Some(given)) = &self.intent.wanted.path else {
            let emptied = self.intent.wanted.path.is_some() && self.intent.kind == NodeWriteKind::Change;
            return if emptied && (path.is_some() || self.removes_path) { Err(self.wrong_path(path)) } else { Ok(()) };
        };
        if self.layout.segments(given).is_none() {
            return Err(self.malformed(given));
        }
        if Some(given.as_str()) == path { Ok(()) } else { Err(self.wrong_path(path)) }
    }

    fn wrong_path(&self, path: Option<&str>) -> Rejection {
        let TreeFields { path: field, parent, .. } = &self.layout;
        let right = path.map_or_else(|| "null".to_owned(), |path| format!("{path:?}"));
        Rejection::new(
            format!("it sets '{field}' to a path that does not match its parent; the correct value is {right}"),
            format!("Set '{parent}' only; docward writes '{field}'."),
        )
    }

    fn malformed(&self, path: &str) -> Rejection {
        let TreeFields { separator, path: field, .. } = &self.layout;
        Rejection::new(
            format!("{path:?} is not a valid path"),
            format!("'{field}' is null for a root, otherwise every ancestor's _id between '{separator}', root first."),
        )
    }

    /// Touches the new parent and moves the subtree. Then it runs the statement, unless that has been executed already.
    fn put<'a>(&mut self, operation: &Operation<'a>, position: NodePosition) -> Result<NextAction<'a>, Rejection> {
        let layout = &self.layout;
        let mut changes: Vec<CowDocument<'static>> = position.parent.iter().flat_map(|id| layout.touch(id)).collect();
        changes.extend(self.move_subtree(&position));
        if self.intent.follows {
            changes.extend(self.raw_id().map(|id| layout.set_path_of(id.as_value(), position.path.as_deref())));
            self.stage = PlacementStage::Applied;
            return Ok(NextAction::Update(changes));
        }
        if changes.is_empty() {
            return Ok(self.apply(operation, &position));
        }
        self.stage = PlacementStage::Touched(position);
        Ok(NextAction::Update(changes))
    }

    fn move_subtree(&self, position: &NodePosition) -> Option<CowDocument<'static>> {
        let (layout, node) = (&self.layout, self.node.as_ref()?);
        let id = node.id.as_ref()?;
        let (from, to) = (layout.below(node.path.as_deref(), id), layout.below(position.path.as_deref(), id));
        (from != to).then(|| layout.rebase(&from, &to, id))
    }

    /// Runs the client's statement with the path in it.
    fn apply<'a>(&mut self, operation: &Operation<'a>, position: &NodePosition) -> NextAction<'a> {
        self.stage = PlacementStage::Applied;
        let parent = position.parent.as_ref().filter(|_| position.adds_parent);
        self.adds_parent = parent.is_some();
        self.on_node(&self.layout.set_position(operation, position.path.as_deref(), parent))
    }

    /// Runs the client's statement unchanged, before any other step.
    fn execute_first<'a>(&mut self, operation: &Operation<'a>) -> NextAction<'a> {
        self.stage = PlacementStage::Executed;
        self.on_node(operation)
    }

    fn on_node<'a>(&self, operation: &Operation<'a>) -> NextAction<'a> {
        NextAction::Apply(match &self.node {
            Some(node) => narrowed_to(operation, node.raw_id.as_value()),
            None => operation.clone(),
        })
    }

    /// Returns the `_id` of the stored document, or of the one that an upsert inserts.
    fn raw_id(&self) -> Option<&OwnedValue> {
        self.node.as_ref().map(|node| &node.raw_id).or(self.inserted.as_ref())
    }

    /// Reads the document that the statement wrote.
    fn read_result<'a>(&mut self) -> NextAction<'a> {
        let filter = CowDocument::build(|w| {
            if let Some(id) = self.raw_id() {
                w.value("_id", id.as_value());
            }
        });
        self.stage = PlacementStage::ReadingResult;
        NextAction::Find { filter, limit: 1, fields: self.layout.fields() }
    }

    /// Updates the path if the statement changed the parent.
    fn follow<'a>(&mut self, operation: &Operation<'a>, found: &[Document<'_>]) -> Result<NextAction<'a>, Rejection> {
        let layout = &self.layout;
        let Some(document) = found.first() else { return Ok(NextAction::Finish) };
        let path = layout.path.lookup(*document);
        // `$pull` and `$rename` of a missing path write nothing. A field moved around the path may leave it out, or
        // contain null.
        if self.intent.kind == NodeWriteKind::Change
            && self.intent.wanted.path.is_none()
            && !matches!(change(operation, &layout.path), Change::Untouched | Change::Removed)
            && path != PathLookup::Missing
        {
            let path = present(path).map(|value| layout.read_path(value)).transpose()?.flatten();
            if path.is_some() || names(operation, &layout.path) {
                self.intent.wanted.path = Some(path);
            }
        }
        let parent = match present(layout.parent.lookup(*document)) {
            Some(value) => Some(NodeId::from_value(value, layout.separator).ok_or_else(|| unusable_parent(layout))?),
            None => None,
        };
        match &self.node {
            Some(node) if node.parent == parent => self.keep_path(operation, node.path.clone(), *document),
            _ => {
                let own = self.raw_id().and_then(|id| NodeId::from_value(id.as_value(), layout.separator));
                if own.is_none() && self.node.is_none() {
                    return Err(unusable_id(layout));
                }
                if own.is_some() && own == parent {
                    return Err(cycle());
                }
                self.intent.wanted.parent = Some(parent);
                self.seek_parent(operation)
            }
        }
    }

    /// Keeps the path of a node that did not move. The statement may have changed the path: a replacement contained
    /// another one, or the path belongs to a parent that was stale.
    fn keep_path<'a>(
        &mut self,
        operation: &Operation<'a>,
        path: Option<String>,
        left: Document<'_>,
    ) -> Result<NextAction<'a>, Rejection> {
        let (layout, node) = (&self.layout, self.node.as_ref());
        self.stage = PlacementStage::Applied;
        let is_kept = match layout.path.lookup(left) {
            PathLookup::Found(value) if value.kind == ValueKind::Null => path.is_none(),
            PathLookup::Found(value) => value.as_str().is_some() && value.as_str() == path.as_deref(),
            // A root from before the rule may have no path.
            PathLookup::Missing | PathLookup::Blocked(_) => {
                let had_none = node.is_some_and(|node| !node.has_path);
                path.is_none() && (had_none || change(operation, &layout.path) == Change::Untouched)
            }
        };
        if is_kept {
            return Ok(NextAction::Finish);
        }
        let names_another = |wanted: &Option<NodeId>| node.is_none_or(|node| node.parent != *wanted);
        if !self.intent.wanted.parent.as_ref().is_some_and(names_another) {
            self.check_path(path.as_deref())?;
        }
        let set = self.raw_id().map(|id| layout.set_path_of(id.as_value(), path.as_deref()));
        Ok(set.map_or(NextAction::Finish, |set| NextAction::Update(vec![set])))
    }
}

fn cycle() -> Rejection {
    Rejection::new("it would move a node below itself", "Choose a parent outside of its subtree.")
}
