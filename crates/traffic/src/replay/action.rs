//! One command that a replay sends.

use smallvec::SmallVec;

use crate::command::CommandName;
use crate::document::{CowDocument, Document, Kind, OwnedValue, Value, Writer};
use crate::wire::op_msg;

/// Fields that a driver sends as document sequences: together they may be longer than a document.
const LISTS: [&[u8]; 5] = [b"documents", b"updates", b"deletes", b"ops", b"nsInfo"];

/// The bytes of a session's id.
pub type SessionId = [u8; 16];

/// A recorded command, ready to be sent.
#[derive(Debug, Clone)]
pub struct Action {
    /// Counts the actions of a replay, in the order of the recording.
    pub number: u64,
    /// The recorded connection. Its actions are sent in order, each after the reply to the one before.
    pub stream: u64,
    /// When it was recorded, in milliseconds since 1970 UTC.
    pub milliseconds: i64,
    pub name: CommandName,
    /// appName of the recorded connection.
    pub app: Option<Box<str>>,
    /// `database.collection`, or only the database.
    pub namespace: Box<str>,
    /// An earlier action of the same session on another connection, which must be answered first.
    pub after: Option<u64>,
    /// The first action of its stream. It is sent after the last actions of the streams that ended before it.
    pub begins_stream: bool,
    pub ends_stream: bool,
    /// The actions that opened the cursors which this one names, in the order of the command.
    pub cursors: SmallVec<[u64; 1]>,
    /// The session of the transaction that it belongs to.
    pub transaction: Option<SessionId>,
    /// The transaction goes on after it.
    pub in_transaction: bool,
    pub(super) command: CowDocument<'static>,
}

impl Action {
    /// Returns the command with its recorded cursors.
    #[must_use]
    pub fn command(&self) -> Document<'_> {
        self.command.as_document()
    }

    /// Returns the message. `cursors` are the target's cursors in the place of the recorded ones; those that do not exist
    /// any more are omitted.
    #[must_use]
    pub fn frame(&self, request_id: i32, cursors: &[i64]) -> Vec<u8> {
        let command = self.command();
        let (lists, body): (Vec<_>, Vec<_>) =
            command.elements().partition(|element| LISTS.contains(&element.key) && holds_documents(element.value));
        let mut writer = op_msg::MessageWriter::new(request_id, 0, 0, command.as_bytes().len() + 64);
        writer.body(|out| {
            Writer::document(out, |w| {
                for element in body {
                    match (element.key, cursors.first()) {
                        (b"getMore", Some(cursor)) => w.value("getMore", OwnedValue::int64(*cursor).as_value()),
                        (b"cursors", _) if !self.cursors.is_empty() => {
                            w.array("cursors", |a| {
                                cursors.iter().for_each(|cursor| a.value(OwnedValue::int64(*cursor).as_value()));
                            });
                        }
                        _ => w.element(element),
                    }
                }
            });
        });
        for list in lists {
            let Ok(name) = std::str::from_utf8(list.key) else { continue };
            let documents = list.value.as_array().unwrap_or(Document::EMPTY).values();
            writer.sequence(name, |out| documents.for_each(|document| out.extend_from_slice(document.bytes)));
        }
        writer.finish()
    }
}

fn holds_documents(list: Value<'_>) -> bool {
    list.as_array().is_some_and(|list| list.values().all(|value| value.kind == Kind::Document))
}
