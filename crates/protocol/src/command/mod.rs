//! Converts between messages and their statements.
//!
//! [`Command`] is an OP_MSG with a checked body. [`WriteBatch`] holds the statements of a write command in any form
//! (kind-1 sections, arrays in the body, findAndModify, bulkWrite) and writes them back as the same command. This
//! layer has no rules and no I/O. The next layer is `crate::effect`.

mod array_filters;
mod batch;
mod catalogue;
mod constants;
mod encode;
pub mod expressions;
mod form;
mod name;
mod operators;
pub mod own;
mod pipeline;
mod repeated_names;
mod reply;
pub mod shape;
mod statement;
mod statement_reader;

pub use batch::{MAX_STATEMENTS, WriteBatch};
pub use catalogue::{CommandClass, classify, is_internal};
pub use encode::{EncodeOptions, OwnTransaction, StatementPart, is_unacknowledged};
pub use form::{StatementKind, WriteForm};
pub use name::{CommandName, command_names};
pub use operators::operators;
pub use pipeline::{
    InputStage, OutputTarget, indirect_write_targets, input_collections, input_stages, may_name_database,
    output_targets,
};
pub use repeated_names::{
    StageOrigin, has_repeated_name, repeated_name_check, repeated_name_in, without_repeated_name_checks,
};
pub use reply::{Reply, error_reply, write_overload};
pub use statement::{
    Conditions, Delete, Insert, Modification, Operation, Pipeline, Statement, Update, current_date_type, has_operators,
    narrowed,
};

use crate::document::{AmbiguousName, Checked, Document, Element, Malformed, Value};
use crate::wire::WireError;
use crate::wire::op_msg::Message;

/// Error codes that docward sends or handles (mongod's `error_codes.yml`). Drivers must show the text that docward sends
/// with a code: `tests/python/test_error_codes.py`.
pub mod code {
    /// For example `$inc` of the largest long.
    pub const BAD_VALUE: i32 = 2;
    /// Malformed BSON or a malformed command.
    pub const FAILED_TO_PARSE: i32 = 9;
    pub const UNAUTHORIZED: i32 = 13;
    /// A login message that belongs to no login.
    pub const PROTOCOL_ERROR: i32 = 17;
    /// For example `$inc` of a field that is not a number.
    pub const TYPE_MISMATCH: i32 = 14;
    /// For example documents that nest too deeply.
    pub const OVERFLOW: i32 = 15;
    pub const AUTHENTICATION_FAILED: i32 = 18;
    /// For example a transaction on a standalone server. docward does not send it: Node's driver replaces its text on
    /// writes by "This MongoDB deployment does not support retryable writes".
    pub const ILLEGAL_OPERATION: i32 = 20;
    /// For example a name of a collection that is too long.
    pub const INVALID_NAMESPACE: i32 = 73;
    pub const OPERATION_NOT_SUPPORTED_IN_TRANSACTION: i32 = 263;
    /// A path through a value that is not a document.
    pub const PATH_NOT_VIABLE: i32 = 28;
    /// A command that exceeded its maxTimeMS.
    pub const MAX_TIME_MS_EXPIRED: i32 = 50;
    /// An update of an `_id`.
    pub const IMMUTABLE_FIELD: i32 = 66;
    /// A versioned replacement that matched no document: a version conflict.
    pub const WRITE_CONFLICT: i32 = 112;
    /// A transaction number that is or was in use.
    pub const CONFLICTING_OPERATION_IN_PROGRESS: i32 = 117;
    /// The query listener rejects the command.
    pub const COMMAND_NOT_SUPPORTED: i32 = 115;
    /// A rule rejected the statement.
    pub const DOCUMENT_VALIDATION_FAILURE: i32 = 121;
    /// A write at a member that is not primary.
    pub const NOT_WRITABLE_PRIMARY: i32 = 10107;
    /// The server is overloaded; see the driver specification "Client Backpressure".
    pub const INGRESS_REQUEST_RATE_LIMIT_EXCEEDED: i32 = 462;
    /// Two documents with the same value in a unique index.
    pub const DUPLICATE_KEY: i32 = 11000;
    /// A cursor that the server does not have.
    pub const CURSOR_NOT_FOUND: i32 = 43;
    /// The server that has a request is lost.
    pub const HOST_UNREACHABLE: i32 = 6;
    /// No member fits a request, for as long as a router waits.
    pub const FAILED_TO_SATISFY_READ_PREFERENCE: i32 = 133;
    /// A `maxStalenessSeconds` that is too small.
    pub const MAX_STALENESS_OUT_OF_RANGE: i32 = 160;
    /// A bulkWrite whose results exceed the reply size. Servers since 8.0 report it.
    pub const EXCEEDED_MEMORY_LIMIT: i32 = 146;
    /// A retried write that was executed, but whose result is no longer stored.
    pub const INCOMPLETE_TRANSACTION_HISTORY: i32 = 217;
    /// The session has started a later transaction.
    pub const TRANSACTION_TOO_OLD: i32 = 225;
    pub const NO_SUCH_TRANSACTION: i32 = 251;
    pub const TRANSACTION_COMMITTED: i32 = 256;
    /// Servers since 5.1 answer legacy opcodes with it.
    pub const UNSUPPORTED_OP_QUERY_COMMAND: i32 = 352;
    /// docward does not admit the connection. Drivers do not retry it.
    pub const TEMPORARILY_UNAVAILABLE: i32 = 365;
    /// A login on a connection that a user of another database has.
    pub const USER_OF_OTHER_DATABASE: i32 = 5_626_701;
    /// A login on a connection that another user of the same database has.
    pub const OTHER_USER: i32 = 5_626_702;

