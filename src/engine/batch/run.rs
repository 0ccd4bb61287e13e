//! Statements that go upstream as one command, and how far they are.

use crate::patterns::Stored;
use crate::rules::RuleId;

/// A number of an optimistic sequence that the server refused.
pub(super) type DuplicateNumber = (RuleId, i64);

/// Statements that go upstream as one command.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) statements: Vec<usize>,
    /// The next numbers of optimistic sequences, as far as they are known.
    pub(super) next_numbers: Vec<(RuleId, i64)>,
    /// A number of a rule that was found to be taken, though the maximum may be below it.
    pub(super) taken: Option<DuplicateNumber>,
    pub(super) attempts: u32,
    pub(super) stage: Stage,
    /// It is not joined to others.
    pub(super) alone: bool,
    /// Whose turn it is of the documents that are counted each by its kind; `None`: the first ones'.
    pub(super) counting: Option<Stored>,
    /// Documents of an earlier kind have matched.
    pub(super) matched: bool,
}

/// How a run's statement goes that is an upsert with conditions. An upsert whose conditions do not hold would insert beside
/// the document that is there, or collide with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// As it is.
    Whole,
    /// Without `upsert`.
    Update,
    /// Not before nothing is there.
    Look,
    /// With it, after nothing was there.
    Insert,
}

impl Run {
    pub(super) fn of(statements: Vec<usize>) -> Self {
        Self {
            statements,
            next_numbers: Vec::new(),
            taken: None,
            attempts: 0,
            stage: Stage::Whole,
            alone: false,
            counting: None,
            matched: false,
        }
    }
}
