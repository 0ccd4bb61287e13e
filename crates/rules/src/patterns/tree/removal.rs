//! Deletes nodes: rejects the delete if they have children, or deletes everything below them.
//!
//! The steps: read the nodes that the statement would delete, then look for children (`reject`) or delete them
//! (`cascade`). A concurrent insert of a child touches its parent, which conflicts with the parent's deletion.

use super::id::{IdClass, NodeId};
use super::layout::{TreeFields, TreeNode, narrowed_to};
use crate::command::{Delete, Operation};
use crate::document::{CowDocument, Document};
use crate::patterns::Rejection;
use crate::patterns::collation::write_simple_collation;
use crate::patterns::procedure::{ActionResult, NextAction, Procedure, ProcedureRun};

/// The action for a delete of a node that has children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnNodeDelete {
    Reject,
    /// All nodes below are deleted too.
    Cascade,
}

/// How many nodes one statement may delete: the query for children lists all of them.
const MAX_NODES: usize = 1000;

/// A statement that deletes nodes.
#[derive(Debug, Clone)]
pub(super) struct RemovalProcedure {
    pub(super) layout: TreeFields,
    pub(super) on_delete: OnNodeDelete,
}

impl Procedure for RemovalProcedure {
    fn begin(&self) -> Box<dyn ProcedureRun> {
        Box::new(RemovalRun { statement: self.clone(), nodes: Vec::new(), stage: RemovalStage::Start })
    }
}

#[derive(Debug)]
struct RemovalRun {
    statement: RemovalProcedure,
    nodes: Vec<TreeNode>,
    stage: RemovalStage,
}

#[derive(Debug, Clone, Copy)]
enum RemovalStage {
    Start,
    Nodes,
    Children,
    /// The client's statement has been executed; the nodes below have not been deleted yet.
    Applied,
    Finished,
}

impl ProcedureRun for RemovalRun {
    fn next<'a>(&mut self, operation: &Operation<'a>, result: ActionResult<'_>) -> NextAction<'a> {
        let multi = matches!(operation, Operation::Delete(Delete { multi: true, .. }));
        let action = match (std::mem::replace(&mut self.stage, RemovalStage::Finished), result) {
            // If all nodes are deleted, no child remains.
            (RemovalStage::Start, _) if multi && is_unconditional(operation) => {
                Ok(NextAction::Apply(operation.clone()))
            }
            (RemovalStage::Start, _) => {
                self.stage = RemovalStage::Nodes;
                let limit = if multi { MAX_NODES as i32 + 1 } else { 1 };
                Ok(NextAction::Select { limit, fields: self.statement.layout.fields() })
            }
            (RemovalStage::Nodes, ActionResult::Documents(found)) => self.take_nodes(operation, multi, found),
            (RemovalStage::Children, ActionResult::Documents([])) => Ok(self.apply(operation, multi)),
            (RemovalStage::Children, found) => Err(self.has_children(found)),
            (RemovalStage::Applied, _) => Ok(NextAction::Delete(vec![self.subtrees()])),
            (RemovalStage::Finished, _) => Ok(NextAction::Finish),
            (RemovalStage::Nodes, _) => Err(Rejection::unexpected_reply()),
        };
        action.unwrap_or_else(NextAction::Reject)
    }
}

impl RemovalRun {
    fn take_nodes<'a>(
        &mut self,
        operation: &Operation<'a>,
        multi: bool,
        found: &[Document<'_>],
    ) -> Result<NextAction<'a>, Rejection> {
        if found.len() > MAX_NODES {
            return Err(Rejection::new(
                format!("it deletes more than {MAX_NODES} nodes, too many to check for children"),
                "Delete fewer nodes at a time, or delete all with an empty filter.",
            ));
        }
        let layout = &self.statement.layout;
        self.nodes = found.iter().map(|document| layout.node(*document)).collect::<Result<_, _>>()?;
        if !self.nodes.iter().any(|node| node.id.is_some()) {
            return Ok(NextAction::Apply(operation.clone()));
        }
        if self.statement.on_delete == OnNodeDelete::Cascade {
            let action = self.apply(operation, multi);
            self.stage = RemovalStage::Applied;
            return Ok(action);
        }
        self.stage = RemovalStage::Children;
        Ok(NextAction::Find { filter: self.children(), limit: 1, fields: layout.fields() })
    }

    fn apply<'a>(&self, operation: &Operation<'a>, multi: bool) -> NextAction<'a> {
        match self.nodes.first() {
            Some(node) if !multi => NextAction::Apply(narrowed_to(operation, node.raw_id.as_value())),
            _ => NextAction::Apply(operation.clone()),
        }
    }

    /// Returns the rejection of a delete of a node with children; `found` is one of these.
    fn has_children(&self, found: ActionResult<'_>) -> Rejection {
        let child = match found {
            ActionResult::Documents([child, ..]) => self.statement.layout.node(*child).ok(),
            _ => None,
        };
        let parent = child.and_then(|child| child.parent);
        let which = parent.map_or_else(String::new, |id| format!(": the node with the _id {}", id.text));
        Rejection::new(
            format!("a node it deletes has children{which}"),
            "Delete or move the children first. (For the DBA: `on_delete: cascade` deletes them too.)",
        )
    }

    /// Returns the nodes that can have children, with their children's path.
    fn parents(&self) -> impl Iterator<Item = (&NodeId, String)> {
        let layout = &self.statement.layout;
        self.nodes.iter().filter_map(|node| {
            let id = node.id.as_ref()?;
            Some((id, layout.below(node.path.as_deref(), id)))
        })
    }

    /// Returns the filter for children of the deleted nodes that are not deleted themselves.
    fn children(&self) -> CowDocument<'static> {
        let path = self.statement.layout.path.as_str();
        CowDocument::build(|w| {
            w.array("$or", |a| {
                for class in IdClass::ALL {
                    let paths: Vec<String> =
                        self.parents().filter(|(id, _)| id.class == class).map(|(_, below)| below).collect();
                    if paths.is_empty() {
                        continue;
                    }
                    a.nested(|w| {
                        w.nested(path, |w| w.array("$in", |a| paths.iter().for_each(|path| a.string(path))));
                        w.nested("_id", |w| w.string("$type", class.alias()));
                    });
                }
            });
            w.nested("_id", |w| {
                w.array("$nin", |a| self.nodes.iter().for_each(|node| a.value(node.raw_id.as_value())));
            });
        })
    }

    fn subtrees(&self) -> CowDocument<'static> {
        let layout = &self.statement.layout;
        CowDocument::build(|w| {
            w.nested("q", |w| {
                w.array("$or", |a| {
                    self.parents().for_each(|(id, below)| a.nested(|w| layout.write_subtree(w, &below, id)));
                });
            });
            w.int32("limit", 0);
            write_simple_collation(w);
        })
    }
}

fn is_unconditional(operation: &Operation<'_>) -> bool {
    matches!(operation, Operation::Delete(Delete { filter, .. }) if filter.as_document().is_empty())
}
