//! A command's reply: what docward reads of it, and the ones it writes itself.

use super::{CommandError, code, parse_document};
use crate::document::{Document, Value, Writer};
use crate::wire::header::OpCode;
use crate::wire::op_msg::{self, Message};
use crate::wire::{Header, op_query};

/// A parsed OP_MSG reply.
#[derive(Debug, Clone)]
pub struct Reply<'a> {
    pub message: Message<'a>,
    pub body: Document<'a>,
}

impl<'a> Reply<'a> {
    /// # Errors
    /// [`CommandError`] when the server's frame cannot be read.
    pub fn parse(frame: &'a [u8]) -> Result<Self, CommandError> {
        let message = Message::parse(frame)?;
        let body = parse_document(message.body, "the server's reply")?;
        Ok(Self { message, body })
    }

    pub fn is_ok(&self) -> bool {
        self.body.get("ok").and_then(Value::as_flag) == Some(true)
    }

    /// A count such as `n`; 0 when the server left it out.
    pub fn count(&self, field: &str) -> i64 {
        self.body.get(field).and_then(Value::as_integer).unwrap_or(0)
    }

    /// The same reply with another body, for the client's request.
    pub fn with_body(&self, response_to: i32, write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let header = self.message.header;
        let mut writer = op_msg::Writer::new(header.request_id, response_to, self.message.flags, header.length + 64);
        writer.body(|out| Writer::document(out, write));
        writer.finish()
    }
}

/// `{ok: 0, errmsg, code, codeName}` in the opcode of the request, for what is refused as a whole.
/// `extra` may add fields such as `errInfo`.
pub fn error_reply(request: Header, error_code: i32, message: &str, extra: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let body = crate::document::document(|w| {
        w.double("ok", 0.0);
        w.string("errmsg", message);
        w.int32("code", error_code);
        w.string("codeName", code::name(error_code));
        extra(w);
    });
    match request.op_code {
        OpCode::Query => op_query::write_reply(0, request.request_id, &body),
        _ => {
            let mut writer = op_msg::Writer::new(0, request.request_id, 0, body.len() + 32);
            writer.body(|out| out.extend_from_slice(&body));
            writer.finish()
        }
    }
}
