//! A recorded command, as far as its source contains it.

use serde_json::error::Category;

use super::ReplySummary;
use crate::command::{CommandClass, Namespace, WriteForm, classify, is_internal, own};
use crate::document::{CowDocument, Document, Element, Kind, Value};
use crate::fnv::hash_of;
use crate::shell;

/// One recorded command, or the part of it that the source contains.
#[derive(Debug, Clone)]
pub struct RecordedCommand {
    pub client: Client,
    /// Milliseconds since 1970 UTC, if known: the arrival of the command, or in logs and profiles its end.
    pub milliseconds: Option<i64>,
    /// The position of its first line among the lines of its log; 0 in other sources.
    pub line: i64,
    /// How long the server took, in milliseconds, if the source has it.
    pub took: Option<u64>,
    pub content: RecordedContent,
    /// Only the statements are known, not the command's other fields, such as its comment.
    pub partial: bool,
    /// The server's reply; only captures have it.
    pub reply: Option<ReplySummary>,
}

impl RecordedCommand {
    /// Returns the same for a command of the same connection with the same content; `None` if its content or time is not
    /// known.
    #[must_use]
    pub fn fingerprint(&self) -> Option<u64> {
        self.milliseconds?;
        match &self.content {
            RecordedContent::Command(command) => {
                Some(hash_of(command.as_document().as_bytes()) ^ self.client.connection)
            }
            RecordedContent::UnknownStatements(_) => None,
        }
    }

    /// Whether docward sent it for its own work.
    #[must_use]
    pub fn is_own(&self) -> bool {
        let command = match &self.content {
            RecordedContent::Command(command) => command.as_document().as_bytes(),
            RecordedContent::UnknownStatements(_) => &[],
        };
        own::is_own(self.client.app.as_deref(), command)
    }
}

/// The sender.
#[derive(Debug, Clone, Default)]
pub struct Client {
    /// appName
    pub app: Option<String>,
    /// (authentication database, name); `None` if the source does not contain them.
    pub users: Option<Vec<(String, String)>>,
    /// The same for all commands of one connection.
    pub connection: u64,
}

/// The content of a recorded command.
#[derive(Debug, Clone)]
pub enum RecordedContent {
    /// The whole command with its statements and `$db`, without session fields.
    Command(CowDocument<'static>),
    /// The source does not contain what rules need.
    UnknownStatements(UnknownStatements),
}

/// A command whose statements are not known.
#[derive(Debug, Clone)]
pub struct UnknownStatements {
    pub database: String,
    pub collection: String,
    pub class: CommandClass,
    /// The number of statements, at least.
    pub statements: u64,
    /// Why they are not known, as a clause.
    pub reason: &'static str,
}

/// An entry that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

impl From<serde_json::Error> for Unreadable {
    fn from(error: serde_json::Error) -> Self {
        let reason = match error.classify() {
            Category::Data => "its fields are not as the server writes them",
            Category::Io | Category::Syntax | Category::Eof => "it is not JSON in UTF-8",
        };
        Self(reason.to_owned())
    }
}

/// Whether the reader's caller needs a command of this class; called before the command is parsed. The bytes are the
/// command's JSON or BSON; both contain names literally.
pub type CommandFilter<'w> = dyn Fn(Namespace<'_>, CommandClass, &[u8]) -> bool + 'w;

