//! Reads single statements.

use super::form::{DOCUMENT_SEQUENCE, StatementFieldNames, WriteForm};
use super::statement::{Conditions, Delete, Insert, Modification, Operation, Statement, Update, has_operators};
use super::{CommandError, check, reject_duplicates};
use crate::document::{CowDocument, Document, Element, Value};

impl<'a> Statement<'a> {
    /// Reads the first statement in a command body; `None` if it has none, or an invalid one.
    pub fn first_of(command: Document<'a>) -> Option<Self> {
        let form = WriteForm::of_command(command)?;
        Self::of_body(form, form.statements(command).next()?).ok()
    }

    /// Reads a statement from the command body; for findAndModify `source` is that body.
    ///
    /// # Errors
    /// [`CommandError`] if a field of the statement is missing, mistyped, unknown or occurs twice.
    pub(super) fn of_body(form: WriteForm, source: Document<'a>) -> Result<Self, CommandError> {
        Self::from_document(form, source, source.check_names_throughout().is_err())
    }

    /// Reads a statement from an unchecked document of a kind-1 section.
    ///
    /// # Errors
    /// [`CommandError`] if a field of the statement is missing, mistyped, unknown or occurs twice, or `bytes` is not a
    /// document.
    pub(super) fn of_sequence(form: WriteForm, bytes: &'a [u8]) -> Result<Self, CommandError> {
        let source = check(bytes, DOCUMENT_SEQUENCE)?;
        Self::from_document(form, source.document(), source.unambiguous().is_err())
    }

    /// Returns the statement as the client sent it.
    pub fn original(&self) -> Option<Self> {
        // It was read from the same document.
        Self::from_document(self.form(), self.source(), self.is_ambiguous()).ok()
    }

    /// Reads a statement. `is_ambiguous`: a name in `source` or in a nested document is.
    fn from_document(form: WriteForm, source: Document<'a>, is_ambiguous: bool) -> Result<Self, CommandError> {
        if is_ambiguous && form != WriteForm::Insert {
            reject_duplicates(source, form.names().part)?;
        }
        let (operation, namespace) = match form {
            WriteForm::Insert => (insert(source.into()), 0),
            WriteForm::Update => (update(form, source)?, 0),
            WriteForm::Delete => (delete(form, source)?, 0),
            WriteForm::FindAndModify if source.get("remove").and_then(Value::as_flag) == Some(true) => {
                (delete(form, source)?, 0)
            }
            WriteForm::FindAndModify => (update(form, source)?, 0),
            WriteForm::BulkWrite => bulk_operation(source)?,
        };
        Ok(Self::new(operation, namespace, form, source, is_ambiguous))
    }
}

fn insert<'a>(document: CowDocument<'a>) -> Operation<'a> {
    Operation::Insert(Insert { document })
}

fn delete<'a>(form: WriteForm, source: Document<'a>) -> Result<Operation<'a>, CommandError> {
    check_fields(form, source)?;
    let names = form.names();
    let multi = match form {
        WriteForm::Delete => {
            let wrong = CommandError::WrongType { part: names.part, field: "limit" };
            source.get("limit").map_or(Ok(0), |limit| limit.as_integer().ok_or(wrong))? == 0
        }
        _ => source.get("multi").map_or(Ok(false), |value| read_flag(value, &names, "multi"))?,
    };
    Ok(Operation::Delete(Delete { filter: filter(form, source.get(names.filter))?, multi }))
}

fn update<'a>(form: WriteForm, source: Document<'a>) -> Result<Operation<'a>, CommandError> {
    let names = form.names();
    let (mut change, mut selection) = (None, None);
    let (mut upsert, mut multi, mut array_filters, mut constants) = (false, false, false, false);
    for Element { key, value } in source.elements() {
        let flag = |field| read_flag(value, &names, field);
        match key {
            b"upsert" => upsert = flag("upsert")?,
            b"multi" => multi = flag("multi")?,
            b"arrayFilters" => {
                check_option(&names, key, value)?;
                array_filters = !value.is_absent() && value.as_array().is_none_or(|filters| !filters.is_empty())
            }
            b"c" | b"constants" => {
                check_field(&names, key, value)?;
                constants = names.fields.is_some() && !value.is_absent();
            }
            key if key == names.update.as_bytes() => change = Some(value),
            key if key == names.filter.as_bytes() => selection = Some(value),
            _ => check_field(&names, key, value)?,
        }
    }
    let modification = match change {
        Some(change) => read_modification(form, change)?,
        // The server rejects it (`Statement::is_malformed`).
        None if form == WriteForm::FindAndModify => Modification::Operators(Document::EMPTY.into()),
        None => return Err(CommandError::Missing { part: names.part, field: names.update }),
    };
    let (filter, conditions) = (filter(form, selection)?, Conditions::new());
    Ok(Operation::Update(Update { filter, conditions, modification, upsert, multi, array_filters, constants }))
}

