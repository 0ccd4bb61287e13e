//! Numbers that a rule assigns to statements before they are sent.
//!
//! A pattern only describes where its numbers come from and how a statement gets one. It does not know batches: the engine
//! collects what the statements of a message need, requests all of it at once, and calls [`Numbering::assign`] in the
//! order of the statements.

use std::fmt::Debug;
use std::sync::Arc;

use smallvec::SmallVec;

use super::Prerequisite;
use super::sequence::SharedStart;
use crate::command::{Namespace, Operation, Statement};
use crate::document::Path;

/// Whole numbers that a statement contains.
pub type ProvidedNumbers = SmallVec<[i64; 1]>;

/// Where numbers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Reserves numbers in a counter document.
    Counter,
    /// Uses max + 1 and tries again on a duplicate key.
    Optimistic,
}

/// A rule's numbers.
pub trait Numbering: Debug + Sync {
    /// Returns the field that gets the number.
    fn field(&self) -> &Path;

    fn strategy(&self) -> Strategy;

    /// Returns the request for `count` numbers of the counter for a namespace. `provided` are numbers that statements
    /// already contain.
    fn request(&self, namespace: Namespace<'_>, count: u32, provided: Vec<i64>) -> NumberRequest;

    /// Returns the number after the largest stored one, for [`Strategy::Optimistic`]; `None` if that is the largest
    /// possible number.
    fn after(&self, largest: Option<i64>) -> Option<i64>;

    /// Returns the whole numbers that the statement shows and may store, besides those that the rule assigns.
    fn provided_numbers(&self, statement: &Statement<'_>) -> ProvidedNumbers;

    /// Returns what a checked statement needs.
    fn needs_of_checked(&self, operation: &Operation<'_>) -> SmallVec<[Prerequisite; 2]>;

    /// Returns whether only the insert of an upsert may get the number: [`assign`](Self::assign) would also number a
    /// stored document.
    fn inserts_apart(&self, operation: &Operation<'_>) -> bool;

    /// Returns the operation with `number` in the field.
    fn assign<'a>(&self, operation: &Operation<'a>, number: i64) -> Operation<'a>;
}

/// A request for numbers of a counter.
#[derive(Debug, Clone, PartialEq)]
pub struct NumberRequest {
    pub counter: CounterId,
    /// The count of numbers that the message needs.
    pub count: u32,
    /// Numbers that the message already contains; the service does not hand them out any more.
    pub provided: Vec<i64>,
    /// The size of the block that the service reserves on the server if it must reserve one; at least 1.
    pub block: u32,
    pub beginning: SharedStart,
}

/// The counter document `{_id: id, seq: last number reserved}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CounterId {
    pub database: Arc<str>,
    pub collection: Arc<str>,
    pub id: Arc<str>,
}

impl CounterId {
    /// The database and collection of [`Self::of_provided`].
    pub const PROVIDED: (&str, &str) = ("docward", "counters");

    /// Returns the document with the largest number that clients provided while this counter was missing.
    #[must_use]
    pub fn of_provided(&self) -> Self {
        let Self { database, collection, id } = self;
        let (of_database, of_collection) = Self::PROVIDED;
        let id = format!("{database}.{collection} {id}").into();
        Self { database: of_database.into(), collection: of_collection.into(), id }
    }
}
