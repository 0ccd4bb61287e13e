//! Groups: statements that are sent as one command, and their progress.

use crate::command::Statement;
use crate::document::Document;
use crate::patterns::StoredKind;
use crate::rules::{Rule, RuleId};

/// A number of an optimistic sequence that the server reported as a duplicate.
pub(super) type DuplicateNumber = (RuleId, i64);

/// Statements that are sent as one command.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) statements: Vec<usize>,
    /// The next numbers of optimistic sequences, as far as they are known.
    pub(super) next_numbers: Vec<(RuleId, i64)>,
    /// A rule's number that was a duplicate, though the maximum may be below it.
    pub(super) taken: Option<DuplicateNumber>,
    pub(super) attempts: u32,
    pub(super) stage: UpsertStage,
    /// The group is not joined with others.
    pub(super) alone: bool,
    /// The kind of stored value that the group is for, if there is one group for each kind; `None`: the first kind.
    pub(super) kind: Option<StoredKind>,
    /// Documents of an earlier kind matched.
    pub(super) matched: bool,
}

/// How to send a group's upsert with conditions, or with a number that only an inserted document gets. If a document
/// exists that does not satisfy the conditions, a plain upsert would insert a second one or collide with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UpsertStage {
    /// Unchanged.
    Whole,
    /// Without `upsert`.
    Update,
    /// Only after a match check found nothing.
    CheckMatch,
    /// With `upsert`, after the check found nothing.
    Insert,
}

impl Group {
    pub(super) fn new(statements: Vec<usize>) -> Self {
        Self {
            statements,
            next_numbers: Vec::new(),
            taken: None,
            attempts: 0,
            stage: UpsertStage::Whole,
            alone: false,
            kind: None,
            matched: false,
        }
    }
}

/// What the reply to a group means.
pub(super) enum ReplyMeaning<'r, 'f> {
    /// A statement may have failed because of its increment.
    IncrementFailed(Box<FailedIncrement<'f>>),
    /// The reply does not show which of several upserts matched a document that an earlier send inserted.
    Undecided,
    /// The optimistic number of the statement at this position is a duplicate.
    DuplicateNumber(usize, DuplicateNumber),
    /// An earlier send of the findAndModify has inserted its document.
    HasInserted,
    /// A rule explains this error.
    Explained(Document<'r>),
    /// The statement is sent for the next kind of stored value. `matched`: documents of this or an earlier one matched.
    NextKind { next: StoredKind, matched: bool },
    /// It must be checked what the filter of this statement matches. The stage is that of the group then.
    Unmatched(usize, UpsertStage),
    /// The reply has the results of the group's statements.
    Done,
}

/// A statement that may have failed because of its increment.
pub(super) struct FailedIncrement<'f> {
    /// Its position in the group.
    pub(super) position: usize,
    pub(super) rule: &'f Rule,
    /// The statement for the value that is stored then.
    pub(super) without: Statement<'f>,
}

/// What follows on a statement for documents with one kind of value.
pub(super) enum KindEnd {
    /// The next kind. `matched`: documents of this or an earlier one matched.
    Next { next: StoredKind, matched: bool },
    /// All kinds are done.
    Done,
    /// No document of any kind matched. The group continues in this stage.
    Unmatched(UpsertStage),
}
