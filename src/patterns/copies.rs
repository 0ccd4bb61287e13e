//! `copies`: denormalized fields kept true (extended reference).
//!
//! People carry their best friend's name beside her id, so that a page needs one read. A write that points
//! to another friend and leaves the old name is refused here; that a renamed person is renamed everywhere is
//! the work of [`crate::service`], which watches the originals.
//!
//! before: `updateOne({_id: 1}, {$set: {"best_friend.id": 7}})`
//!
//! after: rejected; `{$set: {"best_friend.id": 7, "best_friend.name": "Ada"}}` passes.

mod contradictions;
mod references;
mod settings;
#[cfg(test)]
mod tests;

pub(super) use contradictions::contradictions;
pub use references::{Holders, Reference, is_reference};
pub use settings::{Collection, Copies, Entry, Field, OnDelete};

use super::{Concern, Context, IndexPurpose, Judge, NeededIndex, Phase, Verdict, concern_for_content};
use crate::command::{Modification, Namespace, Operation, Statement, StatementKind, Update};
use crate::document::{Document, Kind, Lookup, Path, Value};
use crate::effect::{Touch, equality, touch, touched};
use crate::rules::NamespacePattern;

/// What becomes of one field by a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate<'u> {
    Untouched,
    Set(Value<'u>),
    Removed,
    /// It changes in a way that is not told: in part, or depending on what is stored.
    Unclear,
}

impl Judge for Copies {
    fn name(&self) -> &'static str {
        "copies"
    }

    fn phase(&self) -> Phase {
        Phase::Copies
    }

    fn also_judges(&self) -> Vec<NamespacePattern> {
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

    fn concern(&self, kind: StatementKind, namespace: Namespace<'_>) -> Concern {
        match self.entries.iter().any(|entry| entry.into.is(namespace)) {
            true => concern_for_content(kind),
            false => Concern::Nothing,
        }
    }

    fn judge<'a>(&self, statement: &Statement<'a>, context: &Context<'_>) -> Verdict<'a> {
        let concerned = self.entries.iter().filter(|entry| entry.into.is(context.namespace));
        let mut verdicts = concerned.map(|entry| entry.judge(statement, &self.originals));
        verdicts.find(|verdict| !matches!(verdict, Verdict::Forward)).unwrap_or(Verdict::Forward)
    }
}

impl Entry {
    fn judge<'a>(&self, statement: &Statement<'a>, originals: &Collection) -> Verdict<'a> {
        let whole = |document: Document<'_>| self.judge_fates(|field| inside(field, document), || false, originals);
        match &statement.operation {
            Operation::Delete(_) => Verdict::Forward,
            Operation::Insert(insert) => whole(insert.document.as_document()),
            Operation::Update(update) => match &update.modification {
                Modification::Replacement(document) => whole(document.as_document()),
                Modification::Operators(operators) => self.judge_update(update, operators.as_document(), originals),
                Modification::ClientPipeline(_) | Modification::Pipeline(_) => Verdict::client_pipeline(),
            },
        }
    }

    /// What happens to a stored document leaves `$setOnInsert` out; what an upsert inserts has it, and what
    /// the filter pins.
    fn judge_update<'a>(&self, update: &Update<'_>, operators: Document<'_>, originals: &Collection) -> Verdict<'a> {
        let filter = update.filter.as_document();
        let names_key = || matches!(pinned(&self.key, filter), Fate::Set(_));
        let stored = self.judge_fates(|field| written(field, operators, false), names_key, originals);
        if !update.upsert || !matches!(stored, Verdict::Forward) {
            return stored;
        }
        let inserted = |field: &Path| match written(field, operators, true) {
            Fate::Untouched => pinned(field, filter),
            fate => fate,
        };
        match inserted(&self.key) {
            // A document without a reference is nobody's copy.
            Fate::Untouched => Verdict::Forward,
            _ => self.judge_fates(inserted, || false, originals),
        }
    }

    /// `names_key`: the filter names the original, as an application's own propagation does.
    fn judge_fates<'a, 'u>(
        &self,
        fate: impl Fn(&Path) -> Fate<'u>,
        names_key: impl Fn() -> bool,
        originals: &Collection,
    ) -> Verdict<'a> {
        let fates = || self.fields.iter().map(|field| (field, fate(&field.copied)));
        match fate(&self.key) {
            Fate::Removed => Verdict::Forward,
            Fate::Unclear => self.unclear(&self.key),
            Fate::Set(value) if matches!(value.kind, Kind::Null | Kind::Undefined) => Verdict::Forward,
            Fate::Set(value) if matches!(value.kind, Kind::Array | Kind::Regex) => self.unclear(&self.key),
            Fate::Set(_) => {
                if let Some((field, _)) = fates().find(|(_, fate)| *fate == Fate::Unclear) {
                    return self.unclear(&field.copied);
                }
                let left_out = fates().filter(|(_, fate)| !matches!(fate, Fate::Set(_)));
                let left_out: Vec<_> = left_out.map(|(field, _)| field).collect();
                if left_out.is_empty() {
                    return Verdict::Forward;
                }
                let copied = list(left_out.iter().map(|field| &field.copied));
                let original = list(left_out.iter().map(|field| &field.original));
                Verdict::reject(
                    format!("it sets '{}' without {copied}", self.key),
                    format!("Set {copied} in the same statement, as {original} of that document in {originals} says."),
                )
            }
            Fate::Untouched => match fates().find(|(_, fate)| *fate != Fate::Untouched) {
                None => Verdict::Forward,
                Some((_, Fate::Set(_) | Fate::Removed)) if names_key() => Verdict::Forward,
                Some((field, _)) => Verdict::reject(
                    format!("it changes '{}', which is a copy", field.copied),
                    format!(
                        "Change '{}' in {originals}; the copies follow. To point to another document, set '{}' too.",
                        field.original, self.key
                    ),
                ),
            },
        }
    }

    fn unclear<'a>(&self, field: &Path) -> Verdict<'a> {
        Verdict::unguardable(
            format!("it changes '{field}' in a way that does not tell its new value, or inside an array"),
            format!("Write '{}' and its copied fields by $set, one reference in a document.", self.key),
        )
    }
}

