//! `tree`: leaves are inserted and deleted while the branches above them move.

use bson::{Document, doc};

use super::writer::{ClientOutcome, Operation, Writer};
use super::{Stored, Workload, written_once};
use crate::journal::Outcome;
use crate::verify;

pub(super) struct Tree;

const BRANCHES: usize = 4;
const TWIGS: usize = 4;

impl Workload for Tree {
    fn name(&self) -> &'static str {
        "tree"
    }

    fn settings(&self, _block: usize) -> String {
        "tree: { path: path, parent: parent }".into()
    }

    fn prepare(&self, writer: &mut Writer) {
        add(writer, doc! { "_id": "root" }).unwrap();
        for branch in 0..BRANCHES {
            add(writer, doc! { "_id": format!("branch-{branch}"), "parent": "root" }).unwrap();
        }
        for twig in 0..TWIGS {
            let parent = format!("branch-{}", twig % BRANCHES);
            add(writer, doc! { "_id": format!("twig-{twig}"), "parent": parent }).unwrap();
        }
    }

    fn step(&self, writer: &mut Writer) {
        let token = writer.token();
        let (branch, twig) = (format!("branch-{}", writer.below(BRANCHES)), format!("twig-{}", writer.below(TWIGS)));
        match writer.below(6) {
            0..3 => {
                let leaf = doc! { "_id": &token, "parent": if writer.below(2) == 0 { branch } else { twig } };
                writer.record("leaf", [token], doc! {}, |writer| add(writer, leaf));
            }
            3 => {
                let Some(leaf) = writer.history.iter().rfind(|operation| operation.kind == "leaf") else { return };
                let leaf = leaf.tokens[0].clone();
                writer.record("delete", [], doc! { "leaf": &leaf }, |writer| writer.delete(doc! { "_id": leaf }));
            }
            4 => {
                drop(writer.record("twig", [token.clone()], doc! {}, |writer| relocate(writer, &twig, &branch, &token)))
            }
            // The target is often below the node itself.
            _ => drop(
                writer.record("branch", [token.clone()], doc! {}, |writer| relocate(writer, &branch, &twig, &token)),
            ),
        }
    }

    fn faults(&self, history: &[Operation], stored: &Stored) -> Vec<String> {
        let nodes = stored.of(self.name());
        let leaves = nodes.iter().map(|node| node.get_str("_id").unwrap()).filter(|id| id.starts_with('w'));
        let moves = nodes.iter().filter_map(|node| node.get_array("log").ok()).flatten();
        let moves = moves.map(|token| token.as_str().unwrap());
        let mut tokens: Vec<String> = leaves.chain(moves).map(str::to_owned).collect();
        let mut faults = verify::tree(nodes);
        for delete in history.iter().filter(|operation| operation.kind == "delete") {
            let leaf = delete.details.get_str("leaf").unwrap().to_owned();
            let is_there = tokens.contains(&leaf);
            match delete.reply.outcome {
                Outcome::Acknowledged if is_there => faults.push(format!("{leaf} was deleted")),
                // It was deleted, so it existed.
                Outcome::Acknowledged | Outcome::Unknown if !is_there => {
                    tokens.push(leaf);
                }
                _ => {}
            }
        }
        faults.extend(written_once(history, tokens));
        faults
    }

    fn anomaly(&self) -> &'static str {
        "not where its path is"
    }
}

/// Without docward the application computes the path itself.
fn placed(writer: &Writer, parent: &str) -> Option<String> {
    let above = writer.find(doc! { "_id": parent })?;
    Some(format!("{}{parent},", above.get_str("path").unwrap_or(",")))
}

fn add(writer: &Writer, mut node: Document) -> ClientOutcome {
    if !writer.is_protected {
        let parent = node.get_str("parent").ok().map(str::to_owned);
        node.insert("path", parent.and_then(|parent| placed(writer, &parent)));
    }
    writer.insert("tree", [node])
}

fn relocate(writer: &Writer, node: &str, parent: &str, token: &str) -> ClientOutcome {
    let mut place = doc! { "parent": parent };
    if !writer.is_protected {
        place.insert("path", placed(writer, parent));
    }
    writer.update(doc! { "_id": node }, doc! { "$set": place, "$push": { "log": token } })
}
