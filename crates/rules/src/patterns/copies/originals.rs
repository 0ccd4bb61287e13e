//! The transactions of `on_delete: reject`: around every delete of originals and every write of references.
//!
//! A delete first looks for references. A write of references changes its originals and changes them back, so that it
//! conflicts with a concurrent delete: one of the two is repeated and sees the other. All statements use the client's
//! own connection, so the client needs the privileges for them.

use super::settings::CopiesEntry;
use crate::command::{Delete, Operation};
use crate::document::{CowDocument, Document, OwnedValue};
use crate::patterns::Collection;
use crate::patterns::Rejection;
use crate::patterns::copies::is_reference;
use crate::patterns::filter::narrowed;
use crate::patterns::procedure::{ActionResult, NextAction, Procedure, ProcedureRun, TOUCH};

/// How many originals one statement may delete: the queries for references list all of their ids.
const MAX_ORIGINALS: usize = 1000;

/// A statement that deletes originals.
#[derive(Debug, Clone)]
pub(super) struct OriginalDeleteProcedure {
    pub(super) originals: Collection,
    /// The entries with `on_delete: reject`.
    pub(super) entries: Vec<CopiesEntry>,
}

/// A statement that writes references.
#[derive(Debug, Clone)]
pub(super) struct ReferenceWriteProcedure {
    pub(super) originals: Collection,
    /// The `_id`s that the statement refers to.
    pub(super) keys: Vec<OwnedValue>,
}

impl Procedure for OriginalDeleteProcedure {
    fn begin(&self) -> Box<dyn ProcedureRun> {
        Box::new(OriginalDeleteRun { statement: self.clone(), ids: Vec::new(), stage: ReleaseStage::Start })
    }
}

impl Procedure for ReferenceWriteProcedure {
    fn begin(&self) -> Box<dyn ProcedureRun> {
        Box::new(ReferenceWriteRun { statement: self.clone(), stage: HoldStage::Start })
    }
}

#[derive(Debug)]
struct OriginalDeleteRun {
    statement: OriginalDeleteProcedure,
    ids: Vec<OwnedValue>,
    stage: ReleaseStage,
}

#[derive(Debug, Clone, Copy)]
enum ReleaseStage {
    Start,
    Originals,
    /// docward looked for references of the entry with this number.
    References(usize),
    Applied,
}

impl ProcedureRun for OriginalDeleteRun {
    fn next<'a>(&mut self, operation: &Operation<'a>, result: ActionResult<'_>) -> NextAction<'a> {
        let multi = matches!(operation, Operation::Delete(Delete { multi: true, .. }));
        match (self.stage, result) {
            (ReleaseStage::Start, _) => {
                self.stage = ReleaseStage::Originals;
                let limit = if multi { MAX_ORIGINALS as i32 + 1 } else { 1 };
                NextAction::Select { limit, fields: ids_only() }
            }
            (ReleaseStage::Originals, ActionResult::Documents(found)) if found.len() > MAX_ORIGINALS => {
                NextAction::Reject(Rejection::new(
                    format!("it deletes more than {MAX_ORIGINALS} documents, too many to check for references"),
                    "Delete fewer documents at a time.",
                ))
            }
            (ReleaseStage::Originals, ActionResult::Documents(found)) => {
                self.ids = ids(found).collect();
                self.look(0, operation)
            }
            (ReleaseStage::References(entry), ActionResult::Documents([])) => self.look(entry + 1, operation),
            (ReleaseStage::References(entry), _) => NextAction::Reject(self.referenced(entry)),
            (ReleaseStage::Applied, _) => NextAction::Finish,
            (ReleaseStage::Originals, _) => NextAction::Reject(Rejection::unexpected_reply()),
        }
    }
}

