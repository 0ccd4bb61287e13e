//! Reads command replies, and writes docward's own error replies.

use std::time::Duration;

use super::{CommandError, code, parse_document};
use crate::document::{Document, Element, Value, Writer};
use crate::wire::header::OpCode;
use crate::wire::op_msg::{self, Message};
use crate::wire::{Header, op_query};

/// A parsed OP_MSG reply.
#[derive(Debug, Clone)]
pub struct Reply<'a> {
    pub message: Message<'a>,
    pub body: Document<'a>,
    fields: ReplyFields<'a>,
}

/// The fields that docward reads from nearly every reply, found in one pass.
#[derive(Debug, Clone, Copy, Default)]
struct ReplyFields<'a> {
    ok: Option<Value<'a>>,
    n: Option<Value<'a>>,
    modified: Option<Value<'a>>,
    upserted: Option<Value<'a>>,
    write_errors: Option<Value<'a>>,
    write_concern_error: Option<Value<'a>>,
    cursor: Option<Value<'a>>,
}

impl<'a> ReplyFields<'a> {
    fn from_body(body: Document<'a>) -> Self {
        let mut fields = Self::default();
        for Element { key, value } in body.elements() {
            match key {
                b"cursor" => fields.cursor = Some(value),
                b"n" => fields.n = Some(value),
                b"nModified" => fields.modified = Some(value),
                b"ok" => fields.ok = Some(value),
                b"upserted" => fields.upserted = Some(value),
                b"writeConcernError" => fields.write_concern_error = Some(value),
                b"writeErrors" => fields.write_errors = Some(value),
                _ => {}
            }
        }
        fields
    }
}

impl<'a> Reply<'a> {
    /// Parses an OP_MSG reply.
    ///
    /// # Errors
    /// [`CommandError`] if the server's message is malformed.
    pub fn parse(frame: &'a [u8]) -> Result<Self, CommandError> {
        let message = Message::parse(frame)?;
        let body = parse_document(message.body, "the server's reply")?;
        Ok(Self { message, body, fields: ReplyFields::from_body(body) })
    }

    pub fn is_ok(&self) -> bool {
        self.fields.ok.and_then(Value::as_flag) == Some(true)
    }

    /// Returns the `code` of an error.
    pub fn code(&self) -> Option<i32> {
        self.body.get("code").and_then(Value::as_i32)
    }

    /// Returns the text of an error; empty if it is missing.
    pub fn error_text(&self) -> &'a str {
        self.body.get("errmsg").and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns `n`, the number of documents that statements matched, inserted or deleted; 0 if it is missing.
    pub fn n(&self) -> i64 {
        self.fields.n.and_then(Value::as_integer).unwrap_or(0)
    }

    /// Returns `nModified`; 0 if it is missing.
    pub fn modified(&self) -> i64 {
        self.fields.modified.and_then(Value::as_integer).unwrap_or(0)
    }

    /// Returns another count; 0 if it is missing.
    pub fn count(&self, field: &str) -> i64 {
        self.body.get(field).and_then(Value::as_integer).unwrap_or(0)
    }

    /// Returns the array `upserted` as the document that encodes it; empty if it is missing.
    pub fn upserted(&self) -> Document<'a> {
        self.fields.upserted.and_then(Value::as_array).unwrap_or(Document::EMPTY)
    }

    /// Returns the array `writeErrors` as the document that encodes it; empty if it is missing.
    pub fn write_errors(&self) -> Document<'a> {
        self.fields.write_errors.and_then(Value::as_array).unwrap_or(Document::EMPTY)
    }

    /// Returns `writeConcernError`.
    pub fn write_concern_error(&self) -> Option<Value<'a>> {
        self.fields.write_concern_error
    }

    pub fn cursor(&self) -> Option<Document<'a>> {
        self.fields.cursor?.as_document()
    }

    /// Returns the documents of a cursor's reply, the first one or a later one.
    pub fn batch(&self) -> Option<Document<'a>> {
        ["firstBatch", "nextBatch"].into_iter().find_map(|name| self.cursor()?.get(name)?.as_array())
    }

    /// Returns the id of the cursor; 0 if it has no more documents.
    pub fn cursor_id(&self) -> Option<i64> {
        self.cursor()?.get("id")?.as_integer()
    }

    /// Returns the array `firstBatch` of the cursor as the document that encodes it.
    pub fn first_batch(&self) -> Option<Document<'a>> {
        self.cursor()?.get("firstBatch")?.as_array()
    }

    /// Returns the documents of a find's reply.
    pub fn found(&self) -> Option<Vec<Document<'a>>> {
        self.first_batch()?.values().map(Value::as_document).collect()
    }

    /// Returns the same reply with another body, for the client's request.
    pub fn with_body(&self, response_to: i32, write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let header = self.message.header;
        let mut writer =
            op_msg::MessageWriter::new(header.request_id, response_to, self.message.flags, header.length + 64);
        writer.body(|out| Writer::document(out, write));
        writer.finish()
    }
}

/// The server is overloaded, nothing was executed, and a retry is safe: the labels of the driver specification "Client
/// Backpressure". Drivers that know it retry.
const OVERLOAD_LABELS: [&str; 3] = ["SystemOverloadedError", "RetryableError", "NoWritesPerformed"];

/// The longest pause of a driver, from the same specification, in milliseconds.
const MAX_BACKOFF: i32 = 10_000;

/// Writes the labels of an overload error, and if it is known when there will be room, the pause before a retry.
///
/// Drivers pause on average for `baseBackoffMS` before their first retry, and for twice as long before the second.
pub fn write_overload(w: &mut Writer<'_>, room_in: Option<Duration>) {
    w.array("errorLabels", |labels| OVERLOAD_LABELS.iter().for_each(|label| labels.string(label)));
    if let Some(room_in) = room_in {
        let milliseconds = i32::try_from(room_in.as_millis()).unwrap_or(i32::MAX);
        w.int32("baseBackoffMS", milliseconds.clamp(1, MAX_BACKOFF));
    }
}

/// Returns `{ok: 0, errmsg, code, codeName}` with the opcode of the request. `extra` may add fields such as
/// `errInfo`.
pub fn error_reply(request: Header, error_code: i32, message: &str, extra: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let body = crate::document::document(|w| {
        w.double("ok", 0.0);
        w.string("errmsg", message);
        w.int32("code", error_code);
        w.string("codeName", code::name(error_code).unwrap_or("UnknownError"));
        extra(w);
    });
    match request.op_code {
        OpCode::Query => op_query::write_reply(0, request.request_id, &body),
        _ => {
            let mut writer = op_msg::MessageWriter::new(0, request.request_id, 0, body.len() + 32);
            writer.body(|out| out.extend_from_slice(&body));
            writer.finish()
        }
    }
}
