//! Merges several replies into one: adds up counts, maps indexes to the client's, and adds docward's own errors.

use super::optimistic_numbers::is_duplicate_key;
use super::port::{Flow, close};
use super::rejection_text;
use super::rejection_text::RejectedBy;
use super::server_errors::{RETRYABLE_WRITE, has_label};
use crate::command::{Command, Namespace, Reply, Statement, WriteForm, code, error_reply};
use crate::document::{CowDocument, Document, Element, OwnedValue, Value, Writer};
use crate::effect::{equality, is_same_number};
use crate::wire::{MAX_COMMAND_DOCUMENT_LENGTH, op_msg};

/// The merged results of the client's statements so far.
#[derive(Debug, Default)]
pub(super) struct MergedResults {
    n: i64,
    modified: i64,
    /// The counts of bulkWrite, in the order of [`BULK_COUNTS`].
    bulk_counts: [i64; 5],
    /// The client's index and the `_id`.
    upserted: Vec<(usize, OwnedValue)>,
    /// The client's index and the error.
    errors: Vec<(usize, MergedError)>,
    /// Bytes of docward's own errors among them.
    own_length: usize,
    /// Successful results of bulkWrite, in the same form.
    results: Vec<(usize, CowDocument<'static>)>,
    /// A reply's `writeConcernError`, and whether it has the label that makes the driver retry because of it.
    write_concern_error: Option<(OwnedValue, bool)>,
    /// Bytes of `upserted` and `results`.
    result_length: usize,
    retried: Vec<i32>,
    /// The fields of the last reply that describe the server rather than the statements.
    server_fields: Option<CowDocument<'static>>,
}

/// An error in the merged reply.
#[derive(Debug)]
enum MergedError {
    /// Its fields without the index.
    Full(CowDocument<'static>),
    /// The code of an error of docward's own for which the reply has no room.
    Code(i32),
}

pub(super) const BULK_COUNTS: [&str; 5] = ["nInserted", "nMatched", "nModified", "nUpserted", "nDeleted"];
/// Fields of a reply about the statements; all others are about the server (opTime, $clusterTime, ...).
const STATEMENT_FIELDS: [&[u8]; 7] =
    [b"n", b"nModified", b"upserted", b"writeErrors", b"retriedStmtIds", b"ok", b"cursor"];
const WRITE_CONCERN_FIELDS: [&[u8]; 2] = [b"writeConcernError", b"errorLabels"];

/// Errors in one reply keep their texts up to this many bytes; later errors keep only their codes. mongod has the
/// same bound: 100,000 errors with texts would exceed the limits of documents and messages.
pub(super) const MAX_ERROR_BYTES: usize = 1 << 20;
/// Upper bound of the bytes in an array's entry besides an upserted `_id` or a result.
const ENTRY_LENGTH: usize = 32;

/// Returns the sum of the results of two parts of one statement.
fn summed(one: Document<'_>, other: Document<'_>) -> CowDocument<'static> {
    let count = |result: Document<'_>, name: &[u8]| result.get(name).and_then(Value::as_integer).unwrap_or(0);
    CowDocument::build(|w| {
        for element in one.elements() {
            match element.key {
                b"n" | b"nModified" => w.integer(element.key, count(one, element.key) + count(other, element.key)),
                _ => w.element(element),
            }
        }
    })
}

impl MergedResults {
    /// Adds the reply for `statements`, the client's indexes of the sent statements. Errors of other statements are
    /// omitted, because those are repeated.
    pub(super) fn add(&mut self, reply: &Reply<'_>, form: WriteForm, statements: &[usize]) {
        self.note_reply(reply);
        self.n += reply.n();
        self.modified += reply.modified();
        if form == WriteForm::BulkWrite {
            for (total, name) in self.bulk_counts.iter_mut().zip(BULK_COUNTS) {
                *total += reply.count(name);
            }
        }
        for entry in reply.upserted().values().filter_map(Value::as_document) {
            let index = position(entry, "index").and_then(|position| statements.get(position));
            if let (Some(index), Some(id)) = (index, entry.get("_id")) {
                self.result_length += id.bytes.len() + ENTRY_LENGTH;
                self.upserted.push((*index, id.into()));
            }
        }
        for (position, error) in errors_of(reply, form) {
            if let Some(index) = statements.get(position) {
                self.errors.push((*index, MergedError::Full(without_index(error))));
            }
        }
        if form == WriteForm::BulkWrite {
            let results = first_batch(reply).values().filter_map(Value::as_document);
            for result in results.filter(|result| !is_error(*result)) {
                if let Some(index) = position(result, "idx").and_then(|position| statements.get(position)) {
                    self.add_result(*index, result);
                }
            }
        }
    }