    /// The name of a code in MongoDB's documentation, of those that docward sends and frequent ones of servers.
    pub fn name(code: i32) -> Option<&'static str> {
        Some(match code {
            BAD_VALUE => "BadValue",
            FAILED_TO_PARSE => "FailedToParse",
            HOST_UNREACHABLE => "HostUnreachable",
            11 => "UserNotFound",
            UNAUTHORIZED => "Unauthorized",
            TYPE_MISMATCH => "TypeMismatch",
            OVERFLOW => "Overflow",
            PROTOCOL_ERROR => "ProtocolError",
            AUTHENTICATION_FAILED => "AuthenticationFailed",
            ILLEGAL_OPERATION => "IllegalOperation",
            26 => "NamespaceNotFound",
            27 => "IndexNotFound",
            PATH_NOT_VIABLE => "PathNotViable",
            CURSOR_NOT_FOUND => "CursorNotFound",
            48 => "NamespaceExists",
            MAX_TIME_MS_EXPIRED => "MaxTimeMSExpired",
            59 => "CommandNotFound",
            61 => "ShardKeyNotFound",
            IMMUTABLE_FIELD => "ImmutableField",
            72 => "InvalidOptions",
            85 => "IndexOptionsConflict",
            86 => "IndexKeySpecsConflict",
            91 => "ShutdownInProgress",
            WRITE_CONFLICT => "WriteConflict",
            COMMAND_NOT_SUPPORTED => "CommandNotSupported",
            CONFLICTING_OPERATION_IN_PROGRESS => "ConflictingOperationInProgress",
            DOCUMENT_VALIDATION_FAILURE => "DocumentValidationFailure",
            FAILED_TO_SATISFY_READ_PREFERENCE => "FailedToSatisfyReadPreference",
            EXCEEDED_MEMORY_LIMIT => "ExceededMemoryLimit",
            MAX_STALENESS_OUT_OF_RANGE => "MaxStalenessOutOfRange",
            189 => "PrimarySteppedDown",
            INCOMPLETE_TRANSACTION_HISTORY => "IncompleteTransactionHistory",
            TRANSACTION_TOO_OLD => "TransactionTooOld",
            244 => "TransactionAborted",
            NO_SUCH_TRANSACTION => "NoSuchTransaction",
            TRANSACTION_COMMITTED => "TransactionCommitted",
            OPERATION_NOT_SUPPORTED_IN_TRANSACTION => "OperationNotSupportedInTransaction",
            286 => "ChangeStreamHistoryLost",
            290 => "TransactionExceededLifetimeLimitSeconds",
            UNSUPPORTED_OP_QUERY_COMMAND => "UnsupportedOpQueryCommand",
            TEMPORARILY_UNAVAILABLE => "TemporarilyUnavailable",
            INGRESS_REQUEST_RATE_LIMIT_EXCEEDED => "IngressRequestRateLimitExceeded",
            NOT_WRITABLE_PRIMARY => "NotWritablePrimary",
            DUPLICATE_KEY => "DuplicateKey",
            11600 => "InterruptedAtShutdown",
            11602 => "InterruptedDueToReplStateChange",
            13435 => "NotPrimaryNoSecondaryOk",
            USER_OF_OTHER_DATABASE => "Location5626701",
            OTHER_USER => "Location5626702",
            _ => return None,
        })
    }
}

