//! What a pattern returns for a statement or a command.

use std::sync::Arc;

use super::input::WholeCommand;
use super::plain::{NotPlain, reason_to_check};
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
    /// Sends the statement, unchanged or as this operation. It needs something that only the server or the service
    /// has.
    Require(Prerequisite, Option<Operation<'a>>),
    Reject(Rejection),
    /// The statement is not plain for the rule: it is executed in a transaction, which is committed if the rule's
    /// [`promise`](super::Pattern::promise) holds for each document. The reason is the part for which it is not plain.
    Check(Rejection),
    /// The pattern cannot analyse the statement: rejected, unless the rule has `unsupported: allow`.
    Unsupported(Rejection),
}

/// What a statement needs before it can be sent. The engine obtains those of all statements of a message together
/// where it can.
#[derive(Debug, Clone)]
pub enum Prerequisite {
    /// A number, which the statement then contains; [`Pattern::numbering`](super::Pattern::numbering) describes the
    /// rule's numbers.
    Number,
    /// The sequence must not assign the numbers again that the statement contains.
    ProvidedNumbers,
    /// A number for the document that the statement inserts, if it has none: the rule settles it.
    ReservedNumber,
    /// A stored value that can be incremented. Whether it can is not known yet;
    /// [`Incrementing::form_for`](super::Incrementing::form_for) returns the statement for each case.
    Incrementable,
    /// The client's filter matches no document, because the statement may only insert. Otherwise it is rejected.
    NoMatch(Arc<Rejection>),
    /// These queries and further statements, in one transaction with it.
    Procedure(Arc<dyn Procedure>),
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

    /// The verdict on a statement that is not plain because of this part.
    pub(super) fn not_plain(part: impl Into<NotPlain>) -> Self {
        Self::Check(reason_to_check(part.into()))
    }

    pub(super) fn procedure(procedure: impl Procedure + 'static) -> Self {
        Self::Require(Prerequisite::Procedure(Arc::new(procedure)), None)
    }

    /// Sends this operation if the client's filter matches nothing, and rejects the statement otherwise.
    pub(super) fn insert_only(operation: Operation<'a>, rejection: Rejection) -> Self {
        Self::Require(Prerequisite::NoMatch(Arc::new(rejection)), Some(operation))
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
