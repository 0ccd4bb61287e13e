//! The statements of a write command, in whichever of the wire's forms they came.

use smallvec::SmallVec;

use super::statement::{Statement, StatementKind};
use super::{Class, Command, CommandError, Namespace, parse_document, refuse_duplicates};
use crate::document::{Document, Element, OwnedValue, Value};

/// `maxWriteBatchSize` of every server since 3.6.
pub const MAX_STATEMENTS: usize = 100_000;

/// What errors call the body of a command.
const BODY: &str = "the command body";

/// The command a batch came in, and goes out by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Insert,
    Update,
    Delete,
    FindAndModify,
    BulkWrite,
}

/// How a form names the parts of a statement.
pub(super) struct Names {
    pub(super) place: &'static str,
    pub(super) filter: &'static str,
    pub(super) update: &'static str,
    /// Every field a statement of this form may have.
    pub(super) fields: &'static [&'static str],
}

impl Form {
    pub fn of(class: Class) -> Option<Self> {
        match class {
            Class::Insert => Some(Self::Insert),
            Class::Update => Some(Self::Update),
            Class::Delete => Some(Self::Delete),
            Class::FindAndModify => Some(Self::FindAndModify),
            Class::BulkWrite => Some(Self::BulkWrite),
            _ => None,
        }
    }

    /// Whether statements of this kind can come in it.
    pub fn carries(self, kind: StatementKind) -> bool {
        match self {
            Self::Insert => kind == StatementKind::Insert,
            Self::Update => !matches!(kind, StatementKind::Insert | StatementKind::Delete),
            Self::Delete => kind == StatementKind::Delete,
            Self::FindAndModify => kind != StatementKind::Insert,
            Self::BulkWrite => true,
        }
    }

    /// The field that carries the statements, as array in the body or as kind-1 section.
    pub fn list(self) -> Option<&'static str> {
        match self {
            Self::Insert => Some("documents"),
            Self::Update => Some("updates"),
            Self::Delete => Some("deletes"),
            Self::BulkWrite => Some("ops"),
            Self::FindAndModify => None,
        }
    }

    pub(super) fn names(self) -> Names {
        match self {
            Self::Insert => Names { place: "an inserted document", filter: "", update: "", fields: &[] },
            Self::Update => Names {
                place: "an update statement",
                filter: "q",
                update: "u",
                fields: &["q", "u", "c", "multi", "upsert", "arrayFilters", "hint", "collation", "sort", "sampleId"],
            },
            Self::Delete => Names {
                place: "a delete statement",
                filter: "q",
                update: "",
                fields: &["q", "limit", "hint", "collation", "sampleId"],
            },
            Self::FindAndModify => Names { place: "the findAndModify", filter: "query", update: "update", fields: &[] },
            Self::BulkWrite => Names {
                place: "an op of bulkWrite",
                filter: "filter",
                update: "updateMods",
                fields: &[
                    "insert",
                    "document",
                    "update",
                    "delete",
                    "filter",
                    "updateMods",
                    "multi",
                    "upsert",
                    "arrayFilters",
                    "hint",
                    "collation",
                    "constants",
                    "sort",
                    "sampleId",
                ],
            },
        }
    }
}

/// A write command taken apart.
#[derive(Debug)]
pub struct Batch<'a> {
    pub form: Form,
    /// One, but for bulkWrite.
    pub namespaces: SmallVec<[Namespace<'a>; 1]>,
    pub statements: Vec<Statement<'a>>,
    pub ordered: bool,
    /// Fields of the command body that are to be other than the client's.
    pub body_changes: Vec<(&'static str, OwnedValue)>,
    /// The command's `comment`.
    pub comment: Option<Value<'a>>,
    /// The statements came in a list of the body, rather than as a section of their own.
    pub(super) in_body: bool,
    /// The number by which the server knows the first statement, unless `stmtIds` names all.
    first_statement_id: i64,
    statement_ids: Vec<i32>,
}

/// What the body says beside the statements: one walk finds it all.
#[derive(Default)]
struct BodyFields<'a> {
    list: Option<Value<'a>>,
    ordered: Option<Value<'a>>,
    statement_ids: Option<Value<'a>>,
    statement_id: Option<Value<'a>>,
    comment: Option<Value<'a>>,
}

impl<'a> BodyFields<'a> {
    fn read(body: Document<'a>, list: Option<&str>) -> Self {
        let mut fields = Self::default();
        for Element { key, value } in body.elements() {
            match key {
                b"ordered" => fields.ordered = Some(value),
                b"stmtIds" => fields.statement_ids = Some(value),
                b"stmtId" => fields.statement_id = Some(value),
                b"comment" => fields.comment = Some(value),
                key if list.is_some_and(|list| list.as_bytes() == key) => fields.list = Some(value),
                _ => {}
            }
        }
        fields
    }
}