/// The reason why docward cannot read a command that a rule may apply to. docward rejects the command and does not
/// send it to the server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    #[error("the message cannot be parsed: {0}")]
    Wire(#[from] WireError),
    #[error("{part} is not valid BSON: {fault}")]
    NotBson { part: &'static str, fault: Malformed },
    #[error("{part} is ambiguous: {fault}")]
    Ambiguous { part: &'static str, fault: AmbiguousName },
    #[error("the command body is empty")]
    NoCommand,
    #[error("field '{field}' of {part} has the wrong type")]
    WrongType { part: &'static str, field: &'static str },
    #[error("field '{field}' of {part} is missing")]
    Missing { part: &'static str, field: &'static str },
    #[error("field '{field}' of {part} is unknown and could change its meaning")]
    UnknownField { part: &'static str, field: String },
    #[error("'{0}' is both in the body and in a document sequence")]
    BodyAndSequence(&'static str),
    #[error("document sequence '{0}' is unknown to this command")]
    UnknownSequence(String),
    #[error("op {index} refers to namespace {named}, but nsInfo has {available}")]
    NoSuchNamespace { index: usize, named: i64, available: usize },
    #[error("the command has {0} statements; the maximum is 100,000")]
    TooManyStatements(usize),
}

/// The namespace of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespace<'a> {
    pub database: &'a str,
    pub collection: &'a str,
}

impl<'a> Namespace<'a> {
    /// Splits "database.collection" at the first dot. Returns `None` if there is no dot.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (database, collection) = text.split_once('.')?;
        Some(Self { database, collection })
    }

    /// Returns "database.collection".
    pub fn full_name(self) -> String {
        let mut name = String::with_capacity(self.database.len() + 1 + self.collection.len());
        name.push_str(self.database);
        name.push('.');
        name.push_str(self.collection);
        name
    }
}

impl std::fmt::Display for Namespace<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}.{}", self.database, self.collection)
    }
}

/// A command whose message and body have been checked: the whole structure of the body is valid, and no top-level
/// field occurs twice.
#[derive(Debug, Clone)]
pub struct Command<'a> {
    pub message: Message<'a>,
    pub body: Document<'a>,
    /// The first key. It is case-sensitive, as in mongod.
    pub name: &'a str,
    /// The class of the command's name.
    pub class: CommandClass,
    /// The first value.
    pub target: Value<'a>,
    /// `$db`.
    pub database: &'a str,
    /// The first value if it is the name of a collection.
    collection: Option<&'a str>,
    envelope: CommonFields<'a>,
}

impl<'a> Command<'a> {
    /// Parses an OP_MSG.
    ///
    /// # Errors
    /// [`CommandError`] if the message or its body is malformed or ambiguous.
    pub fn parse(frame: &'a [u8]) -> Result<Self, CommandError> {
        const BODY: &str = "the command body";
        let message = Message::parse(frame)?;
        let body = distinct(check(message.body, BODY)?, BODY)?;
        let first = body.first().ok_or(CommandError::NoCommand)?;
        let (name, class) =
            read_name(first.key).ok_or(CommandError::WrongType { part: BODY, field: "command name" })?;
        let envelope = CommonFields::from_body(body, class);
        let database = envelope.database.ok_or(CommandError::Missing { part: BODY, field: "$db" })?;
        let database = database.as_str().ok_or(CommandError::WrongType { part: BODY, field: "$db" })?;
        let collection = first.value.as_name();
        Ok(Self { message, body, name, class, target: first.value, database, collection, envelope })
    }

