//! A message ↔ the statements it asks for.
//!
//! [`Command`] is an OP_MSG whose body has been checked; [`Batch`] are the statements of a write command,
//! whatever form they came in (kind-1 sections, arrays in the body, findAndModify, bulkWrite), and writes
//! them back as the same command. Knows no rules and no I/O. Next floor: `crate::rules`, `crate::engine`.

mod batch;
mod catalogue;
mod encode;
mod name;
mod pipeline;
mod reply;
mod statement;

pub use batch::{Batch, Form, MAX_STATEMENTS};
pub use catalogue::{Class, classify};
pub use encode::{OwnTransaction, Part, PartOptions, is_unacknowledged};
pub use name::{CommandName, command_names};
pub use pipeline::{Target, input_collections, output_targets, road_targets};
pub use reply::{Reply, error_reply};
pub use statement::{Delete, Insert, Modification, Operation, Statement, StatementKind, Update};

use crate::document::{Document, DuplicateField, Element, Malformed, Value};
use crate::wire::WireError;
use crate::wire::op_msg::Message;

/// Server error codes that docward itself uses (mongod's `error_codes.yml`).
pub mod code {
    /// BSON or a command that cannot be read.
    pub const FAILED_TO_PARSE: i32 = 9;
    pub const AUTHENTICATION_FAILED: i32 = 18;
    /// Among others: a transaction on a standalone server. docward's refusal of what is sent to the query listener.
    pub const ILLEGAL_OPERATION: i32 = 20;
    /// A guarded replacement that matched nothing.
    pub const WRITE_CONFLICT: i32 = 112;
    /// A transaction number that is in use, or was.
    pub const CONFLICTING_OPERATION_IN_PROGRESS: i32 = 117;
    /// A rule's rejection.
    pub const DOCUMENT_VALIDATION_FAILURE: i32 = 121;
    /// A bulkWrite whose results fill its reply, as servers since 8.0 end it.
    pub const EXCEEDED_MEMORY_LIMIT: i32 = 146;
    /// A write that was done, whose answer is not known any more.
    pub const INCOMPLETE_TRANSACTION_HISTORY: i32 = 217;
    /// A later transaction of the session has begun.
    pub const TRANSACTION_TOO_OLD: i32 = 225;
    pub const TRANSACTION_COMMITTED: i32 = 256;
    /// The legacy opcodes, as servers since 5.1 answer them.
    pub const UNSUPPORTED_OP_QUERY_COMMAND: i32 = 352;
    /// Nothing is wrong with the message; docward does not take the connection. Drivers do not retry it.
    pub const TEMPORARILY_UNAVAILABLE: i32 = 365;

    pub fn name(code: i32) -> &'static str {
        match code {
            FAILED_TO_PARSE => "FailedToParse",
            AUTHENTICATION_FAILED => "AuthenticationFailed",
            ILLEGAL_OPERATION => "IllegalOperation",
            WRITE_CONFLICT => "WriteConflict",
            DOCUMENT_VALIDATION_FAILURE => "DocumentValidationFailure",
            EXCEEDED_MEMORY_LIMIT => "ExceededMemoryLimit",
            INCOMPLETE_TRANSACTION_HISTORY => "IncompleteTransactionHistory",
            TEMPORARILY_UNAVAILABLE => "TemporarilyUnavailable",
            UNSUPPORTED_OP_QUERY_COMMAND => "UnsupportedOpQueryCommand",
            _ => "UnknownError",
        }
    }
}

/// Why a message that a rule may concern cannot be read. It is refused; mongod never sees it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    #[error("the message cannot be parsed: {0}")]
    Wire(#[from] WireError),
    #[error("{place} is not BSON: {fault}")]
    NotBson { place: &'static str, fault: Malformed },
    #[error("{place} is ambiguous: {fault}")]
    Duplicate { place: &'static str, fault: DuplicateField },
    #[error("the command body is empty")]
    NoCommand,
    #[error("field '{field}' of {place} has the wrong type")]
    WrongType { place: &'static str, field: &'static str },
    #[error("field '{field}' of {place} is missing")]
    Missing { place: &'static str, field: &'static str },
    #[error("field '{field}' of {place} is unknown, and could change what it does")]
    UnknownField { place: &'static str, field: String },
    #[error("'{0}' comes both in the body and as a document sequence")]
    BodyAndSequence(&'static str),
    #[error("document sequence '{0}' is unknown to this command")]
    UnknownSequence(String),
    #[error("op {index} names namespace {named}, nsInfo has {available}")]
    NoSuchNamespace { index: usize, named: i64, available: usize },
    #[error("{0} statements are more than the 100,000 a command may carry")]
    TooManyStatements(usize),
}

/// A namespace as a command names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespace<'a> {
    pub database: &'a str,
    pub collection: &'a str,
}

impl<'a> Namespace<'a> {
    /// Splits "database.collection" at the first dot.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (database, collection) = text.split_once('.')?;
        Some(Self { database, collection })
    }

    /// "database.collection"
    pub fn full_name(self) -> String {
        [self.database, ".", self.collection].concat()
    }
}

impl std::fmt::Display for Namespace<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}.{}", self.database, self.collection)
    }
}

