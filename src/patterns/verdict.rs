//! What a pattern returns for a statement or a command.

use std::sync::Arc;

use super::input::WholeCommand;
use super::procedure::Procedure;
use super::rejection::{NoEffect, Rejection};
use crate::command::Operation;
use crate::document::{CowDocument, Document, OwnedValue};

/// The result of evaluating a statement.
#[derive(Debug, Clone)]
pub enum Verdict<'a> {
    /// Sends the statement unchanged.
    Forward,
    /// Sends the statement unchanged. Its own filter has the condition that the rule needs.
    ForwardConditional(NoEffect),
    /// Sends this operation instead.
    Rewrite(Rewrite<'a>),
    /// Sends this operation instead, which increments a field. Whether the stored value can be incremented is not known
    /// yet; [`Pattern::counting`](super::Pattern::counting) returns the statement for each case.
    Increment(Operation<'a>),
    /// The statement may only insert: rejects if the client's filter matches a document, otherwise sends this
    /// operation.
    InsertOnly(Operation<'a>, Rejection),
    /// Sends the statement, unchanged or as this operation, once it has a number; [`Pattern::numbering`](super::Pattern::numbering) describes the
    /// rule's numbers.
    AssignNumber(Option<Operation<'a>>),
    /// The statement needs these queries and further statements, in one transaction with it.
    Procedure(Arc<dyn Procedure>),
    /// Sends the statement, unchanged or as this operation. It contains numbers that the sequence must not assign again.
    ContainsNumbers(Option<Operation<'a>>),
    Reject(Rejection),
    /// The pattern cannot analyse the statement: rejected, unless the rule has `unsupported: allow`.
    Unsupported(Rejection),
}

/// The stored value of a field that is to be incremented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredKind {
    /// A number that can be incremented, or nothing.
    Number,
    /// Something else, or the largest long.
    Other,
    /// A field on the path is not a document, so the server cannot set the field.
    Unreachable,
}

impl StoredKind {
    /// Returns the next kind, in a fixed order. Every document is of exactly one kind.
    pub fn next(self) -> Option<Self> {
        match self {
            Self::Number => Some(Self::Other),
            Self::Other => Some(Self::Unreachable),
            Self::Unreachable => None,
        }
    }
}

/// The operation to send instead of the client's.
#[derive(Debug, Clone)]
pub struct Rewrite<'a> {
    pub operation: Operation<'a>,
    /// Whether matching nothing can be an error: then [`Pattern::unmatched`](super::Pattern::unmatched) decides.
    pub checks_match: bool,
    /// What it means if the statement has no effect; `None`: nothing for the rule.
    pub no_effect: Option<NoEffect>,
}

/// Why a check of a statement fails.
pub(super) enum Violation {
    /// The statement breaks the rule.
    Broken(Rejection),
    /// docward cannot analyse the statement.
    Unclear(Rejection),
}

impl From<Rejection> for Violation {
    fn from(rejection: Rejection) -> Self {
        Self::Broken(rejection)
    }
}

/// The result for a statement with a rule's conditions that matched nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unmatched {
    /// Forwards the server's n: 0 to the client.
    Nothing,
    Reject(Rejection),
}

impl<'a> Verdict<'a> {
    pub(super) fn reject(reason: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Reject(Rejection::new(reason, hint))
    }

    pub(super) fn procedure(procedure: impl Procedure + 'static) -> Self {
        Self::Procedure(Arc::new(procedure))
    }

    pub(super) fn unsupported(reason: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Unsupported(Rejection::new(reason, hint))
    }

    pub(super) fn rewrite(operation: Operation<'a>) -> Self {
        Self::Rewrite(Rewrite { operation, checks_match: false, no_effect: None })
    }

    /// A rewriting after which it is of interest whether the statement had an effect.
    pub(super) fn rewrite_with(operation: Operation<'a>, no_effect: NoEffect) -> Self {
        Self::Rewrite(Rewrite { operation, checks_match: false, no_effect: Some(no_effect) })
    }

    /// Sends the statement with a condition of the rule in its filter; `checks_match` as in [`Rewrite`].
    pub(super) fn conditional(operation: Operation<'a>, checks_match: bool, no_effect: NoEffect) -> Self {
        Self::Rewrite(Rewrite { operation, checks_match, no_effect: Some(no_effect) })
    }

    /// The verdict for a client's pipeline update; patterns do not analyse pipelines.
    pub(super) fn client_pipeline() -> Self {
        Self::unsupported(
            "it is an aggregation pipeline, which can change any field",
            "Use update operators such as $set.",
        )
    }
}

/// The result of evaluating a whole command.
#[derive(Debug, Clone)]
pub enum CommandVerdict {
    Forward,
    /// Sets this field of the body, or replaces it.
    Set(&'static str, OwnedValue),
    /// Forwards the command and logs a warning.
    Warn(Rejection),
    /// The verdict depends on documents that must be read first.
    Query(Arc<dyn CollectionQuery>),
    Reject(Rejection),
}

/// The documents that a pattern needs before it can evaluate a command.
pub trait CollectionQuery: std::fmt::Debug + Send + Sync {
    /// Returns the filter for these documents, as BSON.
    fn filter(&self) -> CowDocument<'static>;

    /// Returns the projection, as BSON.
    fn fields(&self) -> CowDocument<'static>;

    /// Returns the verdict, which is not `Query`. `found` is also empty if the documents could not be read.
    fn conclude(&self, command: &WholeCommand<'_>, found: &[Document<'_>]) -> CommandVerdict;
}
