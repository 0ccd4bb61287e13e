//! Reads the statements of a write command in all forms of the wire protocol.

use smallvec::SmallVec;

use super::form::{DOCUMENT_SEQUENCE, WriteForm};
use super::statement::Statement;
use super::{Command, CommandError, Namespace, check, distinct, reject_duplicates};
use crate::document::{Document, Kind, OwnedValue, Value};
use crate::wire::op_msg::DocumentSequence;

/// The maximum number of statements in a command: `maxWriteBatchSize` of every server since 3.6.
pub const MAX_STATEMENTS: usize = 100_000;

/// The name of the command body in errors.
const BODY: &str = "the command body";
/// A parsed write command.
#[derive(Debug)]
pub struct WriteBatch<'a> {
    pub form: WriteForm,
    /// One namespace, or several for bulkWrite.
    pub namespaces: SmallVec<[Namespace<'a>; 1]>,
    pub statements: Vec<Statement<'a>>,
    pub ordered: bool,
    /// Fields of the command body that docward replaces.
    pub body_changes: Vec<(&'static str, OwnedValue)>,
    /// The command's `comment`.
    pub comment: Option<Value<'a>>,
    /// The command's `let`.
    pub variables: Option<Value<'a>>,
    /// Whether the statements are an array in the body, not a kind-1 section.
    pub(super) in_body: bool,
    /// The statement id of the first statement, unless `stmtIds` lists all of them.
    first_statement_id: i64,
    statement_ids: Vec<i32>,
}

impl<'a> WriteBatch<'a> {
    /// Reads the statements of `command` and checks all documents in them.
    ///
    /// # Errors
    /// [`CommandError`] if any part of the command is invalid.
    pub fn parse(command: &Command<'a>, form: WriteForm) -> Result<Self, CommandError> {
        let known = [form.list(), (form == WriteForm::BulkWrite).then_some("nsInfo")];
        if let Some(unknown) = command.message.sequences.iter().find(|s| !known.contains(&Some(s.identifier))) {
            return Err(CommandError::UnknownSequence(unknown.identifier.to_owned()));
        }
        let list = form.list().map(|list| DocumentList::find(command, list, command.envelope.list)).transpose()?;
        let statements = match list {
            Some(list) => list.statements(form)?,
            None => vec![Statement::of_body(form, command.body)?],
        };
        let wrong = |field| CommandError::WrongType { part: BODY, field };
        let namespaces = match form {
            WriteForm::BulkWrite => bulk_namespaces(command)?,
            _ => SmallVec::from_elem(command.collection().ok_or_else(|| wrong("collection name"))?, 1),
        };
        for (index, statement) in statements.iter().enumerate() {
            if statement.namespace >= namespaces.len() {
                let (named, available) = (statement.namespace as i64, namespaces.len());
                return Err(CommandError::NoSuchNamespace { index, named, available });
            }
        }
        let ordered = command
            .envelope
            .ordered
            .filter(|value| !value.is_absent())
            .map_or(Ok(true), |value| value.as_bool().ok_or_else(|| wrong("ordered")))?;
        let ids = command.envelope.statement_ids.map(|ids| read_statement_ids(ids, statements.len())).transpose()?;
        Ok(Self {
            form,
            namespaces,
            statements,
            ordered,
            body_changes: Vec::new(),
            comment: command.envelope.comment,
            variables: command.envelope.variables,
            in_body: matches!(list, Some(DocumentList::InBody(_))),
            first_statement_id: command.envelope.statement_id.and_then(Value::as_integer).unwrap_or(0),
            statement_ids: ids.unwrap_or_default(),
        })
    }

    /// Returns the namespace of a statement of this batch.
    pub fn namespace(&self, statement: &Statement<'_>) -> Namespace<'a> {
        self.namespace_at(statement.namespace)
    }

    /// Returns the namespace with this index.
    pub fn namespace_at(&self, index: usize) -> Namespace<'a> {
        self.namespaces.get(index).copied().unwrap_or(Namespace { database: "", collection: "" })
    }

    /// Returns the statement id of statement `index` in a retryable write.
    pub fn statement_id(&self, index: usize) -> i32 {
        let statement_id = self.first_statement_id.saturating_add(index as i64);
        self.statement_ids.get(index).copied().unwrap_or_else(|| i32::try_from(statement_id).unwrap_or(i32::MAX))
    }
}

/// Reads `stmtIds`: one int for each statement.
fn read_statement_ids(value: Value<'_>, statements: usize) -> Result<Vec<i32>, CommandError> {
    let wrong = CommandError::WrongType { part: BODY, field: "stmtIds" };
    let ids: Option<Vec<i32>> = value.as_array().and_then(|ids| ids.values().map(Value::as_i32).collect());
    ids.filter(|ids| ids.len() == statements).ok_or(wrong)
}

/// A list of documents in a command: an array in its body or the kind-1 section of the same name, but not both.
#[derive(Clone, Copy)]
enum DocumentList<'a> {
    InBody(Document<'a>),
    Sequence(DocumentSequence<'a>),
}

impl<'a> DocumentList<'a> {
    fn find(command: &Command<'a>, name: &'static str, in_body: Option<Value<'a>>) -> Result<Self, CommandError> {
        match (in_body, command.message.sequence(name)) {
            (Some(_), Some(_)) => Err(CommandError::BodyAndSequence(name)),
            (None, None) => Err(CommandError::Missing { part: BODY, field: name }),
            (None, Some(sequence)) => Ok(Self::Sequence(sequence)),
            (Some(value), None) => {
                let wrong = CommandError::WrongType { part: BODY, field: name };
                let array = value.as_array().ok_or(wrong.clone())?;
                array.check_positions().map_err(|fault| CommandError::Ambiguous { part: name, fault })?;
                let all_documents = array.values().all(|value| value.kind == Kind::Document);
                all_documents.then_some(Self::InBody(array)).ok_or(wrong)
            }
        }
    }

    fn statements(self, form: WriteForm) -> Result<Vec<Statement<'a>>, CommandError> {
        match self {
            Self::InBody(array) => {
                let documents = array.values().filter_map(Value::as_document);
                collect(documents.clone().count(), documents, |document| Statement::of_body(form, document))
            }
            Self::Sequence(sequence) => {
                collect(sequence.count(), sequence.documents(), |bytes| Statement::of_sequence(form, bytes))
            }
        }
    }
}

/// Reads one statement from each source. It checks the number of statements before it allocates memory for them.
fn collect<'a, S>(
    count: usize,
    sources: impl Iterator<Item = S>,
    read: impl Fn(S) -> Result<Statement<'a>, CommandError>,
) -> Result<Vec<Statement<'a>>, CommandError> {
    if count > MAX_STATEMENTS {
        return Err(CommandError::TooManyStatements(count));
    }
    let mut statements = Vec::with_capacity(count);
    for source in sources {
        statements.push(read(source)?);
    }
    Ok(statements)
}

fn bulk_namespaces<'a>(command: &Command<'a>) -> Result<SmallVec<[Namespace<'a>; 1]>, CommandError> {
    const PART: &str = "nsInfo";
    let read = |entry: Document<'a>| {
        let text = entry.get("ns").and_then(Value::as_str);
        text.and_then(Namespace::parse).ok_or(CommandError::WrongType { part: PART, field: "ns" })
    };
    match DocumentList::find(command, PART, command.body.get(PART))? {
        DocumentList::InBody(array) => array
            .values()
            .filter_map(Value::as_document)
            .map(|entry| reject_duplicates(entry, PART).and_then(|()| read(entry)))
            .collect(),
        DocumentList::Sequence(sequence) => sequence
            .documents()
            .map(|bytes| check(bytes, DOCUMENT_SEQUENCE).and_then(|entry| distinct(entry, PART)).and_then(read))
            .collect(),
    }
}
