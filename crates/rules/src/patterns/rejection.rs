//! Why a statement is rejected, or has no effect.

use crate::command::code;
use crate::document::{Kind, Path};
use crate::text::shorten;

/// Why a statement is rejected, for the application's developer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// A server error code.
    pub code: i32,
    /// The problem, as half a sentence: "it replaces the whole document".
    pub reason: String,
    /// The remedy, as a sentence.
    pub hint: String,
}

/// Maximum bytes of a reason, and of a hint. They may contain names and values from a client, which can be as long as
/// a message.
pub const MAX_REASON_LENGTH: usize = 1000;

impl Rejection {
    pub fn new(reason: impl Into<String>, hint: impl Into<String>) -> Self {
        let (mut reason, mut hint) = (reason.into(), hint.into());
        shorten(&mut reason, MAX_REASON_LENGTH);
        shorten(&mut hint, MAX_REASON_LENGTH);
        Self { code: code::DOCUMENT_VALIDATION_FAILURE, reason, hint }
    }

    /// Returns the rejection of a statement that has a value of this kind where a field is needed around `field`.
    pub(super) fn no_room(field: &Path, kind: Kind) -> Self {
        Self::new(
            format!("'{field}' cannot be set: a field on its path has type {}", kind.name()),
            "Leave that field out, or make it an object.",
        )
    }

    /// Returns the rejection of an update by pipeline of a document that has a name twice.
    pub fn repeated_name(id: &str) -> Self {
        Self::new(
            format!("a field that it uses is stored twice in the document with the _id {id}, and mongod would end"),
            "Tell the DBA: `docward check --data` lists such documents. Of several documents, those before it may be \
             changed already.",
        )
    }

    /// Returns the rejection of a statement whose procedure got a reply of another step.
    pub(super) fn unexpected_reply() -> Self {
        Self::new(
            "docward received a reply that does not belong to its query",
            "Send it again. If this repeats, report it as a bug of docward.",
        )
    }
}

/// What it means for a rule if a statement has no effect. The server's reply shows whether it had one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoEffect {
    pub kind: NoEffectKind,
    /// The probable cause, as half a sentence for logs: "no job was free".
    pub reason: &'static str,
}

/// How a statement has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoEffectKind {
    /// It matched nothing. Either a document does not satisfy the rule's condition, or there is none.
    NoMatch,
    /// It matched documents and changed none, because they are newer.
    Stale,
}

impl NoEffect {
    /// The statement matched nothing.
    pub(super) const fn no_match(reason: &'static str) -> Self {
        Self { kind: NoEffectKind::NoMatch, reason }
    }

    /// The statement changed nothing that it matched.
    pub(super) const fn stale(reason: &'static str) -> Self {
        Self { kind: NoEffectKind::Stale, reason }
    }
}