    /// Returns whether statements have had an effect, or may have.
    pub(super) fn has_effect(&self) -> bool {
        self.n > 0 || self.bulk_counts.iter().any(|count| *count > 0)
    }

    /// A statement that was sent in several parts has one result.
    fn add_result(&mut self, index: usize, result: Document<'_>) {
        match self.results.last_mut().filter(|(last, _)| *last == index) {
            Some((_, known)) => *known = summed(known.as_document(), result),
            None => {
                self.result_length += result.as_bytes().len() + ENTRY_LENGTH;
                self.results.push((index, without_index(result)));
            }
        }
    }

    /// Adds the error of a command for one statement. `before`: text in front of the server's.
    pub(super) fn fail(&mut self, index: usize, body: Document<'_>, before: &str) {
        let error = CowDocument::build(|w| {
            for element in body.elements() {
                match (element.key, element.value.as_str()) {
                    (b"errmsg", Some(text)) => w.string("errmsg", format!("{before}{text}")),
                    (b"code" | b"codeName" | b"errInfo", _) => w.element(element),
                    _ => {}
                }
            }
        });
        self.errors.push((index, MergedError::Full(error)));
    }

    /// Keeps docward's own errors without text, and those for which `stays` returns true, given the client's index and
    /// the error.
    pub(super) fn retain_errors(&mut self, mut stays: impl FnMut(usize, Document<'_>) -> bool) {
        self.errors.retain(|(index, error)| match error {
            MergedError::Full(error) => stays(*index, error.as_document()),
            MergedError::Code(_) => true,
        });
    }

    /// Adds the error of a findAndModify.
    pub(super) fn add_error(&mut self, error: Document<'_>) {
        self.errors.push((0, MergedError::Full(without_index(error))));
    }

    /// Keeps the fields of a reply that are about the server.
    pub(super) fn note_reply(&mut self, reply: &Reply<'_>) {
        let about_server = |key: &[u8]| {
            !STATEMENT_FIELDS.contains(&key)
                && !WRITE_CONCERN_FIELDS.contains(&key)
                && key != b"nErrors"
                && !BULK_COUNTS.iter().any(|n| n.as_bytes() == key)
        };
        let fields = CowDocument::build(|w| {
            for Element { key, value } in reply.body.elements() {
                match key {
                    b"writeConcernError" => {
                        self.write_concern_error = Some((value.into(), has_label(reply, RETRYABLE_WRITE)));
                    }
                    b"retriedStmtIds" => {
                        let ids = value.as_array().unwrap_or(Document::EMPTY);
                        self.retried.extend(ids.values().filter_map(Value::as_i32));
                    }
                    key if about_server(key) => w.value(key, value),
                    _ => {}
                }
            }
        });
        // A reply that docward has made of a record has none.
        if self.server_fields.is_none() || !fields.as_document().is_empty() {
            self.server_fields = Some(fields);
        }
    }

    /// Returns the smallest index with an error.
    pub(super) fn first_error(&self) -> Option<usize> {
        self.errors.iter().map(|(index, _)| *index).min()
    }

    /// Adds a rejection.
    pub(super) fn reject(
        &mut self,
        index: usize,
        statement: &Statement<'_>,
        rejected: &RejectedBy<'_>,
        ns: Namespace<'_>,
    ) {
        self.add_own(index, rejected.rejection.code, MAX_ERROR_BYTES, |w| {
            w.string("errmsg", rejection_text::message(rejected, statement.kind_name(), ns));
            rejection_text::write_error_info(w, rejected, Document::EMPTY);
        });
    }

    /// Adds an error of docward's own. Its text is built only if the own errors so far have fewer bytes than `limit`.
    fn add_own(&mut self, index: usize, code: i32, limit: usize, text: impl FnOnce(&mut Writer<'_>)) {
        let error = match self.own_length < limit {
            true => MergedError::Full(CowDocument::build(|w| {
                w.int32("code", code);
                text(w);
            })),
            false => MergedError::Code(code),
        };
        self.own_length += match &error {
            MergedError::Full(error) => error.as_document().as_bytes().len(),
            MergedError::Code(_) => 0,
        };
        self.errors.push((index, error));
    }

    /// Returns the bytes of successful results so far.
    pub(super) fn result_length(&self) -> usize {
        self.result_length
    }

    /// Adds the error for a statement that was not sent because the reply has no room for its result.
    pub(super) fn fail_unsent(&mut self, index: usize) {
        const TEXT: &str = "docward did not send this statement: the results of those before it fill the reply. Send it \
                            in another batch.";
        // Rejections are added later, and their texts contain more.
        self.add_own(index, code::EXCEEDED_MEMORY_LIMIT, MAX_ERROR_BYTES / 2, |w| w.string("errmsg", TEXT));
    }

    /// Returns the client's reply, or an error if the results do not fit into one reply.
    pub(super) fn reply(&mut self, command: &Command<'_>, form: WriteForm) -> Vec<u8> {
        let reply = self.merged_reply(command, form);
        if reply.len() <= MAX_COMMAND_DOCUMENT_LENGTH {
            return reply;
        }
        let text = "docward: the statements were sent, but their results are larger than a reply may be; \
                    read the documents to see the results, and send smaller batches";
        error_reply(command.message.header, code::EXCEEDED_MEMORY_LIMIT, text, |_| {})
    }

    fn merged_reply(&mut self, command: &Command<'_>, form: WriteForm) -> Vec<u8> {
        self.errors.sort_by_key(|(index, _)| *index);
        self.upserted.sort_by_key(|(index, _)| *index);
        let response_to = command.message.header.request_id;
        if let (WriteForm::FindAndModify, Some((_, error))) = (form, self.errors.first()) {
            return find_and_modify_error(command, error);
        }
        let mut writer = op_msg::MessageWriter::new(0, response_to, 0, 256);
        writer.body(|out| {
            Writer::document(out, |w| {
                match form {
                    WriteForm::BulkWrite => self.write_bulk(w),
                    WriteForm::FindAndModify => self.write_nothing_found(w),
                    _ => self.write_batch(w, form),
                }
                if let Some(fields) = &self.server_fields {
                    w.elements(fields.as_document());
                }
                if let Some((error, is_retryable)) = &self.write_concern_error {
                    w.value("writeConcernError", error.as_value());
                    if *is_retryable && command.session().is_retryable_write() {
                        w.array("errorLabels", |labels| labels.string(RETRYABLE_WRITE));
                    }
                }
                if !self.retried.is_empty() {
                    w.array("retriedStmtIds", |a| self.retried.iter().for_each(|id| a.int32(*id)));
                }
                w.double("ok", 1.0);
            });
        });
        writer.finish()
    }

    fn write_batch(&self, w: &mut Writer<'_>, form: WriteForm) {
        // In the server's order.
        w.integer("n", self.n);
        if !self.upserted.is_empty() {
            w.array("upserted", |a| {
                for (index, id) in &self.upserted {
                    a.nested(|w| {
                        w.integer("index", *index as i64);
                        w.value("_id", id.as_value());
                    });
                }
            });
        }
        if form == WriteForm::Update {
            w.integer("nModified", self.modified);
        }
        if !self.errors.is_empty() {
            let mut budget = MAX_ERROR_BYTES;
            w.array("writeErrors", |a| {
                for (index, error) in &self.errors {
                    a.nested(|w| {
                        w.integer("index", *index as i64);
                        write_error(w, error, &mut budget);
                    });
                }
            });
        }
    }

    fn write_bulk(&self, w: &mut Writer<'_>) {
        // A statement that was sent in several parts may have failed in the last one.
        let failed = |index: usize| self.errors.binary_search_by_key(&index, |(index, _)| *index).is_ok();
        let succeeded = self.results.iter().filter(|(index, _)| !failed(*index));
        let mut entries: Vec<(usize, Result<Document<'_>, &MergedError>)> =
            succeeded.map(|(index, result)| (*index, Ok(result.as_document()))).collect();
        entries.extend(self.errors.iter().map(|(index, error)| (*index, Err(error))));
        entries.sort_by_key(|(index, _)| *index);
        let mut budget = MAX_ERROR_BYTES;
        w.nested("cursor", |w| {
            w.slot("id").int64(0);
            w.array("firstBatch", |a| {
                for (index, entry) in entries {
                    a.nested(|w| {
                        w.double("ok", if entry.is_ok() { 1.0 } else { 0.0 });
                        w.integer("idx", index as i64);
                        match entry {
                            Ok(result) => w.elements(result),
                            Err(error) => {
                                let written = write_error(w, error, &mut budget);
                                // The server's own errors contain it already.
                                if written.is_none_or(|written| written.get("n").is_none()) {
                                    w.int32("n", 0);
                                }
                            }
                        }
                    });
                }
            });
            w.string("ns", "admin.$cmd.bulkWrite");
        });
        w.integer("nErrors", self.errors.len() as i64);
        for (count, name) in self.bulk_counts.iter().zip(BULK_COUNTS) {
            w.integer(name, *count);
        }
    }

    fn write_nothing_found(&self, w: &mut Writer<'_>) {
        w.nested("lastErrorObject", |w| {
            w.int32("n", 0);
            w.boolean("updatedExisting", false);
        });
        w.null("value");
    }
}

/// Returns the failed statements of a reply: their position in the sent command, `usize::MAX` if it is none, and the
/// error. The error of a findAndModify is that of its statement.
pub(super) fn errors_of<'r>(reply: &Reply<'r>, form: WriteForm) -> Vec<(usize, Document<'r>)> {
    if form == WriteForm::FindAndModify && !reply.is_ok() {
        return vec![(0, reply.body)];
    }
    let (list, key) = match form {
        WriteForm::BulkWrite => (first_batch(reply), "idx"),
        _ => (reply.write_errors(), "index"),
    };
    let entries = list.values().filter_map(Value::as_document);
    let errors = entries.filter(|entry| form != WriteForm::BulkWrite || is_error(*entry));
    errors.map(|error| (position(error, key).unwrap_or(usize::MAX), error)).collect()
}

/// The same for a command of this many statements.
///
/// # Errors
/// Closes the connection: an error is of none of them, so it is unknown which have failed.
pub(super) fn errors_of_sent<'r>(reply: &Reply<'r>, form: WriteForm, sent: usize) -> Flow<Vec<(usize, Document<'r>)>> {
    let errors = errors_of(reply, form);
    if errors.iter().any(|(position, _)| *position >= sent) {
        return close("the server's reply to a write has an error of a statement that was not sent");
    }
    Flow::Continue(errors)
}

/// Returns the successful results of a bulkWrite in the reply, in the order of its statements.
pub(super) fn results_of<'r>(reply: &Reply<'r>) -> Vec<Document<'r>> {
    first_batch(reply).values().filter_map(Value::as_document).filter(|result| !is_error(*result)).collect()
}

