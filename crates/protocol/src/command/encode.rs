//! Writes statements as messages: the whole command or a part of it.

use smallvec::SmallVec;

use super::Command;
use super::batch::WriteBatch;
use super::form::WriteForm;
use super::statement::Statement;
use crate::document::{CowDocument, Value, Writer};
use crate::wire::op_msg::{self, MORE_TO_COME};

/// A statement of a part, with its index in the client's batch.
#[derive(Debug, Clone)]
pub struct StatementPart<'p, 'a> {
    pub index: usize,
    pub statement: &'p Statement<'a>,
}

/// The differences between a part and the client's command.
#[derive(Debug, Clone, Copy, Default)]
pub struct EncodeOptions {
    /// An earlier part has started the transaction.
    pub transaction_begun: bool,
    /// The part stops at its first error, even if the client's batch is unordered.
    pub ordered: bool,
    /// The part belongs to a transaction that docward started.
    pub own: Option<OwnTransaction>,
}

/// A transaction that docward runs in its own session, as the user of the client connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnTransaction {
    /// The session's UUID.
    pub session: [u8; 16],
    pub number: i64,
    /// Whether its first command has been sent.
    pub begun: bool,
    /// Whether the server is a mongos.
    pub routed: bool,
}

impl OwnTransaction {
    /// Writes the session fields of a command of this transaction, which is for `client`.
    pub fn write(&self, client: &Command<'_>, w: &mut Writer<'_>) {
        w.nested("lsid", |w| w.slot("id").uuid(self.session));
        w.slot("txnNumber").int64(self.number);
        w.boolean("autocommit", false);
        if !self.begun {
            w.boolean("startTransaction", true);
            // On a replica set member a `snapshot` starts before the oldest active write and may miss a write that
            // was acknowledged since (`TransactionParticipant::_setReadSnapshot`; seen on 6.0). `local` in a
            // transaction is a snapshot too. A mongos chooses one time for all shards only with `snapshot`.
            write_read_concern(w, if self.routed { "snapshot" } else { "local" }, client);
        }
    }
}

/// Writes the read concern of a command of docward's own, so that it does not depend on the deployment's default. It
/// reads what happened before the time that the client names.
pub(super) fn write_read_concern(w: &mut Writer<'_>, level: &str, client: &Command<'_>) {
    const AFTER: &str = "afterClusterTime";
    let concern = client.body.get("readConcern").and_then(Value::as_document);
    w.nested("readConcern", |w| {
        w.string("level", level);
        if let Some(time) = concern.and_then(|concern| concern.get(AFTER)) {
            w.value(AFTER, time);
        }
    });
}

/// The fields for session, transaction and durability. In docward's own transaction none of the client's is used.
const SESSION_FIELDS: [&[u8]; 8] =
    [b"lsid", b"txnNumber", b"autocommit", b"startTransaction", b"readConcern", b"writeConcern", b"stmtId", b"stmtIds"];

/// The extent of a written message: the whole command, or an acknowledged command for some of its statements.
#[derive(Clone, Copy)]
enum EncodedPart {
    Whole,
    Part(EncodeOptions),
}