/// Counts recorded commands.
pub trait TrafficConsumer: Send {
    /// Whether it counts such a command; see [`CommandFilter`].
    fn is_relevant(&self, namespace: Namespace<'_>, class: CommandClass, command: &[u8]) -> bool;

    fn add_command(&mut self, recorded: &RecordedCommand);
}

/// The reason for [`UnknownStatements`] if the source truncated the command.
pub(super) const TRUNCATED: &str = "the source truncated it";
/// The reason if the source masked its values.
pub(super) const MASKED: &str = "the source masks its values";
/// The reason if dates, numbers and identifiers have become texts.
pub(super) const UNTYPED: &str = "the export lost the types of its values, which mongoexport and EJSON.stringify keep";
/// What `redactClientLogData` logs instead of a value.
pub(super) const MASK: &str = "###";
/// The reason if a rule needs a field that a [`RecordedCommand::partial`] command lacks.
pub(super) const REST_UNKNOWN: &str = "the source has only the statements of the command";
/// The reason if a rule exempts users.
pub(super) const USER_UNKNOWN: &str = "the source does not contain the user, and the rule names users";
/// The reason if the source never contains it.
const OMITTED: &str = "the source does not contain its documents or statements";
/// The reason if it may have had several statements.
const OMITTED_WITH_NUMBER: &str = "the source contains neither its documents or statements nor their number";

/// Whether a value of a logged command is not what the client sent: the source masked or shortened it.
pub(super) fn is_masked(logged: Document<'_>) -> bool {
    logged.elements().any(|element| match element.value.kind {
        Kind::Document | Kind::Array => element.value.as_document_or_array().is_some_and(is_masked),
        Kind::String => matches!(element.value.as_str(), Some(MASK | "...")) || element.key == b"$truncated",
        _ => false,
    })
}

/// Whether a field belongs to the session and does not change what the command does.
pub(super) fn is_of_session(key: &[u8]) -> bool {
    const NAMES: [&[u8]; 9] = [
        b"lsid",
        b"txnNumber",
        b"autocommit",
        b"startTransaction",
        b"stmtId",
        b"stmtIds",
        b"readConcern",
        b"writeConcern",
        b"txnRetryCounter",
    ];
    NAMES.contains(&key) || (key.starts_with(b"$") && key != b"$db")
}

/// A copy of a command without session fields and with one `$db`.
pub(super) fn without_session_fields(command: Document<'_>, database: &str) -> CowDocument<'static> {
    CowDocument::build(|w| {
        let kept = command.elements().filter(|e| !is_of_session(e.key) && e.key != b"$db");
        kept.for_each(|element| w.element(element));
        w.string("$db", database);
    })
}

/// A command whose statements the entry lacks. `statements` is their number, if known.
pub(super) fn unknown_statements(
    namespace: Namespace<'_>,
    class: CommandClass,
    statements: Option<u64>,
    reason: &'static str,
) -> RecordedContent {
    let (database, collection) = (namespace.database.to_owned(), namespace.collection.to_owned());
    RecordedContent::UnknownStatements(UnknownStatements {
        database,
        collection,
        class,
        statements: statements.unwrap_or(1).max(1),
        reason,
    })
}

/// The content of a command as logged. mongod omits inserted documents and can log other statements as a number;
/// `inserted` is the number of inserted documents.
pub(super) fn content_of(
    shown: Document<'_>,
    namespace: Namespace<'_>,
    class: CommandClass,
    inserted: Option<u64>,
) -> RecordedContent {
    if let Some(list) = WriteForm::for_class(class).and_then(WriteForm::list)
        && shown.get(list).and_then(Value::as_array).is_none()
    {
        let count = shown.get(list).and_then(Value::as_integer).map(i64::unsigned_abs).or(inserted);
        let reason = if count.is_some() { OMITTED } else { OMITTED_WITH_NUMBER };
        return unknown_statements(namespace, class, count, reason);
    }
    let database = shown.get("$db").and_then(|database| database.as_str());
    RecordedContent::Command(without_session_fields(shown, database.unwrap_or(namespace.database)))
}

/// The command with these statements. `rest` has its other known fields.
pub(super) fn joined(
    form: WriteForm,
    namespace: Namespace<'_>,
    rest: Option<Document<'_>>,
    statements: &[Document<'_>],
) -> Option<CowDocument<'static>> {
    let list = form.list()?;
    let name = if form == WriteForm::Delete { "delete" } else { "update" };
    let written = [name.as_bytes(), list.as_bytes(), b"$db"];
    Some(CowDocument::build(|w| {
        w.string(name, namespace.collection);
        let rest = rest.into_iter().flat_map(Document::elements);
        rest.filter(|e| !is_of_session(e.key) && !written.contains(&e.key)).for_each(|element| w.element(element));
        w.array(list, |a| statements.iter().for_each(|one| a.value(Value::document(*one))));
        w.string("$db", namespace.database);
    }))
}

/// The command's comment, which mongod logs with each statement.
pub(super) fn comment(logged: Document<'_>) -> Option<CowDocument<'static>> {
    let comment = logged.get("comment")?;
    Some(CowDocument::build(|w| w.value("comment", comment)))
}

/// A logged update or delete statement as the client sent it. mongod adds its own fields and logs the hint in
/// another form; hints do not matter to rules.
pub(super) fn statement(form: WriteForm, logged: Document<'_>) -> CowDocument<'static> {
    const UPDATE: [&[u8]; 7] = [b"q", b"u", b"c", b"multi", b"upsert", b"arrayFilters", b"collation"];
    const DELETE: [&[u8]; 3] = [b"q", b"limit", b"collation"];
    // mongod logs them even if the client did not send them.
    let is_default =
        |element: &Element<'_>| matches!(element.key, b"multi" | b"upsert") && element.value.as_flag() == Some(false);
    let fields: &[&[u8]] = if form == WriteForm::Delete { &DELETE } else { &UPDATE };
    CowDocument::build(|w| {
        let kept = fields.iter().filter_map(|field| logged.elements().find(|element| element.key == *field));
        kept.filter(|element| !is_default(element)).for_each(|element| w.element(element));
    })
}

/// The namespace of an entry. For a command on a whole database, such as dropDatabase, `ns` is the name of the database.
pub(super) fn namespace_of(ns: &str) -> Option<Namespace<'_>> {
    Namespace::parse(ns).or_else(|| (!ns.is_empty()).then_some(Namespace { database: ns, collection: "" }))
}

/// The name of a command, from its JSON, and the text after it.
fn name(json: &str) -> Option<(&str, &str)> {
    json.trim_start().strip_prefix('{')?.trim_start().strip_prefix('"')?.split_once('"')
}

/// Whether a logged command, as JSON, is one that only servers send.
#[must_use]
pub fn is_between_servers(json: &[u8]) -> bool {
    let name = std::str::from_utf8(json).ok().and_then(name);
    name.is_some_and(|(name, _)| is_internal(name.as_bytes()))
}

/// Whether a logged statement is a write of an aggregation with `$merge`, which has an entry of its own.
pub(super) fn is_of_merge(json: &str) -> bool {
    const ONLY: &str = "upsertSupplied";
    json.contains(ONLY) && shell::document(json).is_ok_and(|logged| logged.as_document().get(ONLY).is_some())
}

/// The class of a command and the collection it names, from its JSON: `{"update":"orders",…`.
///
/// # Errors
/// Its fields are sorted, so its name is not the first.
pub(super) fn head(json: &str) -> Result<Option<(CommandClass, Option<&str>)>, Unreadable> {
    let Some((name, rest)) = name(json) else { return Ok(None) };
    if name.starts_with('$') {
        let reason = "the fields of its command are sorted, but their order has a meaning: export it without sorting";
        return Err(Unreadable(reason.to_owned()));
    }
    let value = rest.trim_start().strip_prefix(':').map(str::trim_start);
    let target = value.and_then(|value| value.strip_prefix('"')?.split_once('"')).map(|(target, _)| target);
    Ok(Some((classify(name.as_bytes()), target)))
}