    /// Returns the command in `body`, as if the client had sent it in its own message. No field of `body` may occur
    /// twice. Returns `None` if `body` is empty or the command name is not UTF-8.
    pub fn nested(&self, body: Document<'a>) -> Option<Self> {
        let first = body.first()?;
        let (name, class) = read_name(first.key)?;
        let envelope = CommonFields::from_body(body, class);
        let database = envelope.database.and_then(Value::as_str).unwrap_or(self.database);
        let mut message = self.message.clone();
        message.sequences.clear();
        let collection = first.value.as_name();
        Some(Self { message, body, name, class, target: first.value, database, collection, envelope })
    }

    /// Returns the collection that the first value names.
    pub fn collection(&self) -> Option<Namespace<'a>> {
        self.collection.map(|collection| Namespace { database: self.database, collection })
    }

    /// Returns the parameters of the Stable API. Every command of a transaction and every getMore of a cursor must
    /// have the same ones as the first command, so docward adds them to its own commands too.
    pub fn api_parameters(&self) -> impl Iterator<Item = Element<'a>> {
        let names: [&[u8]; 3] = [b"apiVersion", b"apiStrict", b"apiDeprecationErrors"];
        self.body.elements().filter(move |element| names.contains(&element.key))
    }

    /// Returns the session fields (driver specifications "Sessions", "Transactions", "Retryable Writes").
    pub fn session(&self) -> SessionFields<'a> {
        self.envelope.session
    }
}

/// Returns the name and the class of a command, or `None` if the name is not UTF-8.
fn read_name(key: &[u8]) -> Option<(&str, CommandClass)> {
    catalogue::find(key).or_else(|| Some((std::str::from_utf8(key).ok()?, CommandClass::Unknown)))
}

/// The fields that many commands share, found in one pass.
#[derive(Debug, Clone, Copy, Default)]
struct CommonFields<'a> {
    /// `$db`.
    database: Option<Value<'a>>,
    session: SessionFields<'a>,
    comment: Option<Value<'a>>,
    /// `let`.
    variables: Option<Value<'a>>,
    /// This and the next three fields are for write commands.
    list: Option<Value<'a>>,
    ordered: Option<Value<'a>>,
    statement_id: Option<Value<'a>>,
    statement_ids: Option<Value<'a>>,
}

impl<'a> CommonFields<'a> {
    fn from_body(body: Document<'a>, class: CommandClass) -> Self {
        let list = WriteForm::for_class(class).and_then(WriteForm::list).map(str::as_bytes);
        let mut envelope = Self::default();
        let session = &mut envelope.session;
        for Element { key, value } in body.elements() {
            match key {
                b"$db" => envelope.database = Some(value),
                b"autocommit" => session.in_transaction = value.as_bool() == Some(false),
                b"comment" => envelope.comment = Some(value),
                b"let" => envelope.variables = Some(value),
                b"lsid" => session.lsid = Some(value),
                b"ordered" => envelope.ordered = Some(value),
                b"startTransaction" => session.starts_transaction = value.as_bool() == Some(true),
                b"stmtId" => envelope.statement_id = Some(value),
                b"stmtIds" => envelope.statement_ids = Some(value),
                b"txnNumber" => session.txn_number = Some(value),
                key if list == Some(key) => envelope.list = Some(value),
                _ => {}
            }
        }
        envelope
    }
}

/// The session fields of a command.
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

fn check<'a>(bytes: &'a [u8], part: &'static str) -> Result<Checked<'a>, CommandError> {
    Checked::parse(bytes).map_err(|fault| CommandError::NotBson { part, fault })
}

fn parse_document<'a>(bytes: &'a [u8], part: &'static str) -> Result<Document<'a>, CommandError> {
    check(bytes, part).map(Checked::document)
}

fn distinct<'a>(checked: Checked<'a>, part: &'static str) -> Result<Document<'a>, CommandError> {
    checked.distinct().map_err(|fault| CommandError::Ambiguous { part, fault })
}

pub fn reject_duplicates(document: Document<'_>, part: &'static str) -> Result<(), CommandError> {
    document.reject_duplicates().map_err(|fault| CommandError::Ambiguous { part, fault })
}
