//! Deleting nodes: not while they have children, or with all that is below them.
//!
//! The conversation: look at what the statement would delete, then at children that would be left behind
//! (`reject`) or take them along (`cascade`). A child that somebody inserts meanwhile touches its parent,
//! which conflicts with the parent's deletion.

use super::OnDelete;
use super::id::{Class, Id};
use super::layout::{Layout, Node, pinned};
use crate::command::{Delete, Operation};
use crate::document::{Document, document};
use crate::patterns::Rejection;
use crate::patterns::procedure::{ActionResult, NextAction, Procedure, ProcedureRun};

/// How many nodes one statement may pick: each is named in a query for its children.
const MAX_NODES: usize = 1000;

/// A statement that deletes nodes.
#[derive(Debug, Clone)]
pub(super) struct Removal {
    pub(super) layout: Layout,
    pub(super) on_delete: OnDelete,
}

impl Procedure for Removal {
    fn begin(&self) -> Box<dyn ProcedureRun> {
        Box::new(Removing { statement: self.clone(), nodes: Vec::new(), stage: Stage::Start })
    }
}

#[derive(Debug)]
struct Removing {
    statement: Removal,
    nodes: Vec<Node>,
    stage: Stage,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    Start,
    Nodes,
    Children,
    /// The client's statement is done, what is below is not.
    Applied,
    Finished,
}

impl ProcedureRun for Removing {
    fn next<'a>(&mut self, operation: &Operation<'a>, heard: ActionResult<'_>) -> NextAction<'a> {
        let multi = matches!(operation, Operation::Delete(Delete { multi: true, .. }));
        let wish = match (std::mem::replace(&mut self.stage, Stage::Finished), heard) {
            // Where all nodes go, none is left behind.
            (Stage::Start, _) if multi && is_unconditional(operation) => Ok(NextAction::Apply(operation.clone())),
            (Stage::Start, _) => {
                self.stage = Stage::Nodes;
                let limit = if multi { MAX_NODES as i32 + 1 } else { 1 };
                Ok(NextAction::Select { limit, fields: self.statement.layout.fields() })
            }
            (Stage::Nodes, ActionResult::Documents(found)) => self.take_nodes(operation, multi, found),
            (Stage::Children, ActionResult::Documents([])) => Ok(self.apply(operation, multi)),
            (Stage::Children, _) => Err(Rejection::new(
                "a node it deletes has children",
                "Delete or move the children first. (For the DBA: `on_delete: cascade` deletes them too.)",
            )),
            (Stage::Applied, _) => Ok(NextAction::Delete(vec![self.subtrees()])),
            (Stage::Finished, _) => Ok(NextAction::Finish),
            (Stage::Nodes, _) => Err(Rejection::new("docward lost its place in it", "Tell the DBA.")),
        };
        wish.unwrap_or_else(NextAction::Reject)
    }
}

impl Removing {
    fn take_nodes<'a>(
        &mut self,
        operation: &Operation<'a>,
        multi: bool,
        found: &[Document<'_>],
    ) -> Result<NextAction<'a>, Rejection> {
        if found.len() > MAX_NODES {
            return Err(Rejection::new(
                format!("it picks more than {MAX_NODES} nodes, whose children cannot all be looked for"),
                "Delete in parts, or delete all with an empty filter.",
            ));
        }
        let layout = &self.statement.layout;
        self.nodes = found.iter().map(|document| layout.node(*document)).collect::<Result<_, _>>()?;
        if !self.nodes.iter().any(|node| node.id.is_some()) {
            return Ok(NextAction::Apply(operation.clone()));
        }
        if self.statement.on_delete == OnDelete::Cascade {
            let wish = self.apply(operation, multi);
            self.stage = Stage::Applied;
            return Ok(wish);
        }
        self.stage = Stage::Children;
        Ok(NextAction::Find { filter: self.children(), limit: 1, fields: layout.fields() })
    }

    fn apply<'a>(&self, operation: &Operation<'a>, multi: bool) -> NextAction<'a> {
        match self.nodes.first() {
            Some(node) if !multi => NextAction::Apply(pinned(operation, node.raw_id.as_value())),
            _ => NextAction::Apply(operation.clone()),
        }
    }

    /// The nodes that can have children, with the paths of those.
    fn parents(&self) -> impl Iterator<Item = (&Id, String)> {
        let layout = &self.statement.layout;
        self.nodes.iter().filter_map(|node| {
            let id = node.id.as_ref()?;
            Some((id, layout.below(node.path.as_deref(), id)))
        })
    }

    /// Children of what is deleted that are not deleted themselves.
    fn children(&self) -> Vec<u8> {
        let path = self.statement.layout.path.as_str();
        document(|w| {
            w.array("$or", |a| {
                for class in Class::ALL {
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

    fn subtrees(&self) -> Vec<u8> {
        let layout = &self.statement.layout;
        document(|w| {
            w.nested("q", |w| {
                w.array("$or", |a| {
                    self.parents().for_each(|(id, below)| a.nested(|w| layout.write_subtree(w, &below, id)));
                });
            });
            w.int32("limit", 0);
            w.nested("collation", |w| w.string("locale", "simple"));
        })
    }
}

fn is_unconditional(operation: &Operation<'_>) -> bool {
    matches!(operation, Operation::Delete(Delete { filter, .. }) if filter.as_document().is_empty())
}
