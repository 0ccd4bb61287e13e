//! `copies`: denormalized fields kept true (extended reference).
//!
//! People carry their best friend's name beside her id, so that a page needs one read. A write that points
//! to another friend and leaves the old name is refused here; that a renamed person is renamed everywhere is
//! the work of [`crate::service`], which watches the originals.
//!
//! before: `updateOne({_id: 1}, {$set: {"best_friend.id": 7}})`
//!
//! after: rejected; `{$set: {"best_friend.id": 7, "best_friend.name": "Ada"}}` passes.
//!
//! The files below: `writes.rs` says which writes of references pass, `references.rs` where they are in a document,
//! `originals.rs` what `on_delete: reject` takes.

mod contradictions;
mod originals;
mod references;
mod settings;
#[cfg(test)]
mod tests;
mod writes;

pub(super) use contradictions::contradictions;
pub use references::{Holders, Reference, is_reference};
pub use settings::{Collection, Copies, Entry, Field, OnDelete};

use std::sync::Arc;

use super::{Concern, Context, Evaluate, IndexPurpose, NeededIndex, Phase, Verdict, concern_for_content};
use crate::command::{Delete, Namespace, Operation, Statement, StatementKind};
use crate::rules::NamespacePattern;
use originals::{Holding, Releasing};
use writes::Writes;

impl Evaluate for Copies {
    fn name(&self) -> &'static str {
        "copies"
    }

    fn phase(&self) -> Phase {
        Phase::Copies
    }

    fn also_evaluates(&self) -> Vec<NamespacePattern> {
        self.entries.iter().map(|entry| entry.into.pattern.clone()).collect()
    }

    fn needed_indexes(&self) -> Vec<NeededIndex> {
        let needed = |entry: &Entry| NeededIndex {
            collection: Some(entry.into.pattern.clone()),
            field: entry.key.as_str().to_owned(),
            purpose: IndexPurpose::Equality,
            without: "every change of an original scans the collection",
        };
        self.entries.iter().map(needed).collect()
    }

    fn rewriting(&self) -> &'static str {
        "the originals and the references to them are looked at in one transaction with it"
    }

    fn concern(&self, kind: StatementKind, namespace: Namespace<'_>) -> Concern {
        let rejects = || self.entries.iter().any(|entry| entry.on_delete == OnDelete::Reject);
        match kind {
            StatementKind::Delete if self.originals.is(namespace) && rejects() => Concern::Each,
            _ if self.entries.iter().any(|entry| entry.into.is(namespace)) => concern_for_content(kind),
            _ => Concern::Nothing,
        }
    }

    fn evaluate<'a>(&self, statement: &Statement<'a>, context: &Context<'_>) -> Verdict<'a> {
        if let Operation::Delete(delete) = &statement.operation {
            return self.evaluate_delete(statement, delete);
        }
        let mut keys = Vec::new();
        for entry in self.entries.iter().filter(|entry| entry.into.is(context.namespace)) {
            let evaluated = Writes { entry, originals: &self.originals, keys: &mut keys }.evaluate(statement);
            if let Err(fault) = evaluated {
                return fault.into();
            }
        }
        match keys.is_empty() {
            true => Verdict::Forward,
            false => Verdict::Procedure(Arc::new(Holding { originals: self.originals.clone(), keys })),
        }
    }
}

impl Copies {
    fn evaluate_delete<'a>(&self, statement: &Statement<'a>, delete: &Delete<'_>) -> Verdict<'a> {
        if !delete.multi && statement.option("collation").is_some() {
            return Verdict::unsupported(
                "it has a collation, by which it may pick another document than the one that was looked at",
                "Leave the collation out.",
            );
        }
        let entries = self.entries.iter().filter(|entry| entry.on_delete == OnDelete::Reject).cloned().collect();
        Verdict::Procedure(Arc::new(Releasing { originals: self.originals.clone(), entries }))
    }
}
