//! `copies`: keeps denormalized fields equal to their originals (extended reference).
//!
//! A person's document has the best friend's name beside the friend's id, so that a page needs only one read. This
//! module rejects a write that changes the friend's id and leaves the old name. [`crate::service`] watches the
//! originals and updates the copies when a name changes.
//!
//! before: `updateOne({_id: 1}, {$set: {"best_friend.id": 7}})`
//!
//! after: rejected; `{$set: {"best_friend.id": 7, "best_friend.name": "Ada"}}` passes.
//!
//! `writes.rs` evaluates writes of references, `references.rs` finds references in a document, and `originals.rs`
//! implements `on_delete: reject`.

mod contradictions;
mod originals;
mod promise;
mod references;
mod settings;
#[cfg(test)]
mod tests;
mod writes;

use std::collections::HashSet;

pub use references::{Reference, ReferringDocuments, is_reference};
pub use settings::{CopiedField, Copies, CopiesEntry, OnOriginalDelete};

use super::promise::{BeforeAndAfter, Broken, Facts};
use super::stored_data::{Backfill, DataCheck, Search};
use super::{
    AnyPattern, Applicability, Collection, Context, IndexPurpose, NeededIndex, Pattern, Privilege, Procedures,
    Properties, Requirement, RuleView, Verdict, applicability_for_content,
};
use crate::command::{Delete, Namespace, Operation, Statement, StatementKind};
use crate::config::keys::Declaration;
use crate::config::{Diagnostic, Located, NamespaceGlob, Node, ReadContext};
use crate::document::{CowDocument, OwnedValue, Path};
use originals::{OriginalDeleteProcedure, ReferenceWriteProcedure};
use writes::{Fault, ReferenceWrites};

impl Pattern for Copies {
    fn declaration() -> Declaration {
        settings::declaration()
    }

    fn read(settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
        Self::read_list(settings, context)
    }

    fn contradictions(rules: &[RuleView<'_>]) -> Vec<Diagnostic> {
        contradictions::contradictions(rules)
    }

    fn conflict_with(&self, other: RuleView<'_>, namespace: Namespace<'_>) -> Option<&'static str> {
        let is_of_copies = matches!(other.pattern, AnyPattern::Copies(_));
        let other = other.properties;
        let rejects = self.originals.is(namespace) && self.rejects_deletes();
        if rejects && other.cascades {
            return Some("the delete of a node also deletes nodes below it to which there are references");
        }
        let is_own = |path: &Path| other.own_fields.iter().any(|field| path.overlaps(field.as_str().as_bytes()));
        let is_bucket_array =
            |path: &Path| other.counted_array.as_ref().is_some_and(|one| path.overlaps(one.array.as_str().as_bytes()));
        // What docward writes itself is not evaluated.
        let is_kept = |copied: &Path| match &other.procedures {
            Procedures::NotPlain(fields) if !is_of_copies => {
                fields.iter().any(|(field, _)| field == copied || field.is_below(copied.as_str().as_bytes()))
            }
            _ => false,
        };
        self.entries.iter().filter(|entry| entry.into.is(namespace)).find_map(|entry| {
            if entry.fields.iter().any(|field| is_own(&field.copied)) {
                return Some("docward writes copies into a field that belongs to the other rule");
            }
            if entry.fields.iter().any(|field| is_kept(&field.copied)) {
                return Some("docward writes copies into a field that the other rule checks, and does not check them");
            }
            let unset = entry.on_delete == OnOriginalDelete::Unset;
            if unset && entry.paths().any(is_own) {
                return Some("the removal of references also removes a field that belongs to the other rule");
            }
            let removes_elements = unset && entry.lists().filter_map(Path::parse).any(|list| is_bucket_array(&list));
            removes_elements
                .then_some("the removal of references takes elements out of an array, and does not count them")
        })
    }

    fn data_checks(&self, _: Namespace<'_>) -> Vec<DataCheck> {
        vec![DataCheck {
            found: "whose copies differ from the original".to_owned(),
            consequence: "reads of the copies return old values; serve corrects them when it starts with the rule",
            search: Search::Copies,
            backfill: Some(Backfill::Copies),
        }]
    }