/// What a whole document makes of a field; one that it leaves out is gone.
fn inside<'d>(field: &Path, document: Document<'d>) -> Fate<'d> {
    match field.lookup(document) {
        Lookup::Found(value) => Fate::Set(value),
        Lookup::Blocked(Kind::Array) => Fate::Unclear,
        Lookup::Missing | Lookup::Blocked(_) => Fate::Removed,
    }
}

/// The same for the value of a field around it.
fn below<'v>(field: &Path, around: usize, value: Value<'v>) -> Fate<'v> {
    let rest = field.as_str().get(around + 1..).and_then(Path::parse);
    match (rest, value.as_document()) {
        (Some(rest), Some(document)) => inside(&rest, document),
        _ if value.kind == Kind::Array => Fate::Unclear,
        _ => Fate::Removed,
    }
}

/// What operators make of a field.
fn written<'u>(field: &Path, operators: Document<'u>, on_insert: bool) -> Fate<'u> {
    let sets = |operator: &[u8]| operator == b"$set" || operator == b"$setOnInsert";
    let counts = touched(operators).filter(|(operator, ..)| on_insert || *operator != b"$setOnInsert");
    let mut fates = counts.map(|(operator, path, value)| match touch(field, path) {
        Touch::Apart => Fate::Untouched,
        Touch::Exact if sets(operator) => Fate::Set(value),
        Touch::Around if sets(operator) => below(field, path.len(), value),
        Touch::Exact | Touch::Around if operator == b"$unset" => Fate::Removed,
        _ => Fate::Unclear,
    });
    fates.find(|fate| *fate != Fate::Untouched).unwrap_or(Fate::Untouched)
}

/// What a filter puts into the document that its upsert inserts.
fn pinned<'f>(field: &Path, filter: Document<'f>) -> Fate<'f> {
    if let Some(value) = equality(filter, field.as_str()) {
        return Fate::Set(value);
    }
    let dots = field.as_str().bytes().enumerate().filter(|(_, byte)| *byte == b'.').map(|(at, _)| at);
    let mut around = dots.filter_map(|at| Some(below(field, at, equality(filter, field.as_str().get(..at)?)?)));
    around.next().unwrap_or(Fate::Untouched)
}

fn list<'p>(paths: impl Iterator<Item = &'p Path>) -> String {
    paths.map(|path| format!("'{path}'")).collect::<Vec<_>>().join(", ")
}
