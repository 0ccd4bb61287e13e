//! Groups: statements that are sent as one command, and their progress.

use crate::patterns::StoredKind;
use crate::rules::RuleId;

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
    pub(super) counting: Option<StoredKind>,
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
            counting: None,
            matched: false,
        }
    }
}

/// The result of a statement for documents with one kind of value.
pub(super) enum CountingResult {
    /// Continue with the next kind.
    Continues,
    /// All kinds are done.
    Done(Group),
    /// No document of any kind matched, or the group does not count by kind.
    Nothing(Group),
}
