//! Statements that need queries and further statements in one transaction.
//!
//! A pattern describes them as a state machine: it returns the next action and receives its result. All actions run
//! in one transaction with a consistent snapshot. The pattern does not know who runs the transaction or how conflicts
//! are retried: see `crate::engine`, `batch/transaction.rs`.

use std::fmt::Debug;

use super::{Collection, NoEffect, Rejection};
use crate::command::Operation;
use crate::document::{CowDocument, Document, Path, Value};

/// The field that is set and unset again to cause a write conflict. It is never visible outside the transaction.
pub(super) const TOUCH: &str = "_docward_touch";

/// A field, and the operators that are plain for it.
pub type PlainField = (Path, &'static [&'static str]);

/// The statements of a pattern that can require a procedure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Procedures {
    #[default]
    None,
    /// Updates, and what other rules make of replacements.
    Updates,
    /// Updates that are not plain for these fields.
    NotPlain(Vec<PlainField>),
    All,
}

/// Applies the statement without other commands.
#[derive(Debug)]
pub struct ApplyOnly;

impl ProcedureRun for ApplyOnly {
    fn next<'a>(&mut self, operation: &Operation<'a>, result: ActionResult<'_>) -> NextAction<'a> {
        match result {
            ActionResult::Start { .. } => NextAction::Apply(operation.clone()),
            ActionResult::Documents(_) | ActionResult::Done | ActionResult::Applied { .. } => NextAction::Finish,
        }
    }
}

/// Begins runs: one for each attempt at a transaction.
pub trait Procedure: Debug + Send + Sync {
    fn begin(&self) -> Box<dyn ProcedureRun>;

    /// What it means if the statement has no effect; `None`: nothing for the rule.
    fn no_effect(&self) -> Option<NoEffect> {
        None
    }
}

/// One attempt.
pub trait ProcedureRun: Debug + Send {
    /// Returns the next action. `operation` is the client's statement after all rules; procedures of other rules may
    /// have narrowed it.
    fn next<'a>(&mut self, operation: &Operation<'a>, result: ActionResult<'_>) -> NextAction<'a>;

    /// Returns whether the operation that it applies writes a field that the statement does not write. Rules that the
    /// statement keeps must hold for this operation too.
    fn adds_fields(&self) -> bool {
        false
    }
}

/// The result of the last action.
#[derive(Debug, Clone, Copy)]
pub enum ActionResult<'r> {
    /// There was no action yet. `is_checked`: the statement is checked for another rule, which may settle what it writes.
    Start {
        is_checked: bool,
    },
    Documents(&'r [Document<'r>]),
    /// A change has been executed.
    Done,
    /// The client's statement has been executed.
    Applied {
        /// The `_id` of the document that it has inserted as an upsert.
        inserted: Option<Value<'r>>,
    },
}

/// The next action in the transaction.
#[derive(Debug)]
pub enum NextAction<'a> {
    /// Finds the documents that the client's statement would change.
    Select { limit: i32, fields: CowDocument<'static> },
    /// Finds documents of the statement's collection.
    Find { filter: CowDocument<'static>, limit: i32, fields: CowDocument<'static> },
    /// Runs further statements on that collection, as the update command takes them.
    Update(Vec<CowDocument<'static>>),
    /// Finds documents of another collection, with that collection's collation.
    FindIn { collection: Collection, filter: CowDocument<'static>, limit: i32, fields: CowDocument<'static> },
    /// Runs statements on another collection, as the update command takes them.
    UpdateIn { collection: Collection, statements: Vec<CowDocument<'static>> },
    /// Runs further statements on the statement's collection, as the delete command takes them.
    Delete(Vec<CowDocument<'static>>),
    /// Runs the client's statement in this form. If several rules have procedures, the next rule's procedure runs
    /// first. If the statement matches nothing, the transaction is aborted, the client gets that reply, and `next` is
    /// not called again.
    Apply(Operation<'a>),
    /// Everything is done, including the client's statement.
    Finish,
    /// Aborts the transaction and rejects the statement.
    Reject(Rejection),
}
