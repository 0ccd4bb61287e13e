//! What a pattern evaluates besides a statement.

use crate::command::{CommandClass, Namespace, StatementKind};
use crate::document::{Document, Path, Value};

/// The input of an evaluation besides the statement.
#[derive(Debug, Clone, Copy)]
pub struct Context<'c> {
    /// Wall clock of the proxy when the message arrived, in milliseconds since 1970 UTC.
    pub now: i64,
    /// The command's `comment`.
    pub comment: Option<Value<'c>>,
    /// The command's `let`.
    pub variables: Option<Value<'c>>,
    /// The namespace that the statement writes to; a rule may evaluate several.
    pub namespace: Namespace<'c>,
    /// The [`version`](super::Pattern::version) fields of the enforced rules for that namespace; empty if there is only
    /// one rule.
    pub versions: &'c [&'c Path],
    /// The [`deciding_fields`](super::Pattern::deciding_fields) of the same rules.
    pub deciding: &'c [&'c Path],
}

/// The name that stands for all collections of a database.
pub const ALL_COLLECTIONS: &str = "*";

/// A command on a protected collection, for rules on reads and options.
#[derive(Debug, Clone, Copy)]
pub struct WholeCommand<'c> {
    /// The collection that it reads, writes or defines; [`ALL_COLLECTIONS`] stands for all of a database.
    pub namespace: Namespace<'c>,
    pub class: CommandClass,
    pub body: Document<'c>,
}

impl WholeCommand<'_> {
    /// Returns what a write does, as far as the command shows: an update may be of any kind.
    pub(super) fn kind(&self) -> Option<StatementKind> {
        match self.class {
            CommandClass::Insert => Some(StatementKind::Insert),
            CommandClass::Update => Some(StatementKind::Operators),
            CommandClass::Delete => Some(StatementKind::Delete),
            CommandClass::FindAndModify if self.body.get("remove").and_then(Value::as_flag) == Some(true) => {
                Some(StatementKind::Delete)
            }
            CommandClass::FindAndModify => Some(StatementKind::Operators),
            _ => None,
        }
    }
}
