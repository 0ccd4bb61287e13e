//! Statements that need more than themselves: documents to be looked at first, further statements that hold
//! or fall with them.
//!
//! A pattern describes that as a conversation: it says what it wishes next and hears what came of it. All of
//! it happens in one transaction, in which nothing has changed since the first answer. The pattern must not
//! know whose transaction that is, nor how conflicts are repeated: `crate::engine`, `batch/transaction.rs`.

use std::fmt::Debug;

use super::Rejection;
use super::copies::Collection;
use crate::command::Operation;
use crate::document::Document;

/// The field that is set and unset again to make a write conflict; it is never there for anybody to see.
pub(super) const TOUCH: &str = "_docward_touch";

/// Begins conversations: one for each attempt at a transaction.
pub trait Procedure: Debug + Send + Sync {
    fn begin(&self) -> Box<dyn ProcedureRun>;
}

/// One attempt.
pub trait ProcedureRun: Debug + Send {
    /// `operation` is the client's statement after all rules. Procedures of other rules may have narrowed it.
    fn next<'a>(&mut self, operation: &Operation<'a>, heard: ActionResult<'_>) -> NextAction<'a>;
}

/// What came of the last wish.
#[derive(Debug, Clone, Copy)]
pub enum ActionResult<'r> {
    /// Nothing was wished yet.
    Start,
    Documents(&'r [Document<'r>]),
    /// A wished change or the client's statement has been carried out.
    Done,
}

/// What is to happen next in the transaction. Documents are BSON as `document::document` writes it.
#[derive(Debug)]
pub enum NextAction<'a> {
    /// Documents that the client's statement would touch.
    Select { limit: i32, fields: Vec<u8> },
    /// Documents of the statement's collection.
    Find { filter: Vec<u8>, limit: i32, fields: Vec<u8> },
    /// Further statements on that collection, as the update command takes them.
    Update(Vec<Vec<u8>>),
    /// Documents of another collection, by that collection's collation.
    FindIn { collection: Collection, filter: Vec<u8>, limit: i32, fields: Vec<u8> },
    /// Statements on another collection, as the update command takes them.
    UpdateIn { collection: Collection, statements: Vec<Vec<u8>> },
    /// Further statements on the statement's collection, as the delete command takes them.
    Delete(Vec<Vec<u8>>),
    /// The client's statement, in this form. Where several rules have procedures, the next one's is carried out
    /// first. Should it touch nothing, the transaction is undone and the client hears so; there is no next call then.
    Apply(Operation<'a>),
    /// All is done, the client's statement included.
    Finish,
    /// Nothing is done.
    Reject(Rejection),
}
