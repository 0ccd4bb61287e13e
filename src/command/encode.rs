//! Statements back into messages: the whole command, or a part of it.

use super::Command;
use super::batch::{Batch, Form};
use super::statement::Statement;
use crate::document::Writer;
use crate::wire::op_msg::{self, MORE_TO_COME};

/// One statement of a part, with its place in the client's batch.
#[derive(Debug, Clone)]
pub struct Part<'p, 'a> {
    pub index: usize,
    pub statement: &'p Statement<'a>,
}

impl<'a> Batch<'a> {
    /// All statements, in the client's message: same flags, same fields.
    pub fn encode(&self, command: &Command<'a>, statements: &[Statement<'a>]) -> Vec<u8> {
        let parts: Vec<_> = statements.iter().enumerate().map(|(index, statement)| Part { index, statement }).collect();
        self.write(command, &parts, command.message.flags, false)
    }

    /// Some statements, as an acknowledged command of their own. In a retryable write each keeps the number
    /// by which the server knows it (`stmtIds`).
    pub fn encode_part(&self, command: &Command<'a>, parts: &[Part<'_, 'a>]) -> Vec<u8> {
        self.write(command, parts, command.message.flags & !MORE_TO_COME, true)
    }

    fn write(&self, command: &Command<'a>, parts: &[Part<'_, 'a>], flags: u32, split: bool) -> Vec<u8> {
        let header = command.message.header;
        let mut writer = op_msg::Writer::new(header.request_id, header.response_to, flags, header.length + 256);
        writer.body(|out| Writer::document(out, |w| self.write_body(w, command, parts, split)));
        if let Some(list) = self.form.list() {
            writer.sequence(list, |out| parts.iter().for_each(|part| part.statement.write(out)));
        }
        if let Some(namespaces) = command.message.sequence("nsInfo") {
            writer.sequence("nsInfo", |out| out.extend_from_slice(namespaces.as_bytes()));
        }
        writer.finish()
    }

    fn write_body(&self, w: &mut Writer<'_>, command: &Command<'a>, parts: &[Part<'_, 'a>], split: bool) {
        if let (Form::FindAndModify, Some(part)) = (self.form, parts.first()) {
            return part.statement.write_fields(w, command.body);
        }
        for element in command.body.elements() {
            let dropped = match element.key {
                key if Some(key) == self.form.list().map(str::as_bytes) => true,
                b"stmtIds" | b"stmtId" => split,
                // What becomes of a part must be known, even if the client does not want to.
                b"writeConcern" => split && is_unacknowledged(element.value),
                _ => false,
            };
            if !dropped {
                w.element(element);
            }
        }
        if split && command.session().is_retryable_write() {
            w.array("stmtIds", |a| parts.iter().for_each(|part| a.int32(self.statement_id(part.index))));
        }
    }
}

fn is_unacknowledged(write_concern: crate::document::Value<'_>) -> bool {
    write_concern.as_document().and_then(|concern| concern.get("w")).and_then(|w| w.as_integer()) == Some(0)
}
