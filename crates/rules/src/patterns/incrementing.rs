//! Rules that increment a field in clients' statements, whatever value it has.

use super::{StoredKind, Verdict};
use crate::command::{Operation, Statement};
use crate::document::Document;

/// A rule that increments a field.
pub trait Incrementing {
    /// Adds the increment to a statement after all rules have changed it.
    fn incremented<'a>(&self, statement: &Statement<'a>) -> Verdict<'a>;

    /// Returns the kind of the field's value in a stored document.
    fn stored_kind(&self, stored: Document<'_>) -> StoredKind;

    /// Returns the statement of [`Prerequisite::Incrementable`](super::Prerequisite::Incrementable) for documents whose
    /// field is of this kind only; `None` if there are no such documents.
    fn form_for<'a>(&self, statement: &Statement<'a>, stored: StoredKind) -> Option<Operation<'a>>;
}
