//! What is known of one thing that a client once asked for.

use crate::command::{Class, Form, Namespace, classify};
use crate::document::{CowDocument, Document, Element, Value};

/// One command of the past, or what is left of it.
#[derive(Debug, Clone)]
pub struct RecordedCommand {
    pub client: Client,
    /// When, in milliseconds since 1970 UTC, if it is known.
    pub milliseconds: Option<i64>,
    pub asked: Asked,
    /// Only the statements are known; what the command said beside them, such as its comment, is not.
    pub partial: bool,
}

/// Who asked.
#[derive(Debug, Clone, Default)]
pub struct Client {
    /// appName
    pub app: Option<String>,
    /// (authentication database, name); `None` where the source does not say.
    pub users: Option<Vec<(String, String)>>,
    /// The same for everything that came by one connection.
    pub connection: u64,
}

/// What was asked.
#[derive(Debug, Clone)]
pub enum Asked {
    /// All of it: a command with its statements and its `$db`, without what only mattered to its session.
    Command(CowDocument<'static>),
    /// The source keeps less than rules look at.
    Hidden(Hidden),
}

/// A command whose statements are not known.
#[derive(Debug, Clone)]
pub struct Hidden {
    pub database: String,
    pub collection: String,
    pub class: Class,
    /// How many, at least.
    pub statements: u64,
    /// Why they are not known, as half a sentence.
    pub reason: &'static str,
}

/// An entry that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

/// Whether a command of this class is of interest to whoever reads: asked before it is read. The bytes are the
/// command's, as JSON or BSON; either way names are in them as they are written.
pub type Wanted<'w> = dyn Fn(Namespace<'_>, Class, &[u8]) -> bool + 'w;

/// The reason for [`Hidden`] where the source was cut.
pub(super) const TRUNCATED: &str = "the source truncated it";
/// The reason where a rule looks at what a [`RecordedCommand::partial`] leaves out.
pub(super) const REST_UNKNOWN: &str = "the source leaves out what the command said beside its statements";
/// The reason where the source never has it.
const OMITTED: &str = "the source leaves out what the command carries";

/// Fields that mattered to the session, not to what the command does.
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

/// A command as it is kept: without its session, and with `$db` once.
pub(super) fn kept(command: Document<'_>, database: &str) -> CowDocument<'static> {
    CowDocument::build(|w| {
        let kept = command.elements().filter(|e| !is_of_session(e.key) && e.key != b"$db");
        kept.for_each(|element| w.element(element));
        w.string("$db", database);
    })
}

/// A command that its entry does not show. `statements` is how many it had, if that is known.
pub(super) fn hidden(namespace: Namespace<'_>, class: Class, statements: Option<u64>, reason: &'static str) -> Asked {
    let (database, collection) = (namespace.database.to_owned(), namespace.collection.to_owned());
    Asked::Hidden(Hidden { database, collection, class, statements: statements.unwrap_or(1).max(1), reason })
}

/// A command as its entry shows it. mongod leaves inserted documents out and may write other statements as their
/// number; `inserted` is how many it counted.
pub(super) fn asked(shown: Document<'_>, namespace: Namespace<'_>, class: Class, inserted: Option<u64>) -> Asked {
    if let Some(list) = Form::of(class).and_then(Form::list)
        && shown.get(list).and_then(Value::as_array).is_none()
    {
        let count = shown.get(list).and_then(Value::as_integer).map(i64::unsigned_abs);
        return hidden(namespace, class, count.or(inserted), OMITTED);
    }
    let database = shown.get("$db").and_then(|database| database.as_str());
    Asked::Command(kept(shown, database.unwrap_or(namespace.database)))
}

/// The command that carried these statements. `rest` is what is known of it beside them.
pub(super) fn joined(
    form: Form,
    namespace: Namespace<'_>,
    rest: Option<Document<'_>>,
    statements: &[CowDocument<'static>],
) -> Option<CowDocument<'static>> {
    let list = form.list()?;
    let name = if form == Form::Delete { "delete" } else { "update" };
    let written = [name.as_bytes(), list.as_bytes(), b"$db"];
    Some(CowDocument::build(|w| {
        w.string(name, namespace.collection);
        let rest = rest.into_iter().flat_map(Document::elements);
        rest.filter(|e| !is_of_session(e.key) && !written.contains(&e.key)).for_each(|element| w.element(element));
        w.array(list, |a| statements.iter().for_each(|one| a.value(Value::document(one.as_document()))));
        w.string("$db", namespace.database);
    }))
}

/// The command's comment, which mongod logs with each of its statements.
pub(super) fn comment(logged: Document<'_>) -> Option<CowDocument<'static>> {
    let comment = logged.get("comment")?;
    Some(CowDocument::build(|w| w.value("comment", comment)))
}

/// A logged update or delete as its command had it: mongod adds fields of its own and writes the hint in
/// another form, and hints decide nothing.
pub(super) fn statement(form: Form, logged: Document<'_>) -> CowDocument<'static> {
    const UPDATE: [&[u8]; 7] = [b"q", b"u", b"c", b"multi", b"upsert", b"arrayFilters", b"collation"];
    const DELETE: [&[u8]; 3] = [b"q", b"limit", b"collation"];
    // mongod writes them where they were left out, too.
    let is_default =
        |element: &Element<'_>| matches!(element.key, b"multi" | b"upsert") && element.value.as_flag() == Some(false);
    let fields: &[&[u8]] = if form == Form::Delete { &DELETE } else { &UPDATE };
    CowDocument::build(|w| {
        let kept = logged.elements().filter(|element| fields.contains(&element.key) && !is_default(element));
        kept.for_each(|element| w.element(element));
    })
}

/// The name of a command and the collection it names, from its JSON: `{"update":"orders",…`.
pub(super) fn head(json: &str) -> Option<(Class, Option<&str>)> {
    let (name, rest) = json.trim_start().strip_prefix('{')?.trim_start().strip_prefix('"')?.split_once('"')?;
    let value = rest.trim_start().strip_prefix(':')?.trim_start();
    let target = value.strip_prefix('"').and_then(|text| text.split_once('"')).map(|(target, _)| target);
    Some((classify(name.as_bytes()), target))
}

/// Names a connection by a number: 64-bit FNV-1a.
pub(super) fn connection(name: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    name.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}