/// A command whose message and body have been checked: the structure of the body to the bottom, and no
/// field twice at its top level.
#[derive(Debug, Clone)]
pub struct Command<'a> {
    pub message: Message<'a>,
    pub body: Document<'a>,
    /// The first key: case matters to mongod, so it does here.
    pub name: &'a str,
    /// The first value.
    pub target: Value<'a>,
    /// `$db`.
    pub database: &'a str,
    session: SessionFields<'a>,
}

impl<'a> Command<'a> {
    /// # Errors
    /// [`CommandError`] when the message or its body is malformed or ambiguous.
    pub fn parse(frame: &'a [u8]) -> Result<Self, CommandError> {
        const BODY: &str = "the command body";
        let message = Message::parse(frame)?;
        let body = parse_document(message.body, BODY)?;
        refuse_duplicates(body, BODY)?;
        let first = body.first().ok_or(CommandError::NoCommand)?;
        let name = std::str::from_utf8(first.key)
            .map_err(|_| CommandError::WrongType { place: BODY, field: "command name" })?;
        let (database, session) = read_envelope(body);
        let database = database.ok_or(CommandError::Missing { place: BODY, field: "$db" })?;
        let database = database.as_str().ok_or(CommandError::WrongType { place: BODY, field: "$db" })?;
        Ok(Self { message, body, name, target: first.value, database, session })
    }

    /// The command of this body, as if it had come by itself in the same message. `body` has no field twice.
    /// `None`: it is empty, or its name is no text.
    pub fn nested(&self, body: Document<'a>) -> Option<Self> {
        let first = body.first()?;
        let name = std::str::from_utf8(first.key).ok()?;
        let (database, session) = read_envelope(body);
        let database = database.and_then(Value::as_str).unwrap_or(self.database);
        let mut message = self.message.clone();
        message.sequences.clear();
        Some(Self { message, body, name, target: first.value, database, session })
    }

    /// The collection a command names by its first value.
    pub fn collection(&self) -> Option<Namespace<'a>> {
        self.target.as_name().map(|collection| Namespace { database: self.database, collection })
    }

    /// The Stable API's parameters. Every command of a transaction and every getMore of a cursor must carry the
    /// same ones as the first, so what docward sends in between does too.
    pub fn api_parameters(&self) -> impl Iterator<Item = Element<'a>> {
        let names: [&[u8]; 3] = [b"apiVersion", b"apiStrict", b"apiDeprecationErrors"];
        self.body.elements().filter(move |element| names.contains(&element.key))
    }

    /// What the session fields say (driver specifications "Sessions", "Transactions", "Retryable Writes").
    pub fn session(&self) -> SessionFields<'a> {
        self.session
    }
}

/// `$db` and the session fields, which drivers put behind every command: one walk finds them all.
fn read_envelope(body: Document<'_>) -> (Option<Value<'_>>, SessionFields<'_>) {
    let mut database = None;
    let mut session = SessionFields::default();
    for Element { key, value } in body.elements() {
        match key {
            b"$db" => database = Some(value),
            b"lsid" => session.lsid = Some(value),
            b"txnNumber" => session.txn_number = Some(value),
            b"autocommit" => session.in_transaction = value.as_bool() == Some(false),
            b"startTransaction" => session.starts_transaction = value.as_bool() == Some(true),
            _ => {}
        }
    }
    (database, session)
}

/// The session part of a command.
#[derive(Debug, Clone, Copy, Default)]
pub struct SessionFields<'a> {
    pub lsid: Option<Value<'a>>,
    pub txn_number: Option<Value<'a>>,
    pub in_transaction: bool,
    pub starts_transaction: bool,
}

impl SessionFields<'_> {
    pub fn is_retryable_write(&self) -> bool {
        self.txn_number.is_some() && !self.in_transaction
    }
}

pub(crate) fn parse_document<'a>(bytes: &'a [u8], place: &'static str) -> Result<Document<'a>, CommandError> {
    Document::parse(bytes).map_err(|fault| CommandError::NotBson { place, fault })
}

pub(crate) fn refuse_duplicates(document: Document<'_>, place: &'static str) -> Result<(), CommandError> {
    document.refuse_duplicates().map_err(|fault| CommandError::Duplicate { place, fault })
}

/// The same at every level: readers of a nested document disagree no less.
fn refuse_nested_duplicates(document: Document<'_>, place: &'static str) -> Result<(), CommandError> {
    document.refuse_nested_duplicates().map_err(|fault| CommandError::Duplicate { place, fault })
}