fn read_modification<'a>(form: WriteForm, value: Value<'a>) -> Result<Modification<'a>, CommandError> {
    let names = form.names();
    if let Some(stages) = value.as_array() {
        return Ok(Modification::ClientPipeline(stages));
    }
    let document = value.as_document().ok_or(CommandError::WrongType { part: names.part, field: names.update })?;
    Ok(match has_operators(document) {
        true => Modification::Operators(document.into()),
        false => Modification::Replacement(document.into()),
    })
}

fn filter(form: WriteForm, value: Option<Value<'_>>) -> Result<CowDocument<'_>, CommandError> {
    let names = form.names();
    match value.filter(|value| !value.is_absent()) {
        Some(value) => {
            let wrong = CommandError::WrongType { part: names.part, field: names.filter };
            Ok(value.as_document().ok_or(wrong)?.into())
        }
        // The query of a findAndModify is optional. The filter of a batch element is not.
        None if form == WriteForm::FindAndModify => Ok(Document::EMPTY.into()),
        None => Err(CommandError::Missing { part: names.part, field: names.filter }),
    }
}

/// Reads a flag: a boolean in the statement of a batch, also a number in the body of a findAndModify (`bool` and
/// `safeBool` in the server's IDL).
fn read_flag(value: Value<'_>, names: &StatementFieldNames, field: &'static str) -> Result<bool, CommandError> {
    if value.is_absent() {
        return Ok(false);
    }
    let flag = if names.fields.is_some() { value.as_bool() } else { value.as_flag() };
    flag.ok_or(CommandError::WrongType { part: names.part, field })
}

/// Reads an op of bulkWrite (8.0). Its first key names the operation; the value is the namespace index.
fn bulk_operation<'a>(source: Document<'a>) -> Result<(Operation<'a>, usize), CommandError> {
    const PART: &str = "an op of bulkWrite";
    let first = source.first().ok_or(CommandError::Missing { part: PART, field: "insert, update or delete" })?;
    let namespace = first.value.as_integer().and_then(|n| usize::try_from(n).ok());
    let namespace = namespace.ok_or(CommandError::WrongType { part: PART, field: "insert, update or delete" })?;
    let operation = match first.key {
        b"insert" => {
            check_fields(WriteForm::BulkWrite, source)?;
            let document = source.get("document").and_then(Value::as_document);
            insert(document.ok_or(CommandError::Missing { part: PART, field: "document" })?.into())
        }
        b"update" => update(WriteForm::BulkWrite, source)?,
        b"delete" => delete(WriteForm::BulkWrite, source)?,
        other => return Err(unknown_field(PART, other)),
    };
    Ok((operation, namespace))
}

fn check_fields(form: WriteForm, source: Document<'_>) -> Result<(), CommandError> {
    let names = form.names();
    source.elements().try_for_each(|element| check_field(&names, element.key, element.value))
}

/// Fails for an unknown field, because it could change the meaning of the statement (as `upsertSupplied` does), and for
/// an option of another type.
fn check_field(names: &StatementFieldNames, key: &[u8], value: Value<'_>) -> Result<(), CommandError> {
    match names.fields {
        Some(fields) if !fields.iter().any(|name| name.as_bytes() == key) => Err(unknown_field(names.part, key)),
        _ => check_option(names, key, value),
    }
}

/// Fails for an option of a statement whose type the server rejects together with the whole command: docward may
/// send the statements before it in a command of their own. The body of a findAndModify is sent as one.
fn check_option(names: &StatementFieldNames, key: &[u8], value: Value<'_>) -> Result<(), CommandError> {
    let is_document = |value: Value<'_>| value.as_document().is_some();
    let (field, is_valid) = match key {
        b"hint" => ("hint", is_document(value) || value.as_str().is_some()),
        b"collation" => ("collation", value.is_absent() || is_document(value)),
        b"c" => ("c", value.is_absent() || is_document(value)),
        b"constants" => ("constants", value.is_absent() || is_document(value)),
        b"arrayFilters" => ("arrayFilters", value.as_array().is_some_and(|filters| filters.values().all(is_document))),
        _ => return Ok(()),
    };
    if is_valid || names.fields.is_none() {
        return Ok(());
    }
    Err(CommandError::WrongType { part: names.part, field })
}

fn unknown_field(part: &'static str, key: &[u8]) -> CommandError {
    CommandError::UnknownField { part, field: String::from_utf8_lossy(key).into_owned() }
}
