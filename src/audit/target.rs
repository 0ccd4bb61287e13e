//! The collection that a command with one statement reads or writes, and how rules see it.

use crate::command::{CommandClass, Namespace, StatementKind, classify};
use crate::document::{Document, Value};
use crate::patterns::Applicability;
use crate::rules::Rule;

/// The namespace and class of a command, and the kind of its statement.
pub(super) type CommandTarget<'c> = (Namespace<'c>, CommandClass, Option<StatementKind>);

/// Whether a rule evaluates statements of `kind`, or a command of this class.
pub(super) fn evaluates_statement(
    rule: &Rule,
    namespace: Namespace<'_>,
    class: CommandClass,
    kind: Option<StatementKind>,
) -> bool {
    rule.pattern.evaluates_command(class, kind, namespace)
        || kind.is_some_and(|kind| rule.pattern.applicability(kind, namespace) != Applicability::None)
}

/// The target of a command with one statement.
pub(super) fn target(command: Document<'_>) -> Option<CommandTarget<'_>> {
    let first = command.first()?;
    let class = classify(first.key);
    if class == CommandClass::BulkWrite {
        return bulk_target(command);
    }
    let namespace = Namespace { database: command.get("$db")?.as_str()?, collection: first.value.as_str()? };
    Some((namespace, class, kind(command, class)))
}

/// The target of a bulkWrite with one op.
fn bulk_target(command: Document<'_>) -> Option<CommandTarget<'_>> {
    let op = command.get("ops")?.as_array()?.values().next()?.as_document()?;
    let first = op.first()?;
    let index = usize::try_from(first.value.as_integer()?).ok()?;
    let named = command.get("nsInfo")?.as_array()?.values().nth(index)?.as_document()?;
    let kind = match first.key {
        b"insert" => StatementKind::Insert,
        b"delete" => StatementKind::Delete,
        _ => kind_of_change(op.get("updateMods")?),
    };
    Some((Namespace::parse(named.get("ns")?.as_str()?)?, CommandClass::BulkWrite, Some(kind)))
}

fn kind(command: Document<'_>, class: CommandClass) -> Option<StatementKind> {
    let change = match class {
        CommandClass::Insert => return Some(StatementKind::Insert),
        CommandClass::Delete => return Some(StatementKind::Delete),
        CommandClass::FindAndModify if command.get("remove").and_then(Value::as_flag) == Some(true) => {
            return Some(StatementKind::Delete);
        }
        CommandClass::FindAndModify => command.get("update"),
        CommandClass::Update => {
            let list = command.get("updates").and_then(Value::as_array)?;
            list.values().next()?.as_document()?.get("u")
        }
        _ => return None,
    };
    change.map(kind_of_change)
}

fn kind_of_change(change: Value<'_>) -> StatementKind {
    match change.as_document() {
        None => StatementKind::Pipeline,
        Some(document) if document.first().is_some_and(|first| first.key.starts_with(b"$")) => StatementKind::Operators,
        Some(_) => StatementKind::Replacement,
    }
}

/// The kinds of statements that a command of this class can have.
pub(super) fn kinds_of_class(class: CommandClass) -> &'static [StatementKind] {
    use StatementKind::{Delete, Insert, Operators, Pipeline, Replacement};
    match class {
        CommandClass::Insert => &[Insert],
        CommandClass::Update => &[Operators, Replacement, Pipeline],
        CommandClass::Delete => &[Delete],
        CommandClass::FindAndModify => &[Operators, Replacement, Pipeline, Delete],
        CommandClass::BulkWrite => &[Insert, Operators, Replacement, Pipeline, Delete],
        _ => &[],
    }
}