    fn properties(&self) -> Properties {
        let indexed = |entry: &CopiesEntry| NeededIndex {
            collection: Some(entry.into.namespace.clone()),
            field: entry.key.as_str().to_owned(),
            purpose: IndexPurpose::Equality,
            without: "every change of an original scans the collection",
        };
        let copies = self.entries.iter().flat_map(CopiesEntry::paths).map(|path| (path.clone(), &["$set"][..]));
        let mut requirements =
            vec![Requirement::OwnConnection, Requirement::PipelineUpdates, Requirement::ChangeStreams];
        requirements.extend(self.rejects_deletes().then_some(Requirement::Transactions));
        Properties {
            rewriting: "checks originals and references in one transaction with the statement",
            tolerates_unsupported: true,
            needed_indexes: self.entries.iter().map(indexed).collect(),
            also_evaluates: self.entries.iter().map(|entry| entry.into.namespace.clone()).collect(),
            procedures: match self.rejects_deletes() {
                true => Procedures::All,
                false => Procedures::NotPlain(copies.collect()),
            },
            requirements,
            ..Properties::default()
        }
    }

    fn privileges(&self, _: &[Located<NamespaceGlob>]) -> Vec<Privilege> {
        let originals = &self.originals;
        let originals = Privilege::new(&originals.database, &originals.name, &["find", "changeStream"]);
        let into = self
            .entries
            .iter()
            .map(|entry| Privilege::new(&entry.into.database, &entry.into.name, &["find", "changeStream", "update"]));
        let leases = Privilege::new("docward", "leases", &["find", "insert", "update"]);
        [originals].into_iter().chain(into).chain([leases]).collect()
    }

    fn promise(&self, (before, after): BeforeAndAfter<'_>, facts: &Facts<'_, '_>) -> Result<(), Broken> {
        let Some(after) = after else { return Ok(()) };
        let mut entries = self.entries.iter().filter(|entry| entry.into.is(facts.context.namespace));
        Ok(entries.try_for_each(|entry| entry.promise(before, after, facts))?)
    }

    /// With `on_delete: reject` the originals of new references cannot be deleted meanwhile.
    fn writes_beside(
        &self,
        written: &[BeforeAndAfter<'_>],
        facts: &Facts<'_, '_>,
    ) -> Option<(&Collection, Vec<CowDocument<'static>>)> {
        let rejects = |entry: &&CopiesEntry| entry.on_delete == OnOriginalDelete::Reject;
        let entries = self.entries.iter().filter(rejects).filter(|entry| entry.into.is(facts.context.namespace));
        let keys: HashSet<OwnedValue> =
            entries.flat_map(|entry| written.iter().flat_map(|one| entry.new_keys(*one))).collect();
        (!keys.is_empty()).then(|| (&self.originals, keys.iter().flat_map(originals::touch).collect()))
    }

    /// A new collection in place of the originals ends the change stream that updates the copies.
    fn analyses_writes(&self, _: &[StatementKind], _: Namespace<'_>) -> bool {
        true
    }

    fn applicability(&self, kind: StatementKind, namespace: Namespace<'_>) -> Applicability {
        match kind {
            StatementKind::Delete if self.originals.is(namespace) && self.rejects_deletes() => Applicability::Each,
            _ if self.entries.iter().any(|entry| entry.into.is(namespace)) => applicability_for_content(kind),
            _ => Applicability::None,
        }
    }

    fn evaluate<'a>(&self, statement: &Statement<'a>, context: &Context<'_>) -> Verdict<'a> {
        if let Operation::Delete(delete) = &statement.operation {
            return self.evaluate_delete(statement, delete);
        }
        let mut keys = Vec::new();
        for entry in self.entries.iter().filter(|entry| entry.into.is(context.namespace)) {
            let evaluated = ReferenceWrites { entry, originals: &self.originals, keys: &mut keys }.evaluate(statement);
            match evaluated {
                Ok(()) => {}
                Err(Fault::Rejected(rejection)) => return Verdict::Reject(rejection),
                Err(Fault::Unclear(_)) if matches!(statement.operation, Operation::Insert(_)) => {
                    return Verdict::Reject(entry.misshapen());
                }
                Err(Fault::Unclear(unclear)) => return Verdict::not_plain(unclear),
            }
        }
        match keys.is_empty() {
            true => Verdict::Forward,
            false => Verdict::procedure(ReferenceWriteProcedure { originals: self.originals.clone(), keys }),
        }
    }
}

impl Copies {
    fn rejects_deletes(&self) -> bool {
        self.entries.iter().any(|entry| entry.on_delete == OnOriginalDelete::Reject)
    }

    fn evaluate_delete<'a>(&self, statement: &Statement<'a>, delete: &Delete<'_>) -> Verdict<'a> {
        if !delete.multi && statement.option("collation").is_some() {
            return Verdict::unsupported(
                "it has a collation, so it could delete another document than the one that docward checked",
                "Leave the collation out.",
            );
        }
        let entries =
            self.entries.iter().filter(|entry| entry.on_delete == OnOriginalDelete::Reject).cloned().collect();
        Verdict::procedure(OriginalDeleteProcedure { originals: self.originals.clone(), entries })
    }
}
