//! The collection that a command with one statement reads or writes, and how rules see it.

use crate::command::{CommandClass, Namespace, Statement, StatementKind, WriteForm, classify};
use crate::document::Document;
use crate::patterns::Applicability;
use crate::rules::Rule;

/// The namespace and class of a command, and the kind of its statement.
pub(super) type CommandTarget<'c> = (Namespace<'c>, CommandClass, Option<StatementKind>);

/// Whether a rule evaluates statements of `kind`, or of any kind if it is not known, or a command of this class.
pub(super) fn evaluates_statement(
    rule: &Rule,
    namespace: Namespace<'_>,
    class: CommandClass,
    kind: Option<StatementKind>,
) -> bool {
    let form = WriteForm::for_class(class).filter(|_| kind.is_none());
    let applies = |kind: Option<StatementKind>| {
        rule.pattern.evaluates_command(class, kind, namespace)
            || kind.is_some_and(|kind| rule.pattern.applicability(kind, namespace) != Applicability::None)
    };
    applies(kind) || form.into_iter().flat_map(WriteForm::kinds).any(|kind| applies(Some(kind)))
}

/// The target of a command with one statement.
pub(super) fn target(command: Document<'_>) -> Option<CommandTarget<'_>> {
    let first = command.first()?;
    let class = classify(first.key);
    let namespace = match class {
        CommandClass::BulkWrite => bulk_namespace(command)?,
        _ => Namespace { database: command.get("$db")?.as_str()?, collection: first.value.as_str()? },
    };
    Some((namespace, class, Statement::first_of(command).map(|write| write.kind())))
}

/// The collection that a command with one statement names, or that the command names which it explains.
pub(super) fn collection(command: Document<'_>) -> Option<Namespace<'_>> {
    let explained = command.first()?.value.as_document();
    let explained = explained.and_then(|explained| explained.first()?.value.as_str());
    let explained = explained.zip(command.get("$db").and_then(|database| database.as_str()));
    let explained = explained.map(|(collection, database)| Namespace { database, collection });
    explained.or_else(|| target(command).map(|(namespace, ..)| namespace))
}

/// The namespace of a bulkWrite with one op.
fn bulk_namespace(command: Document<'_>) -> Option<Namespace<'_>> {
    let op = command.get("ops")?.as_array()?.values().next()?.as_document()?;
    let index = usize::try_from(op.first()?.value.as_integer()?).ok()?;
    let named = command.get("nsInfo")?.as_array()?.values().nth(index)?.as_document()?;
    Namespace::parse(named.get("ns")?.as_str()?)
}