/// Returns the `_id` that the one statement of a reply has inserted.
pub(super) fn upserted_id(reply: &Reply<'_>, form: WriteForm) -> Option<OwnedValue> {
    let id = match form {
        WriteForm::FindAndModify => reply.body.get("lastErrorObject")?.as_document()?.get("upserted"),
        WriteForm::BulkWrite => results_of(reply).first()?.get("upserted")?.as_document()?.get("_id"),
        _ => reply.upserted().values().next().and_then(Value::as_document)?.get("_id"),
    };
    id.map(OwnedValue::from)
}

/// Returns the position of an upserting statement in its command.
pub(super) fn place_of_upserted(entry: Value<'_>) -> Option<usize> {
    position(entry.as_document()?, "index")
}

/// Returns how many documents a group of one statement matched or inserted.
pub(super) fn matched(reply: &Reply<'_>, form: WriteForm) -> i64 {
    match form {
        WriteForm::BulkWrite => {
            ["nInserted", "nMatched", "nUpserted", "nDeleted"].iter().map(|name| reply.count(name)).sum()
        }
        WriteForm::FindAndModify => {
            let last = reply.body.get("lastErrorObject").and_then(Value::as_document);
            last.and_then(|last| last.get("n")).and_then(Value::as_integer).unwrap_or(0)
        }
        _ => reply.n(),
    }
}