impl OriginalDeleteRun {
    /// Looks for references of the entry with this number, if there is one.
    fn look<'a>(&mut self, number: usize, operation: &Operation<'a>) -> NextAction<'a> {
        let Some(entry) = self.statement.entries.get(number).filter(|_| !self.ids.is_empty()) else {
            self.stage = ReleaseStage::Applied;
            return NextAction::Apply(self.narrowed_delete(operation));
        };
        self.stage = ReleaseStage::References(number);
        let filter = CowDocument::build(|w| {
            let ids = self.ids.iter().filter(|id| is_reference(id.as_value()));
            w.nested(entry.key.as_str(), |w| w.array("$in", |a| ids.for_each(|id| a.value(id.as_value()))));
            // A reference that is deleted together with its original does not count.
            if entry.into == self.statement.originals {
                w.nested("_id", |w| w.array("$nin", |a| self.ids.iter().for_each(|id| a.value(id.as_value()))));
            }
        });
        NextAction::FindIn { collection: entry.into.clone(), filter, limit: 1, fields: ids_only() }
    }

    /// Restricts a delete of one document to the document that was checked.
    fn narrowed_delete<'a>(&self, operation: &Operation<'a>) -> Operation<'a> {
        match (operation, self.ids.as_slice()) {
            (Operation::Delete(delete), [id]) if !delete.multi => {
                let filter = narrowed(delete.filter.as_document(), "_id", |w, key| w.value(key, id.as_value()));
                Operation::Delete(Delete { filter, multi: false })
            }
            _ => operation.clone(),
        }
    }

    fn referenced(&self, number: usize) -> Rejection {
        let by_entry = self.statement.entries.get(number);
        let by_entry = by_entry.map_or_else(String::new, |entry| format!(" by '{}' in {}", entry.key, entry.into));
        Rejection::new(
            format!("a document that it deletes is still referenced{by_entry}"),
            "Remove the references first. (For the DBA: `on_delete: unset` removes them, `keep` leaves them.)",
        )
    }
}

#[derive(Debug)]
struct ReferenceWriteRun {
    statement: ReferenceWriteProcedure,
    stage: HoldStage,
}

#[derive(Debug, Clone, Copy)]
enum HoldStage {
    Start,
    Originals,
    Touched,
    Applied,
}

impl ProcedureRun for ReferenceWriteRun {
    fn next<'a>(&mut self, operation: &Operation<'a>, result: ActionResult<'_>) -> NextAction<'a> {
        let ReferenceWriteProcedure { originals, keys } = &self.statement;
        match (self.stage, result) {
            (HoldStage::Start, _) => {
                self.stage = HoldStage::Originals;
                let filter = CowDocument::build(|w| {
                    w.nested("_id", |w| w.array("$in", |a| keys.iter().for_each(|key| a.value(key.as_value()))));
                });
                let limit = i32::try_from(keys.len()).unwrap_or(i32::MAX);
                NextAction::FindIn { collection: originals.clone(), filter, limit, fields: ids_only() }
            }
            // A missing original cannot be deleted.
            (HoldStage::Originals, ActionResult::Documents([])) | (HoldStage::Touched, _) => {
                self.stage = HoldStage::Applied;
                NextAction::Apply(operation.clone())
            }
            (HoldStage::Originals, ActionResult::Documents(found)) => {
                self.stage = HoldStage::Touched;
                let statements = ids(found).flat_map(|id| touch(&id)).collect();
                NextAction::UpdateIn { collection: originals.clone(), statements }
            }
            (HoldStage::Applied, _) => NextAction::Finish,
            (HoldStage::Originals, _) => NextAction::Reject(Rejection::unexpected_reply()),
        }
    }
}

/// Returns statements that change a document and change it back. There are two because mongod skips a no-op.
pub(super) fn touch(id: &OwnedValue) -> [CowDocument<'static>; 2] {
    ["$set", "$unset"].map(|operator| {
        CowDocument::build(|w| {
            w.nested("q", |w| w.nested("_id", |w| w.value("$eq", id.as_value())));
            w.nested("u", |w| w.nested(operator, |w| w.int32(TOUCH, 1)));
        })
    })
}

fn ids(found: &[Document<'_>]) -> impl Iterator<Item = OwnedValue> {
    found.iter().filter_map(|document| document.get("_id").map(OwnedValue::from))
}

fn ids_only() -> CowDocument<'static> {
    CowDocument::build(|w| w.int32("_id", 1))
}
