//! The client's reply to a checked statement that was sent as a findAndModify.

use super::super::merge::BULK_COUNTS;
use crate::command::{Command, Operation, Reply, Statement, WriteForm};
use crate::document::{Document, Value, Writer};

/// What a findAndModify has written.
#[derive(Debug, Clone, Copy)]
pub(super) struct WrittenDocument<'r> {
    /// The document before; `None` if it was inserted, or there is none.
    pub(super) before: Option<Document<'r>>,
    /// The `_id` of the document; `None` if the statement matched nothing.
    pub(super) id: Option<Value<'r>>,
    is_inserted: bool,
}

impl<'r> WrittenDocument<'r> {
    /// The statement matched nothing.
    pub(super) const NOTHING: Self = Self { before: None, id: None, is_inserted: false };

    /// Reads the reply to a findAndModify that returns the whole document before.
    pub(super) fn from_reply(reply: &Reply<'r>) -> Option<Self> {
        let before = reply.body.get("value").and_then(Value::as_document);
        let last = reply.body.get("lastErrorObject").and_then(Value::as_document)?;
        let upserted = last.get("upserted");
        let stored = match before {
            Some(before) => Some(before.get("_id")?),
            None => None,
        };
        Some(Self { before, id: stored.or(upserted), is_inserted: upserted.is_some() })
    }
}

/// Returns whether a document has changed.
pub(super) fn differ(before: Option<Document<'_>>, after: Option<Document<'_>>) -> bool {
    before.map(Document::as_bytes) != after.map(Document::as_bytes)
}

/// Returns the reply to one statement, with this number of changed documents.
pub(super) fn with_modified(request_id: i32, reply: &Reply<'_>, modified: usize) -> Vec<u8> {
    reply.with_body(request_id, |w| write_modified(w, reply.body, modified))
}

/// The counts of a `bulkWrite` are in its cursor too.
fn write_modified(w: &mut Writer<'_>, reply: Document<'_>, modified: usize) {
    for element in reply.elements() {
        match (element.key, element.value.as_document(), element.value.as_array()) {
            (b"nModified", ..) => w.integer("nModified", modified as i64),
            (b"cursor", Some(cursor), _) => w.nested("cursor", |w| write_modified(w, cursor, modified)),
            (b"firstBatch", _, Some(results)) => w.array("firstBatch", |a| {
                let results = results.values().filter_map(Value::as_document);
                results.for_each(|result| a.nested(|w| write_modified(w, result, modified)));
            }),
            _ => w.element(element),
        }
    }
}

/// Returns the reply to the client's statement, with the fields of the server's reply about itself.
pub(super) fn as_client_form(
    command: &Command<'_>,
    form: WriteForm,
    statement: &Statement<'_>,
    reply: &Reply<'_>,
    written: &WrittenDocument<'_>,
    after: Option<Document<'_>>,
) -> Vec<u8> {
    let n = i64::from(written.id.is_some());
    let is_delete = matches!(statement.operation, Operation::Delete(_));
    let modified = i64::from(!is_delete && !written.is_inserted && n > 0 && differ(written.before, after));
    let upserted = written.id.filter(|_| written.is_inserted);
    let returns_new = statement.option("new").and_then(Value::as_flag) == Some(true);
    reply.with_body(command.message.header.request_id, |w| {
        match form {
            WriteForm::FindAndModify => {
                match reply.body.get("lastErrorObject").filter(|_| written.id.is_some()) {
                    Some(last) => w.value("lastErrorObject", last),
                    None => w.nested("lastErrorObject", |w| {
                        w.int32("n", 0);
                        if !is_delete {
                            w.boolean("updatedExisting", false);
                        }
                    }),
                }
                match if returns_new { after } else { written.before } {
                    Some(document) => w.value("value", Value::document(document)),
                    None => w.null("value"),
                }
            }
            WriteForm::BulkWrite => {
                w.nested("cursor", |w| {
                    w.slot("id").int64(0);
                    w.array("firstBatch", |a| {
                        a.nested(|w| {
                            w.double("ok", 1.0);
                            w.int32("idx", 0);
                            w.integer("n", n);
                            if !is_delete {
                                w.integer("nModified", modified);
                            }
                            if let Some(id) = upserted {
                                w.nested("upserted", |w| w.value("_id", id));
                            }
                        });
                    });
                    w.string("ns", "admin.$cmd.bulkWrite");
                });
                w.int32("nErrors", 0);
                let inserted = i64::from(upserted.is_some());
                let (matched, deleted) = if is_delete { (0, n) } else { (n - inserted, 0) };
                let counts = [0, matched, modified, inserted, deleted];
                BULK_COUNTS.iter().zip(counts).for_each(|(name, count)| w.integer(name, count));
            }
            _ => {
                w.integer("n", n);
                if let Some(id) = upserted {
                    w.array("upserted", |a| {
                        a.nested(|w| {
                            w.int32("index", 0);
                            w.value("_id", id);
                        });
                    });
                }
                if !is_delete {
                    w.integer("nModified", modified);
                }
            }
        }
        for element in reply.body.elements() {
            if !matches!(element.key, b"value" | b"lastErrorObject" | b"ok") {
                w.element(element);
            }
        }
        w.double("ok", 1.0);
    })
}