/// Whether an upsert collided with a document that has the key of its own filter. Then the document may match the filter
/// in another version. Any other collision is the client's error.
pub(super) fn is_duplicate_of_filter(error: Document<'_>, filter: Document<'_>) -> bool {
    let Some(keys) = error.get("keyPattern").and_then(Value::as_document) else { return false };
    let stored = error.get("keyValue").and_then(Value::as_document);
    let named = |key: &[u8]| {
        let Some(named) = std::str::from_utf8(key).ok().and_then(|key| equality(filter, key)) else { return false };
        let same = |value: Value<'_>| value == named || is_same_number(value, named);
        stored.is_none_or(|stored| stored.elements().any(|one| one.key == key && same(one.value)))
    };
    is_duplicate_key(error) && keys.elements().all(|key| named(key.key))
}

/// Whether a filter has conditions on the fields of the duplicate key only: then every document with the key matches it.
/// The server, too, repeats only such upserts (`UpdateStage`, `shouldRetryDuplicateKeyException`).
pub(super) fn is_key_only(error: Document<'_>, filter: Document<'_>) -> bool {
    let keys = error.get("keyPattern").and_then(Value::as_document).unwrap_or(Document::EMPTY);
    filter.elements().all(|condition| keys.elements().any(|key| key.key == condition.key))
}