impl<'a> Batch<'a> {
    /// Reads the statements of `command`, checking every document to the bottom.
    ///
    /// # Errors
    /// [`CommandError`]; the command is then refused as a whole.
    pub fn read(command: &Command<'a>, form: Form) -> Result<Self, CommandError> {
        let known = [form.list(), (form == Form::BulkWrite).then_some("nsInfo")];
        if let Some(unknown) = command.message.sequences.iter().find(|s| !known.contains(&Some(s.identifier))) {
            return Err(CommandError::UnknownSequence(unknown.identifier.to_owned()));
        }
        let fields = BodyFields::read(command.body, form.list());
        let sources = match form.list() {
            Some(list) => documents(command, list, fields.list)?,
            None => vec![command.body],
        };
        if sources.len() > MAX_STATEMENTS {
            return Err(CommandError::TooManyStatements(sources.len()));
        }
        let statements =
            sources.into_iter().map(|source| Statement::read(form, source)).collect::<Result<Vec<_>, _>>()?;
        let wrong = |field| CommandError::WrongType { place: BODY, field };
        let namespaces = match form {
            Form::BulkWrite => bulk_namespaces(command)?,
            _ => SmallVec::from_elem(command.collection().ok_or_else(|| wrong("collection name"))?, 1),
        };
        for (index, statement) in statements.iter().enumerate() {
            if statement.namespace >= namespaces.len() {
                let (named, available) = (statement.namespace as i64, namespaces.len());
                return Err(CommandError::NoSuchNamespace { index, named, available });
            }
        }
        let ordered = fields.ordered.map_or(Ok(true), |value| value.as_flag().ok_or_else(|| wrong("ordered")))?;
        let ids = fields.statement_ids.map(|ids| read_statement_ids(ids, statements.len())).transpose()?;
        Ok(Self {
            form,
            namespaces,
            statements,
            ordered,
            body_changes: Vec::new(),
            comment: fields.comment,
            in_body: fields.list.is_some(),
            first_statement_id: fields.statement_id.and_then(Value::as_integer).unwrap_or(0),
            statement_ids: ids.unwrap_or_default(),
        })
    }

    /// The namespace of a statement of this batch.
    pub fn namespace(&self, statement: &Statement<'_>) -> Namespace<'a> {
        self.namespaces.get(statement.namespace).copied().unwrap_or(Namespace { database: "", collection: "" })
    }

    /// The number by which the server remembers statement `index` in a retryable write.
    pub fn statement_id(&self, index: usize) -> i32 {
        let counted = self.first_statement_id.saturating_add(index as i64);
        self.statement_ids.get(index).copied().unwrap_or_else(|| i32::try_from(counted).unwrap_or(i32::MAX))
    }
}

/// `stmtIds`: one int a statement.
fn read_statement_ids(value: Value<'_>, statements: usize) -> Result<Vec<i32>, CommandError> {
    let wrong = CommandError::WrongType { place: BODY, field: "stmtIds" };
    let ids: Option<Vec<i32>> = value.as_array().and_then(|ids| ids.values().map(Value::as_i32).collect());
    ids.filter(|ids| ids.len() == statements).ok_or(wrong)
}

/// The documents of a list: the body's array or the kind-1 section of that name, never both.
fn documents<'a>(
    command: &Command<'a>,
    list: &'static str,
    in_body: Option<Value<'a>>,
) -> Result<Vec<Document<'a>>, CommandError> {
    let wrong = CommandError::WrongType { place: BODY, field: list };
    match (in_body, command.message.sequence(list)) {
        (Some(_), Some(_)) => Err(CommandError::BodyAndSequence(list)),
        (None, None) => Err(CommandError::Missing { place: BODY, field: list }),
        (None, Some(sequence)) => {
            sequence.documents().map(|bytes| parse_document(bytes, "a document sequence")).collect()
        }
        (Some(value), None) => {
            let array = value.as_array().ok_or(wrong.clone())?;
            array.values().map(|value| value.as_document().ok_or(wrong.clone())).collect()
        }
    }
}

fn bulk_namespaces<'a>(command: &Command<'a>) -> Result<SmallVec<[Namespace<'a>; 1]>, CommandError> {
    const PLACE: &str = "nsInfo";
    let entries = documents(command, "nsInfo", command.body.get("nsInfo"))?;
    let read = |entry: Document<'a>| {
        refuse_duplicates(entry, PLACE)?;
        let text = entry.get("ns").and_then(Value::as_str);
        text.and_then(Namespace::parse).ok_or(CommandError::WrongType { place: PLACE, field: "ns" })
    };
    entries.into_iter().map(read).collect()
}
