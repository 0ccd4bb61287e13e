//! What the first bytes of a request show, read once.
//!
//! It decides where a request goes: whether a rule may apply ([`triage`](super::triage())), how it may share a server
//! connection ([`sharing`](super::sharing)), whether a driver would send it again ([`retried`](super::retried())).
//! Nothing is checked: [`Plan`](super::Plan) parses strictly. Allocates nothing.

use std::cell::OnceCell;

use crate::command::{CommandClass, Namespace, classify};
use crate::document::{Element, Value, peek};
use crate::wire::header::{Header, OpCode};
use crate::wire::op_msg::{BODY_AT, CHECKSUM_PRESENT, SECTIONS_AT, body_of_head, flags_of_head};

const MAX_TIME: &[u8] = b"maxTimeMS";

/// The first bytes of a request, or all of it.
#[derive(Debug)]
pub struct RequestHead<'f> {
    /// `None`: too few bytes, or not a message.
    pub header: Option<Header>,
    /// The frame, as far as it is here.
    here: &'f [u8],
    /// An OP_MSG's flags.
    pub(super) flags: Option<u32>,
    /// Whether an OP_MSG's first section is its body. mongod's own test shell sends document sequences before it.
    pub(super) body_is_first: Option<bool>,
    /// What is here of the body, and of the sections after it; empty unless the body is the first section.
    body: &'f [u8],
    /// The body's first field, which names the command.
    pub(super) first: Option<Element<'f>>,
    class: Option<CommandClass>,
    fields: OnceCell<Fields<'f>>,
}

/// Fields that every command can have. A field that is not among the bytes is as if it were absent.
#[derive(Debug, Default)]
pub(super) struct Fields<'f> {
    database: Option<Value<'f>>,
    pub(super) comment: Option<Value<'f>>,
    pub(super) has_autocommit: bool,
    pub(super) starts_transaction: bool,
    pub(super) session: Option<Value<'f>>,
    pub(super) transaction_number: Option<Value<'f>>,
    pub(super) has_time_limit: bool,
    pub(super) read_preference: Option<Value<'f>>,
    /// Of a killCursors.
    pub(super) cursors: Option<Value<'f>>,
}

impl<'f> RequestHead<'f> {
    /// Reads the first bytes of a request. `bytes` may extend beyond the frame.
    #[must_use]
    #[inline]
    pub fn new(bytes: &'f [u8]) -> Self {
        Self::after(Header::parse(bytes).ok().flatten(), bytes)
    }

    /// As [`Self::new`], for bytes whose header has been parsed.
    #[must_use]
    #[inline]
    pub fn after(header: Option<Header>, bytes: &'f [u8]) -> Self {
        let here = header.and_then(|header| bytes.get(..header.length)).unwrap_or(bytes);
        let message = header.filter(|header| header.op_code == OpCode::Msg).map_or(&[][..], |_| here);
        let body_is_first = message.get(SECTIONS_AT).map(|kind| *kind == 0);
        let body = body_of_head(message).filter(|_| body_is_first == Some(true)).unwrap_or_default();
        let first = peek(body).next();
        Self {
            header,
            here,
            flags: flags_of_head(message),
            body_is_first,
            body,
            first,
            class: first.map(|first| classify(first.key)),
            fields: OnceCell::new(),
        }
    }

    /// Returns whether all bytes of the frame are here.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.header.is_some_and(|header| self.here.len() == header.length)
    }

    /// Returns what is here of the frame.
    #[must_use]
    pub fn bytes(&self) -> &'f [u8] {
        self.here
    }

    /// Returns the command's name; `None` if it is not here, or for another opcode than OP_MSG.
    #[must_use]
    pub fn name(&self) -> Option<&'f [u8]> {
        self.first.map(|first| first.key)
    }

    /// Returns the command's class; `None` as for [`Self::name`].
    #[must_use]
    pub fn class(&self) -> Option<CommandClass> {
        self.class
    }

    /// Returns whether the flags of an OP_MSG are here and have all bits of `flags`.
    #[must_use]
    pub fn has_flags(&self, flags: u32) -> bool {
        self.flags.is_some_and(|all| all & flags == flags)
    }

    /// Returns what is here of the body and of the sections after it; empty if the body is not the first section.
    #[must_use]
    pub fn body_and_rest(&self) -> &'f [u8] {
        self.body
    }

    /// Returns the bytes of the body; `None` if they are not all here.
    pub(super) fn whole_body(&self) -> Option<&'f [u8]> {
        self.body.get(..self.body_length()?)
    }

    /// Returns whether the message has no section after its body.
    pub(super) fn ends_with_body(&self) -> bool {
        let checksum = if self.has_flags(CHECKSUM_PRESENT) { 4 } else { 0 };
        let end = self.whole_body().map(|body| BODY_AT + body.len() + checksum);
        end.is_some() && end == self.header.map(|header| header.length)
    }

    /// Returns the length that the body states.
    pub(super) fn body_length(&self) -> Option<usize> {
        self.body.first_chunk().map(|length| u32::from_le_bytes(*length) as usize)
    }

    /// Returns the fields of the body that are here.
    pub(super) fn fields(&self) -> &Fields<'f> {
        self.fields.get_or_init(|| Fields::of_body(self.body))
    }

    /// Returns the value of `maxTimeMS`. It is seldom needed, so it is not kept.
    pub(super) fn time_limit(&self) -> Option<Value<'f>> {
        let is_present = self.fields().has_time_limit;
        is_present.then(|| peek(self.body).find(|field| field.key == MAX_TIME)).flatten().map(|field| field.value)
    }

    /// Returns the name of the database, of any encoding.
    pub(super) fn database(&self) -> Option<&'f [u8]> {
        self.fields().database?.as_string_bytes()
    }

    /// Returns the collection that the command names by its first value.
    pub(super) fn namespace(&self) -> Option<Namespace<'f>> {
        let collection = self.first?.value.as_name()?;
        Some(Namespace { database: self.fields().database?.as_str()?, collection })
    }
}

impl<'f> Fields<'f> {
    fn of_body(body: &'f [u8]) -> Self {
        let mut fields = Self::default();
        for Element { key, value } in peek(body) {
            match key {
                b"$db" => _ = fields.database.get_or_insert(value),
                b"comment" => _ = fields.comment.get_or_insert(value),
                b"autocommit" => fields.has_autocommit = true,
                b"startTransaction" => fields.starts_transaction |= value.as_bool() == Some(true),
                b"lsid" => _ = fields.session.get_or_insert(value),
                b"txnNumber" => _ = fields.transaction_number.get_or_insert(value),
                MAX_TIME => fields.has_time_limit = true,
                b"$readPreference" => _ = fields.read_preference.get_or_insert(value),
                b"cursors" => _ = fields.cursors.get_or_insert(value),
                _ => {}
            }
        }
        fields
    }
}