impl<'a> WriteBatch<'a> {
    /// Writes all statements in the client's message, with the same flags and fields.
    pub fn encode<'p>(&self, command: &Command<'a>, statements: impl Iterator<Item = &'p Statement<'a>>) -> Vec<u8>
    where
        'a: 'p,
    {
        let parts: SmallVec<[_; 4]> =
            statements.enumerate().map(|(index, statement)| StatementPart { index, statement }).collect();
        self.write(command, &parts, EncodedPart::Whole)
    }

    /// Writes some statements as an acknowledged command. In a retryable write each keeps its statement id
    /// (`stmtIds`).
    pub fn encode_part(
        &self,
        command: &Command<'a>,
        parts: &[StatementPart<'_, 'a>],
        options: EncodeOptions,
    ) -> Vec<u8> {
        self.write(command, parts, EncodedPart::Part(options))
    }

    /// Returns the command body with all statements as an array in it, as `explain` requires.
    pub fn encode_body<'p>(
        &self,
        command: &Command<'a>,
        statements: impl Iterator<Item = &'p Statement<'a>>,
    ) -> CowDocument<'a>
    where
        'a: 'p,
    {
        let parts: Vec<_> =
            statements.enumerate().map(|(index, statement)| StatementPart { index, statement }).collect();
        CowDocument::build(|w| {
            self.write_body(w, command, &parts, EncodedPart::Whole);
            if let Some(list) = self.form.list() {
                w.array(list, |a| parts.iter().for_each(|part| a.document(|out| part.statement.write(out))));
            }
        })
    }

    fn write(&self, command: &Command<'a>, parts: &[StatementPart<'_, 'a>], extent: EncodedPart) -> Vec<u8> {
        let header = command.message.header;
        let flags = match extent {
            EncodedPart::Whole => command.message.flags,
            EncodedPart::Part(_) => command.message.flags & !MORE_TO_COME,
        };
        // Only the statements of the part count: a batch that is split into a thousand parts must not allocate its
        // whole length for each.
        let statements: usize = parts.iter().map(|part| part.statement.written_length()).sum();
        let capacity = command.message.body.len() + statements + 128;
        let mut writer = op_msg::MessageWriter::new(header.request_id, header.response_to, flags, capacity);
        writer.body(|out| Writer::document(out, |w| self.write_body(w, command, parts, extent)));
        if let Some(list) = self.form.list() {
            writer.sequence(list, |out| parts.iter().for_each(|part| part.statement.write(out)));
        }
        if let Some(namespaces) = command.message.sequence("nsInfo") {
            writer.sequence("nsInfo", |out| out.extend_from_slice(namespaces.as_bytes()));
        }
        writer.finish()
    }

    fn write_body(
        &self,
        w: &mut Writer<'_>,
        command: &Command<'a>,
        parts: &[StatementPart<'_, 'a>],
        extent: EncodedPart,
    ) {
        let statement = match self.form {
            WriteForm::FindAndModify => parts.first().map(|part| part.statement),
            _ => None,
        };
        let session = command.session();
        // This is the common form of drivers: rules changed only the section with the statements.
        let as_it_came = matches!(extent, EncodedPart::Whole) && !self.in_body && self.body_changes.is_empty();
        if as_it_came && statement.is_none() {
            return w.elements(command.body);
        }
        for element in command.body.elements() {
            let kept = match (extent, element.key) {
                (_, key) if Some(key) == self.form.list().map(str::as_bytes) => false,
                (_, key) if self.body_changes.iter().any(|(changed, _)| changed.as_bytes() == key) => false,
                (EncodedPart::Whole, _) => true,
                (EncodedPart::Part(EncodeOptions { own: Some(_), .. }), key) if SESSION_FIELDS.contains(&key) => false,
                (EncodedPart::Part(_), b"stmtIds") => false,
                (EncodedPart::Part(_), b"stmtId") => self.form == WriteForm::FindAndModify,
                // docward must know the result of a part, even if the client does not request it.
                (EncodedPart::Part(_), b"writeConcern") => !is_unacknowledged(element.value),
                (EncodedPart::Part(options), b"ordered") => !options.ordered,
                // The server accepts both only in the first command of a transaction.
                (EncodedPart::Part(options), b"startTransaction" | b"readConcern") => !options.transaction_begun,
                (EncodedPart::Part(_), _) => true,
            };
            match statement {
                _ if !kept => {}
                Some(statement) => statement.write_field(w, element),
                None => w.element(element),
            }
        }
        if let Some(statement) = statement {
            statement.write_added_fields(w);
        }
        self.body_changes.iter().for_each(|(key, value)| w.value(key, value.as_value()));
        if let EncodedPart::Part(EncodeOptions { own: Some(own), .. }) = extent {
            own.write(command, w);
        } else if matches!(extent, EncodedPart::Part(_))
            && session.is_retryable_write()
            && self.form != WriteForm::FindAndModify
        {
            w.array("stmtIds", |a| parts.iter().for_each(|part| a.int32(self.statement_id(part.index))));
        }
    }
}

/// Returns whether a write concern is `{w: 0}`.
pub fn is_unacknowledged(write_concern: Value<'_>) -> bool {
    write_concern.as_document().and_then(|concern| concern.get("w")).and_then(|w| w.as_integer()) == Some(0)
}