/// Returns the id of a bulkWrite's result cursor if there are more results.
pub(super) fn open_cursor(reply: &Reply<'_>) -> Option<i64> {
    reply.cursor()?.get("id")?.as_integer().filter(|id| *id != 0)
}

/// Returns the first reply of a bulkWrite with the results of a getMore appended.
pub(super) fn join_cursor(first: &[u8], more: &[u8]) -> Option<Vec<u8>> {
    let first = Reply::parse(first).ok()?;
    let more = Reply::parse(more).ok().filter(Reply::is_ok)?;
    let next = more.cursor()?;
    let batch = next.get("nextBatch")?.as_array()?;
    let id = next.get("id")?;
    Some(first.with_body(first.message.header.response_to, |w| {
        for element in first.body.elements() {
            if element.key != b"cursor" {
                w.element(element);
                continue;
            }
            w.nested("cursor", |w| {
                w.value("id", id);
                w.array("firstBatch", |a| first_batch(&first).values().chain(batch.values()).for_each(|v| a.value(v)));
            });
        }
    }))
}

fn first_batch<'r>(reply: &Reply<'r>) -> Document<'r> {
    reply.first_batch().unwrap_or(Document::EMPTY)
}

/// Writes an error's fields and returns them; `None` if only the code and an empty text are written, because `budget` is
/// used up.
fn write_error<'e>(w: &mut Writer<'_>, error: &'e MergedError, budget: &mut usize) -> Option<Document<'e>> {
    match error {
        MergedError::Full(error) => {
            let error = error.as_document();
            *budget = budget.saturating_sub(error.as_bytes().len());
            if *budget > 0 {
                w.elements(error);
                return Some(error);
            }
            if let Some(code) = error.get("code") {
                w.value("code", code);
            }
        }
        MergedError::Code(code) => w.int32("code", *code),
    }
    w.string("errmsg", "");
    None
}

fn is_error(result: Document<'_>) -> bool {
    result.get("ok").and_then(Value::as_flag) != Some(true)
}

fn position(entry: Document<'_>, key: &str) -> Option<usize> {
    entry.get(key).and_then(Value::as_integer).and_then(|position| usize::try_from(position).ok())
}

/// Returns the fields of an error or result without its index.
fn without_index(entry: Document<'_>) -> CowDocument<'static> {
    CowDocument::build(|w| {
        entry.elements().filter(|e| !matches!(e.key, b"index" | b"idx" | b"ok")).for_each(|e| w.element(e));
    })
}

fn find_and_modify_error(command: &Command<'_>, error: &MergedError) -> Vec<u8> {
    let error = match error {
        MergedError::Full(error) => error.as_document(),
        MergedError::Code(code) => return error_reply(command.message.header, *code, "", |_| {}),
    };
    let code = error.get("code").and_then(Value::as_i32).unwrap_or_default();
    let text = error.get("errmsg").and_then(Value::as_str).unwrap_or_default();
    error_reply(command.message.header, code, text, |w| {
        if let Some(info) = error.get("errInfo") {
            w.value("errInfo", info);
        }
    })
}
